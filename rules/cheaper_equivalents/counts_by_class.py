"""Elements are counted by one pass over all of them for each class.

## What it looks at
Loops that compare whole arrays or tensors with the loop's variable and add up where they are equal, four times a step
or more: `np.sum((truth == i) & (guess == j))` for each pair of classes. `advisor run` reads from the script's text
which lines do nothing but that, and measures what they take. A comparison that also selects elements
(`values[label == c].mean()`) does not count.

## Why it costs time
Each pass reads every element and writes an array of comparisons, for one number. With twelve classes a confusion
matrix takes 144 such passes.

## How to fix it
`np.bincount(classes * truth + guess, minlength=classes**2)`, or `torch.bincount`, counts all pairs in one pass over the
data. Counts of one class are sums of its rows and columns: what is in both is the diagonal, what is in either the row
plus the column minus the diagonal.

## When to leave it
Labels that are no small whole numbers. `bincount` ignores no label: leave out ignored elements
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from advisor.api import Ev, Example, Finding, Fix, LineCost, LineCosts, Price, RankRecord, constant, draw, together

from ..shared._places import place
from ..shared._words import each_step, often

# How many such passes one bincount takes.
_BINCOUNT = constant("share.bincount_passes").range
# Fewer passes take about as long as one bincount.
_LEAST = 4
_FIX = Fix(
    "Count all pairs of classes at once with `bincount`",
    "exact",
    "for i in range(classes):\n"
    "    for j in range(classes):\n"
    "        matrix[i, j] += np.sum((truth == i) & (guess == j))",
    "pairs = np.bincount(classes * truth.ravel() + guess.ravel(), minlength=classes**2)\n"
    "matrix += pairs.reshape(classes, classes)",
)


class _Counts(Struct, frozen=True):
    """One loop that counts: its lines, those that count first, then its statements; passes per step."""

    lines: tuple[LineCost, ...]
    passes: float


def check(
    price: Price,
    costs: LineCosts,
    record: RankRecord | None,
    *,
    min_share: float = 0.03,  # three lines to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    for one in _loops(costs, record):
        low, high = price.deprofiled.share(together([line.work for line in one.lines]))
        fewest, most = _BINCOUNT
        if high < min_share:
            continue
        us = sum(line.us for line in one.lines)
        where = one.lines[0].source
        yield Finding(
            f"{often(round(one.passes)).capitalize()}, all elements are compared with a class to count those that are "
            f"equal{place(where)}: {each_step(price, us)}, for what one `bincount` gives.",
            price.shares(
                low * (1 - most / one.passes),
                high * (1 - fewest / one.passes),
                f"these lines without {fewest:.2g} to {most:.2g} of their passes, which one bincount took as long as",
                slowed=high - low,
            ),
            tuple(dict.fromkeys(line.source for line in (*one.lines[-2:], *one.lines[:-2]))),
            {"passes": one.passes, "lines_us": us},
            _FIX,
            claims=("host", "other_ops", "forward"),
        )


def _loops(costs: LineCosts, record: RankRecord | None) -> Iterator[_Counts]:
    """The loops that count, each with those inside of it."""
    known = costs.by_place
    for file, blocks in (record.blocks if record else {}).items():
        counts = [one for one in blocks if one.kind == "counts"]
        seen: set[int] = set()
        for head in sorted({one.line for one in counts}):
            spans = [(one.first, one.last) for one in counts if one.line == head]
            body = [at for first, last in spans for at in range(first, last + 1)]
            inner = {one.line for one in counts if one.first in body}
            lines = [known[file, at] for at in body if (file, at) in known and at not in seen]
            seen.update(body)
            passes = max((line.visits for line in lines), default=0.0)
            if passes >= _LEAST:
                heads = [known[file, at] for at in sorted(inner, reverse=True) if (file, at) in known]
                yield _Counts((*sorted(lines, key=lambda line: -line.us), *heads), passes)


_STEPS = """
    step   [1                     ][2                     ]
    cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
    """


def _facts(kind: str = "counts") -> dict[str, Any]:
    """A script with a loop at line 30, whose line 31 counts."""
    return {"blocks": {"train.py": [["loop", 30, 31, 31], [kind, 30, 31, 31]]}}


def _drawn(times: int) -> Any:
    """Two steps, with so many calls of line 31 between the forward and the backward pass."""
    boxes = "".join("[P]" for _ in range(times))
    width = len(boxes) + 15
    step = f"[F   ]{boxes}[B      ]"
    lanes = f"step   [1{'':{width - 3}}][2{'':{width - 3}}]\n    cpu    {step}{step}"
    return draw(f"\n    {lanes}\n    ", us=100, P=Ev("train.py(31): update"))


EXAMPLES = [
    Example(
        "a confusion matrix of four classes",
        _drawn(16),
        saves_us=(3900, 4600),
        facts=_facts(),
        says=("16 times a step", "train.py:31", "one `bincount`"),
    ),
    Example("a loop that does something else", _drawn(16), None, _facts("guard"), near_miss=True),
    Example("counts of two classes", _drawn(2), None, _facts(), near_miss=True),
    Example("no line counts", draw(_STEPS, us=100, P=Ev("train.py(31): update"))),
]
