"""Kernels run far below what the device allows for their shapes.

## What it looks at
Matrix multiplications, convolutions, long attention, normalization, softmax, elementwise ops, copies within the device
and compiled Triton kernels whose shapes and dtypes are recorded: the arithmetic and the bytes that they need at least,
against the device's peak rates. Only what stays below a quarter of them counts, and only calls that would need 5 µs at
the peak.

## Why it costs time
A kernel that moves no more bytes and does no more arithmetic than necessary is limited by one of the two peaks. One far
from both is limited by something else: loads of single numbers from strided memory, convolutions with one channel per
group, units that the number format does not use.

## How to fix it
Depending on the kernels: convolutions with one channel per group run faster in channels-last and 16-bit formats; those
with kernels above 5 x 5, where that is so already, by an implicit GEMM that an extension of CUTLASS has;
strided elementwise kernels after `x.contiguous()` once, or in a compiled model; other kernels in another format,
layout or library. `torch.compile` generates its own kernels for everything except matrix multiplications and
convolutions; with `mode="max-autotune"` it measures kernels of its own for these, too.

## When to leave it
Kernels that share the device with others on another stream, and kernels of a library that has no better one for these
shapes. Libraries run a convolution in groups of several channels as one without, for which no layout and no compiler is
known to help: it is told only where it takes far longer than that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    SYNC,
    Device,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    KernelWork,
    Lines,
    Price,
    RankRecord,
    Treatment,
    WorkGroup,
    constant,
    draw,
)

from ..shared._roofline import (
    FAR,
    WELL_MADE,
    idle_kernels,
    odd_size,
    saved_us,
    scaled,
    shape_words,
    spent_us,
    strides_of,
)
from ..shared._words import each_step, percent, plural
from ._channels_last import slower, with_the_variable
from ._unfolded import unfolded

# Kernels below this are mostly start and end.
_LEAST_US = constant("device.short_kernel_us").value
# Attention of fewer tokens has too little work for the whole device: published kernels reach 0.4 to 0.7 from 2,048 on.
_LONG = 2048


def check(
    price: Price,
    device: Device,
    work: KernelWork,
    lines: Lines | None,
    record: RankRecord | None,
    *,
    min_share: float = 0.03,  # a replacement kernel has to be tried: not worth it below 3 % of the step
) -> Iterator[Finding]:
    steps, scale = price.ops.steps, price.scale
    found = unfolded(price.ops)  # `unused-cudnn` has these
    slow = [
        group
        for group in work.groups
        if _is_slow(group)
        and not len(idle_kernels(price.ops.events, group, device))
        and not (found and np.isin(group.kernels, found.kernels).any())
    ]
    factors = [(group.kernels, group.reached / WELL_MADE) for group in slow]
    taken_us, most_us = spent_us(price, slow), saved_us(price, factors)
    if most_us < min_share * steps.step_us:
        return
    how = (
        f"high: as near the device's peak as efficient kernels come ({percent(WELL_MADE)}); "
        "low: nothing, if no better kernel exists for these shapes"
    )
    saving = price.saving([], scaled(factors), ("compute",), how, model_us=(0.0, most_us))
    if saving.high_us < min_share * scale.step_us:
        return
    worst = max(slow, key=lambda group: group.us * (1 - group.reached / WELL_MADE))
    limit = "arithmetic" if worst.by_arithmetic else "memory"
    where = lines.where_op(int(worst.rows[0])) if lines else None
    others = f" and {plural(len(slow) - 1, 'other call')}" if len(slow) > 1 else ""
    yield Finding(
        message=(
            f"{shape_words(worst)}{others} {'take' if others else 'takes'} {each_step(price, taken_us)} "
            f"and reach{'' if others else 'es'} {percent(worst.reached)} of what the "
            f"device's {limit} allows{_because(worst)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={
            "kernels_us": taken_us,
            "least_us": sum(group.least_us * group.calls for group in slow),
            "reached": worst.reached,
            "kernel": worst.kernel,
            "device": work.hardware.model,
        },
        fix=_fix(slow, device, record),
        claims=("compute",),
        at_most="medium",  # whether a better kernel exists only a measurement tells
    )


def _is_slow(group: WorkGroup) -> bool:
    if group.least_us < _LEAST_US or group.reached >= FAR or odd_size(group) or _is_as_dense(group):
        return False
    return group.kind != "attention" or _tokens(group) >= _LONG


def _tokens(group: WorkGroup) -> int:
    """The smaller of the two middle sizes of q is the number of heads, the larger that of tokens."""
    shapes = [one for one in json.loads(group.dims) if isinstance(one, list) and len(one) == 4]
    return max(shapes[0][1:3], default=0) if shapes else 0


def _is_depthwise(group: WorkGroup) -> bool:
    """A convolution whose filters see one channel each."""
    _, weight = _convolved(group)
    return len(weight) > 2 and weight[1] == 1 and weight[0] > 1


def _is_as_dense(group: WorkGroup) -> bool:
    """A convolution in groups of several channels that takes no longer than one without groups may take."""
    given, weight = _convolved(group)
    groups = given[1] / weight[1] if len(weight) > 2 and weight[1] > 1 else 1.0
    return group.reached * groups >= FAR


def _convolved(group: WorkGroup) -> tuple[list[int], list[int]]:
    """Sizes of a convolution's input and weight; none where it is something else."""
    if group.kind != "convolution":
        return [], []
    shapes = [one for one in json.loads(group.dims) if isinstance(one, list) and len(one) > 2]
    found = shapes[1:3] if "backward" in group.op else shapes[:2]
    return (found[0], found[1]) if len(found) > 1 else ([], [])


