"""A pattern of ops that something cheaper replaces: what the replacement saves, and the finding that says so."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    Saving,
    Severity,
    Source,
    duration,
    edits,
    less_by,
    total,
)

from ..shared._places import first_line, place
from ..shared._words import percent

# Rows, or spans of the loop's thread (absolute ns), and the least and the most share of their time that goes; below
# zero: they take longer.
Part = tuple[Ints, float, float]
_Goes = tuple[Ints, float]  # at one end
ON_TENSORS = ("forward", "backward", "other_ops")
_MOST_OTHERS = 3  # lines beside the first that a person looks at
_UNTIMED = "low: nothing, as it was not measured on a device; high: all of these ops"


def rows_of(*rows: int) -> Ints:
    """These rows as an array."""
    return np.array(rows, np.int64)


def whole(rows: Ints) -> tuple[Part, ...]:
    """All of these rows' time goes."""
    return ((rows, 1.0, 1.0),)


class Equivalent(Struct, frozen=True, eq=False, kw_only=True):
    """What was found, and what comes instead.

    parts            the ops of the pattern and their nodes of the backward pass, and which share of their time goes
    how              how the saving is computed, for people
    claims           the parts of the breakdown that they belong to on a host; on a device it is `compute`
    instead_us       (least, most) µs of the un-profiled step on a host that the replacement takes; None: not known, and
                     so is the saving
    ops              "any": also small ones, which the profiler slows more than others; "long": so long that the
                     profiler's cost per row is negligible; "replayed": the saving comes from a replay on a host, too
    timed_on_device  whether the replacement was measured on a device; where not, it may save nothing there
    moves_as_much    the replacement reads and writes as many bytes, in fewer calls, and so evicts as much from the
                     caches; for "any" ops only
    also_us          µs of the un-profiled step outside these rows that the high end includes
    spent_us         recorded µs per step that the message states; None: those of all these rows
    shown            rows whose line is shown, of the first that has one; None: of the first part
    at_most          highest severity; None: by what is confirmed, "high" on a host, "medium" on a device
    """

    parts: tuple[Part, ...]
    how: str
    claims: tuple[str, ...] = ON_TENSORS
    instead_us: tuple[float, float] | None = (0.0, 0.0)
    ops: Literal["any", "long", "replayed"] = "any"
    timed_on_device: bool = True
    moves_as_much: bool = False
    also_us: float = 0.0
    spent_us: float | None = None
    shown: Ints | None = None
    at_most: Severity | None = None


class Worth(Struct, frozen=True, eq=False):
    """What a cheaper equivalent is worth in this run.

    at         for the message: " at train.py:88"
    words      for the message: what the pattern takes, "3.4 ms", and its share of the step, "12 %"
    spent_us   recorded µs per step that the pattern takes
    where      the line that is shown;  others: further lines of the script with ops of the pattern
    """

    saving: Saving | None
    at: str
    words: tuple[str, str]
    spent_us: float
    where: Source | None
    claims: tuple[str, ...]
    at_most: Severity
    others: tuple[Source, ...] = ()

    @property
    def spent(self) -> str:
        """ "3.4 ms of each step (12 %)"."""
        return f"{self.words[0]} of each step ({self.words[1]})"

    def finding(self, message: str, facts: dict[str, Any], fix: Fix) -> Finding:
        """The finding with this message."""
        where = (self.where, *self.others) if self.where else ()
        return Finding(message, self.saving, where, facts, fix, claims=self.claims, at_most=self.at_most)


def worth(price: Price, lines: Lines | None, one: Equivalent, min_share: float) -> Worth | None:
    """What it is worth; None where that is less than `min_share` of the step at most."""
    scale, claims = price.scale, price.claims(*one.claims)
    spent_us = one.spent_us
    if spent_us is None:
        spent_us = _spent_us(price, one.parts)
    spent_us = min(spent_us, price.measured_us(claims))
    saving = _saving(price, one, claims)
    if (saving.high_us if saving else scale.scaled(spent_us)) < min_share * scale.step_us:
        return None
    shown = one.parts[0][0] if one.shown is None else one.shown
    where = first_line(lines, shown)
    took, share = duration(scale.scaled(spent_us)), percent(spent_us / price.ops.steps.step_us)
    on_device: Severity = "medium" if one.timed_on_device else "low"
    at_most = one.at_most or (on_device if price.on_device else "high")
    others = tuple(other for other in _lines(price, lines, shown) if other != where)[:_MOST_OTHERS]
    return Worth(saving, place(where), (took, share), spent_us, where, claims, at_most, others)


def _lines(price: Price, lines: Lines | None, shown: Ints) -> tuple[Source, ...]:
    """The lines of these ops, each once, without the backward pass: its nodes have the line that called it."""
    if lines is None or shown.ndim > 1 or not len(lines.op_source):
        return ()
    events = price.ops.events
    forward = shown[~events.named(AUTOGRAD_NODE)[shown] & (events.forward_thread[shown] <= 0)]
    known = dict.fromkeys(lines.op_source[forward].tolist())
    return tuple(lines.sources[at] for at in known if at >= 0)


def _saving(price: Price, one: Equivalent, claims: tuple[str, ...]) -> Saving | None:
    """What goes, less what comes instead."""
    if one.instead_us is None:
        return None
    if price.on_device and not one.timed_on_device:
        return price.saving([], [edits.remove(rows) for rows, _, _ in one.parts], claims, _UNTIMED)
    least, most = [(rows, share) for rows, share, _ in one.parts], [(rows, share) for rows, _, share in one.parts]
    if one.ops == "long":
        goes_us, longer_us = ([_us(price, ends, sign) for ends in (least, most)] for sign in (1, -1))
        gone = _edits(price, most)
        saving = price.long_ops((goes_us[0], goes_us[1]), claims, one.how, instead_us=one.instead_us, most=gone)
        saving = less_by(saving, (price.scale.scaled(longer_us[1]), price.scale.scaled(longer_us[0])))
    elif one.ops == "any":
        ends, evicts = (_edits(price, least), _edits(price, most)), not one.moves_as_much
        saving = price.divided(*ends, claims, one.how, instead_us=one.instead_us, evicts=evicts)
    else:
        saving = price.saving(_edits(price, least), _edits(price, most), claims, one.how, instead_us=one.instead_us)
    if price.on_device:
        return saving
    return replace(saving, high_us=min(saving.high_us + one.also_us, price.scale.step_us)) if one.also_us else saving


def _spent_us(price: Price, parts: tuple[Part, ...]) -> float:
    """Recorded time of all of these rows, or spans, µs per step."""
    of = [what for what, _, _ in parts]
    if of[0].ndim > 1:
        return price.ops.steps.per_step_us(sum(map(total, of)))
    return price.spent_us(np.unique(np.concatenate(of)))


def _us(price: Price, goes: list[_Goes], sign: int) -> float:
    """Recorded µs per step that go (sign 1), or that what takes longer takes more (sign -1)."""
    return sum(max(sign * share, 0.0) * price.spent_us(rows) for rows, share in goes)


def _edits(price: Price, goes: list[_Goes]) -> list[edits.Edit]:
    """What goes as edits; none where nothing does."""
    return [_edit(price, what, share) for what, share in goes] if any(share for _, share in goes) else []


def _edit(price: Price, what: Ints, share: float) -> edits.Edit:
    """With which this share of the time of rows, or of spans, goes."""
    return edits.scale_time(what, 1 - share) if what.ndim > 1 else price.less(what, share)
