"""Which ops of a step compute statistics of weights or gradients that are only kept, such as histograms.

Pure, like `value_numbering`. Such an op works on weights, gradients and other statistics alone, writes none of them,
and no other op reads its result. At its end stands a tensor that holds far fewer numbers than it was made of and that
the script keeps. Single numbers alone do not count: Python may clip gradients by them, or end the training; unless
there is one for each of several weights, and the update is over by which they could have changed anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from typing import Any

from msgspec import Struct, field

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values.outward_results import DECIDES

# What holds more of the numbers that it was made of is a copy, or an average that is kept: it may return.
_MOST_KEPT = 1 / 8
# One or two numbers may tell Python when to stop, or how large the next step is; one of each weight is a log.
_OF_EACH = 4
# These count, into as many numbers as they are asked for: no copy, even of a small tensor.
_COUNTS = frozenset(f"aten::{name}" for name in ("histc", "histogram", "histogramdd", "bincount"))


class Statistic(Struct, frozen=True):
    """op: one that computes a statistic, or works for one."""

    op: int


class _Result(Struct):
    """What an op made of weights or gradients alone.

    at: the op;  of: storages that it was made of;  given, held: how many numbers it was made of, and holds
    form: of the tensor, as Ref has it
    needed: an op that makes something else reads it;  leaf: no op reads it
    """

    at: int
    of: frozenset[int]
    given: int
    held: int
    form: Hashable
    needed: bool = False
    leaf: bool = True


class _Walk(Struct):
    """What is known of storages after the ops so far."""

    weights: Set[int]
    gradients: set[int] = field(default_factory=set)
    now: dict[int, _Result] = field(default_factory=dict)
    results: list[_Result] = field(default_factory=list)
    sources: dict[int, list[_Result]] = field(default_factory=dict)  # op -> results that it reads

    def take(self, at: int, op: Op) -> None:
        """Goes on by one op."""
        if value_numbering.is_view(op) or value_numbering.reads_form(op):
            return
        changed = {ref.storage for ref in op.outputs} - {ref.storage for ref in op.refs}
        changed |= {ref.storage for ref in value_numbering.written(op)}
        given = [ref for ref in op.refs if ref.storage not in self.now and ref.elements > 1]
        mine = [self.now[one] for one in {ref.storage for ref in op.refs if self._reads(ref)}]
        if not self._is_of_weights(op, given, mine):
            for one in mine:
                one.needed = True
            for storage in changed:
                self.now.pop(storage, None)
            backward = op.place in ("backward", "elsewhere")  # beside a device it has threads of its own
            self.gradients = self.gradients | changed if backward else self.gradients - changed
            return
        for one in mine:
            one.leaf = False
        self.sources[at] = mine
        of = frozenset(ref.storage for ref in given).union(*(one.of for one in mine))
        numbers = sum({ref.storage: ref.elements for ref in given}.values()) + sum(one.given for one in mine)
        for ref in (ref for ref in op.outputs if ref.storage in changed):
            self.now[ref.storage] = _Result(at, of, numbers, ref.elements, ref.form)
            self.results.append(self.now[ref.storage])

    def _reads(self, ref: Ref) -> bool:
        """Whether it is one of these results, and no number of Python's: for an op that is a tensor of its own, of
        another type as a rule, perhaps where the result of another op was.
        """
        one = self.now.get(ref.storage)
        return one is not None and (not ref.number or _dtype(ref.form) == _dtype(one.form))

    def _is_of_weights(self, op: Op, given: Sequence[Ref], mine: Sequence[_Result]) -> bool:
        """Whether an op of the loop reads weights, gradients and what was made of them alone, and writes no other."""
        known = all(ref.storage in self.weights or ref.storage in self.gradients for ref in given)
        writes = all(ref.storage in self.now for ref in value_numbering.written(op))
        told = _is_of_the_script(op) and not op.random and op.name not in DECIDES
        return told and known and writes and bool(given or mine)


def find(ops: Sequence[Op], parameters: Set[tuple[int, int]], place: Sequence[int], later: Set[int]) -> list[Statistic]:
    """Ops of one step, by their place in it.

    parameters: (tensor, storage) of those that the script holds;  place: of each op among those that have one;
    later: places of ops whose results the next step reads
    """
    walk = _Walk({storage for _, storage in parameters})
    for at, op in enumerate(ops):
        walk.take(at, op)
    needed = {one.at for one in walk.results if one.needed or place[one.at] in later}
    leaves = [one for one in walk.results if one.leaf and ops[one.at].name not in _COUNTS]
    needed |= {one.at for one in leaves if one.held > max(_MOST_KEPT * one.given, 1)}
    for at in reversed(walk.sources):  # what works for something else is no statistic
        if at in needed:
            needed.update(one.at for one in walk.sources[at])
    left = [one for one in walk.results if one.at not in needed]
    alone = _one_of_each(ops, walk, left)
    kept = frozenset[int]().union(*(one.of for one in left if one.leaf and one.held > 1), *(one.of for one in alone))
    found = {one.at for one in left if one.of & kept}
    # Numbers of them that Python reads, and looks at tensors on the way.
    found |= {
        at for at, mine in walk.sources.items() if not ops[at].outputs and found.issuperset(one.at for one in mine)
    }
    found |= set(_looks_before(ops, found))
    return [Statistic(place[at]) for at in sorted(found)]


def _one_of_each(ops: Sequence[Op], walk: _Walk, left: Sequence[_Result]) -> list[_Result]:
    """Single numbers of several weights that are kept, or read by Python, once the weights are updated."""
    updated = max((at for at, op in enumerate(ops) if op.place == "optimizer"), default=len(ops))
    read = {one.at for at, mine in walk.sources.items() if not ops[at].outputs for one in mine}
    found = [one for one in left if one.held == 1 and one.at > updated and (one.leaf or one.at in read)]
    return found if len({one.of for one in found}) >= _OF_EACH else []


def _dtype(form: Hashable) -> object:
    """The type of a tensor's numbers."""
    found: Any = form
    return found[3]


def _is_of_the_script(op: Op) -> bool:
    """Whether it may be asked for by the script, or by hooks of its parameters."""
    return op.place == "loop" or op.stores


def _looks_before(ops: Sequence[Op], found: Set[int]) -> Iterator[int]:
    """Views of tensors that the next op of the loop, one of these, reads."""
    reader: Op | None = None
    for at in reversed(range(len(ops))):
        if not value_numbering.is_view(ops[at]):
            reader = ops[at] if at in found else None
        elif reader and (reader.place, reader.stores) == (ops[at].place, ops[at].stores):
            yield at


def judge(steps: Sequence[Sequence[Statistic]], names: Sequence[Sequence[str]]) -> list[int]:
    """Of the last of several steps those ops that each of them has. names: of the ops of each."""
    return [one.op for one, _ in in_each(steps, names)]
