"""Batch size and padding."""
