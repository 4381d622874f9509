"""Jobs of the thirtieth set whose device does more than it must, or waits for the host's memory: products in TF32 where
bf16 would do, an optimizer in the host's memory, convolutions that must be deterministic.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from math import ceil, prod

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.language import llama
from ..eleventh_set.rows import COPY, elementwise, linear, node
from ..kineto import inputs
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, CUTLASS, HALF, NHWC, TF32, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_sixth_set.rows import judged_map

TEXTS, LENGTH, SAID, WIDE, DEEP, WORDS = 6, 768, 128, 1_024, 12, 50_264
WHOLE = Card(30, 780, "float", TF32, CUTLASS)
NARROW = Card(58, 780, BF16, AMPERE, FLASH)


def _weights(rt: Framed, fixed: bool, *sizes: list[int]) -> None:
    if fixed:
        casts(rt, NARROW, *sizes)


def _attended(rt: Framed, tape: Tape, card: Card, x: list[int], keys: int) -> None:
    """BART's attention by SDPA: queries, keys and values apart;  keys: how many tokens are looked at."""
    batch, length, width = x
    for count in (length, keys, keys):
        dense(rt, tape, card, batch, (batch * count, width, width))
    if keys == length:
        attention(rt, tape, card, [batch, 16, length, 64])
    else:
        dims, held = [batch, 16, length, 64], [batch, 16, keys, 64]
        us = card.product(batch * 16 * length, keys, 128) / 0.55
        flash = "flash" in card.attention[0]
        outer = "aten::_scaled_dot_product_{}_attention".format("flash" if flash else "efficient")
        inner = "aten::_{}_attention_forward".format("flash" if flash else "efficient")
        number = rt.op("aten::scaled_dot_product_attention", outer, inner, run=((card.attention[0], us),), gap=14,
                       dims=(dims, held, held), kind=card.kind, graph=True)  # fmt: skip
        title = "ScaledDotProduct{}AttentionBackward0".format("Flash" if flash else "Efficient")
        tape.append(lambda: rt.grad(title, number, outer + "_backward", run=((card.attention[1], 2.5 * us),), us=12,
                                    dims=(dims, dims, held, held), kind=card.kind))  # fmt: skip
    dense(rt, tape, card, batch, (batch * length, width, width))
    acts(rt, tape, card, "dropout add", x)
    norm(rt, tape, card, x)


