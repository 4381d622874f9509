"""What a step would take without some of its work or waits: the trace's dependency graph, played again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.standstills import Standstills
from advisor.computed import Missing
from advisor.model import ReplayCheck, Saving
from advisor.replay.edits import Edit, Editor
from advisor.replay.graph import Graph, build, longest_run, replayed_run
from advisor.replay.overhead import Overhead, in_proportion
from advisor.replay.play_order import PlayOrder, prepare
from advisor.replay.points import Kind
from advisor.replay.simulate import Played, Weights, play_both, step_ns, weights_of
from advisor.trace.events import Category, Ints, Trace
from advisor.trace.intervals import intersect, total
from advisor.trace.numbers import distinct

# Steps differ by so much without a reason.
_EVEN = 0.1
# Past this error of the unedited replay a saving is no more than a guess (published replays: 3 to 8 %).
_TRUSTED_ERROR = 0.05
# Of less linked work the host is no part of the graph.
_LINKED = 0.5


class EditedSaving(Saving, frozen=True):
    """A saving with the edits behind its high end: what others save beside it can be replayed."""

    edits: tuple[Edit, ...] = ()

    def plain(self) -> Saving:
        """The saving as a report holds it."""
        return Saving(self.low_us, self.high_us, self.basis, self.how, self.width_us)


class ReplayedSaving(EditedSaving, frozen=True):
    """One that a replay computed: several can be replayed together."""


class Part(Struct, frozen=True, eq=False):
    """Which of a long window's steps are replayed, and what it holds for all: work that not every step does.

    recorded, replayed   (start, end) of the longest run of steps and of those that are replayed, ns
    steps, of_these      how many steps that are;  trace: whose rows edits name
    """

    recorded: tuple[int, int]
    replayed: tuple[int, int]
    steps: int
    of_these: int
    trace: Trace

    @classmethod
    def of(cls, trace: Trace, steps: Steps) -> Part:
        """The part of a trace that is replayed."""
        (recorded, all_starts), (replayed, starts) = longest_run(steps), replayed_run(steps)
        return cls(recorded, replayed, len(all_starts), len(starts), trace)

    def holds(self, edits: Sequence[Edit]) -> bool:
        """Whether the replayed steps hold anything of what these edits change in the window."""
        here, everywhere = self._times(edits)
        return here > 0 or everywhere <= 0

    def rarer(self, edits: Sequence[Edit]) -> float:
        """How many times as much per step these edits change in the window as in the replayed steps."""
        here, everywhere = self._times(edits)
        times = everywhere / here if here > 0 else 1.0
        return times if abs(times - 1) > _EVEN else 1.0

    def _times(self, edits: Sequence[Edit]) -> tuple[float, float]:
        """Time of the rows and stretches that are edited, ns per replayed step, and per step of the window."""
        if self.of_these == self.steps:
            return 1.0, 1.0
        # Fused rows are named by the replay itself, of its own steps.
        edited = [edit for edit in edits if edit.what != "fuse"]
        here = sum(self._time(edit, self.replayed) for edit in edited) / self.of_these
        everywhere = sum(self._time(edit, self.recorded) for edit in edited) / self.steps
        return (here, everywhere) if edited else (1.0, 1.0)

    def _time(self, edit: Edit, window: tuple[int, int]) -> float:
        events = self.trace.events
        rows = edit.rows[(events.start_ns[edit.rows] >= window[0]) & (events.start_ns[edit.rows] < window[1])]
        spans = intersect(edit.spans, np.array([window])) if len(edit.spans) else edit.spans
        return float(events.dur_ns[rows].sum()) + total(spans)


class Replay(Struct, frozen=True, eq=False):
    """The dependency graph of the whole steps of a trace, replayed.

    error_share      largest error of the unchanged replay: of the window of the steps, and of the time until all work
                     that they launched was done; each as a share of the measured value
    start_error_us   median error of the starts of device work, µs; None without device work
    step_us          replayed step in the steady state, profiled µs
    low_confidence   the error is above 5 %, there is only one step, or most device work has no launch: whatever changes
                     on the host, it would begin as before
    notes            what was inferred because the trace does not state it
    steps            how many steps were replayed
    launching        rows: the outermost ops (else calls) that launch kernels and wait for nothing, of these steps
    part             which part of the window that is
    """

    error_share: float
    start_error_us: float | None
    step_us: float
    low_confidence: bool
    notes: tuple[str, ...]
    launching: Ints
    steps: int
    plan: PlayOrder
    editor: Editor
    scale: Scale
    hypotheses: tuple[Weights, ...]
    before_ns: tuple[float, ...]
    part: Part
    _known: dict[tuple[Edit, ...], tuple[tuple[float, ...], float]] = {}  # what was played before, by its edits

    @property
    def trusted(self) -> bool:
        """Whether the unchanged replay takes as long as measured, within 5 %."""
        return self.error_share <= _TRUSTED_ERROR

    @property
    def check(self) -> ReplayCheck:
        """How far the replay can be trusted, as stored in a report."""
        return ReplayCheck(self.error_share, self.low_confidence)

    def saving(self, *edits: Edit, how: str) -> ReplayedSaving:
        """The saving of these edits together, on the scale of step_time_us; never more than the step.

        The range covers the possible profiler overhead in the host's work, widened by the measured error of the replay:
        from none to as much per recorded event as explains the un-profiled step. If the device's work is known to take
        as long in a shorter step, from an overhead in proportion to the host's work instead of none.
        """
        if not edits:
            return ReplayedSaving(0.0, 0.0, "replayed", how)
        pairs = zip(self.before_ns, self._after_ns(edits), strict=True)
        more = self.part.rarer(edits)
        shares = [(1 - after / before) * more for before, after in pairs if before > 0] or [0.0]
        error = min(self.error_share, 1.0)
        low, high = max(min(shares), 0.0) * (1 - error), max(*shares, 0.0) * (1 + error)
        step = self.scale.step_us
        return ReplayedSaving(min(low, 1.0) * step, min(high, 1.0) * step, "replayed", how, edits=edits)

    def between(self, low: Sequence[Edit], high: Sequence[Edit], how: str) -> ReplayedSaving:
        """A saving from what is certain (`low`) to what is possible (`high`); without edits it is 0."""
        other = self.saving(*high, how=how)
        one = other if list(low) == list(high) else self.saving(*low, how=how)
        least, most = min(one.low_us, other.low_us), max(one.high_us, other.high_us)
        return ReplayedSaving(least, most, "replayed", how, edits=tuple(high))

    def step_after_us(self, *edits: Edit) -> float:
        """The profiled step with these edits, steady state, µs."""
        return self._after_ns(edits)[0] / 1e3

    def steps_after_us(self, edits: Sequence[Edit]) -> tuple[float, float]:
        """The step with these edits on the scale of step_time_us, least and most; longer than now if they add work.

        The range is that of `saving`: with and without profiler overhead, widened by the replay's error.
        """
        pairs = zip(self.before_ns, self._after_ns(edits), strict=True)
        shares = [after / before for before, after in pairs if before > 0] or [1.0]
        error, step = min(self.error_share, 1.0), self.scale.step_us
        # What does not change is known; the error is that of the change.
        ends = [1 + (share - 1) * (1 + sign * error) for share in shares for sign in (-1, 1)]
        return max(min(ends), 0.0) * step, max(ends) * step

    def most_us(self, edits: Sequence[Edit]) -> float:
        """The most that these edits save together, if what they move elsewhere is done in time there."""
        pairs = zip(self.before_ns, self._played(edits)[0], strict=True)
        share = max((1 - then / before for before, then in pairs if before > 0), default=0.0) * self.part.rarer(edits)
        return min(max(share, 0.0) * (1 + min(self.error_share, 1.0)), 1.0) * self.scale.step_us

    def _after_ns(self, edits: Sequence[Edit]) -> list[float]:
        """The step with the edits under each hypothesis about the profiler's own cost."""
        times_ns, floor_ns = self._played(edits)
        return [max(time_ns, floor_ns) for time_ns in times_ns]

    def _played(self, edits: Sequence[Edit]) -> tuple[tuple[float, ...], float]:
        """The same without what is moved aside, and the least that this takes; the same edits are played once."""
        key = tuple(edits)
        if key not in self._known:
            after = self.editor.apply(self.hypotheses, edits)
            self._known[key] = tuple(step_ns(self.plan, weights) for weights in after.weights), after.floor_ns
        return self._known[key]

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        scale: Scale,
        links: Links,
        nesting: Nesting,
        device: Device,
        stills: Standstills,
    ) -> Replay:
        """The replay of a trace. Missing for an accelerator whose work cannot be distinguished, and without a loop."""
        if device.kind == "foreign":
            raise Missing(device.why)
        if steps.main_thread < 0:
            raise Missing("the trace has no host events, so it is not known what launched its work")
        try:
            graph = build(trace, steps, links, nesting)
            plan, weights = prepare(graph), weights_of(graph)
            played, before = play_both(plan, weights)
        except (ValueError, IndexError, KeyError) as failure:
            # A trace that contradicts itself in a way not met before must not take the rules with it.
            raise Missing(f"the dependencies of this trace could not be replayed ({failure})") from failure
        error = _error_share(graph, played)
        part = Part.of(trace, steps)
        opens = part.replayed[0]
        unprofiled_us = scale.unprofiled.median or scale.unprofiled.mean
        unprofiled_ns = None if unprofiled_us is None else unprofiled_us * 1e3
        overhead = Overhead(graph, trace.events, opens)
        hypotheses = _hypotheses(plan, (weights, before), overhead, unprofiled_ns, loader=bool(graph.loader))
        return cls(
            error_share=error,
            start_error_us=_start_error_us(graph, played),
            step_us=before / 1e3,
            low_confidence=error > _TRUSTED_ERROR
            or graph.steps < 2
            or steps.source == "window"
            or _linked_share(trace, links) < _LINKED,
            notes=graph.notes,
            launching=_launching(trace, graph, nesting),
            steps=graph.steps,
            plan=plan,
            editor=Editor(graph, trace.events, opens, stills.late),
            scale=scale,
            hypotheses=tuple(one for one, _ in hypotheses),
            before_ns=tuple(step for _, step in hypotheses),
            part=part,
        )


