"""Updates of weights that code of a library computes on the host, beside PyTorch's ops: offloaded optimizers."""

from __future__ import annotations

import numpy as np

from advisor.api import (
    Category,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Intervals,
    Price,
    data_size,
    draw,
    edits,
    intersect,
    starts_in,
    total,
)

from ..shared._host_updates import STEP, HostUpdate, offloaded
from ..shared._words import each_step


def updating(price: Price, update: HostUpdate) -> Finding:
    """What these updates cost, with the copies and waits that go with them."""
    us = price.ops.steps.per_step_us(total(update.spans))
    more_us = max(update.idle_us(price) + update.copying_us(price) - us, 0.0) if len(update.copies) else 0.0
    how = "low: its states do not fit on the GPU; high: the update takes no time of the host"
    name = _name(price.ops.events, update.spans)
    said = f"The GPU is idle for {each_step(price, us)} while `{name}` updates weights on the host."
    if more_us:
        how += ", and neither gradients nor weights are copied"
        size = data_size(update.bytes / price.ops.steps.count)
        said += (
            f" Gradients go there and weights come back, {size} a step: copies, waits and what the host does "
            f"for them take another {each_step(price, more_us)} in which no kernel runs."
        )
    return Finding(
        message=said,
        saving=price.saving(
            [], _gone(price, update), ("idle_host",), how, model_us=(0.0, us + more_us), bound_us=us + more_us
        ),
        facts={
            "idle_us": us,
            "longest_us": float((update.spans[:, 1] - update.spans[:, 0]).max()) / 1e3,
            **({"copied_bytes": update.bytes / price.ops.steps.count, "copies_us": more_us} if more_us else {}),
        },
        fix=_ON_THE_GPU,
        claims=("idle_host", *(("exposed_copy",) if more_us else ())),
    )


def _gone(price: Price, update: HostUpdate) -> list[edits.Edit]:
    """Neither the host's time nor copies and waits are left."""
    events = price.ops.events
    calls = np.flatnonzero(events.of(Category.RUNTIME) & events.named("Synchronize"))
    waits = calls[starts_in(events.start_ns[calls], update.waiting)]
    gone = [edits.remove_time(update.around)]
    gone += [edits.remove(update.copies)] if len(update.copies) else []
    return [*gone, edits.unsync(waits)] if len(waits) else gone


def _name(events: Events, spans: Intervals) -> str:
    """The optimizer whose steps hold most of these stretches."""
    names = [text for text in events.names if text.startswith(STEP)]
    held = {text: total(intersect(spans, events.covered(events.exactly(text)))) for text in names}
    return max(names, key=lambda text: held[text]).removeprefix(STEP).partition(".")[0]


# deepspeed.ai/docs/config-json: offload_optimizer; its `ratio` leaves a part on the GPU.
_ON_THE_GPU = Fix(
    "Keep the optimizer's states on the GPU",
    "numerics",
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}',
    '"zero_optimization": {"stage": 2}  # if the states fit: 12 bytes for each parameter, divided by the ranks\n'
    '# if they do not: "offload_optimizer": {"device": "cpu", "pin_memory": true}, and more batches for each update',
)

UPDATES_BESIDE_TORCH = [
    Example(
        "an offloaded optimizer, whose step no op shows",
        draw(
            """
        step   [1                            ][2                            ]
        cpu    [F ][B ][Z ]  [O           ]   [F ][B ][Z ]  [O           ]
        gpu 7   [K ][K     ]                   [K ][K     ]
        """,
            us=1000,
            Z=Ev("aten::_local_scalar_dense"),
            O=Ev("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation"),
        ),
        saves_us=(0, 15_000),
        says=("`DeepSpeedCPUAdam` updates weights on the host",),
        fixes=("Keep the optimizer's states on the GPU",),
    ),
    Example(
        "the same, with the copies and waits that go with it",
        offloaded(),
        saves_us=(0, 42_000),
        says=(
            "`DeepSpeedCPUAdam` updates weights on the host",
            "Gradients go there and weights come back, 101 MB a step",
        ),
        fixes=("Keep the optimizer's states on the GPU",),
    ),
    Example(
        "what comes to the GPU behind the update is no weights: another matter",
        offloaded(85 << 20),
        saves_us=(0, 20_000),
        says=("updates weights on the host.",),
    ),
]
