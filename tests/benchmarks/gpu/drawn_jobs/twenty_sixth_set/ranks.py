"""Jobs of the twenty-sixth set whose fault shows between ranks: norms that are synchronised, shards across nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..eighteenth_set.rows import pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, limited, llama
from ..eleventh_set.rows import COPY, elementwise, linear, node
from ..kineto import inputs
from ..layers import CAST, Card, Tape, dense, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, HALF, NHWC, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few, judged

FOUR, PICTURES, PCIE = list(range(4)), 64, 9.5e3  # bytes a µs
A10G = Card(50, 480, HALF, ADA.card.names, ("", ""))
LOOK = Look(A10G, ADA.names, NHWC, True)
SHORT: dict[str, Any] = {"dtype": "Float", "ranks": FOUR}
STATISTICS = "void at::native::batch_norm_{}_channels_last_kernel<…, {}, float, …>(…)"


def _counted(rt: Framed, width: int) -> None:
    """`mean_all[mask]` and the others: which ranks had any input, which the host waits for."""
    few(rt, "ge", [len(FOUR)])
    for size in ([len(FOUR)], [len(FOUR), width], [len(FOUR), width]):
        with rt.span("aten::index", us=9, **inputs((size, [len(FOUR)]), "float")):
            with rt.span("aten::nonzero", us=8, **inputs(([len(FOUR)],), "bool")):
                rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy600, …>", 2)
                rt.copy(8, "DtoH", "Pageable", waits=True)
                rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy600, …>", 2.4)
            rt.work("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<…>>(long, …)", 2.6)


def _normed(rt: Framed, tape: Tape, size: list[int]) -> None:
    """`SyncBatchNorm`, channels_last: moments of all ranks forward, sums of all ranks behind."""
    width, nbytes = size[1], A10G.size * size[0] * size[1] * size[2] * size[3]
    rt.sequence += 1
    number, named = rt.sequence, {"dims": (size,), "kind": HALF}
    rt.host(22)
    with rt.span("SyncBatchNorm", us=44, **{"Sequence number": number, "Fwd thread id": 0}, **inputs((size,), HALF)):
        rt.op("aten::batch_norm_stats", us=9, **named, run=((STATISTICS.format("collect_statistics", "c10::Half"),
                                                            A10G.moves(nbytes) + 4),))  # fmt: skip
        few(rt, "cat", [2 * width + 1])
        rt.waits(MAIN, rt.collective("_allgather_base", rt.vary(64, 0.4), (2 * width + 1, 4 * (2 * width + 1)), **SHORT,
                                     kernel="AllGather_RING_LL"))  # fmt: skip
        _counted(rt, width)
        rt.op("aten::batch_norm_gather_stats_with_counts", us=11, dims=(size, [len(FOUR), width]), kind=HALF, run=(
            ("void at::native::batch_norm_reduce_statistics_kernel<float, float, int>(…)", 3.4),))  # fmt: skip
        rt.op("aten::batch_norm_elemt", us=9, **named, run=((STATISTICS.format("transform_input", "c10::Half"),
                                                            A10G.moves(2 * nbytes)),))  # fmt: skip

    def backward() -> None:
        with node(rt, "SyncBatchNormBackward", number):
            rt.op("aten::batch_norm_backward_reduce", us=10, dims=(size, size), kind=HALF, run=(
                (STATISTICS.format("backward_reduce", "c10::Half"), A10G.moves(2 * nbytes) + 4),))  # fmt: skip
            few(rt, "cat", [2 * width])
            rt.waits(MAIN, rt.collective("allreduce", rt.vary(70, 0.4), (2 * width, 2 * width), **SHORT,
                                         kernel="AllReduce_Sum_f32_RING_LL"))  # fmt: skip
            rt.op("aten::batch_norm_backward_elemt", us=11, dims=(size, size), kind=HALF, run=(
                (STATISTICS.format("backward_elemt", "c10::Half"), A10G.moves(3 * nbytes)),))  # fmt: skip
        for _ in range(2):
            rt.accumulated()

    tape.append(backward)


def _layer(rt: Framed, tape: Tape, of: Conv, fixed: bool) -> None:
    if fixed:
        conv_norm(rt, tape, LOOK, of)
        return
    conv(rt, tape, LOOK, of)
    _normed(rt, tape, of.dims[2])
    elementwise(rt, tape, A10G, "relu_", of.dims[2], back=(("threshold_backward", 3),))


def syncbn(rt: Framed, fixed: bool) -> None:
    """ResNet-50 by timm's `train.py --amp --channels-last --sync-bn` on the four A10G of a machine by PCIe, 64 pictures
    a rank, rank 2: each of 53 norms gathers the moments of all ranks forward, where the host waits for its masks, and
    sums up behind, in line with DDP's buckets, which 64 pictures a rank do not need; without: `BatchNorm2d` of each
    rank. SGD by lists, `GradScaler` waits once. Shapes.

    First: small collectives that nothing hides (`--sync-bn`), or the waits inside them. Not: buckets, `no_sync`, the
    loader, the layout, a late rank.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    tape, picture, end = Tape(), [PICTURES, 3, 224, 224], 0.0
    loader(rt, 190)
    pinned(rt, 3 * PICTURES * 224**2, picture, "unsigned char")
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    acts(rt, None, replace(A10G, kind="float"), "to sub div", picture)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        _layer(rt, tape, Conv(PICTURES, 3, 64, 7, 112, 112), fixed)
        acts(rt, tape, A10G, "max_pool2d", [PICTURES, 64, 56, 56])
        for blocks, width, side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
            for number in range(blocks):
                given = 4 * width if number else 64 if width == 64 else 2 * width
                for cin, cout, of in ((given, width, 1), (width, width, 3), (width, 4 * width, 1)):
                    _layer(rt, tape, Conv(PICTURES, cin, cout, of, side, side), fixed)
                if number == 0:
                    _layer(rt, tape, Conv(PICTURES, given, 4 * width, 1, side, side), fixed)
                acts(rt, tape, A10G, "add", [PICTURES, 4 * width, side, side])
        acts(rt, tape, A10G, "mean", [PICTURES, 2_048, 7, 7])
        dense(rt, tape, A10G, PICTURES, (PICTURES, 2_048, 1_000))
    judged(rt, tape, A10G, PICTURES, 1_000)
    marks = {int(len(tape) * part): count for part, count in ((0.9, 2.05e6), (0.83, 6.5e6), (0.6, 7.3e6), (0.3, 6.9e6))}
    with rt.backward():
        while tape:
            tape.pop()()
            count = int(marks.get(len(tape), 2.81e6 if not tape else 0))
            if count:
                us = rt.vary(60 + count * 4 * 1.5 / PCIE, 0.04)
                end = rt.collective("allreduce", us, (count, count), **SHORT, kernel="AllReduce_Sum_f32_RING_LL")
    rt.waits(MAIN, end)
    unscaled(rt, A10G, 25.6e6)
    sgd(rt, A10G, 25.6e6)
    few(rt, "add_", [1])
    rt.host(330)


