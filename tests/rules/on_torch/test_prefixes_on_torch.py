"""Sequences that are built position by position, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_steps import outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

nn, functional = torch.nn, torch.nn.functional


class Attentive(nn.Module):  # type: ignore[name-defined, misc]
    """One layer of attention; causal or not."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.table, self.project, self.causal = nn.Embedding(8, 32), nn.Linear(32, 96), causal

    def forward(self, tokens: Any) -> Any:
        query, key, value = self.project(self.table(tokens)).unflatten(2, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal).sum(dim=(1, 3))


class Recurrent(nn.Module):  # type: ignore[name-defined, misc]
    """A recurrent layer whose state goes on where the caller says so."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(8, 32), nn.GRU(32, 64, num_layers=2, batch_first=True)

    def forward(self, tokens: Any, state: Any = None) -> Any:
        return self.layer(self.table(tokens), state)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("whole", "found"), ("state", "clear"), ("causal", "found"), ("both ways", "clear")],
)
def test_a_loop_over_positions(kind: str, status: str, tmp_path: Path) -> None:
    recurrent, attentive = Recurrent(), Attentive(kind == "causal")

    def step() -> None:
        tokens = torch.zeros(16, 1, dtype=torch.int64)
        state = None
        for _ in range(11):
            if kind in ("causal", "both ways"):
                out = attentive(tokens)
            elif kind == "state":
                out, state = recurrent(tokens[:, -1:], state)
            else:
                out, _ = recurrent(tokens)
            tokens = torch.cat((tokens, (out.flatten(1).sum(dim=1, keepdim=True) > 0).long()), dim=1)

    with torch.no_grad():
        found = outcome("recomputed-prefixes", step, tmp_path)
    assert found.status == status
    assert [one.facts["calls"] for one in found.findings] == [11] * (status == "found")
