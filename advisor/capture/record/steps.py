"""Steps as hooks timed them, and the recorded windows."""

from __future__ import annotations

import msgspec


class TraceFile(msgspec.Struct, frozen=True):
    """A trace that capture wrote. role: all figures are from `profile`, only lines and modules from `lines`."""

    path: str
    role: str
    steps: dict[str, int] = {}  # "ProfilerStep#3" -> iteration of the script's loop, from 0
    partial: bool = False
    cut: bool = False  # of lines: the step ran more of them than are recorded


class StepTimes(msgspec.Struct, frozen=True):
    """Step times measured by hooks, µs, in order."""

    source: str = "window"  # user | loader | optimizer | backward | window
    count: int = 0  # training iterations in total
    eval_count: int = 0
    optimizer_steps: int = 0
    unprofiled_us: list[float] = []
    timed_before: int | None = None  # how many of them were before the window
    unprofiled_mean_us: float | None = None  # set if only the mean could be measured
    profiled_us: list[float] = []
    clock: str = "host"  # host | device | mean
    # Time of the loop's thread per step in fetches (`fetch`), backward passes (`backward`), optimizer steps (without
    # zero_grad, `optimizer`) and the rest (forward pass, Python, zero_grad: `rest`), µs; the four sum to the step time.
    # Only if no device is in use. Steps in which a part did not end are omitted, so these lists may be shorter.
    unprofiled_parts_us: dict[str, list[float]] = {}
    profiled_parts_us: dict[str, list[float]] = {}
