"""Jobs of the twenty-fourth set whose device does more than it must: precision, retries of memory, attention.

What the device does without the fault is written with it: TF32, memory that grows in place, attention in one kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.language import flash, upcast_norm
from ..eleventh_set.rows import COPY, FILL, elementwise, foreach, linear
from ..layers import Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, FLASH, MI300X
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import sgd
from ..twelfth_set.rows import Conv, Framed, adapter, conv_norm, frozen, loader
from .rows import acts, judged, products

SLICES, SIDE, WIDE = 24, 224, 768
NORM = "void cudnn::bn_{}_tr_1C11_kernel_NHWC<float, float, float, 512, true, 1, true>(…)"
LOOK = replace(TF32_LOOK, card=replace(TF32_LOOK.card, tflops=58), norm=NORM)
SIMT = Card(16.5, 1_450, "float", ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x128_nn"), ("", ""))
TENSOR = replace(LOOK.card, tflops=82)


def _attended(rt: Framed, tape: Tape, card: Card) -> None:
    """TransUNet's attention, op by op, of 196 patches."""
    x, scores, heads = [SLICES, 196, WIDE], [SLICES, 12, 196, 196], SLICES * 12
    for _ in range(3):
        dense(rt, tape, card, SLICES, (SLICES * 196, WIDE, WIDE))
        acts(rt, tape, card, "turn", x)
    products(rt, tape, card, (heads, 196, 64, 196))
    acts(rt, tape, card, "div softmax dropout", scores)
    products(rt, tape, card, (heads, 196, 196, 64))
    acts(rt, tape, card, "turn", x)
    dense(rt, tape, card, SLICES, (SLICES * 196, WIDE, WIDE))
    acts(rt, tape, card, "dropout add", x)


def transunet(rt: Framed, fixed: bool) -> None:
    """TransUNet, R50 and ViT-B/16, finds organs in slices on an A100, 24 of 224 pixels, channels_last: nothing was set,
    so that cuDNN's convolutions go by TF32 but all products of the transformer are fp32 on the CUDA cores; without:
    `torch.set_float32_matmul_precision("high")`. SGD by lists, the loss is printed each 20th step. Shapes.

    First: products in fp32 (TF32, or autocast). Not: launches, waits, the loader, the layout, the batch.
    """
    tape, card, picture = Tape(), TENSOR if fixed else SIMT, [SLICES, 3, SIDE, SIDE]
    loader(rt, 190)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * SLICES * SIDE**2, [SLICES, SIDE, SIDE], "long int")
    conv_norm(rt, tape, LOOK, Conv(SLICES, 3, 64, 7, 112, 112))
    acts(rt, tape, LOOK.card, "max_pool2d", [SLICES, 64, 55, 55])
    cin = 64
    for blocks, width, side in ((3, 64, 55), (4, 128, 28), (9, 256, 14)):
        for number in range(blocks):
            if number == 0:
                conv_norm(rt, tape, LOOK, Conv(SLICES, cin, 4 * width, 1, side, side))
            for wide, out, kernel in ((cin, width, 1), (width, width, 3), (width, 4 * width, 1)):
                conv_norm(rt, tape, LOOK, Conv(SLICES, wide, out, kernel, side, side))
            acts(rt, tape, LOOK.card, "add relu", [SLICES, 4 * width, side, side])
            cin = 4 * width
    conv_norm(rt, tape, LOOK, Conv(SLICES, 1_024, WIDE, 1, 14, 14))
    x = [SLICES, 196, WIDE]
    acts(rt, tape, card, "turn add dropout", x)
    for _ in range(12):
        norm(rt, tape, card, x)
        _attended(rt, tape, card)
        norm(rt, tape, card, x)
        dense(rt, tape, card, SLICES, (SLICES * 196, WIDE, 4 * WIDE))
        acts(rt, tape, card, "gelu dropout", [SLICES, 196, 4 * WIDE])
        dense(rt, tape, card, SLICES, (SLICES * 196, 4 * WIDE, WIDE))
        acts(rt, tape, card, "dropout add", x)
    norm(rt, tape, card, x)
    conv_norm(rt, tape, LOOK, Conv(SLICES, WIDE, 512, 3, 14, 14))
    for wide, skip, out, side in ((512, 512, 256, 28), (256, 256, 128, 56), (128, 64, 64, 112), (64, 0, 16, 224)):
        acts(rt, tape, LOOK.card, "upsample", [SLICES, wide, side, side])
        acts(rt, tape, LOOK.card, "cat", [SLICES, wide + skip, side, side])
        conv_norm(rt, tape, LOOK, Conv(SLICES, wide + skip, out, 3, side, side))
        conv_norm(rt, tape, LOOK, Conv(SLICES, out, out, 3, side, side))
    conv_norm(rt, tape, LOOK, Conv(SLICES, 16, 9, 3, SIDE, SIDE))
    judged(rt, tape, LOOK.card, SLICES * SIDE**2, 9)
    acts(rt, tape, LOOK.card, "softmax mul sum pow sum div add", [SLICES, 9, SIDE, SIDE])
    back(rt, tape)
    sgd(rt, LOOK.card, 105e6)
    rt.host(380)


