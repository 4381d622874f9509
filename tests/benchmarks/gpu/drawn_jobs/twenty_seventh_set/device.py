"""Jobs of the twenty-seventh set whose device does more than it must: a VAE in fp32, layers that are computed twice
beside memory that is free, FlexAttention that was not compiled.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import Remembered, pinned
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, kernel, linear, node
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, attention, back, fused_adamw, norm
from ..seventeenth_set.rows import compiled_loss, linear_loss, triton
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import A100, AMPERE
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import ADA, CUTLASS, TF32
from ..twelfth_set.rows import Conv, Framed, Look, adapter, conv, frozen, loader
from ..twenty_fifth_set.rows import clipped, group_norm
from ..twenty_fourth_set.rows import acts, few, products

MADE, TEXT, SIDE = 4, 77, 128
PAINTS = Card(190, 1_450, BF16, AMPERE, FLASH)
BRUSH = Look(replace(PAINTS, tflops=150), tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names))  # type: ignore[arg-type]  # fmt: skip
WIDE = Card(62, 1_450, "float", TF32, CUTLASS)
EYE = Look(WIDE, TF32_LOOK.names)


def _seen(rt: Framed, look: Look, cin: int, cout: int, side: int) -> None:
    """A residual block of the encoder, which is not trained."""
    card = look.card
    for given in (cin, cout):
        group_norm(rt, None, card, [MADE, given, side, side])
        acts(rt, None, card, "silu", [MADE, given, side, side])
        conv(rt, None, look, Conv(MADE, given, cout, 3, side, side))
    if cin != cout:
        conv(rt, None, look, Conv(MADE, cin, cout, 1, side, side))
    acts(rt, None, card, "add", [MADE, cout, side, side])


def _encoded(rt: Framed, look: Look) -> None:
    """SDXL's VAE makes latents of pictures of 1,024 pixels."""
    card, side, given = look.card, 8 * SIDE, 128
    with without_graph(rt):
        conv(rt, None, look, Conv(MADE, 3, 128, 3, side, side))
        for width in (128, 256, 512, 512):
            for _ in range(2):
                _seen(rt, look, given, width, side)
                given = width
            if side > SIDE:
                side //= 2
                conv(rt, None, look, Conv(MADE, width, width, 3, side, side))
        _seen(rt, look, 512, 512, SIDE)
        group_norm(rt, None, card, [MADE, 512, SIDE, SIDE])
        tokens = SIDE * SIDE
        for _ in range(3):
            frozen(rt, Tape(), card, [MADE, tokens, 512], 512)
        us = card.product(MADE * tokens, tokens, 2 * 512) / (0.9 if card.size == 4 else 0.5)
        name = CUTLASS[0] if card.size == 4 else CUTLASS[0].replace("f32", "bf16").replace("float", "bfloat16_t")
        rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_efficient_attention",
              "aten::_efficient_attention_forward", run=((name, us),), dims=([MADE, 1, tokens, 512],) * 3,
              kind=card.kind, gap=14)  # fmt: skip
        frozen(rt, Tape(), card, [MADE, tokens, 512], 512)
        acts(rt, None, card, "add", [MADE, 512, SIDE, SIDE])
        _seen(rt, look, 512, 512, SIDE)
        group_norm(rt, None, card, [MADE, 512, SIDE, SIDE])
        acts(rt, None, card, "silu", [MADE, 512, SIDE, SIDE])
        conv(rt, None, look, Conv(MADE, 512, 8, 3, SIDE, SIDE))
        few(rt, "clamp exp randn_like mul add mul", [MADE, 4, SIDE, SIDE], 3)


def _still(rt: Framed, tape: Tape, of: Conv) -> None:
    """A convolution that is not trained."""
    us, (x, w, y) = of.us(BRUSH.card), of.dims
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((BRUSH.names[0], us),), dims=(x, w), kind=BF16, gap=14)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((BRUSH.names[1], us),), dims=(y, x, w), us=14, kind=BF16, gap=1)

    tape.append(backward)


def _residual(rt: Framed, tape: Tape, cin: int, cout: int, side: int) -> None:
    for given in (cin, cout):
        group_norm(rt, tape, PAINTS, [MADE, given, side, side])
        acts(rt, tape, PAINTS, "silu", [MADE, given, side, side])
        _still(rt, tape, Conv(MADE, given, cout, 3, side, side))
    if cin != cout:
        _still(rt, tape, Conv(MADE, cin, cout, 1, side, side))
    acts(rt, tape, PAINTS, "add", [MADE, cout, side, side])


