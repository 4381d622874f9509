"""Jobs of the thirty-first set without a fault: shards that travel beside the work, pictures whose memory is the bound,
adapters of speech on a slow card, long clips on a B200, forms on a T4.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm, llama
from ..eleventh_set.rows import Roofline, linear
from ..fifteenth_set.rows import B200
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set import HALF as TURING
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, HALF, NHWC, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, adapter, conv, frozen, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import NATIVE, acts, few, judged
from ..twenty_seventh_set.rows import norm_relu
from .rows import Told, ahead

EIGHT, PACKS, LENGTH, WIDE, FED, DEEP, WORDS, NVLINK = list(range(8)), 4, 4_096, 2_048, 11_008, 24, 151_936, 230e3
EACH = 2 * WIDE * WIDE + 2 * WIDE * 256 + 3 * WIDE * FED
SHARDS: dict[str, Any] = {"ranks": EIGHT, "group": "mesh_fsdp", "pg": "1"}


def qwen(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a Qwen2.5 of 24 layers goes on learning by torchtitan on the eight H100 of a node, FSDP2 in
    bf16, rank 6, four packs of 4,096 a rank: weights are gathered a layer ahead and gradients scattered beside the
    work by NVLink, norms are fused, the loss is compiled, AdamW is fused, clipped by lists, the loss is read each tenth
    step. No shapes.

    Not: communication (hardly any shows), reshards, `no_sync`, the loader, launches, attention, the optimizer.
    """
    groups(rt, 8, default_pg=EIGHT, mesh_fsdp=EIGHT)
    rt.head["distributedInfo"]["rank"] = 6
    tape, marks, x = Tape(), list[int](), [PACKS, LENGTH, WIDE]
    rt.free.setdefault(LINKS, 0.0)
    loader(rt, 180)
    for _ in range(2):
        pinned(rt, 8 * PACKS * LENGTH, x[:2], "long int")

    def travels(name: str, count: int, **more: Any) -> float:
        sizes = (count // 8, count) if name == "_allgather_base" else (count, count // 8)
        us = 30 + 2 * count * 7 / 8 / NVLINK
        return rt.collective(name, rt.vary(us, 0.04), sizes, **SHARDS, **more)

    def gathered(count: int) -> float:
        with rt.span("fsdp::all_gather_copy_in", us=8):
            name = "multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<c10::BFloat16, …>>(…)"
            copied = rt.work(NATIVE + name, H100.moves(4 * count / 8), stream=18)
            rt.waits(LINKS, copied)
        return travels("_allgather_base", count, behind=False)

    def out(count: int, end: float) -> None:
        rt.waits(MAIN, end)
        rt.op("fsdp::split_with_sizes_copy", gap=8, us=9, run=(
            ("void at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel(…)", H100.moves(4 * count)),
        ))  # fmt: skip

    out(WORDS * WIDE, gathered(WORDS * WIDE))
    coming = gathered(EACH)
    acts(rt, tape, H100, "embedding", x)
    for number in range(DEEP):
        with rt.span(f"FSDP::pre_forward (layers.{number})", "user_annotation", us=60):
            out(EACH, coming)
            coming = gathered(EACH) if number < DEEP - 1 else 0.0
        marks.append(len(tape))
        llama(rt, tape, H100, (PACKS, LENGTH, WIDE, 4, FED), fused_norm)
    head = len(tape)
    fused_norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, WORDS)
    compiled_loss(rt, tape, H100, PACKS * LENGTH, WORDS)
    last = 0.0
    with rt.backward():
        coming = gathered(EACH)
        while len(tape) > head:
            tape.pop()()
        for number in reversed(range(DEEP)):
            with rt.span(f"FSDP::pre_backward (layers.{number})", "user_annotation", us=50):
                out(EACH, coming)
                coming = gathered(EACH) if number else 0.0
            while len(tape) > marks[number]:
                tape.pop()()
            with rt.span(f"FSDP::post_backward_reduce (layers.{number})", "user_annotation", us=50):
                last = travels("_reduce_scatter_base", EACH)
        while tape:
            tape.pop()()
        last = max(last, travels("_reduce_scatter_base", WORDS * WIDE))
    rt.waits(MAIN, last)
    total = (DEEP * EACH + WORDS * WIDE) / 8
    clipped(rt, H100, total, 1)
    fused_adamw(rt, H100, total)
    rt.host(480)


PICTURES, KINDS, GROWTH = 224, 2_000, 32
A100 = Roofline(160, 1_450, HALF, ADA.card.names, ("", ""))
LOOK = Look(A100, ADA.names, NHWC, True)


