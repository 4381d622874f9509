"""Jobs of the twenty-fifth set without a fault: MAE, Mamba-2, embeddings, RegNet, gradients of micro-batches."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import linear, node
from ..fifteenth_set.rows import L40S, encoded
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventeenth_set.rows import linear_loss, triton, triton_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import NHWC, V100, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twentieth_set.host import TURING
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import clipped

PICTURES, SEEN, WHOLE = 320, 50, 197
HOPPER = replace(H100, tflops=430)


def _layer(rt: Framed, tape: Tape, x: list[int]) -> None:
    """A layer of timm's ViT under autocast."""
    batch, length, width = x
    casts(rt, HOPPER, [3 * width, width], [width, width], [4 * width, width], [width, 4 * width])
    norm(rt, tape, HOPPER, x)
    dense(rt, tape, HOPPER, batch, (batch * length, width, 3 * width))
    attention(rt, tape, HOPPER, [batch, 16, length, width // 16])
    acts(rt, tape, HOPPER, "turn", x)
    dense(rt, tape, HOPPER, batch, (batch * length, width, width))
    acts(rt, tape, HOPPER, "add", x)
    norm(rt, tape, HOPPER, x)
    dense(rt, tape, HOPPER, batch, (batch * length, width, 4 * width))
    acts(rt, tape, HOPPER, "gelu", [*x[:2], 4 * width])
    dense(rt, tape, HOPPER, batch, (batch * length, 4 * width, width))
    acts(rt, tape, HOPPER, "add", x)


def mae(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a masked autoencoder, ViT-L/16, learns pictures on an H100, autocast in bf16, 320 a step of
    which the encoder sees a quarter of the patches; patches are shuffled on the GPU, pictures come as bytes from pinned
    memory, AdamW is fused, the loss is read each 20th step. Shapes.

    Not: launches, waits, the loader, copies, sorts and gathers of patches, the optimizer, the batch.
    """
    tape, picture, x, y = Tape(), [PICTURES, 3, 224, 224], [PICTURES, SEEN, 1_024], [PICTURES, WHOLE, 512]
    loader(rt, 230)
    pinned(rt, prod(picture), picture, "unsigned char")
    few(rt, "to sub div", picture, H100.moves(6 * prod(picture)))
    dense(rt, tape, HOPPER, PICTURES, (PICTURES * 196, 768, 1_024))
    acts(rt, tape, HOPPER, "add", [PICTURES, 196, 1_024])
    few(rt, "rand argsort argsort gather", [PICTURES, 196], 14)
    acts(rt, tape, HOPPER, "turn cat", x)
    for _ in range(24):
        _layer(rt, tape, x)
    norm(rt, tape, HOPPER, x)
    dense(rt, tape, HOPPER, PICTURES, (PICTURES * SEEN, 1_024, 512))
    acts(rt, tape, HOPPER, "cat turn add", y)
    for _ in range(8):
        _layer(rt, tape, y)
    norm(rt, tape, HOPPER, y)
    dense(rt, tape, HOPPER, PICTURES, (PICTURES * WHOLE, 512, 768))
    wide = replace(HOPPER, kind="float")
    few(rt, "mean var sub sqrt div", [PICTURES, 196, 768], H100.moves(6 * PICTURES * 196 * 768))
    acts(rt, tape, wide, "sub pow mean", [PICTURES, 196, 768])
    acts(rt, tape, wide, "mul sum", [PICTURES, 196])
    back(rt, tape)
    fused_adamw(rt, H100, 330e6)
    few(rt, "add_", [1])
    rt.host(410)


ADA, TEXTS, LONG, INNER, STATE, WORDS = Card(150, 870, BF16, AMPERE, FLASH), 12, 2_048, 1_536, 128, 50_288
SCANS = (("_chunk_cumsum_fwd_kernel", 0.1), ("_chunk_state_fwd_kernel", 1.4), ("_state_passing_fwd_kernel", 0.5),
         ("_bmm_chunk_fwd_kernel", 0.5), ("_chunk_scan_fwd_kernel", 2.6))  # fmt: skip
BEHIND = (("_chunk_cumsum_fwd_kernel", 0.1), ("_chunk_state_fwd_kernel", 1.4), ("_state_passing_fwd_kernel", 0.5),
          ("_bmm_chunk_fwd_kernel", 0.5), ("_chunk_scan_bwd_dstates_kernel", 1.5), ("_state_passing_bwd_kernel", 0.6),
          ("_chunk_scan_chunk_state_bwd_dx_kernel", 3.4), ("_chunk_state_bwd_db_kernel", 1.2),
          ("_chunk_scan_bwd_dcb_kernel", 1.3), ("_bmm_chunk_bwd_kernel", 0.6), ("_bmm_chunk_bwd_kernel", 0.6),
          ("_chunk_scan_bwd_ddAcs_stable_kernel", 0.9), ("_chunk_cumsum_bwd_kernel", 0.1))  # fmt: skip
ONE_WIDE = "void causal_conv1d_channellast_{}_kernel<Causal_conv1d_channellast_{}_kernel_traits<128, 4, 64, …>>(…)"


def _mixed(rt: Framed, tape: Tape) -> None:
    """A layer of Mamba-2: one function for the convolution, the scan, the norm and the product behind it."""
    x, inner = [TEXTS, LONG, 768], [TEXTS, LONG, INNER]
    once, each = ADA.moves(4 * prod(inner)), {"causal_conv1d": 1.2}
    for name, kernels in (("LayerNormFn", ("_layer_norm_fwd_1pass_kernel", "_layer_norm_bwd_kernel")),):
        rt.sequence += 1
        number = rt.sequence
        rt.host(16)
        with rt.span(name, us=36, **{"Sequence number": number, "Fwd thread id": 0}, **inputs((x, [768]), BF16)):
            triton(rt, kernels[0], ADA.moves(12 * prod(x)))

        def normed(number: int = number, kernel: str = kernels[1]) -> None:
            with node(rt, "LayerNormFnBackward", number):
                triton(rt, kernel, ADA.moves(18 * prod(x)))
                rt.op("aten::sum", run=((REDUCE, 4),), gap=2, dims=([128, 768],))

        tape.append(normed)
    casts(rt, ADA, [2 * INNER + 2 * STATE + 24, 768])
    linear(rt, tape, ADA, x, 2 * INNER + 2 * STATE + 24)
    rt.sequence += 1
    scanned, out = rt.sequence, ADA.product(TEXTS * LONG, 768, INNER)
    rt.host(20)
    args = {"Sequence number": scanned, "Fwd thread id": 0}
    with rt.span("MambaSplitConv1dScanCombinedFn", us=90, **args, **inputs((inner, [1_792, 4]), BF16)):
        rt.work(ONE_WIDE.format("fwd", "fwd"), each["causal_conv1d"] * once)
        for name, times in SCANS:
            triton(rt, name, times * once)
        triton(rt, "_layer_norm_fwd_1pass_kernel", 1.5 * once)
        rt.op("aten::linear", "aten::matmul", "aten::mm", run=((ADA.names[0], out),), gap=3, kind=BF16,
              dims=([TEXTS * LONG, INNER], [INNER, 768]))  # fmt: skip

    def backward() -> None:
        with node(rt, "MambaSplitConv1dScanCombinedFnBackward", scanned):
            rt.work(ONE_WIDE.format("fwd", "fwd"), 1.2 * once)
            for _ in range(2):
                rt.op("aten::mm", run=((ADA.names[1], out),), gap=2, us=8, kind=BF16,
                      dims=([TEXTS * LONG, 768], [768, INNER]))  # fmt: skip
            triton(rt, "_layer_norm_bwd_kernel", 2.2 * once)
            for name, times in BEHIND:
                triton(rt, name, times * once)
            rt.work(ONE_WIDE.format("bwd", "bwd"), 2.1 * once)
        rt.accumulated()

    tape.append(backward)


def mamba(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Mamba-2 of 130 M parameters from scratch on an RTX 4090 by mamba_ssm's Triton kernels,
    autocast in bf16, twelve texts of 2,048: few launches, each long; flash-attn's loss, clipping by lists, fused AdamW,
    the loss is read each tenth step. No shapes.

    Not: launches, waits, the loader, kernels of Triton, attention (there is none), the batch.
    """
    tape, x = Tape(), [TEXTS, LONG, 768]
    loader(rt, 160)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * LONG, x[:2], "long int")
    acts(rt, tape, ADA, "embedding", x)
    for _ in range(24):
        _mixed(rt, tape)
    fused_norm(rt, tape, ADA, x)
    casts(rt, ADA, [WORDS, 768])
    linear(rt, tape, ADA, x, WORDS)
    triton_loss(rt, tape, ADA, TEXTS * LONG, WORDS)
    back(rt, tape)
    clipped(rt, ADA, 129e6, 2)
    fused_adamw(rt, ADA, 129e6)
    few(rt, "add_", [1])
    rt.host(330)


SHOWN, PATCHES, VISION = 48, 257, 1_024


def embedded(rt: Framed, fixed: bool) -> None:
    """Nothing to change: CLIP ViT-L/14 makes vectors of pictures on a T4, fp16, `torch.inference_mode()`, 48 a batch:
    workers are ahead, batches are pinned and come on a stream of their own, vectors stay on the GPU until a shard is
    full and then leave for pinned memory; launches are far ahead of a slow card. Shapes, no rows of steps.

    Not: launches, waits, the loader, copies, bf16 or TF32, which a T4 has not, FlashAttention, the batch.
    """
    picture, x, came = [SHOWN, 3, 224, 224], [SHOWN, PATCHES, VISION], rt.free.get(COPIES, 0.0)
    loader(rt, 240)
    pinned(rt, 2 * prod(picture), picture, "c10::Half", stream=COPIES)
    if came:
        rt.waits(MAIN, came)
    conv(rt, None, Look(TURING, ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_interior_nhwc_tn_v1", "", "")),
         Conv(SHOWN, 588, VISION, 1, 16, 16))  # fmt: skip
    acts(rt, None, TURING, "cat add", x)
    with without_graph(rt):
        norm(rt, [], TURING, x)
    for _ in range(24):
        encoded(rt, TURING, x)
        rt.host(60)
    few(rt, "select", [SHOWN, VISION])
    with without_graph(rt):
        norm(rt, [], TURING, [SHOWN, VISION])
        dense(rt, [], TURING, SHOWN, (SHOWN, VISION, 768))
    few(rt, "pow sum sqrt div copy_", [SHOWN, 768], 2.6)
    if rt.number == 4:
        with rt.span("aten::copy_", us=8):
            rt.copy(2 * 5 * SHOWN * 768, "DtoH")
    rt.host(380)


REGNET = ((2, 224, 56), (4, 448, 28), (10, 896, 14), (1, 2_240, 7))
SEEN_AT_ONCE = 128
GROUPED = Look(V100.card, tuple(
    f"void cudnn::cnn::conv2d_grouped_direct_{way}kernel<false, true, false, false, 0, 0, int, __half, __half, …>(…)"
    for way in ("", "dgrad_", "wgrad_")), NHWC, True)  # type: ignore[arg-type]  # fmt: skip


class Grouped(Conv):
    """A convolution of groups of 56 channels."""

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        x = [self.batch, self.cin, self.height, self.width]
        return (x, [self.cout, 56, self.side, self.side], [*x[:1], self.cout, *x[2:]])

    def us(self, card: Card) -> float:
        """By operations of kernels that reach a third of the rest."""
        area = self.batch * self.height * self.width
        return max(3 * 2 * area * 56 * self.cout * 9 / card.tflops / 1e6, 2 * card.moves(4 * area * self.cout))


def regnet(rt: Framed, fixed: bool) -> None:
    """Nothing worth a change: RegNetY-8GF on a V100, AMP, channels_last, 128 pictures: the loop reads the loss in each
    step (`loss.item()`), which costs a millisecond or so of several hundred; workers are ahead, batches pinned,
    `GradScaler` waits as well. SGD by lists. Shapes.

    Not: the loader, launches, copies, the layout, grouped convolutions, TF32 or bf16, which a V100 has not; the reads
    only as something small.
    """
    tape, picture, card, cin = Tape(), [SEEN_AT_ONCE, 3, 224, 224], V100.card, 32
    loader(rt, 210)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * SEEN_AT_ONCE, [SEEN_AT_ONCE], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(6 * prod(picture))),), dims=(picture,))
    conv_norm(rt, tape, V100, Conv(SEEN_AT_ONCE, 3, 32, 3, 112, 112))
    for count, width, side in REGNET:
        for number in range(count):
            given = cin if number == 0 else width
            size = [SEEN_AT_ONCE, width, side, side]
            conv_norm(rt, tape, V100, Conv(SEEN_AT_ONCE, given, width, 1, side, side))
            conv_norm(rt, tape, GROUPED, Grouped(SEEN_AT_ONCE, width, width, 3, side, side))
            acts(rt, tape, card, "mean", size)
            for wide, out, name in ((width, given // 4, "relu_"), (given // 4, width, "sigmoid")):
                conv(rt, tape, V100, Conv(SEEN_AT_ONCE, wide, out, 1, 1, 1))
                acts(rt, tape, card, name, [SEEN_AT_ONCE, out, 1, 1])
            acts(rt, tape, card, "mul", size)
            conv_norm(rt, tape, V100, Conv(SEEN_AT_ONCE, width, width, 1, side, side))
            acts(rt, tape, card, "add", size)
        cin = width
    acts(rt, tape, card, "mean", [SEEN_AT_ONCE, cin, 7, 7])
    dense(rt, tape, card, SEEN_AT_ONCE, (SEEN_AT_ONCE, cin, 1_000))
    judged(rt, tape, card, SEEN_AT_ONCE, 1_000)
    back(rt, tape)
    unscaled(rt, card, 39e6)
    sgd(rt, card, 39e6)
    rt.value()
    rt.host(310)


FOUR, MICRO, ROWS, LENGTH, WIDE, DEEP, FED, TOKENS = list(range(4)), 4, 4, 2_048, 896, 24, 4_864, 151_936
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)
BUS, LAYER = 13e3, 14_912_384


def _bucket(rt: Framed, count: int) -> float:
    given: dict[str, Any] = {"ranks": FOUR, "dtype": "BFloat16", "kernel": "AllReduce_Sum_bf16_RING_LL"}
    return rt.collective("allreduce", rt.vary(60 + count * 2 * 1.5 / BUS, 0.05), (count, count), **given)


def _qwen(rt: Framed, tape: Tape) -> list[int]:
    """Qwen2.5-0.5B with Liger's kernels; returns how much of the tape stands before each layer."""
    x, marks = [ROWS, LENGTH, WIDE], list[int]()
    acts(rt, tape, LOVELACE, "embedding", x)
    for _ in range(DEEP):
        marks.append(len(tape))
        fused_norm(rt, tape, LOVELACE, x)
        for out in (WIDE, 128, 128):
            dense(rt, tape, LOVELACE, ROWS, (ROWS * LENGTH, WIDE, out))
        acts(rt, tape, LOVELACE, "mul", [ROWS, 16, LENGTH, 64])
        flash(rt, tape, LOVELACE, [ROWS, 14, LENGTH, 64])
        linear(rt, tape, LOVELACE, x, WIDE)
        acts(rt, tape, LOVELACE, "add", x)
        fused_norm(rt, tape, LOVELACE, x)
        for _ in range(2):
            linear(rt, tape, LOVELACE, x, FED)
        acts(rt, tape, LOVELACE, "silu mul", [ROWS, LENGTH, FED])
        linear(rt, tape, LOVELACE, [ROWS, LENGTH, FED], WIDE)
        acts(rt, tape, LOVELACE, "add", x)
    fused_norm(rt, tape, LOVELACE, x)
    linear_loss(rt, tape, LOVELACE, "LigerFusedLinearCrossEntropyFunction",
                ("liger_cross_entropy_kernel", 3 * LOVELACE.moves(2 * ROWS * LENGTH * TOKENS)),
                (ROWS * LENGTH, WIDE, TOKENS), 2)  # fmt: skip
    return marks


def accumulated(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Qwen2.5-0.5B fine-tuned by Accelerate in DDP on four L40S by PCIe, all in bf16, four
    micro-batches of four texts of 2,048 a step, rank 2: `accelerator.accumulate` puts `no_sync()` around the first
    three, gradients travel beside the last backward pass, only the embeddings' end behind it; Liger's loss, fused
    AdamW. No shapes.

    Not: `no_sync`, buckets, exposed communication, a late rank, launches, waits, the loader.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    for micro in range(MICRO):
        tape, end = Tape(), 0.0
        loader(rt, 180)
        for _ in range(3):
            pinned(rt, 8 * ROWS * LENGTH, [ROWS, LENGTH], "long int")
        with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
            marks = set(_qwen(rt, tape))
        acts(rt, tape, LOVELACE, "div", [1])
        with rt.backward():
            while tape:
                tape.pop()()
                if micro == MICRO - 1 and len(tape) in marks:
                    end = _bucket(rt, LAYER)
            if micro == MICRO - 1:
                end = _bucket(rt, TOKENS * WIDE)
        if end:
            rt.waits(MAIN, end)
        on_host(rt, "aten::add_", 3, [1])
        rt.host(120)
    clipped(rt, LOVELACE, 494e6, 3, 2)
    fused_adamw(rt, LOVELACE, 494e6 / 2)
    rt.host(480)
