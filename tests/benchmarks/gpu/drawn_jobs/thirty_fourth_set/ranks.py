"""Jobs of the thirty-fourth set whose fault shows between ranks: maps of logits that an evaluation gathers, experts
that lie on two nodes.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import on_host, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash
from ..eleventh_set.rows import COPY, foreach, linear, node
from ..fifteenth_set.rows import passed
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..thirty_second_set.rows import look
from ..thirty_third_set.rows import Marked, blocking, wide
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, conv, loader
from ..twenty_fourth_set.rows import KNOWN, LOSS, acts, few
from .rows import biased

FOUR, VIEWS, SIDE, KINDS, PCIE = list(range(4)), 32, 512, 150, 11.5e3
STAGES = ((64, 3, 1, 8), (128, 6, 2, 4), (320, 40, 5, 2), (512, 3, 8, 1))  # width, blocks, heads, side of reduction
A40 = wide(68, 590, AMPERE, FLASH)
LOOK = replace(look(A40), cast=False)
ROWS = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, …)"
LOGITS = [VIEWS, KINDS, SIDE // 4, SIDE // 4]


def _mixed(rt: Framed, side: int, width: int, heads: int, shrunk: int) -> None:
    """A block of SegFormer: attention to a smaller picture, a feed-forward layer with a depthwise convolution."""
    x, keys = [VIEWS, side * side, width], side * side // shrunk**2
    passed(rt, A40, "aten::layer_norm", ROWS, x, 2)
    biased(rt, A40, x, width)
    if shrunk > 1:
        conv(rt, None, LOOK, Conv(VIEWS, width * shrunk, width, 1, side // shrunk, side // shrunk))
        passed(rt, A40, "aten::layer_norm", ROWS, [VIEWS, keys, width], 2)
    for _ in range(2):
        biased(rt, A40, [VIEWS, keys, width], width)
    queries, held = [VIEWS, heads, side * side, 64], [VIEWS, heads, keys, 64]
    us = A40.product(VIEWS * heads * side * side, keys, 128) / 0.6
    rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention", kind=BF16, gap=12,
          run=((FLASH[0], us),), dims=(queries, held, held))  # fmt: skip
    biased(rt, A40, x, width)
    acts(rt, None, A40, "add", x)
    passed(rt, A40, "aten::layer_norm", ROWS, x, 2)
    biased(rt, A40, x, 4 * width)
    wider = [VIEWS, 4 * width, side, side]
    name = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>(…)"
    rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", kind=BF16, gap=14,
          run=((name, A40.moves(6 * prod(wider))),), dims=(wider, [4 * width, 1, 3, 3]))  # fmt: skip
    acts(rt, None, A40, "gelu", [VIEWS, side * side, 4 * width])
    biased(rt, A40, [VIEWS, side * side, 4 * width], width)
    acts(rt, None, A40, "add", x)


def _seen(rt: Framed) -> None:
    """SegFormer-B5 and its head."""
    given, side, small = 3, SIDE // 4, SIDE // 4
    for width, blocks, heads, shrunk in STAGES:
        conv(rt, None, LOOK, Conv(VIEWS, given, width, 7 if given == 3 else 3, side, side))
        for _ in range(blocks):
            _mixed(rt, side, width, heads, shrunk)
        acts(rt, None, A40, "turn", [VIEWS, width, side, side])
        biased(rt, A40, [VIEWS, side * side, width], 768)
        if side < small:
            acts(rt, None, A40, "upsample", [VIEWS, 768, small, small])
        given, side = width, side // 2
    acts(rt, None, A40, "cat", [VIEWS, 4 * 768, small, small])
    conv(rt, None, LOOK, Conv(VIEWS, 4 * 768, 768, 1, small, small))
    acts(rt, None, A40, "relu", [VIEWS, 768, small, small])
    conv(rt, None, LOOK, Conv(VIEWS, 768, KINDS, 1, small, small))


def _padded(rt: Framed, dims: list[int]) -> None:
    """`pad_across_processes`: all ranks tell the size of their tensor, the host reads it."""
    on_host(rt, "aten::lift_fresh", 1, [len(dims)], "long int")
    rt.moved(8 * len(dims), 1, [len(dims)], "long int")
    rt.waits(MAIN, _gathered(rt, len(dims), "Long", 8))
    with rt.span("aten::to", **inputs(([4, len(dims)],), "long int")), rt.span("aten::_to_copy"):
        rt.copy(32 * len(dims), "DtoH", "Pageable", waits=True)
    on_host(rt, "aten::max", 4, [4], "long int")


def _gathered(rt: Framed, count: int, dtype: str, size: int) -> float:
    us = 26 + 3 * size * count / PCIE
    return rt.collective("_allgather_base", rt.vary(us, 0.03), (count, 4 * count), dtype=dtype, ranks=FOUR)


def segval(rt: Marked, fixed: bool) -> None:
    """SegFormer-B5 is scored on streets by `Trainer.evaluate` on four A40 of a machine by PCIe, in bf16
    (`bf16_full_eval`), 32 pictures of 512 a rank: the Trainer gathers of all ranks what the model returns, 315 MB of
    float32 logits of 150 classes from each, of which the metric only takes the largest; without:
    `preprocess_logits_for_metrics` returns `logits.argmax(1)` as bytes. The Trainer's sizes, losses and labels are
    gathered in both, the host reads the sizes twice; batches come pinned. Rank 1. Shapes.

    First: what is gathered (the largest class instead of logits). Not: gradients (there are none), `no_sync`, buckets,
    a late rank, the loader, the two reads of sizes, precision, attention, a larger batch.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.last = True
    rt.free.setdefault(LINKS, 0.0)
    picture, labels = [VIEWS, 3, SIDE, SIDE], [VIEWS, SIDE, SIDE]
    loader(rt, 240)
    pinned(rt, 4 * prod(picture), picture)
    blocking(rt, 8 * prod(labels), labels)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A40.moves(6 * prod(picture))),), dims=(picture,))
    _seen(rt)
    floats, bigger = replace(A40, kind="float"), [VIEWS, KINDS, SIDE, SIDE]
    acts(rt, None, A40, "upsample", bigger)
    rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", dims=(bigger,), gap=14, kind=BF16,
          run=((KNOWN["softmax"].run.replace("{k}", "c10::BFloat16"), A40.moves(4 * prod(bigger))),))  # fmt: skip
    rt.op("aten::nll_loss2d", "aten::nll_loss2d_forward", dims=(bigger, labels), gap=5, run=(
        (LOSS.format("forward"), A40.moves(10 * prod(labels))),))  # fmt: skip
    few(rt, "to mean repeat", [VIEWS], 2.4)
    if fixed:
        rt.op("aten::argmax", run=((REDUCE, A40.moves(2 * prod(LOGITS))),), dims=(LOGITS,), gap=7, kind=BF16)
        few(rt, "to", [VIEWS, *LOGITS[2:]], 4.0)
    else:
        acts(rt, None, floats, "to", LOGITS)
    rt.waits(MAIN, _gathered(rt, VIEWS, "Float", 4))
    sent = (([VIEWS, *LOGITS[2:]], "Byte", 1) if fixed else (LOGITS, "Float", 4), (labels, "Long", 8))
    for dims, dtype, size in sent:
        _padded(rt, dims)
        rt.op("aten::empty", us=5, gap=8)
        rt.waits(MAIN, _gathered(rt, prod(dims), dtype, size))
    rt.host(700)


