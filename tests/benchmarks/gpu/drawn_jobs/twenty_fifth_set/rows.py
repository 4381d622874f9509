"""What the twenty-fifth set's jobs share: group norms, volumes, Adam by lists, an average parameter by parameter."""

from __future__ import annotations

from math import prod

from ..eleventh_set.rows import FOREACH, foreach, kernel, node
from ..layers import Card, Tape
from ..twelfth_set.rows import Framed, Look
from ..twenty_fourth_set.rows import NATIVE

MOMENTS = NATIVE + "RowwiseMomentsCUDAKernel<{}>(long, float, {} const*, float*, float*)"


def group_norm(rt: Framed, tape: Tape | None, card: Card, size: list[int], name: str = "group_norm") -> None:
    """`nn.GroupNorm`: moments, then what is made of them."""
    once = card.moves(card.size * prod(size))
    moments = MOMENTS.format(card.kind, card.kind)
    number = rt.op(f"aten::{name}", f"aten::native_{name}", dims=(size,), graph=tape is not None, gap=15,
                   kind=card.kind, run=((moments, once), (kernel(name, 2, card.kind), 2 * once)))  # fmt: skip
    if tape is not None:
        run = ((moments.replace("RowwiseMoments", "ComputeInternalGradients"), 2 * once),
               (kernel(f"{name}_backward", 3, card.kind), 3 * once))  # fmt: skip
        tape.append(lambda: rt.grad("NativeGroupNormBackward0", number, f"aten::native_{name}_backward", run=run,
                                    dims=(size, size), kind=card.kind))  # fmt: skip


def volume(rt: Framed, tape: Tape, look: Look, x: list[int], cout: int, side: int = 3, stride: int = 1) -> list[int]:
    """`nn.Conv3d` of (batch, channels, …); returns the size of its output."""
    batch, cin, *size = x
    y, weight = [batch, cout, *(one // stride for one in size)], [cout, cin, side, side, side]
    area, card = prod(y) // cout, look.card
    us = max(2 * area * cin * cout * side**3 / card.tflops / 1e6,
             card.moves(card.size * area * (cin * stride**3 + cout)))  # fmt: skip
    number = rt.op("aten::conv3d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((look.names[0], us),), dims=(x, weight), kind=card.kind, gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((look.names[1], us), (look.names[2], 1.1 * us)), us=16, gap=1,
                  dims=(y, x, weight), kind=card.kind)  # fmt: skip
        rt.accumulated()

    tape.append(backward)
    return y


def adam(rt: Framed, card: Card, parameters: float, name: str = "AdamW", parts: int = 2) -> None:
    """Adam as it is by default: lists (`foreach=True`)."""
    with rt.span(f"Optimizer.step#{name}.step", "user_annotation", us=320):
        rt.op("aten::_foreach_add_", us=90, gap=40)  # steps, which lie on the host
        for op, functor, passes in (("mul_", "BinaryOpScalarFunctor", 2), ("lerp_", "TernaryOpScalarFunctor", 3),
                                    ("mul_", "BinaryOpScalarFunctor", 2), ("addcmul_", "PointwiseOpScalarFunctor", 4),
                                    ("sqrt", "UnaryOpFunctor", 2), ("div_", "BinaryOpScalarListFunctor", 2),
                                    ("add_", "BinaryOpScalarFunctor", 2),
                                    ("addcdiv_", "PointwiseOpScalarListFunctor", 4)):  # fmt: skip
            foreach(rt, f"_foreach_{op}", functor, card.moves(4 * passes * parameters), parts, 110)
    with rt.span(f"Optimizer.zero_grad#{name}.zero_grad", "user_annotation", us=70):
        pass


def clipped(rt: Framed, card: Card, parameters: float, parts: int = 1, nbytes: int = 4) -> None:
    """`clip_grad_norm_` by lists, which reads nothing."""
    norms = FOREACH.format(1, "LpNormFunctor", 1, "NormType::L2")
    us = card.moves(nbytes * parameters)
    rt.op("aten::_foreach_norm", run=((norms, us / parts),) * parts, us=90, gap=30)
    rt.op("aten::stack", "aten::cat", run=((NATIVE + "CatArrayBatchedCopy<float, unsigned int, 1, 64, 64>(…)", 3.1),),
          gap=9)  # fmt: skip
    rt.op("aten::linalg_vector_norm", run=(("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
                                            "at::native::NormTwoOps<float, float, float>>>", 4),), gap=8)  # fmt: skip
    for name in ("add", "reciprocal", "mul", "clamp"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 2.2),), dims=([],), gap=6)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", 2 * us, parts, 80)


def averaged(rt: Framed, card: Card, sizes: list[list[int]]) -> None:
    """A moving average in a loop over parameters: `ema.mul_(decay).add_(param.data, alpha=1 - decay)`."""
    for size in sizes:
        rt.host(4)
        for name, passes in (("mul_", 2), ("add_", 3)):
            run = ((kernel(name, passes), card.moves(4 * passes * prod(size))),)
            rt.op(f"aten::{name}", run=run, dims=(size, size)[: passes - 1], gap=3, us=4)
