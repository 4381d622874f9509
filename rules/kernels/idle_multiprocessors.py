"""Kernels use only a few of the device's multiprocessors.

## What it looks at
Kernels of known ops whose grid has fewer thread blocks than the device has multiprocessors, that take 20 µs or more,
and whose op stays below a quarter of what the device's compute or memory bandwidth allows for its shapes.

## Why it costs time
A thread block runs on one multiprocessor. With 64 blocks on a device of 304 multiprocessors, 240 of them are idle, and
only the rest contribute memory bandwidth. PyTorch's own batch normalization launches one block per channel for
channels-first images.

## How to fix it
Batch normalization: `model.to(memory_format=torch.channels_last)` and the same for the inputs, for which the work is
divided over pixels, too. Gradients of convolutions: `torch.backends.cudnn.benchmark = True`, without
`cudnn.deterministic`, so that cuDNN may take algorithms that divide a sum over many blocks; compiled code calls cuDNN.
Other ops: larger batches, or `torch.compile`, which splits reductions according to the size of the device.

## When to leave it
Kernels that run concurrently with others on another stream: what they leave idle is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from advisor.api import (
    SYNC,
    Device,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    KernelWork,
    Lines,
    Missing,
    Price,
    WorkGroup,
    draw,
)

from ..shared._roofline import WELL_MADE, idle_kernels, saved_us, scaled, shape_words
from ..shared._words import count, each_step, percent, plural

# A trace of an MI300X holds the fault (batch normalisation in 64 blocks for 304 multiprocessors, 2 % of the memory's
# rate), but its steps wait for communication, so that the replay gives back 1.3 % and the rule stays silent.

Rows = Ints


def check(
    price: Price,
    device: Device,
    work: KernelWork,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a change of layout or of batch: below 3 % of the step noise between steps hides it
) -> Iterator[Finding]:
    if device.multiprocessors is None:
        raise Missing("the trace does not say how many multiprocessors the device has")
    events, processors = price.ops.events, device.multiprocessors
    found = [(group, rows) for group in work.groups if len(rows := idle_kernels(events, group, device))]
    kept = [(rows, _kept(events, group, rows, processors)) for group, rows in found]
    spent_us, most_us = sum(price.spent_us(rows) for rows, _ in kept), saved_us(price, kept)
    if most_us < min_share * price.ops.steps.step_us:
        return
    how = "high: the same work divided over all multiprocessors; low: nothing, as the library decides how to divide it"
    saving = price.saving([], scaled(kept), ("compute",), how, model_us=(0.0, most_us))
    if saving.high_us < min_share * price.scale.step_us:
        return
    worst = max(found, key=lambda pair: int(events.dur_ns[pair[1]].sum()))
    blocks = int(np.median(events.blocks[worst[1]]))
    where = lines.where_op(int(worst[0].rows[0])) if lines else None
    yield Finding(
        message=(
            f"Kernels with fewer thread blocks than the device's {count(processors)} multiprocessors take "
            f"{each_step(price, spent_us)}: "
            f"{shape_words(worst[0])} runs in {plural(blocks, 'block')} and reaches {percent(worst[0].reached)} of "
            "what the device can do."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={
            "multiprocessors": processors,
            "blocks": blocks,
            "kernels_us": spent_us,
            "ops": sorted({group.op for group, _ in found}),
        },
        fix=_FIXES.get(_kind(events, found), _COMPILED),
        claims=("compute",),
        at_most="medium",  # how another kernel divides the work only a measurement tells
    )


def _kept(events: Events, group: WorkGroup, rows: Rows, processors: int) -> float:
    """The share of their time that the kernels keep when all multiprocessors work; never below what the op needs."""
    shares = float(np.average(events.blocks[rows] / processors, weights=events.dur_ns[rows]))
    of_all = float(events.dur_ns[rows].sum() / events.dur_ns[group.kernels].sum())
    # What is left of the op's other kernels is there anyway.
    least = max(group.reached / WELL_MADE - (1 - of_all), 0.0) / of_all
    return min(max(shares, least), 1.0)


def _kind(events: Events, found: list[tuple[WorkGroup, Rows]]) -> str:
    """What most of these kernels' time goes to: a kind of work; normalisation only where they all do it."""
    spent: Counter[str] = Counter()
    for group, rows in found:
        spent[group.kind] += int(events.dur_ns[rows].sum())
    most = max(spent, key=lambda kind: spent[kind])
    return "" if most == "normalisation" and len(spent) > 1 else most


