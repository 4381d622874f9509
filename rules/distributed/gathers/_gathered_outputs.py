"""Outputs of a model that all ranks give to each other in steps that do not train: an evaluation."""

from __future__ import annotations

from advisor.api import (
    AUTOGRAD_NODE,
    BACKWARD,
    NCCL,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Price,
    draw,
    edits,
)

_MOSTLY = 0.5
_CLAIMS = ("exposed_communication",)
_TRAINS = (AUTOGRAD_NODE, "CompiledFunctionBackward", "Optimizer.step#")
_HOW = "low: nothing, if all outputs are needed; high: each rank reduces its own, and next to nothing is gathered"
# Transformers' Trainer, `preprocess_logits_for_metrics`: "called to preprocess the logits before they are returned to
# the evaluation loop"; accelerate, `gather_for_metrics`.
_REDUCE_FIRST = Fix(
    "Reduce outputs on each rank to what the metric needs, before they are gathered",
    "exact",
    "logits, labels = accelerator.gather_for_metrics((model(x), y))\nmetric.update(logits.argmax(1), labels)",
    "metric.update(model(x).argmax(1), y)  # on each rank; torchmetrics reduces its counts in compute()\n"
    "# Trainer(preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(1)) gathers classes, no logits",
)


def gathers_outputs(price: Price, rows: Ints) -> bool:
    """Whether most of the time of these collectives is that of gathers, in steps without a backward pass or update."""
    events = price.ops.events
    if not len(rows) or events.named(*_TRAINS).any() or not events.of(Category.CPU_OP).any():
        return False
    spent, gathers = events.dur_ns[rows], events.named("AllGather", "all_gather", "allgather")[rows]
    return bool(spent[gathers].sum() > _MOSTLY * spent.sum() > 0)


def of_outputs(found: Finding, price: Price, rows: Ints, exposed_us: float) -> Finding:
    """The finding about these collectives with what shortens an evaluation."""
    gone = [edits.remove(rows)]
    saving = price.saving([], gone, _CLAIMS, _HOW, model_us=(0.0, exposed_us), bound_us=exposed_us)
    return Finding(
        message=f"{found.message.removesuffix('.')}; these steps do not train: ranks gather what the model returns.",
        saving=saving,
        facts=found.facts,
        fix=_REDUCE_FIRST,
        claims=found.claims,
        at_most="medium",  # what the metric needs of the outputs, no trace tells
    )


def _evaluated(then: str | Ev) -> Drawing:
    return draw(
        """
        step   [1                             ][2                             ]
        cpu    [F ][B  ][A ]                   [F ][B  ][A ]
        gpu 7   [K    ][K    ]                  [K    ][K    ]
        gpu 20                [N        ]                     [N        ]
        """,
        us=1000,
        world_size=2,
        F="aten::linear",
        B=then,
        A=Ev("c10d::_allgather_base_", launches="collective"),
        N=Ev(
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "kernel",
            args=NCCL.args | {"Collective name": "_allgather_base"},
        ),
    )


OUTPUTS = [
    Example(
        "an evaluation whose ranks gather logits",
        _evaluated("aten::linear"),
        saves_us=(0, 11000),
        says=("these steps do not train",),
        fixes=("preprocess_logits_for_metrics",),
    ),
    Example(
        "the same gathers in steps that train, which may be of anything",
        _evaluated(BACKWARD),
        saves_us=(0, 11000),
        fixes=("DistributedDataParallel",),
    ),
]
