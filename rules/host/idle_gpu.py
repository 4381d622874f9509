"""The GPU is idle while the host does other work.

## What it looks at
Gaps in which no kernel, copy or memset runs on the device, and the host is not fetching a batch, not waiting in a
synchronization and not about to launch: it runs Python, prepares data, logs, collects garbage, writes a checkpoint.
Gaps without a name that the host would not leave if it did not wait before are left to `sync-in-loop`, few of them in
a step that waits for launches to `launch-bound`. Time in which threads do not run although nothing holds them: waits
that return long after the device was done, and other pauses of all threads that end, as they do, at multiples of
100 ms, the period of CPU quotas. Where gradients go to the host before an optimizer works there, and weights come back
(copies of as many elements, in two or four bytes each), these copies and the waits for them are told with its work.
Each gap is attributed to the code that ran in it, where the trace shows it. Gaps that nothing in the trace explains are
listed last.

## Why it costs time
The device has finished all the work it was given. Whatever the host does before the next launch is time in which the
most expensive part of the machine does nothing.

## How to fix it
Take this work out of the loop: do it once before training, do it every N steps, do it in the loader's workers
(they run concurrently with the step), or do it with tensor ops on the device instead of Python lists and loops.
Where the host computes what it then copies to the device, create it there (`device=`), or copy first and convert there.
Where a container's CPU quota is used up, raise it, or start fewer workers and threads than it has CPUs.

## When to leave it
Work that runs once per epoch or less and happens to be in the recorded steps. Work that must finish before the next
launch and cannot be made faster.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    D2H_PAGEABLE,
    GEMM,
    ITEM,
    NEXT,
    STANDSTILL,
    Category,
    Ev,
    Example,
    Finding,
    GpuIdle,
    IdleGroup,
    Intervals,
    Ints,
    Price,
    Saving,
    Standstills,
    draw,
    duration,
    edits,
    intersect,
    overlap_of_each,
    total,
    union,
)

from ..shared._host_updates import HostUpdate
from ..shared._made_on_host import COMPUTED_FOR_COPIES, NEXT_NS, made_on_host
from ..shared._words import percent
from ._idle_fixes import begins_with_results, fix_of
from ._nameless_idle import NAMELESS, has_a_name, in_one_step, rest, what_of
from ._updates_beside_torch import UPDATES_BESIDE_TORCH, updating
from .threads._standing_still import STANDING_STILL, standing_still
from .waits._waits import IDLE, Waits

CONFIRMED = "real trace: TimeSformer inference on an H100, 217 ms of preprocessing before the first kernel"

# More than the three largest places is a profile, not advice.
_PLACES = 3
# Work of the host in more pieces a step alternates with that of the device, as where weights are sent one by one: each
# piece may need the one before. What prepares a batch, or logs, is one piece or a few.
_ALTERNATES = 8


def check(
    idle: GpuIdle,
    price: Price,
    waits: Waits | None,
    update: HostUpdate,
    stills: Standstills,
    *,
    min_share: float = 0.03,  # below 3 % of the step a saving is within the noise between steps
    min_of_idle: float = 0.5,  # of all idle time: Python without a name and a fix is no diagnosis below that
) -> Iterator[Finding]:
    breakdown, steps = price.breakdown, price.ops.steps
    step_us = steps.step_us
    others = update.others
    host_us = breakdown.us("idle_host") - breakdown.us_in("idle_host", others)
    idle_us = sum(item.us for item in breakdown.items if item.id.startswith("idle_"))
    busy_us = step_us - idle_us
    named_us = update.idle_us(price)
    if len(update.spans):
        yield updating(price, update)
    still_us = breakdown.us_in("idle_host", stills.spans)
    if still_us >= min_share * step_us:
        named_us += still_us
        yield standing_still(still_us, stills, price)
    for group in idle.top("idle_host", _PLACES):
        if (group.where or group.host not in (*NAMELESS, STANDSTILL)) and group.us >= min_share * step_us:
            spans = idle.spans_of("idle_host", group)
            if (
                _optimizers_own(price, spans)
                or _mostly(spans, others)
                or _mostly(spans, update.around)
                or _of_the_loop(price, group, spans)
            ):
                continue
            named_us += group.us
            yield _named(group, _saving(group, idle, busy_us, price), spans, price)
    # Where the next work was queued already, the device itself needed the time: nothing in the script gives it back.
    unknown_us = breakdown.us("idle_unknown") - idle.nobodys_us
    rest_us = host_us - named_us + unknown_us
    if rest_us >= min_share * step_us and waits is not None:
        # What the host would hide if it did not wait before is reported with these waits.
        rest_us = min(host_us - named_us, _left_us(waits, price) - named_us) + unknown_us
    if rest_us >= min_share * step_us:
        alone = in_one_step(idle, steps)
        hidden = rest_us - unknown_us < min_of_idle * idle_us
        # What has no name tells nothing in a step that idles for something else, which other rules tell.
        if alone or not hidden or unknown_us >= min_share * step_us or has_a_name(idle, price):
            yield rest(rest_us, idle, price) if alone is None else alone


def _saving(group: IdleGroup, idle: GpuIdle, busy_us: float, price: Price) -> Saving:
    # Beside the device's work at most that much can be hidden; all of it goes if the work itself goes.
    model_us = min(group.us, busy_us), group.us
    gone = edits.remove_time(idle.spans_of("idle_host", group))
    how = "low: the work overlaps with that of the device; high: it is removed from the loop"
    found = price.saving([gone], [gone], ("idle_host",), how, model_us=model_us, bound_us=group.us)
    if group.gaps_per_step > _ALTERNATES:
        how = "low: nothing, if each piece needs what the device did before it; high: it is removed from the loop"
        return replace(found, low_us=0.0, how=how)
    return replace(found, low_us=min(found.low_us, price.scale.scaled(model_us[0])))


def _left_us(waits: Waits, price: Price) -> float:
    """Idle time that `sync-in-loop` leaves over, where it tells of more than what directly follows a wait, µs."""
    told_us = sum(wait.saving.high_us for wait in waits.told if wait.later)
    return max(sum(price.breakdown.us(part) for part in IDLE) - told_us / price.scale.factor, 0.0)


def _optimizers_own(price: Price, spans: Intervals) -> bool:
    """Whether most of the time lies in an optimizer's `step`: its own Python, which nobody can move elsewhere."""
    events = price.ops.events
    stepping = events.covered(events.of(Category.ANNOTATION) & events.named("Optimizer.step#"))
    return _mostly(spans, stepping)


