"""Python loop runs many small ops where one would do.

## What it looks at
Lines of the user's code that call the same op again and again within a step, each call so short that its cost is
the call itself and not the work. Lines beside them that run as often belong to the loop, and so do the functions that
these call, and the part of the backward pass that their ops cause. The lines are those that capture recorded; without
them it is silent, and so it is for the layers of a model, for what the loader does, and for loops inside a library,
except one that reads tensors number by number: formatting a tensor does that, for a log whose level is off as well.
Python in the same turns belongs to the loop where ops take more of it. What the ops take beyond a bare call of this
run is work, which may stay; where a mask picks the elements of each turn, ops over all of them may do far more of it.
Which ops of a turn read what the turn before made stands in no profile; `advisor run` looks at it in two steps of its
own. What waits so stays, and a recurrence that no op does is no finding. What needs no turn before it, or what no later
turn needs, can leave such a loop; sums, running maxima and tables that turns fill are no reason to wait.

## Why it costs time
Each op costs some microseconds of Python and dispatch, whatever its size. A loop over samples, time steps,
parameters or experts pays that for every element, and so does the backward pass through it.

## How to fix it
One op over a tensor with one dimension more: broadcasting, `torch.stack` and a batched product, `torch.where`
instead of `if`, `torch._foreach_*` (or `torch.nn.utils.clip_grad_norm_`, `foreach=True`) for lists of parameters,
`nn.LSTM` instead of a loop over `nn.LSTMCell`. Numbers are read at once with `.tolist()`, and a message is put together
only where somebody will read it.

Of a recurrence: what the input alone decides is computed for all times before it, and what reads its states after it.

## When to leave it
Loops whose steps depend on each other in a way that no tensor op expresses. Turns that run a backward pass each
through one forward pass, as for a Jacobian: `torch.func.vmap` does them at once, and is slow where it has no rule for
an op.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    BACKWARD,
    GEMM,
    MOST_KEPT,
    Block,
    Breakdown,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Loop,
    LoopPlaces,
    Saving,
    Scale,
    Steps,
    Turn,
    Turns,
    Undilated,
    draw,
)

from ..shared._side_effect_factors import BESIDES
from ..shared._words import count, percent, time

CONFIRMED = "measured pairs on a CPU: an average of weights, a contrastive loss, triplets, a mask, an LSTM, experts"


_HIGH = "high: all turns, what they cost in the backward pass and what they push out of the caches, in the time of one"
_HIGH_PARTLY = "high: what no turn before decides, in all turns at once; {stays} of it stays, since it waits for that"
_LOW = "low: what their ops take beyond being called stays, or three tenths, as in measured rewrites"
# Why nothing is certain.
_PICKS = (
    "each turn picks its elements by a mask, and ops over all elements at once do the arithmetic of each turn for all "
    "of them; sorted by turn first, each element is worked on once"
)
_BACKWARD = (
    "each turn runs a backward pass through one forward pass, and `vmap` over these runs ops that it has no rule for "
    "one by one"
)
_NUMBERS = "numbers that a turn reads go through Python, where the next turn may need them"
_NOT_SEEN = "whether a turn needs the result of the last was not recorded; then no op does them all"
_MOSTLY_STAYS = "most of the loop waits for the turn before, so that the rest has to be taken out of it"
# A part of the place's time that is more than chance.
_VISIBLE = 0.1
_AT_ONCE = Fix(
    "Replace the loop by ops over all elements at once",
    "numerics",
    "total = sum((p.grad ** 2).sum() for p in model.parameters())",
    "norms = torch._foreach_norm([p.grad for p in model.parameters()])\ntotal = torch.stack(norms).square().sum()",
)
_READ_AT_ONCE = Fix(
    "Format tensors only where somebody reads it, and read numbers with one .tolist()",
    "exact",
    'log.debug(f"loss {loss}, outputs {outputs}")',
    'if log.isEnabledFor(logging.DEBUG):\n    log.debug(f"loss {loss}, outputs {outputs}")',
)


def check(
    places: LoopPlaces,
    turns: Turns,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    device: Device,
    undilated: Undilated,
    *,
    min_share: float = 0.05,  # rewriting a loop is work: less than 5 % of the step does not repay it
) -> Iterator[Finding]:
    if device.kind != "none" or breakdown.on_device:
        return
    for (place, loop), turn in zip(places.ops, turns.of, strict=True):
        if place.less(turn.stays).share(undilated)[1] >= min_share:
            yield _finding(place, loop, turn, undilated, scale, steps)


def _saving(place: Block, loop: Loop, turn: Turn, undilated: Undilated, scale: Scale) -> Saving:
    goes = place.less(turn.stays)
    low, high = goes.share(undilated)
    # Long ops are not made longer by the profiler: their time is that of the real step.
    beyond = (goes.beyond_us or 0.0) / undilated.plain_us
    least = min(low * (1 - MOST_KEPT), max(low - beyond, 0.0))
    stays = 1 - goes.us / place.us if place.us else 0.0
    how = [_HIGH if stays < _VISIBLE else _HIGH_PARTLY.format(stays=percent(stays)), _LOW]
    if doubt := _doubt(loop, turn, stays):
        least, how[1] = 0.0, f"low: nothing, since {doubt}"
    return Saving(
        least * scale.step_us,
        min(high * (1 if turn.known else 1 - 1 / loop.turns) * BESIDES, 1.0) * scale.step_us,
        "modelled",
        "; ".join(how),
    )


def _doubt(loop: Loop, turn: Turn, stays: float) -> str:
    """Why it may be that nothing is gained; empty where something is."""
    if loop.picks:
        return _PICKS
    if loop.reads:
        return ""  # what a library reads for a text, no turn needs
    if turn.reads:
        return _NUMBERS
    if loop.derives:
        return _BACKWARD
    if not turn.known:
        return _NOT_SEEN
    return _MOSTLY_STAYS if 2 * stays > 1 else ""


def _finding(place: Block, loop: Loop, turn: Turn, undilated: Undilated, scale: Scale, steps: Steps) -> Finding:
    behind = f", and {time(scale.scaled(place.backward_us))} in the backward pass" if place.backward_us else ""
    does = f"runs `{loop.op}` {count(loop.turns)} times a step: the loop"
    if loop.reads:
        does = f"reads single numbers of tensors {count(loop.turns)} times a step, inside a library: that"
    return Finding(
        message=(
            f"{place.place} {does} takes "
            f"{time(scale.scaled(place.us))} of each step ({percent(place.us / steps.step_us)}){behind}."
        ),
        saving=_saving(place, loop, turn, undilated, scale),
        where=place.where,
        facts={"turns": loop.turns, "loop_us": place.us, "backward_us": place.backward_us, "op": loop.op},
        fix=_READ_AT_ONCE if loop.reads else _AT_ONCE,
        claims=("forward", "backward", "other_ops", "host"),
        at_most="medium",
    )


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
