"""The batch size of the script's loaders, as they are constructed; the training itself changes with it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from .constructors import change
from .door import Door


def apply(arguments: dict[str, Any], door: Door) -> None:
    """size, or scale: a factor. all: True changes loaders that do not shuffle, too, which may be evaluations."""

    # Loaders that were changed: a framework makes a loader again, from the sampler and dataset of one that is alive.
    done: list[weakref.ref[Any]] = []

    def edit(loader: Any, given: dict[str, Any]) -> None:
        now = given.get("batch_size", 1)
        if given.get("batch_sampler") is not None and _has_dataset(done, given.get("dataset")):
            _note(done, loader)
            return
        if given.get("batch_sampler") is not None or now is None:
            door.notes.miss("a DataLoader whose batch size is set by its batch sampler or by the script")
            return
        if not arguments.get("all") and not _trains(given):
            door.notes.miss(
                "a DataLoader that does not shuffle, assumed to be for evaluation; `all=True` changes it, too"
            )
            return
        new = int(arguments.get("size") or max(1, round(now * float(arguments.get("scale", 1)))))
        samples = _length(given.get("dataset"))
        if given.get("drop_last") and samples is not None and new > samples:
            door.notes.miss(f"a DataLoader of {samples} samples with drop_last, which would have no batch left")
            return
        given["batch_size"] = new
        _note(done, loader)
        door.notes.reach(f"DataLoader: batch size {new} instead of {now}")

    change(DataLoader, edit)


def _note(loaders: list[weakref.ref[Any]], loader: Any) -> None:
    loaders[:] = [*(one for one in loaders if one() is not None), weakref.ref(loader)]


def _has_dataset(loaders: Iterable[weakref.ref[Any]], dataset: Any) -> bool:
    """Whether one of these loaders is alive and has this very dataset; one whose constructor failed has none."""
    return dataset is not None and any(getattr(one(), "dataset", None) is dataset for one in loaders)


def _trains(given: dict[str, Any]) -> bool:
    """Whether a loader with these arguments draws samples in random order, or in an order of its own."""
    if isinstance(given.get("dataset"), IterableDataset):
        return True
    sampler = given.get("sampler")
    if sampler is None:
        return bool(given.get("shuffle"))
    return not isinstance(sampler, SequentialSampler) and bool(getattr(sampler, "shuffle", True))


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # an iterable dataset has none, and may say so in its own way
        return None
