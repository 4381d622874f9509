"""The model runs on the CPU although an accelerator is available.

## What it looks at
Whether PyTorch sees a usable accelerator on this machine while the model's parameters are on the CPU and no device
work was recorded. Only a capture by `advisor run` knows this; a trace alone does not show it.

## Why it costs time
Matrix multiplications and convolutions run one to two orders of magnitude faster on an accelerator, as long as they are
large enough to fill it.

## How to fix it
Move the model and each batch: `device = torch.accelerator.current_accelerator()`, `model.to(device)`, `x, y =
x.to(device), y.to(device)`. Move the model before the optimizer is created.

## When to leave it
Very small models and batches: launching a kernel costs more than computing it on the CPU. An accelerator that
another job uses. The gain cannot be computed from a run on the CPU, so no saving is given.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import Device, Example, Finding, Fix, Missing, RankRecord, Scale, draw, duration


def check(record: RankRecord, device: Device, scale: Scale) -> Iterator[Finding]:
    settings = record.settings
    if device.kind not in ("none", "unknown"):
        return
    if settings.accelerator_available is None or settings.model_device is None:
        raise Missing("capture could not see whether an accelerator is usable, or where the model is")
    if not settings.accelerator_available or settings.model_device != "cpu":
        return
    name = settings.accelerator_name or "an accelerator"
    yield Finding(
        message=f"{name} is usable, but the model trains on the CPU, at {duration(scale.step_us)} a step.",
        facts={"accelerator": settings.accelerator_name, "model_device": settings.model_device},
        fix=Fix(
            "Move the model and each batch to the accelerator",
            "numerics",
            "model = Net()\nfor x, y in loader:",
            'device = torch.accelerator.current_accelerator() or "cpu"\nmodel = Net().to(device)\n'
            "for x, y in loader:\n    x, y = x.to(device), y.to(device)",
        ),
        at_most="medium",
    )


_ON_CPU = "step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]"

EXAMPLES = [
    Example(
        "a GPU stands idle",
        draw(_ON_CPU, us=1000),
        facts={"settings": {"accelerator_available": True, "accelerator_name": "NVIDIA A10", "model_device": "cpu"}},
        saves_us="unknown",
        says=("NVIDIA A10", "11 ms a step"),
    ),
    Example(
        "no accelerator in this machine",
        draw(_ON_CPU, us=1000),
        facts={"settings": {"accelerator_available": False, "model_device": "cpu"}},
        near_miss=True,
    ),
    Example(
        "a bare trace does not tell", draw(_ON_CPU, us=1000), near_miss=True, skipped="not captured by `advisor run`"
    ),
    Example(
        "the GPU is used",
        draw("step  [1        ][2        ]\ncpu   [F  ][B  ] [F  ][B  ]\ngpu 7  [K  ][K  ] [K  ][K  ]", us=1000),
        facts={"settings": {"accelerator_available": True, "model_device": "cuda"}},
    ),
]