def densenet(rt: Told, fixed: bool) -> None:
    """Nothing to change: DenseNet-121 learns products of a shop by timm's script on an A100, AMP in fp16,
    channels_last, 224 pictures: norms and `cat` are bound by memory, the GPU is busy with them, the prefetcher copies
    the next batch on a stream of its own, `GradScaler` waits once at the end, SGD by lists. Shapes.

    Not: `GradScaler`'s wait, launches, the loader, copies (they are hidden), the layout, precision, the optimizer.
    """
    rt.last, rt.narrow = True, "5"
    tape, picture, side, given = Tape(), [PICTURES, 3, 224, 224], 112, 64
    loader(rt, 210)
    there = ahead(rt, (prod(picture), picture, "unsigned char"), (8 * PICTURES, [PICTURES], "long int"))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(picture))),), dims=(picture,))
    few(rt, "sub_ div_", picture, A100.moves(4 * prod(picture)))
    few(rt, "clone", picture, A100.moves(4 * prod(picture)))
    conv(rt, tape, LOOK, Conv(PICTURES, 3, 64, 7, side, side))
    norm_relu(rt, tape, LOOK, [PICTURES, 64, side, side])
    side //= 2
    acts(rt, tape, A100, "max_pool2d", [PICTURES, 64, side, side])
    for place, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            norm_relu(rt, tape, LOOK, [PICTURES, given, side, side])
            conv(rt, tape, LOOK, Conv(PICTURES, given, 4 * GROWTH, 1, side, side))
            norm_relu(rt, tape, LOOK, [PICTURES, 4 * GROWTH, side, side])
            conv(rt, tape, LOOK, Conv(PICTURES, 4 * GROWTH, GROWTH, 3, side, side))
            given += GROWTH
            acts(rt, tape, A100, "cat", [PICTURES, given, side, side])
        norm_relu(rt, tape, LOOK, [PICTURES, given, side, side])
        if place < 3:
            conv(rt, tape, LOOK, Conv(PICTURES, given, given // 2, 1, side, side))
            given, side = given // 2, side // 2
            acts(rt, tape, A100, "mean", [PICTURES, given, 2 * side, 2 * side])
    acts(rt, tape, A100, "mean", [PICTURES, given, side, side])
    casts(rt, A100, [KINDS, given])
    dense(rt, tape, A100, PICTURES, (PICTURES, given, KINDS))
    acts(rt, tape, replace(A100, kind="float"), "to", [PICTURES, KINDS])
    judged(rt, tape, A100, PICTURES, KINDS)
    back(rt, tape)
    unscaled(rt, A100, 9.0e6)
    sgd(rt, A100, 9.0e6)
    rt.waits(MAIN, there)
    rt.host(240)


SOUNDS, FRAMES, MODEL, LAYERS, SAID, SIGNS = 10, 1_500, 768, 12, 160, 51_865
L4 = Card(54, 250, BF16, AMPERE, FLASH)


def _lowered(rt: Framed, tape: Tape, x: list[int], keys: list[int]) -> None:
    """Attention of Whisper with adapters at queries and values."""
    for place, size in enumerate((x, keys, keys)):
        frozen(rt, tape, L4, size, MODEL)
        if place != 1:
            adapter(rt, tape, L4, size, MODEL)
    dims, held = [x[0], 12, x[1], 64], [x[0], 12, keys[1], 64]
    us = L4.product(x[0] * 12 * x[1], keys[1], 128) / 0.6
    outer = "aten::_scaled_dot_product_flash_attention"
    number = rt.op("aten::scaled_dot_product_attention", outer, "aten::_flash_attention_forward", graph=True, gap=14,
                   run=((L4.attention[0], us),), dims=(dims, held, held), kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductFlashAttentionBackward0", number, outer + "_backward", us=12, run=(
        (L4.attention[1], 2.5 * us),), dims=(dims, dims, held, held), kind=BF16))  # fmt: skip
    frozen(rt, tape, L4, x, MODEL)
    acts(rt, tape, L4, "add", x)


