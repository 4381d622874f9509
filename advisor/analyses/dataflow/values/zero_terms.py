"""Which ops of a step work for nothing but terms that are multiplied by zero.

Pure, like `value_numbering`. Capture tells which products had the number zero as a factor (in the graph of the backward
pass), and what backward passes began with. What the training needs is followed back from there, and not through such a
product: what is left and leads to one is computed, and differentiated, for nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.aligned import places
from advisor.analyses.dataflow.observed.observed_steps import ObservedSteps
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values.outward_results import Outward
from advisor.capture.record import ZeroTerms

_PRODUCTS = ("aten::mul", "aten::mul_")
_SUMS = ("aten::add", "aten::add_", "aten::sub", "aten::sub_")
# `0 * sum(p.sum() for p in unused)` gives each parameter a gradient, which DistributedDataParallel waits for.
_TOUCHES = frozenset((*_PRODUCTS, *_SUMS, "aten::sum", "aten::mean"))
# Ops of these places are no part of a term, and need what they read, but for the backward pass: that of a term goes
# with it, and that of the rest reads what the rest needs.
_NEEDING = ("fetch", "optimizer")


def find(observed: ObservedSteps, waits: Sequence[Sequence[int]], outward: Outward) -> ZeroTerms | None:
    """Of the last step; None where nothing is multiplied by zero in each of them. waits: of `data_dependencies`."""
    if not observed.zeros or any(0 in backs for backs in waits):
        return None
    steps = [[op for op in ops if op.place != "elsewhere"] for ops in observed.steps]
    zeros = [_zeros(ops, observed.known, observed.zeros) for ops in steps]
    names = [[op.name for op in ops] for ops in steps]
    same = [places(one, names[-1]) for one in names[:-1]]
    products = [at for at in zeros[-1] if all(at in to and to[at] in one for to, one in zip(same, zeros, strict=False))]
    if not products or len(waits) != len(steps[-1]):
        return None
    sources = [[at - back for back in backs] for at, backs in enumerate(waits)]
    needed = _needed(steps[-1], sources, set(products), observed.roots, _seeds(steps[-1], outward))
    return _terms(steps[-1], products, sources, needed)


def _zeros(ops: Sequence[Op], known: Set[tuple[int, int]], numbers: Set[int]) -> list[int]:
    """The products with zero of one step, by place. numbers: of their nodes, which the last op with each recorded."""
    makers = {ref.storage: op for op in ops for ref in op.outputs if op.place == "loop"}
    found = {op.number: at for at, op in enumerate(ops) if op.place == "loop" and op.number in numbers}.values()
    return sorted(at for at in found if ops[at].name in _SUMS or _by_number(ops[at], makers, known))


def _by_number(op: Op, makers: dict[int, Op], known: Set[tuple[int, int]]) -> bool:
    """Whether an op is a product with a number of the script, with one that it holds, or with a product of such.

    A number that was computed from the batch may be zero in two steps, and another one in the third.
    """
    if op.name not in _PRODUCTS:
        return False
    factors = [ref for ref in op.refs if not _is_large(ref)]
    made = [makers[ref.storage] for ref in factors if ref.storage in makers and not ref.number]
    return any(_stated(ref, known) for ref in factors) or any(
        one.name == "aten::mul" and any(_stated(ref, known) for ref in one.refs) for one in made
    )


def _stated(ref: Ref, known: Set[tuple[int, int]]) -> bool:
    return ref.number or ((ref.tensor, ref.storage) in known and not _is_large(ref))


def _is_large(ref: Ref) -> bool:
    sizes: str = ref.form[1]  # type: ignore[index]
    return sizes != "[]"


def _ops_of(ops: Sequence[Op], numbers: Set[int]) -> set[int]:
    """The ops that recorded the nodes with these numbers, by place."""
    mine = [at for at, op in enumerate(ops) if op.place == "loop" and op.number >= 0]
    begun = [ops[at].number for at in mine]
    if not mine or begun != sorted(begun):
        return set()
    return {mine[at - 1] for number in numbers if (at := bisect_right(begun, number))}


def _needed(
    ops: Sequence[Op],
    sources: Sequence[Sequence[int]],
    products: Set[int],
    roots: Set[tuple[int, int]],
    seeds: Iterator[int],
) -> set[int]:
    """Ops whose results the training needs; what a product with zero reads, it does not for that."""
    cut = [[] if op.place == "backward" else given for op, given in zip(ops, sources, strict=True)]
    for at in products:
        cut[at] = _added(ops, at, sources[at])
    needed = _reached([*seeds, *_ops_of(ops, {root for root, begun in roots if begun < 0})], cut)
    asked = {(root, begun) for root, begun in roots if begun >= 0}
    # Gradients that are returned, and not stored, are needed where an op that is needed reads them.
    while read := {one for one in asked if not needed.isdisjoint(_pass(ops, one[1]))}:
        asked -= read
        needed |= _reached(_ops_of(ops, {root for root, _ in read}), cut)
    return needed


def _added(ops: Sequence[Op], at: int, sources: Sequence[int]) -> list[int]:
    """Of the ops that a product with zero reads those that are needed: a sum adds zero times its second summand."""
    if ops[at].name in _PRODUCTS:
        return []
    kept = {ref.storage for ref in ops[at].inputs[0]}
    made = {one: (*ops[one].outputs, *value_numbering.written(ops[one])) for one in sources}
    return [one for one in sources if kept & {ref.storage for ref in made[one]}]


def _pass(ops: Sequence[Op], begun: int) -> Iterator[int]:
    """The ops of the backward passes that began when autograd's next number was this one."""
    recorded = max((op.number for op in ops if op.place == "loop" and op.number < begun), default=-1)
    before = -1
    for at, op in enumerate(ops):
        if op.place == "loop" and op.number >= 0:
            before = op.number
        elif op.place == "backward" and recorded <= before <= begun:
            yield at


def _seeds(ops: Sequence[Op], outward: Outward) -> Iterator[int]:
    """Ops whose results are needed whatever a product with zero leaves of them."""
    # Running statistics are written for the next evaluation: without the term they do not see its batches.
    yield from (at for at in outward.leaving if not ops[at].training)
    # A step may end with its forward pass.
    yield from (at for at, reader in outward.onward if ops[reader].place != "backward")
    yield from (at for at, op in enumerate(ops) if op.place in _NEEDING)


def _terms(
    ops: Sequence[Op], products: list[int], sources: Sequence[Sequence[int]], needed: Set[int]
) -> ZeroTerms | None:
    vain = {at for at in _reached(products, sources) if ops[at].place == "loop" and at not in needed}
    # What is printed of a term is computed for that, too; no op waits for one that only looks at a tensor.
    beside = (at for at, op in enumerate(ops) if at not in needed and at not in vain and _reads(op))
    told = _reached(beside, sources) & vain
    if all(ops[at].name in _TOUCHES for at in vain):
        return None
    return ZeroTerms(
        products=products, ops=sorted(vain - told), told=sorted(told), statistics=any(ops[at].training for at in vain)
    )


def _reads(op: Op) -> bool:
    return op.place == "loop" and not value_numbering.is_view(op)


def _reached(seeds: Iterable[int], sources: Sequence[Sequence[int]]) -> set[int]:
    """These ops and all whose results lead to them."""
    todo = list(seeds)
    found = set(todo)
    while todo:
        new = [source for source in sources[todo.pop()] if source not in found]
        found.update(new)
        todo += new
    return found
