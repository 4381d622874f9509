"""How many times as long as its arithmetic, its memory and its call a matrix product takes, idle and beside other work.

    python tests/benchmarks/costs/product_times.py                 about ten seconds; one thread
    python tests/benchmarks/costs/product_times.py --beside 8      while so many other processes compute

For each form the median of `REPEATS` runs, over the larger of its arithmetic at the rate of a product of 512 x 512
matrices and its bytes at the rate of a copy of 64 MB, plus a product of 4 x 4 numbers. The largest ratio of an idle
machine bounds `calls.busy_times` of `advisor/constants.toml` from below; without the bytes thin products are beyond it.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable

import torch

REPEATS = 15
ROWS, INNER, COLUMNS = (1, 4, 32, 256, 2048), (2, 16, 128, 1024), (1, 4, 32, 256, 2048)


def median_s(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """Of so many runs, after two."""
    took = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took[2:])


def spin() -> None:
    """Computes until it is ended."""
    torch.set_num_threads(1)
    a = torch.randn(256, 256)
    while True:
        a @ a


def main() -> None:
    """Prints quantiles of both ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--beside", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    large, small, memory = torch.randn(512, 512), torch.randn(4, 4), torch.randn(1 << 24)
    flops_s = 2 * 512**3 / median_s(lambda: large @ large)
    bytes_s = 2 * 4 * memory.numel() / median_s(memory.clone)
    call_s = median_s(lambda: small @ small, 200)
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(args.beside)]
    for one in others:
        one.start()
    time.sleep(2 if others else 0)
    with_bytes, without = [], []
    for m, k, n in itertools.product(ROWS, INNER, COLUMNS):
        a, b = torch.randn(m, k), torch.randn(k, n)
        took_s = median_s(lambda a=a, b=b: a @ b)  # type: ignore[misc]
        work_s = 2 * m * k * n / flops_s
        moved_s = 4 * (m * k + k * n + m * n) / bytes_s
        with_bytes.append((took_s / (max(work_s, moved_s) + call_s), m, k, n))
        without.append((took_s / (work_s + call_s), m, k, n))
    print(f"{flops_s / 1e9:.0f} GFLOP/s, {bytes_s / 1e9:.1f} GB/s, {call_s * 1e6:.1f} µs a call, n = {len(without)}")
    for name, found in (("with bytes", with_bytes), ("without", without)):
        found.sort()
        ends = ", ".join(f"{found[round(share * (len(found) - 1))][0]:.2f}" for share in (0.5, 0.9, 0.99))
        print(f"{name}: {ends} (median, 90th, 99th percentile), largest {found[-1]}")


if __name__ == "__main__":
    main()
