"""A few steps take many times as long as the others.

## What it looks at
Steps of a trace that was not recorded by `advisor run`: those many times as long as the others are left out of all
shares, as a window of a few steps does not tell how often they come. If two or more of them were recorded, and they
make up a large part of the recorded time, this rule says what the loop does in them: in its DataLoader, in the creation
of an iterator, or in which function, if stacks were recorded. `advisor run` accounts for the whole run instead.

## Why it costs time
An epoch of few steps starts the loader's workers again and again, and waits for their first batches. An evaluation, a
checkpoint, plots or a collection of garbage every few steps stop the training as well. The typical step shows nothing
of it.

## How to fix it
Keep the workers between epochs: `DataLoader(..., persistent_workers=True)`, with the loader created once. Evaluate,
save and plot less often, or in another process. Record with stacks (`with_stack=True`) if no function is named, or to
see whether workers start.

## When to leave it
A window that happens to contain two rare events, such as the ends of long epochs.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import NEXT_WORKERS, Drawing, Ev, Example, Finding, Fix, Saving, StalledSteps, draw, duration

from ..shared._places import place
from ..shared._words import percent


def check(
    stalled: StalledSteps | None,
    *,
    min_share: float = 0.1,  # a window catches rare events by chance: less than a tenth of it is not worth a question
) -> Iterator[Finding]:
    if stalled is None:
        return
    spent, waits = stalled.spent, stalled.spent.waits_for_loader
    if stalled.added_us < min_share * stalled.mean_us or not (waits or spent.where):
        return
    doing = f"waits for its DataLoader for {percent(spent.in_loader)} of what they take longer"
    starts = spent.in_start or 0.0
    if waits and starts >= min_share:
        doing += f", {percent(starts)} while an iterator is created and its workers start"
    if not waits and spent.where:
        doing = f"spends most of what they take longer{place(spent.where)}"
    yield Finding(
        message=(
            f"{stalled.count} of {stalled.of} recorded steps take {duration(stalled.us)} on average, the others "
            f"{duration(stalled.usual_us)}: they add {duration(stalled.added_us)} to the mean step "
            f"({percent(stalled.added_us / stalled.mean_us)}). In them the loop {doing}."
        ),
        saving=Saving(
            0.0,
            stalled.added_us,
            "measured",
            "of the mean of all recorded steps; high: these steps become like the others; nothing if the run has few "
            "of them beyond the recorded window",
        ),
        where=(spent.where,) if spent.where else (),
        facts={"steps": stalled.count, "of": stalled.of, "mean_us": stalled.mean_us, "in_loader": spent.in_loader},
        fix=_SELDOM if not waits else _KEEP if starts >= min_share else None,
        measured_us=stalled.added_us,
        run_us=stalled.mean_us,
    )


_KEEP = Fix(
    "Keep the loader's workers between epochs, and create the loader once",
    "exact",
    "DataLoader(dataset, num_workers=4)",
    "DataLoader(dataset, num_workers=4, persistent_workers=True)",
)
_SELDOM = Fix("Run this less often, or in another process", "semantics")


def _window(within: Ev, long: int = 100, times: int = 2) -> Drawing:
    """Twelve steps of a GPU; some of them are long, and the loop is within something (W) meanwhile."""
    rows = {"step": "", "cpu": "", "gpu 7": ""}
    for number in range(12):
        width = long if number in (3, 8)[:times] else 5
        rows["step"] += f"[{number + 1}".ljust(width - 1) + "]"
        rows["cpu"] += ("[W".ljust(width - 9) + "][D ]" if width > 5 else "").ljust(width - 4) + "[F] "
        rows["gpu 7"] += "[K]".rjust(width - 1) + " "
    text = "\n".join(f"{name:8}{row}" for name, row in rows.items())
    if not times:
        return draw(text, us=1000, device="A100")
    return draw(text, us=1000, device="A100", W=within, D=NEXT_WORKERS)


_CREATES = Ev("torch/utils/data/dataloader.py(415): _get_iterator", "python_function")
_WAITS = Ev("torch/utils/data/dataloader.py(1408): _get_data", "python_function")
_FUNCTION = Ev("train.py(74): save_previews", "python_function")

EXAMPLES = [
    Example(
        "every fifth step waits for a loader's new workers",
        _window(_CREATES),
        saves_us=(0, 18_000),
        says=("2 of 12 recorded steps", "waits for its DataLoader", "while an iterator is created"),
        fixes=("Keep the loader's workers",),
    ),
    Example(
        "every fifth step waits for a loader that starts no workers",
        _window(_WAITS),
        saves_us=(0, 18_000),
        says=("waits for its DataLoader",),
    ),
    Example(
        "every fifth step saves previews",
        _window(_FUNCTION),
        saves_us=(0, 18_000),
        says=("in save_previews(), from train.py:74",),
    ),
    Example("the same once", _window(_FUNCTION, times=1), near_miss=True),
    Example("steps that are all alike", _window(_FUNCTION, times=0)),
    Example("steps less than three times as long", _window(_FUNCTION, long=14), near_miss=True),
    Example("long steps whose reason the trace does not show", _window(Ev("aten::add")), near_miss=True),
]
