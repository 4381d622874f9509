"""Recurrent layers that are called for each position, on traces that PyTorch writes here and now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_steps import outcome

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

READ = nn.Linear(12, 24)
LAYERS = {
    "GRU": nn.GRU(24, 24, batch_first=True),
    "LSTM": nn.LSTM(24, 24, batch_first=True),
    "RNN": nn.RNN(24, 24, batch_first=True),
}
SEQUENCES = torch.randn(8, 20, 12)


def outputs(kind: str, how: str) -> Any:
    layer, inputs = LAYERS[kind], READ(SEQUENCES)
    if how == "at once":
        return layer(inputs)[0]
    state, made, part = None, [], inputs[:, :1]
    for at in range(inputs.shape[1]):
        part = part if how == "generated" else inputs[:, at : at + 1]
        output, state = layer(part, state)
        if how == "masked":
            state = state * 0.5
        if how == "generated":
            part = output
        made.append(output)
    return torch.cat(made, 1)


@pytest.mark.parametrize(
    ("kind", "how", "calls"),
    [
        ("GRU", "each", 20.0),
        ("LSTM", "each", 20.0),
        ("RNN", "each", 20.0),
        ("GRU", "masked", None),
        ("GRU", "generated", None),
        ("GRU", "at once", None),
    ],
)
def test_a_layer_for_each_position(kind: str, how: str, calls: float | None, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([*READ.parameters(), *LAYERS[kind].parameters()], lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        outputs(kind, how).square().mean().backward()
        optimizer.step()

    found = outcome("recurrent-positions", step, tmp_path, observed(tmp_path, step).record)
    assert found.status in ("found", "clear"), found.reason
    assert [one.facts["calls"] for one in found.findings] == ([calls] if calls else [])


@pytest.mark.parametrize("kind", LAYERS)
def test_one_call_gives_the_same_outputs(kind: str) -> None:
    torch.testing.assert_close(outputs(kind, "at once"), outputs(kind, "each"), atol=1e-5, rtol=1e-4)