_FIXES = {
    "normalisation": Fix(
        "Use channels-last for model and images: normalization is then divided over pixels, too",
        "numerics",
        "model = model.to(device)\nimages = images.to(device)",
        "model = model.to(device, memory_format=torch.channels_last)\n"
        "images = images.to(device, memory_format=torch.channels_last)",
    ),
    "convolution": Fix(
        "Let cuDNN measure its algorithms, also those that are not deterministic, and measure the step",
        "numerics",
        "torch.backends.cudnn.deterministic = True",
        "torch.backends.cudnn.deterministic = False\ntorch.backends.cudnn.benchmark = True",
    ),
}
_COMPILED = Fix(
    "Try `torch.compile`, which divides the work, and measure the step before and after",
    "numerics",
    "model = model.to(device)",
    "model = torch.compile(model.to(device))",
)


def _norm(samples: int, channels: int, side: int) -> Ev:
    shape = [samples, channels, side, side]
    dims: list[list[int]] = [shape, [channels], [channels], [channels], [channels]]
    return Ev("aten::native_batch_norm", dims=dims, dtypes=["float"] * 5)


def _kernel(blocks: int) -> Ev:
    name = "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>"
    return Ev(name, "kernel", args={"grid": [blocks, 1, 1]})


_WGRAD = "sm80_xmma_wgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x32x64_stage5_warpsize2x2x1"
_MAPS = [10, 32, 256, 512]
_CONVOLVED = Ev("aten::convolution_backward", dims=[_MAPS, _MAPS, [32, 32, 3, 3]], dtypes=["c10::Half"] * 3)
_STEPS = """
    step   [1                  ][2                  ]
    cpu    [A][B][S           ] [A][B][S           ]
    gpu 7   [K             ][L]  [K             ][L]
    """


def _drawn(norm: Ev, kernel: Ev) -> Drawing:
    return draw(_STEPS, us=100, device="A100", A=norm, S=SYNC, K=kernel, L=_kernel(1000))


EXAMPLES = [
    Example(
        "a batch of pictures with 16 channels, normalised in 16 blocks",
        # 82 MB: 80 µs at the A100's memory rate, drawn as 1.6 ms.
        _drawn(_norm(16, 16, 200), _kernel(16)),
        saves_us=(0, 1500),
        says=("16 blocks", "device's 108 multiprocessors"),
    ),
    Example(
        "a gradient of weights that cuDNN sums up in 18 blocks, as deterministic algorithms do",
        _drawn(_CONVOLVED, Ev(_WGRAD, "kernel", args={"grid": [18, 1, 1]})),
        saves_us=(0, 1500),
        says=("18 blocks",),
        fixes=("cudnn.benchmark = True",),
    ),
    Example("as many blocks as multiprocessors", _drawn(_norm(16, 16, 200), _kernel(108)), near_miss=True),
    Example(
        "few blocks that read at nearly half the memory's rate: there is not much more to have",
        _drawn(_norm(64, 96, 250), _kernel(96)),
        near_miss=True,
    ),
    Example("blocks were not recorded", _drawn(_norm(16, 16, 200), Ev(_kernel(1).name, "kernel")), near_miss=True),
    Example("channels-last: blocks for pixels, too", _drawn(_norm(16, 16, 200), _kernel(800))),
]
