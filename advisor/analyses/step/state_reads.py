"""Where the loop reads the whole state of a model: `state_dict()`, deep copies, checkpoints."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines, LinesTrace
from advisor.analyses.work.operands import dims_of, dtypes_of, sizes
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals
from advisor.trace.op_names import GRADIENT_STORE

# Bytes of a number, by the profiler's names of dtypes.
_WIDTH = {"double": 8, "long int": 8, "float": 4, "int": 4, "c10::Half": 2, "c10::BFloat16": 2, "unsigned char": 1}
_COPIES = ("aten::copy_", "aten::clone")
# What shows that a tensor is read.
_SHOWING = ("aten::detach", "aten::clone")
# What handles tensors without computing with them: these may stand between the copies of one run.
_HANDLING = (
    "aten::detach",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::set_",
    "aten::to",
    "aten::view",
    "aten::as_strided",
)
# Ops inside the optimizer or the loader handle tensors on their own account.
_OF_OTHERS = ("Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")


class StateRead(Struct, frozen=True):
    """One sequence of ops on the loop's thread that read tensors of the sizes of all of the model's weights.

    start_ns, end_ns   its ops, and the Python between them
    until_ns           start of what follows: another op, a fetch, the optimizer or the end of the step
    copied_bytes       bytes that its copies copied; 0 if tensors were only read
    row                its first op
    beside             (first, last) instant of each copy of a tensor that is not a weight
    """

    start_ns: int
    end_ns: int
    until_ns: int
    copied_bytes: int
    row: int
    beside: tuple[tuple[int, int], ...] = ()


def where_read(trace: Trace, steps: Steps, lines: Lines, recorded: LinesTrace | None, run: StateRead) -> Source | None:
    """The user's line that reads the state; None if no step with recorded lines had such a read."""
    if recorded is not None:
        theirs = Steps.compute(recorded.trace, None, None)
        most = max(_detached(recorded.trace, theirs, step) for step in range(theirs.count))
        if most < _detached(trace, steps, int(steps.step_of(np.array([run.start_ns]))[0])):
            return None
    return lines.where_op(run.row)


def _detached(trace: Trace, steps: Steps, step: int) -> int:
    """How many ops on the loop's thread of a step may be copies, or looks at a state."""
    events = trace.events
    inside = (events.start_ns >= steps.spans[step, 0]) & (events.start_ns < steps.spans[step, 1])
    handled = events.exactly("aten::detach", "aten::clone", "aten::copy_")
    return int((handled & inside & (events.thread == steps.main_thread)).sum())


class StateReads(Struct, frozen=True, eq=False):
    """All such sequences within the window, in order. parameter_bytes: of the weights, with 4 bytes per number.

    weights  how many of them there are of each shape
    stored   gradients are accumulated by a backward pass; else (`torch.autograd.grad`) the weights are what the
             optimizer writes, and the script may train a copy of them
    """

    runs: tuple[StateRead, ...]
    parameter_bytes: int
    weights: Counter[tuple[int, ...]]
    stored: bool = True

    def spans(self, runs: list[StateRead]) -> Intervals:
        """(n, 2) spans of the ops of some sequences, ns."""
        return np.array([(run.start_ns, run.end_ns) for run in runs], np.int64).reshape(-1, 2)

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting) -> StateReads:
        """The sequences. Raises Missing without shapes, which distinguish weights from other tensors."""
        events = trace.events
        stores = _weights(events, steps)
        weights = stores or _updated(events, nesting, steps)
        if not weights or () in weights:
            raise Missing("the trace has no gradient shapes; record with record_shapes=True")
        rows, handles = _rows(events, nesting, steps)
        shown = np.concatenate(([0], np.cumsum(events.exactly(*_SHOWING)[rows])))
        runs = []
        for first, stop in _stretches(handles):
            if shown[stop] - shown[first] < weights.total():
                continue  # too few to be all weights
            run = _run(events, rows, first, stop, weights)
            if run is not None and steps.step_of(np.array([run.start_ns]))[0] >= 0:
                runs.append(_within_step(run, steps))
        size = sum(int(np.prod(shape)) * number for shape, number in weights.items()) * _WIDTH["float"]
        return cls(tuple(runs), size, weights, bool(stores))


