"""The same kernel takes far longer at some times than at others.

## What it looks at
Kernels of one name and one grid, in the same place of one op with the same shapes, ten calls and more. Where some take
more than twice the median, the time beyond it is summed, and the rule checks what else the device did at that time.
Kernels whose time depends on the data (indexing, sorting, embeddings) are excluded.

## Why it costs time
The same work on the same shapes takes equally long each time, unless something else uses the multiprocessors or the
memory, or lowers the clock: another stream, another process, a device that is too hot or out of power.

## How to fix it
Look at what else the device does: `nvidia-smi dmon` (or `rocm-smi`) during the run shows other processes, clocks and
power. Where collectives overlap with the slow calls, give them fewer thread blocks (`NCCL_MAX_CTAS`), or give up the
overlap for these kernels.

## When to leave it
Overlap with communication that saves more than it costs: the kernels are slower, but the step is shorter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import (
    SYNC,
    Category,
    Device,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Ints,
    Links,
    Missing,
    Nesting,
    Price,
    Scale,
    StepOps,
    Steps,
    Trace,
    alike,
    draw,
    duration,
    intersect,
    is_communication,
    total,
)

from ..shared._roofline import scaled
from ..shared._words import percent

# Fewer calls say little about what is usual; shorter kernels are mostly start and end.
_CALLS = 10
_LEAST_NS = 20_000
# Kernels of the same work differed by 15 % at most on H100s and V100s in traces recorded by others.
_SLOW = 2.0
_BY_DATA = ("index", "scatter", "gather", "embedding", "sort", "nonzero", "unique", "radix", "varlen", "select")


class _Uneven(Struct, frozen=True, eq=False):
    """Slow calls of one kernel: their rows, the usual time in ns, and the time beyond it."""

    rows: Ints
    usual_ns: float
    excess_ns: float


def check(
    recorded: StepOps,
    steps: Steps,
    scale: Scale,
    price: Price,
    device: Device,
    *,
    min_share: float = 0.03,  # of the step: below it the noise between steps is as large
) -> Iterator[Finding]:
    events = recorded.events
    if not device.measured:
        raise Missing(device.why)
    if (events.dims < 0).all():
        raise Missing("the trace has no shapes, so equal calls cannot be identified; record with record_shapes=True")
    found = list(_uneven(events, recorded.nesting, recorded.links))
    excess_us = steps.per_step_us(sum(one.excess_ns for one in found)) * recorded.longer
    if excess_us < min_share * steps.step_us:
        return
    worst = max(found, key=lambda one: one.excess_ns)
    rows = np.concatenate([one.rows for one in found])
    how = "high: each call takes the median time of equal calls; low: nothing, if the disturbance cannot be avoided"
    usual = scaled((one.rows, _kept(events, one)) for one in found)
    saving = price.saving([], usual, ("compute",), how, model_us=(0.0, excess_us))
    if saving.high_us < min_share * scale.step_us:
        return
    beside = _beside(recorded.trace, rows)
    longest_us = float(events.dur_ns[worst.rows].max()) / 1e3
    yield Finding(
        message=(
            f"Equal calls differ in time: {events.text(int(worst.rows[0]))[:60]} takes "
            f"{duration(worst.usual_ns / 1e3)} in the median and up to {duration(longest_us)}; slow calls add "
            f"{duration(scale.scaled(excess_us))} to each step ({percent(excess_us / steps.step_us)}){beside}."
        ),
        saving=saving,
        facts={"slow_calls": len(rows) / steps.count, "excess_us": excess_us, "usual_us": worst.usual_ns / 1e3},
        claims=("compute",),
        recoverable=False,
        at_most="medium",  # what disturbs the kernels may be outside of the job
    )


def _kept(events: Events, one: _Uneven) -> float:
    spent = float(events.dur_ns[one.rows].sum())
    return (spent - one.excess_ns) / spent


def _uneven(events: Events, nesting: Nesting, links: Links) -> Iterator[_Uneven]:
    """Kernels of the same name, grid and shapes of which some calls take more than twice the median."""
    kernels = events.of(Category.KERNEL) & links.inside & (links.launch >= 0) & ~events.named(*_BY_DATA)
    kernels &= ~events.rows_with(events.names_where(is_communication))
    rows = np.flatnonzero(kernels & (events.dur_ns > 0))
    op = nesting.parent[links.launch[rows]]
    known = (op >= 0) & (events.dims[np.maximum(op, 0)] >= 0)
    rows, op = rows[known], op[known]
    if len(rows) < _CALLS:
        return
    place = _places(op, events.name[rows].astype(np.int64), events.start_ns[rows])
    columns = (events.name[rows], events.blocks[rows], place, events.name[op], events.dims[op], events.dtypes[op])
    member = alike(columns)
    often = np.bincount(member)[member] >= _CALLS
    rows, member = rows[often], member[often]
    if not len(rows):
        return
    order = np.argsort(member, kind="stable")
    for mine in np.split(rows[order], np.flatnonzero(np.diff(member[order])) + 1):
        spent = events.dur_ns[mine]
        usual = float(np.median(spent))
        slow = mine[spent > _SLOW * usual]
        if usual >= _LEAST_NS and len(slow):
            yield _Uneven(slow, usual, float((events.dur_ns[slow] - usual).sum()))


def _places(op: Ints, name: Ints, start_ns: Ints) -> Ints:
    """The how many-th kernel of its name in its op each is: one op may do one thing to tensors of several sizes."""
    order = np.lexsort((start_ns, name, op))
    first = np.append(True, (np.diff(op[order]) != 0) | (np.diff(name[order]) != 0))
    begins = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - begins
    return places


def _beside(trace: Trace, rows: Ints) -> str:
    """What ran on other streams during most of the slow calls."""
    events = trace.events
    slow = events.covered(rows)
    others = trace.device_work & ~np.isin(events.stream, np.unique(events.stream[rows]))
    talk = others & events.rows_with(events.names_where(is_communication))
    for chosen, words in ((talk, ", concurrently with communication"), (others, ", concurrently with another stream")):
        at = np.flatnonzero(chosen)
        if 2 * total(intersect(slow, events.covered(at))) >= total(slow):
            return words
    return ", with nothing else of this process running"


_OP = Ev("aten::mm", dims=[[512, 512], [512, 512]], dtypes=["float", "float"], times=6)
_OTHER = Ev("aten::sum", dims=[[8]])
_KERNEL = "ampere_sgemm_128x64_tn"
_STEPS = """
    step   [1                           ][2                           ]
    cpu    [A   ][B][S                 ] [A   ][B][S                 ]
    gpu 7   [K        ][L              ]  [K        ][L              ]
    """
_BESIDE = "    gpu 9               [M             ]               [M             ]\n"


def _drawn(usual: float, slow: float, beside: str = "") -> Drawing:
    """Five calls and one in each step, filling so much of their slots of 200 and 1,600 µs; another kernel beside it."""
    calls, last = Ev(_KERNEL, "kernel", times=5, fill=usual), Ev(_KERNEL, "kernel", fill=slow)
    if beside:
        other = Ev("void at::native::reduce_kernel<512, 1>", "kernel")
        return draw(_STEPS + beside, us=100, A=_OP, B=_OTHER, S=SYNC, K=calls, L=last, M=other)
    return draw(_STEPS.replace("[B]", "   "), us=100, A=_OP, S=SYNC, K=calls, L=last)


EXAMPLES = [
    Example("one call of six takes eight times as long", _drawn(1, 1), saves_us=(0, 1600), says=("nothing else",)),
    Example("another stream works meanwhile", _drawn(1, 1, _BESIDE), saves_us=(0, 1600), says=("another stream",)),
    Example("a call that takes a fifth longer", _drawn(1, 0.15), near_miss=True),
    Example("calls that take as long as their like", _drawn(0.8, 0.1)),
]
