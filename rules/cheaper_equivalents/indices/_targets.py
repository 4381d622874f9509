"""Losses whose targets were made of class indices, a number for each class, and what a loss takes of the indices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import Events, Ints, Readers, backward_of, backward_passes, constant, dims_of, nodes_of, sizes

from .._equivalent import rows_of

Shape = tuple[int, ...]


def _aten(*names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names)


_MAKERS = ("aten::one_hot", "aten::scatter", "aten::scatter_")
# What may be done to targets by numbers alone, and by less than a number for each of theirs (padding, weights).
_BY_NUMBERS = _aten("add", "add_", "sub", "sub_", "rsub", "neg", "neg_", "to", "clone", "clamp", "clamp_")
_BY_LESS = _aten("mul", "mul_", "div", "div_", "index_fill", "index_fill_", "masked_fill", "masked_fill_")
# Of these, what makes other numbers of zeros and ones: smoothing.
_SMOOTHS = _aten("add", "add_", "sub", "sub_", "rsub", "clamp", "clamp_")
_EMPTY = _aten("zeros", "zeros_like", "new_zeros", "zero_")
_CROSS_ENTROPY = "aten::cross_entropy_loss"
_LOSSES = _aten("kl_div") | {_CROSS_ENTROPY}
_LOG_SOFTMAX, _SOFTMAX, _LOG = "aten::log_softmax", "aten::softmax", "aten::log"
_BEFORE_LOG = _aten("add", "add_", "clamp", "clamp_", "clamp_min", "clamp_min_")
_SUMS = _aten("sum", "mean", "nansum")
# What a loss does with smoothed labels besides its softmax: it sums the log-probabilities, fills a gradient of their
# size and adds another to it, of passes like a product's (which reads two tensors and writes one). Plain: it fills.
_PASSES, _PASSES_PLAIN = constant("passes.smoothed_loss").range, (1 / 3, 1.0)
# A script that smooths makes no more than some steps of it.
_LONGEST = 10


class DenseTargets(Struct, frozen=True):
    """One such loss.

    rows      the forward ops that go: what makes the targets, the products, their sum
    nodes     their part of the backward pass
    first     the op that spreads the labels out
    shape     of the targets
    classes   numbers for each label
    smoothed  whether other numbers than zeros and ones were made of them
    """

    rows: tuple[int, ...]
    nodes: tuple[int, ...]
    first: int
    shape: Shape
    classes: int
    smoothed: bool


def dense_targets(events: Events, ops: Ints, readers: Readers) -> Iterator[DenseTargets]:
    """The losses among these ops (outermost, in order of start)."""
    makers = np.flatnonzero(events.exactly(*_MAKERS)[ops]).tolist()
    scores = _scores(events, ops, readers) if makers else {}
    for at in makers:
        first = int(ops[at])
        labels = _labels(events, first)
        spread = _spread(events, readers, first) if labels else None
        if spread is None:
            continue
        *made, reader = spread
        shape = _targets_of(events, reader)
        number = math.prod(shape)
        if not shape or number % labels or number // labels < 2:
            continue
        loss = _read(events, readers, reader, scores)
        if loss is None:
            continue
        base = _base(events, ops, at, shape)
        # A loss on probabilities smooths them itself.
        small = {*made, *(loss if events.text(reader) == _CROSS_ENTROPY else ())}
        smoothed = any(events.text(row) in _SMOOTHS for row in small) or (base >= 0 and not _is_empty(events, base))
        rows = tuple(sorted({*([base] if base >= 0 else []), *made, *loss}))
        yield DenseTargets(rows, _nodes(events, ops, rows), first, shape, number // labels, smoothed)


def _labels(events: Events, row: int) -> int:
    """How many labels an op spreads out, one place for each; 0 where they are no labels."""
    dims = dims_of(events, row)
    if events.text(row) == "aten::one_hot":
        return math.prod(sizes(dims, 0)) if dims else 0
    base, index = sizes(dims, 0), sizes(dims, 2)
    apart = [at for at, pair in enumerate(zip(base, index, strict=False)) if pair[0] != pair[1]]
    return math.prod(index) if len(base) == len(index) and len(apart) == 1 and index[apart[0]] == 1 else 0


def _spread(events: Events, readers: Readers, first: int) -> list[int] | None:
    """The ops from the first on that each alone read what the one before made; the last reads targets into a loss."""
    rows = [first]
    for _ in range(_LONGEST):
        behind = readers.of(rows[-1])
        if len(behind) != 1:
            return None
        rows += behind
        if not _by_little(events, behind[0]):
            return rows
    return None


def _by_little(events: Events, row: int) -> bool:
    """Whether an op makes as many numbers of one large tensor and of plain numbers, or a small tensor."""
    name, shapes = events.text(row), _operands(events, row)
    largest, second = (*sorted(map(math.prod, shapes), reverse=True), 0, 0)[:2]
    if name in _BY_NUMBERS:
        return second <= 1
    return name in _BY_LESS and 2 * second <= largest


def _operands(events: Events, row: int) -> list[Shape]:
    dims = dims_of(events, row)
    return [shape for at in range(len(dims)) if (shape := sizes(dims, at))]


def _targets_of(events: Events, row: int) -> Shape:
    """The shape of the targets that an op reads beside as many scores; () where it reads none."""
    shapes = _operands(events, row)[:2]
    alike = len(shapes) == 2 and shapes[0] == shapes[1]
    return shapes[0] if alike and (events.text(row) == "aten::mul" or events.text(row) in _LOSSES) else ()


def _scores(events: Events, ops: Ints, readers: Readers) -> dict[int, tuple[int, ...]]:
    """Op that reads log-probabilities -> what goes between their softmax and that op."""
    found: dict[int, tuple[int, ...]] = {}
    for row in ops[events.exactly(_LOG_SOFTMAX, _SOFTMAX)[ops]].tolist():
        between = [(row,)] if events.text(row) == _LOG_SOFTMAX else list(_logarithms(events, readers, row))
        for chain in between:
            for reader in readers.of(chain[-1]):
                found[reader] = chain[1:]
                if events.text(reader) in ("aten::neg", "aten::to"):
                    found |= dict.fromkeys(readers.of(reader), (*chain[1:], reader))
    # What something else reads as well stays.
    return {reader: tuple(row for row in rows if len(readers.of(row)) == 1) for reader, rows in found.items()}


def _logarithms(events: Events, readers: Readers, softmax: int) -> Iterator[tuple[int, ...]]:
    """(softmax, what keeps its result from being zero, logarithm)."""
    for row in readers.of(softmax):
        if events.text(row) == _LOG:
            yield softmax, row
        elif events.text(row) in _BEFORE_LOG:
            yield from ((softmax, row, after) for after in readers.of(row) if events.text(after) == _LOG)


def _read(events: Events, readers: Readers, reader: int, scores: dict[int, tuple[int, ...]]) -> list[int] | None:
    """The ops of the loss that go, from the one that reads the targets on; None where it is another loss."""
    name = events.text(reader)
    if name == _CROSS_ENTROPY:
        return [row for row in _children(events, reader) if events.text(row) != _LOG_SOFTMAX]
    if reader not in scores:
        return None
    rows = [*scores[reader], reader]
    return rows if name == "aten::kl_div" else _until_summed(events, readers, rows)


def _until_summed(events: Events, readers: Readers, rows: list[int]) -> list[int] | None:
    """These ops and those that read the last, until its numbers are summed; None where they are read otherwise."""
    for _ in range(_LONGEST):
        behind = readers.of(rows[-1])
        rows = rows + behind
        name = events.text(behind[0]) if len(behind) == 1 else ""
        if name in _SUMS:
            return rows
        if not name or not _by_little(events, behind[0]):
            return None
    return None


def _children(events: Events, row: int) -> list[int]:
    """The ops that an op calls itself."""
    found: list[int] = []
    for one in backward_passes.inside(events, row):
        if not found or events.start_ns[one] >= events.end_ns[found[-1]]:
            found.append(one)
    return found


def _base(events: Events, ops: Ints, at: int, shape: Shape) -> int:
    """The op that filled the tensor which the op at that place scatters into; -1 where none is near, or it made one."""
    if events.text(int(ops[at])) == "aten::one_hot":
        return -1
    fills = _EMPTY | _aten("full", "full_like", "new_full", "fill_", "ones_like", "ones")
    near = [row for row in ops[max(at - _LONGEST, 0) : at].tolist() if events.text(row) in fills]
    return next((row for row in reversed(near) if shape in _filled(events, row)), -1)


def _filled(events: Events, row: int) -> list[Shape]:
    """Shapes of what an op fills: its own operand, and what the ops inside it fill."""
    return [sizes(dims_of(events, one), 0) for one in (row, *backward_passes.inside(events, row))]


def _is_empty(events: Events, row: int) -> bool:
    return events.text(row) in _EMPTY


def _nodes(events: Events, ops: Ints, rows: tuple[int, ...]) -> tuple[int, ...]:
    """The nodes of the backward pass that these ops recorded, a log-softmax's left out."""
    every = rows_of(*rows)
    own = np.isin(every, ops)
    nodes = np.union1d(nodes_of(events, ops, every[own]), backward_of(events, every[~own]))
    return tuple(row for row in nodes.tolist() if "SoftmaxBackward" not in events.text(row))


