"""Matrix multiplications run in double precision.

## What it looks at
Time of matrix multiplications, convolutions and attention whose inputs are float64.

## Why it costs time
Double precision moves twice the bytes, and a CPU's vector units hold half as many numbers. Most GPUs have far fewer
units for it: consumer and inference GPUs reach between a 32nd and a 64th of their fp32 rate. NumPy arrays are float64
by default, so this often happens by accident.

## How to fix it
Convert where data enter: `torch.from_numpy(a).float()`, `np.float32` arrays, `torch.tensor(x,
dtype=torch.float32)`. Remove `torch.set_default_dtype(torch.float64)` and `model.double()`.

## When to leave it
Computations that need more than seven digits: solvers, physics, gradient checks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    Breakdown,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Matmuls,
    Nesting,
    RankRecord,
    Scale,
    StepOps,
    Steps,
    Trace,
    Treatment,
    constant,
    draw,
    shapes,
)

from ..shared._places import set_at
from ..shared._words import percent, time

CONFIRMED = "measured pair on a CPU: float64 as the default dtype against float32"

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
# Measured on a CPU, float64 against float32: 1.1 for linear layers of 64, 2.1 to 5 for 512 and above, 10 for a
# convolution. On a device the ratio of the peaks is 2 (data-centre GPUs) to 64 (consumer GPUs).
_CPU_GAINS = (
    (512, constant("fp64_cpu.large_product_gain").range),
    (0, constant("fp64_cpu.product_gain").range),
)
_CONVOLUTION_GAIN = constant("fp64_cpu.convolution_gain").range
_DEVICE_GAIN = constant("device.double_gain").range
# Most that ops which move half the bytes save.
_MOVED = constant("share.moved_by_double").value


def check(
    recorded: StepOps,
    steps: Steps,
    scale: Scale,
    breakdown: Breakdown,
    matmuls: Matmuls,
    record: RankRecord | None,
    *,
    min_share: float = 0.05,  # of the step: rounding changes, so the gain has to be worth a look at the results
) -> Iterator[Finding]:
    double_us = matmuls.by_precision["fp64"]
    if double_us < min_share * steps.step_us:
        return
    if breakdown.on_device:
        low_us, high_us = (double_us * (1 - 1 / gain) for gain in _DEVICE_GAIN)
    else:
        low_us, high_us = _on_cpu(recorded.trace, steps, recorded.nesting)
        high_us = max(high_us, low_us)
    default = record.settings.default_dtype if record else None
    chosen = " (the default dtype was set to float64)" if default == "float64" else ""
    yield Finding(
        message=(
            f"Matrix multiplications in float64 take {time(scale.scaled(double_us))} of each step "
            f"({percent(double_us / steps.step_us)}){chosen}."
        ),
        saving=scale.saving(
            low_us,
            high_us,
            "matrix multiplications faster by the ratio of fp32 to fp64 on this kind of machine, small layers least; "
            "on a CPU also half the bytes of all other ops",
            "assumed",
        ),
        where=set_at(record.settings if record else None, "default_dtype" if chosen else "double"),
        facts={"fp64_us": double_us, "default_dtype": default},
        fix=Fix(
            "Use float32 for data and model",
            "numerics",
            "torch.set_default_dtype(torch.float64)" if chosen else "x = torch.from_numpy(array)",
            "" if chosen else "x = torch.from_numpy(array).float()",
            Treatment("calls", {"names": ["torch.set_default_dtype"]}) if chosen else None,
            None if chosen else Treatment("in_float32"),
        ),
        claims=("compute",) if breakdown.on_device else ("forward", "backward", "other_ops"),
        # Nobody gets float64 matrix products by asking for speed, but some ask for digits.
        at_most="medium" if default == "float64" else "high",
    )


def _on_cpu(trace: Trace, steps: Steps, nesting: Nesting) -> tuple[float, float]:
    """Least and most that float32 gives back on a CPU, µs per step."""
    events = trace.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & (events.dtypes >= 0) & (steps.step_of(events.start_ns) >= 0))
    spent = np.zeros(2)
    for row in rows.tolist():
        if "double" not in events.dtypes_table[events.dtypes[row]]:
            continue
        us, name = nesting.self_ns[row] / 1e3, events.text(row)
        dims = shapes(events.dims_table[events.dims[row]]) if events.dims[row] >= 0 else []
        sizes = [size for shape in dims for size in shape]
        if "convolution" in name:
            gain = _CONVOLUTION_GAIN
        elif name in _PRODUCTS:
            gain = next(gain for width, gain in _CPU_GAINS if max(sizes, default=0) >= width)
        else:
            spent[1] += us * _MOVED
            continue
        spent += us * (1 - 1 / gain[0]), us * (1 - 1 / gain[1])
    low, high = (spent / steps.count).tolist()
    return low, high


_STEPS = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]"
_DOUBLE = Ev("aten::mm", dims=[[32, 512], [512, 512]], dtypes=["double", "double"])
_SINGLE = Ev("aten::mm", dims=[[32, 512], [512, 512]], dtypes=["float", "float"])

EXAMPLES = [
    Example(
        "inputs straight from NumPy",
        draw(_STEPS, us=1000, F=_DOUBLE, B=_DOUBLE),
        saves_us=(500, 10000),
        says=("float64",),
    ),
    Example(
        "the default dtype was set",
        draw(_STEPS, us=1000, F=_DOUBLE, B=_DOUBLE),
        facts={"settings": {"default_dtype": "float64"}},
        saves_us=(500, 10000),
        says=("default dtype",),
    ),
    Example(
        "a metric in float64 that takes a hundredth of the step",
        draw(
            "step [1                       ][2                       ]\n"
            "cpu  [F                    ][M][F                    ][M]",
            us=1000,
            F=_SINGLE,
            M=Ev("aten::mm", dims=[[32, 512], [512, 512]], dtypes=["double", "double"], times=1, fill=0.1),
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example("float32", draw(_STEPS, us=1000, F=_SINGLE, B=_SINGLE), saves_us=None),
    Example("shapes and dtypes were not recorded", draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD), saves_us=None),
]
