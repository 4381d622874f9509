"""What it takes to free a tensor whose memory goes back to the system: µs per MB, by size.

    python tests/benchmarks/costs/freed_memory.py

The C library maps an allocation of 32 MB and more by itself (mallopt(3), M_MMAP_THRESHOLD: DEFAULT_MMAP_THRESHOLD_MAX)
and unmaps it when it is freed, whatever was allocated before. CPU time of the freeing thread, medians.
"""

from __future__ import annotations

import statistics
import time

import torch

SIZES_MB, TURNS = (34, 40, 64, 96, 128, 192, 256), 25


def freed_us(size_mb: int) -> float:
    """CPU time to free a tensor of this size whose pages were all written."""
    tensor = torch.ones(size_mb << 18)
    began = time.thread_time()
    del tensor
    return (time.thread_time() - began) * 1e6


def main() -> None:
    """The table."""
    rates = []
    for size_mb in SIZES_MB:
        rate = statistics.median(freed_us(size_mb) for _ in range(TURNS)) / size_mb
        rates.append(rate)
        print(f"{size_mb:4} MB: {rate:.0f} µs per MB", flush=True)
    print(f"{min(rates):.0f} to {max(rates):.0f} µs per MB (n = {len(rates)})")


if __name__ == "__main__":
    main()
