"""Which turns of a loop wait for the turn before: how much of it one op over all turns could do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.dataflow.judged_steps import JudgedSteps
from advisor.analyses.dataflow.observed_ops import dispatched
from advisor.analyses.loops.loop_places import LoopPlaces
from advisor.computed import Missing
from advisor.constants import constant
from advisor.trace.events import Events, Ints, Mask, Trace

Range = tuple[float, float]

# Ops that gather what the turns made: a sum, a table, the largest so far. One op over all turns does as much.
_GATHER = frozenset(
    name
    for names in (
        ("add", "add_", "sub", "sub_", "maximum", "minimum", "max", "min", "logaddexp", "logical_or", "logical_and"),
        ("cat", "stack", "where", "gt", "ge", "lt", "le", "eq", "ne", "bitwise_or", "__or__", "select_backward"),
        ("copy_", "fill_", "zero_", "index_put_", "_index_put_impl_", "index_add", "index_add_", "scatter_"),
        ("scatter_add_", "masked_fill", "masked_fill_", "clone", "detach", "detach_", "to", "_to_copy", "contiguous"),
        ("zeros", "zeros_like", "new_zeros", "ones_like", "empty", "empty_like", "lift_fresh", "alias", "as_strided"),
        ("select", "slice", "view", "reshape", "unsqueeze", "squeeze", "expand", "t", "transpose", "permute"),
        ("unbind", "narrow", "flatten", "split", "chunk"),
    )
    for name in names
)
# Parts of tensors that were there before, and the numbers in them: nothing is made.
_VIEWS = ("select", "slice", "view", "unsqueeze", "squeeze", "expand", "alias", "unbind", "narrow", "detach")
_NUMBERS = ("item", "_local_scalar_dense", "is_nonzero")
# Updates of an optimizer, casts and norms of weights.
_MAKE_WEIGHTS = ("_fused_", "_foreach_", "_to_copy", "_weight_norm")
# What one op over all turns makes need not be put together.
_COLLECT = ("cat", "stack")
# Recurrences for which there is a layer over all times, and what it takes of a loop over them: it runs the product with
# the state and the cell for each time step as well.
_CELLS = {
    "lstm_cell": constant("share.lstm_of_steps"),
    "gru_cell": constant("share.gru_of_steps"),
    "rnn_tanh_cell": constant("share.rnn_of_steps"),
    "rnn_relu_cell": constant("share.rnn_of_steps"),
}
# These ops themselves, called for one time step each. Where no iteration takes its part of a tensor that was there
# before, the input may be what the previous iteration made, as in generation: no op does that.
_SEQUENCES = {
    "lstm": constant("share.lstm_of_steps"),
    "gru": constant("share.gru_of_steps"),
    "rnn_tanh": constant("share.rnn_of_steps"),
    "rnn_relu": constant("share.rnn_of_steps"),
}
# Calls that take less, in recorded µs, are mostly the cost of calling.
_SHORT = {"lstm": (constant("share.lstm_of_short_steps"), 120), "gru": (constant("share.gru_of_short_steps"), 160)}
# Where fewer than three turns can be done at a time, nobody rewrites a loop for it.
_MOST_ROUNDS = 1 / 3
# Loops do not turn equally often in every step; where fewer than half as many turns were observed, it was a step of
# another kind, which runs some of the same lines.
_SEEN_TURNS = 0.5
# An op is on the line on which most ops of its name are, among those with the same ops before and behind it: so many
# on either side. Loops do not turn equally often in every step, so that counting from its start would not do.
_AROUND = (4, 1, 0)


class Stays(Struct, frozen=True):
    """What of the ops of a loop waits for the turn before.

    by_line   share of the ops of each line, at least and at most
    as_layer  the cell that its turns call, each fed by what no turn made: a layer over all time steps does that
    perhaps   whether they call cells of which that is not sure
    """

    by_line: dict[int, Range]
    as_layer: str = ""
    perhaps: bool = False


class Chains(Struct, frozen=True, eq=False):
    """The ops of an observed step, with the line of each and what it waits for.

    names    of these ops, without the name of their library
    lines    index of the line in `LineCosts.lines`, -1 where it is not known
    waits    for each op the places of those before it whose results it reads
    again    which of them compute what the step has already: another rule's, since once would do
    took_us  mean recorded time of the ops of each (line, name)
    """

    names: tuple[str, ...]
    lines: Ints
    waits: tuple[tuple[int, ...], ...]
    again: Mask
    took_us: dict[tuple[int, str], float]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, costs: LineCosts, places: LoopPlaces, judged: JudgedSteps) -> Chains:
        """Of the observed step. Missing where no loop is, or nobody looked what waits for what."""
        seen = judged.seen
        if not places.ops and not places.calls:
            raise Missing("no loop over tensors takes a significant part of the step")
        if seen.why or len(seen.waits) != len(seen.ops):
            raise Missing(seen.why or "dependencies between ops were not recorded: there are more than the limit")
        names = [seen.names[at] for at in seen.ops]
        rows = dispatched(trace.events, steps)
        rows = rows[steps.step_of(trace.events.start_ns[rows]) >= 0]
        lines = _lines([trace.events.text(row) for row in rows.tolist()], costs.op_line[rows], names)
        waits = tuple(tuple(at - back for back in backs) for at, backs in enumerate(seen.waits))
        short = tuple(name.removeprefix("aten::") for name in names)
        again = np.zeros(len(names), bool)
        again[[at for at, _ in seen.again]] = True
        return cls(short, lines, waits, again, _took_us(trace.events, costs, rows))

    def stays(self, lines: Iterable[int], turns: float) -> Stays | None:
        """What of the ops of a place's lines stays.

        All turns that need not wait are done at once. An op need not wait where its inputs come from no turn, or where
        no later turn needs what it makes. Lines without an op have no share. turns: of the place in a profiled step.
        None where the step that was observed did not run the place or hardly turned there, or where nobody can tell who
        made the tensors that some of its ops read.
        """
        mine = np.isin(self.lines, list(lines))
        work = mine & np.array([name not in _GATHER for name in self.names], bool)
        if not mine.any() or any(at in self.waits[at] for at in np.flatnonzero(mine).tolist()):
            return None
        groups: dict[tuple[int, str], list[int]] = defaultdict(list)
        for at in np.flatnonzero(mine).tolist():
            groups[int(self.lines[at]), self.names[at]].append(at)
        if max(map(len, groups.values())) < _SEEN_TURNS * turns:
            return None
        before, behind = _depths(self.waits, work)
        kept: dict[tuple[int, str], Range] = {
            key: (share, share) for key, ats in groups.items() for share in [_share(np.array(ats), before, behind)]
        }
        # What runs once or twice in a step does not turn.
        turning = [key for key in groups if len(groups[key]) * _MOST_ROUNDS > 1]
        stuck = {name for line, name in turning if kept[line, name][1] == 1.0 and name not in _GATHER}
        takes_parts = any(name in _VIEWS and kept[line, name][1] < 1.0 for line, name in turning)
        fed, cell = self._of_cells(groups, stuck)
        # Whole layers that are called for each position are another rule's.
        sequences = takes_parts and stuck & _SEQUENCES.keys() and stuck <= _CELLS.keys() | _SEQUENCES.keys()
        if not stuck or fed or sequences:
            once = 1 / max(map(len, groups.values()))
            for key in groups:
                if key[1] in stuck:
                    kept[key] = self._of_layer(key)
                elif stuck or key[1] in _COLLECT:
                    kept[key] = once, once
            return Stays(self._by_line(groups, kept), cell, perhaps=fed and not cell)
        # To leave a recurrence is to be computed once: where that is another rule's, it is not counted twice.
        kept = {key: (1.0, 1.0) if self._is_again(ats) else kept[key] for key, ats in groups.items()}
        return Stays(self._by_line(groups, kept))

    def _of_cells(self, groups: Mapping[tuple[int, str], list[int]], stuck: set[str]) -> tuple[bool, str]:
        """(whether only cells are stuck, each fed by something that no earlier call made; the cell, if it is sure).

        It is where each call takes its part of a tensor, and the state of the call before as it is: weights that are
        made in each turn are no input, and a state that is masked or added to is no layer's.
        """
        if not stuck or not stuck <= _CELLS.keys():
            return False, ""
        calls = sorted(at for (_, name), ats in groups.items() if name in stuck for at in ats)
        are_calls = np.zeros(len(self.names), bool)
        are_calls[calls] = True
        before, _ = _depths(self.waits, are_calls)
        fed = all(any(before[one] == 0 for one in self.waits[at]) for at in calls[1:])
        sure = fed and all(
            any(before[one] == 0 and self._is_input(one, calls[0]) for one in self.waits[at])
            and all(before[one] == 0 or self._is_of(one, previous) for one in self.waits[at])
            for previous, at in pairwise(calls)
        )
        return fed, min(stuck) if sure else ""

    def _is_input(self, at: int, first: int) -> bool:
        """Whether an op made what a loop goes through, before its first call: an update or a cast makes weights."""
        name = self.names[at]
        makes_weights = name == "to" or name.endswith("_") or name.startswith(_MAKE_WEIGHTS)
        return name in _VIEWS or (at < first and not makes_weights)

    def _is_of(self, at: int, call: int) -> bool:
        """Whether an op is this call, or only looks at what it made."""
        looks = self.names[at] in _VIEWS and bool(self.waits[at])
        return at == call or (looks and all(self._is_of(one, call) for one in self.waits[at] if one < at))

    def _of_layer(self, key: tuple[int, str]) -> Range:
        """What a layer over all time steps takes of the calls of its cell at a line."""
        line, name = key
        known = _CELLS.get(name) or _SEQUENCES[name]
        short, short_us = _SHORT.get(name.removesuffix("_cell"), (known, 0))
        if self.took_us.get((line, name), 0.0) < short_us:
            known = short
        return known.low, known.high

    def _by_line(
        self, groups: Mapping[tuple[int, str], list[int]], kept: Mapping[tuple[int, str], Range]
    ) -> dict[int, Range]:
        """By line the share of the time of its ops that stays, from that of each of its ops."""
        total: dict[int, float] = defaultdict(float)
        least: dict[int, float] = defaultdict(float)
        most: dict[int, float] = defaultdict(float)
        for (line, name), ats in groups.items():
            us = self.took_us.get((line, name), 0.0) * len(ats)
            total[line] += us
            least[line] += us * kept[line, name][0]
            most[line] += us * kept[line, name][1]
        return {line: (least[line] / us, most[line] / us) for line, us in total.items() if us}

    def reads_before(self, lines: Iterable[int]) -> bool:
        """Whether all numbers that these lines read were there before they ran: Python gives none to the next turn."""
        mine = np.isin(self.lines, list(lines))
        made = mine & ~np.isin(self.names, (*_VIEWS, *_NUMBERS))
        for at, sources in enumerate(self.waits):
            made[at] |= any(made[one] for one in sources)
        return not (made & mine & np.isin(self.names, _NUMBERS)).any()

    def _is_again(self, ats: list[int]) -> bool:
        """Whether most of these ops compute what the step has already."""
        return 2 * int(np.count_nonzero(self.again[ats])) > len(ats)


def _share(ats: Ints, before: Ints, behind: Ints) -> float:
    """Share of these equal ops that stays: of those with as much work before them, or behind them, one."""
    rounds = min(len(np.unique(before[ats])), len(np.unique(behind[ats]))) / len(ats)
    return rounds if rounds <= _MOST_ROUNDS else 1.0


def _depths(waits: Sequence[Sequence[int]], work: Mask) -> tuple[Ints, Ints]:
    """For each op the longest chain of work of the loop up to it, and the longest one that waits for it."""
    before = np.zeros(len(waits), np.int64)
    behind = np.zeros(len(waits), np.int64)
    for at, sources in enumerate(waits):
        before[at] = max((before[one] for one in sources if one != at), default=0) + work[at]
    for at in reversed(range(len(waits))):
        for one in (one for one in waits[at] if one != at):
            behind[one] = max(behind[one], behind[at] + work[at])
    return before, behind


def _lines(known: Sequence[str], line: Ints, names: Sequence[str]) -> Ints:
    """The line of each named op by its surroundings, from ops whose line is known."""
    found = np.full(len(names), -1, np.int64)
    for around in _AROUND:
        seen: dict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
        for context, at in zip(_contexts(known, around), line.tolist(), strict=True):
            if at >= 0:
                seen[context][at] += 1
        for at, context in enumerate(_contexts(names, around)):
            if found[at] < 0 and context in seen:
                found[at] = seen[context].most_common(1)[0][0]
    return found


def _contexts(names: Sequence[str], around: int) -> Iterable[tuple[str, ...]]:
    padded = [*[""] * around, *names, *[""] * around]
    return (tuple(padded[at : at + 2 * around + 1]) for at in range(len(names)))


def _took_us(events: Events, costs: LineCosts, rows: Ints) -> dict[tuple[int, str], float]:
    spent: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in rows[costs.op_line[rows] >= 0].tolist():
        name = events.text(row).removeprefix("aten::")
        spent[int(costs.op_line[row]), name].append(float(events.dur_ns[row]) / 1e3)
    return {key: float(np.mean(times)) for key, times in spent.items()}
