"""A Python loop runs many small ops where one would do.

## What it looks at
Lines of the user's code that call the same op many times within a step, each call so short that its cost is the call
itself and not the work. Neighboring lines that run as often belong to the loop, and so do the functions that they call
and the part of the backward pass that their ops cause. The lines are those that capture recorded: without them the rule
reports nothing. Nor does it for the layers of a model, for what the loader does, and for loops inside a library, except
one that reads tensors element by element; the text of a tensor is reported by `printed-tensors`. Python in the same
iterations belongs to the loop if ops take more of the time. The time of ops beyond their call overhead, as measured in
this run, is work, which may remain; if a mask selects the elements of each iteration, ops over all of them may do far
more work, unless it compares for equality, as with labels. Profiles do not record which ops of an iteration read the
results of the previous one: `advisor run` observes it in two separate steps, or reads it in the text of the loop where
observing takes too long. What depends on the previous iteration remains, and a recurrence that no op implements is not
reported. Work that needs no previous iteration, or that no later one needs, can be moved out of such a loop; sums,
running maxima and tables that iterations fill do not count as dependencies. Ops on single numbers, as those that read
or write a tensor element by element, can be replaced whatever iterations depend on. If a step has too many ops for its
lines to be recorded, samples of the stack show the loop.

With a device what counts is how long it waits while the host is in such a loop, in runs of ops of neighboring lines; a
loop that the device hides costs nothing. Which iterations depend on each other is not observed there. Loops of a few
elementwise ops or norms over a list of tensors, such as a moving average of the weights, and recurrent cells that each
take their part of a sequence, are detected from the ops alone; their small kernels cost the device time as well.

## Why it costs time
Each op costs a few microseconds of Python and dispatch, regardless of its size. A loop over samples, time steps,
parameters or experts pays that for every element, and so does the backward pass through it.

## How to fix it
Use one op over a tensor with an additional dimension: broadcasting, `torch.stack` and a batched matrix multiplication,
`torch.where` instead of `if`, `torch._foreach_*` (or `torch.nn.utils.clip_grad_norm_`, `foreach=True`) for lists of
parameters, one call of `nn.LSTM` for the whole sequence instead of a loop over `nn.LSTMCell` or over calls of `nn.LSTM`
for one time step each. Read numbers at once with `.tolist()`; norms of all gradients, in the steps that report them.

In a recurrence, compute what depends only on the input for all time steps before the loop, and what only reads the
states after it.

## When to leave it
Loops whose iterations depend on each other in a way that no tensor op expresses. Loops that run one backward pass per
iteration through the same forward pass, as for a Jacobian: `torch.func.vmap` does them at once, but is slow for ops
without a batching rule.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    BACKWARD,
    ELEMENTWISE,
    GEMM,
    Block,
    CallSites,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GrowingOps,
    Lines,
    Loop,
    LoopDependencies,
    LoopDependency,
    LoopPlaces,
    Missing,
    Price,
    Source,
    draw,
    duration,
    edits,
)

from ..shared._loop_saving import NOT_SEEN, gone, loop_saving
from ..shared._places import called_at
from ..shared._tensor_texts import lines_of_texts
from ..shared._words import each_step, often
from ._cells_in_turn import cells_in_turn, fix_of, perhaps_layer
from ._device_loops import DeviceLoop, device_loops
from ._loops_in_samples import AS_NUMBERS, in_samples
from ._loops_in_samples import EXAMPLES as IN_SAMPLES
from ._observers import of_observers
from ._tensor_by_tensor import Priced, over_tensors

CONFIRMED = "measured pairs on a CPU: weight averaging, a contrastive loss, triplets, a mask, an LSTM, experts"


_NO_LINES = "lines of the user's code are not recorded; capture the script with `advisor run`"
_AT_ONCE = Fix(
    "Replace the loop with ops over all elements at once",
    "numerics",
    "total = sum((p.grad ** 2).sum() for p in model.parameters())",
    "norms = torch._foreach_norm([p.grad for p in model.parameters()])\ntotal = torch.stack(norms).square().sum()",
)
_READ_AT_ONCE = Fix(
    "Read the numbers of a tensor at once, with `.tolist()`",
    "exact",
    "best = sorted(scores)[-3:]  # reads them one by one",
    "best = sorted(scores.tolist())[-3:]",
)
# What a library computes of each tensor the script cannot write otherwise; it can ask for it where it is looked at.
_SELDOM = Fix(
    "Compute these numbers in the steps that report them",
    "exact",
    "self.log_dict(grad_norm(self, norm_type=2))",
    "if self.trainer.global_step % self.trainer.log_every_n_steps == 0:\n"
    "    self.log_dict(grad_norm(self, norm_type=2))  # Lightning writes a log every 50 steps, unless it is told",
)


def check(
    priced: Priced,
    places: LoopPlaces | None,
    turns: LoopDependencies | None,
    lines: Lines,
    sites: CallSites,
    growing: GrowingOps | None,
    *,
    min_share: float = 0.05,  # rewriting a loop is work: less than 5 % of the step does not justify it
) -> Iterator[Finding]:
    price = priced.price
    if price.on_device:
        yield from _beside_a_device(priced, lines, min_share)
        return
    if priced.sampled is not None and price.ops.device.kind == "none":
        yield from in_samples(priced.sampled, price, _AT_ONCE, min_share)
        return
    if places is None or turns is None:
        raise Missing(lines.why or _NO_LINES)
    if price.ops.device.kind != "none":
        return
    printed = lines_of_texts(price.ops.events, price.ops.outermost, lines)
    for (place, loop), turn in zip(places.ops, turns.of, strict=True):
        if loop.reads and any((one.file, one.line) in printed for one in place.where):
            continue  # a text is shorter, or is not made: printed-tensors says so
        if _grows(place, growing, lines):
            continue  # what is called once more with each step is to be called once: slowing-steps says so
        if gone(place, loop, turn, at_most=bool(turn.as_layer)).share(price.deprofiled)[1] >= min_share:
            cells = None if turn.known or turn.missed else perhaps_layer(price, lines, place.where)
            found = _finding(place, loop, turn, price, sites.of_lines(place.where))
            found = found if cells is None else replace(found, fix=cells)
            yield of_observers(found, priced.record) if loop.reads else found


def _grows(place: Block, growing: GrowingOps | None, lines: Lines) -> bool:
    """Whether most ops that run more often in each step than in the one before are those of this place."""
    if growing is None or not growing.calls or not len(growing.rows):
        return False
    at = {source.place for source in place.where}
    found = [one for row in growing.rows.tolist() if (one := lines.where_op(row)) is not None]
    return 2 * sum((one.file, one.line) in at for one in found) > len(growing.rows)


def _beside_a_device(priced: Priced, lines: Lines, min_share: float) -> Iterator[Finding]:
    """Loops for which the device waits. What iterations read of each other is not observed there."""
    price = priced.price
    loops, why = _by_lines(price, lines)
    # A loop over positions that `recurrent-positions` tells is not told once more.
    loops = [loop for loop in loops if 2 * np.isin(loop.rows, priced.positions.rows).sum() <= len(loop.rows)]
    seen = np.concatenate([loop.rows for loop in loops]) if loops else np.empty(0, int)
    by_ops = [*cells_in_turn(price, lines, seen, min_share), *over_tensors(priced, lines, seen, min_share)]
    if why and not by_ops:
        raise Missing(why)
    yield from by_ops
    yield from (found for loop in loops if (found := _waited_for(loop, price, min_share)))


def _by_lines(price: Price, lines: Lines) -> tuple[list[DeviceLoop], str]:
    """The loops that lines tell; where they tell none, why."""
    if not lines.available:
        return [], lines.why or _NO_LINES
    if all(source.precision == "function" for source in lines.sources):
        return [], "the trace names functions, and loops are detected by lines; `advisor run` records lines"
    return list(device_loops(price, lines)), ""


def _waited_for(loop: DeviceLoop, price: Price, min_share: float) -> Finding | None:
    steps, scale = price.ops.steps, price.scale
    gone = [edits.remove_time(loop.spans)]
    how = f"high: the device no longer waits for the loop; low: nothing, since {NOT_SEEN}"
    saving = price.saving([], gone, (), how, model_us=(0.0, loop.waited_us), bound_us=loop.waited_us)
    if min(loop.waited_us, saving.high_us * steps.step_us / scale.step_us) < min_share * steps.step_us:
        return None
    first = loop.where[0]
    return Finding(
        message=(
            f"{first.file.rpartition('/')[2]}:{first.line} runs `{loop.op}` {often(loop.times)} in a "
            f"loop, for which the GPU waits {each_step(price, loop.waited_us)}."
        ),
        saving=saving,
        where=loop.where,
        facts={"times": loop.times, "waited_us": loop.waited_us, "op": loop.op},
        fix=_AT_ONCE,
        at_most="medium",
    )


def _finding(place: Block, loop: Loop, turn: LoopDependency, price: Price, called: tuple[Source, ...]) -> Finding:
    scale = price.scale
    behind = f", and {duration(scale.scaled(place.backward_us))} in the backward pass" if place.backward_us else ""
    does = f"runs `{loop.op}` {often(loop.turns)}: the loop"
    if loop.reads and loop.op != "item":
        computed = f"computes `{loop.op.removeprefix('linalg_vector_')}` of tensors one by one"
        does = f"{computed}, and reads the numbers {often(loop.turns)}, inside a library: that"
    elif loop.reads:
        does = f"reads single elements of tensors {often(loop.turns)}, inside a library: that"
    return Finding(
        message=f"{place.place}{called_at(called)} {does} takes {each_step(price, place.us)}{behind}.",
        saving=loop_saving(place, loop, turn, price),
        where=tuple(dict.fromkeys((*place.heads, *place.where, *called))),
        facts={"iterations": loop.turns, "loop_us": place.us, "backward_us": place.backward_us, "op": loop.op},
        fix=_fix(loop, turn),
        claims=("forward", "backward", "other_ops", "host"),
        at_most="medium",
    )


def _fix(loop: Loop, turn: LoopDependency) -> Fix:
    if loop.reads:
        return _READ_AT_ONCE if loop.op == "item" else _SELDOM
    if loop.numbers:
        return AS_NUMBERS
    return fix_of(turn.as_layer) or _AT_ONCE


def _loop(times: int, line: int) -> Ev:
    return Ev("aten::mul", times=times, args={"Call stack": f"train.py({line}): <module>"})


# A second line of the same file tells that the numbers are lines of calls.
_AFTER = Ev(BACKWARD.name, args={"Call stack": "train.py(35): <module>"})


def _loop_on_device(times: int, op: str = "aten::mul") -> Ev:
    return Ev(op, times=times, launches="kernel", args={"Call stack": "train.py(31): <module>"})


_AVERAGED = """
    step   [1                     ][2                     ]
    cpu    [F  ][L           ]     [F  ][L           ]
    gpu 7   [K ][E            ]     [K ][E            ]
    """
_FORWARD_ONLY = Ev("aten::mm", launches="kernel")
_SMALL_WEIGHT, _LARGE_WEIGHT = [64, 64], [2048, 2048]  # 34 MB take an A100 16 of the 19 µs drawn
_AVERAGES = Ev(ELEMENTWISE.name, "kernel", times=40, fill=0.2)


def _average(weight: list[int]) -> Ev:
    return Ev("aten::mul_", times=40, launches="kernel", dims=[weight, []], dtypes=["float", "Scalar"])


def _cells(view: str) -> Drawing:
    part = Ev(view, times=40, launches="")
    cell = Ev("aten::lstm_cell", times=40, launches="kernel")
    return draw(
        """
        step   [1                     ][2                     ]
        cpu    [V  ][L           ]     [V  ][L           ]
        gpu 7       [E            ]         [E            ]
        """,
        us=50,
        V=part,
        L=cell,
        E=Ev(GEMM.name, "kernel", times=40, fill=0.6),
    )


_ON_HOST = """
    step   [1                     ][2                     ]
    cpu    [L           ][B      ]  [L           ][B      ]
    """
_ON_DEVICE = """
    step   [1                     ][2                     ]
    cpu    [L           ][B      ]  [L           ][B      ]
    gpu 7  [E           ]  [K    ]  [E           ]  [K    ]
    """
EXAMPLES = [
    Example(
        "a loop over forty elements",
        draw(_ON_HOST, us=50, L=_loop(40, 31), B=_AFTER),
        saves_us=(0, 1130),
        says=("train.py:31", "`mul` 40 times a step"),
    ),
    Example(
        "a cell for each of forty parts of a sequence, of which it was not recorded what an iteration reads",
        draw(_ON_HOST, us=50, L=Ev("aten::lstm_cell", times=40, args=_loop(40, 31).args), B=_AFTER),
        saves_us=(0, 1130),
        says=("`lstm_cell` 40 times a step",),
        fixes=("nn.LSTM", "if its inputs are known before the loop"),
    ),
    Example("eight layers, each called once", draw(_ON_HOST, us=50, L=_loop(8, 31), B=_AFTER), near_miss=True),
    Example(
        "forty layers, called by one line of the script",
        draw(_ON_HOST, us=50, L=Ev("aten::linear", times=40, args={"Call stack": "train.py(31): <module>"}), B=_AFTER),
        facts={"optimizers": [{"name": "SGD", "tensors": 80}]},
        near_miss=True,
    ),
    Example(
        "forty samples through one layer, one by one",
        draw(_ON_HOST, us=50, L=Ev("aten::linear", times=40, args={"Call stack": "train.py(31): <module>"}), B=_AFTER),
        facts={"optimizers": [{"name": "SGD", "tensors": 2}]},
        saves_us=(0, 1300),
        says=("`linear` 40 times a step",),
    ),
    Example("forty calls that have work to do", draw(_ON_HOST, us=1000, L=_loop(40, 31), B=_AFTER), near_miss=True),
    Example("one op over all elements", draw(_ON_HOST, us=50, L=_loop(1, 31), B=_AFTER)),
    Example(
        "a loop of small kernels, for which a GPU waits",
        draw(
            _ON_DEVICE,
            us=50,
            L=_loop_on_device(40),
            E=Ev(ELEMENTWISE.name, "kernel", times=40, fill=0.2),
            B=Ev(BACKWARD.name, launches="kernel", args=_AFTER.args),
        ),
        saves_us=(0, 700),
        says=("train.py:31", "for which the GPU waits"),
    ),
    Example(
        "a moving average of forty weights, of which no line is known",
        draw(_AVERAGED, us=50, F=_FORWARD_ONLY, L=_average(_SMALL_WEIGHT), E=_AVERAGES),
        saves_us=(0, 800),
        says=("`mul_` 40 times a step, tensor by tensor",),
    ),
    Example(
        "a cell for each of forty parts of a sequence, of which no line is known",
        _cells("aten::select"),
        saves_us=(0, 800),
        says=("`lstm_cell` 40 times a step",),
        fixes=("nn.LSTM",),
    ),
    Example(
        "forty cells whose input is no part of a tensor: each iteration makes that of the next",
        _cells("aten::view"),
        near_miss=True,
        skipped="advisor run",
    ),
    Example(
        "the same of large weights, whose kernels move what they must",
        draw(_AVERAGED, us=50, F=_FORWARD_ONLY, L=_average(_LARGE_WEIGHT), E=replace(_AVERAGES, fill=1.0)),
        near_miss=True,
        skipped="advisor run",
    ),
    Example(
        "a loop of kernels that keep the GPU busy",
        draw(
            _ON_DEVICE,
            us=50,
            L=_loop_on_device(40),
            E=Ev(ELEMENTWISE.name, "kernel", times=40),
            B=Ev(BACKWARD.name, launches="kernel", args=_AFTER.args),
        ),
        near_miss=True,
    ),
    Example(
        "forty layers of a model beside a GPU, called by one line",
        draw(
            _ON_DEVICE,
            us=50,
            L=_loop_on_device(40, "aten::linear"),
            E=Ev(ELEMENTWISE.name, "kernel", times=40, fill=0.2),
            B=Ev(BACKWARD.name, launches="kernel", args=_AFTER.args),
        ),
        near_miss=True,
    ),
    Example(
        "the same loop beside a GPU, of which the function is known and no line",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [L           ][B      ]  [L           ][B      ]
            gpu 7                [K     ]                 [K     ]
            """,
            us=50,
            L=Ev("aten::mul", times=40, launches="", args={"Call stack": "train.py(31): step"}),
            B=_AFTER,
        ),
        near_miss=True,
        skipped="names functions",
    ),
    *IN_SAMPLES,
]
