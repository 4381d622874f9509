"""Jobs of the twenty-third set whose host is too slow: derivatives of a small network, heads one after another."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..eleventh_set.rows import Roofline, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Tape, back, dense, fused_adamw, norm
from ..thirteenth_set.rows import as_graph
from ..twelfth_set.pictures import CUTLASS, small
from ..twelfth_set.rows import Framed
from .host import products

POINTS, WIDTH, LAYERS = (4_096, 512, 512), 96, 7
SGEMM = ("ampere_sgemm_32x128_tn", "ampere_sgemm_128x32_sliced1x4_nn")
A100 = Roofline(11, 1_450, "float", SGEMM, ("", ""))


def _forward(rt: Framed, tape: Tape, points: int) -> None:
    """The network: places and times to a field, tanh between layers."""
    small(rt, tape, ("cat",), [points, 3], 2.4)
    for number in range(LAYERS):
        dense(rt, tape, A100, 1, (points, WIDTH if number else 3, WIDTH))
        elementwise(rt, tape, A100, "tanh", [points, WIDTH], back=(("tanh_backward", 3),))
    dense(rt, tape, A100, 1, (points, WIDTH, 3))


def _derived(rt: Framed, tape: Tape, points: int, depth: int) -> None:
    """`torch.autograd.grad(..., create_graph=True)`: a backward pass that is itself on the tape."""
    small(rt, None, ("ones_like",), [points, 1], 2.2)
    us, size = A100.product(points, WIDTH, WIDTH), [points, WIDTH]
    with rt.backward():
        for _ in range(LAYERS):
            for title, names in (("AddmmBackward0", ("mm",) * depth), ("TanhBackward0", ("pow", "rsub", "mul")),
                                 *((("MulBackward0", ("mul", "mul")),) * (depth - 1))):  # fmt: skip
                rt.sequence += 1
                number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
                with node(rt, title, number):
                    for name in names:
                        run = ((A100.names[1] if name == "mm" else kernel(name, 2), us if name == "mm" else 2.4),)
                        rt.op(f"aten::{name}", run=run, dims=(size, size), gap=2, us=6, **args)
                tape.append(_second(rt, number, title, us))


def _second(rt: Framed, number: int, title: str, us: float) -> Callable[[], None]:
    def backward() -> None:
        product = title == "AddmmBackward0"
        with node(rt, "MmBackward0" if product else "MulBackward0", number):
            for _ in range(2):
                run = ((A100.names[1], us),) if product else ((kernel("mul", 3), 2.4),)
                rt.op("aten::mm" if product else "aten::mul", run=run, gap=1, us=6, dims=([1, WIDTH],))

    return backward


def _equations(rt: Framed) -> None:
    """Residuals within, on the walls and at the beginning, their sum and its gradients."""
    tape: Tape = []
    for place, points in enumerate(POINTS):
        _forward(rt, tape, points)
        if place == 0:
            for depth in (1, 1, 1, 2, 2):
                _derived(rt, tape, points, depth)
            small(rt, tape, ("mul", "add", "mul", "add", "sub", "mul", "sub") * 3, [points, 1], 2.3)
        small(rt, tape, ("sub", "pow", "mean"), [points, 3], 2.6)
    small(rt, tape, ("mul", "add", "mul", "add"), [], 2.2)
    back(rt, tape)


def pinn(rt: Framed, fixed: bool) -> None:
    """A physics-informed network, seven layers of 96, learns a flow's equations on an A100, 4,096 points that lie on
    the GPU: five derivatives by `autograd.grad(create_graph=True)`, so that a step is some 580 launches of kernels of
    a few µs; without: one CUDA graph of both passes. Adam goes by lists, the loss is printed each 100th step. Shapes.

    First: launches (CUDA graphs, `torch.compile`). Not: the loader, waits, TF32, the optimizer.
    """
    if fixed:
        as_graph(rt, _equations)
    else:
        _equations(rt)
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=160):
        for name in ("add_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"):
            foreach(rt, f"_foreach_{name}", "BinaryOpListAlphaFunctor", 3, 1, 34)
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=30):
        pass
    rt.host(120)


TEXTS, LENGTH, WIDE, HEADS, DEEP, LETTERS = 24, 256, 384, 6, 6, 65
H100 = Roofline(170, 2_600, "float", ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1",
                                      "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_warpgroupsize1x1x1"),
                CUTLASS)  # fmt: skip
MODULES = ("gpt.py(159): forward", "torch/nn/modules/container.py(250): forward")


def _head(rt: Framed, tape: Tape) -> None:
    """One head: its keys, queries and values, scores, a mask, softmax, dropout."""
    x, scores = [TEXTS, LENGTH, WIDE], [TEXTS, LENGTH, LENGTH]
    for _ in range(2):
        linear(rt, tape, H100, x, WIDE // HEADS)
    products(rt, tape, H100, (TEXTS, LENGTH, WIDE // HEADS, LENGTH))
    elementwise(rt, tape, H100, "mul", scores, back=(("mul", 2),))
    small(rt, None, ("eq",), [LENGTH, LENGTH], 2.2)
    elementwise(rt, tape, H100, "masked_fill", scores, back=(("masked_fill", 2),))
    for name in ("softmax", "dropout"):
        elementwise(rt, tape, H100, name, scores, back=((f"{name}_backward", 3),))
    linear(rt, tape, H100, x, WIDE // HEADS)
    products(rt, tape, H100, (TEXTS, LENGTH, LENGTH, WIDE // HEADS))


def _block(rt: Framed, tape: Tape) -> None:
    x, wide = [TEXTS, LENGTH, WIDE], [TEXTS, LENGTH, 4 * WIDE]
    norm(rt, tape, H100, x)
    with rt.frame("nn.Module: MultiHeadAttention_0", "gpt.py(98): forward", "gpt.py(98): <listcomp>"):
        for number in range(HEADS):
            with rt.frame(f"nn.Module: Head_{number}", "gpt.py(72): forward"):
                _head(rt, tape)
    small(rt, tape, ("cat",), x, H100.moves(8 * prod(x)))
    dense(rt, tape, H100, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
    for name, reads in (("dropout", 1), ("add", 2)):
        elementwise(rt, tape, H100, name, x, reads, back=(("mul", 3),) if reads == 1 else ())
    norm(rt, tape, H100, x)
    dense(rt, tape, H100, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
    elementwise(rt, tape, H100, "relu", wide, back=(("threshold_backward", 3),))
    dense(rt, tape, H100, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
    for name, reads in (("dropout", 1), ("add", 2)):
        elementwise(rt, tape, H100, name, x, reads, back=(("mul", 3),) if reads == 1 else ())


def headwise(rt: Framed, fixed: bool) -> None:
    """The small GPT of a well-known lecture, six layers of 384 on letters, on an H100, 24 texts of 256 in TF32: each of
    six heads is a module of its own with its own three products, scores, mask and softmax, so that some 1,000 kernels
    of a few µs are launched by a loop over heads; without: all heads at once by `scaled_dot_product_attention`. The
    batch is cut on the host and small. Stacks.

    First: launches (heads at once, `torch.compile`). Not: the loader, the batch's copies, TF32, the optimizer.
    """
    tape: Tape = []
    rt.host(180)
    for _ in range(2):
        with rt.frame("gpt.py(46): get_batch", "<method 'to' of 'torch._C.TensorBase' objects>"):
            rt.moved(TEXTS * LENGTH * 8, 3, [TEXTS, LENGTH], "long int")
    with rt.frame("gpt.py(217): <module>", "nn.Module: GPTLanguageModel_0", MODULES[0], "nn.Module: Sequential_0"):
        for size in ([LETTERS, WIDE], [LENGTH, WIDE]):
            rt.op("aten::embedding", run=((REDUCE, 5),), gap=14, dims=(size, [TEXTS, LENGTH]))
        small(rt, tape, ("add",), [TEXTS, LENGTH, WIDE], 6)
        for number in range(DEEP):
            with rt.frame(f"nn.Module: Block_{number}"):
                if fixed:
                    encoder(rt, tape, H100, (TEXTS, LENGTH, WIDE))
                else:
                    _block(rt, tape)
        norm(rt, tape, H100, [TEXTS, LENGTH, WIDE])
        dense(rt, tape, H100, TEXTS, (TEXTS * LENGTH, WIDE, LETTERS))
        small(rt, tape, ("log_softmax", "nll_loss"), [TEXTS * LENGTH, LETTERS], 4)
    with rt.frame("torch/_tensor.py(648): backward"):
        back(rt, tape)
    with rt.frame("torch/optim/optimizer.py(493): wrapper"):
        fused_adamw(rt, H100, 10.8e6)
    rt.host(150)
