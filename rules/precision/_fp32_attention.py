"""Attention in fp32 beside a model in 16 bits: something made its inputs fp32, as angles of rotary positions do."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import Finding, Fix, Hardware, KernelWork, Lines, Matmuls, Price, constant, edits, lookup

from ..shared._words import each_step
from ._cpu_bf16 import where
from ._formats import PEAK_WORTH_IT, is_mixed

_FORWARD = constant("device.fused_attention_forward").value
_BACKWARD = constant("device.fused_attention_backward").value
_LEAST_GAIN, _MOST_GAIN = constant("device.half_gain").range


def attention_beside_half(
    price: Price, matmuls: Matmuls, work: KernelWork | None, lines: Lines | None, min_share: float
) -> Iterator[Finding]:
    """The finding where fused attention in fp32 takes that share of the step, and the products are in 16 bits."""
    steps, device = price.ops.steps, price.ops.device
    if not matmuls.on_device or not is_mixed(matmuls):
        return
    spent_us, rows = matmuls.fp32_kinds["attention"], matmuls.fp32_rows["attention"]
    hardware = lookup(device.name, device.capability)
    if not min_share * steps.step_us <= spent_us <= steps.step_us or hardware is None:
        return
    if not hardware.half_tflops or hardware.half_tflops < PEAK_WORTH_IT * (hardware.fp32_tflops or 0.0):
        return
    name = max(("bf16", "fp16"), key=lambda one: matmuls.by_precision[one])
    kept = _kept(work, hardware, name, spent_us)
    claims = price.claims("forward", "backward", "other_ops")
    least, most = (edits.scale(rows, share) for share in (max(kept, 1 / _LEAST_GAIN), kept))
    saving = price.saving([least], [most], claims, _HOW.format(name))
    if saving.high_us < min_share * price.scale.step_us:
        return
    yield Finding(
        message=(
            f"Attention in fp32 takes {each_step(price, spent_us)}, beside a model in {name}: something made its "
            "inputs fp32, for which there is no FlashAttention."
        ),
        saving=saving,
        where=where(price.ops.trace, steps, matmuls, lines),
        facts={"attention_us": spent_us, "beside": name, "device": device.name},
        fix=Fix(_FIX.title.format(name), _FIX.risk, _FIX.before, _FIX.after),
        claims=claims,
        at_most="medium",
    )


def _kept(work: KernelWork | None, hardware: Hardware, name: str, spent_us: float) -> float:
    """The share of its time that the same arithmetic takes in 16 bits, by what FlashAttention reaches of the peak.

    Without shapes by what trainings gained at most, no more than the peaks are apart.
    """
    rate, groups = hardware.tflops(name), work.groups if work is not None else ()
    ours = [group for group in groups if group.kind == "attention" and group.precision == "fp32"]
    if rate and ours:
        reached = (_BACKWARD if "backward" in group.op else _FORWARD for group in ours)
        us = sum(group.calls * group.flops / rate / 1e6 / share for group, share in zip(ours, reached, strict=True))
        return min(us / spent_us, 1 / _LEAST_GAIN)
    return max((hardware.fp32_tflops or 0.0) / (hardware.half_tflops or 1.0), 1 / _MOST_GAIN)


_HOW = (
    "high: its arithmetic at the share of the device's peak in {} that FlashAttention was published to reach, or "
    "without shapes as much faster as trainings became at most; low: 1.3 times as fast, as they became at least"
)
# Positions of Llama, Qwen and Mistral in Transformers: cosines and sines are computed in fp32, and given back in the
# format of the hidden states (modeling_llama.py, LlamaRotaryEmbedding).
_FIX = Fix(
    "Give attention its inputs in {}: convert what makes them fp32, such as cosines and sines of positions",
    "numerics",
    "q, k = rotate(q, cos, sin), rotate(k, cos, sin)  # fp32, as cos and sin are\n"
    "y = F.scaled_dot_product_attention(q, k, v.to(q.dtype))",
    "cos, sin = cos.to(v.dtype), sin.to(v.dtype)\nq, k = rotate(q, cos, sin), rotate(k, cos, sin)\n"
    "y = F.scaled_dot_product_attention(q, k, v)",
)
