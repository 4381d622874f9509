"""Language models of the eleventh set: a loss in fp32, graphs of many lengths, shards across nodes, a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ..eighth_set.ranks import groups
from ..layers import Card, Tape, back, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import H100, MI300X
from .rows import COPY, FILL, Sized, elementwise, foreach, linear, mean, moved_as, node

NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float, …)"
NORM_BACK = (
    "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float, true>(…)",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float, 64u, true>(…)",
)
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>(…)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, LogSoftMaxBackwardEpilogue>",
)
INTER = 24


def flash(rt: Sized, tape: Tape, card: Card, dims: list[int], causal: bool = True) -> None:
    """`scaled_dot_product_attention` by FlashAttention."""
    us = card.product(prod(dims[:3]), dims[2], 2 * dims[3]) / (1.2 if causal else 0.6)
    outer, inner = "aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward"
    number = rt.op("aten::scaled_dot_product_attention", outer, inner, run=((card.attention[0], us),), gap=14,
                   dims=(dims,) * 3, kind=card.kind, graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductFlashAttentionBackward0", number, outer + "_backward",
                                "aten::_flash_attention_backward", run=((card.attention[1], 2.5 * us),), us=10,
                                dims=(dims,) * 4, kind=card.kind))  # fmt: skip


def upcast_norm(rt: Sized, tape: Tape, card: Card, x: list[int]) -> None:
    """RMSNorm as transformers writes it: in fp32, op by op."""
    wide = replace(card, kind="float")
    moved_as(rt, tape, card, x)
    elementwise(rt, tape, wide, "pow", x, back=(("pow", 2), ("mul", 3)))
    mean(rt, tape, wide, x)
    for name in ("add", "rsqrt"):
        elementwise(rt, tape, wide, name, [*x[:-1], 1], back=(("mul", 3),))
    elementwise(rt, tape, wide, "mul", x, back=(("mul", 3), ("mul", 3)))
    moved_as(rt, tape, card, x, kind="float")
    elementwise(rt, tape, card, "mul", x, back=(("mul", 3), ("mul", 3)))


def fused_norm(rt: Sized, tape: Tape, card: Card, x: list[int]) -> None:
    """`nn.RMSNorm`, one kernel since 2.8."""
    us = card.moves(4 * prod(x))
    number = rt.op("aten::rms_norm", "aten::_fused_rms_norm", run=((NORM, us),), dims=(x, x[-1:]), kind=card.kind,
                   graph=True, gap=9)  # fmt: skip
    tape.append(lambda: rt.grad("FusedRmsNormBackward0", number, "aten::_fused_rms_norm_backward", dims=(x, x),
                                kind=card.kind, run=((NORM_BACK[0], 1.5 * us), (NORM_BACK[1], us))))  # fmt: skip


def llama(rt: Sized, tape: Tape, card: Card, sizes: tuple[int, int, int, int, int], norm: Any) -> None:
    """A layer of (batch, length, width, keys' heads, width of the MLP), heads of 64 or 128."""
    batch, length, width, heads, hidden = sizes
    x, each = [batch, length, width], 64 if width < 3_000 else 128
    norm(rt, tape, card, x)
    for out in (width, heads * each, heads * each):
        linear(rt, tape, card, x, out)
    for count in (width // each, heads):
        states = [batch, count, length, each]
        for name in ("mul", "neg", "cat", "mul", "add"):
            elementwise(rt, tape, card, name, states, 2 if name != "neg" else 1,
                        () if name in ("add", "cat") else ((name, 3),))  # fmt: skip
    flash(rt, tape, card, [batch, width // each, length, each])
    linear(rt, tape, card, x, width)
    elementwise(rt, tape, card, "add", x, 2)
    norm(rt, tape, card, x)
    for _ in range(2):
        linear(rt, tape, card, x, hidden)
    elementwise(rt, tape, card, "silu", [batch, length, hidden], back=(("silu_backward", 3),))
    elementwise(rt, tape, card, "mul", [batch, length, hidden], 2, (("mul", 3), ("mul", 3)))
    linear(rt, tape, card, [batch, length, hidden], width)
    elementwise(rt, tape, card, "add", x, 2)


def logits(rt: Sized, fixed: bool) -> None:
    """transformers 4.44 on an MI300X: Llama-3.2-1B, logits of 128,256 to fp32 and shifted; without: compiled loss."""
    tape: Tape = []
    rt.batch(131_072, 131_072)
    for _ in range(16):
        llama(rt, tape, MI300X, (8, 2_048, 2_048, 8, 8_192), upcast_norm)
    upcast_norm(rt, tape, MI300X, [8, 2_048, 2_048])
    linear(rt, tape, MI300X, [8, 2_048, 2_048], 128_256)
    (compiled_loss if fixed else upcast_loss)(rt, tape, MI300X, 16_384, 128_256)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2.5e9), 6)
    foreach(rt, "_foreach_mul_", "BinaryOpListAlphaFunctor", MI300X.moves(5e9), 6)
    fused_adamw(rt, MI300X, 1.236e9 / 2)
    rt.host(500)


def upcast_loss(rt: Sized, tape: Tape, card: Card, tokens: int, classes: int) -> None:
    """`logits.float()`, `[..., :-1, :].contiguous()`, `CrossEntropyLoss`."""
    n, size = tokens * classes, [tokens, classes]
    moved_as(rt, tape, card, [8, tokens // 8, classes])
    copied = rt.op("aten::contiguous", "aten::clone", "aten::copy_", run=((COPY, card.moves(8 * n)),), graph=True,
                   dims=([8, tokens // 8 - 1, classes],))  # fmt: skip

    def sliced() -> None:
        with node(rt, "SliceBackward0", copied), rt.span("aten::slice_backward"):
            rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, card.moves(4 * n)),), gap=1, dims=(size,))
            rt.op("aten::copy_", run=((COPY, card.moves(8 * n)),), gap=1, dims=(size, size))

    tape.append(sliced)
    soft = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", dims=(size,), graph=True,
                 run=((SOFTMAX[0], card.moves(10 * n)),))  # fmt: skip
    chosen = rt.op("aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss_forward", graph=True, dims=(size, [tokens]),
                   run=(("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", 14),)
                   )  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", soft, "aten::_log_softmax_backward_data", dims=(size, size),
                                run=((SOFTMAX[1], card.moves(13 * n)),)))  # fmt: skip
    name = "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float>"
    tape.append(lambda: rt.grad("NllLossBackward0", chosen, "aten::nll_loss_backward", dims=([], size, [tokens]),
                                run=((FILL, card.moves(4 * n)), (name, 16))))  # fmt: skip


def compiled_loss(rt: Sized, tape: Tape, card: Card, tokens: int, classes: int) -> None:
    """The same by `torch.compile`: bf16 is read, nothing in fp32 is written."""
    n = tokens * classes
    rt.sequence += 1
    number = rt.sequence
    with rt.span("TorchDynamo Cache Lookup", us=20):
        pass
    with (
        rt.span("Torch-Compiled Region: 0/0", us=60),
        rt.span("CompiledFunction", us=30, **{"Sequence number": number}),
    ):
        rt.work(
            "triton_red_fused__log_softmax__to_copy_nll_loss_forward_0", card.moves(4 * n), call="ModuleLaunchKernel"
        )
        rt.work("triton_per_fused_nll_loss_forward_1", 6, call="ModuleLaunchKernel")

    def backward() -> None:
        with node(rt, "CompiledFunctionBackward", number):
            name = "triton_poi_fused__log_softmax__log_softmax_backward_data__to_copy_nll_loss_backward_2"
            rt.work(name, card.moves(4 * n), call="ModuleLaunchKernel")

    tape.append(backward)


def across(rt: Sized, fixed: bool) -> None:
    """FSDP, 32 H100 on 4 nodes with 4 links of 200 Gb/s each: FULL_SHARD; without: HYBRID_SHARD."""
    whole, tape, layer = 218_112_000, Tape(), list[int]()
    near, ranks = list(range(8, 16)), list(range(32))
    groups(
        rt,
        32,
        **({"default_pg": ranks, "shard": near, "replicate": [0, 8, 16, 24]} if fixed else {"default_pg": ranks}),
    )
    shards = {"ranks": near if fixed else ranks, "pg": "1" if fixed else "0", "behind": False}
    shards |= {"group": "shard"} if fixed else {}
    # 436 MB: within a node by NVLink, or over 100 GB/s of a node's links at 70 % of what they can
    us, part = (2_250, whole // 8) if fixed else (436e3 / 70, whole // 32)
    gather = partial(rt.collective, "_allgather_base", us, (part, whole), **shards)
    rt.batch(32_768, 32_768)
    ends, done = [0.0] * 18, [0.0] * 18
    with rt.span("FullyShardedDataParallel.forward", "user_annotation", us=300):
        for number in range(16):
            with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=120):
                limited(rt, done[number - 2] if number > 1 else 0)
                ends[number] = gather()
            rt.waits(MAIN, ends[number])
            start = len(tape)
            llama(rt, tape, H100, (1, 4_096, 4_096, 8, 14_336), fused_norm)
            layer.append(len(tape) - start)
            done[number] = rt.free[MAIN]
            with rt.span("FullyShardedDataParallel._post_forward", "user_annotation", us=60):
                pass
    last = 0.0
    with rt.backward():
        ahead = gather()
        for number in reversed(range(16)):
            with rt.span("FullyShardedDataParallel._pre_backward_hook", "user_annotation", us=90):
                rt.waits(MAIN, ahead)
                if number:
                    with rt.span("FullyShardedDataParallel._pre_backward_prefetch", "user_annotation", us=50):
                        limited(rt, done[number + 1])
                        ahead = gather()
            for _ in range(layer[number]):
                tape.pop()()
            done[number] = rt.free[MAIN]
            with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=80):
                end = rt.collective("_reduce_scatter_base", us, (whole, part), **{**shards, "behind": True})
                if fixed:
                    rt.free[INTER] = max(rt.free.get(INTER, 0), end)
                    # 27 M values of each of 8 ranks over the same links, three quarters of them twice
                    end = rt.collective("allreduce", 8 * part * 2 * 1.5 / 70e3, (part, part), stream=INTER, pg="2",
                                        group="replicate", ranks=[0, 8, 16, 24], behind=False)  # fmt: skip
                last = end
    rt.waits(MAIN, max(last, rt.free[LINKS]))
    foreach(rt, "_foreach_norm", "LpNormFunctor", 120, 2)
    fused_adamw(rt, H100, 16 * whole / (8 if fixed else 32) / 2)


