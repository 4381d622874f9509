"""Jobs of the twenty-eighth set whose host is too slow: splines of many small ops, a batch in eight small parts."""

from __future__ import annotations

from itertools import pairwise

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import Roofline, kernel
from ..layers import Tape, back, block, dense, fused_adamw, norm
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import CUTLASS, TF32
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged, recorded

ROWS, WIDTHS, BASES, ORDER = 3_840, (24, 48, 48, 48, 1), 8, 3
RTX4090 = Roofline(45, 900, "float", TF32, CUTLASS)


def _splines(rt: Framed, tape: Tape, wide: int) -> None:
    """`b_splines`: intervals of a grid, then order by order of those before."""
    few(rt, "unsqueeze ge lt bitwise_and to", [ROWS, wide, BASES + ORDER], 2.6)
    for order in range(1, ORDER + 1):
        size, knots = [ROWS, wide, BASES + ORDER - order], [wide, BASES + 2 * ORDER - order]
        few(rt, "slice slice", knots, gap=3)
        acts(rt, tape, RTX4090, "sub", size)
        few(rt, "slice slice sub", knots, gap=3)
        acts(rt, tape, RTX4090, "div mul", size)
        few(rt, "slice", knots, gap=3)
        acts(rt, tape, RTX4090, "sub", size)
        few(rt, "slice slice sub", knots, gap=3)
        acts(rt, tape, RTX4090, "div mul add", size)
    acts(rt, tape, RTX4090, "turn", [ROWS, wide, BASES])


def _layer(rt: Framed, tape: Tape, wide: int, out: int) -> None:
    """`KANLinear`: a linear layer of SiLU, and one of splines whose weights are scaled."""
    acts(rt, tape, RTX4090, "silu", [ROWS, wide])
    dense(rt, tape, RTX4090, 1, (ROWS, wide, out))
    _splines(rt, tape, wide)
    acts(rt, tape, RTX4090, "mul", [out, wide, BASES])
    dense(rt, tape, RTX4090, 1, (ROWS, wide * BASES, out))
    acts(rt, tape, RTX4090, "add", [ROWS, out])


def _passes(rt: Framed) -> None:
    """Both passes, with what `regularization_loss` asks of each layer."""
    tape = Tape()
    for wide, out in pairwise(WIDTHS):
        _layer(rt, tape, wide, out)
    acts(rt, tape, RTX4090, "sub pow mean", [ROWS, 1])
    for wide, out in pairwise(WIDTHS):
        acts(rt, tape, RTX4090, "abs mean", [out, wide, BASES])
        acts(rt, tape, RTX4090, "sum div log mul sum scale add", [out, wide])
    acts(rt, tape, RTX4090, "scale add", [1])
    back(rt, tape)


def kan(rt: Framed, fixed: bool) -> None:
    """A Kolmogorov-Arnold network (efficient-kan) of four layers learns a simulator's tables on an RTX 4090, 3,840 rows
    a step: splines are some forty small ops a layer and as many behind, which take longer to launch than to run;
    without: a CUDA graph of both passes (`torch.compile` would help as well). Rows come pinned, AdamW by lists, the
    loss is summed on the GPU. Shapes, no rows of steps.

    First: launches (compile, graphs, larger batches). Not: the loader, copies, waits, TF32, precision.
    """
    loader(rt, 130)
    pinned(rt, 4 * ROWS * WIDTHS[0], [ROWS, WIDTHS[0]])
    pinned(rt, 4 * ROWS, [ROWS, 1])
    if fixed:
        recorded(rt, _passes, 1)
    else:
        _passes(rt)
    adam(rt, RTX4090, 7e4, "AdamW", 1)
    few(rt, "add_", [1])
    rt.host(160)


TEXTS, LENGTH, WIDE, PARTS, KINDS = 32, 384, 768, 8, 77


class Summed(Framed):
    """adds: how long it takes to add a gradient to one that is there, µs; 0 if none is."""

    adds = 0.0

    def accumulated(self) -> None:
        """A gradient that becomes `.grad`, or is added to it."""
        if not self.adds:
            super().accumulated()
            return
        name = "torch::autograd::AccumulateGrad"
        node = f"autograd::engine::evaluate_function: {name}"
        with self.span(node, us=3), self.span(name, us=2):
            self.op("aten::add_", run=((kernel("add_", 2), self.adds),), gap=1)


def micro(rt: Summed, fixed: bool) -> None:
    """RoBERTa-base learns 77 kinds of questions of a bank by Accelerate on an A100, autocast in bf16, 32 texts of 384 a
    step: `per_device_train_batch_size` of four and `gradient_accumulation_steps` of eight came from a script for a
    small card, each part's kernels take a few µs, and all is launched eight times; without: 32 texts at once. Fused
    AdamW, clipped by lists, the loss is summed on the GPU. Shapes.

    First: launches (larger parts instead of accumulation; compile). Not: the loader, copies, waits, casts of weights,
    the optimizer, attention.
    """
    parts = 1 if fixed else PARTS
    rows = TEXTS // parts
    x = [rows, LENGTH, WIDE]
    for part in range(parts):
        tape, rt.adds = Tape(), 6.0 if part else 0.0
        loader(rt, 120)
        for _ in range(2):
            pinned(rt, 8 * rows * LENGTH, x[:2], "long int")
        pinned(rt, 8 * rows, x[:1], "long int")
        few(rt, "ne to cumsum mul add", x[:2])
        acts(rt, tape, A100, "embedding embedding add embedding add", x)
        norm(rt, tape, A100, x)
        acts(rt, tape, A100, "dropout", x)
        for _ in range(12):
            casts(rt, A100, *[[WIDE, WIDE]] * 4, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
            block(rt, tape, A100, rows, LENGTH, WIDE)
        casts(rt, A100, [WIDE, WIDE], [KINDS, WIDE])
        dense(rt, tape, A100, rows, (rows, WIDE, WIDE))
        acts(rt, tape, A100, "tanh dropout", [rows, WIDE])
        dense(rt, tape, A100, rows, (rows, WIDE, KINDS))
        judged(rt, tape, A100, rows, KINDS)
        if not fixed:
            acts(rt, tape, A100, "scale", [1])
        back(rt, tape)
        few(rt, "detach add_", [1])
        rt.host(90)
    clipped(rt, A100, 124.7e6)
    fused_adamw(rt, A100, 124.7e6)
    rt.host(260)
