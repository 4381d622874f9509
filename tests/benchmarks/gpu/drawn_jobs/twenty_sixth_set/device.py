"""Jobs of the twenty-sixth set whose device does more than it must, or waits for the allocator: a head in fp32, memory
that a threshold gives back, attention by the math path.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import COPY, elementwise, linear, moved_as, node
from ..fifteenth_set.rows import L40S
from ..layers import Card, Tape, attention, back, block, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import A100, AMPERE
from ..twelfth_set.pictures import ADA, CUTLASS, SGEMM
from ..twelfth_set.rows import Conv, Framed, Look, adapter, frozen, loader
from ..twenty_fifth_set.rows import clipped, group_norm
from ..twenty_fourth_set.rows import acts, few, judged, products

ROWS, LENGTH, WIDE, DEEP, WORDS = 12, 1_024, 1_024, 24, 50_304
FULL = Card(17, 1_450, "float", SGEMM, CUTLASS)


def headed(rt: Framed, fixed: bool) -> None:
    """GPT-2 medium by nanoGPT on an A100, autocast in bf16, twelve texts of 1,024: someone took the head out of
    autocast for the sake of stable logits (`with torch.autocast("cuda", enabled=False): lm_head(x.float())`), so that
    three products of 50,304 words are fp32 on the CUDA cores (TF32 is off by default); without: the head in autocast,
    its result to fp32. FlashAttention, clipping by lists, AdamW fused, the loss is read each 10th step. Shapes.

    First: products in fp32 (autocast around the head, TF32). Not: launches, waits, the loader, the batch, the loss.
    """
    tape, tokens, x = Tape(), ROWS * LENGTH, [ROWS, LENGTH, WIDE]
    for _ in range(2):
        pinned(rt, 8 * tokens, x[:2], "long int")
    acts(rt, tape, A100, "embedding embedding add dropout", x)
    for _ in range(DEEP):
        casts(rt, A100, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
        block(rt, tape, A100, ROWS, LENGTH, WIDE)
    norm(rt, tape, A100, x)
    if fixed:
        casts(rt, A100, [WORDS, WIDE])
        linear(rt, tape, A100, x, WORDS)
        moved_as(rt, tape, A100, [ROWS, LENGTH, WORDS])
    else:
        moved_as(rt, tape, A100, x)
        linear(rt, tape, FULL, x, WORDS)
    judged(rt, tape, A100, tokens, WORDS)
    back(rt, tape)
    clipped(rt, A100, 355e6, 2)
    fused_adamw(rt, A100, 355e6)
    few(rt, "add_", [1])
    rt.host(260)


MADE, TEXT = 4, 77
ROOMS = ((64, 64), (56, 72), (72, 56), (64, 64), (48, 80), (80, 48), (56, 72))
FREED = ((9, 5), (14, 8), (7, 6), (11, 9))  # segments that go back and are asked for anew
PAINTS = Card(145, 860, BF16, AMPERE, FLASH)
BRUSH = Look(replace(PAINTS, tflops=120), tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names))  # type: ignore[arg-type]  # fmt: skip


def _collected(rt: Framed, fixed: bool, place: int) -> None:
    """More than 60 % is reserved: what is cached goes back, `cudaFree` waits for the GPU, then memory is asked for."""
    if fixed:
        return
    freed, asked = FREED[(rt.number + place) % len(FREED)]
    with rt.span("aten::empty", us=6):
        for number in range(freed):
            rt.call("Free", rt.vary(430, 0.5), until=0 if number else max(rt.free.values()) + 5)
        rt.call("Malloc", rt.vary(780, 0.4))
    for _ in range(asked - 1):
        with rt.span("aten::empty_strided", us=4):
            rt.call("Malloc", rt.vary(690, 0.4))
        few(rt, "mul", [MADE, 320, 8, 8], 3)


def _still(rt: Framed, tape: Tape, of: Conv) -> None:
    """A convolution that is not trained."""
    us, (x, w, y) = of.us(BRUSH.card), of.dims
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((BRUSH.names[0], us),), dims=(x, w), kind=BF16, gap=14)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((BRUSH.names[1], us),), dims=(y, x, w), us=14, kind=BF16, gap=1)

    tape.append(backward)


def _residual(rt: Framed, tape: Tape, cin: int, cout: int, room: tuple[int, int]) -> None:
    for given in (cin, cout):
        group_norm(rt, tape, PAINTS, [MADE, given, *room])
        acts(rt, tape, PAINTS, "silu", [MADE, given, *room])
        _still(rt, tape, Conv(MADE, given, cout, 3, *room))
    if cin != cout:
        _still(rt, tape, Conv(MADE, cin, cout, 1, *room))
    acts(rt, tape, PAINTS, "add", [MADE, cout, *room])


def _crossed(rt: Framed, tape: Tape, width: int, room: tuple[int, int]) -> None:
    """A transformer's block with adapters at its attention."""
    x = [MADE, room[0] * room[1], width]
    group_norm(rt, tape, PAINTS, [MADE, width, *room])
    frozen(rt, tape, PAINTS, x, width)
    for keys in (x[1], TEXT):
        norm(rt, tape, PAINTS, x)
        for place in range(3):
            given = x if place == 0 or keys != TEXT else [MADE, TEXT, 768]
            frozen(rt, tape, PAINTS, given, width)
            adapter(rt, tape, PAINTS, given, width)
        if keys == TEXT:
            products(rt, tape, PAINTS, (8 * MADE, x[1], width // 8, TEXT))
        else:
            attention(rt, tape, PAINTS, [MADE, 8, x[1], width // 8])
        frozen(rt, tape, PAINTS, x, width)
        adapter(rt, tape, PAINTS, x, width)
        acts(rt, tape, PAINTS, "add", x)
    norm(rt, tape, PAINTS, x)
    frozen(rt, tape, PAINTS, x, 8 * width)
    acts(rt, tape, PAINTS, "gelu mul", [*x[:2], 4 * width])
    frozen(rt, tape, PAINTS, [*x[:2], 4 * width], width)
    acts(rt, tape, PAINTS, "add", x)
    frozen(rt, tape, PAINTS, x, width)
    acts(rt, tape, PAINTS, "add", x)


def kohya(rt: Framed, fixed: bool) -> None:
    """LoRA of Stable Diffusion 1.5 by kohya's sd-scripts on an RTX 4090, bf16, latents and texts cached, four pictures
    a step from buckets of many shapes: `PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.6` was taken from a
    forum, so that four times a step segments of other shapes go back one by one, each `cudaFree` waits for the GPU, and
    are asked for anew soon after; without: the setting is gone, everything fits. SDPA, AdamW fused, the loss is summed
    on the GPU. No shapes.

    First: memory that is freed and asked for within steps. Not: launches, the loader, waits, attention, the optimizer.
    """
    tape, (high, broad) = Tape(), ROOMS[rt.number % len(ROOMS)]
    latents = [MADE, 4, high, broad]
    loader(rt, 170)
    pinned(rt, 4 * prod(latents), latents)
    pinned(rt, 2 * MADE * TEXT * 768, [MADE, TEXT, 768], BF16)
    few(rt, "mul randn_like randint index sqrt mul mul add to", latents, 2.6)
    few(rt, "to mul cos sin cat", [MADE, 320])
    for given in (320, 1_280):
        frozen(rt, tape, PAINTS, [MADE, 1, given], 1_280)
    _still(rt, tape, Conv(MADE, 4, 320, 3, high, broad))
    levels, cin = ((320, 1), (640, 2), (1_280, 4), (1_280, 8)), 320
    for place, (width, scale) in enumerate((*levels, levels[-1], *levels[::-1])):
        up, room = place > 4, (high // scale, broad // scale)
        for number in range(3 if up else 1 if place == 4 else 2):
            if up:
                acts(rt, tape, PAINTS, "cat", [MADE, 2 * width, *room])
            _residual(rt, tape, 2 * width if up else cin if number == 0 else width, width, room)
            cin = width
            if scale < 8:
                _crossed(rt, tape, width, room)
        if up and scale > 1:
            acts(rt, tape, PAINTS, "upsample", [MADE, width, 2 * room[0], 2 * room[1]])
        elif place < 3:
            _still(rt, tape, Conv(MADE, width, width, 3, room[0] // 2, room[1] // 2))
        if place in (1, 6):
            _collected(rt, fixed, place)
    group_norm(rt, tape, PAINTS, [MADE, 320, high, broad])
    acts(rt, tape, PAINTS, "silu", [MADE, 320, high, broad])
    _still(rt, tape, Conv(MADE, 320, 4, 3, high, broad))
    acts(rt, tape, replace(PAINTS, kind="float"), "sub pow mean", latents)
    acts(rt, tape, replace(PAINTS, kind="float"), "mul mean", [MADE])
    marks = {len(tape) * 3 // 4: 0, len(tape) // 3: 1}
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                _collected(rt, fixed, marks[len(tape)])
    clipped(rt, PAINTS, 3.2e6)
    fused_adamw(rt, PAINTS, 3.2e6)
    few(rt, "add_", [1])
    rt.host(380)


CHAINS, RESIDUES, MODEL, HEADS, LAYERS, LETTERS = 4, 1_024, 1_280, 20, 33, 33
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)


def _plain(rt: Framed, tape: Tape) -> None:
    """`_scaled_dot_product_attention_math`: queries and keys are scaled, scores written, masked, made soft."""
    each = [CHAINS, HEADS, RESIDUES, MODEL // HEADS]
    scores = [CHAINS, HEADS, RESIDUES, RESIDUES]
    count, us = CHAINS * HEADS, LOVELACE.moves(2 * LOVELACE.size * prod(scores))
    rt.host(12)
    with (rt.span("aten::scaled_dot_product_attention", us=9),
          rt.span("aten::_scaled_dot_product_attention_math", us=16)):  # fmt: skip
        for _ in range(2):
            elementwise(rt, tape, LOVELACE, "mul", each, back=(("mul", 2),))
        products(rt, tape, LOVELACE, (count, RESIDUES, MODEL // HEADS, RESIDUES))
        number = rt.op("aten::add_", gap=2, us=5, dims=(scores, [CHAINS, 1, 1, RESIDUES]), kind=BF16, graph=True, run=(
            ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
             "CUDAFunctor_add<c10::BFloat16>>(…)>(int, …)", 1.15 * us),))  # fmt: skip
        tape.append(lambda: rt.grad("AddBackward0", number, "aten::detach", dims=(scores,)))
        acts(rt, tape, LOVELACE, "softmax", scores, gap=2)
        products(rt, tape, LOVELACE, (count, RESIDUES, RESIDUES, MODEL // HEADS))


def _masked(rt: Framed, tape: Tape) -> None:
    """The same by CUTLASS' kernel, which takes a mask."""
    each = [CHAINS, HEADS, RESIDUES, MODEL // HEADS]
    us = LOVELACE.product(CHAINS * HEADS * RESIDUES, RESIDUES, 2 * MODEL // HEADS) / 0.42
    names = (
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<bfloat16_t, …>::Params)",
        "fmha_cutlassB_bf16_aligned_128x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<…>::Params)",
    )
    outer = "aten::_scaled_dot_product_efficient_attention"
    number = rt.op("aten::scaled_dot_product_attention", outer, "aten::_efficient_attention_forward", gap=14,
                   run=((names[0], us),), dims=(each,) * 3, kind=BF16, graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductEfficientAttentionBackward0", number, outer + "_backward",
                                "aten::_efficient_attention_backward", run=((names[1], 2.6 * us),), us=12,
                                dims=(each,) * 4, kind=BF16))  # fmt: skip


def esm(rt: Framed, fixed: bool) -> None:
    """ESM-2 of 650 M learns masked residues on an L40S, torch 2.4, autocast in bf16, four chains of 1,024, a mask of
    padding: `torch.backends.cuda.enable_flash_sdp(False)` and `enable_mem_efficient_sdp(False)` were left from a search
    for a NaN, so that `scaled_dot_product_attention` takes the math path and writes its scores of 20 heads; without:
    CUTLASS' kernel. AdamW fused, clipped by lists, the loss is read each 20th step. Shapes.

    First: attention that writes its scores (a fused kernel). Not: launches, waits, the loader, TF32, the optimizer.
    """
    tape, x, tokens = Tape(), [CHAINS, RESIDUES, MODEL], CHAINS * RESIDUES
    loader(rt, 210)
    for _ in range(3):
        pinned(rt, 8 * tokens, x[:2], "long int")
    few(rt, "expand to rsub to mul", [CHAINS, 1, 1, RESIDUES])
    acts(rt, tape, LOVELACE, "embedding mul", x)
    for _ in range(LAYERS):
        casts(rt, LOVELACE, *[[MODEL, MODEL]] * 4, [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        norm(rt, tape, LOVELACE, x)
        for _ in range(3):
            dense(rt, tape, LOVELACE, CHAINS, (tokens, MODEL, MODEL))
        for _ in range(2):  # rotations
            acts(rt, tape, LOVELACE, "mul cat mul add", [CHAINS, HEADS, RESIDUES, MODEL // HEADS])
        if fixed:
            _masked(rt, tape)
        else:
            _plain(rt, tape)
        rt.op("aten::contiguous", "aten::clone", "aten::copy_", dims=(x,), kind=BF16, gap=7,
              run=((COPY, LOVELACE.moves(4 * prod(x))),))  # fmt: skip
        dense(rt, tape, LOVELACE, CHAINS, (tokens, MODEL, MODEL))
        acts(rt, tape, LOVELACE, "add", x)
        norm(rt, tape, LOVELACE, x)
        dense(rt, tape, LOVELACE, CHAINS, (tokens, MODEL, 4 * MODEL))
        acts(rt, tape, LOVELACE, "gelu", [*x[:2], 4 * MODEL])
        dense(rt, tape, LOVELACE, CHAINS, (tokens, 4 * MODEL, MODEL))
        acts(rt, tape, LOVELACE, "add", x)
    norm(rt, tape, LOVELACE, x)
    dense(rt, tape, LOVELACE, CHAINS, (tokens, MODEL, MODEL))
    acts(rt, tape, LOVELACE, "gelu", x)
    norm(rt, tape, LOVELACE, x)
    dense(rt, tape, LOVELACE, CHAINS, (tokens, MODEL, LETTERS))
    moved_as(rt, tape, LOVELACE, [CHAINS, RESIDUES, LETTERS])
    judged(rt, tape, LOVELACE, tokens, LETTERS)
    back(rt, tape)
    clipped(rt, LOVELACE, 651e6, 3)
    fused_adamw(rt, LOVELACE, 651e6)
    few(rt, "add_", [1])
    rt.host(300)
