"""Loops of the user's code as places: which lines belong to one, and whether ops or Python make up its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCost, LineCosts
from advisor.analyses.dataflow.backward_passes import passes
from advisor.analyses.loops.line_blocks import TURNS, Block, block, blocks, is_python, with_callers
from advisor.analyses.loops.line_ops import LineOps
from advisor.analyses.loops.loops import (
    Ints,
    Loop,
    derives,
    feeds,
    feeds_back,
    in_most_turns,
    layers_of,
    loops,
    picks,
)
from advisor.analyses.step.deprofiled import Stretch, Undilated
from advisor.capture.record import RankRecord
from advisor.trace.events import Trace

# Lines of Python this near to a loop are part of what it is for.
_BESIDE = 2


@dataclass(frozen=True, slots=True)
class LoopPlaces:
    """Places of the user's code that turn many times a step, or stand in Python for long; each has one owner.

    ops     places of short ops, each with its loop of most turns, most expensive first: tensor-loop's
    python  places of long stretches of Python, most expensive first: host-work's
    python_us  what all lines spend in long stretches of Python, µs per step

    Where one of these calls the other in each turn, both are one place, of the kind that its time says.
    """

    ops: tuple[tuple[Block, Loop], ...]
    python: tuple[Block, ...]
    python_us: float = 0.0

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        costs: LineCosts,
        nesting: Nesting,
        called: LineOps,
        undilated: Undilated,
        record: RankRecord | None,
    ) -> LoopPlaces:
        """The places of this rank. Missing where costs of lines are."""
        rows = called.rows
        ops = [
            (_without_passes(place, loop, trace, steps, nesting, costs, undilated), loop)
            for place, loop in _of_ops(trace, steps, costs, rows, _weights(record))
        ]
        taken = {line.source for place, _ in ops for line in place.lines}
        python = list(blocks(line for line in costs.lines if is_python(line) and line.source not in taken))
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
        kept.sort(key=lambda one: -one[0].us)
        python.sort(key=lambda one: -one.us)
        return cls(tuple(kept), tuple(python), sum(line.python_us for line in costs.lines))


def _of_ops(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints, weights: int) -> Iterator[tuple[Block, Loop]]:
    """Places of lines that call a short op again and again, with the lines around them; no layers of a model."""
    layers = layers_of(trace, steps, costs, rows)
    found = {
        line: one
        for line, one in loops(trace, steps, costs, rows, layers).items()
        if not _are_layers(one.layers, one.turns, weights)
    }
    index_of = {line.source: index for index, line in enumerate(costs.lines)}
    for place in blocks([*(costs.lines[index] for index in found), *_around(costs, found)]):
        lines = [index_of[line.source] for line in place.lines]
        mine = [found[index] for index in lines if index in found]
        if not mine or (any(one.network for one in mine) and feeds_back(trace, costs, rows, set(lines))):
            continue
        most = max(mine, key=lambda one: (one.turns, one.op))
        if not _are_layers(sum(layers.get(index, 0.0) for index in lines), most.turns, weights):
            yield (
                place,
                replace(
                    most,
                    picks=picks(trace, steps, costs, set(lines), most.turns),
                    feeds=feeds(trace, steps, costs, rows, set(lines), most.turns),
                    derives=derives(trace, steps, costs, set(lines), most.turns),
                ),
            )


def _without_passes(
    place: Block, loop: Loop, trace: Trace, steps: Steps, nesting: Nesting, costs: LineCosts, undilated: Undilated
) -> Block:
    """The place without the backward passes that a line of it runs in few of the turns, as the head of a loop does.

    `for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters))` runs one for all turns.
    """
    if not any(line.parts.get("backward") for line in place.lines):
        return place
    index = {line.source: at for at, line in enumerate(costs.lines)}
    called = Counter(int(costs.op_line[one.nodes[0]]) for one in passes(trace, steps, nesting) if one.nodes)
    kept = []
    for line in place.lines:
        often = called[index[line.source]] / steps.count
        few = 0 < often < TURNS and not in_most_turns(often, loop.turns)
        kept.append(_without_backward(line, undilated) if few else line)
    return block(kept)


def _without_backward(line: LineCost, undilated: Undilated) -> LineCost:
    """The line without its time in the autograd engine."""
    here = [part.name == "backward" for part in undilated.parts]
    work = Stretch(
        *(
            tuple(0.0 if there else one for one, there in zip(column, here, strict=True))
            for column in (line.work.us, line.work.rows, line.work.python_us)
        )
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
        often = line.visits if line.inner and line.visits >= TURNS else loop.turns
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
