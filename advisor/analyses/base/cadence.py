"""How often the device finishes a step, where the host runs ahead of it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.launched import Launched
from advisor.trace.events import Floats, Ints, Mask, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, subtract, total, union
from advisor.trace.numbers import distinct

# Where host and device differ by less, or a window by less in what it shows of the device, they say the same. It is
# also the error from which on a replay is not trusted.
NOTABLE = 0.05
# Fewer device steps than two in a window of the host's show no whole one.
_WHOLE_STEPS = 2


class Cadence(Struct, frozen=True, eq=False):
    """The work on the device that consecutive steps launched, wherever it ran.

    ends_ns     end of the last work that each step launched, never before that of an earlier step
    begins_ns   the device is done with what was launched before the first step, and has begun with that step's
    lengths_ns  what each step takes the device: from the end of the one before (of the first: from begins_ns) to its
                own; idle time between them is part of it
    kept        which steps count; None: all. The lengths are of these
    """

    ends_ns: Ints
    begins_ns: int
    kept: Mask | None = None

    @property
    def lengths_ns(self) -> Floats:
        """See above."""
        lengths = np.diff(self.ends_ns, prepend=self.begins_ns).astype(float)
        return lengths if self.kept is None else lengths[self.kept]

    @property
    def step_ns(self) -> float:
        """Mean distance between the ends of consecutive steps; of a single one from its first work to its last."""
        lengths = self.lengths_ns
        first = 1 if self.kept is None or self.kept[0] else 0
        return float(lengths[first:].mean() if len(lengths) > 1 else lengths[0])

    @property
    def left_out(self) -> Intervals:
        """When the device does what steps that do not count launched."""
        if self.kept is None:
            return EMPTY
        starts = np.append(self.begins_ns, self.ends_ns[:-1])
        return union(starts[~self.kept], self.ends_ns[~self.kept])

    @property
    def _before_ns(self) -> int:
        """As long before the end of the first step's work as a step takes; begins_ns where that step does not count."""
        whole = len(self.ends_ns) > 1 and (self.kept is None or bool(self.kept[0]))
        return int(self.ends_ns[0] - self.step_ns) if whole else self.begins_ns

    def is_behind(self, of_host: Intervals, host_ns: float) -> bool:
        """Whether the device takes longer for a step than the host (host_ns), and lags behind when its rows end."""
        late = float(self.ends_ns[-1] - of_host[-1, 1])
        return self.step_ns > (1 + NOTABLE) * host_ns and late > NOTABLE * host_ns

    def window(self, of_host: Intervals, busy: Intervals) -> Intervals:
        """The window that shows what the device does in a step.

        That of the host's rows, unless the device lags behind so far that these rows do not show it: when they end,
        more than a twentieth of the window's length is left to do, and the window holds less than two of the device's
        steps, or another share of idle time. Then it is that of the work which the steps launched. Work of earlier
        steps that a window begins with stands for that with which it does not end; where it begins with an idle device,
        what comes before the first work, for as long as a step takes, stands for what came before the work of others.
        """
        start, end = int(of_host[0, 0]), int(of_host[-1, 1])
        last = int(self.ends_ns[-1])
        own = np.array([[min(self.begins_ns, max(self._before_ns, start)), last]])
        if len(self.left_out):
            return subtract(own, self.left_out) if last - end > NOTABLE * total(of_host) else of_host
        if len(of_host) > 1 or last - end <= NOTABLE * (end - start):
            return of_host
        if len(self.ends_ns) == 1 and self.step_ns <= (1 + NOTABLE) * (end - start):
            return of_host  # how much of the next step's work would run in this one is not known
        seen, shown = (total(intersect(busy, one)) / total(one) for one in (of_host, own))
        fair = end - start >= _WHOLE_STEPS * self.step_ns and abs(seen - shown) <= NOTABLE
        return of_host if fair else own


def cadence(trace: Trace, launched: Launched, spans: Intervals) -> Cadence | None:
    """The device's steps. spans: the host's; None where one of them launched nothing on the device."""
    events, launch = trace.events, launched.launch
    works = np.flatnonzero(trace.device_work)
    linked = works[launch[works] >= 0]
    at = events.start_ns[launch[linked]]
    step = np.searchsorted(spans[:, 0], at, side="right") - 1
    mine = (step >= 0) & (at < np.append(spans[1:, 0], spans[-1, 1])[np.maximum(step, 0)])
    if len(distinct(step[mine], len(spans))) < len(spans):
        return None
    ends = np.zeros(len(spans), np.int64)
    np.maximum.at(ends, step[mine], events.end_ns[linked[mine]])
    begins = int(events.start_ns[linked[mine]].min())
    done = max(events.end_ns[launched.before].max(initial=0), events.end_ns[linked[at < spans[0, 0]]].max(initial=0))
    return Cadence(np.maximum.accumulate(ends), max(begins, int(done)))
