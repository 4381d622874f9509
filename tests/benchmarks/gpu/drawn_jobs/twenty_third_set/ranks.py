"""Jobs of the twenty-third set whose fault shows between ranks: rank 0 does more, gradients go one by one."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, ctc, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..layers import CAST, Tape, back, dense, fused_adamw, norm
from ..runtime import MAIN
from ..sixteenth_set.rows import A10_HALF
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv_norm, loader

FOUR, SOUNDS, FRAMES, WIDE, LATER = list(range(4)), 24, 700, 768, 42_000.0  # µs that rank 0 scores and writes
CONV1D = ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_"
          "warpsize2x2x1_g1_tensor16x8x16")  # fmt: skip
LAYER = 7_087_872


def _features(rt: Framed) -> None:
    """wav2vec 2.0's convolutions, frozen."""
    length = FRAMES * 320
    for side, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)):
        length //= stride
        cin = 1 if side == 10 else 512
        us = max(A100.product(SOUNDS * length, 512, cin * side), A100.moves(2 * SOUNDS * length * 512 * (1 + stride)))
        size = [SOUNDS, 512, length]
        rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", kind=A100.kind,
              run=((CONV1D, us),), dims=(size, [512, cin, side]), gap=16)  # fmt: skip
        small(rt, None, ("group_norm", "gelu") if side == 10 else ("gelu",), size, A100.moves(4 * prod(size)))


