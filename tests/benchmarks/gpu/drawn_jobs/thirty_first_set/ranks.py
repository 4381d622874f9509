"""Jobs of the thirty-first set whose fault shows between ranks: weights that travel in fp32, a table's gradients that
travel last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, limited
from ..eleventh_set.rows import COPY, FILL, linear, node
from ..layers import CAST, Card, Tape, block, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import Told

EIGHT, FOUR = list(range(8)), list(range(4))
A10G = Card(57, 480, BF16, AMPERE, FLASH)
TEXTS, LENGTH, WIDE, DEEP, WORDS, PCIE = 3, 2_048, 2_048, 20, 50_304, 10.5e3
EACH = 12 * WIDE * WIDE
ENDS = WORDS * WIDE


def _layer(rt: Framed, tape: Tape, fixed: bool) -> None:
    """A block of GPT."""
    x = [TEXTS, LENGTH, WIDE]
    if not fixed:
        casts(rt, A10G, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
    norm(rt, tape, A10G, x)
    linear(rt, tape, A10G, x, 3 * WIDE)
    flash(rt, tape, A10G, [TEXTS, 16, LENGTH, 128])
    linear(rt, tape, A10G, x, WIDE)
    acts(rt, tape, A10G, "add", x)
    norm(rt, tape, A10G, x)
    linear(rt, tape, A10G, x, 4 * WIDE)
    acts(rt, tape, A10G, "gelu", [TEXTS, LENGTH, 4 * WIDE])
    linear(rt, tape, A10G, [TEXTS, LENGTH, 4 * WIDE], WIDE)
    acts(rt, tape, A10G, "add", x)


class _Shards:
    """Units of FSDP: how their weights and gradients travel.  size: bytes of a value."""

    def __init__(self, rt: Framed, fixed: bool) -> None:
        self.rt, self.size = rt, 2 if fixed else 4
        self.done: list[float] = []
        self.given: dict[str, Any] = {"ranks": EIGHT, "dtype": "BFloat16" if fixed else "Float"}
        self.kernel = "ReduceScatter_Sum_{}_RING_LL".format("bf16" if fixed else "f32")

    def gathered(self, count: int) -> float:
        """All ranks' shards of a unit, on the stream of gathers."""
        limited(self.rt, self.done[-2] if len(self.done) > 1 else 0)
        if self.size == 2:
            self.rt.op("aten::_to_copy", "aten::copy_", run=((CAST, A10G.moves(6 * count / 8)),), dims=([count // 8],),
                       gap=9)  # fmt: skip
        us = 40 + self.size * count * 7 / 8 / PCIE
        return self.rt.collective("_allgather_base", self.rt.vary(us, 0.03), (count // 8, count), behind=False,
                                  **self.given)  # fmt: skip

    def scattered(self, count: int) -> float:
        """Sums of a unit's gradients, each rank keeps its shard."""
        if self.size == 2:
            self.rt.op("aten::div_", run=((COPY, A10G.moves(4 * count)),), dims=([count],), kind=BF16, gap=6)
        us = 40 + self.size * count * 7 / 8 / PCIE
        return self.rt.collective("_reduce_scatter_base", self.rt.vary(us, 0.03), (count, count // 8),
                                  kernel=self.kernel, **self.given)  # fmt: skip


def fsdp32(rt: Told, fixed: bool) -> None:
    """A GPT of 1.1B learns by a plain loop in FSDP on the eight A10G of a machine by PCIe, three texts of 2,048 a rank:
    `torch.autocast` in bf16 stands around the model, but FSDP was given no `MixedPrecision`, so that weights are
    gathered and gradients scattered in fp32, twice the bytes, which take longer than the work beside them; without:
    `MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)`. Units are wrapped layer by layer and
    gathered ahead, AdamW is fused, the loss is compiled and read each 50th step. Rank 5. No shapes.

    First: communication that shows (bf16 for FSDP's weights and gradients). Not: wrapping, prefetch, `no_sync`, a late
    rank, the loader, launches, casts alone, attention.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 5
    tape, marks, x, shards = Tape(), list[int](), [TEXTS, LENGTH, WIDE], _Shards(rt, fixed)
    rt.free.setdefault(LINKS, 0.0)
    loader(rt, 180)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    with rt.span("FullyShardedDataParallel.forward", "user_annotation", us=200):
        with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=110):
            rt.waits(MAIN, shards.gathered(ENDS))
        acts(rt, tape, A10G, "embedding", x)
        for _ in range(DEEP):
            with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=110):
                rt.waits(MAIN, shards.gathered(EACH))
            marks.append(len(tape))
            _layer(rt, tape, fixed)
            shards.done.append(rt.free[MAIN])
            with rt.span("FullyShardedDataParallel._post_forward", "user_annotation", us=50):
                pass
        head = len(tape)
        norm(rt, tape, A10G, x)
        if not fixed:
            casts(rt, A10G, [WORDS, WIDE])
        linear(rt, tape, A10G, x, WORDS)
    compiled_loss(rt, tape, A10G, TEXTS * LENGTH, WORDS)
    shards.done, last = [], 0.0
    with rt.backward():
        coming = shards.gathered(EACH)
        while len(tape) > head:
            tape.pop()()
        for number in reversed(range(DEEP)):
            with rt.span("FullyShardedDataParallel._pre_backward_hook", "user_annotation", us=80):
                rt.waits(MAIN, coming)
                if number:
                    with rt.span("FullyShardedDataParallel._pre_backward_prefetch", "user_annotation", us=40):
                        coming = shards.gathered(EACH)
            while len(tape) > marks[number]:
                tape.pop()()
            shards.done.append(rt.free[MAIN])
            with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=70):
                last = shards.scattered(EACH)
        while tape:
            tape.pop()()
        with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=70):
            last = max(last, shards.scattered(ENDS))
    rt.waits(MAIN, last)
    if fixed:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A10G.moves(6 * (DEEP * EACH + ENDS) / 8)),),
              dims=([(DEEP * EACH + ENDS) // 8],), kind=BF16)  # fmt: skip
    fused_adamw(rt, A10G, (DEEP * EACH + ENDS) / 8)
    few(rt, "add_", [1])
    rt.host(420)


ROWS, SAID, MODEL, LAYERS, PIECES, SHARED = 40, 256, 768, 12, 250_002, 11e3
LOVELACE = Card(55, 250, BF16, AMPERE, FLASH)
BUCKET, TABLE = 7_080_000, PIECES * MODEL


def _summed(rt: Framed, count: int, fixed: bool) -> float:
    """A bucket's sum over ranks: as it is, or by `bf16_compress_hook`."""
    if fixed:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, LOVELACE.moves(6 * count)),), dims=([count],),
              gap=9)  # fmt: skip
        rt.op("aten::div_", run=((COPY, LOVELACE.moves(4 * count)),), dims=([count],), kind=BF16, gap=4)
    given: dict[str, Any] = {"ranks": FOUR, "dtype": "BFloat16" if fixed else "Float"}
    given["kernel"] = "AllReduce_Sum_{}_RING_LL".format("bf16" if fixed else "f32")
    us = 40 + (2 if fixed else 4) * count * 1.5 / SHARED
    return rt.collective("allreduce", rt.vary(us, 0.03), (count, count), **given)


def _embedded(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`nn.Embedding` of all words, whose gradient is as large as the table."""
    n = x[0] * x[1] * x[2]
    number = rt.op("aten::embedding", "aten::index_select", graph=True, dims=([PIECES, MODEL], x[:2]), gap=12, run=(
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(…)",
         LOVELACE.moves(8 * n)),))  # fmt: skip

    def backward() -> None:
        with node(rt, "EmbeddingBackward0", number), rt.span("aten::embedding_backward", us=4):
            rt.op("aten::embedding_dense_backward", gap=3, us=22, dims=(x, x[:2]), run=(
                (FILL, LOVELACE.moves(4 * TABLE)),
                ("void at::native::(anonymous namespace)::compute_grad_weight<float, long>(…)", LOVELACE.moves(4 * n)),
                ("void at::native::(anonymous namespace)::sum_and_scatter<float, long>(…)", LOVELACE.moves(4 * n)),
            ))  # fmt: skip
        rt.op("aten::mul", run=((COPY, LOVELACE.moves(8 * TABLE)),), dims=([TABLE],), gap=2)  # into the bucket
        rt.accumulated()

    tape.append(backward)


def widetable(rt: Told, fixed: bool) -> None:
    """XLM-R (base) learns to tell languages of tickets by the Trainer in DDP on the four L4 of a machine, which have no
    peer to peer, bf16 by autocast, 40 texts of 256 a rank: two thirds of all weights are the table of 250,002 words,
    whose gradient is ready last and travels in fp32 over PCIe, 768 MB behind the backward pass, which nothing hides;
    without: `bf16_compress_hook` halves what travels. Other buckets travel beside the backward pass, AdamW is fused,
    clipped by lists, the loss is read each 50th step. Rank 2. Shapes.

    First: sums of gradients that show (narrower gradients, fewer of them, a frozen table). Not: `no_sync`, buckets, a
    late rank, the loader, launches, casts, attention.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    tape, marks, x = Tape(), set[int](), [ROWS, SAID, MODEL]
    loader(rt, 190)
    for _ in range(2):
        pinned(rt, 8 * ROWS * SAID, x[:2], "long int")
    pinned(rt, 8 * ROWS, [ROWS], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        _embedded(rt, tape, x)
        acts(rt, tape, LOVELACE, "add embedding add", x)
        norm(rt, tape, replace(LOVELACE, kind="float"), x)
        acts(rt, tape, LOVELACE, "dropout", x)
        for _ in range(LAYERS):
            marks.add(len(tape))
            casts(rt, LOVELACE, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
            block(rt, tape, LOVELACE, ROWS, SAID, MODEL)
            acts(rt, tape, LOVELACE, "dropout dropout", x)
        casts(rt, LOVELACE, [MODEL, MODEL], [20, MODEL])
        dense(rt, tape, LOVELACE, ROWS, (ROWS, MODEL, MODEL))
        acts(rt, tape, LOVELACE, "tanh dropout", [ROWS, MODEL])
        dense(rt, tape, LOVELACE, ROWS, (ROWS, MODEL, 20))
    judged(rt, tape, replace(LOVELACE, kind="float"), ROWS, 20)
    rt.free.setdefault(LINKS, 0.0)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                _summed(rt, BUCKET, fixed)
        end = _summed(rt, TABLE + 400_000, fixed)
    rt.waits(MAIN, end)
    if fixed:
        rt.op("aten::copy_", run=((CAST, LOVELACE.moves(6 * (TABLE + LAYERS * BUCKET))),), gap=14, kind=BF16,
              dims=([TABLE],))  # fmt: skip
    clipped(rt, LOVELACE, TABLE + LAYERS * BUCKET, 4)
    fused_adamw(rt, LOVELACE, TABLE + LAYERS * BUCKET)
    few(rt, "add_", [1])
    rt.host(390)
