"""What the twenty-sixth set's jobs share: convolutions over time, losses of maps, copies that are staged."""

from __future__ import annotations

from math import prod

from ..eleventh_set.rows import FILL, elementwise, kernel, node
from ..kineto import inputs
from ..layers import Card, Tape
from ..twelfth_set.rows import Framed, Look
from ..twenty_fourth_set.rows import NATIVE

PROFILED = "[pl][profile]"


def clip(rt: Framed, tape: Tape, look: Look, x: list[int], to: tuple[int, tuple[int, int, int]], stride: int = 1,
         relu: bool = True) -> list[int]:  # fmt: skip
    """`Conv3d`, `BatchNorm3d`, a ReLU in place of (batch, channels, time, height, width); to: channels, the kernel."""
    (batch, cin, time, high, wide), (cout, side), card = x, to, look.card
    y, weight = [batch, cout, time, high // stride, wide // stride], [cout, cin, *side]
    area = prod(y) // cout
    us = max(2 * area * cin * cout * prod(side) / card.tflops / 1e6,
             card.moves(card.size * area * (cin * stride**2 + cout)))  # fmt: skip
    number = rt.op("aten::conv3d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((look.names[0], us),), dims=(x, weight), kind=card.kind, gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((look.names[1], us), (look.names[2], 1.1 * us)), us=16, gap=1,
                  dims=(y, x, weight), kind=card.kind)  # fmt: skip
        rt.accumulated()

    tape.append(backward)
    nbytes = card.size * prod(y)
    seen = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                 run=((look.norm.format("fw"), card.moves(3 * nbytes)),), dims=(y,), kind=card.kind)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", seen, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=card.kind, run=((look.norm.format("bw"), card.moves(5 * nbytes)),)))  # fmt: skip
    if relu:
        elementwise(rt, tape, card, "relu_", y, back=(("threshold_backward", 3),))
    return y


def judged_map(rt: Framed, tape: Tape, card: Card, size: list[int]) -> None:
    """`F.cross_entropy` of (batch, classes, height, width) in fp32."""
    n, seen = prod(size), prod(size) // size[1]
    soft, loss = NATIVE + "cunn_SpatialSoftMax{}<float, float, float, LogSoftMax{}Epilogue>(…)", "nll_loss2d_{}_kernel"
    number = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", graph=True, dims=(size,),
                   gap=14, run=((soft.format("Forward", "Forward"), card.moves(10 * n)),))  # fmt: skip
    chosen = rt.op("aten::nll_loss_nd", "aten::nll_loss2d", "aten::nll_loss2d_forward", graph=True, gap=3,
                   dims=(size, [size[0], *size[2:]]), run=(
                       (NATIVE + loss.format("forward") + "<float, long>(…)", card.moves(14 * seen)),))  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", number, "aten::_log_softmax_backward_data", dims=(size, size),
                                run=((soft.format("Backward", "Backward"), card.moves(14 * n)),)))  # fmt: skip
    tape.append(lambda: rt.grad("NllLoss2DBackward0", chosen, "aten::nll_loss2d_backward", dims=([], size), run=(
        (FILL, card.moves(4 * n)),
        (NATIVE + loss.format("backward") + "<float>(…)", card.moves(14 * seen)))))  # fmt: skip


def staged(rt: Framed, nbytes: int, rate: float, dims: list[int], kind: str = "float") -> None:
    """`.to(device, non_blocking=True)` of memory that is not pinned, GB/s: nothing synchronises after it, but the call
    itself returns only when the driver has taken all of it.
    """
    rt.host(9)
    with rt.span("aten::to", **inputs((dims,), kind)), rt.span("aten::_to_copy"):
        rt.op("aten::empty_strided", us=6, gap=0)
        with rt.span("aten::copy_", **inputs((dims, dims), kind)):
            place = len(rt.rows)
            end = rt.work("Memcpy HtoD (Pageable -> Device)", 1 + nbytes / rate / 1e3, category="gpu_memcpy",
                          call="MemcpyAsync", bytes=nbytes)  # fmt: skip
            rt.now = max(rt.now, end + 3)
            rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)


def tuned(rt: Framed, card: Card, x: list[int], tape: Tape | None, name: str = "elu") -> None:
    """An activation that reads and writes once, twice behind."""
    size = card.size * prod(x)
    number = rt.op(f"aten::{name}", run=((kernel(name, 2, card.kind), card.moves(2 * size)),), dims=(x,), gap=8,
                   kind=card.kind, graph=tape is not None)  # fmt: skip
    if tape is not None:
        tape.append(lambda: rt.grad(f"{name.title()}Backward0", number, f"aten::{name}_backward", dims=(x, x), run=(
            (kernel(f"{name}_backward", 3, card.kind), card.moves(3 * size)),), kind=card.kind))  # fmt: skip
