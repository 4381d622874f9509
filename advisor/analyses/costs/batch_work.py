"""The ops of a step by what they have of its batch: their work per sample, and what comes once for each sample."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.step.deprofiled import Deprofiled
from advisor.analyses.work.op_work import NUMBER_BYTES, Shape, flops, has_batch, product_bytes, shapes, traffic
from advisor.analyses.work.operands import times_gone_through
from advisor.calibration.calibration import Calibration
from advisor.computed import Missing
from advisor.constants import constant
from advisor.trace.events import Category, Floats, Ints, Mask, Trace
from advisor.trace.numbers import distinct, distinct_pairs, numbered
from advisor.trace.op_names import GRADIENT_STORE

# What a matrix product or convolution may take besides its work: dispatch, packing, waking threads.
_OP_US = constant("calls.product_us").value
# Lines that run so often within a step are loops of the user's own, perhaps over the samples.
_TURNS = 16
# From here on a line is Python, and not the dispatch of its ops.
_MOSTLY = 0.4
# What any op takes at least besides its work, recorded: what is above it counts as growing with the batch.
_SMALL_OP_US = constant("calls.recorded_op_us").value
# The slowest that a core multiplies where nothing is known of it: what takes far longer still has waited.
_SLOWEST_GFLOPS = constant("machine.core_small_gflops").value
# Ops that take this many times what work and overhead explain were kept waiting for a core.
_BUSY = constant("calls.busy_times").value
# Losses of one graph, as of several heads or of a critic, go back through it a few times; from here on
# as many passes as samples are no chance.
_FEW_PASSES = 4
# Elementwise ops on small pieces of memory against streaming.
_PIECES = constant("memory.pieces_share").value


class Host(Struct, frozen=True, eq=False):
    """The ops of the steps, with what their times mean.

    written_us  long stretches of Python and the user's own loops, profiled µs per step
    gflops      fp32 arithmetic of one core in convolutions and matrix products, slowest and fastest; 10^9 per second
    gbs         memory traffic of one core in elementwise ops, in small pieces and streaming; 10^9 bytes per second
    """

    trace: Trace
    steps: Steps
    scale: Scale
    nesting: Nesting
    ops: Mask
    written_us: float
    gflops: tuple[float, float]
    gbs: tuple[float, float]

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        scale: Scale,
        nesting: Nesting,
        links: Links,
        written: Written,
        calibration: Calibration,
    ) -> Host:
        """The host's part of a trace."""
        slowest, fastest = calibration.core_small_gflops, calibration.core_fp32_gflops
        memory = calibration.core_memory_gbs
        return cls(
            trace,
            steps,
            scale,
            nesting,
            trace.events.of(Category.CPU_OP) & links.inside,
            written.us,
            (min(slowest.low, fastest.low), max(slowest.high, fastest.high)),
            (memory.low * _PIECES if memory.measured else memory.low, memory.high),
        )


class Written(Struct, frozen=True):
    """Long stretches of Python and loops that somebody wrote, profiled µs per step."""

    us: float

    @classmethod
    def compute(cls, deprofiled: Deprofiled, lines: LineCosts | None) -> Written:
        """From the lines where they were recorded, else from the gaps between ops."""
        if lines is None:
            return cls(deprofiled.python_us)
        loops = sum(line.us - line.python_us for line in lines.lines if line.visits >= _TURNS)
        # A line that mostly calls ops has long gaps between them where a step is short: those come once a step.
        python = sum(line.python_us for line in lines.lines if line.python_us >= _MOSTLY * line.us)
        return cls(python + loops)


class _Calls(Struct, frozen=True):
    """All calls of one kind in the steps: one op on inputs of the same shapes.

    outer  whether they hold other ops;  took_us: in all, without those (of what every step has: as in the middle step,
           so that a step in which other processes had the cores does not decide)
    """

    name: str
    inputs: list[Shape]
    outer: bool
    number: int
    took_us: float


