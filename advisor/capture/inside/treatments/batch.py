"""The batch size of the script's loaders, as they are constructed; the training itself changes with it."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from .constructors import change
from .door import Door


def apply(arguments: dict[str, Any], door: Door) -> None:
    """size, or scale: a factor. all: True changes loaders that do not shuffle, too, which may be evaluations."""

    done: set[int] = set()  # datasets of loaders that were changed: a framework makes a loader again, from its sampler

    def edit(_loader: Any, given: dict[str, Any]) -> None:
        now = given.get("batch_size", 1)
        if given.get("batch_sampler") is not None and id(given.get("dataset")) in done:
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
        done.add(id(given.get("dataset")))
        door.notes.reach(f"DataLoader: batch size {new} instead of {now}")

    change(DataLoader, edit)


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
