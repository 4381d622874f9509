"""The GPU waits for kernel launches.

## What it looks at
Gaps in which the device has nothing queued while the host is preparing the next launch, op by op. Shown with them: how
many launches a step has, what one costs the host, and how short the kernels are. If single ops make most launches, as a
convolution that goes through its batch sample by sample does, they are named. So are loops: the same few ops again and
again within a step, more often than any model has layers, or without the weights of layers. Waits in loops that
`separate-tables`, `recurrent-positions` or `sync-in-loop` reports are left to these.

## Why it costs time
Each PyTorch op costs the host some microseconds before its kernel is launched. Where kernels are shorter than
that, the device finishes each of them before the next one arrives.

## How to fix it
Give the host less to do per kernel: `torch.compile(model)` fuses small kernels, `mode="reduce-overhead"` replays a
whole region as one CUDA graph, or warns "skipping cudagraphs due to"; where only the backward pass waits, compiled
autograd compiles that, too. Use fused layers and optimizers. Where the waits lie in a loop, compute its iterations by
ops on whole tensors, or by a kernel of a library or of Triton, if each needs the one before. A larger batch makes every
kernel longer with the same number of launches. What one op launches by itself no compiler fuses: choose arguments for
which a library has a kernel (dilation, groups, dtype), or another op.

## When to leave it
Models whose shapes change at every step: CUDA graphs would be captured again each time. Short runs, in which compiling
takes longer than it saves.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    BACKWARD,
    ELEMENTWISE,
    GEMM,
    Category,
    Ev,
    Example,
    Finding,
    GpuIdle,
    Intervals,
    Launches,
    OpLoop,
    Price,
    RankRecord,
    RepeatedOps,
    Saving,
    Steps,
    Trace,
    draw,
    duration,
    edits,
    intersect,
    total,
    union,
)

from ..cheaper_equivalents._positions_on_device_examples import ONE_BY_ONE as IN_TURN
from ..cheaper_equivalents.indices._tables_on_device import ONE_BY_ONE
from ..shared._words import count, percent
from ._launch_fixes import MOSTLY, no_loop, of_step, other_op
from ._launch_waits import LaunchWaits
from ._launches_between_reads import BETWEEN_READS, between, without_reads
from ._launches_in_ops import BLOCKING, ManyLaunches, many_launches

# Most of the wait lies in loops: then what is in them is to be changed first.
_MOST = 0.5
# The Python between two ops of a region does not run when a CUDA graph replays it (torch.cuda.CUDAGraph, "CUDA Graphs"
# in PyTorch's CUDA semantics: "eliding CPU overhead"). A longer pause is other work: `GpuIdle` says idle_host of it.
_PAUSE_US = 100
# The shortest kernels of a trace compute next to nothing: what they take is what any kernel takes at least.
_SHORTEST = 0.01
_OF_LOOPS = ("idle_launch", "compute")
# More names of ops are no help to find a loop.
_NAMED = 4


def check(
    price: Price,
    launches: Launches,
    idle: GpuIdle,
    waits: LaunchWaits,
    record: RankRecord | None,
    *,
    min_share: float = 0.05,  # the fix is a compiler: less than 5 % of the step is not worth its side effects
    max_blocking: float = BLOCKING,  # of launches that wait for their kernel: `blocking-launches` has these gaps
) -> Iterator[Finding]:
    trace, scale, repeated = price.ops.trace, price.scale, waits.repeated
    if waits.share < min_share or (launches.blocking_share or 0.0) >= max_blocking:
        return
    compiled = _compiled(price, waits.spans, record)
    many = many_launches(price)
    backward, in_loops = _in_backward(trace, price.ops.steps, waits.spans), repeated.share(waits.spans)
    loop = repeated.loops[0] if many is None and repeated.loops and in_loops >= _MOST else None
    saving = _of_loops(price, waits) if loop else _of_launches(price, waits)
    if saving.high_us < min_share * scale.step_us:
        return
    places = tuple(group.where for group in idle.top("idle_launch", 3) if group.where)
    if loop:
        fix = no_loop(loop)
    elif many:
        fix = other_op(many)
    else:
        # With graphs the layers are captured already: the reads lie elsewhere.
        reads = waits.reads and not launches.graphs
        fix = without_reads(waits) if reads else of_step(price, compiled, launches.graphs, backward)
    yield Finding(
        message=(
            f"The GPU waits {duration(scale.scaled(waits.us))} of each step ({percent(waits.share)}) for its next "
            f"launch: a step has {count(launches.per_step)} launches of kernels with a median duration of "
            f"{duration(launches.kernel_us)}, {percent(launches.short_share)} of them under 10 µs"
            f"{_mostly(backward)}{_in_one(many)}{_in_loop(loop, in_loops) if loop else between(waits)}."
        ),
        saving=saving if many is None else None,  # what another op would launch instead is not known
        where=places,
        facts={
            "idle_launch_us": waits.us,
            "launches": launches.per_step,
            "launch_us": launches.launch_us,
            "kernel_us": launches.kernel_us,
            "short_share": launches.short_share,
            "queue_delay_us": launches.queue_delay_us,
            "compiled": compiled,
            "cuda_graphs": launches.graphs,
            "backward_share": backward,
            "loop_share": in_loops,
            "reads": waits.reads,
        },
        fix=fix,
        claims=_OF_LOOPS if loop else ("idle_launch",),
    )


def _compiled(price: Price, idle: Intervals, record: RankRecord | None) -> bool | None:
    """Whether what is waited for is compiled code; None where nobody knows.

    A compiled region that ran has its row, whoever recorded the trace: the loss alone may be one.
    """
    events = price.ops.events
    regions = np.flatnonzero(events.named("CompiledFunction", "Torch-Compiled Region"))
    if not len(regions):
        return record.settings.compiled if record else None
    return 2 * total(intersect(idle, events.covered(regions))) >= total(idle)


def _of_launches(price: Price, waits: LaunchWaits) -> Saving:
    """The launches as one."""
    replay = price.replay
    fused = [edits.fuse(replay.launching, into=replay.steps, pause_us=_PAUSE_US)] if replay else []
    how = "low: regions cannot be captured (changing shapes, syncs inside); high: the step with one launch"
    return price.saving([], fused, ("idle_launch",), how, model_us=(0.0, waits.us), bound_us=waits.us)


def _of_loops(price: Price, waits: LaunchWaits) -> Saving:
    """The waits for launches in the loops; what takes their place is not known."""
    repeated = waits.repeated
    idle_us = price.ops.steps.per_step_us(total(intersect(waits.spans, repeated.spans)))
    how = "low: each iteration needs the one before; high: the GPU waits in none of them, and has the kernels of one: "
    how += "what the shortest kernel takes goes for each of the others"
    # Like every fusion it counts after the changes that save some of the same idle time, such as a read that goes.
    gone = [edits.remove(repeated.rows), edits.fuse(repeated.rows, into=price.ops.steps.count)]
    most_us = min(idle_us + _starts_us(price, repeated), price.measured_us(_OF_LOOPS))
    return price.saving([], gone, _OF_LOOPS, how, model_us=(0.0, most_us), bound_us=most_us)


def _starts_us(price: Price, repeated: RepeatedOps) -> float:
    """What a device takes to start and end a kernel, for those of all iterations but one; µs per step."""
    events, kernels = price.ops.events, price.ops.launched(repeated.rows)
    every = events.dur_ns[events.of(Category.KERNEL)]
    if not len(kernels) or not repeated.loops:
        return 0.0
    least_ns = np.quantile(every, _SHORTEST)
    others = 1 - 1 / max(repeated.loops[0].iterations, 1.0)
    return price.ops.steps.per_step_us(float(np.minimum(events.dur_ns[kernels], least_ns).sum()) * others)


def _in_backward(trace: Trace, steps: Steps, idle: Intervals) -> float | None:
    """Share of these gaps that lies within the steps' backward passes; None without one.

    A pass goes from its first node to the last before the loop's thread calls another op: inner steps have their own.
    """
    events = trace.events
    nodes = np.flatnonzero(events.named(AUTOGRAD_NODE))
    step = steps.step_of(events.start_ns[nodes])
    nodes, step = nodes[step >= 0], step[step >= 0]
    if not len(nodes) or not len(idle):
        return None
    calls = events.of(Category.CPU_OP) & (events.thread == steps.main_thread)
    calls[nodes] = False
    begun = np.searchsorted(events.start_ns[calls], events.start_ns[nodes])
    end = np.maximum.accumulate(events.end_ns[nodes])
    before = np.searchsorted(events.start_ns[calls], end)
    new = np.append(True, (step[1:] != step[:-1]) | (begun[1:] > before[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(nodes)) - 1
    return total(intersect(idle, union(events.start_ns[nodes][first], end[last]))) / total(idle)


def _mostly(backward: float | None) -> str:
    return "" if backward is None or backward < MOSTLY else f"; {percent(backward)} of the wait is in the backward pass"


def _in_one(many: ManyLaunches | None) -> str:
    if many is None:
        return ""
    return f"; {percent(many.share)} of the launches are made by `{many.op}`, up to {count(many.most)} in a single call"


def _in_loop(loop: OpLoop | None, share: float) -> str:
    if loop is None:
        return ""
    return f"; {percent(share)} of the wait is in loops, the longest of {count(loop.iterations)} times {_names(loop)}"


def _names(loop: OpLoop) -> str:
    """Ops of one iteration, the first few."""
    several = tuple(dict.fromkeys(loop.ops))
    return ", ".join(f"`{name}`" for name in several[:_NAMED]) + (" and others" if len(several) > _NAMED else "")


_ADDS = Ev("aten::add", times=20)
_SHORT = Ev(ELEMENTWISE.name, "kernel", times=20, fill=0.2)

_STEPS = """
    step   [1                   ][2                   ]
    cpu    [F                   ][F                   ]
    gpu 7   [K                   ][K                  ]
    """
EXAMPLES = [
    *BETWEEN_READS,
    Example(
        "kernels shorter than the host needs to launch them",
        draw(_STEPS, us=25, F=_ADDS, K=_SHORT),
        saves_us=(0, 550),
        says=("a step has 20 launches", "100 % of them under 10 µs"),
    ),
    Example(
        "the same in a compiled model",
        draw(_STEPS, us=25, F=_ADDS, K=_SHORT),
        facts={"settings": {"compiled": True}},
        saves_us=(0, 550),
    ),
    Example(
        "only the backward pass of a compiled model is slow to launch",
        draw(
            """
            step   [1                           ][2                           ]
            cpu    [F  ][B                      ][F  ][B                      ]
            gpu 7   [G  ][K                      ][G  ][K                     ]
            """,
            us=25,
            B=Ev(BACKWARD.name, launches="kernel", times=20),
            G=GEMM,
            K=_SHORT,
        ),
        facts={"settings": {"compiled": True}},
        saves_us=(0, 750),
        says=("of the wait is in the backward pass",),
    ),
    Example(
        "one op that launches a kernel for each sample",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F                   ][F                   ]
            cpu    [L                   ][L                   ]
            gpu 7   [K                   ][K                  ]
            """,
            us=50,
            F=Ev("aten::slow_conv_dilated3d", launches=""),
            L=Ev("cudaLaunchKernel", "cuda_runtime", launches="kernel", times=40),
            K=Ev(ELEMENTWISE.name, "kernel", times=40, fill=0.2),
        ),
        saves_us="unknown",
        says=("`aten::slow_conv_dilated3d`, up to 40 in a single call",),
        fixes=("Replace `aten::slow_conv_dilated3d`",),
    ),
    Example(
        "a loop over the rows of a tensor",
        draw(_STEPS, us=50, F=Ev("aten::add", times=40), K=Ev(ELEMENTWISE.name, "kernel", times=40, fill=0.2)),
        saves_us=(0, 1100),
        says=("in loops, the longest of 40 times `add`",),
        fixes=("Compute the 40 iterations by ops on whole tensors",),
    ),
    Example(
        "forty layers: they have weights and are no loop",
        draw(_STEPS, us=50, F=Ev("aten::addmm", times=40), K=Ev(ELEMENTWISE.name, "kernel", times=40, fill=0.2)),
        saves_us=(0, 1100),
        fixes=("Compile the model",),
    ),
    Example("look-ups in tables that `separate-tables` tells to merge", ONE_BY_ONE, near_miss=True),
    Example("an LSTM called for each position, as `recurrent-positions` tells", IN_TURN, near_miss=True),
    Example(
        "as many launches, but the queue is never empty",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F       ]            [F       ]
            gpu 7   [K                   ][K                  ]
            """,
            us=25,
            F=_ADDS,
            K=Ev(ELEMENTWISE.name, "kernel", times=20),
        ),
        near_miss=True,
    ),
    Example(
        "few long kernels",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [F  ][B  ]                          [F  ][B  ]
            gpu 7   [K               ][K              ] [K               ][K              ]
            """,
            us=1000,
        ),
    ),
]
