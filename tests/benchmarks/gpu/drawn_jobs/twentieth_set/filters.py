"""The job of the twentieth set whose fault is work of the device: filters and activations op by op."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import COPY, FILL, elementwise, foreach, node
from ..layers import REDUCE, Tape, back, fused_adamw
from ..sixteenth_set.rows import without_graph
from ..twelfth_set.pictures import HALF, V100, small
from ..twelfth_set.rows import Conv, Framed, conv, loader

VOLTA, BATCH = V100.card, 16
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_{}_kernel_generic<c10::Half, int>(…)"
PLUGIN = "void upfirdn2d_kernel_small<c10::Half, {0}, {1}, 4, 4, 64, 32, 8>(upfirdn2d_kernel_params)"
BIASED = "void bias_act_kernel<c10::Half, 3>(bias_act_kernel_params)"


def _filtered(rt: Framed, tape: Tape, fixed: bool, y: list[int], up: int, down: int) -> None:
    """`upfirdn2d` that leaves `y`: by the plugin one kernel, else zeros, a pad, a depthwise product, a slice."""
    out = VOLTA.moves(2 * prod(y))
    before, between = out / up**2 * down**2, out * down**2
    rt.host(26)
    if fixed:
        name = PLUGIN.format(up, down)
        rt.sequence += 1
        number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
        with rt.span("Upfirdn2dCuda", us=22, **args):
            rt.work(name, 1.15 * (before + out))

        def backward() -> None:
            with node(rt, "Upfirdn2dCudaBackward", number):
                rt.work(PLUGIN.format(down, up), 1.15 * (before + out))

        tape.append(backward)
        return
    wide = [*y[:2], y[2] * down, y[3] * down]
    if up > 1:
        _passed(rt, tape, "constant_pad_nd", "ConstantPadNdBackward0", wide, 0.25 * between, 1.25 * between)
    _passed(rt, tape, "constant_pad_nd", "ConstantPadNdBackward0", wide, between, 2 * between)
    us = 5.2 * between
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", graph=True,
                   run=((DEPTHWISE.format("forward"), us),), dims=(wide, [y[1], 1, 4, 4]), kind=HALF,
                   gap=20)  # fmt: skip
    tape.append(lambda: rt.grad("ConvolutionBackward0", number, "aten::convolution_backward", kind=HALF, us=14, run=(
        (DEPTHWISE.format("backward"), 1.1 * us),), dims=(wide, wide, [y[1], 1, 4, 4])))  # fmt: skip
    if down > 1:
        _passed(rt, tape, "slice", "SliceBackward0", wide, 0.0, between)


def _passed(rt: Framed, tape: Tape, name: str, title: str, dims: list[int], us: float, backward: float) -> None:
    """An op that fills and copies;  us: 0: a view."""
    run = ((FILL.replace("float", "c10::Half"), 0.6 * us), (COPY, us)) if us else ()
    number = rt.op(f"aten::{name}", run=run, dims=(dims,), kind=HALF, graph=True, gap=8)
    behind = ((FILL.replace("float", "c10::Half"), 0.5 * backward), (COPY, 0.6 * backward))
    tape.append(lambda: rt.grad(title, number, f"aten::{name}_backward", run=behind, dims=(dims,), kind=HALF))


def _activated(rt: Framed, tape: Tape, fixed: bool, y: list[int]) -> None:
    """`bias_act`: by the plugin one kernel, else a sum, a leaky ReLU, a gain and a clamp."""
    rt.host(18)
    if not fixed:
        elementwise(rt, tape, VOLTA, "add", y, back=(("sum", 1),))
        elementwise(rt, tape, VOLTA, "leaky_relu", y, back=(("leaky_relu_backward", 3),))
        elementwise(rt, tape, VOLTA, "mul", y, back=(("mul", 2),))
        elementwise(rt, tape, VOLTA, "clamp", y, back=(("where", 3),))
        return
    once = VOLTA.moves(4 * prod(y))
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("BiasActCuda", us=16, **args):
        rt.work(BIASED, once)

    def backward() -> None:
        with node(rt, "BiasActCudaBackward", number):
            rt.work(BIASED, 1.5 * once)
            rt.op("aten::sum", run=((REDUCE, 0.5 * once),), gap=2, dims=(y,), kind=HALF)

    tape.append(backward)


def _channels(side: int) -> int:
    return min(512, 16_384 // side)


def _made(rt: Framed, tape: Tape, fixed: bool) -> None:
    """The generator's synthesis at 256, weights modulated and demodulated, skips to RGB."""
    small(rt, tape, ("addmm", "leaky_relu") * 8, [BATCH, 512], 6)
    wide = 512
    for side in (4, 8, 16, 32, 64, 128, 256):
        width = _channels(side)
        for number in range(1 if side == 4 else 2):
            cin = wide if number == 0 else width
            small(rt, tape, ("addmm", "mul", "pow", "sum", "rsqrt", "mul"), [BATCH, width, cin, 3, 3], 14)
            conv(rt, tape, V100, Conv(BATCH, cin, width, 3, side, side))
            y = [BATCH, width, side, side]
            if number == 0 and side > 4:
                _filtered(rt, tape, fixed, y, 1, 1)
            small(rt, tape, ("randn", "mul", "add_"), [BATCH, 1, side, side], VOLTA.moves(2 * prod(y)))
            _activated(rt, tape, fixed, y)
        if side > 4:
            _filtered(rt, tape, fixed, [BATCH, 3, side, side], 2, 1)
        conv(rt, tape, V100, Conv(BATCH, width, 3, 1, side, side))
        _activated(rt, tape, fixed, [BATCH, 3, side, side])
        wide = width


