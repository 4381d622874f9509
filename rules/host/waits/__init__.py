"""Waits of the host for the device: reads, sizes, copies, barriers, checks of values, and what to do about each."""
