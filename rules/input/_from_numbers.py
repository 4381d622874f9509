"""Samples that are lists of numbers, of which default_collate makes a tensor for each position."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, Fix, Source, duration

from ..shared._batches import Batch
from ..shared._words import count
from ._loader import Seen

# A label and a few other numbers are part of samples as they usually are.
_MANY = 8

_TENSORS = Fix(
    "Keep the samples as tensors, so that the batch is stacked with one op",
    "exact",
    "def __getitem__(self, index):\n    return self.rows[index]  # a list of numbers: a batch is a list of tensors",
    "self.rows = [torch.tensor(row) for row in rows]  # in __init__\n\n"
    "def __getitem__(self, index):\n    return self.rows[index]  # a batch is one tensor, (batch, positions)",
)


def advice(seen: Seen, made: Batch, min_gain: float) -> Finding | None:
    """Samples as tensors, where putting their numbers together is a material part of the step; else None."""
    facts, step_us = seen.facts, seen.step_us
    if facts is None or facts.collate != "default_collate" or seen.workers != 0 or seen.on_device:
        return None
    least, most = made.floor_us
    if made.of_numbers < _MANY or made.collate_us - most < min_gain * step_us or made.collate_us < made.sample_us:
        return None
    how = "the measured time of collating minus the most and the least that a batch of tensors takes; high: plus what "
    how += "the small tensors evict from the caches"
    said = (
        f", which it loads itself (num_workers=0): its samples hold Python numbers, of which default_collate makes "
        f"{count(round(made.of_numbers))} tensors, which takes {duration(made.collate_us)}; a batch of tensors takes "
        f"{duration(least)} to {duration(most)}."
    )
    reads = [Source(*at, "function") for at in [facts.sample_from] if at and not at[0].startswith("<")]
    return replace(seen, where=(*reads, *seen.where)).finding(
        seen.waits_for(made.us, min(made.us / step_us, 1.0), said),
        seen.price.of_us(made.collate_us - most, made.collate_us - least + seen.price.refill_us(made.us), how),
        _TENSORS,
        {"collate_us": made.collate_us, "tensors": made.of_numbers, "prepared_us": list(made.floor_us)},
    )