def _calls(host: Host) -> Iterator[_Calls]:
    """The calls with known shapes by kind, but for those of an optimizer."""
    events = host.trace.events
    holds_op = np.zeros(len(events), bool)
    above = host.nesting.parent[host.ops]
    holds_op[above[above >= 0]] = True
    rows = np.flatnonzero(host.ops & (events.dims >= 0) & ~host.nesting.within(events.named("Optimizer.")))
    # One number for each kind of call: its name, its shapes, and whether it holds other ops.
    found, kind = distinct_pairs(events.name[rows], events.dims[rows].astype(np.int64) * 2 + holds_op[rows])
    counts = np.bincount(kind, minlength=len(found))
    own_us = _usual_us(kind, host.steps.step_of(events.start_ns)[rows], host.nesting.self_ns[rows], host.steps.count)
    for (name, key), number, took_us in zip(found.tolist(), counts.tolist(), own_us.tolist(), strict=True):
        yield _Calls(events.names[name], shapes(events.dims_table[key // 2]), bool(key % 2), number, took_us)


def _usual_us(kind: Ints, step: Ints, took_ns: Ints, steps: int) -> Floats:
    """µs of each kind in all steps: that of the middle step in each of them, where every step has the kind."""
    kinds = int(kind.max()) + 1 if len(kind) else 0
    known = step >= 0
    cell = kind[known] * steps + step[known]
    took = np.bincount(cell, weights=took_ns[known] / 1e3, minlength=kinds * steps).reshape(kinds, steps)
    seen = np.bincount(cell, minlength=kinds * steps).reshape(kinds, steps)
    whole: Floats = np.bincount(kind, weights=took_ns / 1e3, minlength=kinds).astype(np.float64)
    if steps and kinds:
        everywhere = (seen > 0).all(axis=1)
        whole[everywhere] = np.median(took[everywhere], axis=1) * steps
    return whole


def work_us(host: Host, batch: int) -> tuple[float, float]:
    """Time of the ops of a step that grows with the batch: (at the slow rates, at the fast ones), µs per step.

    Slow: products at the lowest rate of a core, but never longer than they took beyond being called; of products that
    do not show the batch, and of other ops on it, all of that; ops that come once per sample. Fast: work at the highest
    rates alone.
    Raises Missing where products took far longer than their work explains: then the machine was busy with something
    else, and what looks like fixed cost is waiting for a core. And where each sample has a backward pass through all of
    the batch: then work grows faster than the batch.
    """
    passes = max(times_gone_through(host.trace.events, host.steps)[1].tolist(), default=0)
    # The training itself may go through it once more.
    if passes >= max(batch, _FEW_PASSES) and passes % batch <= 1:
        raise Missing(
            f"each step goes back through one graph {passes} times, as for each of {batch} samples, so what a larger "
            "batch costs is not known"
        )
    calls = list(_calls(host))
    sizes = _growing_sizes(host, batch, calls) | _ragged_sizes(host)
    samples = batch * host.steps.count
    slow_us = fast_us = taken_us = explained_us = 0.0
    for one in calls:
        inputs, number, took_us = one.inputs, one.number, one.took_us
        # The gradient of a weight sums over the batch, which then is an inner dimension of the product.
        if any(not sizes.isdisjoint(shape) for shape in inputs):
            done = number * flops(one.name, inputs)
            if done:
                taken_us += took_us
                # Thin products read and write more than they multiply.
                moved_us = number * product_bytes(one.name, inputs) / host.gbs[0] / 1e3
                explained_us += max(done / _SLOWEST_GFLOPS / 1e3, moved_us) + number * _OP_US
                slow_us += min(done / host.gflops[0] / 1e3, max(took_us - number * _SMALL_OP_US, 0.0))
                fast_us += done / host.gflops[1] / 1e3
            elif any(shape and shape[0] in sizes for shape in inputs):
                inside = 0.0 if one.outer or not has_batch(inputs, batch) else number * traffic(one.name, inputs)
                slow_us += max(took_us - number * _SMALL_OP_US, min(inside / host.gbs[0] / 1e3, took_us), 0.0)
                fast_us += inside / host.gbs[1] / 1e3
        elif number >= samples and number % samples == 0:
            slow_us += took_us
        elif flops(one.name, inputs):
            # Of a product without the batch among its sizes nobody knows that samples were not joined in it.
            slow_us += max(took_us - number * _SMALL_OP_US, 0.0)
    if taken_us * host.scale.factor > _BUSY * explained_us > 0:
        raise Missing(
            f"matrix products took {taken_us * host.scale.factor / explained_us:.0f} times as long as their work "
            "explains: the machine was busy with other work; run again when it is idle"
        )
    return slow_us / host.steps.count, fast_us / host.steps.count


def _growing_sizes(host: Host, batch: int, calls: list[_Calls]) -> set[int]:
    """Sizes of a dimension that grow with the batch, or with several batches that were joined to one.

    Two views of each image, or a chosen and a rejected answer, make a batch of 8 one of 16 for the model.
    """
    seen = [shape for one in calls for shape in one.inputs]
    joined = batch_of_shapes(host.trace, host.ops) or batch
    return _batch_sizes(batch, seen) | (_batch_sizes(joined, seen) if joined % batch == 0 else set())


def _batch_sizes(batch: int, seen: list[Shape]) -> set[int]:
    """Sizes of a dimension that grow with the batch: the batch itself, and the batch merged with what follows it.

    A layer sees a batch of 8 sequences of 256 tokens as 2,048 rows, attention sees 8 times its heads.
    """
    behind = {shape[1] for shape in seen if len(shape) > 1 and shape[0] == batch}
    return {batch, *(batch * size for size in behind if size > 1)}


def _ragged_sizes(host: Host) -> set[int]:
    """First dimensions that not every step has: those of samples of any size, put together as nodes of graphs are."""
    events, count = host.trace.events, host.steps.count
    rows = np.flatnonzero(host.ops & (events.dims >= 0) & (host.steps.step_of(events.start_ns) >= 0))
    kinds, kind = numbered(events.dims[rows])
    occurs = np.zeros((len(kinds), count), bool)
    occurs[kind, host.steps.step_of(events.start_ns)[rows]] = True
    seen: dict[int, Mask] = {}
    for dims, here in zip(kinds.tolist(), occurs, strict=True):
        for size in {shape[0] for shape in shapes(events.dims_table[dims]) if shape}:
            seen[size] = seen.get(size, False) | here
    return {size for size, here in seen.items() if not here.all()}


def once_per_sample(host: Host, batch: int) -> float:
    """Share of the ops' time in ops without the batch among their sizes that come once, or n times, for each sample."""
    calls = list(_calls(host))
    sizes = _growing_sizes(host, batch, calls)
    numbers: Counter[str] = Counter()
    times: dict[str, float] = {}
    for one in calls:
        if all(sizes.isdisjoint(shape) for shape in one.inputs):
            numbers[one.name] += one.number
            times[one.name] = times.get(one.name, 0.0) + one.took_us
    samples = batch * host.steps.count
    # The model may run a few of the same name besides.
    looped = [
        name
        for name, number in numbers.items()
        if number % samples <= number / _TURNS and number >= max(samples, _TURNS * host.steps.count)
    ]
    whole = sum(one.took_us for one in calls)
    return sum(times[name] for name in looped) / whole if whole else 0.0


# One call of a layer has two rows at most: `aten::linear` with `aten::addmm` in it.
_LAYERS = ("aten::convolution", "aten::conv2d", "aten::linear", "aten::addmm")


def batch_of_shapes(trace: Trace, ops: Mask) -> int | None:
    """The batch size that the inputs of convolutions and matrix products agree on; None where they do not.

    Those that autograd recorded, where it recorded any: an evaluation within the steps, or a search, has its own.
    """
    events = trace.events
    layers = events.exactly(*_LAYERS)
    rows = np.flatnonzero(ops & (events.dims >= 0) & layers)
    recorded = events.sequence[rows] >= 0
    rows = rows[recorded] if recorded.any() else rows
    # One number for each kind of call, in order of first sight: votes that are equal go to the size seen first.
    every_dims = len(events.dims_table)
    kinds, seen, counts = np.unique(
        events.name[rows].astype(np.int64) * every_dims + events.dims[rows], return_index=True, return_counts=True
    )
    first: Counter[int] = Counter()
    for at in np.argsort(seen).tolist():
        name, dims = divmod(int(kinds[at]), every_dims)
        inputs = shapes(events.dims_table[dims])
        factors = inputs[1:] if events.names[name] == "aten::addmm" else inputs
        if factors and factors[0]:
            first[factors[0][0]] += int(counts[at])
    batch, votes = first.most_common(1)[0] if first else (None, 0)
    return _sequences(trace, ops, batch) if batch is not None and votes >= len(rows) / 2 else None


def calls_of_a_layer(trace: Trace, ops: Mask) -> float:
    """How often a layer is called for each gradient of a weight that is stored; 0 where none is."""
    events = trace.events
    calls = np.count_nonzero(ops & events.exactly(*_LAYERS))
    stores = np.count_nonzero(events.exactly(GRADIENT_STORE) & events.of(Category.CPU_OP))
    return calls / stores if stores else 0.0


# Ops that show the sequences of a batch and their tokens: which input, how many dimensions it has, which two they are.
_OF_SEQUENCES = {"aten::embedding": (1, 2, 1), "aten::scaled_dot_product_attention": (0, 4, 2)}


def _sequences(trace: Trace, ops: Mask, rows: int) -> int:
    """Where products take the tokens of all sequences as their rows: the number of sequences; else the rows."""
    events = trace.events
    for name, (at, dimensions, tokens) in _OF_SEQUENCES.items():
        calls = np.flatnonzero(ops & (events.dims >= 0) & events.exactly(name))
        for dims in np.unique(events.dims[calls]).tolist():
            inputs = shapes(events.dims_table[dims])
            shape: Shape = inputs[at] if at < len(inputs) else []
            if len(shape) == dimensions and shape[0] * shape[tokens] == rows:
                return int(shape[0])
    return rows


def sample_bytes(host: Host, batch: int) -> float:
    """Of the largest tensor on the batch, what one sample has."""
    events = host.trace.events
    seen = distinct(events.dims[host.ops & (events.dims >= 0)], len(events.dims_table)).tolist()
    sizes = (shape for dims in seen for shape in shapes(events.dims_table[dims]) if shape and shape[0] == batch)
    return max((NUMBER_BYTES * math.prod(shape) / batch for shape in sizes), default=0.0)
