"""What drawing the indices of the batches takes, and what is left of it where they are drawn all at once."""

from __future__ import annotations

from msgspec import Struct

from advisor.api import Finding, Fix, LineCosts, Loader, Scale, Source, constant

from ..shared._batches import WHOLE
from ..shared._places import made_at
from ..shared._words import of_step, plural
from ._loader import Seen

# An index that is drawn with all others of an epoch at once.
_AT_ONCE_US = constant("loader.drawn_index_us").range
# Draws that are this many times longer in the mean than in the median happen in a few batches: as an epoch begins.
_BY_EPOCH = 3.0

_ALL_AT_ONCE = Fix(
    "Draw the indices of an epoch with one call",
    "exact",
    "def __iter__(self):\n    for _ in range(self.draws):\n        yield int(np.random.choice(len(self.p), p=self.p))",
    "def __iter__(self):\n    yield from np.random.choice(len(self.p), self.draws, p=self.p).tolist()",
)
_FOR_LONGER = Fix(
    "Draw the indices of several epochs at once, or move sorting and filtering out of `__iter__`",
    "exact",
    "sampler = WeightedRandomSampler(weights, num_samples=draws)",
    "sampler = WeightedRandomSampler(weights, num_samples=20 * draws)  # one epoch then has 20 times as many steps",
)


class Drawing(Struct, frozen=True):
    """Drawing the indices, µs of the un-profiled step. range_us: what is given back, least and most."""

    us: float
    range_us: tuple[float, float]
    by_weight: bool
    by_epoch: bool
    where: tuple[Source, ...]


def advice(seen: Seen, min_share: float) -> tuple[Finding, float] | None:
    """The advice on a sampler that takes this share of the step, and how much of the recorded wait is its: µs per step.

    What happens as an epoch begins is seldom in the window, so it is no part of the wait.
    """
    scale = seen.price.scale
    exposed_us = scale.scaled(seen.wait_us) if seen.on_device else None
    found = drawing(seen.facts, seen.waits.fetches, scale, seen.costs, exposed_us)
    if seen.facts is None or found is None or found.us < min_share * scale.step_us:
        return None
    # The profiler adds nothing to what runs without ops, beside a device it is told on the profiled scale.
    recorded_us = found.us if exposed_us is None else found.us / scale.factor
    return _finding(found, seen, seen.facts), 0.0 if found.by_epoch else recorded_us


def drawing(
    facts: Loader | None, batches: float, scale: Scale, costs: LineCosts | None, exposed_us: float | None = None
) -> Drawing | None:
    """What the sampler takes of a step; None where it was not timed.

    batches: per step; exposed_us: un-profiled µs that a device waits for them, None without a device.
    """
    if facts is None or facts.sampler_us is None or not scale.step_us:
        return None
    # Where draws are long only as an epoch begins, they are a share of the mean step, not of the median one.
    mean_us = facts.sampler_us * batches * scale.step_us / max(scale.unprofiled.mean or 0.0, scale.step_us)
    size = (facts.batch_size or 1) * batches
    if not facts.sampler_file and facts.sampler in WHOLE and facts.dataset_size:
        # torch draws those of an epoch with one call: what took longer, the loop's thread had no core.
        epoch = facts.batches_per_iterator or facts.dataset_size / (facts.batch_size or 1)
        mean_us = min(mean_us, facts.dataset_size / max(epoch, 1.0) * batches * _AT_ONCE_US[1])
    us = mean_us if exposed_us is None else min(mean_us, exposed_us)
    where = _costliest(facts, costs)
    by_weight = where is not None and where.precision == "call" and where.line in facts.sampler_weighted
    least, most = (size * one for one in _AT_ONCE_US)
    high_us = max(us - least, 0.0)
    # With weights all numbers are looked at for each index; one such look gives as many indices as are wanted. What
    # else a sampler does may take as long for all at once: nothing is sure of that.
    low_us = max(us - us / max(size, 1.0) - most, 0.0) if by_weight else 0.0
    by_epoch = facts.sampler_us > _BY_EPOCH * (facts.sampler_median_us or 0.0)
    return Drawing(us, (low_us, high_us), by_weight, by_epoch, (where,) if where else ())


def _costliest(facts: Loader, costs: LineCosts | None) -> Source | None:
    """The line of the sampler's own code that takes most of the fetches; its function where no lines are known."""
    if not facts.sampler_file or not facts.sampler_lines:
        return None
    lines = {line for first, last in facts.sampler_lines for line in range(first, last + 1)}
    own = [
        one
        for one in (costs.lines if costs else ())
        if one.source.file == facts.sampler_file and one.source.line in lines and one.parts.get("input")
    ]
    if own:
        return max(own, key=lambda one: one.parts["input"]).source
    return Source(facts.sampler_file, facts.sampler_lines[0][0], "__iter__", "function")


def _finding(found: Drawing, seen: Seen, facts: Loader) -> Finding:
    who = facts.sampler or "the sampler"
    beside = f", even with {plural(seen.workers, 'worker')}" if seen.workers else ""
    when = "at the start of an epoch" if found.by_epoch else "one index at a time"
    how = "high: the time to draw the indices, minus the least that drawing all of them at once takes"
    if found.by_weight:
        how += "; low: with one draw per batch, minus the most that it takes"
    else:
        how += "; low: nothing, if they depend on the model or take as long when drawn at once"
    low_us, high_us = found.range_us
    if high_us and not found.by_epoch and not seen.on_device:
        how += "; high: plus what drawing them evicts from the caches"
        high_us += seen.price.refill_us(found.us)
    return Finding(
        message=(
            f"Drawing the indices of the next batch takes {of_step(found.us, seen.price.scale)} "
            f"in the training process{beside}: {who} draws them {when}."
        ),
        saving=seen.price.of_us(low_us, high_us, how),
        where=tuple(dict.fromkeys(at for at in (*found.where, *made_at(facts.sampler_at), seen.waits.where) if at)),
        facts={
            "sampler": facts.sampler,
            "sampler_us": facts.sampler_us,
            "sampler_median_us": facts.sampler_median_us,
            "batch_size": facts.batch_size,
        },
        fix=_ALL_AT_ONCE if found.where else _FOR_LONGER,
        claims=("input",),
        at_most="high" if found.by_weight else "medium",
    )
