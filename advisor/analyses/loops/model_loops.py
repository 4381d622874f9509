"""Lines of the script that call its model again and again within a step: once for each sample, most often.

Read from the step whose lines were recorded, in which each forward of a module of the model has a row of its own.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import parents
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCost, LineCosts
from advisor.analyses.costs.module_calls import PREFIX as MODULE
from advisor.analyses.costs.module_calls import parse_range
from advisor.analyses.lines.line_records import PREFIX as LINE
from advisor.analyses.lines.line_records import parse_record
from advisor.analyses.lines.lines import LinesTrace
from advisor.computed import Missing
from advisor.trace.events import Ints, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

# Two or three calls in a step are kinds of samples: both sides of a pair, a triplet, real and made-up pictures.
_FEWEST = 4


class ModelLoop(Struct, frozen=True):
    """A line that calls a module, which no other module calls, several times a step; no single layer of torch's.

    kind: the class of the module;  calls: how often in the recorded step
    library: the package that calls it so often, where the line hands it over and is visited far less: it has no loop
    """

    line: LineCost
    kind: str
    calls: int
    library: str = ""


class ModelLoops(Struct, frozen=True):
    """All of them, most calls first."""

    of: tuple[ModelLoop, ...]

    @classmethod
    def compute(cls, costs: LineCosts, recorded: LinesTrace | None) -> ModelLoops:
        """Missing where neither lines nor modules were recorded.

        Lines whose calls each have a backward pass behind them (an accumulation, a critic) are another thing.
        """
        if recorded is None:
            raise Missing("lines of the user's code are not recorded; capture the script with `advisor run`")
        lines = costs.by_place
        events = recorded.trace.events
        passes = np.sort(events.start_ns[events.named(AUTOGRAD_NODE)])
        found = [
            ModelLoop(lines[at], kind, len(starts), _library(lines[at], visits, len(starts)))
            for (at, _, kind), (starts, visits) in _calls(recorded.trace).items()
            if len(starts) >= _FEWEST and at in lines and not _each_with_a_pass(np.array(starts), passes)
        ]
        return cls(tuple(sorted(found, key=lambda one: -one.calls)))


def _library(line: LineCost, visits: int, calls: int) -> str:
    """The package whose functions call a module again and again in each visit of the line, as a solver does.

    Empty for calls of torch's (the module itself) and for comprehensions, whose iterations are no visits.
    """
    return "" if line.inner or line.package == "torch" or _FEWEST * visits > calls else line.package


def _each_with_a_pass(starts: Ints, passes: Ints) -> bool:
    """Whether a backward pass runs between most calls and the next. starts: of calls; passes: of their nodes."""
    between = np.diff(np.searchsorted(passes, starts))
    return 2 * int(np.count_nonzero(between)) >= len(between)


def _calls(recorded: Trace) -> dict[tuple[tuple[str, int], str, str], tuple[list[int], int]]:
    """By (file and line), path and class: when the line called it in the last recorded step, ns, and how often it ran.

    Counted are the calls of one run of the function that the line is in: in the run with most of them, it is a loop.
    """
    events, theirs = recorded.events, Steps.compute(recorded, None, None)
    first, last = theirs.spans[-1]
    inside = (events.thread == theirs.main_thread) & (events.start_ns >= first) & (events.end_ns <= last)
    modules, lines = inside & events.named(MODULE), inside & events.named(LINE)
    alone = modules & (parents(events, modules) < 0)
    around = parents(events, lines | alone)
    called_by = parents(events, lines)
    # A layer of torch's own runs no line of the script's, and calls no other module.
    within = parents(events, lines | modules)
    holds = np.zeros(len(events), bool)
    holds[within[within >= 0]] = True
    alone &= holds
    found: dict[tuple[tuple[str, int], str, str], dict[int, list[tuple[int, int]]]]
    found = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(alone & (around >= 0)).tolist():
        source = parse_record(events.text(int(around[row])))
        if source is not None:
            path, kind = parse_range(events.text(row))
            run = int(called_by[around[row]])
            visit = int(around[row])
            found[source.place, path, kind][run].append((int(events.start_ns[row]), visit))
    most = {key: max(runs.values(), key=len) for key, runs in found.items()}
    return {key: ([start for start, _ in calls], len({visit for _, visit in calls})) for key, calls in most.items()}
