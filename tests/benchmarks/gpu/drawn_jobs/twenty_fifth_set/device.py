"""Jobs of the twenty-fifth set whose device does more than it must: precision, layout of memory, attention in slices.

What the device does without the fault is written with it: a teacher under autocast, channels_last, attention in one
kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import COPY, elementwise, kernel, moved_as, node
from ..fifteenth_set.rows import AMPERE_HALF, product, sdpa
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import H100, TO_NCHW, TO_NHWC
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, CUTLASS, HALF, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fourth_set.rows import acts, few, judged, products
from .rows import clipped, group_norm

LINES, LENGTH, WIDE, WORDS = 48, 256, 768, 30_522
SIMT = Card(47, 2_600, "float", (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__"
    "5x_cublas", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_"
    "execute_kernel__5x_cublas"), CUTLASS)  # fmt: skip
BF16_CARD = replace(H100, tflops=430)


def _bert(rt: Framed, tape: Tape, card: Card, *, dropout: bool) -> None:
    """A layer of BERT-base."""
    x, tokens = [LINES, LENGTH, WIDE], LINES * LENGTH
    if card.size == 2:
        casts(rt, card, *[[WIDE, WIDE]] * 4, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
    for _ in range(3):
        dense(rt, tape, card, LINES, (tokens, WIDE, WIDE))
    attention(rt, tape, card, [LINES, 12, LENGTH, 64])
    acts(rt, tape, card, "turn", x)
    dense(rt, tape, card, LINES, (tokens, WIDE, WIDE))
    acts(rt, tape, card, "dropout add" if dropout else "add", x)
    norm(rt, tape, card, x)
    dense(rt, tape, card, LINES, (tokens, WIDE, 4 * WIDE))
    acts(rt, tape, card, "gelu", [*x[:2], 4 * WIDE])
    dense(rt, tape, card, LINES, (tokens, 4 * WIDE, WIDE))
    acts(rt, tape, card, "dropout add" if dropout else "add", x)
    norm(rt, tape, card, x)


def _worded(rt: Framed, tape: Tape, card: Card, layers: int, *, dropout: bool) -> None:
    """Embeddings, layers, and the head of a masked language model."""
    x = [LINES, LENGTH, WIDE]
    acts(rt, tape, card, "embedding embedding add", x)
    norm(rt, tape, card, x)
    for _ in range(layers):
        _bert(rt, tape, card, dropout=dropout)
    dense(rt, tape, card, LINES, (LINES * LENGTH, WIDE, WIDE))
    acts(rt, tape, card, "gelu", x)
    norm(rt, tape, card, x)
    if card.size == 2:
        casts(rt, card, [WORDS, WIDE])
    dense(rt, tape, card, LINES, (LINES * LENGTH, WIDE, WORDS))


def teacher(rt: Framed, fixed: bool) -> None:
    """A BERT of six layers learns from BERT-base by Accelerate on an H100, `mixed_precision="bf16"`, 48 texts of 256:
    `accelerator.prepare` puts autocast around the student alone, so that the teacher's twelve layers and its head are
    fp32 on the CUDA cores (TF32 is off by default); without: the teacher is called under `accelerator.autocast()`. The
    optimizer is fused, the loss is read each 50th step. Shapes.

    First: products in fp32 (autocast around the teacher, TF32). Not: launches, waits, the loader, the batch.
    """
    tape, rows, wide = Tape(), LINES * LENGTH, replace(H100, kind="float")
    loader(rt, 200)
    for _ in range(3):
        pinned(rt, 8 * rows, [LINES, LENGTH], "long int")
    _worded(rt, tape, BF16_CARD, 6, dropout=True)
    moved_as(rt, tape, H100, [LINES, LENGTH, WORDS])  # Accelerate returns fp32
    with without_graph(rt):
        _worded(rt, [], BF16_CARD if fixed else SIMT, 12, dropout=False)
    if fixed:
        few(rt, "to", [LINES, LENGTH, WORDS], H100.moves(6 * rows * WORDS))
    with without_graph(rt):
        acts(rt, None, wide, "scale softmax", [rows, WORDS])
    acts(rt, tape, wide, "scale logsumexp", [rows, WORDS])
    acts(rt, tape, wide, "sub mul sum", [rows, WORDS])
    judged(rt, tape, H100, rows, WORDS)
    acts(rt, tape, wide, "scale scale add", [1])
    back(rt, tape)
    clipped(rt, H100, 67e6)
    fused_adamw(rt, H100, 67e6)
    rt.host(620)


SHOWN, STAGES = 96, ((3, 96, 56), (3, 192, 28), (9, 384, 14), (3, 768, 7))
CARD = AMPERE_HALF.card
PLANAR = ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<0, c10::Half, int>(…)",
          "void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<0, 1, c10::Half, int>(…)",
          "void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<c10::Half, int>(…)")  # fmt: skip
DIRECT = tuple("void cudnn::cnn::conv2d_grouped_direct_" + way for way in (
    "kernel<false, true, false, false, 0, 0, int, __half, __half, …>(…)",
    "dgrad_kernel<…, __half, …>(…)", "wgrad_kernel<…, __half, …>(…)"))  # fmt: skip
STRIDED = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::{}>(…)>(int, …)"


def _depthwise(rt: Framed, tape: Tape, width: int, side: int, fixed: bool) -> None:
    """`Conv2d(groups=channels)` of 7 x 7: PyTorch's own kernels of planes, or cuDNN's."""
    y, weight = [SHOWN, width, side, side], [width, 1, 7, 7]
    once = CARD.moves(2 * prod(y))
    names, times = (DIRECT, (2.6, 2.8, 4.2)) if fixed else (PLANAR, (4.4, 4.8, 7.5))
    casts(rt, CARD, weight)
    inner = "aten::cudnn_convolution" if fixed else "aten::_conv_depthwise2d"
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", inner, graph=True, gap=16,
                   run=((names[0], times[0] * once),), dims=(y, weight), kind=HALF)  # fmt: skip

    def backward() -> None:
        turned = () if fixed else ((COPY, 2 * once),)
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", us=16, gap=1, dims=(y, y, weight), kind=HALF, run=(
                *turned, (names[1], times[1] * once), (names[2], times[2] * once)))  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def _patched(rt: Framed, tape: Tape, of: tuple[int, int, int], fixed: bool) -> None:
    """The convolution between stages, without overlap: cuDNN's kernels are NHWC, so that it turns what is not."""
    cin, width, side = of
    step = 4 if cin == 3 else 2
    x, w, y = [SHOWN, cin, step * side, step * side], [width, cin, step, step], [SHOWN, width, side, side]
    us = max(CARD.product(prod(y) // width, width, cin * step**2), CARD.moves(2 * (prod(x) + prod(y))))

    def run(name: str, came: tuple[list[int], ...], gone: list[int]) -> tuple[tuple[str, float], ...]:
        if fixed:
            return ((name, us),)
        turned = tuple((TO_NHWC, CARD.moves(4.5 * prod(one))) for one in came)
        return (*turned, (name, us), (TO_NCHW, CARD.moves(4.5 * prod(gone))))

    casts(rt, CARD, w)
    if cin > 3 and not fixed:
        rt.op("aten::contiguous", "aten::clone", "aten::copy_", gap=4, dims=(x,), kind=HALF,
              run=((COPY, CARD.moves(4 * prod(x))),))  # fmt: skip
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=run(AMPERE_HALF.names[0], (x, w), y), dims=(x, w), kind=HALF, gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            both = run(AMPERE_HALF.names[1], (y, w), x) if cin > 3 else ()
            rt.op("aten::convolution_backward", us=18, kind=HALF, gap=1, dims=(y, x, w),
                  run=both + run(AMPERE_HALF.names[2], (y, x), w))  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def _added(rt: Framed, tape: Tape, name: str, size: list[int], fixed: bool) -> None:
    """An op of a tensor of planes and one that was permuted, whose kernel goes by strides."""
    if fixed:
        acts(rt, tape, CARD, name, size)
        return
    us, functor = CARD.moves(3 * 2 * prod(size)), "CUDAFunctor_add<c10::Half>" if name == "add" else "MulFunctor<float>"
    number = rt.op(f"aten::{name}", run=((STRIDED.format(functor), 1.7 * us),), dims=(size, size), graph=True, gap=8,
                   kind=HALF)  # fmt: skip
    inner = ((kernel("mul", 3, HALF), us), (STRIDED.format("MulFunctor<float>"), 1.7 * us))
    if name == "mul":
        tape.append(lambda: rt.grad("MulBackward0", number, "aten::mul", run=inner, dims=(size, size), kind=HALF))
    else:
        tape.append(lambda: rt.grad("AddBackward0", number, dims=(size,), kind=HALF))


def _normed(rt: Framed, tape: Tape, size: list[int], fixed: bool) -> None:
    """`permute`, `layer_norm` in fp32: a tensor of planes is made contiguous in it."""
    n = prod(size)
    moved_as(rt, tape, CARD, size)
    rt.op("aten::permute", dims=(size,), gap=5)
    run = () if fixed else ((COPY, CARD.moves(8 * n)),)
    if run:
        rt.op("aten::contiguous", "aten::clone", "aten::copy_", run=run, dims=(size,), gap=4)
    norm(rt, tape, replace(CARD, kind="float"), size)


def convnext(rt: Framed, fixed: bool) -> None:
    """ConvNeXt-T by timm's `train.py --amp` on an RTX 3090, 96 pictures: `--channels-last` was forgotten, so that
    depthwise convolutions go by PyTorch's kernels of planes, each permuted tensor is copied before its norm, sums go by
    strides and cuDNN turns tensors around the convolutions between stages; without: channels_last. timm's prefetcher
    copies bytes, AdamW is fused, `GradScaler` waits once. Shapes.

    First: the layout of memory (channels_last). Not: launches, the loader, `GradScaler`'s wait, TF32, the batch.
    """
    tape, picture, cin = Tape(), [SHOWN, 3, 224, 224], 3
    loader(rt, 170)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * SHOWN, [SHOWN], "long int")
    acts(rt, None, replace(CARD, kind="float"), "to sub div", picture)
    for count, width, side in STAGES:
        size = [SHOWN, side, side, width]
        if cin > 3:
            _normed(rt, tape, [SHOWN, 2 * side, 2 * side, cin], fixed)
        _patched(rt, tape, (cin, width, side), fixed)
        for _ in range(count):
            _depthwise(rt, tape, width, side, fixed)
            _normed(rt, tape, size, fixed)
            casts(rt, CARD, [4 * width, width], [width, 4 * width])
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(size))),), dims=(size,))
            dense(rt, tape, CARD, SHOWN, (SHOWN * side**2, width, 4 * width))
            acts(rt, tape, CARD, "gelu", [*size[:3], 4 * width])
            dense(rt, tape, CARD, SHOWN, (SHOWN * side**2, 4 * width, width))
            rt.op("aten::permute", dims=(size,), gap=5)
            _added(rt, tape, "mul", size, fixed)
            acts(rt, tape, CARD, "scale", size)  # drop_path
            _added(rt, tape, "add", size, fixed)
        cin = width
    acts(rt, tape, CARD, "mean", [SHOWN, 768, 7, 7])
    norm(rt, tape, CARD, [SHOWN, 768])
    dense(rt, tape, CARD, SHOWN, (SHOWN, 768, 1_000))
    judged(rt, tape, CARD, SHOWN, 1_000)
    back(rt, tape)
    unscaled(rt, CARD, 28.6e6)
    fused_adamw(rt, CARD, 28.6e6)
    elementwise(rt, [], CARD, "add_", [1], 2)
    rt.host(480)