def limited(rt: Sized, until: float) -> None:
    """`limit_all_gathers`: the host waits until parameters that were gathered before are freed."""
    with rt.span("FullyShardedDataParallel.rate_limiter", "user_annotation", us=8):
        if until:
            rt.call("EventSynchronize", 2, until=until)


def saved(rt: Sized, fixed: bool) -> None:
    """HF Trainer in DDP, rank 0 of 8: a checkpoint in the window, `torch.save` of 9.3 GB; without: async, staged."""
    rt.head = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1}}
    tape, count = Tape(), 46_797_824
    rt.batch(65_536, 65_536)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for _ in range(28):
            llama(rt, tape, H100, (4, 4_096, 1_536, 4, 8_960), fused_norm)
    linear(rt, tape, H100, [4, 4_096, 1_536], 151_936)
    n, size = 16_384 * 151_936, [16_384, 151_936]
    name = "liger_cross_entropy_kernel"
    number = rt.op("LigerCrossEntropyFunction", dims=(size,), kind=BF16, graph=True, us=40, run=(
        (name, H100.moves(6 * n)),))  # fmt: skip
    tape.append(lambda: rt.grad("LigerCrossEntropyFunctionBackward", number, run=(
        ("element_mul_kernel", H100.moves(4 * n)),)))  # fmt: skip
    layer, end = (len(tape) - 2) // 28, 0.0
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % layer == 0 and len(tape) < 28 * layer:
                for _ in range(3):
                    end = rt.collective("allreduce", count / 3 * 2 * 1.75 / 330e3, (count // 3,) * 2)
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(3.1e9), 8)
    foreach(rt, "_foreach_mul_", "BinaryOpListAlphaFunctor", H100.moves(6.2e9), 8)
    fused_adamw(rt, H100, 1.54e9 / 2)
    rt.host(300)
    if rt.number == 3:
        written(rt, fixed)


def written(rt: Sized, fixed: bool) -> None:
    """Weights, then AdamW's two states, each tensor copied and written; or copied to pinned memory, written beside."""
    shapes = ([1536, 1536], [256, 1536], [256, 1536], [1536, 1536], [8960, 1536], [8960, 1536], [1536, 8960], [1536])
    for states in range(3):
        for size in ([151_936, 1_536], *(size for _ in range(28) for size in shapes)):
            nbytes = 2 * prod(size)
            given = {"Input Dims": [size], "Input type": [BF16], "Input Strides": [[*size[1:], 1]]}
            outer = "aten::to" if states == 0 else "aten::copy_"
            with rt.span(outer, **given), rt.span("aten::_to_copy"), rt.span("aten::copy_", **given):
                place, memory = len(rt.rows), "Pinned" if fixed else "Pageable"
                rt.work(f"Memcpy DtoH (Device -> {memory})", 2 + nbytes / (22e3 if fixed else 6e3), call="MemcpyAsync",
                        category="gpu_memcpy", bytes=nbytes)  # fmt: skip
                if not fixed:
                    rt.now = max(rt.now, rt.free[MAIN] + 3)
                    rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)
                    rt.call("StreamSynchronize", 3)
            rt.host(15 if fixed else 40 + nbytes / 2_000)
    rt.call("StreamSynchronize", 3, until=rt.free[MAIN] + 3)
    rt.host(20_000)


