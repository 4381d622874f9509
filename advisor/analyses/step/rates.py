"""Throughput."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.recorded_facts import LoaderFacts
from advisor.analyses.base.scale import MeanStep


class Rates(Struct, frozen=True):
    """How fast samples are processed.

    samples_per_second   batch size / mean step time (un-profiled if captured); None if the batch size is unknown
    why                  reason by name for those that are None
    """

    samples_per_second: float | None
    why: dict[str, str]

    @classmethod
    def compute(cls, mean: MeanStep, loader: LoaderFacts | None) -> Rates:
        """Rates of this rank."""
        why = {}
        batch = loader.loader.batch_size if loader is not None else None
        if batch is None:
            why["samples_per_second"] = "the batch size is not known; `advisor run` records that of a DataLoader"
            return cls(None, why)
        return cls(batch / mean.us * 1e6, why)