def _hypotheses(
    plan: PlayOrder, recorded: tuple[Weights, float], overhead: Overhead, unprofiled_ns: float | None, *, loader: bool
) -> list[tuple[Weights, float]]:
    """Ways in which the profiler may have stretched the step: the weights without it, and the step with them, ns."""
    hypotheses = [recorded, overhead.calibrated(plan, *recorded, unprofiled_ns)]
    if unprofiled_ns is None or not loader:
        return hypotheses
    # The profiler stretched the host alone: as recorded, a device would seem to work less of the step.
    hypotheses[0] = in_proportion(plan, *recorded, unprofiled_ns)
    # What makes the step no shorter is not what the profiler did.
    nearest = max(unprofiled_ns, min(step for _, step in hypotheses))
    return [one for one in hypotheses if one[1] <= nearest * (1 + _TRUSTED_ERROR)]


def _error_share(graph: Graph, played: Played) -> float:
    """The larger of the errors of the window and of the time until the last work that it launched was done."""
    of_loop = (graph.points.thread == 0) & (graph.points.kind == Kind.STEP)
    times = played.point_time[of_loop]
    window = float(times[-1] - times[0])
    measured_end, replayed_end = float(graph.length_ns), float(times[-1])
    if graph.loader:
        measured_end = max(measured_end, float(graph.work.end[: graph.loader].max()))
        replayed_end = max(replayed_end, float(played.work_end[: graph.loader].max()))
    return max(abs(window / graph.length_ns - 1), abs(replayed_end / measured_end - 1))


