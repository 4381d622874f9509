"""Which gradients of each backward pass an optimizer applies, and which are never updated or dropped unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from advisor.api import Category, Events, Nesting, Optimizer, Steps, Trace

from ._operands import dims_of

Ints = npt.NDArray[np.int64]

NODE = "autograd::engine::evaluate_function"
STORES = "torch::autograd::AccumulateGrad"
_STEP = "Optimizer.step#"
# What becomes of a stored gradient. MAYBE: equal shapes leave it open; INPUT: of a tensor that need not be a parameter.
USED, MAYBE, INPUT, NEVER, DROPPED = range(5)
# Nodes that only look at a gradient in another form, between the node that made it and the one that stores it.
_VIEWS = ("TBackward", "ViewBackward", "PermuteBackward", "TransposeBackward", "ReshapeAlias", "ExpandBackward")
# Ops whose operands behind the first are parameters; of an embedding the first is.
_LAYERS = ("aten::linear", "aten::conv", "aten::batch_norm", "aten::layer_norm", "aten::group_norm")
# Ops of an optimizer on single tensors that run equally often for each tensor.
_UPDATES = ("aten::add_", "aten::addcdiv_", "aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sub_")


@dataclass(frozen=True, slots=True)
class Store:
    """One gradient that is stored. node: row of its engine call; of: index in `Pass.nodes` of the node that made it."""

    row: int
    node: int
    of: int
    shape: str
    fresh: bool  # nothing had been stored before, or it had been dropped: there was nothing to add to


@dataclass(frozen=True, slots=True)
class Pass:
    """One backward pass: engine calls in order, those that store gradients left out, and what was stored."""

    nodes: tuple[int, ...]
    stores: tuple[Store, ...]
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Update:
    """One optimizer step. counts: tensors by shape; None where the ops do not tell them."""

    start_ns: int
    counts: Counter[str] | None


def passes(trace: Trace, steps: Steps, nesting: Nesting) -> list[Pass]:
    """The backward passes of the window, in order."""
    events = trace.events
    outermost = nesting.outer_op == np.arange(len(events))
    stores = events.exactly(STORES)
    nodes = np.flatnonzero((events.named(NODE) | stores) & outermost & (steps.step_of(events.start_ns) >= 0))
    if not len(nodes):
        return []
    store_of = {int(nesting.outer_op[row]): row for row in np.flatnonzero(stores).tolist()}
    added = nesting.ancestor(stores)[events.exactly("aten::add_", "aten::add")]
    adding = set(added[added >= 0].tolist())
    number = np.searchsorted(_marks(trace, steps, nesting), events.start_ns[nodes])
    bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(nodes)]
    return [_pass(events, nodes[first:stop].tolist(), store_of, adding) for first, stop in pairwise(bounds)]


def _pass(events: Events, rows: Sequence[int], store_of: dict[int, int], adding: set[int]) -> Pass:
    nodes: list[int] = []
    stores = []
    maker = -1
    for row in rows:
        if row in store_of:
            stored = store_of[row]
            dims = dims_of(events, stored)
            stores.append(Store(stored, row, maker, str(dims[0]) if dims else "", stored not in adding))
            continue
        nodes.append(row)
        if maker < 0 or not any(view in events.text(row) for view in _VIEWS):
            maker = len(nodes) - 1
    return Pass(tuple(nodes), tuple(stores), int(events.start_ns[rows[0]]), int(events.end_ns[rows[-1]]))


def _marks(trace: Trace, steps: Steps, nesting: Nesting) -> Ints:
    """When something else than a backward pass begins on the loop's thread, ns: recorded ops, steps, a new root."""
    events = trace.events
    ops = (
        events.of(Category.CPU_OP) & (nesting.outer_op == np.arange(len(events))) & (events.thread == steps.main_thread)
    )
    recorded = ops & (events.sequence >= 0) & ~events.named(NODE) & (events.forward_thread <= 0)
    updates = events.of(Category.ANNOTATION) & events.named(_STEP)
    found: Ints = np.sort(events.start_ns[recorded | updates | (ops & events.exactly("aten::ones_like"))])
    return found


def updates(trace: Trace, nesting: Nesting, optimizers: Sequence[Optimizer]) -> list[Update]:
    """Every optimizer step of the trace, in order."""
    events = trace.events
    spans = events.of(Category.ANNOTATION) & events.named(_STEP)
    step = nesting.ancestor(spans)
    ops = np.flatnonzero(events.of(Category.CPU_OP) & (step >= 0) & (events.dims >= 0))
    known = {one.tensors for one in optimizers}
    return [
        Update(int(events.start_ns[row]), _counts(events, ops[step[ops] == row], known))
        for row in np.flatnonzero(spans).tolist()
    ]


