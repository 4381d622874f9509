"""Along which dimension of a tensor the samples of a batch lie, and whether an op keeps them apart.

Pure, like `value_numbering`. Only ops that are known to work on each sample by itself are told of;
of any other one nothing is known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from advisor.analyses.dataflow.observed.value_numbering import Op


class Lies(NamedTuple):
    """The samples lie along dimension `dim`, `size` places in all (several for each sample where they were joined)."""

    dim: int
    size: int


# What an op was given: by argument, each tensor with where samples lie in it; None: it has none, it is the same always.
Given = list[tuple[list[int], Lies | None]]
Judge = Callable[[Op, Given, list[int]], int | None]


def through(op: Op, lies: Sequence[Lies | None]) -> list[Lies] | None:
    """Where the samples lie in each result; None where the op may mix them, or is not known.

    lies: of each tensor that it reads, in order; at least one has samples.
    """
    name = op.name.removeprefix("aten::").removesuffix("_")
    judge = _JUDGES.get(name)
    refs = op.refs
    if judge is None or not op.outputs or not op.name.startswith("aten::"):
        return None
    given = [(ref.sizes, one) for ref, one in zip(refs, lies, strict=True)]
    found: list[Lies] = []
    for ref in op.outputs:
        sizes = ref.sizes
        dim = judge(op, given, sizes)
        if dim is None or not 0 <= dim < len(sizes):
            return None
        found.append(Lies(dim, sizes[dim]))
    return found


def _scalars(op: Op) -> list[object]:
    found: list[object] = json.loads(op.scalars)
    return found


def _dims(value: object, count: int) -> list[int] | None:
    """Dimensions that an argument names, counted from the first; None where it names none."""
    named = value if isinstance(value, list) else [value]
    whole = [one for one in named if isinstance(one, int) and not isinstance(one, bool)]
    return [one % count for one in whole] if whole and len(whole) == len(named) and count else None


def _aligned(_op: Op, given: Given, out: list[int]) -> int | None:
    """Number by number, with what is broadcast: samples lie at the same place counted from the last dimension."""
    behind = {(one.dim - len(sizes), one.size) for sizes, one in given if one is not None}
    if len(behind) != 1:
        return None
    back, size = behind.pop()
    at = len(out) + back
    # A constant with a row for each place in the batch would tell the places apart.
    rows = any(one is None and len(sizes) >= -back and sizes[back] != 1 for sizes, one in given)
    return at if not rows and at >= 0 and out[at] == size else None


def _first_alone(_op: Op, given: Given, out: list[int]) -> int | None:
    """Layers over channels and places: samples lie first, in what is read first and in nothing else."""
    (sizes, one), *others = given
    if one is None or one.dim or any(other is not None for _, other in others):
        return None
    return 0 if out and out[0] == sizes[0] else None


def _linear(_op: Op, given: Given, out: list[int]) -> int | None:
    (sizes, one), *others = given
    if one is None or one.dim == len(sizes) - 1 or any(other is not None for _, other in others):
        return None
    return one.dim if out[one.dim : one.dim + 1] == [one.size] else None


def _product(_op: Op, given: Given, out: list[int]) -> int | None:
    """A product of two: each with each within a sample, or samples with one matrix that stays."""
    if len(given) != 2:
        return None
    (left, mine), (right, theirs) = given
    if mine is not None and theirs is None:
        return mine.dim if len(left) == len(out) and mine.dim < len(left) - 1 and len(right) == 2 else None
    return _batched(_op, given, out)


def _batched(op: Op, given: Given, out: list[int]) -> int | None:
    """Products of matrices, one for each sample: attention, `bmm`."""
    if any(one is not None and one.dim >= len(sizes) - 2 for sizes, one in given):
        return None
    return _aligned(op, given, out)


def _normalised(op: Op, given: Given, out: list[int]) -> int | None:
    """A normalisation over the last dimensions: as many as the form that it names."""
    (sizes, one), *others = given
    form = next((value for value in _scalars(op) if isinstance(value, list)), [])
    if one is None or one.dim >= len(sizes) - max(len(form), 1) or any(other is not None for _, other in others):
        return None
    return one.dim


def _along(place: int) -> Judge:
    """Ops along the dimensions that the argument at this place names: none of them is that of the samples."""

    def judge(op: Op, given: Given, out: list[int]) -> int | None:
        (sizes, one), *others = given
        scalars = _scalars(op)
        dims = _dims(scalars[place], len(sizes)) if place < len(scalars) else None
        if one is None or dims is None or one.dim in dims or any(other is not None for _, other in others):
            return None
        gone = 0 if len(out) == len(sizes) else sum(dim < one.dim for dim in dims)
        return one.dim - gone if out[one.dim - gone : one.dim - gone + 1] == [one.size] else None

    return judge


def _joined(op: Op, given: Given, out: list[int]) -> int | None:
    """Tensors put together along another dimension than that of the samples."""
    lies = {one for _, one in given if one is not None}
    dims = _dims((_scalars(op) or [None])[0], len(out))
    if len(lies) != 1 or dims is None:
        return None
    one = lies.pop()
    at = one.dim + (len(out) > len(given[0][0]) and dims[0] <= one.dim)
    return at if at not in dims and out[at : at + 1] == [one.size] else None


def _moved(op: Op, given: Given, out: list[int]) -> int | None:
    """Dimensions change places."""
    sizes, one = given[0]
    scalars = _scalars(op)
    if one is None or len(given) != 1 or len(out) != len(sizes) or len(sizes) < 2:
        return None
    if op.name == "aten::permute":
        order = _dims(scalars[0], len(sizes)) if scalars else None
    else:
        order = list(range(len(sizes)))
        pair = _dims(scalars[:2], len(sizes)) if len(scalars) >= 2 else [len(sizes) - 2, len(sizes) - 1]
        if pair is None:
            return None
        order[pair[0]], order[pair[1]] = pair[1], pair[0]
    return order.index(one.dim) if order and one.dim in order else None


def _looked_up(_op: Op, given: Given, _out: list[int]) -> int | None:
    """Rows of a table: the first dimensions are those of the indices."""
    if len(given) != 2 or given[0][1] is not None or given[1][1] is None:
        return None
    return given[1][1].dim


def _reshaped(_op: Op, given: Given, out: list[int]) -> int | None:
    """Another shape of the same numbers in the same order: what lies before the samples stays as much."""
    sizes, one = given[0]
    if one is None or math.prod(sizes) != math.prod(out):
        return None
    before = math.prod(sizes[: one.dim])
    fit = [at for at in range(len(out)) if math.prod(out[:at]) == before]
    same = [at for at in fit if out[at] == one.size]
    several = [at for at in fit if out[at] > one.size and out[at] % one.size == 0]
    return next(iter(same + several), None)


_JUDGES: dict[str, Judge] = {
    **dict.fromkeys(
        (
            *("add", "sub", "mul", "div", "rsub", "pow", "maximum", "minimum", "where", "masked_fill", "lerp"),
            *("relu", "relu6", "gelu", "silu", "elu", "celu", "selu", "leaky_relu", "hardswish", "hardtanh", "mish"),
            *("hardsigmoid", "tanh", "sigmoid", "softplus", "softsign", "log_sigmoid", "dropout", "feature_dropout"),
            *(
                "exp",
                "log",
                "log1p",
                "sqrt",
                "rsqrt",
                "reciprocal",
                "abs",
                "neg",
                "square",
                "sin",
                "cos",
                "erf",
                "sign",
            ),
            *("clamp", "clamp_min", "clamp_max", "nan_to_num", "floor", "round", "eq", "ne", "gt", "ge", "lt", "le"),
            *("to", "_to_copy", "type_as", "contiguous", "clone", "detach", "alias", "expand", "expand_as"),
        ),
        _aligned,
    ),
    **dict.fromkeys(
        (
            *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"),
            *("batch_norm", "group_norm", "prelu", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d"),
            *("avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
            *("adaptive_max_pool1d", "adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d"),
            *("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "pixel_shuffle"),
            "_transformer_encoder_layer_fwd",
        ),
        _first_alone,
    ),
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm"), _product),
    **dict.fromkeys(("bmm", "scaled_dot_product_attention"), _batched),
    **dict.fromkeys(("layer_norm", "rms_norm"), _normalised),
    **dict.fromkeys(("softmax", "log_softmax", "mean", "sum", "amax", "amin", "cumsum", "select", "slice"), _along(0)),
    **dict.fromkeys(("narrow", "unbind"), _along(0)),
    **dict.fromkeys(("linalg_vector_norm", "chunk", "split", "split_with_sizes", "tensor_split"), _along(1)),
    **dict.fromkeys(("cat", "stack"), _joined),
    **dict.fromkeys(("transpose", "permute", "swapaxes", "t", "mT"), _moved),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"), _reshaped),
    "embedding": _looked_up,
}
