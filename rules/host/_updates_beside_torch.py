"""Updates of weights that code of a library computes on the host, beside PyTorch's ops: offloaded optimizers."""

from __future__ import annotations

from advisor.api import (
    AUTOGRAD_NODE,
    Category,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Intervals,
    Price,
    draw,
    edits,
    intersect,
    starts_in,
    subtract,
    total,
)

from ..shared._words import each_step

_STEP = "Optimizer.step#"
# An optimizer of PyTorch launches its next work within microseconds.
_LONG_NS = 1_000_000


def updates_beside_torch(price: Price, others: Intervals) -> Intervals:
    """Stretches of at least a millisecond in an optimizer's step in which the host works and the device is idle.

    others: times that are told by other causes. None where an optimizer calls the model itself, as L-BFGS does.
    """
    events = price.ops.events
    stepping = events.covered(events.of(Category.ANNOTATION) & events.named(_STEP))
    nodes = events.named(AUTOGRAD_NODE)
    if starts_in(events.start_ns[nodes], stepping).any():
        return stepping[:0]
    spans = subtract(intersect(price.breakdown.intervals["idle_host"], stepping), others)
    return spans[spans[:, 1] - spans[:, 0] >= _LONG_NS]


def updating(price: Price, spans: Intervals) -> Finding:
    """What these stretches cost."""
    us = price.ops.steps.per_step_us(total(spans))
    gone = edits.remove_time(spans)
    how = "low: its states do not fit on the GPU; high: the update takes no time of the host"
    return Finding(
        message=(
            f"The GPU is idle for {each_step(price, us)} while `{_name(price.ops.events, spans)}` updates weights on "
            "the host."
        ),
        saving=price.saving([], [gone], ("idle_host",), how, model_us=(0.0, us), bound_us=us),
        facts={"idle_us": us, "longest_us": float((spans[:, 1] - spans[:, 0]).max()) / 1e3},
        fix=_ON_THE_GPU,
        claims=("idle_host",),
    )


def _name(events: Events, spans: Intervals) -> str:
    """The optimizer whose steps hold most of these stretches."""
    names = [text for text in events.names if text.startswith(_STEP)]
    held = {text: total(intersect(spans, events.covered(events.exactly(text)))) for text in names}
    return max(names, key=lambda text: held[text]).removeprefix(_STEP).partition(".")[0]


# deepspeed.ai/docs/config-json: offload_optimizer; its `ratio` leaves a part on the GPU.
_ON_THE_GPU = Fix(
    "Keep the optimizer's states on the GPU",
    "numerics",
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}',
    '"zero_optimization": {"stage": 2}  # if the states fit: 12 bytes for each parameter, divided by the ranks',
)

UPDATES_BESIDE_TORCH = Example(
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
)