def _counts(events: Events, ops: Ints, known: set[int | None]) -> Counter[str] | None:
    """Tensors of each shape that an optimizer step updates, where their sum is that of an optimizer."""
    by_op: dict[str, Counter[str]] = {}
    for row in ops.tolist():
        name, dims = events.text(row), dims_of(events, row)
        first = dims[0] if dims else []
        if name.startswith(("aten::_fused_", "aten::_foreach_")):
            of_list = first if isinstance(first, list) else []
            # A list of numbers is the count of the steps so far, one for each tensor.
            if any(of_list):
                by_op.setdefault(name, Counter()).update(str(shape) for shape in of_list)
        elif name in _UPDATES and first:
            by_op.setdefault(name, Counter())[str(first)] += 1
    for counts in sorted(by_op.values(), key=lambda one: -one.total()):
        for tensors in known:
            times, rest = divmod(counts.total(), tensors) if tensors else (0, 1)
            if times and not rest and all(number % times == 0 for number in counts.values()):
                return Counter({shape: number // times for shape, number in counts.items()})
    return None


def touched(trace: Trace, nesting: Nesting) -> set[str]:
    """Shapes of all tensors that ops inside an optimizer's step take."""
    events = trace.events
    updating = nesting.ancestor(events.of(Category.ANNOTATION) & events.named(_STEP)) >= 0
    return {shape for dims in _distinct(events, events.of(Category.CPU_OP) & updating) for shape in _shapes(dims)}


def of_layers(trace: Trace) -> set[str]:
    """Shapes of the operands of layers that are parameters."""
    events = trace.events
    ahead = events.named(*_LAYERS) & ~events.named("backward")
    layers = {shape for dims in _distinct(events, ahead) for shape in _shapes(dims[1:])}
    tables = {shape for dims in _distinct(events, events.exactly("aten::embedding")) for shape in _shapes(dims[:1])}
    return layers | tables


def _distinct(events: Events, rows: npt.NDArray[np.bool_]) -> Iterator[list[object]]:
    chosen = np.flatnonzero(rows & (events.dims >= 0))
    for index in np.unique(events.dims[chosen], return_index=True)[1].tolist():
        yield dims_of(events, int(chosen[index]))


def _shapes(dims: Sequence[object]) -> Iterator[str]:
    for one in dims:
        lists = isinstance(one, list) and one and isinstance(one[0], list)
        yield from (str(shape) for shape in (one if isinstance(one, list) and lists else [one]))


def uses(found: Sequence[Pass], steps: Sequence[Update], ever: set[str], layers: set[str]) -> list[list[int]]:
    """For each pass what becomes of each of its stores: USED, MAYBE, INPUT, NEVER or DROPPED."""
    kept = {store.shape for one in found for store in one.stores if not store.fresh}
    result = []
    of_kind: dict[tuple[object, ...], list[int]] = {}
    for at, one in enumerate(found):
        numbers = Counter(store.shape for store in one.stores)
        verdicts = {}
        open_end = False
        for shape, number in numbers.items():
            if shape == "[]" or not shape:
                verdicts[shape] = (MAYBE, number)
            elif shape not in ever:
                verdicts[shape] = (NEVER if shape in kept or shape in layers else INPUT, 0)
            else:
                times, known = _applied(found, steps, at, shape)
                open_end |= not known
                verdicts[shape] = (USED if times >= number else DROPPED if times == 0 else MAYBE, times)
        here = _settled(one, verdicts)
        kind = (*(store.shape for store in one.stores), *(store.of for store in one.stores))
        # What follows the last pass of its kind lies behind the window: it fares as those before it did.
        result.append(of_kind.get(kind, here) if open_end else here)
        of_kind[kind] = result[-1]
    return result


def _applied(found: Sequence[Pass], steps: Sequence[Update], at: int, shape: str) -> tuple[int, bool]:
    """How many tensors of a shape are updated between this pass and when their gradients are gone; if that is known."""
    later = (one for one in found[at + 1 :] if any(store.fresh and store.shape == shape for store in one.stores))
    gone = next(later, None)
    end_ns = found[at].end_ns
    between = [one for one in steps if gone is None or end_ns <= one.start_ns < gone.start_ns]
    if any(one.counts is None for one in between):
        return 1 << 30, True
    numbers = [one.counts[shape] for one in between if one.counts is not None]
    return (sum(numbers), True) if gone is not None else (max(1, *numbers, 1), False)


def _settled(one: Pass, verdicts: dict[str, tuple[int, int]]) -> list[int]:
    """The verdict on each store; of equal shapes those made by the node of a used gradient are the used ones."""
    first = [verdicts[store.shape][0] for store in one.stores]
    by_node: dict[int, set[int]] = {}
    for store, verdict in zip(one.stores, first, strict=True):
        by_node.setdefault(store.of, set()).add(verdict)
    result = list(first)
    for shape, (verdict, times) in verdicts.items():
        if verdict != MAYBE:
            continue
        mine = [i for i, store in enumerate(one.stores) if store.shape == shape]
        claimed = [i for i in mine if USED in by_node[one.stores[i].of]]
        idle = [i for i in mine if i not in claimed and by_node[one.stores[i].of] & {NEVER, DROPPED}]
        if len(claimed) > times or len(mine) - len(idle) < times:
            continue
        left = [i for i in mine if i not in claimed and i not in idle]
        unread = DROPPED if any(DROPPED in by_node[one.stores[i].of] for i in idle) or DROPPED in first else NEVER
        for i in claimed:
            result[i] = USED
        for i in idle:
            result[i] = unread
        if len(claimed) == times or len(left) == times - len(claimed):
            for i in left:
                result[i] = unread if len(claimed) == times else USED
    return result
