"""Jobs of the twenty-eighth set whose fault shows between ranks: NVLink that is switched off, objects that are gathered
in each step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import foreach, linear
from ..kineto import inputs
from ..layers import CAST, Card, Tape, block, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Framed, loader
from ..twenty_fourth_set.rows import acts, few

EIGHT, ROWS, LENGTH, WIDE, DEEP, WORDS = list(range(8)), 20, 1_024, 1_024, 24, 50_304
LAYER, ENDS = 12_596_224, WORDS * WIDE + LENGTH * WIDE
SHARED, NVLINK = 13.5e3, 310e3  # bytes a µs: through the host's memory, by NVLink
SUMS: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}


def _summed(rt: Framed, count: int, rate: float, ranks: list[int], beside: float = 0) -> float:
    """A bucket of DDP: divided, then summed over ranks."""
    card = H100 if len(ranks) == 8 else A6000
    rt.op("aten::div_", run=(("void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, float"
                              ", float, at::native::binary_internal::MulFunctor<float>>, …>", card.moves(8 * count)),),
          dims=([count],), gap=14)  # fmt: skip
    world = len(ranks)
    us = rt.vary(38 + beside + 8 * count * (world - 1) / world / rate, 0.05)
    return rt.collective("allreduce", us, (count, count), ranks=ranks, **SUMS)


def p2poff(rt: Framed, fixed: bool) -> None:
    """GPT-2 medium from scratch by nanoGPT in DDP on the eight H100 of a node, rank 5, autocast in bf16, 20 texts of
    1,024 a rank: `NCCL_P2P_DISABLE=1` is exported by a script that was written for RTX 4090, so that gradients go
    through the host's memory at some 13 GB/s instead of NVLink, and most of them come after the backward pass; without:
    the variable is not set. FlashAttention, the loss is compiled, AdamW is fused, the loss is read each tenth step. No
    shapes.

    First: sums of gradients that nothing hides, at a rate far below NVLink's. Not: small buckets, `no_sync`, a late
    rank, the loader, launches, casts.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 5
    tape, marks, x, end = Tape(), set[int](), [ROWS, LENGTH, WIDE], 0.0
    rate = NVLINK if fixed else SHARED
    loader(rt, 60)
    for _ in range(2):
        pinned(rt, 8 * ROWS * LENGTH, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        acts(rt, tape, H100, "embedding embedding add dropout", x)
        for _ in range(DEEP):
            marks.add(len(tape))
            casts(rt, H100, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
            block(rt, tape, H100, ROWS, LENGTH, WIDE)
        norm(rt, tape, H100, x)
        casts(rt, H100, [WORDS, WIDE])
        linear(rt, tape, H100, x, WORDS)
    compiled_loss(rt, tape, H100, ROWS * LENGTH, WORDS)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                for _ in range(2):
                    end = _summed(rt, LAYER // 2, rate, EIGHT)
        end = _summed(rt, ENDS, rate, EIGHT)
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * 355e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * 355e6), 2)
    fused_adamw(rt, H100, 355e6)
    rt.host(310)


FOUR, PICTURES, SEEN, MODEL, TAGS, PCIE = list(range(4)), 56, 197, 768, 9_083, 19e3
A6000 = Card(78, 660, BF16, AMPERE, FLASH)
BYTES = 2 * PICTURES * TAGS * 4 + 1_210  # of a pickle: scores and labels
MARKS = {2: 14.2e6, 4: 14.2e6, 6: 14.2e6, 8: 14.2e6, 10: 21.3e6}


def _read(rt: Framed, nbytes: int, rate: float, size: list[int]) -> None:
    """`.cpu()` into memory that is not pinned, GB/s."""
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_", **inputs((size, size), "float")):
        place = len(rt.rows)
        end = rt.work("Memcpy DtoH (Device -> Pageable)", 2 + nbytes / rate / 1e3, category="gpu_memcpy",
                      call="MemcpyAsync", bytes=nbytes)  # fmt: skip
        rt.now = max(rt.now, end + 3)
        rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)
        rt.call("StreamSynchronize", 3)


