"""Weights that stay on the host and come to the device layer by layer, each time they are used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import FORWARD, GEMM, TO_BLOCKING, Category, Drawing, Ev, Fix, Price, draw

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


def come_by_layer(price: Price, copies: npt.NDArray[np.int64]) -> bool:
    """Whether these copies to the device bring much between many kernels of each step."""
    events, steps = price.ops.events, price.ops.steps
    if events.bytes[copies].sum() < _BYTES * steps.count:
        return False
    kernels = np.flatnonzero(events.of(Category.KERNEL) & price.ops.links.inside)
    works = np.concatenate((copies, kernels))
    order = np.argsort(events.start_ns[works], kind="stable")
    is_copy = order < len(copies)
    return bool((is_copy[:-1] & ~is_copy[1:]).sum() >= _LAYERS * steps.count)


def drawn(layers: int) -> Drawing:
    """For examples: two passes through so many layers, each of whose weights of 8 MB come before it runs."""
    columns = 10 * layers
    lines = (
        ("step   ", f"[1{' ' * (columns - 3)}] "),
        ("cpu    ", "[T ][F ]  " * layers + " "),
        ("gpu 7  ", " [C ][K  ]" * layers + " "),
    )
    return draw(
        "\n".join(head + one * 2 for head, one in lines),
        us=1000,
        T=TO_BLOCKING,
        C=Ev("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=8 << 20),
        F=FORWARD,
        K=GEMM,
    )
