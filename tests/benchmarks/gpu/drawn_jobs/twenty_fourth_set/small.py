"""Jobs of the twenty-fourth set whose host is too slow: short sentences a few at a time, a world's states in a loop."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import Roofline, foreach
from ..layers import Tape, attention, back, dense, fused_adamw, norm
from ..sixteenth_set.rows import without_graph
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import TF32, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twentieth_set.host import TURING
from .rows import acts, few, judged, products, recorded

PAIRS, WORDS, WIDE = 16, 32, 384


def _sentence(rt: Framed, tape: Tape) -> None:
    """all-MiniLM-L6: six layers of 384, a mean of words, its length made one."""
    x = [PAIRS, WORDS, WIDE]
    acts(rt, tape, TURING, "embedding embedding embedding add add", x)
    norm(rt, tape, TURING, x)
    acts(rt, tape, TURING, "dropout", x)
    for _ in range(6):
        for _ in range(3):
            casts(rt, TURING, [WIDE, WIDE])
            dense(rt, tape, TURING, PAIRS, (PAIRS * WORDS, WIDE, WIDE))
        attention(rt, tape, TURING, [PAIRS, 12, WORDS, 32])
        acts(rt, tape, TURING, "turn", x)
        casts(rt, TURING, [WIDE, WIDE])
        dense(rt, tape, TURING, PAIRS, (PAIRS * WORDS, WIDE, WIDE))
        acts(rt, tape, TURING, "dropout add", x)
        norm(rt, tape, TURING, x)
        casts(rt, TURING, [4 * WIDE, WIDE])
        dense(rt, tape, TURING, PAIRS, (PAIRS * WORDS, WIDE, 4 * WIDE))
        acts(rt, tape, TURING, "gelu", [*x[:2], 4 * WIDE])
        casts(rt, TURING, [WIDE, 4 * WIDE])
        dense(rt, tape, TURING, PAIRS, (PAIRS * WORDS, 4 * WIDE, WIDE))
        acts(rt, tape, TURING, "dropout add", x)
        norm(rt, tape, TURING, x)
    few(rt, "unsqueeze expand to", x, 2.4)
    acts(rt, tape, TURING, "mul sum", x)
    acts(rt, tape, TURING, "div pow sum div", [PAIRS, WIDE])


def _compared(rt: Framed) -> None:
    """Questions and answers, the loss between all, its gradients."""
    tape: Tape = []
    for _ in range(2):
        _sentence(rt, tape)
    products(rt, tape, TURING, (1, PAIRS, WIDE, PAIRS))
    acts(rt, tape, TURING, "scale", [PAIRS, PAIRS])
    judged(rt, tape, TURING, PAIRS, PAIRS)
    acts(rt, tape, TURING, "scale", [1])
    back(rt, tape)


def minilm(rt: Framed, fixed: bool) -> None:
    """all-MiniLM-L6 fine-tuned by sentence-transformers on a T4, autocast in fp16, 16 pairs of 32 words: some 660
    kernels a step, most of a few µs, take longer to launch than to run; without: a CUDA graph of both passes (or more
    pairs, which this loss likes besides). AdamW is fused, `GradScaler` waits once. Shapes.

    First: launches (a larger batch, `torch.compile`, graphs). Not: the loader, copies, TF32 or bf16, which a T4 has
    not, `GradScaler`'s wait.
    """
    loader(rt, 180)
    for _ in range(2):
        for _ in range(3):
            pinned(rt, 8 * PAIRS * WORDS, [PAIRS, WORDS], "long int")
    if fixed:
        recorded(rt, _compared, 1)
    else:
        _compared(rt)
    unscaled(rt, TURING, 22.7e6)
    foreach(rt, "_foreach_norm", "LpNormFunctor", TURING.moves(4 * 22.7e6), 1, 60)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", TURING.moves(8 * 22.7e6), 1, 60)
    fused_adamw(rt, TURING, 22.7e6)
    rt.host(310)


LIVES, TIMES, AHEAD, STATE, CHOICES, HIDDEN = 16, 50, 15, 512, 32, 512
ADA = Roofline(55, 860, "float", TF32, ("", ""))
NARROW = Roofline(11, 860, "float", ("cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4",
                                     "cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4"), ("", ""))  # fmt: skip
LOOK = Look(replace(ADA, tflops=48), TF32_LOOK.names)


def _cell(rt: Framed, tape: Tape, rows: int, *, seen: bool) -> None:
    """A step of DreamerV3's RSSM: a GRU with a norm, what it expects, what it sees, 32 classes."""
    state, drawn = [rows, STATE], [rows, 32, CHOICES]
    acts(rt, tape, NARROW, "mul mul cat", [rows, 1_024])
    dense(rt, tape, NARROW, 1, (rows, 1_030, HIDDEN))
    norm(rt, tape, NARROW, [rows, HIDDEN])
    acts(rt, tape, NARROW, "silu cat", [rows, HIDDEN])
    dense(rt, tape, NARROW, 1, (rows, HIDDEN + STATE, 3 * STATE))
    norm(rt, tape, NARROW, [rows, 3 * STATE])
    with rt.span("aten::split", us=5):
        pass
    acts(rt, tape, NARROW, "sigmoid mul tanh add sigmoid mul sub mul add", state)
    for _ in range(2 if seen else 1):
        dense(rt, tape, NARROW, 1, (rows, STATE, HIDDEN))
        norm(rt, tape, NARROW, [rows, HIDDEN])
        acts(rt, tape, NARROW, "silu", [rows, HIDDEN])
        dense(rt, tape, NARROW, 1, (rows, HIDDEN, 32 * CHOICES))
        acts(rt, tape, NARROW, "softmax scale add log", drawn)
        few(rt, "sum div multinomial scatter_", drawn, 3)
        acts(rt, tape, NARROW, "sub add", drawn)


