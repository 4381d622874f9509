"""Matrix products in fp32 on a CPU, and what bf16 would give back of their time."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from advisor.api import (
    Calibration,
    Category,
    Environment,
    Lines,
    Matmuls,
    Nesting,
    RankRecord,
    Source,
    Steps,
    Trace,
    constant,
    flops,
    shapes,
)

# Operations per byte that autocast converts for a product (both factors and the result, read and written): with fewer
# than the calibration times, converting cost as much as multiplying gained, and more with small matrices.
_TIMED, _LARGE = (2 * size**3 / (6 * 3 * size**2) for size in (288, 576))
# What the convolution of the calibration multiplies in its forward pass: that smaller ones gain is not known.
_TIMED_CONVOLUTION = 2 * 8 * 32 * 32 * 32 * 32 * 9
# Calls of fewer were not measured to gain; those of a tenth of it lost.
_CPU_OP_FLOPS = constant("bf16_cpu.least_operations").value
# The slowest that a core was seen to multiply.
_CPU_SLOW = 1e3 * constant("bf16_cpu.slowest_gflops").value
# Attention's backward pass in bf16, which autocast brings with it: the kernel multiplies the small matrices of each
# head one by one. How many times as long as in fp32, least and most, by numbers of a head (tokens x tokens x width):
# 16 to 128 tokens took 6.5 to 24 times as long, 256 tokens 1.5 to 2.7 times, 512 tokens as long (seven sizes, one
# thread); 16 tokens in a training with two threads 16 times.
_ATTENTION_BACKWARD = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
_ATTENTION_SLOWER = (
    (1e6, constant("bf16_cpu.small_attention_slower").range),
    (8e6, constant("bf16_cpu.attention_slower").range),
)
# Variables that forbid instructions, of oneDNN, which multiplies bf16. Products of a small CNN under autocast took 3.4
# times as long as in fp32 where only SSE4.1 was allowed (five processes each).
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_UNLIMITED = ("", "ALL", "DEFAULT")
_SAME = (1.0, 1.0)


def forbidden(record: RankRecord | None) -> bool:
    """Whether the environment keeps oneDNN from the instructions for bf16 that the CPU has."""
    known = record.environment if record else None
    environment = Environment(known) if known is not None else None
    values = [environment.get(name).upper() for name in _LIMITS] if environment else []
    return any(value not in _UNLIMITED and "BF16" not in value and "AMX" not in value for value in values)


class Gains(Struct, frozen=True):
    """How many times faster this machine runs calls in bf16 than in fp32, conversions included, least and most.

    Measured by its calibration, with one thread: least if all inputs and the result are converted, most if none is.
    """

    small: tuple[float, float]
    large: tuple[float, float]
    convolution: tuple[float, float]

    @classmethod
    def of(cls, calibration: Calibration) -> Gains | None:
        """The gains of a run's machine; None where they were not measured."""
        small, large = calibration.core_bf16_product_times, calibration.core_bf16_large_product_times
        convolution, plain = calibration.core_bf16_convolution_times, calibration.core_bf16_gflops
        if small is None or large is None or convolution is None:
            return None
        # Without any conversion, as between two layers in bf16: the products of the calibration in either format.
        most = max(large.high, plain.high / calibration.core_fp32_gflops.low if plain else 0.0)
        return cls((small.low, most), (large.low, most), (convolution.low, most))

    def for_call(self, name: str, inputs: list[list[int]]) -> tuple[float, tuple[float, float]]:
        """Operations of a call, and how many times faster bf16 makes it, least and most; 1 where it does not."""
        done = flops(name, inputs)
        if done < _CPU_OP_FLOPS:
            return done, _SAME
        if "convolution" in name:
            if _is_along_a_line(name, inputs):
                return done, _SAME
            return done, self.convolution if done >= _TIMED_CONVOLUTION else (1.0, self.convolution[1])
        left, right = [shape for shape in inputs if len(shape) > 1][-2:]
        numbers = math.prod(left) + math.prod(right) + math.prod(left[:-1]) * right[-1]
        per_byte = done / (6 * numbers)  # 4 bytes read and 2 written, or the other way round
        if per_byte < _TIMED:
            return done, _SAME
        return done, self.large if per_byte >= _LARGE else self.small


def _is_along_a_line(name: str, inputs: list[list[int]]) -> bool:
    """Whether a convolution is one along texts or signals, dilated perhaps: the calibration times one on images.

    A tagger of such layers took 8 % longer under autocast (three runs each, an EPYC with AVX-512 BF16).
    """
    weight = inputs[2 if "backward" in name else 1] if len(inputs) > 2 else []
    return len(weight) == 3 or (len(weight) == 4 and min(weight[2:]) == 1 < max(weight[2:]))


def on_cpu(trace: Trace, steps: Steps, nesting: Nesting, gains: Gains) -> tuple[float, float, float]:
    """(time of fp32 products on a CPU that gain from bf16, least and most that it gives back), µs per step."""
    events = trace.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & (events.dims >= 0) & (steps.step_of(events.start_ns) >= 0))
    # One number for each kind of call: its name and its shapes.
    every_dims = len(events.dims_table)
    keys = events.name[rows].astype(np.int64) * every_dims + events.dims[rows]
    kinds, kind = np.unique(keys, return_inverse=True)
    known = [
        gains.for_call(events.names[key // every_dims], shapes(events.dims_table[key % every_dims]))
        for key in kinds.tolist()
    ]
    gaining = np.flatnonzero(np.array([most > 1 for _, (_, most) in known], bool)[kind])
    spent = np.zeros(3)
    for of, row in zip(kind[gaining].tolist(), rows[gaining].tolist(), strict=True):
        done, (least, most) = known[of]
        us = min(nesting.self_ns[row] / 1e3, done / _CPU_SLOW)
        spent += us, us * (1 - 1 / least), us * (1 - 1 / most)
    whole, low, high = (spent / steps.count).tolist()
    return whole, low, high


def attention_us(trace: Trace, steps: Steps, nesting: Nesting) -> tuple[float, float]:
    """(least, most) that the backward pass of fused attention takes longer in bf16 on a CPU, µs per step."""
    events = trace.events
    rows = np.flatnonzero(events.exactly(_ATTENTION_BACKWARD) & (steps.step_of(events.start_ns) >= 0))
    spent = np.zeros(2)
    for row in rows[events.dims[rows] >= 0].tolist():
        known = [shape for shape in shapes(events.dims_table[events.dims[row]]) if len(shape) > 2]
        if len(known) < 3:
            continue
        query, key = known[1:3]
        numbers = query[-2] * key[-2] * query[-1]
        slower = next((slower for most, slower in _ATTENTION_SLOWER if numbers < most), (1.0, 1.0))
        spent += [float(nesting.self_ns[row]) / 1e3 * (one - 1) for one in slower]
    least, most = (spent / steps.count).tolist()
    return least, most


def where(trace: Trace, steps: Steps, matmuls: Matmuls, lines: Lines | None) -> tuple[Source, ...]:
    """The line that calls the longest forward product on a CPU, where it is known."""
    if lines is None or matmuls.on_device:
        return ()
    events = trace.events
    products = events.exactly(*(row.name for row in matmuls.largest if row.kind == "fp32"))
    rows = np.flatnonzero(
        products & (events.dims >= 0) & (steps.step_of(events.start_ns) >= 0) & (events.sequence >= 0)
    )
    found = lines.where_op(int(rows[np.argmax(events.dur_ns[rows])])) if len(rows) else None
    return (found,) if found else ()
