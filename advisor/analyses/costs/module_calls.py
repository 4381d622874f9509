"""When each module of the model ran its forward in the profiled steps.

Two sources. A capture has the step whose lines were recorded, with a range around each module's forward: its ops are
found again in every profiled step, so that profiled steps carry no range and no hook of ours. A bare trace may hold
`nn.Module: Linear_0` rows (with_stack or with_modules), which stand in the profiled steps themselves.
"""

from __future__ import annotations

from urllib.parse import unquote

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import nearest, parents
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.frames import innermost
from advisor.analyses.lines.lines import LinesTrace
from advisor.analyses.matching.same_ops import ops_of_steps, placed
from advisor.analyses.step.phases import backward_rows
from advisor.computed import Missing
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, starts_in

PREFIX = "advisor:module|"
_FRAME = "nn.Module: "
_NOT_RECORDED = "modules were not recorded; capture the script with `advisor run`, without --no-lines"
_NOT_SEEN = (
    "no module's forward was found in the step whose lines were recorded; compiled code hides modules, and modules "
    "that no optimizer trains are not searched"
)
_DIFFERENT = (
    "the profiled steps ran different ops in the model's forward than the step whose lines were recorded, so it is "
    "not known which ops ran in which module"
)


class ModuleCalls(Struct, frozen=True, eq=False):
    """The innermost running module at each instant of the loop's thread, with all modules around it.

    paths     the modules that ran, by path (`encoder.layers.0`); `nn.Module` rows give classes (`Encoder.Layer.0`)
    kinds     their classes
    calls     how often each ran per step
    chains    the ways in which modules were found within each other: indices into `paths`, outermost first
    spans     disjoint spans of the loop's thread, in order;  who: the chain of each
    kept      for each profiled step whether it ran the same ops, so that `spans` hold it
    alike     these steps ran the same forward; else (`nn.Module` rows) each may have been another
    """

    paths: tuple[str, ...]
    kinds: tuple[str, ...]
    calls: tuple[float, ...]
    chains: tuple[tuple[int, ...], ...]
    spans: Intervals
    who: Ints
    kept: Mask
    alike: bool = True

    def chain_at(self, time_ns: Ints) -> Ints:
        """The chain that runs at each instant of the loop's thread, -1 where none does."""
        if not len(self.spans):
            return np.full(len(time_ns), -1, np.int64)
        at = np.maximum(np.searchsorted(self.spans[:, 0], time_ns, side="right") - 1, 0)
        inside = (time_ns >= self.spans[at, 0]) & (time_ns < self.spans[at, 1])
        return np.where(inside, self.who[at], -1)

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, recorded: LinesTrace | None) -> ModuleCalls:
        """The calls of this rank. Missing where neither source tells, or where the recorded step is another."""
        if recorded is not None and recorded.trace.events.named(PREFIX).any():
            return _from_recorded_step(trace, steps, recorded.trace)
        rows = _frames(trace.events, steps)
        if not rows.any():
            raise Missing(_NOT_RECORDED if recorded is None else _NOT_SEEN)
        calls = _Calls.of(trace.events, rows, [_kind_of_frame(name) for name in trace.events.names])
        often = np.bincount(calls.module, minlength=len(calls.paths)) / steps.count
        kept = np.ones(steps.count, bool)
        paths = _as_first_seen(calls)
        return cls(paths, calls.kinds, tuple(often.tolist()), calls.chains, calls.spans, calls.who, kept, False)


def _from_recorded_step(trace: Trace, steps: Steps, recorded: Trace) -> ModuleCalls:
    """The calls of a recorded step, found again in the profiled ones: of several that which most of these are like."""
    theirs = Steps.compute(recorded, None, None)
    # Of equals the last: the first pays for whatever is set up once.
    found = [_of_step(trace, steps, recorded, theirs, step) for step in reversed(theirs.spans)]
    known = [one for one in found if isinstance(one, ModuleCalls)]
    if not known:
        raise Missing(_DIFFERENT if _DIFFERENT in found else _NOT_SEEN)
    return max(known, key=lambda one: int(one.kept.sum()))


