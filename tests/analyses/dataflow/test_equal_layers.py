"""Which layers of an observed step could be one op: torch's own observer on real models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

Step = Callable[[Any], Any]
LAYERS = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
SECOND = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
UNEQUAL = nn.ModuleList(nn.Linear(8, 4 + number) for number in range(5))
CONVOLUTIONS = nn.ModuleList(nn.Conv1d(4, 4, 3) for _ in range(5))
CELL = nn.RNNCell(8, 8)
INPUT, PARTS, SIGNAL = torch.randn(6, 8), torch.randn(6, 5, 8), torch.randn(6, 4, 9)


def heads(x: Any) -> Any:
    return torch.cat([layer(x) for layer in LAYERS], 1)


def members(x: Any) -> Any:
    return torch.stack([second(torch.relu(first(x))) for first, second in zip(LAYERS, SECOND, strict=True)])


def deep(x: Any) -> Any:
    """Ops of one form twice in each member."""
    return torch.stack([torch.relu(b(torch.relu(a(x)))) for a, b in zip(LAYERS, SECOND, strict=True)])


def summed(x: Any) -> Any:
    total = torch.zeros(6, 8)
    for layer in LAYERS:
        total = total + layer(x)
    return total


def into_slices(_: Any) -> Any:
    filled = torch.zeros(6, 5, 8)
    for at, layer in enumerate(LAYERS):
        filled[:, at] = layer(PARTS[:, at])
    return filled


def filters(_: Any) -> Any:
    return torch.cat([torch.relu(layer(SIGNAL)) for layer in CONVOLUTIONS], 1)


def in_a_row(x: Any) -> Any:
    for layer in LAYERS:
        x = torch.relu(layer(x))
    return x


def with_shortcuts(x: Any) -> Any:
    """Each reads all before it."""
    for layer in LAYERS:
        x = x + layer(x)
    return x


def of_shapes(x: Any) -> Any:
    return torch.cat([layer(x) for layer in UNEQUAL], 1)


def shared(_: Any) -> Any:
    return torch.stack([LAYERS[0](PARTS[:, at]) for at in range(5)])


def over_time(_: Any) -> Any:
    state = torch.zeros(6, 8)
    for at in range(5):
        state = CELL(PARTS[:, at], state)
    return state


def apart(x: Any) -> Any:
    """Blocks that read one memory, as those of a decoder do: other work runs between."""
    state = x
    for layer, second in zip(LAYERS, SECOND, strict=True):
        state = torch.tanh(second(state)) * torch.sigmoid(layer(INPUT))
    return state


def routed(x: Any) -> Any:
    """Experts that each get other rows, and other numbers of them."""
    chosen = torch.tensor([0, 0, 0, 1, 1, 2])
    total = torch.zeros(6, 8)
    for at, layer in enumerate(LAYERS):
        rows = torch.nonzero(chosen == at).flatten()
        total = total.index_add(0, rows, layer(x[rows]))
    return total


@pytest.fixture
def groups(tmp_path: Path) -> Callable[[Step], list[tuple[list[str], int]]]:
    """The names of the ops of each group that could be one, the layers' first, and how many layers it has."""

    def find(step: Step) -> list[tuple[list[str], int]]:
        def whole() -> None:
            functional.mse_loss(made := step(INPUT), torch.zeros_like(made)).backward()

        run = observed(tmp_path, whole)
        lists = [([one.layers[0], *(each[0] for each in one.ops)], len(one.layers)) for one in run.seen.layers]
        return [([run.ops[at] for at in first], layers) for first, layers in lists]

    return find


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (heads, ["linear"]),
        (members, ["linear", "linear", "relu"]),
        (deep, ["linear", "linear", "relu", "relu"]),
        (summed, ["linear", "add"]),
        (into_slices, ["copy_", "linear"]),
        (filters, ["conv1d", "relu"]),
    ],
)
def test_layers_that_could_be_one_op(groups: Any, step: Step, expected: list[str]) -> None:
    ((names, layers),) = groups(step)
    assert layers == 5
    assert sorted(names) == sorted(expected)


@pytest.mark.parametrize("step", [in_a_row, with_shortcuts, of_shapes, shared, over_time, apart, routed])
def test_layers_that_could_not(groups: Any, step: Step) -> None:
    assert groups(step) == []


def test_another_pass_of_the_same_layers_is_another_group(groups: Any) -> None:
    assert [layers for _, layers in groups(lambda x: heads(x) + heads(x))] == [5, 5]


def test_parts_of_a_tensor_are_told_from_one_input(tmp_path: Path) -> None:
    (parts,) = observed(tmp_path, lambda: into_slices(INPUT).sum().backward()).seen.layers
    (whole,) = observed(tmp_path, lambda: heads(INPUT).sum().backward()).seen.layers
    assert (parts.same_input, whole.same_input) == (False, True)
