"""Twelve jobs in shapes that the sets before had not; each without its fault is its truth.

Drawn 27 November 2026, before anything was analysed, after how such jobs are recorded: GRPO with rollouts by graphs
(TRL, verl), `save_on_cpu` (torchtune), Transformer Engine with delayed scaling, `decode_jpeg` on the GPU, video
diffusion with a VAE in the loop, sparse convolutions, tables in managed memory (FBGEMM), ROCm and XPU; without a fault
packed fine-tuning (axolotl, Liger), `mode="reduce-overhead"`, DALI. The right and the wrong advice stands with each.
"""

from __future__ import annotations

from ..arrowed import Arrowed
from ..eighth_set import CUBLAS, Recording
from ..runtime import A100, COPIES, H100, MAIN, MI300
from ..seventh_set import BF16, GEMM, NODE, adamw
from .inputs import dali, decoded, managed, moved, sparse, waited

FP8 = "nvjet_qqtst_128x256_128x6_2x1_v_bz_TNT"
CAST = "void (anonymous namespace)::cast_transpose_general_kernel<8, 8, float, __nv_fp8_e4m3>"
SIMT = "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int)"
TF32 = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4"
PMAX = {"id": 0, "name": "Intel(R) Data Center GPU Max 1550"}


def layer(rt: Arrowed, number: int, us: float, norm_us: float) -> None:
    """Forward ops of a transformer's layer of 8,192 tokens: two products and attention of `us` each."""
    x, flat, weight = [8, 1024, 4096], [8192, 4096], [4096, 4096]
    with rt.span("aten::native_layer_norm", **{"Input Dims": [x], "Input type": [BF16]}):
        rt.work("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", norm_us)
    for part in range(2):
        shapes = {"Input Dims": [[4096], flat, weight], "Input type": [BF16] * 3, "Sequence number": 4 * number + part}
        with rt.span("aten::linear", **shapes), rt.span("aten::addmm", **shapes):
            rt.work(GEMM if rt.device is H100 else CUBLAS, us)
    attention = {"Input Dims": [[8, 32, 1024, 128]] * 3, "Input type": [BF16] * 3}
    with rt.span("aten::scaled_dot_product_attention", **attention, **{"Sequence number": 4 * number + 2}):
        rt.work("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", us / 4)
    with rt.span("aten::gelu", **{"Input Dims": [x], "Input type": [BF16]}):
        rt.work("void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>", norm_us)


def pageable(rt: Arrowed, nbytes: int, way: str) -> None:
    """A copy of 9 GB/s to or from memory that is not pinned: the call returns when it is done."""
    name = "Memcpy HtoD (Pageable -> Device)" if way == "HtoD" else "Memcpy DtoH (Device -> Pageable)"
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        place = len(rt.rows)
        end = rt.work(name, nbytes / 9e3, category="gpu_memcpy", call="MemcpyAsync", bytes=nbytes)
        rt.rows[place]["dur"] = round(end + 3 - rt.rows[place]["ts"], 3)
        rt.now = end + 3
        rt.call("StreamSynchronize", 3)


def layers_back(rt: Arrowed, number: int, us: float, gemm: str = GEMM) -> None:
    """Backward pass of one of `block`'s layers, on autograd's thread."""
    for part, name in ((2, "ScaledDotProductFlashAttentionBackward0"), (1, "AddmmBackward0"), (0, "AddmmBackward0")):
        node = {"Sequence number": 4 * number + part, "Fwd thread id": 1}
        with rt.span(NODE + name, **node), rt.span(name, **node):
            for _ in range(2):
                rt.work("void flash_bwd_kernel" if part == 2 else gemm, us / 6)


def graph(rt: Arrowed, kernels: tuple[tuple[str, float], ...], times: int) -> None:
    """A CUDA graph; its kernels have the correlation of its launch."""
    correlation, called = len(rt.rows) + 1, rt.now
    rt.call("GraphLaunch", 60, correlation=correlation)
    at = max(called + 15, rt.free[MAIN] + 1.2)
    for number in range(times * len(kernels)):
        name, us = kernels[number % len(kernels)]
        us = rt.vary(us)
        ids = {"device": 0, "stream": MAIN, "correlation": correlation, "graph id": 9, "graph node id": number}
        rt.row(name, "kernel", at, at + us, MAIN, **ids)
        at += us + 0.9
    rt.free[MAIN] = at
    rt.queued.append(at)