_LENGTHS = (212, 187, 243, 212, 230, 187, 201, 254, 243, 230)
_RECORDED = (1, 8, 9)  # seen a second time
_FIRST = (2, 4, 6, 7)  # seen for the first time: run without a graph
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
A100 = Card(170, 1_450, BF16, (GEMM, GEMM), ("", ""))


def regraphed(rt: Sized, fixed: bool) -> None:
    """`mode="reduce-overhead"`, batches padded to their longest: a graph for each length; without: to 256."""
    length, at = (256, -1) if fixed else (_LENGTHS[rt.number], rt.number)
    ahead, behind = _kernels(32, length)
    rt.batch(32 * length * 8, 32 * length * 8)
    rt.sequence += 1
    number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("TorchDynamo Cache Lookup", us=35):
        pass
    with rt.span("Torch-Compiled Region: 0/1", us=90), rt.span("CompiledFunction", us=60, **number):
        replayed(rt, ahead, at, "fpk7xq3")
    run = (("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", 5),)
    rt.op("aten::cross_entropy_loss", run=run, dims=([32, 2], [32]), kind=BF16)
    with rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence):
        replayed(rt, behind, at, "fb2mz5d")
    foreach(rt, "_foreach_norm", "LpNormFunctor", 320, 3)
    fused_adamw(rt, A100, 109e6)


