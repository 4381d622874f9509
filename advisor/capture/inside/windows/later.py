"""Windows after the first: each is recorded as that one was, in files of its own, and changes nothing that it left."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..loop_facts import LoopFacts
from ..steps.clock import Clock
from ..steps.parts import Cut, as_record
from ..steps.phases import Phases
from ..steps.plan import Plan
from ..steps.requests import ASKED, ELSEWHERE, EVERY, SLOWER, Requests
from .window import Window

# Un-profiled steps before a later window, which it is compared by. The first of them follows our own work.
_WARMUP, _TIMED = 1, 20
# More windows are too many to look at: of those of `every`, each second one goes, and the rest are twice as far apart.
_MOST = 12
_ASKED_BY = {EVERY: "--every", ASKED: "asked for", SLOWER: "steps became slower", ELSEWHERE: "another loop"}


class Recording:
    """One window with its phases and its clock: of these a session has the first, and now and then a later one."""

    def __init__(self, phases: Phases, window: Window, clock: Clock) -> None:
        self.phases = phases
        self.window = window
        self.clock = clock

    def steps(self) -> dict[str, Any]:
        """Step times, with the keys of `record.StepTimes`."""
        phases, clock = self.phases, self.clock
        steps = clock.durations(phases.before, phases.after)
        steps["timed_before"] = min(len(phases.before), len(steps["unprofiled_us"]))
        steps["profiled_us"] = [one / 1e3 for one in phases.profiled]
        if clock.host_alone:
            steps["unprofiled_parts_us"] = as_record(phases.unprofiled_parts)
            steps["profiled_parts_us"] = as_record(phases.profiled_parts)
        return steps


def _left(recording: Recording) -> dict[str, Any]:
    return {"files": recording.window.files, "steps": recording.steps(), **recording.window.record()}


class Later:
    """What later windows left. device: as for `Clock`; cut, queued_ns: as for `Phases`."""

    def __init__(
        self,
        settings: dict[str, Any],
        requests: Requests,
        device: Callable[[], str],
        cut: Callable[[], Cut],
        queued_ns: Callable[[], int | None],
    ) -> None:
        self.settings = settings
        self.requests = requests
        self.device = device
        self.cut = cut
        self.queued_ns = queued_ns
        self.first: Recording | None = None  # that goes on when the later one which is open is over
        self.why = ""
        self.at = 0
        self.own = False  # the open one is of a loop that no other one is of
        self.loop: LoopFacts | None = None  # of that loop
        self.windows: list[dict[str, Any]] = []
        self.told: list[tuple[dict[str, Any], Recording, LoopFacts]] = []  # of these, the first of each later loop
        self.refused: dict[str, int] = {}  # times that one would have cost too much, by reason

    def due(self, first: Recording, at: int, now_ns: int) -> bool:
        """Whether one more window begins at this boundary, after iteration `at`; one that costs too much is counted."""
        why = self.requests.due(at, now_ns)
        if not why:
            return False
        self.requests.taken(why, at)
        if not first.window.affords(max(first.phases.wanted_rows, 1)):
            self.refused[why] = self.refused.get(why, 0) + 1
            return False
        self.why, self.at = why, at
        return True

    def moves_to(self, at: int, loop: LoopFacts) -> None:
        """The open window has begun again, in another loop, after iteration `at`."""
        if self.first is not None:
            self.at, self.why, self.own, self.loop = at, ELSEWHERE, True, loop

    def make(self, first: Recording, name: Callable[[str], str], loop: LoopFacts, planned: Plan) -> Recording:
        """The window that is due. name: the path of a file by its role; planned: for a loop of which there is none.

        In a loop that is known it is as long as the one before.
        """
        self.first, self.loop, at, self.own = first, loop, self.at, not loop.told
        clock = Clock(self.device)
        costs = first.window.costs.of_later()
        window = Window(self.settings, lambda role: name(f"{role}-step{at}"), clock, costs)
        window.used, window.modules, window.text = first.window.used, first.window.modules, first.window.text
        plan = first.phases.plan
        if self.own:
            plan = planned
        else:
            steps = first.phases.wanted_rows or plan.steps
            plan = Plan(_WARMUP, min(_TIMED, plan.timing), steps, plan.lines, plan.ranks)
        phases = Phases(window, plan, self.cut, self.queued_ns)
        phases.asked = not self.own  # what the ops of a loop read is observed once
        return Recording(phases, window, clock)

    def keep(self, recording: Recording) -> Recording:
        """The window is over: what it left is kept. Returns what goes on: it, where it is of a loop of its own."""
        kept = any(file["role"] == "profile" for file in recording.window.files)
        if kept:
            self.windows.append({"at": self.at, "why": self.why, **_left(recording)})
            if self.own and self.loop is not None:
                self.loop.told = True
                self.told.append((self.windows[-1], recording, self.loop))
        else:
            window = recording.window
            for name in (*(file["path"] for file in window.files), *filter(None, [window.observer.file])):
                os.unlink(os.path.join(self.settings["folder"], name))
        if sum(window["why"] == EVERY for window in self.windows) > _MOST:
            self._thin()
        first, self.first = self.first, None
        assert first is not None
        if kept and self.own:
            return recording
        first.phases.goes_on()
        first.window.theirs = recording.window.theirs
        return first

    def record(self) -> list[dict[str, Any]]:
        """The windows as they are told by now: loops with a window of their own go on after it."""
        for window, recording, loop in self.told:
            window.update(_left(recording) | loop.of_window())
        return self.windows

    def _thin(self) -> None:
        """Drops every second window of `--every`, its files with it; the newest stays, and what was asked for.

        So does the first of each loop, which has the settings of the others.
        """
        told = {window["at"] for window, _, _ in self.told}
        regular = [window for window in self.windows if window["why"] == EVERY and window["at"] not in told]
        dropped = regular[-2::-2]
        for window in dropped:
            for file in window["files"]:
                os.unlink(os.path.join(self.settings["folder"], file["path"]))
        self.windows = [window for window in self.windows if window not in dropped]
        self.requests.every *= 2

    def notes(self) -> list[str]:
        """What could not be recorded, and why."""
        return [
            f"{count} later window{'s' * (count > 1)} ({_ASKED_BY[why]}) would have cost too much CPU time; the "
            "limit grows with the run time of the script (docs/capture.md, Bounds)"
            for why, count in self.refused.items()
        ]
