"""Convolutions of the twentieth set that do not go by cuDNN: pictures are unrolled and multiplied one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import elementwise, node
from ..fifteenth_set.rows import AMPERE_HALF
from ..layers import CAST, Tape, back
from ..twelfth_set.pictures import HALF, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv_norm, loader

CARD, PICTURES, CLASSES, CROP = AMPERE_HALF.card, 8, 21, 41
UNROLLED = "void at::native::im2col_kernel<c10::Half>(long, c10::Half const*, long, long, long, long, long, long, …)"
ROLLED = "void at::native::col2im_kernel<c10::Half, float>(long, c10::Half const*, long, long, long, long, long, …)"
COLUMNS = "void at::native::vol2col_kernel<c10::Half>(long, c10::Half const*, int, int, int, int, int, int, int, …)"
NORM = (
    "void at::native::batch_norm_{}_kernel<c10::Half, float, float, int, at::GenericPackedTensorAccessor<c10::Half, …>>"
)


def _multiplied(rt: Framed, name: str, us: float) -> None:
    """A picture and its place in the output, and a product that no op names."""
    for _ in range(2):
        with rt.span("aten::select", us=1.6):
            pass
    rt.work(name, us)


def _products(rt: Framed, of: Conv, columns: float, us: float, dilated: bool) -> None:
    """The weight's and the input's gradient, picture by picture."""
    for _ in range(PICTURES):
        _multiplied(rt, CARD.names[1], us)
        if of.side > 1:
            rt.work(ROLLED, 1.2 * columns)
    for _ in range(PICTURES):
        if of.side > 1:
            rt.work(COLUMNS if dilated else UNROLLED, columns)
        _multiplied(rt, CARD.names[1], 1.1 * us)


@contextmanager
def _named(rt: Framed, dilated: bool, forward: bool) -> Iterator[None]:
    """The ops inside `aten::_convolution` and its gradient; a dilated one's gradient has none."""
    names = ("aten::thnn_conv2d", "aten::_slow_conv2d_forward") if forward else ("aten::_slow_conv2d_backward",)
    if dilated:
        names = ("aten::slow_conv_dilated2d",) if forward else ()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(rt.span(name, us=6))
        yield


def _unrolled(rt: Framed, tape: Tape, of: Conv, dilated: bool) -> None:
    """A convolution by `im2col` and a product for each picture, its batch norm by PyTorch's kernels, a ReLU."""
    x, w, y = of.dims
    us = 1.25 * of.us(CARD) / PICTURES
    columns = CARD.moves(2 * (x[1] * of.side**2 + x[1]) * of.height * of.width)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(w))),), dims=(w,), gap=4)
    rt.host(14)
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    shapes = {"Input Dims": [x, w], "Input type": [HALF, HALF]}
    with (rt.span("aten::conv2d", us=6, **shapes, **args), rt.span("aten::convolution", us=4, **shapes, **args),
          rt.span("aten::_convolution", us=6, **shapes), _named(rt, dilated, True)):  # fmt: skip
        for _ in range(PICTURES):
            if of.side > 1:
                rt.work(COLUMNS if dilated else UNROLLED, columns)
            _multiplied(rt, CARD.names[0], us)

    def backward() -> None:
        with (node(rt, "ConvolutionBackward0", number), rt.span("aten::convolution_backward", us=8, **shapes),
              _named(rt, dilated, False)):  # fmt: skip
            _products(rt, of, columns, us, dilated)
        rt.accumulated()

    tape.append(backward)
    once = CARD.moves(2 * prod(y))
    seen = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", graph=True, gap=18,
                 run=((NORM.format("collect_statistics"), 1.2 * once), (NORM.format("transform_input"), 2.1 * once)),
                 dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", seen, "aten::native_batch_norm_backward", run=(
        (NORM.format("backward"), 5.4 * once),), dims=(y, y), kind=HALF))  # fmt: skip
    elementwise(rt, tape, CARD, "relu_", y, back=(("threshold_backward", 3),))


def _each(rt: Framed, tape: Tape, of: Conv, fixed: bool, *, dilated: bool = False) -> None:
    if fixed:
        conv_norm(rt, tape, AMPERE_HALF, of)
    else:
        _unrolled(rt, tape, of, dilated)


def uncudnn(rt: Framed, fixed: bool) -> None:
    """DeepLab on ResNet-50 with dilations, AMP, RTX 3090, 8 crops of 321: `torch.backends.cudnn.enabled = False` was
    left set, so that each picture is unrolled by `im2col` and multiplied by itself, batch norms are PyTorch's; without:
    cuDNN. `GradScaler` waits once.

    First: convolutions that do not go by cuDNN (`aten::_slow_conv2d_forward`, `im2col_kernel`). Not: a larger batch,
    a loader, TF32, the optimizer; fewer launches are what cuDNN gives.
    """
    tape: Tape = []
    loader(rt, 160)
    picture = [PICTURES, 3, 321, 321]
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * PICTURES * 321**2, [PICTURES, 321, 321], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    _each(rt, tape, Conv(PICTURES, 3, 64, 7, 161, 161), fixed)
    small(rt, tape, ("max_pool2d",), [PICTURES, 64, 81, 81], CARD.moves(6 * PICTURES * 64 * 81**2))
    for blocks, width, high, dilated in ((3, 64, 81, False), (4, 128, CROP, False), (6, 256, CROP, True),
                                         (3, 512, CROP, True)):  # fmt: skip
        for _ in range(blocks):
            for cin, cout, side in ((4 * width, width, 1), (width, width, 3), (width, 4 * width, 1)):
                of = Conv(PICTURES, cin, cout, side, high, high)
                _each(rt, tape, of, fixed, dilated=dilated and side == 3)
            elementwise(rt, tape, CARD, "add_", [PICTURES, 4 * width, high, high], 2)
    for _ in range(4):
        _each(rt, tape, Conv(PICTURES, 2_048, CLASSES, 3, CROP, CROP), fixed, dilated=True)
    small(rt, tape, ("add", "add", "add"), [PICTURES, CLASSES, CROP, CROP], 4)
    small(rt, tape, ("upsample_bilinear2d", "log_softmax", "nll_loss2d"), [PICTURES, CLASSES, 321, 321], 160)
    back(rt, tape)
    unscaled(rt, CARD, 26e6)
    sgd(rt, CARD, 26e6)
    rt.host(350)
