"""Large matrix multiplications run in 16 bits on a device that supports fp8.

## What it looks at
Matrix multiplications in bf16 or fp16 of which all three sizes are 4,096 and more, in steps with a backward pass, on a
device whose data sheet gives a rate for fp8. Steps that already use fp8 are not reported.

## Why it costs time
The tensor cores of these devices multiply fp8 numbers at twice the rate. The cost of converting counts against it: each
operand is read, measured for its scale and written again.

## How to fix it
torchao converts the linear layers of a model: `convert_to_float8_training(model)`, then `torch.compile`, which fuses
the conversions with the ops before and after them; without it they cost more than fp8 saves. Leave the last layer, and
layers of small sizes, in 16 bits. Then compare the loss curve of a few thousand steps with the current one.

## When to leave it
Short trainings, whose loss cannot be observed long enough; models whose sizes are not multiples of 16; networks that
are limited by something else. PyTorch's own measurements (Llama 3 of 8 billion parameters, eight H100s) report 1.1 to
1.25 times the tokens per second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from advisor.api import (
    SYNC,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Hardware,
    KernelWork,
    Lines,
    Phases,
    Price,
    WorkGroup,
    draw,
)

from ..shared._roofline import saved_us, scaled, shape_words, spent_us
from ..shared._words import each_step

_SIXTEEN = ("bf16", "fp16")
# Ops that multiply in fp8: who calls them has made the choice.
_EIGHT = ("aten::_scaled_mm", "aten::_scaled_grouped_mm", "te_gemm")
# A factor is read twice in 16 bits, for its scale and to be converted, and written once in 8.
_BYTES_A_NUMBER = 2 + 2 + 1


def check(
    price: Price,
    phases: Phases,
    work: KernelWork,
    lines: Lines | None,
    *,
    min_size: int = 4096,  # below, conversions cost what fp8 saves: PyTorch measured no gain in layers of 4,096
    min_share: float = 0.10,  # of the step: another number format changes the training, not worth trying for less
) -> Iterator[Finding]:
    events, steps, scale = price.ops.events, price.ops.steps, price.scale
    if not work.hardware.fp8_tflops or not work.hardware.half_tflops:
        return
    if not len(phases.backward) or events.named(*_EIGHT)[events.of(Category.CPU_OP)].any():
        return
    large = [group for group in work.groups if _least_size(group) >= min_size]
    kept = [(group.kernels, _kept(group, work.hardware)) for group in large]
    most_us = min(saved_us(price, kept), price.measured_us(("compute",)))
    if most_us < min_share * steps.step_us:
        return
    taken_us = spent_us(price, large)
    how = "high: fp8's rate, minus converting the operands at memory bandwidth; low: nothing, until it is measured"
    saving = price.saving([], scaled(kept), ("compute",), how, model_us=(0.0, most_us))
    if saving.high_us < min_share * scale.step_us:
        return
    costliest = large[0]
    where = lines.where_op(int(costliest.rows[0])) if lines else None
    yield Finding(
        message=(
            f"Matrix multiplications of {min_size:,} and more in every size run in {costliest.precision} and take "
            f"{each_step(price, taken_us)}, "
            f"{shape_words(costliest)} most of it; the {work.hardware.model} multiplies fp8 at "
            f"{work.hardware.fp8_tflops / work.hardware.half_tflops:.2g} times that rate."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"products_us": taken_us, "saved_us": most_us, "shapes": [shape_words(group) for group in large[:3]]},
        fix=_FIX,
        claims=("compute",),
        at_most="medium",  # what is left after the conversions, and what the loss says, only a measurement tells
    )


def _least_size(group: WorkGroup) -> int:
    """The smallest of the three sizes of a product in 16 bits; 0 for anything else, batches of products included."""
    if group.kind != "product" or group.precision not in _SIXTEEN:
        return 0
    shapes = [one for one in json.loads(group.dims) if isinstance(one, list) and len(one) == 2]
    return min((int(size) for one in shapes[-2:] for size in one), default=0) if len(shapes) >= 2 else 0


def _kept(group: WorkGroup, hardware: Hardware) -> float:
    """The share of their time that these products keep in fp8, the conversion of both factors included."""
    faster = (hardware.half_tflops or 0.0) / (hardware.fp8_tflops or 1.0)
    shapes = [one for one in json.loads(group.dims) if isinstance(one, list) and len(one) == 2][-2:]
    numbers = sum(rows * columns for rows, columns in shapes)
    converting_us = numbers * _BYTES_A_NUMBER / (hardware.bandwidth_gbs or 1.0) / 1e3
    return min(1.0, faster + converting_us * group.calls / group.us) if group.us else 1.0


_FIX = Fix(
    "Train the large linear layers in fp8",
    "numerics",
    "model = model.to(device)",
    "from torchao.float8 import convert_to_float8_training\n\n"
    "model = convert_to_float8_training(\n"
    '    model.to(device), module_filter_fn=lambda module, name: "lm_head" not in name\n'
    ")\n"
    "model = torch.compile(model)",
)

_STEPS = """
    step   [1                       ][2                       ]
    cpu    [A][B  ][S              ] [A][B  ][S              ]
    gpu 7   [K        ][L    ]        [K        ][L    ]
    """
_KERNEL = Ev("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN", "kernel")
_OTHER = Ev("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", "kernel")


def _drawn(rows: int, dtype: str = "c10::BFloat16", device: str = "H100", op: str = "aten::mm") -> Drawing:
    product = Ev(op, dims=[[rows, 8192], [8192, 8192]], dtypes=[dtype] * 2)
    return draw(_STEPS, us=200, device=device, A=product, S=SYNC, K=_KERNEL, L=_OTHER)


EXAMPLES = [
    Example(
        # 2.2e12 operations take 2.22 ms at the peak of an H100, drawn as 2.2 ms of a step of 5.2 ms; converting
        # 201 million numbers moves 1 GB, 0.3 ms.
        "a layer of 8,192 in bf16 on an H100",
        _drawn(16384),
        saves_us=(0, 850),
        says=("H100", "2 times that rate", "bf16"),
    ),
    Example("a few rows", _drawn(256), near_miss=True),
    Example("the same on an A100, which has no fp8", _drawn(16384, device="A100"), near_miss=True),
    Example("products in fp8 already", _drawn(16384, op="aten::_scaled_mm"), near_miss=True),
    Example(
        "the same without a backward pass: fp8 is another matter there",
        draw(
            _STEPS,
            us=200,
            device="H100",
            A=Ev("aten::mm", dims=[[16384, 8192], [8192, 8192]], dtypes=["c10::BFloat16"] * 2),
            B=Ev("aten::where"),
            S=SYNC,
            K=_KERNEL,
            L=_OTHER,
        ),
        near_miss=True,
    ),
    Example("fp32 products, which another rule looks at", _drawn(16384, "float")),
]
