"""Sizes of an exchange between ranks that the host reads, because `all_to_all_single` takes them as Python numbers."""

from __future__ import annotations

import numpy as np

from advisor.api import AUTOGRAD_NODE, D2H_PAGEABLE, GEMM, Category, Ev, Example, Fix, Price, SyncSite, draw

# As c10d, compiled code and DTensor call it.
_EXCHANGES = ("c10d::alltoall", "all_to_all")
# What runs between a read that has another purpose and the next exchange.
_OTHERS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::_grouped_mm", "c10d::", "Optimizer.step#")

FIX = Fix(
    "Exchange a fixed number of rows per rank, or read the sizes while the GPU has other work",
    "semantics",
    "splits = counts.tolist()\ndist.all_to_all_single(received, rows, their_splits, splits)",
    "# without sizes: `capacity` rows for each rank, padded, or dropped where there are more\n"
    "dist.all_to_all_single(received, padded)  # [ranks * capacity, width]\n\n"
    "# or with sizes that are copied while work runs that does not need them, such as a shared expert\n"
    "kept.copy_(all_counts, non_blocking=True)  # kept: pinned memory; the sizes of both directions in one copy\n"
    "copied.record()  # copied: a torch.cuda.Event\nshared = shared_expert(x)\ncopied.synchronize()",
)
NEEDED = (
    " The exchange that follows (`all_to_all_single`) needs these sizes on the host: the read can only be hidden, or "
    "spared with a fixed capacity."
)


def sizes_of_exchange(site: SyncSite, price: Price) -> bool:
    """Whether what most of these reads are followed by in their step is an exchange: before any product, on the thread.

    A loss that is read has products, or the optimizer, before the next one.
    """
    events, steps = price.ops.events, price.ops.steps
    host = events.of(Category.CPU_OP, Category.ANNOTATION)
    exchange = host & events.named(*_EXCHANGES)
    follow = np.flatnonzero(exchange | (host & events.named(*_OTHERS)))
    if not exchange.any():
        return False
    rows = np.array(site.rows, int)
    found = 0
    for thread in np.unique(events.thread[rows]).tolist():
        mine, theirs = rows[events.thread[rows] == thread], follow[events.thread[follow] == thread]
        at = np.searchsorted(events.start_ns[theirs], events.end_ns[mine])
        there = at < len(theirs)
        mine, after = mine[there], theirs[at[there]]
        same = steps.step_of(events.start_ns[mine]) == steps.step_of(events.start_ns[after])
        found += int((exchange[after] & same).sum())
    return 2 * found > len(rows)


_STEPS = """
    step   [1                                 ][2                                 ]
    cpu    [F ][I     ][A  ][B      ]     [F ]  [F ][I     ][A  ][B      ]     [F ]
    gpu 7   [K      ]         [K      ]    [K ]  [K      ]         [K      ]    [K ]
    gpu 7           [C]                                 [C]
    gpu 20              [X  ]                               [X  ]
    """
_READ = Ev("aten::to", launches="memcpy", blocks=True)
_EXCHANGED = {"Collective name": "all_to_allv", "dtype": "BFloat16", "In msg nelems": 1_000_000, "Group size": 8}
_MOVED = Ev("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=_EXCHANGED)


def _example(name: str, follows: Ev, moved: Ev, *, says: tuple[str, ...], fixes: tuple[str, ...]) -> Example:
    forward, back = Ev("aten::linear"), Ev(f"{AUTOGRAD_NODE}: AddmmBackward0")
    drawn = draw(_STEPS, us=1000, F=forward, I=_READ, A=follows, B=back, C=D2H_PAGEABLE, X=moved)
    return Example(name, drawn, saves_us=(0, 9000), says=says, fixes=fixes)


SIZES = [
    _example(
        "sizes for an exchange of tokens between experts",
        Ev("c10d::alltoall_base_", launches="collective"),
        _MOVED,
        says=("`to`", "needs these sizes on the host"),
        fixes=("capacity",),
    ),
    _example(
        "the same read before a product: nothing is exchanged",
        Ev("aten::mm", launches="kernel"),
        GEMM,
        says=("`to`", "once a step"),
        fixes=("history.append(out.detach())",),
    ),
]
