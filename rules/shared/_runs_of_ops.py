"""Runs of short ops that PyTorch makes for a purpose of its own, with the Python around them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import Finding, Fix, Ints, Lines, Price, Saving, Source, edits, total, union

from ._places import place
from ._words import each_step

_MOST_NAMED = 3


class Runs(Struct, frozen=True, eq=False):
    """Runs of ops that are worth a finding.

    times     how many a step has
    spent_us  µs of the recorded step from the first to the last op of each
    spent     the same for the message: "3.4 ms of each step (12 %)"
    saving    without them; None on a device, where the waits are those of sync-in-loop, and no GPU confirmed the rest
    where     the lines of most of them
    """

    times: float
    spent_us: float
    spent: str
    saving: Saving | None
    where: tuple[Source, ...]
    claims: tuple[str, ...]

    @property
    def at(self) -> str:
        """For the message: " at train.py:88"."""
        return place(next(iter(self.where), None))

    def finding(self, message: str, facts: dict[str, Any], fix: Fix) -> Finding:
        """The finding with this message."""
        on_host = self.saving is not None
        claims = self.claims if on_host else ()
        return Finding(
            message, self.saving, self.where, facts, fix, claims=claims, at_most="high" if on_host else "low"
        )


def priced(
    price: Price,
    lines: Lines | None,
    runs: tuple[Ints, Ints],
    claims: tuple[str, ...],
    how: str,
    min_share: float,
) -> Runs | None:
    """What these runs are worth; None where there is none, or that is less than `min_share` of the step.

    runs: places among the outermost ops of the first and last op of each. how: of the saving, for people.
    """
    first, last = runs
    if not len(first):
        return None
    spent_us, saving = _spent_in(price, first, last, claims, how)
    if (saving.high_us if saving else price.scale.scaled(spent_us)) < min_share * price.scale.step_us:
        return None
    where = _lines_of(lines, price.ops.outermost[last])
    return Runs(len(first) / price.ops.steps.count, spent_us, each_step(price, spent_us), saving, where, claims)


def _spent_in(price: Price, first: Ints, last: Ints, claims: tuple[str, ...], how: str) -> tuple[float, Saving | None]:
    """(µs per recorded step, what the step saves without them); the latter None on a device, where it is no CPU time.

    first, last: places among the outermost ops of the first and last op of each run. Low: the ops and the Python
    between them; high: with as much around them, up to the next ops.
    """
    events, outer = price.ops.events, price.ops.outermost
    starts, ends = events.start_ns[outer[first]], events.end_ns[outer[last]]
    before = events.end_ns[outer[np.maximum(first - 1, 0)]]
    after = events.start_ns[outer[np.minimum(last + 1, len(outer) - 1)]]
    # What Python does beyond a run's own length before or after it is something else.
    early = np.where(first > 0, np.maximum(before, 2 * starts - ends), starts)
    late = np.where(last + 1 < len(outer), np.minimum(after, 2 * ends - starts), ends)
    narrow, wide = union(starts, ends), union(np.minimum(early, starts), np.maximum(late, ends))
    spent_us = price.ops.steps.per_step_us(total(narrow))
    if price.on_device:
        return spent_us, None
    return spent_us, price.divided([edits.remove_time(narrow)], [edits.remove_time(wide)], claims, how)


def _lines_of(lines: Lines | None, rows: Ints) -> tuple[Source, ...]:
    """The lines of these ops, those with most of them first."""
    known = Counter(at for row in rows.tolist() if lines and (at := lines.where_op(row)))
    return tuple(at for at, _ in known.most_common(_MOST_NAMED))
