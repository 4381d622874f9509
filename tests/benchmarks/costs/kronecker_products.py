"""A product with a Kronecker product beside two with its factors, with the backward pass.

    python tests/benchmarks/costs/kronecker_products.py

Of each size both ways are timed in turns, and the medians divided: what the factors take as a share of the product with
the large matrix, and how many times that is their share of its multiplications.
"""

from __future__ import annotations

import torch
from both_passes import medians_us
from torch.nn import functional

_SIZES = (
    ((8, 8), (8, 8)),
    ((16, 16), (16, 16)),
    ((24, 16), (32, 16)),
    ((32, 32), (32, 32)),
    ((8, 32), (8, 32)),
    ((48, 24), (32, 40)),
)
_SAMPLES = (32, 256, 1024)
_REPEATS = 9


def left(left_size: tuple[int, int], right_size: tuple[int, int], samples: int) -> tuple[float, float]:
    """(share of the time that is left with the factors, share of the multiplications)."""
    first, second = (torch.randn(size, requires_grad=True) for size in (left_size, right_size))
    large = torch.kron(first, second).detach().requires_grad_()
    x = torch.randn(samples, left_size[1] * right_size[1], requires_grad=True)
    ways = [
        lambda x: functional.linear(x, large),
        lambda x: (first @ (x.unflatten(-1, (left_size[1], right_size[1])) @ second.mT)).flatten(-2),
    ]
    whole_us, factors_us = medians_us(ways, x, _REPEATS)
    return factors_us / whole_us, 1 / left_size[0] + 1 / right_size[1]


def main() -> None:
    """Prints a line for each size, and the least and the most of all."""
    torch.set_num_threads(1)
    found = []
    for first, second in _SIZES:
        for samples in _SAMPLES:
            time, work = left(first, second, samples)
            print(
                f"{first} {second} {samples:5}: {time:.2f} of the time, {time / work:.1f} times the share", flush=True
            )
            found.append(time / work)
    print(f"{min(found):.2f} to {max(found):.2f} times")


if __name__ == "__main__":
    main()
