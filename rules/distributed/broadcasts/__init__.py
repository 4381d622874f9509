"""Broadcasts that wait for the rank that sends."""
