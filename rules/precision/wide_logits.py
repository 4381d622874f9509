"""Logits of a large vocabulary are copied to fp32 for the loss.

## What it looks at
Copies from 16 bits to fp32 of a tensor whose last size is 16,384 or more and that the next log-softmax reads: the
logits of a language model on their way into the cross entropy, as autocast and `.float()` create them. Their
backward copies count, too.

## Why it costs time
For 8,192 tokens and a vocabulary of 50,304 the copy in fp32 alone takes 1.6 GB, often more than all other activations
of the model, and the copy, the log-softmax and their gradients each read or write it.

## How to fix it
`torch.compile` around the loss fuses the conversion into the softmax, so that the fp32 copy is never written. Where
memory is the limit, compute the loss in chunks of the tokens, or with a fused linear layer and cross entropy.

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

from ..shared._words import each_step, often

# Vocabularies of language models; classes of pictures are fewer.
_WIDE = 16_384
# Bytes that a log-softmax and its backward pass move for each number: in fp32, 8 (read, write) and 12 (its result, the
# gradient of it, what comes of both), and 4 to fill that gradient; in one kernel with the copies, 2 and 4.
_STAYS = (2 + 4) / (8 + 12 + 4)
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
        fix=Fix(
            "Compile the loss, which fuses the conversion into it",
            "numerics",
            "loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())",
            "cross_entropy = torch.compile(F.cross_entropy)  # once, before the loop\n"
            "loss = cross_entropy(logits.flatten(0, 1), targets.flatten())",
        ),
        claims=("compute",),
        at_most="medium",
    )


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


EXAMPLES = [
    Example("a language model under autocast", _drawn(_COPY, _LOSS), saves_us=(550, 1200), says=("50,304", "GB")),
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
