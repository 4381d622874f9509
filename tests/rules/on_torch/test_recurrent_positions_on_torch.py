"""Recurrent layers that are called for each position, on traces that PyTorch writes here and now."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from torch_steps import outcome, recorded

from advisor.analyses.base.step_ops import StepOps

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

positions: Any = import_module("advisor.rules.cheaper_equivalents._positions_on_device")

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


WORDS = torch.randint(0, 24, (20, 8))
EMBEDDING = nn.Embedding(24, 24)
TIME_FIRST = nn.GRU(24, 24)


def decoded(how: str) -> Any:
    """A decoder over twenty words, and where its inputs come from."""
    state, loss, word = torch.zeros(1, 8, 24), torch.zeros(()), WORDS[0]
    values, seen = READ(SEQUENCES).transpose(0, 1), torch.zeros(21, 8, 24)
    for at in range(20):
        given = EMBEDDING(word if how in ("chosen", "forced") else WORDS[at])[None]
        given = {"activated": given.relu(), "of values": values[at][None]}.get(how, given)
        if how == "attentive":
            given = given + torch.softmax(state, 2)
        output, state = TIME_FIRST(given, state * (1 - seen[at]) if how == "restarted" else state)
        loss = loss + nn.functional.cross_entropy(output[0], WORDS[at])
        if how == "stored":
            seen[at] = output[0]
        word = output[0].argmax(1) if how == "chosen" else WORDS[at]
        state = state * 0.5 if how == "damped" else state
    return loss + seen.sum()


@pytest.mark.parametrize(
    ("how", "known"),
    [
        *((how, True) for how in ("plain", "forced", "activated", "of values", "stored")),
        *((how, False) for how in ("chosen", "attentive", "restarted", "damped")),
    ],
)
def test_inputs_known_beforehand_by_the_ops_between_calls(how: str, known: bool, tmp_path: Path) -> None:
    """As beside a device, where what ops read is not observed."""
    found = list(positions.turns_of_layers(recorded(lambda: decoded(how).backward(), tmp_path).get(StepOps), 16))
    assert [len(one.calls) for one in found] == ([20] * 4 if known else [])


@pytest.mark.parametrize("kind", LAYERS)
def test_one_call_gives_the_same_outputs(kind: str) -> None:
    torch.testing.assert_close(outputs(kind, "at once"), outputs(kind, "each"), atol=1e-5, rtol=1e-4)
