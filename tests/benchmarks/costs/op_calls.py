"""What cheaper equivalents take, in calls of an elementwise op: the ranges `op_calls.*` of `advisor/constants.toml`.

    python tests/benchmarks/costs/op_calls.py --rounds 50

Everything on a few numbers and on one thread, in CPU time. A round times an addition and each replacement twice: in a
loop, and after other work on 4 MB. Printed are the least 10th and the highest 90th percentile of the ratios, over the
spellings and both, and the table's range.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 - as people write it

from advisor.constants import constant

Work = Callable[[], object]
_LOOP, _COLD = 40, 9
# What other work leaves of the caches, as calibration has it.
_OTHER = torch.ones(1 << 20)


def trained(forward: Callable[..., torch.Tensor], *of: torch.Tensor) -> Work:
    """A forward and its backward pass to these tensors."""
    gradient = torch.ones_like(forward(*of))
    return lambda: torch.autograd.grad(forward(*of), [one for one in of if one.requires_grad], gradient)


def replacements() -> dict[str, list[tuple[Work, Work | None]]]:
    """Name in the table -> its spellings, each with what is there in any case."""
    x, y = (torch.randn(8, 4, requires_grad=True) for _ in range(2))
    weight, bias = torch.randn(4, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    plain_x, plain_y, table, queue = x.detach(), y.detach(), torch.randn(10, 4), torch.randn(64, 4)
    labels, index, scores = torch.randint(0, 5, (8,)), torch.randint(0, 10, (8,)), torch.randn(8, 5, requires_grad=True)
    compared: list[Callable[..., torch.Tensor]] = [
        lambda a, b: a @ b.T,
        torch.cdist,
        lambda a, b: torch.cdist(a, b).pow(2),
        lambda a, b: torch.cdist(a, b, p=1),
        lambda a, b: F.normalize(a, dim=1) @ F.normalize(b, dim=1).T,
    ]
    frozen = (plain_x, weight.detach(), bias.detach())
    rest, softmax = trained(F.relu, x), trained(lambda given: F.log_softmax(given, 1), scores)

    def write() -> None:
        queue[8:12] = table[:4]

    def layer(*of: torch.Tensor) -> torch.Tensor:
        return F.relu(F.linear(*of))

    return {
        "single": [(lambda: F.embedding(index, table), None), (write, None), (lambda: F.linear(*frozen), None)],
        "sort": [(lambda: queue.argsort(0), None)],
        "layer_trained": [(trained(layer, plain_x, weight, bias), rest), (trained(layer, x, weight, bias), rest)],
        "pairs": [((lambda one=one: one(plain_x, plain_y)), None) for one in compared],
        "pairs_trained": [(trained(one, x, y), None) for one in compared],
        "smoothed_loss": [
            (trained(lambda given: F.cross_entropy(given, labels, label_smoothing=0.1), scores), softmax)
        ],
        "plain_loss": [(trained(lambda given: F.cross_entropy(given, labels), scores), softmax)],
    }


def in_a_loop_us(work: Work) -> float:
    began = time.thread_time()
    for _ in range(_LOOP):
        work()
    return (time.thread_time() - began) / _LOOP * 1e6


def after_other_work_us(work: Work) -> float:
    def once() -> float:
        _OTHER.add_(1)
        began = time.thread_time()
        work()
        return (time.thread_time() - began) * 1e6

    return statistics.median(once() for _ in range(_COLD))


def measured(rounds: int) -> dict[str, tuple[float, float]]:
    """Name in the table -> (least, most) op calls."""
    left, right, square = torch.ones(16), torch.ones(16), torch.ones(8, 8)
    # Ten ops, as of `op_call_cold_us`: after other work the first of them finds nothing in caches.
    small: list[Work] = [lambda: torch.add(left, right), lambda: torch.mm(square, square), lambda: torch.cat([left])]
    for op in (torch.exp, torch.sum, torch.relu, torch.sqrt, torch.neg, torch.abs, torch.sin):
        small.append(lambda op=op: op(left))
    found = replacements()
    ratios: dict[str, dict[tuple[int, int], list[float]]] = {name: {} for name in found}
    for number in range(rounds + 1):
        units = in_a_loop_us(small[0]), after_other_work_us(lambda: [op() for op in small]) / len(small)
        for name, spellings in found.items():
            for at, (work, rest) in enumerate(spellings):
                for way, timed in enumerate((in_a_loop_us, after_other_work_us)):
                    ratio = (timed(work) - (timed(rest) if rest else 0.0)) / units[way]
                    if number:  # the first round warms up
                        ratios[name].setdefault((at, way), []).append(ratio)
    tenths = {name: [statistics.quantiles(one, n=10) for one in known.values()] for name, known in ratios.items()}
    return {name: (min(one[0] for one in all_), max(one[-1] for one in all_)) for name, all_ in tenths.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {rounds} rounds")
    for name, (low, high) in measured(rounds).items():
        table = constant(f"op_calls.{name}")
        print(f"{name:16}{low:6.1f} … {high:<8.1f}table {table.low:.1f} … {table.high:.1f}")


if __name__ == "__main__":
    main()
