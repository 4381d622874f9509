"""Python and the CPU."""