def _is_strided(group: WorkGroup) -> bool:
    """PyTorch's elementwise kernel for inputs that do not lie in one piece."""
    return "::elementwise_kernel<" in group.kernel


def _because(group: WorkGroup) -> str:
    if _is_depthwise(group):
        return ": it has one channel per group"
    if _is_strided(group):
        return ": its inputs are not contiguous"
    if group.kind == "product" and group.precision in ("fp16", "bf16") and "sgemm" in group.kernel:
        return ": its kernel uses no tensor cores"
    return ""


def _channels_last(variable: str) -> Fix:
    return Fix(
        f"Run these convolutions in channels-last{variable}, and measure the step before and after",
        "numerics",
        "model = model.to(device)",
        "model = model.to(device, memory_format=torch.channels_last)\n"
        "images = images.to(device, memory_format=torch.channels_last)",
        None if variable else Treatment("channels_last"),
    )


# Above 5 the authors of RepLKNet take it (`get_conv2d` in their code); kernels have odd sizes.
_LARGE = 7
_BY_GEMM = Fix(
    "Compute depthwise convolutions of large kernels by an implicit GEMM, or use smaller kernels",
    "numerics",
    "nn.Conv2d(dim, dim, 13, padding=6, groups=dim)",
    "# built from github.com/DingXiaoH/RepLKNet-pytorch, an example of CUTLASS\n"
    "from depthwise_conv2d_implicit_gemm import DepthWiseConv2dImplicitGEMM\n\n"
    "DepthWiseConv2dImplicitGEMM(dim, 13, bias=True)",
)


def _is_last(group: WorkGroup) -> bool:
    """Whether the strides of its images say that channels come last."""
    strides = [one for one in strides_of(group.strides) if len(one) == 4]
    return bool(strides) and strides[0][1] == 1


def _fix(slow: Sequence[WorkGroup], device: Device, record: RankRecord | None) -> Fix:
    depthwise = all(_is_depthwise(group) for group in slow)
    if depthwise and all(map(_is_last, slow)) and any(_convolved(group)[1][-1] >= _LARGE for group in slow):
        return _BY_GEMM
    if depthwise and not slower(device):
        variable = with_the_variable(device, record)
        if all(group.precision in ("fp16", "bf16") for group in slow):
            return _channels_last(variable)
        return Fix(
            f"Run these convolutions in channels-last{variable} and bf16, and measure the step before and after",
            "numerics",
            "model = model.to(device)\nout = model(images)",
            "model = model.to(device, memory_format=torch.channels_last)\n"
            "images = images.to(device, memory_format=torch.channels_last)\n"
            'with torch.autocast("cuda", dtype=torch.bfloat16):\n    out = model(images)',
        )
    if all(_is_strided(group) for group in slow):
        return Fix(
            "Call `.contiguous()` once, before the tensor is used several times",
            "exact",
            "x = x.transpose(1, 2)",
            "x = x.transpose(1, 2).contiguous()",
        )
    if all(group.kind in ("product", "convolution") for group in slow):
        return Fix(
            'Try `torch.compile(mode="max-autotune")`, which measures other kernels for each shape',
            "numerics",
            "model = model.to(device)",
            'model = torch.compile(model.to(device), mode="max-autotune")',
            Treatment("compile", {"mode": "max-autotune"}),
        )
    return Fix(
        "Try `torch.compile`, which chooses other kernels, and measure the step before and after",
        "numerics",
        "model = model.to(device)",
        "model = torch.compile(model.to(device))",
        Treatment("compile"),
    )


