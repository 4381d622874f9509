"""Jobs of the thirty-first set whose host is too slow: a search over cells, a recurrent network called hour by hour."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import FILL, Roofline, elementwise, node
from ..kineto import Kernels
from ..layers import Tape, back, dense
from ..twelfth_set.pictures import CUTLASS, TF32, sgd
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import NATIVE, acts, few, judged, recorded
from .rows import Told, small

PICTURES, LAYERS, NODES, KINDS = 128, 4, 4, 10
RTX4090 = Roofline(60, 900, "float", TF32, CUTLASS)
DEPTHWISE = NATIVE + "conv_depthwise2d_{}_kernel{}<float, int>(…)"
POINT = ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>(…)",
         "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x64_16x10_nhwc_align4>(…)",
         "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x64_16x10_nhwc_align4>(…)",
         )  # fmt: skip
BATCH = "void cudnn::bn_{}_tr_1C11_singleread<float, 512, true, 1, 2, 0>(…)"


def _convolved(rt: Framed, tape: Tape, x: list[int], side: int) -> None:
    """`nn.Conv2d(bias=False)` of the same size: of each channel alone, or of points."""
    once, weight = RTX4090.moves(8 * prod(x)), [x[1], x[1], 1, 1]
    run: Kernels = ((POINT[0], max(once, 4.5)),)
    behind: Kernels = ((POINT[1], max(once, 4.6)), (POINT[2], max(once, 5.2)))
    names = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
    if side > 1:
        weight, slower = [x[1], 1, side, side], 1.5 if side == 3 else 2.2
        run = ((DEPTHWISE.format("forward", "_generic"), slower * once),)
        behind = ((DEPTHWISE.format("backward", "<0, 0>"), slower * once), (
            DEPTHWISE.format("grad_weight", ""), 1.8 * slower * once))  # fmt: skip
        names = (*names[:3], "aten::_conv_depthwise2d")
    number = rt.op(*names, run=run, dims=(x, weight), graph=True, gap=11)

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=behind, dims=(x, x, weight), us=14, gap=1)
        rt.accumulated()

    tape.append(backward)


def _normed(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`nn.BatchNorm2d(affine=False)`."""
    once = RTX4090.moves(4 * prod(x))
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=14,
                   run=((BATCH.format("fw"), 2.6 * once),), dims=(x,))  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(x, x),
                                run=((BATCH.format("bw"), 4 * once),)))  # fmt: skip


