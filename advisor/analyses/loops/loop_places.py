"""Loops of the user's code as places: which lines belong to one, and whether ops or Python make up its time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCost, LineCosts, callers_above
from advisor.analyses.dataflow.passes.backward_passes import BackwardPasses
from advisor.analyses.loops.line_blocks import (
    LOOP_ITERATIONS,
    MORE_OFTEN,
    NEAR,
    Block,
    block,
    blocks,
    in_most_turns,
    is_python,
    loops_around,
    with_callers,
)
from advisor.analyses.loops.line_ops import LineOps
from advisor.analyses.loops.loops import SHORT_OP_US, Loop, derives, feeds, feeds_back, layers_of, loops
from advisor.analyses.loops.model_loops import ModelLoop, ModelLoops
from advisor.analyses.loops.picked import spread
from advisor.analyses.step.deprofiled import Deprofiled, Stretch
from advisor.analyses.work.single_numbers import on_numbers
from advisor.capture.record import RankRecord, TextBlock
from advisor.model import Source
from advisor.trace.events import Ints, Trace

# Lines of Python this near to a loop are part of what it is for.
_BESIDE = 2
# Of loops in loops the outer ones are named too, as far as what they run besides the inner ones is little: the steps of
# an accumulation run a model as well.
_OUTER_SHARE = 0.1
# (file, name, who calls it) of a function; number -> its line.
_Function = tuple[str, str, tuple[str, int] | None]
_Functions = dict[_Function, dict[int, LineCost]]


class CalledModel(Struct, frozen=True):
    """A loop around calls of a model. where: its statement and the calling line; place: with all lines run in it.

    library: the package that the loop is in; "" where it is the user's
    """

    where: tuple[Source, ...]
    place: Block
    loop: Loop
    library: str = ""


class LoopPlaces(Struct, frozen=True):
    """Places of the user's code that iterate many times a step, or run Python for long; each belongs to one rule.

    calls   lines that call a model for each sample, with all lines that run in it (samples-one-by-one)
    ops     other places of short ops, each with its loop of most iterations, most expensive first (tensor-loop)
    python  places with long runs of Python, most expensive first (host-work)
    python_us  time of all lines in long runs of Python, µs per step

    If one of these calls the other in each iteration, both are one place, whose kind depends on where its time goes.
    """

    ops: tuple[tuple[Block, Loop], ...]
    python: tuple[Block, ...]
    python_us: float = 0.0
    calls: tuple[CalledModel, ...] = ()

    @classmethod
    def compute(
        cls,
        step_ops: StepOps,
        costs: LineCosts,
        called: LineOps,
        deprofiled: Deprofiled,
        record: RankRecord | None,
        models: ModelLoops | None,
    ) -> LoopPlaces:
        """The places of this rank. Missing where costs of lines are."""
        trace, steps, nesting, rows = step_ops.trace, step_ops.steps, step_ops.nesting, called.rows
        ops = [
            (_without_passes(place, loop, trace, steps, nesting, costs, deprofiled), loop)
            for place, loop in _of_ops(trace, steps, costs, rows, _weights(record))
        ]
        found = [_of_model(one, trace, steps, costs, rows) for one in (models.of if models is not None else ())]
        calls, ops = _apart([one for one in found if one is not None], ops)
        within = {line.source for one in calls for line in one.place.lines}
        taken = within.union(line.source for place, _ in ops for line in place.lines)
        slow = [line for line in costs.lines if is_python(line) and line.source not in taken]
        outer = [line for line in enclosing(costs, slow) if line.source not in taken]
        python = list(blocks([*slow, *outer]))
        kept = []
        for place, loop in ops:
            other = next((one for one in python if len(with_callers([[*place.lines], [*one.lines]])) == 1), None)
            if other is None:
                kept.append((place, loop))
                continue
            python.remove(other)
            whole = block([*place.lines, *other.lines])
            if whole.is_python:
                python.append(whole)
            else:
                kept.append((whole, loop))
        often = _function_calls(costs, _functions(costs))
        text = record.blocks if record else {}
        kept = [(_in_text(place, costs, often, text), loop) for place, loop in sorted(kept, key=lambda one: -one[0].us)]
        python = [_in_text(place, costs, often, text) for place in sorted(python, key=lambda one: -one.us)]
        return cls(tuple(kept), tuple(python), sum(line.python_us for line in costs.lines), tuple(calls))


def _of_model(one: ModelLoop, trace: Trace, steps: Steps, costs: LineCosts, rows: Ints) -> CalledModel | None:
    """The line, the loop around it, and all lines that run while it calls the model. None where its ops are long."""
    at = one.line.source.place
    callers = costs.callers
    below = {place for place in callers if at in callers_above(place, callers)}

    others = (line for line in costs.lines if line.source != one.line.source)
    lines = [one.line, *(line for line in others if line.source.place in below)]
    around = list(enclosing(costs, [one.line]))
    sources = {line.source for line in (*lines, *around)}
    within = {index for index, line in enumerate(costs.lines) if line.source in sources}
    mine = rows[np.isin(costs.op_line[rows], list(within))]
    if not len(mine) or float(trace.events.dur_ns[mine].mean()) / 1e3 > SHORT_OP_US:
        return None
    turns = float(one.calls)
    loop = Loop(
        turns,
        one.kind,
        0.0,
        spread=spread(trace, steps, costs, within, turns),
        feeds=feeds(trace, steps, costs, rows, within, turns),
    )
    where = sorted((line.source for line in (*around, one.line)), key=lambda source: source.line)
    return CalledModel(tuple(where), block([*lines, *around]), loop, one.library)


def _apart(
    calls: Sequence[CalledModel], ops: Sequence[tuple[Block, Loop]]
) -> tuple[list[CalledModel], list[tuple[Block, Loop]]]:
    """Of places that share a line the most expensive one: a loop that calls two modules is one loop."""
    kept: list[CalledModel] = []
    left = list(ops)
    for one in sorted(calls, key=lambda one: -one.place.us):
        mine = {line.source for line in one.place.lines}
        near = [place for place, _ in left if mine & {line.source for line in place.lines}]
        if any(mine & {line.source for line in other.place.lines} for other in kept):
            continue
        if all(place.us < one.place.us for place in near):
            kept.append(one)
            left = [(place, loop) for place, loop in left if place not in near]
    return kept, left


def _of_ops(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints, weights: int) -> Iterator[tuple[Block, Loop]]:
    """Places of lines that call a short op again and again, with the lines around them; no layers of a model."""
    layers = layers_of(trace, steps, costs, rows)
    found = {
        line: one
        for line, one in loops(trace, steps, costs, rows, layers).items()
        if not _are_layers(one.layers, one.turns, weights)
    }
    index_of = {line.source: index for index, line in enumerate(costs.lines)}
    lines = [*(costs.lines[index] for index in found), *_around(costs, found)]
    for place in blocks([*lines, *enclosing(costs, lines)]):
        within = {index_of[line.source] for line in place.lines}
        mine = [found[index] for index in within if index in found]
        if not mine or (any(one.network for one in mine) and feeds_back(trace, costs, rows, within)):
            continue
        most = max(mine, key=lambda one: (one.turns, one.op))
        if not _are_layers(sum(layers.get(index, 0.0) for index in within), most.turns, weights):
            yield (
                place,
                replace(
                    most,
                    spread=spread(trace, steps, costs, within, most.turns),
                    feeds=feeds(trace, steps, costs, rows, within, most.turns),
                    derives=derives(trace, steps, costs, within, most.turns),
                    numbers=not place.backward_us
                    and on_numbers(trace.events, rows[np.isin(costs.op_line[rows], list(within))]),
                ),
            )


def _without_passes(
    place: Block, loop: Loop, trace: Trace, steps: Steps, nesting: Nesting, costs: LineCosts, deprofiled: Deprofiled
) -> Block:
    """The place without the backward passes that a line of it runs in few of the turns, as the head of a loop does.

    `for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters))` runs one for all turns.
    """
    if not any(line.parts.get("backward") for line in place.lines):
        return place
    index = {line.source: at for at, line in enumerate(costs.lines)}
    called = Counter(int(costs.op_line[one.nodes[0]]) for one in BackwardPasses(trace, steps, nesting).all if one.nodes)
    kept = []
    for line in place.lines:
        often = called[index[line.source]] / steps.count
        few = 0 < often < LOOP_ITERATIONS and not in_most_turns(often, loop.turns)
        kept.append(_without_backward(line, deprofiled) if few else line)
    return block(kept)


def _without_backward(line: LineCost, deprofiled: Deprofiled) -> LineCost:
    """The line without its time in the autograd engine."""
    here = [part.name == "backward" for part in deprofiled.parts]
    work = Stretch(
        *(tuple(0.0 if there else one for one, there in zip(column, here, strict=True)) for column in line.work.columns)
    )
    us = line.parts["backward"]
    if not any(here):  # the parts of the step were not timed
        return line.times(max(1 - us / line.us, 0.0))
    return replace(line, us=line.us - us, parts={**line.parts, "backward": 0.0}, work=work, rows=sum(work.rows))


def _are_layers(calls: float, turns: float, weights: int) -> bool:
    """Whether each turn has weights of its own: lines that run so often are the layers of a model, and no loop."""
    return in_most_turns(calls, turns) and calls <= weights


def _weights(record: RankRecord | None) -> int:
    """How many tensors of weights there are: those that are trained, or modules, of which some may be frozen."""
    if record is None:
        return 0
    modules = len((record.model or {}).get("modules", ()))
    return max(sum(one.tensors or 0 for one in record.optimizers), modules)


def _around(costs: LineCosts, loops: Mapping[int, Loop]) -> Iterator[LineCost]:
    """Other lines of the loops' files that run as often as a loop turns: its head, its counters, its conditions."""
    turns: dict[str, float] = {}
    for index, loop in loops.items():
        if loop.reads:
            continue  # it turns inside a library
        line = costs.lines[index]
        # A comprehension in a loop turns more often than the lines around it.
        often = line.visits if line.inner and line.visits >= LOOP_ITERATIONS else loop.turns
        turns[line.source.file] = min(often, turns.get(line.source.file, often))
    for index, line in enumerate(costs.lines):
        often = turns.get(line.source.file, 0.0)
        if not often or index in loops or line.parts.get("optimizer"):
            continue
        # Python that costs less than the loop and stands beside it does what the loop does; more of it is host-work's.
        beside = any(
            abs(costs.lines[one].source.line - line.source.line) <= _BESIDE and line.us < costs.lines[one].us
            for one in loops
            if costs.lines[one].source.file == line.source.file
        )
        belongs = beside if is_python(line) else in_most_turns(line.visits, often)
        if belongs:
            yield line