LINES, LAYERS, MODEL, HEADS, FED, WORDS = 4, 28, 1_536, 2, 8_960, 151_936
ADA = Card(52, 255, BF16, AMPERE, FLASH)
LONGEST = (612, 488, 731, 540, 655, 502)
GIVEN = ((9, 4), (7, 3), (11, 5), (8, 4), (10, 4), (9, 3))  # segments that go back at each of the retries of a step


def _retried(rt: Framed, fixed: bool, share: float) -> None:
    """`cudaMalloc` is refused, all that is cached and free goes back to the driver, and it is asked once more."""
    if fixed:
        return
    count = round(GIVEN[rt.number % len(GIVEN)][0] * share)
    with rt.span("aten::empty", us=6):
        rt.call("Malloc", rt.vary(260, 0.3))
        for place in range(count):
            rt.call("Free", rt.vary(1_150, 0.5), until=0 if place else rt.free[MAIN] + 6)
        rt.call("Malloc", rt.vary(1_600, 0.3))
    for _ in range(GIVEN[rt.number % len(GIVEN)][1]):
        with rt.span("aten::empty_strided", us=3):
            rt.call("Malloc", rt.vary(1_250, 0.4))


def _decoder(rt: Framed, tape: Tape, x: list[int]) -> None:
    """A layer of Qwen2.5-1.5B, frozen, with adapters at its products."""
    batch, length, width = x
    upcast_norm(rt, tape, ADA, x)
    for out in (width, 128 * HEADS, 128 * HEADS):
        frozen(rt, tape, ADA, x, out)
        adapter(rt, tape, ADA, x, out)
    for count in (width // 128, HEADS):
        acts(rt, tape, ADA, "mul neg cat mul add", [batch, count, length, 128])
    flash(rt, tape, ADA, [batch, width // 128, length, 128])
    frozen(rt, tape, ADA, x, width)
    adapter(rt, tape, ADA, x, width)
    acts(rt, tape, ADA, "add", x)
    upcast_norm(rt, tape, ADA, x)
    for _ in range(2):
        frozen(rt, tape, ADA, x, FED)
    acts(rt, tape, ADA, "silu mul", [batch, length, FED])
    frozen(rt, tape, ADA, [batch, length, FED], width)
    acts(rt, tape, ADA, "add", x)


def padded(rt: Framed, fixed: bool) -> None:
    """Qwen2.5-1.5B with adapters by TRL's `SFTTrainer` on an L4, bf16, four answers of varying lengths: memory is
    nearly full, what is cached has the sizes of other batches, so that `cudaMalloc` is refused three times a step, all
    segments go back one by one while the GPU has nothing to do, and are asked for anew; without:
    `expandable_segments:True`. The loss is read each tenth step. No shapes.

    First: the allocator's retries (memory in pieces). Not: launches, the loader, waits, attention, the optimizer.
    """
    tape, length = Tape(), LONGEST[rt.number % len(LONGEST)]
    x = [LINES, length, MODEL]
    loader(rt, 260)
    for _ in range(3):
        pinned(rt, 8 * LINES * length, x[:2], "long int")
    acts(rt, None, ADA, "embedding", x)
    for number in range(LAYERS):
        if number == 9:
            _retried(rt, fixed, 0.7)
        _decoder(rt, tape, x)
    upcast_norm(rt, tape, ADA, x)
    frozen(rt, tape, ADA, x, WORDS)
    _retried(rt, fixed, 1.0)
    acts(rt, tape, replace(ADA, kind="float"), "turn", [LINES * length, WORDS])
    judged(rt, tape, ADA, LINES * length, WORDS)
    half = len(tape) * 2 // 3
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) == half:
                _retried(rt, fixed, 0.8)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(4 * 8.7e6), 1)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA.moves(8 * 8.7e6), 1)
    fused_adamw(rt, ADA, 8.7e6)
    rt.host(700)


PLACES, TOKENS, LARGE, BLOCKS = 12, 1_370, 1_024, 24
CDNA = replace(MI300X, attention=AOTRITON)
SOFT = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>(…)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, SoftMaxBackwardEpilogue>",
)


