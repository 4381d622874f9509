"""The collectives of one rank, one by one and in order: what ranks are matched by."""

from __future__ import annotations

import functools
import json
import re

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.communication.collective_launches import Asked, dims_of, elements, inputs_of, scalar
from advisor.analyses.communication.communication import element_bytes
from advisor.analyses.communication.parallelism import Parallelism
from advisor.analyses.step.breakdown import Breakdown
from advisor.trace.events import Collective, Events, Ints, Trace
from advisor.trace.meta import Group, Meta

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


@functools.lru_cache(maxsize=1024)
def kind_of(name: str) -> str:
    """The kind of a collective, as `torch.distributed` calls it; empty where the name says none."""
    small = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(small)), "")


class Talks(Struct, frozen=True, eq=False):
    """One entry for each collective of a rank that counts to a step, by start (this rank's own clock).

    kind      all_reduce, all_gather, reduce_scatter, all_to_all, barrier, broadcast, send, recv …; empty where unknown
    group     name of the process group; empty where the trace does not say
    members   size of that group, -1 where unknown
    sequence  its number in the group, -1 where unknown
    sent, received   elements, -1 where unknown;  bytes: of the larger of both, -1 where unknown
    peer      number of the rank that a send goes to, or a receive is from; -1 for collectives, and where unknown
    asked_ns  when the op began that asked for it (a short send may be over before its own row begins), else start_ns
    purpose   what it is for, a key of `parallelism.KINDS`; empty where a reduced form does not say
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
    peer: Ints
    asked_ns: Ints
    purpose: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def compute(cls, trace: Trace, asked: Asked, parallelism: Parallelism, breakdown: Breakdown) -> Talks:
        """Collectives of this rank: kernels where it has a device, else the host's own rows."""
        events = trace.events
        rows = asked.rows
        # A host's own row says more of itself than the op that asked for it: of several tensors it has one.
        hosts = asked.op if breakdown.on_device else np.full(len(rows), -1, np.int64)
        facts = _said_of_each(events, rows, hosts)
        if len({known.ranks for known in trace.meta.groups if len(known.ranks) > 1}) > 1:
            facts = [_in_group(one, trace.meta, group) for one, group in zip(facts, parallelism.group, strict=True)]
        passes = (asked.op >= 0) & events.rows_with(events.names_where(_passes))[asked.op]
        # Rows of NCCL say the rank of the job themselves (torch.profiler's `Dst Rank` and `Src Rank`).
        passed = _ints([one.peer if one.name in ("send", "recv") else -1 for one in facts])
        for at in np.flatnonzero(passes & (passed < 0)).tolist():
            passed[at] = _passed(events, int(asked.op[at]), parallelism.group[at])
        return cls(
            start_ns=events.start_ns[rows],
            end_ns=events.end_ns[rows],
            step=asked.step.astype(np.int64),
            kind=tuple(one.name for one in facts),
            group=tuple(one.group for one in facts),
            members=_ints([one.group_size for one in facts]),
            sequence=_ints([one.sequence for one in facts]),
            sent=_ints([one.in_elements for one in facts]),
            received=_ints([one.out_elements for one in facts]),
            bytes=_ints([_bytes(one) for one in facts]),
            peer=passed,
            asked_ns=np.where(asked.op >= 0, events.start_ns[asked.op], events.start_ns[rows]),
            purpose=parallelism.of_row,
        )


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _in_group(one: Collective, meta: Meta, group: Group | None) -> Collective:
    """The collective with its process group of several; one that may be of any gets a name that no other rank's has."""
    if one.group:
        return one
    if group is None:
        return replace(one, group=f"unknown, of rank {meta.rank}")
    return replace(one, group=group.name, group_size=len(group.ranks))


def _passes(name: str) -> bool:
    return name.startswith(("c10d::send", "c10d::recv_"))


def _passed(events: Events, op: int, group: Group | None) -> int:
    """The rank that an op sends to, or receives from: its third argument, which counts within the process group."""
    if events.values[op] < 0:
        return -1
    try:
        peer = int(json.loads(events.values_table[events.values[op]])[2])
    except (ValueError, IndexError, TypeError):
        return -1
    if group is None:
        return -1
    return group.ranks[peer] if 0 <= peer < len(group.ranks) else -1


def _said_of_each(events: Events, rows: Ints, hosts: Ints) -> list[Collective]:
    """What is known of each of these, by what the trace says of it: nearly all are alike, and are looked at once."""
    told = [column[rows] for column in (events.collective, events.name, events.dims, events.dtypes)]
    told += [np.where(hosts >= 0, column[hosts], -2) for column in (events.name, events.dims, events.dtypes)]
    kinds = list(zip(*(column.tolist() for column in told), strict=True))
    one_of = dict(zip(kinds, zip(rows.tolist(), hosts.tolist(), strict=True), strict=True))
    facts = {kind: _said(events, *one) for kind, one in one_of.items()}
    return [facts[kind] for kind in kinds]


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
    return Collective(kind, dtype, sent, received, own.group_size, own.group, own.sequence, peer=own.peer)


def _from_op(events: Events, row: int) -> tuple[int, int, str]:
    """(elements sent, received, dtype) as an op's inputs say: `alltoall_base_(output, input)`, a list, a tensor."""
    kinds = int(events.dtypes[row])
    dtypes = events.dtypes_table[kinds] if kinds >= 0 else ""
    return _of_inputs(dims_of(events, row), dtypes, "_base_" in events.text(row))


@functools.lru_cache(maxsize=4096)
def _of_inputs(dims: str, dtypes: str, has_output: bool) -> tuple[int, int, str]:
    """The same of their texts; each is read once, however often it is repeated.  has_output: as the first input."""
    sizes = [elements(one) for one in inputs_of(dims)] or scalar(dims)
    named = re.findall(r'"([^"]*)"', dtypes)
    dtype = named[0] if named and named[0] not in ("TensorList", "Scalar") else ""
    if has_output and len(sizes) > 1:
        return sizes[1], sizes[0], dtype
    return (sizes[0], sizes[0], dtype) if sizes and sizes[0] > 0 else (-1, -1, dtype)


def _bytes(one: Collective) -> int:
    size, elements = element_bytes(one.dtype), max(one.in_elements, one.out_elements)
    return size * elements if size and elements >= 0 else -1
