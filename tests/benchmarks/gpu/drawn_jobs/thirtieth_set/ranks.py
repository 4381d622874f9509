"""Jobs of the thirtieth set whose fault shows between ranks: layers in four parts over PCIe, an optimizer's parts that
are sent to all behind each step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash
from ..eleventh_set.rows import linear
from ..fifteenth_set.rows import L40S
from ..layers import CAST, Card, Tape, block, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Framed, loader
from ..twenty_fourth_set.rows import acts, few, judged

FOUR = list(range(4))
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)
TEXTS, LENGTH, WIDE, DEEP, WORDS, PCIE = 12, 2_048, 2_560, 24, 50_304, 22e3
LAYER = 12 * WIDE * WIDE
TENSORS: dict[str, Any] = {"ranks": FOUR, "pg": "1", "group": "mesh_tp", "kernel": "AllReduce_Sum_bf16_RING_LL"}


def _all(rt: Framed, count: int, late: float = 0) -> None:
    """`funcol.all_reduce`, and the wait of the stream for it."""
    rt.host(16)
    with rt.span("_c10d_functional::all_reduce", us=8):
        end = rt.collective("allreduce", rt.vary(30 + late + 2 * count * 1.5 / PCIE, 0.03), (count, count), **TENSORS)
    with rt.span("_c10d_functional::wait_tensor", us=4):
        rt.waits(MAIN, end)


def _layer(rt: Framed, tape: Tape, texts: int, parts: int) -> None:
    """A block of a transformer, of whose linear layers this rank has a part."""
    x, count = [texts, LENGTH, WIDE], texts * LENGTH * WIDE
    for outs, attends in ((3 * WIDE // parts, True), (4 * WIDE // parts, False)):
        norm(rt, tape, LOVELACE, x)
        if parts > 1:
            tape.append(lambda: _all(rt, count))  # the input's gradient
        linear(rt, tape, LOVELACE, x, outs)
        if attends:
            flash(rt, tape, LOVELACE, [texts, 20 // parts, LENGTH, 128])
            linear(rt, tape, LOVELACE, [texts, LENGTH, WIDE // parts], WIDE)
        else:
            acts(rt, tape, LOVELACE, "gelu", [texts, LENGTH, outs])
            linear(rt, tape, LOVELACE, [texts, LENGTH, outs], WIDE)
        if parts > 1:
            _all(rt, count)
        acts(rt, tape, LOVELACE, "add", x)


def colwise(rt: Framed, fixed: bool) -> None:
    """A GPT of 2B learns by a plain loop on the four L40S of a machine by PCIe, all in bf16, twelve texts of 2,048 a
    step: `parallelize_module` cuts each layer into four (`ColwiseParallel`, `RowwiseParallel`), as an example for cards
    with NVLink has it, so that activations are summed over PCIe twice a layer, forward and behind, and nothing runs
    meanwhile; without: the model fits each card, DDP gives each rank three texts and sums gradients beside the backward
    pass. FlashAttention, AdamW is fused, the loss is read each 50th step. Rank 3. Shapes.

    First: sums of activations that nothing hides (tensor parallelism without NVLink, DDP). Not: `no_sync`, buckets, a
    late rank, the loader, launches, the batch.
    """
    parts, texts = (1, TEXTS // 4) if fixed else (4, TEXTS)
    groups(rt, 4, default_pg=FOUR, **({} if fixed else {"mesh_tp": FOUR}))
    rt.head["distributedInfo"]["rank"] = 3
    tape, marks, x, end = Tape(), set[int](), [texts, LENGTH, WIDE], 0.0
    loader(rt, 170)
    for _ in range(2):
        pinned(rt, 8 * texts * LENGTH, x[:2], "long int")
    acts(rt, tape, LOVELACE, "embedding embedding add", x)
    for _ in range(DEEP):
        marks.add(len(tape))
        _layer(rt, tape, texts, parts)
    norm(rt, tape, LOVELACE, x)
    if not fixed:
        tape.append(lambda: _all(rt, texts * LENGTH * WIDE))
    linear(rt, tape, LOVELACE, x, WORDS // parts)
    compiled_loss(rt, tape, LOVELACE, texts * LENGTH, WORDS // parts)
    if not fixed:
        for _ in range(2):  # the largest, the sum: the loss of parts of words
            _all(rt, texts * LENGTH)
    rt.free.setdefault(LINKS, 0.0)
    with rt.backward():
        while tape:
            tape.pop()()
            if fixed and len(tape) in marks:
                for _ in range(2):
                    end = rt.collective("allreduce", rt.vary(40 + LAYER * 1.5 / PCIE, 0.03), (LAYER // 2,) * 2,
                                        ranks=FOUR, kernel="AllReduce_Sum_bf16_RING_LL")  # fmt: skip
        if fixed:
            end = rt.collective("allreduce", rt.vary(40 + 2 * WORDS * WIDE * 1.5 / PCIE, 0.03), (WORDS * WIDE,) * 2,
                                ranks=FOUR, kernel="AllReduce_Sum_bf16_RING_LL")  # fmt: skip
    if fixed:
        rt.waits(MAIN, end)
    fused_adamw(rt, LOVELACE, (DEEP * LAYER + 2 * WORDS * WIDE) / parts / 2)
    few(rt, "add_", [1])
    rt.host(340)


ROWS, SEEN, MODEL, BLOCKS, KINDS, SHARED = 72, 197, 1_024, 24, 4_400, 11e3
ADA = Card(118, 880, BF16, AMPERE, FLASH)
SUMS: dict[str, Any] = {"dtype": "Float", "ranks": FOUR, "kernel": "AllReduce_Sum_f32_RING_LL"}
SIZES = [size for _ in range(BLOCKS) for size in (
    MODEL, MODEL, 3 * MODEL**2, 3 * MODEL, MODEL**2, MODEL, MODEL, MODEL, 4 * MODEL**2, 4 * MODEL, 4 * MODEL**2, MODEL,
)]  # fmt: skip
SIZES += [MODEL, SEEN * MODEL, 768 * MODEL, MODEL, MODEL, MODEL, KINDS * MODEL, KINDS]
PART = sum(SIZES) / 4


def _sent(rt: Framed) -> None:
    """`ZeroRedundancyOptimizer._sync_params`: each rank sends what it has stepped, parameter by parameter."""
    given: dict[str, Any] = {"dtype": "Float", "ranks": FOUR, "kernel": "Broadcast_RING_LL"}
    place, late, end = len(rt.rows), 350 * rt.draw.random(), 0.0
    for number, count in enumerate(sorted(SIZES, reverse=True)):
        rt.host(11)
        us = rt.vary(21 + (0 if number else late) + 4 * count / SHARED, 0.05)
        end = rt.collective("broadcast", us, (count, count), **given)
    rt.waits(MAIN, end)
    for row in rt.rows[place:]:
        row["name"] = "c10d::broadcast_" if row["name"] == "c10d::broadcast" else row["name"]


def redundant(rt: Framed, fixed: bool) -> None:
    """ViT-L/16 learns 4,400 kinds of plants by a plain loop in DDP on four RTX 4090 of a machine, which have no peer to
    peer, autocast in bf16, 72 pictures a rank: `ZeroRedundancyOptimizer` saves each card 1.8 GB of AdamW's states,
    which nobody needs, and sends all weights to all ranks behind each step, 296 broadcasts that nothing hides; without:
    AdamW of all weights on each rank. Buckets travel beside the backward pass, pictures come pinned as bytes, the loss
    is read each 50th step. Rank 1. Shapes.

    First: broadcasts of weights behind the step (`ZeroRedundancyOptimizer`). Not: buckets, `no_sync`, a late rank, the
    loader, launches, casts, attention, the batch.
    """
    groups(rt, 4, default_pg=FOUR)
    tape, marks, end = Tape(), set[int](), 0.0
    picture, x = [ROWS, 3, 224, 224], [ROWS, SEEN, MODEL]
    loader(rt, 220)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * ROWS, [ROWS], "long int")
    acts(rt, None, replace(ADA, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, ADA.moves(6 * prod(picture))),), dims=(picture,))
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        casts(rt, ADA, [MODEL, 768])
        dense(rt, tape, ADA, ROWS, (ROWS * 196, 768, MODEL))
        acts(rt, tape, ADA, "cat add", x)
        for _ in range(BLOCKS):
            marks.add(len(tape))
            casts(rt, ADA, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
            block(rt, tape, ADA, ROWS, SEEN, MODEL)
        norm(rt, tape, ADA, x)
        casts(rt, ADA, [KINDS, MODEL])
        dense(rt, tape, ADA, ROWS, (ROWS, MODEL, KINDS))
    judged(rt, tape, ADA, ROWS, KINDS)
    rt.free.setdefault(LINKS, 0.0)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                for _ in range(2):
                    end = rt.collective("allreduce", rt.vary(40 + 4 * 6_300_000 * 1.5 / SHARED, 0.04), (6_300_000,) * 2,
                                        **SUMS)  # fmt: skip
        end = max(end, rt.collective("allreduce", rt.vary(40 + 4 * 1_000_000 * 1.5 / SHARED, 0.04), (1_000_000,) * 2,
                                     **SUMS))  # fmt: skip
    rt.waits(MAIN, end)
    if fixed:
        fused_adamw(rt, ADA, 4 * PART)
    else:
        fused_adamw(rt, ADA, PART)
        _sent(rt)
    few(rt, "add_", [1])
    rt.host(300)