def _mixed(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`MixedOp.forward`: all eight operations of an edge, each with its weight, and their sum."""
    once = RTX4090.moves(4 * prod(x))
    small(rt, tape, RTX4090, "mul", x)  # none
    for name in ("max_pool2d", "avg_pool2d"):
        run = ((NATIVE + name.replace("2d", "_forward_nchw<float>(…)"), 2 * once),)
        behind = ((NATIVE + name.replace("2d", "_backward_nchw<float>(…)"), 3 * once),)
        number = rt.op(f"aten::{name}", run=run, dims=(x,), graph=True, gap=9)
        title = name.title().replace("_", "").replace("2D", "2D") + "Backward0"
        tape.append(lambda number=number, title=title, name=name, behind=behind: rt.grad(
            title, number, f"aten::{name}_backward", run=behind, dims=(x, x)))  # fmt: skip
        _normed(rt, tape, x)
    for side, times in ((3, 2), (5, 2), (3, 1), (5, 1)):
        for _ in range(times):
            elementwise(rt, tape, RTX4090, "relu", x, back=(("threshold_backward", 3),))
            _convolved(rt, tape, x, side)
            _convolved(rt, tape, x, 1)
            _normed(rt, tape, x)
    for _ in range(8):
        few(rt, "select", [8], gap=2)
        elementwise(rt, tape, RTX4090, "mul", x, 2, (("mul", 3), ("mul", 3), ("sum", 1)))
    for _ in range(7):
        elementwise(rt, tape, RTX4090, "add", x, 2)


def _searched(rt: Framed) -> None:
    """The network of cells, forward and behind."""
    tape, given, side = Tape(), 16, 32
    for cell in range(LAYERS):
        if cell in (1, 2):
            given, side = 2 * given, side // 2
        x = [PICTURES, given, side, side]
        for _ in range(2):
            elementwise(rt, tape, RTX4090, "relu", x, back=(("threshold_backward", 3),))
            _convolved(rt, tape, x, 1)
            _normed(rt, tape, x)
        small(rt, tape, RTX4090, "softmax", [14, 8])
        for place in range(NODES):
            for edge in range(2 + place):
                _mixed(rt, tape, x)
                if edge:
                    elementwise(rt, tape, RTX4090, "add", x, 2)
        acts(rt, tape, RTX4090, "cat", [PICTURES, 4 * given, side, side])
    acts(rt, tape, RTX4090, "mean", [PICTURES, 4 * given, side, side])
    dense(rt, tape, RTX4090, PICTURES, (PICTURES, 4 * given, KINDS))
    judged(rt, tape, RTX4090, PICTURES, KINDS)
    back(rt, tape)


def darts(rt: Told, fixed: bool) -> None:
    """DARTS searches for cells on CIFAR-10 by its authors' script on an RTX 4090, four layers, fp32 with TF32, 128
    pictures a step, of which this window holds steps of the weights: each edge calls all eight operations and adds them
    up, some 6,000 kernels of a few µs forward and behind, which take longer to launch than to run; without: a CUDA
    graph of both passes. SGD by lists, clipped by lists, the loss is summed on the GPU, pictures come pinned. Shapes,
    no rows of steps.

    First: launches (graphs, compile). Not: the loader, copies, waits, TF32, autocast, the optimizer, the layout.
    """
    loader(rt, 150)
    pinned(rt, 4 * PICTURES * 3 * 32 * 32, [PICTURES, 3, 32, 32])
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    if fixed:
        recorded(rt, _searched, 1)
    else:
        _searched(rt)
    clipped(rt, RTX4090, 1.1e6)
    sgd(rt, RTX4090, 1.1e6)
    few(rt, "detach add_", [1])
    rt.host(210)


SERIES, HOURS, HIDDEN, DEEP, SEEN = 320, 84, 240, 3, 28
T4 = Roofline(4.2, 250, "float", ("turing_sgemm_64x64_tn", "volta_sgemm_64x32_sliced1x4_nn"), ("", ""))
GATES = "void LSTM_elementWise_{}<float, float, float>(int, int, int, int, float const*, float const*, …)"


def _cells(hours: int, backward: bool) -> Kernels:
    """What cuDNN launches for so many hours: inputs of all hours in one product, then hour by hour."""
    found: list[tuple[str, float]] = []
    each = T4.product(SERIES, 4 * HIDDEN, HIDDEN)
    once = T4.moves(4 * SERIES * 6 * HIDDEN)
    for layer in range(DEEP):
        wide = SEEN if not layer else HIDDEN
        whole = T4.product(hours * SERIES, 4 * HIDDEN, wide)
        if not backward:
            found.append((T4.names[0], whole))
        for _ in range(hours):
            found += [(T4.names[0], each), (GATES.format("bp1" if backward else "fp"), once)]
        if backward:
            found += [(T4.names[1], whole), (T4.names[1], whole)]
            found.append((T4.names[1], T4.product(hours * SERIES, 4 * HIDDEN, HIDDEN)))
    return tuple(found)


def _recurrent(rt: Framed, tape: Tape, hours: int) -> None:
    """`nn.LSTM` of so many hours, and what is said of each."""
    x, weight = [hours, SERIES, SEEN], [4 * HIDDEN, SEEN]
    acts(rt, tape, T4, "embedding cat", x)
    number = rt.op("aten::lstm", "aten::_cudnn_rnn", run=_cells(hours, False), graph=True, gap=40, us=34,
                   dims=(x, weight, [4 * HIDDEN, HIDDEN]))  # fmt: skip

    def backward() -> None:
        with node(rt, "CudnnRnnBackward0", number):
            rt.op("aten::_cudnn_rnn_backward", run=((FILL, 2.4), *_cells(hours, True)), gap=2, us=40,
                  dims=(x, [hours, SERIES, HIDDEN]))  # fmt: skip
        for _ in range(4 * DEEP):
            rt.accumulated()

    tape.append(backward)
    acts(rt, tape, T4, "turn", [SERIES, hours, DEEP * HIDDEN])
    for _ in range(2):
        dense(rt, tape, T4, SERIES, (SERIES * hours, DEEP * HIDDEN, 1))
    small(rt, tape, T4, "softplus sub pow mul div log sub sum", [SERIES * hours])


def deepar(rt: Told, fixed: bool) -> None:
    """DeepAR learns loads of households by a repository that many copy on a T4, fp32, 320 series of 84 hours, three
    layers of 240: the loop calls `nn.LSTM` hour by hour although it is given the true loads, each call of some thirty
    small kernels, which take longer to launch than to run; without: `nn.LSTM` is called once for all hours. Batches
    come pinned, Adam by lists, the loss is summed on the GPU. Shapes.

    First: launches of a loop over time (one call of the LSTM; graphs). Not: the loader, copies, waits, precision (a T4
    has neither TF32 nor bf16), the optimizer, a larger batch alone.
    """
    tape = Tape()
    loader(rt, 170)
    pinned(rt, 4 * SERIES * HOURS * 8, [SERIES, HOURS, 8])
    pinned(rt, 8 * SERIES, [SERIES], "long int")
    pinned(rt, 4 * SERIES * HOURS, [SERIES, HOURS])
    few(rt, "copy_ copy_", [HOURS, SERIES, 8], 9)
    if fixed:
        _recurrent(rt, tape, HOURS)
    else:
        for _ in range(HOURS):
            few(rt, "select unsqueeze select", [HOURS, SERIES, 8], gap=3)
            _recurrent(rt, tape, 1)
            elementwise(rt, tape, T4, "add", [1], 2)
    back(rt, tape)
    adam(rt, T4, 0.83e6, "Adam", 1)
    few(rt, "detach add_", [1])
    rt.host(230)
