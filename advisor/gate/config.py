"""`[tool.torch-advisor.gate]`: limits, budgets and suppressions, checked key by key."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from advisor.engine.config import known
from advisor.errors import UsageError
from advisor.gate.counters import NEUTRAL, TOLERANCES
from advisor.gate.sequential_design import SequentialDesign
from advisor.model import Severity, Unit

WHERE = "[tool.torch-advisor.gate]"

# What a budget may be set on: every metric of a report and every counter of the gate, with its unit.
UNITS: Mapping[str, Unit] = {
    "collective_bytes": "bytes",
    "communication_share": "share",
    "d2h_bytes": "bytes",
    "device_busy_share": "share",
    "device_idle_share": "share",
    "exposed_communication_share": "share",
    "exposed_copy_share": "share",
    "fp32_matmul_share": "share",
    "h2d_bytes": "bytes",
    "h2d_pageable_bytes": "bytes",
    "input_wait_share": "share",
    "mfu": "share",
    "peak_memory_bytes": "bytes",
    "samples_per_second": "per_second",
    "step_time_us": "us",
    **dict.fromkeys((id_ for id_ in (*TOLERANCES, *NEUTRAL) if not id_.endswith("_bytes")), "count"),
}
_SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TIMES = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}


class StepTimeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How step time is measured and judged. margin and tolerance are shares, written "2%" or 0.02."""

    margin: str | float = "2%"
    tolerance: str | float = "5%"
    alpha: float = 0.01
    pairs: tuple[int, ...] = (6, 10, 16)
    # 60 steps and 10 to warm up: the median of 60 ratios is steady, and a pair of a 50 ms step costs 7 s.
    steps: int = 60
    warmup: int = 10
    # Four pairs of base against base: enough to see a machine too noisy to be worth ten more.
    self_test: int = 4

    def design(self) -> SequentialDesign:
        """The sequential test that these limits ask for. Raises UsageError for limits that cannot work."""
        margin, tolerance = share(self.margin, "step_time.margin"), share(self.tolerance, "step_time.tolerance")
        if not 0 <= margin < tolerance < 1:
            raise UsageError(
                f"{WHERE} step_time: needs 0 <= margin < tolerance < 100 %, got {margin:g} and {tolerance:g}"
            )
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"{WHERE} step_time.alpha: must lie between 0 and 0.5, got {self.alpha:g}")
        rising = all(a < b for a, b in zip(self.pairs, self.pairs[1:], strict=False))
        if not self.pairs or self.pairs[0] < 3 or not rising:
            raise UsageError(f"{WHERE} step_time.pairs: needs increasing numbers, 3 or more, such as [6, 10, 16]")
        if self.steps < 5 or self.warmup < 0 or self.self_test < 0 or self.self_test == 1:
            raise UsageError(f"{WHERE} step_time: needs steps >= 5, warmup >= 0, self_test 0 or >= 2")
        return SequentialDesign(margin, tolerance, self.alpha, looks=self.pairs)


class CounterLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a counter may grow over its base, and what happens when it does."""

    tolerance: str | float = 0.0
    level: Literal["error", "warn", "off"] = "error"


class Suppression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regression or finding that is accepted for a reason until a day."""

    reason: str
    until: datetime.date
    counter: str = ""
    rule: str = ""
    file: str = ""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An absolute limit: past soft it warns, past hard it fails."""

    id: str
    side: Literal["max", "min"]
    soft: float | None = None
    hard: float | None = None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    baseline: str = "perf-baseline.json"
    step_time: StepTimeLimits = StepTimeLimits()
    counters: dict[str, CounterLimit] = {}
    suppress: list[Suppression] = []
    improvement: Literal["note", "fail"] = "note"
    new_findings: Literal["off", "low", "medium", "high"] = "off"
    share: list[str] = []


class GateConfig(msgspec.Struct, frozen=True):
    """The gate's part of the configuration.

    baseline      file of the checked-in counters, from the folder of the command
    improvement   "fail": an improvement must refresh the baseline, so that its gain is held from then on
    new_findings  the least severity of a new finding that fails the gate; "off": they only inform
    share         ignored paths (data sets) that both worktrees see through a link
    """

    baseline: str
    step_time: StepTimeLimits
    design: SequentialDesign
    counters: dict[str, CounterLimit]
    budgets: tuple[Budget, ...]
    suppress: tuple[Suppression, ...]
    improvement: Literal["note", "fail"]
    new_findings: Severity | None
    share: tuple[str, ...]

    def tolerances(self) -> dict[str, float]:
        """Counter -> how far it may grow, where the configuration says so."""
        return {id_: share(limit.tolerance, f"counters.{id_}.tolerance") for id_, limit in self.counters.items()}


def parse(table: Mapping[str, Any]) -> GateConfig:
    """The table as a GateConfig. Raises UsageError, one line, that names the nearest known key or metric."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{WHERE}: must be a table")
    limits = {key: value for key, value in table.items() if key.startswith(("max_", "min_"))}
    rest = {key: value for key, value in table.items() if key not in limits}
    for key in rest:
        known(key, (*_Table.__struct_fields__, *(f"max_{id_}" for id_ in UNITS)), f"{WHERE} key")
    read = _convert(rest)
    for id_ in read.counters:
        known(id_, TOLERANCES, f"{WHERE} counters metric")
    for entry in read.suppress:
        _check_suppression(entry)
    return GateConfig(
        baseline=read.baseline,
        step_time=read.step_time,
        design=read.step_time.design(),
        counters=read.counters,
        budgets=tuple(_budget(key, value) for key, value in sorted(limits.items())),
        suppress=tuple(read.suppress),
        improvement=read.improvement,
        new_findings=None if read.new_findings == "off" else read.new_findings,
        share=tuple(read.share),
    )


def _convert(rest: Mapping[str, Any]) -> _Table:
    try:
        return msgspec.convert(rest, _Table)
    except msgspec.ValidationError as failure:
        raise UsageError(f"{WHERE}: {str(failure).replace('`$.', '`')}") from failure


def _check_suppression(entry: Suppression) -> None:
    if bool(entry.counter) == bool(entry.rule):
        raise UsageError(f"{WHERE} suppress: name a counter or a rule, not both")
    if not entry.reason.strip():
        raise UsageError(f"{WHERE} suppress: the entry for '{entry.counter or entry.rule}' needs a reason")
    if entry.counter:
        known(entry.counter, TOLERANCES, f"{WHERE} suppress counter")


def _budget(key: str, value: Any) -> Budget:
    side, id_ = key[:3], key[4:]
    known(id_, UNITS, f"{WHERE} metric")
    given = value if isinstance(value, Mapping) else {"hard": value}
    for name in given:
        known(name, ("soft", "hard"), f"{WHERE} {key} key")
    limits = {name: quantity(limit, UNITS[id_], f"{key}.{name}") for name, limit in given.items()}
    if not limits:
        raise UsageError(f"{WHERE} {key}: needs a number, or soft and hard")
    return Budget(id_, side, limits.get("soft"), limits.get("hard"))  # type: ignore[arg-type]


def share(value: str | float, what: str) -> float:
    """A share written "2%" or 0.02. Raises UsageError."""
    return quantity(value, "share", what)


def quantity(value: Any, unit: Unit, what: str) -> float:
    """A number with the suffix of its unit, or bare: "70GiB", "12 ms", "5%", 4. Raises UsageError."""
    suffixes = {"bytes": _SIZES, "us": _TIMES, "share": {"%": 0.01}}.get(unit, {})
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([\d.]+)\s*(\D*?)\s*", value)
        if found and found[2] in {"", *suffixes} and found[1].count(".") < 2:
            number = float(found[1]) * suffixes.get(found[2], 1)
    if not math.isfinite(number) or number < 0:
        example = {"bytes": '"70GiB"', "us": '"12ms"', "share": '"5%"'}.get(unit, "2")
        raise UsageError(f"{WHERE} {what}: '{value}' is not a number such as {example}")
    return number
