"""Loops of the user's code: what they run in each iteration, and which iterations depend on earlier ones."""
