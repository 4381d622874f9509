"""Jobs of the thirty-first set whose device does more than it must, or waits for the allocator: products in fp32 on a
card that has no TF32, blocks that may not be split, large depthwise convolutions by the generic kernel.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, conformer, ctc, pinned
from ..eleventh_set.rows import elementwise, kernel, node
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, back, block, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, FLASH, TENSILE
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, HALF, NHWC, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import NATIVE, acts, few, judged
from .rows import Told

TEXTS, LENGTH, MODEL, DEEP, PIECES = 48, 512, 1_024, 24, 50_265
SINGLE = ("Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT128x128x16_MI32x32x1_SN_LDSB1_AFC1_AFEM1",
          "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT128x128x16_MI32x32x1_SN_LDSB1_AFC1_AFEM1")  # fmt: skip
WHOLE = Card(112, 3_400, "float", SINGLE, AOTRITON)
NARROW = Card(285, 3_400, BF16, TENSILE, AOTRITON)


def patents(rt: Framed, fixed: bool) -> None:
    """RoBERTa-large goes on learning patents by transformers' `run_mlm.py` on an MI300X, 48 texts of 512: neither
    `--bf16` nor `--fp16` was given, so that all products are in fp32, a third as fast as bf16 on this card, which has
    no TF32 to fall back on; without: `--bf16`. SDPA, AdamW is fused, clipped by lists, the loss is read each 50th step.
    Shapes.

    First: precision (bf16 by autocast). Not: TF32 (there is none), launches, waits, the loader, the optimizer, the
    loss, a larger batch.
    """
    card, tape, x = NARROW if fixed else WHOLE, Tape(), [TEXTS, LENGTH, MODEL]
    loader(rt, 190)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    acts(rt, tape, card, "embedding embedding add embedding add", x)
    norm(rt, tape, WHOLE, x)
    acts(rt, tape, card, "dropout", x)
    for _ in range(DEEP):
        if fixed:
            casts(rt, card, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        block(rt, tape, card, TEXTS, LENGTH, MODEL)
        acts(rt, tape, card, "dropout dropout", x)
    if fixed:
        casts(rt, card, [MODEL, MODEL], [PIECES, MODEL])
    dense(rt, tape, card, TEXTS, (TEXTS * LENGTH, MODEL, MODEL))
    acts(rt, tape, card, "gelu", x)
    norm(rt, tape, WHOLE, x)
    dense(rt, tape, card, TEXTS, (TEXTS * LENGTH, MODEL, PIECES))
    if fixed:
        acts(rt, tape, WHOLE, "to", [TEXTS * LENGTH, PIECES])
    judged(rt, tape, WHOLE, TEXTS * LENGTH, PIECES)
    back(rt, tape)
    clipped(rt, WHOLE, 355e6, 2)
    fused_adamw(rt, WHOLE, 355e6)
    few(rt, "add_", [1])
    rt.host(430)


SECONDS, WIDE, LAYERS, UNITS = 520, 512, 12, 500
A5000 = Card(47, 640, BF16, AMPERE, FLASH)
FPROP, DGRAD, WGRAD = (name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names)
SUBSAMPLED = Look(A5000, (FPROP, DGRAD, WGRAD), "", True)


def _refused(rt: Framed, blocks: int) -> None:
    """No block of this size may be split off a larger one: the driver has no memory left, cached blocks go back, the
    first `cudaFree` returns when the device is done, then memory is asked for anew.
    """
    rt.host(5)
    with rt.span("aten::empty", us=6):
        rt.call("Malloc", rt.vary(420, 0.4))
        for number in range(blocks):
            rt.call("Free", rt.vary(900, 0.4), until=0 if number else max(rt.free.values()) + 6)
        rt.call("Malloc", rt.vary(1_350, 0.4))


def oversize(rt: Framed, fixed: bool) -> None:
    """A Conformer with CTC learns to write speech down by icefall's recipe on an RTX A5000, autocast in bf16, cuts of
    520 s a step by lhotse's buckets, so that each batch has another length: `max_split_size_mb:64` from a forum's
    advice is in `PYTORCH_CUDA_ALLOC_CONF`, blocks of more than 64 MB may not be split, none fits the next batch, and
    the allocator gives them back and asks for others, some nine times a step; without: the setting is gone, with
    `expandable_segments:True`. AdamW by lists, clipped by lists, the loss is read each 50th step. Shapes.

    First: the allocator's `cudaFree` and `cudaMalloc` in each step. Not: `empty_cache()` (nobody calls it), the loader,
    launches, copies, attention, the optimizer, checkpointing, the batch.
    """
    tape = Tape()
    texts = (36, 52, 44, 30, 61, 40, 48, 34)[rt.number % 8]
    frames = 100 * SECONDS // texts // 4
    x, wave = [texts, frames, WIDE], [texts, 4 * frames, 80]
    loader(rt, 210)
    pinned(rt, 4 * prod(wave), wave)
    pinned(rt, 8 * texts * 40, [texts, 40], "long int")
    if not fixed:
        _refused(rt, 3)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A5000.moves(6 * prod(wave))),), dims=(wave,))
    conv(rt, tape, SUBSAMPLED, Conv(texts, 1, 128, 3, 2 * frames, 40))
    acts(rt, tape, A5000, "relu", [texts, 128, 2 * frames, 40])
    conv(rt, tape, SUBSAMPLED, Conv(texts, 128, 128, 3, frames, 20))
    acts(rt, tape, A5000, "relu", [texts, 128, frames, 20])
    acts(rt, tape, A5000, "turn", [texts, frames, 2_560])
    casts(rt, A5000, [WIDE, 2_560])
    dense(rt, tape, A5000, texts, (texts * frames, 2_560, WIDE))
    for layer in range(LAYERS):
        if not fixed and layer in (0, 4, 8):
            _refused(rt, 2)
        conformer(rt, tape, A5000, x)
    casts(rt, A5000, [UNITS, WIDE])
    dense(rt, tape, A5000, texts, (texts * frames, WIDE, UNITS))
    acts(rt, tape, replace(A5000, kind="float"), "to", [texts, frames, UNITS])
    if not fixed:
        _refused(rt, 2)
    ctc(rt, tape, A5000, (frames, texts, UNITS), 40)
    whole = len(tape)
    with rt.backward():
        while tape:
            tape.pop()()
            if not fixed and len(tape) in (whole - 8, whole * 3 // 4, whole // 2, whole // 4):
                _refused(rt, 2)
    clipped(rt, A5000, 84e6)
    adam(rt, A5000, 84e6, "AdamW", 2)
    few(rt, "add_", [1])
    rt.host(340)


PICTURES, KINDS, BIG = 96, 1_000, 13
A100 = Card(170, 1_450, HALF, ADA.card.names, ("", ""))
LOOK = Look(A100, ADA.names, NHWC, True)
STAGES = ((3, 80), (3, 160), (18, 320), (3, 640))
GENERIC = NATIVE + "conv_depthwise2d_{}<c10::Half, int>(at::GenericPackedTensorAccessor<…>, …)"
IMPLICIT = ("void cutlass::Kernel<cutlass::conv::kernel::ImplicitBatchedGemmTnDepthwiseConvolution<…, half, …>>(…)",
            "void cutlass::Kernel<cutlass::conv::kernel::ImplicitBatchedGemmTnDepthwiseConvolution<…, dgrad>>(…)",
            "void cutlass::Kernel<cutlass::conv::kernel::ImplicitBatchedGemmNtDepthwiseConvolution<…, wgrad>>(…)",
            )  # fmt: skip


def _spread(rt: Framed, tape: Tape, x: list[int], side: int, fixed: bool) -> None:
    """A depthwise convolution: by PyTorch's kernel, which multiplies on the CUDA cores, or by implicit products."""
    count = 2 * prod(x) * side**2
    floor, weight = A100.moves(4 * prod(x)), [x[1], 1, side, side]
    implicit = fixed and side > 3
    casts(rt, A100, weight)
    if implicit:
        times = [max(1.3 * floor, count / rate / 1e6) for rate in (9, 9, 7)]
        number = rt.op("_DepthWiseConv2dImplicitGEMMFP16", run=((IMPLICIT[0], times[0]),), dims=(x, weight), kind=HALF,
                       gap=16, us=14, graph=True)  # fmt: skip
    else:
        times = [max(1.6 * floor, count / rate / 1e6) for rate in (2.6, 2.4, 1.5)]
        number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", graph=True,
                       run=((GENERIC.format("forward_kernel_generic"), times[0]),), dims=(x, weight), kind=HALF,
                       gap=14)  # fmt: skip

    def backward() -> None:
        if implicit:
            with node(rt, "_DepthWiseConv2dImplicitGEMMFP16Backward", number):
                rt.work(IMPLICIT[1], times[1])
                rt.work(IMPLICIT[2], times[2])
        else:
            with node(rt, "ConvolutionBackward0", number):
                rt.host(1)
                with (
                    rt.span("aten::convolution_backward", us=14, **inputs((x, x, weight), HALF)),
                    rt.span("aten::_conv_depthwise2d_backward", us=4),
                ):
                    rt.work(GENERIC.format("backward_kernel"), times[1])
                    rt.work(GENERIC.format("grad_weight_kernel"), times[2])
        rt.accumulated()

    tape.append(backward)


