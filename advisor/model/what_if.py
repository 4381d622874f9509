"""The same step on other devices, and on other numbers of ranks."""

from __future__ import annotations

from msgspec import Struct


class WhatIf(Struct, frozen=True):
    """Estimated time of the same step on another accelerator, on the scale of step_time_us; None if not known.

    low_us, high_us   the range of the step;  host_us: what would remain of it if the device took no time
    known_share       share of kernel time that is scaled by the roofline, because its work is known
    message           the same as a sentence, or why there is no estimate
    """

    device: str
    message: str
    low_us: float | None = None
    high_us: float | None = None
    known_share: float | None = None
    host_us: float | None = None


class AtRanks(Struct, frozen=True):
    """Estimated time of a step on a number of ranks, on the scale of step_time_us; None if not known.

    low_us, high_us   the range of the step; high_us None: low_us is only a lower bound
    low_efficiency, high_efficiency   the step without waiting for communication, as a share of the step
    """

    ranks: int
    low_us: float
    high_us: float | None
    low_efficiency: float | None
    high_efficiency: float


class FittedCollective(Struct, frozen=True):
    """Latency and bandwidth (in bytes of the whole message) of one kind of collective on the measured ranks.

    collectives  number of collectives in the fit;  bytes_per_second: None if only one size occurs
    """

    kind: str
    collectives: int
    low_latency_us: float
    high_latency_us: float
    bytes_per_second: float | None


class WhatIfRanks(Struct, frozen=True):
    """The same training on other numbers of data-parallel or sharded ranks, with the same batch per rank.

    message      one sentence: the result, or why nothing can be computed; then `rows` is empty
    ranks        number of measured ranks, with their step_us and efficiency;  alone_us: their step without waiting
                 for communication
    rows         one for each requested number;  fitted: the cost of collectives
    assumptions  assumptions of the ranges, as sentences
    """

    message: str
    ranks: int = 0
    step_us: float | None = None
    alone_us: float | None = None
    efficiency: float | None = None
    rows: tuple[AtRanks, ...] = ()
    fitted: tuple[FittedCollective, ...] = ()
    assumptions: tuple[str, ...] = ()
