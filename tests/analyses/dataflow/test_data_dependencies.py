"""What an observed step says of ops that wait for each other: torch's own observer on real loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

Step = Callable[[], Any]
CELL, INTO, WEIGHT = nn.Linear(8, 8), nn.Linear(8, 8), torch.randn(8)
TIMES = torch.randn(6, 4, 8)


def alone(x: Any) -> Any:
    return [torch.sigmoid(one) for one in x]


def recurrent(x: Any) -> Any:
    state = torch.zeros(4, 8)
    for now in x:
        state = torch.tanh(INTO(now) + CELL(state))
    return state


def summed(x: Any) -> Any:
    total = torch.zeros(4)
    for one in x:
        total = total + torch.sigmoid(one).sum(1)
    return total


def into_rows(x: Any) -> Any:
    table = torch.empty(6, 4, 8)
    for number, one in enumerate(x):
        table[number] = torch.sigmoid(one)
        torch.tanh(table[number])
    return table


def by_columns(x: Any) -> Any:
    table = torch.ones(4, 6)
    for number in range(5):
        table[:, number + 1] = torch.sigmoid(table[:, number])
    return table


@pytest.fixture
def chain(tmp_path: Path) -> Callable[[Step, str], int]:
    """How many ops of a name wait for each other in a row, in a step that calls a function on the rows of TIMES."""

    def longest(step: Step, name: str) -> int:
        run = observed(tmp_path, lambda: step(TIMES))
        waits, ops = run.seen.waits, run.ops
        assert len(waits) == len(ops)
        length: list[int] = []
        for at, backs in enumerate(waits):
            before = max((length[at - back] for back in backs), default=0)
            length.append(before + (ops[at] == name))
        return max(length)

    return longest


@pytest.mark.parametrize(
    ("step", "name", "expected"),
    [
        (alone, "sigmoid", 1),
        (recurrent, "tanh", 6),
        (summed, "sigmoid", 1),
        (summed, "add", 6),
        (into_rows, "tanh", 1),  # a row that was filled does not wait for the other rows
        (by_columns, "sigmoid", 5),
    ],
)
def test_ops_wait_for_what_wrote_what_they_read(chain: Any, step: Step, name: str, expected: int) -> None:
    assert chain(step, name) == expected


def test_the_backward_pass_waits_for_the_forward_pass(chain: Any) -> None:
    def step(x: Any) -> None:
        CELL(torch.tanh(CELL(x))).sum().backward()

    assert chain(step, "tanh_backward") == 1
    assert chain(step, "linear") == 2


def test_numbers_of_the_script_are_nothing_that_an_op_made(chain: Any) -> None:
    """They are tensors at addresses that were another's a moment ago."""

    def step(x: Any) -> None:
        for one in x:
            (one.sum() * 0.5).item() * 2.0 + (one.mean() * 3.0)

    assert chain(step, "mul") == 1


def test_tensors_without_a_storage_cannot_be_told_apart(tmp_path: Path) -> None:
    run = observed(tmp_path, lambda: torch.func.grad(lambda x: torch.tanh(x).sum())(TIMES[0]))
    assert run.seen.waits[run.ops.index("tanh")] == [0]


def test_what_is_written_over_does_not_wait_for_what_was_there(chain: Any) -> None:
    def step(x: Any) -> None:
        buffer = torch.empty(4, 8)
        for one in x:
            buffer.copy_(one)
            buffer.sigmoid_()

    # Each copy writes over all of it; were the old numbers read, all six would wait for each other.
    assert chain(step, "sigmoid_") == 1