def _judged(rt: Framed, tape: Tape, fixed: bool) -> None:
    """The discriminator at 256, residual blocks."""
    conv(rt, tape, V100, Conv(BATCH, 3, 64, 1, 256, 256))
    _activated(rt, tape, fixed, [BATCH, 64, 256, 256])
    for side in (256, 128, 64, 32, 16, 8):
        wide, width, half = _channels(side), _channels(side // 2), side // 2
        _filtered(rt, tape, fixed, [BATCH, wide, half, half], 1, 2)
        conv(rt, tape, V100, Conv(BATCH, wide, width, 1, half, half))
        conv(rt, tape, V100, Conv(BATCH, wide, wide, 3, side, side))
        _activated(rt, tape, fixed, [BATCH, wide, side, side])
        _filtered(rt, tape, fixed, [BATCH, wide, side, side], 1, 1)
        conv(rt, tape, V100, Conv(BATCH, wide, width, 3, half, half))
        _activated(rt, tape, fixed, [BATCH, width, half, half])
        elementwise(rt, tape, VOLTA, "add_", [BATCH, width, half, half], 2)
    small(rt, tape, ("std", "cat"), [BATCH, 512, 4, 4], 6)
    conv(rt, tape, V100, Conv(BATCH, 512, 512, 3, 4, 4))
    small(rt, tape, ("addmm", "leaky_relu", "addmm", "softplus", "mean"), [BATCH, 512], 7)


def refiltered(rt: Framed, fixed: bool) -> None:
    """StyleGAN2-ADA in PyTorch on a V100, pictures of 256, 16 a step, the main phases of both networks: plugins were
    not built ("Failed to build CUDA kernels for upfirdn2d. Falling back to slow reference implementation"), so that
    filters and activations go op by op; without: the plugins' kernels.

    First: kernels that take long, the depthwise filters before all, and passes over memory. Not: a loader, the batch,
    TF32 or bf16, which a V100 has not, launches.
    """
    tape: Tape = []
    loader(rt, 140)
    pinned(rt, BATCH * 3 * 256**2, [BATCH, 3, 256, 256], "unsigned char")
    small(rt, None, ("to", "div", "sub", "randn"), [BATCH, 3, 256, 256], 14)
    _made(rt, tape, fixed)
    _judged(rt, tape, fixed)
    back(rt, tape)
    small(rt, None, ("nan_to_num",) * 4, [24_700_000 // 4], VOLTA.moves(2 * 24.7e6))
    fused_adamw(rt, VOLTA, 24.7e6)
    with without_graph(rt):
        _made(rt, [], fixed)
    for _ in range(2):
        _judged(rt, tape, fixed)
        back(rt, tape)
    small(rt, None, ("nan_to_num",) * 4, [24_000_000 // 4], VOLTA.moves(2 * 24e6))
    fused_adamw(rt, VOLTA, 24e6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", VOLTA.moves(12 * 24.7e6), 2)
    rt.host(500)