def enclosing(costs: LineCosts, lines: Sequence[LineCost]) -> Iterator[LineCost]:
    """Lines right above these that run more often than their function does: of nested loops the outer statements."""
    chosen = {line.source for line in lines}
    functions = _functions(costs)
    calls = _function_calls(costs, functions)
    for function, known in functions.items():
        mine = [line for line in known.values() if line.source in chosen]
        little_us = _OUTER_SHARE * sum(line.us for line in mine)
        often = MORE_OFTEN * calls[function]
        for line in mine:
            for above in _above(known, line.source.line):
                if above.source in chosen or above.visits < often or above.us > little_us:
                    break
                chosen.add(above.source)
                yield above


def loop_around(costs: LineCosts, place: Source) -> Source | None:
    """The statement of the innermost loop around a line, in its function or in those that lead to it.

    None where no recorded line of them is one.
    """
    functions = _functions(costs)
    calls = _function_calls(costs, functions)
    known = costs.by_place
    leads = callers_above((place.file, place.line), costs.callers)
    for at in ((place.file, place.line), *leads):
        if at not in known:
            continue
        function = _function_of(known[at])
        mine = functions[function].values()
        above = sorted((one for one in mine if one.source.line < at[1]), key=lambda one: one.source.line)
        if around := loops_around(above, calls[function]):
            return around[-1].source
    return None