def quickest_ns(events: Events, rows: Ints) -> float:
    """What these rows take where each is as quick as the quickest of its kind, ns in all."""
    kind = np.unique(np.column_stack((events.name[rows], events.dims[rows])), axis=0, return_inverse=True)[1].ravel()
    least = np.full(int(kind.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, kind, events.dur_ns[rows])
    return float(least[kind].sum())


def instead_ns(events: Events, found: Sequence[DenseTargets]) -> tuple[float, float]:
    """What the losses take beside their softmax, their calls left out, ns in all.

    (fewest passes, as slow as the products are on average; most passes, as quick as the quickest product)
    """
    ends = [0.0, 0.0]
    for shape in {one.shape for one in found}:
        ours = [one for one in found if one.shape == shape]
        every = {
            row
            for one in ours
            for own in (*one.rows, *one.nodes)
            for row in (own, *backward_passes.inside(events, own))
        }
        large = [row for row in every if sizes(dims_of(events, row), 0) == shape]
        products = _durations(
            events, [row for row in large if sizes(dims_of(events, row), 1) == shape], ("aten::mul", "aten::mul_")
        )
        sums = _durations(events, large, ("aten::sum", "aten::mean"))
        for one in ours:
            passes = _PASSES if one.smoothed else _PASSES_PLAIN
            ends[0] += float(sums.mean()) * one.smoothed + passes[0] * float(products.mean()) * bool(one.nodes)
            ends[1] += float(sums.min()) * one.smoothed + passes[1] * float(products.min()) * bool(one.nodes)
    return ends[0], ends[1]


def _durations(events: Events, rows: Sequence[int], names: Sequence[str]) -> Ints:
    """How long the rows of these names took, ns; nothing at all where there is none."""
    found = [int(events.dur_ns[row]) for row in rows if events.text(row) in names]
    return np.array(found or [0], np.int64)