def bart(rt: Framed, fixed: bool) -> None:
    """BART-large learns to sum up minutes by transformers' `Seq2SeqTrainer` on an RTX 3090, six texts of 768, answers
    of 128: `tf32=True` was set and `bf16` was not, so that all products are in TF32, half as fast as bf16, and all
    tensors lie in fp32; without: `bf16=True`. SDPA, AdamW is fused, clipped by lists, the loss is read each 50th step.
    Shapes.

    First: precision (bf16 by autocast). Not: TF32 (it is on), launches, waits, the loader, the optimizer, the loss, a
    larger batch.
    """
    card, tape = NARROW if fixed else WHOLE, Tape()
    loader(rt, 190)
    for size in ([TEXTS, LENGTH], [TEXTS, LENGTH], [TEXTS, SAID], [TEXTS, SAID]):
        pinned(rt, 8 * prod(size), size, "long int")
    for length, crossed in ((LENGTH, False), (SAID, True)):
        x = [TEXTS, length, WIDE]
        acts(rt, tape, card, "embedding scale embedding add", x)
        norm(rt, tape, card, x)
        acts(rt, tape, card, "dropout", x)
        for _ in range(DEEP):
            _weights(rt, fixed, *[[WIDE, WIDE]] * (8 if crossed else 4), [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
            _attended(rt, tape, card, x, length)
            if crossed:
                _attended(rt, tape, card, x, LENGTH)
            dense(rt, tape, card, TEXTS, (TEXTS * length, WIDE, 4 * WIDE))
            acts(rt, tape, card, "gelu", [TEXTS, length, 4 * WIDE])
            dense(rt, tape, card, TEXTS, (TEXTS * length, 4 * WIDE, WIDE))
            acts(rt, tape, card, "dropout add", x)
            norm(rt, tape, card, x)
    _weights(rt, fixed, [WORDS, WIDE])
    linear(rt, tape, card, [TEXTS, SAID, WIDE], WORDS)
    if fixed:
        acts(rt, tape, WHOLE, "to", [TEXTS * SAID, WORDS])
    judged(rt, tape, WHOLE, TEXTS * SAID, WORDS)
    back(rt, tape)
    clipped(rt, WHOLE, 406e6, 2)
    fused_adamw(rt, WHOLE, 406e6)
    few(rt, "add_", [1])
    rt.host(430)


PACKS, TOKENS, MODEL, FED, LAYERS, PIECES = 10, 2_048, 2_048, 5_632, 24, 100_352
EACH = 4 * MODEL * MODEL + 3 * MODEL * FED
ENDS = 2 * PIECES * MODEL
ALL = LAYERS * EACH + ENDS


def _left(rt: Framed, count: int) -> None:
    """A layer's gradients in fp32 go to pinned memory of the host on DeepSpeed's stream."""
    for part in (count * MODEL * MODEL // EACH,) * 4 + (count * MODEL * FED // EACH,) * 3:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, H100.moves(6 * part)),), dims=([part],),
              kind=BF16, gap=22)  # fmt: skip
        rt.waits(COPIES, rt.free[MAIN])
        with rt.span("aten::copy_", **inputs(([part], [part]), "float")):
            rt.copy(4 * part, "DtoH", stream=COPIES)


def zerooff(rt: Framed, fixed: bool) -> None:
    """StableLM-2-1.6B is tuned whole by the Trainer and DeepSpeed on one H100, all in bf16, ten packs of 2,048: the
    configuration was taken from a tutorial for small cards, with `"offload_optimizer": {"device": "cpu"}`, so that
    gradients go to the host, `DeepSpeedCPUAdam` works there while the GPU idles, and weights come back, though all of
    it fits into 80 GB; without: no offload, `FusedAdam` on the GPU. FlashAttention, a compiled loss, the loss is
    read each 20th step. No shapes.

    First: the optimizer in the host's memory (offload). Not: launches, the loader, copies as such (they are pinned),
    attention, precision, the batch.
    """
    tape, x, marks = Tape(), [PACKS, TOKENS, MODEL], set[int]()
    loader(rt, 180)
    for _ in range(3):
        pinned(rt, 8 * PACKS * TOKENS, x[:2], "long int")
    acts(rt, tape, H100, "embedding", x)
    for _ in range(LAYERS):
        marks.add(len(tape))
        llama(rt, tape, H100, (PACKS, TOKENS, MODEL, 32, FED), norm)
    norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, PIECES)
    compiled_loss(rt, tape, H100, PACKS * TOKENS, PIECES)
    rt.free.setdefault(COPIES, 0.0)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks and not fixed:
                _left(rt, EACH)
        if not fixed:
            _left(rt, ENDS)
    if fixed:
        clipped(rt, H100, ALL, 4, 2)
        fused_adamw(rt, H100, ALL)
        rt.op("aten::copy_", run=((CAST, H100.moves(6 * ALL)),), gap=20, dims=([ALL],))
        rt.host(900)
        return
    few(rt, "norm add pow", [1], 4)
    rt.call("StreamSynchronize", 4, until=max(rt.free[COPIES], rt.free[MAIN]) + 4)
    rt.value()
    with rt.span("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation", us=200):
        rt.host(ALL * 28 / 170e3)
    on_host(rt, "aten::copy_", ALL * 6 / 130e3, [ALL])
    rt.host(300)
    for part in (ALL // 4,) * 4:
        with rt.span("aten::copy_", **inputs(([part], [part]), BF16)):
            rt.copy(2 * part)
    rt.call("StreamSynchronize", 4, until=rt.free[MAIN] + 4)
    rt.host(900)


PICTURES, KINDS = 10, 19
A100 = Card(150, 1_450, HALF, ADA.card.names, ("", ""))
LOOK = Look(A100, ADA.names, NHWC, True)
SINGLE = (
    "sm80_xmma_wgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x32x64_stage5_warpsize2x1x1_g1_"
    "tensor16x8x16_kernel_cudnn"
)


def _conv(rt: Framed, tape: Tape, of: Conv, fixed: bool) -> None:
    """A convolution, whose weight's gradient is summed in one block for each tile, or by parts of the sum as well."""
    if fixed:
        conv(rt, tape, LOOK, of)
        return
    us, (x, w, y) = of.us(A100), of.dims
    casts(rt, A100, w)
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((LOOK.names[0], us),), dims=(x, w), kind=HALF, gap=14)  # fmt: skip
    blocks = ceil(of.cout / 64) * ceil(of.cin * of.side**2 / 32)
    alone = us * max(1.25, 216 / max(blocks, 36))

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.host(1)
            with rt.span("aten::convolution_backward", us=16, **inputs((y, x, w), HALF)):
                with rt.span("aten::cudnn_convolution_backward_input", us=4):
                    rt.work(LOOK.names[1], us)
                with rt.span("aten::cudnn_convolution_backward_weight", us=4):
                    rt.work(SINGLE, alone, grid=[ceil(of.cout / 64), blocks // ceil(of.cout / 64), 1],
                            block=[64, 1, 1])  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def _layer(rt: Framed, tape: Tape, of: Conv, fixed: bool) -> None:
    """A convolution, its batch norm, a ReLU in place."""
    _conv(rt, tape, of, fixed)
    y = of.dims[2]
    nbytes = 2 * prod(y)
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((NHWC.format("fw"), A100.moves(3 * nbytes)),), dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=HALF, run=((NHWC.format("bw"), A100.moves(5 * nbytes)),)))  # fmt: skip
    elementwise(rt, tape, A100, "relu_", y, back=(("threshold_backward", 3),))


