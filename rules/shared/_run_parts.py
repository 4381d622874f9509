"""Findings about time between training steps: what each says of the part of the run that it is about."""

from __future__ import annotations

import math

from msgspec.structs import replace

from advisor.api import Finding, Fix, RunPart, Saving, Severity, Source, WatchedRun, duration

# The line to change, that which it stands before, what repeats it, the line in that, and where the time passes.
MOST_PLACES = 5


def is_known(part: RunPart | None, run: WatchedRun, min_share: float) -> bool:
    """Whether a part takes that share of the loop, beyond what chance would show of it."""
    return part is not None and part.us - 2 * part.error_us >= min_share * run.loop_us > 0


def lines_of(part: RunPart) -> tuple[Source, ...]:
    """The lines that most of a part passes in, the costliest first; those of a tenth of it and less are left out.

    Before each the `if` that says how often it happens, which is the line to change; after it, the loop below it, the
    line in that where most of it passes, and the innermost line of that.
    """
    costly = [line for line in part.lines if line.us > part.us / 10]
    every = (
        at for line in costly for at in (line.guard, line.source, line.loop, line.turn, line.inner) if at is not None
    )
    return tuple(dict.fromkeys(every))[:MOST_PLACES]


def narrowed(part: RunPart, us: float) -> RunPart:
    """So much of a part, with its standard error in proportion."""
    share = min(us / part.us, 1.0) if part.us else 0.0
    of_loop = None if part.share is None else share * part.share
    return replace(part, us=share * part.us, share=of_loop, error_us=math.sqrt(share) * part.error_us)


def each_hour(share: float) -> str:
    """A share of the run as time: '22 min of each hour'."""
    return f"{share * 60:.0f} min of each hour"


def saving_of(run: WatchedRun, part: RunPart, least: float, most: float, how: str) -> Saving:
    """A saving of these shares of a part, in µs of the run for each training step, as far as samples know the part."""
    low = max(least * part.us - 2 * part.error_us, 0.0) / run.steps
    high = min(most * (part.us + 2 * part.error_us), run.loop_us) / run.steps
    return Saving(low, max(low, high), "measured", how)


def finding_of(
    run: WatchedRun,
    part: RunPart,
    message: str,
    saving: Saving | None,
    fix: Fix,
    at_most: Severity,
    where: tuple[Source, ...] = (),
) -> Finding:
    """A finding about a part of the run. where: the lines to change, if they are not those of the part."""
    times = {"times": part.times} if part.times else {}
    return Finding(
        message=message,
        saving=saving,
        where=where or lines_of(part),
        facts={
            "watched_us": run.loop_us,
            f"{part.id}_us": part.us,
            "share": part.us / run.loop_us,
            "steps": run.steps,
            **times,
        },
        fix=fix,
        at_most=at_most,
        measured_us=part.us / run.steps,
        run_us=run.loop_us / run.steps,
    )


def watched(run: WatchedRun) -> str:
    """What the shares are of: 'the watched 240 s after the first step'."""
    return f"the {duration(run.loop_us)} recorded after the first step"
