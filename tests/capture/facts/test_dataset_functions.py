"""Which function of the script reads samples, and which puts batches together."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.api import Source
from advisor.capture.record import Loader

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

data: Any = import_module("torch.utils.data")
makers: Any = import_module("advisor.capture.inside.facts.data.dataset_functions")
loader: Any = import_module("advisor.rules.input._loader")


class Own(data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


class Stream(data.IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        yield from range(8)


class Collator:
    def __call__(self, samples: list[int]) -> list[int]:
        return samples

    def method(self, samples: list[int]) -> list[int]:
        return samples


def collate(samples: list[int], _more: int = 0) -> list[int]:
    return samples


def of_a_library(text: str) -> dict[str, Any]:
    """What a module of an installed package defines."""
    names: dict[str, Any] = {}
    exec(compile(text, "/packages/library.py", "exec"), names)
    return names


LIBRARY = of_a_library("""
class Reader:
    def __init__(self, dataset):
        self.dataset = dataset
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.dataset[index]
class DropColumns:
    def __init__(self, data_collator):
        self.data_collator = data_collator
    def __call__(self, samples):
        return self.data_collator(samples)
""")
FOREIGN = (str(Path(torch.__file__).parents[1]) + os.sep, "/packages/")


def facts(dataset: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = makers.facts(iter(data.DataLoader(dataset, **options)), FOREIGN)
    return found


def begins(function: Any) -> int:
    line: int = function.__code__.co_firstlineno
    return line


@pytest.mark.parametrize(
    ("dataset", "reads"),
    [
        (Own(), Own.__getitem__),
        (data.Subset(data.Subset(Own(), range(4)), range(2)), Own.__getitem__),
        (Stream(), Stream.__iter__),
        (LIBRARY["Reader"](Own()), Own.__getitem__),
    ],
)
def test_what_reads_a_sample(dataset: Any, reads: Any) -> None:
    found = facts(dataset)
    assert set(found) == {"sample_from"}
    file, line, name = found["sample_from"]
    assert file.endswith(Path(__file__).name)
    assert (line, name) == (begins(reads), reads.__name__)


@pytest.mark.parametrize("dataset", [data.TensorDataset(torch.ones(8)), list(range(8)), LIBRARY["Reader"]([0] * 8)])
def test_what_a_library_or_python_reads_is_none_of_the_script(dataset: Any) -> None:
    assert facts(dataset) == {}


@pytest.mark.parametrize(
    ("given", "function"),
    [
        (collate, collate),
        (functools.partial(collate, _more=1), collate),
        (Collator(), Collator.__call__),
        (Collator().method, Collator.method),
        (LIBRARY["DropColumns"](collate), collate),
    ],
)
def test_what_puts_a_batch_together(given: Any, function: Any) -> None:
    file, line, name = facts(list(range(8)), batch_size=2, collate_fn=given)["collate_from"]
    assert file.endswith(Path(__file__).name)
    assert (line, name) == (begins(function), function.__name__)


def test_the_one_that_takes_most_is_named_after_the_line_that_waits_for_it() -> None:
    waits: Any = SimpleNamespace(where=Source("train.py", 50), asked_at=())
    known: dict[str, Any] = {
        "sample_from": ("train.py", 12, "__getitem__"),
        "collate_from": ("train.py", 30, "collate"),
    }

    def named(sample_us: float | None, collate_us: float) -> list[tuple[int, str]]:
        one = Loader(batch_size=8, sample_us=sample_us, collate_us=collate_us, **known)
        return [(at.line, at.precision) for at in loader.where_of(None, waits, 2, None, None, one)]

    assert named(10.0, 79.0) == [(50, "call"), (12, "function")]
    assert named(10.0, 81.0) == [(50, "call"), (30, "function")]
    assert named(None, 81.0) == [(50, "call")]


def test_what_a_library_puts_together_is_none_of_the_script() -> None:
    given = LIBRARY["DropColumns"](data.default_collate)
    assert facts(list(range(8)), batch_size=2, collate_fn=given) == {}