def _of_step(trace: Trace, steps: Steps, recorded: Trace, theirs: Steps, step: Ints) -> ModuleCalls | str:
    """The calls of one recorded step; else why they are not known."""
    events = recorded.events
    inside = (events.start_ns >= step[0]) & (events.end_ns <= step[1]) & (events.thread == theirs.main_thread)
    forward = nearest(parents(events, events.of(Category.CPU_OP, Category.ANNOTATION)), backward_rows(events)) < 0
    rows = events.named(PREFIX) & inside & forward
    if not rows.any():
        return _NOT_SEEN
    calls = _Calls.of(events, rows, [parse_range(name) for name in events.names])
    codes: dict[str, int] = {}
    for outermost in (False, True):
        [mine] = ops_of_steps(recorded, theirs.main_thread, step[None], codes, outermost=outermost)
        others = ops_of_steps(trace, steps.main_thread, steps.spans, codes, outermost=outermost)
        found = [placed(calls.spans, calls.roots, mine, one) for one in others]
        if any(one is not None for one in found):
            break
    else:
        return _DIFFERENT
    known = [(spans[here], calls.who[here]) for spans, here in (one for one in found if one is not None)]
    spans, who = (np.concatenate(column) for column in zip(*known, strict=True))
    some = spans[:, 1] > spans[:, 0]
    kept = np.array([one is not None for one in found])
    often = np.bincount(calls.module, minlength=len(calls.paths)).astype(float)
    return ModuleCalls(calls.paths, calls.kinds, tuple(often.tolist()), calls.chains, spans[some], who[some], kept)


def _frames(events: Events, steps: Steps) -> Mask:
    """Rows of forwards that the profiler recorded by itself, on the loop's thread within steps."""
    named = np.array([name.startswith(_FRAME) for name in events.names] or [False])
    rows = events.of(Category.PYTHON) & events.rows_with(named) & (events.thread == steps.main_thread)
    return np.asarray(rows & starts_in(events.start_ns, steps.window), bool)


def parse_range(name: str) -> tuple[str, str]:
    """Path and class in `advisor:module|path|class`, in which characters of any other kind stand as in an address."""
    path, _, kind = name.removeprefix(PREFIX).rpartition("|")
    return unquote(path), unquote(kind)


def _kind_of_frame(name: str) -> tuple[str, str]:
    """Instance and class in `nn.Module: Linear_0`."""
    label = name.removeprefix(_FRAME)
    return label, label.rpartition("_")[0] or label


def _as_first_seen(calls: _Calls) -> tuple[str, ...]:
    """Paths of instances that carry none: by class, numbered where their place has several: `Encoder.Layer.3`.

    An instance is placed in the one around it where it ran first.
    """
    around: dict[int, int] = {}
    for chain in calls.chains:
        around.setdefault(chain[-1], chain[-2] if len(chain) > 1 else -1)
    alike: dict[tuple[int, str], list[int]] = {}
    for module, outer in around.items():
        alike.setdefault((outer, calls.kinds[module]), []).append(module)
    paths: dict[int, str] = {}
    for module, outer in around.items():  # what is around a module came before it
        same = alike[outer, calls.kinds[module]]
        name = calls.kinds[module] if len(same) == 1 else f"{calls.kinds[module]}.{same.index(module)}"
        paths[module] = f"{paths[outer]}.{name}" if outer >= 0 else name
    return tuple(paths[module] for module in range(len(calls.paths)))


class _Calls(Struct, frozen=True, eq=False):
    """Nested ranges of one thread: `module` of each range; spans with the chain that is running (`who`).

    roots: start and end of the outermost ranges, ns.
    """

    paths: tuple[str, ...]
    kinds: tuple[str, ...]
    module: Ints
    chains: tuple[tuple[int, ...], ...]
    spans: Intervals
    who: Ints
    roots: Intervals

    @classmethod
    def of(cls, events: Events, rows: Mask, names: list[tuple[str, str]]) -> _Calls:
        """The calls that these rows are. names: path and class by index of the trace's names."""
        above = parents(events, rows)
        index: dict[tuple[str, str], int] = {}
        chains: dict[tuple[int, ...], int] = {}
        chain_of: dict[int, tuple[int, ...]] = {-1: ()}
        chosen = np.flatnonzero(rows)
        for row in chosen.tolist():  # in order of start: what is around a row came before it
            module = index.setdefault(names[int(events.name[row])], len(index))
            chain_of[row] = (*chain_of[int(above[row])], module)
            chains.setdefault(chain_of[row], len(chains))
        spans, who = innermost(events, rows, above)
        outermost = chosen[above[chosen] < 0]
        return cls(
            paths=tuple(path for path, _ in index),
            kinds=tuple(kind for _, kind in index),
            module=np.array([chain_of[row][-1] for row in chosen.tolist()], np.int64),
            chains=tuple(chains),
            spans=spans,
            who=np.array([chains[chain_of[row]] for row in who.tolist()], np.int64),
            roots=np.column_stack((events.start_ns[outermost], events.end_ns[outermost])),
        )
