"""The head scores classes that no label names.

## What it looks at
Cross entropies whose labels, in the step that `advisor run` looked at, all lie in the first quarter of the classes that
are scored or below, although there are ten labels or more for each class up to the largest of them. Counted are the
layer that computes the scores, the loss, and the backward pass of both.

## Why it costs time
Each class is a column of the scores: of the product with the head's weights, of the softmax, and of their gradients. A
configuration's default vocabulary of 50,257 tokens beside a tokenizer of a hundred, as of characters, makes the head
the largest part of a small model, and its weights and optimizer states, too.

## How to fix it
Make the model with as many classes as labels can name: `vocab_size=len(tokenizer)`, rounded up to a multiple of 8 or 64
for tensor cores. What was trained before has to be trained again, or its rows are to be copied.

## When to leave it
Labels that occur seldom, or that only later data have. A pretrained head whose other classes are needed. Datasets
sorted by class, whose batches hold only a few of them: shuffle them instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Drawing,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    LossLabels,
    Price,
    RankRecord,
    by_dims,
    with_backward,
)

from ...shared._examples import node, op, two_steps
from ...shared._places import first_of, set_at
from ...shared._words import count
from .._equivalent import Equivalent, worth
from ._unread_rows import AT_LEAST, PRODUCTS

CONFIRMED = ""

_SCORES = ("aten::cross_entropy_loss", "aten::log_softmax", "aten::softmax", "aten::float", "aten::to")
# A head's layer, and one more where scores are computed twice: where more layers are as wide, the number of classes is
# that of the model's features, too, and does not tell which ops are the head's.
_MOST_LAYERS = 2
_HOW = "low: half of that work, since a narrower product is less efficient; high: it shrinks with the classes"


def check(
    price: Price,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # another head has to be trained: not worth it below 5 % of the step
    most_used: float = 0.25,  # of the classes: a vocabulary for more languages than one batch holds is no fault
    least_labels: int = 10,  # for each class up to the largest label: what is used at all would be among them
) -> Iterator[Finding]:
    known = [one for one in record.loss_labels if one.largest is not None] if record else []
    seen = max(known, key=lambda one: one.classes, default=None)
    if seen is None or seen.largest is None:
        return
    named = [one.largest + 1 for one in known if one.classes == seen.classes and one.largest is not None]
    used, labels = max(named), sum(one.labels - one.ignored for one in known if one.classes == seen.classes)
    if used > most_used * seen.classes or labels < least_labels * used:
        return
    rows = _head(price, seen)
    if not len(rows):
        return
    goes = 1 - used / seen.classes
    events = price.ops.events
    one = Equivalent(
        parts=((rows, AT_LEAST * goes, goes),),
        how=_HOW,
        ops="long",
        shown=rows[np.argsort(-events.dur_ns[rows], kind="stable")],
    )
    if told := worth(price, lines, one, min_share):
        found = told.finding(
            f"The largest of {count(labels)} labels is {used - 1}, and scores of {count(seen.classes)} classes are "
            f"computed{told.at}: {told.spent}, backward pass included.",
            {"classes": seen.classes, "largest_label": used - 1, "labels": labels, "spent_us": told.spent_us},
            Fix(
                "Make the model with as many classes as labels can name",
                "semantics",
                f"config = GPT2Config(vocab_size={seen.classes})",
                "config = GPT2Config(vocab_size=len(tokenizer))",
            ),
        )
        yield replace(found, where=first_of(set_at(record.settings if record else None, "vocab_size"), found.where))


def _head(price: Price, seen: LossLabels) -> Ints:
    """The layer that computes the scores of these classes, what works on them, and the backward pass of all of it."""
    ops, events = price.ops, price.ops.events

    def layers(dims: list[Any]) -> bool:
        return any(len(one) == 2 and seen.classes in one for one in _plain(dims))

    def scores(dims: list[Any]) -> bool:
        return any(one and one[-1] == seen.classes for one in _plain(dims))

    made = _with(events, ops.outermost_named(*PRODUCTS), layers)
    read = _with(events, ops.outermost_named(*_SCORES), scores)
    if not len(made) or not len(read) or len(made) > _MOST_LAYERS * ops.steps.count:
        return np.empty(0, np.int64)
    forward = np.concatenate((made, read))
    return with_backward(events, forward)


def _plain(dims: list[Any]) -> list[list[int]]:
    return [one for one in dims if isinstance(one, list) and all(isinstance(size, int) for size in one)]


def _with(events: Events, rows: Ints, wanted: Any) -> Ints:
    return rows[by_dims(events, rows, wanted).astype(bool)] if len(rows) else rows


_N, _CLASSES = 256, 5000


def _drawn(width: int = 64) -> Drawing:
    """A body of two layers (F, G), the head (A), the loss (L), and their nodes."""
    ops: dict[str, Any] = {
        "F": op("linear", [_N, width], [width, width], number=1),
        "G": op("linear", [_N, width], [width, width], number=4),
        "A": op("linear", [_N, width], [_CLASSES, width], number=2),
        "L": op("cross_entropy_loss", [_N, _CLASSES], [_N], number=3),
        "X": node(3),
        "Z": node(2),
        "V": node(4),
        "W": node(1),
    }
    return two_steps("[F  ][G  ][A    ][L  ][X ][Z      ][V ][W ]", **ops)


def _facts(largest: int | None, labels: int = _N) -> dict[str, Any]:
    return {"loss_labels": [{"labels": labels, "ignored": 0, "classes": _CLASSES, "largest": largest}]}


EXAMPLES = [
    Example(
        "twenty-three tokens, and scores of 5,000",
        _drawn(),
        saves_us=(1000, 2500),
        facts=_facts(22),
        says=("The largest of 256 labels is 22", "5,000 classes"),
        fixes=("as many classes",),
    ),
    Example("labels up to the last class", _drawn(), None, _facts(4_811)),
    Example("few labels for each class up to the largest", _drawn(), None, _facts(600), near_miss=True),
    Example(
        "features as wide as there are classes, so that the head is not known",
        _drawn(_CLASSES),
        facts=_facts(22),
        near_miss=True,
    ),
    Example("an earlier recording", _drawn(), None, {"loss_labels": [{"labels": 256, "ignored": 0, "classes": 5000}]}),
]
