"""What autograd recorded and no backward pass uses: forward passes, and backward passes with create_graph=True."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    CallSites,
    Category,
    Events,
    Intervals,
    Ints,
    Nesting,
    Price,
    RowMask,
    Source,
    StepOps,
    Unfollowed,
    UnfollowedForwards,
    backward_passes,
    calm,
    edits,
    is_network,
    total,
    union,
)

Pass = backward_passes.Pass
# A pass records itself where nearly all that its derivatives call is recorded: a checkpointed layer is a part of one.
_RECORDED = 0.9
# Transforms of torch.func always record, and nobody can tell them not to: there each op is seen twice.
_BY_TRANSFORM = 0.5


def unused_runs(price: Price, runs: Sequence[Unfollowed]) -> tuple[float, edits.Edit]:
    """(recorded µs per step that these runs take, the step without them): with a device by what they launch."""
    if price.on_device:
        rows = np.concatenate([run.rows for run in runs])
        return price.spent_us(rows), edits.remove(rows)
    spans = calm(union(np.array([run.start_ns for run in runs]), np.array([run.end_ns for run in runs])))
    return price.ops.steps.per_step_us(total(spans)), edits.remove_time(spans)


def places_of(run: Unfollowed, sites: CallSites) -> tuple[Source, ...]:
    """The line that asked for a forward pass, where several ask for it; then the line that took most of it."""
    asked = sites.where_apart(np.array(run.rows, np.int64))
    return tuple(dict.fromkeys(one for one in (asked, run.where) if one is not None))


def unused_passes(recorded: StepOps, found: Sequence[Pass]) -> Iterator[Pass]:
    """The passes that record themselves and that no pass goes through; none of a form that another goes through."""
    events = recorded.events
    own = recorded_numbers(events, recorded.nesting, found)
    if not any(own):
        return
    nodes = np.flatnonzero(events.named(AUTOGRAD_NODE) & (events.sequence >= 0))
    updates = events.start_ns[events.of(Category.ANNOTATION) & events.named(backward_passes.UPDATES)]
    last_ns = int(updates.max()) if len(updates) else 0
    used = set()
    for one, numbers in zip(found, own, strict=True):
        later = events.sequence[nodes[events.start_ns[nodes] >= one.end_ns]]
        if numbers and np.any((later >= numbers[0]) & (later <= numbers[1])):
            used.add(_form(events, one))
    for one, numbers in zip(found, own, strict=True):
        # What goes through the record of the last step may come after the trace.
        if numbers and one.end_ns <= last_ns and _form(events, one) not in used:
            yield one


def behind(
    events: Events, found: Sequence[Pass], unused: Sequence[Pass], forwards: UnfollowedForwards | None
) -> Intervals:
    """When ops on the gradients of unused passes ran that were recorded for them alone: up to the next pass."""
    starts = np.array([*(one.start_ns for one in found), np.iinfo(np.int64).max], np.int64)
    runs = [run for run in forwards.runs if not is_network(events, run)] if forwards is not None else []
    ends = np.array([one.end_ns for one in unused], np.int64)
    nexts = starts[np.searchsorted(starts, ends)]
    mine = [run for run in runs if np.any((ends <= run.start_ns) & (run.end_ns <= nexts))]
    return union(np.array([run.start_ns for run in mine], np.int64), np.array([run.end_ns for run in mine], np.int64))


def recorded_numbers(events: Events, nesting: Nesting, found: Sequence[Pass]) -> list[tuple[int, int] | None]:
    """For each pass (first, last) number under which it recorded what its derivatives called; None where it did not."""
    of = np.full(len(events) + 1, -1, np.int64)  # the last one answers for rows without a parent
    for at, one in enumerate(found):
        of[list(one.nodes)] = at
    derivatives = np.flatnonzero((of[nesting.parent] >= 0) & events.of(Category.CPU_OP) & events.named("Backward"))
    inside = np.zeros(len(events) + 1, bool)
    inside[derivatives] = True
    called = np.flatnonzero(inside[nesting.parent] & events.of(Category.CPU_OP))
    number = np.where(events.forward_thread[called] <= 0, events.sequence[called], -1)
    mine = of[nesting.parent[nesting.parent[called]]]
    twice = _twice(events, nesting, called)
    result: list[tuple[int, int] | None] = [None] * len(found)
    for at in np.unique(mine[number >= 0]).tolist():
        numbers = number[mine == at]
        if (numbers >= 0).mean() >= _RECORDED and twice[mine == at].mean() < _BY_TRANSFORM:
            result[at] = int(numbers[numbers >= 0].min()), int(numbers.max())
    return result


def _twice(events: Events, nesting: Nesting, rows: Ints) -> RowMask:
    """Which ops hold one of the same name and number: a transform of torch.func handed them on to what is below it."""
    holds = np.zeros(len(events) + 1, bool)
    above = nesting.parent
    same = (events.name == events.name[above]) & (events.sequence == events.sequence[above]) & (above >= 0)
    holds[above[same]] = True
    return np.asarray(holds[rows], bool)


def _form(events: Events, one: Pass) -> tuple[int, ...]:
    return tuple(events.name[list(one.nodes)].tolist())