ALL, NODE, PAIR, INTER, SHARDS = list(range(16)), list(range(8)), [3, 11], 24, 28
ROWS, LENGTH, WIDE, DEEP, FED, WORDS = 2, 2_048, 3_072, 28, 8_192, 128_256
LAYER, ENDS = 100_669_440, WORDS * WIDE
ETHERNET, NVLINK = 22e3, 225e3  # bytes a µs
UNIT = "FullyShardedDataParallel."


def _given(fixed: bool) -> dict[str, Any]:
    if fixed:
        return {"ranks": NODE, "group": "mesh_shard", "pg": "1"}
    return {"ranks": ALL}


def _us(rt: Framed, count: int, fixed: bool) -> float:
    ranks, rate = (8, NVLINK) if fixed else (16, ETHERNET)
    return rt.vary(60 + 2 * count * (ranks - 1) / ranks / rate, 0.04)


def _gathered(rt: Framed, count: int, fixed: bool) -> float:
    """The weights of a unit from all ranks of its shards."""
    parts = 8 if fixed else 16
    rt.host(24)
    with rt.span("aten::copy_", us=6):
        made = rt.work(CAST, A100.moves(6 * count / parts), stream=SHARDS)
    rt.free[LINKS] = max(rt.free.get(LINKS, 0.0), made)
    return rt.collective("_allgather_base", _us(rt, count, fixed), (count // parts, count), behind=False,
                         **_given(fixed))  # fmt: skip


def _scattered(rt: Framed, count: int, fixed: bool) -> float:
    """The gradients of a unit; of shards in a node, then to the same shard of the other."""
    rt.op("aten::div_", gap=30, dims=([count],), kind=A100.kind, run=(
        ("void at::native::vectorized_elementwise_kernel<4, BUnaryFunctor<c10::BFloat16, MulFunctor<float>>>(…)",
         A100.moves(4 * count)),))  # fmt: skip
    parts = 8 if fixed else 16
    end = rt.collective("_reduce_scatter_base", _us(rt, count, fixed), (count, count // parts), **_given(fixed))
    if not fixed:
        return end
    rt.free[INTER] = max(rt.free.get(INTER, 0.0), end + 6)
    us = rt.vary(70 + 2 * count / ETHERNET, 0.04)
    return rt.collective("allreduce", us, (count // 8, count // 8), ranks=PAIR, group="mesh_replicate", pg="2",
                         stream=INTER, behind=False)  # fmt: skip


def hybrid(rt: Framed, fixed: bool) -> None:
    """Llama-3.2-3B fine-tuned by Accelerate's FSDP on two nodes of eight A100 each with 200 Gb/s of Ethernet between
    them, bf16, two texts of 2,048 a rank, rank 3: `FULL_SHARD` spreads a layer over all 16 ranks, so that all weights
    go through the network twice a step, which takes longer than a layer's work; without: `HYBRID_SHARD`, weights are
    gathered in the node, only gradients go to the other. Prefetched one ahead, the loss compiled, AdamW fused. No
    shapes.

    First: gathers and reductions that the network is too slow for (`HYBRID_SHARD`, more work a step). Not: units,
    `no_sync`, small collectives, a late rank, the loader, launches.
    """
    if fixed:
        groups(rt, 16, default_pg=ALL, mesh_shard=NODE, mesh_replicate=PAIR)
    else:
        groups(rt, 16, default_pg=ALL)
    rt.head["distributedInfo"]["rank"] = 3
    tape, marks, done, x = Tape(), list[int](), [0.0] * DEEP, [ROWS, LENGTH, WIDE]
    loader(rt, 180)
    for _ in range(3):
        pinned(rt, 8 * ROWS * LENGTH, x[:2], "long int")
    with rt.span(f"{UNIT}forward", "user_annotation", us=200):
        rt.waits(SHARDS, rt.free[MAIN])
        with rt.span(f"{UNIT}_pre_forward", "user_annotation", us=110):
            rt.waits(MAIN, _gathered(rt, ENDS, fixed))
        acts(rt, tape, A100, "embedding", x)
        for number in range(DEEP):
            marks.append(len(tape))
            with rt.span(f"{UNIT}_pre_forward", "user_annotation", us=110):
                limited(rt, done[number - 2] if number > 1 else 0)
                rt.waits(MAIN, _gathered(rt, LAYER, fixed))
            llama(rt, tape, A100, (ROWS, LENGTH, WIDE, 8, FED), fused_norm)
            done[number] = rt.free[MAIN]
        marks.append(len(tape))
        fused_norm(rt, tape, A100, x)
        linear(rt, tape, A100, x, WORDS)
    compiled_loss(rt, tape, A100, ROWS * LENGTH, WORDS)
    with rt.backward():
        end = _backward(rt, tape, marks, done, fixed)
    rt.waits(MAIN, end)
    mine = (DEEP * LAYER + ENDS) / (8 if fixed else 16)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, A100.moves(6 * mine)),), dims=([int(mine)],), gap=40)
    norm: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL", **_given(fixed)}
    rt.waits(MAIN, rt.collective("allreduce", 60, (1, 1), **norm))
    clipped(rt, A100, mine)
    fused_adamw(rt, A100, mine)
    rt.host(480)


def _backward(rt: Framed, tape: Tape, marks: list[int], done: list[float], fixed: bool) -> float:
    number, ahead = DEEP, _gathered(rt, LAYER, fixed)
    while tape:
        tape.pop()()
        if len(tape) not in marks:
            continue
        if number < DEEP:
            done[number] = rt.free[MAIN]
            with rt.span(f"{UNIT}_post_backward_hook", "user_annotation", us=90):
                _scattered(rt, LAYER, fixed)
        number -= 1
        if number >= 0:
            with rt.span(f"{UNIT}_pre_backward_hook", "user_annotation", us=90):
                rt.waits(MAIN, ahead)
                if number:
                    limited(rt, done[number + 1] if number + 1 < DEEP else 0)
                    ahead = _gathered(rt, LAYER, fixed)
    with rt.span(f"{UNIT}_post_backward_hook", "user_annotation", us=90):
        return _scattered(rt, ENDS, fixed)
