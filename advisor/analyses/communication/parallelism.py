"""What a rank communicates for: gradients, shards, split layers, stages …, and how long each is exposed."""

from __future__ import annotations

import re
from itertools import compress
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import rows_named
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.communication.collective_launches import Asked
from advisor.analyses.communication.collective_sizes import bytes_of, least_us
from advisor.analyses.communication.communication import payload
from advisor.analyses.communication.library import Library
from advisor.analyses.communication.synchronized_norms import of_norms
from advisor.analyses.step.breakdown import Breakdown
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, merge, subtract, total
from advisor.trace.meta import Group, Meta

# The kinds, and what names of process groups and meshes call them. Kinds that wait for nothing else come first.
KINDS: dict[str, re.Pattern[str]] = {
    "stages": re.compile(r"pp|pipe\w*|stages?"),
    "tensor": re.compile(r"tp|sp|mp|tensor|sequence"),
    "context": re.compile(r"cp|context|ring|ulysses"),
    "experts": re.compile(r"ep|experts?|moe"),
    # No group is called so: statistics of nn.SyncBatchNorm, exchanges of all with all that no other kind claims, and
    # what DDP sends before a forward.
    "norms": re.compile(r"(?!)"),
    "exchanged": re.compile(r"(?!)"),
    "buffers": re.compile(r"(?!)"),
    "sharded": re.compile(r"fsdp|hsdp|shard\w*|zero"),
    "data": re.compile(r"dp|ddp|data|replicate\w*|replicas?"),
}
_WORD = re.compile(r"[a-z]+")
# NCCL makes exchanges and gathers of many ranks of sends and receives, too.
_ONE_TO_ONE, _OF_ALL = re.compile("send|recv"), re.compile("all_?to_?all|gather|scatter|reduce|broadcast")
_SUMS = re.compile("all_?reduce")
_EXCHANGES = re.compile("all_?to_?all")
_SCATTERS, _GATHERS = re.compile("reduce_?scatter"), re.compile("all_?gather")


def purpose_of(text: str) -> str:
    """The kind of parallelism that a process group's own words name; empty where they name none."""
    words = _WORD.findall(text.lower())
    named = [kind for word in words for kind, pattern in KINDS.items() if pattern.fullmatch(word)]
    # One way to be data parallel: the part of it that shards says more. Replicas of experts are data parallel, too.
    if named[:1] == ["data"] and "sharded" in named:
        return "sharded"
    return "data" if named[:2] == ["experts", "data"] else next(iter(named), "")


class KindOfTalk(Struct, frozen=True, eq=False):
    """Communication of one kind of parallelism.

    kind        a key of KINDS; "data" is also what cannot be distinguished: collectives that the script calls itself;
                "exchanged": all-to-all of embeddings, or of an unknown purpose; "buffers": DDP's broadcast; "norms":
                statistics of nn.SyncBatchNorm
    rows        its events;  ops: the ops that started them, in the same order, -1 where not known
    us          union of them in W, µs per step;  exposed_us: without computation; concurrent kinds count once, for the
                earlier in KINDS, so that the sum of all kinds is the exposed communication of the breakdown
    least_us    time per step if each took as long as the fastest 10 % of its size, with no rank late
    calls       per step;  bytes: payload per step, None if an event does not contain it
    compiled    share of its calls that compiled code makes;  sums: share of them that are all-reduces
    ranks       number of ranks in it, None if not recorded
    """

    kind: str
    rows: Ints
    ops: Ints
    us: float
    exposed_us: float
    least_us: float
    calls: float
    bytes: float | None
    compiled: float
    sums: float
    ranks: int | None


