"""Jobs of the fourteenth set whose fault shows on the device or between ranks, and those without a fault."""

from __future__ import annotations

from functools import partial

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100, MI300X
from ..twelfth_set.language import A100, AMPERE, eager_attention
from ..twelfth_set.pictures import A100 as A100_TF32
from ..twelfth_set.pictures import ADA, HALF, crossed, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, loader

MAGMA = "void magma_sgemmEx_kernel<float, __nv_bfloat16, __nv_bfloat16, {}, false, 6, 4, 6, 3, 4>(int, int, int, …)"
T4_BF16 = Card(2.9, 250, BF16, (MAGMA.format("true"), MAGMA.format("false")), ("", ""))
T4_HALF = Card(24, 250, HALF, ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",) * 2, ("", ""))
L4 = Card(55, 250, BF16, AMPERE, FLASH)
RTX3090 = Card(60, 780, BF16, AMPERE, FLASH)
ADA_FLASH = Card(120, 860, HALF, ADA.card.names, FLASH)


def emulated(rt: Framed, fixed: bool) -> None:
    """A BERT-like model on a T4 with `bf16=True`, for which the T4 has no units; without: fp16."""
    tape, card, x = Tape(), T4_HALF if fixed else T4_BF16, [16, 256, 768]
    rt.batch(16 * 256 * 8, 16 * 8)
    for _ in range(6):
        for _ in range(4):
            linear(rt, tape, card, x, 768)
        eager_attention(rt, tape, card, [16, 12, 256, 64])
        norm(rt, tape, card, x)
        linear(rt, tape, card, x, 3_072)
        elementwise(rt, tape, card, "gelu", [16, 256, 3_072], back=(("gelu_backward", 3),))
        linear(rt, tape, card, [16, 256, 3_072], 768)
        norm(rt, tape, card, x)
    small(rt, tape, ("log_softmax", "nll_loss"), [16, 2])
    back(rt, tape)
    fused_adamw(rt, card, 43e6)
    rt.host(300)


def micro(rt: Framed, fixed: bool) -> None:
    """1 B by the HF Trainer on an H100: 4 micro-batches of one sequence of 512; without: one of four sequences."""
    for size in (4,) if fixed else (1,) * 4:
        tape: Tape = []
        rt.batch(size * 512 * 8, size * 512 * 8)
        for _ in range(12):
            llama(rt, tape, H100, (size, 512, 2_048, 8, 8_192), fused_norm)
        dense(rt, tape, H100, size, (size * 512, 2_048, 32_000))
        small(rt, tape, ("log_softmax", "nll_loss", "div"), [size * 512, 32_000], 30 * size)
        back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 8e8), 4)
    fused_adamw(rt, H100, 4e8)
    rt.host(600)


def offloading(rt: Framed, fixed: bool) -> None:
    """diffusers' `enable_sequential_cpu_offload()`, RTX 4090: weights come for each layer, each step; without: stay."""
    x = [2, 4_096, 640]
    for part in range(12):
        if not fixed:
            for nbytes, dims in ((640 * 5_120 * 2, [5_120, 640]), (640 * 2_560 * 2, [640, 2_560])):
                for _ in range(2 if part % 3 else 4):
                    rt.host(40)
                    rt.moved(nbytes, 10.5, dims, HALF)
        conv(rt, None, ADA, Conv(2, 640, 640, 3, 64, 64))
        crossed(rt, [], ADA_FLASH, x)
    for name in ("chunk", "sub", "mul", "add", "sub", "mul", "add"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 4),) if name != "chunk" else (), dims=([1, 4, 64, 64],), gap=14)
    rt.host(300)


