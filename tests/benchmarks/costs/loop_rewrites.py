"""What remains of a loop over tensors once it is written as ops over all elements: forward and backward pass.

    python tests/benchmarks/costs/loop_rewrites.py [masked]

Twelve loops that people write, each beside the same result without the loop (checked), by shape and number of threads;
medians of three times five runs, both forms in turns. Prints the share of the loop's time that the other form takes,
and the share of the loop that its ops take beyond a call on one number (a profile of two runs), which is what
`tensor-loop` can see of the work in it. With `masked`: the twelve of `masked_loops.py`. Measure on a machine that does
nothing else.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from masked_loops import MASKED  # isort: skip

# Turns of the loop, rows of a turn, numbers of a row.
SHAPES = list(itertools.product((16, 64), (8, 64), (16, 128)))
RUNS, TURNS = 5, 3
Form = Callable[[Tensor, Tensor], Tensor]


def squared(x: Tensor, y: Tensor) -> Tensor:
    """An error for each sample."""
    return torch.stack([((x[i] - y[i]) ** 2).mean() for i in range(len(x))]).mean()


def squared_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return ((x - y) ** 2).mean()


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """A similarity for each sample."""
    return sum(1 - functional.cosine_similarity(x[i], y[i], dim=-1).mean() for i in range(len(x)))


def cosine_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return (1 - functional.cosine_similarity(x, y, dim=-1)).mean(1).sum()


def normed(x: Tensor, y: Tensor) -> Tensor:
    """A layer for each time step: norm, product, activation."""
    weight = y[0, :1].expand(x.shape[-1], -1)
    return torch.stack([torch.relu(functional.layer_norm(x[i], x.shape[-1:]) @ weight) for i in range(len(x))]).sum()


def normed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return torch.relu(functional.layer_norm(x, x.shape[-1:]) @ y[0, :1].expand(x.shape[-1], -1)).sum()


def attended(x: Tensor, y: Tensor) -> Tensor:
    """Attention, head by head."""
    heads = [torch.softmax(x[i] @ y[i].T / x.shape[-1] ** 0.5, -1) @ y[i] for i in range(len(x))]
    return torch.stack(heads).sum()


def attended_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return (torch.softmax(x @ y.transpose(1, 2) / x.shape[-1] ** 0.5, -1) @ y).sum()


def crossed(x: Tensor, y: Tensor) -> Tensor:
    """A cross entropy for each time step."""
    return sum(functional.cross_entropy(x[i], y[i].argmax(-1)) for i in range(len(x))) / len(x)


def crossed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return functional.cross_entropy(x.flatten(0, 1), y.argmax(-1).flatten())


def mixed(x: Tensor, y: Tensor) -> Tensor:
    """The density of a mixture for each time step."""
    return sum(_mixture(x[i], y[i]).log_prob(y[i, :, 0]).sum() for i in range(len(x)))


def mixed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return _mixture(x, y).log_prob(y[..., 0]).sum()


def _mixture(x: Tensor, y: Tensor) -> MixtureSameFamily:
    return MixtureSameFamily(Categorical(logits=x), Normal(y, functional.softplus(x) + 0.1))


def triplets(x: Tensor, y: Tensor) -> Tensor:
    """A margin for each anchor."""
    return sum(
        torch.relu((x[i] - y[i]).norm(dim=-1) - (x[i] - y[i - 1]).norm(dim=-1) + 1).mean() for i in range(len(x))
    )


def triplets_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return torch.relu((x - y).norm(dim=-1) - (x - y.roll(1, 0)).norm(dim=-1) + 1).mean(1).sum()


def overlaps(x: Tensor, y: Tensor) -> Tensor:
    """Dice of each class."""
    p = torch.sigmoid(x)
    return sum(1 - 2 * (p[i] * y[i]).sum() / (p[i].sum() + y[i].sum() + 1) for i in range(len(x)))


def overlaps_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    p = torch.sigmoid(x)
    return (1 - 2 * (p * y).sum((1, 2)) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)).sum()


def differences(x: Tensor, y: Tensor) -> Tensor:
    """What changes from step to step."""
    return sum((x[i] - x[i - 1]).abs().mean() + (x[i] * y[i]).mean() for i in range(1, len(x)))


def differences_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return ((x[1:] - x[:-1]).abs().mean((1, 2)) + (x[1:] * y[1:]).mean((1, 2))).sum()


def standardized(x: Tensor, y: Tensor) -> Tensor:
    """Each sample by its own mean and deviation."""
    return sum(((x[i] - x[i].mean()) / (x[i].std() + 1e-6) * y[i]).sum() for i in range(len(x)))


def standardized_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    return ((x - x.mean((1, 2), keepdim=True)) / (x.std((1, 2), keepdim=True) + 1e-6) * y).sum()


def decayed(x: Tensor, y: Tensor) -> Tensor:
    """Weights by age."""
    return sum(0.99**i * functional.smooth_l1_loss(x[i], y[i]) for i in range(len(x)))


def decayed_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    weights = 0.99 ** torch.arange(len(x))
    return (weights * functional.smooth_l1_loss(x, y, reduction="none").mean((1, 2))).sum()


def kernels(x: Tensor, y: Tensor) -> Tensor:
    """Distances of each row to all others."""
    rows = x.flatten(0, 1)[: 2 * len(x)]
    return sum(torch.exp(-((rows - rows[i]) ** 2).sum(-1)).sum() for i in range(len(rows))) + 0 * y.sum()


def kernels_once(x: Tensor, y: Tensor) -> Tensor:
    """The same at once."""
    rows = x.flatten(0, 1)[: 2 * len(x)]
    return torch.exp(-((rows[:, None] - rows[None]) ** 2).sum(-1)).sum() + 0 * y.sum()


LOOPS: dict[str, tuple[Form, Form]] = {
    "squared": (squared, squared_once),
    "cosine": (cosine, cosine_once),
    "normed": (normed, normed_once),
    "attended": (attended, attended_once),
    "crossed": (crossed, crossed_once),
    "mixed": (mixed, mixed_once),
    "triplets": (triplets, triplets_once),
    "overlaps": (overlaps, overlaps_once),
    "differences": (differences, differences_once),
    "standardized": (standardized, standardized_once),
    "decayed": (decayed, decayed_once),
    "kernels": (kernels, kernels_once),
}


def median_s(call: Callable[[], None]) -> float:
    """Seconds of a call."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def self_us(call: Callable[[], None]) -> dict[str, tuple[int, float]]:
    """Calls and recorded own time of each op in two calls, µs."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
        call()
    return {event.key: (event.count, event.self_cpu_time_total) for event in recorded.key_averages()}


def beyond(x: Tensor, y: Tensor, loop: Form) -> float:
    """Share of the loop that its ops take beyond those of the same loop over two numbers."""
    few = [t.detach()[:, :1, :2].clone().requires_grad_() for t in (x, y)]
    full, least = (self_us(lambda: loop(*pair).backward()) for pair in ((x, y), few))  # noqa: B023
    more = sum(
        max(us - count * least[name][1] / least[name][0], 0.0) for name, (count, us) in full.items() if name in least
    )
    return more / sum(us for _, us in full.values())


def main() -> None:
    """The table."""
    table = MASKED if sys.argv[1:] == ["masked"] else LOOPS
    for threads, (name, forms), shape in itertools.product((1, 2), table.items(), SHAPES):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        x, y = (torch.rand(shape) for _ in range(2))
        y[:, 0, :2] = torch.tensor([0.9, 0.1])  # no turn without an element that is picked, and one that is not
        x, y = x.requires_grad_(), y.requires_grad_()
        assert torch.allclose(forms[0](x, y), forms[1](x, y), rtol=1e-3), name
        calls = [lambda form=form: form(x, y).backward() for form in forms]  # noqa: B023
        for call in calls:
            call()
        turns = [tuple(median_s(call) for call in calls) for _ in range(TURNS)]
        loop_s, once_s = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
        left, work = once_s / loop_s, beyond(x, y, forms[0])
        print(
            f"{threads} {name:14} {shape!s:14} {left:.2f} of {1e3 * loop_s:.2f} ms; beyond calls {work:.2f}", flush=True
        )


if __name__ == "__main__":
    main()
