"""Findings about communication that is not of data-parallel ranks: what it is for, and what shortens it."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.api import Finding, Fix, Ints, KindOfTalk, Library, Price, RankRecord, Saving, data_size, duration, edits

from ..shared._places import set_at
from ..shared._words import count, percent
from ._libraries import (
    ACCUMULATE_FSDP2,
    HARDLY,
    KEEP_FSDP1,
    KEEP_PARAMETERS,
    PREFETCH_FORWARD,
    exchange_fix,
    experts_fix,
    sharded_fix,
)
from .gathers.late_shard_gathers import gathers_late
from .waiting._late_ranks import FIND_IT, Late, instead

# What else is said of these kinds. How the stages of a pipeline fill and drain is a rule's of its own, which needs the
# traces of all of them. Buffers are those of buffer-broadcasts, norms those of _synchronized_norms.
WORDS = {
    "stages": "with other stages of the pipeline",
    "tensor": "for layers that are split over {ranks}",
    "context": "for sequences that are split over {ranks}",
    "experts": "with experts on other ranks",
    "exchanged": "to exchange {what} between all ranks",
    "sharded": "to gather and reduce shards of the model",
}
_FIND_TABLES = replace(
    FIND_IT,
    title="Find the rank that joins late, or has the tables most asked for: record all ranks, and analyse their traces",
)
# All ranks send to all: one that is late, or has most to send, is what the others wait for.
_EXCHANGES = ("exchanged", "experts")
# Parameters that stay between forward and backward pass are gathered once instead of twice, beside one reduction.
_GATHERED_ONCE = 1 / 3
# From so many gathers for each reduction on, parameters are gathered again: between one and two.
_OFTEN = 1.5
# Of one gather and one reduction in each step, the reduction is left out in every second one.
_REDUCED_SELDOM = 1 / 4
_MOSTLY = 0.5
_MORE_PARTS = Fix(
    "Split the batch into more micro-batches, four times as many as stages; traces of all stages say what that saves",
    "numerics",
    "schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_fn)  # four stages",
    "schedule = Schedule1F1B(stage, n_microbatches=16, loss_fn=loss_fn)",
)
# Of a model that is one unit a step has two gathers and one reduction; fewer bytes are sent in some ms.
_OF_ONE_UNIT, _LARGE_BYTES = 3, 100e6


def said(kind: KindOfTalk, library: Library) -> str:
    """What the loop, or the device, communicates for."""
    if kind.kind == "stages" and (kind.ops < 0).all():
        # NCCL's kernel for sends and receives makes exchanges as well; who launched it is not recorded.
        return "with other ranks, by sends and receives or exchanges"
    ranks = f"{kind.ranks} ranks" if kind.ranks else "ranks"
    words = WORDS[kind.kind].format(ranks=ranks, what="embeddings" if library.tables else "numbers")
    return f"{words}, by {library.said}" if kind.kind == "sharded" else words


def finding(
    kind: KindOfTalk, others_us: float, room_us: float, price: Price, record: RankRecord | None, library: Library
) -> Finding:
    """What is exposed of one kind of parallelism, and the change that shortens that kind.

    others_us: exposed µs of gradients;  room_us: computation that nothing travels beside yet, µs; both per step.
    """
    breakdown, scale = price.breakdown, price.scale
    share, fix, how = _change(kind, others_us, room_us, price, record, library)
    saving: Saving | None = None
    if fix is not None and share > 0:
        most_us = kind.exposed_us * share
        saving = scale.saving(0.0, most_us, how)
        if breakdown.on_device:
            twice = fix is KEEP_FSDP1
            shorter = edits.remove(_second_gathers(kind, price)) if twice else edits.scale(kind.rows, 1 - share)
            saving = price.saving([], [shorter], (), how, model_us=(0.0, most_us), bound_us=most_us)
    asked = ", launched by compiled code" if kind.compiled >= _MOSTLY else ""
    found = Finding(
        message=message(price, kind.exposed_us, kind.us, kind.calls, kind.bytes, f" {said(kind, library)}", asked),
        saving=saving,
        where=set_at(record.settings, "fully_shard") if record and kind.kind == "sharded" else (),
        facts={
            "parallelism": kind.kind,
            "library": library.name,
            "exposed_us": kind.exposed_us,
            "communication_us": kind.us,
            "collectives": kind.calls,
            "bytes": kind.bytes,
            "compiled_share": kind.compiled,
            "ranks": kind.ranks,
        },
        fix=fix,
        at_most="medium" if fix else "low",
        claims=(breakdown.talking,),
    )
    late = Late.of(price, kind.rows) if kind.kind in _EXCHANGES else None
    if late is None or min(late.us, kind.exposed_us) <= kind.exposed_us / 2:
        return found
    waits = replace(instead(found, late, price, kind.exposed_us), at_most="medium")
    return replace(waits, fix=_FIND_TABLES) if library.tables and waits.fix is FIND_IT else waits


def _change(
    kind: KindOfTalk, others_us: float, room_us: float, price: Price, record: RankRecord | None, library: Library
) -> tuple[float, Fix | None, str]:
    """(share of the exposed time that goes at most, the change, what both ends of the range stand for)."""
    if kind.kind == "stages":
        return 0.0, None if (kind.ops < 0).all() else _MORE_PARTS, ""
    coverable = min(1.0, max(0.0, room_us) / kind.exposed_us)
    gathers = kind.kind == "sharded" or (kind.kind == "tensor" and not kind.sums)
    if gathers and kind.compiled >= _MOSTLY:
        how = "high: what can overlap with computation; low: if each gather waits for what comes before it"
        return coverable, _REORDERED, how
    # What is gathered and never summed may be weights as well as what layers pass on.
    if kind.kind == "tensor" and kind.sums:
        spared_us = kind.exposed_us * _spared(kind.ranks) - others_us
        how = "high: half as many ranks per layer, gradients twice as long; low: if a rank cannot hold that much"
        return max(0.0, spared_us / kind.exposed_us), _narrower(kind.ranks, record, price.on_device), how
    if kind.kind == "sharded" and not price.on_device:
        return _on_host(record, library)
    fix, share = _of_library(kind, price, record, library)
    if fix is PREFETCH_FORWARD and (again := _gathered_again(kind, price)) * kind.us > coverable * kind.exposed_us:
        # What is sent takes longer than there is computation to hide it: only less of it helps.
        fix, share = KEEP_PARAMETERS, again
    if fix is None and library.name == "fsdp1" and not gathers_late(price, record, kind.rows):
        again = _gathered_again(kind, price)
        fix, share = (KEEP_FSDP1, again) if again else (fix, share)
    return coverable if share == 1 else min(share * kind.us / kind.exposed_us, 1.0), fix, _SPARED


def _second_gathers(kind: KindOfTalk, price: Price) -> Ints:
    """The gathers of each step's backward pass, by the order of their launches: the later half of them."""
    events, links = price.ops.events, price.ops.links
    known = kind.rows[events.collective[kind.rows] >= 0]
    gather = ["gather" in events.collective_table[at].name.lower() for at in events.collective[known].tolist()]
    rows = known[np.array(gather, bool)]
    launch = links.launch[rows]
    asked_ns = np.where(launch >= 0, events.start_ns[np.maximum(launch, 0)], events.start_ns[rows])
    order = np.lexsort((asked_ns, links.step[rows]))
    rows, step = rows[order], links.step[rows][order]
    first = np.searchsorted(step, step)
    many = np.searchsorted(step, step, side="right") - first
    found: Ints = rows[2 * (np.arange(len(rows)) - first) >= many]
    return found


