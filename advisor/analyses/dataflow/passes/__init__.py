"""Passes through a model that are equal, needless, or go through it again."""
