"""Threads and cores: too many, too few, and those that take a core from the loop."""
