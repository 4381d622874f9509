"""What the masks that modules hold say, told from what stands in them and never from their shape alone."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from capture_runs import bare, capture  # noqa: E402

from advisor.capture.inside.windows.masks import Masks, form  # noqa: E402

SIZE = 300
BEFORE = torch.ones(SIZE, SIZE, dtype=torch.bool).tril()


def added(hidden: Any, number: float = -math.inf) -> Any:
    return torch.zeros(SIZE, SIZE).masked_fill(hidden, number)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (BEFORE, "seen"),
        (BEFORE[None, None], "seen"),
        (BEFORE.byte(), "seen"),
        (~BEFORE, "hidden"),
        (added(~BEFORE), "added"),
        (added(~BEFORE, torch.finfo(torch.float32).min), "added"),
        (added(~BEFORE).bfloat16(), "added"),
        (torch.nn.Transformer.generate_square_subsequent_mask(SIZE), "added"),
        (BEFORE.triu(-64), "other"),  # a sliding window
        (BEFORE | (torch.arange(SIZE) < 20), "other"),  # a prefix that all see
        (BEFORE & (torch.arange(SIZE) < 290), "other"),  # padding behind
        (BEFORE.tril(-1), "other"),  # a token does not see itself
        (torch.ones(SIZE, SIZE, dtype=torch.bool), "other"),
        (added(~BEFORE, -1.0), "other"),
        (added(~BEFORE) - (torch.arange(SIZE)[:, None] - torch.arange(SIZE)).clamp(0), "other"),  # ALiBi
        (BEFORE.float(), "other"),  # ones and zeros to be added: no mask at all
    ],
)
def test_forms(mask: object, expected: str) -> None:
    assert form(mask) == expected


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(4, 1, SIZE, SIZE, dtype=torch.bool),  # one for each sequence
        torch.ones(1, 4, SIZE, SIZE),  # a bias for each head
        torch.ones(1, SIZE, dtype=torch.bool),  # a cache of keys: one new token
        torch.ones(200, SIZE, dtype=torch.bool),
        torch.ones(64, 64).tril().bool(),
        torch.ones(SIZE, SIZE, requires_grad=True),
        torch.ones(SIZE, SIZE, dtype=torch.long),
        torch.eye(SIZE).to_sparse(),
        "mask",
    ],
)
def test_what_is_no_mask_for_all_is_not_held(tensor: object) -> None:
    masks = Masks()
    masks.look(torch.nn.Linear(1, 1), {"mask": tensor})
    assert not masks.held
    assert masks.record() == []


def test_they_are_read_once_and_let_go() -> None:
    masks, module = Masks(), torch.nn.Linear(1, 1)
    module.register_buffer("mask", BEFORE.clone())
    masks.look(module, {"again": module.mask[:SIZE, :SIZE], "smaller": module.mask[:280, :280]})
    assert masks.record() == [{"tokens": SIZE, "form": "seen"}, {"tokens": 280, "form": "seen"}]
    assert not masks.held
    module.mask.zero_()
    assert masks.record()[0]["form"] == "seen"


def test_a_module_without_attributes_is_left_alone() -> None:
    Masks().look(None, {"mask": BEFORE})
    Masks().look(object(), {"mask": BEFORE})


SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 24)
        self.register_buffer("mask", torch.ones(256, 256).tril().bool())
    def forward(self, x):
        q, k, v = self.inner(x).unsqueeze(1).chunk(3, -1)
        added, window = torch.full((256, 256), float("-inf")).triu(1), self.mask.triu(-16)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return F.scaled_dot_product_attention(y, k, v, attn_mask=added).where(window[0, 0], y)
torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(80):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 256, 8)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


@pytest.mark.complete
def test_masks_of_a_running_script(tmp_path: Path) -> None:
    script = tmp_path / "attending.py"
    script.write_text(SCRIPT)
    done = capture(tmp_path / "out", script)
    assert done.out == bare(sys.executable, str(script), cwd=tmp_path).out.decode() != ""
    assert not done.rank["notes"]
    assert sorted(one["form"] for one in done.rank["masks"]) == ["added", "other", "seen"]
    assert {one["tokens"] for one in done.rank["masks"]} == {256}


@pytest.mark.parametrize("tokens", [1024, 1100, 1536, 2048, 4096])
def test_scores_that_the_kernel_computes_with_the_flag(tokens: int) -> None:
    """256 rows at a time, each with the blocks of 512 tokens in which the last of them sees something."""
    computed = 0
    for first in range(0, tokens, 256):
        rows = min(256, tokens - first)
        computed += rows * min(-(-(first + rows) // 512) * 512, tokens)
    kept = import_module("advisor.rules.cheaper_equivalents._masks").kept_on_cpu(tokens)
    assert kept == pytest.approx(computed / tokens**2, rel=1e-9)
    assert 0.5 < kept <= 0.75
