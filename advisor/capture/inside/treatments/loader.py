"""Arguments of the script's DataLoaders: workers, pinning, prefetching, and the context of their processes."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from .constructors import change
from .door import Door

# Arguments that a loader without workers refuses.
_OF_WORKERS = ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout")


def apply(arguments: dict[str, Any], door: Door) -> None:
    """arguments: of `DataLoader`, in place of those that the script gives."""

    def edit(_loader: Any, given: dict[str, Any]) -> None:
        now = given.get("num_workers", 0)
        workers = arguments.get("num_workers", now)
        if isinstance(given.get("dataset"), IterableDataset) and workers > max(now, 1):
            door.notes.miss("a DataLoader of an iterable dataset: each added worker would repeat its samples")
            return
        if not workers and not arguments.get("pin_memory") and "num_workers" not in arguments:
            door.notes.miss("a DataLoader without workers")
            return
        given.update(arguments)
        if not workers:
            for name in _OF_WORKERS:
                given.pop(name, None)
        door.notes.reach("DataLoader")

    change(DataLoader, edit)
