"""Jobs of the thirty-second set whose host is too slow: a deep stack of narrow layers, cells that grow step by step."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, elementwise, node
from ..kineto import Kernels
from ..layers import REDUCE, Tape, back, dense
from ..thirty_first_set.rows import Told, small
from ..twelfth_set.pictures import TF32, XMMA
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import NATIVE, acts, few, recorded
from ..twenty_sixth_set.rows import PROFILED

SERIES, SEEN, SAID, NARROW, BLOCKS, BASIS = 1_024, 360, 72, 512, 30, 32
A10 = Roofline(34, 490, "float", TF32, ("", ""))


def _stacked(rt: Framed) -> None:
    """Thirty blocks of four layers, each says what it saw and what comes; forward, the loss, behind."""
    tape, came, said = Tape(), [SERIES, SEEN], [SERIES, SAID]
    for _ in range(BLOCKS):
        given = SEEN
        for _ in range(4):
            dense(rt, tape, A10, SERIES, (SERIES, given, NARROW))
            acts(rt, tape, A10, "relu", [SERIES, NARROW])
            given = NARROW
        for size in (came, said):
            dense(rt, tape, A10, SERIES, (SERIES, NARROW, BASIS))
            dense(rt, tape, A10, SERIES, (SERIES, BASIS, size[1]))
        elementwise(rt, tape, A10, "sub", came, 2, (("neg", 2),))
        elementwise(rt, tape, A10, "add", said, 2)
    small(rt, tape, A10, "sub abs mul", said)
    acts(rt, tape, A10, "mean", said)
    back(rt, tape)


def nbeats(rt: Told, fixed: bool) -> None:
    """N-BEATS (30 blocks, four layers of 512) learns loads of substations by pytorch-forecasting and Lightning on an
    A10, TF32, 1,024 windows of 360 hours: some 1,300 kernels of 5 to 20 µs a step, which take longer to launch than to
    run; without: `torch.compile(mode="reduce-overhead")`, forward and behind by one launch of a graph. Windows come
    pinned, Adam by lists, clipped by lists, the loss is logged each 50th step. Shapes.

    First: launches (graphs, compile). Not: the loader, copies, waits, TF32, autocast, the optimizer alone; a larger
    batch at most beside it.
    """
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 180)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=70):
        for size in ([SERIES, SEEN], [SERIES, SAID], [SERIES, 2]):
            pinned(rt, 4 * prod(size), size)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        small(rt, None, A10, "mean sub div", [SERIES, SEEN])
        if fixed:
            for size in ([SERIES, SEEN], [SERIES, SAID]):
                few(rt, "copy_", size, A10.moves(8 * prod(size)))
            recorded(rt, _stacked, 3)
        else:
            _stacked(rt)
    with rt.span(f"{PROFILED}[LightningModule]NBeats.optimizer_step", "user_annotation", us=50):
        clipped(rt, A10, 32e6)
        adam(rt, A10, 32e6, "Adam", 1)
    few(rt, "detach add_", [1])
    rt.host(340)


CELLS, CHANNELS, SIDE, TIMES, HIDDEN = 8, 16, 48, 64, 128
RTX3080 = Roofline(42, 680, "float", TF32, ("", ""))
GRID = [CELLS, CHANNELS, SIDE, SIDE]
POINT = tuple(
    XMMA.format(way, "tf32f32_tf32f32_f32", 8).replace("nhwckrsc_nhwc", "nchwkcrs_nchw")
    for way in ("fprop", "dgrad", "wgrad")
)
DEPTHWISE = NATIVE + "conv_depthwise2d_{}_kernel<3, float, int>(…)"


def _filtered(rt: Framed, tape: Tape) -> None:
    """Each channel by itself and by Sobel's two filters, which are not trained."""
    us, weight = 1.3 * RTX3080.moves(4 * prod(GRID) * 4), [3 * CHANNELS, 1, 3, 3]
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", graph=True,
                   run=((DEPTHWISE.format("forward"), us),), dims=(GRID, weight), gap=14)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((DEPTHWISE.format("backward"), 1.2 * us),), us=14, gap=1,
                  dims=([CELLS, 3 * CHANNELS, SIDE, SIDE], GRID, weight))  # fmt: skip
        few(rt, "add", GRID, RTX3080.moves(12 * prod(GRID)), gap=1)  # both ways to the state

    tape.append(backward)


