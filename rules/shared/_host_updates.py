"""Updates of weights that lie on the host, while a device computes the rest: offloaded parameters, or optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    Category,
    Drawing,
    Ev,
    Intervals,
    Ints,
    OptimizerWork,
    Price,
    draw,
    host_collectives,
    intersect,
    starts_in,
    subtract,
    total,
    union,
)

from ._allocator import allocator_calls
from ._compiled_regions import compiling, pieces_of
from ._restarted_workers import restarts

# Classes of torch.optim whose fused update exists on CPUs, and was measured there.
FUSED_ON_CPU = ("Adagrad", "Adam", "AdamW", "SGD")
STEP = "Optimizer.step#"
# An optimizer of PyTorch launches its next work within microseconds.
_LONG_NS = 1_000_000
# Copies of this size and less are values that are read.
_SMALL_BYTES = 64 << 10
# Gradients and weights have as many elements, of two or four bytes each, and gradients of several batches go one after
# another: the bytes of one are a multiple of those of the other, but for a batch or a padding among them.
_ALIKE, _MOST_TIMES = 0.05, 32
# Below 3 % of the step a saving is within the noise between steps.
TOLD = 0.03
_NONE = np.empty((0, 2), np.int64)


class HostUpdate(Struct, frozen=True, eq=False):
    """Updates that code of a library computes on the host beside PyTorch's ops, with what they ask for: offloaded
    optimizers. Rules that look at copies and waits leave these to the one that tells the update.

    others   host time that other rules report: calls of the allocator, compilations …; absolute ns like all spans
    spans    stretches of at least a millisecond in an optimizer's step in which the host works and the device is idle;
             empty where they are less than TOLD of the step
    around   from when the last gradients are there to when the last weights are back on the device; the spans
             themselves where nothing shows how gradients go and weights come
    waiting  from when the last gradients are sent: in which the host waits for these, and for weights
    copies   rows of the copies of gradients to the host and of weights to the device;  bytes: of all of them
    """

    others: Intervals
    spans: Intervals
    around: Intervals
    waiting: Intervals
    copies: Ints
    bytes: float

    @classmethod
    def compute(cls, price: Price, work: OptimizerWork | None) -> HostUpdate:
        """Those of this rank; none without a device, and where an optimizer calls the model itself, as L-BFGS does."""
        if not price.on_device:
            return cls(_NONE, _NONE, _NONE, _NONE, np.empty(0, np.int64), 0.0)
        others, steps = _of_others(price, work), price.ops.steps
        spans = _beside_torch(price, others)
        if steps.per_step_us(total(spans)) < TOLD * steps.step_us:
            spans = _NONE
        around, waiting, copies = _around(price, spans)
        bytes_ = float(price.ops.events.bytes[copies].sum())
        return cls(others, spans, subtract(around, others), waiting, copies, bytes_)

    def idle_us(self, price: Price) -> float:
        """What the device idles for it, µs per step."""
        return price.breakdown.us_in("idle_host", self.around)

    def copying_us(self, price: Price) -> float:
        """What the device does nothing but copy for it, µs per step."""
        return price.breakdown.us_in("exposed_copy", price.ops.events.covered(self.copies))


def _beside_torch(price: Price, others: Intervals) -> Intervals:
    """Stretches in which optimizers' steps launch nothing, and the device idles; without what has other causes."""
    events = price.ops.events
    stepping = events.covered(events.of(Category.ANNOTATION) & events.named(STEP))
    nodes = events.named(AUTOGRAD_NODE)
    if starts_in(events.start_ns[nodes], stepping).any():
        return stepping[:0]
    spans = subtract(intersect(price.breakdown.intervals["idle_host"], stepping), others)
    return spans[spans[:, 1] - spans[:, 0] >= _LONG_NS]


def _around(price: Price, spans: Intervals) -> tuple[Intervals, Intervals, Ints]:
    """(`around`, `waiting`, `copies`) of the updates in these spans."""
    events, links = price.ops.events, price.ops.links
    kernels = np.flatnonzero(events.of(Category.KERNEL) & links.inside)
    around, waiting, copies = [], [], []
    for first, last, gone, come in _rounds(price, spans):
        if not len(gone) or not len(come) or not _alike(*(float(events.bytes[rows].sum()) for rows in (gone, come))):
            continue
        copies += [gone, come]
        until = max(last, int(events.end_ns[come].max()))
        computed = int(events.end_ns[kernels[events.end_ns[kernels] <= first]].max(initial=0))
        around.append((max(int(events.end_ns[gone].max()), computed), until))
        waiting.append((int(events.start_ns[links.launch[gone]].max()), until))
    # What most steps do not do is no part of a step.
    if 2 * len(around) < price.ops.steps.count:
        return spans, _NONE, np.empty(0, np.int64)
    both = np.concatenate((spans, np.array(around, np.int64)))
    times = np.array(waiting, np.int64)
    return union(both[:, 0], both[:, 1]), union(times[:, 0], times[:, 1]), np.concatenate(copies)


