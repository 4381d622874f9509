"""Collectives of several ranks: where a rank starts one, where it waits for it, and when it ends for all.

Recorded is gloo on the CPU, where the host itself waits for the bytes. On a device it launches a kernel on a stream
and goes on; what waits is a stream. So the host's waiting is taken out of the recording, and each wait's place is kept:

    a collective whose end the host awaits at once            runs on the current stream, which goes on after it
    FSDP2's gathers, for which their copy-out waits           a stream of their own, which waits for the copy-in alone
    FSDP2's reductions, DDP's and other hooks' of gradients   a stream of their own, until the backward pass has ended
    what else is awaited later                                a stream of its own, until the place of the wait

(torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py; ProcessGroupNCCL: a collective with async_op=False uses the
current stream.) Durations: bytes over the link's bandwidth with the factors of nccl-tests (doc/PERFORMANCE.md), and a
time for none at all. Collectives do not slow kernels beside them here, and all groups of a job are taken for one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .devices import Costs, Device
from .placement import SIZES
from .recording import Row, Step

MAIN, HOOKED, COPY_IN, GATHERS, REDUCTIONS = 7, 15, 11, 19, 23
BACKWARD = "autograd::engine::evaluate_function"
WAIT_CALL_US = 5.0  # of the host, to ask a stream to wait
RETURN_US = 20.0  # from a wait's end to the next row: an estimate
TURN_US = 3000.0  # a thread that slept gets a core of a busy machine again within the scheduler's turn
PATIENCE_S = 120.0  # threads of the simulation, never a simulated time
# op -> (as ProcessGroupNCCL calls it, its kernel, what of its bytes crosses each link of n ranks, times n)
KINDS = {
    "c10d::allreduce_": ("allreduce", "AllReduce_Sum_{}_RING_LL", lambda n: 2 * (n - 1)),
    "c10d::_allgather_base_": ("_allgather_base", "AllGather_RING_LL", lambda n: n - 1),
    "c10d::_reduce_scatter_base_": ("_reduce_scatter_base", "ReduceScatter_Sum_{}_RING_LL", lambda n: n - 1),
    "c10d::alltoall_base_": ("all_to_allv", "SendRecv", lambda n: n - 1),
    "c10d::broadcast_": ("broadcast", "Broadcast_RING_LL", lambda n: n),
}
_SHORT = {"c10::BFloat16": "bf16", "c10::Half": "f16", "double": "f64"}
_LONG = {"c10::BFloat16": "BFloat16", "c10::Half": "Half", "float": "Float", "double": "Double", "long int": "Long"}


@dataclass(frozen=True)
class Call:
    """One collective of one rank: what it moves, the stream it runs on, and the recorded row.

    sent, received  elements that the rank gives and gets
    """

    row: Row
    sent: int
    received: int
    dtype: str
    stream: int = MAIN

    @property
    def bytes(self) -> int:
        """The larger side."""
        return max(self.sent, self.received) * SIZES.get(self.dtype, 4)

    def kernel(self) -> str:
        """The kernel's name."""
        pattern = KINDS[self.row.name][1]
        return f"ncclDevKernel_{pattern.format(_SHORT.get(self.dtype, 'f32'))}(ncclDevKernelArgsStorage<4096ul>)"

    def args(self, rank: int, count: int) -> dict[str, Any]:
        """The metadata that `record_param_comms` and the kernel carry."""
        return {
            "Collective name": KINDS[self.row.name][0],
            "In msg nelems": self.sent,
            "Out msg nelems": self.received,
            "Group size": count,
            "dtype": _LONG.get(self.dtype, "Float"),
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(count))),
            "Global rank start": 0,
            "Global rank stride": 1,
            "Rank": rank,
        }


@dataclass
class Plan:
    """A rank's collectives by the `id` of their rows, and before which rows it waits for which."""

    calls: dict[int, Call] = field(default_factory=dict)
    waits: dict[int, list[Call]] = field(default_factory=dict)


def plan(trace: dict[str, Any], thread: tuple[Any, Any], steps: list[Step]) -> Plan:
    """Finds them, and takes the host's waiting out of the steps' rows. Raises ValueError where ends are missing."""
    rows = [row for step in steps for row in step.row.all()]
    issued = [row for row in rows if row.name in KINDS]
    found = Plan()
    if not issued:
        return found
    above = {id(child): row for row in rows for child in row.children}
    work = _gloo(trace, thread, issued[0])
    if len(work) < len(issued):
        raise ValueError(f"{len(issued)} collectives, and {len(work)} that ended")
    blocked = []
    order = {id(row): i for i, row in enumerate(rows)}
    gaps = sorted(_gaps(rows))
    for row, (end, args) in zip(issued, work, strict=False):
        gap = next(((a, b, k) for a, b, k in gaps if a <= end < b), None)
        at_once = gap is None or gap[0] <= row.end + 0.01
        call, waits_at = _placed(row, args, above, at_once)
        if waits_at is None:
            waits_at = _after(rows, order, end) if gap and not at_once else _after(rows, order, row.end)
        # At once: the host slept, and got a core again some time after the end.
        awake = max(end, min(gap[1] - RETURN_US, end + TURN_US)) if gap and at_once else end
        if gap and awake - gap[0] > WAIT_CALL_US:
            blocked.append((gap[0] + WAIT_CALL_US, awake))
        found.calls[id(row)] = call
        if waits_at is not None and call.stream != MAIN:
            found.waits.setdefault(id(waits_at), []).append(call)
    _cut(rows, blocked)
    return found


