"""Tensors are converted between fp32 and 16 bits more often than needed.

## What it looks at
Copies from fp32 to fp16 or bf16 within a linear layer or a convolution, of a tensor with the shape of its weight: what
autocast does before it calls the layer. In training, an updated weight has to be converted once for each gradient that
is stored for it; further conversions of the step are counted. In steps without gradients (`torch.no_grad()` and
`torch.inference_mode()`), all of them are.

Also conversions of an activation from 16 bits to fp32 before a pair of narrow layers in fp32 (adapters such as LoRA: a
weight of few rows, then one of few columns), and back after it. A single layer in fp32, such as a router, is not
reported. Needs recorded shapes and a device.

## Why it costs time
A conversion reads four bytes and writes two for every number of the weight, the layer then reads these two again. With
few tokens, as in generation, that is more memory traffic than the layer itself. Autocast keeps what it has converted,
but only until its context ends, only for weights that get a gradient, and never in `torch.inference_mode()`.

Around a narrow layer the activation is far larger than the layer's weights: converting it takes longer than converting
them, and the products then read twice the bytes.

## How to fix it
Inference: convert the model once, `model.to(torch.bfloat16)`. Training with frozen weights (adapters, a teacher, a
pretrained backbone): convert the frozen part once; autocast then only converts what is trained. Weights that are
trained, and are used several times a step: call them within one `torch.autocast` context, without
`cache_enabled=False`.

Narrow layers in fp32 beside a model in 16 bits: call them under autocast, which converts their weights and leaves the
activation alone; the weights that the optimizer updates stay in fp32.

## When to leave it
Validation between training steps, where the weights have to stay in fp32. Models whose softmax or normalization needs
fp32: autocast keeps these ops in fp32, a converted model runs them in 16 bits; convert only linear layers and
convolutions then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    BACKWARD,
    GRADIENT_STORE,
    SYNC,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Missing,
    Price,
    Training,
    dims_of,
    draw,
    dtypes_of,
    duration,
    edits,
    sizes,
)

from ..shared._places import first_line, place
from ..shared._words import often, percent
from ._narrow_layers import NARROW, around_narrow_layers

Shape = tuple[int, ...]

# Layers whose second input is their weight. Autocast converts it within the layer's row, then calls the layer again
# (PyTorch, ATen/autocast_mode.h: cached_cast, which says as well when a conversion is kept).
_LAYERS = ("aten::linear", *(f"aten::conv{of}{n}d" for of in ("", "_transpose") for n in (1, 2, 3)))
_CONVERSION = ("aten::_to_copy",)
_SHORT = {"c10::Half": "fp16", "c10::BFloat16": "bf16"}


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one line to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    if not price.on_device:
        return
    if (price.ops.events.dims < 0).all():
        raise Missing("the trace has no shapes; record with record_shapes=True")
    yield from around_narrow_layers(price, lines, min_share)
    yield from _of_weights(price, lines, min_share)


def _of_weights(price: Price, lines: Lines | None, min_share: float) -> Iterator[Finding]:
    casts = _casts(price)
    if not casts:
        return
    training = Training.compute(price.ops.trace).seen
    needed = _in_backward(price, GRADIENT_STORE) if training else Counter[Shape]()
    if training and needed[()]:
        raise Missing("the trace has no gradient shapes; record with record_shapes=True")
    repeated = {shape: _beyond(price, rows, needed[shape]) for shape, rows in casts.items()}
    rows = np.sort(np.concatenate(list(repeated.values())))
    if not training and (price.ops.events.sequence[rows] >= 0).any():
        return  # autograd recorded them: a backward pass may follow outside of the recording
    spent_us, step_us = price.spent_us(rows), price.ops.steps.step_us
    if spent_us < min_share * step_us:
        return
    gone = [edits.remove(rows)]
    saving = price.saving(gone, gone, ("compute",), "the step without these conversions")
    if saving.high_us < min_share * price.scale.step_us:
        return
    # A conversion of what is trained is undone for its gradient.
    undone = _in_backward(price, "ToCopyBackward0")
    frozen = 2 * sum(len(repeated[shape]) for shape in repeated if undone[shape] <= needed[shape]) > len(rows)
    where, short = first_line(lines, rows), _format(price, rows)
    steps = price.ops.steps.count
    yield Finding(
        message=(
            f"Weights are kept in fp32 and converted to {short} {often(len(rows) / steps)}{place(where)}"
            f"{', more often than they change' if training else ', though nothing changes them'}: "
            f"{duration(price.scale.scaled(spent_us))} of the device's work in each step "
            f"({percent(spent_us / step_us)})."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"conversions": len(rows) / steps, "conversion_us": spent_us, "format": short},
        fix=_fix(training, frozen, short),
        claims=("compute",),
        at_most="medium",  # in which format a weight has to be kept no trace tells
    )


def _casts(price: Price) -> dict[Shape, Ints]:
    """Conversions of weights to 16 bits in the forward pass of the steps, by the weight's shape, in order of start."""
    events, nesting, links = price.ops.events, price.ops.nesting, price.ops.links
    rows = np.flatnonzero(events.exactly("aten::copy_") & events.of(Category.CPU_OP) & links.inside)
    layer = nesting.ancestor_of(rows, events.exactly(*_LAYERS))
    conversion = nesting.ancestor_of(rows, events.exactly(*_CONVERSION))
    # What runs again in the backward pass (checkpointing) has a context of its own.
    forward = nesting.ancestor_of(rows, events.named("autograd::engine")) < 0
    kept = forward & (layer >= 0) & (conversion >= 0)
    found: dict[Shape, list[int]] = {}
    for row, around, outer in zip(rows[kept].tolist(), layer[kept].tolist(), conversion[kept].tolist(), strict=True):
        kinds, shape = dtypes_of(events, row), sizes(dims_of(events, row), 0)
        if kinds[:2] in ([one, "float"] for one in _SHORT) and _is_weight(dims_of(events, around), shape):
            found.setdefault(shape, []).append(outer)
    return {shape: np.array(outer, np.int64) for shape, outer in found.items()}