WORLD, NODE, ROWED, LENGTH, WIDE, LAYERS, WORDS = list(range(16)), list(range(8, 16)), 8, 2_048, 2_048, 24, 50_304
A100 = Card(215, 1_450, BF16, AMPERE, FLASH)
X, TOKENS = [ROWED, LENGTH, WIDE], ROWED * LENGTH
SENT, EXPERTS = round(1.25 * TOKENS), 8 * WIDE**2  # tokens with room for each expert, weights of one
NVLINK, NETWORK, BESIDE = 210e3, 10.5e3, 26  # bytes a µs of a card within its node and to another, a stream


def _exchanged(rt: Framed, fixed: bool) -> None:
    """`_AllToAll`: tokens go to the ranks of their experts, or come back, and the work waits."""
    nbytes = 2 * SENT * WIDE
    us = 28 + nbytes * 7 / 8 / NVLINK if fixed else 40 + nbytes / 2 / NETWORK
    ranks, count = (NODE if fixed else WORLD), SENT * WIDE
    given: dict[str, Any] = {"ranks": ranks, "group": "ep_size_8" if fixed else "ep_size_16", "pg": "1"}
    rt.op("aten::contiguous", "aten::empty_like", us=3, gap=9)
    end = rt.collective("all_to_all", rt.vary(us, 0.04), (count, count), kernel="SendRecv", **given)
    next(row for row in reversed(rt.rows) if row["name"] == "c10d::all_to_all")["name"] = "c10d::alltoall_base_"
    rt.waits(MAIN, end)


def _routed(rt: Framed, tape: Tape, fixed: bool) -> None:
    """DeepSpeed's MoE with one expert a token: the gate, places, the exchange, experts, the exchange, weights."""
    floats, places = replace(A100, kind="float"), [SENT, WIDE]
    acts(rt, tape, floats, "to", X)
    linear(rt, tape, floats, X, 16)
    acts(rt, tape, floats, "softmax", [TOKENS, 16])
    few(rt, "argmax one_hot sum mean mean mul sum cumsum sub mul lt mul sum mul", [TOKENS, 16], 3.4)
    few(rt, "scatter_", places, A100.moves(6 * prod(places)))
    tape.append(lambda: few(rt, "gather", places, A100.moves(4 * prod(places)), gap=2))
    for ahead in (True, False):
        number = rt.op("_AllToAll", graph=True, us=22, gap=18)
        _exchanged(rt, fixed)

        def backward(number: int = number) -> None:
            with node(rt, "_AllToAllBackward", number):
                _exchanged(rt, fixed)

        tape.append(backward)
        if ahead:
            linear(rt, tape, A100, places, 4 * WIDE)
            acts(rt, tape, A100, "gelu", [SENT, 4 * WIDE])
            linear(rt, tape, A100, [SENT, 4 * WIDE], WIDE)
    few(rt, "gather", X, A100.moves(6 * prod(X)))
    tape.append(lambda: few(rt, "scatter_", X, A100.moves(6 * prod(X)), gap=2))
    acts(rt, tape, A100, "scale", X)


