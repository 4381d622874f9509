"""Matrix products run in fp32 beside idle tensor cores.

## What it looks at
The device time of matrix products, convolutions and attention that ran in fp32 without TF32, and what this very
device can do instead, looked up by its name. Decided by the recorded dtypes and the switches of the run; without
them by kernels whose names state their precision. What is unknown is not counted.

## Why it costs time
Tensor cores multiply TF32, bf16 or fp16 several times faster than the ordinary units multiply fp32, and 16-bit
numbers need half the memory traffic.

## How to fix it
NVIDIA devices from Ampere on: `torch.set_float32_matmul_precision("high")` lets fp32 matrix products run in TF32.
More is gained with mixed precision, `torch.autocast(device, dtype=torch.bfloat16)` around forward and loss; devices
without bf16 tensor cores (V100, T4) take `torch.float16` together with a `GradScaler`.

## When to leave it
Results that need all 24 bits of fp32: TF32 keeps 11 of them in each product, bf16 keeps 8. Check the loss curve
after the change. If fp32 was chosen on purpose, say so with `torch.set_float32_matmul_precision("highest")` and
this rule stays silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Breakdown,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Hardware,
    Matmuls,
    Missing,
    RankRecord,
    Scale,
    Settings,
    Steps,
    draw,
    lookup,
)

from ._words import percent, time

CONFIRMED = "real traces: ResNet training and a transformer in fp32 on V100s, where no other lever is left"

# How many times faster the matrix work becomes. TF32: at most 7, PyTorch's own figure for a 10240 x 10240 product on an
# A100; at least little, because the same bytes move. Half precision: NVIDIA's published trainings on a V100 gain 1.1
# (EfficientNet), 1.7 (TFT), 2.0 (U-Net), 3.2 (ResNet-50), 3.8 (BERT) and 4.7 (3-D U-Net) as a whole.
_TF32_GAIN = (1.2, 7.0)
_HALF_GAIN = (1.3, 5.0)
# On a CPU with bf16 instructions (AMX): linear layers and convolutions whose fp32 op takes a millisecond or more gained
# 1.4 to 3.2 when measured; ops of 0.1 ms lost by as much, because converting costs more than multiplying.
_CPU_GAIN = (1.4, 3.2)
_CPU_OP_US = 1000.0
# A format whose peak is less than half above that of fp32 is not worth a change (TF32 on an L40: the same peak).
_PEAK_WORTH_IT = 1.5


@dataclass(frozen=True, slots=True)
class _Way:
    """A faster format: how it is called, its gain (least, most), and the lines to change."""

    name: str
    gain: tuple[float, float]
    fix: Fix


def check(
    matmuls: Matmuls,
    device: Device,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    record: RankRecord | None,
    *,
    min_share: float = 0.10,  # of the step: rounding changes, so the gain has to be worth a look at the loss curve
    max_host_idle: float = 0.10,  # where the device waits more for the host, faster kernels may only wait longer
) -> Iterator[Finding]:
    settings = record.settings if record else Settings()
    if settings.matmul_precision_set and settings.matmul_precision == "highest":
        return
    fp32_us = matmuls.by_precision["fp32"] if matmuls.on_device else _large_cpu_us(matmuls)
    if fp32_us < min_share * steps.step_us:
        if matmuls.fp32_share is None:
            raise Missing("the precision of the matrix products is not known; record with record_shapes=True")
        return
    way = _way(device, settings, matmuls.on_device)
    if way is None:
        return
    host_idle = sum(breakdown.share(part) for part in ("idle_launch", "idle_host", "idle_sync", "idle_unknown"))
    least, most = way.gain
    low_us = 0.0 if host_idle > max_host_idle else fp32_us * (1 - 1 / least)
    yield Finding(
        message=_message(matmuls, device, steps, scale, fp32_us, way.name, settings),
        saving=scale.saving(low_us, fp32_us * (1 - 1 / most), _how(way, host_idle > max_host_idle), "assumed"),
        facts={
            "fp32_us": fp32_us,
            "fp32_share": matmuls.fp32_share,
            "evidence": matmuls.evidence,
            "device": device.name or "CPU",
            "largest": [row.name for row in matmuls.largest if row.kind == "fp32"][:3],
        },
        fix=way.fix,
        claims=("compute",) if matmuls.on_device else ("forward", "backward", "other_ops"),
        at_most="high" if settings.matmul_precision_set is False else "medium",
    )


def _large_cpu_us(matmuls: Matmuls) -> float:
    """Time of fp32 ops on the CPU that are long enough to gain from bf16."""
    rows = (row for row in matmuls.largest if row.kind == "fp32" and row.calls)
    return sum(row.us for row in rows if row.us / row.calls >= _CPU_OP_US)


def _way(device: Device, settings: Settings, on_device: bool) -> _Way | None:
    """The faster format for this device; None where it has none that is worth it."""
    if not on_device:
        # Unknown is not "has it": without the instructions bf16 is slower than fp32.
        return _autocast("cpu", "bf16", _CPU_GAIN) if settings.cpu_bf16 else None
    hardware = lookup(device.name, device.capability)
    if hardware is None:
        named = device.name or "this device"
        raise Missing(f"whether {named} has units for TF32, fp16 or bf16 is not known")
    if hardware.tf32 and not settings.tf32_matmul and _peak(hardware.tf32_tflops, hardware) >= _PEAK_WORTH_IT:
        fix = Fix(
            "Let fp32 matrix products run in TF32",
            "numerics",
            "import torch",
            'import torch\n\ntorch.set_float32_matmul_precision("high")',
        )
        return _Way("TF32", _capped(_TF32_GAIN, hardware.tf32_tflops, hardware), fix)
    if not (hardware.bf16 or hardware.fp16) or _peak(hardware.half_tflops, hardware) < _PEAK_WORTH_IT:
        return None
    gain = _capped(_HALF_GAIN, hardware.half_tflops, hardware)
    return _autocast("cuda", "bf16", gain) if hardware.bf16 else _scaled_fp16(gain)


def _peak(tflops: float | None, hardware: Hardware) -> float:
    """How many times the fp32 peak that is; without both numbers the units' existence has to do."""
    return tflops / hardware.fp32_tflops if tflops and hardware.fp32_tflops else _PEAK_WORTH_IT


