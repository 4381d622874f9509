"""Needless work."""
