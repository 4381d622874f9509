"""Jacobians of a batch, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_steps import Step, network, outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

RULE = "jacobian-across-batch"
BATCH, SIZE = 6, 4


def own_parts(way: str, function: Any, x: Any) -> Any:
    """The Jacobian of each sample's outputs by its own inputs."""
    if way == "index":
        rows = torch.arange(len(x))
        return torch.autograd.functional.jacobian(function, x, create_graph=True)[rows, :, rows]
    if way == "sum":
        return torch.autograd.functional.jacobian(function, x, create_graph=True).sum(2)
    if way == "by sample":
        return torch.func.vmap(torch.func.jacrev(function))(x)
    if way == "by output":
        y = function(x)
        slopes = [torch.autograd.grad(y[:, one].sum(), x, create_graph=True)[0] for one in range(SIZE)]
        return torch.stack(slopes, 1)
    return torch.autograd.functional.jacobian(function, x[0], create_graph=True)[None]


def trained_on(way: str) -> Step:
    """A step whose loss holds these parts."""
    model = torch.nn.Sequential(torch.nn.Linear(SIZE, 64), torch.nn.Tanh(), torch.nn.Linear(64, SIZE))
    other = network()
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=1e-3)
    x, more = torch.randn(BATCH, SIZE, requires_grad=True), torch.randn(32, 64)

    def step() -> None:
        optimizer.zero_grad()
        (own_parts(way, model, x).square().mean() + other(more).square().mean()).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("way", ["index", "sum"])
def test_a_jacobian_between_all_samples_is_found(way: str, tmp_path: Path) -> None:
    found = outcome(RULE, trained_on(way), tmp_path)
    assert found.status == "found"
    assert [one.facts["passes"] for one in found.findings] == [BATCH * SIZE]


@pytest.mark.parametrize("way", ["by sample", "by output", "of one"])
def test_jacobians_of_samples_by_themselves_are_left_alone(way: str, tmp_path: Path) -> None:
    assert outcome(RULE, trained_on(way), tmp_path).status == "clear"
