"""What each line of the user's code costs: its ops, the Python between them, and its part of the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.library_calls import packages
from advisor.analyses.lines.lines import Lines, LinesTrace
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.deprofiled import Deprofiled, Stretch
from advisor.analyses.step.phases import backward_rows
from advisor.analyses.work.op_payload import beyond_calls
from advisor.calibration.calibration import Calibration
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Floats, Ints, Mask, Numbers, Trace
from advisor.trace.intervals import Intervals, intersect, starts_in, subtract

# Functions that Python makes of one line's own.
_INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>")

# Nodes of the backward pass that make the gradient of a whole tensor from that of a part.
_PARTS = ("SelectBackward", "SliceBackward", "IndexBackward", "CopySlices", "UnbindBackward", "SplitBackward")


class LineCost(Struct, frozen=True):
    """One line (file and number; a comprehension and its function are the same line), per step.

    us           all of its time on the loop's thread, without other lines of the user's that it calls
    work         the same by part of the step, with the ops in it, without waits for a loader
    python_us    the part in long runs of Python
    parts        breakdown id -> µs
    rows         ops recorded in it
    visits       how often it ran
    inner        part of it is a comprehension or generator, whose iterations are not visits
    backward_us  time of the backward pass that its forward ops cause
    backward_rows, backward_weight  ops recorded in that, and their weight (`Part.weight`)
    beyond_us    time of its ops, and of that backward pass, beyond their call overhead; None if not known
    called_from  file and line that called its function for most of its time; None if not known
    package      whose functions it calls for at least half of its time; "" if of none, or if not known
    """

    source: Source
    us: float
    python_us: float
    parts: dict[str, float]
    work: Stretch
    rows: float
    visits: float
    inner: bool = False
    backward_us: float = 0.0
    backward_rows: float = 0.0
    backward_weight: float = 0.0
    beyond_us: float | None = None
    called_from: tuple[str, int] | None = None
    package: str = ""

    def times(self, share: float) -> LineCost:
        """A part of this line's time and rows; it ran as often."""
        return replace(
            self,
            us=share * self.us,
            python_us=share * self.python_us,
            parts={part: share * us for part, us in self.parts.items()},
            work=self.work.times(share),
            rows=share * self.rows,
            backward_us=share * self.backward_us,
            backward_rows=share * self.backward_rows,
            backward_weight=share * self.backward_weight,
            beyond_us=None if self.beyond_us is None else share * self.beyond_us,
        )


# A file and the number of a line.
Place = tuple[str, int]


def callers_above(at: Place, called: Mapping[Place, Place | None]) -> Iterator[Place]:
    """The line that called a line's function, the one that called that, and so on; ends where a recursion repeats."""
    seen = {at}
    while (above := called.get(at)) is not None and above not in seen:
        seen.add(above)
        yield above
        at = above


class LineCosts(Struct, frozen=True, eq=False):
    """Every line that ran in W on the loop's thread, most expensive first."""

    lines: tuple[LineCost, ...]
    op_line: Ints  # for each event the index of its line in `lines`, -1 where unknown

    @property
    def by_place(self) -> dict[Place, LineCost]:
        """Each line by its file and number."""
        return {line.source.place: line for line in self.lines}

    @property
    def callers(self) -> dict[Place, Place | None]:
        """For each line the one that called its function, as `callers_above` takes them."""
        return {line.source.place: line.called_from for line in self.lines}

    @classmethod
    def compute(
        cls,
        ops: StepOps,
        lines: Lines,
        breakdown: Breakdown,
        deprofiled: Deprofiled,
        calibration: Calibration,
        recorded: LinesTrace | None,
    ) -> LineCosts:
        """Costs of this rank. Raises Missing if no lines were recorded, and with a device."""
        trace, steps, nesting, links = ops.trace, ops.steps, ops.nesting, ops.links
        if breakdown.on_device:
            raise Missing(
                "the time of lines is computed only without a device; with a device, idle-gpu names the lines"
            )
        if not lines.available:
            why = "lines of the user's code are not recorded; capture the script with `advisor run`"
            raise Missing(lines.why or why)
        places = _Places.of(trace, steps, lines, nesting)
        op_line = places.of_ops(trace, lines)
        node_line = node_lines(trace, links, op_line)
        columns = {
            "us": places.spent_us(steps.window),
            "python_us": places.spent_us(deprofiled.python),
            "rows": places.counted(op_line, _rows(trace, links, op_line)),
            "visits": places.visits(lines),
            **_backward(ops, breakdown, deprofiled.weights, node_line, places),
        }
        beyond_us = _beyond(ops, calibration, op_line, node_line, places)
        parts = {part: places.spent_us(of) for part, of in breakdown.intervals.items()}
        work = _work(trace, links, breakdown, deprofiled, op_line, places)
        callers, of_package = _callers(lines, places.index), packages(recorded)
        order = np.lexsort((np.arange(places.count), -columns["us"]))
        found = tuple(
            LineCost(
                source=(one := lines.sources[places.sources(i)[0]]),
                parts={part: float(us[i]) for part, us in parts.items()},
                work=Stretch(*(tuple(float(of[at][i]) for of in work) for at in range(4))),
                inner=any(lines.sources[at].function in _INNER for at in places.sources(i)),
                beyond_us=None if beyond_us is None else float(beyond_us[i]),
                called_from=callers.get(i),
                package=of_package.get((one.file, one.line), ""),
                **{name: float(column[i]) for name, column in columns.items()},
            )
            for i in order.tolist()
        )
        rank = np.full(places.count + 1, -1, np.int64)  # the last is for ops without a line
        rank[order] = np.arange(places.count)
        return cls(found, rank[op_line])


