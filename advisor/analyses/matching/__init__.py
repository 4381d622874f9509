"""Ops of one step found again in another."""
