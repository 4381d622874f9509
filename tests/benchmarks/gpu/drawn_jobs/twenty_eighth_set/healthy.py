"""Jobs of the twenty-eighth set without a fault: VideoMAE in DDP, Real-ESRNet, a translator, BERT on MI300X, a graph
that is taken whole.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import Roofline, elementwise, linear
from ..fifteenth_set.rows import AMPERE_HALF, L40S, fetched
from ..kineto import inputs
from ..layers import CAST, Card, Tape, attention, back, block, dense, fused_adamw, norm
from ..runtime import MAIN
from ..tenth_set.jobs import AOTRITON, FLASH, MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import CUTLASS, TF32, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged
from .small import Summed

EIGHT, CLIPS, SHOWN, ALL, WIDE, NARROW = list(range(8)), 48, 160, 1_568, 768, 384
NVLINK = 215e3  # bytes a µs
SUMS: dict[str, Any] = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL", "ranks": EIGHT}


def _summed(rt: Framed, count: int) -> float:
    us = rt.vary(40 + 8 * count * 0.875 / NVLINK, 0.04)
    return rt.collective("allreduce", us, (count, count), **SUMS)


def _weights(rt: Framed, card: Card, wide: int) -> None:
    casts(rt, card, [3 * wide, wide], [wide, wide], [4 * wide, wide], [wide, 4 * wide])


def videomae(rt: Framed, fixed: bool) -> None:
    """Nothing to change: VideoMAE of ViT-B learns clips in DDP on the eight A100 of a node by NVLink, rank 3, autocast
    in bf16, 48 clips of 16 pictures a rank, of which the encoder sees a tenth: clips come pinned as bytes, masks are
    made by the loader, buckets travel beside the backward pass, AdamW is fused, the loss is read each 20th step.
    Shapes.

    Not: communication (it hardly shows), buckets, the loader, copies, launches, casts, attention, a late rank.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 3
    tape, marks, end = Tape(), dict[int, int](), 0.0
    clip, seen, whole = [CLIPS, 3, 16, 224, 224], [CLIPS, SHOWN, WIDE], [CLIPS, ALL, NARROW]
    loader(rt, 230)
    pinned(rt, prod(clip), clip, "unsigned char")
    pinned(rt, CLIPS * ALL, [CLIPS, ALL], "unsigned char")
    pixels = replace(A100, kind="float")
    acts(rt, None, pixels, "to sub div", clip)
    few(rt, "mean var sub add div", clip, pixels.moves(6 * prod(clip)))  # patches by their own mean
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(clip))),), dims=(clip,))
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        casts(rt, A100, [WIDE, 1_536])
        dense(rt, tape, A100, CLIPS, (CLIPS * ALL, 1_536, WIDE))
        acts(rt, tape, A100, "add", [CLIPS, ALL, WIDE])
        few(rt, "gather", seen, A100.moves(4 * prod(seen)))
        for number in range(12):
            if number % 3 == 0:
                marks[len(tape)] = 21_300_000
            _weights(rt, A100, WIDE)
            block(rt, tape, A100, CLIPS, SHOWN, WIDE)
        norm(rt, tape, A100, seen)
        marks[len(tape)] = 7_700_000
        casts(rt, A100, [NARROW, WIDE])
        linear(rt, tape, A100, seen, NARROW)
        acts(rt, tape, A100, "cat add", whole)
        for _ in range(4):
            _weights(rt, A100, NARROW)
            block(rt, tape, A100, CLIPS, ALL, NARROW)
        norm(rt, tape, A100, whole)
        casts(rt, A100, [1_536, NARROW])
        dense(rt, tape, A100, CLIPS, (CLIPS * (ALL - SHOWN), NARROW, 1_536))
    acts(rt, tape, pixels, "to sub pow mean", [CLIPS, ALL - SHOWN, 1_536])
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                end = _summed(rt, marks[len(tape)])
        end = max(end, _summed(rt, 1_200_000))
    rt.waits(MAIN, end)
    fused_adamw(rt, A100, 94.2e6)
    few(rt, "add_", [1])
    rt.host(340)


