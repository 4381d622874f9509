"""Which gradients of each backward pass an optimizer applies, and which are never updated or dropped unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import Category, Events, Ints, Nesting, Optimizer, RowMask, Trace, backward_passes, dims_of, shapes_in

# How a stored gradient is used. MAYBE: equal shapes leave it open; INPUT: of a tensor that need not be a parameter;
# UNREAD: of such a tensor, and no op works on anything of its shape until the next forward pass. ASIDE: of a parameter,
# stored by a pass that is run for the gradient of an input and whose other gradients no optimizer applies.
USED, MAYBE, INPUT, NEVER, DROPPED, UNREAD, ASIDE = range(7)
# No verdict of its own: what is DROPPED and made by nodes that the pass goes through, to gradients behind them.
THROUGH = 7
# Ops whose operands behind the first are parameters; of an embedding the first is.
_LAYERS = ("aten::linear", "aten::conv", "aten::batch_norm", "aten::layer_norm", "aten::group_norm")
# Ops of an optimizer on single tensors that run equally often for each tensor.
_UPDATES = ("aten::add_", "aten::addcdiv_", "aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sub_")


class Update(Struct, frozen=True):
    """One optimizer step. counts: tensors by shape; None where the ops do not tell them."""

    start_ns: int
    counts: Counter[str] | None


def updates(
    trace: Trace, nesting: Nesting, optimizers: Sequence[Optimizer], found: Sequence[backward_passes.Pass]
) -> list[Update]:
    """Every optimizer step of the trace, in order. found: the backward passes; what is updated some of them stores."""
    events = trace.events
    spans = events.of(Category.ANNOTATION) & events.named(backward_passes.UPDATES)
    step = nesting.ancestor(spans)
    ops = np.flatnonzero(events.of(Category.CPU_OP) & (step >= 0) & (events.dims >= 0))
    known = {one.tensors for one in optimizers}
    stored = {store.shape for one in found for store in one.stores}
    return [
        Update(int(events.start_ns[row]), _counts(events, ops[step[ops] == row], known, stored))
        for row in np.flatnonzero(spans).tolist()
    ]


def _counts(events: Events, ops: Ints, known: set[int | None], stored: set[str]) -> Counter[str] | None:
    """Tensors of each shape that an optimizer step updates, where their sum is that of an optimizer.

    Shapes that no pass stores are no parameters': of a sparse gradient the rows are updated that it has.
    """
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
            whole = times and not rest and all(number % times == 0 for number in counts.values())
            if whole and counts.keys() <= stored:
                return Counter({shape: number // times for shape, number in counts.items()})
    return None


class Parameters(Struct, frozen=True):
    """What is known of the parameters.

    number   how many all optimizers have together
    applied  shapes of all tensors that ops inside an optimizer's step take
    layers   shapes of the operands of layers that are parameters
    zeroed   shapes of what is set to zero in place: a gradient of that shape may be cleared and yet never dropped
    """

    number: int
    applied: set[str]
    layers: set[str]
    zeroed: set[str]


def parameters(trace: Trace, nesting: Nesting, optimizers: Sequence[Optimizer]) -> Parameters:
    """What trace and record tell about the parameters."""
    events = trace.events
    filled = _distinct(events, events.exactly("aten::zero_", "aten::_foreach_zero_"))
    return Parameters(
        sum(one.tensors or 0 for one in optimizers),
        _touched(trace, nesting),
        _of_layers(trace),
        {shape for dims in filled for shape in shapes_in(dims)},
    )


def _touched(trace: Trace, nesting: Nesting) -> set[str]:
    events = trace.events
    updating = nesting.within(events.of(Category.ANNOTATION) & events.named(backward_passes.UPDATES))
    return {shape for dims in _distinct(events, events.of(Category.CPU_OP) & updating) for shape in shapes_in(dims)}


def _of_layers(trace: Trace) -> set[str]:
    events = trace.events
    ahead = events.named(*_LAYERS) & ~events.named("backward")
    layers = {shape for dims in _distinct(events, ahead) for shape in shapes_in(dims[1:])}
    tables = {shape for dims in _distinct(events, events.exactly("aten::embedding")) for shape in shapes_in(dims[:1])}
    return layers | tables


def _distinct(events: Events, rows: RowMask) -> Iterator[list[object]]:
    chosen = np.flatnonzero(rows & (events.dims >= 0))
    for index in np.unique(events.dims[chosen], return_index=True)[1].tolist():
        yield dims_of(events, int(chosen[index]))


def uses(found: Sequence[backward_passes.Pass], steps: Sequence[Update], known: Parameters) -> list[list[int]]:
    """For each pass how each of the gradients that it stores is used: USED, MAYBE, INPUT, NEVER or DROPPED."""
    kept = {store.shape for one in found for store in one.stores if not store.fresh}
    cleared = _cleared(found)
    result = []
    of_kind: dict[tuple[object, ...], list[int]] = {}
    for at, one in enumerate(found):
        numbers = Counter(store.shape for store in one.stores)
        verdicts = {}
        open_end = False
        for shape, number in numbers.items():
            if shape == "[]" or not shape:
                verdicts[shape] = (MAYBE, number)
            elif shape not in known.applied:
                verdicts[shape] = (NEVER if shape in kept or shape in known.layers else INPUT, 0)
            else:
                times, closed = _applied(found, steps, at, shape)
                open_end |= not closed
                verdicts[shape] = (USED if times >= number else DROPPED if times == 0 else MAYBE, times)
        kind = _kind(one)
        # A pass stores each gradient once: what goes beyond the parameters of all optimizers belongs to none of them.
        piled = {i for i, store in enumerate(one.stores) if i not in cleared[kind] and store.shape not in known.zeroed}
        here = _settled(one, verdicts, piled if len(one.stores) > known.number else set())
        # What follows the last pass of its kind lies behind the window: it fares as those before it did.
        result.append(of_kind.get(kind, here) if open_end else here)
        of_kind[kind] = result[-1]
    return result


def _kind(one: backward_passes.Pass) -> tuple[object, ...]:
    """What passes over graphs of one form have in common."""
    return (*(store.shape for store in one.stores), *(store.of for store in one.stores))


def _cleared(found: Sequence[backward_passes.Pass]) -> dict[tuple[object, ...], set[int]]:
    """For each kind of pass, which of its gradients had been dropped before some pass of the window."""
    result: dict[tuple[object, ...], set[int]] = {}
    for one in found:
        fresh = {i for i, store in enumerate(one.stores) if store.fresh}
        result.setdefault(_kind(one), set()).update(fresh)
    return result


def _applied(found: Sequence[backward_passes.Pass], steps: Sequence[Update], at: int, shape: str) -> tuple[int, bool]:
    """How many tensors of a shape are updated between this pass and when their gradients are gone; if that is known."""
    later = (one for one in found[at + 1 :] if any(store.fresh and store.shape == shape for store in one.stores))
    gone = next(later, None)
    end_ns = found[at].end_ns
    between = [one for one in steps if gone is None or end_ns <= one.start_ns < gone.start_ns]
    if any(one.counts is None for one in between):
        return 1 << 30, True
    numbers = [one.counts[shape] for one in between if one.counts is not None]
    return (sum(numbers), True) if gone is not None else (max(1, *numbers, 1), False)


def _settled(one: backward_passes.Pass, verdicts: dict[str, tuple[int, int]], piled: set[int]) -> list[int]:
    """The verdict on each store; of equal shapes those made by the node of a used gradient are the used ones.

    piled: gradients that are added up in every pass and never dropped. Where as many others of their shape are dropped
    after each step as an optimizer applies, those are the ones it applies.
    """
    first = [verdicts[store.shape][0] for store in one.stores]
    for i in piled:
        shape, (verdict, times) = one.stores[i].shape, verdicts[one.stores[i].shape]
        dropped = [j for j, store in enumerate(one.stores) if store.shape == shape and j not in piled]
        if verdict == DROPPED or (verdict == MAYBE and 0 < times <= len(dropped)):
            first[i] = NEVER
            for j in dropped if verdict == MAYBE and times == len(dropped) else ():
                first[j] = USED
    by_node: dict[int, set[int]] = {}
    for store, fate in zip(one.stores, first, strict=True):
        by_node.setdefault(store.of, set()).add(fate)
    result = list(first)
    for shape, (verdict, times) in verdicts.items():
        if verdict == MAYBE:
            open_ = [i for i, store in enumerate(one.stores) if store.shape == shape and first[i] == MAYBE]
            beside = {i: by_node[one.stores[i].of] for i in open_}
            for i, fate in _by_nodes(beside, times, DROPPED in first).items():
                result[i] = fate
    return result


def _by_nodes(beside: dict[int, set[int]], times: int, dropped: bool) -> dict[int, int]:
    """Verdicts on stores of one shape by those on all that their nodes made (`beside`); none where they do not fit.

    times: so many of the stores are applied;  dropped: other gradients of this pass are made and dropped.
    """
    claimed = [i for i, fates in beside.items() if USED in fates]
    idle = [i for i, fates in beside.items() if USED not in fates and fates & {NEVER, DROPPED}]
    if len(claimed) > times or len(beside) - len(idle) < times:
        return {}
    left = [i for i in beside if i not in claimed and i not in idle]
    unread = DROPPED if dropped or any(DROPPED in beside[i] for i in idle) else NEVER
    found = dict.fromkeys(claimed, USED) | dict.fromkeys(idle, unread)
    if len(claimed) == times:
        found |= dict.fromkeys(left, unread)
    elif len(left) == times - len(claimed):
        found |= dict.fromkeys(left, USED)
    return found
