"""Jobs of the twenty-fifth set whose fault shows between ranks: FSDP of one unit, texts of uneven lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..eighteenth_set.rows import pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm, limited, llama
from ..eleventh_set.rows import COPY, kernel, linear
from ..fifteenth_set.rows import L40S
from ..layers import CAST, Card, Tape, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import linear_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, FLASH, MI300X
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Framed, loader
from ..twenty_fourth_set.rows import acts, judged
from .rows import clipped

FOUR, TEXTS, LENGTH, WIDE, DEEP, WORDS, PCIE = list(range(4)), 5, 1_024, 2_048, 24, 51_200, 17.5e3  # bytes a µs
ADA = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)
LAYER, ENDS = 50_352_128, 2 * WORDS * WIDE
UNIT, SHARDS = "FullyShardedDataParallel.", 24


def _gathered(rt: Framed, count: int, *, behind: bool = False) -> float:
    """The shard of a unit to bf16, and its weights from all, on streams of their own;  behind: the step before."""
    rt.host(20)
    if behind:
        rt.waits(SHARDS, rt.free[MAIN])
    with rt.span("aten::copy_", us=6):
        made = rt.work(CAST, ADA.moves(6 * count / 4), stream=SHARDS)
    rt.free[LINKS] = max(rt.free.get(LINKS, 0.0), made)
    us = rt.vary(45 + count * 2 * 0.75 / PCIE, 0.04)
    return rt.collective("_allgather_base", us, (count // 4, count), ranks=FOUR, behind=False)


def _scattered(rt: Framed, count: int) -> float:
    """Gradients of a unit, divided, to all."""
    rt.op("aten::div_", run=((kernel("div", 2, BF16), ADA.moves(4 * count)),), dims=([count],), kind=BF16, gap=30)
    us = rt.vary(45 + count * 2 * 0.75 / PCIE, 0.04)
    return rt.collective("_reduce_scatter_base", us, (count, count // 4), ranks=FOUR)


def _phi(rt: Framed, tape: Tape) -> None:
    """A layer of Phi-1.5: attention and MLP side by side."""
    x = [TEXTS, LENGTH, WIDE]
    norm(rt, tape, ADA, x)
    for _ in range(3):
        dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
    for _ in range(2):
        acts(rt, tape, ADA, "mul cat mul add cat", [TEXTS, 32, LENGTH, 32])
    flash(rt, tape, ADA, [TEXTS, 32, LENGTH, 64])
    acts(rt, tape, ADA, "turn", x)
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
    acts(rt, tape, ADA, "gelu", [TEXTS, LENGTH, 4 * WIDE])
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
    acts(rt, tape, ADA, "add add", x)


def _forward(rt: Framed, tape: Tape, done: list[float], fixed: bool) -> list[int]:
    """Returns how much of the tape stands before each unit; of one unit nothing."""
    marks: list[int] = []
    with rt.span(f"{UNIT}forward", "user_annotation", us=200):
        with rt.span(f"{UNIT}_pre_forward", "user_annotation", us=120):
            rt.waits(MAIN, _gathered(rt, ENDS if fixed else ENDS + DEEP * LAYER, behind=True))
        acts(rt, tape, ADA, "embedding", [TEXTS, LENGTH, WIDE])
        for number in range(DEEP):
            marks.append(len(tape))
            if fixed:
                with rt.span(f"{UNIT}_pre_forward", "user_annotation", us=110):
                    limited(rt, done[number - 2] if number > 1 else 0)
                    rt.waits(MAIN, _gathered(rt, LAYER))
            _phi(rt, tape)
            done[number] = rt.free[MAIN]
        marks.append(len(tape))
        norm(rt, tape, ADA, [TEXTS, LENGTH, WIDE])
        linear(rt, tape, ADA, [TEXTS, LENGTH, WIDE], WORDS)
    return marks if fixed else []


def _backward(rt: Framed, tape: Tape, marks: list[int], done: list[float]) -> float:
    """Each unit is gathered before the one behind it runs (`BACKWARD_PRE`), and scattered; returns when all is."""
    number = DEEP
    with rt.span(f"{UNIT}_pre_backward_hook", "user_annotation", us=60):
        ahead = _gathered(rt, LAYER) if marks else 0.0
    while tape:
        tape.pop()()
        if len(tape) not in marks:
            continue
        if number < DEEP:
            done[number] = rt.free[MAIN]
            with rt.span(f"{UNIT}_post_backward_hook", "user_annotation", us=90):
                _scattered(rt, LAYER)
        number -= 1
        if number >= 0:
            with rt.span(f"{UNIT}_pre_backward_hook", "user_annotation", us=90):
                rt.waits(MAIN, ahead)
                if number:
                    limited(rt, done[number + 1] if number + 1 < DEEP else 0)
                    ahead = _gathered(rt, LAYER)
    with rt.span(f"{UNIT}_post_backward_hook", "user_annotation", us=90):
        return _scattered(rt, ENDS if marks else ENDS + DEEP * LAYER)


def unwrapped(rt: Framed, fixed: bool) -> None:
    """Phi-1.5 fine-tuned by FSDP on four L40S of a machine, bf16, five texts of 1,024 each, rank 1: `auto_wrap_policy`
    was not given, so that the model is one unit: before the forward pass all 1.4 B weights are gathered at once, behind
    the backward pass all gradients are scattered at once, and nothing runs beside either; without: a unit for each
    layer, gathered one ahead. Fused AdamW, clipped, the loss is read each 20th step. No shapes.

    First: gathers and reductions that nothing hides (a unit for each layer). Not: `no_sync`, prefetch settings, small
    collectives, a late rank, the loader, launches.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 1
    tape = Tape()
    loader(rt, 170)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * LENGTH, [TEXTS, LENGTH], "long int")
    done = [0.0] * DEEP
    marks = _forward(rt, tape, done, fixed)
    acts(rt, tape, replace(ADA, kind="float"), "turn", [TEXTS * LENGTH, WORDS])
    judged(rt, tape, ADA, TEXTS * LENGTH, WORDS)
    with rt.backward():
        end = _backward(rt, tape, marks, done)
    rt.waits(MAIN, end)
    mine = (DEEP * LAYER + ENDS) / 4
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, ADA.moves(6 * mine)),), dims=([int(mine)],), gap=40)
    given: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL", "ranks": FOUR}
    rt.waits(MAIN, rt.collective("allreduce", 46, (1, 1), **given))
    clipped(rt, ADA, mine)
    fused_adamw(rt, ADA, mine)
    rt.host(500)


