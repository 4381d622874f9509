"""Typed facts about one trace, each worked out once; a module per idea.

An analysis is a frozen dataclass whose `compute` classmethod names, by the types of its parameters, what it needs.
"""
