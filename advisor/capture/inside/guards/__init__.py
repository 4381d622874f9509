"""What keeps the script unaware of capture: hooks, signals, and whose code is running."""