class Parallelism(Struct, frozen=True, eq=False):
    """All kinds of parallelism that a rank communicates for.

    kinds   those that occur, the most exposed first
    of_row  kind of each row of `Asked`;  group: the process group of each, None if not recorded
    """

    kinds: tuple[KindOfTalk, ...]
    of_row: tuple[str, ...]
    group: tuple[Group | None, ...]

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        breakdown: Breakdown,
        busy: GpuBusy | None,
        asked: Asked,
        nesting: Nesting,
        library: Library,
    ) -> Parallelism:
        """The kinds of this rank; none if it does not communicate."""
        events = trace.events
        said = _said_of_each(events, asked)
        of_row = _kinds(trace, asked, nesting, said, library)
        compiled = nesting.ancestor_of(asked.op, events.named("## Call CompiledFxGraph")) >= 0
        stated = list(zip(events.collective[asked.rows].tolist(), of_row, strict=True))
        groups = {one: _group(trace.meta, events, *one) for one in set(stated)}
        group = tuple(groups[one] for one in stated)
        part = breakdown.talking
        longer = busy.longer if busy and breakdown.on_device else 1.0
        sums = {text for text in set(said) if _SUMS.search(text)}
        before: Intervals = EMPTY
        found = []
        for kind in [kind for kind in KINDS if kind in of_row]:
            chosen = np.array([one == kind for one in of_row])
            rows = asked.rows[chosen]
            spans = intersect(events.covered(rows), steps.window)
            sizes = {_joined(events, row, one) for row, one in zip(rows.tolist(), compress(group, chosen), strict=True)}
            found.append(
                KindOfTalk(
                    kind,
                    rows,
                    asked.op[chosen],
                    steps.of_window_us(total(spans)) * longer,
                    breakdown.us_in(part, subtract(spans, before)),
                    _least_us(events, rows) / steps.count,
                    len(rows) / steps.count,
                    payload(events, _mask(len(events), rows), steps.count),
                    float(compiled[chosen].mean()),
                    float(np.mean([text in sums for text in compress(said, chosen)])),
                    sizes.pop() if len(sizes) == 1 else None,
                )
            )
            before = merge(before, spans)
        return cls(tuple(sorted(found, key=lambda one: -one.exposed_us)), of_row, group)

    def of(self, kind: str) -> KindOfTalk | None:
        """What is known about one kind; None if it does not occur."""
        return next((one for one in self.kinds if one.kind == kind), None)


def _least_us(events: Events, rows: Ints) -> float:
    return least_us(bytes_of(events, rows), events.dur_ns[rows] / 1e3)


def _mask(count: int, rows: Ints) -> Mask:
    found = np.zeros(count, bool)
    found[rows] = True
    return found


def _kinds(trace: Trace, asked: Asked, nesting: Nesting, said: list[str], library: Library) -> tuple[str, ...]:
    """The kind of each row: by who asked for it where that tells, else by what its process group says of itself.

    Sharding asks within rows of its own; DTensor, and scripts that split layers by hand, ask by functional collectives.
    Without DistributedDataParallel who reduces to shards, and gathers, shards a state (ZeRO, FSDP); beside it, and with
    tables split over ranks, both are of those tables' rows.
    """
    events = trace.events
    host = events.of(Category.CPU_OP, Category.ANNOTATION)
    of_fsdp = nesting.ancestor_of(asked.op, host & events.named("FSDP::", "FullyShardedDataParallel.")) >= 0
    functional = nesting.ancestor_of(asked.op, host & events.named("_c10d_functional")) >= 0
    purposes = {purpose_of(one.purpose) for one in trace.meta.groups} - {""}
    # Where nothing else was made a group for, it is that one's.
    split = next(iter(purposes)) if len(purposes) == 1 else "tensor"
    texts = set(said)
    exchanges = any(map(_EXCHANGES.search, texts)) or _named_on_host(events, _EXCHANGES)
    scatters = "sharded" if any(map(_SCATTERS.search, texts)) else ""
    if scatters and library.name == "ddp":
        scatters = "exchanged" if library.tables else ""
    of_ddp = nesting.ancestor_of(asked.op, host & events.named("DistributedDataParallel.forward")) >= 0
    norms = of_norms(events, asked.op)
    columns = (events.collective[asked.rows], asked.op < 0, of_fsdp, functional, of_ddp, norms)
    rows = [_Signs(*row) for row in zip(said, *(column.tolist() for column in columns), strict=True)]
    job = _OfJob(split, scatters, exchanges)
    # Thousands of collectives say one of a few things.
    kinds = {}
    for one in set(rows):
        named = purpose_of(events.collective_table[one.stated].purpose) if one.stated >= 0 else ""
        kinds[one] = _kind(one, named, job)
    return tuple(kinds[one] for one in rows)


