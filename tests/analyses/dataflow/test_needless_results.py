"""What two observed steps say of results that are not needed: torch's own observer on real steps."""

# ruff: noqa: PLW0108 - what a lambda holds runs under the observer, and not before it
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

Step = Callable[[], Any]
MODEL, TABLE = nn.Linear(16, 16), nn.Embedding(40, 8)
INPUTS, TARGETS = torch.randn(24, 16), torch.randn(24, 16)
KEPT: list[Any] = []


def loss() -> tuple[Any, Any]:
    outputs = MODEL(INPUTS)
    functional.mse_loss(outputs, TARGETS).backward()
    return outputs, TARGETS


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Step], Any]:
    """Observes a step: the names of its ops, and what is known of them."""

    def run(step: Step) -> Any:
        KEPT.clear()
        return observed(tmp_path, step)

    return run


def leaving(found: Any) -> list[str]:
    return [found.ops[at] for at in found.seen.leaving]


def error() -> Any:
    outputs, targets = loss()
    return (outputs.detach().clamp(0, 1) - targets).abs().mean()


def test_a_number_that_is_printed_does_not_leave(watch: Any) -> None:
    found = watch(lambda: error().item())
    assert not {"clamp", "sub", "abs", "mean"} & set(leaving(found))


def test_an_array_leaves(watch: Any) -> None:
    """As for SciPy's assignment, whose result may come back."""

    def step() -> None:
        outputs, targets = loss()
        KEPT.append(torch.cdist(outputs.detach(), targets).numpy())

    assert any("cdist" in name for name in leaving(watch(step)))


def test_a_view_of_it_leaves_too(watch: Any) -> None:
    def step() -> None:
        outputs, targets = loss()
        KEPT.append((outputs.detach() * targets).view(4, 6, 16).split(2)[0].tolist())

    assert "mul" in leaving(watch(step))


def test_what_is_written_to_a_buffer_that_was_there_leaves(watch: Any) -> None:
    total = torch.zeros(16)

    def step() -> None:
        outputs, _ = loss()
        total.add_(outputs.detach().sum(0))

    assert "add_" in leaving(watch(step))


def test_a_buffer_of_the_step_itself_does_not_leave(watch: Any) -> None:
    def step() -> float:
        outputs, _ = loss()
        counts = torch.zeros(16)
        counts.add_(outputs.detach().sum(0))
        return float(counts.max())

    found = watch(step)
    mine = max(at for at, name in enumerate(found.ops) if name == "add_")
    assert mine not in found.seen.leaving
    assert "sum" not in leaving(found)


def test_what_python_decides_by_leaves(watch: Any) -> None:
    def step() -> None:
        outputs, _ = loss()
        if outputs.detach().isnan().any():
            raise ValueError

    assert "is_nonzero" in leaving(watch(step))


def test_a_running_mean_is_read_by_the_next_step(watch: Any) -> None:
    running = [torch.zeros(())]

    def step() -> None:
        running[0] = 0.9 * running[0] + error()

    found = watch(step)
    # A number of the script may lie where a result was, and is taken for it: that only makes more ops needed.
    assert ("add", "mul") in [(found.ops[a], found.ops[b]) for a, b in found.seen.onward]


def test_a_queue_is_read_by_the_next_step_after_a_look_at_it(watch: Any) -> None:
    queue, noise = [torch.randn(4, 64)], iter([0, 0, 1, 0, 0])

    def step() -> None:
        if next(noise):  # a step that runs other ops, too
            INPUTS.sin()
        negative = MODEL(INPUTS).mean() * queue[0].T.cos()
        negative.sum().backward()
        queue[0] = torch.cat([torch.ones(4, 2), queue[0]], 1)[:, :64]

    found = watch(step)
    assert ("cat", "cat") in [(found.ops[a], found.ops[b]) for a, b in found.seen.onward]


def test_the_diagonal_of_all_pairs(watch: Any) -> None:
    def step() -> None:
        outputs = MODEL(INPUTS)
        pairs = (outputs[:, None] - TARGETS).pow(2).sum(-1).sqrt()
        pairs.diag().mean().backward()

    found = watch(step)
    named = [(found.ops[op], found.ops[reader], of) for op, reader, of in found.seen.diagonals]
    assert named == [(name, "diag", 24) for name in ("sub", "pow", "sum", "sqrt")]


@pytest.mark.parametrize("also", ["a row", "all"])
def test_pairs_that_something_else_reads(watch: Any, also: str) -> None:
    def step() -> None:
        pairs = MODEL(INPUTS) @ TARGETS.T
        more = pairs[0].sum() if also == "a row" else pairs.logsumexp(0).sum()
        (pairs.diag().sum() + more).backward()

    assert watch(step).seen.diagonals == []


def test_a_softmax_mixes_pairs(watch: Any) -> None:
    def step() -> None:
        (MODEL(INPUTS) @ TARGETS.T).log_softmax(-1).diag().mean().backward()

    assert watch(step).seen.diagonals == []


@pytest.mark.parametrize(
    ("penalty", "chain"),
    [
        (lambda: 0.1 * TABLE.weight.square().sum(), ("square", "sum")),
        (lambda: (0.1 * TABLE.weight**2).sum(), ("pow", "mul", "sum")),
        (lambda: (TABLE.weight * TABLE.weight).mean(), ("mul", "mean")),
        (lambda: 0.1 * TABLE.weight.norm() ** 2, ("norm", "pow")),
    ],
)
def test_penalties_of_whole_parameters(watch: Any, penalty: Step, chain: tuple[str, ...]) -> None:
    found = watch(lambda: (functional.mse_loss(MODEL(INPUTS), TARGETS) + penalty()).backward())
    [ops] = found.seen.penalties
    assert tuple(found.ops[op].replace("linalg_vector_", "") for op in ops) == chain


@pytest.mark.parametrize(
    "penalty",
    [
        lambda: TABLE.weight.norm(),  # its gradient is not that of a decay
        lambda: TABLE.weight.abs().sum(),
        lambda: (TABLE.weight - TABLE.weight.detach().roll(1)).square().sum(),
        lambda: TABLE.weight[:4].square().sum(),
        lambda: MODEL(INPUTS).square().sum(),
    ],
)
def test_other_penalties(watch: Any, penalty: Step) -> None:
    found = watch(lambda: (functional.mse_loss(MODEL(INPUTS), TARGETS) + penalty()).backward())
    assert found.seen.penalties == []
