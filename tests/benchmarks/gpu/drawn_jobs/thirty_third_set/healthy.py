"""Jobs of the thirty-third set without a fault: music on an MI300X, splats on an RTX 3090, Megatron on eight H100,
texts on a T4, weather by a compiled model on a B200.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import foreach, linear, node
from ..fifteenth_set.rows import CUDNN, NVJET
from ..layers import Card, Tape, back, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss, triton
from ..seventh_set import BF16
from ..tenth_set import T4_HALF
from ..tenth_set.jobs import AOTRITON, H100, MI300X
from ..thirty_first_set.rows import Told, ahead, small
from ..thirty_second_set.rows import encoder
from ..twelfth_set.pictures import unscaled
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import PLAIN, acts, few, judged
from .rows import HEADS_128, Marked, across, batch_of, blocking, unfinite

SONGS, FRAMES, WIDE, DEEP, BOOKS, CODES, SAID = 24, 512, 1_536, 48, 4, 2_048, 64


def musicgen(rt: Told, fixed: bool) -> None:
    """Nothing to change: MusicGen (medium, 1.9B) learns dances by a plain loop on an MI300X, all in bf16, 24 pieces of
    ten seconds as codes that were computed before, texts as vectors: the GPU is busy with products of hipBLASLt and
    AOTriton's attention to itself and to the text, AdamW is fused, clipped by lists, the loss is read each 50th step.
    Shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, recomputation, the batch.
    """
    rt.causal = True
    tape, x = Tape(), [SONGS, FRAMES, WIDE]
    loader(rt, 200)
    batch_of(rt, ([SONGS, BOOKS, FRAMES], "long int"), ([SONGS, SAID, 768], BF16))
    for _ in range(BOOKS):
        acts(rt, tape, MI300X, "embedding add", x)
    linear(rt, tape, MI300X, [SONGS, SAID, 768], WIDE)
    for _ in range(DEEP):
        norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, 3 * WIDE)
        flash(rt, tape, MI300X, [SONGS, WIDE // 64, FRAMES, 64])
        linear(rt, tape, MI300X, x, WIDE)
        acts(rt, tape, MI300X, "add", x)
        norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, WIDE)
        for _ in range(2):
            linear(rt, tape, MI300X, [SONGS, SAID, WIDE], WIDE)
        across(rt, tape, MI300X, [SONGS, WIDE // 64, FRAMES, 64], SAID, AOTRITON)
        linear(rt, tape, MI300X, x, WIDE)
        acts(rt, tape, MI300X, "add", x)
        norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, 4 * WIDE)
        acts(rt, tape, MI300X, "gelu", [SONGS, FRAMES, 4 * WIDE])
        linear(rt, tape, MI300X, [SONGS, FRAMES, 4 * WIDE], WIDE)
        acts(rt, tape, MI300X, "add", x)
    norm(rt, tape, MI300X, x)
    for _ in range(BOOKS):
        linear(rt, tape, MI300X, x, CODES)
        acts(rt, tape, replace(MI300X, kind="float"), "to", [SONGS * FRAMES, CODES])
        judged(rt, tape, replace(MI300X, kind="float"), SONGS * FRAMES, CODES)
    small(rt, tape, MI300X, "add add add div", [1])
    back(rt, tape)
    total = DEEP * 16 * WIDE**2
    clipped(rt, MI300X, total, 4, 2)
    fused_adamw(rt, MI300X, total / 2)
    few(rt, "add_", [1])
    rt.host(430)


SPLATS, HIGH, ACROSS, HITS = 1_200_000, 2_160, 3_840, 21_000_000
RTX3090 = Card(30, 780, "float", ("", ""), ("", ""))
PICTURE = [1, HIGH, ACROSS, 3]
GSPLAT = "void gsplat::{}_kernel<{}>(…)"


def _drawn(rt: Framed, tape: Tape, name: str, ahead_of: tuple[str, float], behind: tuple[str, float], of: list[int],
           **given: Any) -> None:  # fmt: skip
    """A function of gsplat's, one kernel each way."""
    number = rt.op(name, run=((GSPLAT.format(ahead_of[0], "float"), ahead_of[1]),), dims=(of,), graph=True, us=26,
                   gap=22, **given)  # fmt: skip
    tape.append(lambda: rt.grad(f"{name}Backward", number, us=24, dims=(of, of), run=(
        (GSPLAT.format(behind[0], "float"), behind[1]),)))  # fmt: skip


