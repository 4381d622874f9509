"""Runs in advisor's own process: starts the script, waits for it, and publishes what its ranks recorded."""
