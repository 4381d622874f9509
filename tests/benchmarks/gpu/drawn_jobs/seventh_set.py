"""Ten jobs as people reported them; each without its fault is its truth.

Drawn 26 November 2026, before any rule was read for them, from: vllm-project/vllm#6854 and sgl-project/sglang#5593
(decoding), pytorch/pytorch#89753 and NVIDIA/apex#304 (loader and prefetcher), pytorch/pytorch#135837 (allocator),
Lightning-AI/pytorch-lightning#20995 and meta-pytorch/torchtune#522 (logging), pytorch/pytorch#163153 (FSDP2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .runtime import A100, COPIES, H100, LINKS, MAIN, MI300, Runtime

BF16, GEMM = "c10::BFloat16", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN"
NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class Job:
    """truth: what is wrong, or that nothing is;  rules: which may name it;  none: healthy."""

    name: str
    device: dict[str, object]
    step: Callable[[Any, bool], None]  # of a runtime and whether it is without its fault
    truth: str
    rules: tuple[str, ...] = ()
    steps: int = 8
    shapes: bool = True
    rocm: bool = False


def block(rt: Runtime, number: int, us: float, *, tokens: int = 8192, width: int = 4096, gemm: str = GEMM) -> None:
    """Forward ops of a transformer's layer."""
    x, weight = [tokens, width], [width, width]
    with rt.span("aten::native_layer_norm", **{"Input Dims": [[8, tokens // 8, width]], "Input type": [BF16]}):
        rt.work("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", us / 16)
    for part in range(2):
        shapes = {"Input Dims": [[width], x, weight], "Input type": [BF16] * 3, "Sequence number": 4 * number + part}
        with rt.span("aten::linear", **shapes), rt.span("aten::addmm", **shapes):
            rt.work(gemm, us / 4)
    attention = {"Input Dims": [[8, 32, tokens // 8, 128]] * 3, "Input type": [BF16] * 3}
    with rt.span("aten::scaled_dot_product_attention", **attention, **{"Sequence number": 4 * number + 2}):
        rt.work("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", us / 4)
    with rt.span("aten::gelu", **{"Input Dims": [[8, tokens // 8, width]], "Input type": [BF16]}):
        rt.work("void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>", us / 16)


def backward(rt: Runtime, layers: int, us: float, gemm: str = GEMM, first: int = 0) -> None:
    """Twice the forward pass, last layer first."""
    for number in reversed(range(first, first + layers)):
        for part, name in (
            (2, "ScaledDotProductFlashAttentionBackward0"),
            (1, "AddmmBackward0"),
            (0, "AddmmBackward0"),
        ):
            with rt.span(NODE + name, **{"Sequence number": 4 * number + part, "Fwd thread id": 1}):
                for _ in range(2):
                    rt.work("void flash_bwd_kernel" if part == 2 else gemm, us / 3)


def adamw(rt: Runtime, us: float) -> None:
    """A fused optimizer."""
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=40), rt.span("aten::_fused_adamw_"):
        rt.work("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", us)


def decode(rt: Runtime, fixed: bool) -> None:
    """Scheduling and detokenizing in Python between two replays of a graph; without: on a thread, a step ahead."""
    rt.host(200 if fixed else 4_000)
    for nbytes in (512, 512, 1024, 16384):
        with rt.span("aten::copy_"):
            rt.copy(nbytes)
    correlation, called = len(rt.rows) + 1, rt.now
    rt.call("GraphLaunch", 80, correlation=correlation)
    at = max(called + 15, rt.free[MAIN] + 1.2)
    for number in range(320):
        us = rt.vary(60 if number % 4 else 12)
        ids = {"device": 0, "stream": MAIN, "correlation": correlation, "graph node id": number}
        rt.row(GEMM if number % 4 else "triton_red_fused_rms_norm_0", "kernel", at, at + us, MAIN, **ids)
        at += us + 0.9
    rt.free[MAIN] = at
    for name in ("aten::softmax", "aten::multinomial"):
        with rt.span(name):
            rt.work("void at::native::cunn_SoftMaxForward", 40)
    if not fixed:
        with rt.span("aten::to"), rt.span("aten::copy_"):
            rt.copy(2048, "DtoH", "Pageable")
    else:
        rt.copy(2048, "DtoH", "Pinned")
        rt.call("EventSynchronize", 2, until=rt.free[MAIN] - 12_000)


def starved(rt: Runtime, fixed: bool) -> None:
    """Workers are slower than the step; their batches are copied ahead on a stream of their own."""
    start = rt.now
    rt.host(150 if fixed else max(200.0, 1_000_000 + 52_000 * (rt.number + 1) - rt.now))
    rt.row("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", start, rt.now)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        end = rt.copy(77 << 20, stream=COPIES)
    rt.waits(MAIN, end)
    for number in range(12):
        block(rt, number, 800)
    backward(rt, 12, 800)
    adamw(rt, 500)
    rt.read()


def churned(rt: Runtime, fixed: bool) -> None:
    """Lengths vary; memory that is cached has the wrong sizes, is freed, and allocated again."""
    longer = (1.0, 1.3, 0.8, 1.15, 0.9, 1.4, 0.75, 1.1)[rt.number % 8]
    for number in range(16):
        if not fixed and number in (3, 9):
            with rt.span("aten::empty"):
                rt.call("Malloc", 120)
                rt.call("DeviceSynchronize", 4, until=max(rt.free.values()))
                for _ in range(6):
                    rt.call("Free", 900)
                rt.call("Malloc", 1_500)
        block(rt, number, 1_500 * longer, tokens=int(8 * 128 * longer) * 8)
    backward(rt, 16, 1_500 * longer)
    adamw(rt, 2_000)


def logged(rt: Runtime, fixed: bool) -> None:
    """The loss is read after the optimizer's step; then hooks and a progress bar run before anything is launched."""
    for number in range(16):
        block(rt, number, 500)
    backward(rt, 16, 500)
    adamw(rt, 1_000)
    if not fixed:
        rt.read()
    rt.host(2_500)


def gathered(rt: Runtime, fixed: bool) -> None:
    """FSDP2: each layer's parameters are gathered as it is reached, after a wait of the host for the one before."""
    rt.head = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}
    args = {"Collective name": "_allgather_base", "In msg nelems": 25_000_000, "Out msg nelems": 200_000_000}
    args |= {
        "dtype": "BFloat16",
        "Group size": 8,
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
    }
    done = 0.0
    for way in ("FSDP::pre_forward", "FSDP::pre_backward"):
        for number in range(16):
            hidden = fixed or way.endswith("backward")
            with (
                rt.span(f"{way} (layers.{number})", us=20),
                rt.span("FSDP::all_gather", us=10),
                rt.span("c10d::_allgather_base_"),
            ):
                if not hidden:
                    rt.free[LINKS] = max(rt.free.get(LINKS, 0), rt.free[MAIN])
                end = rt.work(
                    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1_300, stream=LINKS, **args
                )
            rt.waits(MAIN, done if hidden and number else end)
            done = end
            if way.endswith("forward"):
                block(rt, number, 2_500)
            else:
                backward(rt, 1, 2_500)
    adamw(rt, 1_500)


def recompiled(rt: Runtime, fixed: bool) -> None:
    """Another length of the batch compiles the model again, in two of the recorded steps."""
    if not fixed and rt.number in (2, 5):
        with rt.span("_compile.compile_inner (dynamo_timed)", "user_annotation"):
            rt.host(900_000)
            with rt.span("compile_fx_inner (dynamo_timed)", "user_annotation"):
                rt.host(700_000)
    with rt.span(f"Torch-Compiled Region: 0/{rt.number // 3}", us=60):
        for number in range(24):
            rt.work("triton_poi_fused_gelu_1" if number % 3 else GEMM, 400)
    with rt.span(NODE + "CompiledFunctionBackward", us=60), rt.span("CompiledFunctionBackward"):
        for number in range(24):
            rt.work("triton_red_fused_native_layer_norm_backward_2" if number % 3 else GEMM, 800)
    adamw(rt, 900)


def evaluated(rt: Runtime, fixed: bool) -> None:
    """HF Trainer: one of the steps holds a short evaluation, which reads its losses."""
    for number in range(24):
        block(rt, number, 1_200)
    backward(rt, 24, 1_200)
    adamw(rt, 1_500)
    if rt.number == 5 and not fixed:
        for _ in range(4):
            for number in range(24):
                block(rt, number, 1_200)
            rt.host(6_000)
            rt.read("aten::gather")


def checkpointed(rt: Runtime, fixed: bool) -> None:
    """ROCm, no shapes: the backward pass runs each layer's forward again, which ran without gradients before."""
    gemm, first = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1", 100 * rt.number
    for number in range(12):
        begun = len(rt.rows)
        block(rt, number, 1_600, gemm=gemm)
        for row in rt.rows[begun:]:
            row["args"].pop("Sequence number", None)
    for number in reversed(range(12)):
        with rt.span(NODE + "CheckpointFunctionBackward", **{"Sequence number": 1_000_000 + first + number}):
            if not fixed:
                block(rt, first + number, 1_600, gemm=gemm)
            backward(rt, 1, 1_600, gemm, first + number)
    adamw(rt, 1_800)


def denoised(rt: Runtime, fixed: bool) -> None:
    """A diffusion pipeline: each of its steps looks up the timestep on the device, and is long enough to hide it."""
    with rt.span("scheduler_step", "user_annotation"):
        if not fixed:
            with rt.span("aten::nonzero"):
                rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel", 4)
                rt.copy(8, "DtoH", "Pageable")
    for number in range(40):
        block(rt, number, 1_100)


def rescaled(rt: Runtime, fixed: bool) -> None:
    """A GPU-bound loop whose loss scale is read once a step by GradScaler, before the optimizer's step."""
    for number in range(16):
        block(rt, number, 900)
    backward(rt, 16, 900)
    with rt.span("aten::_amp_foreach_non_finite_check_and_unscale_"):
        rt.work("void at::native::multi_tensor_apply_kernel<unscale>", 300)
    if not fixed:
        rt.read()
    adamw(rt, 900)
    rt.host(300)


JOBS = (
    Job("decode", H100, decode, "the host prepares each token while the GPU idles", ("sync-in-loop", "idle-gpu")),
    Job("starved", A100, starved, "workers are slower than the step", ("input-bound",)),
    Job("churned", A100, churned, "cudaFree and cudaMalloc in each step", ("allocator-churn",)),
    Job("logged", H100, logged, "the loss is read in each step", ("sync-in-loop",)),
    Job("gathered", H100, gathered, "forward gathers are not ahead", ("exposed-communication", "late-shard-gathers")),
    Job("recompiled", H100, recompiled, "lengths that compile again", ("recompiles",)),
    Job("evaluated", A100, evaluated, "nothing: an evaluation lies in one step"),
    Job(
        "checkpointed",
        MI300,
        checkpointed,
        "activations are recomputed",
        ("recomputed-activations",),
        shapes=False,
        rocm=True,
    ),
    Job("denoised", H100, denoised, "nothing worth a change: a read that 44 ms of work follow"),
    Job("rescaled", A100, rescaled, "nothing that can go: GradScaler reads whether gradients are finite"),
)


def run(job: Job, *, fixed: bool = False) -> Runtime:
    """Some steps of a job."""
    rt = Runtime(job.device, shapes=job.shapes, rocm=job.rocm)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
