"""Deterministic algorithms are forced.

## What it looks at
`torch.use_deterministic_algorithms(True)` and `torch.backends.cudnn.deterministic`, as capture recorded them, and the
device's time in the ops that they affect: convolutions, and ops that add at indexed positions. In the trace of another
profiler that has shapes, each convolution tells whether it had to be deterministic, by either of both.

## Why it costs time
Convolutions may then not use their fastest algorithms, and sums over indices (`index_add_`, `scatter_add_`, gradients
of embeddings and of indexing) sort first instead of adding directly. `use_deterministic_algorithms` also fills each new
tensor with a value before it is written.

## How to fix it
Turn them off where results need not be bitwise reproducible; a fixed seed alone does not need
them. Where they are needed, `torch.utils.deterministic.fill_uninitialized_memory = False` avoids the filling.

## When to leave it
Debugging, publications and audits that need bitwise identical results. Its cost on this device can only be measured by
a run without it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    GEMM,
    Category,
    ConvolutionSwitches,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Missing,
    Scale,
    Settings,
    StepOps,
    Treatment,
    draw,
    duration,
)

from ..shared._places import set_at
from ..shared._words import percent

_CONVOLUTIONS = (
    "aten::cudnn_convolution",
    "aten::convolution_backward",
    "aten::convolution",
    "aten::miopen_convolution",
)
_INDEXED = (
    "aten::index_add_",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::scatter_add_",
    "aten::embedding_dense_backward",
    "aten::cumsum",
)


def check(
    recorded: StepOps,
    scale: Scale,
    busy: GpuBusy,
    device: Device,
    settings: Settings | None,
    switches: ConvolutionSwitches | None,
    *,
    min_share: float = 0.2,  # of the device's work: other algorithms save only a part of it
) -> Iterator[Finding]:
    if settings is None:
        if switches is None:
            raise Missing("whether deterministic algorithms were forced was not recorded")
        settings = Settings(cudnn_deterministic=switches.deterministic)
    if device.kind not in ("cuda", "rocm") or not (settings.deterministic or settings.cudnn_deterministic):
        return
    # The narrower switch concerns convolutions alone.
    names = (*_CONVOLUTIONS, *_INDEXED) if settings.deterministic else _CONVOLUTIONS
    events = recorded.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*names) & recorded.links.inside)
    if not len(rows) or not busy.busy_ns:
        return
    spent_us = recorded.device_us(rows)
    share = spent_us / busy.us
    if share < min_share:
        return
    switch = "use_deterministic_algorithms(True)" if settings.deterministic else "cudnn.deterministic = True"
    yield Finding(
        message=(
            f"`{switch}` is set, and {duration(scale.scaled(spent_us))} of each step ({percent(share)} of the device's "
            "work) is in ops whose fastest algorithms it rules out."
        ),
        # Which algorithms would run, and how fast, only the device tells.
        saving=None,
        where=set_at(settings, "deterministic" if settings.deterministic else "cudnn_deterministic"),
        facts={"concerned_us": spent_us, "deterministic": settings.deterministic},
        fix=Fix(
            "Turn it off if results need not be bitwise reproducible, and measure the step before and after",
            "numerics",
            "torch.use_deterministic_algorithms(True)" if settings.deterministic else "cudnn.deterministic = True",
            "# off by default",
            Treatment("calls", {"names": ["torch.use_deterministic_algorithms"]})
            if settings.deterministic
            else Treatment("cudnn", {"deterministic": False}),
        ),
        claims=("compute",),
        at_most="low",
    )


_STEPS = """
    step   [1                ][2                ]
    cpu    [C   ][F  ]         [C   ][F  ]
    gpu 7   [K    ][G  ]        [K    ][G  ]
    """
_CONVOLVED = Ev("aten::cudnn_convolution", dims=[[32, 64, 56, 56], [64, 64, 3, 3]])
_KERNEL = Ev("cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4", "kernel")

_GIVEN = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "False", "True", "True", "True"]


def _told(deterministic: str) -> Ev:
    """A convolution with its plain arguments, the tenth of which says that it has to be deterministic."""
    given = [*_GIVEN[:10], deterministic, *_GIVEN[11:]]
    return Ev("aten::_convolution", dims=[[32, 64, 56, 56], [64, 64, 3, 3]], args={"Concrete Inputs": given})


_OTHERS = """
    step   [1                ][2                ]
    cpu    [A     ][F  ]       [A     ][F  ]
    cpu    [C   ]              [C   ]
    gpu 7   [K    ][G  ]        [K    ][G  ]
    """

EXAMPLES = [
    Example(
        "a trace of another profiler, whose convolutions say that they had to be deterministic",
        draw(_OTHERS, us=1000, A=_told("True"), C=_CONVOLVED, K=_KERNEL, G=GEMM),
        saves_us="unknown",
        says=("cudnn.deterministic",),
    ),
    Example(
        "the same without that",
        draw(_OTHERS, us=1000, A=_told("False"), C=_CONVOLVED, K=_KERNEL, G=GEMM),
        near_miss=True,
    ),
    Example(
        "convolutions under cudnn.deterministic",
        draw(_STEPS, us=1000, C=_CONVOLVED, K=_KERNEL, G=GEMM),
        facts={"settings": {"cudnn_deterministic": True}},
        saves_us="unknown",
        says=("cudnn.deterministic",),
    ),
    Example(
        "sums over indices under use_deterministic_algorithms",
        draw(_STEPS, us=1000, C=Ev("aten::index_add_"), K=Ev("indexFuncLargeIndex", "kernel"), G=GEMM),
        facts={"settings": {"deterministic": True}},
        saves_us="unknown",
        says=("use_deterministic_algorithms",),
    ),
    Example(
        "sums over indices, and the switch concerns convolutions alone",
        draw(_STEPS, us=1000, C=Ev("aten::index_add_"), K=Ev("indexFuncLargeIndex", "kernel"), G=GEMM),
        facts={"settings": {"cudnn_deterministic": True}},
        near_miss=True,
    ),
    Example(
        "convolutions that may choose",
        draw(_STEPS, us=1000, C=_CONVOLVED, K=_KERNEL, G=GEMM),
        facts={"settings": {"deterministic": False, "cudnn_deterministic": False}},
    ),
]
