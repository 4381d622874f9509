"""Rules of the Acme team."""
