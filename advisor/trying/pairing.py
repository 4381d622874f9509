"""Pairs of the script as it is and as it would be changed: step times, losses, memory, and what was reached."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.errors import FAILED, AdvisorError
from advisor.fixing.profiled_files import ProfiledFiles
from advisor.gate import pairs
from advisor.gate.files import GateError
from advisor.gate.pairs import Layout, Pair, Side, SideFailedError
from advisor.gate.turns import Runner
from advisor.gate.undo import Stays

# Twice the gate's slots, or fewer where a step is long: a pair is started often, and much of its cost is the start.
_SLOTS, _FEWEST_SLOTS = 120, 20
_TIMED_S = 20.0
# Steps whose times are summed before they are compared: one period of what scripts do every few steps, or in an epoch.
_BLOCK_STEPS = 10
WARMUP = 10
# A script that ends early is started again for the slots that are left.
_STARTS = 6
# Steps under the profiler, once for each change.
_COUNTED_STEPS = 3
# The last batch of an epoch is smaller; sides whose steps differ by less than this do the same work.
_ALIKE = 0.05


@dataclass(slots=True)
class Facts:
    """What a process of one side left."""

    losses: list[float] = field(default_factory=list)
    reached: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    memory_bytes: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    startup_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One pair, with the facts of its first start."""

    pair: Pair
    base: Facts
    head: Facts
    seconds: float

    @property
    def work(self) -> float:
        """Samples of the head's step for each of the base's; 1 where they are alike, or not known."""
        base, head = (side.counts.get("samples", 0.0) for side in (self.base, self.head))
        work = head / base if base and head else 1.0
        return work if abs(math.log(work)) > _ALIKE else 1.0


# Measures one pair of (base, head).
Measure = Callable[[Side, Side], Measured]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pair of a script costs, as far as its first steps say; more where it ends early and is started again."""

    start_s: float
    step_s: float

    def of_pair(self, layout: Layout) -> float:
        """Both starts, and the steps of both, in seconds."""
        return 2 * (self.start_s + layout.turns * layout.steps_per_turn * self.step_s)


def steps_of(layout: Layout) -> int:
    """Training steps of each side in a pair."""
    return layout.warmup + layout.turns * layout.steps_per_turn


def layout_of(
    base: Side, mode: pairs.Mode | None = None, stays: Stays = "downloads"
) -> tuple[Layout, Cost, ProfiledFiles]:
    """How pairs of this script are measured, what one costs, and the modules that the script imports from its folder.

    stays: what remains of the files that this first start makes; nothing remains of later ones
    Raises GateError (4) where the script fails or has too few steps.
    """
    began = time.monotonic()
    seen = pairs.look(replace(base, settings={**base.settings, "undo": stays}), WARMUP, base.folder)
    seconds = time.monotonic() - began
    settled = pairs.settle([seen], _SLOTS, WARMUP, mode)
    slot_s = settled.steps_per_turn * seen.step_us / 1e6
    slots = min(_SLOTS, max(_FEWEST_SLOTS, round(_TIMED_S / (2 * slot_s))))
    block = max(1, -(-_BLOCK_STEPS // settled.steps_per_turn))
    layout = replace(settled, turns=slots, starts=_STARTS, block=block)
    return layout, Cost(seconds, seen.step_us / 1e6), ProfiledFiles.now(seen.strays)


def measurer(layout: Layout, rng: random.Random, say: Callable[[str], None] = lambda _text: None) -> Measure:
    """What measures pairs in this layout.

    say: told where two processes of the script cannot run at the same time (a port, a folder that must be new), which
    then run one after the other
    """

    mode = layout.mode
    profiled: dict[str, dict[str, float]] = {}

    def one_pair(base: Side, head: Side, at_end: pairs.AtEnd) -> Pair:
        nonlocal mode
        try:
            return pairs.measure(base, head, replace(layout, mode=mode), rng, at_end)
        except SideFailedError as failure:
            # What a change breaks, it breaks alone as well; the script as it is ran alone at first.
            if mode == "blocks" or (failure.side is head and head.settings != base.settings) or of_memory(failure):
                raise
            pair = pairs.measure(base, head, replace(layout, mode="blocks"), rng, at_end)
            mode = "blocks"
            say(f"two processes of the script cannot run at the same time ({failure.last}); one follows the other now")
            return pair

    def measure(base: Side, head: Side) -> Measured:
        sides, found = (base, head), (Facts(), Facts())
        began = time.monotonic()

        def at_end(index: int, runner: Runner) -> None:
            if not found[index].losses:
                _read(found[index], runner)
            key = repr(sides[index])
            if not profiled.get(key) and runner.process.poll() is None:
                profiled[key] = runner.counted(_COUNTED_STEPS)

        pair = one_pair(base, head, at_end)
        for side, facts in zip(sides, found, strict=True):
            facts.counts |= profiled.get(repr(side), {})
        measured = Measured(pair, *found, time.monotonic() - began)
        # Steps that do more work are compared by the time of a sample.
        return replace(measured, pair=replace(pair, ratio=pair.ratio - math.log(measured.work)))

    return measure


def of_one_version(measure: Measure, files: ProfiledFiles) -> Measure:
    """The same, and ends the session when one of these files is changed: its pairs would be those of two scripts."""

    def measured(base: Side, head: Side) -> Measured:
        found = measure(base, head)
        if changed := files.first_changed():
            raise AdvisorError(f"{changed.name} was changed while it was measured; start again")
        return found

    return measured


def telling(measure: Measure, say: Callable[[str], None]) -> Measure:
    """The same, and says once of each path that it could not be taken back."""
    told: set[str] = set()

    def measured(base: Side, head: Side) -> Measured:
        found = measure(base, head)
        for path in found.pair.left:
            if path not in told:
                say(f"{path}: changed by the script, and left so; it holds what was not written by Python code")
            told.add(path)
        return found

    return measured


# Status of a process that the kernel ended for its memory, as a signal and as a shell passes it on.
_KILLED = (-9, 137)
_MEMORY = ("out of memory", "outofmemory", "memoryerror", "can't allocate memory", "bad_alloc")


def of_memory(failure: SideFailedError) -> bool:
    """Whether a side ended because memory ran out."""
    last = failure.last.lower()
    return failure.status in _KILLED or any(word in last for word in _MEMORY)


def _read(facts: Facts, runner: Runner) -> None:
    alive = runner.process.poll() is None
    if alive:
        held, _ = runner.device_bytes()
        facts.memory_bytes = held or runner.peak_bytes()
    left: dict[str, Any] = runner.facts()
    try:
        facts.losses = [float.fromhex(text) for text in left.get("losses", ())]
    except ValueError as failure:
        raise GateError(f"the losses of {runner.name} cannot be read ({failure})", FAILED) from failure
    facts.counts, facts.startup_us = dict(left.get("counts", {})), float(left.get("startup_us", 0.0))
    facts.reached, facts.missed = tuple(left.get("reached", ())), tuple(left.get("missed", ()))
