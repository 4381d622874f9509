"""Profiling part of a process that runs already: `advisor.profile`, and the cell magic `%%advisor`."""
