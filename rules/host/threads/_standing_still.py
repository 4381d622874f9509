"""Idle time of the device in which no thread of the process runs, though nothing holds it."""

from __future__ import annotations

from typing import Any

from advisor.api import FORWARD, GEMM, SYNC, Example, Finding, Fix, Price, Standstills, draw, duration

from ...shared._words import each_step, percent, plural

# docs.kernel.org/scheduler/sched-bwc.html: a group that has used its quota of a period is throttled until the next;
# docs.docker.com/engine/containers/resource_constraints: `--cpus` sets that quota.
_CONFIRM = "# `nr_throttled` in the container's /sys/fs/cgroup/cpu.stat counts such periods"
_MORE_TIME = Fix(
    "Raise the container's CPU limit, or use fewer loader workers and threads than its CPUs",
    "exact",
    "docker run --cpus=2 …  # in Kubernetes `limits: {cpu: 2}`\nDataLoader(dataset, num_workers=6)",
    f"{_CONFIRM}\ndocker run --cpus=8 …\nDataLoader(dataset, num_workers=6)",
)
_OWN_CORES = Fix(
    "Give the process cores of its own: run less beside it, or raise its CPU limit",
    "exact",
    "",
    f"{_CONFIRM},\n# `nonvoluntary_ctxt_switches` in /proc/PID/status how often others took a thread's core",
)
_HOW = "low: nothing, if the host then needs as long; high: the GPU no longer idles while the host does not run"


def standing_still(
    idle_us: float,
    stills: Standstills,
    price: Price,
    *,
    min_used_up: float = 0.05,  # a loop whose quota is used up in fewer periods hardly waits for it
) -> Finding:
    """The finding of so much idle time, µs of a recorded step."""
    used_up = (stills.used_up or 0.0) >= min_used_up
    # Most calls return late, and nothing speaks of a quota: all of them may wait for something.
    unknown = stills.mostly and not len(stills.periodic) and not used_up
    spans = stills.periodic if len(stills.periodic) else stills.late
    longest_us = float((spans[:, 1] - spans[:, 0]).max()) / 1e3
    often = f"{plural(len(spans), 'time')} in {plural(price.ops.steps.count, 'recorded step')}"
    seen = (
        f"all of them stop, for up to {duration(longest_us)}, and go on at multiples of 100 ms, the period of Linux' "
        "CPU quotas"
        if len(stills.periodic)
        else f"a call that waits for the GPU returns late, up to {duration(longest_us)} after the GPU is done"
    )
    quota, cause = _cause(stills, used_up, unknown)
    who = "a thread waits" if unknown else "the thread that waited for it does not run"
    who = "no thread of the process runs" if len(stills.periodic) else who
    return Finding(
        message=f"The GPU is idle {each_step(price, idle_us)} while {who}: {often} {seen}: {cause}.",
        saving=None if unknown else price.scale.saving(0.0, idle_us, _HOW),
        facts={
            "idle_us": idle_us,
            "standstills": len(spans),
            "longest_us": longest_us,
            "quota_used_up": stills.used_up,
        },
        fix=_MORE_TIME if quota else None if unknown else _OWN_CORES,
        claims=("idle_host",),
        # Else the trace may show the rhythm, but not the quota.
        at_most="medium" if stills.used_up is None else "high",
    )


def _cause(stills: Standstills, used_up: bool, unknown: bool) -> tuple[bool, str]:
    """Whether it is a quota, and the words for it."""
    if used_up:
        return True, f"the container used up its CPU quota in {percent(stills.used_up or 0.0)} of the periods"
    if unknown:
        return False, "it waits for work that the trace does not contain, or other processes have its cores"
    if stills.used_up is not None:
        return False, "other processes probably have its cores"
    if len(stills.periodic):
        return True, "the container has probably used up its CPU quota"
    return False, "other processes have its cores, or the container has used up its CPU quota"


_BOXES: dict[str, Any] = {"F": FORWARD, "S": SYNC, "K": GEMM}
_AT_PERIODS = """
    step   [1                 ][2                 ][3                 ][4                 ]
    cpu    [F][S           ]   [F][S              ][F][S              ][F][S              ]
    gpu 7   [K             ]    [K          ]       [K            ]     [K          ]
    """
STANDING_STILL = (
    Example(
        "the container's CPU quota is used up: waits return at the next multiple of 100 ms",
        draw(_AT_PERIODS, us=5000, **_BOXES),
        saves_us=(0, 24_000),
        says=("no thread of the process runs", "multiples of 100 ms"),
        fixes=("Raise the container's CPU limit",),
    ),
    Example(
        "the same, and the run's record says how often the quota was used up",
        draw(_AT_PERIODS, us=5000, **_BOXES),
        facts={"vitals": {"quota_used_up": 0.5}},
        saves_us=(0, 24_000),
        says=("used up its CPU quota in 50 % of the periods",),
        fixes=("Raise the container's CPU limit",),
    ),
    Example(
        "the same in a container whose quota was never used up",
        draw(_AT_PERIODS, us=5000, **_BOXES),
        facts={"vitals": {"quota_used_up": 0.0}},
        saves_us=(0, 24_000),
        says=("other processes probably have its cores",),
        fixes=("Give the process cores of its own",),
    ),
    Example(
        "a wait returns late now and then: something else has the process' cores",
        draw(
            """
            step   [1              ][2                 ][3                  ][4                 ]
            cpu    [F][S           ][F][S              ][F][S               ][F][S             ]
            gpu 7   [K             ] [K          ]       [K                 ] [K               ]
            """,
            us=1000,
            **_BOXES,
        ),
        saves_us=(0, 2_500),
        says=("returns late",),
        fixes=("Give the process cores of its own",),
    ),
    Example(
        "clocks of host and device that differ: all waits return as late",
        draw(
            """
            step   [1                 ][2                 ][3                 ][4                 ]
            cpu    [F][S              ][F][S              ][F][S              ][F][S              ]
            gpu 7  [K             ]    [K             ]    [K             ]    [K             ]
            """,
            us=5000,
            **_BOXES,
        ),
        near_miss=True,
    ),
    Example(
        "the host stands still while the device works",
        draw(
            """
            step   [1                 ][2                 ][3                 ][4                 ]
            cpu    [F][S            ][F]                  [S][F][S          ][F][S              ]
            gpu 7  [K               ][K                     ][K             ][K                 ]
            """,
            us=5000,
            **_BOXES,
        ),
        near_miss=True,
    ),
)
