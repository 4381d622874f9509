"""Damaged traces: events mended one by one, and what the report says of the file's health."""