def _mostly(spans: Intervals, inside: Intervals) -> bool:
    return 2 * total(intersect(spans, inside)) > total(spans)


def _of_the_loop(price: Price, group: IdleGroup, spans: Intervals) -> bool:
    """Whether the time is Python of modules between their ops, or of the function that holds the whole loop.

    Neither is a piece of work that could be moved elsewhere.
    """
    events, steps = price.ops.events, price.ops.steps
    python = events.of(Category.PYTHON)
    if _mostly(spans, events.covered(python & events.named("nn.Module: "))):
        return True
    where = group.where
    if where is None or where.precision == "call" or not where.function:
        return False
    longest = events.dur_ns[python & events.named(f"({where.line}): {where.function}")].max(initial=0)
    return bool(longest >= total(steps.recorded) / steps.count)


def _copies_around(price: Price, spans: Intervals) -> tuple[Ints, Ints]:
    """The copies that the host launches in ops, or calls, that reach into these spans, and the rows of those."""
    events, launch = price.ops.events, price.ops.links.launch
    copies = np.flatnonzero(events.of(Category.MEMCPY) & (launch >= 0))
    op = price.ops.nesting.outer_op[launch[copies]]
    around = np.where(op >= 0, op, launch[copies])
    # The op is left only when its copy has come: it reaches into the idle time that follows the queue's last work.
    mine = overlap_of_each(events.start_ns[around], events.end_ns[around], spans) > 0
    return copies[mine], around[mine]


