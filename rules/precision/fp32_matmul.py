"""Matrix multiplications run in fp32 without using tensor cores.

## What it looks at
The device time of matrix multiplications, convolutions and attention that ran in fp32 without TF32, and which faster
formats this device supports, looked up by its name. This is determined from the recorded dtypes and the settings of the
run, or else from kernel names that state their precision. What is unknown is not counted. TF32 is suggested only where
its switch has an effect: for multiplications, and for convolutions if cuDNN's switch was off. Mixed precision is not
suggested if autocast is already on, or if more than a tenth of the matrix work runs in 16 bits; then only the products
that are left in fp32 count, and are named. Where nearly all of it runs in fp32, and the weights of a layer or two are
converted to 16 bits before they are used, autocast is around a part of the step alone. Products in TF32 count where
they take a tenth of the step beside a model in 16 bits, as those of a frozen encoder; convolutions in TF32, their
default, also without one, unless products are in TF32 as well, which somebody asked for. So does fused attention in
fp32, whose inputs something converted, as cosines and sines of rotary positions do. Where shapes are recorded, the time
that memory takes to move what is multiplied is no gain: next to nothing is left for a product with an adapter of rank
16. There, too, the high end is what they compute at the peak of the new format, also where they are far from that of
fp32. On a CPU: calls with enough work to be worth converting, if the CPU has instructions for bf16, the environment
(`ONEDNN_MAX_CPU_ISA`) does not rule them out, and the calibration of the machine has measured that such calls gain.
Fused attention of few tokens takes many times as long in bf16 there, in its backward pass; that is subtracted.

## Why it costs time
Tensor cores multiply TF32, bf16 or fp16 several times faster than the ordinary units multiply fp32, and 16-bit
numbers need half the memory traffic.

## How to fix it
NVIDIA devices from Ampere on: `torch.set_float32_matmul_precision("high")` lets fp32 matrix multiplications run in
TF32. It does not govern convolutions: they run in TF32 by default, unless `torch.backends.cudnn.allow_tf32` (from
PyTorch 2.9 on `torch.backends.cudnn.conv.fp32_precision`) was set otherwise. No switch governs fused attention.

Mixed precision gains more: `torch.autocast(device, dtype=torch.bfloat16)` around the forward pass and the loss;
devices without bf16 tensor cores (V100, T4) use `torch.float16` together with a `GradScaler`.

## When to leave it
Results that need all 24 bits of fp32: TF32 keeps 11 of them in each product, bf16 keeps 8. Check the loss curve
after the change. On a CPU, keep attention over fewer than 300 tokens in fp32: `q.float(), k.float(), v.float()`
inside `torch.autocast("cpu", enabled=False)`. If fp32 was chosen on purpose, ignore this rule in the configuration; a
script that calls `torch.set_float32_matmul_precision("highest")` is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    Finding,
    Fix,
    Ints,
    KernelWork,
    Lines,
    Matmuls,
    Missing,
    Price,
    RankRecord,
    Settings,
    Trace,
    duration,
    edits,
)

from ..shared._words import each_step, plural
from ._beside_half import beside_half
from ._between_products import following
from ._calls_in_fp32 import beside, beyond_peaks_us, in_tf32, moving_us
from ._convolutions_in_tf32 import convolutions_in_tf32
from ._cpu_bf16 import Gains, attention_us, forbidden, on_cpu, where
from ._formats import Way, faster, half_way, is_mixed
from ._fp32_attention import attention_beside_half
from ._fp32_examples import IN_FP32
from ._partial_autocast import partial_autocast

# What takes less of the time is not named.
_NAMED = 0.1
# Beside a device less than 2 % of the step is not told from nothing.
_FELT = 0.02
_LATER = " Alone this saves next to nothing, as the device waits for the host; once it does not, {} to {} of each step."
_UNSURE = "; low: nothing, if TF32 is allowed already and cuDNN found these kernels faster"
_AT_PEAK = "; high: where they reach less than the peak in fp32, what they compute at the peak of the new format"
_BETWEEN = "; high: elementwise ops between them move half of the bytes, too"
_ALSO = "; high: products in TF32 as much faster as the peaks of both formats are apart"
_IDLE = ("idle_launch", "idle_host", "idle_sync", "idle_unknown")
_NONE = np.empty(0, np.int64)
# Formats that autocast has; TF32 leaves tensors in fp32.
_HALF = ("bf16", "fp16")
_LOST = "; minus the slower backward pass of attention in bf16, unless attention stays out of autocast"
_LONGER = "kernels of a step take longer than the step: what of the device's work was recorded is not known"
# bitsandbytes' kernel, csrc/kernels.cu there; its `Linear4bit` multiplies in `compute_dtype`.
_UNPACKS = "kDequantizeBlockwise"
_COMPUTE_TYPE = Fix(
    "Set `bnb_4bit_compute_dtype=torch.bfloat16`",
    "numerics",
    "BitsAndBytesConfig(load_in_4bit=True)",
    "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)",
)
_WORDS = {"product": "matrix multiplications", "convolution": "convolutions", "attention": "attention"}

CONFIRMED = "real traces: ResNet training and a transformer in fp32 on V100s"


def check(
    price: Price,
    matmuls: Matmuls,
    work: KernelWork | None,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.10,  # of the step: rounding changes, so the gain has to justify checking the loss curve
    max_host_idle: float = 0.10,  # where the device waits more for the host, faster kernels may only make it wait more
) -> Iterator[Finding]:
    trace, steps, device = price.ops.trace, price.ops.steps, price.ops.device
    settings = record.settings if record else Settings()
    if _is_chosen(settings) or (not matmuls.on_device and (forbidden(record) or _waits_for_cores(settings))):
        return
    yield from beside_half(price, matmuls, lines, min_share)
    yield from attention_beside_half(price, matmuls, work, lines, min_share)
    yield from convolutions_in_tf32(price, matmuls, settings, lines, min_share)
    cpu = _on_cpu(price, matmuls, settings, min_share)
    fp32_us = matmuls.by_precision["fp32"] if matmuls.on_device else cpu[0]
    if fp32_us < min_share * steps.step_us:
        if matmuls.fp32_share is None:
            raise Missing("the precision of matrix multiplications is not known; record with record_shapes=True")
        return
    if matmuls.on_device and fp32_us > steps.step_us:
        raise Missing(_LONGER)
    way = faster(device, settings, matmuls, min_share * steps.step_us)
    if way is None:
        return
    partly = partial_autocast(price, matmuls)
    way = partly[1] if partly else _of_four_bits(price) or way
    gained = _on_device(price, matmuls, way, work) if matmuls.on_device else _Gained(cpu[0], cpu[0], cpu[1:])
    fp32_us, most_us, beyond_us = gained.fp32_us, gained.most_us, gained.beyond_us
    saved = min(gained.ends[0], most_us), min(gained.ends[1] + beyond_us, most_us) + gained.more_us(price)
    host_idle = sum(price.breakdown.share(part) for part in _IDLE)
    # Where it is not known that TF32 was turned off, cuDNN may have found these convolutions faster without.
    unsure = matmuls.on_device and "convolution" in way.kinds and way.name == "TF32" and settings.tf32_cudnn is None
    low_us = 0.0 if host_idle > max_host_idle or unsure else saved[0]
    lost = (0.0, 0.0) if matmuls.on_device else attention_us(trace, steps, price.ops.nesting)
    if (most_us if matmuls.on_device else min(low_us, saved[1] - lost[0])) < min_share * steps.step_us:
        return
    high_us = saved[1] * _felt(price, matmuls, way)
    ends = max(min(low_us, high_us) - lost[1], 0.0), high_us - lost[0]
    felt = high_us >= _FELT * steps.step_us
    how = _how(way, host_idle > max_host_idle, matmuls.on_device)
    how += _UNSURE * unsure + _AT_PEAK * bool(beyond_us) + gained.said + _LOST * bool(lost[1])
    claims = price.claims("forward", "backward", "other_ops")
    later = _LATER.format(*(duration(price.scale.scaled(us)) for us in saved))
    yield Finding(
        message=_message(price, matmuls, work, fp32_us, way, (settings, partly)) + ("" if felt else later),
        saving=price.long_ops(ends, (), how, basis="assumed", most=_faster(matmuls, way, gained)) if felt else None,
        where=where(trace, steps, matmuls, lines),
        facts={
            "fp32_us": fp32_us,
            "fp32_share": matmuls.fp32_share,
            "evidence": matmuls.evidence,
            "device": device.name or "CPU",
            "largest": [row.name for row in matmuls.largest if row.kind == "fp32"][:3],
        },
        fix=_of_inference(trace, _outside_the_loss(trace, way.fix)) if matmuls.on_device else way.fix,
        claims=claims,
        at_most="low" if not felt else "high" if settings.matmul_precision_set is False else "medium",
    )


class _Gained(Struct, frozen=True, eq=False):
    """What products save in another format.

    fp32_us    what they take now, µs per step;  most_us: that without what they only move
    ends       least and most of it that the format saves by its gain, µs
    beyond_us  where they reach less than the peak in fp32: what they save beyond that gain
    between    elementwise ops between them, which move half of the bytes
    tf32       products in TF32 that become faster as well, and the share of their time that they keep
    """

    fp32_us: float
    most_us: float
    ends: tuple[float, float]
    beyond_us: float = 0.0
    between: Ints = _NONE
    tf32: tuple[Ints, float] = (_NONE, 1.0)

    def more_us(self, price: Price) -> float:
        """What else becomes faster, µs per step."""
        rows, kept = self.tf32
        return price.ops.us(self.between) / 2 + price.ops.us(rows) * (1 - kept)

    @property
    def said(self) -> str:
        """That, for the explanation of the range."""
        return _ALSO * bool(len(self.tf32[0])) + _BETWEEN * bool(len(self.between))


def _of_four_bits(price: Price) -> Way | None:
    """The format that weights of four bits are unpacked to, where it is fp32, bitsandbytes' default; else None."""
    unpacked = price.on_device and price.ops.events.named(_UNPACKS).any()
    return half_way(price.ops.device, "bf16", _COMPUTE_TYPE) if unpacked else None


