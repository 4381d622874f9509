"""Results of a step that the host reads behind it, and works on while the device has nothing to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    D2H_PAGEABLE,
    NEXT_WORKERS,
    Category,
    Ev,
    Example,
    Ints,
    Price,
    RowMask,
    SyncSite,
    draw,
    intersect,
    starts_in,
    total,
    union,
)

from ._waits import FEW_READS, WORTH

_STEP, _FETCH = "Optimizer.step#", "enumerate(DataLoader)#"
# Values of a log are fewer: 32 numbers in fp32.
LOG_BYTES = 128
# With these a new iteration has begun: what is read after them may be what it goes on with.
_BEGINS = ("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "conv", "embedding", "scaled_dot_product_attention")
_BEGINNING = (*(f"aten::{name}" for name in _BEGINS), "Torch-Compiled Region", "CompiledFunction")


def works_on_results(site: SyncSite, price: Price) -> bool:
    """Whether most of the idle time behind these reads is work of the host, on results of the step that is over.

    They are more numbers than a log's, in few copies, and nothing of the next step is on the device yet: so it is no
    value that the step itself goes on with. No loader makes the next batch: the loop does, and may need them for it.
    """
    events, steps = price.ops.events, price.ops.steps
    reads = _behind_steps(_of_results(np.array(site.rows, int), price), price)
    if not 0 < len(reads) <= FEW_READS * steps.count:
        return False
    launch = price.ops.links.launch
    launches = np.sort(events.start_ns[np.unique(launch[launch >= 0])])
    ends = events.end_ns[reads]
    at = np.searchsorted(launches, ends)
    until = np.append(launches, int(steps.window[:, 1].max()))[at]
    behind = union(ends, np.maximum(until, ends))
    fetches = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(_FETCH)
    if starts_in(events.start_ns[fetches], behind).any():
        return False
    worked_us = steps.per_step_us(total(intersect(price.breakdown.intervals["idle_host"], behind)))
    return worked_us >= WORTH * steps.step_us and 2 * worked_us > site.then_idle_us


def _of_results(rows: Ints, price: Price) -> Ints:
    """Which of these rows copy more to the host than a log needs."""
    events, launch = price.ops.events, price.ops.links.launch
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH") & (launch >= 0))
    copies = copies[events.bytes[copies] > LOG_BYTES]
    called_ns = events.start_ns[launch[copies]]
    called_ns = called_ns[starts_in(called_ns, events.covered(rows))]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    return np.unique(rows[np.searchsorted(events.start_ns[rows], called_ns, "right") - 1])


def _behind_steps(reads: Ints, price: Price) -> Ints:
    """Those between a backward pass or an update and what begins the next iteration: a batch, a layer."""
    events, launch = price.ops.events, price.ops.links.launch
    trains: RowMask = events.named(AUTOGRAD_NODE) | (events.of(Category.ANNOTATION) & events.named(_STEP))
    over = np.sort(events.end_ns[np.flatnonzero(trains)])
    batches = np.flatnonzero(events.of(Category.MEMCPY) & events.named("HtoD") & (launch >= 0))
    layers = np.flatnonzero(events.of(Category.CPU_OP) & events.named(*_BEGINNING))
    begins = np.sort(np.concatenate((events.start_ns[launch[batches]], events.start_ns[layers])))
    starts = events.start_ns[reads]
    last = np.searchsorted(over, starts) - 1
    reads, starts, last = reads[last >= 0], starts[last >= 0], last[last >= 0]
    none_begun: RowMask = np.searchsorted(begins, starts) == np.searchsorted(begins, over[last])
    return reads.compress(none_begun)


_BEHIND = """
    step   [1                              ][2                              ]
    cpu    [F ][B ][O ][I      ]{0}[F ][B ][O ][I      ]{0}
    gpu 7   [K ][K          ]                [K ][K          ]
    gpu 7                    [C]                              [C]
    """
_WITHIN = """
    step   [1                              ][2                              ]
    cpu    [F ][I      ]           [B ][O ] [F ][I      ]           [B ][O ]
    gpu 7   [K       ]              [K ]     [K       ]              [K ]
    gpu 7             [C]                             [C]
    """
_NOTHING, _FETCHES = 12 * " ", 9 * " " + "[D]"
_READING = Ev("aten::to", launches="memcpy", blocks=True)


def _results(name: str, lanes: str, fix: str, numbers: int = 512, **more: Any) -> Example:
    """numbers: that the host reads, in fp32."""
    copied = replace(D2H_PAGEABLE, bytes=4 * numbers)
    drawn = draw(lanes, us=1000, I=_READING, C=copied, **more)
    return Example(name, drawn, saves_us=(0, 30_000), says=("makes the host wait",), fixes=(fix,))


RESULTS = [
    _results(
        "priorities of 512 samples, by which the host draws the next batch while the device idles",
        _BEHIND.format(_NOTHING),
        "with its backward pass",
    ),
    _results("a log's numbers", _BEHIND.format(_NOTHING), "history.append(out.detach())", numbers=4),
    _results(
        "metrics, where a loader makes the next batch",
        _BEHIND.format(_FETCHES),
        "history.append(",
        D=replace(NEXT_WORKERS, fill=0.1),
    ),
    _results("what the loss of the same step needs", _WITHIN, "history.append("),
]