_STEPS = """
    step   [1                  ][2                  ]
    cpu    [A][S              ] [A][S              ]
    gpu 7   [K               ]   [K               ]
    """
_HALF = "c10::BFloat16"
_GIVEN = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]"]


def _depthwise(samples: int, groups: int) -> Ev:
    dims: list[list[int]] = [[samples, 256, 56, 56], [256, 256 // groups, 3, 3], [], [], [], [], [], [], []]
    kinds = [_HALF, _HALF, "", *["ScalarList"] * 6]
    return Ev("aten::convolution", dims=dims, dtypes=kinds, args={"Concrete Inputs": [*_GIVEN, str(groups)]})


def _large(last: bool) -> Ev:
    dims: list[list[int]] = [[32, 256, 56, 56], [256, 1, 13, 13], [], [], [], [], [], [], []]
    strides = [[802816, 1, 14336, 256] if last else [802816, 3136, 56, 1], [169, 169, 13, 1]]
    given = {"Concrete Inputs": [*_GIVEN, "256"], "Input Strides": strides}
    return Ev("aten::convolution", dims=dims, dtypes=[_HALF, _HALF, "", *["ScalarList"] * 6], args=given)


def _drawn(op: Ev, kernel: str, us: float = 100) -> Drawing:
    return draw(_STEPS, us=us, device="A100", A=op, S=SYNC, K=Ev(kernel, "kernel", args={"grid": [4096, 1, 1]}))


_SLOW = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel_generic<c10::BFloat16, int>"
_STRIDED = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::AddFunctor>>"
_ADD = Ev("aten::add", dims=[[1 << 24], [1 << 24]], dtypes=["float", "float"])

EXAMPLES = [
    Example(
        "a convolution with one channel per group",
        # 2 x 51 MB: 51 µs at the A100's memory rate, drawn as 1.8 ms.
        _drawn(_depthwise(32, 256), _SLOW),
        saves_us=(0, 1800),
        says=("one channel per group", "memory"),
    ),
    Example(
        "a large kernel for each channel, whose images are in channels-last already",
        _drawn(_large(last=True), _SLOW, us=1000),
        saves_us=(0, 18_000),
        fixes=("DepthWiseConv2dImplicitGEMM",),
    ),
    Example(
        "the same in the other layout",
        _drawn(_large(last=False), _SLOW, us=1000),
        saves_us=(0, 18_000),
        fixes=("channels_last",),
    ),
    Example("sixteen channels per group", _drawn(_depthwise(32, 16), _SLOW), near_miss=True),
    Example(
        "the same numbers in one group: the arithmetic is 256 times as much, and takes the time",
        _drawn(_depthwise(128, 1), "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"),
        near_miss=True,
    ),
    Example(
        "the same behind a transpose of its images, which is the rule layout-transposes'",
        draw(
            """
            step   [1                              ][2                              ]
            cpu    [A ][S                         ] [A ][S                         ]
            cpu    [C ]                             [C ]
            gpu 7    [T                 ][K   ]       [T                 ][K   ]
            """,
            us=300,
            device="A100",
            A=replace(_depthwise(128, 1), launches=""),
            C=Ev("aten::cudnn_convolution", launches="kernel", times=2),
            S=SYNC,
            T=Ev("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", "kernel"),
            K=Ev("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "kernel"),
        ),
        near_miss=True,
    ),
    Example(
        "a sum of strided tensors",
        # 201 MB: 99 µs at the A100's memory rate.
        _drawn(_ADD, _STRIDED),
        saves_us=(0, 1800),
        says=("not contiguous",),
    ),
    Example("a sum that takes 1.8 times as long as the memory needs", _drawn(_ADD, _STRIDED, us=10), near_miss=True),
    Example(
        "a small sum: 0.1 µs of memory traffic, the rest is the start of a kernel",
        _drawn(Ev("aten::add", dims=[[1 << 14], [1 << 14]], dtypes=["float", "float"]), _STRIDED),
        near_miss=True,
    ),
    Example(
        "a compiled kernel near the memory's rate",
        _drawn(
            Ev("triton_poi_fused_add_relu_0", dims=[[1 << 24], [1 << 24], [1 << 24]], dtypes=["float"] * 3),
            "triton_poi_fused_add_relu_0",
            us=10,
        ),
    ),
]
