"""Jobs of the twenty-ninth set without a fault: SigLIP in DDP on MI300X, a diffusion of small pictures, Llama on a
B200, a language model of LSTMs, a loader that is late but hidden.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import Roofline, linear
from ..fifteenth_set.rows import B200
from ..layers import CAST, Card, Tape, attention, back, block, dense, fused_adamw, norm
from ..runtime import MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, FLASH, MI300X
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, HALF, resnet, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import clipped, group_norm
from ..twenty_fourth_set.rows import acts, few, judged

EIGHT, PAIRS, SEEN, SAID, WIDE = list(range(8)), 144, 256, 64, 768
CDNA = replace(MI300X, attention=AOTRITON)
SUMS: dict[str, Any] = {"ranks": EIGHT, "kernel": "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"}


def _given(rt: Framed, name: str, nelems: tuple[int, int], us: float, kind: str = "Float") -> float:
    return rt.collective(name, rt.vary(us, 0.04), nelems, dtype=kind, **SUMS)


def siglip(rt: Framed, fixed: bool) -> None:
    """Nothing to change: SigLIP of ViT-B/16 learns pictures and texts in DDP on the eight MI300X of a node, rank 6, by
    open_clip, autocast in bf16, 144 pairs a rank: texts' vectors are gathered once (0.2 MB, some 0.1 ms), buckets
    travel beside the backward pass, AdamW is fused, pictures come pinned as bytes, the loss is read each 100th step.
    Shapes.

    Not: communication (hardly any shows), buckets, the loader, copies, launches, casts, attention.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 6
    tape, marks, end = Tape(), set[int](), 0.0
    picture, x, said = [PAIRS, 3, 256, 256], [PAIRS, SEEN, WIDE], [PAIRS, SAID, WIDE]
    loader(rt, 240)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PAIRS * SAID, said[:2], "long int")
    acts(rt, None, replace(CDNA, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CDNA.moves(6 * prod(picture))),), dims=(picture,))
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        casts(rt, CDNA, [WIDE, WIDE])
        dense(rt, tape, CDNA, PAIRS, (PAIRS * SEEN, WIDE, WIDE))
        acts(rt, tape, CDNA, "add", x)
        for size in (x, said):
            if size is said:
                acts(rt, tape, CDNA, "embedding add", said)
            for _ in range(12):
                marks.add(len(tape))
                casts(rt, CDNA, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
                block(rt, tape, CDNA, *size)
            norm(rt, tape, CDNA, size)
            casts(rt, CDNA, [WIDE, WIDE])
            dense(rt, tape, CDNA, PAIRS, (PAIRS, WIDE, WIDE))
            acts(rt, tape, CDNA, "pow sum sqrt div", [PAIRS, WIDE])
    rt.waits(MAIN, _given(rt, "_allgather_base", (PAIRS * WIDE, 8 * PAIRS * WIDE), 38, "BFloat16"))
    linear(rt, tape, CDNA, [PAIRS, WIDE], 8 * PAIRS)
    acts(rt, tape, replace(CDNA, kind="float"), "to scale add mul neg exp log mean", [PAIRS, 8 * PAIRS])
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                end = _given(rt, "allreduce", (7_087_872,) * 2, 36 + 8 * 7_087_872 * 0.875 / 240e3)
        end = max(end, _given(rt, "allreduce", (2_360_000,) * 2, 90))
    rt.waits(MAIN, end)
    fused_adamw(rt, CDNA, 203e6)
    few(rt, "clamp_", [1])
    rt.host(380)


CROPS, LEVELS = 96, ((128, 64, 2), (256, 32, 2), (256, 16, 2), (512, 8, 2))
RTX4090 = Card(120, 860, HALF, ADA.card.names, tuple(name.replace("bfloat16_t", "half_t") for name in FLASH))  # type: ignore[arg-type]  # fmt: skip
ADA4090 = Look(RTX4090, ADA.names, ADA.norm, True)


def _residual(rt: Framed, tape: Tape, of: Conv) -> None:
    """A block of the UNet with what it is told of the time."""
    for number, cin in enumerate((of.cin, of.cout)):
        size = [of.batch, cin, of.height, of.width]
        group_norm(rt, tape, RTX4090, size)
        acts(rt, tape, RTX4090, "silu", size)
        conv(rt, tape, ADA4090, replace(of, cin=cin))
        if not number:
            dense(rt, tape, RTX4090, of.batch, (of.batch, 512, of.cout))
            acts(rt, tape, RTX4090, "add", of.dims[2])
    if of.cin != of.cout:
        conv(rt, tape, ADA4090, replace(of, side=1))
    acts(rt, tape, RTX4090, "add", of.dims[2])


def birds(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a diffusion learns pictures of birds of 64 pixels by a plain loop on an RTX 4090, AMP in fp16,
    channels_last, 96 pictures: the GPU is busy with convolutions and norms, launches are ahead, times and noise are
    drawn on the GPU, an average of weights goes by lists, `GradScaler` waits once at the end. Shapes.

    Not: `GradScaler`'s wait, launches, the loader, copies, the layout, casts of weights, attention, the optimizer.
    """
    tape, picture = Tape(), [CROPS, 3, 64, 64]
    loader(rt, 170)
    pinned(rt, 4 * prod(picture), picture)
    few(rt, "randn_like randint index index mul mul add", picture, RTX4090.moves(12 * prod(picture)))
    few(rt, "unsqueeze mul cos sin cat", [CROPS, 128])
    for wide, out in ((128, 512), (512, 512)):
        dense(rt, tape, RTX4090, CROPS, (CROPS, wide, out))
    acts(rt, tape, RTX4090, "silu", [CROPS, 512])
    conv(rt, tape, ADA4090, Conv(CROPS, 3, 128, 3, 64, 64))
    given = 128
    for up in (False, True):
        for width, side, count in reversed(LEVELS) if up else LEVELS:
            for _ in range(count + up):
                if up:
                    acts(rt, tape, RTX4090, "cat", [CROPS, given + width, side, side])
                _residual(rt, tape, Conv(CROPS, given + width if up else given, width, 3, side, side))
                given = width
                if side == 16:
                    x = [CROPS, side**2, width]
                    group_norm(rt, tape, RTX4090, [CROPS, width, side, side])
                    dense(rt, tape, RTX4090, CROPS, (CROPS * side**2, width, 3 * width))
                    attention(rt, tape, RTX4090, [CROPS, width // 64, side**2, 64])
                    dense(rt, tape, RTX4090, CROPS, (CROPS * side**2, width, width))
                    acts(rt, tape, RTX4090, "add", x)
            if up and side < 64:
                acts(rt, tape, RTX4090, "upsample", [CROPS, width, 2 * side, 2 * side])
                conv(rt, tape, ADA4090, Conv(CROPS, width, width, 3, 2 * side, 2 * side))
    group_norm(rt, tape, RTX4090, [CROPS, 128, 64, 64])
    acts(rt, tape, RTX4090, "silu", [CROPS, 128, 64, 64])
    conv(rt, tape, ADA4090, Conv(CROPS, 128, 3, 3, 64, 64))
    acts(rt, tape, replace(RTX4090, kind="float"), "to sub pow mean", picture)
    back(rt, tape)
    unscaled(rt, RTX4090, 68e6)
    fused_adamw(rt, RTX4090, 68e6)
    rt.op("aten::_foreach_lerp_", us=90, gap=40, run=(
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
         "TernaryOpScalarFunctor<float, 2, 2, 0>, …>(…)", RTX4090.moves(12 * 68e6)),))  # fmt: skip
    rt.host(270)


TEXTS, LENGTH, MODEL, WORDS = 10, 4_096, 2_048, 128_256


def llama1b(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama-3.2-1B is tuned whole by TRL on a B200, all in bf16, ten packs of 4,096: attention is
    cuDNN's, norms are fused, the loss is compiled and writes nothing in fp32, AdamW is fused, clipped by lists, the
    loss is read each 25th step. No shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, recomputation, the batch.
    """
    tape, x, begun = Tape(), [TEXTS, LENGTH, MODEL], len(rt.rows)
    loader(rt, 200)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    acts(rt, tape, B200, "embedding", x)
    for _ in range(16):
        llama(rt, tape, B200, (TEXTS, LENGTH, MODEL, 8, 8_192), fused_norm)
    fused_norm(rt, tape, B200, x)
    linear(rt, tape, B200, x, WORDS)
    compiled_loss(rt, tape, B200, TEXTS * LENGTH, WORDS)
    back(rt, tape)
    clipped(rt, B200, 1.24e9, 4, 2)
    fused_adamw(rt, B200, 1.24e9 / 2)
    for row in rt.rows[begun:]:  # SDPA's backend is cuDNN
        if row["cat"] == "cpu_op":
            row["name"] = row["name"].replace("_flash_attention", "_cudnn_attention").replace("Flash", "Cudnn")
    rt.host(360)


ROWS, TIMES, HIDDEN, PIECES = 128, 120, 1_024, 33_278
L4 = Roofline(75, 250, HALF, ADA.card.names, FLASH)
PERSISTS = "void RNN_blockPersist_{}_LSTM<__half, __half, float, {}, 1024, 64>(…)"


def _recurrent(rt: Framed, tape: Tape) -> None:
    """A layer of cuDNN's LSTM: inputs of all times in one product, then a kernel that stays for all times."""
    x, gates = [TIMES, ROWS, HIDDEN], 4 * HIDDEN
    us = L4.product(TIMES * ROWS, gates, HIDDEN)
    stays = 1.5 * us + 6 * TIMES
    casts(rt, L4, [gates, HIDDEN], [gates, HIDDEN])
    number = rt.op("aten::lstm", "aten::_cudnn_rnn", graph=True, gap=40, us=30, kind=HALF,
                   run=((L4.names[0], us), (PERSISTS.format("fp", "128"), stays)),
                   dims=(x, [gates, HIDDEN], [gates, HIDDEN]))  # fmt: skip
    tape.append(lambda: rt.grad("CudnnRnnBackward0", number, "aten::_cudnn_rnn_backward", us=40, kind=HALF, dims=(x,),
                                run=((PERSISTS.format("bp", "128"), 1.2 * stays), (L4.names[1], us),
                                     (L4.names[1], us), (L4.names[1], us))))  # fmt: skip
    for _ in range(4):
        tape.insert(len(tape) - 1, rt.accumulated)
    acts(rt, tape, L4, "dropout", x)


def wikitext(rt: Framed, fixed: bool) -> None:
    """Nothing to change: four layers of LSTM learn WikiText on an L4 by a plain loop, AMP in fp16, 128 rows of 120
    words: cuDNN's kernels stay for all times of a layer, few launches are needed, states are detached, SGD by lists,
    clipped by lists, `GradScaler` waits once, the loss is read each 200th step. Shapes, no rows of steps.

    Not: `GradScaler`'s wait, launches, a loop over time (there is none), the loader (there is none), TF32, the batch.
    """
    tape, x = Tape(), [TIMES, ROWS, HIDDEN]
    few(rt, "slice slice", [TIMES, ROWS])
    for _ in range(4):
        few(rt, "detach", [1, ROWS, HIDDEN], gap=3)
    acts(rt, tape, L4, "embedding dropout", x)
    for _ in range(4):
        _recurrent(rt, tape)
    casts(rt, L4, [PIECES, HIDDEN])
    dense(rt, tape, L4, 1, (TIMES * ROWS, HIDDEN, PIECES))
    judged(rt, tape, replace(L4, kind="float"), TIMES * ROWS, PIECES)
    back(rt, tape)
    unscaled(rt, L4, 67e6)
    clipped(rt, L4, 67e6)
    sgd(rt, L4, 67e6)
    few(rt, "add_", [1])
    rt.host(180)


CARDS = 176
A10G = Card(54, 480, BF16, AMPERE, FLASH)
LOOK = Look(A10G, tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),  # type: ignore[arg-type]
            ADA.norm.replace("__half2", "__nv_bfloat162"), True)  # fmt: skip


def postcards(rt: Framed, fixed: bool) -> None:
    """Nothing to change: ResNet-50 learns postcards by timm's script on an A10G, bf16 by autocast, channels_last, 176
    pictures of 224: the loader takes 40 to 70 ms of each step, but the host is ahead by more, so that the GPU never
    waits for it. Pictures come pinned as bytes beside, SGD by lists, the loss is read each 50th step. Shapes.

    Not: the loader (its wait is hidden), copies, launches, the layout, precision, the optimizer.
    """
    tape, picture = Tape(), [CARDS, 3, 224, 224]
    loader(rt, 40_000 + 30_000 * rt.draw.random())
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * CARDS, [CARDS], "long int")
    acts(rt, None, replace(A10G, kind="float"), "to sub div", picture)
    few(rt, "copy_", picture, A10G.moves(8 * prod(picture)))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A10G.moves(6 * prod(picture))),), dims=(picture,))
    resnet(rt, tape, LOOK, CARDS, (7, 7))
    acts(rt, tape, A10G, "mean", [CARDS, 2_048, 7, 7])
    casts(rt, A10G, [310, 2_048])
    dense(rt, tape, A10G, CARDS, (CARDS, 2_048, 310))
    judged(rt, tape, A10G, CARDS, 310)
    back(rt, tape)
    sgd(rt, A10G, 24.1e6)
    few(rt, "add_", [1])
    rt.host(240)
