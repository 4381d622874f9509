"""A helper that was left in the rules folder by mistake: it has no check."""
