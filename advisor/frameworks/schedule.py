"""When to profile in the training loop of a framework: what the callbacks of all frameworks have in common."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, UsageError
from advisor.library.profile import Profile


class Schedule:
    """Begins a profile at a step, ends it when it is complete, and begins the next one some epochs later.

    at_step: optimizer steps before the first profile. every_n_epochs: epochs from one profile to the next (0: there is
    one profile). output: a folder for the report of each, `step-N`; without it each is printed when it is ready.
    options: those of `advisor.profile`. profiles: those begun so far.
    """

    def __init__(
        self, at_step: int, every_n_epochs: int, output: str | os.PathLike[str] | None, options: dict[str, Any]
    ) -> None:
        if at_step < 0 or every_n_epochs < 0:
            raise UsageError(f"at_step={at_step}, every_n_epochs={every_n_epochs}: neither can be negative")
        self.at_step = at_step
        self.every_n_epochs = every_n_epochs
        self.output = Path(output) if output is not None else None
        self.options = options
        self.profiles: list[Profile] = []
        self._open: Profile | None = None
        self._next_epoch = 0

    def step_begins(self, step: int, epoch: int) -> None:
        """A training step begins, after so many optimizer steps and epochs."""
        if self._open is not None or not self._is_due(step, epoch):
            return
        self._next_epoch = epoch + self.every_n_epochs
        made = Profile(output=self.output / f"step-{step}" if self.output else None, **self.options)
        self.profiles.append(made)
        try:
            self._open = made.__enter__()
        except AdvisorError as failure:  # another profile is active: training goes on without this one
            sys.stderr.write(f"advisor: {failure}\n")

    def step_ends(self) -> None:
        """A training step is over."""
        if self._open is not None and self._open.complete:
            self.training_ends()

    def training_ends(self) -> None:
        """Training is over: an open profile ends as it is. Safe to call twice."""
        ended, self._open = self._open, None
        if ended is None:
            return
        ended.__exit__(None, None, None)
        if self.output is None and ended.recorded:
            sys.stderr.write(f"{ended!r}\n")

    def _is_due(self, step: int, epoch: int) -> bool:
        if not self.profiles:
            return step >= self.at_step
        return bool(self.every_n_epochs) and epoch >= self._next_epoch
