"""What is measured of the host: calls, the profiler, caches and memory, products, threads.

Standard library, and torch as it is given.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

# Numbers of a tensor that every cache holds; and of one that torch just begins to share among threads: its grain is
# 32,768 (at::internal::GRAIN_SIZE).
_SMALL, _SHARED = 64, 32_769
# Calls in one sample: long beside the clock's resolution, short beside a scheduler's time slice.
_CALLS = 200
_MIB = 1 << 20
# What other work leaves of a core's own caches: nothing.
_OTHER_WORK_BYTES = 4 * _MIB
# Of one slice that is copied in a sample, and of tensors in a core's own cache.
_SLICE_BYTES, _CACHED_BYTES = 8 * _MIB, 128 << 10
_PRODUCT = 512
# Of factors that autocast converts: 32 and 64 operations for each byte that it reads and writes for that.
_CONVERTED = {"core_bf16_product_times": 288, "core_bf16_large_product_times": 576}
_DOUBLE_PRODUCT = 256
# How Linux calls instructions that multiply bf16, on x86 and Arm.
_BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}
# Python runs so long between two parallel ops of a step, at least.
_PAUSE_S = 2e-4

Sample = Callable[[], float]
Clock = Callable[[], float]


def host_samples(torch: Any) -> dict[str, Callable[[], Sample]]:
    """What is measured of the host, in the order in which it is prepared. `core_…`: of one thread, in its CPU time."""
    threads = torch.get_num_threads()
    products = {"fp32_gflops": torch.float32, "bf16_gflops": torch.bfloat16}

    def of_core(make: Callable[..., Sample], *arguments: Any) -> Callable[[], Sample]:
        return lambda: _on_one_thread(torch, make(torch, time.thread_time, *arguments))

    made: dict[str, Callable[[], Sample]] = {
        "op_call_us": lambda: _calls(torch.add, torch.ones(_SMALL), torch.ones(_SMALL)),
        "op_call_cold_us": lambda: _cold(torch),
        "product_call_us": lambda: _calls(torch.mm, torch.ones(8, 8), torch.ones(8, 8)),
        "profiler_row_us": lambda: profiled(torch, ""),
        "profiler_row_cold_us": lambda: _profiled_cold(torch),
        "core_cache_gbs": of_core(copying, _CACHED_BYTES, _CACHED_BYTES, 20),
        "core_memory_gbs": of_core(copying, _buffer_bytes(), _SLICE_BYTES, 1),
        "core_small_gflops": of_core(_convolution),
        "core_convolution_gflops": of_core(_trained_convolution),
        **{f"core_{name}": of_core(product, kind) for name, kind in products.items()},
        "core_fp64_product_times": of_core(in_double),
    }
    if last_bytes := _last_cache_bytes():
        made = {"last_cache_mb": lambda: lambda: round(last_bytes / 1e6), **made}  # first, as it takes no time
    if multiplies_bf16():
        made |= {name: of_core(in_bf16, product_of, size) for name, size in _CONVERTED.items()}
        made["core_bf16_convolution_times"] = of_core(in_bf16, _convolution_of)
    if threads > 1:
        made["memory_gbs"] = partial(copying, torch, time.perf_counter, _buffer_bytes(), _SLICE_BYTES, 1)
        made["convolution_gflops"] = partial(_trained_convolution, torch, time.perf_counter)
        made |= {name: partial(product, torch, time.perf_counter, kind) for name, kind in products.items()}
        made["thread_wake_us"] = lambda: _wake(torch, threads)
    cores = _cores()
    if threads < cores:
        made["all_cores_product_times"] = lambda: _shared(
            torch, threads, cores, product(torch, time.perf_counter, torch.float32)
        )
        made["all_cores_copy_times"] = lambda: _shared(
            torch, threads, cores, copying(torch, time.perf_counter, _buffer_bytes(), _SLICE_BYTES, 1)
        )
    return made


def multiplies_bf16(path: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this CPU has instructions that multiply bf16: without them a product takes many times as long in it."""
    with suppress(OSError):
        for line in path.read_text("utf-8", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return not _BF16_FLAGS.isdisjoint(line.split())
    return False


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shared(torch: Any, threads: int, cores: int, rate: Sample) -> Sample:
    """How many times as fast work is on all cores as on the script's threads, one after the other in each sample."""

    def sample() -> float:
        with _threads(torch, threads):
            few = max(rate() for _ in range(2))
        with _threads(torch, cores):
            return max(rate() for _ in range(2)) / few

    return sample


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


def profiled(torch: Any, device: str) -> Sample:
    """µs of CPU time that the profiler adds to an op, set as in a window: shapes, no stacks, no memory."""
    call = _calls(torch.add, *(torch.ones(_SMALL, device=device or "cpu") for _ in range(2)))

    def sample() -> float:
        plain_us = call()
        with torch.autograd.profiler.profile(use_device=device or None, record_shapes=True, use_kineto=True):
            profiled_us = call()
        return profiled_us - plain_us

    return sample


def _cold(torch: Any) -> Sample:
    """µs of CPU time of an op where other work ran before it: its code and data come from the last cache."""
    left, right, square = torch.ones(_SMALL), torch.ones(_SMALL), torch.ones(8, 8)
    other = torch.ones(_OTHER_WORK_BYTES // 4)
    kinds: list[Callable[[], Any]] = [
        lambda: torch.add(left, right),
        lambda: torch.mul(left, right),
        lambda: torch.mm(square, square),
        lambda: torch.exp(left),
        lambda: torch.sum(left),
        lambda: torch.cat([left, right]),
        lambda: torch.zeros(_SMALL),
        lambda: torch.relu(left),
        lambda: torch.sqrt(left),
        lambda: torch.sub(left, right),
    ]

    def once() -> float:
        other.add_(1)
        began = time.thread_time()
        for kind in kinds:
            kind()
        return (time.thread_time() - began) / len(kinds) * 1e6

    # The median: an interrupt in one of so short stretches is none of its cost.
    return lambda: statistics.median(once() for _ in range(9))


def _profiled_cold(torch: Any) -> Sample:
    """µs of CPU time that the profiler adds to such an op."""
    call = _cold(torch)

    def sample() -> float:
        plain_us = call()
        with torch.autograd.profiler.profile(record_shapes=True, use_kineto=True):
            return call() - plain_us

    return sample


def copying(torch: Any, clock: Clock, whole_bytes: int, slice_bytes: int, times: int) -> Sample:
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
    return min(2 * max(_last_cache_bytes(), 32 * _MIB), 128 * _MIB)


def _last_cache_bytes() -> int:
    """Of the largest cache that a core has, alone or with others; 0 where the system does not say."""
    last = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            last = max(last, int(path.read_text("ascii").strip().removesuffix("K")) << 10)
    return last


def product(torch: Any, clock: Clock, kind: Any) -> Sample:
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


def _trained_convolution(torch: Any, clock: Clock) -> Sample:
    """10^9 operations per second of a convolution and its gradients: eight images, 32 channels, 32 x 32 pixels."""
    run = _convolution_of(torch)(torch.float32)
    done = 3 * 2 * 8 * 32 * 32 * 32 * 32 * 9

    def sample() -> float:
        began = clock()
        run()
        return done / (clock() - began) / 1e9

    return sample


Run = Callable[[], Any]


def _convolution_of(torch: Any) -> Callable[[Any], Run]:
    """A convolution of fp32 tensors and its gradients in any format, and back to fp32."""
    images, weights, first = torch.ones(8, 32, 32, 32), torch.ones(32, 32, 3, 3), torch.ones(8, 32, 32, 32)
    both = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])

    def in_format(kind: Any) -> Run:
        def run() -> None:
            of_images, of_weights, of_first = (one.to(kind) for one in (images, weights, first))
            torch.conv2d(of_images, of_weights, padding=1).float()
            for gradient in torch.ops.aten.convolution_backward(of_first, of_images, of_weights, None, *both)[:2]:
                gradient.float()

        return run

    return in_format


