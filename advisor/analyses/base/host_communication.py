"""Communication on the host: gloo and MPI on ranks without an accelerator."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.steps import Steps
from advisor.trace.events import Category, Events, Mask, Trace
from advisor.trace.intervals import Intervals, intersect, total

# How the rows of back ends begin that work on the host; NCCL annotates its calls there, too.
_ON_HOSTS = ("gloo:", "mpi:")


def host_collectives(events: Events) -> Mask:
    """Collectives that a CPU backend runs on the host, whether the tensors are there or on a device."""
    found: Mask = events.of(Category.ANNOTATION) & events.named(*_ON_HOSTS)
    return found


class HostCommunication(Struct, frozen=True, eq=False):
    """Host-side collectives (gloo, MPI …) in W.

    spans    union of the collectives on any thread, in W
    us       µs per step
    calls    per step
    """

    spans: Intervals
    us: float
    calls: float

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> HostCommunication:
        """Host communication; zero if there is none."""
        events = trace.events
        rows = events.of(Category.ANNOTATION, Category.CPU_OP) & communication_rows(events)
        spans = intersect(events.covered(rows), steps.window)
        started = rows & (steps.step_of(events.start_ns) >= 0)
        return cls(spans, steps.of_window_us(total(spans)), float(started.sum()) / steps.count)