def scribe(rt: Framed, fixed: bool) -> None:
    """wav2vec 2.0 base with CTC in DDP on four A100 by NVLink, autocast in bf16, 24 sounds of 14 s each, rank 3: in
    each step rank 0 alone decodes its predictions, counts wrong words and writes a line to TensorBoard, 42 ms in which
    its GPU has nothing to do, and all others wait for it in the reductions of the next backward pass; without: nothing
    of it in these steps. Shapes.

    First: communication that waits for another rank (a straggler, rank 0). Not: buckets, `no_sync`, the loader,
    launches, waits of this host.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 3
    tape, x, end = Tape(), [SOUNDS, FRAMES, WIDE], 0.0
    late = 0.0 if fixed or not rt.number else rt.vary(LATER, 0.12)
    given: dict[str, Any] = {"ranks": FOUR, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}

    def reduced(count: int) -> float:
        until = rt.free[MAIN] + late if late else 0.0
        return rt.collective("allreduce", 36 + count * 4 * 1.5 / 200e3, (count, count), until=until, **given)

    loader(rt, 170)
    pinned(rt, SOUNDS * FRAMES * 320 * 4, [SOUNDS, FRAMES * 320])
    pinned(rt, SOUNDS * 180 * 8, [SOUNDS, 180], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        _features(rt)
        norm(rt, tape, A100, [SOUNDS, FRAMES, 512])
        dense(rt, tape, A100, SOUNDS, (SOUNDS * FRAMES, 512, WIDE))
        small(rt, tape, ("conv1d", "gelu", "add", "layer_norm"), x, A100.moves(8 * prod(x)))
        first = len(tape)
        for _ in range(12):
            casts(rt, A100, *[[WIDE, WIDE]] * 4, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
            encoder(rt, tape, A100, (SOUNDS, FRAMES, WIDE))
            elementwise(rt, tape, A100, "mul", x, back=(("mul", 2),))
        one = (len(tape) - first) // 12
        linear(rt, tape, A100, x, 32)
    ctc(rt, tape, A100, (FRAMES, SOUNDS, 32), 180)
    with rt.backward():
        while tape:
            tape.pop()()
            if first <= len(tape) < first + 12 * one and (len(tape) - first) % one == 0:
                end = reduced(LAYER)
        end = reduced(9_200_000)
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 94e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 94e6), 2)
    fused_adamw(rt, A100, 94e6)
    rt.host(340)


CHESTS, GROWTH, BUS, LATENCY = 48, 32, 8.2e3, 44.0  # bytes a µs of PCIe among four, µs
BLOCKS = ((6, 64, 56), (12, 128, 28), (24, 256, 14), (16, 512, 7))


def _dense_net(rt: Framed, tape: Tape) -> list[int]:
    """DenseNet-121; returns the sizes of its parameters."""
    sizes = [3 * 64 * 49, 64, 64]
    conv_norm(rt, tape, A10_HALF, Conv(CHESTS, 3, 64, 7, 112, 112))
    small(rt, tape, ("max_pool2d",), [CHESTS, 64, 56, 56], A10_HALF.card.moves(2.5 * CHESTS * 64 * 112**2))
    for count, width, side in BLOCKS:
        wide = width
        for _ in range(count):
            kept = [CHESTS, wide, side, side]
            small(rt, tape, ("cat",), kept, A10_HALF.card.moves(4 * prod(kept)))
            conv_norm(rt, tape, A10_HALF, Conv(CHESTS, wide, 4 * GROWTH, 1, side, side))
            conv_norm(rt, tape, A10_HALF, Conv(CHESTS, 4 * GROWTH, GROWTH, 3, side, side))
            sizes += [wide * 4 * GROWTH, wide, wide, 36 * GROWTH**2, 4 * GROWTH, 4 * GROWTH]
            wide += GROWTH
        if side > 7:
            conv_norm(rt, tape, A10_HALF, Conv(CHESTS, wide, wide // 2, 1, side, side))
            small(rt, tape, ("avg_pool2d",), [CHESTS, wide // 2, side // 2, side // 2], 40)
            sizes += [wide * wide // 2, wide, wide]
    dense(rt, tape, A10_HALF.card, CHESTS, (CHESTS, 1_024, 14))
    return [*sizes, 1_024, 1_024, 1_024 * 14, 14]


def _reduced(rt: Framed, count: int) -> float:
    given: dict[str, Any] = {"ranks": FOUR, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
    return rt.collective("allreduce", rt.vary(LATENCY + count * 4 * 1.5 / BUS, 0.1), (count, count), **given)


def tutorial(rt: Framed, fixed: bool) -> None:
    """DenseNet-121 on X-rays of chests on four A10G by PCIe, AMP, channels_last, 48 pictures each, rank 1: gradients
    are averaged as PyTorch's tutorial has it, `dist.all_reduce(param.grad)` and a division for each of 364 parameters,
    one after another behind the backward pass; without: `DistributedDataParallel`, two buckets beside it. `GradScaler`
    waits once. No shapes.

    First: many small reductions that nothing hides (DDP, buckets). Not: `no_sync`, a late rank, the loader, TF32.
    """
    groups(rt, 4, default_pg=FOUR)
    tape, picture, end = Tape(), [CHESTS, 3, 224, 224], 0.0
    card = A10_HALF.card
    loader(rt, 180)
    pinned(rt, prod(picture) * 4, picture)
    pinned(rt, CHESTS * 14 * 4, [CHESTS, 14])
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(6 * prod(picture))),), dims=(picture,))
    sizes = _dense_net(rt, tape)
    small(rt, tape, ("binary_cross_entropy_with_logits",), [CHESTS, 14], 4)
    if fixed:
        nodes = len(tape)
        with rt.backward():
            while tape:
                tape.pop()()
                if len(tape) == nodes * 3 // 5:
                    end = _reduced(rt, 6_500_000)
            end = _reduced(rt, sum(sizes) - 6_500_000)
        rt.waits(MAIN, end)
    else:
        back(rt, tape)
        for count in sizes:
            rt.host(5)
            rt.waits(MAIN, _reduced(rt, count))
            rt.op("aten::div_", run=((kernel("div", 2), card.moves(8 * count)),), dims=([count],), gap=5)
    unscaled(rt, card, sum(sizes))
    sgd(rt, card, sum(sizes))
    rt.host(330)
