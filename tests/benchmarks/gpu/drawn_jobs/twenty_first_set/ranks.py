"""Jobs of the twenty-first set whose fault shows between ranks: a device that is slower, buckets that are too small."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import elementwise, foreach, linear
from ..fifteenth_set.rows import Third
from ..layers import CAST, REDUCE, Tape, dense, fused_adamw
from ..runtime import MAIN
from ..seventeenth_set.rows import compiled_loss
from ..tenth_set.jobs import H100
from ..twelfth_set.pictures import V100, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Framed, loader

EIGHT, SLOWER = list(range(8)), 1.31
DEEP, WIDE, HIDDEN, CLASSES, TEXTS, LENGTH = 24, 896, 4_864, 151_936, 8, 2_048
LAYER, HEAD = 14_912_384, 136_134_656


class Led(Framed):
    """left: when all ranks left the last reduction of the step before, and began this one alike."""

    left = 0.0

    def behind(self, fixed: bool) -> float:
        """When the slow rank comes to where this one's queue is."""
        return 0.0 if fixed else self.left + SLOWER * (self.free[MAIN] - self.left)


def _layer(rt: Led, tape: Tape) -> None:
    """A layer of Qwen2.5-0.5B."""
    x = [TEXTS, LENGTH, WIDE]
    fused_norm(rt, tape, H100, x)
    for out in (WIDE, 128, 128):
        linear(rt, tape, H100, x, out)
    for heads in (14, 2):
        elementwise(rt, tape, H100, "mul", [TEXTS, heads, LENGTH, 64], 2, (("mul", 3),))
    flash(rt, tape, H100, [TEXTS, 14, LENGTH, 64])
    linear(rt, tape, H100, x, WIDE)
    elementwise(rt, tape, H100, "add", x, 2)
    fused_norm(rt, tape, H100, x)
    for _ in range(2):
        linear(rt, tape, H100, x, HIDDEN)
    elementwise(rt, tape, H100, "silu", [TEXTS, LENGTH, HIDDEN], back=(("silu_backward", 3),))
    elementwise(rt, tape, H100, "mul", [TEXTS, LENGTH, HIDDEN], 2, (("mul", 3), ("mul", 3)))
    linear(rt, tape, H100, [TEXTS, LENGTH, HIDDEN], WIDE)
    elementwise(rt, tape, H100, "add", x, 2)


def capped(rt: Led, fixed: bool) -> None:
    """Qwen2.5-0.5B, all weights in bf16, DDP on the eight H100 of a node by NVLink, rank 0: the GPU of rank 6 is held
    at lower clocks (power cap, heat), all of its work takes 1.31 times as long, and each bucket of the others lasts
    until it has come; without: all alike, reductions are hidden. No shapes.

    First: communication that waits for another rank (a straggler), not for the network. Not: buckets, `no_sync`, the
    loader, launches, waits of the host.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 0
    tape, x, given = Tape(), [TEXTS, LENGTH, WIDE], dict[str, Any](ranks=EIGHT)
    loader(rt, 150)
    for _ in range(2):
        pinned(rt, prod(x[:2]) * 8, x[:2], "long int")
    rt.left = max(rt.left, rt.now if not rt.left else 0.0)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        rt.op("aten::embedding", run=((REDUCE, H100.moves(4 * prod(x))),), gap=14, dims=([CLASSES, WIDE], x[:2]))
        for _ in range(DEEP):
            _layer(rt, tape)
        one = len(tape) // DEEP
        fused_norm(rt, tape, H100, x)
        linear(rt, tape, H100, x, CLASSES)
    compiled_loss(rt, tape, H100, prod(x[:2]), CLASSES)
    end = 0.0
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) < DEEP * one and len(tape) % one == 0:
                end = rt.collective("allreduce", 30 + LAYER * 2 * 1.75 / 340e3, (LAYER,) * 2, **given,
                                    until=rt.behind(fixed))  # fmt: skip
        end = rt.collective("allreduce", 30 + HEAD * 2 * 1.75 / 340e3, (HEAD,) * 2, until=rt.behind(fixed), **given)
    rt.waits(MAIN, end)
    rt.left = end
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 494e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * 494e6), 3)
    fused_adamw(rt, H100, 494e6 / 2)
    rt.host(380)


WORLD, BATCH, WEIGHTS, BUS, LATENCY = list(range(32)), 64, 25_557_032, 7.5e3, 900
# tensors of ResNet-50 from the last to the first, in buckets of 1 MiB, the first of them of 1 MiB in either case
SMALL = ((2_049_000, 1), (1_052_672, 3), (2_361_344, 3), (1_052_672, 3), (2_099_200, 1), (263_168, 12), (591_872, 6),
         (526_336, 1), (270_336, 8), (148_736, 4))  # fmt: skip
LARGE = ((2_049_000, 1), (6_528_000, 3), (3_924_032, 1))


def slivers(rt: Third, fixed: bool) -> None:
    """ResNet-50 in DDP on four machines of eight V100, sockets of 100 Gb/s, rank 9, AMP, channels_last, 64 pictures
    each: `bucket_cap_mb=1` stands in the configuration, 42 reductions of some 2 MB or less each go round all ranks,
    and most of each is latency, so that they end long after the backward pass; without: 25 MB as by default, five.

    First: many small reductions, or that they are not hidden (larger buckets). Not: `no_sync`, a late rank, a loader,
    TF32 or bf16, which a V100 has not, `GradScaler`'s wait.
    """
    groups(rt, 32, default_pg=WORLD)
    rt.head["distributedInfo"]["rank"] = 9
    tape, end, picture = Tape(), 0.0, [BATCH, 3, 224, 224]
    loader(rt, 210)
    pinned(rt, prod(picture) * 4, picture)
    pinned(rt, BATCH * 8, [BATCH], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, V100.card.moves(6 * prod(picture))),),
              dims=(picture,))  # fmt: skip
        resnet(rt, tape, V100, BATCH, (7, 7))
        small(rt, tape, ("mean",), [BATCH, 2_048, 7, 7], 12)
        dense(rt, tape, V100.card, BATCH, (BATCH, 2_048, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [BATCH, 1_000], 6)
    buckets = [count for count, times in (LARGE if fixed else SMALL) for _ in range(times)]
    scale, done, nodes = WEIGHTS / sum(buckets), 0, len(tape)
    with rt.backward():
        while tape:
            tape.pop()()
            part = 1 - len(tape) / nodes
            # most weights are in the last layers: half of them come in a fifth of the pass
            while done < len(buckets) and sum(buckets[: done + 1]) * scale / WEIGHTS <= part**0.45 + 1e-6:
                count = round(buckets[done] * scale)
                us = LATENCY + count * 4 * 1.94 / BUS
                end = rt.collective("allreduce", rt.vary(us, 0.12), (count, count), ranks=WORLD, dtype="Float",
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
                done += 1
    rt.waits(MAIN, end)
    unscaled(rt, V100.card, WEIGHTS)
    sgd(rt, V100.card, WEIGHTS)
    rt.host(380)
