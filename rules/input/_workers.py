"""How many loader workers a step needs, how many can run, and what they would give back."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from advisor.api import RankRecord, Saving, Scale, constant, edits

from ..shared._words import plural
from ._loader import Seen

# Least share of the hidden wait that workers give back.
_SEEN_RECOVERED = constant("loader.recovered_share").value
_LOW = "low: the part that workers were measured to remove"


def that_keep_up(seen: Seen) -> int | None:
    """The workers that would keep up with the rest of the step; None where nothing tells."""
    made_us, rest_us = _batch_us(seen), _rest_us(seen)
    if made_us is None or rest_us <= 0:
        return None
    # One more than the average needs, or a single slow batch is waited for again.
    return math.ceil(made_us / rest_us) + 1


def too_slow(seen: Seen) -> bool:
    """Whether the workers, each busy with a batch all the time, make fewer than the rest of the step would use."""
    facts, workers = seen.facts, seen.workers
    if facts is None or facts.sample_us is None or not workers:
        return False
    return (_batch_us(seen) or 0.0) > workers * _rest_us(seen)


def _rest_us(seen: Seen) -> float:
    """The recorded step without the wait, µs."""
    return max(seen.price.ops.steps.step_us - seen.wait_us, 0.0)


def _batch_us(seen: Seen) -> float | None:
    """What one process needs to make the batches of a step, µs; None where nothing tells."""
    facts, workers = seen.facts, seen.workers
    if workers == 0:
        return seen.waits.us
    if facts and facts.sample_us is not None and facts.batch_size:
        return facts.batch_size * facts.sample_us + (facts.collate_us or 0.0)
    # Workers that the loop waits for are never idle: together they make one batch per step.
    return workers * (seen.wait_us + _rest_us(seen)) if workers else None


def free_cores(record: RankRecord | None) -> int | None:
    """Cores for this rank's workers: its share of the machine less one for its own loop; None where unknown."""
    if record is None or record.settings.cores is None:
        return None
    return max(record.settings.cores // max(record.world_size, 1) - 1, 0)


def crowded(record: RankRecord | None) -> bool:
    """Whether the ops of the loop use every core already. A worker then only takes turns with them.

    Measured on two cores with two threads: two workers made the step a fifth longer, although the loop waited for nine
    tenths of it; and who makes a batch in the loop may use all threads for it, a worker has one.
    """
    settings = record.settings if record else None
    if record is None or settings is None or settings.cores is None or settings.threads is None:
        return False
    return settings.threads * max(record.world_size, 1) >= settings.cores


def without_core_us(record: RankRecord | None, step_us: float) -> float:
    """What the loop's thread was seen to wait for a core in a step, µs; 0.0 where nobody looked.

    Workers have the cores meanwhile, as a rule: what they no longer do leaves them to the training. The other threads
    of an op wait, too, which does not show here.
    """
    vitals = record.vitals if record else None
    if vitals is None or not vitals.timed_us or not vitals.loop_queued_us:
        return 0.0
    return min(vitals.loop_queued_us / vitals.timed_us, 1.0) * step_us


def saving(seen: Seen, wanted: int | None, free: int | None) -> Saving:
    """The wait that workers take off the loop, as a range.

    Replayed with so many workers as are wanted and have a core; where no number can be named, at most the whole wait.
    """
    scale, wait_us, rest_us, workers = seen.price.scale, seen.wait_us, _rest_us(seen), seen.workers
    # Without a device the workers take cores from the training itself, so nothing is certain.
    sure = _SEEN_RECOVERED if seen.on_device else 0.0
    if workers == 0 and (free is None or free >= 1):
        # Where the cores are not known, one worker is certain to run, and the number that the fix names may.
        most = wanted or 1 if free is None else min(free, wanted or 1)
        fewest = 1 if free is None else most
        hidden = min(wait_us, wait_us - max(0.0, (wait_us / fewest) - rest_us))
        how = f"the wait, with {_between(fewest, most)} loading during the step; {_LOW}"
        return _replayed(seen, scale.saving(hidden * sure, wait_us, how), fewest, most)
    if wanted is not None and workers and free is not None and seen.on_device and free > workers:
        running = min(free, wanted)
        left_us = max(0.0, (wait_us + rest_us) * workers / running - rest_us)
        how = f"the wait, with {plural(running, 'worker')} instead of {workers}"
        return _replayed(seen, scale.saving(max(0.0, wait_us - left_us) * sure, wait_us, how), running, running)
    return scale.saving(0.0, wait_us, "at most the whole wait; how cheap a sample can become is not known")


def with_cores(modelled: Saving, record: RankRecord | None, scale: Scale) -> Saving:
    """The saving of samples that are made in less time by workers who share their cores with the training."""
    more_us = without_core_us(record, scale.step_us)
    if not more_us:
        return modelled
    how = f"{modelled.how}; high: plus the time the loop waited for a core, which workers may have occupied"
    return replace(modelled, high_us=min(modelled.high_us + more_us, scale.step_us), how=how)


def _replayed(seen: Seen, modelled: Saving, fewest: int, most: int) -> Saving:
    """The step replayed with its batches loaded by so many workers: low with the fewest, high with the most."""
    replay, fetches = seen.price.replay, np.array(seen.waits.rows, int)
    if replay is None or replay.low_confidence:
        return modelled
    least, best = (
        [edits.scale(fetches, seen.workers / running) if seen.workers else edits.move(fetches, lanes=running)]
        for running in (fewest, most)
    )
    how = f"the step replayed with batches loaded by {_between(fewest, most)}; {_LOW}"
    found = replay.between(least, best, how)
    high_us = min(found.high_us, modelled.high_us)
    low_us = min(found.low_us * _SEEN_RECOVERED, high_us) if seen.on_device else 0.0
    return replace(found, low_us=low_us, high_us=high_us)


def _between(fewest: int, most: int) -> str:
    """'2 workers', '1 to 5 workers'."""
    return plural(most, "worker") if fewest == most else f"{fewest} to {plural(most, 'worker')}"
