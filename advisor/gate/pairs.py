"""Measures one pair: a fresh process of each side, taking turns on one machine; its one number is a log ratio.

Two processes of the same code differ: memory layout, allocator, compiled kernels. So a pair, not a step, is what is
counted, and every pair starts both sides anew.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from advisor.errors import FAILED
from advisor.gate import clocks, undo
from advisor.gate.files import GateError
from advisor.gate.turns import EndedError, Runner

Mode = Literal["lockstep", "blocks"]

# A turn is made of so many steps that handing it over (about 0.1 ms) stays below 2 % of it.
_TURN_US = 5_000.0
# A device must not run dry after every single step, or its launches could never run ahead as they do in training.
_DEVICE_STEPS = 5
_MOST_STEPS = 20
# Fewer turns than this give no steady median.
_FEWEST_TURNS = 20
# Room for two: what one holds must be free a second time, with a fifth to spare.
_ROOM = 1.2


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: what is started, and where. label: the commit or command line, for people.

    settings: what `capture.inside.gate_loop` is told besides where its pipes are (`treatments`, `losses`); with `undo`,
    what stays (`undo.Stays`), changes of files are taken back when the processes of a pair have ended.
    """

    name: Literal["base", "head"]
    command: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


class SideFailedError(GateError):
    """One side of a comparison failed. status: its exit status (negative: the signal); last: its last line."""

    def __init__(self, text: str, side: Side, ended: EndedError) -> None:
        super().__init__(text, FAILED)
        self.side = side
        self.status = ended.status
        self.last = ended.last


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and 90th percentile of the turns of a side, µs per step."""

    mean_us: float = 0.0
    p90_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """What a pair gave. ratio, mean_ratio: log(head / base), of the median and of the mean step; times in µs.

    held: heat or power held a clock down meanwhile. left: paths that the sides changed, which could not be taken back.
    """

    ratio: float
    mean_ratio: float
    base_us: float
    head_us: float
    turns: int
    steps_per_turn: int
    held: bool = False
    base: Spread = Spread()
    head: Spread = Spread()
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """How pairs are measured on this machine: settled by a first run of the base.

    starts: how often sides whose script ends before its turns do are started again, for the turns that are left.
    block: turns whose times are summed before they are compared, so that what happens now and then is seen.
    """

    mode: Mode
    steps_per_turn: int
    turns: int
    warmup: int
    on_device: bool = False
    starts: int = 1
    block: int = 1


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """The command as the system starts it: a script or `-m module` gets our interpreter, a launcher is itself."""
    if words and (words[0].endswith(".py") or words[0] in ("-m", "-c")):
        return (sys.executable, *words)
    return tuple(words)


@dataclass(frozen=True, slots=True)
class Look:
    """A side as a first short run shows it. strays: modules that it imports from below the user's tree."""

    step_us: float
    fits_twice: bool
    on_device: bool
    source: str
    strays: tuple[str, ...]


def look(side: Side, warmup: int, root: Path | None) -> Look:
    """Runs a side alone for a moment. Raises GateError (4) at once where it fails or never steps."""
    with _journal((side,)) as (folder, _), _started(side, folder) as runner:
        step_us = _turn(runner, side, max(warmup, 1))
        held, free = runner.device_bytes()
        return Look(
            step_us=step_us,
            fits_twice=runner.resident_bytes() * _ROOM < available_bytes() and held * _ROOM <= free,
            on_device=held > 0,
            source=runner.source,
            strays=tuple(runner.modules_below(root)) if root else (),
        )


def settle(seen: Sequence[Look], turns: int, warmup: int, mode: Mode | None) -> Layout:
    """How the pairs of these sides are measured."""
    shortest = min(max(one.step_us, 1.0) for one in seen)
    steps = min(_MOST_STEPS, max(1, math.ceil(_TURN_US / shortest)))
    on_device = any(one.on_device for one in seen)
    if on_device:
        steps = max(steps, _DEVICE_STEPS)
    fits = all(one.fits_twice for one in seen)
    return Layout(mode or ("lockstep" if fits else "blocks"), steps, turns, warmup, on_device)


# Called with 0 (base) or 1 (head) and its process when its turns are over, before it is ended.
AtEnd = Callable[[int, Runner], None]


def measure(
    base: Side, head: Side, layout: Layout, rng: random.Random, at_end: AtEnd = lambda index, runner: None
) -> Pair:
    """One pair. Raises GateError (4) where a side fails or has too few steps."""
    watch = clocks.Watch(on_device=layout.on_device)
    one_pair = _lockstep if layout.mode == "lockstep" else _blocks
    times: Times = ([], [])
    left: list[str] = []
    for _ in range(layout.starts):
        had = len(times[0])
        left += one_pair((base, head), layout, rng, times, watch, at_end)
        if min(len(one) for one in times) >= layout.turns or len(times[0]) == had:
            break
    count = min(len(one) for one in times)
    if count < min(_FEWEST_TURNS, layout.turns):
        # A second start begins with a warm-up of its own.
        steps = layout.warmup + count // layout.starts * layout.steps_per_turn
        needed = layout.warmup + _FEWEST_TURNS * layout.steps_per_turn
        text = f"the script has about {steps} training steps; the gate needs {needed} or more: give it more batches"
        raise GateError(text, FAILED)
    before, after = (one[:count] for one in times)
    if layout.mode == "lockstep":
        # Neighbouring turns share the machine's mood: their ratio loses it.
        blocks = zip(_sums(before, layout.block), _sums(after, layout.block), strict=True)
        ratio = statistics.median(math.log(b / a) for a, b in blocks)
    else:
        summed = (statistics.median(_sums(one, layout.block)) for one in (after, before))
        ratio = math.log(next(summed) / next(summed))
    return Pair(
        ratio=ratio,
        mean_ratio=math.log(statistics.fmean(after) / statistics.fmean(before)),
        base_us=statistics.median(before),
        head_us=statistics.median(after),
        turns=count,
        steps_per_turn=layout.steps_per_turn,
        held=watch.held,
        base=_spread(before),
        head=_spread(after),
        left=tuple(dict.fromkeys(left)),
    )


