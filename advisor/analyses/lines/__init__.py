"""Which line of the user's code ran."""
