"""Products in TF32 without a graph beside a model in 16 bits: of a teacher or a VAE that autocast does not reach.

What is trained in TF32 there is so by choice, as filters between Fourier transforms.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import Finding, Fix, Ints, Lines, Matmuls, Price, edits, lookup

from ..shared._words import each_step
from ._between_products import in_fp32
from ._cpu_bf16 import where
from ._formats import PEAK_WORTH_IT, is_mixed

# Kernels that take what memory takes to move their numbers.
_MOVING = ("elementwise_kernel", "reduce_kernel", "norm", "Norm", "RowwiseMoments", "softmax", "SoftMax", "upsample")


def beside_half(price: Price, matmuls: Matmuls, lines: Lines | None, min_share: float) -> Iterator[Finding]:
    """The finding where they take that share of the step. A model all in TF32 is as fast as its owner asked for."""
    steps, device = price.ops.steps, price.ops.device
    if not matmuls.on_device or not is_mixed(matmuls) or matmuls.by_precision["tf32"] < min_share * steps.step_us:
        return
    rows = _without_graph(price, matmuls.tf32_rows)
    tf32_us = price.ops.us(rows)
    if not min_share * steps.step_us <= tf32_us <= steps.step_us:
        return
    hardware = lookup(device.name, device.capability)
    if hardware is None or not hardware.half_tflops or not hardware.tf32_tflops:
        return
    times = hardware.half_tflops / hardware.tf32_tflops
    name = max(("bf16", "fp16"), key=lambda one: matmuls.by_precision[one])
    if times < PEAK_WORTH_IT:
        return
    moving = _without_graph(price, in_fp32(price))
    moving = moving[price.ops.events.named(*_MOVING)[moving]]
    faster = [edits.scale(rows, 1 / times), edits.scale(moving, 0.5)]
    yield Finding(
        message=(
            f"Products and convolutions in TF32, without gradients, take {each_step(price, tf32_us)}, beside a model "
            f"in {name}, unless this part was left in fp32 on purpose, as a VAE whose numbers leave the range of fp16."
        ),
        saving=price.saving([], faster, price.claims("forward", "backward", "other_ops"), _HOW.format(times, name)),
        where=where(price.ops.trace, steps, matmuls, lines),
        facts={"tf32_us": tf32_us, "beside": name, "device": device.name},
        fix=_FIX,
        claims=price.claims("forward", "backward", "other_ops"),
        at_most="medium",
    )


def _without_graph(price: Price, kernels: Ints) -> Ints:
    """Those that no op with a node of the backward pass launched, and no such node."""
    launch = price.ops.links.launch[kernels]
    graph = price.ops.events.sequence >= 0
    return kernels[(launch >= 0) & (price.ops.nesting.ancestor_of(launch, graph) < 0)]


_HOW = (
    "high: these products {:.2g} times as fast in {}, as by the device's peaks, and what runs between them moves "
    "half of the bytes; low: nothing, as they may need fp32"
)
_FIX = Fix(
    "Run this part in 16 bits as well, or once before the training where it is not trained",
    "numerics",
    "with torch.no_grad():\n    latents = vae.encode(images.float()).latent_dist.sample()",
    'with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):\n'
    "    latents = vae.encode(images).latent_dist.sample()",
)
