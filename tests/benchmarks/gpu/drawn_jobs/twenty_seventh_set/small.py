"""Jobs of the twenty-seventh set whose host is too slow: a network for phones on a fast card, spikes step by step."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, elementwise
from ..layers import CAST, Card, Tape, back, dense
from ..tenth_set.jobs import NVJET
from ..twelfth_set.pictures import ADA, HALF, NHWC, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fifth_set.device import DIRECT
from ..twenty_fifth_set.rows import adam
from ..twenty_fourth_set.rows import acts, few, judged, recorded
from .rows import Apart

PICTURES = 96
H100 = Card(300, 2_600, HALF, NVJET, ("", ""))
LOOK = Look(H100, ADA.names, NHWC, True)
ALONE = Look(H100, DIRECT, NHWC, True)  # type: ignore[arg-type]
# MobileNetV3-Large: side of the kernel, channels within, channels out, whether squeezed, activation, side of the output
BLOCKS = (
    (3, 16, 16, False, "relu_", 112), (3, 64, 24, False, "relu_", 56), (3, 72, 24, False, "relu_", 56),
    (5, 72, 40, True, "relu_", 28), (5, 120, 40, True, "relu_", 28), (5, 120, 40, True, "relu_", 28),
    (3, 240, 80, False, "hardswish_", 14), (3, 200, 80, False, "hardswish_", 14), (3, 184, 80, False, "hardswish_", 14),
    (3, 184, 80, False, "hardswish_", 14), (3, 480, 112, True, "hardswish_", 14), (3, 672, 112, True, "hardswish_", 14),
    (5, 672, 160, True, "hardswish_", 7), (5, 960, 160, True, "hardswish_", 7), (5, 960, 160, True, "hardswish_", 7),
)  # fmt: skip


def _normed(rt: Framed, tape: Tape, look: Look, of: Conv, name: str = "") -> None:
    """A convolution, its batch norm, and what is given of activations in place."""
    conv(rt, tape, look, of)
    y = of.dims[2]
    nbytes = H100.size * prod(y)
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((NHWC.format("fw"), H100.moves(3 * nbytes)),), dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=HALF, run=((NHWC.format("bw"), H100.moves(5 * nbytes)),)))  # fmt: skip
    if name:
        behind = "threshold_backward" if name == "relu_" else "hardswish_backward"
        elementwise(rt, tape, H100, name, y, back=((behind, 3),))


def _passes(rt: Framed) -> None:
    """Both passes of MobileNetV3-Large."""
    tape = Tape()
    _normed(rt, tape, LOOK, Conv(PICTURES, 3, 16, 3, 112, 112), "hardswish_")
    given = 16
    for side, wide, out, squeezed, name, room in BLOCKS:
        size = [PICTURES, wide, room, room]
        before = 2 * room if (room, out) in ((56, 24), (28, 40), (14, 80), (7, 160)) and given != out else room
        if wide != given:
            _normed(rt, tape, LOOK, Conv(PICTURES, given, wide, 1, before, before), name)
        _normed(rt, tape, ALONE, Apart(PICTURES, wide, wide, side, room, room), name)
        if squeezed:
            acts(rt, tape, H100, "mean", size)
            for one, to, last in ((wide, wide // 4, "relu"), (wide // 4, wide, "hardsigmoid")):
                conv(rt, tape, LOOK, Conv(PICTURES, one, to, 1, 1, 1))
                acts(rt, tape, H100, last, [PICTURES, to, 1, 1])
            acts(rt, tape, H100, "mul", size)
        _normed(rt, tape, LOOK, Conv(PICTURES, wide, out, 1, room, room))
        if given == out:
            acts(rt, tape, H100, "add", [PICTURES, out, room, room])
        given = out
    conv_norm(rt, tape, LOOK, Conv(PICTURES, 160, 960, 1, 7, 7))
    acts(rt, tape, H100, "mean", [PICTURES, 960, 7, 7])
    for one, to in ((960, 1_280), (1_280, 200)):
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, H100.moves(6 * one * to)),), dims=([to, one],))
        dense(rt, tape, H100, PICTURES, (PICTURES, one, to))
        if to > 200:
            acts(rt, tape, H100, "hardswish dropout", [PICTURES, to])
    judged(rt, tape, H100, PICTURES, 200)
    back(rt, tape)


def mobilenet(rt: Framed, fixed: bool) -> None:
    """MobileNetV3-Large by a plain loop with AMP on an H100, channels_last, 96 birds of 224: some 500 kernels, of which
    most take a few µs, so that the GPU is done with each before the next is launched; without: a CUDA graph of
    both passes (`mode="reduce-overhead"`; a larger batch would help as well). Pictures come pinned as bytes, SGD by
    lists, `GradScaler` waits once, the loss is summed on the GPU. Shapes.

    First: launches (compile, graphs, a larger batch). Not: the loader, copies, `GradScaler`'s wait, the layout, SGD.
    """
    picture = [PICTURES, 3, 224, 224]
    loader(rt, 150)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    acts(rt, None, replace(H100, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, H100.moves(6 * prod(picture))),), dims=(picture,))
    if fixed:
        recorded(rt, _passes, 1)
    else:
        _passes(rt)
    unscaled(rt, H100, 4.5e6)
    sgd(rt, H100, 4.5e6)
    few(rt, "add_", [1])
    rt.host(240)


EVENTS, TICKS = 192, 20
L4 = Roofline(22, 640, "float", ("cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4",
                                 "cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4"), ("", ""))  # fmt: skip
EYES = Look(L4, tuple(name.replace("f16f16_f16f32_f32", "tf32f32_tf32f32_f32") for name in ADA.names))  # type: ignore[arg-type]  # fmt: skip


def _fires(rt: Framed, tape: Tape, size: list[int]) -> None:
    """`snn.Leaky`: what leaks and comes in, whether it fires (ATan behind), what a spike takes away."""
    acts(rt, tape, L4, "scale add", size)
    few(rt, "sub gt to", size, L4.moves(8 * prod(size)))
    acts(rt, tape, L4, "scale sub", size)
    us = L4.moves(8 * prod(size))
    rt.sequence += 1
    number = rt.sequence
    rt.host(14)
    with rt.span("ATan", us=16, **{"Sequence number": number, "Fwd thread id": 0}):
        few(rt, "gt to", size, us, 3)
    tape.append(lambda: rt.grad("ATanBackward", number, "aten::mul", "aten::mul", run=(
        ("void at::native::vectorized_elementwise_kernel<4, BUnaryFunctor<float, MulFunctor<float>>>(…)", us),) * 4,
        dims=(size, size)))  # fmt: skip


def _spikes(rt: Framed) -> None:
    """Both passes through all steps of time."""
    tape = Tape()
    for _ in range(TICKS):
        for cin, cout, side, pooled in ((2, 12, 30, 15), (12, 32, 11, 5)):
            conv(rt, tape, EYES, Conv(EVENTS, cin, cout, 5, side, side))
            elementwise(rt, tape, L4, "add_", [EVENTS, cout, side, side], 2)
            acts(rt, tape, replace(L4, gbs=900), "max_pool2d", [EVENTS, cout, pooled, pooled])
            _fires(rt, tape, [EVENTS, cout, pooled, pooled])
        dense(rt, tape, L4, 1, (EVENTS, 800, 10))
        _fires(rt, tape, [EVENTS, 10])
    acts(rt, tape, L4, "stack", [TICKS, EVENTS, 10])
    acts(rt, tape, L4, "sum", [TICKS, EVENTS, 10])
    judged(rt, tape, L4, EVENTS, 10)
    back(rt, tape)


def spiking(rt: Framed, fixed: bool) -> None:
    """A spiking network of snnTorch learns N-MNIST on an L4, TF32, 192 recordings a step: a loop of Python goes through
    20 steps of time, some 30 small kernels each and as many behind, which take longer to launch than to run;
    without: a CUDA graph of both passes. Events are binned before and come pinned, Adam by lists, the loss is summed on
    the GPU, the accuracy is read each 50th step. Shapes, no rows of steps.

    First: launches in a loop of time (graphs, `torch.compile`, a larger batch). Not: the loader, copies, waits, TF32,
    the optimizer.
    """
    events = [TICKS, EVENTS, 2, 34, 34]
    loader(rt, 140)
    pinned(rt, 4 * prod(events), events)
    pinned(rt, 8 * EVENTS, [EVENTS], "long int")
    if fixed:
        recorded(rt, _spikes, 1)
    else:
        _spikes(rt)
    adam(rt, L4, 1.8e4, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(190)