def in_turn(rt: Framed, fixed: bool) -> None:
    """DeepSpeed's ZeRO 1 with `overlap_comm: false`, 8 A100: reductions follow the backward pass; without: beside."""
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 0
    tape, end, count = Tape(), 0.0, 16
    rt.batch(4 * 2_048 * 8, 4 * 2_048 * 8)
    for _ in range(count):
        llama(rt, tape, A100, (4, 2_048, 2_048, 8, 5_632), fused_norm)
    dense(rt, tape, A100, 4, (8_192, 2_048, 32_000))
    layer = len(tape) // count
    nelems = 45_000_000
    reduced = partial(rt.collective, "allreduce", nelems * 2 * 1.75 / 95e3, (nelems,) * 2)
    with rt.backward():
        while tape:
            tape.pop()()
            if fixed and len(tape) % layer == 0:
                end = reduced()
    for _ in range(0 if fixed else count):
        end = reduced()
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(2 * 7e8), 4)
    fused_adamw(rt, A100, 9e7)
    end = rt.collective("_allgather_base", 7_000, (90_000_000, 720_000_000))
    rt.waits(MAIN, end)
    rt.host(500)


def synced_norms(rt: Framed, fixed: bool) -> None:
    """ResNet-like segmentation in DDP on 8 A100, SyncBatchNorm in 40 layers, batch of 4; without: plain norms."""
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 2
    tape, card = Tape(), A100_TF32.card
    rt.batch(4 * 3 * 256 * 256 * 4, 4 * 256 * 256 * 8)

    def shared(us: float, width: int) -> None:
        rt.op(
            "aten::batch_norm_stats", run=(("void batch_norm_collect_statistics_channels_last_kernel<…>", us),), gap=30
        )
        end = rt.collective("_allgather_base", 34, (2 * width + 1, 16 * width + 8), dtype="Float")
        rt.waits(MAIN, end)
        name = "void batch_norm_reduce_statistics_kernel<float, float, int>(…)"
        rt.op("aten::batch_norm_gather_stats_with_counts", run=((name, 4),), gap=45)

    for level in range(4):
        width, size = 64 << level, 64 >> level
        for block in range(10):
            of = Conv(4, 3 if not level + block else width, width, 3, size, size)
            conv(rt, tape, A100_TF32, of)
            us = card.moves(4 * 4 * width * size * size)
            if not fixed:
                shared(us, width)
            number = rt.op("SyncBatchNorm", "aten::batch_norm_elemt", run=((kernel("batch_norm", 2), 2 * us),), gap=30,
                           graph=True)  # fmt: skip

            def behind(number: int = number, us: float = us, width: int = width) -> None:
                name = "void batch_norm_backward_reduce_channels_last_kernel<…>"
                rt.grad("SyncBatchNormBackward", number, "aten::batch_norm_backward_reduce", run=((name, 2 * us),))
                if not fixed:
                    rt.waits(MAIN, rt.collective("allreduce", 30, (2 * width,) * 2, dtype="Float",
                                                 kernel="AllReduce_Sum_f32_RING_LL"))  # fmt: skip
                rt.op("aten::batch_norm_backward_elemt", run=((kernel("batch_norm_backward", 3), 3 * us),), gap=20)

            tape.append(behind)
            elementwise(rt, tape, card, "relu", of.dims[2], back=(("threshold_backward", 3),))
    small(rt, tape, ("log_softmax", "nll_loss"), [4, 19, 64, 64], 6)
    with rt.backward():
        while tape:
            tape.pop()()
    end = rt.collective("allreduce", 1_300, (30_000_000,) * 2, dtype="Float", kernel="AllReduce_Sum_f32_RING_LL")
    rt.waits(MAIN, end)
    sgd(rt, card, 30e6)
    rt.host(250)


