"""Gradients that are reduced over the ranks in every backward pass, though several passes make one update."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.work.op_work import element_counts
from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.op_names import GRADIENT_STORE

# A pass that reduces less than this part of what the last pass of its update reduces keeps its gradients to itself:
# what it still sends are statistics of normalisation, or buffers.
_ALL = 0.9
# Steps for one update, at least, where capture counted both: a step that is skipped now and then is no accumulation.
_SEVERAL = 1.5

_MARKS = {"forward": "DistributedDataParallel.forward", "step": "Optimizer.step#"}
_REDUCES = "c10d::allreduce_"
_CLEARS = "Optimizer.zero_grad#"


class NeedlessReductions(Struct, frozen=True, eq=False):
    """Passes through DistributedDataParallel whose gradients were reduced, and then added to by another pass.

    per_update  backward passes per update; 1 if each pass has its own update, if some passes reduce nothing (they run
                in `no_sync()`), or if not known
    rows        the host's rows of the reductions of these passes
    """

    per_update: float
    rows: Ints

    @property
    def share(self) -> float:
        """Share of all reductions that no update needs."""
        return 1 - 1 / self.per_update

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, record: RankRecord | None) -> NeedlessReductions:
        """What the passes of the window did. Needs the shapes of collectives and the optimizer's events."""
        events = trace.events
        passes = _passes(events, steps)
        counted = record is not None and record.steps.optimizer_steps
        if passes and not counted and not events.named(_MARKS["step"]).any():
            raise Missing(
                "no optimizer step was detected: the trace has no `Optimizer.step#` event (torch before 2.3 does not "
                "record them once torch.compile was used), and capture counted none"
            )
        updates = _updates(passes)
        needless = [one for update in updates for one in update.earlier]
        wanted = _wanted(updates, record)
        in_vain = all(one.numbers >= _ALL * (update.last or wanted) > 0 for update in updates for one in update.earlier)
        per_update = _per_update(updates, steps, record)
        if needless and per_update >= _SEVERAL and _unknown_sizes(events):
            raise Missing("the trace does not contain the size of each reduction (torch 2.1 never records it)")
        if not needless or not in_vain or per_update < _SEVERAL:
            return cls(1.0, np.empty(0, np.int64))
        return cls(per_update, np.concatenate([one.rows for one in needless]))


class _Pass(Struct, frozen=True, eq=False):
    """One backward pass: numbers that it reduced, by which rows, and what came after it.

    then  "step", "clear", "forward", "" at the end
    """

    numbers: int
    rows: Ints
    then: str


class _Update(Struct, frozen=True, eq=False):
    """Numbers reduced by the last pass before the optimizer stepped (None: not in the window), and those before it."""

    earlier: tuple[_Pass, ...]
    last: int | None


def _passes(events: Events, steps: Steps) -> list[_Pass]:
    """Backward passes of the window in order: each from its forward pass to the next, or to the optimizer's step."""
    host = events.of(Category.ANNOTATION, Category.CPU_OP)
    rows = {kind: np.flatnonzero(events.named(name) & host) for kind, name in _MARKS.items()}
    marks = sorted((int(events.start_ns[row]), kind) for kind, found in rows.items() for row in found.tolist())
    cleared = events.start_ns[events.named(_CLEARS) & host]
    stored = events.start_ns[events.exactly(GRADIENT_STORE)]
    reductions, sizes = _reductions(events)
    close = (int(steps.window[-1, 1]), "")
    # A forward pass without a backward trains nothing: an evaluation, or the first half of a pair of views.
    trained = [mark for mark, (end, _) in pairwise([*marks, close]) if mark[1] == "step" or _any(stored, mark[0], end)]
    found: list[_Pass] = []
    for (start, kind), (end, then) in pairwise([*trained, close]):
        if kind == "step":
            continue
        mine = (events.start_ns[reductions] >= start) & (events.start_ns[reductions] < end)
        clears = then != "step" and _any(cleared, int(stored[stored < end].max()), end)
        found.append(_Pass(int(sizes[mine].sum()), reductions[mine], "clear" if clears else then))
    return found


def _reductions(events: Events) -> tuple[Ints, Ints]:
    """The host's rows of reductions, and the numbers of each: by their shapes, else as the rows below them state."""
    rows = np.flatnonzero(events.named(_REDUCES) & events.of(Category.CPU_OP) & (events.dims >= 0))
    shaped = [sum(element_counts(events.dims_table[events.dims[row]])) for row in rows.tolist()]
    if any(shaped):
        return rows, np.array(shaped, np.int64)
    of_reductions = [one.name == "allreduce" and one.in_elements > 0 for one in events.collective_table]
    stated = np.flatnonzero(events.of(Category.CPU_OP) & (events.collective >= 0))
    stated = stated[np.array(of_reductions, bool)[events.collective[stated]]] if len(stated) else stated
    named = [events.collective_table[index].in_elements for index in events.collective[stated].tolist()]
    return stated, np.array(named, np.int64)


def _unknown_sizes(events: Events) -> bool:
    """Whether there are reductions, and of none it is known how much it reduces."""
    asked = events.named(_REDUCES) & events.of(Category.CPU_OP)
    return bool(asked.any()) and not _reductions(events)[1].any()


def _any(at_ns: Ints, start: int, end: int) -> bool:
    """Whether one of these instants lies from start to end."""
    return bool(((at_ns >= start) & (at_ns < end)).any())


def _updates(passes: list[_Pass]) -> list[_Update]:
    """Passes by the update that they belong to; those whose gradients were cleared belong to none."""
    updates, open_ = [], list[_Pass]()
    for one in passes:
        if one.then == "step":
            updates.append(_Update(tuple(open_), one.numbers))
            open_ = []
        elif one.then == "clear":
            open_ = []
        else:
            open_.append(one)
    # The last pass may be the last of its update: nobody saw what came after it.
    return [*updates, _Update(tuple(open_[:-1]), None)]


def _wanted(updates: list[_Update], record: RankRecord | None) -> float:
    """Numbers that an update reduces, for those whose last pass is not in the window; infinite where unknown."""
    seen = [update.last for update in updates if update.last]
    known = ((record.model or {}).get("parameters") if record else None) or np.inf
    return float(min(seen, default=known))


def _per_update(updates: list[_Update], steps: Steps, record: RankRecord | None) -> float:
    """Backward passes for one update: as capture counted steps of the whole run, else as the window shows them."""
    passes = sum(len(update.earlier) + (update.last is not None) for update in updates)
    counted = record.steps if record else None
    if counted and counted.optimizer_steps and counted.count:
        # Several passes may be within one step; what the run did beyond the window, its steps tell.
        return counted.count / counted.optimizer_steps * max(round(passes / steps.count), 1)
    whole = [len(update.earlier) + 1 for update in updates[1:] if update.last is not None]
    return float(np.mean(whole)) if whole else 1.0
