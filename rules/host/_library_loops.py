"""Python time of a training loop that a library runs: the script has one line for it, which calls the library."""

from __future__ import annotations

from advisor.api import Block, Finding, Fix, Lines, Price, RankRecord, looping_package

from ..shared._words import each_step

_FIX = Fix("Run fewer callbacks, metrics and log lines in each step of the library's loop", "exact")


def of_library(place: Block, us: float, lines: Lines, price: Price, record: RankRecord | None) -> Finding | None:
    """The finding on a place whose lines hold the loop, so that its Python is a library's; None for any other place.

    Which of it a setting of the library can take away is not known: all of it is the most, nothing the least. The ops
    of such a place are those of the model. us: of this Python in a profiled step.
    """
    if not {line.source for line in place.lines} <= lines.holders:
        return None
    package = looping_package(record, {line.source.place for line in place.lines})
    inside = f"in {f'`{package}`' if package else 'a library'}, which runs the loop"
    how = "high: all Python of the library's loop; low: no setting of the library takes any of it away"
    return Finding(
        message=f"Python code between ops takes {each_step(price, us)} at {place.place}, {inside}.",
        saving=price.scale.saving(0.0, us, how),
        where=place.where,
        facts={"python_us": us},
        fix=_FIX,
        claims=("host",),
    )
