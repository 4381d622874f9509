"""Cheaper equivalents."""
