"""Datasets that hold the same have the same digest; shards, and datasets that hold no samples, do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Subset,
    TensorDataset,
)

from advisor.capture.inside.facts.data import dataset_digest  # noqa: E402
from advisor.capture.inside.facts.data.dataset_digest import digest  # noqa: E402


class Files(Dataset):
    """Reads files by their paths."""

    def __init__(self, paths: list[Any], generator: Any = None) -> None:
        self.paths, self.rng = paths, generator

    def __len__(self) -> int:
        return len(self.paths)


class MadeUp(Dataset):
    """Draws its samples."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def _numbers(offset: int = 0) -> TensorDataset:
    return TensorDataset(torch.arange(offset, offset + 1000).float(), torch.arange(1000))


PATHS = [Path(f"{at:04}.jpg") for at in range(400)]
RECORDS = [{"text": f"line {at}", "label": at % 3} for at in range(300)]


@pytest.mark.parametrize(
    "make",
    [
        _numbers,
        lambda: Files(PATHS, np.random.default_rng()),
        lambda: Files(RECORDS),
        lambda: Files([*PATHS], torch.Generator()),
        lambda: Subset(Files(PATHS), list(range(0, 400, 2))),
        lambda: Files(np.linspace(0, 1, 500)),  # type: ignore[arg-type]
    ],
)
def test_the_same_twice(make: Any) -> None:
    first, second = digest(make()), digest(make())
    assert first
    assert first == second


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (_numbers(), _numbers(1)),
        (Files(PATHS[0::2]), Files(PATHS[1::2])),
        (Files(PATHS[:200]), Files(PATHS[200:])),
        (Files(RECORDS[:150]), Files(RECORDS[150:])),
        (Subset(Files(PATHS), list(range(0, 400, 2))), Subset(Files(PATHS), list(range(1, 400, 2)))),
    ],
)
def test_shards_differ(first: Any, second: Any) -> None:
    assert digest(first) != digest(second)


def test_a_dataset_that_makes_its_samples_up_has_none() -> None:
    assert digest(MadeUp(1000)) == ""


def test_a_table_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": range(500), "b": range(500)})
    first, second = Files([]), Files([])
    first.paths, second.paths = table, table.iloc[::-1]  # type: ignore[assignment]
    assert digest(first)
    assert digest(first) != digest(second)


class Counted(list[Path]):
    """Counts how often it is read."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(at)


def test_few_entries_of_a_long_list_are_read() -> None:
    assert digest(Files(Counted(PATHS * 1000)))
    assert Counted.looks <= 32


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({"shuffle": True}, True),
        ({"shuffle": False}, True),
        ({"sampler": DistributedSampler(_numbers(), num_replicas=2, rank=0)}, False),
        ({"sampler": RandomSampler(_numbers(), replacement=True)}, False),
        ({"sampler": RandomSampler(_numbers(), num_samples=100)}, False),
    ],
)
def test_only_samplers_that_give_every_sample_once(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], whole: bool
) -> None:
    iterator = iter(DataLoader(_numbers(), batch_size=10, **options))
    assert dataset_digest.of_whole(iterator) == {}  # one process
    monkeypatch.setattr(dataset_digest, "_several_ranks", lambda: True)
    assert bool(dataset_digest.of_whole(iterator)) is whole
