"""Environment variables that slow a training down: when, and by what."""

from __future__ import annotations

from msgspec import Struct

from advisor.api import Environment, RankRecord

_OPS = ("forward", "backward", "other_ops", "optimizer")
_COMMUNICATION = ("exposed_communication", "communication")
_HOST, _LAUNCH = ("host", "idle_host", "idle_launch"), ("idle_launch", "idle_sync", "idle_unknown")


class Variable(Struct, frozen=True):
    """A variable, by what it slows a training down, and where it does.

    parts   the parts of the step that it concerns
    values  those that do (in upper case); none: any that is not off; "*": any at all
    where   "host": without an accelerator; "device": with one; "ranks": in a job of several; "compiled"
    """

    name: str
    by: str
    parts: tuple[str, ...]
    values: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    def slows(self, environment: Environment, record: RankRecord, on_device: bool) -> bool:
        """Whether it is set so that it does, in a place where it does."""
        here = {
            "host": not on_device,
            "device": on_device,
            "ranks": record.world_size > 1,
            "compiled": bool(record.settings.compiled),
        }
        value = environment.get(self.name).upper()
        if not value or not all(here[place] for place in self.where):
            return False
        return value in self.values or self.values == ("*",) or (not self.values and environment.on(self.name))


_OLD = "vector instructions that nearly every CPU has are disabled in"
_PRINTS = "a line is printed for each matrix multiplication and convolution"
_CHECKS = "Python checks each block of memory that it allocates and frees"
_UNCACHED = "the driver allocates and frees the memory of each tensor, for which the host waits"

VARIABLES = (
    Variable("ATEN_CPU_CAPABILITY", f"{_OLD} PyTorch's own ops", _OPS, ("DEFAULT",), ("host",)),
    Variable("ONEDNN_MAX_CPU_ISA", f"{_OLD} matmuls and convolutions", _OPS, ("SSE41", "AVX"), ("host",)),
    Variable("DNNL_MAX_CPU_ISA", f"{_OLD} matmuls and convolutions", _OPS, ("SSE41", "AVX"), ("host",)),
    Variable("MKL_ENABLE_INSTRUCTIONS", f"{_OLD} matrix multiplications", _OPS, ("SSE4_2", "AVX"), ("host",)),
    Variable("ONEDNN_VERBOSE", _PRINTS, _OPS, where=("host",)),
    Variable("DNNL_VERBOSE", _PRINTS, _OPS, where=("host",)),
    Variable("MKL_VERBOSE", "a line is printed for each matrix multiplication", _OPS, where=("host",)),
    Variable("PYTHONDEVMODE", _CHECKS, _HOST),
    Variable("PYTHONMALLOC", _CHECKS, _HOST, ("DEBUG", "MALLOC_DEBUG", "PYMALLOC_DEBUG")),
    Variable("PYTHONTRACEMALLOC", "Python records where each of its objects was allocated", _HOST),
    Variable("TORCH_LOGS", "the compiler logs what it does", _HOST, ("*",), ("compiled",)),
    Variable("PYTORCH_NO_CUDA_MEMORY_CACHING", _UNCACHED, _LAUNCH, ("*",), ("device",)),
    Variable("PYTORCH_NO_HIP_MEMORY_CACHING", _UNCACHED, _LAUNCH, ("*",), ("device",)),
    Variable("NVIDIA_TF32_OVERRIDE", "TF32 is off, whatever the script chooses", ("compute",), ("0",), ("device",)),
    Variable(
        "TORCH_DISTRIBUTED_DEBUG",
        "each collective is checked for consistency over all ranks before it runs",
        _COMMUNICATION,
        ("DETAIL",),
        ("ranks",),
    ),
    Variable("NCCL_DEBUG", "NCCL prints a line for each call", _COMMUNICATION, ("TRACE",), ("ranks", "device")),
    Variable(
        "NCCL_P2P_DISABLE",
        "GPUs of one machine exchange data through host memory",
        _COMMUNICATION,
        where=("ranks", "device"),
    ),
    Variable(
        "NCCL_IB_DISABLE",
        "machines exchange data over TCP even if they have InfiniBand",
        _COMMUNICATION,
        where=("ranks", "device"),
    ),
    Variable(
        "NCCL_ALGO",
        "NCCL cannot choose how to exchange data by the size of the message",
        _COMMUNICATION,
        ("*",),
        ("ranks", "device"),
    ),
    Variable(
        "NCCL_PROTO",
        "NCCL cannot choose how to exchange data by the size of the message",
        _COMMUNICATION,
        ("*",),
        ("ranks", "device"),
    ),
    Variable(
        "TORCH_NCCL_BLOCKING_WAIT",
        "the host blocks in each collective that is waited for",
        _COMMUNICATION,
        where=("ranks", "device"),
    ),
)