def _spread(times: Sequence[float]) -> Spread:
    """p90: the smallest time that at least nine of ten do not exceed."""
    ordered = sorted(times)
    return Spread(statistics.fmean(ordered), ordered[math.ceil(0.9 * len(ordered)) - 1])


def _sums(times: Sequence[float], size: int) -> list[float]:
    """Sums of neighbours; what is left of a block at the end is not used, unless it is all there is."""
    size = min(size, len(times))
    return [sum(times[at : at + size]) for at in range(0, len(times) - size + 1, size)]


Times = tuple[list[float], list[float]]
Sides = tuple[Side, Side]


def _lockstep(
    sides: Sides, layout: Layout, rng: random.Random, times: Times, watch: clocks.Watch, at_end: AtEnd
) -> list[str]:
    """Adds the turns of two processes that alternate to `times`; returns what could not be taken back."""
    with ExitStack() as held:
        folder, left = held.enter_context(_journal(sides))
        # Who starts first finds other memory free: which side that is must be a coin toss, too.
        first = rng.randrange(2)
        runners = {i: held.enter_context(_runner(sides[i], folder)) for i in (first, 1 - first)}
        for index, runner in runners.items():
            _ready(runner, sides[index])
            _turn(runner, sides[index], max(layout.warmup, 1))
        cores = runners[0].cores()
        while len(times[0]) < layout.turns:
            if len(times[0]) == layout.turns // 2:
                watch.look()
            order = [0, 1]
            rng.shuffle(order)
            core = rng.choice(cores) if cores else None
            took = {index: _one_turn(runners[index], sides[index], layout.steps_per_turn, core) for index in order}
            if None in took.values():
                break
            for index, us in took.items():
                times[index].append(us or 0.0)
        for index, runner in runners.items():
            at_end(index, runner)
    return left


def _blocks(
    sides: Sides, layout: Layout, rng: random.Random, times: Times, watch: clocks.Watch, at_end: AtEnd
) -> list[str]:
    """Adds the turns of two processes that run one after the other to `times`; returns as `_lockstep` does."""
    order, every = [0, 1], []
    rng.shuffle(order)
    for index in order:
        side = sides[index]
        with _journal((side,)) as (folder, left), _started(side, folder) as runner:
            _turn(runner, side, max(layout.warmup, 1))
            while len(times[index]) < layout.turns:
                if len(times[index]) == layout.turns // 2:
                    watch.look()
                us = _one_turn(runner, side, layout.steps_per_turn, None)
                if us is None:
                    break
                times[index].append(us)
            at_end(index, runner)
        every += left
    return every


def _journal(sides: Sequence[Side]) -> AbstractContextManager[tuple[str, list[str]]]:
    """Where these sides note changes of files, which end with it; an empty name where they are not asked to."""
    stays = next((side.settings["undo"] for side in sides if side.settings.get("undo")), None)
    return undo.journal(stays) if stays else nullcontext(("", []))


def _runner(side: Side, folder: str) -> Runner:
    settings = {**side.settings, "undo": folder} if folder else side.settings
    return Runner(side.command, side.folder, side.env, settings)


def _one_turn(runner: Runner, side: Side, steps: int, core: int | None) -> float | None:
    """µs per step; None where the script has run out of steps. Raises SideFailedError where it fails."""
    try:
        return runner.turn(steps, core)
    except EndedError as ended:
        if ended.status:
            text = f"the {side.name} failed with status {ended.status}: {ended.last}"
            raise SideFailedError(text, side, ended) from ended
        return None


def _started(side: Side, folder: str = "") -> Runner:
    runner = _runner(side, folder)
    try:
        _ready(runner, side)
    except BaseException:
        runner.close()
        raise
    return runner


def _ready(runner: Runner, side: Side) -> None:
    try:
        runner.ready()
    except EndedError as ended:
        raise SideFailedError(_why_ended(ended, side, "before its second training step"), side, ended) from ended


def _turn(runner: Runner, side: Side, steps: int) -> float:
    try:
        return runner.turn(steps)
    except EndedError as ended:
        raise SideFailedError(
            _why_ended(ended, side, f"before {steps} steps of warm-up were over"), side, ended
        ) from ended


def _why_ended(ended: EndedError, side: Side, when: str) -> str:
    last = f": {ended.last}" if ended.last else ""
    if ended.status:
        return f"the {side.name} failed with status {ended.status}{last}"
    return f"the {side.name} ended {when}, so there was nothing to measure; give it more batches{last}"


def available_bytes() -> int:
    """Memory that is free for another process; 0 where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return min(int(line.split()[1]) * 1024, _cgroup_left())
    except OSError:
        pass
    return 0


def _cgroup_left() -> int:
    root = Path("/sys/fs/cgroup")
    try:
        limit, used = (root / "memory.max").read_text().strip(), (root / "memory.current").read_text()
        return sys.maxsize if limit == "max" else int(limit) - int(used)
    except (OSError, ValueError):
        return sys.maxsize
