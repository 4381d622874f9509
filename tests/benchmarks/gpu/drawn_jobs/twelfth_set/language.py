"""Language models of the twelfth set: adapters with eager attention, a server, GPT-2 in DDP, FSDP2, a compiled one."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighth_set.ranks import groups
from ..eleventh_set.language import SOFTMAX, flash, fused_norm, llama, upcast_loss, upcast_norm
from ..eleventh_set.rows import COPY, elementwise, foreach, moved_as, node
from ..eleventh_set.small import encoder
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100, MI300X, TENSILE
from .rows import Framed, adapter, frozen

AMPERE = ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
          "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nt")  # fmt: skip
A100 = Card(215, 1_450, BF16, AMPERE, FLASH)
A10G = Card(58, 480, BF16, AMPERE, FLASH)


def eager_attention(rt: Framed, tape: Tape, card: Card, dims: list[int]) -> None:
    """`attn_implementation="eager"`: scores, a scale, a mask, softmax in fp32, of (batch, heads, length, width)."""
    batch, heads, length, width = dims
    scores, wide = [batch, heads, length, length], replace(card, kind="float")
    us, n = card.product(batch * heads * length, length, width), prod(scores)
    us = max(us, card.moves(card.size * n))

    def product(left: list[int], right: list[int]) -> None:
        number = rt.op("aten::matmul", "aten::bmm", run=((card.names[0], us),), dims=(left, right), kind=card.kind,
                       graph=True, gap=16)  # fmt: skip
        tape.append(lambda: rt.grad("BmmBackward0", number, "aten::bmm", run=((card.names[1], us),) * 2,
                                    dims=(left, right), kind=card.kind))  # fmt: skip

    for _ in range(2):  # keys and values of each group of heads
        rt.op("aten::reshape", "aten::clone", "aten::copy_", run=((COPY, card.moves(4 * prod(dims))),), dims=(dims,),
              kind=card.kind, gap=14)  # fmt: skip
    product([batch * heads, length, width], [batch * heads, width, length])
    elementwise(rt, tape, card, "mul", scores, back=(("mul", 2),))
    elementwise(rt, tape, card, "add", scores, 2)
    moved_as(rt, tape, card, scores)
    number = rt.op("aten::softmax", "aten::_softmax", graph=True, dims=(scores,), run=(
        (SOFTMAX[0].replace("LogSoftMax", "SoftMax"), wide.moves(8 * n)),))  # fmt: skip
    tape.append(lambda: rt.grad("SoftmaxBackward0", number, "aten::_softmax_backward_data", dims=(scores, scores), run=(
        (SOFTMAX[1].replace("LogSoftMax", "SoftMax"), wide.moves(12 * n)),)))  # fmt: skip
    moved_as(rt, tape, card, scores, kind="float")
    product([batch * heads, length, length], [batch * heads, length, width])
    rt.op("aten::contiguous", "aten::clone", "aten::copy_", run=((COPY, card.moves(4 * prod(dims))),), dims=(dims,),
          kind=card.kind, gap=8)  # fmt: skip


def qwen(rt: Framed, tape: Tape, card: Card, sizes: tuple[int, int, int, int, int], *, eager: bool,
         liger: bool = False) -> None:  # fmt: skip
    """A frozen layer of (batch, length, width, keys' heads, width of the MLP) with adapters at queries and values."""
    batch, length, width, heads, hidden = sizes
    x, each = [batch, length, width], 128
    normed = fused_norm if liger else upcast_norm
    with rt.frame("nn.Module: Qwen2DecoderLayer_7"):
        normed(rt, tape, card, x)
        for place, out in enumerate((width, heads * each, heads * each)):
            frozen(rt, tape, card, x, out)
            if place != 1:
                adapter(rt, tape, card, x, out)
        for count in (width // each, heads):
            states = [batch, count, length, each]
            for name in ("mul",) if liger else ("mul", "neg", "cat", "mul", "add"):
                elementwise(rt, tape, card, name, states, 2 if name != "neg" else 1,
                            () if name in ("add", "cat") else ((name, 3),))  # fmt: skip
        (eager_attention if eager else flash)(rt, tape, card, [batch, width // each, length, each])
        frozen(rt, tape, card, x, width)
        elementwise(rt, tape, card, "add", x, 2)
        normed(rt, tape, card, x)
        for _ in range(2):
            frozen(rt, tape, card, x, hidden)
        wide = [batch, length, hidden]
        elementwise(rt, tape, card, "silu", wide, back=(("silu_backward", 3),))
        elementwise(rt, tape, card, "mul", wide, 2, (("mul", 3), ("mul", 3)))
        frozen(rt, tape, card, wide, width)
        elementwise(rt, tape, card, "add", x, 2)


def trainer_end(rt: Framed, card: Card, parameters: float) -> None:
    """HF Trainer after the backward pass: a look for NaN, clipping, the optimizer, the loss for the log."""
    for name in ("isnan", "isinf"):
        rt.op(f"aten::{name}", run=((COPY, 3),), dims=([],))
        rt.value("aten::is_nonzero")
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * parameters), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", card.moves(8 * parameters), 2)
    fused_adamw(rt, card, parameters)
    rt.host(900)


def adapted(rt: Framed, fixed: bool) -> None:
    """Qwen2.5-7B, LoRA, Trainer with `bf16=True`; attention is eager; without: `sdpa`."""
    tape: Tape = []
    rt.batch(4 * 2_048 * 8, 4 * 2_048 * 8, 4 * 2_048 * 8)
    for _ in range(28):
        qwen(rt, tape, H100, (4, 2_048, 3_584, 4, 18_944), eager=not fixed)
    upcast_norm(rt, tape, H100, [4, 2_048, 3_584])
    frozen(rt, tape, H100, [4, 2_048, 3_584], 152_064)
    upcast_loss(rt, tape, H100, 8_192, 152_064)
    back(rt, tape)
    trainer_end(rt, H100, 5e6)


def cut(rt: Framed, fixed: bool) -> None:
    """Qwen2.5-1.5B, LoRA, Liger's kernels, on an A100; the window opens and ends within steps."""
    tape: Tape = []
    rt.batch(65_536, 65_536, 65_536)
    for layer in range(28):
        qwen(rt, tape, A100, (8, 2_048, 1_536, 2, 8_960), eager=False, liger=True)
        if rt.number == 4 and layer == 17:
            return
    fused_norm(rt, tape, A100, [8, 2_048, 1_536])
    n, size = 16_384 * 151_936, [16_384, 151_936]
    us = A100.product(16_384, 151_936, 1_536)
    part = ((AMPERE[0], us / 8), ("liger_cross_entropy_kernel", A100.moves(6 * n / 8)), (AMPERE[1], us / 8))
    name = "LigerFusedLinearCrossEntropyFunction"
    number = rt.op(name, dims=(size,), kind=BF16, graph=True, us=400, run=part * 8)
    tape.append(lambda: rt.grad(f"{name}Backward", number, run=(
        ("element_mul_kernel", A100.moves(4 * 16_384 * 1_536)),)))  # fmt: skip
    back(rt, tape)
    trainer_end(rt, A100, 2.2e6)
    if rt.number == 0:
        rt.opens = rt.free[MAIN] - 0.6 * (rt.free[MAIN] - 1_000_000)


ROPE = "void vllm::rotary_embedding_kernel<__hip_bfloat16, true>(long const*, __hip_bfloat16*, __hip_bfloat16*, …)"
PAGED = "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0, 16>"
SERVED = (
    ("_C::fused_add_rms_norm", "void vllm::fused_add_rms_norm_kernel<__hip_bfloat16, 8>(__hip_bfloat16*, …)", 5),
    ("aten::linear", TENSILE[0], 18),
    ("_C::rotary_embedding", ROPE, 4),
    ("_C_cache_ops::reshape_and_cache", "void vllm::reshape_and_cache_kernel<__hip_bfloat16, __hip_bfloat16>(…)", 4),
    ("_rocm_C::paged_attention", PAGED, 22),
    ("aten::linear", TENSILE[0], 13),
    ("_C::fused_add_rms_norm", "void vllm::fused_add_rms_norm_kernel<__hip_bfloat16, 8>(__hip_bfloat16*, …)", 5),
    ("aten::linear", TENSILE[0], 64),
    ("_C::silu_and_mul", "void vllm::act_and_mul_kernel<__hip_bfloat16, &vllm::silu_kernel<__hip_bfloat16>, true>", 5),
    ("aten::linear", TENSILE[0], 36),
)


def served(rt: Framed, fixed: bool) -> None:
    """vLLM decodes 16 sequences of Llama-3.1-8B with `enforce_eager=True`; without: a graph for each token."""
    with rt.span("Scheduler.schedule", "user_annotation", us=40):
        rt.host(500)
    for nbytes in (64, 64, 128, 16_384):
        with rt.span("aten::copy_"):
            rt.copy(nbytes)
    with rt.span("execute_context_0(0)_generation_16(16)", "user_annotation", us=20):
        if fixed:
            rt.call("GraphLaunch", 110)
            end = max(rt.now, rt.free[MAIN])
            for _ in range(32):
                for _, _, us in SERVED:
                    end += rt.vary(us) + 1.0
            rt.free[MAIN] = end
        else:
            for _ in range(32):
                for op, name, us in SERVED:
                    rt.host(9)
                    with rt.span(op, us=9):
                        if op == "aten::linear":
                            rt.op("aten::mm", run=((name, us),), gap=1, us=6)
                        else:
                            rt.work(name, us)
        rt.op("aten::linear", "aten::mm", run=((TENSILE[0], 330),), gap=20)
        for name in ("aten::div", "aten::softmax", "aten::argmax"):
            rt.op(name, run=((REDUCE, 14),), gap=25)
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(128, "DtoH", "Pageable", waits=True)
    rt.host(1_900)


def reduced(rt: Framed, fixed: bool) -> None:
    """GPT-2, eager in DDP on four A10G: gradients are reduced in each of four micro-batches; without: `no_sync()`."""
    groups(rt, 4, default_pg=[0, 1, 2, 3])
    rt.head["distributedInfo"]["rank"] = 0
    end, total = 0.0, 124_475_904
    for micro in range(4):
        tape: Tape = []
        rt.batch(8 * 1_024 * 8, 8 * 1_024 * 8, us=60)
        reduces = micro == 3 or not fixed
        with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
            for _ in range(12):
                for size in ([2304, 768], [768, 768], [3072, 768], [768, 3072]):
                    run = ((CAST, A10G.moves(6 * size[0] * size[1])),)
                    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
                encoder(rt, tape, A10G, (8, 1_024, 768))
            dense(rt, tape, A10G, 8, (8_192, 768, 50_304))
            cross_entropy(rt, tape, A10G, 8_192, 50_304)
        parts, buckets = len(tape), 5
        with rt.backward():
            while tape:
                tape.pop()()
                if reduces and len(tape) % (parts // buckets) == 0:
                    nelems = total // (buckets + 1)
                    end = rt.collective("allreduce", nelems * 4 * 1.5 / 9.5e3, (nelems,) * 2, ranks=[0, 1, 2, 3],
                                        dtype="Float", kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
            if reduces:
                rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A10G.moves(4 * total), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A10G.moves(8 * total), 3)
    fused_adamw(rt, A10G, total)
    rt.host(400)


def cross_entropy(rt: Framed, tape: Tape, card: Card, tokens: int, classes: int) -> None:
    """Under autocast: to fp32, log-softmax, the chosen."""
    n, size = tokens * classes, [tokens, classes]
    moved_as(rt, tape, card, size)
    soft = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", dims=(size,), graph=True,
                 run=((SOFTMAX[0], card.moves(8 * n)),))  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", soft, "aten::_log_softmax_backward_data", dims=(size, size),
                                run=((SOFTMAX[1], card.moves(12 * n)),)))  # fmt: skip
    name = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(…)"
    number = rt.op("aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss_forward", graph=True, dims=(size, [tokens]),
                   run=((name, 12),))  # fmt: skip
    tape.append(lambda: rt.grad("NllLossBackward0", number, "aten::nll_loss_backward", dims=([], size, [tokens]),
                                run=((name.replace("forward", "backward"), card.moves(4 * n)),)))  # fmt: skip


def sharded(rt: Framed, fixed: bool) -> None:
    """Llama 3 8B, FSDP2 with `MixedPrecisionPolicy(param_dtype=bf16)`, rank 0 of 8 H100 of a node: all is hidden."""
    groups(rt, 8, default_pg=list(range(8)), mesh_dp=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 0
    tape, whole, layer = Tape(), 218_112_000, list[int]()
    shard = {"group": "mesh_dp", "pg": "1", "ranks": list(range(8)), "behind": False}
    summed = {**shard, "behind": True, "stream": LINKS + 4, "dtype": "Float"}
    summed |= {"kernel": "ReduceScatter_Sum_f32_RING_LL"}
    rt.batch(2 * 8_192 * 8, 2 * 8_192 * 8)
    ahead = rt.collective("_allgather_base", 1_350, (whole // 8, whole), **shard)
    for number in range(16):
        with rt.span(f"FSDP::pre_forward (layers.{number})", us=30):
            rt.waits(MAIN, ahead)
            if number < 15:
                with rt.span(f"FSDP::all_gather (layers.{number + 1})", us=25):
                    ahead = rt.collective("_allgather_base", 1_350, (whole // 8, whole), **shard)
        start = len(tape)
        llama(rt, tape, H100, (2, 8_192, 4_096, 8, 14_336), fused_norm)
        layer.append(len(tape) - start)
    last = 0.0
    with rt.backward():
        for number in reversed(range(16)):
            with rt.span(f"FSDP::pre_backward (layers.{number})", us=30):
                rt.waits(MAIN, ahead)
                if number:
                    with rt.span(f"FSDP::backward_prefetch for layers.{number - 1}", us=25):
                        ahead = rt.collective("_allgather_base", 1_350, (whole // 8, whole), **shard)
            for _ in range(layer[number]):
                tape.pop()()
            with rt.span(f"FSDP::post_backward_reduce (layers.{number})", us=40):
                last = rt.collective("_reduce_scatter_base", 2_600, (whole, whole // 8), **summed)
    rt.waits(MAIN, last)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 130, 2)
    fused_adamw(rt, H100, 16 * whole / 8)
    rt.host(350)


def compiled(rt: Framed, fixed: bool) -> None:
    """GPT of 24 layers, compiled, on an MI300X: the device is busy."""
    one, product = MI300X.moves(4 * 16_384 * 2_048), MI300X.product(16_384, 2_048, 2_048)
    layer = (("triton_per_fused_native_layer_norm_2", 1.2 * one), (TENSILE[0], 3 * product),
             ("attn_fwd", MI300X.product(16 * 16_384, 1_024, 256) / 1.1), (TENSILE[0], product),
             ("triton_per_fused_add_native_layer_norm_4", 1.7 * one), (TENSILE[0], 4 * product),
             ("triton_poi_fused_gelu_5", 4.2 * one), (TENSILE[0], 4 * product))  # fmt: skip
    behind = []
    for name, us in reversed(layer):
        times = (us, us) if name is TENSILE[0] else (2.3 * us,) if "attn" in name else (1.8 * us,)
        behind += [("bwd_kernel_dk_dv" if "attn" in name else name.replace("norm_", "norm_backward_"), one)
                   for one in times]  # fmt: skip
    rt.batch(131_072, 131_072)
    rt.sequence += 1
    number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("TorchDynamo Cache Lookup", us=20):
        pass
    with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=40, **number),
          rt.span("## Call CompiledFxGraph fk2ux5p ##", "user_annotation", us=20)):  # fmt: skip
        _called(rt, layer * 24)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph f7qd1ew ##", "user_annotation", us=20)):  # fmt: skip
        _called(rt, tuple(behind) * 24)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(5e9), 5)
    fused_adamw(rt, MI300X, 1.3e9)
    rt.host(300)


def _called(rt: Framed, kernels: tuple[tuple[str, float], ...]) -> None:
    for name, us in kernels:
        if name is TENSILE[0]:
            rt.op("aten::mm", run=((name, us),), gap=3, us=7, kind=BF16)
        else:
            rt.host(5)
            rt.work(name, us, call="ModuleLaunchKernel")
