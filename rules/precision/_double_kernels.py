"""Kernels of a device on float64: how much of their time float32 gives back."""

from __future__ import annotations

import re

import numpy as np

from advisor.api import Category, Ints, StepOps, constant

from ..shared._roofline import LEAST_US

# The ratio of the peaks: 64 on consumer GPUs. Data-centre GPUs have half of their units for float64.
_GAIN, _HALF = constant("device.double_gain").range, 2.0
_DATA_CENTRE = re.compile(r"\b(P100|V100S?|A100X?|A800|A30|H100|H200|H800|GH200|B100|B200|GB200|MI\d{2,3}[AX]?)\b")
_SINGLE = ("float", "half", "bfloat16")
_PRODUCTS = ("gemm", "dgrad", "wgrad", "fprop", "conv", "trsm", "Cijk")


def moving_doubles(recorded: StepOps, doubles: Ints) -> Ints:
    """Kernels of the steps that compute with float64, products left out.

    doubles: ops with an operand in float64. Without dtypes the template tells, if it names no smaller format: a fused
    Adam names `double` for its step size, beside the format of its parameters.
    """
    events = recorded.events
    kernels = recorded.links.inside & events.of(Category.KERNEL)
    found = kernels & events.named("double") & ~events.named(*_SINGLE)
    found[recorded.launched(doubles)] = True
    rows: Ints = np.flatnonzero(found & kernels & ~events.named(*_PRODUCTS))
    return rows


def on_a_device(recorded: StepOps, product_us: float, moving: Ints) -> tuple[float, float]:
    """Least and most that float32 gives back, µs per step: of products, and of kernels that move numbers.

    Half of the bytes take half of the time, of what is no kernel's start.
    """
    most_gain = _HALF if _DATA_CENTRE.search(recorded.device.name.replace("-", " ")) else _GAIN[1]
    us = recorded.events.dur_ns[moving] / 1e3
    beyond = recorded.us(moving) * float(np.maximum(us - LEAST_US, 0.0).sum() / max(float(us.sum()), 1e-9))
    return product_us * (1 - 1 / _GAIN[0]) + beyond / 2, product_us * (1 - 1 / most_gain) + recorded.us(moving) / 2
