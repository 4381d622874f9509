"""Floating-point operations of single forward ops: matrix products, convolutions, attention."""

from __future__ import annotations

import math

import numpy as np

from advisor.analyses.work.op_costs import Call, alike, call, cost
from advisor.trace.events import Category, Events, Floats, Ints
from advisor.trace.numbers import first_places

# Ops that do the work themselves; those around them (linear, matmul, conv2d) would count it twice.
_COUNTED = (
    *("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_addmm_activation", "aten::convolution"),
    *("aten::_flash_attention_forward", "aten::_efficient_attention_forward"),
    *("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"),
)
# Ops that multiply matrices and do not show how much: recurrent layers of a library, other formats, compiled code.
_UNTOLD = (
    *("aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn", "aten::_scaled_mm", "aten::_grouped_mm"),
    *("aten::_scaled_grouped_mm", "aten::_int_mm", "aten::_weight_int4pack_mm", "aten::_weight_int8pack_mm"),
    *("aten::addbmm", "aten::_sparse_mm"),
    *("mkldnn::_linear_pointwise", "mkl::_mkl_linear", "mkldnn::_convolution_pointwise"),
)
_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "triton_tem")


def counted_rows(events: Events) -> Ints:
    """Rows of ops whose operations are counted, or would have to be."""
    wanted = events.exactly(*_COUNTED, *_UNTOLD) | events.named(*_COMPILED)
    return np.flatnonzero(events.of(Category.CPU_OP) & wanted)


def operations(events: Events, rows: Ints) -> Floats:
    """Operations of each of these rows, a multiplication and an addition as two; NaN where they are not known."""
    columns = [column[rows] for column in (events.name, events.dims, events.dtypes, events.values)]
    kind = alike(columns)
    first = first_places(kind, int(kind.max(initial=-1)) + 1)
    of_kind = [_of_row(events, int(rows[at])) for at in first.tolist()]
    found: Floats = np.array(of_kind, float)[kind]
    return found


def _of_row(events: Events, row: int) -> float:
    name = events.text(row)
    if name not in _COUNTED or events.dims[row] < 0 or events.dtypes[row] < 0:
        return math.nan
    values = events.values_table[events.values[row]] if events.values[row] >= 0 else ""
    described = call(events.dims_table[events.dims[row]], events.dtypes_table[events.dtypes[row]], values)
    if described is None:
        return math.nan
    if name == "aten::convolution" and described.value(6) is True:
        return _transposed(described)
    work = cost(name, described)
    return work.flops if work is not None else math.nan


def _transposed(made: Call) -> float:
    """A transposed convolution puts its kernel at each place of its input: weight is [in, out / groups, …]."""
    if not (made.has(0) and made.has(1)) or len(made.shapes[0]) != len(made.shapes[1]):
        return math.nan
    return 2.0 * made.numbers(0) * math.prod(made.shapes[1][1:])