def _weights(events: Events, steps: Steps) -> Counter[tuple[int, ...]]:
    """Shapes of the parameters that get gradients, with how many there are of each."""
    stores = np.flatnonzero(events.exactly(GRADIENT_STORE))
    stores = stores[steps.step_of(events.start_ns[stores]) >= 0]
    _, first, counts = np.unique(events.dims[stores], return_index=True, return_counts=True)
    shapes: Counter[tuple[int, ...]] = Counter()
    for row, count in zip(stores[first].tolist(), counts.tolist(), strict=True):
        shapes[sizes(dims_of(events, row), 0)] += count
    # Every backward pass stores each gradient once, so the number of passes divides all counts.
    passes = math.gcd(*shapes.values()) or 1
    return Counter({shape: number // passes for shape, number in shapes.items()})


def _updated(events: Events, nesting: Nesting, steps: Steps) -> Counter[tuple[int, ...]]:
    """The same by what the optimizer writes: `torch.autograd.grad` stores no gradient that would show a shape."""
    updates = nesting.within(events.of(Category.ANNOTATION) & events.named("Optimizer.step#"))
    outermost = events.of(Category.CPU_OP) & nesting.outermost
    rows = np.flatnonzero(updates & outermost & (steps.step_of(events.start_ns) >= 0))
    by_op: dict[str, Counter[tuple[int, ...]]] = {}
    for row in rows.tolist():
        dims = dims_of(events, row)
        if dims and events.text(row).endswith("_"):
            lists = isinstance(dims[0], list) and dims[0] and isinstance(dims[0][0], list)
            shapes = [tuple(one) for one in dims[0]] if lists else [sizes(dims, 0)]
            by_op.setdefault(events.text(row), Counter()).update(shape for shape in shapes if shape)
    # Every kind of op writes each weight once, or a part of its state; some write only a few of them.
    most = max(by_op.values(), key=Counter.total, default=Counter())
    times = math.gcd(*most.values()) or 1
    return Counter({shape: number // times for shape, number in most.items()})


def _rows(events: Events, nesting: Nesting, steps: Steps) -> tuple[Ints, Mask]:
    """The outermost ops and ends of the loop's thread by start, and which of them handle tensors."""
    others = events.of(Category.ANNOTATION) & events.named(*_OF_OTHERS, "ProfilerStep#")
    outermost = events.of(Category.CPU_OP) & nesting.outermost
    outermost &= ~nesting.within(others & ~events.named("ProfilerStep#"))
    rows = np.flatnonzero((outermost | others) & (events.thread == steps.main_thread))
    handles = (events.exactly(*_HANDLING, *_COPIES) & outermost)[rows]
    return rows, handles


def _stretches(handles: Mask) -> list[tuple[int, int]]:
    """(first, stop) of each run of true values."""
    padded = np.concatenate(([False], handles, [False]))
    changes = np.flatnonzero(padded[1:] != padded[:-1])
    return list(zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True))


def _run(events: Events, rows: Ints, first: int, stop: int, weights: Counter[tuple[int, ...]]) -> StateRead | None:
    """The run as a read of all weights, None where it handles less than all of them."""
    shapes: Counter[tuple[int, ...]] = Counter()
    copied = copies = 0
    beside = []
    for row in rows[first:stop].tolist():
        dims = dims_of(events, row)
        shape = sizes(dims, 0)
        if events.text(row) in _SHOWING:
            shapes[shape] += 1
        if events.text(row) in _COPIES:
            dtypes = dtypes_of(events, row)
            copies += 1
            copied += int(np.prod(shape)) * _WIDTH.get(dtypes[0] if dtypes else "float", 4)
            if shape not in weights:
                beside.append((int(events.start_ns[row]), int(events.end_ns[row])))
    if any(shapes[shape] < number for shape, number in weights.items()):
        return None
    after = int(events.start_ns[rows[stop]]) if stop < len(rows) else int(events.end_ns.max())
    begin, end = int(events.start_ns[rows[first]]), int(events.end_ns[rows[stop - 1]])
    # The Python before and after belongs to it as far as it is like the Python within.
    gaps = events.start_ns[rows[first + 1 : stop]] - events.end_ns[rows[first : stop - 1]]
    longest = int(gaps.max(initial=0))
    before = int(events.end_ns[rows[first - 1]]) if first else begin
    begin = min(begin, max(before, begin - longest))
    if copied:
        end = max(end, min(after, end + longest))
    copied = copied if copies >= weights.total() else 0
    return StateRead(begin, end, max(after, end), copied, int(rows[first]), tuple(beside))


def _within_step(run: StateRead, steps: Steps) -> StateRead:
    """The run, with the end of its step as the latest that follows it."""
    step = int(steps.step_of(np.array([run.start_ns]))[0])
    ends = max(int(steps.spans[step, 1]), run.end_ns)
    return replace(run, until_ns=min(run.until_ns, ends))
