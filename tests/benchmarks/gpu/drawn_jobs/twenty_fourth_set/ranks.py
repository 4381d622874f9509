"""Jobs of the twenty-fourth set whose fault shows between ranks: reductions of each micro-batch, ZeRO 2 in line."""

from __future__ import annotations

from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash
from ..eleventh_set.rows import COPY, foreach, linear
from ..layers import Card, Tape, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Framed, loader
from .rows import acts, judged

FOUR, MICRO, TEXTS, LENGTH, WIDE, DEEP, WORDS = list(range(4)), 4, 6, 1_024, 1_024, 24, 50_257
ADA = Card(135, 860, BF16, AMPERE, FLASH)
LAYER, BUS = 12_596_224, 8.6e3  # values of a layer, bytes a µs through the host's memory: no peer to peer


def _bucket(rt: Framed, count: int) -> float:
    given: dict[str, Any] = {"ranks": FOUR, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
    return rt.collective("allreduce", rt.vary(70 + count * 4 * 1.5 / BUS, 0.05), (count, count), **given)


def _gpt2(rt: Framed, tape: Tape) -> list[int]:
    """GPT-2 medium; returns how much of the tape stands before each layer."""
    x, marks = [TEXTS, LENGTH, WIDE], list[int]()
    acts(rt, tape, ADA, "embedding embedding add dropout", x)
    for _ in range(DEEP):
        marks.append(len(tape))
        casts(rt, ADA, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
        norm(rt, tape, ADA, x)
        dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, 3 * WIDE))
        flash(rt, tape, ADA, [TEXTS, 16, LENGTH, 64])
        acts(rt, tape, ADA, "turn", x)
        dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
        acts(rt, tape, ADA, "dropout add", x)
        norm(rt, tape, ADA, x)
        dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
        acts(rt, tape, ADA, "gelu", [TEXTS, LENGTH, 4 * WIDE])
        dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
        acts(rt, tape, ADA, "dropout add", x)
    norm(rt, tape, ADA, x)
    casts(rt, ADA, [WORDS, WIDE])
    linear(rt, tape, ADA, x, WORDS)
    judged(rt, tape, ADA, TEXTS * LENGTH, WORDS)
    return marks


