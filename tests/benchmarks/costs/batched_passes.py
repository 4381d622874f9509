"""What a backward pass batched for one row takes on small tensors, over the plain one.

    python tests/benchmarks/costs/batched_passes.py      two minutes; one thread, in its CPU time

Five networks whose tensors hold so few numbers that calls are all of the time; their outputs, and their derivatives by
the input; differentiated by the input and by the weights; alone, and with the pass through what they record. For each
the median of `ROUNDS` runs of both, in turns. `calls.batched_pass` of `advisor/constants.toml` is the 10th and the 90th
percentile of batched / plain.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

ROUNDS, WARM, CALLS = 60, 10, 3
COLUMNS = 3


class Attention(nn.Module):
    """One head, averaged over its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.out = nn.Linear(8, 24), nn.Linear(8, COLUMNS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, 8] to [batch, COLUMNS]."""
        q, k, v = self.given(x).chunk(3, -1)
        return self.out((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1)


class Distances(nn.Module):
    """A network of the distances between points."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, COLUMNS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, points, 3] to [batch, COLUMNS]."""
        distance = ((x[:, :, None] - x[:, None]) ** 2).sum(-1).add(1e-3).sqrt()
        return self.net(torch.exp(-distance[:, 0]))


def networks() -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    """(name, network, input)."""
    tanh = (nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, COLUMNS))
    silu = (nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Softplus(), nn.Linear(8, COLUMNS))
    conv = (nn.Conv1d(2, 4, 3), nn.Sigmoid(), nn.Conv1d(4, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(16, COLUMNS))
    yield "tanh", nn.Sequential(*tanh), torch.randn(4, 4)
    yield "silu", nn.Sequential(*silu), torch.randn(4, 4)
    yield "conv", nn.Sequential(*conv), torch.randn(4, 2, 8)
    yield "attention", Attention(), torch.randn(4, 5, 8)
    yield "distances", Distances(), torch.randn(4, 5, 3)


def ratio(network: nn.Module, x: torch.Tensor, order: int, by: str, recorded: bool) -> float:
    """Time of the batched pass over that of the plain one."""
    weights, x = list(network.parameters()), x.detach().requires_grad_()
    to = [x] if by == "input" else weights
    y = network(x)
    if order > 1:
        y = torch.autograd.grad(y.square().sum(), x, create_graph=True)[0].flatten(1)[:, :COLUMNS]
    seed = torch.zeros(1, *y.shape)
    seed[..., 0] = 1
    kept = {"retain_graph": True, "create_graph": recorded, "allow_unused": True}

    def finish(gradients: Sequence[torch.Tensor | None]) -> None:
        if recorded:
            total = torch.stack([one.square().sum() for one in gradients if one is not None]).sum()
            total.backward(retain_graph=True, inputs=weights)

    def plain() -> None:
        finish(torch.autograd.grad(y[:, 0].sum(), to, **kept))

    def batched() -> None:
        finish(torch.autograd.grad(y, to, seed, is_grads_batched=True, **kept))

    took = medians(plain, batched)
    return took[1] / took[0]


def medians(*runs: Callable[[], None]) -> list[float]:
    """The median CPU time of each, all in turns."""
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for one, run in zip(took, runs, strict=True):
            start = time.process_time()
            for _ in range(CALLS):
                run()
            one.append(time.process_time() - start)
    return [statistics.median(one[WARM:]) for one in took]


def main() -> None:
    """Print each ratio, then the range."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = []
    for name, network, x in networks():
        for order, by, recorded in itertools.product((1, 2), ("input", "weights"), (False, True)):
            found.append(ratio(network, x, order, by, recorded))
            print(f"{name:10} order {order}  by {by:8} recorded {recorded!s:6} {found[-1]:.2f}", flush=True)
    tenths = statistics.quantiles(found, n=10, method="inclusive")
    print(f"batched / plain: {tenths[0]:.2f} to {tenths[-1]:.2f}, n = {len(found)}")


if __name__ == "__main__":
    main()
