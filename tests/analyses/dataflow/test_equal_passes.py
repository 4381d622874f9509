"""Which passes through one network could be one: torch's own observer on real models."""

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


class Attention(nn.Module):
    """A block on [batch, tokens, width], its heads as dimensions of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.three, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        q, k, v = (one.reshape(6, 5, 2, 4).transpose(1, 2) for one in self.three(self.norm(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(6, 5, 8))


NET = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
OTHER = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
NORMED = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
DROPPED = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
SHARP = nn.Sequential(nn.Linear(8, 8), nn.Softmax(0), nn.Linear(8, 8))
PICTURES = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8))
POOLED = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16, 8))
BLOCK, TABLE, ONE = Attention(), nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 8)), nn.Linear(8, 8)


def batch(*shape: int) -> Any:
    return torch.randn(shape or (6, 8))


def distance(a: Any, b: Any) -> Any:
    return (a - b).square().mean()


def pair(net: Any, *shape: int) -> Any:
    return distance(net(batch(*shape)), net(batch(*shape)))


def triplet() -> Any:
    anchor, near, far = (functional.normalize(NET(batch()), dim=1) for _ in range(3))
    return distance(anchor, near) - distance(anchor, far)


def real_and_made() -> Any:
    """A discriminator on two batches; the generator runs between."""
    real = NET(batch()).mean()
    return NET(OTHER(batch()).detach()).mean() - real


def words() -> Any:
    return distance(TABLE(torch.randint(9, (6, 5))), TABLE(torch.randint(9, (6, 5))))


def through_both() -> Any:
    """Each batch through two networks."""
    return distance(OTHER(NET(batch())), OTHER(NET(batch())))


def one_after_the_other() -> Any:
    return NET(NET(batch())).mean()


def by_action() -> Any:
    """What an environment makes of an action is the next input."""
    values = NET(batch())
    state = torch.from_numpy(values.argmax(1).numpy()).float()[:, None].expand(6, 8) * batch()
    return distance(values, NET(state))


def by_number() -> Any:
    first = NET(batch())
    return distance(first, NET(batch() * float(first.detach().mean())))


def written_in_turn() -> Any:
    """What each robot sees goes into its part of one tensor."""
    seen = torch.zeros(6, 3, 8)
    views = batch(6, 3, 3, 6, 6)
    for robot in range(3):
        seen[:, robot] = POOLED(views[:, robot])
    return seen.square().mean()


def written_and_read_back() -> Any:
    seen = torch.zeros(6, 3, 8)
    for robot in range(1, 3):
        seen[:, robot] = NET(seen[:, robot - 1] + batch())
    return seen.square().mean()


def of_sizes() -> Any:
    return NET(batch()).mean() + NET(batch(4, 8)).mean()


def accumulated() -> Any:
    NET(batch()).mean().backward()
    return NET(batch()).mean()


def the_same() -> Any:
    x = batch()
    return distance(NET(x), NET(x))


@pytest.fixture
def passes(tmp_path: Path) -> Callable[[Step], list[tuple[int, int]]]:
    """How many passes each group has, and of how many ops."""

    def find(step: Step) -> list[tuple[int, int]]:
        run = observed(tmp_path, lambda: step().backward())
        return [(len(one.starts), one.ops) for one in run.seen.passes]

    return find


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(lambda: pair(NET), (2, 3), id="a pair"),
        pytest.param(triplet, (3, 7), id="a triplet"),
        pytest.param(real_and_made, (2, 3), id="real and made"),
        pytest.param(words, (2, 2), id="words"),
        pytest.param(through_both, (2, 6), id="two networks"),
        pytest.param(lambda: pair(PICTURES, 6, 3, 6, 6), (2, 5), id="pictures"),
        pytest.param(lambda: pair(POOLED, 6, 3, 6, 6), (2, 5), id="pooled pictures"),
        (written_in_turn, (3, 5)),
    ],
)
def test_passes_that_could_be_one(passes: Any, step: Step, expected: tuple[int, int]) -> None:
    assert passes(step) == [expected]


def test_attention_keeps_its_samples_apart(passes: Any) -> None:
    ((number, ops),) = passes(lambda: pair(BLOCK, 6, 5, 8))
    assert number == 2
    assert ops > 8  # all but the norm before the first layer


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda: pair(NORMED), id="batch norm"),
        pytest.param(lambda: pair(DROPPED), id="dropout"),
        pytest.param(lambda: pair(SHARP), id="a softmax over samples"),
        pytest.param(lambda: pair(ONE), id="a single layer"),
        pytest.param(lambda: distance(NET(batch()), OTHER(batch())), id="two networks, one batch each"),
        one_after_the_other,
        written_and_read_back,
        by_action,
        by_number,
        of_sizes,
        accumulated,
        the_same,
    ],
)
def test_passes_that_could_not(passes: Any, step: Step) -> None:
    assert passes(step) == []
