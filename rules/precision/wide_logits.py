"""The loss goes through logits of a large vocabulary in fp32, several times.

## What it looks at
Log-softmaxes in fp32 along 16,384 numbers or more, as the cross entropy of a language model computes them, with their
part of the backward pass. Where logits in 16 bits were copied to fp32 before, as autocast and `.float()` do, these
copies and their backward copies count, too.

## Why it costs time
For 8,192 tokens and a vocabulary of 50,304 the copy in fp32 alone takes 1.6 GB, often more than all other activations
of the model, and the copy, the log-softmax and their gradients each read or write it. Without the copy a loss still
goes through logits six times where three are needed: the log-softmax reads and writes them, its gradient is filled,
read with the result, and written.

## How to fix it
`torch.compile` around the loss fuses the conversion into the softmax, so that neither the fp32 copy nor the result of
the log-softmax is written. Where memory is the limit, compute the loss in chunks of the tokens, or with a fused linear
layer and cross entropy.

## When to leave it
Losses that need the fp32 logits themselves, to print or to keep them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from advisor.api import (
    SYNC,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Links,
    Missing,
    Price,
    StepOps,
    backward_of,
    data_size,
    dims_of,
    draw,
    dtypes_of,
    edits,
    sizes,
)

from ..shared._examples import node, two_steps
from ..shared._words import each_step, often

# Vocabularies of language models; classes of pictures are fewer.
_WIDE = 16_384
# Bytes that a log-softmax and its backward pass move for each number: in fp32, 8 (read, write) and 12 (its result, the
# gradient of it, what comes of both), and 4 to fill that gradient; in one kernel with the copies, 2 and 4.
_STAYS = (2 + 4) / (8 + 12 + 4)
# Without copies: 4 to read the logits once, and 8 to read them again and write their gradient.
_STAYS_IN_FP32 = (4 + 8) / (8 + 12 + 4)
_HALF = ("c10::Half", "c10::BFloat16")


def check(
    recorded: StepOps,
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # of the step: compiling a loss takes a minute at the start of each run
) -> Iterator[Finding]:
    events = recorded.events
    if not price.on_device:
        raise Missing(recorded.device.why)
    rows, losses = _copies(events, recorded.links)
    if not len(rows):
        yield from _in_fp32(price, lines, min_share)
        return
    both = np.concatenate((rows, _backward_copies(events, rows)))
    spent_us = price.spent_us(both)
    softmax = np.concatenate((losses, backward_of(events, losses)))
    how = (
        "low: the step without the forward copies; high: without those of their gradients, too, and with a log-softmax "
        "that reads 16 bits and writes its gradient alone: a quarter of its bytes"
    )
    fused = [edits.remove(both), edits.scale(recorded.launched(softmax), _STAYS)]
    saving = price.saving([edits.remove(rows)], fused, ("compute",), how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    shape = sizes(dims_of(events, int(rows[0])), 0)
    held = 4.0 * math.prod(shape)
    where = lines.where_op(int(rows[0])) if lines else None
    yield Finding(
        message=(
            f"Logits of {shape[-1]:,} classes are copied to fp32 {often(len(rows) / recorded.steps.count)} "
            f"({data_size(held)} each): {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"vocabulary": shape[-1], "held_bytes": held, "copies_us": spent_us},
        fix=_COMPILED,
        claims=("compute",),
        at_most="medium",
    )


_COMPILED = Fix(
    "Compile the loss, which makes one kernel of each of its passes",
    "numerics",
    "loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())",
    "cross_entropy = torch.compile(F.cross_entropy)  # once, before the loop\n"
    "loss = cross_entropy(logits.flatten(0, 1), targets.flatten())",
)


def _in_fp32(price: Price, lines: Lines | None, min_share: float) -> Iterator[Finding]:
    """Log-softmaxes of logits that are in fp32 anyway."""
    events, steps = price.ops.events, price.ops.steps
    called = events.of(Category.CPU_OP) & price.ops.links.inside & (events.dims >= 0)
    losses = np.flatnonzero(called & events.exactly("aten::_log_softmax"))
    losses = np.array([row for row in losses.tolist() if _is_wide(events, row)], np.int64)
    # A loss that nobody differentiates is an evaluation's.
    nodes = backward_of(events, losses)
    if not len(losses) or not len(nodes):
        return
    both = np.concatenate((losses, nodes))
    spent_us = price.spent_us(both)
    how = (
        "low: nothing, as it was not measured on a device; high: half of the bytes, one pass forwards and two backwards"
    )
    saving = price.saving([], [edits.scale(price.ops.launched(both), _STAYS_IN_FP32)], ("compute",), how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    shape = sizes(dims_of(events, int(losses[0])), 0)
    where = lines.where_op(int(losses[0])) if lines else None
    yield Finding(
        message=(
            f"The cross entropy of {shape[-1]:,} classes goes six times through {data_size(4.0 * math.prod(shape))} of "
            f"logits, {often(len(losses) / steps.count)}: its log-softmax takes {each_step(price, spent_us)}, with the "
            "backward pass."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"vocabulary": shape[-1], "loss_us": spent_us},
        fix=_COMPILED,
        claims=("compute",),
        at_most="medium",
    )


def _is_wide(events: Events, row: int) -> bool:
    shape = sizes(dims_of(events, row), 0)
    return bool(shape) and shape[-1] >= _WIDE and next(iter(dtypes_of(events, row)), "") == "float"


def _copies(events: Events, links: Links) -> tuple[Ints, Ints]:
    """Conversions to fp32 of what a log-softmax reads next on the same thread, and these."""
    inside = events.of(Category.CPU_OP) & links.inside & (events.dims >= 0)
    losses = np.flatnonzero(inside & events.exactly("aten::_log_softmax"))
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero(inside & events.exactly("aten::_to_copy")).tolist():
        shape = sizes(dims_of(events, row), 0)
        if len(shape) < 2 or shape[-1] < _WIDE or next(iter(dtypes_of(events, row)), "") not in _HALF:
            continue
        at = int(np.searchsorted(losses, row))
        if at < len(losses) and _reads(events, int(losses[at]), shape):
            found.append((row, int(losses[at])))
    pairs = np.array(found, np.int64).reshape(-1, 2)
    return pairs[:, 0], np.unique(pairs[:, 1])


def _reads(events: Events, loss: int, shape: tuple[int, ...]) -> bool:
    """Whether a log-softmax reads as many numbers in fp32, in rows of the same length."""
    read = sizes(dims_of(events, loss), 0)
    kind = next(iter(dtypes_of(events, loss)), "")
    return bool(read) and read[-1] == shape[-1] and math.prod(read) == math.prod(shape) and kind == "float"


def _backward_copies(events: Events, rows: Ints) -> Ints:
    """Nodes of the backward pass that turn the gradients of these copies into 16 bits again."""
    nodes = backward_of(events, rows)
    return nodes[events.named("ToCopyBackward")[nodes]] if len(nodes) else nodes


_SCORES = [8, 1024, 50304]
_COPY = Ev("aten::_to_copy", dims=[_SCORES], dtypes=["c10::BFloat16"], launches="kernel")
_LOSS = Ev("aten::_log_softmax", dims=[[8192, 50304]], dtypes=["float"])
_CAST = Ev("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", "kernel")
_STEPS = """
    step   [1                           ][2                           ]
    cpu    [F][C][L][B][S              ] [F][C][L][B][S              ]
    gpu 7   [K  ][E   ][M   ][K        ]  [K  ][E   ][M   ][K        ]
    """


def _drawn(copy: Ev, loss: Ev) -> Drawing:
    softmax = Ev("void at::native::cunn_SoftMaxForward<4, float, float, float>", "kernel")
    forward = Ev("aten::mm")
    return draw(_STEPS, us=100, F=forward, C=copy, L=loss, S=SYNC, E=_CAST, M=softmax)


def _in_fp32_drawn(shape: list[int], trained: bool = True) -> Drawing:
    """A layer (F), the loss (L) and its node (B)."""
    number = {"Sequence number": 1, "Fwd thread id": 0}
    loss = Ev("aten::_log_softmax", launches="kernel", dims=[shape], dtypes=["float"], args=number)
    name = "LogSoftmaxBackward0" if trained else "AddmmBackward0"
    forward = "void at::native::cunn_SoftMaxForward<4, float, float, float>"
    return two_steps(
        "[F][L  ][B   ][S             ]",
        gpu="   [K    ][M       ][N     ]  ",
        F=Ev("aten::mm"),
        S=SYNC,
        L=loss,
        B=node(1 if trained else 2, name, launches="kernel"),
        M=Ev(forward, "kernel"),
        N=Ev(forward.replace("Forward", "Backward"), "kernel"),
    )


EXAMPLES = [
    Example("a language model under autocast", _drawn(_COPY, _LOSS), saves_us=(550, 1200), says=("50,304", "GB")),
    Example(
        "a language model in fp32",
        _in_fp32_drawn([8192, 50304]),
        saves_us=(0, 1000),
        says=("50,304 classes", "goes six times"),
        fixes=("Compile the loss",),
    ),
    Example("a thousand classes in fp32", _in_fp32_drawn([8192, 1000]), near_miss=True),
    Example("a loss without a backward pass", _in_fp32_drawn([8192, 50304], trained=False), near_miss=True),
    Example(
        "a thousand classes",
        _drawn(
            Ev("aten::_to_copy", dims=[[8192, 1000]], dtypes=["c10::BFloat16"], launches="kernel"),
            Ev("aten::_log_softmax", dims=[[8192, 1000]], dtypes=["float"]),
        ),
        near_miss=True,
    ),
    Example(
        "a conversion of as many numbers that no loss reads",
        _drawn(_COPY, Ev("aten::sum", dims=[[8192, 50304]], dtypes=["float"])),
        near_miss=True,
    ),
    Example(
        "scores that were fp32 before",
        _drawn(Ev("aten::_to_copy", dims=[_SCORES], dtypes=["float"], launches="kernel"), _LOSS),
        near_miss=True,
    ),
    Example(
        "scores in 16 bits all the way",
        _drawn(Ev("aten::mul", dims=[_SCORES]), Ev("aten::_log_softmax", dims=[[8192, 50304]], dtypes=["c10::Half"])),
    ),
]
