"""CUDA graphs are recorded again and again during training.

## What it looks at
Profiled steps in which the process captures a CUDA graph, from the second one on, and how much longer they are than
those that capture none. torch.compile runs a new shape once without a graph, and records it the second time.

## Why it costs time
A recording waits for the device, collects garbage, launches each kernel once without running it, and instantiates the
graph. It takes as long as many replays, so graphs pay off only if they are replayed often. With
`mode="reduce-overhead"`, torch.compile records a graph for each new shape of the inputs, and each holds memory.

## How to fix it
Pad batches to a few lengths, so that each graph is replayed; `drop_last=True` for the last, smaller batch. Or leave
graphs of changing shapes out: `torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True`. With graphs of
one's own, record before the loop and copy inputs into the recorded tensors.

## When to leave it
The beginning of a training, in which the last shapes appear.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    RankRecord,
    Steps,
    Trace,
    draw,
    duration,
)

from ..shared._words import count, percent, plural

# A shape that is new once is recorded once.
_AGAIN = 2
_COMPILED = ("Torch-Compiled Region", "CompiledFxGraph")


def check(
    trace: Trace,
    steps: Steps,
    record: RankRecord | None,
    *,
    min_share: float = 0.02,  # of all profiled time: below, it is within the noise between steps
) -> Iterator[Finding]:
    spans = _marked(trace) if len(_marked(trace)) > 1 else steps.spans
    starts, lengths_us = spans[:, 0], (spans[:, 1] - spans[:, 0]) / 1e3
    captures = trace.events.start_ns[trace.events.named("StreamBeginCapture")]
    # Capture has warmed up before it profiles; somebody else's first profiled step may be the warm-up.
    captures = captures[(captures >= starts[0 if record else min(1, len(starts) - 1)]) & (captures < spans[-1, 1])]
    recording = np.unique(np.searchsorted(starts, captures, side="right") - 1)
    others_us = np.delete(lengths_us, recording)
    usual_us = float(np.median(others_us)) if len(others_us) else 0.0
    if steps.stalls_us:  # steps that record are left out of the step time; a host that runs ahead shows less than it
        usual_us = max(usual_us, steps.step_us)
    longer_us = float(np.maximum(lengths_us[recording] - usual_us, 0.0).sum())
    share = longer_us / float(lengths_us.sum())
    if len(recording) < _AGAIN or share < min_share:
        return
    longer = f", which are longer than others by {duration(longer_us)} together: {percent(share)} of the profiled time"
    compiled = bool(trace.events.named(*_COMPILED).any())
    yield Finding(
        message=(
            f"CUDA graphs are recorded in {count(len(recording))} of {plural(len(spans), 'profiled step')}"
            f"{longer if len(others_us) else ''}."
        ),
        # What a step takes whose graph was recorded before depends on which shapes come again.
        saving=None,
        facts={"steps_that_record": len(recording), "profiled_share": share},
        fix=_FEW_SHAPES if compiled else _BEFORE,
        at_most="medium",
    )


def _marked(trace: Trace) -> Intervals:
    """The steps that the profiler marks on the host, with those that are left out of all shares as they take longer."""
    events = trace.events
    rows = np.flatnonzero(events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("ProfilerStep#"))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    return np.stack([events.start_ns[rows], events.end_ns[rows]], axis=1)


_FEW_SHAPES = Fix(
    "Pad batches to a few lengths, so that graphs are replayed",
    "numerics",
    "length = max(len(sample) for sample in batch)",
    "length = -(-max(len(sample) for sample in batch) // 64) * 64",
)
_BEFORE = Fix(
    "Record each graph once before the loop, and replay it",
    "exact",
    "with torch.cuda.graph(graph):\n    loss = step(x)",
    "x_recorded.copy_(x)\ngraph.replay()",
)


_NAMES: dict[str, Any] = {
    "C": Ev("cudaStreamBeginCapture", "cuda_runtime"),
    "I": Ev("cudaGraphInstantiate", "cuda_runtime"),
    "R": Ev("Torch-Compiled Region: 0/1", launches=""),
    "K": "gemm",
}
_REPLAYS, _RECORDS, _COMPILES = "[F   ][B   ]", "[F   ][C][I     ][B   ]", "[R][F ][C][I     ][B   ]"


def _steps(*host: str) -> Drawing:
    """Steps as long as what the host does in them."""
    step = "".join(f"[{number}{' ' * (len(one) - 3)}]" for number, one in enumerate(host, 1))
    gpu = "".join(f"[K{' ' * 8}]".ljust(len(one)) for one in host)
    named = {word: event for word, event in _NAMES.items() if f"[{word}" in "".join(host) + gpu}
    return draw(f"step   {step}\ncpu    {''.join(host)}\ngpu    {gpu}", us=1000, **named)


EXAMPLES = [
    Example(
        "in two of four steps",
        _steps(_REPLAYS, _REPLAYS, _RECORDS, _RECORDS),
        saves_us="unknown",
        says=("recorded in 2 of 4 profiled steps, which are longer than others by 22 ms together",),
        fixes=("Record each graph once",),
    ),
    Example(
        "the same by a compiled model, for each length",
        _steps(_REPLAYS, _COMPILES, _REPLAYS, _COMPILES),
        saves_us="unknown",
        fixes=("Pad batches to a few lengths",),
    ),
    Example("in one step, for a shape that comes once", _steps(*[_REPLAYS] * 3, _RECORDS), None, near_miss=True),
    Example("in the first two steps, as always", _steps(_RECORDS, _RECORDS, _REPLAYS, _REPLAYS), None, near_miss=True),
    Example("replayed only", _steps(*[_REPLAYS] * 4), None),
]
