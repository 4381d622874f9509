"""Python code between ops takes a significant part of the step.

## What it looks at
On machines without an accelerator: lines of the user's code that spend their time in long stretches of Python, in
which no op, no fetch and no optimizer runs, together with the ops between these stretches. A function that a line calls
often is reported together with that line. Where one step in every few is far longer, also in the steps timed without
the profiler, it counts with its share of all steps. The few microseconds between the ops of a model do not count, and
neither does a library call that runs once a step for less than a tenth of a millisecond. Where step times rise during
the run and this Python time rises in the profiled steps, the high end of the saving is the time at the end of the run
so far. Of containers that these lines read by index, search, cut at the front or extend by a copy, the type and the
length are recorded; where the operation is a large part of a line's time, it is named with the line that makes the
container. Python of a training loop that a library runs, at the line that calls it, is reported as the library's: what
its settings can take away is not known, and the low end of the saving is zero. (With an accelerator, Python time
matters only while the device is idle: see the rule idle-gpu.)

## Why it costs time
Python handles one number at a time. A loop over samples, a conversion to lists, a metric in pure Python, a
checkpoint or a log line takes as long as many tensor ops, and the cores that could compute wait for it. Some operations
take longer the more a container holds: `deque[i]` and `random.sample(deque, n)`, `x in list`, `list.pop(0)`,
`np.append(array, x)`.

## How to fix it
Replace loops over elements with tensor ops over the batch. Do logging, metrics and checkpoints every N steps. Do work
that depends only on the data once, before the training, or in the dataset, where loader workers run it during the
step. Keep a replay memory in a list that is used as a ring or in arrays, search a set, and remove from the front of a
deque.

## When to leave it
Work that the training needs at that point and that is already fast.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    LOOP_ITERATIONS,
    MOST_KEPT,
    Block,
    CallSites,
    Finding,
    Fix,
    LineCost,
    Lines,
    LoopPlaces,
    Price,
    RankRecord,
    Saving,
    SideThreads,
)

from ..shared._places import calls_collector, object_of
from ..shared._rising_steps import end_of_rise
from ..shared._side_effect_factors import SIDE_EFFECTS
from ..shared._slow_containers import in_container, slow_container
from ..shared._vectorized import named_vectorize
from ..shared._words import each_step, percent
from ._gc_time import collected_us
from ._host_work_examples import OF_HOST_WORK
from ._library_loops import of_library
from ._messages import as_messages
from ._periodic_python import now_and_then, python_ns
from ._without_core import asleep, kept_waiting, without_core

CONFIRMED = (
    "measured pairs on a CPU: tokenising, metrics, augmentation and hooks in Python; containers: one script that "
    "showed the need"
)

# What runs once in a step and is shorter than this is a call or two of a library: there is no loop to remove, and the
# calls of tensor ops would take as long.
_SOMEBODYS_US = 100.0
# The share of all Python from which on one place counts as the cause of what all of it does.
_MOST = 0.5


def check(
    price: Price,
    places: LoopPlaces | None,
    lines: Lines,
    record: RankRecord | None,
    threads: SideThreads | None,
    *,
    min_share: float = 0.10,  # every loop has some unavoidable Python; lines of clean scripts stay below 7 %
    min_spread: float = 0.25,  # over all lines, well-written scripts have 5 to 12 %, and small ones 20 %
) -> Iterator[Finding]:
    # With an accelerator, known or not, Python that overlaps with the device's work costs nothing.
    if price.on_device or price.ops.device.kind != "none":
        return
    steps, breakdown, scale, deprofiled = price.ops.steps, price.breakdown, price.scale, price.deprofiled
    rare, once_us = now_and_then(deprofiled.python, steps, scale.every, kept_waiting(record, scale))
    host_us = min(breakdown.us("host"), deprofiled.python_us) - once_us
    without_core_us = without_core(record, threads) * steps.step_us
    # Pauses of the garbage collector are Python too, and the rule garbage-collection owns them.
    bound_us = max(host_us - collected_us(record, deprofiled, steps) - without_core_us, 0.0)
    if bound_us < min_share * steps.step_us:
        return
    end_us = end_of_rise(python_ns(deprofiled.python, steps), record) if record else None
    found = False
    named_us = places.python_us if places else 0.0
    cut = record is not None and any(file.cut for file in record.files)
    for index, place in enumerate(places.python if places else ()):
        # Past the cap on recorded lines a stretch has none: it belongs to the place that it begins with.
        nameless_us = max(deprofiled.python_us - named_us, 0.0) if cut and index == 0 else 0.0
        of_loop = of_library(place, min(place.python_us + nameless_us, bound_us), lines, price, record)
        if of_loop is not None:
            found = True
            if of_loop.saving is not None and of_loop.saving.high_us >= min_share * price.scale.step_us:
                yield of_loop
            continue
        grown_us = end_us if place.python_us + nameless_us >= _MOST * deprofiled.python_us else None
        here = rare.of(place, lines, deprofiled.python, steps) if rare is not None else None
        saving = _saving(place, nameless_us, price, here, grown_us)
        few = len(rare.longer) / steps.count if rare is not None and here is not None else 1.0
        work = [line for line in place.lines if _is_work(line, few) and not calls_collector(line.source, record)]
        worth_us = sum(line.us for line in work) + nameless_us - without_core_us
        if min(worth_us, bound_us) >= min_share * steps.step_us:
            found = True
            us = min(place.us + nameless_us, bound_us + place.us)
            found_here = _finding(place, us, saving, here, grown_us is not None, price)
            named = _named(found_here, place, lines, price, record)
            yield asleep(named, price, threads, record) if rare is None else named
    if not found and (places is None or named_us < 0.5 * bound_us) and bound_us >= min_spread * steps.step_us:
        yield _nameless(bound_us, price, captured=places is not None)


def _named(found: Finding, place: Block, lines: Lines, price: Price, record: RankRecord | None) -> Finding:
    """The finding with the lines around the place, and with what runs there where capture knows it by name."""
    found = as_messages(found, place, price, record)
    called = CallSites.compute(price.ops.trace, lines).of_lines(place.where)
    heads = place.heads if place.lines[0].visits >= LOOP_ITERATIONS else ()
    made = object_of(place.where[0], record)
    found = replace(found, where=tuple(dict.fromkeys((*heads, *found.where, *called, *made))))
    slow = slow_container(record, place.lines, price.scale.scaled(place.python_us))
    return named_vectorize(in_container(found, slow, price), record)


def _is_work(line: LineCost, few: float) -> bool:
    """Whether a rewrite could take away a line of Python: one of a loop, or one that is long at each run.

    few: the share of the steps in which it ran. A line that fetches from a loader calls a library before and behind it.
    """
    pieces = line.visits * (2 if line.parts.get("input") else 1)
    return line.inner or line.visits >= few * LOOP_ITERATIONS or line.python_us >= _SOMEBODYS_US * pieces


def _saving(place: Block, nameless_us: float, price: Price, rare: float | None, end_us: float | None) -> Saving:
    """rare: the part of what makes some steps long that is this place's; None where it is in every step.

    end_us: what a step takes at the end of the run, where it is this place that makes steps longer and longer."""
    deprofiled, scale = price.deprofiled, price.scale
    nameless = deprofiled.in_part("rest", nameless_us, python_us=nameless_us)
    low, high = deprofiled.share(place.whole(deprofiled) + nameless)
    slowed = high - low
    how = "high: all of these lines and what they evict from the caches; low: three tenths of it remain as tensor ops"
    times = scale.unprofiled
    if rare is not None and times.mean and times.median and times.p10:
        # The window may hold more or fewer of the steps that have it than the script does; all steps were timed.
        tail, spread = (rare * max(1 - us / times.mean, 0.0) for us in (times.median, times.p10))
        low, high = min(max(low, tail), spread), max(high, spread)
        how = "the mean step minus the median, and minus the fastest 10 %: it runs only in some of the steps"
    high = min(max(high, low) * SIDE_EFFECTS, 1.0)
    if end_us is not None and end_us > scale.step_us:
        high = 1 - (1 - high) * scale.step_us / end_us
        how = "low: three tenths of these lines remain as tensor ops; high: their time at the end of the run so far"
    return price.shares(low * (1 - MOST_KEPT), high, how, slowed=slowed)


def _finding(place: Block, us: float, saving: Saving, rare: float | None, grows: bool, price: Price) -> Finding:
    taken, often = each_step(price, us), " at"
    if rare is not None:
        few = "a few of the steps" + (f" (one in {price.scale.every})" if price.scale.every else "")
        # The one step whose lines were recorded may not be one of those: then the line is the one beside it.
        taken, often = (
            f"{percent(min(us / price.ops.steps.step_us, 1.0))} of all time",
            f", all of it in {few}, at or before",
        )
    more = ", and grows with every step" if grows else ""
    return Finding(
        message=f"Python code between ops takes {taken}{often} {place.place}{more}.",
        saving=saving,
        where=place.where,
        facts={"python_us": place.python_us, "lines_us": place.us},
        fix=Fix("Use tensor ops, run it less often, or compute it once before the training", "exact"),
        claims=("host", "other_ops", "forward", *(("backward",) if place.backward_us else ())),
    )


def _nameless(us: float, price: Price, *, captured: bool) -> Finding:
    how = "all of it, if the work can leave the loop or become tensor ops; else nothing"
    where = ", spread over many lines and the libraries they call" if captured else ""
    more = "" if captured else "; capture with `advisor run` to see which lines"
    return Finding(
        message=f"Python code between ops{where} takes {each_step(price, us)}{more}.",
        saving=price.scale.saving(0.0, us, how),
        facts={"python_us": us},
        claims=("host",),
    )


EXAMPLES = OF_HOST_WORK
