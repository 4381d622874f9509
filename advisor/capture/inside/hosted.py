"""A capture that begins and ends in a process which runs already: a block of code, or some steps of a framework's loop.

The caller's process imported torch long ago, so nothing waits for that; and it goes on afterwards, so every hook is
taken away. Everything else is the session of `advisor run`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .guards import hooks
from .session import Session
from .steps.phases import AFTER
from .steps.plan import FEW, Plan, plan

# After the window of numbers: a step that readies the profiler, one with its lines, two that are observed.
_OTHERS = 4


def taken() -> str:
    """Which capture is at work in this process: `run` (advisor run), `profile`, or empty."""
    if "_torch_advisor.session" in sys.modules:
        return "run"
    return "profile" if hooks.listened() else ""


class Hosted:
    """One capture. settings: as `launch.environment` writes them, of which `folder` is needed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.session = Session({**settings, "hosted": True})

    def begin(self) -> None:
        """Installs the hooks; `taken` must be empty."""
        hooks.hide_from_dynamo()
        self.session.watch_choices()
        self.session.begin()

    def end(self) -> None:
        """Keeps what was recorded and removes the hooks; safe to call twice."""
        self.session.leave()

    def drive(self, step: Callable[[Any], Any], batches: Iterable[Any]) -> None:
        """step(batch) for each batch, until the capture is complete."""
        for batch in batches:
            step(batch)
            if self.complete:
                return

    @property
    def complete(self) -> bool:
        """Everything that was to be recorded is; more steps only make the times of un-profiled steps more certain."""
        phases = self.session.phases
        return phases is not None and phases.phase >= AFTER

    @property
    def steps(self) -> int:
        """Steps of the loop so far."""
        return self.session.tracker.count or self.session.tracker.optimizer_steps

    def needed(self) -> Plan:
        """How many steps each phase takes, as far as that is known."""
        phases = self.session.phases
        return phases.plan if phases is not None else plan(self.session.settings, None, 1)


def needed_steps(planned: Plan) -> int:
    """Steps after which the capture is complete."""
    return planned.warmup + planned.timing + (planned.steps or FEW) + _OTHERS