def product_of(torch: Any, size: int) -> Callable[[Any], Run]:
    """A product of fp32 matrices in any format, and back to fp32."""
    left, right = torch.ones(size, size), torch.ones(size, size)
    return lambda kind: lambda: torch.mm(left.to(kind), right.to(kind)).float()


def in_bf16(torch: Any, clock: Clock, make: Callable[..., Callable[[Any], Run]], *sizes: int) -> Sample:
    """How many times as fast work on fp32 tensors is in bf16, with the conversions that autocast makes."""
    in_format = make(torch, *sizes)
    return _times_as_long(clock, in_format(torch.float32), in_format(torch.bfloat16))


def in_double(torch: Any, clock: Clock) -> Sample:
    """How many times as long a product of fp64 matrices takes as one of fp32 matrices."""

    def of(kind: Any) -> Run:
        left, right = (torch.ones(_DOUBLE_PRODUCT, _DOUBLE_PRODUCT, dtype=kind) for _ in range(2))
        return lambda: torch.mm(left, right)

    return _times_as_long(clock, of(torch.float64), of(torch.float32))


def _times_as_long(clock: Clock, slow: Run, quick: Run) -> Sample:
    def sample() -> float:
        began = clock()
        slow()
        between = clock()
        quick()
        return (between - began) / (clock() - between)

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
