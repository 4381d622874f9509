"""Convolutions in TF32, as they run by default: 16 bits are multiplied faster, and are half as many bytes.

Products run in TF32 only where somebody asked for it (PyTorch, CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and
later) devices"): where a model has such, its format was chosen, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import Category, Finding, Ints, Lines, Matmuls, Price, Settings, edits, lookup

from ..shared._words import each_step
from ._between_products import following
from ._cpu_bf16 import where
from ._formats import PEAK_WORTH_IT, autocast_bf16, is_mixed

_MOVED = 0.5  # of the bytes of fp32
_NO_CHOICE = 0.1  # share of TF32 that products may have
# NVIDIA's published trainings on one A100, as a whole: FastPitch, Jasper, EfficientNet-B4 and -B0, ResNeXt-101.
_HOW = (
    "high: convolutions {:.2g} times as fast, as by the device's peaks, and what runs between them moves half of the "
    "bytes; low: nothing, as published trainings became 1.05 to 2.65 times as fast as a whole"
)


def convolutions_in_tf32(
    price: Price, matmuls: Matmuls, settings: Settings, lines: Lines | None, min_share: float
) -> Iterator[Finding]:
    """The finding, where that may save such a share of the step."""
    steps, device, rows = price.ops.steps, price.ops.device, matmuls.tf32_rows
    if not matmuls.on_device or is_mixed(matmuls) or settings.autocast or settings.matmul_precision_set:
        return
    hardware = lookup(device.name, device.capability)
    if hardware is None or not hardware.bf16 or not hardware.half_tflops or not hardware.tf32_tflops:
        return
    tf32_us, times = matmuls.by_precision["tf32"], hardware.half_tflops / hardware.tf32_tflops
    mostly = 2 * tf32_us > matmuls.us  # what is in fp32 has a finding of its own, which counts products in TF32 as well
    if not mostly or times < PEAK_WORTH_IT or not min_share * steps.step_us <= tf32_us <= steps.step_us:
        return
    if price.ops.us(np.setdiff1d(rows, _of_convolutions(price))) > _NO_CHOICE * tf32_us:
        return
    faster = [edits.scale(rows, 1 / times), edits.scale(following(price), _MOVED)]
    claims, how = price.claims("forward", "backward", "other_ops"), _HOW.format(times)
    saving = price.saving([], faster, claims, how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    yield Finding(
        message=(
            f"Convolutions run in TF32, their default, and take {each_step(price, tf32_us)}, although {device.name} "
            f"multiplies bf16 at {times:.2g} times that rate."
        ),
        saving=saving,
        where=where(price.ops.trace, steps, matmuls, lines),
        facts={"tf32_us": tf32_us, "device": device.name},
        fix=autocast_bf16("cuda"),
        claims=claims,
        at_most="medium",
    )


def _of_convolutions(price: Price) -> Ints:
    """The device work that convolutions and their gradients launched."""
    events = price.ops.events
    return price.ops.launched(np.flatnonzero(events.named("convolution") & events.of(Category.CPU_OP)))
