"""The collectives of one rank, one by one and in order: what ranks are matched by."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import numpy as np

from advisor.analyses.breakdown import Breakdown
from advisor.analyses.classify import communication_rows
from advisor.analyses.communication import element_bytes
from advisor.analyses.links import Links
from advisor.analyses.steps import Steps
from advisor.trace.events import Category, Collective, Events, Ints, Trace

# Spellings of one kind in the names of kernels, annotations and ops: ncclDevKernel_AllReduce_…, gloo:all_reduce,
# c10d::allreduce_, _allgather_base. Longer words first: "reduce" stands in several of them.
_KINDS = (
    ("reduce_scatter", re.compile(r"reduce_?scatter")),
    ("all_reduce", re.compile(r"all_?reduce")),
    ("all_gather", re.compile(r"all_?gather")),
    ("all_to_all", re.compile(r"all_?to_?all")),
    ("barrier", re.compile(r"barrier")),
    ("broadcast", re.compile(r"broadcast|bcast")),
    # NCCL runs both sends and receives, and the exchanges that are made of them, in kernels of this name.
    ("send_recv", re.compile(r"send_?recv|coalesced")),
    ("send", re.compile(r"send")),
    ("recv", re.compile(r"recv|receive")),
    ("reduce", re.compile(r"reduce")),
    ("scatter", re.compile(r"scatter")),
    ("gather", re.compile(r"gather")),
)


def kind_of(name: str) -> str:
    """The kind of a collective, as `torch.distributed` calls it; empty where the name says none."""
    small = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(small)), "")


@dataclass(frozen=True, slots=True, eq=False)
class Talks:
    """One entry for each collective of a rank that counts to a step, by start (this rank's own clock).

    kind      all_reduce, all_gather, reduce_scatter, all_to_all, barrier, broadcast, send, recv …; empty where unknown
    group     name of the process group; empty where the trace does not say
    members   size of that group, -1 where unknown
    sequence  its number in the group, -1 where unknown
    sent, received   elements, -1 where unknown;  bytes: of the larger of both, -1 where unknown
    """

    start_ns: Ints
    end_ns: Ints
    step: Ints
    kind: tuple[str, ...]
    group: tuple[str, ...]
    members: Ints
    sequence: Ints
    sent: Ints
    received: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, breakdown: Breakdown, links: Links) -> Talks:
        """Collectives of this rank: kernels where it has a device, else the host's own rows."""
        events = trace.events
        named = communication_rows(events)
        if breakdown.on_device:
            rows = np.flatnonzero(named & events.of(Category.KERNEL) & (links.step >= 0))
            step, hosts = links.step[rows], _launching(events, links.launch[rows])
        else:
            rows = np.flatnonzero(named & events.of(Category.ANNOTATION))
            step = steps.step_of(events.start_ns[rows])
            rows, step = rows[step >= 0], step[step >= 0]
            hosts = np.full(len(rows), -1, np.int64)
        facts = [_said(events, int(row), int(host)) for row, host in zip(rows, hosts, strict=True)]
        return cls(
            start_ns=events.start_ns[rows],
            end_ns=events.end_ns[rows],
            step=step,
            kind=tuple(one.name for one in facts),
            group=tuple(one.group for one in facts),
            members=_ints([one.group_size for one in facts]),
            sequence=_ints([one.sequence for one in facts]),
            sent=_ints([one.in_elements for one in facts]),
            received=_ints([one.out_elements for one in facts]),
            bytes=_ints([_bytes(one) for one in facts]),
        )


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _launching(events: Events, launches: Ints) -> Ints:
    """For each launch the row of `c10d::…` (else `nccl:…`) that encloses it on its thread; -1 where there is none."""
    found = np.full(len(launches), -1, np.int64)
    host = events.of(Category.CPU_OP, Category.ANNOTATION)
    for pattern in ("nccl:", "c10d::"):
        found = _enclosing(events, launches, np.flatnonzero(host & events.named(pattern)), found)
    return found


def _enclosing(events: Events, launches: Ints, rows: Ints, found: Ints) -> Ints:
    """`found`, with the last of these rows that encloses each launch where one does."""
    result = found.copy()
    for thread in np.unique(events.thread[rows]):
        mine = rows[events.thread[rows] == thread]
        asked = np.flatnonzero((launches >= 0) & (events.thread[np.maximum(launches, 0)] == thread))
        if not len(asked):
            continue
        at = np.searchsorted(events.start_ns[mine], events.start_ns[launches[asked]], side="right") - 1
        inside = (at >= 0) & (events.end_ns[mine[np.maximum(at, 0)]] >= events.start_ns[launches[asked]])
        result[asked[inside]] = mine[at[inside]]
    return result


def _said(events: Events, row: int, host: int) -> Collective:
    """What is known of one collective: what its own row says, else the op that started it."""
    index = int(events.collective[row])
    own = events.collective_table[index] if index >= 0 else Collective()
    kind = kind_of(own.name) or kind_of(events.text(row))
    if kind in ("", "send_recv") and host >= 0:
        kind = kind_of(events.text(host)) or kind
    sent, received, dtype = own.in_elements, own.out_elements, own.dtype
    if sent < 0:
        sent, received, dtype = _from_op(events, host if host >= 0 else row)
    return Collective(kind, dtype, sent, received, own.group_size, own.group, own.sequence)


def _from_op(events: Events, row: int) -> tuple[int, int, str]:
    """(elements sent, received, dtype) as an op's inputs say: `alltoall_base_(output, input)`, a list, a tensor."""
    dims = int(events.dims[row])
    sizes = [_elements(one) for one in _inputs(events.dims_table[dims])] if dims >= 0 else []
    kinds = int(events.dtypes[row])
    named = re.findall(r'"([^"]*)"', events.dtypes_table[kinds]) if kinds >= 0 else []
    dtype = named[0] if named and named[0] not in ("TensorList", "Scalar") else ""
    if "_base_" in events.text(row) and len(sizes) > 1:
        return sizes[1], sizes[0], dtype
    return (sizes[0], sizes[0], dtype) if sizes and sizes[0] > 0 else (-1, -1, dtype)


def _inputs(text: str) -> list[list[list[int]]]:
    """Each input of `Input Dims` as a list of shapes: a tensor has one, a list of tensors several."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    lists = [one for one in found if isinstance(one, list)] if isinstance(found, list) else []
    return [one if one and all(isinstance(part, list) for part in one) else [one] for one in lists]


def _elements(shapes_: list[list[int]]) -> int:
    return sum(math.prod(shape) for shape in shapes_ if shape and all(isinstance(n, int) for n in shape))


def _bytes(one: Collective) -> int:
    size, elements = element_bytes(one.dtype), max(one.in_elements, one.out_elements)
    return size * elements if size and elements >= 0 else -1
