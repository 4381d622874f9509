"""When a step begins and ends, which phase of the capture it belongs to, and how long it took."""
