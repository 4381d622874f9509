"""Norms written out in elementwise ops beside those of torch, with the backward pass: shares of time that are left.

    python tests/benchmarks/costs/handwritten_norms.py

Of each size the ways are timed in turns, and the medians divided. The last lines are the least and the most of each
kind.
"""

from __future__ import annotations

import torch
from both_passes import Way, medians_us
from torch.nn import functional

Tensor = torch.Tensor
_REPEATS = 9


def _by_hand(x: Tensor, dims: tuple[int, ...], weight: Tensor, bias: Tensor) -> Tensor:
    mean, var = x.mean(dims, keepdim=True), x.var(dims, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias


def _by_std(x: Tensor, dims: tuple[int, ...], weight: Tensor, bias: Tensor) -> Tensor:
    mean, std = x.mean(dims, keepdim=True), x.std(dims, keepdim=True)
    return weight * (x - mean) / (std + 1e-6) + bias


def _by_squares(x: Tensor, dims: tuple[int, ...], weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(dims, keepdim=True)
    var = ((x - mean) ** 2).mean(dims, keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5) * weight + bias


def left(shape: tuple[int, ...], dims: tuple[int, ...]) -> list[float]:
    """Shares of each written form's time that torch's own takes."""
    x = torch.randn(shape, requires_grad=True)
    layer = dims == (-1,)
    size = shape[-1] if layer else shape[1]
    weight, bias = (torch.randn(size, requires_grad=True) for _ in range(2))
    wide = (lambda one: one) if layer else (lambda one: one.view(1, -1, 1, 1))
    forms: list[Way] = [
        lambda x, form=form: form(x, dims, wide(weight), wide(bias)) for form in (_by_hand, _by_std, _by_squares)
    ]
    if layer:
        forms.append(lambda x: functional.layer_norm(x, (size,), weight, bias))
    else:
        forms.append(lambda x: functional.batch_norm(x, None, None, weight, bias, training=True))
    medians = medians_us(forms, x, _REPEATS)
    return [medians[-1] / us for us in medians[:-1]]


def main() -> None:
    rows = [(n, d) for n in (256, 2048, 16384) for d in (64, 256, 768) if n * d <= 8_000_000]
    maps = [(n, c, s, s) for n, c, s in ((16, 16, 16), (16, 32, 32), (32, 16, 48), (32, 64, 24), (64, 128, 8))]
    for name, shapes, dims in (("layer", rows, (-1,)), ("batch", maps, (0, 2, 3))):
        found = []
        for shape in shapes:
            shares = left(shape, dims)
            print(f"{name} {shape}: {' '.join(f'{one:.2f}' for one in shares)}", flush=True)
            found += shares
        print(f"{name}: {min(found):.2f} to {max(found):.2f} (n = {len(found)})")


if __name__ == "__main__":
    main()
