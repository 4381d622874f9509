"""The events and devices that drawings are made of."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Ev(Struct, frozen=True):
    """An event of a drawing.

    launches  the device work that an op launches: "kernel", "memcpy", "memset", "collective", "" for none;
              None: by its name
    blocks    after its launch the op waits in cudaStreamSynchronize until its box ends
    times     the box contains that many equal events one after another, each taking the share `fill` of its slot
    """

    name: str
    cat: str = ""
    launches: str | None = None
    blocks: bool = False
    times: int = 1
    fill: float = 1.0
    bytes: int | None = None
    dims: list[Any] | None = None  # of a list of tensors a list of theirs
    dtypes: list[str] | None = None
    args: dict[str, Any] = field(default_factory=dict)
    implied: bool = False  # `launches` was read off the name


# The words that rules need most.
NEXT = Ev("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation")
NEXT_WORKERS = Ev("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation")
FORWARD = Ev("aten::linear")
BACKWARD = Ev("autograd::engine::evaluate_function: AddmmBackward0")
OPTIMIZER = Ev("Optimizer.step#SGD.step", "user_annotation")
ZERO_GRAD = Ev("Optimizer.zero_grad#SGD.zero_grad", "user_annotation")
ITEM = Ev("aten::item", launches="memcpy", blocks=True)
TO = Ev("aten::to", launches="memcpy")
TO_BLOCKING = Ev("aten::to", launches="memcpy", blocks=True)
SYNC = Ev("cudaDeviceSynchronize", "cuda_runtime")
GEMM = Ev("ampere_sgemm_128x64_tn", "kernel")
ELEMENTWISE = Ev("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", "kernel")
H2D_PAGEABLE = Ev("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=8 << 20)
H2D_PINNED = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=8 << 20)
D2H_PAGEABLE = Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=4)
ALLREDUCE = Ev("c10d::allreduce_", launches="collective")
NCCL = Ev(
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "kernel",
    args={"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1_000_000, "Group size": 2},
)
GLOO = Ev("gloo:all_reduce", "user_annotation")


def _device(name: str, capability: tuple[int, int], multiprocessors: int, memory_gib: int) -> dict[str, Any]:
    return {
        "name": name,
        "computeMajor": capability[0],
        "computeMinor": capability[1],
        "numSms": multiprocessors,
        "totalGlobalMem": memory_gib << 30,
    }


DEVICES: dict[str, dict[str, Any]] = {
    "V100": _device("Tesla V100-SXM2-32GB", (7, 0), 80, 32),
    "A100": _device("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80),
    "H100": _device("NVIDIA H100 80GB HBM3", (9, 0), 132, 80),
    # The MI300X reports major 9, as an H100 does.
    "MI300X": _device("AMD Instinct MI300X", (9, 4), 304, 192),
    "RX7900XTX": _device("AMD Radeon RX 7900 XTX", (11, 0), 48, 24),
}
