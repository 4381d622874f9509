"""A layer computes rows of its output that are never read.

## What it looks at
Layers that process each row (each position, each sample) independently, and of whose results later ops take half of
the rows or fewer: `logits[:, -1]`, `scores[mask]`, a cross entropy whose `ignore_index` excludes most labels. So are
layers whose results are multiplied by masks `chosen == i` of one tensor: no row is in two of them, so N layers need
one row in N on average, at most. Profiles
record neither which tensors an op reads nor the values of labels; `advisor run` observes them in separate steps. Every
reader of a result is considered: scores that are also counted, printed or kept are read in full. Layers that mix rows
(attention, recurrent layers, convolutions) and the layers before them are never counted, nor are columns: a network's
value for an action that was not taken.

## Why it costs time
The head of a language model is often its largest layer. Computed for all of 64 positions where ten are masked and
predicted, five sixths of its forward and backward pass, of the softmax over the vocabulary and of the memory for both
are wasted. Eight experts that all compute every token do eight times the work of the one that was chosen.

## How to fix it
Select the rows first, then compute: `head(x[:, -1])`, `head(x[mask])`. In a loss with ignored labels:
`kept = labels.ne(-100); loss = cross_entropy(head(x[kept]), labels[kept])`. Of experts: `mine = chosen == i`,
`out[mine] = expert(x[mine])`.

## When to leave it
Where shapes must be the same in every step (compiled models, CUDA graphs): the number of rows in a mask varies; select
a fixed number of them. On a GPU, indexing with a mask makes the host wait for the number of rows in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Drawing, Example, Finding, Fix, Lines, Price, RankRecord, Unread

from ...shared._examples import node, observed, op, two_steps
from ...shared._places import longest
from ...shared._words import percent
from .._equivalent import Equivalent, worth
from ._unread_rows import PRODUCTS, UnreadWork, unread_part, unread_work

CONFIRMED = "measured pair on a CPU: a protein language model that scores all positions against masked ones only"

_HOW = (
    "low: half of that work, without the fixed cost of a call: weights are read and written for any number of rows; "
    "high: it shrinks with the rows"
)


def check(
    price: Price,
    unread: Unread,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # an indexing to move: not worth it below 3 % of the step
) -> Iterator[Finding]:
    events = price.ops.events
    work = unread_work(events, unread, record.loss_labels if record else [])
    if not len(work.rows):
        return
    parts = [unread_part(price, work.rows[work.unread == share], share) for share in np.unique(work.unread).tolist()]
    products = work.ops[events.exactly(*PRODUCTS)[work.ops]]
    one = Equivalent(
        parts=tuple(parts),
        how=_HOW,
        ops="long",
        spent_us=sum(share * price.spent_us(rows) for rows, _, share in parts),
        shown=longest(events, products),
        at_most="high",
    )
    others, fix = _others(work)
    if known := worth(price, lines, one, min_share):
        yield known.finding(
            f"Only {percent(work.read)} of the rows that layers{known.at} compute are read: {known.spent}, backward "
            f"pass included, is for rows {others}.",
            {"read_share": work.read, "unread_us": known.spent_us},
            fix,
        )


def _others(work: UnreadWork) -> tuple[str, Fix]:
    """What the other rows are, and the change."""
    if work.ignored:
        return "whose labels the loss ignores", _IGNORED
    return ("that masks multiply by zero", _CHOSEN) if work.masked else ("that no op reads", _TAKEN)


_TAKEN = Fix(
    "Select the rows before the layer",
    "numerics",
    "scores = head(x)\nloss = cross_entropy(scores[:, -1], labels)",
    "loss = cross_entropy(head(x[:, -1]), labels)",
)
_CHOSEN = Fix(
    "Let each expert compute the rows that were chosen for it",
    "numerics",
    "for i, expert in enumerate(experts):\n    out = out + expert(x) * (chosen == i).unsqueeze(-1)",
    "for i, expert in enumerate(experts):\n    mine = chosen == i\n    out[mine] = expert(x[mine])",
)
_IGNORED = Fix(
    "Compute the scores of labeled rows only",
    "numerics",
    "scores = head(x)\nloss = cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)",
    "kept = labels != -100\nloss = cross_entropy(head(x[kept]), labels[kept])",
)


_SCORES, _LABELS = [64, 4000], [64]


def _drawn(gpu: str = "", **changed: Any) -> Drawing:
    """Layers (F, A), the op that takes rows of the scores (R), the loss (L), and the nodes of loss and layer."""
    launches = "kernel" if gpu else None
    layer = [64, 96], [4000, 96], [4000]
    ops: dict[str, Any] = {
        "F": op("linear", *layer, number=1, launches=launches),
        "A": op("linear", *layer, number=2, launches=launches),
        "R": op("index", _SCORES, _LABELS, launches=""),
        "L": op("cross_entropy_loss", _SCORES, _LABELS, number=3, launches=launches),
        "X": node(3, launches=launches),
        "Z": node(2, launches=launches),
    }
    return two_steps("[F  ][A   ][R][L  ][X ][Z      ]", gpu=gpu, **(ops | changed))


def _facts(unread: list[tuple[int, int, float]], ignored: int | None = None, layer: str = "linear") -> dict[str, Any]:
    labels = [] if ignored is None else [{"labels": 64, "ignored": ignored, "classes": 4000}]
    return observed(f"linear {layer} index cross_entropy_loss", unread=unread) | {"loss_labels": labels}


EXAMPLES = [
    Example(
        "scores of all positions, of which an index takes a quarter",
        _drawn(),
        saves_us=(500, 1100),
        facts=_facts([(1, 2, 0.25)]),
        says=("Only 25 %", "that no op reads"),
    ),
    Example(
        "one of four experts, whose result a mask multiplies by zero in three of four rows",
        _drawn(R=op("mul", _SCORES, [64, 1], number=5, launches="")),
        saves_us=(500, 1100),
        facts=observed("linear linear mul cross_entropy_loss", unread=[(1, 2, 0.25)]) | {"loss_labels": []},
        says=("Only 25 %", "that masks multiply by zero"),
        fixes=("out[mine]",),
    ),
    Example(
        "a loss that ignores 54 of 64 labels",
        _drawn(),
        saves_us=(850, 2000),
        facts=_facts([(1, 3, 1.0)], 54),
        says=("Only 16 %", "whose labels the loss ignores"),
    ),
    Example(
        "the same beside a GPU",
        _drawn(gpu="   [K][K   ]   [K ][K  ][K     ]"),
        saves_us=(850, 2000),
        facts=_facts([(1, 3, 1.0)], 54),
    ),
    Example(
        "a loss that ignores the padding of a batch: most labels count",
        _drawn(),
        facts=_facts([(1, 3, 1.0)], 16),
        near_miss=True,
    ),
    Example("the scores are counted in full, too", _drawn(), None, _facts([], 54), near_miss=True),
    Example(
        "rows are taken before the layer, and after a normalisation",
        _drawn(A=op("layer_norm", _SCORES)),
        facts=_facts([(1, 2, 0.25)], layer="layer_norm"),
        near_miss=True,
    ),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]
