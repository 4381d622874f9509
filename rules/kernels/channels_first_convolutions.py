"""Convolutions on a CPU run on channels-first tensors.

## What it looks at
Convolutions of images on ranks without a device: their part of the step, and whether the channels of their inputs come
first in memory (by the strides that were recorded).

## Why it costs time
oneDNN computes convolutions on blocks of channels. It converts channels-first tensors to such blocks and back around
each convolution, and the ops between convolutions (normalization, pooling, their backward passes) have slower kernels
in that format.

## How to fix it
`model = model.to(memory_format=torch.channels_last)`, and the same for the images. Blocks that copy their activations
for a norm over channels, `x.permute(0, 2, 3, 1).contiguous()`, and back need no copies then: drop `contiguous()`. It is
worth a try, but not guaranteed to help: only a run shows how a network performs in the other format. On one core of an
EPYC (torch 2.14, 24 steps of each, one after the other, CPU time) four of five networks with convolutions of 8 to 128
channels took 22 to 31 % less, one 6 % [-11, 16].

## When to leave it
Networks whose first layers have few channels and large pictures, where nothing is gained. Code that calls `.view()` on
activations: views need the channels-first format, `.reshape()` copies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from advisor.api import Device, Ev, Events, Example, Finding, Fix, Ints, Price, RowMask, Settings, StepOps, draw

from ..shared._places import set_at
from ..shared._words import each_step

_FORWARD = "aten::convolution"
_BACKWARD = "aten::convolution_backward"
# Blocks of oneDNN hold 8 or 16 channels: with fewer there is nothing to arrange.
_CHANNELS = 8
_MOSTLY = 0.8
_NO_NUMBER = "not estimated: only a run of this network in the other format shows it; worth trying"


def check(
    price: Price,
    device: Device,
    settings: Settings | None,
    *,
    min_share: float = 0.3,  # of the step in convolutions: below, the gain of the format is within the noise
) -> Iterator[Finding]:
    if device.kind != "none" or price.on_device:
        return
    recorded = price.ops
    rows = _inside(recorded, recorded.events.exactly(_FORWARD, _BACKWARD))
    spent_us = recorded.us(rows)
    if spent_us < min_share * recorded.steps.step_us:
        return
    forward = _inside(recorded, recorded.events.exactly(_FORWARD))
    if any(_may_crash(recorded.events, row) for row in forward.tolist()):
        return
    first_us = recorded.us(np.array([row for row in forward.tolist() if _channels_first(recorded.events, row)], int))
    forward_us = recorded.us(forward)
    facts = {"convolutions_us": spent_us, "channels_first_us": first_us}
    took = each_step(price, spent_us)
    if forward_us and first_us >= _MOSTLY * forward_us:
        yield Finding(
            message=f"Convolutions take {took}, on images whose channels come first in memory.",
            where=set_at(settings, "model"),
            facts=facts | {"saving": _NO_NUMBER},
            fix=_CHANNELS_LAST,
            claims=("forward", "backward"),
            at_most="low",
        )


_CHANNELS_LAST = Fix(
    "Try the channels-last format for model and images",
    "numerics",
    "loss = criterion(model(images), labels)",
    "model = model.to(memory_format=torch.channels_last)  # once\n"
    "loss = criterion(model(images.to(memory_format=torch.channels_last)), labels)",
)


def _inside(recorded: StepOps, found: RowMask) -> Ints:
    """These ops of the profiled steps."""
    return np.flatnonzero(found & (recorded.steps.step_of(recorded.events.start_ns) >= 0))


def _channels_first(events: Events, row: int) -> bool:
    """Whether the images of a convolution lie channel after channel; False where strides or shapes are not known."""
    shape, strides = (_tensor(table, int(at[row]), 0) for table, at in _columns(events))
    if len(shape) != 4 or len(strides) != 4 or shape[1] < _CHANNELS or shape[2] * shape[3] == 1:
        return False
    return strides[1] >= shape[2] * shape[3]


def _may_crash(events: Events, row: int) -> bool:
    """Whether a filter of one place sees few channels.

    Their backward pass with a stride of 2, in the channels-last format, ended torch 2.14.1 with a segmentation fault,
    or never returned, for 1, 2, 3, 4, 5 and 7 channels on an EPYC with AVX2 alone (32 pictures of 64 x 64, 30 passes;
    none of 8, 12, 20 and 32 channels did, nor did strides of 1 and 3, nor 3 channels on EPYCs with AVX-512).
    """
    dims, at = _columns(events)[0]
    weight = _tensor(dims, int(at[row]), 1)
    return len(weight) == 4 and weight[1] < _CHANNELS and weight[2:] == [1, 1]


def _columns(events: Events) -> tuple[tuple[tuple[str, ...], npt.NDArray[np.int32]], ...]:
    return (events.dims_table, events.dims), (events.strides_table, events.strides)


def _tensor(table: tuple[str, ...], index: int, which: int) -> list[int]:
    """The numbers of a tensor that an op is given; empty where they were not recorded."""
    try:
        found = json.loads(table[index]) if index >= 0 else []
    except ValueError:
        return []
    given = found[which] if isinstance(found, list) and len(found) > which else []
    return given if isinstance(given, list) and all(isinstance(one, int) for one in given) else []


_LANE = "step [1                ][2                ]\ncpu  [C     ][B        ]  [C     ][B        ] "
_LAST, _FIRST = [524288, 1, 4096, 64], [524288, 4096, 64, 1]


def _images(name: str, strides: list[int], channels: int = 32) -> Ev:
    dims = [[8, channels, 64, 64], [64, channels, 3, 3]]
    return Ev(name, dims=dims, dtypes=["float", "float"], args={"Input Strides": [strides, [288, 9, 3, 1]]})


EXAMPLES = [
    Example(
        "images of 32 channels, channel after channel",
        draw(_LANE, us=1000, C=_images(_FORWARD, _FIRST), B=_images(_BACKWARD, _FIRST)),
        saves_us="unknown",
        says=("whose channels come first",),
    ),
    Example(
        "the same with channels last",
        draw(_LANE, us=1000, C=_images(_FORWARD, _LAST), B=_images(_BACKWARD, _LAST)),
        near_miss=True,
    ),
    Example(
        "pictures of three channels",
        draw(_LANE, us=1000, C=_images(_FORWARD, _FIRST, 3), B=_images(_BACKWARD, _FIRST, 3)),
        near_miss=True,
    ),
    Example(
        "the same beside a filter of one place on three channels, which may crash in the other format",
        draw(
            _LANE.replace("[C     ]", "[C ][S ]"),
            us=1000,
            C=_images(_FORWARD, _FIRST),
            S=Ev(_FORWARD, dims=[[8, 3, 64, 64], [64, 3, 1, 1]], dtypes=["float"] * 2),
            B=_images(_BACKWARD, _FIRST),
        ),
        near_miss=True,
    ),
    Example(
        "a small part of the step",
        draw(
            "step [1                ][2                ]\ncpu  [C][O           ]    [C][O           ]  ",
            us=1000,
            C=_images(_FORWARD, _FIRST),
            O=Ev("aten::linear"),
        ),
    ),
]