def _gathered_again(kind: KindOfTalk, price: Price) -> float:
    """Share of what is sent that gathers of the backward pass are; 0 where parameters stay after the forward pass.

    Then there is one gather for each reduction; else two or, where gradients of several batches are added up, more.
    """
    events = price.ops.events
    known = kind.rows[events.collective[kind.rows] >= 0]
    names = [events.collective_table[at].name.lower() for at in events.collective[known].tolist()]
    gathers, reductions = (sum(word in name for name in names) for word in ("gather", "reduce"))
    return gathers / 2 / (gathers + reductions) if gathers > _OFTEN * reductions > 0 else 0.0


def _of_library(
    kind: KindOfTalk, price: Price, record: RankRecord | None, library: Library
) -> tuple[Fix | None, float]:
    """(the change, the share of the exposed time that goes at most) where the library's own words decide."""
    if kind.kind == "exchanged":
        return exchange_fix(library)
    if kind.kind != "sharded":
        return (experts_fix(kind.ranks) if kind.kind == "experts" else None), 0.0
    return sharded_fix(price.ops.trace, library, record, _is_one_unit(kind))


def _is_one_unit(kind: KindOfTalk) -> bool:
    """Whether shards of the whole model travel at once: nothing of it can be computed meanwhile.

    It is gathered once or twice a step, and its gradients are reduced once.
    """
    exposed = kind.exposed_us >= (1 - HARDLY) * kind.us
    large = kind.bytes is not None and kind.bytes >= _LARGE_BYTES * kind.calls
    return exposed and large and kind.calls <= _OF_ONE_UNIT


