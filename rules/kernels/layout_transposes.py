"""Convolutions transpose their inputs and outputs between memory formats.

## What it looks at
Kernels that convert images from one memory format to the other (`nchwToNhwc`, `nhwcToNchw`, `batched_transpose`),
which the convolution libraries launch on their own where a convolution needs the other format.

## Why it costs time
Tensor cores multiply channels that are contiguous in memory (NHWC); PyTorch's default format is NCHW. The library then
transposes before and after the convolution, and each transpose reads and writes the whole tensor.

## How to fix it
`model.to(memory_format=torch.channels_last)`, and the same for the inputs; with `Conv3d`, whose tensors have five
dimensions, `torch.channels_last_3d`. On AMD devices PyTorch passes that format
to the library only with `PYTORCH_MIOPEN_SUGGEST_NHWC=1` in the environment (`miopen_conv_suggest_memory_format` in
ATen/native/ConvUtils.h); some builds for ROCm 7 do so without it, where setting it changes nothing. Ops that support
only one format convert back; the kernels of this kind that remain show where. `GroupNorm` and `InstanceNorm` return
channels-first on a GPU, whatever they are given, in releases of PyTorch before pytorch/pytorch#191945 (August 2026):
around each of them two copies remain in each direction, which are left out of the saving.

## When to leave it
Networks in fp32 without tensor cores, whose kernels are written for NCHW, and networks in which most ops are not
convolutions. On Radeon cards convolutions are far slower in NHWC (pytorch/pytorch#170947): nothing is reported there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    FORWARD,
    GEMM,
    LAYOUT_TRANSPOSES,
    SYNC,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Price,
    RankRecord,
    StepOps,
    Treatment,
    draw,
    duration,
    edits,
)

from ..shared._words import percent, plural
from ._channels_last import of_volumes, slower, with_the_variable

CONFIRMED = "real traces: ResNet in bf16 on an MI300X, 314 transposes a step; in fp32 on V100s, next to none"

# Norms that return channels-first on a device, whatever they are given (ATen/native/group_norm.cpp), and the copies
# around one: of its input and its output, and of the gradients of both.
_ONE_FORMAT = ("aten::native_group_norm", "aten::instance_norm")
_AROUND_A_NORM = 4


def check(
    recorded: StepOps,
    price: Price,
    busy: GpuBusy,
    device: Device,
    record: RankRecord | None,
    *,
    min_share: float = 0.02,  # two lines to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    steps, scale = recorded.steps, price.scale
    if slower(device):
        return
    variable = with_the_variable(device, record)
    transposes = recorded.trace.device_work & recorded.events.named(*LAYOUT_TRANSPOSES)
    rows = np.flatnonzero(transposes & recorded.links.inside)
    spent_us = recorded.us(rows)
    if spent_us < min_share * steps.step_us:
        return
    norms = _norms(recorded)
    stay = min(_AROUND_A_NORM * norms * steps.count / len(rows), 1.0)
    how = "low: other ops convert the format back; high: the step without the transposes"
    how += f", but for {_AROUND_A_NORM} around each norm that returns channels-first" if norms else ""
    saving = price.saving([], [edits.scale(rows, stay) if stay else edits.remove(rows)], ("compute",), how)
    if saving.high_us < min_share * scale.step_us:
        return
    of_work = spent_us / busy.us
    volumes = of_volumes(recorded, rows)
    what, form = ("inputs", "channels_last_3d") if volumes else ("images", "channels_last")
    kept = f"; {_AROUND_A_NORM} remain around each of {plural(norms, 'norm')} in channels-first" if norms else ""
    yield Finding(
        message=(
            f"Each step runs {plural(len(rows) / steps.count, 'kernel')} only to convert between channels-first and "
            f"channels-last: {duration(scale.scaled(spent_us))} of it, {percent(of_work)} of the device's work{kept}."
        ),
        saving=saving,
        facts={"transposes": len(rows) / steps.count, "transpose_us": spent_us},
        fix=Fix(
            f"Convert model and {what} to channels-last{' in 3D' * volumes}{variable}",
            "numerics",
            f"model = model.to(device)\n{what} = {what}.to(device)",
            f"model = model.to(device, memory_format=torch.{form})\n"
            f"{what} = {what}.to(device, memory_format=torch.{form})",
            None if variable or volumes else Treatment("channels_last"),
        ),
        claims=("compute",),
        at_most="medium",  # how the network runs in the other layout only a measurement tells
    )


def _norms(recorded: StepOps) -> float:
    """Norms of a step that return channels-first."""
    events, steps = recorded.events, recorded.steps
    rows = np.flatnonzero(events.exactly(*_ONE_FORMAT))
    return np.count_nonzero(steps.step_of(events.start_ns[rows]) >= 0) / steps.count


_TO = Ev("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", "kernel")
_FROM = Ev("void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>", "kernel")
_CONV = Ev("sm80_xmma_fprop_implicit_gemm_f16f16", "kernel")
_OPS = Ev("aten::cudnn_convolution", times=3)
_MIOPEN = Ev("batched_transpose_32x32_half", "kernel")
_ROUND = """
    step   [1                 ][2                 ]
    cpu    [C  ][W           ] [C  ][W           ]
    gpu 7    [T ][V    ][U ]    [T ][V    ][U ]
    """

EXAMPLES = [
    Example(
        "a convolution in fp16 on channels-first pictures",
        draw(_ROUND, us=100, C=_OPS, W=SYNC, T=_TO, V=_CONV, U=_FROM),
        saves_us=(0, 850),
        says=("runs 2 kernels only",),
    ),
    Example(
        "the same with a norm that returns channels-first",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [C  ][G][W        ] [C  ][G][W        ]
            gpu 7    [T ][V    ][U ]    [T ][V    ][U ]
            """,
            us=100,
            C=replace(_OPS, times=10),
            G=Ev("aten::native_group_norm"),
            W=SYNC,
            T=replace(_TO, times=4),
            V=_CONV,
            U=replace(_FROM, times=4),
        ),
        saves_us=(0, 500),
        says=("4 remain around each of 1 norm in channels-first",),
    ),
    Example(
        "the same on an MI300X, where the environment lets PyTorch pass the format already",
        draw(_ROUND, us=100, device="MI300X", C=_OPS, W=SYNC, T=_MIOPEN, V=_CONV, U=_MIOPEN),
        facts={"environment": {"PYTORCH_MIOPEN_SUGGEST_NHWC": "1"}},
        saves_us=(0, 850),
        fixes=("Convert model and images to channels-last\n",),
    ),
    Example(
        "the same on a Radeon card, whose convolutions are slower in NHWC",
        draw(_ROUND, us=100, device="RX7900XTX", C=_OPS, W=SYNC, T=_MIOPEN, V=_CONV, U=_MIOPEN),
        near_miss=True,
    ),
    Example(
        "the same around a convolution of volumes, whose tensors have five dimensions",
        draw(_ROUND, us=100, C=replace(_OPS, name="aten::conv3d"), W=SYNC, T=_TO, V=_CONV, U=_FROM),
        saves_us=(0, 850),
        fixes=("inputs = inputs.to(device, memory_format=torch.channels_last_3d)",),
    ),
    Example(
        "a transpose of small account",
        draw(
            """
            step   [1                                        ][2                                        ]
            cpu    [C  ][F  ]                                  [C  ][F  ]
            gpu 7   [T][V                               ][V]    [T][V                               ][V]
            """,
            us=10,
            C=_OPS,
            T=Ev(_TO.name, "kernel", fill=0.2),
            V=_CONV,
        ),
        near_miss=True,
    ),
    Example(
        "a matrix that is transposed for its product",
        draw(
            "step [1           ][2           ]\ncpu  [C ][F  ]     [C ][F  ]\ngpu 7  [T ][V   ]    [T ][V   ]",
            us=100,
            C=FORWARD,
            T=Ev("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>", "kernel"),
            V=GEMM,
        ),
        near_miss=True,
    ),
    Example(
        "channels-last from the start",
        draw(
            "step [1           ][2           ]\ncpu  [C ][F  ]     [C ][F  ]\ngpu 7  [V ][V   ]    [V ][V   ]",
            us=100,
            C=FORWARD,
            V=_CONV,
        ),
    ),
]
