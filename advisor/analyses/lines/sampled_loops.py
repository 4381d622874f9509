"""Loops of the user's code that samples of the stack show, for steps of so many ops that no line could be recorded."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.lines.lines import Lines
from advisor.analyses.work.op_payload import beyond_calls
from advisor.analyses.work.single_numbers import on_numbers
from advisor.capture.record import RankRecord, RunSamples, TextBlock
from advisor.computed import Missing
from advisor.model import Source

_BACKWARD = "backward"
# Of the samples in a loop, in one loop within it: that one is where the time goes.
_WITHIN = 0.8
# A step with fewer ops can have its lines recorded: they were not for another reason, and no loop is behind its time.
_MANY_OPS = 1000


class SampledLoop(Struct, frozen=True):
    """A loop that was running in some of the samples taken during un-profiled steps.

    where      its statement, then that of the loop around it, if there is one, then the line that most of these samples
               show, then the line that calls the function
    hits       samples in it;  of: samples in steps
    low, high  its share of a step, 95 % interval by Agresti and Coull
    """

    where: tuple[Source, ...]
    hits: int
    of: int
    low: float
    high: float


class SampledLoops(Struct, frozen=True):
    """The loops, the one with most samples first, and what the trace says of the ops that run in steps.

    ops       per step
    numbers   whether nearly all of them take single numbers
    beyond    share of the recorded step that ops take beyond bare calls; None where that is not known
    backward  share of the samples that are in a backward pass
    """

    of: tuple[SampledLoop, ...]
    ops: float
    numbers: bool
    beyond: float | None
    backward: float

    @classmethod
    def compute(cls, step_ops: StepOps, lines: Lines, record: RankRecord | None) -> SampledLoops:
        """Missing where lines were recorded, which tell more, and where there are no samples."""
        if lines.available:
            raise Missing("lines were recorded")
        run = record.run if record is not None else None
        if record is None or run is None:
            raise Missing("the stack was not sampled; capture it with `advisor run`")
        events, steps, rows = step_ops.events, step_ops.steps, step_ops.outermost
        ops = len(rows) / steps.count
        if ops < _MANY_OPS:
            raise Missing(f"a step has {ops:,.0f} ops, too few for a loop to be behind its time")
        samples = [one for one in run.samples if one.kind == "step" and one.hits]
        beyond_ns = beyond_calls(events, step_ops.nesting, step_ops.links.inside)
        recorded_ns = steps.step_us * steps.count * 1e3
        hits = sum(one.hits for one in samples)
        return cls(
            tuple(_loops(samples, hits, record.blocks)),
            ops,
            on_numbers(events, rows),
            None if beyond_ns is None else float(beyond_ns.sum()) / recorded_ns,
            sum(one.hits for one in samples if _BACKWARD in one.marks) / max(hits, 1),
        )


def _loops(samples: Sequence[RunSamples], of: int, text: Mapping[str, Sequence[TextBlock]]) -> Sequence[SampledLoop]:
    found: dict[Source, list[RunSamples]] = defaultdict(list)
    for one in samples:
        head = _statement(one, text)
        if head is not None:
            found[head].append(one)
    return sorted((_loop(head, mine, of) for head, mine in found.items()), key=lambda one: -one.hits)


def _loop(head: Source, samples: Sequence[RunSamples], of: int) -> SampledLoop:
    """The loop, or the one within it that most of its samples are in."""
    heads: tuple[Source, ...] = (head,)
    within: Counter[Source] = Counter()
    for one in samples:
        within[Source(*one.inner_loop) if one.inner_loop[0] else head] += one.hits
    inmost, hits = within.most_common(1)[0]
    if inmost != head and hits >= _WITHIN * within.total():
        heads = (inmost, head)
        samples = [one for one in samples if one.inner_loop[0] and Source(*one.inner_loop) == inmost]
    inner: Counter[Source] = Counter()
    outer: Counter[Source] = Counter()
    for one in samples:
        outer[Source(one.file, one.line, one.function)] += one.hits
        inner[Source(*one.inner) if one.inner[0] else Source(one.file, one.line, one.function)] += one.hits
    hits = sum(inner.values())
    places = (*heads, inner.most_common(1)[0][0], outer.most_common(1)[0][0])
    share = (hits + 2) / (of + 4)
    error = 2 * math.sqrt(share * (1 - share) / (of + 4))
    return SampledLoop(tuple(dict.fromkeys(places)), hits, of, max(share - error, 0.0), min(share + error, 1.0))


def _statement(one: RunSamples, text: Mapping[str, Sequence[TextBlock]]) -> Source | None:
    """The statement of the outermost loop below the training loop that runs; None where there is none."""
    if one.loop[0]:
        return Source(*one.loop)
    is_loop = any(block.kind == "loop" and block.line == one.block for block in text.get(one.file, ()))
    return Source(one.file, one.block, one.function) if one.block and is_loop else None
