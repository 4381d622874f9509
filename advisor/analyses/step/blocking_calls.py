"""Blocking host calls, and what each did to the device's queue."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import blocking_calls
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.gradient_hooks import below_engine, not_of_autograd
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.numbers import in_order
from advisor.trace.op_names import AUTOGRAD_NODE

# A wait shorter than a launch takes leaves the host no further behind than it was.
LEAST_WAIT_NS = 10_000


class Drains(Struct, frozen=True, eq=False):
    """Every blocking host call in W that is not the profiler's own, in order. All columns have one entry per call.

    Calls block by what they are (`named`); besides, a copy to the host that returned after its data had moved: from
    memory that is not pinned an asynchronous one does, and first waits for all that was queued before it.

    call       event row of the call
    op         row of the outermost op around it, of a hook on gradients below the engine's; the call itself without one
    begin_ns   start of the innermost op around it, else of the call: a blocking copy and the wait for it are one
    waited_ns  how long the work that was queued before `begin_ns` kept the host; 0 where the queue was empty already
    until_ns   start of the next device work that is not part of a blocking op: the queue is filled again
    to_device  whether its op copies to the device, and nothing back: `x.to(device)` and `y.to("cpu")` are one op, but
               what can be done about them differs
    hooked     whether that is the op of a hook on gradients
    named      whether the call blocks whatever happens: only these are counted, since a count must not hang on timing
    """

    call: Ints
    op: Ints
    begin_ns: Ints
    waited_ns: Ints
    until_ns: Ints
    to_device: Mask
    hooked: Mask
    named: Mask

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, links: Links) -> Drains:
        """The blocking calls of a trace."""
        events = trace.events
        blocking = blocking_calls(events)
        waiting = blocking | _late_reads(events, links, nesting, blocking)
        call = np.flatnonzero(waiting & (steps.step_of(events.start_ns) >= 0))
        call = call[~_of_profiler(events, call, nesting)]
        op = asked_by(events, nesting, call)
        to_device, outer = _to_device(events, links, nesting, op), nesting.outer_op[op]
        hooked = (outer >= 0) & (outer != op)
        parent = nesting.parent[call]
        inner = np.where((parent >= 0) & events.of(Category.CPU_OP)[np.maximum(parent, 0)], parent, call)
        begin, end = events.start_ns[inner], events.end_ns[call]
        work = np.flatnonzero(trace.device_work)
        if not len(work) or not len(call):
            return cls(call, op, begin, np.zeros(len(call), np.int64), end, to_device, hooked, blocking[call])
        # What was queued before: the latest end among the work that was launched before the op began.
        launch = links.launch[work]
        queued = np.where(launch >= 0, events.start_ns[np.maximum(launch, 0)], events.start_ns[work])
        order = np.argsort(queued, kind="stable")
        reach = np.maximum.accumulate(events.end_ns[work][order])
        before = np.searchsorted(queued[order], begin, side="left") - 1
        pending = np.where(before >= 0, reach[np.maximum(before, 0)], begin)
        waited = np.clip(np.minimum(pending, end) - begin, 0, None)
        waited[waited < LEAST_WAIT_NS] = 0
        refilled = _refilled(events, work, links, inner, begin + waited)
        return cls(call, op, begin, waited, refilled, to_device, hooked, blocking[call])


def asked_by(events: Events, nesting: Nesting, rows: Ints) -> Ints:
    """The outermost op around each of these rows, else the row itself.

    In a hook on gradients, which autograd's engine calls, it is the outermost op of the hook.
    """
    outer = nesting.outer_op[rows]
    op = np.where(outer >= 0, outer, rows)
    in_engine = np.flatnonzero(events.named(AUTOGRAD_NODE)[op])
    called = nesting.ancestor_of(rows[in_engine], below_engine(events, nesting))
    of_hook = (called >= 0) & not_of_autograd(events)[called]
    op[in_engine[of_hook]] = called[of_hook]
    return op


def _to_device(events: Events, links: Links, nesting: Nesting, op: Ints) -> Mask:
    """Whether each of these ops, or calls outside of ops, launches copies to the device and no other copies."""
    copies = np.flatnonzero(events.of(Category.MEMCPY) & (links.launch >= 0))
    launch = links.launch[copies]
    owner = asked_by(events, nesting, launch)
    there = events.named("HtoD")[copies]
    return np.isin(op, owner[there]) & ~np.isin(op, owner[~there])


def _late_reads(events: Events, links: Links, nesting: Nesting, blocking: Mask) -> Mask:
    """Asynchronous copies to the host that returned after their data had moved, and that no blocking call follows."""
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH") & (links.launch >= 0))
    call = links.launch[copies]
    parent, waits = nesting.parent[call], nesting.parent[np.flatnonzero(blocking)]
    late = (events.end_ns[call] >= events.end_ns[copies]) & (events.dur_ns[call] >= LEAST_WAIT_NS)
    late &= ~np.isin(parent, waits[waits >= 0])
    found = np.zeros(len(events), bool)
    found[call[late]] = True
    return found


def _of_profiler(events: Events, call: Ints, nesting: Nesting) -> Mask:
    """The synchronisation with which the profiler ends a recording: outside all ops, after the last of them."""
    ops = events.of(Category.CPU_OP)
    last_op = int(events.end_ns.compress(ops).max()) if ops.any() else np.iinfo(np.int64).max
    return (nesting.parent[call] < 0) & (events.start_ns[call] >= last_op)


def _refilled(events: Events, work: Ints, links: Links, op: Ints, from_ns: Ints) -> Ints:
    """Start of the first device work from each instant on that no blocking op launched; the end of time without one."""
    launch = links.launch[work]
    blocking = np.unique(np.column_stack((events.thread[op], events.start_ns[op], events.end_ns[op])), axis=0)
    inside = np.zeros(len(work), bool)
    for thread in np.unique(blocking[:, 0]):
        spans = blocking[blocking[:, 0] == thread]
        index = np.searchsorted(spans[:, 1], events.start_ns[launch], side="right") - 1
        spanned = (index >= 0) & (events.start_ns[launch] < spans[np.maximum(index, 0), 2])
        inside |= spanned & (launch >= 0) & (events.thread[launch] == thread)
    # Launched before the op began is still the old queue, wherever it runs: only newer work fills it again.
    starts = in_order(events.start_ns[work][~inside])
    index = np.searchsorted(starts, from_ns, side="left")
    padded = np.append(starts, np.iinfo(np.int64).max)
    return padded[index]
