"""Calls of the model in evaluations: how much of the run they take, whether they keep graphs, and how large they are.

Sizes are those of the first tensor that the module is given, compared with what the same module is given in training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from advisor.analyses.base.watched_run import WatchedRun
from advisor.capture.record import ForwardPass, RankRecord
from advisor.model import Source

# Samples that one layer of a pass hit by chance do not say what all passes do.
_SEEN = 3


class EvaluationCall(Struct, frozen=True):
    """One line that calls a model in evaluation mode.

    us        time of the run in it
    records   autograd records its passes
    samples   in one call, and `trained` in one of a training step; None where they are no such number
    apart     a loop is around it, no turn of which needs what an earlier one returned;  loop: its line
    defined   where the function around it begins
    """

    source: Source
    us: float
    records: bool
    samples: int | None = None
    trained: int | None = None
    apart: bool = False
    loop: Source | None = None
    defined: Source | None = None


class EvaluationCalls(Struct, frozen=True):
    """Those of one rank, the costliest first."""

    missing: ClassVar[str] = WatchedRun.missing
    calls: tuple[EvaluationCall, ...]

    @classmethod
    def compute(cls, run: WatchedRun, record: RankRecord) -> EvaluationCalls:
        """Empty in runs that were recorded by earlier versions."""
        passes = record.run.passes if record.run else []
        mine: dict[Source, list[ForwardPass]] = defaultdict(list)
        trained: dict[int, list[ForwardPass]] = defaultdict(list)
        for one in passes:
            if one.evaluates:
                mine[Source(one.place.file, one.place.line, one.place.function)].append(one)
            else:
                trained[one.module].append(one)
        found = [
            _call(source, us, max(mine[source], key=lambda one: one.hits), trained)
            for source, us in run.evaluated_us.items()
            if mine[source]
        ]
        return cls(tuple(sorted(found, key=lambda one: -one.us)))


def _call(source: Source, us: float, passes: ForwardPass, trained: dict[int, list[ForwardPass]]) -> EvaluationCall:
    sizes = {tuple(one) for one in passes.sizes} - {()}
    other = {tuple(size) for one in trained[passes.module] for size in one.sizes} - {()}
    each, usual = _samples(sizes, other) if passes.hits >= _SEEN else (None, None)
    loop, first = passes.loop, passes.first
    return EvaluationCall(
        source,
        us,
        # Of the layers of one pass the first is given nothing that earlier ones computed: not all samples can tell.
        records=passes.recorded >= _SEEN and 2 * passes.recorded >= passes.inside,
        samples=each,
        trained=usual,
        apart=bool(passes.apart),
        loop=Source(loop.file, loop.line, loop.function) if loop else None,
        defined=Source(source.file, first, source.function) if first else None,
    )


def _samples(sizes: Iterable[tuple[int, ...]], trained: Iterable[tuple[int, ...]]) -> tuple[int | None, int | None]:
    """Samples in one call and in one of training, the most of each; None if more differs than the first number.

    One that lacks that number is a sample by itself.
    """
    of_one = {size[1:] for size in trained}
    if len(of_one) != 1 or not sizes:
        return None, None
    (shape,) = of_one
    counts = [1 if size == shape else size[0] if size[1:] == shape else None for size in sizes]
    known = [one for one in counts if one is not None]
    return (max(known), max(size[0] for size in trained)) if len(known) == len(counts) else (None, None)
