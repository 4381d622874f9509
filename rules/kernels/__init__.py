"""Kernels and operators."""
