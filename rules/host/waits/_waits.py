"""Waits of the host for the device that cost something, with what the step saves without each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    Category,
    GpuBusy,
    Ints,
    Lines,
    Price,
    RepeatedOps,
    Saving,
    Source,
    Standstills,
    Syncs,
    SyncSite,
    backward_of,
    edits,
    host_collectives,
    intersect,
    starts_in,
    total,
)

from ...shared._allocator import allocator_calls
from ...shared._host_updates import HostUpdate
from ...shared._small_copies import told_as_small
from ._exchange_sizes import sizes_of_exchange
from ._hooks import of_hooks

# A batch, too, is fetched earlier where the host is ahead.
IDLE = ("idle_sync", "idle_launch", "idle_host", "idle_input")
_LOW = "the rest of the host's work becomes the limit"
# A value that the script reads: nothing but the script needs it.
READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::allclose")
# Ops that read how large their result is: without one of these waits, too, the next one waits instead.
SIZES = (
    *("aten::nonzero", "aten::masked_select", "aten::index", "aten::index_put_", "aten::repeat_interleave"),
    *("aten::unique", "aten::_unique2", "aten::unique_dim"),
)
# Those that select by a mask: where a loop does, a reduction with the mask of the whole batch replaces them all.
_MASKS = ("aten::nonzero", "aten::masked_select", "aten::index")
_BY_INDICES = ("aten::index", "aten::index_put_", "aten::index_select")
# A kernel so short takes what it takes to begin, whatever it computes: of a loop's this is what goes.
_SHORT_NS = 10_000
# Copies of whole tensors to the host are reads as well: `.cpu()`, `.tolist()`, `.numpy()` behind them.
COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu")
# A few reads in a step are values of different kinds, or checks that can wait; more are of a loop over elements.
FEW_READS = 6
# Its sizes are exchanged as well, so that one layer can only wait for itself: exposed-communication tells these layers.
_OF_NORMS = "SyncBatchNorm"
# One line to move; below 1 % of the step the gain cannot be seen.
WORTH = 0.01


class Wait(Struct, frozen=True):
    """One place of the script that waits.

    cost_us  idle time right after it that it gives back, µs per profiled step
    saving   the step without these waits
    claims   where what it saves lies
    later    what it costs is idle time after other work of the host
    checks_us  the device's time for what is computed only to be read, where the finding includes it
    others   further ops that wait, reported with it: if only one of them is removed, the next one waits instead
    places   the lines of all of them
    """

    site: SyncSite
    cost_us: float
    saving: Saving
    claims: tuple[str, ...]
    later: bool
    others: tuple[str, ...] = ()
    places: tuple[Source, ...] = ()
    checks_us: float = 0.0


class LeftSyncs(Struct, frozen=True, eq=False):
    """Waits that no other rule tells: neither for small copies, each waited for, nor for an update on the host."""

    syncs: Syncs

    @classmethod
    def compute(cls, syncs: Syncs, price: Price, lines: Lines, update: HostUpdate) -> LeftSyncs:
        """Of a trace with a device; Missing as syncs are."""
        started = price.ops.events.start_ns

        def left(site: SyncSite) -> bool:
            if _OF_NORMS in site.op:
                return False
            rows = np.array(site.rows, int)
            others = told_as_small(price.ops, lines, rows) | starts_in(started[rows], update.waiting)
            return 2 * int(others.sum()) <= len(others)

        return cls(Syncs(syncs.count, syncs.us, tuple(site for site in syncs.sites if left(site))))


class Waits(Struct, frozen=True, eq=False):
    """The waits whose removal saves at least WORTH of the step: each is replayed, for two rules once.

    Reads of values and sizes, and copies to the host, are one where without all of them the step saves more than
    without each: what follows such a read waits instead.
    """

    told: tuple[Wait, ...]

    @classmethod
    def compute(cls, left: LeftSyncs, busy: GpuBusy, price: Price, stills: Standstills, repeated: RepeatedOps) -> Waits:
        """Of a trace with a device; Missing as syncs are.

        What the device idles for while the host does not run at all is not what waits cost.
        """
        ours_us = sum(price.breakdown.us(part) - price.breakdown.us_in(part, stills.spans) for part in IDLE)
        alone = tuple(_told(left.syncs, busy, price, ours_us, repeated))
        return cls(_read_together(alone, left.syncs, price, ours_us, repeated))


def _read_together(
    alone: tuple[Wait, ...], syncs: Syncs, price: Price, ours_us: float, repeated: RepeatedOps
) -> tuple[Wait, ...]:
    """The waits, with all reads of values, sizes and tensors as one where that saves WORTH of the step more."""
    reads = [
        site
        for site in syncs.sites
        if site.from_user and (site.op in (*READS, *SIZES) or (site.op in COPIES and _copies_to_host(site, price)))
        # What an exchange between ranks needs has a fix of its own, which spares no other read.
        if not sizes_of_exchange(site, price)
    ]
    all_us, least_us = sum(site.us for site in reads), WORTH * price.ops.steps.step_us
    if len(reads) < 2 or all_us < least_us:
        return alone
    whole = _as_one(reads)
    saving = _ahead(whole, price, ours_us, repeated)
    mine = [wait for wait in alone if wait.site in reads]
    told_us = sum(wait.saving.high_us for wait in mine)
    if saving is None or saving.high_us < told_us + WORTH * price.scale.step_us:
        return alone
    saving = replace(saving, low_us=min(max((wait.saving.low_us for wait in mine), default=0.0), saving.high_us))
    others = tuple(dict.fromkeys(site.op for site in reads if site.op != whole.op))
    places = tuple(dict.fromkeys(site.where for site in reads if site.where))
    one = Wait(whole, min(whole.gives_back_us, all_us), saving, _claimed(saving, price), True, others, places)
    return (one, *(wait for wait in alone if wait not in mine))


def _as_one(sites: Sequence[SyncSite]) -> SyncSite:
    """All of these waits as one, by the name of the op with most calls; at a line only if they have one in common."""
    most = max(sites, key=lambda site: (site.calls, site.us))
    places = {site.where for site in sites if site.where}
    return SyncSite(
        op=most.op,
        calls=sum(site.calls for site in sites),
        us=sum(site.us for site in sites),
        idle_after_us=sum(site.idle_after_us for site in sites),
        gives_back_us=sum(site.gives_back_us for site in sites),
        then_idle_us=sum(site.then_idle_us for site in sites),
        where=places.pop() if len(places) == 1 else None,
        rows=tuple(sorted({row for site in sites for row in site.rows})),
    )


def _told(syncs: Syncs, busy: GpuBusy, price: Price, ours_us: float, repeated: RepeatedOps) -> Iterator[Wait]:
    steps, scale = price.ops.steps, price.scale
    bound_us = min(price.measured_us(("idle_sync",)), ours_us)
    for site in syncs.sites:
        cost_us = min(site.gives_back_us, bound_us)
        least_us = WORTH * steps.step_us
        if not site.from_user or max(cost_us, site.us) < least_us or _reads_copies(site, price):
            continue
        after = _saving(site, cost_us, busy, price) if cost_us >= least_us else None
        ahead = _ahead(site, price, ours_us, repeated)
        # Mostly idle time that follows, of a host that is not ahead: all of it is what the waits cost.
        later = after is None or (ahead is not None and ahead.high_us > 2 * after.high_us)
        saving = ahead if after is None or later else _farther(after, ahead)
        # The wait may only move: to the next sync, or to a device that is busy all the same.
        if saving is not None and saving.high_us >= WORTH * scale.step_us:
            yield Wait(site, cost_us, saving, ("idle_sync",) if saving is after else _claimed(saving, price), later)


def _claimed(saving: Saving, price: Price) -> tuple[str, ...]:
    """Idle time; what is more than all of it are kernels that go with the waits."""
    idle_us = price.scale.scaled(price.measured_us(IDLE))
    return IDLE if saving.high_us <= idle_us else (*IDLE, "compute")


def _farther(after: Saving, ahead: Saving | None) -> Saving:
    """What follows the waits goes with them; with the host ahead, more may."""
    if ahead is None or ahead.high_us <= after.high_us:
        return after
    how = f"low: {_LOW}; high: the step without these waits, with the host as far ahead as its launches allow"
    return replace(ahead, low_us=after.low_us, how=how)


def _reads_copies(site: SyncSite, price: Price) -> bool:
    """Whether explicit waits are for copies to the host that return before they are done: without, it reads too early.

    Such a copy of most of them lies between the wait and the one before it.
    """
    if "Synchronize" not in site.op:
        return False
    events, launch = price.ops.events, price.ops.links.launch
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH") & (launch >= 0))
    copies = copies[events.end_ns[copies] > events.end_ns[launch[copies]]]
    called_ns = np.sort(events.end_ns[launch[copies]])
    before = np.searchsorted(called_ns, np.sort(events.start_ns[np.array(site.rows, int)]))
    return bool(2 * (np.diff(before, prepend=0) > 0).sum() > len(site.rows))


def reads_one_by_one(site: SyncSite) -> bool:
    """Whether a loop reads value after value: read together, neither the waits nor the calls are left."""
    return site.op in READS and site.calls > FEW_READS


def sends_indices(site: SyncSite, price: Price) -> bool:
    """Whether most of these select by indices of the host, which they copy to the device."""
    events, launch, rows = price.ops.events, price.ops.links.launch, np.array(site.rows, int)
    copies = np.flatnonzero(events.of(Category.MEMCPY) & (launch >= 0))
    inside = starts_in(events.start_ns[launch[copies]], events.covered(rows))
    return site.op in _BY_INDICES and bool(2 * events.named("HtoD")[copies[inside]].sum() > inside.sum())


def _copies_to_host(site: SyncSite, price: Price) -> bool:
    """Whether what these ops copy goes to the host: those that go to the device have fixes of their own."""
    events, launch, rows = price.ops.events, price.ops.links.launch, np.array(site.rows, int)
    copies = np.flatnonzero(events.of(Category.MEMCPY) & (launch >= 0))
    inside = starts_in(events.start_ns[launch[copies]], events.covered(rows))
    return bool(inside.any() and events.named("DtoH")[copies[inside]].all())


def _ahead(site: SyncSite, price: Price, ours_us: float, repeated: RepeatedOps) -> Saving | None:
    """What it gives back that the host launches ahead: idle time of later causes goes. Only a replay can tell.

    Between the wait and the next launches the host does work of its own, which it did before the device was done.
    """
    replay, events = price.replay, price.ops.events
    if not price.on_device or replay is None or not replay.trusted:
        return None
    rows = np.array(site.rows, int)
    waits = events.covered(rows)
    # The loop waits for collectives on the host with reason, and ops that need memory for the allocator: rules of their
    # own speak of both. What most steps do not do is no part of a step.
    if (
        2 * total(intersect(waits, events.covered(host_collectives(events)))) > total(waits)
        or starts_in(events.start_ns[np.flatnonzero(allocator_calls(events))], waits).any()
        or 2 * len(np.unique(price.ops.steps.step_of(events.start_ns[rows]))) < price.ops.steps.count
    ):
        return None
    how = "low: nothing; high: the step without these waits, with the host as far ahead as its launches allow"
    gone = events.exactly(*READS)[rows] & reads_one_by_one(site)
    without = [edits.remove(rows[gone]), edits.unsync(rows[~gone])]
    selected = _selected(site, price, repeated)
    if len(selected):
        how += "; the loop that selects by masks in one pass, forwards and backwards"
        without.append(edits.remove(selected))
        kernels = price.ops.launched(selected)
        ours_us += price.ops.us(kernels[events.dur_ns[kernels] < _SHORT_NS])
    reads = site.op in READS or _copies_to_host(site, price)
    hooked = of_hooks(site, price) if reads else rows[:0]
    if len(hooked):
        how += "; without the hooks"
        without = [edits.remove(hooked)]
        ours_us += price.ops.us(price.ops.launched(hooked))
    return price.saving(
        [], [edit for edit in without if len(edit.rows)], IDLE, how, model_us=(0.0, 0.0), bound_us=ours_us
    )


def go_with_loops(site: SyncSite, price: Price, repeated: RepeatedOps) -> bool:
    """Whether most of these select by masks in loops: a reduction with the mask of the whole batch has no loop.

    Experts of a mixture keep their products.
    """
    events, rows = price.ops.events, np.array(site.rows, int)
    selecting = rows[events.exactly(*_MASKS)[rows]]
    inside = starts_in(events.start_ns[selecting], repeated.spans)
    looped = 2 * int(inside.sum()) > len(inside) and not any(loop.routed for loop in repeated.loops)
    return site.calls > FEW_READS and looped


def _selected(site: SyncSite, price: Price, repeated: RepeatedOps) -> Ints:
    """What selects by masks among these waits, with its backward pass; and all of the loop in which most of it lies."""
    events, rows = price.ops.events, np.array(site.rows, int)
    selecting = rows[events.exactly(*_MASKS)[rows]] if site.calls > FEW_READS else rows[:0]
    looped = repeated.rows if go_with_loops(site, price, repeated) else rows[:0]
    return np.concatenate((selecting, backward_of(events, selecting), looped))


def _saving(site: SyncSite, cost_us: float, busy: GpuBusy, price: Price) -> Saving:
    """The step without these waits: replayed, else bounded."""
    steps = price.ops.steps
    # Without the sync the host needs at least the time it now spends outside it, the device at least its busy time.
    others_us = max(steps.step_us - site.us, busy.share * steps.step_us)
    low_us = min(cost_us, max(0.0, steps.step_us - others_us))
    how = f"low: {_LOW}; high: the step without these waits"
    without = edits.unsync(np.array(site.rows, int))
    return price.saving([without], [without], ("idle_sync",), how, model_us=(low_us, cost_us))
