"""Numbers that a step makes of gradients alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from observed_runs import Run, observed  # noqa: E402
from torch.nn import functional  # noqa: E402

Tensor = torch.Tensor
MODEL = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
INPUTS, TARGETS = torch.randn(8, 16), torch.randn(8, 16)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


def run(folder: Path, of_slope: Callable[[Tensor, Tensor], Tensor]) -> Run:
    """Two steps whose loss has this of the gradient of the model's sum, and of its inputs."""

    def step() -> None:
        inputs = INPUTS.clone().requires_grad_()
        slope = torch.autograd.grad(MODEL(inputs).sum(), inputs, create_graph=True)[0]
        (MODEL(INPUTS).mean() + of_slope(slope, inputs)).backward()
        OPTIMIZER.step()

    return observed(folder, step)


@pytest.mark.parametrize(
    ("of_slope", "chain", "centred"),
    [
        (lambda slope, _: slope.pow(2).flatten(1).sum(1).mean(), "pow flatten sum mean", False),
        (lambda slope, _: (slope.norm(dim=1) - 1).square().mean(), "norm sub square mean", True),
        (lambda slope, _: (slope.norm(dim=1) - MODEL[0].bias.mean()).square().mean(), "norm sub square mean", False),
        (
            lambda slope, _: functional.mse_loss(slope.norm(dim=1), torch.ones_like(slope[:, 0])),
            "norm broadcast_tensors mse_loss",
            True,
        ),
    ],
)
def test_penalties(of_slope: Callable[[Tensor, Tensor], Tensor], chain: str, centred: bool, tmp_path: Path) -> None:
    found = run(tmp_path, of_slope)
    [(ops, held)] = found.seen.slopes
    named = [found.ops[op].replace("linalg_vector_", "") for op in ops]
    assert named == chain.split()
    assert held == centred


@pytest.mark.parametrize(
    "of_slope",
    [
        lambda slope, _: functional.mse_loss(slope, TARGETS),  # forces
        lambda slope, inputs: (slope[:, 0] + inputs[:, 0] * slope[:, 1]).square().mean(),  # an equation
        lambda slope, inputs: MODEL(inputs - 0.1 * slope).mean(),  # an inner step
    ],
)
def test_what_the_model_is_for(of_slope: Callable[[Tensor, Tensor], Tensor], tmp_path: Path) -> None:
    assert run(tmp_path, of_slope).seen.slopes == []
