"""Passes of one batch after the other through the same layers, where one pass of all batches does the same.

Pure, like `equal_layers`. The passes run the same ops on tensors of the same shapes with the same weights, each sample
by itself, and none needs what another made.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Sequence
from itertools import pairwise

from advisor.analyses.dataflow.observed.value_numbering import Op, Ref, is_view
from advisor.capture.record import EqualPasses

_WEIGHT_OF = {f"aten::{name}": 1 for name in ("linear", "conv1d", "conv2d", "conv3d")} | {
    f"aten::conv_transpose{dims}d": 1 for dims in (1, 2, 3)
}
# Fewer are a layer that several inputs share, not a network.
_LAYERS = 2
_TOKENS = {"aten::embedding": 0}
# Ops that treat each number, or each sample, by itself; of a reduction its shapes tell that the samples stay.
_BY_SAMPLE = frozenset(
    f"aten::{name}"
    for names in (
        ("relu", "relu_", "gelu", "silu", "silu_", "tanh", "sigmoid", "elu", "elu_", "leaky_relu", "leaky_relu_"),
        ("softplus", "hardtanh", "hardswish", "selu", "mish", "prelu", "dropout", "dropout_", "feature_dropout"),
        ("add", "add_", "sub", "mul", "mul_", "div", "div_", "pow", "exp", "log", "sqrt", "rsqrt", "square", "neg"),
        ("abs", "clamp", "clamp_min", "clamp_max", "clamp_min_", "sin", "cos", "where", "masked_fill", "rsub"),
        ("layer_norm", "rms_norm", "group_norm", "instance_norm", "scaled_dot_product_attention", "pixel_shuffle"),
        ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "constant_pad_nd", "pad"),
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d", "glu"),
        ("upsample_nearest2d", "upsample_bilinear2d", "to", "contiguous", "clone", "detach", "expand", "expand_as"),
        ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "type_as", "view_as", "reshape_as"),
    )
    for name in names
)
_REDUCE = frozenset(f"aten::{name}" for name in ("mean", "sum", "amax", "amin", "linalg_vector_norm", "norm", "var"))
# Ops along dimensions that they are told: which of them have to be others than the first.
_ALONG = frozenset(
    f"aten::{name}"
    for name in (
        "softmax",
        "log_softmax",
        "cat",
        "stack",
        "select",
        "slice",
        "chunk",
        "split",
        "unbind",
        "transpose",
        "permute",
    )
)
_PRODUCTS = ("aten::matmul", "aten::bmm")
# What Python knows before the next pass may have made that pass's input, as an action makes the next state.
_TELLS = frozenset(f"aten::{name}" for name in ("item", "_local_scalar_dense", "is_nonzero", "equal", "multinomial"))


def find(
    ops: Sequence[Op],
    waits: Sequence[Sequence[int]],
    known: Collection[tuple[int, int]],
    leaving: Collection[int],
    again: Collection[int],
) -> list[EqualPasses]:
    """The groups of such passes in one step.

    waits: of `data_dependencies`; known: (tensor, storage) that the script holds, as its weights; leaving: of
    `outward_results`; again: ops that compute what was computed before, which need not run at all.
    """
    ours = [op for op in ops if op.place != "elsewhere"]
    if len(ours) != len(waits):
        return []
    layers = [(at, weight) for at, op in enumerate(ours) if (weight := _weight(op, known)) is not None]
    repeated = _starts(ours, layers)
    found: list[EqualPasses] = []
    end = 0
    for starts in repeated:
        if starts[0] < end or not set(again).isdisjoint(starts):
            continue
        length = _length(ours, starts, known)
        # Layers of the network that lie behind a batch norm, say, are not in these ops; those of another one run once.
        inside = [at for ats in repeated for at in ats if starts[0] <= at < starts[1]]
        if len(inside) < _LAYERS or max(inside) >= starts[0] + length:
            continue
        if _is_free(ours, waits, starts, length, set(leaving)):
            end = starts[-1] + length
            views = [number for number in range(length) if is_view(ours[starts[0] + number])]
            found.append(EqualPasses(starts=starts, ops=length, views=views))
    return found


def _weight(op: Op, known: Collection[tuple[int, int]]) -> int | None:
    """The tensor of a layer's weight; None for what is no layer."""
    at = _WEIGHT_OF.get(op.name, _TOKENS.get(op.name))
    if op.place != "loop" or at is None or len(op.inputs) <= at or not op.inputs[at]:
        return None
    weight = op.inputs[at][0]
    return weight.tensor if (weight.tensor, weight.storage) in known else None


def _starts(ops: Sequence[Op], layers: Sequence[tuple[int, int]]) -> list[list[int]]:
    """For each weight that is used again layers that use it, no backward pass nor optimizer between them."""
    stops = [0]
    for op in ops:
        stops.append(stops[-1] + (op.place != "loop"))
    by_weight: dict[tuple[int, int], list[int]] = {}
    for at, weight in layers:
        by_weight.setdefault((weight, stops[at]), []).append(at)
    return [ats for ats in by_weight.values() if len(ats) > 1]


