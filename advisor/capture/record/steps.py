"""Steps as the hooks timed them, and the windows that were recorded of them."""

from __future__ import annotations

import msgspec


class TraceFile(msgspec.Struct, frozen=True):
    """A trace that capture wrote. role: `profile` gives every number, `lines` only lines."""

    path: str
    role: str
    steps: dict[str, int] = {}  # "ProfilerStep#3" -> iteration of the script's loop, from 0
    partial: bool = False


class StepTimes(msgspec.Struct, frozen=True):
    """Step times seen by the hooks, µs, in order."""

    source: str = "window"  # user | loader | optimizer | backward | window
    count: int = 0  # training iterations seen in all
    eval_count: int = 0
    optimizer_steps: int = 0
    unprofiled_us: list[float] = []
    timed_before: int | None = None  # so many of them came before the window; the process may be another after it
    unprofiled_mean_us: float | None = None  # set alone where only the mean could be measured
    profiled_us: list[float] = []
    clock: str = "host"  # host | device | mean
    # Time of the loop's thread in the fetches (`fetch`), backward passes, optimizer steps (`optimizer`, zero_grad not
    # included) and all the rest (forward pass, Python, zero_grad) of steps, µs, one number a step; the four sum to it.
    # Seen by the same listeners in both; only where no device is in use. Steps in which a part did not end are left
    # out, so the lists may be shorter than those above.
    unprofiled_parts_us: dict[str, list[float]] = {}
    profiled_parts_us: dict[str, list[float]] = {}


class LaterWindow(msgspec.Struct, frozen=True):
    """A window that was recorded after the first one, with the un-profiled steps before it.

    at   training iterations before it was due
    why  every (so many steps) | asked (`advisor attach`, SIGUSR1) | slower (steps became slower)
    """

    at: int
    why: str
    files: list[TraceFile] = []
    steps: StepTimes = StepTimes()
    user_files: list[str] = []
