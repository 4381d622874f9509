"""A process of its own: measures what ops, threads, memory and a device cost here, and prints it as one line of JSON.

Standard library, and torch of the interpreter that runs this; never part of the user's process. The only argument is
JSON: `threads` (of torch, as the script had them; null: torch's own choice), `seconds` for the host and
`device_seconds` for an accelerator (0: it is left alone), torch's import and the device's start not included.

Every quantity is sampled again and again until the time is over, the one next that has had least of it, so that a burst
of other work on the machine touches a sample of each rather than all samples of one. What is given of each: low and
high (10 % and 90 % of the samples), median, and their number. What one thread does is measured in its CPU time, which
another process cannot stretch; what several threads or a device do, in wall time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

# A quantity with fewer samples is left out; with more it is known well enough.
FEWEST, MOST = 3, 60
# Numbers of a tensor that every cache holds; and of one that torch just begins to share among threads: its grain is
# 32,768 (at::internal::GRAIN_SIZE).
_SMALL, _SHARED = 64, 32_769
# Calls in one sample: long beside the clock's resolution, short beside a scheduler's time slice.
_CALLS = 200
_MIB = 1 << 20
# Of one slice that is copied in a sample, and of tensors in a core's own cache.
_SLICE_BYTES, _CACHED_BYTES = 8 * _MIB, 128 << 10
_PRODUCT = 512
# Python runs so long between two parallel ops of a step, at least.
_PAUSE_S = 2e-4

Sample = Callable[[], float]
Clock = Callable[[], float]


def main() -> None:
    """Prints one line of JSON: the fields of `measured.Measured`."""
    # The folder of this file holds modules of ours; the interpreter put it first.
    sys.path[:1] = []
    wanted = json.loads(sys.argv[1])
    import torch

    if wanted.get("threads"):
        torch.set_num_threads(wanted["threads"])
    started, before = time.perf_counter(), scheduled()
    failed: dict[str, str] = {}
    quantities = sampled(host_samples(torch), wanted["seconds"] - (time.perf_counter() - started), failed)
    found = {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "waited": waited(before, scheduled()),
        "device": "",
        "seconds": time.perf_counter() - started,
    }
    device = usable_device(torch) if wanted["device_seconds"] else ""
    if device:
        module = getattr(torch, device)
        found["device"] = module.get_device_name(0)
        module.synchronize()
        made = device_samples(torch, device, module.synchronize)
        quantities |= sampled(made, wanted["device_seconds"], failed)
    sys.stdout.write(json.dumps({**found, "quantities": quantities, "failed": failed}) + "\n")


def usable_device(torch: Any) -> str:
    """The kind of accelerator that torch can use here; empty where there is none."""
    kinds = (kind for kind in ("cuda", "xpu") if hasattr(torch, kind))
    return next((kind for kind in kinds if getattr(torch, kind).is_available()), "")


def sampled(makers: dict[str, Callable[[], Sample]], seconds: float, failed: dict[str, str]) -> dict[str, Any]:
    """name -> [low, median, high, samples]. makers: prepare a quantity and give the function that samples it.

    One that cannot be measured here is told in `failed` by its error's first line, and the others go on.
    """
    ends = time.perf_counter() + seconds
    open_: dict[str, Sample] = {}
    spent: dict[str, float] = {}
    values: dict[str, list[float]] = {}
    for name, make in makers.items():
        try:
            open_[name] = make()
            open_[name]()  # the first call chooses kernels, packs weights, starts threads
        except Exception as failure:
            open_.pop(name, None)
            failed[name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            continue
        spent[name], values[name] = 0.0, []
    while open_ and time.perf_counter() < ends:
        name = min(open_, key=spent.__getitem__)
        began = time.perf_counter()
        values[name].append(open_[name]())
        spent[name] += time.perf_counter() - began
        if len(values[name]) == MOST:
            del open_[name]
    return {name: summed_up(found) for name, found in values.items() if len(found) >= FEWEST}


def summed_up(values: list[float]) -> list[float]:
    """[low, median, high, number] of the samples: the 10 % and 90 % points, between samples as numpy does."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return [tenths[0], tenths[4], tenths[8], len(values)]


def scheduled() -> tuple[int, int] | None:
    """ns that this process's first thread ran so far, and that it was ready and had no core; None where unknown."""
    try:
        ran_ns, queued_ns = map(int, Path("/proc/self/schedstat").read_text("ascii").split()[:2])
    except (OSError, ValueError):
        return None
    return ran_ns, queued_ns


