"""Parts of a run: their time and how far it is known, how often the loop was left for them, their lines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from advisor.analyses.base.run_stretches import Group, Span, group_of
from advisor.capture.record import RunSamples, RunTimes
from advisor.model import RunLine, RunPart, Source

# In the order in which a run has them.
PARTS = (
    "startup",
    "training",
    "evaluation",
    "checkpoints",
    "worker_restarts",
    "logging",
    "epoch_end",
    "compilation",
    "other",
    "end",
)
# Before the first training step, and after the last.
OUTSIDE = ("startup", "end")
# How exactly the mean number of samples in one visit is worked out.
_EXACT = 1e-6
# Visits that are sampled twice by chance: if three are expected, none is seen in one case of twenty.
_SURE = 3
_MOST_LINES = 5


def parts_of(spans: Sequence[Span], run: RunTimes) -> dict[str, RunPart]:
    """The parts of a run by their ids, those without time left out."""
    found = {}
    loop_us = sum(span.us for span in spans if span.part not in OUTSIDE)
    for part in PARTS:
        mine = [span for span in spans if span.part == part]
        us = sum(span.us for span in mine)
        if us > 0:
            share = None if part in OUTSIDE else us / loop_us
            found[part] = RunPart(part, us, share, _error_us(mine), _times(part, mine, run), _lines(mine))
    return found


def _error_us(spans: Sequence[Span]) -> float:
    """Standard error of the time of these spans, of which samples tell the share of each kind."""
    squares = 0.0
    for kind in {span.kind for span in spans}:
        hits = sum(span.samples.hits for span in spans if span.kind == kind and span.samples)
        of, kind_us = next(((span.of, span.kind_us) for span in spans if span.kind == kind and span.of), (0, 0.0))
        if of:
            # Agresti and Coull: of few samples that all say the same, the others may yet say something else.
            share = (hits + 2) / (of + 4)
            squares += kind_us**2 * share * (1 - share) / (of + 4)
    return math.sqrt(squares)


def _times(part: str, spans: Sequence[Span], run: RunTimes) -> float | None:
    """How often the loop was left for this part; None where it was not sampled."""
    if part == "training":
        return run.count.get("step", 0) + run.count.get("long", 0)
    if part == "worker_restarts":
        return run.restarts or None
    seen = [span.samples for span in spans if span.samples and span.samples.hits]
    if not seen:
        return None
    most = max(seen, key=lambda one: one.hits)
    times = _visits(most, run.count.get(most.kind, 0))
    if not run.epochs or not all("epoch_end" in one.marks for one in seen):
        return times
    # What happens between one epoch and the next does so once for each, however much of a busy loop is sampled then.
    return float(min(times or run.epochs, run.epochs))


def _visits(one: RunSamples, stretches: int) -> float | None:
    """In how many stretches the loop was at a place, where not every visit was long enough to be sampled.

    With n visits that are sampled m times each on average, n m samples lie in n (1 - exp(-m)) stretches. None if these
    may be any number: no visit was sampled twice, as few of many would be.
    """
    twice = one.hits * (one.hits - 1) / 2 / max(stretches, 1)  # visits sampled twice, if each stretch is a visit
    if one.hits == one.stretches and twice < _SURE:
        return float(stretches) if one.stretches == stretches else None
    least, most = 0.0, 50.0
    while most - least > _EXACT:
        mean = (least + most) / 2
        if mean / -math.expm1(-mean) < one.hits / max(one.stretches, 1):
            least = mean
        else:
            most = mean
    return float(min(max(round(one.hits / most), one.stretches), stretches))


def _lines(spans: Sequence[Span]) -> tuple[RunLine, ...]:
    """The statements in which most of the time passed."""
    groups: dict[Group, list[Span]] = defaultdict(list)
    for span in spans:
        if span.samples is not None and span.samples.file:
            groups[group_of(span.samples)].append(span)
    lines = [line_of(group, mine) for group, mine in groups.items()]
    return tuple(sorted(lines, key=lambda line: -line.us)[:_MOST_LINES])


def line_of(group: Group, spans: Sequence[Span]) -> RunLine:
    """The line of a statement; of a loop its first one, of a function that is called the one with most samples."""
    file, function, block = group
    at: dict[int, float] = defaultdict(float)
    inner: dict[tuple[str, int, str], float] = defaultdict(float)
    loops: dict[tuple[str, int, str], float] = defaultdict(float)
    turned: dict[tuple[tuple[str, int, str], tuple[str, int, str]], float] = defaultdict(float)
    for span in spans:
        if span.samples is not None:
            at[span.samples.line] += span.us
            inner[span.samples.inner] += span.us
            loops[span.samples.loop] += span.us
            turned[span.samples.loop, span.samples.turn] += span.us
    line = block if block and len(at) > 1 else max(at, key=lambda one: at[one])
    most = max(inner, key=lambda one: inner[one])
    guards = {span.samples.guard for span in spans if span.samples is not None}
    guard = Source(file, guards.pop(), function) if len(guards) == 1 and 0 not in guards else None
    us = sum(span.us for span in spans)
    turns = max(loops, key=lambda one: loops[one])
    turn = max((one for one in turned if one[0] == turns), key=lambda one: turned[one])[1]
    below = [Source(*one) if one[0] else None for one in (most, turns, turn)]
    outside = all(span.samples.outside for span in spans if span.samples is not None)
    return RunLine(Source(file, line, function), us, below[0], guard, below[1], below[2], outside)
