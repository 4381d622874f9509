"""Python between ops takes a visible part of the step.

## What it looks at
On machines without an accelerator: time of the loop's own thread in which no op, no fetch and no optimizer runs,
only Python, with the user's lines that ran meanwhile where capture recorded them. (With an accelerator such time
matters only where the device idles; that is the rule idle-gpu.)

## Why it costs time
Python handles one number at a time. A loop over samples, a conversion to lists, a metric in pure Python, a
checkpoint or a log line takes as long as many tensor ops, and the cores that could compute wait for it.

## How to fix it
Replace loops over elements by tensor ops over the batch. Do logging, metrics and checkpoints every N steps. Prepare
data in the dataset, where loader workers run it beside the step.

## When to leave it
Work that the training needs at that place and that is fast already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Breakdown,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    HostGaps,
    Lines,
    LineTime,
    Scale,
    Source,
    Steps,
    draw,
)

from ._words import percent, time

# Between two ops of a layer lie 3 to 20 µs of Python that no script can avoid; work that somebody wrote takes longer.
_LONG_GAP_NS = 30_000
# More than the three most expensive lines is a profile, not advice.
_LINES = 3


def check(
    gaps: HostGaps,
    device: Device,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # every loop has a few per cent of Python that nobody can avoid
    min_spread: float = 0.15,  # well-written scripts have 5 to 12 % of it spread over all their lines
) -> Iterator[Finding]:
    # Beside an accelerator, known or not, the loop may do without loss what the device hides.
    if breakdown.on_device or device.kind != "none":
        return
    long = gaps.spans[gaps.spans[:, 1] - gaps.spans[:, 0] >= _LONG_GAP_NS]
    bound_us = min(breakdown.us("host"), steps.per_step_us(float((long[:, 1] - long[:, 0]).sum())))
    if bound_us < min_share * steps.step_us:
        return
    top = _by_place(lines.hot(long)) if lines else ()
    costly = [line for line in top[:_LINES] if line.us >= min_share * steps.step_us]
    for line in costly:
        yield _finding(min(line.us, bound_us), _place(line), (line.source,), steps, scale)
    if not costly and (not top or bound_us >= min_spread * steps.step_us):
        yield _finding(bound_us, _places(top), tuple(line.source for line in top[:_LINES]), steps, scale)


def _by_place(lines: tuple[LineTime, ...]) -> tuple[LineTime, ...]:
    """One entry for each line, most expensive first: a comprehension and its function are the same line twice."""
    places: dict[tuple[str, int], LineTime] = {}
    for line in lines:
        key = (line.source.file, line.source.line)
        seen = places.get(key)
        places[key] = replace(seen, us=seen.us + line.us, calls=max(seen.calls, line.calls)) if seen else line
    return tuple(sorted(places.values(), key=lambda line: -line.us))


def _finding(us: float, what: str, where: tuple[Source, ...], steps: Steps, scale: Scale) -> Finding:
    taken = f"{time(scale.scaled(us))} of each step ({percent(us / steps.step_us)})"
    return Finding(
        message=f"Python between ops takes {taken}{what}.",
        saving=scale.saving(0.0, us, "all of it, if the work can leave the loop or become tensor ops; else nothing"),
        where=where,
        facts={"python_us": us},
        fix=Fix("Do this with tensor ops, or less often, or in the dataset", "exact"),
        claims=("host",),
    )


def _place(line: LineTime) -> str:
    source = line.source
    place = f"{source.file.rpartition('/')[2]}:{source.line}"
    named = source.function and not source.function.startswith("<")
    said = f" at {place}" + (f", in `{source.function}`" if named else "")
    return said + (" (the line is where the function starts)" if source.precision == "function" else "")


def _places(lines: tuple[LineTime, ...]) -> str:
    if lines:
        return f", spread over many lines, the largest{_place(lines[0])}"
    return "; capture with `advisor run` to get its lines"


_STEPS = """
    step   [1                     ][2                     ]
    cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
    """

EXAMPLES = [
    Example(
        "a loop over the samples in the middle of the step",
        draw(_STEPS, us=100, P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD),
        saves_us=(0, 900),
        says=("`accuracy`", "train.py:31"),
    ),
    Example(
        "Python that nothing names",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F   ]         [B      ][F   ]         [B      ]
            """,
            us=100,
            F=FORWARD,
            B=BACKWARD,
        ),
        saves_us=(0, 1000),
        says=("advisor run",),
    ),
    Example(
        "the same function beside a GPU that it keeps from nothing",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
            gpu 7   [K                   ][K      ][K           ][K]
            """,
            us=100,
            P=Ev("train.py(31): accuracy"),
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "ops side by side",
        draw("step [1        ][2        ]\ncpu  [F  ][B   ][F  ][B   ]", us=1000, F=FORWARD, B=BACKWARD),
        saves_us=None,
    ),
]
