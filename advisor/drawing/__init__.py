"""Traces drawn as text, for examples and tests."""
