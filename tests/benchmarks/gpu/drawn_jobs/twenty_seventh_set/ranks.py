"""Jobs of the twenty-seventh set whose fault shows between ranks: weights that ZeRO 3 gathers, a pipeline."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..eighteenth_set.rows import pinned
from ..eighth_set.ranks import RECEIVE, SEND, arrivals, groups
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import COPY, foreach, linear
from ..kineto import A100 as A100_DEVICE
from ..layers import Tape, block, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..twelfth_set.language import A100
from ..twelfth_set.rows import Framed, loader
from ..twenty_fourth_set.rows import acts
from .rows import H100_PCIE as CARD

FOUR, ROWS, LENGTH, WIDE, DEEP, FED, KEYS, WORDS = list(range(4)), 4, 2_048, 2_048, 22, 5_632, 256, 32_000
PCIE, BESIDE, BUCKET = 36e3, 24, 200_000_000  # bytes a µs, a stream, values of a bucket
LAYER = 2 * WIDE * WIDE + 2 * WIDE * KEYS + 3 * WIDE * FED


def _us(rt: Framed, count: int, passes: float) -> float:
    return rt.vary(45 + 2 * count * passes * 0.75 / PCIE, 0.04)


def _fetched(rt: Framed, count: int) -> None:
    """ZeRO 3 gathers a module's weights when it comes to them, and its work waits."""
    rt.host(70)
    with rt.span("PartitionedParameterCoordinator.fetch_sub_module", "user_annotation", us=110):
        rt.op("aten::empty", us=4, gap=8)
        end = rt.collective("_allgather_base", _us(rt, count, 1), (count // 4, count), ranks=FOUR)
        rt.waits(MAIN, end)


def _scattered(rt: Framed, count: int) -> None:
    """A gradient goes to its rank, in line."""
    rt.op("aten::copy_", run=((COPY, CARD.moves(4 * count)),), dims=([count],), kind=BF16, gap=30)
    end = rt.collective("_reduce_scatter_base", _us(rt, count, 1), (count, count // 4), ranks=FOUR)
    rt.waits(MAIN, end)


def _taught(rt: Framed, tape: Tape, x: list[int], out: int, fixed: bool) -> None:
    """`nn.Linear`, whose weight lies in four parts."""
    count = x[-1] * out
    if fixed:
        linear(rt, tape, CARD, x, out)
        return
    _fetched(rt, count)
    tape.append(lambda: _scattered(rt, count))
    linear(rt, tape, CARD, x, out)
    tape.append(lambda: _fetched(rt, count))


def _layer(rt: Framed, tape: Tape, fixed: bool) -> None:
    x, fed = [ROWS, LENGTH, WIDE], [ROWS, LENGTH, FED]
    fused_norm(rt, tape, CARD, x)
    for out in (WIDE, KEYS, KEYS):
        _taught(rt, tape, x, out, fixed)
    for heads in (32, 4):
        acts(rt, tape, CARD, "mul cat mul add", [ROWS, heads, LENGTH, 64])
    flash(rt, tape, CARD, [ROWS, 32, LENGTH, 64])
    _taught(rt, tape, x, WIDE, fixed)
    acts(rt, tape, CARD, "add", x)
    fused_norm(rt, tape, CARD, x)
    for _ in range(2):
        _taught(rt, tape, x, FED, fixed)
    acts(rt, tape, CARD, "silu mul", fed)
    _taught(rt, tape, fed, WIDE, fixed)
    acts(rt, tape, CARD, "add", x)


def _reduced(rt: Framed, count: int) -> float:
    """ZeRO 2 with `overlap_comm`: a bucket goes on a stream of its own."""
    given: dict[str, Any] = {"ranks": FOUR, "kernel": "AllReduce_Sum_bf16_RING_LL"}
    return rt.collective("allreduce", _us(rt, count, 2), (count, count), stream=BESIDE, **given)


def zero3(rt: Framed, fixed: bool) -> None:
    """TinyLlama-1.1B goes on learning by the Trainer and DeepSpeed on four H100 of PCIe without NVLink, all in bf16,
    four texts of 2,048 a rank, rank 2: stage 3 with `overlap_comm: false` and `stage3_prefetch_bucket_size: 0` was
    taken from a configuration for a model that did not fit, so that each linear layer's weight is gathered when its
    turn comes, forward and behind, and nothing runs meanwhile; without: stage 2 with `overlap_comm`, gradients travel
    beside the backward pass, weights are gathered once behind the step. Fused AdamW, the loss is read each 20th step.
    No shapes.

    First: gathers that nothing hides (stage 2, or prefetch). Not: `no_sync`, small buckets, a late rank, the loader,
    launches.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    tape, marks, x, held, end = Tape(), set[int](), [ROWS, LENGTH, WIDE], 0, 0.0
    loader(rt, 170)
    for _ in range(3):
        pinned(rt, 8 * ROWS * LENGTH, x[:2], "long int")
    if not fixed:
        _fetched(rt, WORDS * WIDE)
        tape.append(lambda: _scattered(rt, WORDS * WIDE))
    acts(rt, tape, CARD, "embedding", x)
    for _ in range(DEEP):
        marks.add(len(tape))
        _layer(rt, tape, fixed)
    fused_norm(rt, tape, CARD, x)
    _taught(rt, tape, x, WORDS, fixed)
    compiled_loss(rt, tape, CARD, ROWS * LENGTH, WORDS)
    with rt.backward():
        while tape:
            tape.pop()()
            if fixed and len(tape) in marks:
                rt.op("aten::copy_", run=((COPY, CARD.moves(4 * LAYER)),), dims=([LAYER],), kind=BF16, gap=30)
                held += LAYER
                if held + LAYER > BUCKET:
                    end, held = _reduced(rt, held), 0
        if fixed:
            end = _reduced(rt, held + 2 * WORDS * WIDE)
    if fixed:
        rt.waits(MAIN, end)
    mine = (DEEP * LAYER + 2 * WORDS * WIDE) // 4
    foreach(rt, "_foreach_norm", "LpNormFunctor", CARD.moves(2 * mine), 1)
    given: dict[str, Any] = {"ranks": FOUR, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
    rt.waits(MAIN, rt.collective("allreduce", 40, (1, 1), **given))
    rt.value()  # whether the norm is infinite
    fused_adamw(rt, CARD, mine)
    rt.op("aten::copy_", run=((COPY, CARD.moves(6 * mine)),), dims=([mine],), gap=14)
    if fixed:
        rt.waits(MAIN, rt.collective("_allgather_base", _us(rt, 4 * mine, 1), (mine, 4 * mine), ranks=FOUR))
    rt.host(420)


STAGES, TEXTS, WORDED, BROAD, MINE = list(range(4)), 16, 1_024, 4_096, 8
NVLINK = 190e3  # bytes a µs


def _ahead(rt: Framed, rows: int) -> Tape:
    tape = Tape()
    for _ in range(MINE):
        block(rt, tape, A100, rows, WORDED, BROAD)
    return tape


@cache
def _lasts(rows: int) -> tuple[float, float]:
    """µs of a part's passes, of which a stage takes as long as any other."""
    other = Framed(A100_DEVICE, seed=27)
    tape = _ahead(other, rows)
    ahead = other.free[MAIN]
    with other.backward():
        while tape:
            tape.pop()()
    return ahead - 1_000_000, other.free[MAIN] - ahead


def bubbles(rt: Framed, fixed: bool) -> None:
    """A GPT of 6.7 B goes on learning by `torch.distributed.pipelining` (`Schedule1F1B`) on four A100 of a node, all in
    bf16, eight layers a stage, 16 texts of 1,024 a step, the second stage: `n_microbatches` is four, as many as stages,
    so that three of seven turns are waits for other stages, in which NCCL's receives last; without: 16 parts of one
    text. AdamW is fused, the norm is summed over stages. No shapes.

    First: receives from other stages that nothing hides (more micro-batches). Not: gradients' buckets, `no_sync`, a
    slow network, a late rank, the loader, launches.
    """
    groups(rt, 4, default_pg=STAGES, mesh_pp=STAGES)
    parts = 16 if fixed else 4
    rows = TEXTS // parts
    size, common = rows * WORDED * BROAD, {"ranks": STAGES, "group": "mesh_pp", "pg": "1"}
    ahead, behind = _lasts(rows)
    done = arrivals(4, parts, ahead + 120, behind + 120)
    rt.host(240)
    start, us = max(rt.now, rt.free[MAIN]), 14 + 2 * size / NVLINK
    order = sorted((ends, way, number) for (way, stage, number), ends in done.items() if stage == 1)
    tapes: dict[int, Tape] = {}
    for _, way, number in order:
        side, of = ("recv 1<-0", 0) if way == "f" else ("recv 1<-2", 2)
        came = start + done[way, of, number] + us
        end = rt.collective(side, us, (size, size), stream=RECEIVE, until=came, behind=False, **common)
        rt.waits(MAIN, end)
        rt.host(60)
        if way == "f":
            tapes[number] = _ahead(rt, rows)
        else:
            with rt.backward():
                tape = tapes.pop(number)
                while tape:
                    tape.pop()()
        rt.collective("send 1->2" if way == "f" else "send 1->0", us, (size, size), stream=SEND, **common)
    mine, last = MINE * 12 * BROAD**2, start + max(ends for (_, stage, _), ends in done.items() if stage == 0)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(2 * mine), 4)
    norm: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL", **common}
    rt.waits(MAIN, rt.collective("allreduce", 30, (1, 1), until=last + 700, stream=LINKS, **norm))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(4 * mine), 4)
    fused_adamw(rt, A100, mine / 2)
    rt.host(380)
