"""What the simulated devices can do. Peaks are the vendor's; costs of calls are stated with where they were read.

Rates are dense peaks in 10^12 operations, bandwidths in 10^9 bytes per second. `share_*`: what of a peak a good kernel
reaches; 0.75 of a product's peak and 0.8 of the memory's are what large cuBLAS products and copies usually get, and no
result here may hang on them. Times are µs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One device and the host's link to it."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    fp32: float
    fp64: float
    half: float  # fp16 on tensor cores
    bf16: float | None  # None: no bf16 on tensor cores
    tf32: float | None
    memory_gbs: float
    pinned_gbs: float  # of a copy over the bus from page-locked memory
    pageable_gbs: float  # of one that the driver has to stage
    source: str
    link_gbs: float = 0.0  # to another device of the machine, in one direction; 0: none was looked up
    share_of_link: float = 0.75  # of it that collectives of many MB reach: assumed
    share_of_peak: float = 0.75
    share_of_memory: float = 0.8


DEVICES = {
    "T4": Device(
        name="Tesla T4",
        capability=(7, 5),
        multiprocessors=40,
        memory_bytes=15_828_320_256,
        fp32=8.1,
        fp64=0.25,
        half=65.0,
        bf16=None,
        tf32=None,
        memory_gbs=320.0,
        pinned_gbs=12.0,
        pageable_gbs=6.0,
        source="NVIDIA T4 data sheet; PCIe 3 x16, pageable rate assumed: half of the pinned one",
    ),
    "A100": Device(
        name="NVIDIA A100-SXM4-40GB",
        capability=(8, 0),
        multiprocessors=108,
        memory_bytes=42_298_834_944,
        fp32=19.5,
        fp64=19.5,
        half=312.0,
        bf16=312.0,
        tf32=156.0,
        memory_gbs=1555.0,
        pinned_gbs=24.0,
        pageable_gbs=9.0,
        link_gbs=300.0,
        source="NVIDIA A100 Tensor Core GPU data sheet (NVLink: 600 GB/s both ways); PCIe 4 x16, pageable rate assumed",
    ),
    "H100": Device(
        name="NVIDIA H100 80GB HBM3",
        capability=(9, 0),
        multiprocessors=132,
        memory_bytes=84_929_347_584,
        fp32=66.9,
        fp64=66.9,
        half=989.4,
        bf16=989.4,
        tf32=494.7,
        memory_gbs=3350.0,
        pinned_gbs=50.0,
        pageable_gbs=11.0,
        link_gbs=450.0,
        source="NVIDIA H100 Tensor Core GPU data sheet (NVLink: 900 GB/s both ways); PCIe 5 x16; "
        "pageable: 10.4 GB/s in a trace of an H100 (64 KiB)",
    ),
}


@dataclass(frozen=True)
class Costs:
    """What calls cost the host, µs, without the profiler; and what CUPTI adds to each.

    The launch: 2.9 µs is the tenth percentile of `cudaLaunchKernel` in a trace of an H100 (with CUPTI; medians of five
    traces are 3.2 to 8.1), less what CUPTI adds. From the call to the kernel: the least in these traces is 4.8 to 9 µs.
    Gaps of kernels in a full queue: medians 0.7 to 1.1 µs. A queue takes 1,024 launches (CUDA does not say so; it is
    what many have measured).
    """

    launch_us: float = 2.2
    copy_call_us: float = 3.5
    sync_call_us: float = 2.0
    event_us: float = 0.7  # medians of cudaEventRecord and cudaStreamWaitEvent in a trace of 8 H100 are 0.4 to 1.2
    collective_us: float = 15.0  # of one without bytes: the least in a trace of 2 V100; in one of 8 H100 it is 25
    collective_host_us: float = 20.0  # of the process group around the launch: rows of the same trace, less calls
    wake_us: float = 3.0  # from the end of the work to the host's return from a synchronisation
    latency_us: float = 5.0  # from the launch to the first instruction on an idle device
    between_us: float = 0.8  # between two kernels of a full queue
    queue: int = 1024
    dispatch_us: float = 3.0  # of an op that computes: dispatcher, shapes, its output, the launch not included
    conv_dispatch_us: float = 14.0  # cuDNN looks its plan up
    foreach_us: float = 6.0  # of a `_foreach_` op, and for each tensor in it:
    foreach_tensor_us: float = 0.15
    backward_wake_us: float = 15.0  # backward() hands over to the device's autograd thread, and back
    staged_bytes: int = 65536  # of pageable memory: up to here the driver copies it and returns at once
    staging_gbs: float = 8.0
    malloc_us: float = 150.0
    segment_bytes: int = 20 << 20  # the caching allocator asks for large blocks in pieces of 20 MiB
    context_us: float = 250_000.0  # creation of the context, seen as cudaFree(0)
    library_us: float = 120_000.0  # cuBLAS or cuDNN come up
    first_launch_us: float = 400.0  # a kernel's module is loaded at its first launch (CUDA_MODULE_LOADING=LAZY)
    call_row_us: float = 1.5  # CUPTI's part in a profiled runtime call
