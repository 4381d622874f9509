"""The optimizer updates parameters one by one.

## What it looks at
Optimizer steps whose ops run once per parameter, neither as `_foreach_` ops (all parameters in one call) nor as
`_fused_` ops (the whole update in one kernel), and how long they take. On a CPU where no optimizer of `torch.optim`
steps: ops that update one tensor after the other as Adam does, in a library's code, such as fastai's own optimizers.

## Why it costs time
Adam needs about ten small ops per parameter. On a GPU each is a launch that takes longer than its kernel; on a CPU
each reads and writes the parameter and its state again. Where parameters are offloaded to the host, as FSDP's
`CPUOffloadPolicy` does, the GPU waits for that.

## How to fix it
`fused=True` in the optimizer's constructor: the whole update of a parameter in one pass, on GPUs and, since PyTorch
2.4, on CPUs for SGD, Adam, AdamW and Adagrad; Adam's then takes 13 to 44 % of the loop's time there. Where that is not
available, `foreach=True` on a GPU: on a CPU lists gain nothing. An optimizer of another class, or one whose update does
what these do not, takes neither: give it `torch._foreach_*` ops on lists of all parameters, or call its `step` in a
compiled function, which fuses both ways.

## When to leave it
Plain SGD without momentum on a CPU: it has one op per parameter, and fusing gains nothing. An update that takes little
of a step on a CPU: it is not reported if what `fused=True` saves at least is less than 5 % of the step beyond what
steps differ by of their own. `foreach=True` needs as much extra memory as the gradients, which may be why it was
disabled.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    ELEMENTWISE,
    Ev,
    Example,
    Finding,
    GpuIdle,
    Ints,
    KernelWork,
    Missing,
    Optimizer,
    OptimizerFacts,
    OptimizerWork,
    Price,
    Saving,
    Settings,
    constant,
    draw,
    duration,
)

from ..shared._host_updates import host_updates
from ..shared._listed import Listed, as_lists
from ..shared._places import asked_at
from ..shared._torch_optimizers import own_update
from ..shared._words import count, percent
from ._beside_torch_optim import OF_OTHERS, Updates, updates_of_others
from ._fused_steps import kept_share
from ._on_the_host import ON_THE_HOST, updates_on_the_host
from ._own_updates import LISTS, fused_fix
from .foreach_optimizer import FUSED, kept_passes

CONFIRMED = "measured pairs on a CPU: foreach=False against fused=True, by number and size of the parameters"

# How many times faster fused=True was than the loop on a CPU, where numbers or sizes of the parameters are unknown: the
# least and the most of 10 to 150 tensors of 100 to 1,000,000 elements with one thread, and of three models with one and
# two, PyTorch 2.15 on a Xeon.
_CPU_GAIN = {
    name: constant(f"optimizer.{name.lower()}_fused_gain").range for name in ("SGD", "Adam", "AdamW", "Adagrad")
}
# Plain SGD is one op per parameter; with momentum there are three.
_OPS_WORTH_FUSING = 2
_HOW = "low: the device is the bottleneck anyway; high: one launch for the whole update, at the memory's rate"
# Where the device waits for less of the host's time, the host is ahead, and launches wait for room in the queue.
_WAITED = 0.1


def check(
    price: Price,
    updates: Updates,
    kernels: KernelWork | None,
    facts: OptimizerFacts | None,
    settings: Settings | None,
    idle: GpuIdle | None,
    *,
    min_share: float = 0.05,  # many training loops have it; below 5 % of the step it is not what makes them slow
) -> Iterator[Finding]:
    steps, breakdown, scale, work = price.ops.steps, price.breakdown, price.scale, updates.work
    if work is None:
        if found_beside := updates_of_others(price, updates.lines, settings, min_share):
            yield found_beside
        return
    if work.loop is None:
        raise Missing("the trace does not show which ops the optimizer ran; record it with CPU activities")
    if not work.loop or price.ops.device.kind == "foreign":
        return
    known = next((one for one in facts.optimizers if one.name == work.name), None) if facts else None
    own = own_update(price, work)
    if own and not breakdown.on_device:
        return
    saved = _saved(work, known, facts, settings, len(work.rows) / steps.count)
    on_host = host_updates(price, work)
    if len(on_host) and idle is not None and not own:
        fix = fused_fix(work.name, known, on_device=False)
        told = updates_on_the_host(price, work, idle, on_host, saved, fix)
        yield from (one for one in told if one.saving and one.saving.high_us >= min_share * scale.step_us)
        return
    claims: tuple[str, ...] = ("optimizer",)
    ahead = False
    if breakdown.on_device:
        listed = _as_lists(price, work, kernels, own)
        saving, claims = listed.saving(price, _HOW), listed.claims
        ahead = not listed.mostly_waits and listed.waited_us < _WAITED * work.us
    else:
        saving = _fused_on_cpu(price, work, saved)
    # On a CPU both ends were measured: where the lower one is within the noise between steps, the change could not be
    # seen. On a device the lower one only says that the launches may be hidden.
    noise_us = (scale.repeats or 0.0) * scale.step_us
    certain_us = saving.high_us if breakdown.on_device else saving.low_us - noise_us
    if certain_us < min_share * scale.step_us:
        return
    tensors = f"{count(work.tensors)} parameters" if work.tensors else "the parameters"
    yield Finding(
        message=(
            f"{work.name or 'The optimizer'} updates {tensors} one by one, in {count(work.ops)} ops a step: "
            f"{_spent(price, work, ahead=ahead)}."
        ),
        saving=saving,
        where=(*asked_at(known), *((work.where,) if work.where else ())),
        facts={"optimizer_us": work.us, "ops": work.ops, "kernels": work.kernels, "tensors": work.tensors},
        fix=LISTS if own else fused_fix(work.name, known, breakdown.on_device),
        claims=claims,
        # A loop that was asked for may have a reason, and so may one that we know nothing about.
        at_most="high" if known is not None and known.foreach is not False else "medium",
    )


def _fused_on_cpu(price: Price, work: OptimizerWork, saved: tuple[float, float]) -> Saving:
    """What the step saves of a loop on a CPU. saved: the least and the most share of its time."""
    low, high = saved
    how = "what fused=True gained over the loop in measurements on a CPU, by number and size of the parameters"
    saving = price.scale.saving(low * work.us, high * work.us, how)
    # Capture timed this part without the profiler; the step as a whole tells it a second time.
    # The profiler makes nothing faster: where this part seems to have been, the steps were others.
    least_us, most_us = price.deprofiled.us(price.deprofiled.in_part("optimizer", work.us, work.ops))
    low_us, high_us = min(least_us, work.us) * low, min(most_us, work.us) * high
    return replace(saving, low_us=min(low_us, saving.high_us), high_us=max(high_us, saving.high_us))


def _as_lists(price: Price, work: OptimizerWork, kernels: KernelWork | None, own: bool) -> Listed:
    """The ops of its steps as ops on lists of tensors. own: it is no optimizer of torch."""
    rows = np.array(work.rows, int)
    passes = (kept_passes(_names(price, rows), work.name) or 1.0) if work.name in FUSED else _compiled(work, own)
    launches = round(work.calls * price.ops.steps.count)
    return as_lists(price, kernels, rows, launches, passes, within="Optimizer.step#")


def _compiled(work: OptimizerWork, own: bool) -> float:
    """The least share of its ways through memory that an update may keep: compiled, one kernel for each parameter.

    A list of tensors makes as many as the loop, and reductions between the ops some more than one: it is a bound.
    """
    if not own or not work.tensors or not work.kernels:
        return 1.0
    return min(work.tensors * work.calls / work.kernels, 1.0)


def _names(price: Price, rows: Ints) -> list[str]:
    """What these ops are called, without `aten::`."""
    events = price.ops.events
    of_each = events.name[rows].tolist()
    short = {one: events.names[one].removeprefix("aten::") for one in set(of_each)}
    return [short[one] for one in of_each]


def _spent(price: Price, work: OptimizerWork, *, ahead: bool) -> str:
    """Whose time it takes. ahead: the host mostly waits for room in the device's queue, and its time says nothing."""
    scale, steps = price.scale, price.ops.steps
    host = f"{duration(scale.scaled(work.us))} of the host's time in each step ({percent(work.us / steps.step_us)})"
    if not work.kernels or work.device_us is None:
        return host
    each_us, device_us = work.device_us / work.kernels, work.device_us * price.ops.longer
    kernels = f"in {count(work.kernels)} kernels of {duration(each_us)} on average"
    if ahead:
        share = percent(device_us / steps.step_us)
        return f"{duration(scale.scaled(device_us))} of the device's time in each step ({share}), {kernels}"
    return f"{host}, and {duration(scale.scaled(device_us))} of the device's, {kernels}"


