"""Products in a costly order, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_steps import outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

READ, TO_FEW, TO_MANY = nn.Linear(64, 96), nn.Linear(32, 4), nn.Linear(32, 100)
TOKENS = torch.randn(4, 200, 64)
ADJACENCY, FEATURES = (torch.rand(300, 300) < 0.02).float(), nn.Parameter(torch.randn(300, 32))
SPARSE = ADJACENCY.to_sparse_coo()


def attention(how: str) -> Any:
    q, k, v = READ(TOKENS).chunk(3, dim=-1)
    if how == "keys first":
        return q @ (k.transpose(-2, -1) @ v)
    scores = q @ k.transpose(-2, -1)
    scores = scores.softmax(-1) if how == "softmax" else scores / 5.5 if how == "scaled" else scores
    return scores @ v + (scores.mean() if how == "read twice" else 0.0)


def graph(how: str) -> Any:
    if how == "sparse":
        return TO_FEW(torch.sparse.mm(SPARSE, FEATURES))
    return (TO_MANY if how == "to many" else TO_FEW)(ADJACENCY @ FEATURES)


@pytest.mark.parametrize(
    ("made", "how", "fewer"),
    [
        (attention, "pairs first", 200 / 32),
        (attention, "scaled", 200 / 32),
        (attention, "softmax", None),
        (attention, "read twice", None),
        (attention, "keys first", None),
        (graph, "to few", (300 * 32 + 32 * 4) / (300 * 4 + 32 * 4)),
        (graph, "sparse", (300 * 32 + 32 * 4) / (300 * 4 + 32 * 4)),
        (graph, "to many", None),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_order_of_two_products(made: Any, how: str, fewer: float | None, tmp_path: Path) -> None:
    layers = nn.ModuleList([READ, TO_FEW, TO_MANY])
    optimizer = torch.optim.SGD([*layers.parameters(), FEATURES], lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        made(how).square().mean().backward()
        optimizer.step()

    found = outcome("product-order", step, tmp_path, observed(tmp_path, step).record)
    assert found.status in ("found", "clear"), found.reason
    assert [one.facts["fewer"] for one in found.findings] == ([pytest.approx(fewer)] if fewer else [])


def test_both_orders_give_the_same_results() -> None:
    torch.testing.assert_close(attention("keys first"), attention("pairs first"), atol=1e-4, rtol=1e-4)
    first = ADJACENCY @ nn.functional.linear(FEATURES, TO_FEW.weight) + TO_FEW.bias
    torch.testing.assert_close(first, graph("to few"), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(graph("sparse"), graph("to few"), atol=1e-4, rtol=1e-4)