CROPS, SIDE, WIDTH, GROWS = 10, 64, 64, 32
LOOK = AMPERE_HALF
RTX3090 = AMPERE_HALF.card


def _grown(rt: Framed, tape: Tape) -> None:
    """A dense block of five convolutions, each of which takes all before it."""
    for number in range(5):
        given = WIDTH + number * GROWS
        if number:
            acts(rt, tape, RTX3090, "cat", [CROPS, given, SIDE, SIDE])
        out = GROWS if number < 4 else WIDTH
        conv(rt, tape, LOOK, Conv(CROPS, given, out, 3, SIDE, SIDE))
        if number < 4:
            elementwise(rt, tape, RTX3090, "leaky_relu_", [CROPS, out, SIDE, SIDE], back=(("leaky_relu_backward", 3),))
    acts(rt, tape, RTX3090, "scale add", [CROPS, WIDTH, SIDE, SIDE])


def esrnet(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Real-ESRNet (RRDBNet, 23 blocks) makes pictures four times as large by a plain loop on an RTX
    3090, AMP in fp16, channels_last, ten crops of 64: launches are far ahead of some 1,000 convolutions, crops come
    pinned, AdamW is fused, an average of weights goes by lists, `GradScaler` waits once at the end. No shapes.

    Not: launches, `GradScaler`'s wait, the loader, copies, the layout, casts of weights, the optimizer.
    """
    tape, crop, large = Tape(), [CROPS, 3, SIDE, SIDE], [CROPS, 3, 4 * SIDE, 4 * SIDE]
    loader(rt, 190)
    for size in (crop, large):
        pinned(rt, 4 * prod(size), size)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, RTX3090.moves(6 * prod(crop))),), dims=(crop,))
    conv(rt, tape, LOOK, Conv(CROPS, 3, WIDTH, 3, SIDE, SIDE))
    for _ in range(23):
        for _ in range(3):
            _grown(rt, tape)
        acts(rt, tape, RTX3090, "scale add", [CROPS, WIDTH, SIDE, SIDE])
    conv(rt, tape, LOOK, Conv(CROPS, WIDTH, WIDTH, 3, SIDE, SIDE))
    acts(rt, tape, RTX3090, "add", [CROPS, WIDTH, SIDE, SIDE])
    for more, grown in ((2, True), (4, True), (4, False)):
        x = [CROPS, WIDTH, more * SIDE, more * SIDE]
        if grown:
            acts(rt, tape, RTX3090, "upsample", x)
        conv(rt, tape, LOOK, Conv(CROPS, WIDTH, WIDTH, 3, more * SIDE, more * SIDE))
        elementwise(rt, tape, RTX3090, "leaky_relu_", x, back=(("leaky_relu_backward", 3),))
    conv(rt, tape, LOOK, Conv(CROPS, WIDTH, 3, 3, 4 * SIDE, 4 * SIDE))
    acts(rt, tape, replace(RTX3090, kind="float"), "to sub abs mean", large)
    back(rt, tape)
    unscaled(rt, RTX3090, 16.7e6)
    fused_adamw(rt, RTX3090, 16.7e6)
    rt.op("aten::_foreach_lerp_", us=90, gap=40, run=(
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
         "TernaryOpScalarFunctor<float, 2, 2, 0>, …>(…)", RTX3090.moves(12 * 16.7e6)),))  # fmt: skip
    rt.host(280)


LOVELACE = replace(L40S, attention=tuple(name.replace("bfloat16_t", "half_t") for name in FLASH))  # type: ignore[arg-type]
PAIRS, HEARD, SAID, MODEL, WORDS = 112, 48, 44, 1_024, 42_024


def _crossed(rt: Framed, tape: Tape) -> None:
    """A layer of the decoder: attention to what is said, to what was heard, an MLP."""
    x, heard = [PAIRS, SAID, MODEL], [PAIRS, HEARD, MODEL]
    for other in (x, heard):
        casts(rt, LOVELACE, *[[MODEL, MODEL]] * 4)
        norm(rt, tape, LOVELACE, x)
        for place in range(3):
            linear(rt, tape, LOVELACE, other if place else x, MODEL)
        attention(rt, tape, LOVELACE, [PAIRS, 16, max(SAID, other[1]), 64])
        linear(rt, tape, LOVELACE, x, MODEL)
        acts(rt, tape, LOVELACE, "dropout add", x)
    casts(rt, LOVELACE, [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
    norm(rt, tape, LOVELACE, x)
    dense(rt, tape, LOVELACE, PAIRS, (PAIRS * SAID, MODEL, 4 * MODEL))
    acts(rt, tape, LOVELACE, "relu dropout", [PAIRS, SAID, 4 * MODEL])
    dense(rt, tape, LOVELACE, PAIRS, (PAIRS * SAID, 4 * MODEL, MODEL))
    acts(rt, tape, LOVELACE, "dropout add", x)


def marian(rt: Summed, fixed: bool) -> None:
    """Nothing to change: a large transformer translates by a plain loop on an L40S, AMP in fp16, two parts of 112
    pairs a step, sorted by length: the GPU is busy with products, texts come pinned, Adam is fused, clipped by lists,
    `GradScaler` waits once in a step, the loss is read each 50th. Shapes.

    Not: `GradScaler`'s wait, accumulation, launches, the loader, copies, padding, casts of weights, attention.
    """
    x, y = [PAIRS, HEARD, MODEL], [PAIRS, SAID, MODEL]
    for part in range(2):
        tape, rt.adds = Tape(), 30.0 if part else 0.0
        loader(rt, 140)
        for size in (x[:2], y[:2], y[:2]):
            pinned(rt, 8 * prod(size), size, "long int")
        few(rt, "ne ne cumsum mul", x[:2])
        acts(rt, tape, LOVELACE, "embedding scale add dropout", x)
        for _ in range(6):
            _weights(rt, LOVELACE, MODEL)
            block(rt, tape, LOVELACE, PAIRS, HEARD, MODEL)
        norm(rt, tape, LOVELACE, x)
        acts(rt, tape, LOVELACE, "embedding scale add dropout", y)
        for _ in range(6):
            _crossed(rt, tape)
        norm(rt, tape, LOVELACE, y)
        casts(rt, LOVELACE, [WORDS, MODEL])
        linear(rt, tape, LOVELACE, y, WORDS)
        judged(rt, tape, replace(LOVELACE, kind="float"), PAIRS * SAID, WORDS)
        acts(rt, tape, replace(LOVELACE, kind="float"), "scale scale", [1])
        back(rt, tape)
        few(rt, "detach add_", [1])
    unscaled(rt, LOVELACE, 233e6)
    clipped(rt, LOVELACE, 233e6, 2)
    fused_adamw(rt, LOVELACE, 233e6)
    rt.host(300)


TEXTS, LENGTH, PIECES, HIDDEN = 72, 512, 30_528, 77
CDNA = replace(MI300X, attention=AOTRITON)


def bert(rt: Framed, fixed: bool) -> None:
    """Nothing to change: BERT-large learns hidden words on an MI300X by a plain loop, all in bf16, 72 texts of 512:
    the GPU is busy with products of hipBLASLt, places of hidden words come with the batch, pinned, AdamW is fused,
    clipped by lists, the loss is read each 25th step. Shapes.

    Not: launches, waits, the loader, copies, precision, attention, the optimizer, the batch.
    """
    tape, x, hidden = Tape(), [TEXTS, LENGTH, 1_024], [1, TEXTS * HIDDEN, 1_024]
    loader(rt, 190)
    for size in (x[:2], x[:2], hidden[:2], hidden[:2]):
        pinned(rt, 8 * prod(size), size, "long int")
    acts(rt, tape, CDNA, "embedding embedding add embedding add", x)
    norm(rt, tape, CDNA, x)
    acts(rt, tape, CDNA, "dropout", x)
    for _ in range(24):
        block(rt, tape, CDNA, TEXTS, LENGTH, 1_024)
    acts(rt, tape, CDNA, "embedding", hidden)  # of hidden places only
    dense(rt, tape, CDNA, 1, (TEXTS * HIDDEN, 1_024, 1_024))
    acts(rt, tape, CDNA, "gelu", hidden)
    norm(rt, tape, CDNA, hidden)
    dense(rt, tape, CDNA, 1, (TEXTS * HIDDEN, 1_024, PIECES))
    judged(rt, tape, replace(CDNA, kind="float"), TEXTS * HIDDEN, PIECES)
    back(rt, tape)
    clipped(rt, CDNA, 336e6, 1, 2)
    fused_adamw(rt, CDNA, 336e6 / 2)
    rt.host(350)


NODES, EDGES, GIVEN, WIDENED, SHELVES = 2_449_029, 126_167_309, 100, 192, 47
GRAPH = Roofline(70, 1_350, "float", TF32, CUTLASS)
SPARSE = "void spmm_kernel<float, (ReductionType){}, true>(long const*, long const*, float const*, float const*, …)"


def _averaged(rt: Framed, tape: Tape, wide: int) -> None:
    """`torch_sparse.spmm_mean`: what the neighbours of each node hold; behind it the same of the transposed graph."""
    us = GRAPH.moves(EDGES * (4 * wide + 8) * 0.62 + 4 * NODES * wide)  # some of what is read is in the cache
    rt.sequence += 1
    number, named = rt.sequence, inputs(([NODES + 1], [EDGES], [NODES, wide]), "float")
    rt.host(40)
    with rt.span("torch_sparse::spmm_mean", us=30, **{"Sequence number": number, "Fwd thread id": 0}, **named):
        rt.op("aten::empty", us=5, gap=2)
        rt.work(SPARSE.format(1), us)
    tape.append(lambda: rt.grad("SPMMMean", number, "aten::index_select", "torch_sparse::spmm_sum", run=(
        (SPARSE.format(0), 1.04 * us),), dims=([NODES + 1], [EDGES], [NODES, wide])))  # fmt: skip


def products(rt: Framed, fixed: bool) -> None:
    """Nothing to change: GraphSAGE learns ogbn-products whole by PyTorch Geometric on an A100, TF32, 2.4 million nodes
    and 126 million edges a step: sums over neighbours are bound by memory, the loss of each step is read, which waits
    for all of it and costs some 0.3 of 295 ms. Adam by lists. Shapes, no rows of steps.

    Not: the read of the loss, launches, copies (there are none), a loader (there is none), TF32, the optimizer.
    """
    tape, wide = Tape(), GIVEN
    for number in range(3):
        out = SHELVES if number == 2 else WIDENED
        if number:
            _averaged(rt, tape, wide)
        else:
            _averaged(rt, Tape(), wide)  # features have no gradient
        dense(rt, tape, GRAPH, 1, (NODES, wide, out))
        linear(rt, tape, GRAPH, [NODES, wide], out)
        acts(rt, tape, GRAPH, "add", [NODES, out])
        if number < 2:
            acts(rt, tape, GRAPH, "relu dropout", [NODES, out])
        wide = out
    few(rt, "index", [196_615, SHELVES], GRAPH.moves(8 * 196_615 * SHELVES))
    judged(rt, tape, GRAPH, 196_615, SHELVES)
    back(rt, tape)
    adam(rt, GRAPH, 2e5, "Adam", 1)
    fetched(rt, 4, 1, [])
    rt.host(210)