def _saved(
    work: OptimizerWork, known: Optimizer | None, facts: OptimizerFacts | None, settings: Settings | None, calls: float
) -> tuple[float, float]:
    """The least and the most share of its time that fusing gives back; none without a fused form on CPUs.

    calls: ops a step that the optimizer itself calls; those within them (of a sparse gradient) are no steps of its own.
    """
    tensors = (known.tensors if known else None) or work.tensors
    if work.name not in _CPU_GAIN or (tensors and calls / tensors < _OPS_WORTH_FUSING):
        return 0.0, 0.0
    least, most = _CPU_GAIN[work.name]
    kept = kept_share(work.name, facts.optimizers, (settings and settings.threads) or 1) if facts else None
    return (1 - kept[1], 1 - kept[0]) if kept else (1 - 1 / least, 1 - 1 / most)


_ADAM = Ev("Optimizer.step#AdamW.step", "user_annotation")
_UPDATES = Ev("aten::mul_", times=60)

_STEPS = """
    step   [1                         ][2                         ]
    cpu    [F   ][B   ][O           ]  [F   ][B   ][O           ]
    cpu                [A          ]               [A          ]
    """
EXAMPLES = [
    *ON_THE_HOST,
    *OF_OTHERS,
    Example(
        "AdamW on a CPU, op by op",
        draw(_STEPS, us=100, O=_ADAM, A=_UPDATES),
        facts={"optimizers": [{"name": "AdamW", "tensors": 10}]},
        saves_us=(600, 1300),
        says=("AdamW", "one by one", "10 parameters"),
    ),
    Example(
        "the same on a GPU that waits for each launch",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F   ][B   ][O           ]  [F   ][B   ][O           ]
            cpu                [A          ]               [A          ]
            gpu 7   [K   ][K  ][U          ]    [K   ][K  ][U          ]
            """,
            us=100,
            O=_ADAM,
            U=Ev(ELEMENTWISE.name, "kernel", times=60, fill=0.2),
            A=_UPDATES,
        ),
        saves_us=(0, 1400),  # 1.14 ms of waits, and 0.26 ms of kernels that are mostly their start
        says=("one by one",),
    ),
    Example(
        "plain SGD has one op per parameter: nothing to fuse",
        draw(_STEPS, us=100, A=Ev("aten::add_", times=10)),
        facts={"optimizers": [{"name": "SGD", "tensors": 10}]},
        near_miss=True,
    ),
    Example(
        "plain SGD of a sparse gradient: one op per parameter, and several within it",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F   ][B   ][O           ]  [F   ][B   ][O           ]
            cpu                [A          ]               [A          ]
            cpu                [C          ]               [C          ]
            """,
            us=100,
            A=Ev("aten::add_", times=10),
            C=Ev("aten::_coalesced_", times=40, fill=0.2),
        ),
        facts={"optimizers": [{"name": "SGD", "tensors": 10}]},
        near_miss=True,
    ),
    Example("fused already", draw(_STEPS, us=100, O=_ADAM, A="aten::_fused_adamw_")),
]