def rollouts(rt: Arrowed, fixed: bool) -> None:
    """GRPO: 40 tokens by a graph, each checked for stop strings in Python; without: a token later, while it runs."""
    tokens = (("triton_red_fused_rms_norm_0", 9.0), (GEMM, 62.0), ("paged_attention_v2_kernel", 20.0))
    for token in range(40):
        with rt.span("aten::copy_"):
            rt.copy(4096)
        graph(rt, tokens, 64)
        with rt.span("aten::argmax"):
            rt.work("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, ArgMaxOps>>", 20)
        if fixed:
            rt.copy(1024, "DtoH", "Pinned")
            rt.now = max(rt.now, rt.free[MAIN] - 5_000 if token else 0)
        else:
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(1024, "DtoH", "Pageable")
            rt.host(2_600)
    for number in range(16):
        layer(rt, number, 700, 54)
    with rt.backward():
        for number in reversed(range(16)):
            layers_back(rt, number, 3_200)
    adamw(rt, 2_200)


def offloaded(rt: Arrowed, fixed: bool) -> None:
    """`save_on_cpu()`: 134 MB of each layer to pageable memory and back; without: pinned, on a stream of its own."""
    size = 134_217_728
    for number in range(12):
        layer(rt, number, 1_700, 90)
        if fixed:
            with rt.span("aten::copy_"):
                rt.free[COPIES] = max(rt.free.get(COPIES, 0), rt.free[MAIN])
                rt.copy(size, "DtoH", "Pinned", stream=COPIES)
        else:
            pageable(rt, size, "DtoH")
    with rt.backward():
        for number in reversed(range(12)):
            if fixed:
                with rt.span("aten::copy_"):
                    rt.copy(size, stream=COPIES)
            else:
                pageable(rt, size, "HtoD")
            layers_back(rt, number, 7_800, CUBLAS)
    adamw(rt, 2_000)


def delayed(rt: Arrowed, fixed: bool) -> None:
    """Transformer Engine, 4 micro-batches: weights are cast in each; without: in the first (`is_first_microbatch`)."""
    for micro in range(4):
        for number in range(12):
            for part, name in enumerate(("_LayerNormLinear", "_Linear", "_LayerNormMLP")):
                with rt.span(name, us=35, **{"Sequence number": 100 * micro + 4 * number + part}):
                    if micro == 0 or not fixed:
                        rt.work(CAST, 90)
                    rt.work(CAST, 40)
                    rt.work(FP8, 420)
            with rt.span("FusedAttnFunc", us=20, **{"Sequence number": 100 * micro + 4 * number + 3}):
                rt.work("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", 300)
        with rt.backward():
            for number in reversed(range(12)):
                parts = ((3, "FusedAttnFunc"), (2, "_LayerNormMLP"), (1, "_Linear"), (0, "_LayerNormLinear"))
                for part, name in parts:
                    node = {"Sequence number": 100 * micro + 4 * number + part, "Fwd thread id": 1}
                    with rt.span(f"{NODE}{name}Backward", **node), rt.span(f"{name}Backward", **node):
                        rt.work(CAST.replace("e4m3", "e5m2"), 40)
                        for _ in range(2):
                            rt.work(FP8, 400)
    given = {"ranks": list(range(8)), "dtype": "Float", "kernel": "AllReduce_Max_f32_RING_LL"}
    end = rt.collective("allreduce", 45, (4_096, 4_096), **given)
    rt.waits(MAIN, end)
    adamw(rt, 1_800)


def encoded(rt: Arrowed, fixed: bool) -> None:
    """A frozen VAE in fp32 before a transformer in bf16, TF32 off for cuDNN; without: in TF32, 2.6 times as fast."""
    shape = {"Input Dims": [[1, 256, 5, 120, 208], [256, 256, 3, 3, 3]], "Input type": ["float", "float"]}
    for _ in range(14):
        with (
            rt.span("aten::conv3d", **shape),
            rt.span("aten::convolution", **shape),
            rt.span("aten::_convolution"),
            rt.span("aten::cudnn_convolution", **shape),
        ):
            rt.work(TF32 if fixed else SIMT, 3_600 if fixed else 9_400)
        norm = {"Input Dims": [[1, 256, 5, 120, 208]], "Input type": ["float"]}
        with rt.span("aten::native_group_norm", **norm):
            rt.work("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float, float>", 120)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.work("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", 15)
    for number in range(24):
        layer(rt, number, 700, 54)
    with rt.backward():
        for number in reversed(range(24)):
            layers_back(rt, number, 3_200)
    adamw(rt, 3_000)


