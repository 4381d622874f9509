"""The finding about communication of data-parallel ranks: gradients, and whatever else nothing tells apart."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    Breakdown,
    CallerTime,
    CollectiveRate,
    Communication,
    Exchanges,
    Finding,
    HostCommunication,
    Ints,
    Parallelism,
    Price,
    RankRecord,
    Saving,
    Trace,
    edits,
)

from ..shared._words import each_step
from ._collectives import MANY, fewer_bytes
from ._libraries import ACCUMULATE_DDP, BF16_HOOK, UNDIVIDED
from ._parallel_kinds import message
from .gathers._gathered_outputs import gathers_outputs, of_outputs
from .waiting._between import alone_between, gaps_us
from .waiting._late_ranks import Late, instead
from .waiting._links import CHECK_LINKS, SlowLinks, slow_links

# Below 1 % of the step what lies between collectives cannot be seen.
_FELT = 0.01
# DistributedDataParallel's own default bucket.
_BUCKET_BYTES = 25e6


class Side(Struct, frozen=True):
    """Communication of data-parallel ranks: µs, calls and bytes per step; bytes None where not stated."""

    rows: Ints
    us: float
    calls: float
    bytes: float | None

    def scaled(self, kept: float) -> Side:
        """That share of it."""
        return replace(
            self, us=kept * self.us, calls=kept * self.calls, bytes=None if self.bytes is None else kept * self.bytes
        )


def side_of(device: Communication | None, host: HostCommunication | None, mixed: Parallelism | None) -> Side:
    """What travels between data-parallel ranks: everything, unless the job is `mixed`."""
    if mixed is not None:
        of_data = mixed.of("data")
        if of_data is None:
            return Side(np.empty(0, np.int64), 0.0, 0.0, None)
        return Side(of_data.rows, of_data.us, of_data.calls, of_data.bytes if device else None)
    if device is not None:
        return Side(np.flatnonzero(device.rows), device.us, device.calls, device.bytes)
    return Side(np.empty(0, np.int64), host.us if host else 0.0, host.calls if host else 0.0, None)


def without(side: Side, script: CallerTime) -> Side:
    """What is left of it without the collectives that lines of the script ask for."""
    spans = 1 - min(len(script.rows) / max(len(side.rows), 1), 1.0) if len(side.rows) else 1.0
    stated = None if side.bytes is None or script.bytes is None else max(side.bytes - script.bytes, 0.0)
    kept = np.setdiff1d(side.rows, script.rows)
    return Side(kept, side.us * spans, max(side.calls - script.calls, 0.0), stated)


def data_finding(
    price: Price, side: Side, exposed_us: float, record: RankRecord | None, exchanges: Exchanges, mixed: bool
) -> Finding:
    """The finding about gradients of data-parallel ranks, and whatever else nothing tells apart."""
    breakdown, library = price.breakdown, exchanges.library
    hidden_us = max(0.0, side.us - exposed_us)
    late = Late.of(price, side.rows)
    late_us = min(late.us, exposed_us)
    said = message(
        price,
        exposed_us,
        side.us,
        side.calls,
        side.bytes,
        " between data-parallel ranks" if mixed else "",
        f", by {library.said}" if library.name != "ddp" else "",
    )
    found = Finding(
        message=said,
        saving=None,
        facts={
            "exposed_us": exposed_us,
            "communication_us": side.us,
            "collectives": side.calls,
            "bytes": side.bytes,
            "hidden_us": hidden_us,
            "late_us": late_us,
            "library": library.name,
        },
        claims=(breakdown.talking,),
    )
    if not library.name and gathers_outputs(price, side.rows):
        return of_outputs(found, price, side.rows, exposed_us)
    if late_us > exposed_us / 2:
        return instead(found, late, price, exposed_us)
    hidden = hidden_us / side.us if side.us else 0.0
    fix = fewer_bytes(price, record, library, side.rows, (side.calls, side.bytes, hidden))
    merged_us = _merged_us(price, side, exposed_us, exchanges.callers.rate)
    saving = _saving(price, side, exposed_us - late_us, merged_us, hidden_us, halves=fix is BF16_HOOK)
    found = replace(found, saving=saving, fix=fix)
    # A reducer that hides what it can needs fewer bytes, or quicker links; others first a reducer.
    links = slow_links(price, record, side.rows) if fix in (BF16_HOOK, ACCUMULATE_DDP) else None
    if links is not None:
        return _with_links(found, links, price, side, exposed_us)
    if fix is UNDIVIDED:
        found = replace(found, message=f"{said}{_ONE_GRAPH}")
    # A reducer that sends half of the bytes sends as many times.
    if fix is BF16_HOOK or not breakdown.on_device:
        return found
    return _with_what_is_between(found, saving, price, side)


def _saving(price: Price, side: Side, sent_us: float, merged_us: float, hidden_us: float, *, halves: bool) -> Saving:
    """What a step gains whose collectives are merged and then hidden, or halved.

    sent_us: exposed µs per step that no late rank explains;  merged_us: start-up time that buckets save
    halves: the fix sends half of the bytes, and nothing else
    """
    breakdown = price.breakdown
    # What is still exposed can hide behind computation that communication does not cover yet; but a reducer hides all
    # that it can already, and half of its bytes are half of its time.
    room_us = side.us / 2 if halves else computing_us(breakdown) - hidden_us
    # Half the bytes, or only every second step: half of the time, whatever computation can hide.
    high_us = min(sent_us, max(room_us, merged_us, sent_us / 2))
    low_us = min(merged_us, high_us)
    how = "low: start-up time that buckets of 25 MB save; high: what can overlap with computation, or half of it all"
    modelled = price.scale.saving(low_us, high_us, how)
    if not breakdown.on_device:
        return modelled
    halved = edits.scale(side.rows, 0.5)
    if halves:
        return _replayed(modelled, price, side, [halved], (low_us, high_us))
    return _replayed(modelled, price, side, [edits.move(side.rows), halved], (low_us, sent_us))


def _with_links(found: Finding, links: SlowLinks, price: Price, side: Side, exposed_us: float) -> Finding:
    """The finding where GPUs do not use the links that they have."""
    left = links.rate_gbs / links.peer_gbs
    how = "low: nothing, if ranks are on several machines; high: all collectives at the peak of NVLink"
    quicker = [edits.scale(side.rows, left)]
    model_us, claims = (0.0, (1 - left) * exposed_us), ("exposed_communication",)
    return replace(
        found,
        message=found.message + links.said,
        saving=price.saving([], quicker, claims, how, model_us=model_us, bound_us=exposed_us),
        facts=found.facts | {"gb_per_second": links.rate_gbs, "link_gb_per_second": links.peer_gbs},
        fix=CHECK_LINKS,
        at_most="medium",
    )


_ONE_GRAPH = " The compiled backward pass is one graph: all gradients are complete only when it ends."


def _with_what_is_between(found: Finding, saving: Saving, price: Price, side: Side) -> Finding:
    """The finding with what lies between many collectives in line, of which buckets leave little.

    No graph of launches and waits has these gaps: what they take is added to what a replay gives.
    """
    if side.calls < MANY or side.bytes is None:
        return found
    gone = max(1 - max(1.0, side.bytes / _BUCKET_BYTES) / side.calls, 0.0)
    more_us = gone * (gaps_us(price, side.rows) + price.ops.us(alone_between(price, side.rows)))
    if more_us < _FELT * price.ops.steps.step_us:
        return found
    high_us = min(saving.high_us + price.scale.scaled(more_us), price.scale.step_us)
    return replace(
        found,
        message=f"{found.message} Between them the GPU idles, and runs short kernels, for {each_step(price, more_us)}.",
        saving=replace(saving, high_us=high_us, how=f"{saving.how}; and what lies between them"),
        facts=found.facts | {"between_us": more_us},
        claims=(*found.claims, "idle_unknown"),
    )


def computing_us(breakdown: Breakdown) -> float:
    """What communication can hide beside: µs per step."""
    return breakdown.us("compute") if breakdown.on_device else breakdown.us("forward") + breakdown.us("backward")


def _replayed(
    modelled: Saving, price: Price, side: Side, ways: list[edits.Edit], bounds_us: tuple[float, float]
) -> Saving:
    """The step replayed with the collectives in buckets, and changed in the way that saves most.

    bounds_us: (what buckets save at least, what any change saves at most). Where that hardly shortens the step,
    something else would set the pace at once, and the range begins at nothing.
    """
    buckets = max(1.0, (side.bytes or 0.0) / _BUCKET_BYTES)
    merged = []
    if side.calls >= MANY and side.bytes is not None:
        calls = np.flatnonzero(price.ops.events.named("c10d::"))
        merged = [edits.fuse(calls, into=round(buckets * price.ops.steps.count))]
    found = max(
        (
            price.saving(
                merged,
                [*merged, other],
                ("exposed_communication",),
                modelled.how,
                model_us=(bounds_us[0], modelled.high_us),
                bound_us=bounds_us[1],
            )
            for other in ways
        ),
        key=lambda saving: saving.high_us,
    )
    if found.high_us >= 0.5 * modelled.high_us:
        return found
    how = "low: nothing, because host launches limit the replayed step; high: if they no longer do"
    return replace(modelled, low_us=min(found.low_us, modelled.low_us), how=how)


def _merged_us(price: Price, side: Side, exposed_us: float, rate: CollectiveRate | None) -> float:
    """What fewer, larger collectives would save in start-up time alone, recorded µs per step.

    rate: of collectives on a host.
    """
    if price.breakdown.on_device:
        return _merged_on_device_us(price.ops.trace, side, exposed_us) * price.ops.longer
    return min(_merged_on_host_us(side, rate), exposed_us)


def _merged_on_device_us(trace: Trace, side: Side, exposed_us: float) -> float:
    """The same on a device, where the shortest tenth of the kernels is taken for start-up time alone.

    Those waited for no other rank and carried little.
    """
    if side.calls < MANY or side.bytes is None:
        return 0.0
    durations = trace.events.dur_ns[side.rows] / 1e3
    fewer = side.calls - max(1.0, side.bytes / _BUCKET_BYTES)
    exposed_part = exposed_us / side.us if side.us else 0.0
    return float(max(0.0, fewer) * np.quantile(durations, 0.1) * exposed_part)


def _merged_on_host_us(side: Side, rate: CollectiveRate | None) -> float:
    """The same on a host, where the sizes that occur tell latency and transfer apart."""
    return max(side.calls - 1, 0.0) * rate.latency_us[0] if rate is not None and side.calls >= MANY else 0.0