def _linked_share(trace: Trace, links: Links) -> float:
    """Share of the device's work, by time, whose launch is known, or lies before the recording; 1 without a device."""
    rows = np.flatnonzero(trace.device_work)
    dur, known = trace.events.dur_ns[rows], (links.launch[rows] >= 0) | links.before[rows]
    return float(dur[known].sum() / dur.sum()) if dur.sum() else 1.0


def _start_error_us(graph: Graph, played: Played) -> float | None:
    """Median distance between replayed and measured starts of device work."""
    if not graph.loader:
        return None
    work = slice(graph.loader)
    replayed = played.work_end[work] - graph.work.dur[work]
    return float(np.median(np.abs(replayed - graph.work.start[work]))) / 1e3


def _launching(trace: Trace, graph: Graph, nesting: Nesting) -> Ints:
    """Outermost ops that launch kernels, without those inside which the host waits for the device."""
    events, work, points = trace.events, graph.work, graph.points
    kernels = (work.launch >= 0) & (events.category[work.row] == Category.KERNEL)
    found = np.zeros(len(events), bool)
    calls = distinct(work.launch[kernels], len(events))
    found[np.where(nesting.outer_op[calls] >= 0, nesting.outer_op[calls], calls)] = True
    waits = nesting.outer_op[points.row[(points.kind == Kind.WAIT) & (points.row >= 0)]]
    found[waits[waits >= 0]] = False
    return np.flatnonzero(found)


def replayed_or(
    modelled: Saving, replay: Replay | None, low: Sequence[Edit], high: Sequence[Edit], how: str, claimed_us: float
) -> Saving:
    """The replayed range if the replay can be trusted, else the modelled one.

    claimed_us: the parts of the breakdown that the finding claims, on the scale of step_time_us. A replay may find
    that a fix shortens other parts as well; other findings claim those, and only the joint saving counts them.
    """
    if replay is None or replay.low_confidence or not replay.part.holds(high):
        return modelled
    found = replay.between(low, high, how)
    return replace(found, low_us=min(found.low_us, claimed_us), high_us=min(found.high_us, claimed_us))


def together(replay: Replay, savings: Sequence[ReplayedSaving]) -> Saving:
    """What all these fixes give back at once, replayed."""
    edits = [edit for saving in savings for edit in saving.edits]
    return replay.saving(*edits, how="all accepted fixes replayed together").plain()
