# ruff: noqa: E501 - the rows of the format stand on one line each, as they are written
"""Large Kineto traces for benchmarks: the format of torch 2.8 on CUDA, with names as varied as real ones.

A training loop of transformer-like layers: nested ops with shapes, Python frames, launches with flow arrows, kernels
with long template names on two streams, all-reduces, `[memory]` instants, ProfilerSteps. Nothing is copied from a real
trace. `python tests/benchmarks/reading/made_traces.py OUT.json MEGABYTES` writes one (gzipped where OUT ends in .gz).
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017755648,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    }
  ],
  "cupti_version": 26,
  "cuda_runtime_version": 12080,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "pg_count": 1},
  "record_shapes": 1,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1759104000000000000,
  "traceEvents": [
"""
OPS = [
    *("linear", "matmul", "addmm", "mm", "bmm", "view", "transpose", "reshape"),
    *("softmax", "layer_norm", "gelu", "add", "mul", "copy_", "to"),
]
FUNCTORS = ["AddFunctor", "MulFunctor", "GeluCUDAKernelImpl", "FillFunctor", "CopyFunctor", "SqrtFunctor", "NegFunctor"]
TYPES = ["float", "c10::BFloat16", "c10::Half", "int", "long"]
FILES = ["torch/nn/modules/module.py", "torch/nn/modules/linear.py", "train.py", "model/attention.py", "model/mlp.py"]

# A real step runs some hundreds to thousands of distinct functions, the same ones every time.
FRAMES = [f"{FILES[number % 5]}({7 * number + 3}): {OPS[number % len(OPS)]}_{number % 40}" for number in range(1500)]


class Clock:
    """Host and device time in ns, and the counters that Kineto numbers rows by."""

    def __init__(self) -> None:
        self.host, self.device, self.external, self.correlation, self.index = 10**15, 10**15, 1, 100, 0


def kernel_name(rng: random.Random) -> str:
    """A name as long and as varied as CUDA's."""
    kind = rng.randrange(4)
    dtype = rng.choice(TYPES)
    if kind == 0:
        tile = f"{rng.choice((64, 128, 256))}x{rng.choice((64, 128, 192))}x{rng.choice((32, 64))}"
        return f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{tile}_warpgroupsize{rng.randrange(1, 3)}x1x1_v{rng.randrange(9)}_cublas"
    if kind == 1:
        functor = rng.choice(FUNCTORS)
        lambdas = f"{{lambda()#{rng.randrange(1, 4)}}}::operator()() const::{{lambda({dtype})#{rng.randrange(1, 9)}}}"
        inner = f"at::native::(anonymous namespace)::{functor}(at::TensorIteratorBase&)::{lambdas}"
        return f"void at::native::vectorized_elementwise_kernel<{rng.choice((2, 4, 8))}, {inner}, std::array<char*, {rng.randrange(2, 5)}ul> >(int, {inner}, std::array<char*, 2ul>)"
    if kind == 2:
        return f"triton_{rng.choice(('poi', 'red', 'per'))}_fused_{'_'.join(rng.choices(OPS, k=rng.randrange(2, 6)))}_{rng.randrange(400)}"
    return f"void at::native::(anonymous namespace)::cunn_SoftMaxForward<{rng.choice((4, 8))}, {dtype}, float, {dtype}, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>({dtype}*, {dtype} const*, int)"


