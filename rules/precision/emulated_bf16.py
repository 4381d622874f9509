"""Ops run in bf16 on a processor without instructions for it.

## What it looks at
Matrix products and convolutions in bf16 or fp16 on a CPU which, by its flags, has no instructions that multiply bf16.
What they take is compared with what their arithmetic takes in fp32 on this machine: at the rates of its calibration,
or of its kind of processor where none was made. On an NVIDIA GPU below compute capability 8.0 (T4, V100, RTX 20):
kernels of products, convolutions and attention in bf16. What they would take in fp16 has not been measured, so there
is no number.

## Why it costs time
Without such instructions each number is converted to fp32, multiplied, and rounded again, in code that is right but
not fast; half as many bytes do not make up for it. On an EPYC with AVX2 alone, a product of 576 x 576 matrices took 30
times as long in bf16 as in fp32, and a convolution with its backward pass 38 times (one thread, torch 2.14). Such
settings often come from a machine with a GPU. The tensor cores of Volta and Turing multiply fp16 and no bf16, which
PyTorch then emulates (`torch.cuda.is_bf16_supported(including_emulation=False)` is False there).

## How to fix it
Train in fp32 on this processor: leave out `torch.autocast`, or choose it by the device. Lightning:
`Trainer(precision="32-true")`; Transformers: `TrainingArguments(bf16=False)`; Accelerate: `mixed_precision="no"`. On
such a GPU use `torch.float16` with a `GradScaler` (`precision="16-mixed"`, `fp16=True`, `mixed_precision="fp16"`).

## When to leave it
The run checks what a GPU will compute in bf16, and its time does not matter. Results change in their last digits, as
bf16 rounds to 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Matmuls,
    Price,
    RankRecord,
    Settings,
    draw,
    in_sixteen_bits,
)

from ..shared._places import first_line, first_of, place, set_at
from ..shared._words import count, each_step

_ON_TENSORS = ("forward", "backward", "other_ops")
_HOW = (
    "the time of these ops, less what their arithmetic takes in fp32: most at the slowest rate of one core, least at "
    "the fastest of all threads"
)
_FIX = Fix(
    "Train in fp32 on this processor",
    "numerics",
    'with torch.autocast("cpu", dtype=torch.bfloat16):\n    loss = criterion(model(inputs), targets)',
    "loss = criterion(model(inputs), targets)",
)


_FP16 = Fix(
    "Use float16 with a `GradScaler` on this GPU",
    "numerics",
    'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = criterion(model(inputs), targets)\nloss.backward()',
    'with torch.autocast("cuda", dtype=torch.float16):\n    loss = criterion(model(inputs), targets)\n'
    "scaler.scale(loss).backward()  # scaler = torch.amp.GradScaler(); then scaler.step(optimizer), scaler.update()",
)
# From this compute capability on tensor cores multiply bf16 (CUDA C Programming Guide, table of arithmetic).
_AMPERE = (8, 0)


def check(
    price: Price,
    record: RankRecord | None,
    lines: Lines | None,
    matmuls: Matmuls | None,
    *,
    min_share: float = 0.05,  # a setting to change; below 5 % of the step its ops are not what takes the time
) -> Iterator[Finding]:
    settings = record.settings if record else Settings()
    capability = price.ops.device.capability
    if matmuls is not None and matmuls.on_device and capability is not None and capability < _AMPERE:
        spent_us = matmuls.by_precision["bf16"]
        if spent_us >= min_share * price.ops.steps.step_us:
            yield _on_old_gpu(price, settings, lines, spent_us)
    if price.on_device or settings.cpu_bf16 is not False:
        return
    ops = price.ops
    rows, flops = in_sixteen_bits(ops.events, ops.nesting, ops.events.of(Category.CPU_OP) & ops.links.inside)
    if not len(rows):
        return
    spent_us = min(price.spent_us(rows), price.measured_us(_ON_TENSORS))
    instead_us = _in_fp32_us(price, flops / ops.steps.count, settings.threads or 1)
    saving = price.long_ops((spent_us, spent_us), _ON_TENSORS, _HOW, instead_us=instead_us)
    if saving.low_us < min_share * price.scale.step_us:
        return
    first, calls = first_line(lines, rows), len(rows) / ops.steps.count
    yield Finding(
        message=(
            f"Matrix products and convolutions run in 16 bits{place(first)}, {count(calls)} in each step, on a "
            f"processor without instructions for that: {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=first_of(set_at(settings, "autocast"), (first,) if first else ()),
        facts={"calls": calls, "spent_us": spent_us, "operations": flops},
        fix=_FIX,
        claims=_ON_TENSORS,
    )


def _on_old_gpu(price: Price, settings: Settings, lines: Lines | None, spent_us: float) -> Finding:
    """Products in bf16 on a GPU whose tensor cores have none; what fp16 would save is not known."""
    ops, name = price.ops, price.ops.device.name or "GPU"
    rows, _ = in_sixteen_bits(ops.events, ops.nesting, ops.events.of(Category.CPU_OP) & ops.links.inside)
    first = first_line(lines, rows) if len(rows) else None
    return Finding(
        message=(
            f"Matrix products and convolutions run in bf16{place(first)}, for which the {name} has no tensor cores: "
            f"{each_step(price, spent_us)}. It has them for fp16."
        ),
        saving=None,
        where=first_of(set_at(settings, "autocast"), (first,) if first else ()),
        facts={"spent_us": spent_us},
        fix=_FP16,
        claims=("compute",),
    )


def _in_fp32_us(price: Price, flops: float, threads: int) -> tuple[float, float]:
    """(least, most) µs that so many operations take in fp32 on this machine."""
    known = price.added.calibration
    slowest = min(known.core_small_gflops.low, known.core_fp32_gflops.low)
    fastest = max(known.core_small_gflops.high, known.core_fp32_gflops.high)
    return flops / (1e3 * fastest * threads), flops / (1e3 * slowest)


_STEPS = "step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]"
_NO_INSTRUCTIONS = {"settings": {"cpu_bf16": False, "threads": 2, "cores": 2}}


def _drawn(us: float, dtype: str = "c10::BFloat16") -> Drawing:
    """Steps of products of 512 rows with matrices of 256 x 256, each of them four times so long."""
    product = Ev("aten::mm", dims=[[512, 256], [256, 256]], dtypes=[dtype] * 2)
    return draw(_STEPS, us=us, F=product, B=product)


def _on_gpu(device: str, kernel: str, dtype: str = "c10::BFloat16") -> Drawing:
    """Steps of two products on a GPU."""
    product = Ev("aten::mm", dims=[[512, 256], [256, 256]], dtypes=[dtype] * 2, launches="kernel")
    steps = _STEPS + "\ngpu 7 [K  ][K  ] [K  ][K  ]"
    return draw(steps, us=1000, device=device, F=product, B=product, K=Ev(kernel, "kernel"))


EXAMPLES = [
    Example(
        # 67 million operations take 1 to 20 ms in fp32.
        "products in bf16 on a processor without instructions for it",
        _drawn(5_000),
        facts=_NO_INSTRUCTIONS,
        saves_us=(30_000, 80_000),
        says=("16 bits", "2 in each step", "without instructions"),
    ),
    Example("the same in fp32", _drawn(5_000, "float"), facts=_NO_INSTRUCTIONS),
    Example(
        "a processor that multiplies bf16",
        _drawn(5_000),
        facts={"settings": {"cpu_bf16": True, "threads": 2, "cores": 2}},
        near_miss=True,
    ),
    Example("products that are as quick as in fp32 all the same", _drawn(100), facts=_NO_INSTRUCTIONS, near_miss=True),
    Example(
        "beside a GPU",
        draw(_STEPS + "\ngpu 7 [K  ]      [K  ]", us=100, F=Ev("aten::mm"), B=Ev("aten::mm"), K=Ev("k", "kernel")),
        facts=_NO_INSTRUCTIONS,
    ),
    Example(
        "products in bf16 on a V100, whose tensor cores multiply fp16",
        _on_gpu("V100", "gemm_bf16_128x64"),
        saves_us="unknown",
        says=("V100-SXM2-32GB has no tensor cores",),
        fixes=("float16",),
    ),
    Example("the same on an A100", _on_gpu("A100", "ampere_bf16_s16816gemm_bf16_128x64_tn"), None, near_miss=True),
    Example(
        "products in fp16 on a V100",
        _on_gpu("V100", "volta_fp16_s884gemm_fp16_128x64_nn", "c10::Half"),
        None,
        near_miss=True,
    ),
]
