"""What making a batch costs without the profiler, what it needs at least, and whether it can be prepared once."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from advisor.api import (
    InputWaits,
    Ints,
    Loader,
    Nesting,
    RowMask,
    Scale,
    StepTimes,
    Trace,
    constant,
    element_counts,
    shapes,
)

# Torch's samplers that go through a whole dataset, and draw the order of an epoch with one call.
WHOLE = ("SequentialSampler", "RandomSampler")
# A DataLoader's own cost of a sample in memory: index and hand on.
_SAMPLE_US = constant("loader.sample_us").range
_BATCH_US = constant("loader.batch_us").range
_BYTES_PER_US = tuple(1e3 * gbs for gbs in reversed(constant("loader.copy_gbs").range))
# One index for all samples of a batch, for each tensor.
_TENSOR_US = constant("loader.index_tensor_us").range
_INDEX_US = constant("loader.index_number_us").range
# Reading from a tensor, or a list of them, takes no longer; a TensorDataset's samples are rows whatever they take.
_READY_SETS = ("TensorDataset",)
# Rows in the fetch of which each makes one tensor of the batch: of tensors, and of Python's numbers.
_FROM_PYTHON = "aten::lift_fresh"
_STACKED = "aten::stack"
# Prepared samples of more may not fit into memory besides all else.
_MOST_BYTES = constant("loader.most_kept_bytes").value
# Random numbers drawn from torch while a sample is made. One in every other sample says that samples are drawn anew.
_RANDOM = (
    "aten::random_",
    "aten::uniform_",
    "aten::normal_",
    "aten::bernoulli_",
    "aten::rand",
    "aten::randn",
    "aten::randint",
    "aten::randperm",
)
_DRAWN_ANEW = 0.5
# A respawn shows as steps that are this many times the others, in most epochs at the same place.
_LONG = 2.0
_MOSTLY = 0.6
# Of what makes them longer at least this much lies in the fetch, the backward pass and the optimizer: new workers take
# cores from all of them. Something that a script does of its own at the start of an epoch lies in none of them.
_BY_WORKERS = 0.15
# New workers make these parts longer, too: they take cores, and what the loop writes after a fork is copied first.
_NOT_REST = ("fetch", "backward", "optimizer")


class Batch(Struct, frozen=True):
    """One batch as the loader makes it, µs without the profiler.

    sample_us, collate_us  reading all its samples; putting them together
    floor_us               (least, most) that a batch of prepared samples takes
    bytes                  of the batch, 0 where not known
    whole_bytes            of all samples of the dataset, None where not known
    drawn_anew             each sample takes random numbers, so that it cannot be prepared once
    ready                  its samples are tensors in memory already, put together by torch itself
    at_once_us             (least, most) that one index for all its samples takes, where they are ready
    of_numbers             how many of its tensors hold one Python number of each sample
    """

    sample_us: float
    collate_us: float
    floor_us: tuple[float, float]
    bytes: float
    whole_bytes: float | None
    drawn_anew: bool
    ready: bool
    at_once_us: tuple[float, float] = (0.0, 0.0)
    of_numbers: float = 0.0

    @property
    def us(self) -> float:
        """What one process needs for it."""
        return self.sample_us + self.collate_us

    @property
    def can_be_prepared(self) -> bool:
        """Whether all samples can be made before the training and kept."""
        return not self.drawn_anew and self.whole_bytes is not None and self.whole_bytes <= _MOST_BYTES


def batch(facts: Loader | None, waits: InputWaits, trace: Trace, nesting: Nesting) -> Batch | None:
    """The loader's batch; None where capture did not reach what its samples cost."""
    if facts is None or facts.sample_us is None:
        return None
    # A data set that makes whole batches: to workers each is one sample, as its time is that of one.
    size = facts.batch_size or (1 if facts.num_workers else None)
    if not size:
        return None
    inside, fetches = _inside(waits, trace, nesting), max(len(waits.rows), 1)
    bytes_ = _bytes(trace, inside, size) / fetches
    random = int((trace.events.exactly(*_RANDOM) & inside).sum()) / fetches
    floor = [size * _SAMPLE_US[end] + _BATCH_US[end] + bytes_ / _BYTES_PER_US[end] for end in (0, 1)]
    tensors = _put_together(trace, inside, size, fetches)
    copied = max(bytes_, _row_bytes(trace, inside) / fetches)
    at_once = [tensors * (_TENSOR_US[end] + size * _INDEX_US[end]) + copied / _BYTES_PER_US[end] for end in (0, 1)]
    cheap = facts.sample_us <= _SAMPLE_US[1] or facts.dataset in _READY_SETS
    return Batch(
        sample_us=size * facts.sample_us,
        collate_us=facts.collate_us or 0.0,
        floor_us=(floor[0], floor[1]),
        bytes=bytes_,
        whole_bytes=bytes_ / size * facts.dataset_size if facts.dataset_size else None,
        drawn_anew=bool(facts.random_samples) or random >= _DRAWN_ANEW * size,
        ready=cheap and facts.collate in (None, "default_collate"),
        at_once_us=(at_once[0], at_once[1]),
        of_numbers=_of_numbers(trace, inside, size) / fetches,
    )


