"""Jobs of the twenty-seventh set whose loop waits for the GPU: texts that are unpadded, graphs that are padded."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, conformer, ctc, pinned
from ..eleventh_set.rows import FILL, Roofline, linear
from ..kineto import inputs
from ..layers import Tape, attention, back, dense, fused_adamw, norm
from ..sixteenth_set.rows import INDEX
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, CUTLASS, TF32
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, chosen, few, judged
from .rows import gathered, summed

SAID, FRAMES, WIDE, WORDS, TEXT = 20, 280, 512, 5_000, 44
LOOK = Look(A100, tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names), cast=True)  # type: ignore[arg-type]  # fmt: skip


def _unpadded(rt: Framed) -> None:
    """`add_sos_eos`: `[y[y != ignore_id] for y in ys_pad]`, two lists of texts, which are padded anew."""
    for _ in range(SAID):
        few(rt, "ne", [TEXT])
        chosen(rt, [TEXT])
    for _ in range(2):
        for _ in range(SAID):
            few(rt, "cat", [TEXT])
        few(rt, "fill_", [SAID, TEXT])
        for _ in range(SAID):
            few(rt, "copy_", [TEXT])


def _decoded(rt: Framed, tape: Tape) -> None:
    """A layer of the decoder: attention to what was said, to what was heard."""
    x, tokens = [SAID, TEXT, WIDE], SAID * TEXT
    for heard in (False, True):
        casts(rt, A100, *[[WIDE, WIDE]] * 4)
        norm(rt, tape, A100, x)
        for place in range(3):
            linear(rt, tape, A100, [SAID, FRAMES, WIDE] if heard and place else x, WIDE)
        attention(rt, tape, A100, [SAID, 8, FRAMES if heard else TEXT, 64])
        linear(rt, tape, A100, x, WIDE)
        acts(rt, tape, A100, "dropout add", x)
    casts(rt, A100, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
    norm(rt, tape, A100, x)
    dense(rt, tape, A100, SAID, (tokens, WIDE, 4 * WIDE))
    acts(rt, tape, A100, "relu dropout", [SAID, TEXT, 4 * WIDE])
    dense(rt, tape, A100, SAID, (tokens, 4 * WIDE, WIDE))
    acts(rt, tape, A100, "dropout add", x)


def espnet(rt: Framed, fixed: bool) -> None:
    """A Conformer of ESPnet with CTC and a decoder on an A100, autocast in bf16, 20 recordings of eleven seconds:
    behind the encoder `add_sos_eos` takes each text by a boolean mask, which waits for all that is queued and then
    again for each text, and `th_accuracy` makes a float of two values before the backward pass; what follows is
    launched while the GPU idles; without: texts are made with the batch, the accuracy stays on the GPU. Features come
    pinned, clipping by lists, AdamW is fused. Shapes.

    First: waits in the forward pass (masks of texts, a value). Not: launches, the loader, copies, attention, TF32.
    """
    tape, x = Tape(), [SAID, FRAMES, WIDE]
    loader(rt, 180)
    pinned(rt, 4 * SAID * 4 * FRAMES * 80, [SAID, 4 * FRAMES, 80])
    for size in ([SAID], [SAID, TEXT], [SAID], *([[SAID, TEXT]] * 2 if fixed else [])):
        pinned(rt, 8 * prod(size), size, "long int")
    few(rt, "masked_fill_ masked_fill_", [SAID, 4 * FRAMES, 80], 9)
    conv(rt, tape, LOOK, Conv(SAID, 1, WIDE, 3, 2 * FRAMES, 40))
    acts(rt, tape, A100, "relu", [SAID, WIDE, 2 * FRAMES, 40])
    conv(rt, tape, LOOK, Conv(SAID, WIDE, WIDE, 3, FRAMES, 20))
    acts(rt, tape, A100, "relu", [SAID, WIDE, FRAMES, 20])
    casts(rt, A100, [WIDE, 20 * WIDE])
    linear(rt, tape, A100, [SAID, FRAMES, 20 * WIDE], WIDE)
    acts(rt, tape, A100, "scale add dropout", x)
    for _ in range(12):
        conformer(rt, tape, A100, x)
    norm(rt, tape, A100, x)
    casts(rt, A100, [WORDS, WIDE])
    linear(rt, tape, A100, x, WORDS)
    ctc(rt, tape, A100, (FRAMES, SAID, WORDS), TEXT)
    if not fixed:
        _unpadded(rt)
    few(rt, "arange lt tril bitwise_and", [SAID, TEXT, TEXT])
    acts(rt, tape, A100, "embedding scale add dropout", [SAID, TEXT, WIDE])
    for _ in range(6):
        _decoded(rt, tape)
    norm(rt, tape, A100, [SAID, TEXT, WIDE])
    linear(rt, tape, A100, [SAID, TEXT, WIDE], WORDS)
    judged(rt, tape, A100, SAID * TEXT, WORDS)
    few(rt, "argmax ne eq sum sum", [SAID, TEXT], 4)
    for _ in range(0 if fixed else 2):
        rt.value()
    acts(rt, tape, replace(A100, kind="float"), "scale scale add", [1])
    back(rt, tape)
    clipped(rt, A100, 116e6, 2)
    fused_adamw(rt, A100, 116e6)
    few(rt, "add_", [1])
    rt.host(340)


GRAPHS, NODES, EDGES, MOST, FEATURES, LAYERS = 64, 9_700, 19_800, 444, 96, 8
RTX3090 = Roofline(28, 790, "float", TF32, CUTLASS)


def _dense_batch(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`to_dense_batch`: without the number of graphs and of the most nodes it reads them of the GPU."""
    few(rt, "zeros scatter_ cumsum cat" if not fixed else "sub add mul add", [GRAPHS])
    if not fixed:
        rt.value()
        few(rt, "arange sub add mul add", [NODES], 2.6)
    size = [GRAPHS, MOST, FEATURES]
    rt.sequence += 1
    number = rt.sequence
    rt.host(9)
    with rt.span("aten::index_put", us=9, **{"Sequence number": number, "Fwd thread id": 0},
                 **inputs((size, [NODES, FEATURES]), "float")):  # fmt: skip
        rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, RTX3090.moves(4 * prod(size))),), gap=1)
        rt.work(INDEX.replace("gpu_index", "index_put"), RTX3090.moves(8 * NODES * FEATURES))
    tape.append(lambda: rt.grad("IndexPutBackward0", number, "aten::index", dims=(size,), run=(
        (INDEX, RTX3090.moves(8 * NODES * FEATURES)),)))  # fmt: skip
    few(rt, "zeros index_put_", [GRAPHS, MOST], 2.5)


