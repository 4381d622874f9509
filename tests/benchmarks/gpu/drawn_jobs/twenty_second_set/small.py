"""Jobs of the twenty-second set whose host is too slow: a cell in a loop over time, norms of many small ops."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.language import llama, upcast_norm
from ..eleventh_set.rows import Roofline, elementwise, foreach, kernel, linear
from ..layers import REDUCE, Tape, back, fused_adamw
from ..tenth_set.jobs import H100
from ..thirteenth_set.rows import as_graph
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import TF32, small
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader

SEQUENCES, TIMES = 8, 10
LOOK = Look(Roofline(25, 1_450, "float", TF32, ("", "")), TF32_LOOK.names)
LAYERS = ((16, 32, 32), (32, 64, 16), (64, 64, 8))  # channels in and of the state, side


def _cell(rt: Framed, tape: Tape, sizes: tuple[int, int, int]) -> None:
    """A step of a ConvLSTM: one convolution of input and state, four gates."""
    cin, width, side = sizes
    state = [SEQUENCES, width, side, side]
    us = LOOK.card.moves(8 * prod(state) * (1 + cin / width))
    small(rt, tape, ("cat",), [SEQUENCES, cin + width, side, side], us)
    conv(rt, tape, LOOK, Conv(SEQUENCES, cin + width, 4 * width, 3, side, side))
    with rt.span("aten::split", us=6):
        pass
    for name in ("sigmoid", "sigmoid", "sigmoid", "tanh"):
        elementwise(rt, tape, LOOK.card, name, state, back=((f"{name}_backward", 3),))
    for name in ("mul", "mul", "add"):
        elementwise(rt, tape, LOOK.card, name, state, 2, (("mul", 3), ("mul", 3)) if name == "mul" else ())
    elementwise(rt, tape, LOOK.card, "tanh", state, back=(("tanh_backward", 3),))
    elementwise(rt, tape, LOOK.card, "mul", state, 2, (("mul", 3), ("mul", 3)))


def _foretold(rt: Framed) -> None:
    """Ten pictures are read, ten foretold, the loss and its gradients."""
    tape: Tape = []
    conv(rt, tape, LOOK, Conv(TIMES * SEQUENCES, 1, 16, 3, 32, 32))
    for way in (1, -1):
        for place, (cin, width, side) in enumerate(LAYERS[::way]):
            for _ in range(TIMES):
                _cell(rt, tape, (cin if way == 1 else width, width, side))
            size = [TIMES * SEQUENCES, width, side, side]
            small(rt, tape, ("stack", "leaky_relu"), size, LOOK.card.moves(8 * prod(size)))
            if place < 2:
                other = side // 2 if way == 1 else 2 * side
                conv(rt, tape, LOOK, Conv(TIMES * SEQUENCES, width, width, 3, other, other))
    conv(rt, tape, LOOK, Conv(TIMES * SEQUENCES, 32, 1, 3, 64, 64))
    small(rt, tape, ("sub", "pow", "mean"), [TIMES * SEQUENCES, 1, 64, 64], 5)
    back(rt, tape)


def nowcast(rt: Framed, fixed: bool) -> None:
    """An encoder and a forecaster of ConvLSTM cells for radar pictures on an A100, TF32, eight sequences of 10 and 10:
    a loop of Python goes over times and layers, 60 cells of eleven small kernels and three times as many behind them,
    which the GPU is done with sooner than they are launched; without: one CUDA graph of both passes. No rows of steps.

    First: launches in a loop (CUDA graphs, `torch.compile`). Not: the loader, waits, the optimizer, TF32.
    """
    loader(rt, 120)
    for _ in range(2):
        pinned(rt, SEQUENCES * TIMES * 64 * 64 * 4, [SEQUENCES, TIMES, 1, 64, 64])
    if fixed:
        as_graph(rt, _foretold)
    else:
        _foretold(rt)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 9)
    fused_adamw(rt, LOOK.card, 2.1e6)
    rt.host(160)


TEXTS, LENGTH, WIDE, HIDDEN, WORDS, PARAMETERS = 4, 1_024, 576, 1_536, 49_152, 135e6


def _passes(rt: Framed) -> None:
    """SmolLM2-135M as transformers has it, forward and backward."""
    tape, x = Tape(), [TEXTS, LENGTH, WIDE]
    rt.op("aten::embedding", run=((REDUCE, H100.moves(4 * prod(x))),), gap=14, dims=([WORDS, WIDE], x[:2]))
    small(rt, None, ("to", "bmm", "cat", "cos", "mul", "to", "sin", "mul", "to"), [TEXTS, LENGTH, 64], 2.4)
    for _ in range(30):
        llama(rt, tape, H100, (TEXTS, LENGTH, WIDE, 3, HIDDEN), upcast_norm)
    upcast_norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, WORDS)
    n = prod(x[:2]) * WORDS
    for name, us in (("log_softmax", H100.moves(4 * n)), ("nll_loss", 6)):
        number = rt.op(f"aten::{name}", run=((kernel(name, 2), us),), dims=([prod(x[:2]), WORDS],), graph=True, gap=14)
        title = name.title().replace("_", "") + "Backward0"
        tape.append(lambda number=number, title=title, us=us: rt.grad(title, number, run=((kernel("mul", 3), us),)))
    back(rt, tape)


def smol(rt: Framed, fixed: bool) -> None:
    """SmolLM2-135M, all weights in bf16, fine-tuned eagerly on an H100, four packed texts of 1,024: each RMSNorm is
    eight small ops with casts to fp32 and back, rotations five, so that some 2,600 launches a step keep the host busy
    and the GPU waits for most of them; without: one CUDA graph (`mode="reduce-overhead"`). AdamW is fused. No shapes.

    First: launches (`torch.compile`, fused norms). Not: the loader, waits, the optimizer, a larger batch, TF32.
    """
    loader(rt, 130)
    for _ in range(3):
        pinned(rt, TEXTS * LENGTH * 8, [TEXTS, LENGTH], "long int")
    if fixed:
        as_graph(rt, _passes)
    else:
        _passes(rt)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * PARAMETERS), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * PARAMETERS), 2)
    fused_adamw(rt, H100, PARAMETERS / 2)
    rt.host(240)
