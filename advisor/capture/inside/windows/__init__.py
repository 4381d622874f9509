"""Profiler windows: one for numbers, one for lines, each exported whole to a file."""