def whisperlora(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Whisper (small) learns a dialect by adapters with PEFT and a plain loop on an L4, bf16, ten
    sounds of 30 s: the card is slow and busy, its host is far ahead, FlashAttention is used, sounds come pinned, AdamW
    by lists on few weights, the loss is read each 25th step. Shapes, no rows of steps.

    Not: launches, waits, the loader, copies, attention, precision, casts of adapters, the optimizer, the batch.
    """
    tape, x, said = Tape(), [SOUNDS, FRAMES, MODEL], [SOUNDS, SAID, MODEL]
    loader(rt, 210)
    pinned(rt, 4 * SOUNDS * 80 * 2 * FRAMES, [SOUNDS, 80, 2 * FRAMES])
    pinned(rt, 8 * SOUNDS * SAID, [SOUNDS, SAID], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, L4.moves(6 * SOUNDS * 160 * FRAMES)),),
          dims=([SOUNDS, 80, 2 * FRAMES],))  # fmt: skip
    for given, times in ((80, 2), (MODEL, 1)):
        us = L4.product(SOUNDS * FRAMES * times, MODEL, 3 * given)
        rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=16, kind=BF16,
              run=((ADA.names[0].replace("f16f16_f16", "bf16bf16_bf16"), us),),
              dims=([SOUNDS, given, FRAMES * times], [MODEL, given, 3]))  # fmt: skip
        acts(rt, None, L4, "gelu", [SOUNDS, MODEL, FRAMES * times])
    acts(rt, None, L4, "add", x)
    for _ in range(LAYERS):
        norm(rt, tape, L4, x)
        _lowered(rt, tape, x, x)
        _fed(rt, tape, x)
    norm(rt, tape, L4, x)
    acts(rt, None, L4, "embedding add", said)
    for _ in range(LAYERS):
        for keys in (said, x):
            norm(rt, tape, L4, said)
            _lowered(rt, tape, said, keys)
        _fed(rt, tape, said)
    norm(rt, tape, L4, said)
    frozen(rt, tape, L4, said, SIGNS)
    acts(rt, tape, replace(L4, kind="float"), "to", [SOUNDS * SAID, SIGNS])
    judged(rt, tape, L4, SOUNDS * SAID, SIGNS)
    back(rt, tape)
    clipped(rt, L4, 1.8e6)
    adam(rt, L4, 1.8e6, "AdamW", 1)
    few(rt, "add_", [1])
    rt.host(320)


def _fed(rt: Framed, tape: Tape, x: list[int]) -> None:
    norm(rt, tape, L4, x)
    frozen(rt, tape, L4, x, 4 * MODEL)
    acts(rt, tape, L4, "gelu", [*x[:2], 4 * MODEL])
    frozen(rt, tape, L4, [*x[:2], 4 * MODEL], MODEL)
    acts(rt, tape, L4, "add", x)


PLACES, WIDTH, BLOCKS, INNER, PROMPT = 32_760, 1_536, 30, 8_960, 512


def wan(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Wan 2.1 (1.3B) is tuned whole on clips of 81 pictures by Accelerate on a B200, bf16, one clip
    a step, whose latents and texts were computed before: 32,760 places look at each other, the GPU is busy with
    attention and products, AdamW is fused, clipped by lists, the loss is read each 20th step. No shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, the batch, recomputation.
    """
    tape, x, text = Tape(), [1, PLACES, WIDTH], [1, PROMPT, WIDTH]
    loader(rt, 200)
    pinned(rt, 2 * 16 * 21 * 60 * 104, [1, 16, 21, 60, 104], BF16)
    pinned(rt, 2 * PROMPT * 4_096, [1, PROMPT, 4_096], BF16)
    few(rt, "randn_like rand sub mul mul add sub", [1, 16, 21, 60, 104], 6)
    dense(rt, tape, B200, 1, (PLACES, 64, WIDTH))
    for given in (4_096, WIDTH):
        dense(rt, tape, B200, 1, (PROMPT, given, WIDTH))
    for _ in range(BLOCKS):
        small = [1, 6, WIDTH]
        acts(rt, tape, B200, "add", small)
        norm(rt, tape, B200, x)
        acts(rt, tape, B200, "mul add", x)
        for _ in range(3):
            dense(rt, tape, B200, 1, (PLACES, WIDTH, WIDTH))
        for _ in range(2):
            fused_norm(rt, tape, B200, x)
            acts(rt, tape, B200, "turn mul", x)
        flash(rt, tape, B200, [1, 12, PLACES, 128], causal=False)
        dense(rt, tape, B200, 1, (PLACES, WIDTH, WIDTH))
        acts(rt, tape, B200, "mul add", x)
        norm(rt, tape, B200, x)
        dense(rt, tape, B200, 1, (PLACES, WIDTH, WIDTH))
        fused_norm(rt, tape, B200, x)
        for _ in range(2):
            dense(rt, tape, B200, 1, (PROMPT, WIDTH, WIDTH))
        fused_norm(rt, tape, B200, text)
        _looked(rt, tape)
        dense(rt, tape, B200, 1, (PLACES, WIDTH, WIDTH))
        acts(rt, tape, B200, "add", x)
        norm(rt, tape, B200, x)
        acts(rt, tape, B200, "mul add", x)
        dense(rt, tape, B200, 1, (PLACES, WIDTH, INNER))
        acts(rt, tape, B200, "gelu", [1, PLACES, INNER])
        dense(rt, tape, B200, 1, (PLACES, INNER, WIDTH))
        acts(rt, tape, B200, "mul add", x)
    norm(rt, tape, B200, x)
    dense(rt, tape, B200, 1, (PLACES, WIDTH, 64))
    acts(rt, tape, replace(B200, kind="float"), "to sub pow mean", [1, PLACES, 64])
    back(rt, tape)
    clipped(rt, B200, 1.42e9, 4, 2)
    fused_adamw(rt, B200, 1.42e9 / 2)
    rt.host(400)


def _looked(rt: Framed, tape: Tape) -> None:
    """All places look at the text."""
    us = B200.product(12 * PLACES, PROMPT, 256) / 0.6
    outer = "aten::_scaled_dot_product_cudnn_attention"
    number = rt.op("aten::scaled_dot_product_attention", outer, run=((B200.attention[0], us),), gap=14, kind=BF16,
                   graph=True, dims=([1, 12, PLACES, 128],) * 3)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductCudnnAttentionBackward0", number, outer + "_backward", us=12, run=(
        (B200.attention[1], 2.5 * us),), kind=BF16))  # fmt: skip


