"""Samples that lie in memory and are taken out one by one, only to be put together again."""

from __future__ import annotations

from advisor.api import Finding, Fix, Loader, duration

from ..shared._batches import Batch
from ..shared._words import count, loader_call, plural
from ._loader import Seen

# Every loader of tensors takes them one by one, and another sampler is two lines: for less than a tenth of the step
# nobody should give up the usual form.
_WORTH = 0.10


def advice(seen: Seen, made: Batch) -> Finding | None:
    """One index for a whole batch, where that leaves little of a material part of the step; else None."""
    facts, step_us = seen.facts, seen.step_us
    if facts is None or seen.workers != 0 or seen.on_device or not made.ready or made.drawn_anew or facts.iterable:
        return None
    least, most = made.at_once_us
    if not least or made.us - most < _WORTH * step_us:
        return None
    how = "the measured time of a batch minus the most and the least that one index for all its samples takes; high: "
    how += "plus what the small tensors evict from the caches"
    said = (
        f", which it loads itself (num_workers=0): {plural(facts.batch_size or 1, 'sample')} are taken from memory one "
        f"by one and stacked again; indexing all of them at once takes {duration(least)} to {duration(most)}."
    )
    return seen.finding(
        seen.waits_for(made.us, min(made.us / step_us, 1.0), said),
        seen.price.of_us(made.us - most, made.us - least + seen.price.refill_us(made.us), how),
        _at_once(facts),
        {"batch_us": made.us, "at_once_us": list(made.at_once_us)},
    )


def _at_once(facts: Loader) -> Fix:
    """A loader whose sampler gives the indices of whole batches. It draws the same ones, in the same order."""
    indices = "RandomSampler(dataset)" if facts.shuffle else "SequentialSampler(dataset)"
    last = bool(facts.drop_last)
    after = f"batches = BatchSampler({indices}, batch_size={count(facts.batch_size or 1)}, drop_last={last})\n"
    after += "DataLoader(dataset, None, sampler=batches)  # no batch_size: dataset[indices] is a whole batch"
    return Fix("Index the tensors once per batch, with a list of indices", "exact", loader_call(facts), after)
