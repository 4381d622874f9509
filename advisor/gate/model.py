"""The types of a gate's result: what was compared, and the verdict; exactly the content of its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.errors import INCONCLUSIVE, OK, REGRESSION
from advisor.model import Unit

SCHEMA = "torch-advisor/gate"
VERSION = 1

Verdict = Literal["pass", "regression", "inconclusive", "not comparable"]
# same: equal or within the tolerance; moved: differs, and neither direction is worse; unsteady: differs between the
# steps of one run, so it cannot be compared exactly; not measured: one side lacks it.
RowStatus = Literal["same", "worse", "better", "moved", "unsteady", "not measured"]

EXIT_CODES: dict[Verdict, int] = {
    "pass": OK,
    "regression": REGRESSION,
    "inconclusive": INCONCLUSIVE,
    "not comparable": INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity on both sides.

    gated    whether it affects the verdict; otherwise it is informational
    limit    the limit it was compared with, in words ("exactly 0 more", "at most 2"); empty if there is none
    why      the reason of a status that needs one
    where    `file:line` in the user's code; empty if unknown
    """

    id: str
    unit: Unit
    base: float | None
    head: float | None
    status: RowStatus
    gated: bool = False
    limit: str = ""
    why: str = ""
    where: str = ""

    @property
    def change(self) -> float | None:
        """head - base; None if a side is unknown."""
        return None if self.base is None or self.head is None else self.head - self.base


@dataclass(frozen=True, slots=True)
class Flagged:
    """A finding that one side has and the other has not.

    low_us, high_us  its saving, µs per step; low_us is 0 for an upper bound; None if there is no number
    """

    rule: str
    severity: str
    message: str
    where: str = ""
    high_us: float | None = None
    low_us: float | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    """Step time of head against base, measured in pairs on one machine.

    change, low, high  effect as a share of the base's step time (0.05 = 5 % slower) and its one-sided bounds
    noise              standard deviation between pairs, as a share
    detectable         the smallest change that this many pairs find with 95 % power
    further_pairs      how many more pairs would decide; None if decided, 0 if no practical number would
    self_test_noise    noise of base against base before the comparison; None if it was not run
    """

    decision: Verdict
    change: float
    low: float
    high: float
    pairs: int
    noise: float
    detectable: float
    margin: float
    tolerance: float
    base_us: float
    head_us: float
    mode: Literal["lockstep", "blocks"] = "lockstep"
    further_pairs: int | None = None
    self_test_noise: float | None = None
    confirmed: bool | None = None
    mean_change: float | None = None
    steps_per_pair: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of the explanation of a change: what differs between the two profiles, in µs per step if known."""

    kind: Literal["counter", "op", "kernel", "line", "part", "finding"]
    name: str
    base: float | None
    head: float | None
    unit: Unit
    where: str = ""

    @property
    def change(self) -> float:
        """head - base; an absent side counts as 0, because an op or a line that is not listed takes no time."""
        return (self.head or 0.0) - (self.base or 0.0)


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that outputs of the gate show.

    verdict, reason   the decision, and the reason as a sentence
    counters          deterministic counts; advisory: times and shares, which are informational
    budgets           limits of the configuration
    notes             what affects the reliability of the result; warnings first
    """

    verdict: Verdict
    reason: str
    base: str
    head: str
    counters: tuple[Row, ...] = ()
    advisory: tuple[Row, ...] = ()
    budgets: tuple[Row, ...] = ()
    new_findings: tuple[Flagged, ...] = ()
    gone_findings: tuple[Flagged, ...] = ()
    step_time: StepTime | None = None
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()
    new_baseline: str = ""
    schema: str = SCHEMA
    version: int = VERSION

    @property
    def exit_code(self) -> int:
        """Exit status of the command."""
        return EXIT_CODES[self.verdict]
