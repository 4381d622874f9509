"""Host calls that start device work, and how they compare with the work they start."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import graph_launches, launch_calls
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.links import Links
from advisor.analyses.base.steps import Steps
from advisor.trace.events import Category, Events, Ints, Trace

# A launch costs the host 5 to 10 µs, so a stream of kernels shorter than that cannot keep the device busy.
SHORT_NS = 10_000
# Fewer kernels say too little: a short kernel may end before its launch returns.
_KERNELS = 20


class Launches(Struct, frozen=True, eq=False):
    """Launches and kernels of W, per step.

    per_step          host calls that start kernels or graphs
    launch_us         median host duration of such a call, 0 if there are none
    kernels_per_step  kernels, by the step of their launch, else of their start
    kernel_us         median duration of a kernel
    short_share       share of kernels shorter than 10 µs
    queue_delay_us    median time from the start of the launch call to the start of its kernel; None if not linked
    graphs            kernels came from graph launches
    blocking_share    share of kernels whose launch returned only after they had ended; None for fewer than 20
    blocked_us        host time in those launches
    """

    per_step: float
    launch_us: float
    kernels_per_step: float
    kernel_us: float
    short_share: float
    queue_delay_us: float | None
    graphs: bool
    blocking_share: float | None
    blocked_us: float

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy, links: Links) -> Launches:
        """Launch statistics. Missing without device work."""
        events = trace.events
        inside = links.inside
        calls = launch_calls(events) & inside
        kernels = events.of(Category.KERNEL) & inside
        kernel_ns = events.dur_ns.compress(kernels)
        linked = np.flatnonzero(kernels & (links.launch >= 0))
        delay = events.start_ns.take(linked) - events.start_ns.take(links.launch.take(linked))
        share, blocked_ns = _blocking(events, links, linked)
        return cls(
            per_step=float(calls.sum()) / steps.count,
            launch_us=_median_us(events.dur_ns.compress(calls)) or 0.0,
            kernels_per_step=len(kernel_ns) / steps.count,
            kernel_us=_median_us(kernel_ns) or 0.0,
            short_share=float((kernel_ns < SHORT_NS).mean()) if len(kernel_ns) else 0.0,
            # Host and device clocks may disagree by some µs: a kernel is never started before its launch.
            queue_delay_us=_median_us(np.maximum(delay, 0)),
            graphs=bool((graph_launches(events) & inside).any()),
            blocking_share=share,
            blocked_us=steps.per_step_us(blocked_ns),
        )


def _blocking(events: Events, links: Links, kernels: Ints) -> tuple[float | None, float]:
    """The share of these kernels whose launch outlasts them, and the time in their launches, ns."""
    calls = links.launch.take(kernels)
    # A launch that starts many kernels, as that of a CUDA graph does, outlasts the first of them anyway.
    single = np.bincount(calls, minlength=len(events)).take(calls) == 1
    kernels, calls = kernels.compress(single), calls.compress(single)
    if len(kernels) < _KERNELS:
        return None, 0.0
    outlasts = events.end_ns.take(calls) >= events.end_ns.take(kernels)
    longer = events.dur_ns.take(calls) >= events.dur_ns.take(kernels)
    return float((outlasts & longer).mean()), float(events.dur_ns.take(calls).sum())


def _median_us(values_ns: Ints) -> float | None:
    return float(np.median(values_ns)) / 1e3 if len(values_ns) else None