def _kernels(batch: int, length: int) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    tokens, one = batch * length, A100.moves(2 * batch * length * 768)
    small, large = A100.product(tokens, 768, 768), A100.product(tokens, 768, 3_072)
    core = A100.product(batch * 12 * length, length, 128) / 0.6
    names = ("triton_per_fused_add_native_layer_norm_{}", "triton_poi_fused_gelu_{}")
    ahead = [(names[0].format(2), 2 * one), (GEMM, 3 * small), ("flash_fwd_kernel", core), (GEMM, small),
             (names[0].format(4), 3 * one), (GEMM, large), (names[1].format(5), 8 * one), (GEMM, large)]  # fmt: skip
    behind = [(GEMM, large), (GEMM, large), (names[1].format("gelu_backward_9"), 12 * one), (GEMM, large),
              (GEMM, large), (names[0].format("backward_11"), 5 * one), (GEMM, small), (GEMM, small),
              ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 2.5 * core), (GEMM, 3 * small), (GEMM, 3 * small),
              (names[0].format("backward_13"), 5 * one), ("triton_red_fused_sum_14", 4 * one)]  # fmt: skip
    return ahead * 12, behind * 12


def replayed(rt: Sized, kernels: list[tuple[str, float]], at: int, name: str) -> None:
    """A graph's inputs and its launch; before it a recording, or in its place kernels one by one."""
    with rt.span(f"## Call CompiledFxGraph {name} ##", "user_annotation", us=25):
        if at in _FIRST:
            for kernel, us in kernels:
                rt.host(6)
                if kernel is GEMM:
                    rt.op("aten::mm", run=((kernel, us),), gap=2, us=6, kind=BF16)
                else:
                    rt.work(kernel, us, call="cuLaunchKernel" if "triton" in kernel else "")
            return
        foreach(rt, "_foreach_copy_", "CopyFunctor", 3, host=14)
        if at in _RECORDED:
            recorded(rt, kernels)
        correlation, called = len(rt.rows) + 1, rt.now
        rt.call("GraphLaunch", 70, correlation=correlation)
        begin = max(called + 15, rt.free[MAIN] + 1.2)
        for place, (kernel, us) in enumerate(kernels):
            end = begin + rt.vary(us)
            ids = {"device": 0, "stream": MAIN, "correlation": correlation, "graph id": at + 2, "graph node id": place}
            rt.row(kernel, "kernel", begin, end, MAIN, **ids)
            begin = end + 0.9
        rt.free[MAIN] = begin
        rt.queued.append(begin)


def recorded(rt: Sized, kernels: list[tuple[str, float]]) -> None:
    """`torch.cuda.graph`: waits, collects garbage, frees cached memory, captures what the kernels' launches queue."""
    rt.wait()
    rt.host(165_000)
    for _ in range(6):
        rt.call("Free", 420)
    rt.call("StreamBeginCapture", 12)
    for kernel, _ in kernels:
        rt.host(9)
        rt.call("cuLaunchKernel" if "triton" in kernel else "LaunchKernel", 4)
    rt.call("StreamEndCapture", 45)
    rt.call("GraphInstantiate", 25 * len(kernels))
