"""accelerate: `Accelerator(log_with=AdvisorTracker())`, then `init_trackers`, `log(..., step=N)` and `end_training`."""

from __future__ import annotations

import os
from typing import Any

from accelerate.tracking import GeneralTracker

from advisor.frameworks.schedule import Schedule
from advisor.library.profile import Profile


class AdvisorTracker(GeneralTracker):  # type: ignore[misc]
    """Profiles training steps of the main process; it learns of steps by `accelerator.log`.

    The profile begins with `init_trackers` where at_step is 0, else with the first `log` of that step or a later one,
    and ends with the first `log` after it is complete, or with `end_training`. at_step, output and options: as
    `Schedule` has them.
    """

    name = "advisor"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, *, at_step: int = 0, output: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self._schedule = Schedule(at_step, 0, output, options)
        super().__init__()

    @property
    def tracker(self) -> list[Profile]:
        """The profiles so far, each with its report."""
        return self._schedule.profiles

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Training is about to begin: `init_trackers` was called."""
        del values  # there is nothing to log them to
        self._schedule.step_begins(0, 0)

    def log(self, values: dict[str, Any], step: int | None = None, **_others: Any) -> None:
        """A step is over; `values` are for other trackers."""
        del values
        self._schedule.step_ends()
        if step is not None:
            self._schedule.step_begins(step, 0)

    def finish(self) -> None:
        """`end_training` was called."""
        self._schedule.training_ends()
