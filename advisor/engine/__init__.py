"""Finds rules, runs them on the analyses of each rank, and joins a Report."""
