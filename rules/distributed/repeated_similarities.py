"""Each rank computes the similarities of all ranks' samples.

## What it looks at
Matrix products of two tensors that all ranks have gathered from each other in the step, and the ops that follow on them
alone (softmax, cross entropy). All their inputs are the same on each rank, so the results are, too. Profiles do not
record which tensors an op reads; `advisor run` observes it in two separate steps. Gathered weights, as of FSDP, do not
count.

## Why it costs time
A contrastive loss (CLIP, SimCLR) over W ranks with B samples each compares W·B samples with W·B others. If each rank
computes the whole matrix, it computes W times as much as it has to: the rows of its own samples are B of W·B.

## How to fix it
Compare the rank's own samples with all gathered ones, and move the labels: `scale * image @ all_text.t()` with the
labels `rank * B + torch.arange(B)` (`local_loss` in OpenCLIP). With an all-gather that passes gradients on
(`torch.distributed.nn.functional.all_gather`) and gradients averaged by DistributedDataParallel, the gradient is the
same as before.

## When to leave it
With an all-gather that does not pass gradients on, the loss of the own rows alone has no gradient by which other ranks'
samples reach this one's: check which of the two the script uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Drawing, Example, Finding, Fix, Lines, ObservedOps, Price, RankRecord, with_nodes

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..cheaper_equivalents.products._unread_rows import unread_part
from ..shared._examples import node, observed, op, two_steps
from ..shared._words import count, percent

_PRODUCTS = ("aten::mm", "aten::matmul", "aten::bmm", "aten::linear", "aten::einsum", "aten::cdist")
_HOW = (
    "these ops and their backward pass shrink to the rank's own rows; low: half of that, without the fixed cost of a "
    "call, as operands are read and written for any number of rows"
)


def check(
    price: Price,
    seen: ObservedOps,
    record: RankRecord,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # two expressions to change; below 3 % of the step the gain is within the noise
) -> Iterator[Finding]:
    ranks = record.world_size or 1
    if ranks < 2 or not seen.seen.same or not seen.places:
        return
    rows = seen.rows_at(seen.seen.same)
    events = price.ops.events
    products = rows[events.exactly(*_PRODUCTS)[rows]]
    if not len(products):
        return
    both = with_nodes(events, price.ops.outermost, rows)
    one = Equivalent(
        parts=(unread_part(price, both, 1 - 1 / ranks),),
        how=_HOW,
        ops="long",
        shown=products[np.argsort(-events.dur_ns[products], kind="stable")],
    )
    if known := worth(price, lines, one, min_share):
        yield known.finding(
            f"Each of {count(ranks)} ranks computes products of what all have gathered{known.at}, with the same "
            f"result: {known.spent}, backward pass included, of which its own rows are {percent(1 / ranks)}.",
            {"ranks": ranks, "spent_us": known.spent_us},
            _OWN,
        )


_OWN = Fix(
    "Compare the rank's own samples with all gathered ones",
    "numerics",
    "scores = scale * all_images @ all_texts.t()\nloss = cross_entropy(scores, torch.arange(len(scores)))",
    "scores = scale * images @ all_texts.t()\n"
    "loss = cross_entropy(scores, dist.get_rank() * len(scores) + torch.arange(len(scores)))",
)

_ALL, _SCORES = [1024, 256], [1024, 1024]
_NAMES, _WAITS = "linear allgather_ matmul cross_entropy_loss", [[], [1], [1], [1]]


def _drawn() -> Drawing:
    """A layer (F), the exchange (G), the product (A), the loss (L), the nodes of the product and of the layer."""
    return two_steps(
        "[F    ][G    ][A           ][L   ][X   ][Y               ][Z   ]",
        F=op("linear", [512, 256], [256, 256], number=1),
        G=op("allgather_", [512, 256]),
        A=op("matmul", _ALL, [256, 1024], number=2),
        L=op("cross_entropy_loss", _SCORES, [1024], number=3),
        X=node(3, "NllLossBackward0"),
        Y=node(2, "MmBackward0"),
        Z=node(1),
    )


def _facts(ranks: int, *same: int) -> dict[str, Any]:
    return observed(_NAMES, _WAITS, same=list(same)) | {"world_size": ranks}


EXAMPLES = [
    Example(
        "all samples of two ranks with all",
        _drawn(),
        saves_us=(850, 2300),
        facts=_facts(2, 2, 3),
        says=("Each of 2 ranks", "50 %"),
    ),
    Example("the rank's own samples with all", _drawn(), None, _facts(2)),
    Example("one rank has no others", _drawn(), None, _facts(1, 2, 3), near_miss=True),
    Example("nobody looked", _drawn(), None, {"world_size": 2}, skipped="was not recorded"),
]
