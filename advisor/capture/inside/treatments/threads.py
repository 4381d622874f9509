"""Threads within an op (`torch.set_num_threads`), whatever the script sets: in its process, and in loader workers."""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch
from torch.utils.data import DataLoader

from .constructors import change
from .door import Door
from .ignored import ignore


def apply(arguments: dict[str, Any], door: Door) -> None:
    """count: threads of the script's process. workers: of each loader worker, which torch gives one."""
    if "count" in arguments:
        count = int(arguments["count"])
        door.notes.reach(f"{count} instead of {torch.get_num_threads()} threads")
        torch.set_num_threads(count)
        ignore(torch, "set_num_threads", door)
    if "workers" in arguments:
        _in_workers(int(arguments["workers"]), door)


def _in_workers(count: int, door: Door) -> None:
    def edit(_loader: Any, given: dict[str, Any]) -> None:
        if not given.get("num_workers"):
            door.notes.miss("a DataLoader without workers")
        elif _start_method(given.get("multiprocessing_context")) == "fork":
            # Ops with more than one thread wait forever in a process that was forked after an op with threads.
            door.notes.miss("a DataLoader whose workers are forked: add loader:multiprocessing_context=forkserver")
        else:
            given["worker_init_fn"] = _WithThreads(count, given.get("worker_init_fn"))
            door.notes.reach(f"DataLoader: {count} threads in each worker")

    change(DataLoader, edit)


def _start_method(context: Any) -> str:
    """How a loader with this context starts its workers."""
    default = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return context if isinstance(context, str) else context.get_start_method() if context else default


class _WithThreads:
    """A `worker_init_fn` that is pickled: what the script's own does, with more threads."""

    def __init__(self, count: int, inner: Any) -> None:
        self.count, self.inner = count, inner

    def __call__(self, worker: int) -> None:
        torch.set_num_threads(self.count)
        if self.inner is not None:
            self.inner(worker)
