"""What goes to the host and comes back: activations that are offloaded, states of an optimizer; never a batch."""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor.api import AUTOGRAD_NODE, TO_BLOCKING, Category, Ev, Fix, Price, draw

ACTIVATIONS = Fix(
    "Keep activations on the GPU if they fit, else offload them to pinned memory on a stream of its own",
    "exact",
    "with torch.autograd.graph.save_on_cpu():\n    loss = criterion(model(x), y)",
    "loss = criterion(model(x), y)  # if memory allows, for all layers or for some\n"
    "# else save_on_cpu(pin_memory=True), which still copies between the kernels; beside them: torchtune's\n"
    "# OffloadActivations(use_streams=True)",
)
_STATES = Fix(
    "Leave on the GPU what goes to the host and back, or copy it by pinned memory on a stream of its own",
    "exact",
    "kept = state.cpu()\nstate = kept.to(device)",
    'kept = torch.empty_like(state, device="cpu", pin_memory=True)  # once\ncopies = torch.cuda.Stream()  # once\n'
    "copies.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(copies):\n"
    "    kept.copy_(state, non_blocking=True)  # weights that did not change need no copy back",
)
# Copies of this size and less are values that are read.
SMALL_BYTES = 64 << 10


def round_trip(price: Price) -> Fix | None:
    """The change where most of what is copied goes to the host and comes back, copy by copy of one size; else None.

    Activations come back in the backward pass.
    """
    events, links = price.ops.events, price.ops.links
    copies = events.of(Category.MEMCPY) & links.inside & (events.bytes > SMALL_BYTES)
    down, up = (np.flatnonzero(copies & events.named(way)) for way in ("DtoH", "HtoD"))
    sent, back = (Counter(events.bytes[rows].tolist()) for rows in (down, up))
    both = sum(size * number for size, number in (sent & back).items())
    if not both or 2 * both < max(sum(size * number for size, number in one.items()) for one in (sent, back)):
        return None
    return ACTIVATIONS if _in_backward(price, up) else _STATES


def _in_backward(price: Price, rows: np.ndarray) -> bool:
    """Whether most of these copies are launched between the first and the last node of their step's backward pass."""
    events, steps = price.ops.events, price.ops.steps
    nodes = np.flatnonzero(events.named(AUTOGRAD_NODE))
    step = steps.step_of(events.start_ns[nodes])
    call = price.ops.links.launch[rows]
    called_ns = events.start_ns[call[call >= 0]]
    inside = 0
    for number in range(steps.count):
        mine = nodes[step == number]
        if len(mine):
            first, last = events.start_ns[mine].min(), events.end_ns[mine].max()
            inside += int(((called_ns >= first) & (called_ns <= last)).sum())
    return 2 * inside > len(rows)


# For examples: a forward pass whose activations go to the host, and two backward nodes around their way back.
OFFLOADED = draw(
    """
    step   [1                                   ][2                                   ]
    cpu    [F ][T     ][B ][T     ][B ]          [F ][T     ][B ][T     ][B ]
    gpu 7   [K ]        [K ]        [K     ]      [K ]        [K ]        [K     ]
    gpu 7       [D   ]      [U   ]                    [D   ]      [U   ]
    """,
    us=1000,
    T=TO_BLOCKING,
    D=Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=32 << 20),
    U=Ev("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=32 << 20),
)
