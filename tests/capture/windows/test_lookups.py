"""Padding told from the indices that embeddings look up."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from capture_runs import capture  # noqa: E402

from advisor.capture.inside.windows.lookups import padding  # noqa: E402

TEXTS = [[5, 6, 7], [8, 9, 3, 4], [2]]


def padded(length: int, pad: int = 0, left: bool = False) -> object:
    """TEXTS as one tensor of that length."""
    rows = [[pad] * (length - len(t)) + t if left else t + [pad] * (length - len(t)) for t in TEXTS]
    return torch.tensor(rows)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("pad", [0, 1])
def test_what_all_samples_end_or_begin_with_is_padding(pad: int, left: bool) -> None:
    assert padding(padded(10, pad, left)) == {"samples": 3, "length": 10, "longest": 4}
    assert padding(padded(4, pad, left)) == {"samples": 3, "length": 4, "longest": 4}


@pytest.mark.parametrize(
    "indices",
    [
        torch.arange(6).repeat(3, 1),  # positions
        torch.zeros(3, 6, dtype=torch.long),  # kinds of tokens
        torch.tensor([[0, 1, 0, 0], [0, 0, 1, 0]]),  # flags: the last index stands elsewhere, too
        torch.tensor([[5, 6, 0, 0]]),  # a single sample
        torch.tensor([5, 6, 0, 0]),
        torch.ones(3, 6),
        torch.ones(3, 6, dtype=torch.long).to("meta"),
        None,
    ],
)
def test_what_tells_nothing(indices: object) -> None:
    assert padding(indices) is None


SCRIPT = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.kinds, self.out = nn.Embedding(50, 8), nn.Embedding(2, 8), nn.Linear(8, 1)
    def forward(self, ids):
        return self.out((self.tokens(ids) + self.kinds(torch.zeros_like(ids))).mean(1))
torch.manual_seed(0)
texts = torch.randint(1, 50, (240, 40))
texts[:, 12:] = 0
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(texts, batch_size=4):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.complete
def test_capture_reads_the_indices_of_one_step(tmp_path: Path) -> None:
    script = tmp_path / "padded.py"
    script.write_text(SCRIPT)
    done = capture(tmp_path / "out", script)
    # One batch for each step whose lines were recorded; where steps seemed to be of two kinds, these are two.
    assert done.rank["lookups"]
    assert all(one == {"samples": 4, "length": 40, "longest": 12} for one in done.rank["lookups"])
