"""Settings and states of the script that no trace holds."""
