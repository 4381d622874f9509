"""Where this process stands in its job: of the process group, else of the launcher's environment."""

from __future__ import annotations

import os

import torch


class RankIdentity:
    """Rank and world size; what the process group said holds after the script has left it."""

    def __init__(self) -> None:
        self._known: tuple[int, int] | None = None

    def rank(self) -> int:
        """This process's rank, 0 where it is alone."""
        return self._both()[0]

    def world_size(self) -> int:
        """Processes in the job."""
        return self._both()[1]

    def local(self) -> dict[str, int | None]:
        """Place among the processes of this machine, where a launcher says so."""
        return {"local_rank": _number("LOCAL_RANK"), "local_world_size": _number("LOCAL_WORLD_SIZE")}

    def on_this_machine(self) -> int:
        """Processes of the job on this machine; all of them where no launcher says how many."""
        return max(_number("LOCAL_WORLD_SIZE") or self.world_size(), 1)

    def _both(self) -> tuple[int, int]:
        group = torch.distributed
        if group.is_available() and group.is_initialized():
            self._known = (int(group.get_rank()), int(group.get_world_size()))
        if self._known is not None:
            return self._known
        rank = _number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
        return rank or 0, _number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE") or 1


def _number(*names: str) -> int | None:
    """The first of these variables that is set."""
    found = next((value for name in names if (value := os.environ.get(name))), None)
    return int(found) if found and found.isdigit() else None
