"""Number formats that are faster than fp32: which a machine has, what they gain, and the lines that choose them."""

from __future__ import annotations

from advisor.api import Device, Fix, Hardware, Missing, Settings, constant, dataclass, lookup

# How many times faster matrix work becomes in TF32.
_TF32_GAIN = constant("device.tf32_gain").range
_HALF_GAIN = constant("device.half_gain").range
# How many times faster products of 30 operations for each converted byte become.
_CPU_GAIN = constant("bf16_cpu.product_gain").range
# Peak of a format against that of fp32 from which on it is worth a change.
_PEAK_WORTH_IT = constant("device.worthwhile_peak").value


@dataclass(frozen=True, slots=True)
class Way:
    """A faster format: how it is called, its gain (least, most), and the lines to change."""

    name: str
    gain: tuple[float, float]
    fix: Fix


def faster(device: Device, settings: Settings, on_device: bool) -> Way | None:
    """The faster format for this device; None where it has none that is worth it."""
    if not on_device:
        # Unknown is not "has it": without the instructions bf16 is slower than fp32.
        return _autocast("cpu", "bf16", _CPU_GAIN, settings.framework) if settings.cpu_bf16 else None
    hardware = lookup(device.name, device.capability)
    if hardware is None:
        named = device.name or "this device"
        raise Missing(f"whether {named} supports TF32, fp16 or bf16 is not known")
    if hardware.tf32 and not settings.tf32_matmul and _peak(hardware.tf32_tflops, hardware) >= _PEAK_WORTH_IT:
        fix = Fix(
            'Set `torch.set_float32_matmul_precision("high")` to use TF32',
            "numerics",
            "import torch",
            'import torch\n\ntorch.set_float32_matmul_precision("high")',
        )
        return Way("TF32", _capped(_TF32_GAIN, hardware.tf32_tflops, hardware), fix)
    if not (hardware.bf16 or hardware.fp16) or _peak(hardware.half_tflops, hardware) < _PEAK_WORTH_IT:
        return None
    gain = _capped(_HALF_GAIN, hardware.half_tflops, hardware)
    if hardware.bf16:
        return _autocast("cuda", "bf16", gain, settings.framework)
    return _scaled_fp16(gain, settings.framework)


def _peak(tflops: float | None, hardware: Hardware) -> float:
    """How many times the fp32 peak that is; without both numbers the units' existence has to do."""
    return tflops / hardware.fp32_tflops if tflops and hardware.fp32_tflops else _PEAK_WORTH_IT


def _capped(gain: tuple[float, float], tflops: float | None, hardware: Hardware) -> tuple[float, float]:
    """The gain, never above what the peaks allow."""
    if not (tflops and hardware.fp32_tflops):
        return gain
    most = min(gain[1], tflops / hardware.fp32_tflops)
    return min(gain[0], most), most


# What the frameworks call mixed precision: their loops enter autocast, and scale the loss, by themselves.
_MIXED = {
    "lightning": ("trainer = Trainer(...)", 'trainer = Trainer(..., precision="{0}-mixed")'),
    "transformers": ("TrainingArguments(...)", "TrainingArguments(..., {0}=True)"),
    "accelerate": ("accelerator = Accelerator()", 'accelerator = Accelerator(mixed_precision="{0}")'),
}


def _mixed(name: str, framework: str | None) -> Fix | None:
    """The framework's own word for mixed precision; None where the script turns the loop itself."""
    if framework not in _MIXED:
        return None
    before, after = _MIXED[framework]
    lightning = {"fp16": "16"}.get(name, name) if framework == "lightning" else name
    return Fix(f"Train in mixed precision ({name})", "numerics", before, after.format(lightning))


def _autocast(device_type: str, name: str, gain: tuple[float, float], framework: str | None) -> Way:
    fix = _mixed(name, framework) or Fix(
        "Run the forward pass and the loss under autocast in bf16",
        "numerics",
        "loss = criterion(model(x), y)",
        f'with torch.autocast("{device_type}", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)',
    )
    return Way(name, gain, fix)


def _scaled_fp16(gain: tuple[float, float], framework: str | None) -> Way:
    fix = _mixed("fp16", framework) or Fix(
        "Run the forward pass and the loss under autocast in fp16, with loss scaling",
        "numerics",
        "loss = criterion(model(x), y)\nloss.backward()\noptimizer.step()",
        'scaler = torch.amp.GradScaler("cuda")  # once, before the loop\n'
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = criterion(model(x), y)\n'
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    )
    return Way("fp16", gain, fix)
