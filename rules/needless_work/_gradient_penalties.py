"""Penalties on gradients: the backward pass that records itself, what is made of its gradient, and the pass through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import Events, Ints, ObservedOps, Readers, RowMask, StepOps, backward_passes, nodes_of

from ..shared._places import forward_rows
from ._unused_records import recorded_numbers

Pass = backward_passes.Pass


class Penalty(Struct, frozen=True, eq=False):
    """One penalty of one profiled step. Rows on whichever thread.

    step      the profiled step
    first     engine calls of the pass that takes the gradient
    chain     the ops that make one number of it
    second    engine calls of the later pass through the record of the first one, and through the chain's
    forward   the ops that the first pass goes through, with what the later pass evaluates of them
    alone     whether nothing else reads what these computed; None where that is not known of this step
    centred   the gradient's norm is compared with a number of the script
    """

    step: int
    first: Ints
    chain: Ints
    second: Ints
    forward: Ints
    alone: bool | None
    centred: bool


def penalties(
    recorded: StepOps, found: Sequence[Pass], observed: ObservedOps, readers: Readers | None
) -> Iterator[Penalty]:
    """The penalties of the profiled steps: numbers made of a gradient alone, which a later backward pass starts from.

    None where that later pass records itself, too: then the gradient is differentiated as a part of the model.
    """
    own = recorded_numbers(recorded.events, recorded.nesting, found)
    taking = [(one, numbers) for one, numbers in zip(found, own, strict=True) if numbers and not one.stores]
    plain = [one for one, numbers in zip(found, own, strict=True) if not numbers]
    if not taking:
        return
    for step, at in enumerate(observed.places):
        of_pass: dict[int, Penalty] = {}
        for places, centred in observed.seen.slopes:
            chain = at[np.asarray(places, np.int64)]
            for one in _penalty(recorded, step, chain, centred, taking, plain, readers) if (chain >= 0).all() else ():
                first = int(one.first[0])
                of_pass[first] = _joined(of_pass[first], one) if first in of_pass else one
        yield from of_pass.values()


def _joined(one: Penalty, other: Penalty) -> Penalty:
    """Two numbers that are made of one gradient: the penalty, and a mean of what it is made of."""
    return Penalty(
        step=one.step,
        first=one.first,
        chain=np.union1d(one.chain, other.chain),
        second=np.union1d(one.second, other.second),
        forward=one.forward,
        alone=one.alone,
        centred=one.centred or other.centred,
    )


def _penalty(
    recorded: StepOps,
    step: int,
    chain: Ints,
    centred: bool,
    taking: Sequence[tuple[Pass, tuple[int, int]]],
    plain: Sequence[Pass],
    readers: Readers | None,
) -> Iterator[Penalty]:
    events = recorded.events
    begins, ends = int(events.start_ns[chain[0]]), int(events.end_ns[chain[-1]])
    before = [(one, numbers) for one, numbers in taking if one.end_ns <= begins]
    later = next((one for one in plain if one.start_ns >= ends), None)
    if not before or later is None:
        return
    first, numbers = before[-1]
    nodes = np.array(later.nodes, np.int64)
    through = nodes[_of_record(recorded, first, numbers, nodes)]
    of_chain = np.intersect1d(nodes_of(events, recorded.outermost, chain), nodes)
    if not len(through) or not len(of_chain):
        return
    calls = np.array(first.nodes, np.int64)
    numbered = calls[events.sequence[calls] >= 0]
    ops = _ops(recorded, numbered)
    same = np.isin(events.sequence[nodes], events.sequence[numbered])
    same &= np.isin(events.forward_thread[nodes], events.forward_thread[numbered])
    yield Penalty(
        step=step,
        first=calls,
        chain=chain,
        second=np.union1d(through, of_chain),
        forward=np.union1d(ops, nodes[same]),
        alone=_alone(events, ops, readers),
        centred=centred,
    )


def rows_of_all(found: Sequence[Penalty]) -> tuple[Ints, bool]:
    """(all that goes without these penalties, whether their forward passes are among it)."""
    alone = {one.alone for one in found if one.alone is not None} == {True}
    rows = [part for one in found for part in (one.first, one.chain, one.second, *((one.forward,) if alone else ()))]
    return np.unique(np.concatenate(rows)), alone


def _of_record(recorded: StepOps, first: Pass, numbers: tuple[int, int], nodes: Ints) -> RowMask:
    """Which nodes of a later pass the first one recorded. Each thread has numbers of its own."""
    events = recorded.events
    root = first.nodes[0]
    on_loop = bool(events.thread[root] == recorded.steps.main_thread)
    like = events.forward_thread[nodes] == events.forward_thread[root]
    inside = (events.sequence[nodes] >= numbers[0]) & (events.sequence[nodes] <= numbers[1])
    chosen: RowMask = inside & (like if on_loop else ~like)
    return chosen


def _ops(recorded: StepOps, nodes: Ints) -> Ints:
    """The outermost ops of the loop's thread that recorded these nodes."""
    ops = np.unique(recorded.nesting.outer_op[forward_rows(recorded.trace, nodes)])
    ops = ops[ops >= 0]
    found: Ints = ops[recorded.events.thread[ops] == recorded.steps.main_thread]
    return found


def _alone(events: Events, ops: Ints, readers: Readers | None) -> bool | None:
    """Whether no other op reads what these ops computed, but for its form; None where they are not all known."""
    mine = set(ops.tolist())
    if readers is None or not mine or any(row not in readers.at for row in mine):
        return None
    others = (reader for row in mine for reader in readers.of(row) if reader not in mine)
    return all(events.text(reader).endswith("_like") for reader in others)
