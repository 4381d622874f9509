"""Number formats that are faster than fp32: which a machine has, what they gain, and the lines that choose them."""

from __future__ import annotations

from msgspec import Struct

from advisor.api import Device, Fix, Hardware, Matmuls, Missing, Settings, Treatment, constant, lookup

# How many times faster matrix work becomes in TF32.
_TF32_GAIN = constant("device.tf32_gain").range
_HALF_GAIN = constant("device.half_gain").range
# Peak of a format against that of another one from which on it is worth a change.
PEAK_WORTH_IT = constant("device.worthwhile_peak").value


# The rest of the fp32 work is not worth a line of its own.
_PART_WORTH_IT = 0.1
# More of the matrix work than this is in 16 bits: mixed precision is on, and what is left in fp32 is so by choice.
_MIXED = 0.1


class _Switch(Struct, frozen=True):
    """What lets one kind of matrix work run in TF32: a line, and the setting that says whether it was set.

    torch.set_float32_matmul_precision governs cuBLAS alone; convolutions have torch.backends.cudnn.allow_tf32, which is
    True unless a script sets it (PyTorch, CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and later) devices"), or
    torch.backends.cudnn.conv.fp32_precision from 2.9 on. Memory-efficient attention multiplies fp32 as three TF32
    products whatever is set (OpMultiplyAddFastF32 in mem_eff_attention/gemm_kernel_utils.h).
    """

    kind: str
    line: str
    treatment: Treatment

    def off(self, settings: Settings, *, mixed: bool) -> bool:
        """Whether it is worth setting: products are in fp32 by default, convolutions where the run is known to.

        Where that is not known, kernels that say fp32 are no choice of a model whose other work is in 16 bits.
        """
        if self.kind == "product":
            return not settings.tf32_matmul
        return settings.tf32_cudnn is False or (mixed and settings.tf32_cudnn is None)


_SWITCHES = (
    _Switch(
        "product", 'torch.set_float32_matmul_precision("high")', Treatment("matmul_precision", {"precision": "high"})
    ),
    _Switch("convolution", "torch.backends.cudnn.allow_tf32 = True", Treatment("cudnn", {"allow_tf32": True})),
)


class Way(Struct, frozen=True):
    """A faster format: how it is called, its gain (least, most; on a CPU by call), and the lines to change.

    kinds: what of the matrix work it makes faster, words of `Matmuls.fp32_kinds`
    """

    name: str
    gain: tuple[float, float]
    fix: Fix
    kinds: tuple[str, ...] = ("product", "convolution", "attention")


def faster(device: Device, settings: Settings, matmuls: Matmuls, least_us: float) -> Way | None:
    """The faster format for this device; None where it has none that is worth it.

    least_us: of work in fp32 that TF32 has to reach, µs per step; else mixed precision is the way
    """
    mixed = settings.autocast or is_mixed(matmuls)
    if not matmuls.on_device:
        # Unknown is not "has it": without the instructions bf16 is slower than fp32.
        return Way("bf16", (1.0, 1.0), autocast_bf16("cpu")) if settings.cpu_bf16 and not mixed else None
    hardware = lookup(device.name, device.capability)
    if hardware is None:
        named = device.name or "this device"
        raise Missing(f"whether {named} supports TF32, fp16 or bf16 is not known")
    switches = [one for one in _SWITCHES if one.off(settings, mixed=is_mixed(matmuls))]
    kinds = tuple(one.kind for one in switches)
    reached_us = sum(matmuls.fp32_kinds[kind] for kind in kinds)
    if hardware.tf32 and reached_us >= least_us and _peak(hardware.tf32_tflops, hardware) >= PEAK_WORTH_IT:
        used = [one for one in switches if matmuls.fp32_kinds[one.kind] >= _PART_WORTH_IT * reached_us]
        fix = Fix(
            f"Set `{used[0].line}` to use TF32" if len(used) == 1 else "Allow TF32 in products and convolutions",
            "numerics",
            "import torch",
            "import torch\n\n" + "\n".join(one.line for one in used),
            used[0].treatment if len(used) == 1 else None,
        )
        return Way("TF32", _capped(_TF32_GAIN, hardware.tf32_tflops, hardware), fix, kinds)
    if mixed:
        return None
    if not (hardware.bf16 or hardware.fp16) or _peak(hardware.half_tflops, hardware) < PEAK_WORTH_IT:
        return None
    gain = _capped(_HALF_GAIN, hardware.half_tflops, hardware)
    if hardware.bf16:
        return Way("bf16", gain, autocast_bf16("cuda"))
    return _scaled_fp16(gain, settings.framework)


def half_way(device: Device, name: str, fix: Fix) -> Way | None:
    """All matrix work in fp16 or bf16 by this fix; None where the device gains nothing from it."""
    hardware = lookup(device.name, device.capability)
    if hardware is None or not (hardware.bf16 if name == "bf16" else hardware.fp16):
        return None
    if _peak(hardware.half_tflops, hardware) < PEAK_WORTH_IT:
        return None
    return Way(name, _capped(_HALF_GAIN, hardware.half_tflops, hardware), fix)


def published(way: Way) -> float:
    """How many times faster matrix work became at most in that format, on any device."""
    return (_TF32_GAIN if way.name == "TF32" else _HALF_GAIN)[1]


def is_mixed(matmuls: Matmuls) -> bool:
    """Whether the rest of the model runs in 16 bits."""
    half_us = matmuls.by_precision["fp16"] + matmuls.by_precision["bf16"]
    return half_us > _MIXED * matmuls.us


def _peak(tflops: float | None, hardware: Hardware) -> float:
    """How many times the fp32 peak that is; without both numbers the units' existence has to do."""
    return tflops / hardware.fp32_tflops if tflops and hardware.fp32_tflops else PEAK_WORTH_IT


def _capped(gain: tuple[float, float], tflops: float | None, hardware: Hardware) -> tuple[float, float]:
    """The gain, never above what the peaks allow."""
    if not (tflops and hardware.fp32_tflops):
        return gain
    most = min(gain[1], tflops / hardware.fp32_tflops)
    return min(gain[0], most), most


def autocast_bf16(device_type: str) -> Fix:
    """Mixed precision by one line around the forward pass."""
    return Fix(
        "Run the forward pass and the loss under autocast in bf16",
        "numerics",
        "loss = criterion(model(x), y)",
        f'with torch.autocast("{device_type}", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)',
        Treatment("autocast", {"dtype": "bfloat16"}),
    )


def _scaled_fp16(gain: tuple[float, float], framework: str | None) -> Way:
    fix = Fix(
        "Run the forward pass and the loss under autocast in fp16, with loss scaling",
        "numerics",
        "loss = criterion(model(x), y)\nloss.backward()\noptimizer.step()",
        'scaler = torch.amp.GradScaler("cuda")  # once, before the loop\n'
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = criterion(model(x), y)\n'
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
        # A framework has an option for it, which can be written; in a loop of the script's own it is several lines.
        edit=Treatment("autocast", {"dtype": "float16"}) if framework else None,
    )
    return Way("fp16", gain, fix)
