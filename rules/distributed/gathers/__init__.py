"""Gathers: of shards, of outputs."""