class _Signs(NamedTuple):
    """What tells the kind of one collective.

    text        what it is called
    stated      where in `Events.collective_table` lies what the trace states of it, -1: nowhere
    alone       no op of the host is known to have asked for it
    of_fsdp, functional, of_ddp, of_norm   FSDP, functional collectives, the forward pass of DistributedDataParallel,
                or a normalization over ranks asked for it
    """

    text: str
    stated: int
    alone: bool
    of_fsdp: bool
    functional: bool
    of_ddp: bool
    of_norm: bool


class _OfJob(NamedTuple):
    """What the whole trace tells: the kind of functional collectives, of scatters ("": none), whether any exchange."""

    split: str
    scatters: str
    exchanges: bool


def _kind(one: _Signs, named: str, job: _OfJob) -> str:
    """The kind of a collective; named: what its process group says that it is for, "" where nothing."""
    if one.of_norm:
        kind = "norms"
    elif named in ("context", "experts"):
        kind = named
    elif _EXCHANGES.search(one.text):
        kind = named if named not in ("", "data") else job.split if one.functional else "exchanged"
    elif _ONE_TO_ONE.search(one.text) and not _OF_ALL.search(one.text):
        # NCCL's kernel of that name makes exchanges as well: without its op, what the others are for tells.
        kind = "exchanged" if one.alone and job.exchanges else "stages"
    elif one.of_fsdp:
        kind = "sharded"
    elif named not in ("", "data", "sharded") or one.functional:
        kind = named or job.split
    elif one.of_ddp and "broadcast" in one.text:
        kind = "buffers"
    elif job.scatters and (_SCATTERS.search(one.text) or _GATHERS.search(one.text)):
        kind = job.scatters
    else:
        kind = named or "data"
    return kind


def _named_on_host(events: Events, pattern: re.Pattern[str]) -> bool:
    """Whether an op or annotation is called so, though nothing links it to its kernel."""
    return any(rows_named(events, pattern.search, of).any() for of in (Category.CPU_OP, Category.ANNOTATION))


def _joined(events: Events, row: int, group: Group | None) -> int | None:
    """How many ranks a row joins; None where neither it nor its group says."""
    index = int(events.collective[row])
    stated = events.collective_table[index].group_size if index >= 0 else -1
    return len(group.ranks) if group else stated if stated > 0 else None


def _said_of_each(events: Events, asked: Asked) -> list[str]:
    """What each communication is called, in small letters: by its op and the collective, else by its own row.

    Kernels of older NCCL carry one name for several collectives: all-reduces ran as ncclKernel_SendRecv_….
    """

    def said(op: int, index: int, row: int) -> str:
        names = (events.names[op] if op >= 0 else "", events.collective_table[index].name if index >= 0 else "")
        return (" ".join(filter(None, names)) or events.names[row]).lower()

    columns = (
        np.where(asked.op >= 0, events.name[asked.op], -1),
        events.collective[asked.rows],
        events.name[asked.rows],
    )
    told = list(zip(*(column.tolist() for column in columns), strict=True))
    texts = {one: said(*one) for one in set(told)}
    return [texts[one] for one in told]


def _group(meta: Meta, events: Events, index: int, kind: str) -> Group | None:
    """The process group of rows that say `collective` of this index: as said, else the only one that it can be."""
    named = events.collective_table[index].group if index >= 0 else ""
    several = [one for one in meta.groups if len(one.ranks) > 1]
    if named:
        return next((one for one in several if one.name == named), None)
    if len({one.ranks for one in several}) == 1:
        return several[0]
    purposes = ("sharded", "data") if kind == "sharded" else (kind,)
    for purpose in (*purposes, ""):
        fitting = [one for one in several if purpose_of(one.purpose) == purpose]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None
