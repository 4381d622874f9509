"""What ops, threads, memory and a device cost on the machine of a run: measured there, else from the table."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from advisor.capture.record import Measured, RankRecord
from advisor.constants import known

# From here on another process had a core so often that what several threads do was not measured, but its neighbour.
BUSY = 0.1

_HERE = "measured on the machine of the run"
# What several threads do together: while other processes have the cores, it cannot be measured.
_TOGETHER = ("memory_gbs", "convolution_gflops", "fp32_gflops", "bf16_gflops", "thread_wake_us")


class Quantity(Struct, frozen=True):
    """A range. source: "measured on the machine of the run, n = …", or the source of the table's value."""

    low: float
    high: float
    unit: str
    source: str
    measured: bool = False
    middle: float | None = None  # the median of the samples; None where the range is the table's

    @property
    def range(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high


class Calibration(Struct, frozen=True):
    """The machine of a run. `core_…`: of one thread; None: neither measured nor in the table, as without a device.

    op_call_us, product_call_us  a call of an elementwise op, and of a matrix product, on a few numbers, in a loop of it
    op_call_cold_us              a call of an op on a few numbers after other work
    profiler_row_us              profiler overhead per op in a loop of one op
    profiler_row_cold_us         and after other work
    thread_wake_us               overhead of splitting an op over all threads
    all_cores_product_times …    how many times as fast a product of 512 x 512 matrices, or a copy, is on all cores as
                                 on the script's threads, where these are fewer
    core_cache_gbs, core_memory_gbs, memory_gbs   bytes read and written by a copy, 10^9 per second
    last_cache_mb                size of the largest cache, 10^6 bytes; other cores may have a part of it
    core_small_gflops            convolution of four small images, 10^9 operations per second
    core_convolution_gflops …    convolution of 8 images with 32 channels and both of its gradients, 10^9 operations
                                 per second
    core_fp32_gflops …           product of 512 x 512 matrices, 10^9 operations per second
    core_bf16_product_times …    how many times as fast products of 288 x 288 and 576 x 576 matrices, and that
                                 convolution, are in bf16 as in fp32, conversions included; only of a CPU that
                                 multiplies bf16 in hardware
    core_fp64_product_times      how many times as long a product of 256 x 256 matrices takes in fp64 as in fp32
    launch_us                    time of the host to launch a kernel
    h2d_pageable_gbs …           copies of 8 MB between host and device, 10^9 bytes per second
    device_fp32_tflops …         product of 4,096 x 4,096 matrices, 10^12 operations per second
    device_memory_gbs            bytes read and written by a copy on the device, 10^9 per second
    profiler_device_op_us        profiler overhead on the host per op that launches a kernel
    """

    op_call_us: Quantity
    profiler_row_us: Quantity
    core_memory_gbs: Quantity
    core_small_gflops: Quantity
    core_fp32_gflops: Quantity
    launch_us: Quantity
    last_cache_mb: Quantity
    op_call_cold_us: Quantity | None = None
    product_call_us: Quantity | None = None
    profiler_row_cold_us: Quantity | None = None
    thread_wake_us: Quantity | None = None
    core_cache_gbs: Quantity | None = None
    memory_gbs: Quantity | None = None
    fp32_gflops: Quantity | None = None
    core_convolution_gflops: Quantity | None = None
    convolution_gflops: Quantity | None = None
    core_bf16_gflops: Quantity | None = None
    bf16_gflops: Quantity | None = None
    core_bf16_product_times: Quantity | None = None
    core_bf16_large_product_times: Quantity | None = None
    core_bf16_convolution_times: Quantity | None = None
    core_fp64_product_times: Quantity | None = None
    h2d_pageable_gbs: Quantity | None = None
    h2d_pinned_gbs: Quantity | None = None
    d2h_pageable_gbs: Quantity | None = None
    d2h_pinned_gbs: Quantity | None = None
    device_fp32_tflops: Quantity | None = None
    device_tf32_tflops: Quantity | None = None
    device_fp16_tflops: Quantity | None = None
    device_bf16_tflops: Quantity | None = None
    device_memory_gbs: Quantity | None = None
    profiler_device_op_us: Quantity | None = None
    all_cores_product_times: Quantity | None = None
    all_cores_copy_times: Quantity | None = None

    def items(self) -> Iterator[tuple[str, Quantity]]:
        """(name, quantity) of those that are known, in the order above."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                yield name, value

    @classmethod
    def compute(cls, record: RankRecord | None) -> Calibration:
        """The calibration in the run's record: of the machine of the run, never of the one that analyzes it."""
        return cls.of(record.calibration if record else None)

    @classmethod
    def of(cls, measured: Measured | None) -> Calibration:
        """The calibration of a run; None: it has none, and the table's values are used."""
        found = {name: quantity for name in cls.__struct_fields__ if (quantity := _quantity(name, measured))}
        return cls(**found)


def _quantity(name: str, measured: Measured | None) -> Quantity | None:
    if measured is None:
        return _of_table(name)
    if name.startswith("all_cores") and busy(measured):
        return None
    if name in _TOGETHER and (measured.threads == 1 or busy(measured)):
        return _of_one_thread(name, measured)
    return _measured(name, measured) or _of_table(name)


def busy(measured: Measured) -> bool:
    """Whether other work had the cores while it measured."""
    return measured.waited is not None and measured.waited >= BUSY


def _measured(name: str, measured: Measured) -> Quantity | None:
    if name not in measured.quantities:
        return None
    low, middle, high, samples = measured.quantities[name]
    # What costs nothing within the clock's noise comes out below zero.
    ends = max(low, 0.0), max(high, 0.0)
    return Quantity(*ends, _unit(name), f"{_HERE}, n = {samples}", True, max(middle, 0.0))


def _of_one_thread(name: str, measured: Measured) -> Quantity | None:
    """What all threads do, by what one does: from as much to as many times as much as there are threads."""
    if name == "thread_wake_us":
        return Quantity(0.0, 0.0, "µs", "there is only one thread", True, 0.0) if measured.threads == 1 else None
    one = _measured(f"core_{name}", measured)
    if one is None or measured.threads == 1:
        return one
    source = f"{one.source}: from one thread to {measured.threads} times that, because other work had the cores"
    return Quantity(one.low, one.high * measured.threads, one.unit, source, True)


def _of_table(name: str) -> Quantity | None:
    found = known(f"machine.{name}")
    return Quantity(found.low, found.high, found.unit, f"table: {found.how}") if found else None


def _unit(name: str) -> str:
    units = {"us": "µs", "gbs": "GB/s", "mb": "MB", "gflops": "GFLOP/s", "tflops": "TFLOP/s", "times": ""}
    return units[name.rpartition("_")[2]]
