"""Python loop runs many small ops where one would do.

## What it looks at
Lines of the user's code that call the same op again and again within a step, each call so short that its cost is
the call itself and not the work. Lines beside them that run as often belong to the loop, and so does the part of the
backward pass that its ops cause. The lines are those that capture recorded; without them it is silent, and so it is
for the layers of a model, for what the loader does, and for loops inside a library.

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
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

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
    LineCost,
    LineCosts,
    Links,
    Nesting,
    RankRecord,
    Scale,
    Steps,
    Trace,
    Undilated,
    draw,
)

from ._blocks import Block, blocks, is_python
from ._words import count, percent, time

CONFIRMED = "measured pairs on a CPU: an average of weights, a contrastive loss, triplets, a mask, an LSTM, experts"

# An op that takes longer than this on a CPU has work to do besides being called.
_SHORT_OP_US = 60.0
# A loop of fewer turns may be the layers of a model, which cannot be one op.
_TURNS = 16
# Ops with weights of their own: called no more often than there are weights, they are layers and no loop.
_LAYERS = ("aten::linear", "aten::conv", "aten::layer_norm", "aten::batch_norm", "aten::group_norm", "aten::embedding")
# What the one op needs that takes the loop's place: up to three tenths of the loop in most measured rewrites.
_MOST_KEPT = 0.3
# Lines of Python this near to a loop are part of what it is for.
_BESIDE = 2
# Lines around the loop's own belong to it when they run at least half as often.
_AS_OFTEN = 0.5

Ints = npt.NDArray[np.int64]


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    device: Device,
    costs: LineCosts,
    undilated: Undilated,
    nesting: Nesting,
    links: Links,
    record: RankRecord | None,
    *,
    min_share: float = 0.05,  # rewriting a loop is work: less than 5 % of the step does not repay it
) -> Iterator[Finding]:
    if device.kind != "none" or breakdown.on_device:
        return
    weights = sum(one.tensors or 0 for one in record.optimizers) if record else 0
    loops = _loops(trace, steps, costs, _outermost(trace, steps, nesting, links, breakdown), weights)
    for place in blocks([*(costs.lines[index] for index in loops), *_around(costs, loops)]):
        mine = [index for index in loops if costs.lines[index] in place.lines]
        if not mine or place.share(undilated)[1] < min_share:
            continue
        turns, op = max(loops[index] for index in mine)
        yield _finding(place, turns, op, undilated, scale, steps)


def _finding(place: Block, turns: float, op: str, undilated: Undilated, scale: Scale, steps: Steps) -> Finding:
    saving = place.saving(
        undilated,
        scale,
        (1 / turns, _MOST_KEPT),
        "high: all turns, and what they cost in the backward pass, in the time of one; low: three tenths stay, as "
        "in measured rewrites; nothing where each turn needs the result of the last and no op does that",
    )
    behind = f", and {time(scale.scaled(place.backward_us))} in the backward pass" if place.backward_us else ""
    return Finding(
        message=(
            f"{place.place} runs `{op}` {count(turns)} times a step: the loop takes "
            f"{time(scale.scaled(place.us))} of each step ({percent(place.us / steps.step_us)}){behind}."
        ),
        saving=saving,
        where=place.where,
        facts={"turns": turns, "loop_us": place.us, "backward_us": place.backward_us, "op": op},
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


def _outermost(trace: Trace, steps: Steps, nesting: Nesting, links: Links, breakdown: Breakdown) -> Ints:
    """Ops that a line of the loop's thread called itself: not the loader's, the optimizer's or the backward pass's."""
    events = trace.events
    rows = events.of(Category.CPU_OP) & (nesting.outer_op == np.arange(len(events))) & (links.step >= 0)
    found = np.flatnonzero(rows & (events.thread == steps.main_thread))
    starts = events.start_ns[found]
    for part in ("input", "backward", "optimizer"):
        spans = breakdown.intervals.get(part)
        if spans is not None and len(spans):
            at = np.searchsorted(spans[:, 0], starts, side="right") - 1
            outside = (at < 0) | (starts >= spans[np.maximum(at, 0), 1])
            found, starts = found[outside], starts[outside]
    return found


def _loops(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints, weights: int) -> dict[int, tuple[float, str]]:
    """Lines that call one short op again and again: index of the line -> (calls a step, op)."""
    events = trace.events
    by_line: dict[int, list[int]] = defaultdict(list)
    for row, line in zip(rows.tolist(), costs.op_line[rows].tolist(), strict=True):
        if line >= 0 and costs.lines[line].source.precision == "call":
            by_line[line].append(row)
    found = {}
    for line, called in by_line.items():
        names = Counter(events.name[called].tolist())
        name, calls = names.most_common(1)[0]
        cost = costs.lines[line]
        # A turn may call the op twice: a line turns no more often than it runs, unless its turns are a comprehension's.
        turns = calls / steps.count if cost.inner else min(calls / steps.count, cost.visits)
        layers = sum(n for i, n in names.items() if events.names[i].startswith(_LAYERS)) / steps.count
        mean_us = float(events.dur_ns[called].sum()) / 1e3 / max(costs.lines[line].rows * steps.count, 1.0)
        # One visit and many ops: a library's loop (clipping, copying a state), which the user did not write.
        written = not is_python(cost) and (cost.inner or cost.visits >= _AS_OFTEN * calls / steps.count)
        if turns >= _TURNS and written and mean_us <= _SHORT_OP_US and not 0 < layers <= weights:
            found[line] = (turns, events.names[name].removeprefix("aten::"))
    return found


def _around(costs: LineCosts, loops: Mapping[int, tuple[float, str]]) -> Iterator[LineCost]:
    """Other lines of the loops' files that run as often as a loop turns: its head, its counters, its conditions."""
    turns: dict[str, float] = {}
    for index, (often, _) in loops.items():
        file = costs.lines[index].source.file
        turns[file] = min(often, turns.get(file, often))
    for index, line in enumerate(costs.lines):
        often = turns.get(line.source.file, 0.0)
        if not often or index in loops or line.parts.get("optimizer"):
            continue
        # Python that costs less than the loop and stands beside it does what the loop does; more of it is host-work's.
        beside = any(
            abs(costs.lines[one].source.line - line.source.line) <= _BESIDE and line.us < costs.lines[one].us
            for one in loops
            if costs.lines[one].source.file == line.source.file
        )
        belongs = beside if is_python(line) else line.visits >= _AS_OFTEN * often
        if belongs:
            yield line


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
