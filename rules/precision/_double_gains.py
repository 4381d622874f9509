"""How many times as fast ops on float64 are in float32 on the CPU of a run, and what that gives back."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from advisor.api import Calibration, Events, Floats, Ints, Nesting, constant, dims_of, dtypes_of, flops, shapes, sizes

Range = tuple[float, float]

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
# Of a machine that was not calibrated. Measured on a CPU, float64 against float32: 1.1 for linear layers of 64, 2.1 to
# 5 for 512 and above, 10 for a convolution.
_CPU_GAINS = ((512, constant("fp64_cpu.large_product_gain").range), (0, constant("fp64_cpu.product_gain").range))
_CONVOLUTION_GAIN = constant("fp64_cpu.convolution_gain").range
# Where the machine of the run was calibrated: other shapes relative to the calibrated ones. Smaller products take about
# the time of their call.
_OF_PRODUCT = constant("fp64_cpu.of_product").range
_OF_CONVOLUTION, _OF_WIDE = constant("fp64_cpu.of_convolution").range, constant("fp64_cpu.of_wide_convolution").range
_TIMED_PRODUCT, _WIDE = 2 * 64**3, 5
_LEAST_GAIN = constant("fp64_cpu.product_gain").low
# Most that ops which move half the bytes save.
_MOVED = constant("share.moved_by_double").value
# Of ops on at least so many numbers; of fewer the call takes most of the time, whatever the format.
_ELEMENTWISE_GAIN = constant("fp64_cpu.elementwise_gain").range
_ELEMENTS = 1 << 14
_CASTS = ("aten::copy_", "aten::_to_copy", "aten::to")
_COMPARISONS = ("aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::eq", "aten::ne")


class Numbers(NamedTuple):
    """Numbers in the largest operand of each of both formats; a wrapped Python number is none."""

    double: int
    single: int


def numbers(events: Events, row: int) -> Numbers:
    """Of the op in this row."""
    dims = dims_of(events, row)
    found = {"double": 0, "float": 0}
    for at, kind in enumerate(dtypes_of(events, row)):
        size = sizes(dims, at)
        if kind in found and size:
            found[kind] = max(found[kind], math.prod(size))
    return Numbers(found["double"], found["float"])


def given_back_us(events: Events, rows: Ints, nesting: Nesting, calibration: Calibration) -> Range:
    """Least and most that float32 gives back of these ops on float64, µs in all.

    A convolution counts as a whole: what it unfolds, loops over and copies in float64, oneDNN does not do in float32.
    """
    whole = nesting.ancestor_of(rows, events.exactly(*CONVOLUTIONS))
    spent = np.zeros(2)
    for row in np.unique(whole[whole >= 0]).tolist():
        spent += _saved(events.dur_ns[row] / 1e3, _of_convolution(events, row, calibration))
    for row in rows[whole < 0].tolist():
        us, name, of = nesting.self_ns[row] / 1e3, events.text(row), numbers(events, row)
        if name in _PRODUCTS:
            spent += _saved(us, _of_product(events, row, calibration))
        elif name in _CASTS and of.single:
            spent += us  # nothing is left to convert
        elif of.double >= _ELEMENTS and name not in _COMPARISONS:
            spent += _saved(us, _ELEMENTWISE_GAIN)
        else:
            spent[1] += us * _MOVED
    return float(spent[0]), float(spent[1])


def _saved(us: float, gain: Range) -> Floats:
    return us * (1 - 1 / np.array(gain))


def _of_convolution(events: Events, row: int, calibration: Calibration) -> Range:
    timed = calibration.core_fp64_product_times
    if timed is None:
        return _CONVOLUTION_GAIN
    window = sizes(dims_of(events, row), 2 if "backward" in events.text(row) else 1)[2:]
    least, most = _OF_WIDE if max(window, default=1) >= _WIDE else _OF_CONVOLUTION
    return max(least * timed.low, 1.0), max(most * timed.high, 1.0)


def _of_product(events: Events, row: int, calibration: Calibration) -> Range:
    timed = calibration.core_fp64_product_times
    inputs = shapes(events.dims_table[events.dims[row]])
    if timed is None:
        widest = max((size for shape in inputs for size in shape), default=0)
        return next(gain for width, gain in _CPU_GAINS if widest >= width)
    least = _OF_PRODUCT[0] * timed.low if flops(events.text(row), inputs) >= _TIMED_PRODUCT else _LEAST_GAIN
    return max(least, 1.0), max(_OF_PRODUCT[1] * timed.high, 1.0)