def _on_device(price: Price, matmuls: Matmuls, way: Way, work: KernelWork | None) -> _Gained:
    """What products of a device save."""
    fp32_us, longer = sum(matmuls.fp32_kinds[kind] for kind in way.kinds), price.ops.longer
    least, most = way.gain
    return _Gained(
        fp32_us,
        fp32_us - moving_us(matmuls, way, work) * longer,
        (fp32_us * (1 - 1 / least), fp32_us * (1 - 1 / most)),
        beyond_peaks_us(matmuls, way, work) * longer,
        following(price) if way.name in _HALF else _NONE,
        in_tf32(matmuls, way, work),
    )


def _is_chosen(settings: Settings) -> bool:
    """Whether the script itself asked for products in full precision."""
    full = settings.matmul_precision == "highest" or settings.tf32_matmul is False
    return full and bool(settings.matmul_precision_set)


def _waits_for_cores(settings: Settings) -> bool:
    """Whether threads wait for a core: what products take then says nothing about their format."""
    return (settings.threads or 0) > (settings.cores or settings.threads or 0)


def _on_cpu(price: Price, matmuls: Matmuls, settings: Settings, min_share: float) -> tuple[float, float, float]:
    """As `on_cpu`, where a CPU with instructions for bf16 multiplies in fp32 alone; else nothing."""
    steps, fp32_us = price.ops.steps, matmuls.by_precision["fp32"]
    mostly = fp32_us >= max(0.9 * matmuls.us, min_share * steps.step_us)
    if matmuls.on_device or not settings.cpu_bf16 or not mostly:
        return 0.0, 0.0, 0.0
    gains = Gains.of(price.added.calibration)
    if gains is None:
        raise Missing("how much faster this CPU multiplies in bf16 was not measured: it is by a calibration")
    return on_cpu(price.ops.trace, steps, price.ops.nesting, gains)


