"""Checkpoints are saved so often that they slow training down.

## What it looks at
Places where the loop reads the whole state of the model (`state_dict()`, recognized by the shapes of all its
parameters) and then runs Python for longer than anything else does between two ops. That is what writing, serializing
or sending a checkpoint looks like. With an accelerator: such a read whose tensors are copied to the host, as
`torch.save` does, and the time for which the device waits or does nothing but copy. If the profiled steps contain
none: the share of the whole run spent in `torch.save` and similar functions.

## Why it costs time
`torch.save` serializes every weight, and the optimizer's state with them, and writes them while the training waits.
Once an hour this does not matter; every few steps it is a part of each step.

## How to fix it
Save less often: by time (every ten minutes) or every few thousand steps. Copy the state and write the copy in a
thread, or use `torch.distributed.checkpoint.async_save`.

## When to leave it
Machines that may be preempted at any moment, where little work may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    GRADIENT_STORE,
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    Lines,
    LinesTrace,
    Price,
    RankRecord,
    Source,
    StateRead,
    StateReads,
    Steps,
    WatchedRun,
    constant,
    draw,
    duration,
    edits,
    total,
    where_read,
)

from ..shared._device_waits import to_host, waiting_us
from ..shared._places import place, set_at
from ..shared._run_examples import run_of, sample
from ..shared._run_parts import each_hour, finding_of, is_known, saving_of, watched
from ..shared._words import often, percent
from ._intervals import CHECKPOINTS, happens_at, places_of, worded
from ._rhythm import Rhythm, rhythm

CONFIRMED = "measured pair on a CPU: a checkpoint every 5 steps against one every 75"

# Packing and writing even a small model takes longer than this; a look at the names of its parameters does not.
_LONG_NS = 500_000
# Least share of saving checkpoints that goes when they are a hundredth as frequent.
_FEWER = constant("share.needless_saves").value
# Where no profiled step has one, checkpoints are named from this share of the run: once an epoch is customary, and
# takes a twentieth.
_OF_THE_RUN = 0.1
_SELDOMER = 100  # times: the saving counts a tenth of the checkpoints as kept
# Of a checkpoint: from here on compressing it is what takes the time.
_MOSTLY = 0.5
_PLAIN = Fix(
    "Save checkpoints without compressing them: floats hardly get smaller",
    "exact",
    'with gzip.open(path, "wb") as file:\n    torch.save(state, file)',
    "torch.save(state, path)",
)
_SELDOM = Fix(
    "Save checkpoints less often",
    "semantics",
    "if step % 10 == 0:\n    torch.save(model.state_dict(), path)",
    "if step % 1000 == 0:\n    torch.save(model.state_dict(), path)",
)


def check(
    price: Price,
    lines: Lines,
    recorded: LinesTrace | None,
    state: StateReads | None,
    record: RankRecord | None,
    run: WatchedRun | None,
    *,
    min_share: float = 0.02,  # one number to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    # Whole states are not told from other reads in traces without shapes; how the run went is known all the same.
    found = tuple(_in_steps(price, lines, recorded, state, record, min_share)) if state else ()
    yield from found or _in_run(run, record, _OF_THE_RUN)


def _in_run(run: WatchedRun | None, record: RankRecord | None, min_share: float) -> Iterator[Finding]:
    """Checkpoints between the profiled steps: how much of the run they take."""
    part = run.loop.get("checkpoints") if run else None
    if run is None or part is None or not part.times or not is_known(part, run, min_share):
        return
    where, at = places_of(part, record, CHECKPOINTS), happens_at(part, record, CHECKPOINTS)
    every = max(round(run.steps / part.times), 1)
    packed = _compressing(record)
    how = "low: every tenth one remains; high: the run without them"
    saving, fix = (
        saving_of(run, part, _FEWER, 1.0, how),
        worded(_SELDOM, record, CHECKPOINTS, run, every, every * _SELDOMER),
    )
    if packed >= _MOSTLY:
        how = "low: the samples of the stack that compress; high: the run without checkpoints"
        saving, fix = saving_of(run, part, packed, 1.0, how), _PLAIN
    told = f", {percent(packed)} of that to compress them" if packed >= _MOSTLY else ""
    yield finding_of(
        run,
        part,
        f"Checkpoints{place(at)} take {percent(part.us / run.loop_us)} of {watched(run)}: "
        f"{duration(part.us / part.times)} each{told}, {often(part.times / run.steps)} "
        f"({each_hour(part.us / run.loop_us)}).",
        saving,
        fix,
        "medium",  # how much work may be lost is the user's to say
        where,
    )


def _compressing(record: RankRecord | None) -> float:
    """The share of the samples in checkpoints that compress them."""
    samples = [one for one in (record.run.samples if record and record.run else ()) if "save" in one.marks]
    every = sum(one.hits for one in samples)
    return sum(one.hits for one in samples if "compress" in one.marks) / max(every, 1)


def _in_steps(
    price: Price,
    lines: Lines,
    recorded: LinesTrace | None,
    state: StateReads,
    record: RankRecord | None,
    min_share: float,
) -> Iterator[Finding]:
    """Checkpoints in the profiled steps."""
    if not price.on_device and price.ops.device.kind != "none":
        return
    trace, steps, scale = price.ops.trace, price.ops.steps, price.scale
    runs = _checkpoints(price, state)
    if not runs:
        return
    spans: Intervals = np.array([(run.start_ns, run.until_ns) for run in runs], np.int64)
    # The parts in which a device waits are other rules', which name what ran meanwhile.
    claims = () if price.on_device else ("other_ops", "host")
    spent_us = waiting_us(price, spans) if price.on_device else steps.per_step_us(total(spans))
    spent_us = min(spent_us, price.measured_us(claims))
    share, mean_us = spent_us / steps.step_us, scale.step_us
    seen = _rhythm(steps, spans, record)
    if seen is not None:
        share, mean_us = seen.low, seen.mean_us
        how = "low: the steps with a checkpoint become like the others; high: plus those after them, which wait for it"
        saving = price.shares(seen.low, seen.high, how, basis="measured")
    else:
        how = "low: every tenth one remains; high: the step without them"
        gone = [edits.remove_time(spans)]
        ends, most_us = ((spent_us, spent_us), spent_us) if price.on_device else (None, None)
        saving = price.saving(gone, gone, claims, how, model_us=ends, bound_us=most_us)
        saving = replace(saving, low_us=_FEWER * saving.low_us)
    if saving.high_us < min_share * scale.step_us:
        return
    where = where_read(trace, steps, lines, recorded, runs[0]) or _only_save(record)
    each_us = float((spans[:, 1] - spans[:, 0]).mean()) / 1e3
    yield Finding(
        message=(
            f"The whole state is read {often(len(runs) / steps.count)}{place(where)} and then processed for "
            f"{duration(each_us)}, as for a checkpoint: {duration(share * mean_us)} of an average step "
            f"({percent(share)})."
        ),
        saving=saving,
        where=((where,) if where else ()) + set_at(record.settings if record else None, CHECKPOINTS.setting),
        facts={"per_step": len(runs) / steps.count, "each_us": each_us, "checkpoint_us": spent_us},
        fix=_SELDOM,
        claims=claims,
        at_most="medium",  # how much work may be lost is the user's to say
    )


def _checkpoints(price: Price, state: StateReads) -> list[StateRead]:
    """Reads of the whole state that are processed; none where only some of them are."""
    if price.on_device:
        return [run for run in state.runs if 2 * to_host(price, run) >= state.parameter_bytes > 0]
    reads = [run for run in state.runs if not run.copied_bytes]
    runs = [run for run in reads if run.until_ns - run.end_ns >= _LONG_NS]
    # A pause after one read in three is the machine's, not a checkpoint.
    return runs if 2 * len(runs) >= len(reads) else []


def _rhythm(steps: Steps, spans: Intervals, record: RankRecord | None) -> Rhythm | None:
    """How much longer the steps with a checkpoint are without the profiler, where one comes every so many steps."""
    every = set(np.diff(steps.step_of(spans[:, 0])).tolist())
    if record is None or len(every) != 1:
        return None
    times, before = record.steps.unprofiled_us, record.steps.timed_before or 0
    # The window lies between the two, and breaks the rhythm.
    return rhythm(max(times[:before], times[before:], key=len), every.pop())


def _only_save(record: RankRecord | None) -> Source | None:
    """The one line of the training loop that writes a checkpoint, by its text; None where it has none or several."""
    saves = (record.saves or []) if record else []
    return Source(saves[0].file, saves[0].line, saves[0].function) if len(saves) == 1 else None


_STORED = Ev(GRADIENT_STORE, dims=[[800, 800]])
_STORED_2 = Ev(GRADIENT_STORE, dims=[[800]])
_READ = Ev("aten::detach", dims=[[800, 800]])
_READ_2 = Ev("aten::detach", dims=[[800]])
_STEPS = """
    step   [1                                     ][2                                     ]
    cpu    [F  ][B       ][O ] [C][D]               [F  ][B       ][O ] [C][D]
    cpu         [S  ][T ]                                [S  ][T ]
    """
_REST: dict[str, Any] = {"S": _STORED, "T": _STORED_2}

_QUIET = """
    step   [1                                     ][2                                     ]
    cpu    [F  ][B       ][O ]                      [F  ][B       ][O ]
    cpu         [S  ][T ]                                [S  ][T ]
    """


def _run(save_s: float, *marks: str) -> dict[str, Any]:
    """A run of 400 steps in 40 s with ten checkpoints between them."""
    trains, saves = sample("step", 80, 150, "forward", hits=200), sample("between", 95, 10, "save", *marks, hits=200)
    return run_of({"step": (40.0, 400), "between": (save_s, 10)}, trains, saves)


_ON_DEVICE = """
    step   [1                                     ][2                                     ]
    cpu    [F  ][B       ][O ] [C][D][P     ]       [F  ][B       ][O ] [C][D][P     ]
    cpu         [S  ][T ]                                [S  ][T ]
    gpu 7   [K          ]                            [K          ]
    gpu 7                                [M]                                  [M]
    """
_COPY = Ev("aten::copy_", dims=[[2_563_200], [2_563_200]], dtypes=["unsigned char"] * 2, launches="memcpy", blocks=True)
_TO_HOST = Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=2_563_200)
_SMALL = Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=4)

EXAMPLES = [
    Example(
        "a checkpoint in each step",
        draw(_STEPS, us=100, C=_READ, D=_READ_2, **_REST),
        saves_us=(900, 2000),
        says=("once a step", "as for a checkpoint"),
    ),
    Example(
        "a checkpoint in each step, for which a device waits",
        draw(_ON_DEVICE, us=100, P=_COPY, M=_TO_HOST, C=_READ, D=_READ_2, **_REST),
        saves_us=(500, 2000),
        says=("once a step", "as for a checkpoint"),
    ),
    Example(
        "the state is read, and nothing of it goes to the host",
        draw(_ON_DEVICE, us=100, P=_COPY, M=_SMALL, C=_READ, D=_READ_2, **_REST),
        near_miss=True,
    ),
    Example(
        "the state is read and the next step follows at once",
        draw(_STEPS, us=20, C=_READ, D=_READ_2, **_REST),
        near_miss=True,
    ),
    Example(
        "some tensors are detached and a long pause follows",
        draw(_STEPS, us=100, C=Ev("aten::detach", dims=[[64, 10]]), D=Ev("aten::detach", dims=[[64]]), **_REST),
        near_miss=True,
    ),
    Example(
        "a checkpoint after each epoch, and the epochs are short",
        draw(_QUIET, us=100, **_REST),
        facts=_run(20.0),
        saves_us=(30_000, 60_000),
        says=("train.py:95", "33 %", "20 min of each hour"),
    ),
    Example(
        "the same where gzip compresses it",
        draw(_QUIET, us=100, **_REST),
        facts=_run(20.0, "compress"),
        saves_us=(30_000, 60_000),
        says=("100 % of that to compress them",),
        fixes=("without compressing",),
    ),
    Example("a checkpoint after each epoch", draw(_QUIET, us=100, **_REST), facts=_run(1.0), near_miss=True),
    Example("no checkpoint", draw(_QUIET, us=100, **_REST)),
]
