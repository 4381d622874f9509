"""Jobs of the twenty-second set whose fault shows between ranks: shards that come late, gradients over Ethernet."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import limited
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Tape, dense, fused_adamw, norm
from ..runtime import MAIN
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import small, unscaled
from ..twelfth_set.rows import Framed, loader
from ..twentieth_set.host import TURING

EIGHT, DEEP, WIDE, TEXTS, LENGTH, CLASSES = list(range(8)), 36, 2_560, 10, 512, 3
LAYER, WORDS = 78_674_560, 250_880
UNIT = "FullyShardedDataParallel."


def _travels(rt: Framed, name: str, count: int, *, behind: bool) -> float:
    """Weights or gradients of so many values in bf16 among eight by NVLink."""
    sizes = (count // 8, count) if "gather" in name else (count, count // 8)
    return rt.collective(name, 34 + count * 2 * 0.875 / 205e3, sizes, ranks=EIGHT, behind=behind)


def _forward(rt: Framed, tape: Tape, x: list[int], done: list[float]) -> list[int]:
    """Layers whose weights come ahead; returns what each leaves on the tape."""
    layers: list[int] = []
    with rt.span(f"{UNIT}forward", "user_annotation", us=260):
        with rt.span(f"{UNIT}_pre_forward", "user_annotation", us=110):
            rt.waits(MAIN, _travels(rt, "_allgather_base", WORDS * WIDE, behind=False))
        rt.op("aten::embedding", run=((REDUCE, A100.moves(4 * prod(x))),), gap=14, dims=([WORDS, WIDE], x[:2]))
        small(rt, tape, ("add", "layer_norm"), x, A100.moves(4 * prod(x)))
        for number in range(DEEP):
            with rt.span(f"{UNIT}_pre_forward", "user_annotation", us=110):
                limited(rt, done[number - 2] if number > 1 else 0)
                rt.waits(MAIN, _travels(rt, "_allgather_base", LAYER, behind=False))
            start = len(tape)
            encoder(rt, tape, A100, (TEXTS, LENGTH, WIDE))
            layers.append(len(tape) - start)
            done[number] = rt.free[MAIN]
            with rt.span(f"{UNIT}_post_forward", "user_annotation", us=50):
                pass
        norm(rt, tape, A100, x)
        linear(rt, tape, A100, [TEXTS, 1, WIDE], CLASSES)
    return layers


def unprefetched(rt: Framed, fixed: bool) -> None:
    """XLM-RoBERTa XL fine-tuned whole by FSDP on the eight A100 of a node, bf16, ten texts of 512 each, rank 2:
    `backward_prefetch=None`, so that in the backward pass a layer's weights are gathered when it is reached, behind the
    reduction of the layer before, and no kernel runs beside both; without: `BACKWARD_PRE`. Forward they come ahead by
    themselves. No shapes.

    First: gathers (and reductions) that nothing hides (prefetch in the backward pass). Not: a loader, launches,
    `no_sync`, small collectives, another rank that is late, the rate limiter's waits.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 2
    tape, x, done = Tape(), [TEXTS, LENGTH, WIDE], [0.0] * DEEP
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, prod(x[:2]) * 8, x[:2], "long int")
    layers = _forward(rt, tape, x, done)
    small(rt, tape, ("log_softmax", "nll_loss"), [TEXTS, CLASSES], 4)
    ahead = end = 0.0
    with rt.backward():
        while len(tape) > sum(layers) + 2:
            tape.pop()()
        for number in reversed(range(DEEP)):
            with rt.span(f"{UNIT}_pre_backward_hook", "user_annotation", us=90):
                if not ahead:
                    limited(rt, done[number + 2] if number + 2 < DEEP else 0)
                    ahead = _travels(rt, "_allgather_base", LAYER, behind=False)
                rt.waits(MAIN, ahead)
                ahead = 0.0
                if fixed and number:
                    with rt.span(f"{UNIT}_pre_backward_prefetch", "user_annotation", us=50):
                        limited(rt, done[number + 1] if number + 1 < DEEP else 0)
                        ahead = _travels(rt, "_allgather_base", LAYER, behind=False)
            for _ in range(layers[number]):
                tape.pop()()
            done[number] = rt.free[MAIN]
            with rt.span(f"{UNIT}_post_backward_hook", "user_annotation", us=90):
                end = _travels(rt, "_reduce_scatter_base", LAYER, behind=True)
        while tape:
            tape.pop()()
        end = _travels(rt, "_reduce_scatter_base", WORDS * WIDE, behind=True)
    rt.waits(MAIN, end)
    mine = (DEEP * LAYER + WORDS * WIDE) / 8
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(2 * mine), 2)
    given: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL", "ranks": EIGHT}
    rt.waits(MAIN, rt.collective("allreduce", 32, (1, 1), **given))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(4 * mine), 2)
    fused_adamw(rt, A100, mine / 2)
    rt.host(420)


