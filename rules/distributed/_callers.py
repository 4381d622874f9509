"""Findings about collectives by who asks for them: buckets of DDP's reducer that are too small, lines of the script."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import (
    Callers,
    CallerTime,
    CallSites,
    CollectiveRate,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    RankRecord,
    Source,
    data_size,
    duration,
)

from ..shared._places import place, set_at
from ..shared._words import count, often, percent
from .broadcasts._sent_weights import WHOLE, sharded_at

# DistributedDataParallel's own: buckets of 25 MiB, after a first one of 1 MiB.
_BUCKET_BYTES = 25 << 20
_BARRIER = "barrier"
_FORWARD = "DistributedDataParallel.forward"
_HOW_BUCKETS = (
    "low: for each saved reduction, its call and the shortest exposed time beyond its transfer; high: the longest"
)
_HOW_SHARDED = "low: nothing, as each rank then updates all parameters; high: all of the waiting"
_HOW_IN_MODEL = "low: nothing, if the model needs all of it; high: all of the waiting"
_HOW_SCRIPT = (
    "low: each takes as long as the fastest 10 % of its size, with no rank late; high: all of the waiting, if ranks do "
    "not wait for each other in the next collective instead"
)


def small_buckets(
    price: Price, callers: Callers, record: RankRecord | None, kept: float, min_share: float
) -> Finding | None:
    """Reductions of DistributedDataParallel that are more than its own buckets would need; None where they are not.

    kept: the share of them that an update needs.
    """
    reducer, rate = callers.reducer, callers.rate
    if reducer is None or rate is None or not reducer.bytes:
        return None
    needed = math.ceil(reducer.bytes / _BUCKET_BYTES) + 1
    fewer = kept * (reducer.calls - needed)
    if fewer < 1:
        return None
    call_us = float(np.median(price.ops.events.dur_ns[reducer.ops]) / 1e3)
    hidden = 1 - min(reducer.exposed_us / max(_span_us(price, reducer), 1e-9), 1.0)
    ends = (fewer * (call_us + (1 - hidden) * rate.latency_us[0]), fewer * (call_us + rate.latency_us[1]))
    low_us, high_us = (min(one, reducer.exposed_us) for one in ends)
    saving = price.scale.saving(low_us, high_us, _HOW_BUCKETS, "measured")
    if saving.high_us < min_share * price.scale.step_us:
        return None
    settings = record.settings if record else None
    known = (settings.ddp if settings else None) or {}
    cap = float(known.get("bucket_cap_bytes") or _BUCKET_BYTES)
    set_small = f", bucket_cap_mb={cap / 2**20:.2g}" if cap < _BUCKET_BYTES else ""
    title = "Leave `bucket_cap_mb` at its default of 25" if set_small else "Reduce gradients in larger buckets"
    return Finding(
        message=(
            f"DistributedDataParallel reduces gradients {often(reducer.calls)}, "
            f"{data_size(reducer.bytes / reducer.calls)} at a time, where {count(needed)} buckets of its default size "
            f"would do; each takes {_range(rate)} in addition to its transfer."
        ),
        saving=saving,
        where=(*(set_at(settings, "bucket_cap_mb") if set_small else ()), *set_at(settings, "ddp")),
        facts=_facts(reducer, rate) | {"buckets_needed": needed, "call_us": call_us, "caller": "reducer"},
        fix=Fix(
            title,
            "numerics",
            f"DistributedDataParallel(model{set_small})",
            "DistributedDataParallel(model, gradient_as_bucket_view=True)",
        ),
        claims=(price.breakdown.talking,),
    )


def of_script(
    price: Price, callers: Callers, lines: Lines | None, record: RankRecord | None, min_share: float
) -> Iterator[Finding]:
    """Collectives that lines of the script ask for beside DistributedDataParallel, each line by itself."""
    script, rate = callers.script, callers.rate
    if script is None or rate is None:
        return
    steps, scale = price.ops.steps, price.scale
    spent = price.ops.events.dur_ns[script.rows].astype(float)
    sites = CallSites.compute(price.ops.trace, lines) if lines is not None else None
    for found in _by_line(price, script, lines):
        # Lightning asks in each step whether to end, the Trainer of Transformers for a batch's tokens.
        if sites.runs_training(found.where) if sites and found.where else _may_be_of_framework(record):
            continue
        part = float(spent[found.at].sum() / max(spent.sum(), 1e-9))
        exposed_us, calls = part * script.exposed_us, len(found.at) / steps.count
        if exposed_us < min_share * steps.step_us:
            continue
        ops = script.ops[found.at]
        sharded, in_model = (_mostly_within(price, ops, row) for row in ("Optimizer.step#", _FORWARD))
        least_us = 0.0 if sharded or in_model else min(part * script.least_us, exposed_us)
        by = " in the optimizer" if sharded else " in the model's forward pass" if in_model else ""
        waits = f"only waits for it for {duration(scale.scaled(exposed_us))} of each step"
        where: tuple[Source, ...] = (found.where,) if found.where else ()
        called, fix = sites.of_lines(where) if sites else (), _fix(found.op, in_model)
        where = _places(where, called, joined=fix is _SELDOM and calls >= _SEVERAL)
        yield Finding(
            message=(
                f"`{found.op}` runs {often(calls)}{by}{place(found.where)}, in "
                f"addition to the reductions of DistributedDataParallel: the training loop {waits} "
                f"({percent(exposed_us / steps.step_us)})."
            ),
            saving=scale.saving(least_us, exposed_us, _how(sharded, in_model), "measured"),
            where=(*(sharded_at(record) if sharded else ()), *where),
            facts=_facts(script, rate) | {"exposed_us": exposed_us, "collectives": calls, "caller": "script"},
            fix=WHOLE if sharded else fix,
            claims=(price.breakdown.talking,),
        )


def _places(where: tuple[Source, ...], called: tuple[Source, ...], *, joined: bool) -> tuple[Source, ...]:
    """The line that asks, then those that call it; these first where calls are to be joined: a function cannot."""
    return (*called, *where) if joined else (*where, *called)


# Calls a step of one line from which on they can be joined.
_SEVERAL = 2


def _may_be_of_framework(record: RankRecord | None) -> bool:
    """Whether a collective at no known line may be one of the framework's loop; that of accelerate is the script's."""
    return record is not None and record.settings.framework in ("lightning", "transformers")


def _mostly_within(price: Price, ops: Ints, row: str) -> bool:
    """Whether most of these run within rows of that name: optimizers' steps share what each rank has updated."""
    within = price.ops.nesting.ancestor_of(ops, price.ops.events.named(row)) >= 0
    return 2 * int(within.sum()) > len(ops)