def _inside(waits: InputWaits, trace: Trace, nesting: Nesting) -> RowMask:
    """Rows inside the fetches."""
    fetching = np.zeros(len(trace.events), np.bool_)
    fetching[list(waits.rows)] = True
    found: RowMask = nesting.within(fetching)
    return found


def _put_together(trace: Trace, inside: RowMask, size: int, fetches: int) -> float:
    """Tensors of a batch: those stacked from its samples, and those made of a Python number of each.

    A sample that is a NumPy array becomes a tensor before it is stacked: as many as there are samples are no tensors of
    the batch.
    """
    stacked, made = (int((trace.events.exactly(name) & inside).sum()) / fetches for name in (_STACKED, _FROM_PYTHON))
    return stacked + (made % size if stacked and size > 1 else made)


def _bytes(trace: Trace, inside: RowMask, size: int) -> float:
    """Bytes that the loader puts together in all fetches, taking numbers for 4 bytes; 0 where shapes are unknown.

    Samples may put together parts of their own: where lists of as many tensors as a batch has samples are, those count.
    """
    events = trace.events
    rows = np.flatnonzero(inside & events.exactly("aten::cat") & (events.dims >= 0))
    lists = [element_counts(events.dims_table[events.dims[row]]) for row in rows.tolist()]
    of_batch = [one for one in lists if len(one) == size]
    return 4.0 * sum(map(sum, of_batch or lists))


def _row_bytes(trace: Trace, inside: RowMask) -> float:
    """Bytes of the rows that all fetches select from tensors, taking numbers for 4 bytes.

    The shapes of lists of more than 30 tensors are not recorded, so that those put together may not tell.
    """
    events = trace.events
    rows = np.flatnonzero(inside & events.exactly("aten::select") & (events.dims >= 0))
    texts, times = np.unique(events.dims[rows], return_counts=True)
    counts = zip((shapes(events.dims_table[text]) for text in texts.tolist()), times.tolist(), strict=True)
    numbers = sum(math.prod(sizes[0][1:]) * n for sizes, n in counts if sizes and sizes[0])
    return 4.0 * float(numbers)


def _of_numbers(trace: Trace, inside: RowMask, size: int) -> int:
    """How many tensors all fetches make of so many Python numbers, one for each sample of a batch."""
    events = trace.events
    rows = np.flatnonzero(inside & events.exactly(_FROM_PYTHON) & (events.dims >= 0))
    texts, times = np.unique(events.dims[rows], return_counts=True)
    each = zip(texts.tolist(), times.tolist(), strict=True)
    return int(sum(n for text, n in each if shapes(events.dims_table[text])[:1] == [[size]]))


def respawned(facts: Loader | None, scale: Scale, timed: StepTimes) -> tuple[float, float] | None:
    """(low, high) share of the mean step that goes when workers outlive the epoch; None where no such rhythm is seen.

    low: the steps that open an epoch become ordinary ones; high: every step becomes like the fast tenth, since new
    workers take the cores of the first steps after them, too. Where it is known what the steps spent in their parts: a
    step that opens an epoch may be long for another reason, such as pictures that it saves.
    """
    if not facts or not facts.num_workers or facts.persistent_workers or not (facts.dataset_size and facts.batch_size):
        return None
    every = facts.dataset_size // facts.batch_size
    times = np.asarray(timed.unprofiled_us, float)
    if every < 2 or len(times) < 2 * every or not (scale.unprofiled.mean and scale.unprofiled.p10):
        return None
    rest = float(np.median(np.sort(times)[: len(times) - len(times) // every]))
    first = opening(times >= _LONG * rest, every)
    if first is None:
        return None
    longer_us = float((times[first] - rest).clip(0).sum())
    parts = np.asarray(_not_rest(timed), float)
    if len(parts) == len(times) and (parts[first] - np.median(parts)).clip(0).sum() < _BY_WORKERS * longer_us:
        return None
    low = longer_us / float(times.sum())
    return low, max(low, 1 - scale.unprofiled.p10 / scale.unprofiled.mean)


def _not_rest(timed: StepTimes) -> list[float]:
    """What each un-profiled step spent in its fetch, its backward pass and its optimizer, µs."""
    parts = [times for name, times in timed.unprofiled_parts_us.items() if name in _NOT_REST]
    return [sum(step) for step in zip(*parts, strict=False)]


def opening(long: RowMask, every: int) -> Ints | None:
    """The steps that open an epoch: every so many, most of them long. None where there is no such rhythm.

    An epoch has one batch more where the last is not dropped, and one step less where that is not timed.
    """
    found = [
        np.arange(first, len(long), period)
        for period in (every, every + 1, every - 1)
        if period > 1
        for first in range(min(period, len(long) - period))  # seen at least twice: one long step is no rhythm
    ]
    best = max(found, key=lambda steps: float(long[steps].mean()))
    return best if long[best].mean() >= _MOSTLY else None
