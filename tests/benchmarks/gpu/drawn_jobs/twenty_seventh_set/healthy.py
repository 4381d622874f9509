"""Jobs of the twenty-seventh set without a fault: Llama on MI300X, NAFNet, nnU-Net, QLoRA on a T4, ViT-H."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama, upcast_norm
from ..eleventh_set.rows import elementwise, foreach, linear, moved_as, node
from ..fifteenth_set.rows import fetched
from ..kineto import inputs
from ..layers import CAST, Tape, attention, back, block, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import AOTRITON, MI300X
from ..twelfth_set.pictures import ADA, NHWC, V100, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, adapter, conv, loader
from ..twentieth_set.host import TURING
from ..twenty_fifth_set.rows import clipped, volume
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_sixth_set.rows import judged_map
from .rows import A6000, LOVELACE, Apart

EIGHT, ROWS, LENGTH, WIDE, FED, DEEP, WORDS = list(range(8)), 6, 4_096, 2_048, 8_192, 16, 128_256
CDNA = replace(MI300X, attention=AOTRITON)
LAYER, ENDS, SHARDS = 60_821_504, 262_668_288, 26
FABRIC = 270e3  # bytes a µs
GIVEN: dict[str, Any] = {"ranks": EIGHT, "kernel": "Generic_1"}


def _gathered(rt: Framed, count: int, gate: float, name: str) -> float:
    """FSDP2 gathers a layer's weights, once the layer before has taken its own out."""
    with rt.span(f"FSDP::all_gather ({name})", "user_annotation", us=60):
        rt.free[SHARDS] = max(rt.free.get(SHARDS, 0.0), gate)
        made = rt.work(CAST, CDNA.moves(6 * count / 8), stream=SHARDS)
        rt.free[LINKS] = max(rt.free.get(LINKS, 0.0), made)
        us = rt.vary(50 + 2 * count * 0.875 / FABRIC, 0.04)
        return rt.collective("_allgather_base", us, (count // 8, count), behind=False, **GIVEN)


def _out(rt: Framed, count: int, name: str) -> None:
    with rt.span(f"FSDP::all_gather_copy_out ({name})", "user_annotation", us=30):
        name = "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<…>(…)"
        rt.op("fsdp::split_with_sizes_copy", "aten::split_with_sizes_copy", gap=9, us=9,
              run=((name, CDNA.moves(4 * count)),))  # fmt: skip


def _scattered(rt: Framed, count: int, name: str) -> float:
    with rt.span(f"FSDP::post_backward_reduce ({name})", "user_annotation", us=60):
        rt.op("fsdp::chunk_cat", "aten::_chunk_cat", gap=12, us=9, run=(
            ("void at::native::chunk_cat_cuda_kernel<float, c10::BFloat16>(…)", CDNA.moves(6 * count)),))  # fmt: skip
        us = rt.vary(50 + 4 * count * 0.875 / FABRIC, 0.04)
        return rt.collective("_reduce_scatter_base", us, (count, count // 8), stream=SHARDS + 1, dtype="Float", **GIVEN)


def instinct(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama-3.2-1B from scratch by FSDP2 on the eight MI300X of a node, six texts of 4,096 a rank,
    rank 6: the next layer's weights come while this one runs, gradients leave in fp32 beside the backward pass; only
    the embeddings' show at both ends. AOTriton's attention, the loss compiled, AdamW fused, the loss is read each 10th
    step. No shapes.

    Not: gathers, reductions, units, a late rank, launches, waits, the loader.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 6
    tape, marks, x = Tape(), list[int](), [ROWS, LENGTH, WIDE]
    loader(rt, 180)
    for _ in range(2):
        pinned(rt, 8 * ROWS * LENGTH, x[:2], "long int")
    rt.waits(MAIN, _gathered(rt, ENDS, rt.free[MAIN], "root"))
    _out(rt, ENDS, "root")
    gate = rt.free[MAIN]
    acts(rt, tape, CDNA, "embedding", x)
    for number in range(DEEP):
        marks.append(len(tape))
        with rt.span(f"FSDP::pre_forward (layers.{number})", "user_annotation", us=40):
            rt.waits(MAIN, _gathered(rt, LAYER, gate, f"layers.{number}"))
            _out(rt, LAYER, f"layers.{number}")
        gate = rt.free[MAIN]
        llama(rt, tape, CDNA, (ROWS, LENGTH, WIDE, 8, FED), fused_norm)
    marks.append(len(tape))
    fused_norm(rt, tape, CDNA, x)
    linear(rt, tape, CDNA, x, WORDS)
    compiled_loss(rt, tape, CDNA, ROWS * LENGTH, WORDS)
    with rt.backward():
        number, ahead, ends = DEEP, _gathered(rt, LAYER, gate, f"layers.{DEEP - 1}"), [0.0]
        while tape:
            tape.pop()()
            if len(tape) not in marks:
                continue
            if number < DEEP:
                ends.append(_scattered(rt, LAYER, f"layers.{number}"))
            number -= 1
            if number < 0:
                continue
            with rt.span(f"FSDP::pre_backward (layers.{number})", "user_annotation", us=40):
                rt.waits(MAIN, ahead)
                _out(rt, LAYER, f"layers.{number}")
                if number:
                    ahead = _gathered(rt, LAYER, rt.free[MAIN], f"layers.{number - 1}")
        ends.append(_scattered(rt, ENDS, "root"))
    rt.waits(MAIN, max(ends))
    mine = (DEEP * LAYER + ENDS) / 8
    foreach(rt, "_foreach_norm", "LpNormFunctor", CDNA.moves(4 * mine), 1)
    rt.waits(MAIN, rt.collective("allreduce", 40, (1, 1), dtype="Float", **GIVEN))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", CDNA.moves(8 * mine), 1)
    fused_adamw(rt, CDNA, mine)
    rt.host(430)


CROPS, ROOM = 24, 256
LOOK = Look(replace(A6000, tflops=60), tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),  # type: ignore[arg-type]
            cast=True)  # fmt: skip
PLANES = tuple("void cudnn::cnn::conv2d_grouped_direct_" + way for way in (
    "kernel<false, true, false, false, 0, 0, int, __nv_bfloat16, …>(…)", "dgrad_kernel<…, __nv_bfloat16, …>(…)",
    "wgrad_kernel<…, __nv_bfloat16, …>(…)"))  # fmt: skip
ALONE = Look(A6000, PLANES, cast=True)  # type: ignore[arg-type]


def _naf(rt: Framed, tape: Tape, width: int, side: int) -> None:
    """A block of NAFNet: two halves, gates that multiply channels."""
    x, double = [CROPS, width, side, side], [CROPS, 2 * width, side, side]
    for part in range(2):
        few(rt, "mean", x, A6000.moves(2 * prod(x)))  # its own `LayerNorm2d`
        acts(rt, tape, A6000, "sub pow", x)
        few(rt, "mean add sqrt", [CROPS, 1, side, side], A6000.moves(4 * CROPS * side**2))
        acts(rt, tape, A6000, "div", x)
        acts(rt, tape, A6000, "mul add", x)
        conv(rt, tape, LOOK, Conv(CROPS, width, 2 * width, 1, side, side))
        if part == 0:
            conv(rt, tape, ALONE, Apart(CROPS, 2 * width, 2 * width, 3, side, side))
        rt.op("aten::chunk", "aten::split", dims=(double,), kind=A6000.kind, gap=8)
        acts(rt, tape, A6000, "mul", x)
        if part == 0:
            acts(rt, tape, A6000, "mean", x)
            conv(rt, tape, LOOK, Conv(CROPS, width, width, 1, 1, 1))
            acts(rt, tape, A6000, "mul", x)
        conv(rt, tape, LOOK, Conv(CROPS, width, width, 1, side, side))
        acts(rt, tape, A6000, "mul add", x)


def nafnet(rt: Framed, fixed: bool) -> None:
    """Nothing to change: NAFNet of width 32 takes blur away on an RTX A6000, autocast in bf16, channels_last, 24 crops
    of 256: much of it is bound by memory, launches are far ahead; crops come pinned as bytes, the loss is summed on the
    GPU, AdamW is fused. Shapes.

    Not: launches, waits, the loader, copies, the layout, the optimizer, the batch.
    """
    tape, picture, half = Tape(), [CROPS, 3, ROOM, ROOM], replace(A6000, kind="float")
    loader(rt, 210)
    for _ in range(2):
        pinned(rt, prod(picture), picture, "unsigned char")
        acts(rt, None, half, "to div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A6000.moves(6 * prod(picture))),), dims=(picture,))
    conv(rt, tape, LOOK, Conv(CROPS, 3, 32, 3, ROOM, ROOM))
    width, side = 32, ROOM
    for count in (1, 1, 1, 14):
        for _ in range(count):
            _naf(rt, tape, width, side)
        width, side = 2 * width, side // 2
        conv(rt, tape, LOOK, Conv(CROPS, width // 2, width, 2, side, side))
    _naf(rt, tape, width, side)
    for _ in range(4):
        conv(rt, tape, LOOK, Conv(CROPS, width, 2 * width, 1, side, side))
        width, side = width // 2, 2 * side
        acts(rt, tape, A6000, "pixel_shuffle add", [CROPS, width, side, side])
        _naf(rt, tape, width, side)
    conv(rt, tape, LOOK, Conv(CROPS, 32, 3, 3, ROOM, ROOM))
    acts(rt, tape, A6000, "add", picture)
    acts(rt, tape, half, "sub pow mean add log mean", picture)
    back(rt, tape)
    clipped(rt, A6000, 17.1e6)
    fused_adamw(rt, A6000, 17.1e6)
    few(rt, "add_", [1])
    rt.host(320)


PATCHES, EDGE, ORGANS = 2, 128, 14
CARD = V100.card
SOLID = Look(CARD, V100.names)


def _normed(rt: Framed, tape: Tape, x: list[int], cout: int, stride: int = 1) -> list[int]:
    """`Conv3d` under autocast, instance norm, leaky ReLU in place."""
    casts(rt, CARD, [cout, x[1], 3, 3, 3])
    y = volume(rt, tape, SOLID, x, cout, 3, stride)
    once, named = CARD.moves(2 * prod(y)), dict[str, Any](dims=(y,), kind=CARD.kind)
    ahead, behind = (NHWC.replace("NHWC", "NCHW").format(way) for way in ("fw", "bw"))
    number = rt.op("aten::instance_norm", "aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm",
                   graph=True, gap=22, run=((ahead, 3 * once),), **named)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", **named,
                                run=((behind, 5 * once),)))  # fmt: skip
    elementwise(rt, tape, CARD, "leaky_relu_", y, back=(("leaky_relu_backward", 3),))
    return y


def nnunet(rt: Framed, fixed: bool) -> None:
    """Nothing worth a change: nnU-Net v2, `3d_fullres`, finds thirteen organs on a V100, AMP in fp16, two patches of
    128 a step: processes of batchgenerators are ahead, batches are pinned; the loss goes to numpy behind each step and
    `GradScaler` waits, which together cost some two of 187 ms. Deep supervision, clipping and SGD by lists.
    Shapes, no rows of steps.

    Not: waits (two at a step's end), the loader, copies, launches, the layout, TF32 or bf16, which a V100 has not.
    """
    tape, x = Tape(), [PATCHES, 1, EDGE, EDGE, EDGE]
    rt.host(900)
    pinned(rt, 4 * prod(x), x)
    for scale in (1, 2, 4, 8):
        pinned(rt, 4 * prod(x) // scale**3, [PATCHES, 1, *[EDGE // scale] * 3])
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(x))),), dims=(x,))
    kept: list[list[int]] = []
    for width in (32, 64, 128, 256, 320, 320):
        x = _normed(rt, tape, x, width, 1 if width == 32 else 2)
        x = _normed(rt, tape, x, width)
        kept.append(x)
    seen: list[list[int]] = []
    for skip in reversed(kept[:-1]):
        y = [PATCHES, *skip[1:]]
        acts(rt, tape, CARD, "upsample", y)
        acts(rt, tape, CARD, "cat", [y[0], 2 * y[1], *y[2:]])
        for more in (2, 1):
            y = _normed(rt, tape, [y[0], more * y[1], *y[2:]], skip[1])
        seen.append(y)
    for y in seen[-4:]:
        logits = volume(rt, tape, SOLID, y, ORGANS, 1)
        moved_as(rt, tape, CARD, logits)
        judged_map(rt, tape, replace(CARD, kind="float"), logits)
        acts(rt, tape, replace(CARD, kind="float"), "softmax", logits)
        for name in ("mul", "sum"):
            acts(rt, tape, replace(CARD, kind="float"), name, logits)
        few(rt, "scatter_ sum add add clamp div mean", [PATCHES, ORGANS], 3)
    acts(rt, tape, replace(CARD, kind="float"), "scale add add add", [1])
    back(rt, tape)
    unscaled(rt, CARD, 31e6)
    clipped(rt, CARD, 31e6)
    sgd(rt, CARD, 31e6)
    fetched(rt, 4, 1, [])
    rt.host(700)


TEXTS, TOKENS, HIDDEN, MLP, LAYERS, PIECES = 3, 512, 4_096, 11_008, 32, 32_000
DEQUANT = "void kDequantizeBlockwise<__half, 512, 64, 2>(float*, unsigned char*, float*, __half*, int, int)"


def _four(rt: Framed, tape: Tape, x: list[int], out: int) -> None:
    """`Linear4bit` of bitsandbytes: a weight becomes fp16 again, in either pass."""
    tokens, wide = x[0] * x[1], x[-1]
    us, made = TURING.product(tokens, out, wide), TURING.moves(2.6 * out * wide)
    rt.sequence += 1
    number = rt.sequence
    rt.host(26)
    with rt.span("MatMul4Bit", us=24, **{"Sequence number": number, "Fwd thread id": 0},
                 **inputs((x, [out * wide // 2, 1]), TURING.kind)):  # fmt: skip
        rt.op("aten::empty", us=3, gap=4)
        rt.work(DEQUANT, made)
        rt.op("aten::linear", "aten::matmul", "aten::mm", run=((TURING.names[0], us),), gap=9, kind=TURING.kind,
              dims=([tokens, wide], [wide, out]))  # fmt: skip

    def behind() -> None:
        with node(rt, "MatMul4BitBackward", number):
            rt.host(14)
            rt.work(DEQUANT, made)
            rt.op("aten::matmul", "aten::mm", run=((TURING.names[1], us),), gap=6, kind=TURING.kind,
                  dims=([tokens, out], [out, wide]))  # fmt: skip

    tape.append(behind)


def _quantized(rt: Framed, tape: Tape) -> None:
    """A layer of Llama-2-7B."""
    x, fed = [TEXTS, TOKENS, HIDDEN], [TEXTS, TOKENS, MLP]
    upcast_norm(rt, tape, TURING, x)
    for place in range(3):
        _four(rt, tape, x, HIDDEN)
        if place != 1:
            adapter(rt, tape, TURING, x, HIDDEN)
    for _ in range(2):
        acts(rt, tape, TURING, "mul cat mul add", [TEXTS, 32, TOKENS, 128])
    attention(rt, tape, TURING, [TEXTS, 32, TOKENS, 128])
    _four(rt, tape, x, HIDDEN)
    acts(rt, tape, TURING, "add", x)
    upcast_norm(rt, tape, TURING, x)
    for _ in range(2):
        _four(rt, tape, x, MLP)
    acts(rt, tape, TURING, "silu mul", fed)
    _four(rt, tape, fed, HIDDEN)
    acts(rt, tape, TURING, "add", x)


def qlora(rt: Framed, fixed: bool) -> None:
    """Nothing to change: QLoRA of Llama-2-7B by PEFT and Trainer in a notebook's T4 of 15 GB, fp16, three texts of 512
    a step: weights are NF4 and become fp16 again for each product, layers are computed again in the backward pass,
    without which the activations would not fit; adapters at queries and values, their AdamW is fused, `GradScaler`
    waits once in three seconds. Shapes.

    Not: checkpointing, dequantization, launches, waits, casts of adapters, FlashAttention, TF32 or bf16, which a T4
    has not, the loader, the batch.
    """
    tape, x = Tape(), [TEXTS, TOKENS, HIDDEN]
    loader(rt, 260)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * TOKENS, x[:2], "long int")
    acts(rt, None, TURING, "embedding", x)
    for _ in range(LAYERS):
        rt.sequence += 1
        number = rt.sequence
        rt.host(50)
        args = {"Sequence number": number, "Fwd thread id": 0, **inputs((x,), TURING.kind)}
        with rt.span("CheckpointFunction", us=60, **args), without_graph(rt):
            _quantized(rt, Tape())

        def again(number: int = number) -> None:
            made = Tape()
            with node(rt, "CheckpointFunctionBackward", number):
                _quantized(rt, made)
                while made:
                    made.pop()()

        tape.append(again)
    upcast_norm(rt, tape, TURING, x)
    linear(rt, tape, TURING, x, PIECES)
    moved_as(rt, tape, TURING, [TEXTS, TOKENS, PIECES])
    judged(rt, tape, TURING, TEXTS * TOKENS, PIECES)
    back(rt, tape)
    unscaled(rt, TURING, 8.4e6)
    clipped(rt, TURING, 8.4e6)
    fused_adamw(rt, TURING, 8.4e6)
    few(rt, "add_", [1])
    rt.host(680)


SHOWN, SEEN, MODEL = 40, 257, 1_280


def vith(rt: Framed, fixed: bool) -> None:
    """Nothing to change: ViT-H/14 fine-tuned by timm's `train.py --amp --amp-dtype bfloat16` on an L40S, 40 pictures:
    the GPU is busy with products and FlashAttention; timm's prefetcher copies bytes from pinned memory, AdamW is fused,
    clipped by lists, the loss is read each 50th step. Shapes.

    Not: launches, waits, the loader, copies, casts of weights, attention, the optimizer, the batch.
    """
    tape, picture, x = Tape(), [SHOWN, 3, 224, 224], [SHOWN, SEEN, MODEL]
    loader(rt, 200)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * SHOWN, [SHOWN], "long int")
    acts(rt, None, replace(LOVELACE, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, LOVELACE.moves(6 * prod(picture))),),
          dims=(picture,))  # fmt: skip
    dense(rt, tape, LOVELACE, SHOWN, (SHOWN * 256, 588, MODEL))  # patches
    acts(rt, tape, LOVELACE, "cat add", x)
    for _ in range(32):
        casts(rt, LOVELACE, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        block(rt, tape, LOVELACE, SHOWN, SEEN, MODEL)
    norm(rt, tape, LOVELACE, x)
    casts(rt, LOVELACE, [1_000, MODEL])
    dense(rt, tape, LOVELACE, SHOWN, (SHOWN, MODEL, 1_000))
    judged(rt, tape, LOVELACE, SHOWN, 1_000)
    back(rt, tape)
    clipped(rt, LOVELACE, 632e6, 3)
    fused_adamw(rt, LOVELACE, 632e6)
    rt.host(400)