def _taken(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`h_dense[mask]`: how many are true, only the GPU knows."""
    size, us = [GRAPHS, MOST, FEATURES], RTX3090.moves(8 * NODES * FEATURES)
    if fixed:
        number = rt.op("aten::index_select", run=((INDEX, us),), graph=True, gap=12, dims=(size, [NODES]))
    else:
        rt.sequence += 1
        number = rt.sequence
        rt.host(9)
        with rt.span("aten::index", us=7, **{"Sequence number": number, "Fwd thread id": 0},
                     **inputs((size, size[:2]), "float")):  # fmt: skip
            with rt.span("aten::nonzero", us=8, **inputs((size[:2],), "bool")):
                rt.work("void at_cuda_detail::cub::DeviceReduceKernel<at_cuda_detail::cub::…Policy600, …>", 3.4)
                rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy600, …>", 2)
                rt.copy(8, "DtoH", "Pageable", waits=True)
                rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy600, …>", 4.4)
            rt.work(INDEX, us)
    name, inner = ("IndexSelect", "aten::index_add_") if fixed else ("Index", "aten::index_put_")
    tape.append(lambda: rt.grad(f"{name}Backward0", number, inner, dims=(size,), run=(
        (FILL, RTX3090.moves(4 * prod(size))), (INDEX.replace("gpu_index", "index_put"), us))))  # fmt: skip


def peptides(rt: Framed, fixed: bool) -> None:
    """GraphGPS learns peptides (ten functions) by PyTorch Geometric on an RTX 3090, TF32, 64 molecules a step: in each
    of eight layers `to_dense_batch` reads the largest number of nodes and `h[mask]` asks how many are real, so that the
    host waits 17 times in the forward pass, and launches what follows while the GPU idles; without: sizes and the
    places of nodes come with the batch. Pinned, AdamW is fused, the loss is summed on the GPU. Shapes.

    First: waits in the forward pass (sizes that are read of the GPU). Not: the loader, copies, TF32, the optimizer.
    """
    tape, x = Tape(), [1, NODES, FEATURES]
    loader(rt, 160)
    for size, width, kind in (([NODES, 9], 8, "long int"), ([2, EDGES], 8, "long int"), ([EDGES, 3], 8, "long int"),
                              ([NODES, 8], 4, "float"), ([GRAPHS, 10], 4, "float"), ([NODES], 8, "long int"),
                              *([([NODES], 8, "long int")] if fixed else [])):  # fmt: skip
        pinned(rt, width * prod(size), size, kind)
    for _ in range(9):
        acts(rt, tape, RTX3090, "embedding add", [NODES, FEATURES])
    acts(rt, tape, RTX3090, "embedding embedding add cat", [EDGES, FEATURES])
    for _ in range(LAYERS):
        gathered(rt, tape, RTX3090, NODES, EDGES, FEATURES)
        dense(rt, tape, RTX3090, 1, (EDGES, FEATURES, FEATURES))
        acts(rt, tape, RTX3090, "add relu", [EDGES, FEATURES])
        summed(rt, tape, RTX3090, NODES, EDGES, FEATURES)
        for _ in range(2):
            dense(rt, tape, RTX3090, 1, (NODES, FEATURES, FEATURES))
            acts(rt, tape, RTX3090, "relu", x)
        acts(rt, tape, RTX3090, "dropout add", x)
        norm(rt, tape, RTX3090, x)
        _dense_batch(rt, tape, fixed)
        dense(rt, tape, RTX3090, GRAPHS, (GRAPHS * MOST, FEATURES, 3 * FEATURES))
        attention(rt, tape, RTX3090, [GRAPHS, 4, MOST, FEATURES // 4])
        dense(rt, tape, RTX3090, GRAPHS, (GRAPHS * MOST, FEATURES, FEATURES))
        _taken(rt, tape, fixed)
        acts(rt, tape, RTX3090, "dropout add", x)
        norm(rt, tape, RTX3090, x)
        acts(rt, tape, RTX3090, "add", x)
        dense(rt, tape, RTX3090, 1, (NODES, FEATURES, 2 * FEATURES))
        acts(rt, tape, RTX3090, "relu dropout", [1, NODES, 2 * FEATURES])
        dense(rt, tape, RTX3090, 1, (NODES, 2 * FEATURES, FEATURES))
        acts(rt, tape, RTX3090, "dropout add", x)
        norm(rt, tape, RTX3090, x)
    if not fixed:
        few(rt, "max", [NODES])
        rt.value()
    summed(rt, tape, RTX3090, GRAPHS, NODES, FEATURES)
    acts(rt, tape, RTX3090, "div", [GRAPHS, FEATURES])
    for out in (FEATURES, FEATURES // 2, 10):
        dense(rt, tape, RTX3090, 1, (GRAPHS, FEATURES, out))
        acts(rt, tape, RTX3090, "relu", [GRAPHS, out])
    acts(rt, tape, RTX3090, "sub mul exp log mean", [GRAPHS, 10])
    back(rt, tape)
    clipped(rt, RTX3090, 6.4e5)
    fused_adamw(rt, RTX3090, 6.4e5)
    few(rt, "add_", [1])
    rt.host(210)
