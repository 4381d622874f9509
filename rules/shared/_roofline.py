"""Kernels far from what the device allows: which kind of distance it is, and how near well-made ones come."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

import numpy as np

from advisor.api import Device, Events, Ints, Price, WorkGroup, constant, edits

# Share of a device's peak that well-made kernels reach at most.
WELL_MADE = constant("device.well_made_share").value
# Share of the peak below which something is wrong with a kernel.
FAR = constant("device.far_share").value
# Kernels below this say little of a device's rates.
LEAST_US = constant("device.mostly_start_us").value

# Shares of time are rounded up to this: each edit of a replay looks at all work, and a step may hold many shapes.
_STEP = 0.05

# Numbers in 16 bytes, the width of what tensor cores and wide loads take, by format.
_IN_16_BYTES = {"fp16": 8, "bf16": 8, "tf32": 4}
# Numbers that a kernel loads at once: CUTLASS's name has their alignment, cuBLAS's the width of loads ("ldg8"), as in
# all 82 products with such a kernel of two real traces of an A100, whose rows are multiples of 8.
_ALIGNED = re.compile(r"align(\d+)|ldg(\d+)_")
# "_nt_align1": layouts of both matrices and their alignment (`layout_name` in CUTLASS' python/cutlass_library/
# gemm_operation.py). cuBLAS counts by columns, so that PyTorch passes the right matrix first; t is one whose columns
# are contiguous. As in 94 products of four real traces with strides, on A100 and H100.
_LAID_OUT = re.compile(r"_([nt])([nt])_align\d+")
# Rows up to this length are kept in registers, whatever their alignment.
_PERSISTENT = 1024
_OUT_OF_STEP = re.compile(r"softmaxforward(?!smem|reg)", re.IGNORECASE)


def odd_size(group: WorkGroup) -> int:
    """A size along memory that is no multiple of 16 bytes, where matrix units need that; 0 where all fit or is unknown.

    What lies along memory the kernel's name says, else strides do; without either nothing is known of it.
    """
    if group.kind == "softmax":
        return _odd_row(group)
    numbers = _IN_16_BYTES.get(group.precision)
    if numbers is None or group.kind != "product":
        return 0
    stated = _ALIGNED.search(group.kernel)
    if stated and int(stated[1] or stated[2]) >= numbers:
        return 0
    return max((length for length in _along_memory(group) if length % numbers), default=0)


def _along_memory(group: WorkGroup) -> list[int]:
    """How many numbers lie from one row (or column) to the next, of the result and both matrices of a product."""
    dims, strides = json.loads(group.dims), strides_of(group.strides)
    left, right = (1, 2) if "addmm" in group.op or "baddbmm" in group.op else (0, 1)
    (rows, inner), columns = dims[left][-2:], dims[right][-1]
    # The result is written row by row.
    if named := _LAID_OUT.search(group.kernel):
        return [columns, inner if named[1] == "t" else columns, rows if named[2] == "t" else inner]
    if len(strides) <= right or len(strides[left]) < 2 or len(strides[right]) < 2:
        return []
    return [columns, *(_row_length(strides[at]) for at in (left, right))]


def strides_of(text: str) -> list[list[int]]:
    """Strides of each input; empty for what is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    plain = isinstance(found, list)
    return [
        one if isinstance(one, list) and all(isinstance(step, int) for step in one) else []
        for one in (found if plain else [])
    ]


def _row_length(strides: list[int]) -> int:
    """Numbers from one row (or column) of a matrix to the next: the larger of its last two strides."""
    return max(strides[-2:], default=0)


def _odd_row(group: WorkGroup) -> int:
    """The length of a softmax row that keeps PyTorch from its kernel in fast memory: it loads 16 bytes at a time."""
    dims, row = json.loads(group.dims), 8 if "BFloat16" in group.kernel or "Half" in group.kernel else 4
    length = int(dims[0][-1]) if dims and dims[0] else 0
    fits = _PERSISTENT < length < 3000 * row  # longer rows do not fit into the 48 kB of fast memory anyway
    return length if fits and length % row and _OUT_OF_STEP.search(group.kernel) else 0


def idle_kernels(events: Events, group: WorkGroup, device: Device) -> Ints:
    """Kernels of a group that have fewer thread blocks than the device has multiprocessors, and take long enough."""
    blocks = events.blocks[group.kernels]
    few = (blocks > 0) & (blocks < (device.multiprocessors or 0)) & (events.dur_ns[group.kernels] >= LEAST_US * 1e3)
    return group.kernels[few] if group.reached < FAR else group.kernels[:0]


def spent_us(price: Price, groups: Iterable[WorkGroup]) -> float:
    """Time of the kernels of these groups, µs per profiled step: they take as long without the profiler."""
    return sum(price.spent_us(group.kernels) for group in groups)


def saved_us(price: Price, kept: Iterable[tuple[Ints, float]]) -> float:
    """What goes where kernels keep such shares of their time, µs per profiled step."""
    return sum(price.spent_us(mine) * (1 - share) for mine, share in kept)


def scaled(kept: Iterable[tuple[Ints, float]]) -> list[edits.Edit]:
    """Kernels that keep a share of their time, as edits of a replay: few, and never of less time than asked for."""
    rows: dict[int, list[Ints]] = {}
    for mine, share in kept:
        rows.setdefault(math.ceil(min(share, 1.0) / _STEP - 1e-9), []).append(mine)
    return [edits.scale(np.concatenate(found), steps * _STEP) for steps, found in sorted(rows.items())]


def shape_words(group: WorkGroup) -> str:
    """The op with the shapes of its tensors: 'aten::bmm [96, 3137, 64] x [96, 64, 3137]'."""
    shapes = [one for one in json.loads(group.dims) if one and all(isinstance(size, int) for size in one)]
    if group.kind == "product" and len(shapes) > 1:
        shapes = shapes[-2:]
        return f"{group.op} {shapes[0]} x {shapes[1]}"
    return f"{group.op} {shapes[0]}" if shapes else group.op
