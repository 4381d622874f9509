"""Jobs of the eighteenth set whose fault is work of the device: a teacher's gradients, bases that are found anew."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eleventh_set.language import SOFTMAX, fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, kernel, linear, node
from ..layers import REDUCE, Card, Tape, back, fused_adamw
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Framed

TEXTS, LENGTH, CLASSES = 8, 1_024, 151_936
TEACHER, STUDENT = (28, (TEXTS, LENGTH, 1_536, 2, 8_960)), (24, (TEXTS, LENGTH, 896, 2, 4_864))


def _summed(rt: Framed, card: Card, sizes: tuple[list[int], ...]) -> None:
    """Gradients of the step before are still there: those of this one are added."""
    for dims in sizes:
        name = "torch::autograd::AccumulateGrad"
        with rt.span(f"autograd::engine::evaluate_function: {name}", us=3), rt.span(name, us=2):
            run = ((kernel("add_", 3, BF16), card.moves(6 * prod(dims))),)
            rt.op("aten::add_", run=run, dims=(dims, dims), kind=BF16, gap=1, us=3)


def _model(rt: Framed, tape: Tape, of: tuple[int, tuple[int, int, int, int, int]], *, kept: bool = False) -> None:
    """kept: whether its gradients are added to those of the step before."""
    deep, sizes = of
    width, hidden = sizes[2], sizes[4]
    weights = ([width, width], [256, width], [256, width], [width, width], [hidden, width], [hidden, width],
               [width, hidden])  # fmt: skip
    for _ in range(deep):
        if kept:
            tape.append(lambda: _summed(rt, MI300X, weights))
        llama(rt, tape, MI300X, sizes, fused_norm)
    fused_norm(rt, tape, MI300X, [TEXTS, LENGTH, width])
    if kept:
        tape.append(lambda: _summed(rt, MI300X, ([CLASSES, width],)))
    linear(rt, tape, MI300X, [TEXTS, LENGTH, width], CLASSES)


def _softmax(rt: Framed, tape: Tape, kind: str) -> None:
    """In fp32 of logits in bf16."""
    dims, wide = [TEXTS, LENGTH, CLASSES], replace(MI300X, kind="float")
    name, epilogue = f"aten::{kind}", "LogSoftMax" if kind == "log_softmax" else "SoftMax"
    kernels = [kept.replace("LogSoftMax", epilogue).replace("<4, float", "<8, c10::BFloat16") for kept in SOFTMAX]
    us = wide.moves(6 * prod(dims))
    number = rt.op(name, name.replace("::", "::_"), graph=True, dims=(dims,), kind=BF16, gap=10,
                   run=((kernels[0], us),))  # fmt: skip
    title = {"softmax": "SoftmaxBackward0", "log_softmax": "LogSoftmaxBackward0"}[kind]
    tape.append(lambda: rt.grad(title, number, name.replace("::", "::_") + "_backward_data", dims=(dims, dims),
                                run=((kernels[1], wide.moves(10 * prod(dims))),)))  # fmt: skip


def distilled(rt: Framed, fixed: bool) -> None:
    """Qwen2.5-0.5B learns from Qwen2.5-1.5B on an MI300X: the teacher has a graph, so that the backward pass goes
    through it, and gradients that no optimizer knows are added up; without: the teacher runs under `no_grad()`. No
    shapes. Divergence over whole distributions is of the method.
    """
    tape, taught = Tape(), Tape()
    dims = [TEXTS, LENGTH, CLASSES]
    rt.batch(TEXTS * LENGTH * 8, TEXTS * LENGTH * 8, TEXTS * LENGTH * 8)
    if fixed:
        with without_graph(rt):
            _model(rt, [], TEACHER)
            _softmax(rt, [], "softmax")
    else:
        _model(rt, taught, TEACHER, kept=True)
        _softmax(rt, taught, "softmax")
    _model(rt, tape, STUDENT)
    _softmax(rt, tape, "log_softmax")
    us = MI300X.moves(4 * prod(dims))
    number = rt.op("aten::kl_div", run=((kernel("xlogy", 3), 3 * us), (kernel("sub", 3), 3 * us)), graph=True, gap=16,
                   dims=(dims, dims))  # fmt: skip
    seen = rt.op("aten::sum", run=((REDUCE, us),), dims=(dims,), graph=True, gap=10)
    rt.op("aten::div", run=((kernel("div", 2), 2.4),), dims=([],), gap=10)
    with rt.backward():
        rt.grad("SumBackward0", seen, "aten::expand", us=4)
        with node(rt, "KlDivBackward0", number):
            for name, passes in (("neg", 2), ("mul", 3), *((("log", 2), ("add", 2), ("sub", 3), ("mul", 3))
                                                           if not fixed else ())):  # fmt: skip
                rt.op(f"aten::{name}", run=((kernel(name, passes), passes * us),), dims=(dims,) * (passes - 1), gap=1)
        while tape:
            tape.pop()()
        rt.accumulated = lambda: None  # type: ignore[method-assign]  # `_summed` has them
        while taught:
            taught.pop()()
        rt.__dict__.pop("accumulated")
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2 * 0.494e9), 2)
    fused_adamw(rt, MI300X, 0.494e9 / 2)
    rt.host(320)


DEEP, SIZE, TEXT = 12, 768, (24, 1_024)
MATRICES = ([3 * SIZE, SIZE], [SIZE, SIZE], [4 * SIZE, SIZE], [SIZE, 4 * SIZE])
SINGLE = replace(A100, kind="float", tflops=60, names=TF32)
PANELS = (("void geqr2_smem_domino_kernel<float, 6>(int, int, float*, int, float*, …)", 205.0),
          ("void larft_gemv_kernel<float, 128>(int, float const*, long, float*, …)", 33.0),
          ("cutlass_80_simt_sgemm_64x64_8x5_tn_align1", 38.0),
          ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", 49.0))  # fmt: skip


def _based(rt: Framed) -> None:
    """A step of power iteration and a QR decomposition, of one side of a matrix."""
    once = SINGLE.product(SIZE, SIZE, SIZE)
    for name in ("mm", "mm", "diag", "argsort", "index", "index", "mm"):
        run = ((SINGLE.names[0], once),) if name == "mm" else ((kernel(name, 2), 3.4),)
        rt.op(f"aten::{name}", run=run, dims=([SIZE, SIZE],) * 2, gap=13, us=6)
    rt.host(20)
    with rt.span("aten::linalg_qr", us=34):
        for panel in range(5):
            for name, us in PANELS:
                rt.work(name, us * (1 - 0.13 * panel))
        for panel in range(4):
            for name, us in PANELS[1:]:
                rt.work(name.replace("larft", "orgqr"), us * (1 - 0.13 * panel))
        rt.op("aten::triu", run=((kernel("triu", 2), 4.6),), dims=([SIZE, SIZE],), gap=2)


def _soap(rt: Framed, dims: list[int], anew: bool) -> None:
    """SOAP's update of a matrix: only sides of no more than 1,024 have a basis."""
    rows, columns = dims
    sides, once = [side for side in dims if side == SIZE], SINGLE.moves(4 * prod(dims))
    us = max(SINGLE.product(rows, columns, SIZE), 3 * once)
    for _ in sides:  # moments of gradients, then gradients in the basis
        rt.op("aten::tensordot", "aten::mm", run=((SINGLE.names[1], us),), dims=(dims, dims), gap=26, us=9)
        rt.op(
            "aten::lerp_", run=((kernel("lerp_", 3), SINGLE.moves(12 * SIZE * SIZE)),), dims=([SIZE, SIZE],) * 2, gap=12
        )
        rt.op("aten::tensordot", "aten::mm", run=((SINGLE.names[0], us),), dims=(dims, [SIZE, SIZE]), gap=26, us=9)
    for name, passes in (("mul_", 2), ("add_", 3), ("mul_", 2), ("addcmul_", 3), ("sqrt", 2), ("add_", 2), ("div", 3)):
        rt.op(f"aten::{name}", run=((kernel(name, passes), passes * once),), dims=(dims,) * (passes - 1), gap=12, us=5)
    for _ in sides:
        rt.op("aten::tensordot", "aten::mm", run=((SINGLE.names[0], us),), dims=(dims, [SIZE, SIZE]), gap=26, us=9)
    rt.op("aten::add_", run=((kernel("add_", 3), 3 * once),), dims=(dims, dims), gap=12, us=5)
    for _ in sides if anew else ():
        _based(rt)


def soaped(rt: Framed, fixed: bool) -> None:
    """GPT-2 with SOAP on an A100, `precondition_frequency=1`: a basis of each side of each matrix is found anew in each
    step, by QR; without: in each fifth, as one of those recorded is.
    """
    tape, x = Tape(), [*TEXT, SIZE]
    rt.batch(prod(TEXT) * 8, prod(TEXT) * 8)
    for _ in range(DEEP):
        llama(rt, tape, A100, (*TEXT, SIZE, 12, 2_048), fused_norm)
    fused_norm(rt, tape, A100, x)
    linear(rt, tape, A100, x, 50_304)
    elementwise(rt, tape, A100, "div", [*TEXT, 1], back=(("mul", 2),))
    compiled_loss(rt, tape, A100, prod(TEXT), 50_304)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 124e6), 2)
    with rt.span("Optimizer.step#SOAP.step", "user_annotation", us=220):
        for _ in range(DEEP):
            for dims in MATRICES:
                rt.host(60)
                _soap(rt, dims, not fixed or rt.number % 5 == 4)
    fused_adamw(rt, A100, 39e6)  # embeddings and norms
    rt.host(300)