def _faster(matmuls: Matmuls, way: Way, gained: _Gained) -> tuple[edits.Edit, ...]:
    """A device's products in the new format, and the ops between them: what others save is less beside them."""
    if not matmuls.on_device:
        return ()
    rows = np.concatenate([matmuls.fp32_rows[kind] for kind in way.kinds])
    return edits.scale(rows, 1 / way.gain[1]), edits.scale(gained.between, 0.5), edits.scale(*gained.tf32)


def _felt(price: Price, matmuls: Matmuls, way: Way) -> float:
    """The share of what faster products save that the step saves: beside a host that is the slower one, nothing."""
    rows = np.concatenate([matmuls.fp32_rows[kind] for kind in way.kinds]) if matmuls.on_device else np.empty(0, int)
    if not len(rows):
        return 1.0
    kept = 1 / way.gain[1]
    alone_us = price.scale.scaled(price.spent_us(rows) * (1 - kept))
    saved = price.saving([], [edits.scale(rows, kept)], ("compute",), "")
    return min(saved.high_us / alone_us, 1.0) if alone_us else 1.0


def _outside_the_loss(trace: Trace, fix: Fix) -> Fix:
    """The fix with a word about a loss that a GPU refuses to compute under autocast."""
    if "autocast" not in fix.after or not trace.events.exactly("aten::binary_cross_entropy").any():
        return fix
    said = "# BCELoss raises an error under autocast: use BCEWithLogitsLoss and remove the sigmoid before it"
    return replace(fix, after=f"{said}\n{fix.after}")