def unsynced(rt: Framed, fixed: bool) -> None:
    """GPT-2 medium in DDP on four RTX 4090 in one machine, autocast in bf16, a plain loop of four micro-batches of six
    texts a step, rank 0: no `no_sync()` is around the first three, so that 1.4 GB of gradients go through the host's
    memory (these cards have no peer to peer) four times a step; without: once. Shapes.

    First: reductions of each micro-batch (`no_sync`). Not: buckets, a late rank, launches, the loader, waits.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 0
    for micro in range(MICRO):
        tape, end = Tape(), 0.0
        loader(rt, 140)
        for _ in range(2):
            pinned(rt, 8 * TEXTS * LENGTH, [TEXTS, LENGTH], "long int")
        with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
            marks = set(_gpt2(rt, tape))
        acts(rt, tape, ADA, "div", [1])
        reduces = not fixed or micro == MICRO - 1
        with rt.backward():
            while tape:
                tape.pop()()
                if reduces and len(tape) in marks:
                    for _ in range(2):
                        end = _bucket(rt, LAYER // 2)
            if reduces:
                end = _bucket(rt, (WORDS + LENGTH) * WIDE)
        if reduces:
            rt.waits(MAIN, end)
        rt.host(60)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(4 * 355e6), 5)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA.moves(8 * 355e6), 5)
    fused_adamw(rt, ADA, 355e6)
    rt.host(320)


EIGHT, SAID, LONG, MODEL, LAYERS, TOKENS = list(range(8)), 14, 512, 2_048, 24, 50_272
A100 = Card(190, 1_300, BF16, AMPERE, FLASH)
MINE, BUCKET, PCIE, BESIDE = 50_354_176, 500_000_000, 19e3, 24  # values of a layer and a bucket, bytes a µs, stream


def _opt(rt: Framed, tape: Tape) -> list[int]:
    """OPT-1.3B; returns how much of the tape stands before each layer."""
    x, marks = [SAID, LONG, MODEL], list[int]()
    acts(rt, tape, A100, "embedding embedding add", x)
    for _ in range(LAYERS):
        marks.append(len(tape))
        norm(rt, tape, A100, x)
        for _ in range(3):
            dense(rt, tape, A100, SAID, (SAID * LONG, MODEL, MODEL))
        flash(rt, tape, A100, [SAID, 32, LONG, 64])
        dense(rt, tape, A100, SAID, (SAID * LONG, MODEL, MODEL))
        acts(rt, tape, A100, "add", x)
        norm(rt, tape, A100, x)
        dense(rt, tape, A100, SAID, (SAID * LONG, MODEL, 4 * MODEL))
        acts(rt, tape, A100, "relu", [SAID, LONG, 4 * MODEL])
        dense(rt, tape, A100, SAID, (SAID * LONG, 4 * MODEL, MODEL))
        acts(rt, tape, A100, "add", x)
    norm(rt, tape, A100, x)
    linear(rt, tape, A100, x, TOKENS)
    judged(rt, tape, A100, SAID * LONG, TOKENS)
    return marks


def _averaged(rt: Framed, count: int, stream: int) -> float:
    """`average_tensor`: a bucket of bf16 is divided and reduced among eight."""
    given: dict[str, Any] = {"ranks": EIGHT, "dtype": "BFloat16", "kernel": "AllReduce_Sum_bf16_RING_LL"}
    us = rt.vary(60 + count * 2 * 1.75 / PCIE, 0.04)
    return rt.collective("allreduce", us, (count, count), stream=stream, **given)


def inline(rt: Framed, fixed: bool) -> None:
    """OPT-1.3B fine-tuned by DeepSpeed's ZeRO 2 on the eight A100 of a machine without NVLink, bf16, 14 texts of 512
    each, rank 3: `overlap_comm` is false (the default of stage 2), so that each bucket of 500 M gradients is reduced in
    the stream of the backward pass, which stands still meanwhile; without: true, on a stream of its own, only the last
    bucket shows. The gather of weights behind the step is there in either case. No shapes.

    First: reductions that nothing hides (`overlap_comm`). Not: `no_sync`, small buckets, a late rank, a loader,
    launches.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 3
    tape, held, end = Tape(), 0, 0.0
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, 8 * SAID * LONG, [SAID, LONG], "long int")
    marks = set(_opt(rt, tape))
    rt.host(120)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) not in marks:
                continue
            for _ in range(2):  # gradients go to the bucket's memory
                rt.op("aten::copy_", run=((COPY, A100.moves(2 * MINE)),), dims=([MINE // 2],), kind=BF16, gap=9)
            held += MINE
            if held + MINE > BUCKET:
                end = _averaged(rt, held, BESIDE if fixed else LINKS)
                if not fixed:
                    rt.waits(MAIN, end)
                held = 0
        end = _averaged(rt, held + TOKENS * MODEL, BESIDE if fixed else LINKS)
    rt.waits(MAIN, end)
    part = (LAYERS * MINE + TOKENS * MODEL) // 8
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(2 * part), 1)
    given: dict[str, Any] = {"ranks": EIGHT, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
    rt.waits(MAIN, rt.collective("allreduce", 48, (1, 1), **given))
    rt.value()  # whether the norm is infinite
    fused_adamw(rt, A100, part)
    rt.op("aten::copy_", run=((COPY, A100.moves(6 * part)),), dims=([part],), gap=14)
    us = 60 + 8 * part * 2 * 0.875 / PCIE
    rt.waits(MAIN, rt.collective("_allgather_base", us, (part, 8 * part), ranks=EIGHT))
    rt.host(420)
