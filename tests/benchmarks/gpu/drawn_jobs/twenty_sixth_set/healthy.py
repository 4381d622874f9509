"""Jobs of the twenty-sixth set without a fault: ResNet-152, Pythia, XLM-R, HiFi-GAN, adapters of Gemma."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import Roofline, elementwise, foreach, linear
from ..fifteenth_set.rows import L40S
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import MAIN
from ..seventeenth_set.rows import compiled_loss, linear_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, FLASH, MI300X
from ..twelfth_set.language import A100 as WORDED
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import ADA, NHWC, TF32, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, adapter, conv_norm, frozen, loader
from ..twentieth_set.host import TURING
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged
from .waits import Line, line

PICTURES = 176
CARD = replace(WORDED, tflops=150)
LOOK = Look(CARD, tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),  # type: ignore[arg-type]
            NHWC.replace("__half2", "__nv_bfloat162"), True)  # fmt: skip


def resnet152(rt: Framed, fixed: bool) -> None:
    """Nothing to change: ResNet-152 by timm's `train.py --amp --amp-dtype bfloat16 --channels-last` on an A100, 176
    pictures: timm's prefetcher copies bytes from pinned memory, SGD by lists, the loss is read each 50th step. Shapes.

    Not: launches, waits, the loader, copies, the layout, the optimizer, the batch.
    """
    tape, picture = Tape(), [PICTURES, 3, 224, 224]
    loader(rt, 200)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    acts(rt, None, replace(CARD, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    conv_norm(rt, tape, LOOK, Conv(PICTURES, 3, 64, 7, 112, 112))
    acts(rt, tape, CARD, "max_pool2d", [PICTURES, 64, 56, 56])
    for blocks, width, side in ((3, 64, 56), (8, 128, 28), (36, 256, 14), (3, 512, 7)):
        for number in range(blocks):
            given = 4 * width if number else 64 if width == 64 else 2 * width
            for cin, cout, of in ((given, width, 1), (width, width, 3), (width, 4 * width, 1)):
                conv_norm(rt, tape, LOOK, Conv(PICTURES, cin, cout, of, side, side))
            if number == 0:
                conv_norm(rt, tape, LOOK, Conv(PICTURES, given, 4 * width, 1, side, side))
            acts(rt, tape, CARD, "add", [PICTURES, 4 * width, side, side])
    acts(rt, tape, CARD, "mean", [PICTURES, 2_048, 7, 7])
    casts(rt, CARD, [1_000, 2_048])
    dense(rt, tape, CARD, PICTURES, (PICTURES, 2_048, 1_000))
    judged(rt, tape, CARD, PICTURES, 1_000)
    back(rt, tape)
    sgd(rt, CARD, 60.2e6)
    rt.host(390)


EIGHT, TEXTS, LENGTH, WIDE, DEEP, TOKENS = list(range(8)), 8, 2_048, 2_048, 24, 50_304
CDNA = replace(MI300X, attention=AOTRITON)


def _bucket(rt: Framed, count: int) -> float:
    given: dict[str, Any] = {"ranks": EIGHT, "dtype": "BFloat16", "kernel": "Generic_1"}
    return rt.collective("allreduce", rt.vary(40 + count * 2 * 1.75 / 290e3, 0.05), (count, count), **given)


def pythia(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Pythia-1.4B from scratch in DDP on the eight MI300X of a node, all in bf16, eight texts of
    2,048 a rank, rank 5: gradients travel beside the backward pass, only the embeddings' end behind it; AOTriton's
    attention, the loss compiled, AdamW fused, the loss is read each 10th step. No shapes.

    Not: buckets, exposed communication, a late rank, `no_sync`, launches, waits, the loader.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 5
    tape, marks, x, end = Tape(), set[int](), [TEXTS, LENGTH, WIDE], 0.0
    loader(rt, 180)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        acts(rt, tape, CDNA, "embedding", x)
        for _ in range(DEEP):
            marks.add(len(tape))
            for _ in range(2):
                norm(rt, tape, CDNA, x)
            dense(rt, tape, CDNA, TEXTS, (TEXTS * LENGTH, WIDE, 3 * WIDE))
            for _ in range(2):
                acts(rt, tape, CDNA, "mul cat mul add cat", [TEXTS, 16, LENGTH, 32])
            flash(rt, tape, CDNA, [TEXTS, 16, LENGTH, 128])
            acts(rt, tape, CDNA, "turn", x)
            dense(rt, tape, CDNA, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
            dense(rt, tape, CDNA, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
            acts(rt, tape, CDNA, "gelu", [TEXTS, LENGTH, 4 * WIDE])
            dense(rt, tape, CDNA, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
            acts(rt, tape, CDNA, "add add", x)
        norm(rt, tape, CDNA, x)
        linear(rt, tape, CDNA, x, TOKENS)
    compiled_loss(rt, tape, CDNA, TEXTS * LENGTH, TOKENS)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                end = _bucket(rt, 50_358_272)
        end = _bucket(rt, TOKENS * WIDE)
    rt.waits(MAIN, end)
    clipped(rt, CDNA, 1.41e9, 4, 2)
    fused_adamw(rt, CDNA, 1.41e9 / 2)
    rt.host(520)


LINES, SHORT, MODEL, WORDS = 32, 160, 768, 250_002


def xlmr(rt: Framed, fixed: bool) -> None:
    """Nothing to change: XLM-R base learns to tag words (9 tags) by Trainer on a T4, `fp16=True`, 32 texts of
    160, padded to the longest: launches are far ahead of a slow card; `GradScaler` waits once a step, which costs a
    millisecond; SDPA, pinned, clipped by lists, AdamW fused. Shapes, no rows of steps.

    Not: launches, the loader, copies, bf16 or TF32, which a T4 has not, FlashAttention, the optimizer, the batch.
    """
    tape, tokens, x = Tape(), LINES * SHORT, [LINES, SHORT, MODEL]
    loader(rt, 230)
    for _ in range(3):
        pinned(rt, 8 * tokens, x[:2], "long int")
    few(rt, "ne cumsum mul add", x[:2], 3)
    acts(rt, tape, replace(TURING, kind="float"), "embedding embedding embedding add add", x)
    norm(rt, tape, replace(TURING, kind="float"), x)
    acts(rt, tape, TURING, "dropout", x)
    for _ in range(12):
        casts(rt, TURING, *[[MODEL, MODEL]] * 4, [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        for _ in range(3):
            dense(rt, tape, TURING, LINES, (tokens, MODEL, MODEL))
        attention(rt, tape, TURING, [LINES, 12, SHORT, 64])
        acts(rt, tape, TURING, "turn", x)
        dense(rt, tape, TURING, LINES, (tokens, MODEL, MODEL))
        acts(rt, tape, TURING, "dropout add", x)
        norm(rt, tape, TURING, x)
        dense(rt, tape, TURING, LINES, (tokens, MODEL, 4 * MODEL))
        acts(rt, tape, TURING, "gelu", [*x[:2], 4 * MODEL])
        dense(rt, tape, TURING, LINES, (tokens, 4 * MODEL, MODEL))
        acts(rt, tape, TURING, "dropout add", x)
        norm(rt, tape, TURING, x)
    acts(rt, tape, TURING, "dropout", x)
    dense(rt, tape, TURING, LINES, (tokens, MODEL, 9))
    judged(rt, tape, TURING, tokens, 9)
    acts(rt, tape, replace(TURING, kind="float"), "scale", [1])
    back(rt, tape)
    foreach(rt, "_foreach_add_", "BinaryOpListAlphaFunctor", TURING.moves(12 * WORDS * MODEL), 2, 90)  # the embeddings
    unscaled(rt, TURING, 277e6)
    clipped(rt, TURING, 277e6, 2)
    fused_adamw(rt, TURING, 277e6)
    few(rt, "add_", [1])
    rt.host(560)


SOUNDS, SAMPLES, MELS = 24, 8_192, 80
AMPERE_CARD = Roofline(28, 790, "float", TF32, ("", ""))
KERNELS = Look(AMPERE_CARD, TF32_LOOK.names)
UPS = ((512, 256, 8, 256), (256, 128, 8, 2_048), (128, 64, 2, 4_096), (64, 32, 2, 8_192))


def _line(rt: Framed, tape: Tape, of: Line) -> None:
    """A convolution with `weight_norm`, and its slope."""
    size = [of.cout, of.cin, of.side]
    number = rt.op("aten::_weight_norm_interface", gap=9, us=6, dims=(size,), graph=True, run=(
        ("void at::native::(anonymous namespace)::weight_norm_fwd_first_dim_kernel<float, float>(…)",
         max(3.0, AMPERE_CARD.moves(8 * prod(size)))),))  # fmt: skip
    tape.append(lambda: rt.grad("WeightNormInterfaceBackward0", number, "aten::_weight_norm_interface_backward", run=(
        ("void at::native::(anonymous namespace)::weight_norm_bwd_first_dim_kernel<float, float>(…)",
         max(3.5, AMPERE_CARD.moves(12 * prod(size)))),), dims=(size,)))  # fmt: skip
    line(rt, tape, of, KERNELS)
    elementwise(rt, tape, AMPERE_CARD, "leaky_relu", [of.batch, of.cout, of.width],
                back=(("leaky_relu_backward", 3),))  # fmt: skip


def _voiced(rt: Framed, tape: Tape) -> None:
    """The generator V1."""
    _line(rt, tape, Line(SOUNDS, MELS, 512, 7, 1, 32))
    for cin, cout, stride, length in UPS:
        _line(rt, tape, Line(SOUNDS, cin, cout, 2 * stride, 1, length, stride=stride, turned=True))
        for side in (3, 7, 11):
            for _ in range(3):
                for _ in range(2):
                    _line(rt, tape, Line(SOUNDS, cout, cout, side, 1, length))
                acts(rt, tape, AMPERE_CARD, "add", [SOUNDS, cout, length])
        acts(rt, tape, AMPERE_CARD, "add add scale", [SOUNDS, cout, length])
    _line(rt, tape, Line(SOUNDS, 32, 1, 7, 1, SAMPLES))


def _heard(rt: Framed, tape: Tape, count: int) -> None:
    """Discriminators of five periods and three scales, of so many sounds."""
    for _ in range(5):
        length = 6_561
        for cin, cout in ((1, 32), (32, 128), (128, 512), (512, 1_024), (1_024, 1_024), (1_024, 1)):
            stride = 3 if cin < 1_024 else 1
            length //= stride
            _line(rt, tape, Line(count, cin, cout, 5, 1, length, stride=stride))
    for scale in (1, 2, 4):
        length = SAMPLES // scale
        for cin, cout, stride, of in ((1, 128, 1, 1), (8, 128, 2, 16), (8, 256, 2, 16), (16, 512, 4, 16),
                                      (32, 1_024, 4, 16), (64, 1_024, 1, 16), (1_024, 1_024, 1, 1),
                                      (1_024, 1, 1, 1)):  # fmt: skip
            length //= stride
            side = 41 if of > 1 else 15 if cin == 1 else 5 if cout > 1 else 3
            _line(rt, tape, Line(count, cin, cout, side, 1, length, stride=stride, groups=of))


def hifigan(rt: Framed, fixed: bool) -> None:
    """Nothing to change: HiFi-GAN V1 on an RTX 3090, TF32, 24 sounds of 8,192 samples: discriminators and the generator
    learn in turn; kernels are many, but launches are ahead of them all the time, as no value is read (losses are
    written each 100th step). Two optimizers by lists. No shapes.

    Not: launches, waits, the loader, copies, bf16 (the sounds get worse), small kernels of norms of weights, the batch.
    """
    sound = [SOUNDS, 1, SAMPLES]
    loader(rt, 160)
    pinned(rt, 4 * SOUNDS * MELS * 32, [SOUNDS, MELS, 32])
    pinned(rt, 4 * prod(sound), sound)
    made, judge, tape = Tape(), Tape(), Tape()
    _voiced(rt, made)
    _heard(rt, judge, 2 * SOUNDS)
    acts(rt, judge, AMPERE_CARD, "sub pow mean add", [2 * SOUNDS, 1, 700])
    back(rt, judge)
    adam(rt, AMPERE_CARD, 70.7e6, "AdamW", 2)
    _heard(rt, tape, 2 * SOUNDS)
    for width, length in ((128, 8_192), (256, 2_048), (512, 512), (1_024, 128)):  # features
        acts(rt, tape, AMPERE_CARD, "sub mean", [SOUNDS, width, length])
    acts(rt, tape, AMPERE_CARD, "sub pow mean scale add", sound)
    rt.op("aten::stft", "aten::_fft_r2c", gap=22, us=14, dims=([SOUNDS * 32, 1_024],), run=(
        ("void vector_fft<1024u, EPT<8>, float>(…)", AMPERE_CARD.moves(12 * SOUNDS * 32 * 513)),))  # fmt: skip
    acts(rt, tape, AMPERE_CARD, "sub mean scale add", [SOUNDS, MELS, 32])
    with rt.backward():
        while tape:
            tape.pop()()
        while made:
            made.pop()()
    adam(rt, AMPERE_CARD, 13.9e6, "AdamW", 1)
    rt.host(300)


ROWS, SEEN, HIDDEN, FED, LAYERS, PIECES = 6, 1_024, 2_048, 16_384, 18, 256_000
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)


def gemma(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Gemma-2B with adapters at queries and values by PEFT and Trainer on an L40S, weights in bf16,
    six texts of 1,024: attention by SDPA, Liger's norms and loss, pinned, AdamW fused, the loss is read each 20th
    step. Shapes.

    Not: launches, waits, the loader, copies, attention, adapters' small products, the loss, the batch.
    """
    tape, x = Tape(), [ROWS, SEEN, HIDDEN]
    loader(rt, 200)
    for _ in range(3):
        pinned(rt, 8 * ROWS * SEEN, x[:2], "long int")
    acts(rt, None, LOVELACE, "embedding", x)
    acts(rt, None, LOVELACE, "scale", x)
    for _ in range(LAYERS):
        fused_norm(rt, tape, LOVELACE, x)
        for out, taught in ((HIDDEN, True), (256, False), (256, True)):
            frozen(rt, tape, LOVELACE, x, out)
            if taught:
                adapter(rt, tape, LOVELACE, x, out)
        for heads in (8, 1):
            acts(rt, tape, LOVELACE, "mul cat mul add", [ROWS, heads, SEEN, 256])
        flash(rt, tape, LOVELACE, [ROWS, 8, SEEN, 256])
        frozen(rt, tape, LOVELACE, x, HIDDEN)
        acts(rt, tape, LOVELACE, "add", x)
        fused_norm(rt, tape, LOVELACE, x)
        for _ in range(2):
            frozen(rt, tape, LOVELACE, x, FED)
        acts(rt, tape, LOVELACE, "gelu mul", [ROWS, SEEN, FED])
        frozen(rt, tape, LOVELACE, [ROWS, SEEN, FED], HIDDEN)
        acts(rt, tape, LOVELACE, "add", x)
    fused_norm(rt, tape, LOVELACE, x)
    linear_loss(rt, tape, LOVELACE, "LigerFusedLinearCrossEntropyFunction",
                ("liger_cross_entropy_kernel", 3 * LOVELACE.moves(2 * ROWS * SEEN * PIECES)),
                (ROWS * SEEN, HIDDEN, PIECES), 1)  # fmt: skip
    back(rt, tape)
    clipped(rt, LOVELACE, 1.6e6)
    fused_adamw(rt, LOVELACE, 1.6e6)
    rt.host(610)