def _softmax(rt: Framed, tape: Tape, scores: list[int]) -> None:
    """Autocast has it in fp32: to fp32, softmax, and back for the next product."""
    n = prod(scores)
    cast, behind = ((COPY, CDNA.moves(6 * n)),), ((SOFT[1], CDNA.moves(12 * n)),)
    for place in range(3):
        if place != 1:
            number = rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=cast, dims=(scores,), graph=True, gap=5)
            tape.append(lambda number=number: rt.grad("ToCopyBackward0", number, "aten::to", "aten::_to_copy",
                                                      "aten::copy_", run=cast, dims=(scores,)))  # fmt: skip
            continue
        number = rt.op("aten::softmax", "aten::_softmax", run=((SOFT[0], CDNA.moves(8 * n)),), dims=(scores,),
                       graph=True, gap=8)  # fmt: skip
        tape.append(lambda number=number: rt.grad("SoftmaxBackward0", number, "aten::_softmax_backward_data",
                                                  run=behind, dims=(scores, scores)))  # fmt: skip


def _seen(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`Attention` in place of `MemEffAttention`, or `scaled_dot_product_attention`."""
    x, heads = [PLACES, TOKENS, LARGE], PLACES * 16
    dense(rt, tape, CDNA, PLACES, (PLACES * TOKENS, LARGE, 3 * LARGE))
    if fixed:
        attention(rt, tape, CDNA, [PLACES, 16, TOKENS, 64])
    else:
        acts(rt, tape, CDNA, "scale", x)
        products(rt, tape, CDNA, (heads, TOKENS, 64, TOKENS))
        _softmax(rt, tape, [PLACES, 16, TOKENS, TOKENS])
        products(rt, tape, CDNA, (heads, TOKENS, TOKENS, 64))
        acts(rt, tape, CDNA, "turn", x)
    dense(rt, tape, CDNA, PLACES, (PLACES * TOKENS, LARGE, LARGE))
    acts(rt, tape, CDNA, "mul add", x)


def dinov2(rt: Framed, fixed: bool) -> None:
    """DINOv2 ViT-L/14 fine-tuned for depth at 518 pixels on an MI300X, autocast in bf16, 12 pictures: xFormers is not
    there ("xFormers is not available (Attention)"), so that the model falls back to attention op by op: scores of 1,370
    by 1,370 are written, made fp32, go through softmax and back; without: `scaled_dot_product_attention`. Shapes.

    First: attention that writes its scores (SDPA). Not: launches, waits, the loader, layouts, the optimizer.
    """
    tape, picture, x = Tape(), [PLACES, 3, 518, 518], [PLACES, TOKENS, LARGE]
    loader(rt, 180)
    for size in (picture, [PLACES, 1, 518, 518]):
        rt.host(8)
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(4 * prod(size))
    dense(rt, tape, CDNA, PLACES, (PLACES * (TOKENS - 1), 588, LARGE))
    acts(rt, tape, CDNA, "cat add", x)
    for _ in range(BLOCKS):
        casts(rt, CDNA, [3 * LARGE, LARGE], [LARGE, LARGE], [4 * LARGE, LARGE], [LARGE, 4 * LARGE])
        norm(rt, tape, CDNA, x)
        _seen(rt, tape, fixed)
        norm(rt, tape, CDNA, x)
        dense(rt, tape, CDNA, PLACES, (PLACES * TOKENS, LARGE, 4 * LARGE))
        acts(rt, tape, CDNA, "gelu", [*x[:2], 4 * LARGE])
        dense(rt, tape, CDNA, PLACES, (PLACES * TOKENS, 4 * LARGE, LARGE))
        acts(rt, tape, CDNA, "mul add", x)
    norm(rt, tape, CDNA, x)
    linear(rt, tape, CDNA, [PLACES, TOKENS - 1, 2 * LARGE], 256)
    wide = replace(CDNA, kind="float")
    acts(rt, tape, CDNA, "upsample", [PLACES, 256, 148, 148])
    linear(rt, tape, CDNA, [PLACES, 148 * 148, 256], 1)
    acts(rt, tape, wide, "log sub pow mean", [PLACES, 1, 518, 518])
    elementwise(rt, tape, wide, "add", [1], 2)
    rt.op("aten::fill_", run=((FILL, 2.2),), dims=([1],), gap=5)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", CDNA.moves(4 * 304e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", CDNA.moves(8 * 304e6), 3)
    fused_adamw(rt, CDNA, 304e6)
    rt.host(420)
