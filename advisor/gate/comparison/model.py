"""The nouns of a comparison: two reports side by side, exactly what its JSON holds. Nothing here judges a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.gate.model import Cause, Flagged, Row
from advisor.model import Times

SCHEMA = "torch-advisor/comparison"
VERSION = 1

# within the noise: no difference that two single runs could show; not known: step times of a side were not recorded.
Certainty = Literal["faster", "slower", "within the noise", "not known"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One of the two reports.

    step_us   what a step takes (`step_time_us`); None where it was not measured
    times     distribution of its step times;  series_us: the step times themselves, in order
    profiled  the times are those of profiled steps, because no others were recorded
    samples   training samples of a step; None where no loader's batches were seen
    """

    name: str
    command: tuple[str, ...]
    devices: tuple[str, ...]
    versions: dict[str, str]
    steps: int
    step_us: float | None
    times: Times
    series_us: tuple[float, ...]
    profiled: bool
    samples: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Step time of B against A, and how sure the difference is.

    share, low, high   change as a share of A's step time (-0.2: 20 % faster) with its 95 % interval: of the steps of
                       these two runs, widened by how far two runs of one script differ. None where not known
    why                the reason in a sentence
    """

    certainty: Certainty
    why: str
    share: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Mover:
    """A kernel, op, line or module on both sides, µs per step.

    None: this side does not list it. at_most: the side's list is full, so the value is only an upper bound.
    """

    name: str
    base_us: float | None
    head_us: float | None
    base_calls: float | None = None
    head_calls: float | None = None
    at_most: Literal["", "base", "head"] = ""

    @property
    def change_us(self) -> float:
        """head - base in µs; a side that does not list the name counts as nothing."""
        return (self.head_us or 0.0) - (self.base_us or 0.0)


@dataclass(frozen=True, slots=True)
class Movers:
    """Largest changes of one kind, largest first. missing: why there is no table, in words ("not recorded in A")."""

    kind: Literal["kernel", "op", "line", "module"]
    rows: tuple[Mover, ...] = ()
    missing: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding of both reports whose saving or severity moved."""

    base: Flagged
    head: Flagged


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side.

    step      step time;  parts: breakdown ids on the scale of the un-profiled step, µs
    waterfall the parts in their order, whose changes lead from A's step to B's; empty where it cannot be drawn
    ops       kernels and ops whose time per step moved, as the gate lists them
    """

    a: Compared
    b: Compared
    change: Change
    step: Row
    parts: tuple[Row, ...]
    waterfall: tuple[Row, ...]
    movers: tuple[Movers, ...]
    counters: tuple[Row, ...]
    ops: tuple[Cause, ...]
    advisory: tuple[Row, ...]
    new_findings: tuple[Flagged, ...]
    gone_findings: tuple[Flagged, ...]
    changed_findings: tuple[FindingChange, ...] = ()
    notes: tuple[str, ...] = ()
    base: str = ""
    head: str = ""
    schema: str = SCHEMA
    version: int = VERSION


def in_words(change: Change) -> str:
    """How sure the difference is, in a phrase: `faster: -20.1 % (95 %: -26.0 to -13.7)`."""
    if change.share is None:
        return f"not known: {change.why}"
    share = f"{change.share * 100:+.1f} %"
    if change.low is None or change.high is None:
        return f"{share}; its uncertainty is not known: {change.why}"
    span = f"{share} (95 % interval {change.low * 100:+.1f} to {change.high * 100:+.1f} %)"
    return f"{span}: {change.certainty}" if change.certainty == "within the noise" else f"{change.certainty}, {span}"
