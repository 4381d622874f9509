"""What is measured of an accelerator: launches, copies, products by format, memory, the profiler.

Standard library, and torch as it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .on_host import Sample, profiled

# Calls in one sample: the queue of a device holds more than these. Numbers of each: the launch takes longer.
_CALLS, _SMALL = 200, 64


def device_samples(torch: Any, device: str, synchronize: Callable[[], Any], size: int = 4096) -> dict[str, Any]:
    """What is measured of a device. size: rows of the products, and of the tensor that is copied."""
    small = torch.ones(_SMALL, device=device)
    formats = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    copies = {"h2d": (device, "cpu"), "d2h": ("cpu", device)}

    def timed(function: Callable[[], Any]) -> float:
        synchronize()
        began = time.perf_counter()
        function()
        synchronize()
        return time.perf_counter() - began

    def launch() -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(_CALLS):
            torch.add(small, small)  # the queue holds more than these: nothing waits
        return (time.perf_counter() - began) / _CALLS * 1e6

    def tensor(where: str, pinned: bool = False) -> Any:
        return torch.ones(size * 512, device=where, **({"pin_memory": True} if pinned and where == "cpu" else {}))

    def copied(ends: tuple[str, str], pinned: bool) -> Sample:
        to, from_ = (tensor(where, pinned) for where in ends)
        return lambda: 4 * size * 512 / timed(lambda: to.copy_(from_, non_blocking=pinned)) / 1e9

    def product(kind: Any, tf32: bool = False) -> Sample:
        left, right = (torch.ones(size, size, device=device, dtype=kind) for _ in range(2))

        def sample() -> float:
            before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high" if tf32 else "highest")
            try:
                return 2 * size**3 / timed(lambda: torch.mm(left, right)) / 1e12
            finally:
                torch.set_float32_matmul_precision(before)

        return sample

    def memory() -> Sample:
        to, from_ = (torch.ones(16 * size * 512, device=device) for _ in range(2))
        return lambda: 2 * 4 * to.numel() / timed(lambda: to.copy_(from_)) / 1e9

    return {
        "launch_us": lambda: launch,
        **{
            f"{way}_{'pinned' if pinned else 'pageable'}_gbs": partial(copied, ends, pinned)
            for way, ends in copies.items()
            for pinned in (False, True)
        },
        **{f"device_{name}_tflops": partial(product, kind) for name, kind in formats.items()},
        "device_tf32_tflops": lambda: product(torch.float32, tf32=True),
        "device_memory_gbs": memory,
        "profiler_device_op_us": lambda: profiled(torch, device),
    }
