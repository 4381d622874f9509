"""Collectives that wait for a rank, as a single rank's trace shows it."""