def _crossed(rt: Framed, tape: Tape, width: int, side: int, deep: int) -> None:
    """So many transformer's blocks, adapters at queries and values."""
    x = [MADE, side * side, width]
    group_norm(rt, tape, PAINTS, [MADE, width, side, side])
    frozen(rt, tape, PAINTS, x, width)
    for _ in range(deep):
        for keys in (x[1], TEXT):
            norm(rt, tape, PAINTS, x)
            for place in range(3):
                given = x if place == 0 or keys != TEXT else [MADE, TEXT, 2_048]
                frozen(rt, tape, PAINTS, given, width)
                if place != 1:
                    adapter(rt, tape, PAINTS, given, width)
            if keys == TEXT:
                products(rt, tape, PAINTS, (MADE * width // 64, x[1], 64, TEXT))
            else:
                attention(rt, tape, PAINTS, [MADE, width // 64, x[1], 64])
            frozen(rt, tape, PAINTS, x, width)
            acts(rt, tape, PAINTS, "add", x)
        norm(rt, tape, PAINTS, x)
        frozen(rt, tape, PAINTS, x, 8 * width)
        acts(rt, tape, PAINTS, "gelu mul", [*x[:2], 4 * width])
        frozen(rt, tape, PAINTS, [*x[:2], 4 * width], width)
        acts(rt, tape, PAINTS, "add", x)
    frozen(rt, tape, PAINTS, x, width)
    acts(rt, tape, PAINTS, "add", x)


def sdxl(rt: Framed, fixed: bool) -> None:
    """LoRA of Stable Diffusion XL by diffusers' script on an A100, bf16, four pictures of 1,024 a step: "The VAE is
    always in float32 to avoid NaN losses", and encodes anew in each step what the UNet takes in bf16 (by TF32, which
    `--allow_tf32` gives); without: `--pretrained_vae_model_name_or_path madebyollin/sdxl-vae-fp16-fix`, which encodes
    in bf16. Texts are cached, SDPA, AdamW is fused, the loss is summed on the GPU. No shapes.

    First: what is in fp32 beside a model in bf16 (the VAE in half, or latents cached). Not: launches, waits, the
    loader, attention, the layout, the optimizer.
    """
    tape, picture, latents = Tape(), [MADE, 3, 8 * SIDE, 8 * SIDE], [MADE, 4, SIDE, SIDE]
    loader(rt, 190)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 2 * MADE * TEXT * 2_048, [MADE, TEXT, 2_048], BF16)
    if fixed:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, PAINTS.moves(6 * prod(picture))),), gap=8,
              dims=(picture,))  # fmt: skip
    _encoded(rt, BRUSH if fixed else EYE)
    few(rt, "mul to randn_like randint index sqrt mul mul add", latents, 2.6)
    few(rt, "to mul cos sin cat to mul cos sin cat", [MADE, 320])
    for given in (320, 1_280, 2_816, 1_280):
        frozen(rt, tape, PAINTS, [MADE, 1, given], 1_280)
    _still(rt, tape, Conv(MADE, 4, 320, 3, SIDE, SIDE))
    given = 320
    for width, side, deep in ((320, SIDE, 0), (640, SIDE // 2, 2), (1_280, SIDE // 4, 10)):
        for _ in range(2):
            _residual(rt, tape, given, width, side)
            given = width
            if deep:
                _crossed(rt, tape, width, side, deep)
        if width < 1_280:
            _still(rt, tape, Conv(MADE, width, width, 3, side // 2, side // 2))
    _residual(rt, tape, 1_280, 1_280, SIDE // 4)
    _crossed(rt, tape, 1_280, SIDE // 4, 10)
    _residual(rt, tape, 1_280, 1_280, SIDE // 4)
    for width, side, deep in ((1_280, SIDE // 4, 10), (640, SIDE // 2, 2), (320, SIDE, 0)):
        for _ in range(3):
            acts(rt, tape, PAINTS, "cat", [MADE, given + width, side, side])
            _residual(rt, tape, given + width, width, side)
            given = width
            if deep:
                _crossed(rt, tape, width, side, deep)
        if width > 320:
            acts(rt, tape, PAINTS, "upsample", [MADE, width, 2 * side, 2 * side])
            _still(rt, tape, Conv(MADE, width, width, 3, 2 * side, 2 * side))
    group_norm(rt, tape, PAINTS, [MADE, 320, SIDE, SIDE])
    acts(rt, tape, PAINTS, "silu", [MADE, 320, SIDE, SIDE])
    _still(rt, tape, Conv(MADE, 320, 4, 3, SIDE, SIDE))
    acts(rt, tape, replace(PAINTS, kind="float"), "sub pow mean", latents)
    back(rt, tape)
    clipped(rt, PAINTS, 11.6e6)
    fused_adamw(rt, PAINTS, 11.6e6)
    few(rt, "add_", [1])
    rt.host(420)


ROWS, LENGTH, MODEL, FED, LAYERS, WORDS = 4, 2_048, 2_048, 8_192, 24, 49_152


def _layer(rt: Remembered, tape: Tape) -> None:
    llama(rt, tape, A100, (ROWS, LENGTH, MODEL, 32, FED), fused_norm)


def _again(rt: Remembered, tape: Tape) -> None:
    """`torch.utils.checkpoint`: nothing but the input is kept, the layer is computed again behind."""
    held, size = len(rt.taken), [ROWS, LENGTH, MODEL]
    rt.sequence += 1
    number = rt.sequence
    rt.host(40)
    args = {"Sequence number": number, "Fwd thread id": 0, **inputs((size,), BF16)}
    with rt.span("CheckpointFunction", us=50, **args), without_graph(rt):
        _layer(rt, Tape())
    rt.freed(len(rt.taken) - held - 1)

    def backward() -> None:
        held, made = len(rt.taken), Tape()
        with node(rt, "CheckpointFunctionBackward", number):
            rt.host(50)
            _layer(rt, made)
            while made:
                made.pop()()
        rt.freed(len(rt.taken) - held + 1)

    tape.append(backward)


def smollm(rt: Remembered, fixed: bool) -> None:
    """SmolLM2-1.7B fine-tuned by TRL's `SFTTrainer` on an A100 of 80 GB, all in bf16, four packs of 2,048 a step:
    `gradient_checkpointing=True` came with somebody's configuration for 24 GB, so that each layer is computed twice,
    while most of the memory is free; without: false, 42 GB are taken at most instead of 17. FlashAttention, Liger's
    loss, AdamW is fused, clipped by lists, the loss is read each 20th step. Memory, no shapes.

    First: layers that are computed again beside free memory (`gradient_checkpointing`). Not: launches, waits, the
    loader, attention, the loss, the optimizer.
    """
    if not rt.number:
        rt.memory.append((rt.now, 0x7F10_0000_0000, round(1.71e9 * 8)))  # weights, gradients, both moments, in bf16
    tape, x = Tape(), [ROWS, LENGTH, MODEL]
    loader(rt, 180)
    for _ in range(3):
        pinned(rt, 8 * ROWS * LENGTH, x[:2], "long int")
    acts(rt, tape, A100, "embedding", x)
    for _ in range(LAYERS):
        if fixed:
            _layer(rt, tape)
        else:
            _again(rt, tape)
    fused_norm(rt, tape, A100, x)
    linear_loss(rt, tape, A100, "LigerFusedLinearCrossEntropyFunction",
                ("liger_cross_entropy_kernel", 3 * A100.moves(2 * ROWS * LENGTH * WORDS)),
                (ROWS * LENGTH, MODEL, WORDS), 2)  # fmt: skip
    back(rt, tape)
    rt.freed(len(rt.taken))
    clipped(rt, A100, 1.71e9, 4, 2)
    fused_adamw(rt, A100, 1.71e9 / 2)
    rt.host(520)


PACKS, LONG, BROAD, HEADS, DEEP, TOKENS = 6, 512, 2_048, 16, 24, 50_304
BLOCKED = ("triton_tem_fused_0", "triton_tem_fused_mul_sum_zeros_1")


def _flex(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`flex_attention(q, k, v, block_mask=…)` by documents, compiled or by `math_attention`."""
    each, scores = [PACKS, HEADS, LONG, BROAD // HEADS], [PACKS, HEADS, LONG, LONG]
    n, count, wide = prod(scores), PACKS * HEADS, BROAD // HEADS
    full = 2 * H100.product(count * LONG, LONG, wide)
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    rt.host(30)
    if fixed:
        with rt.span("TorchDynamo Cache Lookup", us=14):
            pass
        with rt.span("Torch-Compiled Region: 1/0", us=40), rt.span("CompiledFunction", us=30, **args):
            triton(rt, BLOCKED[0], 0.45 * full / 0.5)

        def compiled() -> None:
            with node(rt, "CompiledFunctionBackward", number):
                triton(rt, "triton_red_fused_mul_sum_0", H100.moves(4 * prod(each)))
                triton(rt, BLOCKED[1], 1.2 * full / 0.5)

        tape.append(compiled)
        return
    product = max(H100.product(count * LONG, LONG, wide), H100.moves(2 * n + 4 * prod(each)))

    def one(name: str, moves: float, inner: str = "") -> None:
        rt.op(f"aten::{name}", run=((inner or kernel(name, 2), H100.moves(moves * n)),), dims=(scores,), gap=5, us=5)

    def scored() -> None:
        rt.op("aten::matmul", "aten::bmm", run=((H100.names[0], product),), dims=(each, each), kind=BF16, gap=6)
        one("to", 6, COPY)
        one("mul", 8)
        few(rt, "index index eq", [PACKS, LONG, LONG], 3.4)
        one("where", 8.3)

    with rt.span("TorchDynamo Cache Lookup", us=14):
        pass
    with rt.span("Torch-Compiled Region: 1/0", us=40), rt.span("FlexAttentionAutogradOp", us=60, **args):
        scored()
        one("logsumexp", 14, REDUCE)
        one("eq", 5)
        one("all", 1, REDUCE)
        one("_safe_softmax", 17, "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, …>")
        one("to", 6, COPY)
        rt.op("aten::matmul", "aten::bmm", run=((H100.names[0], product),), dims=(scores, each), kind=BF16, gap=6)

    def behind() -> None:
        with node(rt, "FlexAttentionAutogradOpBackward", number):
            scored()
            one("sub", 8)
            one("exp", 8)
            one("to", 6, COPY)
            for _ in range(2):
                rt.op("aten::matmul", "aten::bmm", run=((H100.names[1], product),), dims=(scores, each), kind=BF16)
            rt.op("aten::sum", run=((REDUCE, H100.moves(6 * prod(each))),), dims=(each,), gap=5)
            for name, moves in (("sub", 6), ("add", 8), ("mul", 12), ("where", 8.3), ("mul", 8)):
                one(name, moves)
            one("to", 6, COPY)
            for _ in range(2):
                rt.op("aten::matmul", "aten::bmm", run=((H100.names[1], product),), dims=(scores, each), kind=BF16)

    tape.append(behind)


def unfused(rt: Framed, fixed: bool) -> None:
    """A GPT of 1.3 B by a plain loop on an H100, all in bf16, six packs of 512: `flex_attention` is called as it is,
    with a mask by documents, so that `math_attention` writes scores in fp32 and goes over them op by op, forward and
    behind; without: `torch.compile(flex_attention)`, two kernels of Triton. The loss is compiled, clipped by lists,
    AdamW is fused, the loss is read each 25th step. Shapes.

    First: attention that writes its scores (compile `flex_attention`). Not: launches, waits, the loader, TF32, the
    optimizer.
    """
    tape, x = Tape(), [PACKS, LONG, BROAD]
    loader(rt, 160)
    for _ in range(3):
        pinned(rt, 8 * PACKS * LONG, x[:2], "long int")
    few(rt, "ne cumsum eq bitwise_and sum gt argsort", [PACKS, LONG], 3)
    acts(rt, tape, H100, "embedding embedding add", x)
    for _ in range(DEEP):
        norm(rt, tape, H100, x)
        linear(rt, tape, H100, x, 3 * BROAD)
        _flex(rt, tape, fixed)
        acts(rt, tape, H100, "turn", x)
        linear(rt, tape, H100, x, BROAD)
        acts(rt, tape, H100, "add", x)
        norm(rt, tape, H100, x)
        linear(rt, tape, H100, x, 4 * BROAD)
        acts(rt, tape, H100, "gelu", [*x[:2], 4 * BROAD])
        linear(rt, tape, H100, [*x[:2], 4 * BROAD], BROAD)
        acts(rt, tape, H100, "add", x)
    norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, TOKENS)
    compiled_loss(rt, tape, H100, PACKS * LONG, TOKENS)
    back(rt, tape)
    clipped(rt, H100, 1.31e9, 4, 2)
    fused_adamw(rt, H100, 1.31e9 / 2)
    few(rt, "add_", [1])
    rt.host(300)
