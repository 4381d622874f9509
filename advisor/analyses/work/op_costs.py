"""The least work that an op can be done with: arithmetic and memory traffic, from shapes, types and plain arguments.

Arithmetic counts a multiplication and an addition as two operations. Bytes count every input once and every output
once: a kernel that moves less than that does not exist, unless its data lies in a cache. Where the trace leaves it open
the larger number of bytes and the smaller number of operations are taken, so that a kernel is never called slow for
work that it need not do.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.trace.events import Events, Ints
from advisor.trace.numbers import small

Kind = Literal["product", "convolution", "attention", "normalisation", "softmax", "elementwise", "copy", "fused"]
Shape = tuple[int, ...]

# Bytes of an element by the name that `Input type` gives its dtype.
_BYTES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<float>": 8,
    "int": 4,
    "long int": 8,
    "long": 8,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
}


class Cost(Struct, frozen=True):
    """The least work of one call: operations, bytes, and what kind of work it is."""

    kind: Kind
    flops: float
    bytes: float


class Call(Struct, frozen=True):
    """A call as the trace describes it: shapes (() for what is no tensor), bytes per element (0: none), arguments."""

    shapes: tuple[Shape, ...]
    sizes: tuple[int, ...]
    values: tuple[Any, ...]

    def numbers(self, position: int) -> float:
        """How many numbers the tensor at that position has; 0 for what is no tensor."""
        return float(math.prod(self.shapes[position])) if self.has(position) else 0.0

    def bytes(self, *positions: int) -> float:
        """Bytes of these inputs."""
        return sum(self.numbers(at) * self.sizes[at] for at in positions if self.has(at))

    def has(self, position: int) -> bool:
        """Whether that input is a tensor of known type."""
        return position < len(self.shapes) and position < len(self.sizes) and self.sizes[position] > 0

    def value(self, position: int) -> Any:
        """The plain argument at that position; None where it was not recorded."""
        return self.values[position] if position < len(self.values) else None


def call(dims: str, dtypes: str, values: str = "") -> Call | None:
    """What `Input Dims`, `Input type` and `Concrete Inputs` say; None where they cannot be read."""
    try:
        shapes, types = json.loads(dims), json.loads(dtypes)
        given = json.loads(values) if values else []
    except (ValueError, RecursionError):
        return None
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    plain = tuple(_shape(one) for one in shapes)
    known = tuple(_BYTES.get(str(one), 0) for one in types)
    return Call(plain, known, tuple(_value(one) for one in given) if isinstance(given, list) else ())


def _shape(dims: Any) -> Shape:
    plain = isinstance(dims, list) and all(isinstance(size, int) for size in dims)
    return tuple(dims) if plain else ()


def _value(text: Any) -> Any:
    """An argument as it was written: numbers, booleans and lists of them; anything else is None."""
    try:
        return ast.literal_eval(str(text)) if text != "" else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def cost(name: str, made: Call) -> Cost | None:
    """The least work of a call of that op; None where the op is not known or its description is not whole."""
    count = _COSTS.get(name) or (_fused if name.startswith(_TRITON) else None)
    found = count(made) if count else None
    return found if found is not None and found.bytes > 0 else None


def operations_of(events: Events, row: int) -> float | None:
    """The FLOPs of an op at least; None if the op is not known or its shapes are not recorded."""
    found = work_of(events, row)
    return found.flops if found is not None else None


def work_of(events: Events, row: int) -> Cost | None:
    """The least work of an op; None if the op is not known or its shapes are not recorded."""
    if events.dims[row] < 0 or events.dtypes[row] < 0:
        return None
    values = events.values_table[events.values[row]] if events.values[row] >= 0 else ""
    made = call(events.dims_table[events.dims[row]], events.dtypes_table[events.dtypes[row]], values)
    return cost(events.text(row), made) if made is not None else None


def result_bytes(events: Events, row: int) -> float:
    """Bytes of the new memory that an op writes its result to; 0 where it has none or its sizes are not known."""
    found = work_of(events, row)
    if found is None or events.text(row).endswith("_"):
        return 0.0
    made = call(events.dims_table[events.dims[row]], events.dtypes_table[events.dtypes[row]])
    return max(found.bytes - made.bytes(*range(len(made.shapes))), 0.0) if made is not None else 0.0


def _product(left: int, right: int, added: int | None = None) -> Callable[[Call], Cost | None]:
    def count(made: Call) -> Cost | None:
        if not (made.has(left) and made.has(right)):
            return None
        one, other = made.shapes[left], made.shapes[right]
        if len(one) < 2 or len(other) < 2 or one[-1] != other[-2]:
            return None
        out = float(math.prod(one[:-1])) * other[-1]
        extra = made.bytes(added) if added is not None else 0.0
        return Cost("product", 2.0 * out * one[-1], made.bytes(left, right) + extra + out * made.sizes[left])

    return count


def _grouped(made: Call) -> Cost | None:
    """aten::_grouped_mm(self, mat2, offs): several products in one call, each row or column of one group alone.

    Where one of them is stacked by group, the rows (columns) of the other are divided among the groups; rows behind
    the last offset are counted as if they were multiplied, which no shape tells.
    """
    found = _product(0, 1)(made)
    if found is None or not (len(made.shapes[0]) == 3 and len(made.shapes[1]) == 2):
        return found
    return Cost(found.kind, found.flops / made.shapes[0][0], found.bytes)


def _convolution(made: Call) -> Cost | None:
    """aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    if not (made.has(0) and made.has(1)) or made.value(6) is not False:
        return None
    source, weight = made.shapes[0], made.shapes[1]
    pixels = _pixels(source[2:], weight[2:], *(made.value(at) for at in (3, 4, 5)))
    if pixels is None or len(source) != len(weight):
        return None
    out = float(source[0]) * weight[0] * pixels
    return Cost("convolution", 2.0 * out * math.prod(weight[1:]), made.bytes(0, 1) + out * made.sizes[0])


