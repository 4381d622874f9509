"""What the tools of `advisor mcp` answer: typed, and at most 8 KB each as the indented JSON that agents receive.

Every result holds `next_step`, and `cannot_answer`: None, or "because …" where the question has no answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import msgspec

# Without slots: the SDK reads defaults from the classes.
# 8 KB, with room for what the protocol puts around it.
LIMIT_BYTES = 8000
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


@dataclass(frozen=True)
class Saving:
    """Time that a fix saves, ms. low_ms is 0 where only an upper bound is known.

    per: `step`, or `step of the run` for time between steps
    basis: measured | replayed | modelled | assumed
    """

    low_ms: float
    high_ms: float
    per: str
    basis: str


@dataclass(frozen=True)
class FindingView:
    """A finding. saving: None is not measured; diff: the edit as `git apply` reads it, or why there is none.

    counted_with: the rule whose finding saves the same time, so that this one has no saving of its own; empty else
    risk: exact (same numbers), draws (samples of another seed), numerics (differ by rounding), semantics (the training
        changes)
    """

    rule: str
    severity: str
    message: str
    saving: Saving | None
    confirmed: bool
    where: list[str]
    fix: str = ""
    risk: str = ""
    before: str = ""
    after: str = ""
    diff: str = ""
    no_diff: str = ""
    can_be_tried: bool = False
    counted_with: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the step."""

    id: str
    share: float
    ms: float


@dataclass(frozen=True)
class Findings:
    """A page of the findings of a report. step_ms: None is not measured; next_offset: None on the last page."""

    report: str = ""
    step_ms: float | None = None
    steps: int = 0
    parts: list[Part] = field(default_factory=list)
    all_fixes: Saving | None = None
    findings_in_all: int = 0
    findings: list[FindingView] = field(default_factory=list)
    next_offset: int | None = None
    not_judged: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    next_step: str = ""
    cannot_answer: str | None = None


@dataclass(frozen=True)
class Explained:
    """A rule's page."""

    rule: str = ""
    page: str = ""
    next_step: str = ""
    cannot_answer: str | None = None


@dataclass(frozen=True)
class Change:
    """A quantity on both sides; None is not measured."""

    id: str
    unit: str
    base: float | None
    head: float | None
    status: str = ""


@dataclass(frozen=True)
class Compared:
    """Two reports. step_ms: what a step takes in each, None is not measured; change_share: -0.2 is 20 % less time."""

    base_step_ms: float | None = None
    head_step_ms: float | None = None
    change_share: float | None = None
    parts: list[Change] = field(default_factory=list)
    counters: list[Change] = field(default_factory=list)
    ops: list[Change] = field(default_factory=list)
    new_findings: list[str] = field(default_factory=list)
    resolved_findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    next_step: str = ""
    cannot_answer: str | None = None


@dataclass(frozen=True)
class TrialView:
    """A change that was measured, or why not. gain_share: of the step, with the 95 % interval; None is not measured."""

    rules: list[str]
    title: str
    verdict: str
    gain_share: float | None = None
    low_share: float | None = None
    high_share: float | None = None
    losses: str = ""
    why: str = ""


@dataclass(frozen=True)
class TriedView:
    """What `advisor try` measured."""

    report: str = ""
    trials: list[TrialView] = field(default_factory=list)
    together: TrialView | None = None
    left_out: int = 0
    next_step: str = ""
    cannot_answer: str | None = None


@dataclass(frozen=True)
class Gated:
    """The gate's verdict: pass | regression | inconclusive | not comparable."""

    verdict: str = ""
    reason: str = ""
    exit_code: int | None = None
    worse: list[Change] = field(default_factory=list)
    new_findings: list[str] = field(default_factory=list)
    resolved_findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    next_step: str = ""
    cannot_answer: str | None = None


Bounded = TypeVar("Bounded", Compared, TriedView, Gated)


def size(result: Any) -> int:
    """Bytes of a result as agents receive it."""
    return len(msgspec.json.format(msgspec.json.encode(result), indent=2))


def bounded(result: Bounded) -> Bounded:
    """The result within the limit: the longest list loses its last items, and `left_out` counts them."""
    while size(result) > LIMIT_BYTES:
        lists = {one.name: found for one in fields(result) if isinstance(found := getattr(result, one.name), list)}
        longest = max(lists, key=lambda name: size(lists[name]))
        if not lists[longest]:
            break
        change: dict[str, Any] = {longest: lists[longest][:-1], "left_out": result.left_out + 1}
        result = replace(result, **change)
    return result


def cut(text: object, most: int = 300) -> str:
    """One line of at most `most` characters without control characters: names in a trace can be anything."""
    plain = " ".join(_CONTROL.sub(" ", str(text)).split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def ms(us: float | None) -> float | None:
    """Microseconds as milliseconds with four significant digits."""
    return None if us is None else digits(us / 1000)


def digits(value: float) -> float:
    """The number with four significant digits."""
    return float(f"{value:.4g}")
