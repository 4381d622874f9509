"""Quantities: measured ones, and counts of each step."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from advisor.model.source import Source

Unit = Literal["us", "share", "count", "bytes", "ratio", "per_second"]


class Metric(Struct, frozen=True):
    """One quantity: measured (zero included), or not measured and why."""

    id: str
    value: float | None
    unit: Unit
    status: Literal["measured", "not_measured"] = "measured"
    why: str = ""


class Counter(Struct, frozen=True):
    """A count for each complete step of the profiled window, in order, which the gate compares exactly.

    id: a metric id (`cpu_ops`) for a total, or a part of one after a colon (`op:aten::mul`).
    """

    id: str
    unit: Unit
    per_step: tuple[float, ...]
    where: Source | None = None


class OpRow(Struct, frozen=True):
    """A kernel or op name with its total per step."""

    name: str
    kind: str
    us: float
    calls: float
    share: float
