"""Functions of Python that NumPy calls once for each element, behind a name that looks like an array operation."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, RankRecord

from ._places import first_of, set_at


def named_vectorize(found: Finding, record: RankRecord | None) -> Finding:
    """The finding on lines of a function that `np.vectorize` wraps, with the line that wraps it."""
    settings = record.settings if record else None
    for source in found.where:
        if wraps := set_at(settings, f"vectorize {source.function}") if source.function else ():
            return replace(
                found,
                message=f"{found.message} `np.vectorize` calls `{source.function}` once for each element: compute on "
                "whole arrays.",
                where=first_of((*found.where[:1], *wraps), found.where[1:]),
            )
    return found