EIGHT, ROWS, MODEL, LAYERS, FED, TOKENS = list(range(8)), 3, 2_048, 16, 8_192, 128_256
CDNA = replace(MI300X, attention=AOTRITON)
MINE = (1_310, 1_960, 870, 1_540, 2_180, 1_080, 1_720)  # tokens of the longest answer of this rank
MOST = (2_090, 2_020, 1_940, 2_210, 2_180, 1_890, 2_140)  # of all ranks


def ragged(rt: Framed, fixed: bool) -> None:
    """Llama-3.2-1B fine-tuned by the Trainer in DDP on the eight MI300X of a node, weights in bf16, three answers a
    rank, padded to the longest of them, rank 4: lengths are as they come, some rank has a long answer in each step, and
    in the reductions all others wait for it; without: batches whose lengths are alike in all ranks
    (`group_by_length`). Liger's loss, fused AdamW, the loss is read each tenth step. Shapes.

    First: communication that waits for other ranks (uneven lengths). Not: buckets, `no_sync`, the links, launches, the
    loader.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 4
    place = rt.number % len(MINE)
    length, most = MINE[place], MINE[place] * 1.01 if fixed else MOST[place]
    tape, x, begun, end = Tape(), [ROWS, length, MODEL], max(rt.now, rt.free[MAIN]), 0.0

    def reduced(count: int) -> float:
        us = 40 + count * 2 * 1.75 / 280e3
        until = begun + (rt.free[MAIN] - begun) * most / length + us
        return rt.collective("allreduce", us, (count, count), ranks=EIGHT, until=until, kernel="Generic_1")

    loader(rt, 210)
    for _ in range(3):
        pinned(rt, 8 * ROWS * length, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        acts(rt, tape, CDNA, "embedding", x)
        first = len(tape)
        for _ in range(LAYERS):
            llama(rt, tape, CDNA, (ROWS, length, MODEL, 8, FED), fused_norm)
        one = (len(tape) - first) // LAYERS
        fused_norm(rt, tape, CDNA, x)
        linear_loss(rt, tape, CDNA, "LigerFusedLinearCrossEntropyFunction",
                    ("liger_cross_entropy_kernel", 3 * CDNA.moves(2 * ROWS * length * TOKENS)),
                    (ROWS * length, MODEL, TOKENS), 2)  # fmt: skip
    with rt.backward():
        while tape:
            tape.pop()()
            if first <= len(tape) < first + LAYERS * one and (len(tape) - first) % one == 0:
                end = reduced(60_821_504)
        end = reduced(TOKENS * MODEL)
    rt.waits(MAIN, end)
    clipped(rt, CDNA, 1.236e9, 4, 2)
    fused_adamw(rt, CDNA, 1.236e9 / 2)
    rt.host(700)
