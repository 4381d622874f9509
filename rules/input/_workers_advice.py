"""Advice on workers that make the batches beside the step, or on samples where no core is free for them."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.api import Finding, Fix, Ints, Loader, Saving, Treatment, constant, duration, overlap_of_each

from ..shared._words import loader_call, plural
from . import _workers
from ._loader import Seen, keep_workers, risk_of

# Workers that have the cores less often leave them to every part of the step.
ALL_PARTS = ("input", "forward", "backward", "optimizer", "other_ops", "host")
# Taking a batch that workers have ready costs time as well. Below this share of the step that may be all there is, and
# so may fetches that are no longer than handing a batch over takes.
_HANDED_OVER = 0.03
_HANDED_OVER_NS = 1e3 * constant("loader.cheap_batch_us").value
# Starting workers takes many times what a fetch does.
_FAR_LONGER = 3
# Of the waiting, in one fetch of several: the others had their batches ready.
_MOST = 0.75


def beside_the_step(seen: Seen) -> Finding:
    """Workers, or more of them, that make batches beside the step."""
    costly, price = seen.costly, seen.price
    few = seen.share < _HANDED_OVER
    stall, ready = _single_stall(seen), seen.workers != 0 and (few or _handed_over(seen))
    wanted, free = _workers.that_keep_up(seen), _workers.free_cores(seen.record)
    claims: tuple[str, ...] = ("idle_input" if seen.on_device else "input",)
    saving: Saving | None = None
    if stall:
        fix = keep_workers(seen.facts, seen.workers)
    elif seen.workers == 0 and not seen.on_device and _workers.crowded(seen.record):
        # Workers would take their cores from the training. What a sample needs at least nobody can say; what goes at
        # most where a line of it gets cheaper was measured.
        saving = costly.saving(price) if costly else None
        fix = costly.fix if costly else _fix(seen, wanted, 0)
    elif ready:
        fix, how = None, "at most all of it; taking a batch that is ready costs some time"
        saving = price.scale.saving(0.0, seen.wait_us, how)
    else:
        fix, saving = _fix(seen, wanted, free), _workers.saving(seen, wanted, free)
        if seen.workers and not seen.on_device:
            saving, claims = _workers.with_cores(saving, seen.record, price.scale), ALL_PARTS
    us = costly.fetch_us if costly else price.scale.scaled(seen.wait_us)
    share = min(us / seen.step_us, 1.0) if costly else min(seen.share, 1.0)
    message = seen.waits_for(us, share, _ending(seen, stall, ready))
    found = seen.finding(message, saving, fix, {"workers_that_keep_up": wanted, "free_cores": free}, claims)
    return replace(found, at_most="medium" if stall else "low" if ready else "high")


def in_time(seen: Seen) -> bool:
    """Workers make the batches in time: what the loop waits beside a device is to be handed them, and hardly anything.

    There is nothing to change then.
    """
    return seen.workers != 0 and seen.share < _HANDED_OVER and _handed_over(seen)


def _handed_over(seen: Seen) -> bool:
    """Most of the wait beside a device is in fetches no longer than handing a batch over takes."""
    waited_ns = _waited_ns(seen)
    return seen.on_device and bool(2 * waited_ns[waited_ns <= _HANDED_OVER_NS].sum() > waited_ns.sum())


def _waited_ns(seen: Seen) -> Ints:
    """What of each fetch no work of the device hides."""
    events, rows = seen.price.ops.events, list(seen.waits.rows)
    return overlap_of_each(events.start_ns[rows], events.end_ns[rows], seen.waits.exposed)


def _single_stall(seen: Seen) -> bool:
    """Most of the wait is one fetch among several, far longer than they usually are: the start of an epoch."""
    if seen.uneven is not None:
        return False  # each epoch begins with one: that is no single stall
    events, rows = seen.price.ops.events, list(seen.waits.rows)
    usual_us = float(np.median(events.dur_ns[rows])) / 1e3
    if seen.price.ops.steps.count < 3 or seen.waits.longest_us <= _FAR_LONGER * usual_us or _workers.too_slow(seen):
        return False
    # Of several long fetches, none is the start of an epoch; what the device's work hides of one is no wait.
    waited_ns = _waited_ns(seen)
    return bool(waited_ns.max() > _MOST * waited_ns.sum())


def _fix(seen: Seen, wanted: int | None, free: int | None) -> Fix:
    facts, workers = seen.facts, seen.workers
    if workers is None:
        after = (
            "DataLoader(dataset, ..., num_workers=N)  # more than now, at most one per free core\n"
            "# a streamed dataset keeps one worker busy for each file (shard): split it into N or more"
        )
        title = "Raise `num_workers`, if cores are free (and the files of a streamed dataset)"
        return Fix(title, risk_of(facts), "DataLoader(dataset, ...)", after)
    target = min(wanted or 4, free) if free is not None else wanted or 4
    if target <= workers:
        return cheaper_samples(facts)
    changes: dict[str, object] = {"num_workers": target, "persistent_workers": True}
    if seen.on_device:
        changes["pin_memory"] = True
    said = "" if free is not None else " (if the machine has that many free cores)"
    return Fix(
        f"Set `num_workers={target}`{said}",
        risk_of(facts),
        loader_call(facts, num_workers=workers),
        loader_call(facts, **changes),
        Treatment("loader", changes),
    )


def cheaper_samples(facts: Loader | None) -> Fix:
    """What is left where no core is free."""
    title = "Make samples cheaper to load: no core is free for another worker"
    after = "# in the dataset: cache decoded samples, or decode them smaller; normalize on the device"
    return Fix(title, "semantics", loader_call(facts), after)


def _ending(seen: Seen, stall: bool, ready: bool) -> str:
    """What follows '... waits for the next batch'."""
    if stall:
        return f"; most of it is a single fetch of {duration(seen.waits.longest_us)}, as at the start of an epoch."
    lines, workers = seen.costly.said if seen.costly else "", seen.workers
    if workers == 0:
        return f": batches are loaded in the training process itself (num_workers=0){lines}."
    if ready:
        return f", although workers load the batches and most are ready in time{lines}."
    if workers is None:
        return f": the loader's workers load batches more slowly than the step uses them{lines}."
    return f": {plural(workers, 'worker')} {'loads' if workers == 1 else 'load'} them too slowly{lines}."
