"""Advice on workers that make the batches beside the step, or on samples where no core is free for them."""

from __future__ import annotations

from advisor.api import Finding, Fix, InputWaits, Loader, Price, Source, Steps

from ..shared._words import loader_call, percent, plural, time
from . import _workers
from ._costly_lines import CostlyLines
from ._cpu_loader import Seen, facts_of, keep_workers

# Workers that have the cores less often leave them to every part of the step.
_ALL_PARTS = ("input", "forward", "backward", "optimizer", "other_ops", "host")
# Taking a batch that workers have ready costs time as well. Below this share of the step that may be all there is.
_HANDED_OVER = 0.03


def beside_the_step(
    seen: Seen,
    price: Price,
    where: tuple[Source, ...],
    costly: CostlyLines | None = None,
) -> Finding:
    """Workers, or more of them, that make batches beside the step."""
    steps, scale = price.ops.steps, price.scale
    waits, wait_us, workers, facts = seen.waits, seen.wait_us, seen.workers, seen.facts
    rest_us = max(steps.step_us - wait_us, 0.0)
    stall = _single_stall(waits, steps, wait_us)
    wanted = _workers.that_keep_up(waits, workers, wait_us, rest_us, facts)
    free = _workers.free_cores(seen.record)
    ready = workers != 0 and seen.share < _HANDED_OVER
    claims: tuple[str, ...] = ("idle_input" if seen.on_device else "input",)
    if stall:
        saving, fix = None, keep_workers(facts, workers)
    elif workers == 0 and not seen.on_device and _workers.crowded(seen.record):
        # Workers would take their cores from the training. What a sample needs at least nobody can say; what goes at
        # most where a line of it gets cheaper was measured.
        saving = costly.saving(scale) if costly else None
        fix = costly.fix if costly else _fix(facts, workers, wanted, 0, seen.on_device)
    elif ready:
        how = "at most all of it; taking a batch that is ready costs some time"
        saving, fix = scale.saving(0.0, wait_us, how), None
    else:
        saving = _workers.saving(scale, wait_us, rest_us, workers, wanted, free, seen.on_device)
        possible = _workers.possible(workers, wanted, free, seen.on_device)
        saving = _workers.replayed(saving, price.replay, waits, workers, possible, seen.on_device)
        fix = _fix(facts, workers, wanted, free, seen.on_device)
        if workers and possible is None and not seen.on_device:
            saving, claims = _workers.with_cores(saving, seen.record, scale), _ALL_PARTS
    us, share = (costly.fetch_us, costly.fetch_us / scale.step_us) if costly else (scale.scaled(wait_us), seen.share)
    said = _message(seen.on_device, us, min(share, 1.0), workers, ready, stall, waits.longest_us)
    return Finding(
        message=said.removesuffix(".") + costly.said + "." if costly and not stall else said,
        saving=saving,
        where=where,
        facts=facts_of(seen) | {"workers_that_keep_up": wanted, "free_cores": free},
        fix=fix,
        claims=claims,
        at_most="medium" if stall else "low" if ready else "high",
    )


def _single_stall(waits: InputWaits, steps: Steps, wait_us: float) -> bool:
    """Most of the wait is one fetch among several: the start of an epoch, not the pace of the loader."""
    return steps.count >= 3 and waits.longest_us > 0.75 * wait_us * steps.count


def _fix(facts: Loader | None, workers: int | None, wanted: int | None, free: int | None, on_device: bool) -> Fix:
    if workers is None:
        after = "DataLoader(dataset, ..., num_workers=N)  # more than now, at most one per free core"
        return Fix("Raise `num_workers`, if cores are free", "exact", "DataLoader(dataset, ...)", after)
    target = min(wanted or 4, free) if free is not None else wanted or 4
    if target <= workers:
        title = "Make samples cheaper to load: no core is free for another worker"
        after = "# in the dataset: cache decoded samples, or decode them smaller; normalize on the device"
        return Fix(title, "semantics", loader_call(facts), after)
    changes: dict[str, object] = {"num_workers": target, "persistent_workers": True}
    if on_device:
        changes["pin_memory"] = True
    said = "" if free is not None else " (if the machine has that many free cores)"
    return Fix(
        f"Set `num_workers={target}`{said}",
        "exact",
        loader_call(facts, num_workers=workers),
        loader_call(facts, **changes),
    )


def _message(
    on_device: bool, wait_us: float, share: float, workers: int | None, ready: bool, stall: bool, longest_us: float
) -> str:
    who = "The GPU" if on_device else "The training loop"
    said = f"{who} waits {time(wait_us)} of each step ({percent(share)}) for the next batch"
    if stall:
        return f"{said}; most of it is a single fetch of {time(longest_us)}, as at the start of an epoch."
    if workers == 0:
        return f"{said}: batches are loaded in the training process itself (num_workers=0)."
    if ready:
        return f"{said}, although workers load the batches and most are ready in time."
    if workers is None:
        return f"{said}: the loader's workers load batches more slowly than the step uses them."
    return f"{said}: {plural(workers, 'worker')} {'loads' if workers == 1 else 'load'} them too slowly."