def packed(rt: Arrowed, fixed: bool) -> None:
    """Packed sequences: FlashAttention by lengths, Liger's loss, LoRA in bf16."""
    fwd = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, true>"
    x = [1, 16384, 4096]
    for number in range(16):
        with rt.span("LigerRMSNormFunction", us=15, **{"Sequence number": 8 * number}):
            rt.work(
                "_rms_norm_forward_kernel",
                130,
            )
        for part in range(3):
            shapes = {"Input Dims": [x, [4096, 4096]], "Input type": [BF16, BF16], "Sequence number": 8 * number + part}
            with rt.span("aten::linear", **shapes), rt.span("aten::mm", **shapes):
                rt.work(GEMM, 900)
            for small in ([[16384, 4096], [4096, 16]], [[16384, 16], [16, 4096]]):
                with rt.span("aten::linear"), rt.span("aten::mm", **{"Input Dims": small, "Input type": [BF16, BF16]}):
                    rt.work(GEMM, 62)
        with rt.span("flash_attn::_flash_attn_varlen_forward", us=20, **{"Sequence number": 8 * number + 4}):
            rt.work(fwd, rt.vary(1_500, 0.2))
    with rt.span("LigerFusedLinearCrossEntropyFunction", us=90, **{"Sequence number": 900}):
        for _ in range(8):
            rt.work(GEMM, 700)
            rt.work("liger_cross_entropy_kernel", 210, call="LaunchKernel")
    with rt.backward():
        for number in reversed(range(16)):
            for part in (4, 2, 1, 0):
                node = {"Sequence number": 8 * number + part, "Fwd thread id": 1}
                name = "FlashAttnVarlenFuncBackward" if part == 4 else "MmBackward0"
                with rt.span(NODE + name, **node), rt.span(name, **node):
                    rt.work("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel" if part == 4 else GEMM, 1_900)
    adamw(rt, 150)


def replayed(rt: Arrowed, fixed: bool) -> None:
    """`mode="reduce-overhead"`: a graph forward, one backward; inputs go to its static memory."""
    with rt.span("Torch-Compiled Region: 0/0", us=60), rt.span("CompiledFunction", **{"Sequence number": rt.number}):
        with rt.span("aten::copy_"):
            rt.copy(6 << 20, stream=MAIN)
        graph(
            rt, (("triton_red_fused_native_layer_norm_0", 40.0), (GEMM, 210.0), ("triton_poi_fused_gelu_1", 35.0)), 48
        )
    with rt.backward():
        node = {"Sequence number": rt.number, "Fwd thread id": 1}
        with rt.span(NODE + "CompiledFunctionBackward", us=50, **node), rt.span("CompiledFunctionBackward", **node):
            graph(rt, (("triton_red_fused_native_layer_norm_backward_3", 70.0), (GEMM, 215.0), (GEMM, 220.0)), 48)
    adamw(rt, 700)


JOBS = (
    Recording("rollouts", H100, rollouts, "host work after each token", ("sync-in-loop", "idle-gpu"), 5,
              silent=("launch-bound", "small-batch", "input-bound")),
    Recording("offloaded", A100, offloaded, "activations go to pageable memory", ("blocking-copies", "pageable-copies"),
              6, silent=("DataLoader(pin_memory=True)", "fewer reads", "copy once after the epoch")),
    Recording("delayed", H100, delayed, "weights are cast in each micro-batch", ("repeated-casts",), 5,
              silent=("exposed-communication", "fp32-matmul")),
    Recording("decoded", A100, decoded, "images are decoded one by one in the loop", ("tensor-loop", "launch-bound",
              "sync-in-loop"), 6, silent=("compile the model",)),
    Recording("encoded", H100, encoded, "convolutions of the VAE in fp32", ("fp32-matmul",), 5,
              silent=("autocast of the whole model",)),
    Recording("sparse", A100, sparse, "index pairs of each layer are made again, sizes are read", ("sync-in-loop",), 8,
              False, silent=("read every N steps",)),
    Recording("managed", A100, managed, "tables in managed memory", ("slow-kernels",), 8,
              silent=("input-bound", "num_workers")),
    Recording("moved", MI300, moved, "batches are copied in line, the host waits", ("pageable-copies",
              "blocking-copies", "idle-gpu"), 8, False, True),
    Recording("waited", PMAX, waited, "the loss is read in each step", ("sync-in-loop", "idle-gpu"), 8, False),
    Recording("packed", H100, packed, "nothing", (), 6, silent=("small-batch", "fp32-matmul")),
    Recording("replayed", H100, replayed, "nothing: all is graphs", (), 10, silent=("launch-bound",)),
    Recording("dali", A100, dali, "nothing: images are decoded ahead, beside the kernels", (), 8, False,
              silent=("input-bound", "device-copies")),
)  # fmt: skip


def run(job: Recording, *, fixed: bool = False) -> Arrowed:
    """Some steps of a job."""
    rt = Arrowed(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, xpu=job.device is PMAX)
    if job.name == "delayed":
        rt.head = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