def accumulated(rt: Framed, fixed: bool) -> None:
    """Nothing to change: DDP on two RTX 3090, 4 micro-batches, `no_sync()` in three, reductions hidden in the last."""
    groups(rt, 2, default_pg=[0, 1])
    rt.head["distributedInfo"]["rank"] = 1
    for number in range(4):
        tape: Tape = []
        rt.batch(8 * 1_024 * 8, 8 * 1_024 * 8)
        for _ in range(6):
            encoder(rt, tape, RTX3090, (8, 1_024, 1_024))
        dense(rt, tape, RTX3090, 8, (8_192, 1_024, 8_192))
        one, end = len(tape) // 6, 0.0
        with rt.backward():
            while tape:
                tape.pop()()
                if number == 3 and len(tape) % one == 0:
                    end = rt.collective("allreduce", 2_600, (12_600_000,) * 2, dtype="Float", ranks=[0, 1],
                                        kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        rt.waits(MAIN, end)
    fused_adamw(rt, RTX3090, 84e6)
    rt.host(300)


def prefetched(rt: Framed, fixed: bool) -> None:
    """Nothing to change: timm's ResNet by AMP in channels_last, RTX 4090, a prefetcher, one read in these steps."""
    tape: Tape = []
    loader(rt, 140)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.waits(MAIN, rt.copy(192 * 3 * 224 * 224, stream=13))
    for name in ("_to_copy", "sub_", "div_"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), ADA.card.moves(3 * 192 * 3 * 224 * 224)),))
    resnet(rt, tape, ADA, 192, (7, 7))
    dense(rt, tape, ADA.card, 192, (192, 2_048, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [192, 1_000], 7)
    back(rt, tape)
    unscaled(rt, ADA.card, 25.5e6)
    sgd(rt, ADA.card, 25.5e6)
    rt.host(250)


def denoised(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a compiled transformer for pictures denoises on an L4, bf16; no rows of steps."""
    tokens, wide = 4_096, 3_072
    with rt.span("TorchDynamo Cache Lookup", us=20):
        pass
    with rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("## Call CompiledFxGraph fq2xv ##", us=20):
        for _ in range(14):
            for name, out in (("norm", 0), ("mm", 3 * wide), ("flash", 0), ("mm", wide), ("add_norm", 0),
                              ("mm", 4 * wide), ("gelu", 0), ("mm", 4 * wide), ("add", 0)):  # fmt: skip
                rt.host(6)
                if name == "mm":
                    rt.op("aten::mm", run=((AMPERE[0], L4.product(tokens, out, wide)),), gap=1, kind=BF16,
                          dims=([tokens, wide], [wide, out]))  # fmt: skip
                elif name == "flash":
                    rt.op("aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward", gap=1, run=(
                        (FLASH[0], L4.product(24 * tokens, tokens, 256) / 0.6),), kind=BF16,
                        dims=([1, 24, tokens, 128],) * 3)  # fmt: skip
                else:
                    us = L4.moves(4 * tokens * wide * (4 if name == "gelu" else 1))
                    rt.work(f"triton_red_fused_{name}_3", us, call="cuLaunchKernel")
    small(rt, None, ("mul", "sub", "mul", "add"), [1, tokens, 64], 5)
    rt.host(120)


def single(rt: Framed, fixed: bool) -> None:
    """Nothing to change: two steps of a Llama of 1 B on an MI300X, no shapes; the host is far ahead."""
    tape: Tape = []
    rt.batch(8 * 4_096 * 8, 8 * 4_096 * 8)
    for _ in range(10):
        llama(rt, tape, MI300X, (8, 4_096, 2_048, 8, 8_192), fused_norm)
    back(rt, tape)
    fused_adamw(rt, MI300X, 3e8)
    rt.host(400)


def lossy(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a ViT-L in bf16 on an A100; CUPTI lost what the device did for a part of one step."""
    tape: Tape = []
    rt.batch(96 * 3 * 224 * 224 * 2, 96 * 8)
    began = rt.now
    for _ in range(12):
        encoder(rt, tape, A100, (96, 197, 1_024))
    dense(rt, tape, A100, 96, (96, 1_024, 1_000))
    rt.op("aten::cross_entropy_loss", run=((REDUCE, 8),), dims=([96, 1_000], [96]))
    back(rt, tape)
    fused_adamw(rt, A100, 152e6)
    rt.value()
    if rt.number == 3:
        rt.lost.append((began + 0.2 * (rt.now - began), began + 0.7 * (rt.now - began)))
    rt.host(300)
