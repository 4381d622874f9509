"""Jobs of the thirty-second set whose fault shows between ranks: a barrier in each step, weights that are gathered
twice although they have room.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, limited
from ..eleventh_set.rows import COPY, linear
from ..fifteenth_set.rows import barrier
from ..layers import CAST, Card, Tape, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..thirty_first_set.rows import Told
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import resnet, sgd
from ..twelfth_set.rows import Framed, loader
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import look, wide

EIGHT, FOUR = list(range(8)), list(range(4))
PICTURES, KINDS, NVLINK = 112, 1_000, 225e3
A100 = wide(165, 1_450, AMPERE)
LOOK = look(A100)
BUCKETS = (4_100_000, 8_900_000, 6_300_000, 4_500_000, 1_760_000)


def instep(rt: Told, fixed: bool) -> None:
    """ResNet-50 learns ImageNet by torchvision's reference in DDP on the eight A100 of a node by NVLink, rank 3,
    autocast in bf16, channels_last, 112 pictures a rank: since a job once hung, `dist.barrier()` stands at the begin of
    each iteration "so that ranks keep in step"; each waits there until the GPU is done and the last rank has come,
    then draws its mixup in numpy, 3 to 8 ms, and launches anew while the GPU idles; without: no barrier in the loop.
    Batches come pinned as bytes, SGD by lists, the loss is summed on the GPU. Shapes.

    First: the barrier (a wait for all ranks in each step). Not: gradients' sums (they are hidden), `no_sync`, buckets,
    the loader, copies, launches, the layout, precision.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 3
    rt.last = True
    rt.free.setdefault(LINKS, 0.0)
    tape, picture, end = Tape(), [PICTURES, 3, 224, 224], 0.0
    if not fixed:
        barrier(rt, EIGHT, max(rt.now, rt.free[MAIN]) + 400 + 4_600 * rt.draw.random() ** 2)
    loader(rt, 220)
    rt.host(3_000 + 5_000 * rt.draw.random())
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 4 * PICTURES * KINDS, [PICTURES, KINDS])
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        for name in ("to", "sub", "div"):
            few(rt, name, picture, A100.moves(8 * prod(picture)))
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(picture))),),
              dims=(picture,))  # fmt: skip
        resnet(rt, tape, LOOK, PICTURES, (7, 7))
        acts(rt, tape, A100, "mean", [PICTURES, 2_048, 7, 7])
        casts(rt, A100, [KINDS, 2_048])
        dense(rt, tape, A100, PICTURES, (PICTURES, 2_048, KINDS))
    judged(rt, tape, A100, PICTURES, KINDS)
    whole = len(tape)
    marks = {round(whole * share): count for share, count in zip((0.84, 0.62, 0.42, 0.2), BUCKETS, strict=False)}

    def summed(count: int) -> float:
        us = 26 + 4 * count * 1.75 / NVLINK
        return rt.collective("allreduce", rt.vary(us, 0.05), (count, count), dtype="Float", ranks=EIGHT,
                             kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip

    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                end = summed(marks[len(tape)])
        end = max(end, summed(BUCKETS[-1]))
    rt.waits(MAIN, end)
    sgd(rt, A100, 25.6e6)
    few(rt, "detach add_", [1])
    rt.host(260)


A40 = Card(66, 590, BF16, AMPERE, FLASH)
TEXTS, LENGTH, WIDE, DEEP, WORDS, PCIE = 3, 1_024, 2_048, 24, 49_152, 10.8e3
EACH, ENDS = 12 * WIDE**2, WORDS * WIDE
UNSHARD = 18
SHARDS: dict[str, Any] = {"ranks": FOUR, "dtype": "BFloat16"}


def _layer(rt: Framed, tape: Tape) -> None:
    """A block of GPT, heads of 128."""
    x = [TEXTS, LENGTH, WIDE]
    norm(rt, tape, A40, x)
    linear(rt, tape, A40, x, 3 * WIDE)
    flash(rt, tape, A40, [TEXTS, WIDE // 128, LENGTH, 128])
    linear(rt, tape, A40, x, WIDE)
    acts(rt, tape, A40, "add", x)
    norm(rt, tape, A40, x)
    linear(rt, tape, A40, x, 4 * WIDE)
    acts(rt, tape, A40, "gelu", [TEXTS, LENGTH, 4 * WIDE])
    linear(rt, tape, A40, [TEXTS, LENGTH, 4 * WIDE], WIDE)
    acts(rt, tape, A40, "add", x)


class _Units:
    """How weights and gradients of FSDP's units travel.  ahead: whether units must leave before others come."""

    def __init__(self, rt: Framed, ahead: bool) -> None:
        self.rt, self.ahead = rt, ahead
        self.done: list[float] = []

    def gathered(self, count: int) -> float:
        """All ranks' shards of a unit."""
        if self.ahead:
            limited(self.rt, self.done[-2] if len(self.done) > 1 else 0)
        with self.rt.span("aten::_to_copy", us=4), self.rt.span("aten::copy_", us=4):
            narrowed = self.rt.work(CAST, A40.moves(6 * count / 4), stream=UNSHARD)
        self.rt.waits(LINKS, narrowed)
        us = 35 + 2 * count * 0.75 / PCIE
        return self.rt.collective("_allgather_base", self.rt.vary(us, 0.03), (count // 4, count), behind=False,
                                  **SHARDS)  # fmt: skip

    def scattered(self, count: int) -> float:
        """Sums of a unit's gradients, each rank keeps its shard."""
        self.rt.op("aten::div_", run=((COPY, A40.moves(4 * count)),), dims=([count],), kind=BF16, gap=6)
        us = 35 + 2 * count * 0.75 / PCIE
        return self.rt.collective("_reduce_scatter_base", self.rt.vary(us, 0.03), (count, count // 4), **SHARDS)


def regathered(rt: Told, fixed: bool) -> None:
    """A GPT of 1.3B is tuned by Accelerate's FSDP on the four A40 of a machine by PCIe, bf16, three texts of 1,024 a
    rank: `fsdp_sharding_strategy: FULL_SHARD` stands as the questions of `accelerate config` propose it, although 2.6
    GB of weights in bf16 have room on each card; each layer is gathered a second time in the backward pass, beside the
    sums of gradients, and the work does not hide both; without: `SHARD_GRAD_OP`. Layers are units, gathered ahead,
    AdamW is fused, the loss is compiled and read each 50th step. Rank 1. No shapes.

    First: communication that shows (keep weights after forward; more tokens a step). Not: wrapping, prefetch,
    precision of what travels, a late rank, the loader, launches, attention.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 1
    tape, marks, x, units = Tape(), list[int](), [TEXTS, LENGTH, WIDE], _Units(rt, not fixed)
    rt.free.setdefault(LINKS, 0.0)
    loader(rt, 190)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    with rt.span("FullyShardedDataParallel.forward", "user_annotation", us=190):
        with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=110):
            rt.waits(MAIN, units.gathered(ENDS))
        acts(rt, tape, A40, "embedding", x)
        for _ in range(DEEP):
            with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=110):
                rt.waits(MAIN, units.gathered(EACH))
            marks.append(len(tape))
            _layer(rt, tape)
            units.done.append(rt.free[MAIN])
            with rt.span("FullyShardedDataParallel._post_forward", "user_annotation", us=50):
                pass
        head = len(tape)
        norm(rt, tape, A40, x)
        linear(rt, tape, A40, x, WORDS)
    compiled_loss(rt, tape, A40, TEXTS * LENGTH, WORDS)
    units.done, last = [], 0.0
    with rt.backward():
        coming = 0.0 if fixed else units.gathered(EACH)
        while len(tape) > head:
            tape.pop()()
        for number in reversed(range(DEEP)):
            with rt.span("FullyShardedDataParallel._pre_backward_hook", "user_annotation", us=80):
                if not fixed:
                    rt.waits(MAIN, coming)
                if number and not fixed:
                    with rt.span("FullyShardedDataParallel._pre_backward_prefetch", "user_annotation", us=40):
                        coming = units.gathered(EACH)
            while len(tape) > marks[number]:
                tape.pop()()
            units.done.append(rt.free[MAIN])
            with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=70):
                last = units.scattered(EACH)
        while tape:
            tape.pop()()
        with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=70):
            last = max(last, units.scattered(ENDS))
    rt.waits(MAIN, last)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A40.moves(6 * (DEEP * EACH + ENDS) / 4)),),
          dims=([(DEEP * EACH + ENDS) // 4],), kind=BF16)  # fmt: skip
    fused_adamw(rt, A40, (DEEP * EACH + ENDS) / 4)
    few(rt, "add_", [1])
    rt.host(420)
