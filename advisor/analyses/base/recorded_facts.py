"""Facts that capture recorded, by topic: known or unknown, never assumed."""

from __future__ import annotations

from msgspec import Struct

from advisor.capture.record import Loader, Optimizer, RankRecord
from advisor.computed import Missing


class LoaderFacts(Struct, frozen=True):
    """The loader that the training loop iterated (the first one recorded), as recorded by `advisor run`."""

    loader: Loader

    @classmethod
    def compute(cls, record: RankRecord) -> LoaderFacts:
        """Loader settings. Missing without `advisor run`, and if no DataLoader was iterated."""
        if not record.loaders:
            raise Missing("no DataLoader was iterated during `advisor run`")
        return cls(record.loaders[0])


class OptimizerFacts(Struct, frozen=True):
    """The optimizers whose step() was called, as recorded by `advisor run`."""

    optimizers: tuple[Optimizer, ...]

    @classmethod
    def compute(cls, record: RankRecord) -> OptimizerFacts:
        """Optimizer settings. Missing without `advisor run`, and if there were none."""
        if not record.optimizers:
            raise Missing("no optimizer stepped during `advisor run`")
        return cls(tuple(record.optimizers))
