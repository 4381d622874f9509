"""Loops of short ops beside a device: runs of ops of a few neighboring lines, for which the device waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import BACKWARD as _NODE
from advisor.api import Category, Intervals, Ints, Lines, Price, Source, total, union

from ..shared._device_waits import waiting_us

# Fewer iterations may be the layers of a model, or a few calls.
_ITERATIONS = 16
# Lines this near belong to one loop: between them stands a bracket, an `else`, a line that costs nothing.
_NEAR = 2
# Ops with weights of their own: a line that calls one in most iterations runs the layers of a model.
_LAYERS = ("linear", "conv", "layer_norm", "batch_norm", "group_norm", "embedding")
_MOST = 0.5


class DeviceLoop(Struct, frozen=True, eq=False):
    """A loop of the script beside a device.

    where       its lines, those with most ops first
    op, times   the op that it calls most often, and how often a step
    rows        its outermost ops;  spans: from the first to the last op of each run of the loop
    waited_us   that the device waits meanwhile, profiled µs per step
    """

    where: tuple[Source, ...]
    op: str
    times: float
    rows: Ints
    spans: Intervals
    waited_us: float


def device_loops(price: Price, lines: Lines) -> Iterator[DeviceLoop]:
    """The loops of the profiled steps, the one that the device waits for longest first."""
    found = (_of_run(price, lines, runs) for runs in _by_place(price, lines).values())
    yield from sorted((one for one in found if one is not None), key=lambda one: -one.waited_us)


def _by_place(price: Price, lines: Lines) -> dict[tuple[str, int], list[Ints]]:
    """Runs of outermost ops whose lines are neighbors, by file and first line of the run."""
    events, ops = price.ops.events, price.ops
    backward = ops.nesting.within(events.named(_NODE.name.split(":")[0]))
    annotated = ops.nesting.within(events.of(Category.ANNOTATION) & events.named("Optimizer.", "DataLoader"))
    rows = ops.outermost
    rows = rows[~backward[rows] & ~annotated[rows]]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    runs: dict[tuple[str, int], list[Ints]] = {}
    current: list[int] = []
    low = high = 0
    file = ""
    step = -1
    # Of few places, for many rows. Without lines nothing is known of any.
    known = lines.op_source[rows].tolist() if len(lines.op_source) else [-1] * len(rows)
    for row, index, at in zip(rows.tolist(), known, ops.links.step[rows].tolist(), strict=True):
        where = lines.sources[index] if index >= 0 else None
        called = where is not None and where.precision == "call"
        if (
            called
            and where is not None
            and current
            and where.file == file
            and at == step
            and low - _NEAR <= where.line <= high + _NEAR
        ):
            low, high = min(low, where.line), max(high, where.line)
            current.append(row)
            continue
        if len(current) >= _ITERATIONS:
            runs.setdefault((file, low), []).append(np.array(current, np.int64))
        current, step = ([row] if called else []), at
        if called and where is not None:
            low = high = where.line
            file = where.file
    if len(current) >= _ITERATIONS:
        runs.setdefault((file, low), []).append(np.array(current, np.int64))
    return runs


def _of_run(price: Price, lines: Lines, runs: list[Ints]) -> DeviceLoop | None:
    """The runs of one place as a loop; None where they call no op often enough, or the layers of a model."""
    events, steps = price.ops.events, price.ops.steps
    rows = np.concatenate(runs)
    # How often each line runs each op: few of both, where there are thousands of rows.
    places = Counter(zip(lines.op_source[rows].tolist(), events.name[rows].tolist(), strict=True))
    names, by_line = Counter[str](), Counter[Source]()
    for (line, name), number in places.items():
        names[events.names[name].removeprefix("aten::")] += number
        by_line[lines.sources[line]] += number
    op, calls = names.most_common(1)[0]
    layers = sum(number for name, number in names.items() if name.startswith(_LAYERS))
    # Each run has its iterations: an op that several lines of one iteration call is counted for the line of most calls.
    iterations = max(places.values()) / len(runs)
    if iterations < _ITERATIONS or layers >= _MOST * iterations * len(runs):
        return None
    spans = union(
        np.array([events.start_ns[run[0]] for run in runs]), np.array([events.end_ns[run].max() for run in runs])
    )
    return DeviceLoop(
        where=tuple(where for where, _ in by_line.most_common(3)),
        op=op,
        times=calls / steps.count,
        rows=rows,
        spans=spans,
        waited_us=waiting_us(price, spans) if total(spans) else 0.0,
    )
