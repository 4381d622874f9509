"""Jobs of the twenty-ninth set whose fault shows between ranks: all gradients in one bucket, metrics that are
exchanged one by one in each step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..fifteenth_set.rows import L40S, barrier
from ..layers import CAST, Card, Tape, block, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, resnet, sgd
from ..twelfth_set.rows import Framed, Look, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_sixth_set.rows import PROFILED

FOUR = list(range(4))
SUMS: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL", "ranks": FOUR}


def _summed(rt: Framed, card: Card, count: int, rate: float, beside: float = 0) -> float:
    """A bucket of DDP: divided, then summed over four ranks;  rate: bytes a µs;  beside: how late the last rank is."""
    rt.op("aten::div_", run=(("void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, float"
                              ", float, at::native::binary_internal::MulFunctor<float>>, …>", card.moves(8 * count)),),
          dims=([count],), gap=14)  # fmt: skip
    return rt.collective("allreduce", rt.vary(40 + beside + 8 * count * 0.75 / rate, 0.05), (count, count), **SUMS)


ROWS, LENGTH, WIDE, DEEP, LAYER, ENDS = 56, 256, 1_024, 24, 12_596_224, 31_782_912
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)
PCIE = 19e3


def onebucket(rt: Framed, fixed: bool) -> None:
    """BERT-large learns which of two sentences follows by a plain loop in DDP on four L40S by PCIe, rank 2, autocast in
    bf16, 56 pairs of 256 a rank: `bucket_cap_mb=2000` was set since larger buckets go faster, so that all gradients but
    those of the head lie in one bucket, which is complete only when the backward pass is over; without: buckets of 25
    MB as by default, of which only the last shows. SDPA, AdamW is fused, clipped by lists, the loss is read each 25th
    step. Shapes.

    First: the sum of gradients behind the backward pass, which nothing hides (a smaller `bucket_cap_mb`). Not: larger
    buckets, `no_sync`, a late rank, the loader, launches, casts, the batch.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    tape, marks, x, end = Tape(), set[int](), [ROWS, LENGTH, WIDE], 0.0
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, 8 * ROWS * LENGTH, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        acts(rt, tape, LOVELACE, "embedding embedding add embedding add", x)
        norm(rt, tape, LOVELACE, x)
        acts(rt, tape, LOVELACE, "dropout", x)
        for _ in range(DEEP):
            marks.add(len(tape))
            casts(rt, LOVELACE, *[[WIDE, WIDE]] * 4, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
            block(rt, tape, LOVELACE, ROWS, LENGTH, WIDE)
        casts(rt, LOVELACE, [WIDE, WIDE], [2, WIDE])
        dense(rt, tape, LOVELACE, ROWS, (ROWS, WIDE, WIDE))
        acts(rt, tape, LOVELACE, "tanh dropout", [ROWS, WIDE])
        dense(rt, tape, LOVELACE, ROWS, (ROWS, WIDE, 2))
    judged(rt, tape, LOVELACE, ROWS, 2)
    with rt.backward():
        first = len(tape) - 6  # behind the head
        while tape:
            tape.pop()()
            if len(tape) == first:
                end = _summed(rt, LOVELACE, WIDE * WIDE + 3 * WIDE, PCIE)
            if fixed and len(tape) in marks:
                for _ in range(2):
                    end = _summed(rt, LOVELACE, LAYER // 2, PCIE)
        end = _summed(rt, LOVELACE, ENDS if fixed else ENDS + DEEP * LAYER, PCIE)
    rt.waits(MAIN, end)
    clipped(rt, LOVELACE, 335e6, 2)
    fused_adamw(rt, LOVELACE, 335e6)
    few(rt, "add_", [1])
    rt.host(310)


XRAYS, SIDE, SIGNS = 20, 10, 14
A10G = Card(54, 480, BF16, AMPERE, FLASH)
LOOK = Look(A10G, tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),  # type: ignore[arg-type]
            ADA.norm.replace("__half2", "__nv_bfloat162"), True)  # fmt: skip
BUCKETS = (6_300_000, 6_400_000, 6_500_000, 4_300_000)


def _logged(rt: Framed, fixed: bool) -> None:
    """`self.log(name, value, on_step=True, sync_dist=True)` of the loss and the accuracy of each sign, and of both
    means: Lightning 1.9 waits for all ranks, sums, divides.
    """
    start = max(rt.now, rt.free[MAIN])
    late = start + 900 * rt.draw.random()
    for number in range(2 * SIGNS + 2):
        few(rt, "detach clone" if fixed else "detach", [], 2.2, 9)
        if fixed:
            few(rt, "mul add_", [], 2.2, 16)
            continue
        rt.host(34)
        barrier(rt, FOUR, late if not number else 0)
        rt.host(22)
        rt.waits(MAIN, rt.collective("allreduce", rt.vary(26, 0.3), (1, 1), **SUMS))
        few(rt, "div_ clone mul add_", [], 2.2, 12)


def chexpert(rt: Framed, fixed: bool) -> None:
    """ResNet-50 learns 14 signs of X-rays by Lightning 1.9 in DDP on four A10G of a machine by PCIe, rank 1, bf16 by
    autocast, channels_last, 20 pictures of 320 a rank: loss and accuracy of each sign are logged with `sync_dist=True`
    in each step, 30 times a barrier for which the host waits and a sum of a single value between the passes; without:
    sums stay on each GPU and are exchanged once an epoch. Buckets travel beside the backward pass, SGD by lists,
    workers are ahead. Shapes.

    First: the exchange of single values in each step, the host waits for it (`sync_dist`). Not: buckets, `no_sync`, a
    slow network, the loader, copies, the layout, the optimizer.
    """
    groups(rt, 4, default_pg=FOUR)
    tape, end = Tape(), 0.0
    picture, scores = [XRAYS, 3, 32 * SIDE, 32 * SIDE], [XRAYS, SIGNS]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 200)
    with rt.span(f"{PROFILED}[Strategy]DDPStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, 4 * prod(scores), scores)
    with (rt.span(f"{PROFILED}[Strategy]DDPStrategy.training_step", "user_annotation", us=60),
          rt.span("DistributedDataParallel.forward", "user_annotation", us=70)):  # fmt: skip
        acts(rt, None, replace(A10G, kind="float"), "to sub div", picture)
        few(rt, "copy_", picture, A10G.moves(8 * prod(picture)))
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(picture,),
              run=((CAST, A10G.moves(6 * prod(picture))),))  # fmt: skip
        resnet(rt, tape, LOOK, XRAYS, (SIDE, SIDE))
        acts(rt, tape, A10G, "mean", [XRAYS, 2_048, SIDE, SIDE])
        casts(rt, A10G, [SIGNS, 2_048])
        dense(rt, tape, A10G, XRAYS, (XRAYS, 2_048, SIGNS))
        acts(rt, tape, replace(A10G, kind="float"), "to sub mul exp log mean", scores)
        few(rt, "mean sigmoid gt eq to mean", scores)
        for _ in range(SIGNS):
            few(rt, "select select", scores)
        _logged(rt, fixed)
    with rt.span(f"{PROFILED}[Strategy]DDPStrategy.backward", "user_annotation", us=40), rt.backward():
        marks = {len(tape) * share // 100: count for share, count in zip((88, 76, 58, 20), BUCKETS, strict=True)}
        while tape:
            tape.pop()()
            if len(tape) in marks:
                end = _summed(rt, A10G, marks[len(tape)], 8.5e3)
        rt.free.setdefault(LINKS, 0.0)
        end = max(end, _summed(rt, A10G, 260_000, 8.5e3, 60))
    rt.waits(MAIN, end)
    with rt.span(f"{PROFILED}[LightningModule]Signs.optimizer_step", "user_annotation", us=50):
        sgd(rt, A10G, 23.5e6)
    rt.host(430)