def waited(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """Share of the time between in which it was ready and had no core."""
    if before is None or after is None:
        return None
    ran_ns, queued_ns = (end - start for start, end in zip(before, after, strict=True))
    return queued_ns / max(ran_ns + queued_ns, 1)


def host_samples(torch: Any) -> dict[str, Callable[[], Sample]]:
    """What is measured of the host, in the order in which it is prepared. `core_…`: of one thread, in its CPU time."""
    threads = torch.get_num_threads()
    products = {"fp32_gflops": torch.float32, "bf16_gflops": torch.bfloat16}

    def of_core(make: Callable[..., Sample], *arguments: Any) -> Callable[[], Sample]:
        return lambda: _on_one_thread(torch, make(torch, time.thread_time, *arguments))

    made: dict[str, Callable[[], Sample]] = {
        "op_call_us": lambda: _calls(torch.add, torch.ones(_SMALL), torch.ones(_SMALL)),
        "product_call_us": lambda: _calls(torch.mm, torch.ones(8, 8), torch.ones(8, 8)),
        "small_tensor_us": lambda: _calls(torch.zeros, _SMALL),
        "backward_node_us": lambda: _backward(torch),
        "profiler_row_us": lambda: _profiled(torch, ""),
        "core_cache_gbs": of_core(_copy, _CACHED_BYTES, _CACHED_BYTES, 20),
        "core_memory_gbs": of_core(_copy, _buffer_bytes(), _SLICE_BYTES, 1),
        "core_small_gflops": of_core(_convolution),
        **{f"core_{name}": of_core(_product, kind) for name, kind in products.items()},
    }
    if threads > 1:
        made["memory_gbs"] = partial(_copy, torch, time.perf_counter, _buffer_bytes(), _SLICE_BYTES, 1)
        made |= {name: partial(_product, torch, time.perf_counter, kind) for name, kind in products.items()}
        made["thread_wake_us"] = lambda: _wake(torch, threads)
    return made


def _on_one_thread(torch: Any, sample: Sample) -> Sample:
    def alone() -> float:
        with _threads(torch, 1):
            return sample()

    return alone


@contextmanager
def _threads(torch: Any, number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _calls(function: Callable[..., Any], *arguments: Any) -> Sample:
    """µs of CPU time of a call."""

    def sample() -> float:
        began = time.thread_time()
        for _ in range(_CALLS):
            function(*arguments)
        return (time.thread_time() - began) / _CALLS * 1e6

    return sample


def _backward(torch: Any) -> Sample:
    """µs of CPU time of a node of the backward pass that runs one small op."""
    start, factor = torch.ones(_SMALL, requires_grad=True), torch.ones(_SMALL)

    def sample() -> float:
        end = start
        for _ in range(_CALLS):
            end = end * factor
        total = end.sum()
        began = time.thread_time()
        total.backward()
        return (time.thread_time() - began) / _CALLS * 1e6

    return sample


def _profiled(torch: Any, device: str) -> Sample:
    """µs of CPU time that the profiler adds to an op, set as in a window: shapes, no stacks, no memory."""
    call = _calls(torch.add, *(torch.ones(_SMALL, device=device or "cpu") for _ in range(2)))

    def sample() -> float:
        plain_us = call()
        with torch.autograd.profiler.profile(use_device=device or None, record_shapes=True, use_kineto=True):
            profiled_us = call()
        return profiled_us - plain_us

    return sample


def _copy(torch: Any, clock: Clock, whole_bytes: int, slice_bytes: int, times: int) -> Sample:
    """GB/s read and written together when tensors are copied, slice after slice of a larger one."""
    source, target = (torch.ones(whole_bytes // 4) for _ in range(2))
    parts = list(zip(source.split(slice_bytes // 4), target.split(slice_bytes // 4), strict=True))
    at = 0

    def sample() -> float:
        nonlocal at
        from_, to = parts[at % len(parts)]
        at += 1
        began = clock()
        for _ in range(times):
            to.copy_(from_)
        return 2 * slice_bytes * times / (clock() - began) / 1e9

    return sample


def _buffer_bytes() -> int:
    """Of each of two buffers that together are far larger than the last cache of this CPU."""
    last = 32 * _MIB
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            last = max(last, int(path.read_text("ascii").strip().removesuffix("K")) << 10)
    return min(2 * last, 128 * _MIB)


def _product(torch: Any, clock: Clock, kind: Any) -> Sample:
    """10^9 operations per second of a square product."""
    left, right = (torch.ones(_PRODUCT, _PRODUCT, dtype=kind) for _ in range(2))

    def sample() -> float:
        began = clock()
        torch.mm(left, right)
        return 2 * _PRODUCT**3 / (clock() - began) / 1e9

    return sample


def _convolution(torch: Any, clock: Clock) -> Sample:
    """10^9 operations per second of a convolution of four small images, of 16 channels and 16 x 16 pixels."""
    images, weights = torch.ones(4, 16, 16, 16), torch.ones(16, 16, 3, 3)
    done = 2 * 4 * 16 * 16 * 16 * 16 * 9

    def sample() -> float:
        began = clock()
        for _ in range(5):
            torch.conv2d(images, weights, padding=1)
        return 5 * done / (clock() - began) / 1e9

    return sample


def _wake(torch: Any, threads: int) -> Sample:
    """µs that an op takes beyond its share of the work when other threads have to join it after a pause."""
    tensor = torch.ones(_SHARED)

    def took() -> float:
        ends = time.perf_counter() + _PAUSE_S
        while time.perf_counter() < ends:
            pass
        began = time.perf_counter()
        torch.add(tensor, tensor, out=tensor)
        return time.perf_counter() - began

    def sample() -> float:
        together_s = min(took() for _ in range(3))
        with _threads(torch, 1):
            alone_s = min(took() for _ in range(3))
        return max(together_s - alone_s / threads, 0.0) * 1e6

    return sample


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
        "profiler_device_op_us": lambda: _profiled(torch, device),
    }


if __name__ == "__main__":
    main()
