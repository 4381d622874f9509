"""Environment variables or debugging tools slow the training down.

## What it looks at
Variables of the training process, from a fixed list only, as they were set in the profiled window: debugging switches
of PyTorch and Python, limits on the instructions that a CPU may use, caches and transports that are disabled. Also
whether Python traces its allocations because the script called `tracemalloc.start()`, as `PYTHONTRACEMALLOC` does, and
whether a profiler, a debugger or a measurement of coverage is called for each of Python's calls or lines.

## Why it costs time
They are set temporarily, to find an error or to compare two machines, and stay in a job script, a container or
the head of a file. Each checks, prints or disables something in every step, and nothing in the training's own code
shows it.

## How to fix it
Remove the variable from the job script, the container and `os.environ` of the script; start `tracemalloc` or
`cProfile` for a few steps only. `CUDA_LAUNCH_BLOCKING` and `OMP_NUM_THREADS` are visible in the trace itself: see the
rules blocking-launches, unused-cores and thread-oversubscription.

## When to leave it
While the error is being debugged. Where a machine's driver or network fails without it. Its cost here can only be
measured by a run without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import GLOO, Breakdown, Environment, Example, Finding, Fix, RankRecord, Settings, Treatment, draw

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import set_at
from ..shared._words import percent
from ._variables import VARIABLES

CONFIRMED = (
    "measured pair on a CPU: instructions limited to those of an old CPU against all of them; one script each of "
    "tracemalloc and of Lightning's profiler of Python"
)


# Parts of the step in which Python runs.
_IN_PYTHON = ("input", "idle_input", "host", "idle_host", "idle_launch")
# Parts of the step that other rules own: what they lose here is theirs to count.
_OWNED = ("communication", "exposed_communication", "idle_launch", "idle_sync", "idle_host", "idle_unknown")


def check(
    environment: Environment,
    record: RankRecord,
    breakdown: Breakdown,
    *,
    min_share: float = 0.02,  # of the step in the parts that a variable affects; below, its effect is within the noise
) -> Iterator[Finding]:
    shares = {item.id: item.share for item in breakdown.items}
    in_python = sum(shares.get(part, 0.0) for part in _IN_PYTHON)
    if record.settings.traced_frames and not environment.on("PYTHONTRACEMALLOC"):
        yield from _traced(record.settings, in_python, min_share)
    if record.settings.python_tracer:
        yield from _watched(record.settings, in_python, min_share)
    for one in VARIABLES:
        share = sum(shares.get(part, 0.0) for part in one.parts)
        if share < min_share or not one.slows(environment, record, breakdown.on_device):
            continue
        value = environment.get(one.name)
        yield Finding(
            message=(
                f"{one.name}={value} is set in the training's environment: {one.by}, which affects "
                f"{percent(share)} of the step."
            ),
            where=set_at(record.settings, one.name),
            facts={"variable": one.name, "value": value, "share": share},
            fix=Fix(
                f"Unset `{one.name}`",
                "exact",
                f"{one.name}={value} python train.py",
                "python train.py",
                Treatment("environment", {one.name: None}),
            ),
            claims=tuple(part for part in one.parts if part in shares and part not in _OWNED),
            at_most="medium",
        )


def _traced(settings: Settings, share: float, min_share: float) -> Iterator[Finding]:
    """Allocations that Python traces since the script started it."""
    if share < min_share:
        return
    yield Finding(
        message=(
            f"`tracemalloc` runs: Python records where each of its objects was allocated ({settings.traced_frames} "
            f"frames), which affects {percent(share)} of the step."
        ),
        where=set_at(settings, "tracemalloc"),
        facts={"traced_frames": settings.traced_frames, "share": share},
        fix=Fix("Trace allocations for a few steps only", "exact", "tracemalloc.start()", ""),
        at_most="medium",
    )


def _watched(settings: Settings, share: float, min_share: float) -> Iterator[Finding]:
    """Python's calls or lines, each of which is told to a profiler, a debugger or a measurement of coverage."""
    if share < min_share:
        return
    title = "Watch Python for a few steps only, or by samples of the stack (py-spy)"
    by_lightning = (settings.python_tracer, settings.framework) == ("cProfile", "lightning")
    yield Finding(
        message=(
            f"`{settings.python_tracer}` runs while the model trains: Python calls it for each call, return or line, "
            f"which affects {percent(share)} of the step."
        ),
        where=set_at(settings, "python_tracer"),
        facts={"tracer": settings.python_tracer, "share": share},
        fix=Fix(title, "exact", 'Trainer(profiler="advanced")', "Trainer()") if by_lightning else Fix(title, "exact"),
        at_most="medium",
    )


_ON_GPU = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]\ngpu 7  [K   ][K  ] [K   ][K  ]"

EXAMPLES = [
    Example(
        "instructions of an old machine",
        STEPS_ON_CPU,
        facts={"environment": {"ONEDNN_MAX_CPU_ISA": "SSE41"}},
        saves_us="unknown",
        says=("ONEDNN_MAX_CPU_ISA=SSE41",),
    ),
    Example(
        "collectives that are compared over the ranks",
        draw("step [1            ][2            ]\ncpu  [F   ][B  ][R ][F   ][B  ][R ]", us=1000, R=GLOO),
        facts={"environment": {"TORCH_DISTRIBUTED_DEBUG": "detail"}, "world_size": 2},
        saves_us="unknown",
        says=("TORCH_DISTRIBUTED_DEBUG=detail",),
    ),
    Example(
        "memory of the device without its cache",
        draw(_ON_GPU, us=1000),
        facts={"environment": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}},
        saves_us="unknown",
    ),
    Example(
        "allocations that the script has traced",
        draw("step [1        ][2        ]\ncpu  [F   ]    [B ][F   ]    [B ]", us=1000),
        facts={"environment": {}, "settings": {"traced_frames": 10}},
        saves_us="unknown",
        says=("10 frames",),
    ),
    Example(
        "a profiler of Python's calls, asked of Lightning",
        draw("step [1        ][2        ]\ncpu  [F   ]    [B ][F   ]    [B ]", us=1000),
        facts={"environment": {}, "settings": {"python_tracer": "cProfile", "framework": "lightning"}},
        saves_us="unknown",
        says=("`cProfile` runs",),
    ),
    Example(
        "the same variables, off or of no effect here",
        STEPS_ON_CPU,
        facts={
            "environment": {
                "NCCL_P2P_DISABLE": "1",
                "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
                "PYTHONTRACEMALLOC": "0",
                "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX",
                "OMP_NUM_THREADS": "4",
                "NCCL_DEBUG": "WARN",
            }
        },
        near_miss=True,
    ),
    Example("nothing is set", STEPS_ON_CPU, facts={"environment": {}}),
    Example("a bare trace does not tell", STEPS_ON_CPU, near_miss=True, skipped="not captured by `advisor run`"),
]