def us(time_ns: int) -> str:
    """Kineto's way to write ns as µs."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def rows_of_op(clock: Clock, rng: random.Random, op: str, kernel: str, dims: str, thread: int) -> Iterator[str]:
    """An op with an inner op, its frames, its launch, its kernel, and a `[memory]` instant now and then."""
    start, external = clock.host, clock.external
    clock.external += 2
    inner_dur, dur = rng.randrange(4000, 9000), rng.randrange(10000, 15000)
    seq = (
        f'"Sequence number": {external}, "Fwd thread id": {0 if thread == 4001 else 1}, ' if rng.random() < 0.5 else ""
    )
    for level, (offset, length) in enumerate(((0, dur), (1500, inner_dur))):
        name = f"aten::{op}" if level == 0 else f"aten::_{op}_impl"
        clock.index += 1
        yield (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4001, "tid": {thread},\n'
            f'    "ts": {us(start + offset)}, "dur": {us(length)},\n    "args": {{\n'
            f'      "External id": {external + level},{seq}"Record function id": 0, "Concrete Inputs": ["", "", "0"], '
            f'"Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], "Input Strides": [[1024, 1], [1024, 1], []], '
            f'"Input Dims": {dims}, "Ev Idx": {clock.index}\n    }}\n  }},\n'
        )
    if rng.random() < 0.35:
        frame = rng.choice(FRAMES)
        yield (
            f'  {{\n    "ph": "X", "cat": "python_function", "name": "{frame}", "pid": 4001, "tid": 4001,\n'
            f'    "ts": {us(start - 800)}, "dur": {us(dur + 1600)},\n    "args": {{\n'
            f'      "Python parent id": {external - 1}, "Python id": {external}, "Ev Idx": {clock.index}\n    }}\n  }},\n'
        )
    if rng.random() < 0.3:
        yield (
            f'  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 4001, "tid": {thread},\n'
            f'    "ts": {us(start + 900)},\n    "args": {{\n      "Total Reserved": 12782141440, "Total Allocated": {5435638784 + external}, '
            f'"Bytes": {rng.choice((-1, 1)) * 4194304}, "Addr": {139926520725504 + external}, "Device Id": 0, "Device Type": 1, "Ev Idx": {clock.index}\n    }}\n  }},\n'
        )
    yield from rows_of_launch(clock, rng, kernel, start + 3000, external + 1, thread)
    clock.host += dur + rng.randrange(500, 4000)


def rows_of_launch(clock: Clock, rng: random.Random, kernel: str, at: int, external: int, thread: int) -> Iterator[str]:
    """A launch, its flow arrow, and what it starts on the device."""
    clock.correlation += 1
    number, dur = clock.correlation, rng.randrange(1500, 60000 if "gemm" in kernel else 12000)
    clock.device = max(clock.device, at + 4000)
    begin, stream = clock.device, 16 if kernel.startswith("nccl") else 7
    clock.device += dur + rng.choice((0, 300, 1500))
    copy = rng.random() < 0.04
    cat, name = ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)") if copy else ("kernel", kernel)
    more = (
        f'"bytes": {rng.randrange(1, 99) * 4096}, "memory bandwidth (GB/s)": 11.132962654299421'
        if copy
        else f'"registers per thread": 32, "shared memory": 0, "blocks per SM": 15.515152, "warps per SM": 62.060608, '
        f'"grid": [{rng.randrange(1, 4000)}, 1, {rng.randrange(1, 8)}], "block": [128, 1, 1], "est. achieved occupancy %": 31'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "{"cudaMemcpyAsync" if copy else "cudaLaunchKernel"}", "pid": 4001, "tid": {thread},\n'
        f'    "ts": {us(at)}, "dur": {us(2500)},\n    "args": {{\n      "External id": {external}, "cbid": 211, "correlation": {number}\n    }}\n  }},\n'
        f'  {{\n    "ph": "s", "id": {number}, "pid": 4001, "tid": {thread}, "ts": {us(at)},\n    "cat": "ac2g", "name": "ac2g"\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 0, "tid": {stream},\n'
        f'    "ts": {us(begin)}, "dur": {us(dur)},\n    "args": {{\n      "External id": {external}, "queued": 0, "device": 0, "context": 1,\n'
        f'      "stream": {stream}, "correlation": {number},\n      {more}\n    }}\n  }},\n'
        f'  {{\n    "ph": "f", "id": {number}, "pid": 0, "tid": {stream}, "ts": {us(begin)},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }},\n'
    )


def step_rows(clock: Clock, rng: random.Random, layers: list[tuple[str, str, str]], number: int) -> Iterator[str]:
    """One training step: fetch, forward on the main thread, backward on the autograd thread, an all-reduce."""
    start = clock.host
    for op, kernel, dims in layers:
        yield from rows_of_op(clock, rng, op, kernel, dims, 4001)
    for op, kernel, dims in reversed(layers):
        yield from rows_of_op(clock, rng, f"{op}_backward", kernel, dims, 4077)
    yield from rows_of_launch(
        clock,
        rng,
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        clock.host,
        clock.external,
        4077,
    )
    clock.host += 20000
    for name, at, length in (
        (f"ProfilerStep#{number}", start, clock.host - start),
        ("Optimizer.step#AdamW.step", clock.host - 15000, 14000),
    ):
        yield (
            f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 4001, "tid": 4001,\n    "ts": {us(at)}, "dur": {us(length)},\n'
            f'    "args": {{\n      "External id": {clock.external}, "Record function id": 0, "Ev Idx": {clock.index}\n    }}\n  }},\n'
        )
    clock.host += 1000


def write(path: Path, megabytes: float, seed: int = 7) -> int:
    """Writes a trace of about that many (uncompressed, decimal) megabytes; returns its exact number of bytes."""
    rng = random.Random(seed)
    layers = [
        (
            rng.choice(OPS),
            kernel_name(rng),
            str([[rng.randrange(1, 64), rng.choice((512, 1024, 4096))], [1024, rng.randrange(64, 9000)], []]),
        )
        for _ in range(700)
    ]
    clock, written, number = Clock(), 0, 0
    stream: IO[bytes]
    with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as stream:
        written += stream.write(HEAD.encode())
        while written < megabytes * 1e6:
            number += 1
            written += stream.write("".join(step_rows(clock, rng, layers, number)).encode())
        tail = f'  {{\n    "name": "process_name", "ph": "M", "ts": {us(10**15)}, "pid": 4001, "tid": 0,\n    "args": {{\n      "name": "python"\n    }}\n  }}\n  ],\n  "traceName": "made.json"\n}}\n'
        written += stream.write(tail.encode())
    return written


if __name__ == "__main__":
    sys.stdout.write(f"{write(Path(sys.argv[1]), float(sys.argv[2]))} bytes\n")
