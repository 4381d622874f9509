"""What two observed steps say of elements that are selected late: torch's own observer on real steps."""

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

CLASSES = 400
BODY, TABLE = nn.Linear(16, 12), nn.Parameter(torch.randn(CLASSES, 12))
Y = torch.randint(0, CLASSES, (8,))


def cosine() -> Any:
    return functional.normalize(BODY(torch.randn(8, 16))) @ functional.normalize(TABLE).t()


def one_hot(kind: str, like: Any) -> Any:
    if kind == "function":
        return functional.one_hot(Y, CLASSES).float()
    zeros = torch.zeros_like(like)
    return zeros.scatter_(1, Y[:, None], 1.0)


def margin(kind: str) -> Any:
    known = cosine()
    phi = known * 0.9 - (1 - known.pow(2)).clamp(1e-6, 1).sqrt() * 0.4
    own = one_hot(kind, known)
    return functional.cross_entropy(own * phi + (1 - own) * known, Y)


def angle(known: Any, added: Any) -> Any:
    return functional.cross_entropy(torch.cos((torch.acos(known.clamp(-0.99, 0.99)) + added).clamp(max=3.1)), Y)


def read_twice(scores: Any) -> Any:
    return scores.gather(1, Y[:, None]).mean() + scores.sum()


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Callable[[], Any]], list[tuple[str, int]]]:
    """Observes a step with this loss: the ops of whose results a few elements are read, and how many."""

    def run(loss: Callable[[], Any]) -> list[tuple[str, int]]:
        found = observed(tmp_path, lambda: loss().backward())
        return [(found.ops[op], read) for op, _, read, of in found.seen.picked if of == 8 * CLASSES]

    return run


def test_a_product_of_which_single_scores_are_gathered(watch: Any) -> None:
    found = watch(lambda: torch.tanh(cosine() / 2).gather(1, Y[:, None]).mean())
    assert found == [("matmul", 8), ("div", 8), ("tanh", 8)]


def test_two_selections_are_added_up(watch: Any) -> None:
    def loss() -> Any:
        scores = cosine().exp()
        return scores.gather(1, Y[:, None]).mean() - scores[torch.arange(8), Y.flip(0)].mean()

    assert watch(loss) == [("matmul", 16), ("exp", 16)]


@pytest.mark.parametrize("kind", ["function", "scatter"])
def test_a_product_with_one_hot_vectors(kind: str, watch: Any) -> None:
    """The scores themselves are read in full."""
    found = watch(lambda: margin(kind))
    assert [name for name, _ in found] == ["mul", "pow", "rsub", "clamp", "sqrt", "mul", "sub"]
    assert {read for _, read in found} == {8}


def test_an_angle_that_is_added_to_a_few(watch: Any) -> None:
    found = watch(lambda: angle(cosine(), 0.2 * functional.one_hot(Y, CLASSES)))
    assert [name for name, _ in found] == ["acos", "add", "clamp", "cos"]


@pytest.mark.parametrize(
    "loss",
    [
        lambda: functional.cross_entropy(cosine().exp(), Y),
        lambda: cosine().softmax(1).gather(1, Y[:, None]).mean(),
        lambda: read_twice(cosine().exp()),
        lambda: angle(cosine(), 0.2 * torch.ones(CLASSES)),
        lambda: sum(part.exp().sum() for part in cosine().exp().chunk(8, 1)),
    ],
    ids=["all", "softmax", "read in full, too", "angle added to all", "in parts"],
)
def test_what_is_read_in_full(loss: Any, watch: Any) -> None:
    assert [name for name, _ in watch(loss) if name != "softmax"] == []