def _capped(gain: tuple[float, float], tflops: float | None, hardware: Hardware) -> tuple[float, float]:
    """The gain, never above what the peaks allow."""
    if not (tflops and hardware.fp32_tflops):
        return gain
    most = min(gain[1], tflops / hardware.fp32_tflops)
    return min(gain[0], most), most


def _autocast(device_type: str, name: str, gain: tuple[float, float]) -> _Way:
    fix = Fix(
        "Run forward and loss in bf16 where that is safe (autocast)",
        "numerics",
        "loss = criterion(model(x), y)",
        f'with torch.autocast("{device_type}", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)',
    )
    return _Way(name, gain, fix)


def _scaled_fp16(gain: tuple[float, float]) -> _Way:
    fix = Fix(
        "Run forward and loss in fp16 with loss scaling",
        "numerics",
        "loss = criterion(model(x), y)\nloss.backward()\noptimizer.step()",
        'scaler = torch.amp.GradScaler("cuda")  # once, before the loop\n'
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = criterion(model(x), y)\n'
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    )
    return _Way("fp16", gain, fix)


def _how(way: _Way, host_bound: bool) -> str:
    least, most = way.gain
    said = f"matrix work becomes {least:.3g} to {most:.3g} times faster in {way.name}, as published for whole trainings"
    if host_bound:
        return f"{said}; low end nothing, because the device already waits for the host"
    return said


def _message(
    matmuls: Matmuls, device: Device, steps: Steps, scale: Scale, fp32_us: float, way: str, settings: Settings
) -> str:
    where = device.name if matmuls.on_device else "the CPU"
    said = (
        f"Matrix products and convolutions in fp32 take {time(scale.scaled(fp32_us))} of each step "
        f"({percent(fp32_us / steps.step_us)}), though {where} has units for {way}"
    )
    if not matmuls.on_device:
        said = said.replace("has units for", "has instructions for")
    if settings.matmul_precision_set is None:
        said += "; unless fp32 was chosen on purpose"
    return said + "."


_FP32 = {"dims": [[512, 1024], [1024, 1024]], "dtypes": ["float", "float"]}
_BF16 = {"dims": [[512, 1024], [1024, 1024]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}
_STEPS = """
    step   [1                 ][2                 ]
    cpu    [F  ][B  ]          [F  ][B  ]
    gpu 7   [K       ][K      ] [K       ][K      ]
    """


def _drawn(device: str, dtypes: dict[str, object], kernel: Ev) -> dict[str, object]:
    op = Ev("aten::mm", **dtypes)  # type: ignore[arg-type]
    return draw(_STEPS, us=1000, device=device, F=op, B=op, K=kernel)


_CHOSEN = {"settings": {"matmul_precision": "highest", "matmul_precision_set": True}}
_DEFAULT = {"settings": {"matmul_precision": "highest", "matmul_precision_set": False, "tf32_matmul": False}}

EXAMPLES = [
    Example(
        "fp32 on an A100, nothing known about the run",
        _drawn("A100", _FP32, GEMM),
        saves_us=(2500, 16500),
        says=("TF32", "unless fp32 was chosen on purpose"),
    ),
    Example(
        "fp32 on an A100 by default",
        _drawn("A100", _FP32, GEMM),
        facts=_DEFAULT,
        saves_us=(2500, 16500),
        says=("TF32.",),
    ),
    Example(
        "fp32 on a V100: no TF32 there, but fp16",
        _drawn("V100", _FP32, Ev("volta_sgemm_128x64_nn", "kernel")),
        saves_us=(3500, 15500),
        says=("fp16",),
    ),
    Example(
        "fp32 on an MI300X, which says capability 9 as an H100 does",
        _drawn("MI300X", _FP32, Ev("Cijk_Ailk_Bljk_SB_MT128x64", "kernel")),
        saves_us=(3500, 15500),
        says=("bf16",),
    ),
    Example(
        "fp32 was chosen on purpose",
        _drawn("A100", _FP32, GEMM),
        facts=_CHOSEN,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "bf16 already",
        _drawn("A100", _BF16, Ev("ampere_bf16_s16816gemm_bf16_128x64_tn", "kernel")),
        saves_us=None,
    ),
    Example(
        "fp32 on a CPU without bf16 instructions",
        draw("step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]", us=1000, F=FORWARD, B=BACKWARD),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "large fp32 products on a CPU with bf16 instructions",
        draw(
            "step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]",
            us=1000,
            F=Ev("aten::mm", **_FP32),  # type: ignore[arg-type]
            B=Ev("aten::mm", **_FP32),  # type: ignore[arg-type]
        ),
        facts={"settings": {"cpu_bf16": True, "matmul_precision_set": False}},
        saves_us=(2800, 7000),
        says=("the CPU has instructions for bf16",),
    ),
]