def _layer(rt: Framed, tape: Tape, fixed: bool, *, routed: bool) -> None:
    """A block of GPT, each second with experts."""
    norm(rt, tape, A100, X)
    linear(rt, tape, A100, X, 3 * WIDE)
    flash(rt, tape, A100, [ROWED, WIDE // 128, LENGTH, 128])
    linear(rt, tape, A100, X, WIDE)
    acts(rt, tape, A100, "add", X)
    norm(rt, tape, A100, X)
    if routed:
        _routed(rt, tape, fixed)
    else:
        linear(rt, tape, A100, X, 4 * WIDE)
        acts(rt, tape, A100, "gelu", [ROWED, LENGTH, 4 * WIDE])
        linear(rt, tape, A100, [ROWED, LENGTH, 4 * WIDE], WIDE)
    acts(rt, tape, A100, "add", X)


def _reduced(rt: Framed, count: int, ranks: list[int], us: float, group: str) -> float:
    rt.op("aten::copy_", run=((COPY, A100.moves(4 * count)),), dims=([count],), kind=BF16, gap=20)
    return rt.collective("allreduce", rt.vary(us, 0.04), (count, count), stream=BESIDE, ranks=ranks, group=group,
                         pg="0" if len(ranks) > 2 else "2")  # fmt: skip


def epnodes(rt: Marked, fixed: bool) -> None:
    """A GPT of 24 layers of 2,048, each second with 16 experts, learns patents by DeepSpeed-MoE on two nodes of eight
    A100 with four links of 200 Gb/s each, all in bf16, eight texts of 2,048 a rank: `ep_size=16`, one expert a rank, so
    that half of all tokens cross the network four times in each such layer, 4 ms each that nothing hides; without:
    `ep_size=8`, two experts a rank, tokens stay in their node, gradients of experts are summed over two ranks beside
    the backward pass as others are. ZeRO 1 with `overlap_comm`, FlashAttention, a compiled loss, read each 50th step.
    Rank 11. No shapes.

    First: the exchange of tokens that shows (experts within a node). Not: gradients' sums (they are hidden), buckets,
    `no_sync`, a late rank, the loader, launches, precision.
    """
    pair = {"ep_dp": [3, 11]} if fixed else {}
    groups(rt, 16, default_pg=WORLD, **{"ep_size_8" if fixed else "ep_size_16": NODE if fixed else WORLD}, **pair)
    rt.head["distributedInfo"]["rank"] = 11
    for stream in (LINKS, BESIDE):
        rt.free.setdefault(stream, 0.0)
    rt.causal = True
    tape, marks, end = Tape(), dict[int, int](), 0.0
    loader(rt, 190)
    for _ in range(2):
        pinned(rt, 8 * TOKENS, X[:2], "long int")
    acts(rt, tape, A100, "embedding embedding add", X)
    for number in range(LAYERS):
        marks[len(tape)] = number
        _layer(rt, tape, fixed, routed=number % 2 == 1)
    norm(rt, tape, A100, X)
    linear(rt, tape, A100, X, WORDS)
    compiled_loss(rt, tape, A100, TOKENS, WORDS)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) not in marks:
                continue
            count = 4 * WIDE**2 if marks[len(tape)] % 2 else 12 * WIDE**2
            end = _reduced(rt, count, WORLD, 60 + 2 * count * 1.875 / 82e3, "default_pg")
            if marks[len(tape)] % 2 and fixed:
                end = _reduced(rt, 2 * EXPERTS, [3, 11], 40 + 2 * 2 * EXPERTS / NETWORK, "ep_dp")
        end = _reduced(rt, WORDS * WIDE, WORLD, 60 + 2 * WORDS * WIDE * 1.875 / 82e3, "default_pg")
    rt.waits(MAIN, end)
    dense = LAYERS // 2 * 16 * WIDE**2 + WORDS * WIDE
    mine = dense / 16 + LAYERS // 2 * EXPERTS
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(2 * mine), 1)
    given: dict[str, Any] = {"ranks": WORLD, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
    rt.waits(MAIN, rt.collective("allreduce", 70, (1, 1), **given))
    rt.value()  # whether the norm is infinite
    fused_adamw(rt, A100, mine)
    rt.op("aten::copy_", run=((COPY, A100.moves(6 * mine)),), dims=([round(mine)],), gap=14)
    us = 60 + 2 * dense * 15 / 16 / 82e3
    rt.waits(MAIN, rt.collective("_allgather_base", rt.vary(us, 0.04), (dense // 16, dense), ranks=WORLD))
    rt.host(420)
