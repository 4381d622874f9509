"""Convolutions on a CPU run without oneDNN.

## What it looks at
fp32 convolutions on ranks without an accelerator: whether `torch.backends.mkldnn.enabled` was off in the profiled
window, and which ops ran for them. If the setting was not recorded, only the ops decide.

## Why it costs time
oneDNN has kernels for the vector units of the CPU and uses all threads. Without it, a convolution is a matrix product
on an unfolded copy of the input, which is as many times larger as a kernel has elements (9 times for 3 x 3), and a
dilated convolution is computed sample by sample.

## How to fix it
Remove `torch.backends.mkldnn.enabled = False`, or the `torch.backends.mkldnn.flags(enabled=False)` around the model.
Such lines are often a workaround for one op that fails: keep `flags(enabled=False)` around that op alone.

## When to leave it
Where results must match those of the other kernels exactly. Convolutions of a single small image, for which PyTorch
chooses other kernels itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Calibration,
    Device,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    Saving,
    Settings,
    StepOps,
    constant,
    dims_of,
    draw,
    dtypes_of,
    edits,
    operations_of,
    sizes,
)

from ..shared._places import first_line, longest, set_at
from ..shared._words import each_step

_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
_WITHOUT = (
    *("aten::_slow_conv2d_forward", "aten::thnn_conv2d", "aten::slow_conv3d", "aten::slow_conv3d_forward"),
    *("aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d", "aten::slow_conv_transpose2d"),
    *("aten::slow_conv_transpose3d", "aten::_nnpack_spatial_convolution"),
)
# A model may have a few convolutions that oneDNN does not take: where these are most of the time, it is off.
_MOSTLY = 0.8
# As many channels as the convolution that the calibration times; of others nothing is known.
_CHANNELS, _LEAST_FLOPS = 32, constant("onednn.least_operations").value
_CLAIMS = ("forward", "backward", "other_ops")


def check(
    price: Price,
    device: Device,
    calibration: Calibration,
    lines: Lines | None,
    settings: Settings | None,
    *,
    min_share: float = 0.1,  # of the step in such convolutions: oneDNN saves only a part of it
) -> Iterator[Finding]:
    enabled = settings.onednn_enabled if settings else None
    if device.kind != "none" or price.on_device or enabled:
        return
    rows = _in_fp32(price.ops)
    spent_us = price.ops.us(rows)
    off = enabled is False
    if not len(rows) or spent_us < min_share * price.ops.steps.step_us or not (off or _without(price.ops, rows)):
        return
    saving = _saving(price, calibration, rows) if off else None
    took = each_step(price, spent_us)
    first = first_line(lines, longest(price.ops.events, rows))
    yield Finding(
        message=f"Convolutions in fp32 take {took}, and "
        + ("`torch.backends.mkldnn.enabled` is off." if off else "run without oneDNN, as if it were disabled."),
        saving=saving,
        where=set_at(settings, "onednn_enabled") + ((first,) if first else ()),
        facts={"convolutions_us": spent_us, "onednn_enabled": enabled},
        fix=replace(_FIX, title="Leave oneDNN enabled" if off else _FIX.title),
        claims=_CLAIMS,
        at_most="high" if saving and saving.low_us > 0 else "low",
    )


_FIX = Fix("Try convolutions with oneDNN", "numerics", "torch.backends.mkldnn.enabled = False", "# enabled by default")


def _saving(price: Price, calibration: Calibration, rows: Ints) -> Saving | None:
    """What the step takes less at the rate of convolutions with oneDNN; None where that was not measured."""
    events, slow, fast = price.ops.events, calibration.convolution_gflops, calibration.fp32_gflops
    known = [(row, done) for row in rows.tolist() if (done := operations_of(events, row)) is not None]
    if not known or slow is None or fast is None or not slow.measured:
        return None
    each = np.array([done for _, done in known])
    large = np.array([done >= _LEAST_FLOPS and _channels(events, row) >= _CHANNELS for row, done in known], bool)
    chosen = np.array([row for row, _ in known], np.int64)
    least = chosen[large]
    steps = price.ops.steps.count
    instead_us = (float(each.sum()) / steps / fast.high / 1e3, float(each[large].sum()) / steps / slow.low / 1e3)
    how = (
        "low: convolutions with 32 channels or more, at the rate of one of them and its gradients with oneDNN; "
        "high: all, at the rate of large matrix products; both as measured on this machine"
    )
    return price.divided([edits.remove(least)], [edits.remove(chosen)], _CLAIMS, how, instead_us=instead_us)


def _channels(events: Events, row: int) -> int:
    """Channels of a convolution's input or output, whichever has fewer."""
    return min(sizes(dims_of(events, row), 1 if events.text(row) == _CONVOLUTIONS[0] else 2)[:2], default=0)


