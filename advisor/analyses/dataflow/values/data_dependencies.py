"""Which ops of a step read what which earlier ops of it wrote: what tells a loop over elements from a recurrence.

Pure, like `value_numbering`. A write is told apart by the part of the storage that it covers: what
fills one row of a table does not wait for what filled another. Ops that only look at a tensor anew write nothing, so
that no op waits for them. What went through Python, as a number that was read, is not seen.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref

# These write over their first argument without a look at what it holds.
_OVER = frozenset(
    f"aten::{name}" for name in ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_")
)
# What Python put into a tensor no op wrote.
_FROM_PYTHON = ("aten::lift_fresh", "aten::lift", "aten::set_", "aten::from_file")
# Of a script's numbers; a training computes its own ones in single precision.
_FRACTIONS = ("Tensor(double)", "Tensor(c10::complex<double>)")
# So many parts of one storage are kept apart; more count as one, which all of them have written.
_MOST_PARTS = 64

# No op waits for one that only looks at a tensor anew; of what such a look sees the latest writers are kept.
_MOST_OF_LOOKS = 16
# More is not kept of a step: a buffer that is read whole after each of 16,000 writes would make 100 million.
_MOST_WAITS = 400_000

# First and last element of a storage, and the ops that wrote them, in order.
_Part = tuple[int, int, tuple[int, ...]]


def waits(ops: Sequence[Op]) -> list[list[int]]:
    """For each op of one step, those of other threads left out, how far before it those are that it waits for.

    Zero, itself, where that cannot be told: tensors without a storage (of `torch.func`, sparse ones) have no address
    that would be theirs alone. Empty where there are more than may be kept.
    """
    parts: dict[int, list[_Part]] = {}
    found: list[list[int]] = []
    made: set[tuple[int, int]] = set()  # tensors that ops gave a storage
    count = 0
    for op in ops:
        written = value_numbering.written(op)
        ours = [
            ref for ref in _reads(op) if not _is_number(ref) and (not ref.number or (ref.tensor, ref.storage) in made)
        ]
        touched = {ref.storage for ref in op.refs}
        looks = not written and bool(op.outputs) and all(ref.storage in touched for ref in op.outputs)
        sources = _sources(parts, ours, _MOST_OF_LOOKS if looks else None)
        # An op of another thread has no place: who waits for it waits for what it waited for.
        mine = sources
        if op.place != "elsewhere":
            mine = (len(found),)
            known = all(ref.storage >= 0 for ref in ours)
            found.append([len(found) - source for source in reversed(sources)] if known else [0])
            count += len(sources)
        if count > _MOST_WAITS:
            return []
        for ref in op.outputs:
            if op.name in _FROM_PYTHON:
                parts.pop(ref.storage, None)  # another tensor may have had this address
            elif ref.storage not in touched:
                parts[ref.storage] = [(*_extent(ref), mine)]
        for ref in written:
            _write(parts, ref, mine)
        made.update((ref.tensor, ref.storage) for ref in op.outputs)
    return found


def _reads(op: Op) -> list[Ref]:
    if value_numbering.reads_form(op):
        return []
    return [ref for argument in op.inputs[op.name in _OVER :] for ref in argument]


def _is_number(ref: Ref) -> bool:
    """Whether a tensor is a fraction of the script's: those are at addresses where a moment ago others were."""
    form: tuple[Any, ...] = ref.form  # type: ignore[assignment]
    return ref.number and form[3] in _FRACTIONS


def _sources(parts: dict[int, list[_Part]], refs: Sequence[Ref], most: int | None) -> tuple[int, ...]:
    """The ops that wrote what these tensors look at, in order; of each part the last `most` alone."""
    found: set[int] = set()
    for ref in refs:
        first, last = _extent(ref)
        for a, b, who in parts.get(ref.storage, ()):
            if a <= last and b >= first:
                found.update(who if most is None else who[-most:])
    ordered = sorted(found)
    return tuple(ordered if most is None else ordered[-most:])


def _write(parts: dict[int, list[_Part]], ref: Ref, who: tuple[int, ...]) -> None:
    """Takes note of a write; what a write without holes covers is gone."""
    first, last = _extent(ref)
    whole = _is_whole(ref, last - first + 1)
    kept = [one for one in parts.get(ref.storage, ()) if not (whole and first <= one[0] and one[1] <= last)]
    if len(kept) >= _MOST_PARTS:
        all_of_them = sorted(frozenset().union(*(w for _, _, w in kept)))
        kept = [(min(a for a, _, _ in kept), max(b for _, b, _ in kept), tuple(all_of_them))]
    parts[ref.storage] = [*kept, (first, last, who)]


def _extent(ref: Ref) -> tuple[int, int]:
    """First and last element of the storage that a tensor looks at."""
    form: tuple[Any, ...] = ref.form  # type: ignore[assignment]
    return form[0], form[0] + _span(form[1], form[2]) - 1


@functools.lru_cache(maxsize=4096)
def _span(sizes: str, strides: str) -> int:
    """Elements from the first to the last of a tensor; one where it is empty, or its form is not known."""
    lengths, steps = json.loads(sizes) or [], json.loads(strides) or []
    return 1 + sum((max(int(length), 1) - 1) * int(step) for length, step in zip(lengths, steps, strict=False))


def _is_whole(ref: Ref, span: int) -> bool:
    """Whether a tensor looks at every element of its stretch of the storage."""
    return ref.elements == span