def seeded(rt: Framed, fixed: bool) -> None:
    """A UNet learns street scenes of 512 x 1,024 by a plain loop on an A100, AMP in fp16, channels_last, ten pictures:
    `seed_everything` sets `cudnn.deterministic = True` and `benchmark = False`, so that cuDNN may not split the sums of
    weights' gradients, and those of large maps with few channels run in a few dozen blocks of 108 multiprocessors;
    without: `benchmark = True`, sums are split. SGD by lists, `GradScaler` waits once, pictures come pinned as bytes.
    Shapes.

    First: convolutions whose weight gradients are slow (cuDNN's choice, deterministic). Not: the layout, precision,
    launches, the loader, `GradScaler`'s wait, the optimizer, memory.
    """
    tape, picture, high, long = Tape(), [PICTURES, 3, 512, 1_024], 512, 1_024
    loader(rt, 230)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PICTURES * high * long, [PICTURES, high, long], "long int")
    acts(rt, None, Card(1, 1_450, "float", ("", ""), ("", "")), "to sub div", picture)
    few(rt, "copy_", picture, A100.moves(8 * prod(picture)))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(picture,), run=((CAST, A100.moves(6 * prod(picture))),))
    given = 3
    for depth, width in enumerate((32, 64, 128, 256, 512)):
        if depth:
            high, long = high // 2, long // 2
            acts(rt, tape, A100, "max_pool2d", [PICTURES, given, high, long])
        for cin in (given, width):
            _layer(rt, tape, Conv(PICTURES, cin, width, 3, high, long), fixed)
        given = width
    for width in (256, 128, 64, 32):
        high, long = 2 * high, 2 * long
        acts(rt, tape, A100, "upsample", [PICTURES, given, high, long])
        _conv(rt, tape, Conv(PICTURES, given, width, 1, high, long), fixed)
        acts(rt, tape, A100, "cat", [PICTURES, 2 * width, high, long])
        for cin in (2 * width, width):
            _layer(rt, tape, Conv(PICTURES, cin, width, 3, high, long), fixed)
        given = width
    _conv(rt, tape, Conv(PICTURES, given, KINDS, 1, high, long), fixed)
    acts(rt, tape, Card(1, 1_450, "float", ("", ""), ("", "")), "to", [PICTURES, KINDS, high, long])
    judged_map(rt, tape, A100, [PICTURES, KINDS, high, long])
    back(rt, tape)
    unscaled(rt, A100, 7.8e6)
    sgd(rt, A100, 7.8e6)
    few(rt, "add_", [1])
    rt.host(260)
