"""Sequences of kernels that a compiler makes one of, and how much of each kernel's time goes then.

A kernel that only moves numbers takes the longer, the more tensors it reads and writes: a *pass* is one of them. Fused,
a kernel reads what the kernel before it computed without that being written: of its passes those remain that read
another tensor. So GELU goes as a whole, and the addition of a residual keeps a third: it reads two tensors and writes
one. LayerNorm needs the statistics of a row before it can write the first number, and keeps its passes.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import Floats, Ints, RowMask, StepOps, by_dims, sizes

# PyTorch names its own kernels so in every version seen; fills are made elsewhere and come for their own reasons.
_SMALL_WORK = ("elementwise_kernel", "reduce_kernel")
_FILLS = ("FillFunctor",)
_REDUCTIONS = ("reduce_kernel",)
_COPIES = ("aten::copy_",)  # the tensor that it writes is an input of the op
# Kernels of LayerNorm (layer_norm_kernel.cu in PyTorch's aten/src/ATen/native/cuda). Batch normalization is left out:
# networks with it were no faster compiled (see the page of unfused-elementwise).
_NORMS = ("layer_norm_grad", "vectorized_layer_norm", "LayerNormForward", "LayerNormBackward", "GammaBetaBackward")
# Two tensors read for one written, by the kernel's name; where a number takes the place of one it is `AUnary`, `BUnary`
# or `OnSelf` instead (aten/src/ATen/native/cuda/Loops.cuh).
_OF_TWO = (
    *("BinaryFunctor", "CUDAFunctor_add", "threshold_kernel", "gelu_backward", "GeluBackward", "silu_backward"),
    *("sigmoid_backward", "tanh_backward", "leaky_relu_backward", "masked_scale"),
)


class Sequences(Struct, frozen=True, eq=False):
    """Such kernels of the profiled steps, at least two in each sequence.

    rows  the kernels, one sequence after the other
    run   the number of each one's sequence
    gone  the share of each one's time that goes if its sequence is fused
    """

    rows: Ints
    run: Ints
    gone: Floats


def sequences(ops: StepOps, others: Ints) -> Sequences:
    """Kernels that follow each other on a stream with no other kernel between; `others`: kernels that do not count."""
    events = ops.events
    work = np.flatnonzero(ops.trace.device_work & ops.links.inside)
    norms = events.named(*_NORMS) & ops.trace.device_work
    small = (events.named(*_SMALL_WORK) & ~events.named(*_FILLS)) | norms
    small[others] = False
    stream, small = events.stream[work], small[work]
    order = np.argsort(stream, kind="stable")
    stream, small = stream[order], small[order]
    goes_on = small[1:] & small[:-1] & (stream[1:] == stream[:-1])
    inside = np.append(goes_on, False) | np.append(False, goes_on)
    rows, run = work[order[inside]], np.cumsum(~np.append(False, goes_on))[inside]
    gone = _gone(ops, rows, run, norms[rows]) if len(rows) else np.empty(0)
    gains = np.isin(run, run[gone > 0])
    return Sequences(rows[gains], run[gains], gone[gains])


def _gone(ops: StepOps, rows: Ints, run: Ints, norms: RowMask) -> Floats:
    """The share of each kernel's passes that its sequence, once fused, no longer makes.

    The longest kernel of a sequence keeps all of them, unless there is a norm, which does.
    """
    gone: Floats = 2.0 / (1.0 + _read(ops, rows))
    gone[norms] = 0.0
    order = np.lexsort((ops.events.dur_ns[rows], norms, run))
    gone[order[np.append(run[order][1:] != run[order][:-1], True)]] = 0.0
    return gone


def _read(ops: StepOps, rows: Ints) -> Floats:
    """How many tensors of full size each kernel reads: by the recorded shapes of its op, else by its name."""
    events = ops.events
    named = events.named(*_OF_TWO)[rows]
    read: Floats = np.where(named, 2.0, 1.0)
    op = ops.nesting.parent[ops.links.launch[rows]]
    known = (ops.links.launch[rows] >= 0) & (op >= 0)
    known[known] = events.dims[op[known]] >= 0
    if known.any():
        read[known] = np.maximum(by_dims(events, op[known], _full_size), 1.0)
    read[events.named(*_REDUCTIONS)[rows] | (known & events.exactly(*_COPIES)[op])] = 1.0
    return read


def _full_size(dims: list[Any]) -> float:
    """How many of an op's inputs are as large as its largest."""
    numbers = [prod(sizes(dims, at)) for at in range(len(dims)) if sizes(dims, at)]
    return float(sum(2 * one >= max(numbers) for one in numbers))
