"""torch.compile recompiles during training.

## What it looks at
Compilations inside the profiled steps, after the warm-up; and functions that PyTorch has compiled as often as it allows
and runs uncompiled since. The reasons come from what capture recorded; a trace alone contains the compilations.

## Why it costs time
Compiled code is specialized for shapes, types and numbers. Where one of them differs, PyTorch compiles again, which
takes as long as hundreds of steps. After eight times it stops compiling that function and says so in one line of the
log: from then on the function runs uncompiled, and still pays for checking the guards each time.

## How to fix it
The reason names what differed. A size: `torch._dynamo.mark_dynamic(x, 0)` or `torch.compile(model, dynamic=True)`, or
padding to a few lengths; for the last, smaller batch `drop_last=True`. A Python number, such as the result of
`.item()` or a learning rate: pass it as a tensor, or keep it out of the compiled function.

## When to leave it
The first steps of a training, and a new length that occurs once.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    Breakdown,
    Ev,
    Example,
    Finding,
    Missing,
    RankRecord,
    RowMask,
    Scale,
    Source,
    Steps,
    Trace,
    draw,
    duration,
    total,
)

from ..shared._compiled_regions import compiling
from ..shared._places import place
from ..shared._words import count, often, percent, plural
from ._compiled import Recompile, given_up, marks_regions, recompiles
from ._recompile_fixes import DYNAMIC, NUMBERS, fix

CONFIRMED = "real traces: torch.compile on a CPU with changing lengths and with a number from .item()"

_COMPILES = "compile_inner (dynamo_timed)"


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    record: RankRecord | None,
    scale: Scale,
    *,
    min_per_step: float = 0.1,  # one compilation in ten steps is no longer warm-up: it took as long as all of them
) -> Iterator[Finding]:
    events = trace.events
    compiled = events.named(_COMPILES)
    known = recompiles(record)
    if not known and not compiled.any():
        return
    # Capture has warmed up before it profiles; somebody else's first profiled step may be the warm-up.
    # Steps that compile may be left out of all shares: they lie between the others.
    first_ns = steps.spans[0, 0] if record else steps.spans[min(1, steps.count - 1), 0]
    compiled &= (events.start_ns >= first_ns) & (events.start_ns < steps.recorded[-1, 1])
    if not record and steps.count == 1:
        compiled[:] = False
    if still := compiled.sum() >= min_per_step * _recorded(steps):
        idle_us = scale.scaled(breakdown.us_in("idle_host", compiling(events)))
        found = _still_compiling(trace, steps, compiled, known)
        yield _while_idle(found, idle_us) if breakdown.on_device else replace(found, claims=("forward",))
    lost = given_up(record)
    if lost and not marks_regions(record):
        if still:
            return
        raise Missing(
            f"torch.compile gave up on {plural(len(lost), 'function')}, the last time because of `{known[-1].reason}`, "
            "but torch before 2.6 records no compiled regions, so whether a step runs it uncompiled is not known"
        )
    lookups = _per_step(trace, steps, "TorchDynamo Cache Lookup")
    regions = _per_step(trace, steps, "Torch-Compiled Region")
    # Every look-up that finds compiled code is followed by that code's region.
    if lost and lookups > regions:
        yield _stopped_compiling(lost, lookups - regions, breakdown, [one for one in known if one.frame in lost])


def _recorded(steps: Steps) -> int:
    """Profiled steps, with those that are in no share."""
    return steps.count + len(steps.stalls_us)


def _recorded_ns(steps: Steps) -> float:
    """What all of these take."""
    return steps.count * steps.step_us * 1e3 + sum(steps.stalls_us) * 1e3


def _per_step(trace: Trace, steps: Steps, name: str) -> float:
    events = trace.events
    return float((events.named(name) & (steps.step_of(events.start_ns) >= 0)).sum()) / steps.count


def _still_compiling(trace: Trace, steps: Steps, compiled: RowMask, known: list[Recompile]) -> Finding:
    events = trace.events
    spans = events.covered(compiled)
    share = total(spans) / _recorded_ns(steps)
    last = known[-1] if known else None
    why = f", the last time because of `{last.reason}`" if last else ""
    where = last.where if last else None
    return Finding(
        message=(
            f"torch.compile compiled {_times(int(compiled.sum()))} in {plural(_recorded(steps), 'profiled step')}"
            f"{why}{place(where)}: {percent(share)} of their time (the profiler makes compiling slower)."
        ),
        # The profiler makes a compilation some ten times slower, so its time there says little about a step without.
        saving=None,
        where=(where,) if where else (),
        facts={"per_step": float(compiled.sum()) / _recorded(steps), "profiled_share": share, "recompiles": len(known)},
        fix=fix(last, trace, steps, compiled),
        at_most="medium",
    )


def _while_idle(found: Finding, idle_us: float) -> Finding:
    """The finding with the time for which the device waits for compilations, µs per step."""
    if not idle_us:
        return found
    message = f"{found.message} The GPU is idle meanwhile, {duration(idle_us)} of each step."
    return replace(found, message=message, measured_us=idle_us, claims=("idle_host",))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{count(number)} times"


def _stopped_compiling(
    lost: dict[str, int], uncompiled: float, breakdown: Breakdown, known: list[Recompile]
) -> Finding:
    last = known[-1]
    where: Source | None = last.where
    return Finding(
        message=(
            f"torch.compile gave up on {plural(len(lost), 'function')} after {count(max(lost.values()))} "
            f"recompilations and runs {'it' if len(lost) == 1 else 'them'} uncompiled {often(uncompiled)}, the "
            f"last time because of `{last.reason}`{place(where)}."
        ),
        saving=None,
        where=(where,) if where else (),
        facts={"functions": len(lost), "uncompiled_calls": uncompiled, "recompiles": len(known)},
        fix=DYNAMIC if "size mismatch" in last.reason else NUMBERS,
        claims=() if breakdown.on_device else ("forward",),
        at_most="medium",
    )


_RECOMPILE = Ev("_compile.compile_inner (dynamo_timed)", launches="")
_LOOKUP = Ev("TorchDynamo Cache Lookup", launches="")
_REGION = Ev("Torch-Compiled Region: 0/0", launches="")
_SIZES = [f"0/{i}: tensor 'x' size mismatch at index 0. expected {i + 4}, actual {i + 5}" for i in range(8)]
_STEPS = """
    step   [1                             ][2                             ]
    cpu    [L][C        ][F     ][B      ]  [L][C        ][F     ][B      ]
    """

EXAMPLES = [
    Example(
        "a new length in each step",
        draw(_STEPS, us=1000, L=_LOOKUP, C=_RECOMPILE),
        facts={"compile": {"recompiles": _SIZES[:3]}, "settings": {"compiled": True}},
        saves_us="unknown",
        says=("compiled 2 times in 2 profiled steps", "size mismatch at index 0. expected 6"),
    ),
    Example(
        "the same in a trace without a record, whose first step may be the warm-up",
        draw(_STEPS, us=1000, L=_LOOKUP, C=_RECOMPILE),
        saves_us="unknown",
        says=("compiled once",),
    ),
    Example(
        "compiled in the first step of such a trace",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [L][C        ][F     ][B      ]  [L]           [F     ][B      ]
            """,
            us=1000,
            L=_LOOKUP,
            C=_RECOMPILE,
        ),
        near_miss=True,
    ),
    Example(
        "eight recompilations later it runs uncompiled",
        draw("step [1              ][2              ]\ncpu  [L][F    ][B    ] [L][F    ][B    ]", us=1000, L=_LOOKUP),
        facts={"compile": {"recompiles": _SIZES}, "settings": {"compiled": True}},
        saves_us="unknown",
        says=("gave up on 1 function after 8 recompilations",),
    ),
    Example(
        "recompiled during the warm-up, compiled since",
        draw(
            "step [1                 ][2                 ]\ncpu  [L][R  ][F    ][B    ] [L][R  ][F    ][B    ]",
            us=1000,
            L=_LOOKUP,
            R=_REGION,
        ),
        facts={"compile": {"recompiles": _SIZES[:2]}, "settings": {"compiled": True}},
        near_miss=True,
    ),
    Example("no torch.compile", draw("step [1        ][2        ]\ncpu  [F  ][B   ][F  ][B   ]", us=1000)),
]