def _sorted(rt: Framed) -> None:
    """Which splats lie in which tiles, sorted by depth; the host reads how many hits there are."""
    rt.op("aten::empty", us=3, gap=12)
    with rt.span("gsplat::isect_tiles", us=24):
        rt.work(GSPLAT.format("intersect_tile", "float"), RTX3090.moves(40 * SPLATS))
        rt.op("aten::cumsum", gap=3, dims=([SPLATS],), kind="long int", run=(
            (PLAIN["cumsum"], RTX3090.moves(24 * SPLATS)),))  # fmt: skip
        rt.value()
        rt.work(GSPLAT.format("intersect_tile", "float"), RTX3090.moves(14 * HITS))
        for _ in range(6):
            rt.work(
                "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<…, long, int, …>", RTX3090.moves(24 * HITS)
            )
        rt.work(GSPLAT.format("intersect_offset", "long"), RTX3090.moves(9 * HITS))


def quarry(rt: Told, fixed: bool) -> None:
    """Nothing to change: splats learn a quarry by gsplat's trainer on an RTX 3090, 1.2 million of them, pictures of
    3840 x 2160, when none are added any more: the GPU is busy with rasterizing both ways, the host reads how many hits
    there are and, for its bar, the loss, SSIM is fused, Adam is fused (`--visible_adam`), pictures come pinned as
    bytes. Shapes, no rows of steps.

    Not: the read of hits (their memory depends on it), the bar's read (it costs 0.4 ms), launches, the loader, copies,
    precision, the optimizer, a larger batch.
    """
    tape, whole, ssim = Tape(), [SPLATS, 3], 4 * prod(PICTURE)
    loader(rt, 240)
    for size in ([1, 4, 4], [1, 3, 3]):
        blocking(rt, 4 * prod(size), size, "float")
    blocking(rt, prod(PICTURE), PICTURE, "unsigned char")
    few(rt, "to div", PICTURE, RTX3090.moves(1.6 * ssim))
    few(rt, "linalg_inv_ex", [1, 4, 4], 14)
    for name, wide_of in (("exp", 3), ("sigmoid", 1)):
        acts(rt, tape, RTX3090, name, [SPLATS, wide_of])
    acts(rt, tape, RTX3090, "cat", [SPLATS, 16, 3])
    _drawn(rt, tape, "_FullyFusedProjection", ("projection_ewa_3dgs_fused_fwd", RTX3090.moves(96 * SPLATS)),
           ("projection_ewa_3dgs_fused_bwd", RTX3090.moves(190 * SPLATS)), whole)  # fmt: skip
    few(rt, "sub linalg_vector_norm div", whole, RTX3090.moves(24 * SPLATS))
    _drawn(rt, tape, "_SphericalHarmonics", ("spherical_harmonics_fwd", RTX3090.moves(216 * SPLATS)),
           ("spherical_harmonics_bwd", RTX3090.moves(430 * SPLATS)), [SPLATS, 16, 3])  # fmt: skip
    acts(rt, tape, RTX3090, "add clamp_min", whole)
    _sorted(rt)
    _drawn(rt, tape, "_RasterizeToPixels", ("rasterize_to_pixels_3dgs_fwd", 17_800), (
        "rasterize_to_pixels_3dgs_bwd", 40_600), PICTURE)  # fmt: skip
    acts(rt, tape, RTX3090, "sub abs mean", PICTURE)
    number = rt.op("FusedSSIMMap", run=(("fusedssimCUDA(int, int, int, float, float, float*, …)", 2_400.0),), us=24,
                   dims=(PICTURE,) * 2, graph=True, gap=20)  # fmt: skip
    tape.append(lambda: rt.grad("FusedSSIMMapBackward", number, dims=(PICTURE,) * 2, run=(
        ("fusedssim_backwardCUDA(int, int, int, float, float, float*, …)", 2_900.0),)))  # fmt: skip
    small(rt, tape, RTX3090, "sub mul mul add", [1])
    back(rt, tape)
    rt.value()
    rt.host(60)
    for wide_of in (3, 3, 4, 1, 3, 45):
        run = ((GSPLAT.format("adam", "float"), RTX3090.moves(28 * 0.8 * SPLATS * wide_of)),)
        with rt.span("Optimizer.step#SelectiveAdam.step", "user_annotation", us=30):
            rt.op("gsplat::adam", run=run, us=9, dims=([SPLATS, wide_of],) * 2, gap=20)
        with rt.span("Optimizer.zero_grad#SelectiveAdam.zero_grad", "user_annotation", us=12):
            pass
    rt.host(150)