def _named(group: IdleGroup, saving: Saving, spans: Intervals, price: Price) -> Finding:
    idle_us, share = price.scale.scaled(group.us), group.us / price.ops.steps.step_us
    what = f"runs {what_of(group.where, group.host)}"
    back = price.ops.events.named("DtoH")[_copies_around(price, spans)[0]]
    # What is computed for a copy may end right before it.
    copies, around = _copies_around(price, union(spans[:, 0], spans[:, 1] + NEXT_NS))
    fix = None
    if len(copies) and not back.any():
        fix = made_on_host(price, np.unique(around).tolist()).fix_for(spans)
        what = f"computes what {what_of(group.where, price.ops.events.text(int(around[0])))} copies" if fix else what
    return Finding(
        message=(f"The GPU is idle {duration(idle_us)} of each step ({percent(share)}) while the host {what}."),
        saving=saving,
        where=(group.where,) if group.where else (),
        facts={"idle_us": group.us, "gaps_per_step": group.gaps_per_step, "host": group.host},
        fix=fix or fix_of(group.host, 2 * int(back.sum()) > len(back), begins_with_results(price, spans)),
        claims=("idle_host",),
    )


_STEPS = """
    step   [1                       ][2                       ]
    cpu    [P          ][F  ][B  ]   [P          ][F  ][B  ]
    gpu 7                [K ][K     ]              [K ][K     ]
    """

EXAMPLES = [
    *UPDATES_BESIDE_TORCH,
    *STANDING_STILL,
    *COMPUTED_FOR_COPIES,
    Example(
        "a function prepares the input before each launch",
        draw(_STEPS, us=1000, P=Ev("train.py(12): prepare")),
        saves_us=(9000, 15000),
        says=("`prepare` in train.py:12",),
    ),
    Example(
        "Python that no row of the trace names",
        draw(
            """
            step   [1                       ][2                       ]
            cpu                 [F  ][B  ]                [F  ][B  ]
            gpu 7                [K ][K    ]               [K ][K    ]
            """,
            us=1000,
        ),
        saves_us="unknown",
        says=("does not name", "advisor run"),
    ),
    Example(
        "the loop's thread waits while that of the loader takes pinned memory",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F  ]                [B  ][F  ]                [B  ]
            cpu 2      [A              ]         [A              ]
            gpu 7   [K ]                 [K ] [K ]                 [K ]
            """,
            us=1000,
            A=Ev("cudaHostAlloc", "cuda_runtime"),
        ),
        saves_us="unknown",
        says=("another thread calls `cudaHostAlloc`",),
    ),
    Example(
        "Python of the optimizer itself, before it launches: nothing that could be moved elsewhere",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F ][B ][O               ][F ][B ][O               ]
            cpu            [P          ]             [P          ]
            cpu                         [U]                       [U]
            gpu 7   [K ][K]              [K]  [K ][K]              [K]
            """,
            us=1000,
            O=Ev("Optimizer.step#SGD.step", "user_annotation"),
            P=Ev("train.py(90): step"),
            U="aten::_foreach_add_",
        ),
        saves_us="unknown",
    ),
    Example(
        "the same function while the device still works",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F  ][B  ][P            ] [F  ][B  ][P            ]
            gpu 7   [K           ][K         ][K          ][K         ]
            """,
            us=1000,
            P=Ev("train.py(12): prepare"),
        ),
        near_miss=True,
    ),
    Example(
        "idle, but the loop waits for its loader: another rule's time", draw(_STEPS, us=200, P=NEXT), near_miss=True
    ),
    Example(
        "Python after a wait, without which the host would do it while the device works: told with the wait",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F ][I             ]       [F ][I             ]
            gpu 7   [K            ]            [K            ]
            gpu 7                  [C]                        [C]
            """,
            us=1000,
            I=ITEM,
            C=D2H_PAGEABLE,
        ),
        near_miss=True,
    ),
    Example(
        "little Python in a step that waits for launches: with fewer of them the host is ahead",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F                   ]  [F                   ]
            gpu 7   [K                   ]  [K                   ]
            """,
            us=60,
            F=Ev("aten::add", times=10),
            K=Ev(GEMM.name, "kernel", times=10, fill=0.2),
        ),
        near_miss=True,
    ),
    Example(
        "a full queue",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [F  ][B  ]          [F  ][B  ]
            gpu 7   [K       ][K       ][K       ][K      ]
            """,
            us=1000,
        ),
    ),
]
