"""What a change of a step's work is worth: rules say which rows go or shrink, this says what the step saves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.scale import Scale
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.costs.added_work import AddedWork
from advisor.analyses.costs.evicted import Shares
from advisor.analyses.costs.replay import EditedSaving, Replay, replayed_or
from advisor.analyses.costs.side_effects import SideEffects
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.deprofiled import Deprofiled
from advisor.model import Basis, Saving
from advisor.replay.edits import Edit, remove, scale
from advisor.trace.events import Ints
from advisor.trace.intervals import Intervals, starts_in, total, union

Range = tuple[float, float]
NOTHING: Range = (0.0, 0.0)


class Price(Struct, frozen=True, eq=False):
    """The saving of a step if some of its work is removed, reduced or replaced.

    The work is described by edits: `edits.remove(rows)`, `price.less(rows, share that goes)`,
    `edits.remove_time(spans)`, separately for each end of the range. Rows are host events, which include everything
    inside them and what they launch, or device work. The cost of a replacement is `instead_us`, (least, most) µs of the
    un-profiled step (calls and copies: `added`), and counts on a CPU only: on a device, launches of a replacement are
    not the limit.

    The high end on a CPU includes that the rest of the step need not fetch from memory what the work evicts from the
    caches (`beside`).

    With a device the dependency graph is replayed; without one the un-profiled time of each part of the step is divided
    among the ops in it. All savings are µs per step on the scale of `step_time_us`. None exceeds what was measured in
    the parts of the breakdown that it claims, as far as un-profiled time is known there.
    """

    ops: StepOps
    breakdown: Breakdown
    scale: Scale
    deprofiled: Deprofiled
    added: AddedWork
    replay: Replay | None
    beside: SideEffects | None = None

    @property
    def on_device(self) -> bool:
        """Whether the breakdown of the step is that of a device, not of the loop's thread."""
        return self.breakdown.on_device

    @property
    def undilated(self) -> Deprofiled:
        """`deprofiled` by its former name, for packs that use it."""
        return self.deprofiled

    def claims(self, *on_host: str) -> tuple[str, ...]:
        """The parts of the breakdown that contain work on tensors: on a device its computation, else these."""
        return ("compute",) if self.on_device else on_host

    def measured_us(self, claims: Sequence[str]) -> float:
        """Recorded time of these parts of the breakdown, µs per step; of the whole step without any."""
        return sum(self.breakdown.us(part) for part in claims) if claims else self.ops.steps.step_us

    def spent_us(self, rows: Ints) -> float:
        """Time of these events, µs per profiled step: of the device work that they are or launch, else their own."""
        return self.ops.us(self._work_of(rows))

    def less(self, rows: Ints, share: float) -> Edit:
        """The edit with which this share of the events' time goes (`spent_us`); all of it with the events themselves.

        On a device a part goes of the work that they are or launch: the calls stay, as some are needed for the rest.
        """
        return remove(rows) if share == 1 else scale(self._work_of(rows), 1 - share)

    def _work_of(self, rows: Ints) -> Ints:
        """Whose time counts for these events: on a device the work that they are or launch, else they themselves."""
        if not self.on_device:
            return rows
        of_device = self.ops.trace.device_work[rows]
        launched = self.ops.launched(rows[~of_device]) if not of_device.all() else rows[:0]
        return np.concatenate((rows[of_device], launched))

    def share_of(self, spans: Intervals) -> Range:
        """(low, high) share of the un-profiled step that the loop's thread spends in these spans (absolute ns)."""
        return self.deprofiled.share(self.deprofiled.stretch(spans, self.ops.steps))

    def saving(
        self,
        least: Sequence[Edit],
        most: Sequence[Edit],
        claims: Sequence[str],
        how: str,
        *,
        model_us: Range | None = None,
        bound_us: float | None = None,
        instead_us: Range = NOTHING,
    ) -> Saving:
        """From what is certainly saved (`least`) to what may be (`most`), replayed; modelled if no replay is trusted.

        model_us: recorded µs per step that are saved, if not the sum of the edited events' time;  bound_us: what is
        claimed, if less than the parts of the breakdown.
        """
        low_us, high_us = model_us or (self._gone_us(least), self._gone_us(most))
        bound_us = self.measured_us(claims) if bound_us is None else bound_us
        high_us = min(high_us, bound_us)
        modelled = self.scale.saving(max(min(low_us, high_us), 0.0), max(high_us, 0.0), how)
        claimed_us = self.scale.scaled(bound_us)
        found = replayed_or(modelled, self.replay, least, most, how, claimed_us)
        if self.on_device:
            return found
        return less_by(self._refilled(self._widened(found, most, claimed_us), most, claims), instead_us)

    def divided(
        self,
        least: Sequence[Edit],
        most: Sequence[Edit],
        claims: Sequence[str],
        how: str,
        *,
        instead_us: Range = NOTHING,
        times: float = 1.0,
        evicts: bool = True,
    ) -> Saving:
        """The same, on a CPU from the un-profiled time of the parts of the step that contain the work.

        For many small ops, which the profiler slows more than others, and for Python. times: a factor for the high end,
        as measured for side effects on the rest of the step.  evicts: unless what comes instead goes through as many
        bytes.
        """
        if self.on_device:
            return self.saving(least, most, claims, how)
        ends = [self._divided(edits) for edits in (least, most)]
        high = min(max(high for _, high in ends), self._claimed_share(claims))
        slowed = sum(high - low for low, high in ends) / 2
        saving = self.shares(min(low for low, _ in ends), high, how, times=times, slowed=slowed)
        if evicts:
            # What was measured of side effects holds what is evicted.
            refilled = self._refilled(self.shares(0.0, high, how), most, claims)
            saving = replace(saving, high_us=max(saving.high_us, refilled.high_us))
        return less_by(saving, instead_us)

    def shares(
        self, low: float, high: float, how: str, *, times: float = 1.0, basis: Basis = "modelled", slowed: float = 0.0
    ) -> Saving:
        """The saving of shares of the un-profiled step, limited to the step.

        times: as of `divided`;  slowed: by what share the ends differ as it is not known which work the profiler
        slowed.
        """
        step_us = self.scale.step_us
        saving = self.of_us(low * step_us, min(max(high, 0.0) * times, 1.0) * step_us, how, basis=basis)
        return saving.wider(saving.low_us, saving.high_us, "profiler", slowed * step_us)

    def of_us(self, low_us: float, high_us: float, how: str, *, basis: Basis = "measured") -> Saving:
        """The saving of known µs of the un-profiled step, limited to the step."""
        most_us = min(max(high_us, 0.0), self.scale.step_us)
        return Saving(max(min(low_us, most_us), 0.0), most_us, basis, how)

    def long_ops(
        self,
        model_us: Range,
        claims: Sequence[str],
        how: str,
        *,
        instead_us: Range = NOTHING,
        basis: Basis = "modelled",
        most: Sequence[Edit] = (),
    ) -> Saving:
        """The saving of work in ops that are long compared with profiler overhead, of recorded µs per step.

        low: the profiler slowed them like the rest of the step; high, on a CPU: it slowed only other ops.  most: what
        may go, for what it evicts there; on a device, what other fixes are replayed beside.
        """
        bound_us = self.measured_us(claims)
        low_us, high_us = (min(us, bound_us) for us in model_us)
        slower = 1.0 if self.on_device else self._slower
        found = self.scale.saving(low_us, high_us * slower, how, basis)
        more_us = found.high_us - self.scale.scaled(high_us)
        found = found.wider(found.low_us, found.high_us, "profiler", more_us)
        if self.on_device:
            return EditedSaving(found.low_us, found.high_us, basis, how, found.width_us, tuple(most))
        return less_by(self._refilled(found, most, claims), instead_us)

    def _refilled(self, saving: Saving, gone: Sequence[Edit], claims: Sequence[str]) -> Saving:
        """The saving with a high end that includes what this work evicts from the caches, and what unmaps its results.

        Nothing where none is saved. To fetch it again takes no longer than the work, which fetched what evicted it.
        What is fetched in other parts of the breakdown than those that are claimed is not counted.
        """
        if not saving.high_us or not gone or self.beside is None:
            return saving
        rest_us = max(self.scale.step_us - saving.high_us, 0.0)
        most_us = min(saving.high_us, max(self.scale.scaled(self.measured_us(claims)) - saving.high_us, 0.0))
        more_us = min(self.beside.evicted.fetched_us(self._gone(gone), rest_us), most_us)
        # Spans of time hold what is freed in them.
        freed_us = self.beside.freed.us(self._gone([edit for edit in gone if not len(edit.spans)]))
        also = ["what this evicts from the caches"] * (more_us > 0) + ["unmapping its large results"] * (freed_us > 0)
        how = f"{saving.how}; high: plus {' and '.join(also)}" if also else saving.how
        return replace(saving, high_us=min(saving.high_us + more_us + freed_us, self.scale.step_us), how=how)

    def refill_us(self, work_us: float) -> float:
        """The most that the rest of a step waits for memory after so much Python and work on single samples, µs."""
        return self.beside.evicted.refill_us(self.scale.step_us - work_us) if self.beside else 0.0

    def _gone(self, edits: Sequence[Edit]) -> Shares:
        """The share of each event that goes with these edits."""
        events, gone = self.ops.events, np.zeros(len(self.ops.events))
        on_loop = events.thread == self.ops.steps.main_thread
        for edit in edits:
            if edit.what in ("remove", "scale") and edit.factor < 1:
                chosen = np.zeros(len(events), bool)
                if len(edit.spans):
                    chosen = on_loop & starts_in(events.start_ns, edit.spans)
                chosen[edit.rows] = True
                chosen = self.ops.nesting.within(chosen)
                gone[chosen] = np.maximum(gone[chosen], 1 - edit.factor)
        return gone

    def fewer_parameters_us(self, joined: float, kept: float) -> float:
        """The most that updating and clearing parameters takes less if some are joined, µs of the un-profiled step.

        joined: share of the parameters that are;  kept: as what share of these they remain. They have as many elements
        as before, whose arithmetic stays.
        """
        if self.beside is None:
            return 0.0
        work = self.beside.parameters
        spent_us = self.share_of(work.spans)[1] * self.scale.step_us
        return joined * (1 - kept) * max(spent_us - self.scale.scaled(work.elements_us), 0.0)

    @property
    def _slower(self) -> float:
        """How many times longer the recorded step is than the un-profiled one, 1 where that is not known."""
        known = self.deprofiled
        return max(known.recorded_us / known.plain_us, 1.0) if known.plain_us else 1.0

    def _of(self, edits: Sequence[Edit]) -> Intervals:
        """When the loop's thread is in what these edits change."""
        rows = np.unique(np.concatenate([edit.rows for edit in edits] or [np.empty(0, np.int64)]))
        spans = np.concatenate([self.ops.events.covered(rows), *(edit.spans for edit in edits)])
        return union(spans[:, 0], spans[:, 1])

    def _gone_us(self, edits: Sequence[Edit]) -> float:
        """Recorded time that goes with these edits, µs per step; waits and launches are known to a replay only."""
        return sum(
            (self.spent_us(edit.rows) + self.ops.steps.per_step_us(total(edit.spans))) * (1 - edit.factor)
            for edit in edits
            if edit.what in ("remove", "scale") and (len(edit.rows) or len(edit.spans))
        )

    def _divided(self, edits: Sequence[Edit]) -> Range:
        """(low, high) share of the un-profiled step that goes with these edits."""
        spans = self._of(edits)
        if not len(spans):
            return NOTHING
        low, high = self.share_of(spans)
        rows = np.unique(np.concatenate([edit.rows for edit in edits]))
        own_us = self.ops.us(rows) + sum(self.ops.steps.per_step_us(total(edit.spans)) for edit in edits)
        part = self._gone_us(edits) / max(own_us, 1e-9)
        return low * part, high * part

    def _claimed_share(self, claims: Sequence[str]) -> float:
        """The most of the un-profiled step that these parts of the breakdown take; all of it without any."""
        if not claims:
            return 1.0
        spans = np.concatenate([self.breakdown.intervals[part] for part in claims])
        return self.share_of(union(spans[:, 0], spans[:, 1]))[1]

    def _widened(self, saving: Saving, most: Sequence[Edit], claimed_us: float) -> Saving:
        """The saving with a high end for the case that the profiler slowed the rest of the step more than what goes.

        A step of few large ops and many small ones is the case: the profiler adds to each op, so the small ones look
        large.
        """
        spans = self._of([edit for edit in most if edit.what == "remove"])
        if not len(spans):
            return saving
        _, high = self.share_of(spans)
        # The bound is told in time of the profiled step, which the profiler stretched.
        most_us = min(claimed_us * self._slower, self.scale.step_us)
        high_us = max(saving.high_us, min(high * self.scale.step_us, most_us))
        return saving.wider(saving.low_us, high_us, "profiler", high_us - saving.high_us)

    @classmethod
    def compute(
        cls,
        ops: StepOps,
        breakdown: Breakdown,
        scale: Scale,
        deprofiled: Deprofiled,
        added: AddedWork,
        replay: Replay | None,
        beside: SideEffects | None,
    ) -> Price:
        """The prices of a trace."""
        return cls(ops, breakdown, scale, deprofiled, added, replay, beside)


def less_by(saving: Saving, instead_us: Range) -> Saving:
    """The saving minus the cost of a replacement: (least, most), µs of the un-profiled step."""
    least_us, most_us = instead_us
    high_us = max(saving.high_us - least_us, 0.0)
    return saving.wider(min(max(saving.low_us - most_us, 0.0), high_us), high_us, "instead", most_us - least_us)


def calm(spans: Intervals) -> Intervals:
    """The spans, each limited to three times their median, because bursts of other work lengthen some."""
    if len(spans) < 3:
        return spans
    longest = 3 * int(np.median(spans[:, 1] - spans[:, 0]))
    return np.column_stack((spans[:, 0], np.minimum(spans[:, 1], spans[:, 0] + longest)))