def _is_weight(layer: list[object], shape: Shape) -> bool:
    """Whether a tensor of this shape is the layer's weight, and cannot be its input."""
    return len(shape) > 1 and sizes(layer, 1) == shape != sizes(layer, 0)


def _in_backward(price: Price, node: str) -> Counter[Shape]:
    """How often all steps together run this node of the backward pass, by its shape; () where a row states none."""
    events, steps = price.ops.events, price.ops.steps
    rows = np.flatnonzero(events.exactly(node))
    rows = rows[steps.step_of(events.start_ns[rows]) >= 0]
    return Counter(sizes(dims_of(events, row), 0) for row in rows.tolist())


def _beyond(price: Price, rows: Ints, needed: int) -> Ints:
    """Those of these conversions of one shape that are more than so many gradients ask for: the last of each step."""
    steps = price.ops.steps
    step = steps.step_of(price.ops.events.start_ns[rows])
    each = -(-needed // steps.count)
    return np.concatenate([rows[step == number][each:] for number in np.unique(step)] or [rows[:0]])


def _format(price: Price, rows: Ints) -> str:
    """What most of these rows convert to, as people write it."""
    events, nesting = price.ops.events, price.ops.nesting
    copies = np.flatnonzero(events.exactly("aten::copy_"))
    mine = copies[np.isin(nesting.ancestor_of(copies, events.exactly(*_CONVERSION)), rows)]
    return Counter(_SHORT[dtypes_of(events, row)[0]] for row in mine.tolist()).most_common(1)[0][0]


def _fix(training: bool, frozen: bool, short: str) -> Fix:
    dtype = "torch.bfloat16" if short == "bf16" else "torch.float16"
    if not training:
        return Fix(
            f"Convert the model to {short} once, before the loop",
            "numerics",
            f'with torch.autocast("cuda", dtype={dtype}):\n    out = model(x)',
            f"model = model.to({dtype})  # once, before the loop\nout = model(x.to({dtype}))",
        )
    if frozen:
        return Fix(
            f"Keep frozen weights in {short}",
            "numerics",
            "frozen.requires_grad_(False)",
            f"frozen.requires_grad_(False).to({dtype})  # autocast converts only what is trained",
        )
    return Fix(
        "Call the model within one `torch.autocast` context, which keeps converted weights",
        "exact",
        f'for x in parts:\n    with torch.autocast("cuda", dtype={dtype}):\n        loss = loss + criterion(model(x))',
        f'with torch.autocast("cuda", dtype={dtype}):\n    for x in parts:\n        loss = loss + criterion(model(x))',
    )


_WEIGHT, _INPUT = [1024, 512], [64, 512]
_STEPS = """
    step   [1                                 ][2                                 ]
    cpu    [F                       ][S     ]  [F                       ][S     ]
    cpu    [T         ][L         ]            [T         ][L         ]
    cpu     [C       ]                          [C       ]
    cpu      [O    ]                             [O    ]
    gpu 7      [E     ] [K            ]            [E     ] [K            ]
    """
_TRAINED = """
    step   [1                                             ][2                                             ]
    cpu    [F                       ][B         ][S     ]  [F                       ][B         ][S     ]
    cpu    [T         ][L         ]   [A     ]             [T         ][L         ]   [A     ]
    cpu     [C       ]                                      [C       ]
    cpu      [O    ]                                         [O    ]
    gpu 7      [E     ] [K                  ]                  [E     ] [K                  ]
    """
_HALF = ["c10::BFloat16", "float", "Scalar"]
_COPY = Ev("aten::copy_", dims=[_WEIGHT, _WEIGHT, []], dtypes=_HALF, launches="kernel")
_PARTS: dict[str, Any] = {
    "F": Ev("aten::linear", dims=[_INPUT, _WEIGHT, []], dtypes=["float", "float", ""], launches=""),
    "T": Ev("aten::to", launches=""),
    "C": Ev("aten::_to_copy", dims=[_WEIGHT, []], dtypes=["float", "Scalar"], launches=""),
    "O": _COPY,
    "L": Ev("aten::addmm", launches="kernel"),
    "S": SYNC,
}
_STORED = Ev(GRADIENT_STORE, dims=[_WEIGHT], launches="")
_NODE = replace(BACKWARD, launches="")


def _drawn(text: str, **other: Ev) -> Drawing:
    return draw(text, us=100, **(_PARTS | other))


EXAMPLES = [
    *NARROW,
    Example(
        "autocast over an fp32 model that is not trained: each step converts the weight",
        _drawn(_STEPS),
        saves_us=(900, 1100),
        says=("converted to bf16 once a step", "though nothing changes them"),
        fixes=("model.to(torch.bfloat16)",),
    ),
    Example(
        "a frozen weight beside trained ones of another shape",
        _drawn(_TRAINED, B=_NODE, A=replace(_STORED, dims=[[8, 512]])),
        saves_us=(900, 1100),
        says=("more often than they change",),
        fixes=("requires_grad_(False).to(torch.bfloat16)",),
    ),
    Example("a weight that each step updates, and converts once", _drawn(_TRAINED, B=_NODE, A=_STORED), near_miss=True),
    Example(
        "a layer whose input and weight have one shape: which of them is converted nobody knows",
        _drawn(_STEPS, F=Ev("aten::linear", dims=[_WEIGHT, _WEIGHT], dtypes=["float", "float"], launches="")),
        near_miss=True,
    ),
    Example(
        "autograd records: a backward pass may follow outside of the recording",
        _drawn(_STEPS, C=replace(_PARTS["C"], args={"Sequence number": 7})),
        near_miss=True,
    ),
    Example("a model in bf16", _drawn(_STEPS, O=replace(_COPY, dtypes=["c10::BFloat16", "c10::BFloat16", "Scalar"]))),
]