def _gloo(trace: dict[str, Any], thread: tuple[Any, Any], first: Row) -> list[tuple[float, dict[str, Any]]]:
    """(end, args) of what gloo's threads did, in the order in which they took it up."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    zero = min(float(e["ts"]) for e in events if str(e["name"]).startswith("ProfilerStep#"))
    ours = [e for e in events if str(e["name"]).startswith("gloo:") and float(e["ts"]) - zero >= first.start]
    ours.sort(key=lambda e: float(e["ts"]))
    return [(float(e["ts"]) + float(e["dur"]) - zero, e.get("args") or {}) for e in ours]


def _gaps(rows: list[Row]) -> Iterator[tuple[float, float, int]]:
    """Stretches of the loop's thread between rows, and ops that only wait."""
    for number, row in enumerate(rows):
        if row.name.endswith("wait_tensor"):
            yield row.start, row.end, number
        if row.children or not row.is_op:
            at = row.start
            for child in row.children:
                yield at, child.start, number
                at = child.end
            yield at, row.end, number


def _placed(row: Row, args: dict[str, Any], above: dict[int, Row], at_once: bool) -> tuple[Call, Row | None]:
    """The call on its stream, and the row before which it has to have ended, where its kind says that."""
    sent, received = _sizes(row)
    dtype = next((one for one in (*(args.get("Input type") or []), *row.types) if one in SIZES), "float")
    parents = list(_parents(row, above))
    names = [one.name for one in parents]
    node = next((one for one in reversed(parents) if one.name.startswith(BACKWARD)), None)
    label = next((name for name in names if name.startswith("FSDP::all_gather (")), "")
    if label:
        wanted = label.replace("all_gather", "all_gather_copy_out")
        beside = [two for one in parents for two in one.all() if two.name == wanted and two.start >= row.start]
        return Call(row, sent, received, dtype, GATHERS), min(beside, key=lambda one: one.start, default=None)
    if any(name.startswith("FSDP::post_backward") for name in names):
        return Call(row, sent, received, dtype, REDUCTIONS), _end_of_backward(node, row, above)
    if node is not None and (
        parents[0] is node or not at_once
    ):  # a hook's; a node's own exchange lies in the node's op
        return Call(row, sent, received, dtype, HOOKED), _end_of_backward(node, row, above)
    return Call(row, sent, received, dtype, MAIN if at_once else HOOKED), None


def _end_of_backward(node: Row | None, row: Row, above: dict[int, Row]) -> Row | None:
    """The first row beside the nodes of the backward pass that comes after it."""
    place = node or next((one for one in _parents(row, above) if id(one) in above), row)
    around = above.get(id(place))
    after = [one for one in around.children if one.start >= place.end] if around else []
    return next((one for one in after if not one.name.startswith((BACKWARD, "FSDP::post_backward"))), None)


def _parents(row: Row, above: dict[int, Row]) -> Iterator[Row]:
    while (parent := above.get(id(row))) is not None:
        yield parent
        row = parent


def _sizes(row: Row) -> tuple[int, int]:
    """Elements that go out and come in. Ops on two tensors name the output first."""
    first = row.dims[0]
    whole = sum(math.prod(one) for one in first) if first and isinstance(first[0], list) else math.prod(first)
    if len(row.dims) > 1 and row.dims[1] and not isinstance(row.dims[1][0], list):
        return math.prod(row.dims[1]), whole
    return whole, whole


def _after(rows: list[Row], order: dict[int, int], us: float) -> Row | None:
    return next((row for row in rows if row.start >= us and row.category != "gap"), None)


def _cut(rows: list[Row], blocked: list[tuple[float, float]]) -> None:
    """Takes stretches out of the rows' time."""
    spans: list[list[float]] = []
    for start, end in sorted(blocked):
        if spans and start < spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])

    def moved(us: float) -> float:
        return us - sum(min(us, end) - start for start, end in spans if start < us)

    for row in rows:
        row.start, row.end = moved(row.start), moved(row.end)


class Meetings:
    """All ranks of a job: a collective ends for each when the last has come and the bytes have crossed."""

    def __init__(self, device: Device, costs: Costs, count: int) -> None:
        self.device, self.costs, self.count = device, costs, count
        self.there = threading.Condition()
        self.started: dict[tuple[str, int], dict[int, tuple[float, Call]]] = {}

    def end(self, phase: str, number: int, rank: int, start: float, call: Call) -> float:
        """When the collective `number` of a phase ends, which this rank starts at `start`."""
        with self.there:
            met = self.started.setdefault((phase, number), {})
            met[rank] = (start, call)
            self.there.notify_all()
            if not self.there.wait_for(lambda: len(met) == self.count, PATIENCE_S):
                raise ValueError(f"collective {number}: {len(met)} of {self.count} ranks came")
        if len({one.row.name for _, one in met.values()}) > 1:
            raise ValueError(f"collective {number} is not one for all ranks")
        us = self._us(max(one.bytes for _, one in met.values()), call)
        if call.row.name == "c10d::broadcast_":  # the first rank sends and goes on; the others wait for it alone
            return max(start, met[0][0]) + us
        return max(begun for begun, _ in met.values()) + us

    def _us(self, count: int, call: Call) -> float:
        crossing = KINDS[call.row.name][2](self.count) / self.count
        return self.costs.collective_us + count * crossing / (self.device.link_gbs * self.device.share_of_link) / 1e3
