"""Hugging Face Trainer: `Trainer(..., callbacks=[AdvisorCallback()])`."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from advisor.frameworks.schedule import Schedule
from advisor.library.profile import Profile


class AdvisorCallback(TrainerCallback):  # type: ignore[misc]
    """Profiles training steps of the main process.

    at_step, every_n_epochs, output and options: as `Schedule` has them.
    """

    def __init__(
        self, *, at_step: int = 0, every_n_epochs: int = 0, output: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        self._schedule = Schedule(at_step, every_n_epochs, output, options)

    @property
    def profiles(self) -> list[Profile]:
        """The profiles so far, each with its report."""
        return self._schedule.profiles

    def on_train_begin(self, *_words: Any, **_others: Any) -> None:
        """Training begins; what an earlier one left open when an exception ended it, ends now."""
        self._schedule.training_ends()

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """The batches of an optimizer step are there, and the step follows."""
        if state.is_world_process_zero:
            self._schedule.step_begins(state.global_step, int(state.epoch or 0))

    def on_step_end(self, *_words: Any, **_others: Any) -> None:
        """The optimizer step is over."""
        self._schedule.step_ends()

    def on_train_end(self, *_words: Any, **_others: Any) -> None:
        """Training is over."""
        self._schedule.training_ends()