def _length(ops: Sequence[Op], starts: Sequence[int], known: Collection[tuple[int, int]]) -> int:
    """How many ops from each of the starts on are the same ones, each sample by itself."""
    batch = _first(ops[starts[0]].inputs[1 if ops[starts[0]].name in _TOKENS else 0])
    most = min([b - a for a, b in pairwise(starts)] + [len(ops) - starts[-1]])
    for number in range(most):
        first, *others = (ops[at + number] for at in starts)
        form = _form(first, known)
        if any(_form(op, known) != form for op in others) or not _keeps_samples(first, known, batch):
            return number
    return most


def _form(op: Op, known: Collection[tuple[int, int]]) -> Hashable:
    """The op with the shapes of what it reads and makes, and with its weights."""
    given = tuple(
        tuple(ref.tensor if at and (ref.tensor, ref.storage) in known else _shape(ref) for ref in argument)
        for at, argument in enumerate(op.inputs)
    )
    weight = op.inputs[0][0].tensor if op.name in _TOKENS and op.inputs[0] else None
    return op.name, op.place, op.scalars, given, weight, tuple(_shape(ref) for ref in op.outputs)


def _shape(ref: Ref) -> Hashable:
    _, sizes, _, kind = ref.form[:4]  # type: ignore[index]
    return sizes, kind


def _first(refs: Sequence[Ref]) -> int:
    """The first size of a tensor, 0 where it has none."""
    return (refs[0].sizes or [0])[0] if refs else 0


def _keeps_samples(op: Op, known: Collection[tuple[int, int]], batch: int) -> bool:
    """Whether the op treats each sample by itself, as far as its name, its dimensions and its shapes tell that."""
    if batch < 2 or op.random or op.training:
        return False
    read = [
        ref
        for argument in op.inputs
        for ref in argument
        if (ref.tensor, ref.storage) not in known and not ref.number and ref.sizes
    ]
    if not read or any(not ref.sizes or ref.sizes[0] % batch for ref in (*read, *op.outputs)):
        return False
    if op.name in _REDUCE:
        return _reduces_within(read[0].sizes, op.outputs[0].sizes)
    if op.name in _ALONG:
        return _along(op, len(read[0].sizes))
    if op.name in _PRODUCTS:
        return len(read) == 1 or all(len(ref.sizes) > 2 and _first([ref]) == _first(read) for ref in read)
    return op.name in _WEIGHT_OF or op.name in _TOKENS or op.name in _BY_SAMPLE


def _reduces_within(given: list[int], made: list[int]) -> bool:
    """Whether a reduction leaves the first dimension: it is there in the result, and no other one is as long."""
    return made[0] == given[0] and (len(made) == len(given) or given[0] not in given[1:])


def _along(op: Op, dimensions: int) -> bool:
    """Whether an op along dimensions leaves the first one alone, or takes all of it."""
    if op.name == "aten::slice" and op.outputs[0].form[1] == op.inputs[0][0].form[1]:  # type: ignore[index]
        return True
    told = [one for one in json.loads(op.scalars) if isinstance(one, int) and not isinstance(one, bool)]
    if op.name == "aten::permute":
        return bool(json.loads(op.scalars)[0][:1] == [0])
    if op.name in ("aten::chunk", "aten::split"):
        told = told[1:]
    dims = told[: 2 if op.name == "aten::transpose" else 1]
    return bool(dims) and all(one % dimensions for one in dims)


def _is_free(
    ops: Sequence[Op], waits: Sequence[Sequence[int]], starts: Sequence[int], length: int, leaving: set[int]
) -> bool:
    """Whether no pass needs what an earlier one made, in ops or in what Python may know of it before."""
    needs: dict[int, int] = {}
    for at in range(starts[0], starts[-1] + length):
        number = next((n for n, start in enumerate(starts) if start <= at < start + length), None)
        if 0 in waits[at]:
            return False  # nobody can tell what it reads
        mine = 0
        for back in waits[at]:
            mine |= needs.get(at - back, 0)
        if number is not None:
            if mine & ~(1 << number):
                return False
            mine |= 1 << number
        needs[at] = mine
        if mine and at < starts[-1] and (at in leaving or ops[at].name in _TELLS or _draws_or_chooses(ops[at])):
            return False
    return True


def _draws_or_chooses(op: Op) -> bool:
    """Whether an op draws random numbers, or makes whole numbers: an action, most often.

    Pooling tells where its largest ones were, for its own gradient.
    """
    made = op.outputs[:1] if "max_pool" in op.name else op.outputs
    return op.random or any("long" in str(_shape(ref)) for ref in made if ref.elements)