FORMS, TOKENS, HIDDEN, FIELDS = 10, 709, 768, 27
SM75 = ("fmha_cutlassF_f16_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<half, …>::Params)",
        "fmha_cutlassB_f16_aligned_128x64_k64_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<half, …>::Params)",
        )  # fmt: skip
T4 = Card(23, 250, HALF, TURING, SM75)


def layoutlm(rt: Told, fixed: bool) -> None:
    """Nothing to change: LayoutLMv3 (base) learns fields of invoices by the Trainer on a T4, `fp16=True`, ten forms of
    512 words and 197 patches: the card is slow and busy, its host is far ahead, attention runs by the memory-efficient
    kernels with the bias of places, `GradScaler` waits once at the end, AdamW by lists, batches come pinned. Shapes.

    Not: `GradScaler`'s wait, launches, the loader, copies, precision (a T4 has neither TF32 nor bf16), attention.
    """
    rt.narrow = "5"
    tape, x, picture = Tape(), [FORMS, TOKENS, HIDDEN], [FORMS, 3, 224, 224]
    loader(rt, 230)
    pinned(rt, 4 * prod(picture), picture)
    for size in ([FORMS, 512], [FORMS, 512], [FORMS, 512, 4], [FORMS, 512]):
        pinned(rt, 8 * prod(size), size, "long int")
    acts(rt, tape, replace(T4, kind="float"), "embedding add embedding add cat", x)
    norm(rt, tape, replace(T4, kind="float"), x)
    acts(rt, tape, T4, "dropout", x)
    for _ in range(12):
        casts(rt, T4, *[[HIDDEN, HIDDEN]] * 4, [4 * HIDDEN, HIDDEN], [HIDDEN, 4 * HIDDEN])
        for _ in range(3):
            dense(rt, tape, T4, FORMS, (FORMS * TOKENS, HIDDEN, HIDDEN))
        attention(rt, tape, T4, [FORMS, 12, TOKENS, 64])
        dense(rt, tape, T4, FORMS, (FORMS * TOKENS, HIDDEN, HIDDEN))
        acts(rt, tape, T4, "dropout add", x)
        norm(rt, tape, T4, x)
        dense(rt, tape, T4, FORMS, (FORMS * TOKENS, HIDDEN, 4 * HIDDEN))
        acts(rt, tape, T4, "gelu", [FORMS, TOKENS, 4 * HIDDEN])
        dense(rt, tape, T4, FORMS, (FORMS * TOKENS, 4 * HIDDEN, HIDDEN))
        acts(rt, tape, T4, "dropout add", x)
        norm(rt, tape, T4, x)
    casts(rt, T4, [FIELDS, HIDDEN])
    dense(rt, tape, T4, FORMS, (FORMS * 512, HIDDEN, FIELDS))
    judged(rt, tape, T4, FORMS * 512, FIELDS)
    back(rt, tape)
    unscaled(rt, T4, 126e6)
    clipped(rt, T4, 126e6)
    adam(rt, T4, 126e6, "AdamW", 2)
    few(rt, "add_", [1])
    rt.host(410)
