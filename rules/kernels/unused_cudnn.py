"""Convolutions on a GPU run without cuDNN.

## What it looks at
Convolutions on an NVIDIA GPU that PyTorch computes with its own kernels: `aten::_slow_conv2d_forward` and other ops of
that kind, and `im2col`, `col2im`, `vol2col` and `vol2im` kernels inside a convolution or its gradient. What cuDNN may
save is derived from the recorded shapes and the device's peak rates.

## Why it costs time
Without cuDNN, PyTorch copies the pixels under each place of the kernel into a matrix (9 times the image for 3 x 3),
and multiplies it by the weights: sample by sample, with at least one launch each. cuDNN multiplies the whole batch at
once and reads the pixels where they are.

## How to fix it
Remove `torch.backends.cudnn.enabled = False`, or the `torch.backends.cudnn.flags(enabled=False)` around the model:
often a workaround for one op that failed, which can keep `flags(enabled=False)` for itself. Install a PyTorch that was
built with cuDNN (`torch.backends.cudnn.is_available()`). If cuDNN takes only some of the convolutions, it refuses the
others: in 16 bits in three dimensions under PyTorch 2.9 with a cuDNN before 9.15; dilated ones on channels-first images
under `torch.backends.cudnn.deterministic = True` in many versions; in bfloat16 before cuDNN 8; of 2³¹ and more numbers.

## When to leave it
Where results must match those of PyTorch's kernels exactly, and where cuDNN fails on these shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    SYNC,
    Device,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    KernelWork,
    Lines,
    Price,
    Source,
    draw,
    edits,
)

from ..shared._roofline import WELL_MADE, scaled
from ..shared._words import each_step, plural
from ._unfolded import OWN_3D, OWN_DILATED, Unfolded, unfolded

_HOW = (
    "low: the copies into matrices and back, which cuDNN's implicit products do without; high: kernels as near the "
    "device's peak as efficient ones come, where the recorded shapes tell their work, else all of their time"
)


def check(
    price: Price,
    device: Device,
    work: KernelWork | None,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # of the step: a switch, but cuDNN's kernels have to be tried
) -> Iterator[Finding]:
    found = unfolded(price.ops) if device.kind == "cuda" else None
    if found is None:
        return
    taken_us, folds = price.spent_us(found.kernels), found.kernels[found.folds]
    if taken_us < min_share * price.ops.steps.step_us:
        return
    refused = bool(price.ops.events.named("aten::cudnn_convolution").any())
    kept = _kept(found, work)
    most_us = sum(price.spent_us(kernels) * (1 - share) for kernels, share in kept)
    # What cuDNN refuses it may go on to refuse.
    least = [] if refused else [edits.remove(folds)]
    model_us = (0.0 if refused else price.spent_us(folds), most_us)
    saving = price.saving(least, scaled(kept), ("compute",), _HOW, model_us=model_us)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = _where(lines, found, price.ops.events)
    yield Finding(
        message=(
            "Samples are unfolded and multiplied one by one in "
            f"{plural(round(len(found.calls) / price.ops.steps.count, 1), 'convolution')} a step (gradients included) "
            f"{'that cuDNN refuses' if refused else 'without cuDNN'}, which takes {each_step(price, taken_us)}."
        ),
        saving=saving,
        where=where,
        facts={
            "convolutions_us": taken_us,
            "unfolding_us": price.spent_us(folds),
            "kernels": len(found.kernels) / price.ops.steps.count,
            "ops": sorted(found.ops),
        },
        fix=_fix(found, refused),
        claims=("compute",),
        at_most="medium" if refused else "high",
    )


def _kept(found: Unfolded, work: KernelWork | None) -> list[tuple[Ints, float]]:
    """These kernels, and the share of their time that efficient ones need at least."""
    kept: list[tuple[Ints, float]] = []
    known = np.zeros(len(found.kernels), bool)
    for group in work.groups if work else ():
        mine = np.isin(found.kernels, group.kernels)
        if mine.any() and group.kind == "convolution":
            kept.append((found.kernels[mine], min(group.reached / WELL_MADE, 1.0)))
            known |= mine
    return [*kept, (found.kernels[~known], 0.0)]


def _where(lines: Lines | None, found: Unfolded, events: Events) -> tuple[Source, ...]:
    """The line of the convolution that takes longest."""
    if lines is None:
        return ()
    calls, member = np.unique(found.owner, return_inverse=True)
    took = np.bincount(member, weights=events.dur_ns[found.kernels])
    where = lines.where_op(int(calls[int(took.argmax())]))
    return (where,) if where else ()


def _fix(found: Unfolded, refused: bool) -> Fix:
    if found.ops == {OWN_3D}:
        # https://github.com/pytorch/pytorch/issues/166643: 2.9 leaves 16 bits in three dimensions to its own kernels.
        unless = "" if refused else ", unless `torch.backends.cudnn.enabled` is off"
        return Fix(f"Update PyTorch to 2.10 or later, or cuDNN to 9.15 or later{unless}", "numerics")
    if refused and found.ops == {OWN_DILATED}:
        # `use_cudnn` in aten/src/ATen/native/Convolution.cpp: until this condition went, in channels-first alone.
        return Fix(
            "Run dilated convolutions in channels-last, or without `cudnn.deterministic`",
            "numerics",
            "model = model.to(device)",
            "model = model.to(device, memory_format=torch.channels_last)\n"
            "images = images.to(device, memory_format=torch.channels_last)",
        )
    if refused:
        return Fix(
            "Find out why cuDNN refuses these convolutions, and try other shapes, formats or versions", "numerics"
        )
    # https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.enabled
    return Fix(
        "Leave `torch.backends.cudnn.enabled` on",
        "numerics",
        "torch.backends.cudnn.enabled = False",
        "# enabled by default",
    )


_STEPS = """
    step   [1                                     ][2                                     ]
    cpu    [A][B][C][S                           ] [A][B][C][S                           ]
    cpu    [F][G]                                  [F][G]
    gpu 7   [i  ][p  ][i  ][p  ][p  ][i  ][p ][j ]  [i  ][p  ][i  ][p  ][p  ][i  ][p ][j ]
    """
_IMAGES, _WEIGHT, _KIND = [2, 512, 112, 112], [512, 512, 3, 3], "c10::Half"
_GIVEN = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
_PRODUCT = Ev("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "kernel")

# Dilated ones have no op of their own in it.
_GRADIENTS = Ev("aten::_slow_conv2d_backward", times=4)
_LAUNCHES = Ev("cudaLaunchKernel", "cuda_runtime", launches="kernel", times=4)


def _copies(name: str) -> Ev:
    return Ev(f"void at::native::{name}_kernel<c10::Half>(long, c10::Half const*, long, long, long)", "kernel")


def _op(name: str, *dims: list[int], given: list[str]) -> Ev:
    more = len(given) - len(dims)
    kinds = [*[_KIND] * len(dims), *["ScalarList"] * more]
    return Ev(name, launches="", dims=[*dims, *[[]] * more], dtypes=kinds, args={"Concrete Inputs": given})


def _drawn(
    inner: str = "aten::_slow_conv2d_forward",
    copies: tuple[str, str] = ("im2col", "col2im"),
    other: str = "aten::empty",
    gradients: Ev = _GRADIENTS,
) -> Drawing:
    """A convolution of two samples and its gradient, with copies and products; other: another convolution's op.

    1.2 · 10¹¹ operations and twice as many, at 312 · 10¹² a second: 1.1 ms of 4 ms.
    """
    mask = ["", "", "", "[0]", *_GIVEN[3:], "[True, True, False]"]
    return draw(
        _STEPS,
        us=100,
        device="A100",
        A=_op("aten::convolution", _IMAGES, _WEIGHT, given=_GIVEN),
        B=_op("aten::convolution_backward", _IMAGES, _IMAGES, _WEIGHT, given=mask),
        F=Ev(inner, times=4),
        G=gradients,
        C=Ev(other, launches=""),
        S=SYNC,
        i=_copies(copies[0]),
        j=_copies(copies[1]),
        p=_PRODUCT,
    )


EXAMPLES = [
    Example(
        "cuDNN is turned off",
        _drawn(),
        # Copies of 2 ms; 4 ms against 1.1 ms at three quarters of the peak.
        saves_us=(1800, 2700),
        says=("2 convolutions a step (gradients included) without cuDNN",),
        fixes=("Leave `torch.backends.cudnn.enabled` on",),
    ),
    Example(
        "cuDNN refuses dilated convolutions and takes another one",
        _drawn(OWN_DILATED, other="aten::cudnn_convolution", gradients=_LAUNCHES),
        saves_us=(0, 3400),
        says=("that cuDNN refuses",),
        fixes=("Run dilated convolutions in channels-last",),
    ),
    Example(
        "it refuses 16 bits in three dimensions",
        _drawn(OWN_3D, ("vol2col", "vol2im"), other="aten::cudnn_convolution", gradients=_LAUNCHES),
        saves_us=(0, 3400),
        fixes=("Update PyTorch to 2.10",),
    ),
    Example(
        "the script unfolds images itself",
        draw(
            _STEPS,
            us=100,
            device="A100",
            A=Ev("aten::unfold", launches=""),
            B=Ev("aten::fold", launches=""),
            C="aten::empty",
            F=Ev("aten::im2col", times=4),
            G=Ev("aten::col2im", times=4),
            S=SYNC,
            i=_copies("im2col"),
            j=_copies("col2im"),
            p=_PRODUCT,
        ),
        near_miss=True,
    ),
    Example("by cuDNN", _drawn("aten::cudnn_convolution", ("implicit_gemm", "wgrad"), gradients=_LAUNCHES)),
]
