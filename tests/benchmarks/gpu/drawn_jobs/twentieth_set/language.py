"""Language models of the twentieth set: a head of an odd size, kernels that are tuned anew for each length."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.language import fused_norm
from ..eleventh_set.rows import FILL, elementwise, foreach, linear, node
from ..layers import CAST, REDUCE, Tape, attention, back, dense, fused_adamw, norm, pointwise
from ..seventeenth_set.rows import compiled_loss, linear_loss, triton
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Framed, loader

TEXTS, LENGTH, WIDE, DEEP, ODD, EVEN = 16, 1_024, 1_024, 24, 50_257, 50_304
UNALIGNED = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align1>(…::Params)",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nn_align1>(…::Params)",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nt_align1>(…::Params)",
)


def _odd_head(rt: Framed, tape: Tape) -> None:
    """`lm_head` of 50,257 classes: rows of logits start at odd addresses, so that elements are loaded one by one."""
    tokens = TEXTS * LENGTH
    us = A100.product(tokens, ODD, WIDE)
    rt.host(12)
    with rt.span("aten::linear", us=7):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        number = rt.op("aten::matmul", "aten::mm", run=((UNALIGNED[0], 1.7 * us),), gap=0, graph=True, us=6,
                       dims=([tokens, WIDE], [WIDE, ODD]), kind=BF16)  # fmt: skip

    def backward() -> None:
        with node(rt, "MmBackward0", number):
            rt.op("aten::mm", run=((UNALIGNED[2], 2.9 * us),), gap=1, us=8, kind=BF16,
                  dims=([ODD, tokens], [tokens, WIDE]))  # fmt: skip
            rt.op("aten::mm", run=((UNALIGNED[1], 2.7 * us),), gap=1, us=8, kind=BF16,
                  dims=([tokens, ODD], [ODD, WIDE]))  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def odd_vocab(rt: Framed, fixed: bool) -> None:
    """GPT-2 medium from scratch on an A100 by autocast in bf16, 16 texts of 1,024: the head has the tokenizer's 50,257
    classes, its three products go by kernels that load elements one by one (`align1`); without: 50,304 classes, with
    `pad_to_multiple_of=64`. The loss is compiled, the optimizer fused. Shapes.

    First: slow products of the head for their odd size. Not: launches, a loader, the batch, TF32 or bf16, which it has,
    the loss.
    """
    tape, x = Tape(), [TEXTS, LENGTH, WIDE]
    loader(rt, 140)
    for _ in range(2):
        pinned(rt, TEXTS * LENGTH * 8, x[:2], "long int")
    for size in ([ODD, WIDE], [LENGTH, WIDE]):
        rt.op("aten::embedding", run=((REDUCE, A100.moves(6 * prod(x))),), gap=14, dims=(size, x[:2]))
    for _ in range(DEEP):
        norm(rt, tape, A100, x)
        casts(rt, A100, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
        dense(rt, tape, A100, TEXTS, (TEXTS * LENGTH, WIDE, 3 * WIDE))
        attention(rt, tape, A100, [TEXTS, WIDE // 64, LENGTH, 64])
        dense(rt, tape, A100, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
        pointwise(rt, tape, A100, "add", x, reads=2)
        norm(rt, tape, A100, x)
        dense(rt, tape, A100, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
        elementwise(rt, tape, A100, "gelu", [*x[:2], 4 * WIDE], back=(("gelu_backward", 3),))
        dense(rt, tape, A100, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
        pointwise(rt, tape, A100, "add", x, reads=2)
    norm(rt, tape, A100, x)
    casts(rt, A100, [EVEN if fixed else ODD, WIDE])
    if fixed:
        linear(rt, tape, A100, x, EVEN)
    else:
        _odd_head(rt, tape)
    compiled_loss(rt, tape, A100, TEXTS * LENGTH, EVEN if fixed else ODD)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 355e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 355e6), 2)
    fused_adamw(rt, A100, 355e6)
    rt.host(420)


PACKED, GATED, LAYERS, HIDDEN, KEYS = (49_152, 49_152, 47_104, 49_152, 45_056), 2_048, 12, 5_632, 151_936
TUNED = (("causal_conv1d_fwd_kernel", 2.0), ("causal_conv1d_bwd_kernel", 3.4))
CONFIGS, EVICTED = (1.0, 1.12, 1.35, 1.9), 256e6


def _tuned(rt: Framed, name: str, us: float) -> None:
    """`triton.autotune` by `do_bench`: each form runs for 25 ms, then for 100 ms with the cache emptied before each."""
    for form in CONFIGS:
        rt.host(900)
        for repeats, cleared in ((5, True), (round(12_000 / us), False), (round(44_000 / us), True)):
            for _ in range(repeats):
                if cleared:
                    rt.op("aten::zero_", "aten::fill_", us=2, gap=2, run=((
                        FILL.replace("float", "int"), H100.moves(EVICTED)),), dims=([64_000_000],),
                          kind="int")  # fmt: skip
                    rt.call("EventRecord", 1)
                rt.host(3)
                triton(rt, name, us * form)
                if cleared:
                    rt.call("EventRecord", 1)
            if repeats == 5 or not cleared:
                continue
            rt.wait()
        rt.host(300)


def _convolved(rt: Framed, tape: Tape, x: list[int], fresh: set[str]) -> None:
    """`causal_conv1d` by Triton of packed texts;  fresh: kernels that this length has not tuned yet."""
    once = H100.moves(2 * prod(x))
    rt.host(40)
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}

    def run(name: str, passes: float) -> None:
        if name in fresh:
            fresh.discard(name)
            _tuned(rt, name, passes * once)
        triton(rt, name, passes * once)

    with rt.span("CausalConv1dFunction", us=30, **args):
        run(*TUNED[0])

    def backward() -> None:
        with node(rt, "CausalConv1dFunctionBackward", number):
            run(*TUNED[1])

    tape.append(backward)


def _delta(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`chunk_gated_delta_rule`: its kernels, forward and backward."""
    once = H100.moves(2 * prod(x))
    names = ("chunk_local_cumsum_scalar_kernel", "chunk_scaled_dot_kkt_fwd_kernel", "solve_tril_16x16_kernel",
             "recompute_w_u_fwd_kernel", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
             "chunk_fwd_kernel_o")  # fmt: skip
    passes = (0.1, 2.2, 0.8, 4.0, 9.0, 6.0)
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    rt.host(60)
    with rt.span("ChunkGatedDeltaRuleFunction", us=70, **args):
        for name, count in zip(names, passes, strict=True):
            triton(rt, name, count * once)

    def backward() -> None:
        with node(rt, "ChunkGatedDeltaRuleFunctionBackward", number):
            for name, count in zip(reversed(names), reversed(passes), strict=True):
                triton(rt, name.replace("fwd", "bwd"), 2.1 * count * once)

    tape.append(backward)