def _world(rt: Framed) -> None:
    """The model of the world learns from what was lived."""
    tape, count = Tape(), LIVES * TIMES
    acts(rt, None, ADA, "div sub", [count, 3, 64, 64])
    for cin, out, side in ((3, 32, 32), (32, 64, 16), (64, 128, 8), (128, 256, 4)):
        conv(rt, tape, LOOK, Conv(count, cin, out, 4, side, side))
        norm(rt, tape, ADA, [count, side, side, out])
        acts(rt, tape, ADA, "silu", [count, out, side, side])
    for _ in range(TIMES):
        _cell(rt, tape, LIVES, seen=True)
    acts(rt, tape, ADA, "stack stack stack", [count, 1_024])
    dense(rt, tape, ADA, 1, (count, 1_536, 4_096))
    for cin, out, side in ((256, 128, 8), (128, 64, 16), (64, 32, 32), (32, 3, 64)):
        conv(rt, tape, LOOK, Conv(count, cin, out, 4, side, side))
        norm(rt, tape, ADA, [count, side, side, out])
        acts(rt, tape, ADA, "silu", [count, out, side, side])
    acts(rt, tape, ADA, "sub pow sum mean", [count, 3, 64, 64])
    for _ in range(2):
        for _ in range(2):
            dense(rt, tape, ADA, 1, (count, HIDDEN, HIDDEN))
            acts(rt, tape, ADA, "silu", [count, HIDDEN])
        acts(rt, tape, ADA, "softmax log mul sum mean", [count, 255])
    acts(rt, tape, ADA, "softmax log sub mul sum mean scale add", [count, 32, CHOICES])
    back(rt, tape)


def _dreamt(rt: Framed) -> None:
    """The actor and the critic learn from what is dreamt, from each state some steps ahead."""
    tape, rows = Tape(), LIVES * TIMES
    for _ in range(AHEAD):
        for _ in range(2):
            dense(rt, tape, ADA, 1, (rows, 1_536, HIDDEN))
            acts(rt, tape, ADA, "silu", [rows, HIDDEN])
        few(rt, "softmax multinomial scatter_", [rows, 18], 3)
        with without_graph(rt):
            _cell(rt, [], rows, seen=False)
    acts(rt, tape, ADA, "stack", [AHEAD * rows, 1_536])
    for _ in range(3):
        dense(rt, tape, ADA, 1, (AHEAD * rows, 1_536, HIDDEN))
        acts(rt, tape, ADA, "silu", [AHEAD * rows, HIDDEN])
    for _ in range(AHEAD):
        few(rt, "mul add mul add", [rows, 1], 2.3)
    acts(rt, tape, ADA, "stack sub mul mean add", [AHEAD * rows, 1])
    back(rt, tape)


def _updated(rt: Framed, parameters: float) -> None:
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(4 * parameters), 1, 70)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA.moves(8 * parameters), 1, 60)
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=160):
        rt.op("aten::_fused_adam_", us=70, run=(("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
              "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ORIGINAL, false>>",
              ADA.moves(28 * parameters)),))  # fmt: skip


def dreamer(rt: Framed, fixed: bool) -> None:
    """DreamerV3 on an RTX 4090, TF32, 16 lives of 50 steps: a loop of Python takes the states one after another, some
    45 kernels of a few µs each time, and twice as many behind it, which the GPU is done with sooner than they are
    launched; then dreams of 800 states, 15 steps ahead; without: a CUDA graph of each part. Batches come from the
    buffer's thread, pinned; Adam is fused, nothing is read. No shapes, no rows of steps.

    First: launches in a loop over time (graphs, `torch.compile`). Not: the loader, waits, copies, TF32, the optimizer.
    """
    rt.host(210)
    for size, width in (([LIVES, TIMES, 64, 64, 3], 1), ([LIVES, TIMES, 18], 4), ([LIVES, TIMES], 4)):
        pinned(rt, width * prod(size), size, "unsigned char" if width == 1 else "float")
    for part, (job, parameters) in enumerate(((_world, 17e6), (_dreamt, 4e6))):
        if fixed:
            recorded(rt, job, part + 1)
        else:
            job(rt)
        _updated(rt, parameters)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", ADA.moves(12 * 2e6))
    rt.host(240)
