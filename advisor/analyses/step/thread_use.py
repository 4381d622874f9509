"""Threads and workers against cores."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.scale import Scale
from advisor.capture.record import RankRecord
from advisor.computed import Missing


class ThreadUse(Struct, frozen=True):
    """How many threads compete for cores, and how uneven the steps are.

    cores         cores that the process may use
    threads       intra-op threads of the rank's process
    workers       loader workers of one rank
    ranks         ranks of the job, assumed to run on this host
    wanted        ranks × (threads + workers)
    mean_to_median, p90_to_median   the tail of un-profiled steps; None if not measured
    """

    cores: int
    threads: int
    workers: int
    ranks: int
    wanted: int
    mean_to_median: float | None
    p90_to_median: float | None

    @classmethod
    def compute(cls, record: RankRecord, scale: Scale) -> ThreadUse:
        """Thread use. Missing if cores or threads were not recorded."""
        cores, threads = record.settings.cores, record.settings.threads
        if not cores or not threads:
            raise Missing("the number of cores or threads was not recorded; capture the script with `advisor run`")
        workers = max((loader.num_workers or 0 for loader in record.loaders), default=0)
        # A job over several hosts is not told apart here, so this is an upper bound there.
        ranks = max(record.world_size, 1)
        times = scale.unprofiled
        tail = (times.mean / times.median if times.mean else None) if times.median else None
        p90 = (times.p90 / times.median if times.p90 else None) if times.median else None
        return cls(cores, threads, workers, ranks, ranks * (threads + workers), tail, p90)
