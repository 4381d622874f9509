"""The optimizer."""
