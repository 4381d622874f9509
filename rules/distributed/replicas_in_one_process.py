"""One process drives several GPUs with DataParallel.

## What it looks at
Kernels on several devices in one process, with the ops of `torch.nn.DataParallel`: the model is broadcast, the batch
scattered and the outputs gathered in every step.

## Why it costs time
One Python interpreter launches kernels for all devices, from threads that share the GIL. The whole model is copied to
every device in each step, and all outputs and gradients are gathered on the first device: the others wait for it.

## How to fix it
`DistributedDataParallel` with one process per device (`torchrun --nproc-per-node DEVICES train.py`): the model stays
where it is, and only gradients are sent, while the backward pass still runs.

## When to leave it
A notebook, or a few exploratory steps. With DataParallel the batch size in the script is the sum over all devices:
keep that sum when migrating.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    GEMM,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Links,
    Scale,
    Steps,
    Trace,
    draw,
    intersect,
    total,
)

from ..shared._words import of_step

# The autograd functions of torch/nn/parallel, and the nodes that they leave in the backward pass.
_OPS = ("Broadcast", "Scatter", "Gather", "ReduceAddCoalesced")
_NODES = tuple(f"evaluate_function: {name}Backward" for name in _OPS)


def check(
    trace: Trace,
    steps: Steps,
    links: Links,
    scale: Scale,
    *,
    min_device_share: float = 0.05,  # of the kernels: a device with fewer does not train
) -> Iterator[Finding]:
    events = trace.events
    host = events.of(Category.CPU_OP, Category.ANNOTATION)
    handed = host & (events.exactly(*_OPS) | events.named(*_NODES))
    kernels = events.of(Category.KERNEL) & links.inside & (events.device >= 0)
    if not handed.any() or not kernels.any():
        return
    numbers, each = np.unique(events.device[kernels], return_counts=True)
    devices = int((each >= min_device_share * each.sum()).sum())
    spans = intersect(events.covered(handed), steps.window)
    handed_us = steps.of_window_us(total(spans))
    if devices < 2 or not handed_us:
        return
    yield Finding(
        message=(
            f"One process computes on {devices} GPUs with DataParallel: broadcasting the model, scattering batches and "
            f"gathering results takes the host {of_step(scale.scaled(handed_us), scale)}."
        ),
        facts={
            "devices": devices,
            "kernels_by_device": {str(n): int(many) for n, many in zip(numbers, each, strict=True)},
            "handed_us": handed_us,
        },
        fix=Fix(
            "Use DistributedDataParallel, one process per GPU: `torchrun --nproc-per-node DEVICES train.py`",
            "numerics",
            "model = nn.DataParallel(model.cuda())",
            'dist.init_process_group("nccl")\ntorch.cuda.set_device(local_rank)\n'
            "model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])",
        ),
    )


_TWO = """
    step   [1                                  ][2                                  ]
    cpu    [P ][S ][F ]      [G ][B    ]        [P ][S ][F ]      [G ][B    ]
    cpu 2              [F ]                                 [F ]
    gpu 7           [K      ]     [K     ]               [K      ]     [K     ]
    gpu 8               [L      ]                            [L      ]
    """


def _drawn(second: dict[str, Any], *, replicas: bool = True) -> Drawing:
    names = ("Broadcast", "Scatter", "Gather") if replicas else ("aten::detach", "aten::view", "aten::t")
    broadcast, scatter, gather = (Ev(name, launches="") for name in names)
    kernel = Ev(GEMM.name, GEMM.cat, args=second)
    return draw(_TWO, us=1000, P=broadcast, S=scatter, G=gather, L=kernel)


EXAMPLES = [
    Example("two devices in one process", _drawn({"device": 1}), saves_us="unknown", says=("on 2 GPUs", "12 ms")),
    Example("DataParallel over a single device", _drawn({"device": 0}), near_miss=True),
    Example("two devices, each with layers of its own", _drawn({"device": 1}, replicas=False)),
]