def _on_host(record: RankRecord | None, library: Library) -> tuple[float, Fix | None, str]:
    """The change of a sharded model without a device."""
    if ((record.settings.fsdp if record else None) or {}).get("reshard_after_forward") is True:
        how = "high: two instead of three equal messages per layer; low: if ranks wait for each other"
        return _GATHERED_ONCE, KEEP_PARAMETERS, how
    if library.name != "fsdp2":
        return 0.0, None, ""
    return _REDUCED_SELDOM, ACCUMULATE_FSDP2, "high: half of the reductions; low: if ranks wait for each other"


_SPARED = "high: what is no longer sent, or what computation can cover; low: if ranks wait for each other"


def _spared(ranks: int | None) -> float:
    """What half as many ranks for each layer spare: the bytes of a ring, for half the samples on each rank."""
    if ranks is None or ranks <= 2:
        return 1.0
    half = ranks / 2
    return 1 - ((half - 1) / half) / ((ranks - 1) / ranks) / 2


def _narrower(ranks: int | None, record: RankRecord | None, on_device: bool) -> Fix:
    width = ranks or 2
    world = max(record.world_size if record else width, width)
    device = "cuda" if on_device else "cpu"

    def mesh(tensor: int) -> str:
        return f'mesh = init_device_mesh("{device}", ({world // tensor}, {tensor}), mesh_dim_names=("dp", "tp"))'

    return Fix(
        "Split each layer over half as many ranks, and the batch over twice as many, where memory allows",
        "numerics",
        mesh(width),
        mesh(max(width // 2, 1)),
    )


_REORDERED = Fix(
    "Let the compiler overlap communication with computation",
    "exact",
    "model = torch.compile(model)",
    "import torch._inductor.config\n\n"
    "torch._inductor.config.reorder_for_compute_comm_overlap = True\nmodel = torch.compile(model)",
)


def message(
    price: Price,
    exposed_us: float,
    total_us: float,
    calls: float,
    bytes_: float | None,
    what: str = "",
    asked: str = "",
) -> str:
    """One sentence: how long nothing but this communication goes on, how much it is, and how much of it is hidden.

    exposed_us, total_us: profiled, per step.
    """
    on_device, said_us, share = price.on_device, price.scale.scaled(exposed_us), exposed_us / price.ops.steps.step_us
    who = "the GPU only communicates" if on_device else "the training loop only communicates"
    amount = f" of {data_size(bytes_)}" if bytes_ is not None and on_device else ""
    hidden = 1 - exposed_us / total_us if total_us else 0.0
    beside = "none" if hidden < 0.01 else percent(hidden)
    collectives = "1 collective" if calls == 1 else f"{count(calls)} collectives"
    return (
        f"For {duration(said_us)} of each step ({percent(share)}) {who}{what}: {collectives} a step{amount}{asked}, "
        f"with {beside} of their time overlapped with computation."
    )
