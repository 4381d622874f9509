"""A digest of what a dataset holds: ranks that go through all of the same dataset are told from ranks with shards.

Only what lies in memory is looked at, a few dozen entries of each list and array, so that it takes well under a
millisecond whatever the size; nothing of the dataset is called. Samples are told apart by what the dataset reads them
from (arrays, lists of paths or of records): where it holds no such container of at least its own length, as one that
makes its samples up does, there is no digest.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import torch

# Entries of each container, evenly spaced; shards that take every k-th entry differ in the first ones already.
_LOOKS = 32
# A dataset in a dataset, a list of records in it, and the record's fields.
_DEEPEST = 4
_MOST_PIECES = 4096
# Torch's own that go through every index of a dataset.
_WHOLE = ("SequentialSampler", "RandomSampler")


def of_whole(iterator: Any) -> dict[str, str]:
    """`whole_dataset`, the digest, where one of several ranks goes through all of its loader's dataset."""
    sampler = iterator._index_sampler
    inner = getattr(sampler, "sampler", sampler)
    if not _several_ranks() or type(inner).__name__ not in _WHOLE or iterator._dataset_kind != 0:
        return {}
    if getattr(inner, "replacement", False) or len(inner) != len(iterator._dataset):
        return {}  # draws some of the samples: how many an epoch has is the script's choice
    found = digest(iterator._dataset)
    return {"whole_dataset": found} if found else {}


def digest(dataset: Any) -> str:
    """16 hexadecimal digits; empty where the dataset's samples come from nothing that it holds."""
    walk = _Walk(len(dataset))
    whole = hashlib.blake2b(digest_size=8)
    for _, piece in zip(range(_MOST_PIECES), walk.pieces(dataset, 0), strict=False):
        whole.update(piece.encode("utf-8", "replace"))
    return whole.hexdigest() if walk.holds_samples else ""


def _several_ranks() -> bool:
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


class _Walk:
    """Goes through what an object holds. holds_samples: something in it has as many entries as there are samples."""

    def __init__(self, samples: int) -> None:
        self.samples, self.holds_samples = samples, False

    def pieces(self, value: Any, depth: int) -> Iterator[str]:
        """Texts that are equal where the objects are, as far as is looked."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | PurePath):
            yield repr(value)[:200]
            return
        yield type(value).__qualname__
        if isinstance(value, torch.Tensor):
            yield from self._tensor(value)
        elif hasattr(value, "dtype") and hasattr(value, "flat"):
            yield from self._array(value)
        elif hasattr(value, "iloc"):
            self._counts(len(value))
            yield repr(value.iloc[_spaced(len(value))].to_numpy().tolist())[:2000]
        elif depth >= _DEEPEST:
            return
        elif isinstance(value, list | tuple):
            yield from self._entries(value, depth)
        elif isinstance(value, dict):
            yield from self._held(value, depth)
        elif type(value).__module__.partition(".")[0] not in ("builtins", "random", "threading", "numpy"):
            held = getattr(value, "__dict__", {})
            yield from self._held({name: held[name] for name in sorted(held) if name != "generator"}, depth)

    def _held(self, values: dict[Any, Any], depth: int) -> Iterator[str]:
        self._counts(len(values))
        yield str(len(values))
        for key, value in itertools.islice(values.items(), _LOOKS):
            yield repr(key)[:200]
            yield from self.pieces(value, depth + 1)

    def _entries(self, values: Sequence[Any], depth: int) -> Iterator[str]:
        self._counts(len(values))
        yield str(len(values))
        for at in _spaced(len(values)):
            yield from self.pieces(values[at], depth + 1)

    def _array(self, value: Any) -> Iterator[str]:
        self._counts(value.shape[0] if value.ndim else 1)
        yield f"{value.shape} {value.dtype}"
        if value.size:
            yield repr(value.flat[_spaced(value.size)].tolist())[:2000]

    def _tensor(self, value: torch.Tensor) -> Iterator[str]:
        if value.device.type == "cpu" and value.layout == torch.strided and not value.is_sparse:
            try:
                yield from self._array(value.numpy())
            except (TypeError, RuntimeError):
                yield f"{tuple(value.shape)} {value.dtype}"  # a type that numpy lacks, or it asks for a gradient

    def _counts(self, entries: int) -> None:
        self.holds_samples |= 0 < self.samples <= entries


def _spaced(count: int) -> list[int]:
    """Some of the places of so many entries, the first and the last ones among them."""
    looks = min(count, _LOOKS)
    return [place * (count - 1) // max(looks - 1, 1) for place in range(looks)]