class _Places(Struct, frozen=True, eq=False):
    """Lines as numbers, and when each ran: sources of one file and line are one place.

    index      file and line -> number of the place
    of_source  the place of each of `Lines.sources`
    spans      when places ran on the loop's thread, by start;  who: the source of each span
    steps      how many steps they ran in
    """

    index: dict[tuple[str, int], int]
    of_source: Ints
    spans: Intervals
    who: Ints
    steps: int

    @classmethod
    def of(cls, trace: Trace, steps: Steps, lines: Lines, nesting: Nesting) -> _Places:
        """The places of the lines that were recorded."""
        spans, who = _spans(trace, steps, lines, nesting)
        index: dict[tuple[str, int], int] = {}
        of_source = np.array([index.setdefault((s.file, s.line), len(index)) for s in lines.sources], np.int64)
        return cls(index, of_source, spans, who, steps.count)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.index)

    def sources(self, place: int) -> list[int]:
        """Which of `Lines.sources` are this place."""
        found: list[int] = np.flatnonzero(self.of_source == place).tolist()
        return found

    def of_ops(self, trace: Trace, lines: Lines) -> Numbers:
        """For each event its place, -1 where it has none."""
        found = np.full(len(trace.events), -1, np.int32)
        known = lines.op_source >= 0
        found[known] = self.of_source[lines.op_source[known]]
        return found

    def spent_us(self, of: Intervals) -> Floats:
        """Time per step of each place within these intervals."""
        pieces = intersect(self.spans, of)
        at = np.searchsorted(self.spans[:, 0], pieces[:, 0], side="right") - 1
        ns = pieces[:, 1] - pieces[:, 0]
        return np.bincount(self.of_source[self.who[at]], weights=ns, minlength=self.count) / self.steps / 1e3

    def counted(self, op_line: Ints, rows: Mask, weights: Floats | None = None) -> Floats:
        """How many of these rows each place has per step; or their weight."""
        of_rows = None if weights is None else weights[rows]
        return np.bincount(op_line[rows], of_rows, minlength=self.count).astype(float) / self.steps

    def visits(self, lines: Lines) -> Floats:
        """How often each place was entered per step; of spans that do not tell, all count."""
        entered = self.who[lines.entered] if len(lines.entered) == len(self.who) else self.who
        return np.bincount(self.of_source[entered], minlength=self.count) / self.steps


def _rows(trace: Trace, links: Links, op_line: Ints) -> Mask:
    """Ops of the steps whose place is known."""
    return links.inside & trace.events.of(Category.CPU_OP) & (op_line >= 0)


def _work(
    trace: Trace, links: Links, breakdown: Breakdown, deprofiled: Deprofiled, op_line: Ints, places: _Places
) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """For each part of the step what every place took of it: µs, ops, their weight, Python; no waits for a loader."""
    fetching = breakdown.intervals["input"]
    working = _rows(trace, links, op_line) & ~starts_in(trace.events.start_ns, fetching)
    return [
        (
            places.spent_us(subtract(part.spans, fetching)),
            places.counted(op_line, working & (deprofiled.part_of == index)),
            places.counted(op_line, working & (deprofiled.part_of == index), deprofiled.weights),
            places.spent_us(intersect(part.spans, deprofiled.python)),
        )
        for index, part in enumerate(deprofiled.parts)
    ]


def _spans(trace: Trace, steps: Steps, lines: Lines, nesting: Nesting) -> tuple[Intervals, Ints]:
    """When each place ran on the loop's thread: as recorded, else while the ops ran whose call stacks name it."""
    if len(lines.spans):
        return lines.spans, lines.span_source
    events = trace.events
    outermost = events.of(Category.CPU_OP) & nesting.outermost
    rows = np.flatnonzero(outermost & (events.thread == steps.main_thread) & (lines.op_source >= 0))
    return np.column_stack((events.start_ns[rows], events.end_ns[rows])), lines.op_source[rows]


