"""Python loop runs many small ops where one would do.

## What it looks at
Lines of the user's code that call the same op again and again within a step, each call so short that its cost is
the call itself and not the work. The lines are those that capture recorded; without them it is silent, and so it is
for the layers of a model, for what the loader does, and for the ops of the backward pass, which nobody calls.

## Why it costs time
Each op costs some microseconds of Python and dispatch, whatever its size. A loop over samples, time steps,
parameters or experts pays that for every element, and so does the backward pass through it.

## How to fix it
One op over a tensor with one dimension more: broadcasting, `torch.stack` and a batched product, `torch.where`
instead of `if`, `torch._foreach_*` (or `torch.nn.utils.clip_grad_norm_`, `foreach=True`) for lists of parameters,
`nn.LSTM` instead of a loop over `nn.LSTMCell`.

## When to leave it
Loops whose steps depend on each other in a way that no tensor op expresses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    GEMM,
    Breakdown,
    Category,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Links,
    Missing,
    Nesting,
    RankRecord,
    Scale,
    Source,
    Steps,
    Trace,
    draw,
)

from ._words import count, percent, time

# An op that takes longer than this on a CPU has work to do besides being called.
_SHORT_OP_US = 60.0
# A loop of fewer turns may be the layers of a model, which cannot be one op.
_TURNS = 16
# Ops with weights of their own: called no more often than there are weights, they are layers and no loop.
_LAYERS = ("aten::linear", "aten::conv", "aten::layer_norm", "aten::batch_norm", "aten::group_norm", "aten::embedding")


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    device: Device,
    lines: Lines,
    nesting: Nesting,
    links: Links,
    record: RankRecord | None,
    *,
    min_share: float = 0.05,  # rewriting a loop is work: less than 5 % of the step does not repay it
) -> Iterator[Finding]:
    if device.kind != "none" or breakdown.on_device:
        return
    if not lines.available:
        raise Missing(lines.why or "lines of the user's code are not recorded; capture the script with `advisor run`")
    bound_us = sum(breakdown.us(part) for part in ("forward", "backward", "other_ops", "host"))
    weights = sum(one.tensors or 0 for one in record.optimizers) if record else 0
    outside = _outside_loops(trace, breakdown)
    for where, rows in _by_line(trace, steps, lines, nesting, links, outside).items():
        turns, op = _turns(trace, rows, steps)
        if 0 < _layers(trace, rows, steps) <= weights:
            continue
        events = trace.events
        place = f"{where.file.rpartition('/')[2]}:{where.line}"
        own_us = steps.per_step_us(float(events.dur_ns[rows].sum()))
        mean_us = own_us * steps.count / len(rows)
        # A cell of an LSTM is one call and a dozen ops: what counts as short is an op, with those inside it told apart.
        inner = int(np.isin(nesting.outer_op, rows).sum())
        short = own_us * steps.count / max(inner, 1) <= _SHORT_OP_US
        if turns < _TURNS or not short or own_us < min_share * steps.step_us:
            continue
        whole_us = own_us * (1 + _backward_share(trace, rows, breakdown))
        high_us = min(whole_us * (1 - 1 / turns), bound_us)
        yield Finding(
            message=(
                f"{place} runs `{op}` {count(turns)} times a step, {time(mean_us)} a call: the ops of that line take "
                f"{time(scale.scaled(own_us))} of each step ({percent(own_us / steps.step_us)})."
            ),
            saving=scale.saving(
                0.0,
                high_us,
                "high: all turns in the time of one, with their part of the backward pass; low: no tensor op does it",
            ),
            where=(where,),
            facts={"turns": turns, "ops_us": own_us, "backward_us": whole_us - own_us, "mean_op_us": mean_us, "op": op},
            fix=Fix(
                "Replace the loop by ops over all elements at once",
                "numerics",
                "total = sum((p.grad ** 2).sum() for p in model.parameters())",
                "norms = torch._foreach_norm([p.grad for p in model.parameters()])\n"
                "total = torch.stack(norms).square().sum()",
            ),
            claims=("forward", "backward", "other_ops", "host"),
            at_most="medium",
        )


def _inside(
    trace: Trace, rows: np.ndarray[tuple[int], np.dtype[np.int64]], breakdown: Breakdown, part: str
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the rows start in this part of the breakdown."""
    spans = breakdown.intervals.get(part)
    if spans is None or not len(spans):
        return np.zeros(len(rows), np.bool_)
    starts = trace.events.start_ns[rows]
    place = np.searchsorted(spans[:, 0], starts, side="right") - 1
    inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (place >= 0) & (starts < spans[place, 1])
    return inside


