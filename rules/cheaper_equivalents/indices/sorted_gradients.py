"""The backward pass of `x[index]` sorts the indices.

## What it looks at
Kernels that sort, launched on a GPU by the backward pass of an index, and the time of all kernels of that pass.

## Why it costs time
An index may name a row several times, and the gradients of a row are summed. For `x[index]`, PyTorch on a GPU sorts all
indices first, so that the sum is the same in each run. `index_select` and `gather` add to the rows in any order
instead: in a report on a P100, the backward pass of `gather` was 1.6 to 24 times as fast (pytorch/pytorch#15245), and
others found the same of `index_select` (dmlc/dgl#3729). In graphs, where each edge reads the rows of two nodes, this
may be a large part of the step.

## How to fix it
`x.index_select(0, index)` in place of `x[index]`; `torch.take_along_dim` or `gather` where each row has an index of its
own. What adds many gradients to few rows may be slower so: try it. `F.interpolate` on a GPU is such an index while
`torch.use_deterministic_algorithms(True)` is on (torch/nn/functional.py, `interpolate`): without it one kernel adds the
gradients.

## When to leave it
Where results have to repeat to the last digit: sums in any order round differently. An index by several tensors at
once, `x[rows, columns]`, unless these are joined to one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import AUTOGRAD_NODE, SYNC, Drawing, Ev, Example, Finding, Fix, Ints, Lines, Missing, Price

from ...shared._examples import node, op, two_steps
from ...shared._words import often
from .._equivalent import Equivalent, worth

_SORTS = ("RadixSort", "MergeSort", "BlockSort")
_UNSAFE = f"{AUTOGRAD_NODE}: UnsafeIndexBackward"
_NOT_FORCED = Fix(
    "Turn deterministic algorithms off where results need not repeat to the last digit",
    "numerics",
    "torch.use_deterministic_algorithms(True)",
    '# off by default; or interpolate with mode="nearest", whose gradients need no sort',
)
_FIX = Fix(
    "Use `index_select` in place of `x[index]`",
    "numerics",
    "messages = x[source]",
    "messages = x.index_select(0, source)",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # one call to change, which sums in another order: below 3 % it is not worth a trial
) -> Iterator[Finding]:
    if not price.on_device:
        raise Missing(price.ops.device.why)  # a CPU does not sort indices
    for name in (f"{AUTOGRAD_NODE}: IndexBackward", _UNSAFE):
        nodes = np.flatnonzero(price.ops.events.named(name) & price.ops.links.inside)
        if found := _sorted(price, lines, nodes, name == _UNSAFE, min_share):
            yield found


def _sorted(price: Price, lines: Lines | None, nodes: Ints, forced: bool, min_share: float) -> Finding | None:
    """What these nodes sort. forced: as deterministic algorithms write an interpolation as an index."""
    events = price.ops.events
    kernels = price.ops.launched(nodes)
    sorts = events.named(*_SORTS)[kernels]
    if not sorts.any():
        return None
    one = Equivalent(
        parts=((kernels, 0.0, 1.0),),
        how="low: nothing, as adding in any order was not measured on a device; high: all kernels that sort and add",
        timed_on_device=False,
        shown=nodes,
    )
    known = worth(price, lines, one, min_share)
    if known is None:
        return None
    calls = len(nodes) / price.ops.steps.count
    what = "`F.interpolate`, which deterministic algorithms write as an index," if forced else "`x[index]`"
    return known.finding(
        f"The backward pass of {what}{known.at} sorts the indices {often(calls)}, and adds gradients in that "
        f"order: {known.spent}.",
        {"indices": calls, "backward_us": known.spent_us, "sorts_us": price.spent_us(kernels[sorts])},
        _NOT_FORCED if forced else _FIX,
    )


def _drawn(name: str, kernel: str) -> Drawing:
    """A node (N) of the backward pass whose two kernels are a sort (S), and a sum (A)."""
    return two_steps(
        "[F ][I ][N    ][B ][Y                      ]",
        gpu="  [K  ][K ][S            ][A    ][K   ]",
        I=op("index", [10000, 64], [], launches="kernel"),
        N=Ev(node(1, name).name, launches="kernel", times=2, args=node(1, name).args),
        S=Ev(kernel, "kernel"),
        A=Ev("indexing_backward_kernel", "kernel"),
        B=Ev(node(2).name, launches="kernel", args=node(2).args),
        Y=SYNC,
        F=op("linear", [10000, 64], [64, 64], launches="kernel"),
    )


_SORT = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, long, int>>"

EXAMPLES = [
    Example("rows of nodes for each edge", _drawn("IndexBackward0", _SORT), saves_us=(0, 1800), says=("`x[index]`",)),
    Example(
        "an interpolation under deterministic algorithms",
        _drawn("UnsafeIndexBackward0", _SORT),
        saves_us=(0, 1800),
        says=("`F.interpolate`",),
        fixes=("deterministic algorithms",),
    ),
    Example("by index_select", _drawn("IndexSelectBackward0", "indexFuncLargeIndex")),
    Example("an embedding sorts, too", _drawn("EmbeddingBackward0", _SORT), near_miss=True),
]
