"""cuDNN or Triton benchmarks kernels repeatedly because shapes change.

## What it looks at
Convolutions on an NVIDIA device whose shapes differ from step to step: calls inside which the host waits for events, as
it reads how long each algorithm took; or, with `torch.backends.cudnn.benchmark` on as capture recorded it, calls that
launch four times as many kernels as most convolutions do. Kernels of Triton that are launched over and over in several
steps, each time after a fill that clears the cache, with events recorded before and after.

## Why it costs time
With `benchmark`, cuDNN times its algorithms for each shape that it has not seen, and keeps the fastest. Shapes that
change with each batch are new each time: every convolution runs once per algorithm, in workspaces that are allocated
and freed. `triton.autotune` runs every configuration, for some 100 ms each, whenever an argument of its `key` has a new
value.

## How to fix it
`torch.backends.cudnn.benchmark = False`, or batches of a few sizes: padded to the next of them, or sorted into buckets.
For Triton the same sizes, a `key` that changes less often (the length rounded up to a power of two), or a single
configuration. `cache_results=True`, or `TRITON_CACHE_AUTOTUNING=1`, keeps results on disk for the next run: that helps
where it meets the same keys.

## When to leave it
The first steps, and a small number of shapes, all of which will soon have been seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import (
    SYNC,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Links,
    Missing,
    Nesting,
    Price,
    Settings,
    TimingRuns,
    Trace,
    Treatment,
    draw,
    edits,
)

from ..shared._places import set_at
from ..shared._words import count, each_step, plural
from ._autotuned import Autotuned, autotuned

_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
# A convolution is one to three kernels with its transposes; cuDNN has seven algorithms and more to try.
_TRIES = 4
# Those of the first step may be the only ones.
_STEPS_THAT_TIME = 2
_NAMED = 2  # of Triton's kernels
_OFF = Fix(
    "Set `cudnn.benchmark = False` if shapes keep changing",
    "numerics",
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.benchmark = False",
    Treatment("cudnn", {"benchmark": False}),
)


def check(
    price: Price,
    timing: TimingRuns,
    settings: Settings | None,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # of the step: one setting, but it slows down shapes that do recur
    min_timed: int = 10,  # launches between two events: a configuration is timed for 100 ms, at least as often as this
) -> Iterator[Finding]:
    if (tuned := autotuned(price.ops, min_timed)) is not None:
        yield from _by_triton(price, tuned, lines, min_share)
        return
    recorded, on = price.ops, settings.cudnn_benchmark if settings else None
    if on is False or recorded.device.kind != "cuda":
        return
    found = _timed(timing, price)
    if found is None and on is None:
        raise Missing("whether cudnn.benchmark was on was not recorded")
    found = found or _tried_anew(recorded.trace, recorded.nesting, recorded.links)
    if found is None:
        return
    steps = recorded.steps
    spent_us = recorded.us(found.kernels)
    how = f"high: {found.how}; low: half of that"
    factor = found.stays
    half, all_of_it = [edits.scale(found.kernels, (1 + factor) / 2)], [edits.scale(found.kernels, factor)]
    saving = price.saving(half, all_of_it, ("compute",), how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = lines.where_op(int(found.calls[0])) if lines else None
    yield Finding(
        message=(
            "cudnn.benchmark is on, and times algorithms for new shapes of "
            f"{plural(len(found.calls) / steps.count, 'convolution')} a step, with "
            f"{plural(round(len(found.kernels) / len(found.calls)), 'kernel')} {found.instead}: "
            f"{each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(set_at(settings, "cudnn_benchmark") if settings else ()) + ((where,) if where else ()),
        facts={
            "tuning_runs": len(found.calls) / steps.count,
            "shapes": len(np.unique(recorded.events.dims[found.calls])),
            "tuning_us": spent_us,
        },
        fix=_OFF,
        claims=("compute",),
    )


def _by_triton(price: Price, tuned: Autotuned, lines: Lines | None, min_share: float) -> Iterator[Finding]:
    """What the autotuner runs; how often lengths are new in later steps the profiled ones do not tell."""
    spent_us, steps = price.spent_us(tuned.kernels), price.ops.steps.count
    gone = [edits.remove(tuned.kernels), edits.remove(tuned.calls)]
    how = "low: nothing, where later steps meet no new keys; high: the profiled steps without what is only timed"
    saving = price.saving([], gone, ("compute",), how, model_us=(0.0, spent_us))
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = lines.where_op(int(tuned.calls[0])) if lines else None
    named = " and ".join(f"`{name}`" for name in tuned.names[:_NAMED])
    yield Finding(
        message=(
            f"Triton's autotuner times {named} in {count(tuned.steps)} of {count(steps)} steps, as if for new values "
            f"of its keys: {plural(round(len(tuned.kernels) / steps), 'kernel')} a step that are only timed, fills of "
            f"the cache among them, {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"tuned": list(tuned.names), "steps_that_tune": tuned.steps, "tuning_us": spent_us},
        # https://triton-lang.org/main/python-api/generated/triton.autotune.html
        fix=Fix(
            "Pad lengths to a few sizes, so that keys of `triton.autotune` repeat, or give it one configuration",
            "numerics",
        ),
        claims=("compute",),
    )


class _Tuning(Struct, frozen=True):
    """Convolutions that try algorithms, the kernels of it, what share of them stays, and words for the message."""

    calls: Ints
    kernels: Ints
    stays: float
    instead: str
    how: str


def _timed(timing: TimingRuns, price: Price) -> _Tuning | None:
    """What waits for events inside of convolutions tell, in several steps; None where nothing is timed again."""
    events, links = price.ops.events, price.ops.links
    inside = links.inside[timing.kernels]
    kernels, owner = timing.kernels[inside], timing.owner[inside]
    calls = np.unique(owner)
    steps = np.unique(price.ops.steps.step_of(events.start_ns[calls]))
    # One shape is timed once, in the first step that has it; all start with the first step.
    if len(steps) < _STEPS_THAT_TIME or ((events.dims[calls] >= 0).all() and len(np.unique(events.dims[calls])) < 2):
        return None
    return _Tuning(calls, kernels, 0.0, "that are only timed", "the step without what is only timed")


def _tried_anew(trace: Trace, nesting: Nesting, links: Links) -> _Tuning | None:
    """Convolutions that run many kernels, where most run few; None where none do."""
    events = trace.events
    calls = events.exactly(*_CONVOLUTIONS) & links.inside & (events.dims >= 0)
    if not calls.any():
        return None
    work = np.flatnonzero(events.of(Category.KERNEL) & (links.launch >= 0) & links.inside)
    owner = nesting.ancestor(calls)[links.launch[work]]
    work, owner = work[owner >= 0], owner[owner >= 0]
    rows, kernels = np.unique(owner, return_counts=True)
    if not len(rows):
        return None
    usual = float(np.median(kernels))
    tried = rows[kernels >= _TRIES * usual]
    if len(np.unique(events.dims[tried])) < 2:
        return None  # one shape is tried once, in the first step that has it
    mine = work[np.isin(owner, tried)]
    how = "the kernels beyond the usual number, if all of a call take equally long"
    return _Tuning(tried, mine, usual * len(tried) / len(mine), f"instead of {count(usual)}", how)


def _convolution(side: int) -> Ev:
    return Ev("aten::convolution", dims=[[8, 64, side, side], [64, 64, 3, 3]], launches="")


_TRY, _ONE = Ev("aten::cudnn_convolution", times=6), Ev("aten::cudnn_convolution")
_STEPS = """
    step   [1                     ][2                     ]
    cpu    [A   ][B][B][S        ] [C   ][B][B][S        ]
    cpu    [T   ][O][O]            [U   ][O][O]
    gpu 7   [K              ][L][L] [K              ][L][L]
    """
_TIMED = """
    step   [1                              ][2                              ]
    cpu    [A                  ][B ][S     ] [C                  ][B ][S     ]
    cpu    [O ][W  ][O ][W ][O ][O ]         [O ][W  ][O ][W ][O ][O ]
    gpu 7   [K    ] [K   ]  [K  ][K]          [K    ] [K   ]  [K  ][K]
    """
_KERNEL = "cudnn_infer_ampere_scudnn_winograd_128x128"


def _drawn(first: Ev, second: Ev, tries: Ev) -> Drawing:
    many = Ev(_KERNEL, "kernel", times=tries.times)
    usual = {"B": _convolution(14), "O": _ONE, "L": Ev(_KERNEL, "kernel"), "S": SYNC}
    given: dict[str, Ev] = {"A": first, "C": second, "T": tries, "U": tries, "K": many, **usual}
    return draw(_STEPS, us=100, device="A100", **given)  # type: ignore[arg-type]


def _timing(first: Ev, second: Ev) -> Drawing:
    """Three kernels of each first convolution, between two of them and after them waits of the host for an event."""
    waits = Ev("cudaEventSynchronize", "cuda_runtime", launches="")
    given: dict[str, Ev] = {"A": first, "C": second, "W": waits, "B": _convolution(14), "O": _ONE, "S": SYNC}
    return draw(_TIMED, us=100, device="A100", K=Ev(_KERNEL, "kernel"), **given)  # type: ignore[arg-type]


def _by_triton_drawn(second: str, record: str = "cudaEventRecord") -> Drawing:
    """A kernel that is launched ten times after a fill, and once more, then what the step is about; 10 µs a column.

    second: the second step's events between fills and launches, "R" or, without them, "E".
    """
    steps = [("R", 0), (second, 1)]
    cpu = "".join(f"{f'[Z][{event}][K][{event}]' * 10}[K][O][S       ] " for event, _ in steps)
    gpu = "".join(f"  {'[f   ][k   ]' * 10}[k ][o     ] " for _ in steps)
    given: dict[str, Ev] = {
        "Z": Ev("aten::zero_"),
        "R": Ev(record, "cuda_runtime", launches=""),
        "E": Ev("aten::empty", launches=""),
        "K": Ev("cuLaunchKernel", "cuda_driver", launches="kernel"),
        "O": Ev("aten::mm"),
        "S": SYNC,
        "f": Ev("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>", "kernel"),
        "k": Ev("causal_conv1d_fwd_kernel", "kernel"),
        "o": Ev("ampere_bf16_s16816gemm_bf16_128x64_ldg8_stages_64x4_nn", "kernel"),
    }
    drawn = cpu + gpu
    lanes = f"step [{1:<135}][{2:<135}]\ncpu  {cpu}\ngpu 7{gpu}"
    return draw(lanes, us=10, device="A100", **{word: ev for word, ev in given.items() if f"[{word}" in drawn})  # type: ignore[arg-type]


_ON = {"settings": {"cudnn_benchmark": True}}

EXAMPLES = [
    Example(
        "pictures of another size in each step",
        _drawn(_convolution(57), _convolution(61), _TRY),
        facts=_ON,
        saves_us=(500, 1500),
        says=("6 kernels instead of 1",),
    ),
    Example(
        "pictures of other sizes, whose shapes have been seen",
        _drawn(_convolution(57), _convolution(61), _ONE),
        facts=_ON,
        near_miss=True,
    ),
    Example(
        "the switch is off",
        _drawn(_convolution(57), _convolution(61), _TRY),
        facts={"settings": {"cudnn_benchmark": False}},
        near_miss=True,
    ),
    Example(
        "waits for events inside of convolutions, in a trace without settings",
        _timing(_convolution(57), _convolution(61)),
        saves_us=(300, 1500),
        says=("that are only timed",),
    ),
    Example("one size, timed once", _timing(_convolution(57), _convolution(57)), facts=_ON, near_miss=True),
    Example(
        "Triton tunes a kernel in each step",
        _by_triton_drawn("R"),
        # 20 launches of 60 µs, of 1.4 ms.
        saves_us=(0, 1250),
        says=("`causal_conv1d_fwd_kernel` in 2 of 2 steps",),
        fixes=("Pad lengths to a few sizes",),
    ),
    Example(
        "Triton tunes a kernel in the first step, and never again",
        _by_triton_drawn("E"),
        facts={"settings": {"cudnn_benchmark": False}},
        near_miss=True,
    ),
    Example(
        "a kernel whose result is cleared before each launch",
        _by_triton_drawn("R", "cudaFuncGetAttributes"),
        facts={"settings": {"cudnn_benchmark": False}},
        near_miss=True,
    ),
    Example("one size", _drawn(_convolution(57), _convolution(57), _TRY), facts=_ON),
]
