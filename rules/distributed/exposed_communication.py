"""The step waits for communication between ranks.

## What it looks at
Time in which the device runs communication kernels (all-reduce, all-gather …) and nothing else. On ranks without a
device: time in which the training loop only communicates. Communication that overlaps with computation costs nothing
and is not counted. Its purpose (gradients of data-parallel ranks, shards, layers or sequences split over ranks,
experts, embedding tables) is derived from the names of process groups and from what launches it: `fully_shard`,
functional collectives as DTensor uses them, compiled code. The library (DistributedDataParallel, fully_shard,
FullyShardedDataParallel, DeepSpeed, Megatron, torchrec) is derived from the names of events, modules and process
groups. The statistics that `nn.SyncBatchNorm` exchanges are told by the ops before and after them. With
DistributedDataParallel, collectives called by the script (metrics, logging, barriers) are distinguished from those of
its reducer, which run when a gradient was stored. Broadcasts within an optimizer's step, or right behind it, are told
as weights where the step is that of `ZeroRedundancyOptimizer`, where ops name more than one rank that sends, or where
the kernels of the update end sooner than the device's memory lets them go over as many bytes. Those that a framework's
loop calls by itself (Lightning broadcasts in each step whether to end) are not reported: no line of the script asks for
them. The latency and the time per byte of collectives are fitted to the sizes that occur. What one takes beyond twice
the fastest of its size, or of a larger one of its kind and process group, is no sending, not even over a link that two
transfers share: there a rank is awaited. Collectives that all take as long as their bytes at one rate wait for the
network. All-reduces of at least 16 MB that move less than PCIe does, between GPUs that have NVLink, are reported with
the links as the thing to check. Where a step has many in line with the computation, the gaps and the short kernels
between them count, too: of buckets there are few. Waits between pipeline stages are reported by the rule
pipeline-bubbles, from the traces of all stages.

## Why it costs time
While gradients are sent, the device computes nothing. Even the smallest collective takes its latency: a metric of four
bytes, or a barrier, in each step costs as much as a small bucket. Part of this time may be waiting for a slower rank: a
collective ends when the last rank has joined. An optimizer whose states are cut over ranks (`ZeroRedundancyOptimizer`)
updates a part of the weights on each rank and broadcasts it to all, behind each update: the next forward pass waits for
these broadcasts. A broadcast of a few bytes that takes far longer than collectives with more waits for the rank that
sends: where that one reads and prepares the batches of all, the others wait for it.

## How to fix it
DistributedDataParallel reduces gradients in buckets while the backward pass still runs: use it instead of reducing by
hand after the backward pass; use larger buckets if there are many small collectives. Accumulate metrics on each rank
and reduce them together, every hundred steps; remove barriers. With gradient accumulation, communicate only in the
last micro-step (`no_sync()`, which DeepSpeed's ZeRO 2 and 3 refuse with an error). Send fewer bytes: a bf16
compression hook. Larger batches per rank need less communication per sample. Of a compiled model the backward pass may
be one graph, whose gradients are complete only at its end: leave `torch._dynamo.config.optimize_ddp` on, which cuts
graphs at buckets, or compile each block by itself.

Weights that ranks send to each other behind each update: where the optimizer's states fit on each GPU, let each rank
update all weights. Where they do not, `parameters_as_bucket_view=True` sends one broadcast for each rank instead of one
for each parameter, `overlap_with_ddp=True` updates beside the backward pass, and `fully_shard` sends no weights behind
the update at all.

In an evaluation let each rank reduce its own outputs to what the metric needs, and gather that: classes or counts, no
logits.

Let each rank read its own part of the data, with workers (accelerate: `dispatch_batches=False`).

`nn.SyncBatchNorm` needs a collective for each layer in each direction, and nothing can overlap with it. It is for
batches of a few samples per rank, as in detection and segmentation: of larger ones `nn.BatchNorm2d` has enough, and
`nn.GroupNorm` needs no batch at all. Both change what is trained.

Layers that are split over ranks communicate within each pass, and the pass waits for all of it: split them over fewer
ranks, and the batch over more, where memory allows. Sharded models: gather them in bf16, keep parameters between
forward and backward pass (`reshard_after_forward=False`), shard within each node and replicate over nodes (HSDP), or
gather two layers ahead (`set_modules_to_forward_prefetch`). DeepSpeed: `overlap_comm` (ZeRO 1 and 2),
`stage3_prefetch_bucket_size` (ZeRO 3). Megatron: `--overlap-grad-reduce`. Embedding tables: torchrec's
`TrainPipelineSparseDist`, and codecs for 16 bits. Gathers in compiled code:
`torch._inductor.config.reorder_for_compute_comm_overlap = True` makes the compiler launch them earlier.

Links that are not used: unset `NCCL_P2P_DISABLE`, look at `nvidia-smi topo -m`, and at what `NCCL_DEBUG=INFO` prints
for each pair of GPUs (`via P2P` or `via SHM`).

## When to leave it
Reductions of DistributedDataParallel in buckets of its default size, on ranks without a device: their time depends on
the backend and the network; the breakdown shows it, but it is not reported as a finding. Ranks that wait for a slower
one: neither buckets nor `no_sync()` help; record all ranks to see which it is, and fix that one
first. Communication of sharded models that the next layer needs immediately, if prefetching is already on.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    ALLREDUCE,
    GLOO,
    NCCL,
    Ev,
    Example,
    Exchanges,
    Finding,
    KindOfTalk,
    Lines,
    Price,
    RankRecord,
    draw,
)

from ._callers import asked_at, of_script, small_buckets
from ._callers_examples import CALLERS, GRAPHS
from ._data_parallel import computing_us, data_finding, side_of, without
from ._parallel_kinds import finding
from ._parallel_kinds_examples import KINDS, LIBRARIES
from ._synchronized_norms import NORMS
from ._synchronized_norms import finding as of_norms
from .broadcasts._late_roots import finding as roots
from .broadcasts._late_roots import others_of
from .broadcasts._late_roots_examples import ROOTS
from .broadcasts._sent_weights import finding as sent_weights
from .broadcasts._sent_weights_examples import WEIGHTS
from .gathers._gathered_outputs import OUTPUTS
from .waiting._late_ranks_examples import RANKS
from .waiting._links import LINKS

CONFIRMED = "real traces: a transformer reduced by hand on V100s, checkpointed ResNet on MI300X, DLRM on eight V100s"


def check(
    exchanges: Exchanges,
    price: Price,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # changing how ranks communicate is work: less than 5 % of the step does not justify it
    min_line_share: float = 0.03,  # one line to change: below 3 % the gain is within the noise between steps
    min_host_share: float = 0.15,  # two ranks on one host wait for each other for 10 % where nothing can be improved
) -> Iterator[Finding]:
    steps, breakdown, parallelism = price.ops.steps, price.breakdown, exchanges.parallelism
    least = min_share if breakdown.on_device else min_host_share
    # What is not of data-parallel ranks has changes of its own.
    others = [kind for kind in parallelism.kinds if kind.kind != "data"] if parallelism else []
    side = side_of(exchanges.of_device, exchanges.of_host, parallelism if others else None)
    # Reductions that no update needs, and those of a search in vain, are other rules': what is left without them.
    kept = 1 - exchanges.needless.share
    all_us = breakdown.us(breakdown.talking)
    data_us = max(all_us - sum(kind.exposed_us for kind in others), 0.0)
    exposed_us = max(kept * data_us - exchanges.search.told_us, 0.0)
    callers, waiting = exchanges.callers, roots(exchanges.callers, price, lines, min_line_share)
    if waiting is not None:
        yield waiting
        side, exposed_us = others_of(side, callers), max(exposed_us - callers.late.waited_us, 0.0)
    weights = sent_weights(callers, price, record, lines, min_line_share)
    if weights is not None and callers.sent is not None:
        yield weights
        side, exposed_us = without(side, callers.sent), max(exposed_us - callers.sent.exposed_us, 0.0)
    yield from of_script(price, callers, lines, record, min_line_share)
    if callers.script is not None:
        side, exposed_us = without(side, callers.script), max(exposed_us - callers.script.exposed_us, 0.0)
    if exchanges.library.name == "ddp" and not breakdown.on_device:
        # What it takes to reduce in buckets of its own size is what the back end gives: the breakdown shows it.
        buckets = small_buckets(price, callers, record, kept, min_share)
        yield from [buckets] if buckets else []
    elif exposed_us >= least * steps.step_us and (side.calls or not others):
        found = data_finding(price, side.scaled(kept), exposed_us, record, exchanges, mixed=bool(others))
        # A library's collectives are asked for by a hook; without one, the script's own lines ask.
        yield found if exchanges.library.name else replace(found, where=asked_at(price, lines))
    room_us = computing_us(breakdown) - max(0.0, side.us + sum(kind.us for kind in others) - all_us)
    for kind in others:
        if kind.exposed_us >= least * steps.step_us and not _of_another_rule(kind, price):
            if kind.kind == "norms":
                yield of_norms(kind, price)
            else:
                yield finding(kind, exposed_us, room_us, price, record, exchanges.library)


def _of_another_rule(kind: KindOfTalk, price: Price) -> bool:
    """Whether another rule reports this communication: buffer-broadcasts has the argument that leaves buffers out.

    Without a device, stages of a pipeline wait for cores as well: what they wait for only pipeline-bubbles can tell.
    """
    return kind.kind == "buffers" or (kind.kind == "stages" and not price.on_device)


_AFTER_BACKWARD = """
    step   [1                             ][2                             ]
    cpu    [F ][B  ][A ]                   [F ][B  ][A ]
    gpu 7   [K    ][K    ]                  [K    ][K    ]
    gpu 20                [N        ]                     [N        ]
    """

EXAMPLES = [
    Example(
        "gradients are reduced after the backward pass",
        draw(_AFTER_BACKWARD, us=1000, world_size=2, A=ALLREDUCE, N=NCCL),
        saves_us=(0, 11000),
        says=("none of their time overlapped with computation", "1 collective a step of 4 MB"),
    ),
    Example(
        "hundreds of small collectives",
        draw(
            _AFTER_BACKWARD,
            us=1000,
            world_size=2,
            A=Ev(ALLREDUCE.name, launches="collective", times=100),
            N=Ev(NCCL.name, "kernel", times=100, args=NCCL.args | {"In msg nelems": 1000}),
        ),
        saves_us=(3000, 12000),
        says=("100 collectives",),
    ),
    Example(
        "a CPU rank reduces with gloo",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F ][B  ]             [F ][B  ]
            cpu 2           [G        ]           [G        ]
            """,
            us=1000,
            world_size=2,
            G=GLOO,
        ),
        saves_us=(0, 11000),
        says=("the training loop only communicates",),
    ),
    Example(
        "the same all-reduce beside the backward pass",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F ][B  ][A ]                   [F ][B  ][A ]
            gpu 7   [K    ][K                    ]  [K    ][K                    ]
            gpu 20            [N        ]                     [N        ]
            """,
            us=1000,
            world_size=2,
            A=ALLREDUCE,
            N=NCCL,
        ),
        near_miss=True,
    ),
    Example(
        "one rank alone",
        draw(
            """
            step   [1              ][2              ]
            cpu    [F ][B  ]        [F ][B  ]
            gpu 7   [K    ][K    ]   [K    ][K    ]
            """,
            us=1000,
        ),
    ),
    *CALLERS,
    *GRAPHS,
    *KINDS,
    *LIBRARIES,
    *LINKS,
    *NORMS,
    *OUTPUTS,
    *ROOTS,
    *WEIGHTS,
    *RANKS,
]