MADE, TEXT = 8, 77
PAINTS = replace(A100, kind=HALF, names=ADA.card.names)
DRAWS = Look(replace(PAINTS, tflops=165), ADA.names)
SOFT = "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, {}, false, false>(…)"
LARGE = ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::Half, float, c10::Half, "
         "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(…)")  # fmt: skip


def _resnet(rt: Framed, cin: int, cout: int, side: int) -> None:
    """A residual block with the time's embedding."""
    for place, given in enumerate((cin, cout)):
        group_norm(rt, None, PAINTS, [MADE, given, side, side])
        acts(rt, None, PAINTS, "silu", [MADE, given, side, side])
        conv(rt, None, DRAWS, Conv(MADE, given, cout, 3, side, side))
        if place == 0:
            acts(rt, None, PAINTS, "silu", [MADE, 1_280])
            product(rt, PAINTS, [MADE, 1_280], cout)
            acts(rt, None, PAINTS, "add", [MADE, cout, side, side])
    if cin != cout:
        conv(rt, None, DRAWS, Conv(MADE, cin, cout, 1, side, side))
    acts(rt, None, PAINTS, "add div", [MADE, cout, side, side])


def _attended(rt: Framed, heads: int, tokens: int, keys: int, fixed: bool) -> None:
    """`SlicedAttnProcessor`, or `AttnProcessor2_0`."""
    if fixed:
        sdpa(rt, PAINTS, [MADE, heads, tokens, 64], keys)
        return
    for size in (tokens, keys, keys):
        few(rt, "clone", [MADE, heads, size, 64], PAINTS.moves(4 * MADE * heads * size * 64))
    few(rt, "zeros_like", [MADE * heads, tokens, 64], PAINTS.moves(2 * MADE * heads * tokens * 64))
    each = heads // 2
    scores, soft = [each, tokens, keys], LARGE if keys > 1_024 else SOFT.format(10 if keys > 77 else 7)
    for _ in range(MADE * heads // each):
        for _ in range(3):
            rt.op("aten::slice", dims=([MADE * heads, tokens, 64],), gap=3, us=3)
        rt.op("aten::empty", us=4, gap=4)
        rt.host(3)
        products(rt, None, PAINTS, (each, tokens, 64, keys))
        rt.op("aten::softmax", "aten::_softmax", run=((soft, PAINTS.moves(4 * prod(scores))),), dims=(scores,), gap=8,
              kind=HALF)  # fmt: skip
        products(rt, None, PAINTS, (each, tokens, keys, 64))
        rt.op("aten::copy_", run=((COPY, PAINTS.moves(4 * each * tokens * 64)),), gap=6,
              dims=([each, tokens, 64],), kind=HALF)  # fmt: skip


def _transformer(rt: Framed, width: int, side: int, fixed: bool) -> None:
    """`Transformer2DModel` of one block."""
    tokens, x = side * side, [MADE, side * side, width]
    group_norm(rt, None, PAINTS, [MADE, width, side, side])
    product(rt, PAINTS, x, width)
    for keys in (tokens, TEXT):
        with without_graph(rt):
            norm(rt, [], PAINTS, x)
        product(rt, PAINTS, x, width)
        for _ in range(2):
            product(rt, PAINTS, x if keys == tokens else [MADE, TEXT, 1_024], width)
        _attended(rt, width // 64, tokens, keys, fixed)
        product(rt, PAINTS, x, width)
        acts(rt, None, PAINTS, "div add", x)
    with without_graph(rt):
        norm(rt, [], PAINTS, x)
    product(rt, PAINTS, x, 8 * width)
    acts(rt, None, PAINTS, "gelu mul", [MADE, tokens, 4 * width])
    product(rt, PAINTS, [MADE, tokens, 4 * width], width)
    acts(rt, None, PAINTS, "add", x)
    product(rt, PAINTS, x, width)
    acts(rt, None, PAINTS, "turn add", x)


def sliced(rt: Framed, fixed: bool) -> None:
    """Stable Diffusion 2.1 by diffusers on an A100, fp16, four pictures of 768 with guidance, a step of denoising a
    row: `enable_attention_slicing()` was left from a smaller card, so that attention goes slice by slice in a loop and
    writes its scores, up to 9,216 by 9,216; without: `scaled_dot_product_attention`. channels_last, no gradients, the
    scheduler's few ops stay on the GPU. Shapes.

    First: attention that writes its scores (no slicing, SDPA). Not: waits, a loader, copies, TF32, the layout.
    """
    latents = [MADE, 4, 96, 96]
    few(rt, "cat mul", latents, 3)
    few(rt, "expand to mul cos sin cat", [MADE, 320])
    for wide in (320, 1_280):
        product(rt, PAINTS, [MADE, wide], 1_280)
        acts(rt, None, PAINTS, "silu", [MADE, 1_280])
    conv(rt, None, DRAWS, Conv(MADE, 4, 320, 3, 96, 96))
    levels, cin = ((320, 96), (640, 48), (1_280, 24), (1_280, 12)), 320
    for place, (width, side) in enumerate((*levels, levels[-1], *levels[::-1])):
        up = place > 4
        for number in range(3 if up else 1 if place == 4 else 2):
            if up:
                acts(rt, None, PAINTS, "cat", [MADE, 2 * width, side, side])
            _resnet(rt, 2 * width if up else cin if number == 0 else width, width, side)
            if side > 12 or place == 4:
                _transformer(rt, width, side, fixed)
        if up and side < 96:
            acts(rt, None, PAINTS, "upsample", [MADE, width, 2 * side, 2 * side])
            conv(rt, None, DRAWS, Conv(MADE, width, width, 3, 2 * side, 2 * side))
        elif place < 3:
            conv(rt, None, DRAWS, Conv(MADE, width, width, 3, side // 2, side // 2))
        cin = width
    group_norm(rt, None, PAINTS, [MADE, 320, 96, 96])
    acts(rt, None, PAINTS, "silu", [MADE, 320, 96, 96])
    conv(rt, None, DRAWS, Conv(MADE, 320, 4, 3, 96, 96))
    few(rt, "sub mul add mul mul sub div mul add to", latents, 3)
    rt.host(900)
