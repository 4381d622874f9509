"""Lightning: `Trainer(callbacks=[AdvisorCallback()])`."""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch import Callback

from advisor.frameworks.schedule import Schedule
from advisor.library.profile import Profile


class AdvisorCallback(Callback):  # type: ignore[misc]
    """Profiles training steps of the process with global rank 0.

    at_step, every_n_epochs, output and options: as `Schedule` has them.
    """

    def __init__(
        self, *, at_step: int = 0, every_n_epochs: int = 0, output: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self._schedule = Schedule(at_step, every_n_epochs, output, options)

    @property
    def profiles(self) -> list[Profile]:
        """The profiles so far, each with its report."""
        return self._schedule.profiles

    def on_train_batch_start(self, trainer: Any, *_others: Any) -> None:
        """A batch is there, and the training step follows."""
        if trainer.is_global_zero:
            self._schedule.step_begins(trainer.global_step, trainer.current_epoch)

    def on_train_batch_end(self, *_others: Any) -> None:
        """The training step is over."""
        self._schedule.step_ends()

    def on_train_end(self, *_others: Any) -> None:
        """Training is over."""
        self._schedule.training_ends()

    def on_exception(self, *_others: Any) -> None:
        """Training ends by an exception, which goes on."""
        self._schedule.training_ends()