EIGHT, MICRO, LENGTH, MODEL, LAYERS, WORDS, NVLINK = list(range(8)), 5, 2_048, 2_560, 32, 51_200, 330e3
Y = [LENGTH, MICRO, MODEL]
LAYER, GATHERS = 12 * MODEL * MODEL, 26
BUCKET = 4 * LAYER


def _travels(rt: Framed, name: str, count: int, **given: Any) -> float:
    size = 4 if "scatter" in name else 2
    nelems = (count, count // 8) if "scatter" in name else (count // 8, count)
    us = 30 + size * count * 0.875 / NVLINK
    return rt.collective(name, rt.vary(us, 0.03), nelems, ranks=EIGHT, group="dp", pg="1", **given)


def megatron(rt: Marked, fixed: bool) -> None:
    """Nothing to change: a GPT of 2.7B learns code by Megatron-LM on the eight H100 of a node, data parallel, rank 6,
    all in bf16, five texts of 2,048 a rank: `--use-distributed-optimizer` with `--overlap-grad-reduce` and
    `--overlap-param-gather`, gradients are scattered in fp32 beside the backward pass, weights are gathered beside the
    forward pass, norms and loss are fused, the norm of gradients is read once. No shapes.

    Not: communication (hardly any shows), buckets, `no_sync`, a late rank, the loader, launches, attention, the
    optimizer, the read of the norm.
    """
    groups(rt, 8, default_pg=EIGHT, dp=EIGHT)
    rt.head["distributedInfo"]["rank"] = 6
    for stream in (LINKS, GATHERS):
        rt.free.setdefault(stream, 0.0)
    tape, marks, gathers, last = Tape(), dict[int, int](), list[float](), 0.0
    loader(rt, 220)
    batch_of(rt, ([MICRO, LENGTH], "long int"), ([MICRO, LENGTH], "long int"), ([MICRO, LENGTH], "float"))

    def gathered() -> None:
        rt.free[GATHERS] = max(rt.free[GATHERS], rt.mark)
        gathers.append(_travels(rt, "_allgather_base", BUCKET, stream=GATHERS, behind=False, dtype="BFloat16"))

    gathered()
    for number in range(LAYERS):
        if number % 4 == 0:
            if number < LAYERS - 4:
                gathered()
            rt.waits(MAIN, gathers[number // 4])
            marks[len(tape)] = number
        if number == 0:
            acts(rt, tape, H100, "embedding add dropout", Y)
        fused_norm(rt, tape, H100, Y)
        linear(rt, tape, H100, Y, 3 * MODEL)
        flash(rt, tape, replace(H100, attention=HEADS_128), [MICRO, MODEL // 128, LENGTH, 128])
        linear(rt, tape, H100, Y, MODEL)
        acts(rt, tape, H100, "add", Y)
        fused_norm(rt, tape, H100, Y)
        linear(rt, tape, H100, Y, 4 * MODEL)
        acts(rt, tape, H100, "gelu", [LENGTH, MICRO, 4 * MODEL])
        linear(rt, tape, H100, [LENGTH, MICRO, 4 * MODEL], MODEL)
        acts(rt, tape, H100, "add", Y)
    fused_norm(rt, tape, H100, Y)
    linear(rt, tape, H100, Y, WORDS)
    compiled_loss(rt, tape, H100, LENGTH * MICRO, WORDS)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                count = BUCKET if tape else BUCKET + WORDS * MODEL
                last = _travels(rt, "_reduce_scatter_base", count, dtype="Float",
                                kernel="ReduceScatter_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, last)
    share = LAYERS * LAYER / 8
    foreach(rt, "_foreach_norm", "L2NormFunctor", H100.moves(4 * share), 1)
    rt.waits(MAIN, rt.collective("allreduce", 24, (1, 1), dtype="Float", ranks=EIGHT, group="dp", pg="1",
                                 kernel="AllReduce_Sum_f32_RING_LL"))  # fmt: skip
    rt.value()
    foreach(rt, "_foreach_mul_", "ScaleFunctor", H100.moves(8 * share), 1)
    fused_adamw(rt, H100, share)
    foreach(rt, "_foreach_copy_", "CopyFunctor", H100.moves(6 * share), 1)
    rt.mark = rt.free[MAIN]
    rt.host(520)


TEXTS, READ, NARROW, STACK = 64, 256, 768, 6


def distil(rt: Told, fixed: bool) -> None:
    """Nothing to change: DistilBERT learns to sort letters of complaint by the Trainer on a T4 of Colab, `fp16=True`,
    64 texts of 256 words: the GPU is busy with products in half precision, the Trainer asks whether the loss is finite
    and `GradScaler` whether gradients are, three short waits at the end of a step, batches come pinned, AdamW is fused,
    clipped by lists, the loss is logged each 50th step. Shapes, no rows of steps.

    Not: the Trainer's reads, `GradScaler`, launches, the loader, copies, TF32 and bf16 (a T4 has neither), attention,
    the optimizer, a larger batch.
    """
    rt.narrow = "5"
    tape, x = Tape(), [TEXTS, READ, NARROW]
    whole = replace(T4_HALF, kind="float")
    loader(rt, 230)
    for size in ([TEXTS, READ], [TEXTS, READ], [TEXTS]):
        blocking(rt, 8 * prod(size), size)
    acts(rt, tape, whole, "embedding embedding add", x)
    norm(rt, tape, whole, x)
    acts(rt, tape, T4_HALF, "dropout", x)
    for _ in range(STACK):
        casts(rt, T4_HALF, *([[NARROW, NARROW]] * 4), [4 * NARROW, NARROW], [NARROW, 4 * NARROW])
        encoder(rt, tape, T4_HALF, x)
        acts(rt, tape, T4_HALF, "dropout", x)
    few(rt, "select", x)
    casts(rt, T4_HALF, [NARROW, NARROW], [14, NARROW])
    for out in (NARROW, 14):
        dense(rt, tape, T4_HALF, TEXTS, (TEXTS, NARROW, out))
        acts(rt, tape, T4_HALF, "relu" if out == NARROW else "to", [TEXTS, out])
    judged(rt, tape, whole, TEXTS, 14)
    back(rt, tape)
    unfinite(rt)
    unscaled(rt, T4_HALF, 67e6)
    clipped(rt, T4_HALF, 67e6)
    fused_adamw(rt, T4_HALF, 67e6)
    few(rt, "add_", [1])
    rt.host(560)


DAYS, AIR, NORTH, ROUND, EACH, UNITS = 4, 69, 128, 256, 1_024, 24
CELLS = NORTH * ROUND // 4
B200 = Card(1_150, 6_400, BF16, NVJET, CUDNN)


def _compiled(rt: Framed, ways: bool) -> None:
    """A layer as Inductor makes it, ahead or behind."""
    tokens, one = DAYS * CELLS, B200.moves(2 * DAYS * CELLS * EACH)
    us = B200.product(DAYS * EACH // 64 * CELLS, CELLS, 128) / 0.7
    layer = (("triton_red_fused_add_mul_native_layer_norm_{}", 2.4 * one), (3, EACH), (None, us), (1, EACH),
             ("triton_red_fused_add_mul_native_layer_norm_{}", 4.2 * one), (4, EACH),
             ("triton_poi_fused_gelu_{}", 8.3 * one), (4, EACH))  # fmt: skip
    for place, (name, lasts) in enumerate(reversed(layer) if ways else layer):
        if isinstance(name, int):
            for _ in range(2 if ways else 1):
                rt.op("aten::mm", run=((NVJET[ways], B200.product(tokens, name * EACH, EACH)),), gap=3, us=7, kind=BF16,
                      dims=([tokens, EACH], [EACH, name * EACH]))  # fmt: skip
        elif name is None:
            outer = "aten::_scaled_dot_product_cudnn_attention" + ("_backward" if ways else "")
            dims = [DAYS, EACH // 64, CELLS, 64]
            rt.op(outer, run=((CUDNN[ways], lasts * (2.6 if ways else 1)),), gap=5, us=16, dims=(dims,) * 3, kind=BF16)
        else:
            rt.host(5)
            triton(rt, name.format(place).replace("norm_", "norm_backward_" if ways else "norm_"),
                   lasts * (1.8 if ways else 1))  # fmt: skip


def stormer(rt: Told, fixed: bool) -> None:
    """Nothing to change: Stormer (a ViT of 24 layers of 1,024) learns the weather of the next day by a plain loop on a
    B200, autocast in bf16, four days of 69 fields on a grid of 128 x 256: `torch.compile` fuses what stands between
    products, attention is cuDNN's, the next days come from pinned memory on a stream of their own, AdamW is fused,
    clipped by lists, the loss is read each 20th step. Shapes.

    Not: launches, waits, the loader, copies (they are hidden), precision, attention, the optimizer, recompiles,
    recomputation, a larger batch.
    """
    field, tokens = [DAYS, AIR, NORTH, ROUND], DAYS * CELLS
    loader(rt, 190)
    there = ahead(rt, (4 * prod(field), field, "float"), (4 * prod(field), field, "float"))
    rt.sequence += 1
    number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    one = B200.moves(2 * tokens * EACH)
    with rt.span("TorchDynamo Cache Lookup", us=26):
        pass
    with (rt.span("Torch-Compiled Region: 0/0", us=90), rt.span("CompiledFunction", us=50, **number),
          rt.span("## Call CompiledFxGraph fq4xw2m ##", "user_annotation", us=20)):  # fmt: skip
        for _ in range(6):
            triton(rt, "triton_poi_fused__to_copy_0", B200.moves(6 * 12 * EACH**2 * UNITS / 6))
        for name in ("triton_poi_fused__to_copy_clone_1", "triton_red_fused_add_addmm_native_layer_norm_2"):
            triton(rt, name, 2 * one)
            rt.op("aten::mm", run=((NVJET[0], B200.product(tokens, EACH, 4 * AIR)),), gap=3, us=7, kind=BF16)
        for _ in range(UNITS):
            _compiled(rt, False)
        rt.op("aten::mm", run=((NVJET[0], B200.product(tokens, 4 * AIR, EACH)),), gap=3, us=7, kind=BF16)
        triton(rt, "triton_red_fused_abs_mean_mul_sub_view_31", B200.moves(10 * prod(field)))
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph fb3tzr9 ##", "user_annotation", us=20)):  # fmt: skip
        triton(rt, "triton_poi_fused_div_mul_sign_view_0", B200.moves(10 * prod(field)))
        for _ in range(2):
            rt.op("aten::mm", run=((NVJET[1], B200.product(tokens, 4 * AIR, EACH)),), gap=3, us=7, kind=BF16)
        for _ in range(UNITS):
            _compiled(rt, True)
        rt.op("aten::mm", run=((NVJET[1], B200.product(tokens, EACH, 4 * AIR)),), gap=3, us=7, kind=BF16)
    clipped(rt, B200, 330e6)
    fused_adamw(rt, B200, 330e6)
    few(rt, "detach add_", [1])
    rt.waits(MAIN, there)
    rt.host(330)
