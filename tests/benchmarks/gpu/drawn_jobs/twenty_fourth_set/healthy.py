"""Jobs of the twenty-fourth set without a fault: FSDP2 that is hidden, adapters, tokens by graphs, streets, DINO."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, graphed, on_host, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import COPY, elementwise, foreach, linear, node
from ..fifteenth_set.rows import AMPERE_HALF
from ..kineto import inputs
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss, linear_loss, triton
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import A100, AMPERE
from ..twelfth_set.pictures import resnet, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, adapter, conv, conv_norm, frozen, loader
from ..twenty_first_set.host import answered
from .rows import NATIVE, acts, few, judged

EIGHT, LONG, WIDE, LAYERS, FED, WORDS = list(range(8)), 8_192, 4_096, 32, 14_336, 128_256
LAYER, SCATTERS = 218_112_000, 24
SPLIT = NATIVE + "split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, char**, long*, long*, long*, …)"
CHUNKS = NATIVE + "chunk_cat_cuda_kernel<float, c10::BFloat16>(c10::BFloat16 const**, float*, long*, …)"
GROUP: dict[str, Any] = {"ranks": EIGHT, "group": "mesh_dp_shard", "pg": "1"}


def _gathered(rt: Framed, count: int) -> float:
    """Weights in bf16, by NVLink."""
    with rt.span("FSDP::all_gather", us=14):
        return rt.collective("_allgather_base", 40 + count * 2 * 0.875 / 240e3, (count // 8, count), behind=False,
                             **GROUP)  # fmt: skip


def _copied_out(rt: Framed, came: float, count: int) -> None:
    rt.waits(MAIN, came)
    with rt.span("FSDP::all_gather_copy_out", us=16):
        rt.op("fsdp::split_with_sizes_copy", "aten::split_with_sizes_copy", run=((SPLIT, H100.moves(4 * count)),),
              gap=4, us=9)  # fmt: skip


def _scattered(rt: Framed, count: int) -> float:
    """Gradients, in fp32."""
    with rt.span("FSDP::post_backward_reduce", us=24):
        rt.op("fsdp::chunk_cat", "aten::_chunk_cat", run=((CHUNKS, H100.moves(6 * count)),), gap=5, us=9)
        return rt.collective("_reduce_scatter_base", 40 + count * 4 * 0.875 / 240e3, (count, count // 8),
                             dtype="Float", stream=SCATTERS, kernel="ReduceScatter_Sum_f32_RING_LL",
                             **GROUP)  # fmt: skip


def _llama(rt: Framed, tape: Tape) -> None:
    """A layer of Llama-3-8B as torchtitan has it."""
    x = [1, LONG, WIDE]
    fused_norm(rt, tape, H100, x)
    for out in (WIDE, 1_024, 1_024):
        linear(rt, tape, H100, x, out)
    for heads in (32, 8):
        acts(rt, tape, replace(H100, kind="float"), "mul", [1, LONG, heads, 128])
    flash(rt, tape, H100, [1, 32, LONG, 128])
    linear(rt, tape, H100, x, WIDE)
    acts(rt, tape, H100, "add", x)
    fused_norm(rt, tape, H100, x)
    for _ in range(2):
        linear(rt, tape, H100, x, FED)
    acts(rt, tape, H100, "silu mul", [1, LONG, FED])
    linear(rt, tape, H100, [1, LONG, FED], WIDE)
    acts(rt, tape, H100, "add", x)


def titan(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama-3-8B from scratch by torchtitan, FSDP2 on eight H100 of a node, 8,192 tokens each, rank
    5: the next layer's weights come while this one runs, gradients leave beside the backward pass in fp32, the loss is
    compiled; AdamW is fused. Metrics are read in one of ten steps. No shapes.

    Not: communication, prefetch, buckets, `no_sync`, a late rank, launches, waits, the batch.
    """
    groups(rt, 8, default_pg=EIGHT, mesh_dp_shard=EIGHT)
    rt.head["distributedInfo"]["rank"] = 5
    tape, marks, ends = Tape(), list[int](), WORDS * WIDE
    loader(rt, 160)
    for _ in range(2):
        pinned(rt, 8 * LONG, [1, LONG], "long int")
    _copied_out(rt, _gathered(rt, ends), ends)
    ahead = _gathered(rt, LAYER)
    acts(rt, tape, H100, "embedding", [1, LONG, WIDE])
    for number in range(LAYERS):
        marks.append(len(tape))
        with rt.span(f"FSDP::pre_forward (layers.{number})", us=30):
            _copied_out(rt, ahead, LAYER)
            ahead = _gathered(rt, LAYER if number < LAYERS - 1 else ends)
        _llama(rt, tape)
    _copied_out(rt, ahead, ends)
    marks.append(len(tape))
    fused_norm(rt, tape, H100, [1, LONG, WIDE])
    linear(rt, tape, H100, [1, LONG, WIDE], WORDS)
    compiled_loss(rt, tape, H100, LONG, WORDS)
    end, marked = 0.0, set(marks)
    with rt.backward():
        ahead = _gathered(rt, LAYER)
        while tape:
            tape.pop()()
            if len(tape) in marked:
                with rt.span("FSDP::post_backward", us=20):
                    end = _scattered(rt, ends if len(tape) == marks[-1] else LAYER)
                if len(tape) > marks[0]:
                    with rt.span("FSDP::pre_backward", us=20):
                        _copied_out(rt, ahead, LAYER)
                        if len(tape) > marks[1]:
                            ahead = _gathered(rt, LAYER)
        end = _scattered(rt, ends)
    rt.waits(MAIN, max(end, rt.free[LINKS]))
    mine = (LAYERS * LAYER + 2 * ends) / 8
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * mine), 3)
    rt.waits(MAIN, rt.collective("allreduce", 34, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", **GROUP))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * mine), 3)
    fused_adamw(rt, H100, mine)
    rt.host(450)


def _triton_op(rt: Framed, tape: Tape, name: str, kernels: tuple[str, str], size: list[int], moves: float) -> None:
    """One of Liger's functions."""
    rt.sequence += 1
    number, us = rt.sequence, A100.moves(2 * moves * prod(size))
    rt.host(14)
    with rt.span(name, us=34, **{"Sequence number": number, "Fwd thread id": 0}, **inputs((size,), BF16)):
        triton(rt, kernels[0], us)

    def backward() -> None:
        with node(rt, f"{name}Backward", number):
            triton(rt, kernels[1], 1.5 * us)

    tape.append(backward)


def packed(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama-3.1-8B with adapters by the Trainer and Liger's kernels on an A100, bf16, one pack of
    6,144 tokens, FlashAttention; head and loss are one function, the loss is read in one of five steps. Shapes.

    Not: launches, casts of adapters, attention, waits, the loader, the optimizer, the batch.
    """
    tape, x = Tape(), [1, 6_144, WIDE]
    loader(rt, 210)
    for _ in range(3):
        pinned(rt, 8 * x[1], x[:2], "long int")
    acts(rt, None, A100, "embedding", x)
    norms = ("LigerRMSNormFunction", ("_rms_norm_forward_kernel", "_rms_norm_backward_kernel"))
    for _ in range(LAYERS):
        _triton_op(rt, tape, *norms, x, 2)
        for out, tuned in ((WIDE, True), (1_024, False), (1_024, True)):
            frozen(rt, tape, A100, x, out)
            if tuned:
                adapter(rt, tape, A100, x, out)
        _triton_op(rt, tape, "LigerRopeFunction", ("_triton_rope", "_triton_rope"), [1, 40, x[1], 128], 2)
        flash(rt, tape, A100, [1, 32, x[1], 128])
        frozen(rt, tape, A100, x, WIDE)
        acts(rt, tape, A100, "add", x)
        _triton_op(rt, tape, *norms, x, 2)
        for _ in range(2):
            frozen(rt, tape, A100, x, FED)
        _triton_op(rt, tape, "LigerSiLUMulFunction", ("_swiglu_forward_kernel", "_swiglu_backward_kernel"),
                   [1, x[1], FED], 3)  # fmt: skip
        frozen(rt, tape, A100, [1, x[1], FED], WIDE)
        acts(rt, tape, A100, "add", x)
    _triton_op(rt, tape, *norms, x, 2)
    loss = ("liger_cross_entropy_kernel", A100.moves(6 * x[1] * WORDS))
    linear_loss(rt, tape, A100, "LigerFusedLinearCrossEntropyFunction", loss, (x[1], WIDE, WORDS), 1)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 6.8e6), 1)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 6.8e6), 1)
    fused_adamw(rt, A100, 6.8e6)
    if rt.number == 3:
        answered(rt, "aten::item")
    rt.host(800)


ADA, ASKED, SAID = Card(140, 880, BF16, AMPERE, FLASH), 384, 12


def _token(rows: int, kept: int) -> list[tuple[str, float]]:
    """Kernels of a pass over so many tokens of Llama-3-8B, compiled; of one token each product reads its weights."""
    found: list[tuple[str, float]] = [("triton_per_fused__to_copy_embedding_mean_mul_pow_rsqrt_0", 5)]

    def product(number: int, wide: int, out: int) -> tuple[str, float]:
        us = max(2 * rows * wide * out / ADA.tflops / 1e6, ADA.moves(2 * wide * out))
        return AMPERE[0] if rows > 1 else f"triton_red_fused_mv_{number}", us

    for _ in range(LAYERS):
        attended = 2 * rows * kept * 2 * WIDE / ADA.tflops / 1e6 / 0.6
        found += [product(1, WIDE, 6_144), ("triton_poi_fused_add_index_put_mul_stack_2", 3 + rows / 90),
                  (FLASH[0] if rows > 1 else "triton_red_fused__scaled_dot_product_efficient_attention_3",
                   max(attended, ADA.moves(4 * kept * 1_024), 7.0)),
                  product(4, WIDE, WIDE), ("triton_red_fused_add_mean_mul_pow_rsqrt_5", 4 + rows / 60),
                  product(6, WIDE, 2 * FED), ("triton_poi_fused_mul_silu_7", 3 + rows / 14), product(8, FED, WIDE),
                  ("triton_red_fused_add_mean_mul_pow_rsqrt_9", 4 + rows / 60)]  # fmt: skip
    return [*found, ("triton_red_fused_mv_10", ADA.moves(2 * WIDE * WORDS)), ("triton_red_fused_argmax_11", 9)]


def spoken(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama-3-8B answers on an RTX 4090 by gpt-fast, bf16, `mode="reduce-overhead"`: a prompt of 384
    tokens, then twelve tokens one by one, each is one launch of a graph that reads all weights once, which is what the
    card's memory gives; tokens stay on the GPU until the answer's end. No shapes, no rows of steps.

    Not: launches, waits, precision, attention, the batch (one user is served), copies.
    """
    rt.host(900)
    pinned(rt, 8 * ASKED, [ASKED], "long int")
    with rt.span("Torch-Compiled Region: 0/0", us=60):
        for name, us in _token(ASKED, ASKED):
            if name.startswith("triton"):
                rt.host(4)
                triton(rt, name, us)
            else:
                op = "aten::mm" if "gemm" in name else "aten::_flash_attention_forward"
                rt.op(op, run=((name, us),), gap=3, us=5)
    for number in range(SAID):
        few(rt, "copy_ copy_", [1], 2.2)
        with rt.span("Torch-Compiled Region: 1/0", us=55):
            graphed(rt, _token(1, ASKED + number), 1)
        few(rt, "clone", [1], 2.2)
    acts(rt, None, replace(ADA, kind="float"), "cat", [SAID])
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(8 * SAID, "DtoH", "Pageable", waits=True)
    rt.host(600)
    on_host(rt, "aten::empty", 4, [ASKED], "long int")


STREETS, HIGH, BROAD = 8, 512, 1_024
HALF = AMPERE_HALF.card


def streets(rt: Framed, fixed: bool) -> None:
    """Nothing to change: DeepLabV3 on ResNet-50 learns Cityscapes by MMSegmentation on an RTX 3090, `AmpOptimWrapper`,
    channels_last, eight crops of 512 by 1,024: workers are ahead, batches are pinned and come as bytes, losses and
    accuracies stay on the GPU until they are logged each 50 steps; `GradScaler` waits once a step. Shapes.

    Not: the loader, copies, the layout, `GradScaler`'s wait, launches, TF32, SGD by lists.
    """
    tape, picture = Tape(), [STREETS, 3, HIGH, BROAD]
    loader(rt, 240)
    with rt.span("SegDataPreProcessor.forward", "user_annotation", us=40):
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, STREETS * HIGH * BROAD * 8, [STREETS, 1, HIGH, BROAD], "long int")
        for moves in (5, 6):
            run = ((CAST, HALF.moves(moves * prod(picture))),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(picture,))
        acts(rt, None, HALF, "sub div", picture)
    resnet(rt, tape, AMPERE_HALF, STREETS, (HIGH // 16, BROAD // 16))
    high, wide = HIGH // 16, BROAD // 16
    for kernel in (1, 3, 3, 3):
        conv_norm(rt, tape, AMPERE_HALF, Conv(STREETS, 2_048, 512, kernel, high, wide))
    acts(rt, tape, HALF, "cat", [STREETS, 2_560, high, wide])
    conv_norm(rt, tape, AMPERE_HALF, Conv(STREETS, 2_560, 512, 3, high, wide))
    conv_norm(rt, tape, AMPERE_HALF, Conv(STREETS, 1_024, 256, 3, high, wide))
    for cin in (512, 256):
        acts(rt, tape, HALF, "dropout", [STREETS, cin, high, wide])
        conv(rt, tape, AMPERE_HALF, Conv(STREETS, cin, 19, 1, high, wide))
        acts(rt, tape, HALF, "upsample", [STREETS, 19, HIGH, BROAD])
        judged(rt, tape, HALF, STREETS * HIGH * BROAD, 19)
        few(rt, "argmax eq sum mul", [STREETS, HIGH, BROAD], 60)
    elementwise(rt, tape, HALF, "add", [1], 2)
    back(rt, tape)
    unscaled(rt, HALF, 66e6)
    sgd(rt, HALF, 66e6)
    rt.host(900)


PICTURES, SMALL, DEEP = 28, 384, 12
L4 = Card(54, 260, BF16, AMPERE, FLASH)


def _vit(rt: Framed, tape: Tape, batch: int, length: int) -> None:
    """ViT-S/16 under autocast."""
    x, tokens = [batch, length, SMALL], batch * length
    dense(rt, tape, L4, batch, (batch * (length - 1), 768, SMALL))
    acts(rt, tape, L4, "cat add", x)
    for _ in range(DEEP):
        casts(rt, L4, [3 * SMALL, SMALL], [SMALL, SMALL], [4 * SMALL, SMALL], [SMALL, 4 * SMALL])
        norm(rt, tape, L4, x)
        dense(rt, tape, L4, batch, (tokens, SMALL, 3 * SMALL))
        attention(rt, tape, L4, [batch, 6, length, 64])
        dense(rt, tape, L4, batch, (tokens, SMALL, SMALL))
        acts(rt, tape, L4, "add", x)
        norm(rt, tape, L4, x)
        dense(rt, tape, L4, batch, (tokens, SMALL, 4 * SMALL))
        acts(rt, tape, L4, "gelu", [*x[:2], 4 * SMALL])
        dense(rt, tape, L4, batch, (tokens, 4 * SMALL, SMALL))
        acts(rt, tape, L4, "add", x)
    norm(rt, tape, L4, x)


def _head(rt: Framed, tape: Tape, rows: int) -> None:
    for wide, out in ((SMALL, 2_048), (2_048, 2_048), (2_048, 256), (256, 65_536)):
        dense(rt, tape, L4, 1, (rows, wide, out))
        if out == 2_048:
            acts(rt, tape, L4, "gelu", [rows, out])


def crops(rt: Framed, fixed: bool) -> None:
    """Nothing to change: DINO learns ViT-S/16 without labels on an L4, autocast in bf16, 28 pictures, of each two crops
    of 224 pixels and eight of 96: the teacher sees the large ones without gradients, its weights follow by lists, the
    center stays on the GPU; batches are pinned, the loss is summed there, AdamW is fused. No shapes.

    Not: launches, waits, the loader, copies, the teacher's passes, the optimizer, the batch.
    """
    tape = Tape()
    loader(rt, 260)
    for number in range(10):
        side = 224 if number < 2 else 96
        pinned(rt, PICTURES * 3 * side**2 * 4, [PICTURES, 3, side, side])
    with without_graph(rt):
        _vit(rt, [], 2 * PICTURES, 197)
        _head(rt, [], 2 * PICTURES)
    _vit(rt, tape, 2 * PICTURES, 197)
    _vit(rt, tape, 8 * PICTURES, 37)
    acts(rt, tape, L4, "cat", [10 * PICTURES, SMALL])
    _head(rt, tape, 10 * PICTURES)
    scores = [PICTURES, 65_536]
    wide = replace(L4, kind="float")
    acts(rt, None, wide, "sub div softmax", [2 * PICTURES, 65_536])
    for _ in range(18):
        acts(rt, tape, wide, "logsumexp mul sum mean add", scores)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", L4.moves(4 * 40e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", L4.moves(8 * 40e6), 2)
    fused_adamw(rt, L4, 40e6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", L4.moves(12 * 40e6), 2)
    acts(rt, None, wide, "mean mul add", [1, 65_536])
    rt.op("aten::copy_", run=((COPY, 2.2),), dims=([1],))
    rt.host(520)