WORLD, LINES, LONG, BASE, BUS = list(range(8)), 20, 256, 768, 4.4e3  # bytes a µs of TCP over 50 Gb/s
TENSORS, EMBEDDED = 12, 23_837_184


def _bucket(rt: Framed, count: int, fixed: bool) -> float:
    """A bucket of gradients: in fp32, or as `fp16_compress_hook` has it, made narrow before and wide behind."""
    if not fixed:
        return rt.collective("allreduce", rt.vary(260 + count * 4 * 1.75 / BUS, 0.06), (count, count), dtype="Float",
                             ranks=WORLD, kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    for name, passes in (("to", 6), ("div_", 4)):
        run = ((COPY if name == "to" else kernel("div", 2), TURING.moves(passes * count)),)
        rt.op(f"aten::{name}", run=run, dims=([count],), gap=4)
    return rt.collective("allreduce", rt.vary(260 + count * 2 * 1.75 / BUS, 0.06), (count, count), dtype="Half",
                         ranks=WORLD, kernel="AllReduce_Sum_f16_RING_LL")  # fmt: skip


def ethernet(rt: Framed, fixed: bool) -> None:
    """BERT-base answers questions, AMP, DDP on two machines of four T4 each, 50 Gb/s of Ethernet by sockets, rank 5,
    20 texts of 256: 438 MB of gradients go in fp32 in each step, buckets are as they are by default, and their way ends
    long after the backward pass; without: `fp16_compress_hook`, half of the way, most of it hidden. Shapes.

    First: communication that nothing hides (compression, accumulation). Not: small buckets, a late rank, a loader, TF32
    or bf16, which a T4 has not, `GradScaler`'s wait, launches.
    """
    groups(rt, 8, default_pg=WORLD)
    rt.head["distributedInfo"]["rank"] = 5
    tape, x, end, square = Tape(), [LINES, LONG, BASE], 0.0, [BASE, BASE]
    loader(rt, 170)
    for _ in range(5):
        pinned(rt, LINES * LONG * 8, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for size in ([30_522, BASE], [512, BASE], [2, BASE]):
            rt.op("aten::embedding", run=((REDUCE, TURING.moves(6 * prod(x))),), gap=14, dims=(size, x[:2]))
        small(rt, tape, ("add", "add", "layer_norm", "dropout"), x, TURING.moves(8 * prod(x)))
        for _ in range(TENSORS):
            casts(rt, TURING, square, square, square, square, [4 * BASE, BASE], [BASE, 4 * BASE])
            encoder(rt, tape, TURING, (LINES, LONG, BASE))
            elementwise(rt, tape, TURING, "mul", x, back=(("mul", 2),))
        dense(rt, tape, TURING, LINES, (LINES * LONG, BASE, 2))
    small(rt, tape, ("split", "squeeze", "clamp", "log_softmax", "nll_loss", "nll_loss", "add", "div"), [LINES, LONG],
          3)  # fmt: skip
    one = (len(tape) - 13) // TENSORS
    with rt.backward():
        while tape:
            tape.pop()()
            if 4 <= len(tape) < 4 + TENSORS * one and (len(tape) - 4) % one == 0:
                end = _bucket(rt, 7_087_872, fixed)
        end = _bucket(rt, EMBEDDED, fixed)
    if fixed:
        rt.waits(MAIN, end)
        rt.op("aten::copy_", run=((COPY, TURING.moves(6 * 109e6)),), dims=([109_000_000],))
    rt.waits(MAIN, end)
    unscaled(rt, TURING, 109e6)
    foreach(rt, "_foreach_norm", "LpNormFunctor", TURING.moves(4 * 109e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", TURING.moves(8 * 109e6), 3)
    fused_adamw(rt, TURING, 109e6)
    rt.host(380)
