"""Training scripts to try things on; `advisor demo` runs the one that lies here."""
