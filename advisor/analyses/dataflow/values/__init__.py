"""Values that are the same again, zero, never read, or known beforehand."""