def _how(sharded: bool, in_model: bool) -> str:
    return _HOW_SHARDED if sharded else _HOW_IN_MODEL if in_model else _HOW_SCRIPT


def _fix(op: str, in_model: bool) -> Fix:
    return _NO_BARRIER if op == _BARRIER else _LESS if in_model else _SELDOM


def asked_at(price: Price, lines: Lines | None) -> tuple[Source, ...]:
    """The line of the script that asks for most collectives, then those that call it; empty where none is known."""
    if lines is None:
        return ()
    asked = price.ops.outermost[price.ops.events.named("c10d::")[price.ops.outermost]]
    known = Counter(found for row in asked.tolist() if (found := lines.where_op(row)) is not None)
    return _with_callers(tuple(line for line, _ in known.most_common(1)), price, lines)


def _with_callers(where: tuple[Source, ...], price: Price, lines: Lines | None) -> tuple[Source, ...]:
    return (*where, *CallSites.compute(price.ops.trace, lines).of_lines(where)) if lines is not None else where


_NO_BARRIER = Fix(
    "Remove the barrier: the reductions of gradients keep the ranks together",
    "exact",
    "optimizer.step()\ndist.barrier()",
    "optimizer.step()",
)
_LESS = Fix(
    "Exchange less in the forward pass: small outputs instead of inputs, or nothing that the model does not need",
    "semantics",
    "images = torch.cat(gather(images))\nkeys = encoder(images[mine])",
    "keys = torch.cat(gather(encoder(images)))",
)
_SELDOM = Fix(
    "Accumulate metrics on each rank, and reduce all of them in one tensor every hundred steps",
    "exact",
    "dist.all_reduce(loss)\ndist.all_reduce(accuracy)",
    "totals += torch.stack((loss.detach(), accuracy))\nif step % 100 == 99:\n    dist.all_reduce(totals)",
)


class _Line(Struct, frozen=True, eq=False):
    """Collectives of one line. at: their places in the script's `CallerTime`;  op: as torch.distributed calls it."""

    where: Source | None
    op: str
    at: Ints


def _by_line(price: Price, script: CallerTime, lines: Lines | None) -> Iterator[_Line]:
    """The lines that ask, the longest first; where no line is known, one for each kind of collective."""
    found: dict[tuple[Source | None, str], list[int]] = defaultdict(list)
    for at, op in enumerate(script.ops.tolist()):
        name = _NAMES.get(price.ops.events.text(op).removeprefix("c10d::").strip("_"), "a collective")
        found[lines.where_op(op) if lines else None, name].append(at)
    spent = price.ops.events.dur_ns[script.rows]
    for (where, name), places in sorted(found.items(), key=lambda one: -int(spent[one[1]].sum())):
        yield _Line(where, name, np.array(places, np.int64))


# Ops of c10d, as torch.distributed's functions are called.
_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "barrier": _BARRIER,
    "monitored_barrier": _BARRIER,
}


def _span_us(price: Price, share: CallerTime) -> float:
    """Time of these collectives one by one, µs per step."""
    return float(price.ops.events.dur_ns[share.rows].sum()) / 1e3 / price.ops.steps.count


def _range(rate: CollectiveRate) -> str:
    low, high = (duration(us) for us in rate.latency_us)
    return f"{low} to {high}" if rate.latency_us[0] > 0 else f"up to {high}"


def _facts(share: CallerTime, rate: CollectiveRate) -> dict[str, object]:
    per_byte = rate.per_byte_us
    return {
        "collectives": share.calls,
        "bytes": share.bytes,
        "exposed_us": share.exposed_us,
        "latency_us": list(rate.latency_us),
        "megabytes_per_second": 1 / per_byte if per_byte else None,
    }
