"""Weights that stay on the host and come to the device layer by layer, each time they are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.api import TO_BLOCKING, Category, Drawing, Ev, Fix, Ints, Price, draw

# A batch comes in one or two pieces at the start of a step, and labels perhaps later: between this many kernels come
# the weights of layers. Masks and tables that are made on the host are smaller than all of these are together.
_LAYERS, _BYTES = 16, 100 << 20

# diffusers and accelerate have both forms of offloading; a whole model comes once for each run of the pipeline.
KEEP_WEIGHTS = Fix(
    "Keep the weights on the GPU, or offload whole models rather than layers",
    "exact",
    "pipe.enable_sequential_cpu_offload()",
    'pipe.to("cuda")  # if they fit; else pipe.enable_model_cpu_offload()\n'
    'model = AutoModel.from_pretrained(name, device_map={"": 0})  # Transformers, instead of device_map="auto"',
)


def come_by_layer(price: Price, copies: Ints) -> bool:
    """Whether these copies to the device bring much between many kernels of each step."""
    events, steps = price.ops.events, price.ops.steps
    if events.bytes[copies].sum() < _BYTES * steps.count:
        return False
    kernels = np.flatnonzero(events.of(Category.KERNEL) & price.ops.links.inside)
    works = np.concatenate((copies, kernels))
    order = np.argsort(events.start_ns[works], kind="stable")
    is_copy = order < len(copies)
    return bool((is_copy[:-1] & ~is_copy[1:]).sum() >= _LAYERS * steps.count)


def drawn(layers: int, *, back: bool = False) -> Drawing:
    """For examples: two passes through so many layers, each of which copies 8 MB to the device before it runs.

    back: and as much to the host before that, as what is offloaded and comes again
    """
    cpu, gpu, other = "[T ][F ]  ", " [C ][K  ]", ""
    if back:
        cpu, gpu, other = f"[U ]{cpu}", f"    {gpu}", " [B ]" + " " * 9
    columns = len(cpu) * layers
    lines = (
        ("step   ", f"[1{' ' * (columns - 3)}] "),
        ("cpu    ", cpu * layers + " "),
        ("gpu 7  ", gpu * layers + " "),
        *([("gpu 9  ", other * layers + " ")] if back else []),
    )
    more: dict[str, Any] = (
        {"U": TO_BLOCKING, "B": Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=8 << 20)} if back else {}
    )
    return draw(
        "\n".join(head + one * 2 for head, one in lines),
        us=1000,
        T=TO_BLOCKING,
        C=Ev("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=8 << 20),
        **more,
    )