def _in_fp32(recorded: StepOps) -> Ints:
    """Convolutions in fp32 of the profiled steps, gradients among them."""
    events = recorded.events
    rows = np.flatnonzero(
        events.exactly(*_CONVOLUTIONS) & (recorded.steps.step_of(events.start_ns) >= 0) & (events.dtypes >= 0)
    )
    return np.array([row for row in rows.tolist() if dtypes_of(events, row)[:1] == ["float"]], np.int64)


def _without(recorded: StepOps, rows: Ints) -> bool:
    """Whether most of the forward passes ran as ops of torch's own, where torch would take oneDNN if it could.

    For one image, and for kernels of one point on a single thread, it takes its own (`use_mkldnn` in
    ATen/native/Convolution.cpp).
    """
    events = recorded.events
    forward = rows[events.exactly(_CONVOLUTIONS[0])[rows]]
    inner = np.flatnonzero(events.exactly(*_WITHOUT) & (recorded.steps.step_of(events.start_ns) >= 0))
    likely = [row for row in inner.tolist() if _is_onednns(events, row)]
    outermost = np.setdiff1d(np.array(likely, np.int64), _nested(recorded, likely))
    return len(forward) > 0 and recorded.us(outermost) >= _MOSTLY * recorded.us(forward)


def _nested(recorded: StepOps, rows: list[int]) -> Ints:
    """Those of these rows that lie in another of them."""
    above = recorded.nesting.parent[rows]
    return np.array([row for row, parent in zip(rows, above.tolist(), strict=True) if parent in set(rows)], np.int64)


def _is_onednns(events: Events, row: int) -> bool:
    dims = dims_of(events, row)
    image, kernel = sizes(dims, 0), sizes(dims, 1)
    several = len(image) == len(kernel) >= 3 and image[0] > 1
    return several and dtypes_of(events, row)[:1] == ["float"] and max(kernel[2:], default=1) > 1


_LANE = """
    step [1                ][2                ]
    cpu  [C     ][B        ][C     ][B        ]
    cpu   [W    ]            [W    ]
    """
# 2 · 8 · 64² · 64 · 32 · 9 operations: 1.2 · 10^9, and twice as many for its gradients.
_DIMS = [[8, 32, 64, 64], [64, 32, 3, 3], [], [], [], [], [], [], []]
_GIVEN = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
_KINDS = ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"]
_RATES = {
    **dict.fromkeys(("core_convolution_gflops", "core_fp32_gflops"), (100.0, 100.0, 100.0, 60)),
    "convolution_gflops": (200.0, 200.0, 200.0, 60),
    "fp32_gflops": (800.0, 800.0, 800.0, 60),
}


def _facts(enabled: bool | None) -> dict[str, object]:
    return {"settings": {"onednn_enabled": enabled}, "calibration": {"threads": 2, "quantities": _RATES}}


def _forward(*, batch: int = 8) -> Ev:
    dims = [[batch, *_DIMS[0][1:]], *_DIMS[1:]]
    return Ev(_CONVOLUTIONS[0], dims=dims, dtypes=_KINDS, args={"Concrete Inputs": _GIVEN})


def _backward() -> Ev:
    dims = [[8, 64, 64, 64], *_DIMS[:2], *[[] for _ in range(8)]]
    given = ["", "", "", "[64]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, True]"]
    kinds = ["float", "float", "float", *["ScalarList"] * 8]
    return Ev(_CONVOLUTIONS[1], dims=dims, dtypes=kinds, args={"Concrete Inputs": given})


def _inner(batch: int = 8) -> Ev:
    return Ev(_WITHOUT[0], dims=[[batch, *_DIMS[0][1:]], _DIMS[1]], dtypes=["float", "float"])


EXAMPLES = [
    Example(
        "oneDNN is turned off",
        draw(_LANE, us=5000, C=_forward(), B=_backward(), W=_inner()),
        facts=_facts(False),
        # Of 95 ms convolutions take 3.6 · 10^9 operations: 18 ms at 200 GFLOP/s, 4.5 ms at 800.
        saves_us=(76_000, 92_000),
        says=("`torch.backends.mkldnn.enabled` is off",),
    ),
    Example(
        "it ran without oneDNN, and the setting was not recorded",
        draw(_LANE, us=5000, C=_forward(), B=_backward(), W=_inner()),
        saves_us="unknown",
        says=("as if it were disabled",),
    ),
    Example(
        "a single image, for which torch chooses its own kernels",
        draw(_LANE, us=5000, C=_forward(batch=1), B=_backward(), W=_inner(1)),
        near_miss=True,
    ),
    Example(
        "oneDNN is on",
        draw(_LANE, us=5000, C=_forward(), B=_backward(), W=Ev("aten::mkldnn_convolution")),
        facts=_facts(True),
    ),
]
