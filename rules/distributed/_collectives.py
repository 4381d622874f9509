"""The lines that make the communication of data-parallel ranks shorter, or let it begin earlier."""

from __future__ import annotations

import numpy as np

from advisor.api import AUTOGRAD_NODE, Category, Fix, Ints, Library, Price, RankRecord, Treatment

from ._libraries import DEFAULT_BUCKETS, HARDLY, UNDIVIDED, Kind, data_fix

# From here on a step has more collectives than a large model has buckets of 25 MB (1.25 GB of gradients).
MANY = 50


def fewer_bytes(
    price: Price, record: RankRecord | None, library: Library, rows: Ints, talk: tuple[float, float | None, float]
) -> Fix | None:
    """What makes the communication of this step shorter: overlap, fewer collectives, larger buckets, fewer bytes.

    rows: its events
    talk: collectives per step, their bytes (None where not stated), the share of their time that computation covers
    """
    calls, bytes_, hidden = talk
    known = (record.settings.ddp if record else None) or {}
    bucket = float(known.get("bucket_cap_bytes") or _DEFAULT_BUCKET)
    if library.name == "ddp" and price.on_device and hidden < HARDLY and calls > 1 and _one_backward_graph(price, rows):
        return UNDIVIDED
    if library.name == "ddp" and bytes_ is not None and bytes_ / max(calls, 1.0) < bucket / 2 and calls > 1:
        return Fix(
            "Set a larger `bucket_cap_mb`, for fewer and larger reductions",
            "numerics",
            "DistributedDataParallel(model)",
            f"DistributedDataParallel(model, bucket_cap_mb={bucket * 4 / 2**20:.0f}, gradient_as_bucket_view=True)",
            Treatment("ddp", {"bucket_cap_mb": round(bucket * 4 / 2**20), "gradient_as_bucket_view": True}),
        )
    if library.name == "ddp" and price.on_device and hidden < HARDLY and _all_in_one(calls, bytes_):
        return DEFAULT_BUCKETS
    kind: Kind = "many" if calls >= MANY else "in backward" if _in_backward(price, rows) else "other"
    return data_fix(price.ops.trace, library, price.on_device, hidden, kind)


# DistributedDataParallel's `bucket_cap_mb` is 25 unless it is given.
_DEFAULT_BUCKET = 25 << 20
# torch/nn/parallel/distributed.py: the first bucket has 1 MB, so that its reduction begins early; all others are one.
_IN_ONE = 2


def _all_in_one(calls: float, bytes_: float | None) -> bool:
    """Whether gradients that fill many buckets travel in one, which is complete when the backward pass is over."""
    return calls <= _IN_ONE and bytes_ is not None and bytes_ > 2 * _IN_ONE * _DEFAULT_BUCKET


_NODE, _COMPILED = AUTOGRAD_NODE, "CompiledFunctionBackward"
# Another graph, such as that of a loss or of an embedding that is not compiled, has gradients of its own.
_NEARLY = 4 / 5


def _one_backward_graph(price: Price, talks: Ints) -> bool:
    """Whether one compiled node launches nearly all of a backward pass: autograd calls hooks when it ends."""
    events, links, steps = price.ops.events, price.ops.links, price.ops.steps
    kernels = np.flatnonzero(events.of(Category.KERNEL) & links.inside & (links.launch >= 0))
    kernels = np.setdiff1d(kernels, talks)
    nodes = events.named(_NODE)
    node = price.ops.nesting.ancestor_of(links.launch[kernels], nodes)
    spent = np.bincount(node[node >= 0], events.dur_ns[kernels[node >= 0]], len(events))
    compiled = np.flatnonzero(nodes & events.named(_COMPILED) & (spent > 0))
    step = steps.step_of(events.start_ns[compiled])
    largest = np.zeros(steps.count)
    np.maximum.at(largest, step[step >= 0], spent[compiled[step >= 0]])
    return bool(largest.sum() > _NEARLY * spent.sum() > 0)


def _in_backward(price: Price, talks: Ints) -> bool:
    """Whether hooks launch these kernels: a loop behind the backward pass begins when the last gradient is computed."""
    events, links, steps = price.ops.events, price.ops.links, price.ops.steps
    launches = links.launch[talks]
    talks, launches = talks[launches >= 0], launches[launches >= 0]
    nodes = np.flatnonzero(events.named(_NODE))
    step = steps.step_of(events.start_ns[nodes])
    last = np.full(steps.count, np.iinfo(np.int64).min)
    np.maximum.at(last, step[step >= 0], events.start_ns[nodes[step >= 0]])
    mine = steps.step_of(events.start_ns[launches])
    before = (mine >= 0) & (events.start_ns[launches] < last[mine])
    spent = events.dur_ns[talks]
    return bool(spent[before].sum() > HARDLY * spent.sum() > 0)
