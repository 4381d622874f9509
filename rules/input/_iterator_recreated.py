"""A loader whose iterator is made anew for each batch, so that each time an epoch begins."""

from __future__ import annotations

from advisor.api import Finding, Fix, InputWaits, LineCost, LineCosts, Loader, RankRecord, duration

from ..shared._places import place
from ..shared._words import count, of_step, often, plural
from ._loader import Seen

# Batches of an iterator that is dropped after the first; workers draw those that follow ahead.
_FEW = 1.5
# Of all steps; in fewer an epoch ends early, as an evaluation of some batches does.
_MOST_STEPS = 0.5
# With fewer batches than this in an epoch one begins every few steps anyhow.
_SHORT = 4

_KEPT = Fix(
    "Keep the iterator, and create a new one only when it is exhausted",
    "exact",
    "batch = next(iter(loader))",
    "def endless(loader):\n    while True:\n        yield from loader\n\n"
    "batches = endless(loader)  # before the loop\nbatch = next(batches)",
)


def advice(seen: Seen, least: float) -> Finding | None:
    """The advice on the loader of which this costs most; None where none is made anew, or that costs little."""
    price, step_us = seen.price, seen.price.scale.step_us
    line = _line(seen.costs, seen.waits)
    if seen.record is None or line is None or not line.visits:
        return None
    started = [one for one in seen.record.loaders if _starts_workers(one, seen.record)]
    if started:
        return _of_workers(seen, started[0], line, least)
    anew = [one for one in seen.record.loaders if _is_made_anew(one)]
    if not anew:
        return None
    loader = max(anew, key=_drawing_us)
    drawn_us = min(_drawing_us(loader) * line.visits, step_us)
    if drawn_us + line.python_us < least * step_us:
        return None
    _, own_us = price.deprofiled.us(price.deprofiled.in_part("fetch", line.parts.get("input", 0.0), line.rows))
    most_us = max(own_us, drawn_us) + line.python_us
    how = "low: the time to draw these indices; high: the whole time of the line except for loading samples in the "
    how += "script's own code, plus what it evicts from the caches"
    return Finding(
        message=(
            f"A DataLoader iterator is created {often(line.visits)}{place(line.source)} for a single batch: each one "
            f"starts a new epoch, and drawing the indices of {count(loader.dataset_size or 0)} samples takes "
            f"{of_step(drawn_us, price.scale)}."
        ),
        saving=price.of_us(drawn_us, most_us + price.refill_us(most_us), how),
        where=(line.source,),
        facts={
            "batches_per_iterator": loader.batches_per_iterator,
            "sampler_us": loader.sampler_us,
            "dataset_size": loader.dataset_size,
            "workers": loader.num_workers,
        },
        fix=_KEPT,
        claims=("input", "host", "other_ops", "forward"),
    )


def _of_workers(seen: Seen, loader: Loader, line: LineCost, least: float) -> Finding | None:
    """The advice where each of these iterators starts workers of its own; None where that costs little."""
    price, step_us = seen.price, seen.price.scale.step_us
    low_us, high_us = price.deprofiled.us(line.work)
    waited_us = price.scale.scaled(line.parts.get("input", 0.0))
    low_us = min(low_us, price.scale.scaled(line.python_us))
    if low_us < least * step_us:
        return None
    workers = loader.num_workers or 0
    return Finding(
        message=(
            f"A DataLoader iterator is created {often(line.visits)}{place(line.source)}, though an epoch has "
            f"{count(_batches(loader))} batches: each one starts {plural(workers, 'worker')} and stops "
            f"{'it' if workers == 1 else 'them'} again, {of_step(low_us, price.scale)}, "
            f"and the step waits {duration(waited_us)} for the first batch."
        ),
        saving=price.of_us(
            low_us,
            min(high_us + waited_us, step_us),
            "low: the Python time of the line, in which workers are started and stopped; high: all of the line, with "
            "the wait for the first batch of workers that are new",
        ),
        where=(line.source,),
        facts={
            "iterators": loader.iterators,
            "steps": seen.record.steps.count if seen.record else None,
            "dataset_size": loader.dataset_size,
            "workers": workers,
        },
        fix=_KEPT,
        claims=("input", "host", "other_ops", "forward"),
    )


def _starts_workers(loader: Loader, record: RankRecord) -> bool:
    """Whether most steps make an iterator of a loader of many batches, and workers with it."""
    often = (loader.iterators or 0) >= _MOST_STEPS * max(record.steps.count or 0, 1)
    return bool(loader.num_workers) and not loader.persistent_workers and often and _batches(loader) >= _SHORT


def _batches(loader: Loader) -> int:
    """Batches of an epoch."""
    return (loader.dataset_size or 0) // (loader.batch_size or 1)


def _is_made_anew(loader: Loader) -> bool:
    """Whether an iterator of a loader of many batches gives one, as a rule."""
    if loader.batches_per_iterator is None or loader.sampler_us is None:
        return False
    ahead = (loader.num_workers or 0) * (loader.prefetch_factor or 0)
    # An epoch that workers draw ahead as a whole looks the same, whether it is dropped or read to its end.
    return loader.batches_per_iterator <= _FEW + ahead < _batches(loader) and _batches(loader) >= _SHORT


def _drawing_us(loader: Loader) -> float:
    """What one iterator draws before it is dropped, making it included."""
    return (loader.sampler_us or 0.0) * ((loader.batches_per_iterator or 0.0) + 1)


def _line(costs: LineCosts | None, waits: InputWaits) -> LineCost | None:
    """Of the lines that ask for batches the one that takes most: the others go on with an epoch."""
    asking = {(at.file, at.line) for at in waits.asked_at}
    lines = [line for line in (costs.lines if costs else ()) if line.source.place in asking]
    return max(lines, key=lambda line: line.us, default=None)
