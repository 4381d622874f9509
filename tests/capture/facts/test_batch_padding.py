"""Batches as a loader gives them: how long their samples are, in containers of every kind, without a trace of us."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from capture_runs import capture

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.facts.data import batch_padding  # noqa: E402
from advisor.capture.inside.facts.data.batch_padding import BatchPadding  # noqa: E402


def batch(*lengths: int, width: int = 12) -> Any:
    """Samples of these lengths, padded with zeros."""
    return torch.stack(
        [torch.cat((torch.arange(1, n + 1), torch.zeros(width - n, dtype=torch.int64))) for n in lengths]
    )


class Iterating:
    """As torch's iterators do: the batch is a variable of `__next__` when they are told."""

    def __init__(self, padding: BatchPadding, given: Any) -> None:
        self.padding, self.given = padding, given

    def __next__(self) -> Any:
        data = self.given
        self.padding.look(self)
        return data


def found(given: Any) -> list[tuple[int, int, int]]:
    padding = BatchPadding()
    next(Iterating(padding, given))
    return [(one["samples"], one["length"], one["longest"]) for one in padding.found]


@pytest.mark.parametrize(
    "given",
    [
        batch(3, 5),
        [batch(3, 5), torch.zeros(2)],
        (batch(3, 5), {"labels": torch.tensor([0, 1])}),
        {"input_ids": batch(3, 5), "attention_mask": (batch(3, 5) > 0).long()},
        UserDict(input_ids=batch(3, 5)),
    ],
)
def test_indices_are_found_in_containers_of_every_kind(given: Any) -> None:
    assert found(given) == [(2, 12, 5)]


@pytest.mark.parametrize("given", [torch.rand(2, 12), "text", None, {"x": torch.ones(3)}, [[[[batch(3, 5)]]]]])
def test_what_is_no_batch_of_indices_tells_nothing(given: Any) -> None:
    assert found(given) == []


def lengths(given: Any) -> list[Any]:
    padding = BatchPadding()
    next(Iterating(padding, given))
    return [(one["length"], one["lengths"]) for one in padding.lengths]


FRAMES = torch.rand(3, 9, 4)


@pytest.mark.parametrize(
    "given",
    [
        (FRAMES, torch.tensor([4, 9, 2]), torch.tensor([0, 1, 1])),
        {"frames": FRAMES.transpose(0, 1), "lengths": torch.tensor([4, 9, 2], dtype=torch.int32)},
        [FRAMES, torch.arange(9) < torch.tensor([4, 9, 2])[:, None]],
        [FRAMES, torch.arange(9) >= torch.tensor([4, 9, 2])[:, None]],
        {"attention_mask": (torch.arange(9) < torch.tensor([4, 9, 2])[:, None]).long()},
    ],
)
def test_lengths_are_read_from_a_tensor_of_them_or_from_a_mask(given: Any) -> None:
    assert lengths(given) == [(9, [4, 9, 2])]


@pytest.mark.parametrize(
    "given",
    [
        (FRAMES, torch.tensor([4, 8, 2])),  # none is as long as the batch: labels
        (FRAMES, torch.tensor([9, 9, 9])),
        (FRAMES, torch.tensor([0, 9, 2])),
        [FRAMES, torch.tensor([[1, 0, 1], [1, 1, 1], [1, 1, 0]], dtype=torch.bool)],  # gaps
        [torch.rand(3, 9, 4), torch.rand(3)],
    ],
)
def test_labels_and_masks_with_gaps_are_no_lengths(given: Any) -> None:
    assert lengths(given) == []


def test_a_few_batches_are_enough_and_large_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    padding = BatchPadding()
    for _ in range(20):
        next(Iterating(padding, batch(3, 5)))
    assert len(padding.found) == 8
    monkeypatch.setattr(batch_padding, "_MOST_INDICES", 20)
    assert found(batch(3, 5)) == []


def test_a_container_that_breaks_is_looked_at_once() -> None:
    class Breaks(dict[str, Any]):
        def values(self) -> Any:
            raise ValueError("mine")

    padding = BatchPadding()
    next(Iterating(padding, Breaks(a=1)))
    assert (padding.found, padding.left) == ([], 0)


SCRIPT = """
import torch
from torch.utils.data import DataLoader

def collate(samples):
    batch = torch.zeros(len(samples), 64, dtype=torch.int64)
    for row, words in enumerate(samples):
        batch[row, : len(words)] = torch.tensor(words)
    return {"input_ids": batch}

table = torch.nn.Embedding(100, 4)
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
texts = [list(range(1, 8 + n % 20)) for n in range(4000)]
for batch in DataLoader(texts, batch_size=8, collate_fn=collate):
    optimizer.zero_grad()
    table(batch["input_ids"]).sum().backward()
    optimizer.step()
"""


@pytest.mark.complete
def test_batches_of_a_real_loader(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = capture(tmp_path / "out", tmp_path / "train.py")
    assert done.status == 0, done.err
    lengths = done.rank["batch_lengths"]
    assert len(lengths) == 8
    assert {(one["samples"], one["length"]) for one in lengths} == {(8, 64)}
    assert all(10 <= one["longest"] <= 26 for one in lengths)
    assert len({one["longest"] for one in lengths}) > 1
