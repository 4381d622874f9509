"""What a training step takes longer after work that streamed through memory and evicted its data from the caches.

    python tests/benchmarks/costs/evicted_bytes.py

Four linear layers and SGD with momentum on one thread: every other step comes after an op that reads and writes a
buffer of so many MB. Printed for each size of layers, batch and buffer: what the step uses again (weights, gradients,
momentum, activations), CPU time of the step, and what it takes longer after the buffer (medians). Then, of the largest
buffer: the bytes of code that small steps fetch again, at the rate of copying; and for each buffer, what the steps that
the last cache holds take longer, as a multiple of copying what is evicted (advisor/analyses/costs/evicted.py). Where
pages lie in memory differs from process to process: repeat it. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from advisor.calibration.on_host import copying
from advisor.constants import constant

WIDTHS, BATCHES, STREAMED_MB = (64, 128, 256, 512, 1024), (16, 256), (1, 4, 16, 64)
LAYERS, STEPS = 4, 30
CODE_MB = constant("memory.code_bytes").value / 1e6
LAST_MB = constant("machine.last_cache_mb").value


def training(width: int, batch: int) -> tuple[Callable[[], object], float]:
    """(a step, MB that it uses again): three copies of the weights, and each layer's results and their gradients."""
    model = nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.ReLU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    inputs = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    weights = sum(weight.numel() for weight in model.parameters())
    return step, 4e-6 * (3 * weights + 4 * LAYERS * batch * width)


def took_us(step: Callable[[], object]) -> float:
    """CPU time of a step."""
    began = time.thread_time()
    step()
    return (time.thread_time() - began) * 1e6


def more_us(step: Callable[[], object], streamed_mb: float) -> tuple[float, float]:
    """(CPU time of a step, by how much it is longer after an op on a buffer), medians of steps in turns."""
    buffer = torch.zeros(int(streamed_mb * 250_000))
    for _ in range(5):
        step()
    plain, after = [], []
    for _ in range(STEPS):
        plain.append(took_us(step))
        buffer.add_(1)
        after.append(took_us(step))
        step()  # brings its data back
    return statistics.median(plain), statistics.median(after) - statistics.median(plain)


def main() -> None:
    """Prints the table and what follows from it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    copied = copying(torch, time.thread_time, 64 << 20, 8 << 20, 1)
    us_per_mb = 1e3 / statistics.quantiles([copied() for _ in range(60)], n=10)[0]
    print(f"copying, 10th percentile: {1e3 / us_per_mb:.1f} GB/s; largest cache {LAST_MB:.0f} MB")
    times: dict[int, list[float]] = {size: [] for size in STREAMED_MB}
    shares, code_mb = [], []
    for width, batch in itertools.product(WIDTHS, BATCHES):
        step, used_mb = training(width, batch)
        for size in STREAMED_MB:
            plain, more = more_us(step, size)
            found_mb = used_mb + CODE_MB
            if used_mb <= LAST_MB:
                times[size].append(more / (min(size, found_mb) * us_per_mb))
            shares.append(more / (plain + more))
            if size == max(STREAMED_MB) and used_mb < 1:
                code_mb.append(more / us_per_mb - used_mb)
            print(
                f"width {width:4d} batch {batch:3d} uses {used_mb:5.2f} MB  streamed {size:2d} MB  step {plain:6.0f} µs"
                f"  {more:+5.0f} µs ({100 * more / plain:+3.0f} %)",
                flush=True,
            )
    print(f"code: {min(code_mb):.1f} to {max(code_mb):.1f} MB, n = {len(code_mb)}")
    print(f"largest share of a step: {max(shares):.2f}, n = {len(shares)}")
    for size, values in times.items():
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        low, middle, high = (tenths[at] for at in (0, 4, 8))
        print(f"streamed {size} MB: {low:.2f} … {middle:.2f} … {high:.2f} times copying, n = {len(values)}")


if __name__ == "__main__":
    main()
