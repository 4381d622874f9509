"""What two observed steps say of products that each rank computes alike: torch's own observer on real collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.distributed.nn.functional import all_gather  # noqa: E402
from torch.nn import functional  # noqa: E402

LEFT, RIGHT = nn.Linear(6, 8), nn.Linear(5, 8)
SCALE = nn.Parameter(torch.tensor(2.0))


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone: what an all-gather returns is no less gathered."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def both() -> tuple[Any, Any]:
    return LEFT(torch.randn(4, 6)), RIGHT(torch.randn(4, 5))


def gathered(x: Any) -> Any:
    return torch.cat(all_gather(x))


def gathered_without_gradient(x: Any) -> Any:
    found = [torch.empty_like(x)]
    distributed.all_gather(found, x.detach())
    return torch.cat(found)


@pytest.fixture
def watch(alone: None, tmp_path: Path) -> Callable[[Callable[[Any, Any], Any]], list[str]]:
    """Observes a step: the ops whose results are the same on each rank."""

    def run(scores: Callable[[Any, Any], Any]) -> list[str]:
        def step() -> None:
            left, right = both()
            loss = functional.cross_entropy(scores(left, right), torch.arange(4))
            (loss + 0.1 * left.mean()).backward()

        found = observed(tmp_path, step)
        return [found.ops[at] for at in found.seen.same]

    return run


def test_all_with_all(watch: Any) -> None:
    found = watch(lambda left, right: SCALE.exp() * gathered(left) @ gathered(right).t())
    assert found == ["matmul", "cross_entropy_loss"]


def test_gathered_without_a_gradient(watch: Any) -> None:
    assert "matmul" in watch(lambda left, right: gathered_without_gradient(left) @ gathered_without_gradient(right).t())


def test_the_own_rows_with_all(watch: Any) -> None:
    assert watch(lambda left, right: SCALE.exp() * left @ gathered(right).t()) == []


def test_gathered_weights(watch: Any) -> None:
    def scores(left: Any, right: Any) -> Any:
        weight = gathered_without_gradient(LEFT.weight)
        return left @ right.t() + (weight @ weight.t()).mean()

    assert watch(scores) == []


def test_an_einsum_of_both(watch: Any) -> None:
    found = watch(lambda left, right: torch.einsum("ad,bd->ab", gathered(left), gathered(right)))
    assert "einsum" in found
    assert "einsum" not in watch(lambda left, right: torch.einsum("ad,bd->ab", left, gathered(right)))
