"""needless-second-order and separate-tables, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_steps import network, outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from torch.utils.checkpoint import checkpoint  # noqa: E402


@pytest.mark.parametrize("way", ["in vain", "not recorded", "penalty", "by backward", "checkpointed", "transform"])
def test_a_pass_that_records_itself_is_found_where_nothing_goes_through_the_record(way: str, tmp_path: Path) -> None:
    model, x = network(), torch.randn(128, 64)
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-3)

    def inner(**how: Any) -> list[Any]:
        out = checkpoint(model, x, use_reentrant=False) if way == "checkpointed" else model(x)
        return list(torch.autograd.grad(out.square().mean(), weights, **how))

    def step() -> None:
        optimizer.zero_grad()
        if way == "transform":
            given = dict(model.named_parameters())
            torch.func.grad(lambda found: torch.func.functional_call(model, found, (x,)).square().mean())(given)
        grads = inner(create_graph=way in ("in vain", "penalty"))
        loss = model(x).mean()
        if way == "penalty":
            loss = loss + sum(grad.square().mean() for grad in grads)
        if way == "by backward":
            model(x).square().mean().backward(create_graph=True)
            sum(weight.grad.square().sum() for weight in weights).backward()
        loss.backward()
        optimizer.step()

    found = outcome("needless-second-order", step, tmp_path)
    assert found.status == ("found" if way == "in vain" else "clear")
    assert [one.facts["passes"] for one in found.findings] == ([1.0] if way == "in vain" else [])


@pytest.mark.parametrize(("columns", "shared"), [(12, False), (3, False), (12, True)])
def test_tables_of_many_columns(columns: int, shared: bool, tmp_path: Path) -> None:
    """Each with a gradient of its own; one table that is looked up for each column is another matter."""
    nn = torch.nn
    one = nn.Embedding(50, 8)
    tables = nn.ModuleList(one if shared else nn.Embedding(50, 8) for _ in range(columns))
    head = nn.Linear(8 * columns, 1)
    optimizer = torch.optim.SGD([*tables.parameters(), *head.parameters()], lr=1e-3)
    indices = torch.randint(0, 50, (256, columns))

    def step() -> None:
        looked_up = [table(indices[:, at]) for at, table in enumerate(tables)]
        optimizer.zero_grad()
        head(torch.cat(looked_up, 1)).mean().backward()
        optimizer.step()

    found = outcome("separate-tables", step, tmp_path)
    expected = columns == 12 and not shared
    assert found.status == ("found" if expected else "clear")
    assert [one.facts["look_ups"] for one in found.findings] == ([12.0] if expected else [])
