"""Children of the script that train side by side without a process group: one of them is recorded for all."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from .process_role import is_fork_server
from .steps.backward_rhythm import PASSES

# The file by which processes of one run agree on who is recorded; it goes when run.json is put together.
CLAIM = "recorded.claim"
NOTE = (
    "this process was started by the script and joined no process group: several processes train in parallel, and "
    "only this one, the first to be detected, was recorded"
)


class UnrankedChild:
    """Whether this process is to be recorded although it is neither the named script nor in a process group.

    open is off once that is decided. A process that the script starts waits for PASSES backward passes, so that a
    script that trains itself comes first.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.path = os.path.join(settings["folder"], CLAIM)
        self.open = True
        self.passes = 0

    def trains(self) -> None:
        """The named script trains itself: none of its children is recorded for it."""
        self.open = False
        self._claimed()

    def chosen(self) -> bool:
        """A backward pass begins in a child: True where it is the one that is recorded from here on."""
        self.passes += 1
        if not self.open or self.passes < PASSES:
            return False
        self.open = False
        return not _serves_a_loader() and self._claimed()

    def _claimed(self) -> bool:
        with contextlib.suppress(OSError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return True
        return False


def started_by_script() -> bool:
    """multiprocessing started this interpreter, or forked it from its fork server, to run a function of the script."""
    return "--multiprocessing-fork" in sys.orig_argv or is_fork_server(sys.orig_argv)


def _serves_a_loader() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None
