"""The same step on other devices, and on other numbers of ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What another accelerator would do for the same step, on the scale of step_time_us; None where it is not known.

    low_us, high_us   the range of the step;  host_us: what would be left of it if the device took no time at all
    known_share       kernel time whose work is known and scaled by the roofline, as a share of all kernel time
    message           the same in a sentence, or why it cannot be said
    """

    device: str
    message: str
    low_us: float | None = None
    high_us: float | None = None
    known_share: float | None = None
    host_us: float | None = None


@dataclass(frozen=True, slots=True)
class AtRanks:
    """What a step would take on so many ranks, on the scale of step_time_us; None where it is not known.

    low_us, high_us   the range of the step; high_us None: only that it takes no less than low_us is known
    low_efficiency, high_efficiency   the step without waiting for communication, as a share of that step
    """

    ranks: int
    low_us: float
    high_us: float | None
    low_efficiency: float | None
    high_efficiency: float


@dataclass(frozen=True, slots=True)
class FittedCollective:
    """What one kind of collective takes on the measured ranks: latency, and bandwidth in bytes of the whole message.

    collectives  that were looked at;  bytes_per_second: None where no two sizes tell it from the latency
    """

    kind: str
    collectives: int
    low_latency_us: float
    high_latency_us: float
    bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class WhatIfRanks:
    """The same training on other numbers of data-parallel or sharded ranks, each with its batch as it is.

    message      one sentence: what was found, or why nothing can be computed; then `rows` is empty
    ranks        that were measured, step_us and efficiency theirs;  alone_us: their step without waiting for
                 communication
    rows         one for each number that was asked about;  fitted: what collectives cost
    assumptions  sentences that the ranges rest on
    """

    message: str
    ranks: int = 0
    step_us: float | None = None
    alone_us: float | None = None
    efficiency: float | None = None
    rows: tuple[AtRanks, ...] = ()
    fitted: tuple[FittedCollective, ...] = ()
    assumptions: tuple[str, ...] = ()