def _gathered(rt: Framed, nbytes: int, kind: str, late: float = 0) -> None:
    given: dict[str, Any] = {"dtype": kind, "ranks": FOUR, "kernel": "AllGather_RING_LL"}
    us = rt.vary(26 + late + nbytes * 3 / PCIE, 0.1)
    place = len(rt.rows)
    rt.waits(MAIN, rt.collective("all_gather", us, (nbytes, 4 * nbytes), **given))
    for row in rt.rows[place:]:
        row["name"] = "c10d::allgather_" if row["name"] == "c10d::all_gather" else row["name"]
    few(rt, "copy_ copy_ copy_ copy_", [nbytes], A6000.moves(2 * nbytes), 2)


def _objects(rt: Framed) -> None:
    """`dist.all_gather_object(parts, (scores.cpu(), labels.cpu()))`, and what becomes of it."""
    for _ in range(2):
        _read(rt, PICTURES * TAGS * 4, 3.1, [PICTURES, TAGS])
    rt.host(2_300)  # pickle
    rt.moved(BYTES, 4.8, [BYTES], "unsigned char")
    rt.moved(8, 1, [1], "long int")
    few(rt, "zeros", [4])
    _gathered(rt, 8, "Long", 1_400 * rt.draw.random())
    for _ in range(3):  # `max()` of a list of tensors
        few(rt, "gt", [1])
        rt.value("aten::is_nonzero")
    rt.value()
    few(rt, "resize_ empty", [BYTES], 2)
    _gathered(rt, BYTES, "Byte")
    for _ in FOUR:
        _read(rt, BYTES, 3.3, [BYTES])
        rt.host(1_450)  # the pickle is read
    rt.host(900)


def objects(rt: Framed, fixed: bool) -> None:
    """ViT-B/16 learns 9,083 tags of drawings by a plain loop in DDP on four RTX A6000 of a machine by PCIe, rank 1,
    autocast in bf16, 56 pictures a rank: `all_gather_object` collects scores and labels of all ranks in each step for a
    metric, by way of the host, pickle and memory that is not pinned, while all GPUs idle; without: counts of hits stay
    on the GPU and are summed over ranks each 50th step. Buckets travel beside the backward pass, AdamW is fused.
    Shapes.

    First: what waits behind each step: copies to the host, `all_gather_object`. Not: buckets, `no_sync`, a slow
    network, the loader, launches, casts.
    """
    groups(rt, 4, default_pg=FOUR)
    tape, marks, end = Tape(), dict[int, float](), 0.0
    picture, x, scores = [PICTURES, 3, 224, 224], [PICTURES, SEEN, MODEL], [PICTURES, TAGS]
    loader(rt, 210)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 4 * prod(scores), scores)
    acts(rt, None, replace(A6000, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A6000.moves(6 * prod(picture))),), dims=(picture,))
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        casts(rt, A6000, [MODEL, MODEL])
        dense(rt, tape, A6000, PICTURES, (PICTURES * 196, MODEL, MODEL))
        acts(rt, tape, A6000, "cat add", x)
        for number in range(12):
            if number in MARKS:
                marks[len(tape)] = MARKS[number]
            casts(rt, A6000, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
            block(rt, tape, A6000, PICTURES, SEEN, MODEL)
        norm(rt, tape, A6000, x)
        casts(rt, A6000, [TAGS, MODEL])
        dense(rt, tape, A6000, PICTURES, (PICTURES, MODEL, TAGS))
    acts(rt, tape, replace(A6000, kind="float"), "to sub mul exp log mean", scores)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                end = _summed(rt, int(marks[len(tape)]), PCIE, FOUR)
        rt.free.setdefault(LINKS, 0.0)
        end = max(end, _summed(rt, 14_900_000, PCIE, FOUR))
    rt.waits(MAIN, end)
    fused_adamw(rt, A6000, 93e6)
    if fixed:
        few(rt, "gt eq sum add_ add_", scores, 6)
    else:
        _objects(rt)
    few(rt, "add_", [1])
    rt.host(290)
