"""Which ops of a step make what leaves the step in another way than as one number, or may do so.

Pure, like `value_numbering`. What leaves so may come back: an array that Python computes with, a tensor that the script
keeps, a storage that was there before. One number that is printed or added up comes back only where an op of the next
step reads it, which is told. A number that Python decides by (`if loss.isnan()`) is not seen to come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed import aligned, value_numbering
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values import unread_rows

# Python decides by what these return.
DECIDES = frozenset(f"aten::{name}" for name in ("is_nonzero", "equal", "allclose", "is_same_size"))


class Outward(Struct, frozen=True):
    """leaving: such ops, by their place in the last step; onward: (op, the op that reads its result a step later).

    Steps that begin with a backward pass have the results of their forward pass read in the next one.
    """

    leaving: tuple[int, ...]
    onward: tuple[tuple[int, int], ...]


def find(steps: Sequence[Sequence[Op]], stored: Sequence[unread_rows.Storages]) -> Outward:
    """Of the last of several steps. stored: `unread_rows.storages` of each."""
    before, last = steps[-2], steps[-1]
    (earlier, at_earlier), (made, place) = stored[-2], stored[-1]
    leaving = {place[at] for at in (*_writers(last, made), *(at for at, _ in _left(last, made, numbers=False)))}
    makers = {one.ref.storage: one.at for one in earlier}  # the last of each, whose result may still be there
    kept = {storage: at_earlier[at] for storage, at in makers.items() if before[at].place == "loop"}
    if _names(before) != _names(last):
        # Which op of the last step an earlier one is, is not known of all: every number that is left may come back.
        leaving |= {place[at] for at, _ in _left(last, made, numbers=True)}
        same = {there: here for here, there in aligned.places(_names(before), _names(last)).items()}
        kept = {storage: same[at] for storage, at in kept.items() if at in same}
    return Outward(tuple(sorted(leaving)), tuple(sorted(_read_later(last, kept, place))))


def _names(ops: Sequence[Op]) -> list[str]:
    return [op.name for op in ops if op.place != "elsewhere"]


def _writers(ops: Sequence[Op], made: Sequence[unread_rows.Made]) -> Iterator[int]:
    """Ops that write what was there before the step, that write what leaves it, or that Python decides by."""
    left = {one.ref.storage for one in made if one.changed and _unread(one, numbers=False)}
    fresh: set[int] = set()
    for at, op in enumerate(ops):
        written = {ref.storage for ref in value_numbering.written(op)}
        if op.place != "elsewhere" and (op.name in DECIDES or written - fresh or written & left):
            yield at
        fresh.update(ref.storage for ref in op.outputs)


def _left(ops: Sequence[Op], made: Sequence[unread_rows.Made], *, numbers: bool) -> Iterator[tuple[int, Ref]]:
    """Ops with what no op of the step reads of their results: single numbers, or else more than one."""
    added = _read_by_writers(ops)
    by_op = unread_rows.of_each_op(made)
    for at, mine in by_op.items():
        # Of several results that which nobody reads was dropped, where another one is read.
        read = any(one.reads or one.ref.storage in added for one in mine)
        for one in mine:
            if one.ref.storage in added and not one.views:
                continue
            if ops[at].place in ("elsewhere", "backward") or (read and not one.reads and not one.views):
                continue
            yield from ((at, ref) for ref in _unread(one, numbers=numbers))


def _read_by_writers(ops: Sequence[Op]) -> set[int]:
    """Storages that ops read which write another one: `total.add_(mine)`."""
    found: set[int] = set()
    for op in ops:
        if written := {ref.storage for ref in value_numbering.written(op)}:
            found |= {ref.storage for ref in op.refs} - written
    return found


def _unread(made: unread_rows.Made, *, numbers: bool) -> list[Ref]:
    """What no op reads of a result: single numbers, or else what is more than one."""
    left = list(made.views.values()) if made.views or made.reads else [made.ref]
    return [ref for ref in left if (ref.storage >= 0 and ref.elements == 1) == numbers]


def _read_later(ops: Sequence[Op], kept: dict[int, int], place: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(op of the step before, op of this one) where this one reads what the other made.

    By its storage: whatever lies there now counts as that result, which at worst makes an op needed.
    """
    fresh: set[int] = set()
    for at, op in enumerate(ops):
        for ref in (ref for ref in op.refs if ref.storage not in fresh):
            # Numbers of the script lie wherever there is room.
            if ref.storage in kept and op.place != "elsewhere" and not ref.number:
                yield kept[ref.storage], place[at]
        # What only looks at a result leaves it to those that read it after.
        touched = {ref.storage for ref in op.refs}
        fresh.update(ref.storage for ref in op.outputs if ref.storage not in touched)