def _pixels(size: Sequence[int], kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> int | None:
    """How many places the kernel of a convolution is put to."""
    made = 1
    for axis, (length, width) in enumerate(zip(size, kernel, strict=False)):
        step, pad, spread = (_of_axis(one, axis) for one in (stride, padding, dilation))
        if step is None or pad is None or spread is None or step < 1:
            return None
        made *= (length + 2 * pad - spread * (width - 1) - 1) // step + 1
    return made if made > 0 else None


def _of_axis(given: Any, axis: int) -> int | None:
    if isinstance(given, list | tuple) and given:
        given = given[axis if axis < len(given) else -1]
    return given if isinstance(given, int) else None


def _convolution_backward(made: Call) -> Cost | None:
    """aten::convolution_backward(grad, input, weight, bias_sizes, …, output_mask); two gradients unless masked.

    Where the mask is not recorded there are two: only a convolution of the model's input needs no gradient of it.
    """
    if not (made.has(0) and made.has(1) and made.has(2)):
        return None
    mask = made.value(10)
    asked = sum(map(bool, mask[:2])) if isinstance(mask, list | tuple) and len(mask) == 3 else 2
    work = 2.0 * made.numbers(0) * math.prod(made.shapes[2][1:])
    return Cost("convolution", asked * work, made.bytes(0, 1, 2) + asked * min(made.bytes(1), made.bytes(2)))


def _attention(heads: int, causal: int, products: float) -> Callable[[Call], Cost | None]:
    """Attention over q, k, v from position 0 or (backward) 1 on.

    heads: the axis of the heads (1 or 2). causal: where the flag stands; half of the scores is left out then.
    products: matrix products of q with as many tokens as k has.
    """

    def count(made: Call) -> Cost | None:
        first = 1 if products > 2 else 0
        if not all(made.has(first + at) and len(made.shapes[first + at]) == 4 for at in range(3)):
            return None
        query, key = made.shapes[first], made.shapes[first + 1]
        tokens = 3 - heads  # the other one of the two middle axes
        if not isinstance(made.value(causal), int):  # a flag, or memory-efficient attention's kind of mask (0: none)
            return None
        work = 2.0 * products * math.prod(query) * key[tokens] * (0.5 if made.value(causal) else 1.0)
        moved = made.bytes(first, first + 1, first + 2) + made.bytes(first)
        return Cost("attention", work, moved * (2.0 if products > 2 else 1.0))

    return count


def _moved(kind: Kind, reads: Sequence[int], writes: int, flops: float = 0.0) -> Callable[[Call], Cost | None]:
    """An op that reads some inputs and writes as much as one of them `writes` times."""

    def count(made: Call) -> Cost | None:
        if not all(made.has(at) for at in reads):
            return None
        return Cost(kind, flops, made.bytes(*reads) + writes * made.bytes(reads[0]))

    return count


def _pointwise(made: Call) -> Cost | None:
    """An elementwise op: all its tensors, and an output of the broadcast shape in the widest of their types."""
    tensors = [at for at in range(len(made.shapes)) if made.has(at) and made.shapes[at]]
    if not tensors:
        return None
    rank = max(len(made.shapes[at]) for at in tensors)
    padded = [(1,) * (rank - len(made.shapes[at])) + made.shapes[at] for at in tensors]
    out = float(math.prod(max(sizes) for sizes in zip(*padded, strict=True)))
    return Cost("elementwise", 0.0, made.bytes(*tensors) + out * max(made.sizes[at] for at in tensors))


def _norm(made: Call) -> Cost | None:
    """aten::linalg_vector_norm(self, …): everything is read once."""
    return Cost("elementwise", 0.0, made.bytes(0)) if made.has(0) else None


def _copy(made: Call) -> Cost | None:
    """aten::copy_(self, source): what is written, and at most as many numbers read."""
    if not (made.has(0) and made.has(1)):
        return None
    return Cost("copy", 0.0, made.bytes(0) + min(made.numbers(0), made.numbers(1)) * made.sizes[1])


def _fused(made: Call) -> Cost | None:
    """A kernel that the compiler made: each of its tensors is read or written once."""
    tensors = [at for at in range(len(made.shapes)) if made.has(at) and made.shapes[at]]
    return Cost("fused", 0.0, made.bytes(*tensors)) if tensors else None


# Pointwise, persistent and looping reductions; templates of products (triton_tem) do more than they move.
_TRITON = ("triton_poi_", "triton_per_", "triton_red_")
_POINTWISE = (
    "add add_ sub sub_ mul mul_ div div_ neg relu relu_ gelu gelu_backward silu silu_ silu_backward sigmoid "
    "sigmoid_backward tanh tanh_backward pow exp log sqrt rsqrt abs clamp clamp_min where masked_fill masked_fill_ "
    "threshold_backward leaky_relu hardtanh hardswish addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ sqrt_ neg_ abs_ "
    "clamp_"
)
_COSTS: dict[str, Callable[[Call], Cost | None]] = {
    **{f"aten::{name}": _pointwise for name in _POINTWISE.split()},
    "aten::linalg_vector_norm": _norm,
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::addmm": _product(1, 2, 0),
    "aten::baddbmm": _product(1, 2, 0),
    "aten::_addmm_activation": _product(1, 2, 0),
    # fp8, by the formats of their inputs. Shapes as FlopCounterMode takes them (torch/utils/flop_counter.py).
    "aten::_scaled_mm": _product(0, 1),
    "aten::_scaled_mm_v2": _product(0, 1),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm_v2": _grouped,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    # Flash: q, k, v as [batch, tokens, heads, width]; two products forward, five backward.
    "aten::_flash_attention_forward": _attention(2, 8, 2),
    "aten::_flash_attention_backward": _attention(2, 11, 5),
    "aten::_efficient_attention_forward": _attention(2, 9, 2),
    "aten::_efficient_attention_backward": _attention(2, 14, 5),
    "aten::_scaled_dot_product_cudnn_attention": _attention(1, 6, 2),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(1, 4, 2),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, 5),
    # The flash-attn packages: 2 (flash_attn/flash_attn_interface.py) and 3 (hopper/flash_api.cpp), by their schemas.
    "flash_attn::_flash_attn_forward": _attention(2, 5, 2),
    "flash_attn::_flash_attn_backward": _attention(2, 11, 5),
    "flash_attn_3::fwd": _attention(2, 24, 2),
    "flash_attn_3::bwd": _attention(2, 16, 5),
    "aten::copy_": _copy,
    "aten::_softmax": _moved("softmax", (0,), 1),
    "aten::_log_softmax": _moved("softmax", (0,), 1),
    "aten::_softmax_backward_data": _moved("softmax", (0, 1), 1),
    "aten::_log_softmax_backward_data": _moved("softmax", (0, 1), 1),
    "aten::native_layer_norm": _moved("normalisation", (0,), 1),
    "aten::native_layer_norm_backward": _moved("normalisation", (0, 1), 1),
    "aten::native_group_norm": _moved("normalisation", (0,), 1),
    "aten::native_group_norm_backward": _moved("normalisation", (0, 1), 1),
    "aten::_fused_rms_norm": _moved("normalisation", (0,), 1),
    "aten::native_batch_norm": _moved("normalisation", (0,), 1),
    "aten::cudnn_batch_norm": _moved("normalisation", (0,), 1),
    "aten::miopen_batch_norm": _moved("normalisation", (0,), 1),
    "aten::native_batch_norm_backward": _moved("normalisation", (0, 1), 1),
    "aten::cudnn_batch_norm_backward": _moved("normalisation", (0, 1), 1),
    "aten::miopen_batch_norm_backward": _moved("normalisation", (0, 1), 1),
}
# Ops inside which a library starts its kernels: the convolution around them has the arguments.
WHOLE = frozenset(("aten::convolution", "aten::_convolution", "aten::convolution_backward"))
KNOWN = frozenset(_COSTS)


def alike(columns: Sequence[npt.NDArray[Any]]) -> Ints:
    """A number for each row, equal for rows that are equal in all of these columns of indices (-1: absent)."""
    narrow = [small(column) for column in columns]
    order = np.lexsort(narrow[::-1])
    new = np.zeros(len(order), bool)
    for column in narrow:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    member = np.empty(len(order), np.int64)
    member[order] = np.cumsum(new)
    return member


def is_known(name: str) -> bool:
    """Whether the work of an op of that name can be counted."""
    return name in KNOWN or name.startswith(_TRITON)
