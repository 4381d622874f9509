"""Batches of token indices that are longer than their longest sample, and the ops that compute their positions."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.api import Category, Events, RankRecord, StepOps, Steps, Trace, constant, dims_of, dtypes_of, sizes

# What an op takes whatever its size, recorded.
_CALL_US = constant("calls.recorded_op_us").value
_WHOLE_NUMBERS = ("long int", "int")


class PaddedBatch(Struct, frozen=True):
    """A padded batch: its samples, its longest one before the padding, and the length that the model saw.

    row  the op that padded it, or the one that looked it up where it came padded
    """

    samples: int
    longest: int
    length: int
    row: int
    came_padded: bool = False


def padded_here(trace: Trace, steps: Steps) -> list[PaddedBatch]:
    """Batches of indices that were padded and then looked up at the padded length in the same step.

    What was cut from a batch of that length before is moved by a place or two, as a decoder's inputs are: no padding.
    """
    events = trace.events
    padding = events.exactly("aten::constant_pad_nd")
    if not padding.any():
        return []
    step = steps.step_of(events.start_ns)
    mine = events.of(Category.CPU_OP) & (events.thread == steps.main_thread) & (step >= 0)
    looked_up: dict[tuple[int, int], set[int]] = {}
    for row in np.flatnonzero(mine & events.exactly("aten::embedding")).tolist():
        indices = sizes(dims_of(events, row), 1)
        if len(indices) == 2:
            looked_up.setdefault((int(step[row]), indices[0]), set()).add(indices[1])
    cut: dict[tuple[int, tuple[int, ...]], int] = {}  # step, sizes -> the first cut
    for row in np.flatnonzero(mine & events.exactly("aten::slice")).tolist()[::-1]:
        cut[int(step[row]), sizes(dims_of(events, row), 0)] = int(events.start_ns[row])
    found = []
    for row in np.flatnonzero(mine & padding).tolist():
        shape = sizes(dims_of(events, row), 0)
        if len(shape) != 2 or not _of_whole_numbers(events, row):
            continue
        longer = [n for n in looked_up.get((int(step[row]), shape[0]), ()) if n > shape[1]]
        began = int(events.start_ns[row])
        longer = [n for n in longer if cut.get((int(step[row]), (shape[0], n)), began) >= began]
        if len(longer) == 1:  # with two lengths nobody knows which of them this one became
            found.append(PaddedBatch(shape[0], shape[1], longer[0], row))
    return found


def came_padded(trace: Trace, steps: Steps, record: RankRecord | None) -> list[PaddedBatch]:
    """Batches that came padded, by the indices that capture read in one step and in a few batches after it.

    Several embeddings look up one batch (tokens, kinds of tokens): the one that shows least padding tells. One place
    that all samples have in common is a mark where texts begin or end.
    """
    longest = _longest(record) if record else {}
    events = trace.events
    mine = events.of(Category.CPU_OP) & (events.thread == steps.main_thread) & events.exactly("aten::embedding")
    found = []
    for row in np.flatnonzero(mine & (steps.step_of(events.start_ns) >= 0)).tolist():
        seen = sizes(dims_of(events, row), 1)
        if len(seen) == 2 and longest.get((seen[0], seen[1]), seen[1]) < seen[1] - 1:
            found.append(PaddedBatch(seen[0], longest[seen[0], seen[1]], seen[1], row, came_padded=True))
    return found


def _longest(record: RankRecord) -> dict[tuple[int, int], int]:
    """By samples and length of a batch how long its longest sample is: the mean of all batches that were looked at."""
    of_step: dict[tuple[int, int], int] = {}
    for one in record.lookups:
        of_step[one.samples, one.length] = max(of_step.get((one.samples, one.length), 0), one.longest)
    seen = {shape: [longest] for shape, longest in of_step.items()}
    for one in record.batch_lengths:
        seen.setdefault((one.samples, one.length), []).append(one.longest)
    return {shape: round(sum(lengths) / len(lengths)) for shape, lengths in seen.items()}


def on_positions_us(ops: StepOps, batches: list[PaddedBatch]) -> tuple[float, float]:
    """Time of ops whose shapes hold the padded length, profiled µs per step: beyond what a call takes anyway, whole."""
    events, steps = ops.events, ops.steps
    lengths = {size for one in batches for size in (one.length, one.samples * one.length)}
    holds = [not lengths.isdisjoint(numbers(dims)) for dims in events.dims_table]
    rows = np.flatnonzero(events.of(Category.CPU_OP) & ops.links.inside & (events.dims >= 0))
    rows = rows[np.array(holds, bool)[events.dims[rows]]]
    own_us = ops.nesting.self_ns[rows] / 1e3
    beyond = steps.per_step_us(float((own_us - _CALL_US).clip(0).sum()) * 1e3)
    return beyond, steps.per_step_us(float(own_us.sum()) * 1e3)


def numbers(dims: str) -> list[int]:
    """All sizes in the text of an op's shapes."""
    return [int(number) for number in re.findall(r"\d+", dims)]


def _of_whole_numbers(events: Events, row: int) -> bool:
    dtypes = dtypes_of(events, row)
    return bool(dtypes) and dtypes[0] in _WHOLE_NUMBERS
