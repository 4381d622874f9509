"""The finding about broadcasts that wait for the rank that sends, and what a step sends without them.

Where each line is documented:

- accelerate: accelerate.utils.DataLoaderConfiguration (`dispatch_batches`: the main process iterates the DataLoader,
  and broadcasts; the default for an `IterableDataset`), accelerate.Accelerator (`dataloader_config`). Without it a
  data set of Hugging Face with as many shards as ranks is divided by shards, and of any other each rank reads all and
  keeps its part (accelerate/data_loader.py, prepare_data_loader).
- transformers: TrainingArguments (`accelerator_config`).
- datasets: datasets.distributed.split_dataset_by_node.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec.structs import replace

from advisor.api import Callers, Finding, Fix, Lines, Price, Source, data_size, duration, edits

from ...shared._words import each_step, often
from .._data_parallel import Side

_HOW = "low: nothing, if the ranks then wait for their own batches instead; high: all of the waiting"
_DISPATCHED = Fix(
    "Set `dispatch_batches=False`, so that each rank reads its own batches, with `num_workers` in its DataLoader",
    "draws",
    "accelerator = Accelerator()\nloader = DataLoader(dataset, batch_size=batch_size)",
    "accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False))\n"
    '# Trainer: TrainingArguments(..., accelerator_config={"dispatch_batches": False})\n'
    "# a stream of Hugging Face is divided by its shards, if it has as many as ranks; of another each rank reads all\n"
    "loader = DataLoader(dataset, batch_size=batch_size, num_workers=4)",
)
_OWN_PART = Fix(
    "Let each rank prepare what it needs, such as its own part of the data, instead of one rank for all",
    "draws",
    "batch = next(batches) if rank == 0 else None\ndist.broadcast_object_list(holder, src=0)",
    "loader = DataLoader(dataset, sampler=DistributedSampler(dataset), num_workers=4)\n"
    "# a stream: split_dataset_by_node(dataset, rank, world_size), of datasets.distributed",
)
_SELDOM = Fix(
    "Do on each rank, or every hundred steps, what only the rank that sends does before the broadcast",
    "semantics",
    "if rank == 0:\n    value.fill_(decide())\ndist.broadcast(value, src=0)",
    "if step % 100 == 0:\n    if rank == 0:\n        value.fill_(decide())\n    dist.broadcast(value, src=0)",
)


def finding(callers: Callers, price: Price, lines: Lines | None, min_share: float) -> Finding | None:
    """What the device waits for, and what lets it wait less; None where it hardly waits."""
    roots = callers.late
    if roots.usual_us < min_share * price.ops.steps.step_us:
        return None
    batches = " It sends the batches of all ranks, as accelerate does with `dispatch_batches`." * roots.dispatched
    took_us = float(np.median(price.ops.events.dur_ns[roots.rows])) / 1e3
    shorter = [edits.scale(roots.rows, min(roots.needs_us / took_us, 1.0))]
    return Finding(
        message=(
            f"In `broadcast` the GPU waits for the rank that sends: {each_step(price, roots.usual_us)}. "
            f"{often(roots.calls).capitalize()} one of {data_size(roots.bytes)} takes {duration(took_us)}, where "
            f"another collective of these ranks with at least as many bytes takes {duration(roots.needs_us)}.{batches}"
        ),
        saving=price.saving(
            [], shorter, ("exposed_communication",), _HOW, model_us=(0.0, roots.usual_us), bound_us=roots.usual_us
        ),
        where=_asked_at(callers, lines),
        facts={
            "waited_us": roots.usual_us,
            "collectives": roots.calls,
            "bytes": roots.bytes,
            "needs_us": roots.needs_us,
            "dispatched": roots.dispatched,
        },
        fix=_DISPATCHED if roots.dispatched else _SELDOM if roots.reads else _OWN_PART,
        claims=("exposed_communication",),
    )


def _asked_at(callers: Callers, lines: Lines | None) -> tuple[Source, ...]:
    """The line of the script that asks for most of them."""
    ops = callers.late.ops.tolist() if lines is not None else []
    known = Counter(found for op in ops if lines is not None and (found := lines.where_op(op)) is not None)
    return tuple(line for line, _ in known.most_common(1))


def others_of(side: Side, callers: Callers) -> Side:
    """What is left of data-parallel ranks' collectives without these broadcasts."""
    roots = callers.late
    return replace(
        side,
        rows=np.setdiff1d(side.rows, roots.rows),
        us=max(side.us - roots.waited_us, 0.0),
        calls=max(side.calls - roots.calls, 0.0),
        bytes=None if side.bytes is None else max(side.bytes - roots.calls * roots.bytes, 0.0),
    )