def _of_inference(trace: Trace, fix: Fix) -> Fix:
    """The fix with what else to try where nothing is trained: then weights may have 16 bits as well."""
    if "TF32" not in fix.title or trace.events.named(AUTOGRAD_NODE, "Optimizer.step#").any():
        return fix
    return replace(
        fix, after=f"{fix.after}\n# where nothing is trained, try 16-bit weights too: model.to(torch.bfloat16)"
    )


def _how(way: Way, host_bound: bool, on_device: bool) -> str:
    if not on_device:
        return "what bf16 gains on this machine by its calibration, by the arithmetic per byte to convert"
    least, most = way.gain
    said = f"matrix multiplications {least:.3g} to {most:.3g} times as fast in {way.name}, as published for trainings"
    if host_bound:
        return f"{said}; low: nothing, because the device already waits for the host"
    return said


def _message(
    price: Price,
    matmuls: Matmuls,
    work: KernelWork | None,
    fp32_us: float,
    way: Way,
    known: tuple[Settings, tuple[float, Way] | None],
) -> str:
    settings, partly = known
    named = price.ops.device.name if matmuls.on_device else "the CPU"
    kinds = [kind for kind in way.kinds if matmuls.fp32_kinds[kind] >= _NAMED * fp32_us]
    words = " and ".join(_WORDS[kind] for kind in kinds) if matmuls.on_device else "matrix multiplications"
    take = "takes" if words == _WORDS["attention"] else "take"
    few = beside(matmuls, work, way) if matmuls.on_device and is_mixed(matmuls) else ""
    said = (
        f"{words[:1].upper()}{words[1:]} in fp32{few} {take} {each_step(price, fp32_us)}, "
        f"although {named} has hardware for {way.name}"
    )
    if not matmuls.on_device:
        said = said.replace("has hardware for", "has instructions for")
    if partly:
        said += f" and autocast converts the weights of {plural(round(partly[0], 1), 'layer')} a step alone"
    if settings.matmul_precision_set is None:
        said += f", unless fp32 was chosen on purpose{', as for a router, a loss or a VAE' if few else ''}"
    return said + "."


EXAMPLES = IN_FP32
