"""How many loader workers a step needs, and how many can run."""

from __future__ import annotations

import math

from advisor.api import InputWaits, Loader, RankRecord


def in_use(waits: InputWaits, facts: Loader | None) -> int | None:
    """Workers in use; None where only their presence is known."""
    if facts and facts.num_workers is not None:
        return facts.num_workers
    return 0 if waits.single_process else None


def batch_us(waits: InputWaits, workers: int | None, step_us: float, facts: Loader | None) -> float | None:
    """What one process needs to make the batches of a step, µs; None where nothing tells."""
    if workers == 0:
        return waits.us
    if facts and facts.sample_us is not None and facts.batch_size:
        return facts.batch_size * facts.sample_us + (facts.collate_us or 0.0)
    # Workers that the loop waits for are never idle: together they make one batch per step.
    return workers * step_us if workers else None


def that_keep_up(
    waits: InputWaits, workers: int | None, wait_us: float, rest_us: float, facts: Loader | None
) -> int | None:
    """The workers that would keep up with the rest of the step; None where nothing tells."""
    made_us = batch_us(waits, workers, wait_us + rest_us, facts)
    if made_us is None or rest_us <= 0:
        return None
    # One more than the average needs, or a single slow batch is waited for again.
    return math.ceil(made_us / rest_us) + 1


def free_cores(record: RankRecord | None) -> int | None:
    """Cores for this rank's workers: its share of the machine less one for its own loop; None where unknown."""
    if record is None or record.settings.cores is None:
        return None
    return max(record.settings.cores // max(record.world_size, 1) - 1, 0)


def possible(workers: int | None, wanted: int | None, free: int | None, on_device: bool) -> int | None:
    """Workers whose effect can be worked out: those that are wanted and have a core; None where that is not known."""
    if workers == 0 and (free is None or free >= 1):
        return min(free or 1, wanted or 1)
    if wanted is not None and workers and free is not None and on_device and free > workers:
        return min(free, wanted)
    return None
