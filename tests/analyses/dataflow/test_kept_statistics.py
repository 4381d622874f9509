"""What two observed steps say of statistics that are only kept: torch's own observer on real steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

MODEL = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 3))
X = torch.randn(16, 64)
KEPT: deque[Any] = deque(maxlen=3)
BUFFER = torch.zeros(4, 32)
AVERAGE = [torch.zeros(32)]


def counted(of: Any) -> Any:
    low, high = of.min().item(), of.max().item()
    return torch.histc(of, 32, low, high)


def histograms(parameters: list[Any]) -> None:
    KEPT.append([counted(p.detach().flatten()) for p in parameters] + [counted(p.grad) for p in parameters])


def norms(parameters: list[Any]) -> None:
    KEPT.append(torch.stack([p.grad.norm() for p in parameters]))


def numbers(parameters: list[Any]) -> None:
    """A script may clip, or stop, by these."""
    KEPT.append(sum(p.grad.norm().item() ** 2 for p in parameters))


def clipped(parameters: list[Any]) -> None:
    """The norms are kept, and the gradients are clipped by them."""
    every = torch.stack([p.grad.norm() for p in parameters])
    KEPT.append(every)
    for p in parameters:
        p.grad.mul_((1 / every.norm()).clamp(max=1.0))


def copied(parameters: list[Any]) -> None:
    KEPT.append([p.detach().clone() for p in parameters])


def written(parameters: list[Any]) -> None:
    BUFFER[0] = counted(parameters[0].grad)


def averaged(parameters: list[Any]) -> None:
    """What the next step reads."""
    AVERAGE[0] = 0.9 * AVERAGE[0] + counted(parameters[0].grad)


def of_outputs(parameters: list[Any]) -> None:
    KEPT.append(torch.histc(MODEL(X).detach(), 2))


def ratios(parameters: list[Any]) -> None:
    KEPT.append([((0.01 * p.grad).std() / p.std()).log10().item() for p in parameters])


def found(folder: Path, watch: Callable[[list[Any]], None], *, updated: bool = False) -> list[str]:
    """Names of the ops of a step that watches its weights so, before it updates them or after."""
    parameters = list(MODEL.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        MODEL(X).square().mean().backward()
        if updated:
            optimizer.step()
        with torch.no_grad():
            watch(parameters)
        if not updated:
            optimizer.step()

    run = observed(folder, step)
    return [run.ops[at] for at in run.seen.statistics]


def test_histograms_with_what_they_read(tmp_path: Path) -> None:
    names = found(tmp_path, histograms)
    assert names.count("histc") == 8
    assert {"min", "max", "item", "flatten"} < set(names) <= {"min", "max", "item", "flatten", "detach", "histc"}


def test_norms_of_all_layers_in_a_tensor(tmp_path: Path) -> None:
    assert found(tmp_path, norms) == ["linalg_vector_norm"] * 4 + ["stack"]


def test_numbers_of_each_weight_after_the_update(tmp_path: Path) -> None:
    """Nothing of this step can change by them; before the update, gradients may be clipped."""
    assert found(tmp_path, ratios, updated=True) == ["mul", "std", "std", "div", "log10", "item"] * 4
    assert not found(tmp_path, ratios)


def test_histograms_in_hooks_of_parameters(tmp_path: Path) -> None:
    hooks = [p.register_hook(lambda grad: KEPT.append(counted(grad))) for p in MODEL.parameters()]
    try:
        names = found(tmp_path, lambda _: None)
    finally:
        for hook in hooks:
            hook.remove()
    assert names.count("histc") == 4
    assert {"min", "max", "item"} < set(names) <= {"min", "max", "item", "histc", "detach"}


@pytest.mark.parametrize("watch", [numbers, clipped, copied, written, averaged, of_outputs])
def test_what_may_return(watch: Callable[[list[Any]], None], tmp_path: Path) -> None:
    assert not found(tmp_path, watch)