def _function_of(line: LineCost) -> _Function:
    """What stands for a line's function: functions of one name (`forward`) are distinguished by who calls them."""
    return (line.source.file, line.source.function, line.called_from)


def _functions(costs: LineCosts) -> _Functions:
    """The lines of each function by their numbers."""
    found: _Functions = defaultdict(dict)
    for line in costs.lines:
        found[_function_of(line)].setdefault(line.source.line, line)
    return found


def _function_calls(costs: LineCosts, functions: _Functions) -> dict[_Function, float]:
    """How often each function runs per step, once at least: as its first line does, or the line that calls it.

    A function may begin with a loop: then the line that calls it tells, unless that is a comprehension, whose turns
    are no visits.
    """
    visits = {line.source.place: line.visits for line in costs.lines if not line.inner}
    found = {}
    for function, known in functions.items():
        first = known[min(known)]
        caller = visits.get(first.called_from, first.visits) if first.called_from else first.visits
        found[function] = max(min(first.visits, caller), 1.0)
    return found


def _in_text(
    place: Block, costs: LineCosts, often: Mapping[_Function, float], text: Mapping[str, Sequence[TextBlock]]
) -> Block:
    """The place with how often its function runs, with the loops of its file, and what calls the function in a loop."""
    source = place.lines[0].source
    known = text.get(source.file)
    loops = None if known is None else frozenset(one.line for one in known if one.kind == "loop")
    whole = replace(place, calls=often.get(_function_of(place.lines[0]), 1.0), loops=loops)
    return whole if whole.heads else replace(whole, turned_by=_turned_by(whole, costs, often))


def _turned_by(place: Block, costs: LineCosts, often: Mapping[_Function, float]) -> tuple[Source, ...]:
    """The nearest caller that runs far more often than its function does, after the statement of the loop around it.

    Empty where the most expensive line itself does: then the loop is in its function.
    """
    known = costs.by_place
    first = place.lines[0]
    at = first.source.place
    if place.calls < LOOP_ITERATIONS or _turns(first, often):
        return ()
    leads = callers_above(at, costs.callers)
    turning = next((known[one] for one in leads if one in known and _turns(known[one], often)), None)
    if turning is None:
        return ()
    head = None if turning.inner else loop_around(costs, turning.source)
    return (*((head,) if head else ()), turning.source)


def _turns(line: LineCost, often: Mapping[_Function, float]) -> bool:
    """Whether a line runs far more often than its function, or is a comprehension."""
    return line.inner or line.visits >= MORE_OFTEN * often.get(_function_of(line), 1.0)


def _above(known: Mapping[int, LineCost], number: int) -> Iterator[LineCost]:
    """The lines of a function above one of them, the nearest first, as long as each is next to the one below it."""
    for above in sorted((one for one in known if one < number), reverse=True):
        if number - above > NEAR:
            return
        yield known[above]
        number = above
