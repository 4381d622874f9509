"""Host calls that block until the device has caught up."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines
from advisor.analyses.step.blocking_calls import Drains
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.standstills import Standstills
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Ints, Trace
from advisor.trace.intervals import overlap_of_each, subtract


class SyncSite(Struct, frozen=True):
    """Blocking calls of one origin, per step.

    op             the op or call that the user wrote (`aten::item`, `aten::copy_`, `cudaDeviceSynchronize` …)
    calls          per step
    us             time that they blocked the host, µs per step; not what they returned late (`Standstills.late`)
    idle_after_us  device idle from the drained queue to the next device work, µs per step, as far as it is idle_sync
    then_idle_us   the same of every explained cause: what the host does between the wait and the next launch
    gives_back_us  upper bound of the saving without them: of each the smaller of its wait and the idle time after it
    where          the user's line, if known
    from_user      False for syncs that the framework makes itself (profiler, DDP, data loader, threads without an op)
    rows           the ops around the blocking calls, or the calls themselves: a blocking copy and the wait for it
    """

    op: str
    calls: float
    us: float
    idle_after_us: float
    gives_back_us: float = 0.0
    then_idle_us: float = 0.0
    where: Source | None = None
    from_user: bool = True
    rows: tuple[int, ...] = ()


class Syncs(Struct, frozen=True, eq=False):
    """Blocking host calls in W, except the profiler's own.

    count   per step, of those that always block (`Drains.named`)
    us      time blocked, µs per step
    sites   by op, line, and whether they copy to the device; those with the most idle time after them first, then by
            time blocked
    """

    count: float
    us: float
    sites: tuple[SyncSite, ...]

    @classmethod
    def compute(
        cls, trace: Trace, steps: Steps, drains: Drains, lines: Lines, idle: GpuIdle | None, stills: Standstills
    ) -> Syncs:
        """Syncs of this rank. Raises Missing if the trace has no runtime calls."""
        events = trace.events
        if not events.of(Category.RUNTIME).any():
            raise Missing("the trace has no calls into a device runtime, so blocking calls cannot be counted")
        start, end = events.start_ns[drains.call], events.end_ns[drains.call]
        own_ns = _blocked_ns(drains, end - start - overlap_of_each(start, end, stills.late))
        stalled = then_idle = np.zeros(len(own_ns), np.int64)
        if idle is not None:
            drained = drains.begin_ns + drains.waited_ns
            until = np.where(drains.waited_ns > 0, np.minimum(drains.until_ns, steps.window[-1, 1]), drained)
            until = np.maximum(until, drained)
            stalled = overlap_of_each(drained, until, idle.intervals["idle_sync"])
            then_idle = overlap_of_each(drained, until, subtract(idle.explained, stills.spans))
        idle_steps = idle.steps_count if idle is not None else steps.of_window
        working = np.unique(events.thread[events.of(Category.CPU_OP)])
        groups: dict[tuple[str, Source | None, bool], list[int]] = {}
        for i, row in enumerate(drains.op):
            groups.setdefault((events.text(row), lines.where_op(int(row)), bool(drains.to_device[i])), []).append(i)
        sites = []
        for (op, where, there), members in groups.items():
            rows = np.array(members)
            # What hooks send to the device are activations that they had kept on the host, or parameters.
            sent = there and bool(drains.hooked[rows].all())
            # A thread that runs no op is a library's, as Gloo's for its copies: the loop does not wait in it.
            apart = len(working) > 0 and not np.isin(events.thread[drains.op[rows]], working).any()
            back = np.minimum(stalled[rows], drains.waited_ns[rows])
            sites.append(
                SyncSite(
                    op=op,
                    calls=len(rows) / steps.count,
                    us=steps.per_step_us(int(own_ns[rows].sum())),
                    idle_after_us=float(stalled[rows].sum()) / idle_steps / 1e3,
                    then_idle_us=float(then_idle[rows].sum()) / idle_steps / 1e3,
                    gives_back_us=float(back.sum()) / idle_steps / 1e3,
                    where=where,
                    from_user=not (_FRAMEWORK.match(op) or sent or apart),
                    rows=tuple(np.unique(drains.op[rows]).tolist()),
                )
            )
        sites.sort(key=lambda site: (-site.idle_after_us, -site.us, site.op))
        return cls(float(drains.named.sum()) / steps.count, steps.per_step_us(int(own_ns.sum())), tuple(sites))


def _blocked_ns(drains: Drains, dur_ns: Ints) -> Ints:
    """How long the host stood in each call, or in the copy before it in the same op: such a copy waits itself."""
    first = np.concatenate(([True], drains.begin_ns[1:] != drains.begin_ns[:-1]))[: len(dur_ns)]
    return np.where(first, np.maximum(dur_ns, drains.waited_ns), dur_ns)


# Ops that synchronise on the framework's account: no line of the user's asks for it.
_FRAMEWORK = re.compile(r"autograd::engine|c10d::|torch(::|\.)distributed|nccl:|DistributedDataParallel")