def _callers(lines: Lines, places: dict[tuple[str, int], int]) -> dict[int, tuple[str, int]]:
    """By place the file and line that called its function, where that is another place."""
    found = {}
    for source, caller in zip(lines.sources, lines.callers.tolist(), strict=False):
        if caller >= 0:
            at, other = source.place, (lines.sources[caller].file, lines.sources[caller].line)
            if at != other and source.function not in _INNER:
                found[places[at]] = other
    return found


def node_lines(trace: Trace, links: Links, op_line: Numbers) -> Numbers:
    """For each node of the backward pass the line of the forward op that made it; -1 where unknown, and elsewhere.

    A node carries the sequence number of that op.
    """
    events = trace.events
    nodes = backward_rows(events)
    mine = links.inside & (events.sequence >= 0)
    # Gradients of gradients: with create_graph the ops in a node make nodes, too. The node's own rows name a thread.
    makers = mine & ~nodes & (events.forward_thread <= 0)
    forward = np.flatnonzero(makers & events.of(Category.CPU_OP) & (op_line >= 0))
    node = np.flatnonzero(mine & nodes)
    found = np.full(len(events), -1, np.int32)
    if not len(forward) or not len(node):
        return found
    # The innermost op of a sequence number made the node; all of them lie on one line.
    known, last = np.unique(events.sequence[forward][::-1], return_index=True)
    line = op_line[forward[::-1][last]]
    at = np.minimum(np.searchsorted(known, events.sequence[node]), len(known) - 1)
    found[node] = np.where(known[at] == events.sequence[node], line[at], -1)
    return found


def _backward(
    ops: StepOps, breakdown: Breakdown, weights: Floats, node_line: Ints, places: _Places
) -> dict[str, Floats]:
    """Time and rows of the backward pass by the line of the forward op.

    What runs between two nodes is what the engine takes for each of them, however long it runs; the time of nodes whose
    op was not recorded is shared out in proportion.
    """
    events, steps, links = ops.events, ops.steps, ops.links
    nodes = backward_rows(events)
    node_of = ops.nesting.ancestor(nodes)
    rows = np.flatnonzero(node_line >= 0)
    if not len(rows):
        return {name: np.zeros(places.count) for name in ("backward_us", "backward_rows", "backward_weight")}
    every = np.flatnonzero(nodes & links.inside)
    whole_us = breakdown.us("backward") * steps.count
    between_us = max(whole_us - float((events.dur_ns[every] / 1e3).sum()), 0.0) / max(len(every), 1)
    made = events.sequence[links.inside & ~nodes & (events.forward_thread <= 0) & (events.sequence >= 0)]
    numbered = every[np.isin(events.sequence[every], made)]
    known_us = float((events.dur_ns[numbered] / 1e3).sum()) + len(numbered) * between_us
    spent_us = np.bincount(node_line[rows], weights=events.dur_ns[rows] / 1e3 + between_us, minlength=places.count)
    us = spent_us / steps.count * (whole_us / known_us if known_us else 0.0)
    held = (node_of >= 0) & links.inside
    found = {"backward_us": us}
    for name, of in (("backward_rows", None), ("backward_weight", weights[held])):
        inside = np.bincount(node_of[held], of, minlength=len(events))
        whole = inside[every].sum() / known if (known := inside[numbered].sum()) else 0.0
        found[name] = np.bincount(node_line[rows], inside[rows], minlength=places.count) / steps.count * whole
    return found


def _beyond(ops: StepOps, calibration: Calibration, op_line: Ints, node_line: Ints, places: _Places) -> Floats | None:
    """µs per step by line that ops take beyond bare calls, those of the backward pass by the line that caused them.

    The gradient of a part of a tensor fills all of it with zeros and is added to those of the other parts: that is no
    work of the part's own, since one op over all parts does it once.
    """
    beyond_ns = beyond_calls(ops.events, ops.nesting, ops.links.inside, calibration)
    if beyond_ns is None:
        return None
    nodes = backward_rows(ops.events)
    node_of = ops.nesting.ancestor(nodes)
    rows = np.flatnonzero(beyond_ns > 0)
    node = node_of[rows]
    line = np.where(node >= 0, node_line[np.maximum(node, 0)], op_line[rows])
    of_parts = (nodes & ops.events.named(*_PARTS))[np.maximum(node, 0)] & (node >= 0)
    known = (line >= 0) & ~of_parts
    return np.bincount(line[known], weights=beyond_ns[rows[known]], minlength=places.count) / ops.steps.count / 1e3
