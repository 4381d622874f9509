"""Threads and workers against cores."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.capture.record import RankRecord
from advisor.computed import Missing


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """How many threads want to run at once, and how uneven the steps are.

    cores         cores that the process may use
    threads       intra-op threads of the rank's process
    workers       loader workers of one rank
    ranks         ranks on this host
    wanted        ranks × (threads + workers)
    mean_to_median, p90_to_median   of un-profiled steps; None where not measured: the tail
    """

    cores: int
    threads: int
    workers: int
    ranks: int
    wanted: int
    mean_to_median: float | None
    p90_to_median: float | None

    @classmethod
    def compute(cls, record: RankRecord, steps: Steps) -> ThreadUse:
        """Thread use. Missing on a bare trace, and where cores or threads were not recorded."""
        raise Missing("this analysis is not written yet")