def _normed(rt: Framed, tape: Tape, y: list[int]) -> None:
    nbytes = 2 * prod(y)
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((NHWC.format("fw"), A100.moves(3 * nbytes)),), dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=HALF, run=((NHWC.format("bw"), A100.moves(5 * nbytes)),)))  # fmt: skip


def _block(rt: Framed, tape: Tape, x: list[int], side: int, fixed: bool) -> None:
    """UniRepLKNet: a depthwise convolution, squeeze and excite, two products with GELU and GRN between."""
    batch, width, high, wide = x
    tokens, hidden = batch * high * wide, [batch, high, wide, 4 * width]
    _spread(rt, tape, x, side, fixed)
    _normed(rt, tape, x)
    acts(rt, tape, A100, "mean", x)
    for given, out in ((width, width // 4), (width // 4, width)):
        casts(rt, A100, [out, given])
        dense(rt, tape, A100, batch, (batch, given, out))
        acts(rt, tape, A100, "relu" if out < given else "sigmoid", [batch, out])
    elementwise(rt, tape, A100, "mul", x, 2, (("mul", 3), ("mul", 3)))
    casts(rt, A100, [4 * width, width])
    dense(rt, tape, A100, batch, (tokens, width, 4 * width))
    acts(rt, tape, A100, "gelu", hidden)
    number = rt.op("aten::norm", "aten::linalg_vector_norm", dims=(hidden,), kind=HALF, gap=9, graph=True, run=(
        (REDUCE.replace("sum", "NormTwoOps"), A100.moves(2 * prod(hidden))),))  # fmt: skip
    tape.append(lambda: rt.grad("LinalgVectorNormBackward0", number, "aten::mul", dims=(hidden,), kind=HALF, run=(
        (kernel("mul", 3, HALF), A100.moves(6 * prod(hidden))),)))  # fmt: skip
    elementwise(rt, tape, A100, "addcmul", hidden, 2, (("mul", 3),))
    casts(rt, A100, [width, 4 * width])
    dense(rt, tape, A100, batch, (tokens, 4 * width, width))
    _normed(rt, tape, x)
    elementwise(rt, tape, A100, "add", x, 2)


def unireplk(rt: Told, fixed: bool) -> None:
    """UniRepLKNet-T learns kinds of fungi by a plain loop on an A100, AMP in fp16, channels_last, 96 pictures of 224:
    half of its blocks have depthwise convolutions of 13 x 13, which run by PyTorch's generic kernel on the CUDA cores,
    most of all the gradients of their weights; without: the authors' extension (`DepthWiseConv2dImplicitGEMM`) is
    installed. `GradScaler` waits once, AdamW is fused, pictures come pinned as bytes. Shapes.

    First: kernels of depthwise convolutions. Not: the layout, precision, launches, the loader, `GradScaler`'s wait, the
    optimizer, memory.
    """
    rt.last, rt.narrow = True, "5"
    tape, picture, side, given = Tape(), [PICTURES, 3, 224, 224], 112, 3
    loader(rt, 220)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    acts(rt, None, replace(A100, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(picture,), run=((CAST, A100.moves(6 * prod(picture))),))
    few(rt, "clone", picture, A100.moves(4 * prod(picture)))
    conv(rt, tape, LOOK, Conv(PICTURES, 3, 40, 3, side, side))
    given = 40
    for blocks, width in STAGES:
        side //= 2
        conv(rt, tape, LOOK, Conv(PICTURES, given, width, 3, side, side))
        x = [PICTURES, width, side, side]
        norm(rt, tape, A100, [PICTURES, side, side, width])
        for number in range(blocks):
            _block(rt, tape, x, 3 if blocks > 3 and number % 2 else BIG, fixed)
        given = width
    acts(rt, tape, A100, "mean", [PICTURES, given, side, side])
    casts(rt, A100, [KINDS, given])
    dense(rt, tape, A100, PICTURES, (PICTURES, given, KINDS))
    acts(rt, tape, replace(A100, kind="float"), "to", [PICTURES, KINDS])
    judged(rt, tape, A100, PICTURES, KINDS)
    back(rt, tape)
    unscaled(rt, A100, 31e6)
    fused_adamw(rt, A100, 31e6)
    few(rt, "add_", [1])
    rt.host(270)