def _pointwise(rt: Framed, tape: Tape, given: int, out: int) -> None:
    """`nn.Conv2d(given, out, 1)`."""
    area, x, weight = CELLS * SIDE**2, [CELLS, given, SIDE, SIDE], [out, given, 1, 1]
    us = RTX3080.product(area, out, given)
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((POINT[0], us),), dims=(x, weight), gap=13)  # fmt: skip

    def backward() -> None:
        behind: Kernels = ((POINT[1], us), (POINT[2], 1.1 * us), (REDUCE, RTX3080.moves(4 * area * out)))
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=behind, us=16, gap=1, dims=([CELLS, out, SIDE, SIDE], x, weight))
        few(rt, "add add", [out], 2.2, gap=1)  # to what later times gave

    tape.append(backward)


def _alive(rt: Framed) -> None:
    """`F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1`."""
    few(rt, "slice", GRID, gap=4)
    rt.op("aten::max_pool2d", "aten::max_pool2d_with_indices", gap=7, dims=([CELLS, 1, SIDE, SIDE],), run=(
        (NATIVE + "max_pool_forward_nchw<float, int>(…)", 3.4),))  # fmt: skip
    few(rt, "gt", [CELLS, 1, SIDE, SIDE], 2.3)


def _grown(rt: Framed) -> None:
    """So many times of the automaton, the loss of its last state, behind through all times."""
    tape = Tape()
    for _ in range(TIMES):
        _alive(rt)
        _filtered(rt, tape)
        _pointwise(rt, tape, 3 * CHANNELS, HIDDEN)
        acts(rt, tape, RTX3080, "relu", [CELLS, HIDDEN, SIDE, SIDE])
        _pointwise(rt, tape, HIDDEN, CHANNELS)
        few(rt, "rand le to", [CELLS, 1, SIDE, SIDE], 2.4)
        elementwise(rt, tape, RTX3080, "mul", GRID, 2, (("mul", 3),))
        elementwise(rt, tape, RTX3080, "add", GRID, 2)
        _alive(rt)
        few(rt, "bitwise_and to", [CELLS, 1, SIDE, SIDE], 2.3)
        elementwise(rt, tape, RTX3080, "mul", GRID, 2, (("mul", 3),))
    small(rt, tape, RTX3080, "slice sub pow", [CELLS, 4, SIDE, SIDE])
    acts(rt, tape, RTX3080, "mean", [CELLS, 4, SIDE, SIDE])
    back(rt, tape)
    with rt.backward():
        for _ in range(4):
            rt.accumulated()


def growing(rt: Told, fixed: bool) -> None:
    """Neural cellular automata learn to grow an emblem by a notebook's plain loop on an RTX 3080, TF32 in convolutions,
    eight fields of 48 x 48 that lie on the GPU: a loop of Python takes 64 times, some 16 kernels of a few µs each and
    as many behind, which take longer to launch than to run; without: CUDA graphs of both passes. Gradients are
    scaled one by one, Adam by lists, the loss is kept on the GPU. Shapes, no rows of steps.

    First: launches of a loop over time (graphs, compile). Not: the loader (there is none), copies, waits, TF32,
    autocast, the optimizer, the layout.
    """
    few(rt, "randint index", [CELLS], 2.6)
    few(rt, "index", GRID, RTX3080.moves(8 * prod(GRID)))
    few(rt, "mean argsort index", [CELLS], 3.0)
    if fixed:
        few(rt, "copy_", GRID, RTX3080.moves(8 * prod(GRID)))
        recorded(rt, _grown, 2)
    else:
        _grown(rt)
    for _ in range(4):
        rt.op("aten::linalg_vector_norm", run=((REDUCE.replace("sum", "NormTwoOps<float>"), 3.4),), gap=8)
        few(rt, "add div_", [], 2.2)
    adam(rt, RTX3080, 8_320, "Adam", 1)
    few(rt, "detach index_put_", GRID, RTX3080.moves(8 * prod(GRID)))
    rt.host(190)