def _outside_loops(trace: Trace, breakdown: Breakdown) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows that no loop of the user's runs: the loader's, and those of the backward pass."""
    every = np.arange(len(trace.events))
    return _inside(trace, every, breakdown, "input") | _inside(trace, every, breakdown, "backward")


def _backward_share(trace: Trace, rows: np.ndarray[tuple[int], np.dtype[np.int64]], breakdown: Breakdown) -> float:
    """Backward time that these ops cause, per time of their own: as in the whole step, where they are forward ops."""
    forward_us = breakdown.us("forward")
    if not forward_us or _inside(trace, rows, breakdown, "forward").mean() < 0.5:
        return 0.0
    return float(breakdown.us("backward") / forward_us)


def _layers(trace: Trace, rows: np.ndarray[tuple[int], np.dtype[np.int64]], steps: Steps) -> float:
    """Calls a step of ops that have weights."""
    names = trace.events.names
    calls = sum(names[name].startswith(_LAYERS) for name in trace.events.name[rows].tolist())
    return float(calls / steps.count)


def _by_line(
    trace: Trace,
    steps: Steps,
    lines: Lines,
    nesting: Nesting,
    links: Links,
    outside: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> dict[Source, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The outermost ops of the loop's thread by the user's line that called them."""
    events = trace.events
    outermost = events.of(Category.CPU_OP) & (nesting.outer_op == np.arange(len(events))) & ~outside
    rows = np.flatnonzero(outermost & (events.thread == steps.main_thread) & (links.step >= 0))
    found: dict[Source, list[int]] = defaultdict(list)
    for row in rows.tolist():
        where = lines.where_op(row)
        if where is not None and where.precision == "call":
            found[where].append(row)
    return {where: np.array(rows, np.int64) for where, rows in found.items()}


def _turns(trace: Trace, rows: np.ndarray[tuple[int], np.dtype[np.int64]], steps: Steps) -> tuple[float, str]:
    """How often a step calls the op that the line calls most, and that op."""
    names = Counter(trace.events.name[rows].tolist())
    name, calls = names.most_common(1)[0]
    return calls / steps.count, trace.events.names[name].removeprefix("aten::")


def _loop(times: int, line: int) -> Ev:
    return Ev("aten::mul", times=times, args={"Call stack": f"train.py({line}): <module>"})


# A second line of the same file tells that the numbers are lines of calls.
_AFTER = Ev(BACKWARD.name, args={"Call stack": "train.py(35): <module>"})


EXAMPLES = [
    Example(
        "a loop over forty elements",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            """,
            us=50,
            L=_loop(40, 31),
            B=_AFTER,
        ),
        saves_us=(0, 1130),
        says=("train.py:31", "`mul` 40 times a step"),
    ),
    Example(
        "eight layers, each called once",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            """,
            us=50,
            L=_loop(8, 31),
            B=_AFTER,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "forty layers, called by one line of the script",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            """,
            us=50,
            L=Ev("aten::linear", times=40, args={"Call stack": "train.py(31): <module>"}),
            B=_AFTER,
        ),
        facts={"optimizers": [{"name": "SGD", "tensors": 80}]},
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "forty samples through one layer, one by one",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            """,
            us=50,
            L=Ev("aten::linear", times=40, args={"Call stack": "train.py(31): <module>"}),
            B=_AFTER,
        ),
        facts={"optimizers": [{"name": "SGD", "tensors": 2}]},
        saves_us=(0, 1300),
        says=("`linear` 40 times a step",),
    ),
    Example(
        "forty calls that have work to do",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            """,
            us=1000,
            L=_loop(40, 31),
            B=_AFTER,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "one op over all elements",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            """,
            us=50,
            L=_loop(1, 31),
            B=_AFTER,
        ),
        saves_us=None,
    ),
    Example(
        "the same loop beside a GPU is a matter of its launches",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            gpu 7                [K     ]                 [K     ]
            """,
            us=50,
            L=Ev("aten::mul", times=40, launches="", args={"Call stack": "train.py(31): step"}),
            B=_AFTER,
            K=GEMM,
        ),
        saves_us=None,
        near_miss=True,
    ),
]
