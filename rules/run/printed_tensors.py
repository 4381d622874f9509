"""Tensors are turned into text in every step.

## What it looks at
The ops by which PyTorch formats a floating-point tensor (`torch/_tensor_str.py`): it selects the finite values that are
not zero, takes their least and their largest, and reads the shown values one by one.

## Why it costs time
The text of a tensor takes 27 ops if it holds one value, 70 if it holds twelve, and 200 from a thousand values on
(torch 2.14), and most of them are followed by Python. An f-string is formatted before `logger.debug` is called, whether
that level is on or not. On a GPU, each value that is read is waited for as well.

## How to fix it
Give the logger the tensor and not its text: `logger.debug("update %s", update)` formats only what is logged. Print a
few numbers (`update.norm().item()`) every so many steps instead of whole tensors.

## When to leave it
While you look for an error, and where a text is made once in many steps: what is shown here is the mean of the recorded
ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import D2H_PAGEABLE, Drawing, Ev, Example, Finding, Fix, Lines, Price, draw

from ..shared._examples import op
from ..shared._runs_of_ops import priced
from ..shared._tensor_texts import texts
from ..shared._words import plural

CONFIRMED = "measured pairs on a CPU: debug messages about a batch, in a forward pass and in an optimizer"

_CLAIMS = ("forward", "optimizer", "other_ops", "host")
_HOW = "low: the ops of the text and the Python between them; high: with as much around them, up to the next ops"
_FIX = Fix(
    "Give the logger tensors, not their text, or log a few numbers every N steps",
    "exact",
    'logger.debug(f"update {update}")',
    'logger.debug("update %s", update)  # formatted only if this level is on',
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # one line to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    if found := priced(price, lines, texts(price.ops.events, price.ops.outermost), _CLAIMS, _HOW, min_share):
        yield found.finding(
            f"{plural(found.times, 'tensor')} {'is' if found.times == 1 else 'are'} turned into text in each step"
            f"{found.at}: {found.spent}, whether the text is shown or not.",
            {"texts": found.times, "spent_us": found.spent_us},
            _FIX,
        )


# Of a tensor with one value.
_OPS = "reshape isfinite ne __and__ masked_select abs to min to max to unbind ceil ne is_nonzero detach item"
_WORDS = {name: chr(ord("a") + place) for place, name in enumerate(dict.fromkeys(_OPS.split()))}


def _drawn(of: str = _OPS) -> Drawing:
    """Two steps on a CPU, with these ops before the backward pass."""
    ops = "".join(f"[{_WORDS[name]}]" for name in of.split())
    step = f"[F    ]{ops} [B    ]"
    text = f"step [1{'':{len(step)}}][2{'':{len(step)}}]\ncpu  {step}   {step}"
    drawn: dict[str, Any] = {_WORDS[name]: op(name, [64]) for name in of.split()}
    return draw(text, us=100, **drawn)


EXAMPLES = [
    Example("a tensor is turned into text in each step", _drawn(), saves_us=(4000, 6500), says=("1 tensor is turned",)),
    Example(
        "finite values are selected, and nothing is read",
        _drawn("reshape isfinite masked_select abs min max"),
        near_miss=True,
    ),
    Example("a number is read in each step", _drawn("detach item")),
    Example(
        "beside a GPU, where the host waits for each value",
        draw(
            """
            step   [1                                      ][2                                      ]
            cpu    [F ][i][n][a][m           ][B    ]       [F ][i][n][a][m           ][B    ]
            gpu 7   [K           ][E][E][E]  [C][K   ]       [K           ][E][E][E]  [C][K   ]
            """,
            us=100,
            i=op("isfinite", [64], launches="kernel"),
            n=op("ne", [64], launches="kernel"),
            a=op("__and__", [64], launches="kernel"),
            m=Ev("aten::masked_select", launches="memcpy", blocks=True),
            C=D2H_PAGEABLE,
        ),
        saves_us="unknown",
        says=("1 tensor is turned",),
    ),
]
