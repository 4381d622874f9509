"""What calibration measures here, beside loops of numpy and of torch.utils.benchmark: one line a quantity, as ratios.

    python tests/benchmarks/costs/calibration.py [--times 5]

Each time both are measured again, in processes of one thread; a ratio near 1 says that they agree. Run it in quiet:
CPU time is not stretched by other work, but caches and memory are shared with it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

import msgspec

from advisor.calibration import machine, process

LOOPS = """
import json, time
import numpy as np, torch
from torch.utils.benchmark import Timer
torch.set_num_threads(1)

def cpu_s(function, times):
    taken = []
    for _ in range(9):
        began = time.thread_time()
        for _ in range(times):
            function()
        taken.append((time.thread_time() - began) / times)
    return sorted(taken)[4]

large, also = np.ones(16 << 20, np.float32), np.ones(16 << 20, np.float32)
small, beside = large[: 32 << 10].copy(), large[: 32 << 10].copy()
one, wide = torch.ones(64), torch.ones(512, 512)
timed = lambda code, value, number: Timer(code, globals={"x": value}, timer=time.thread_time).timeit(number).median
print(json.dumps({
    "core_memory_gbs": 2 * large.nbytes / cpu_s(lambda: np.copyto(also, large), 1) / 1e9,
    "core_cache_gbs": 2 * small.nbytes / cpu_s(lambda: np.copyto(beside, small), 100) / 1e9,
    "op_call_us": timed("x + x", one, 20000) * 1e6,
    "core_fp32_gflops": 2 * 512**3 / timed("x @ x", wide, 20) / 1e9,
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--times", type=int, default=5, help="how often each is measured")
    ratios: dict[str, list[float]] = {}
    for _ in range(parser.parse_args().times):
        measured = process.measure(sys.executable, machine.here(sys.executable, "", 1, "", os.environ), os.environ)
        done = subprocess.run([sys.executable, "-c", LOOPS], capture_output=True, text=True, check=True)
        for name, value in msgspec.json.decode(done.stdout, type=dict[str, float]).items():
            ratios.setdefault(name, []).append(measured.quantities[name][1] / value)
    for name, found in ratios.items():
        print(f"{name:20} {min(found):6.2f} {statistics.median(found):6.2f} {max(found):6.2f}  (n = {len(found)})")


if __name__ == "__main__":
    main()