def _rounds(price: Price, spans: Intervals) -> Iterator[tuple[int, int, Ints, Ints]]:
    """(when an update begins and ends on the host, large copies to the host before it, to the device from then on).

    Of a step, in which several optimizers may step before anything goes to the host again.
    """
    events, links, steps = price.ops.events, price.ops.links, price.ops.steps
    large = events.of(Category.MEMCPY) & (links.launch >= 0) & links.inside & (events.bytes > _SMALL_BYTES)
    away, back = (np.flatnonzero(large & events.named(way)) for way in ("DtoH", "HtoD"))
    away = away[np.argsort(events.end_ns[away], kind="stable")]
    called_ns = events.start_ns[links.launch[back]]
    step = steps.step_of(spans[:, 0])
    before = np.searchsorted(events.end_ns[away], spans[:, 0], side="right")
    starts = np.flatnonzero((np.diff(step, prepend=-1) != 0) | (np.diff(before, prepend=-1) != 0))
    for at, end in pairwise((*starts.tolist(), len(spans))):
        first, last = int(spans[at, 0]), int(spans[end - 1, 1])
        then = int(spans[end, 0]) if end < len(spans) else np.iinfo(np.int64).max
        gone = away[before[at - 1] if at else 0 : before[at]]
        come = back[(called_ns >= first) & (called_ns < then)]
        yield first, last, gone[links.step[gone] == step[at]], come[links.step[come] == step[at]]


def _alike(gone: float, come: float) -> bool:
    """Whether so many bytes are gradients and weights of the same parameters."""
    times = max(gone, come) / min(gone, come)
    return round(times) <= _MOST_TIMES and abs(times - round(times)) <= _ALIKE * times


def _of_others(price: Price, work: OptimizerWork | None) -> Intervals:
    """Host time that other rules report: calls of the allocator, collectives and updates of weights on the host,
    compilations, ways between compiled regions, workers that start anew.
    """
    events = price.ops.events
    calls = events.covered(allocator_calls(events) | host_collectives(events))
    pieces = pieces_of(price)
    both = np.concatenate(
        (calls, host_updates(price, work), compiling(events), restarts(price)[1], *([pieces[1]] if pieces else []))
    )
    return union(both[:, 0], both[:, 1])


def host_updates(price: Price, work: OptimizerWork | None) -> Intervals:
    """Spans of optimizer steps that launch nothing, and consist of ops on the host for the most part, absolute ns.

    Empty without a device, and where no fused update on a CPU could take the place of this one.
    """
    events, links = price.ops.events, price.ops.links
    none = np.empty((0, 2), np.int64)
    if not price.on_device or work is None or not work.loop or work.name not in FUSED_ON_CPU:
        return none
    rows = np.flatnonzero(events.named("Optimizer.step#") & (price.ops.steps.step_of(events.start_ns) >= 0))
    launched_ns = events.start_ns[links.calls]
    launches = np.searchsorted(launched_ns, events.end_ns[rows]) - np.searchsorted(launched_ns, events.start_ns[rows])
    rows = rows[launches == 0]
    spans = events.covered(rows)
    if not len(spans):
        return none
    ops = events.covered(events.of(Category.CPU_OP))
    return spans if 2 * total(intersect(ops, spans)) > total(spans) else none


# For examples: gradients go to the host behind the backward pass, the optimizer works there, weights come back.
_OFFLOADED = """
    step   [1                                                ][2                                                ]
    cpu    [F ][B ][G ][S     ][O             ]  [T ][S     ] [F ][B ][G ][S     ][O             ]  [T ][S     ]
    gpu 7   [K ][K ]                              [U       ]   [K ][K ]                              [U       ]
    gpu 13          [D       ]                                         [D       ]
    """


def offloaded(back: int = 32 << 20, memory: str = "Pinned") -> Drawing:
    """back: bytes that come to the device;  memory: of the host, from which they come."""
    return draw(
        _OFFLOADED,
        us=1000,
        device="A100",
        G=Ev("aten::copy_", launches="memcpy"),
        D=Ev("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", bytes=64 << 20),
        S=Ev("cudaStreamSynchronize", "cuda_runtime"),
        O=Ev("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation"),
        T=Ev("aten::copy_", launches="memcpy"),
        U=Ev(f"Memcpy HtoD ({memory} -> Device)", "gpu_memcpy", bytes=back),
    )
