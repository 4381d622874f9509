"""Steps of a window that are not like the others, and would be in all shares of a few steps."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.startup import compiling
from advisor.capture.record import RankRecord
from advisor.constants import constant
from advisor.trace.events import Category, Floats, Mask, Trace
from advisor.trace.intervals import Intervals, overlap_of_each

_STALL = constant("profiler.stall").value
# A window of fewer steps shows nothing usual.
_FEW = 5
# Dixon's test of the largest of n values, r10, at 99 % (Rorabacher, Anal. Chem. 63, 1991): its distance to the next, as
# a share of that between the largest and the smallest. From ten values on, that of ten.
_DISTANCE = (0.821, 0.740, 0.680, 0.634, 0.598, 0.568)
_SLOWED = constant("profiler.slowed").value
# Un-profiled steps that tell how far steps differ, and profiled ones that have to stay.
_FEW_UNPROFILED, _FEWEST = 20, 3
# A step that changes the mean by less changes no share by more than the error that is accepted elsewhere.
_NOTABLE = 0.05
# Steps that take this many times the median one, and how many of them: one may be chance, two recur.
_FAR_LONGER, _RECUR = 1.5, 2
# The mean of steps that are alike is this close to their median, and so are most of them.
_ALIKE = 1.1
# So many repetitions show a period: two may be alike by chance. Of what steps differ it explains at least this share.
_PERIODS, _EXPLAINED = 3, 0.5


def odd_steps(trace: Trace, spans: Intervals, lengths: Floats) -> Mask:
    """Steps to leave out, so that shares are those of the typical ones (the mean of what is left).

    An evaluation, a checkpoint, a collection of garbage: how often it comes, a window of a few steps does not tell. Nor
    is a step that compiles one of the others, however often it comes. Kept are a step that is longer because only it
    updates the weights, and one after the first that waits for its batch: both come again.
    """
    none = np.zeros(len(lengths), bool)
    if len(lengths) < _FEW:
        return none
    compiles, returns = compiling(trace, spans), _updates_alone(trace, spans) | _waits_for_batch(trace, spans)
    for found in (_many_times(lengths, compiles), _apart(lengths)):
        if found.any() and not (found & returns).any():
            return found
    return none


def period(lengths: Floats) -> int | None:
    """After how many steps they repeat: 1 where most are like the median one; None where they differ without a period.

    The shortest period that explains how steps differ. What is left over of whole periods is at the beginning of a
    window, where a loader's first batches are.
    """
    usual = float(np.median(lengths))
    recur = (lengths > _FAR_LONGER * usual).sum() >= _RECUR and lengths.mean() > _ALIKE * usual
    alike = (lengths <= _ALIKE * usual) & (lengths >= usual / _ALIKE)
    if not recur and 2 * alike.sum() >= len(lengths):
        return 1
    for steps in range(2, len(lengths) // _PERIODS + 1):
        last = lengths[len(lengths) % steps :].reshape(-1, steps)
        around = np.abs(last - np.median(last)).sum()
        if np.abs(last - np.median(last, axis=0)).sum() <= (1 - _EXPLAINED) * around:
            return steps
    return None


def slowed(record: RankRecord) -> Mask:
    """Which profiled steps take far longer than the quickest of them, though un-profiled ones are alike.

    The profiler keeps its events in memory, and the C library may then return the memory of large tensors to the system
    in each step and map it again: of a window of 20 steps the last 12 had 4,096 to 10,240 page faults each and took 15
    to 22 ms, the first 8 at most 449 and 11 to 14 ms. What such steps spend on large tensors is no saving. Ranks of a
    job are compared step by step, so there none is.

    The quickest tenth stands for steps that were not slowed, the spread of un-profiled steps (from the tenth to the
    ninetieth hundredth) for how far steps differ by themselves. Only if the median step is slowed: bursts of other work
    are left to means and medians.
    """
    captured = record.steps
    lengths, plain = np.asarray(captured.profiled_us, float), np.asarray(captured.unprofiled_us, float)
    none = np.zeros(len(lengths), bool)
    if record.world_size != 1 or len(lengths) < _FEW or len(plain) < _FEW_UNPROFILED:
        return none
    low, high = np.quantile(plain, (0.1, 0.9))
    most = _SLOWED * high / max(low, 1e-9) * np.quantile(lengths, 0.1)
    found: Mask = lengths > most
    return found if np.median(lengths) > most and (~found).sum() >= _FEWEST else none


def longest_of_few(trace: Trace, spans: Intervals, lengths: Floats) -> int | None:
    """Of steps that all stay in the shares the one that is not like the others, though notable in their mean.

    Of two to four steps, or of steps of several ranks, nobody can say that it is no usual one.
    """
    if len(lengths) < 2:
        return None
    longest = int(lengths.argmax())
    others = np.delete(lengths, longest)
    apart = lengths[longest] - others.max() > others.max() - others.min()
    if not apart or lengths.mean() <= (1 + _NOTABLE) * others.mean():
        return None
    return None if (_updates_alone(trace, spans) | _waits_for_batch(trace, spans))[longest] else longest


def _many_times(lengths: Floats, compiles: Mask) -> Mask:
    """Steps each of which is many times as long as the longest of the others, once in five or rarer.

    What holds up a step of the host shows on the device before the work of the next; both count once.
    """
    ordered = np.sort(lengths)
    for at in np.flatnonzero(ordered[1:] > _STALL * ordered[:-1]).tolist():
        found: Mask = lengths > ordered[at]
        after = np.concatenate(([False], found[:-1]))
        times = int((found & ~after & ~compiles).sum())
        if times * _FEW <= len(lengths) and 2 * found.sum() < len(lengths):
            return found
    return np.zeros(len(lengths), bool)


def _apart(lengths: Floats) -> Mask:
    """The longest step, where the others are so much more alike that it is none of them.

    A host that ran ahead is held up in one step, its device before the work of the next: that one as well, then.
    """
    found = np.zeros(len(lengths), bool)
    longest = _outlier(lengths)
    if longest is not None:
        found[longest] = True
        following = _outlier(lengths[~found]) if len(lengths) > _FEW else None
        if following is not None and following == longest < len(lengths) - 1:
            found[longest + 1] = True
    return found


def _outlier(lengths: Floats) -> int | None:
    """Which of these is longer than the others allow, and notable in their mean."""
    least, *_, next_one, longest = np.sort(lengths).tolist()
    distance = _DISTANCE[min(len(lengths), _FEW + len(_DISTANCE) - 1) - _FEW]
    rest = (lengths.sum() - longest) / (len(lengths) - 1)
    apart = longest - next_one > distance * (longest - least) and lengths.mean() > (1 + _NOTABLE) * rest
    return int(lengths.argmax()) if apart else None


def _updates_alone(trace: Trace, spans: Intervals) -> Mask:
    """Steps in which an optimizer steps, where in most none does: gradients are added up over several."""
    rows = np.flatnonzero(trace.events.of(Category.ANNOTATION) & trace.events.named("Optimizer.step#"))
    step = np.searchsorted(spans[:, 0], trace.events.start_ns[rows], side="right") - 1
    updates = np.bincount(step[step >= 0], minlength=len(spans)) > 0
    return updates if 2 * updates.sum() < len(spans) else np.zeros(len(spans), bool)


def _waits_for_batch(trace: Trace, spans: Intervals) -> Mask:
    """Steps after the first that wait for their batch for most of the time by which they are longer than usual."""
    events = trace.events
    rows = np.flatnonzero(events.of(Category.ANNOTATION) & events.named("enumerate(DataLoader)#"))
    waits = events.covered(rows)
    waited = overlap_of_each(spans[:, 0], spans[:, 1], waits).astype(float)
    took = (spans[:, 1] - spans[:, 0]).astype(float)
    more = took - np.median(took)
    found: Mask = (more > 0) & (2 * (waited - np.median(waited)) > more)
    found[0] = False
    return found