def autotuned(rt: Framed, fixed: bool) -> None:
    """Gated DeltaNet of flash-linear-attention, 12 layers, on an H100: texts are packed, so that their tokens differ
    from step to step, and both kernels of `causal_conv1d` are tuned anew for each number not yet seen: two of five
    steps run four forms of each a hundred times; without: tokens are padded to one number. No shapes.

    First: kernels that are tuned again and again (what the autotuner runs, its waits), in steps that take far longer.
    Not: a loader, the batch, the fill of its cache by itself, CUDA graphs, workers.
    """
    tokens = PACKED[0] if fixed else PACKED[rt.number % len(PACKED)]
    fresh = {name for name, _ in TUNED} if tokens not in PACKED[:1] else set()
    tape, x = Tape(), [1, tokens, GATED]
    loader(rt, 150)
    for size in ([1, tokens], [1, tokens], [65]):
        pinned(rt, prod(size) * 8, size, "long int")
    rt.op("aten::embedding", run=((REDUCE, H100.moves(4 * prod(x))),), gap=14, dims=([KEYS, GATED], x[:2]))
    for _ in range(LAYERS):
        fused_norm(rt, tape, H100, x)
        for out in (GATED, GATED, 2 * GATED, 16, 16, 2 * GATED):
            linear(rt, tape, H100, x, out)
        for _ in range(3):
            _convolved(rt, tape, x, fresh)
        _delta(rt, tape, x)
        fused_norm(rt, tape, H100, [1, tokens, 2 * GATED])
        linear(rt, tape, H100, [1, tokens, 2 * GATED], GATED)
        fused_norm(rt, tape, H100, x)
        for _ in range(2):
            linear(rt, tape, H100, x, HIDDEN)
        elementwise(rt, tape, H100, "mul", [1, tokens, HIDDEN], 2, (("mul", 3), ("mul", 3)))
        linear(rt, tape, H100, [1, tokens, HIDDEN], GATED)
    fused_norm(rt, tape, H100, x)
    linear_loss(rt, tape, H100, "FusedLinearCrossEntropyFunction",
                ("cross_entropy_kernel", 4 * H100.moves(tokens * KEYS)), (tokens, GATED, KEYS), 2)  # fmt: skip
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 0.9e9), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * 0.9e9), 3)
    small(rt, None, ("div",), [], 2.2)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, H100.moves(6 * 0.9e9)),), dims=([900_000_000],))
    fused_adamw(rt, H100, 0.9e9)
    rt.host(500)
