"""Jobs of the twenty-first set whose device works more than it must, or gives its memory back: precision, memory, form.

What the device does without the fault is written with it: products in bf16, memory that stays, attention in one kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import L40S
from ..layers import REDUCE, VECTOR, Tape, attention, back, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..sixteenth_set.rows import asked, emptied
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import A100, AMPERE
from ..twelfth_set.pictures import A100_FLOAT, HALF, small, unscaled
from ..twelfth_set.rows import Framed, loader
from ..twentieth_set.host import TURING

PROTEINS, RESIDUES, EMBEDDED, DEEP, LETTERS = 16, 512, 640, 30, 33


def misplaced(rt: Framed, fixed: bool) -> None:
    """ESM-2 of 150 M parameters on an A100, 16 proteins of 512: `with torch.autocast(…)` is around the head and the
    loss, the encoder is called before it, so that all its products are fp32 on the CUDA cores (TF32 is off by default);
    without: the whole forward pass is under it. The optimizer is fused, the loss is read in one of four steps. Shapes.

    First: products in fp32 (autocast around the model, or TF32). Not: launches, waits, a loader, the batch.
    """
    card = A100 if fixed else A100_FLOAT
    tape, x = Tape(), [PROTEINS, RESIDUES, EMBEDDED]
    loader(rt, 140)
    for _ in range(3):
        pinned(rt, PROTEINS * RESIDUES * 8, x[:2], "long int")
    rt.op("aten::embedding", run=((REDUCE, A100.moves(8 * prod(x))),), gap=14, dims=([LETTERS, EMBEDDED], x[:2]))
    small(rt, tape, ("masked_fill", "mul", "div"), x, A100.moves(8 * prod(x)))
    for _ in range(DEEP):
        if fixed:
            casts(rt, A100, *[[EMBEDDED, EMBEDDED]] * 4, [4 * EMBEDDED, EMBEDDED], [EMBEDDED, 4 * EMBEDDED])
        norm(rt, tape, card, x)
        for _ in range(3):
            dense(rt, tape, card, PROTEINS, (prod(x[:2]), EMBEDDED, EMBEDDED))
        for name in ("mul", "neg", "cat", "mul", "add") * 2:
            elementwise(rt, tape, card, name, x, 2 if name != "neg" else 1, () if name in ("add", "cat") else
                        ((name, 3),))  # fmt: skip
        attention(rt, tape, replace(card, tflops=card.tflops * 0.8), [PROTEINS, 20, RESIDUES, 32])
        dense(rt, tape, card, PROTEINS, (prod(x[:2]), EMBEDDED, EMBEDDED))
        elementwise(rt, tape, card, "add", x, 2)
        norm(rt, tape, card, x)
        dense(rt, tape, card, PROTEINS, (prod(x[:2]), EMBEDDED, 4 * EMBEDDED))
        elementwise(rt, tape, card, "gelu", [*x[:2], 4 * EMBEDDED], back=(("gelu_backward", 3),))
        dense(rt, tape, card, PROTEINS, (prod(x[:2]), 4 * EMBEDDED, EMBEDDED))
        elementwise(rt, tape, card, "add", x, 2)
    norm(rt, tape, card, x)
    casts(rt, A100, [EMBEDDED, EMBEDDED], [LETTERS, EMBEDDED])
    linear(rt, tape, A100, x, EMBEDDED)
    elementwise(rt, tape, A100, "gelu", x, back=(("gelu_backward", 3),))
    linear(rt, tape, A100, x, LETTERS)
    small(rt, tape, ("to", "log_softmax", "nll_loss"), [PROTEINS * RESIDUES, LETTERS], 5)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 150e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 150e6), 2)
    fused_adamw(rt, A100, 150e6)
    if rt.number == 2:
        rt.value()
    rt.host(380)


ESSAYS, WORDS, BASE, PARAMETERS, SEGMENTS = 8, 512, 768, 184e6, 54
SHARE = ("ipykernel_41/3127719250.py(14): train_fn", "torch/cuda/memory.py(222): empty_cache",
         "<built-in function _cuda_emptyCache>")  # fmt: skip


def _disentangled(rt: Framed, tape: Tape) -> None:
    """DeBERTa's attention: scores of contents and of both positions, gathered, softmax, a product."""
    heads, length = ESSAYS * 12, WORDS
    scores, us = [heads, length, length], TURING.product(heads * length, length, 64) * 2.2
    once = TURING.moves(2 * prod(scores))

    def product(left: list[int], right: list[int]) -> None:
        number = rt.op("aten::bmm", run=((TURING.names[0], us),), dims=(left, right), kind=HALF, graph=True, gap=18)
        tape.append(lambda: rt.grad("BmmBackward0", number, "aten::bmm", run=((TURING.names[1], us),) * 2, kind=HALF,
                                    dims=(left, right)))  # fmt: skip

    product([heads, length, 64], [heads, 64, length])
    gathered = ("void at::native::_scatter_gather_elementwise_kernel<128, 8, TensorAssign>(int, …)", 2.6 * once)
    for _ in range(2):
        product([heads, length, 64], [heads, 64, 2 * 256])
        number = rt.op("aten::gather", run=(gathered,), dims=(scores, scores), kind=HALF, graph=True, gap=14)
        tape.append(lambda number=number: rt.grad("GatherBackward0", number, "aten::scatter_add_", kind=HALF, dims=(
            scores, scores), run=((gathered[0].replace("TensorAssign", "ReduceAdd"), 3.1 * once),)))  # fmt: skip
        elementwise(rt, tape, TURING, "add", scores, 2)
    elementwise(rt, tape, TURING, "masked_fill", scores, back=(("masked_fill", 2),))
    number = rt.op("aten::softmax", "aten::_softmax", run=((kernel("softmax", 2, HALF), 2 * once),), kind=HALF, gap=14,
                   dims=(scores,), graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("SoftmaxBackward0", number, "aten::_softmax_backward_data", kind=HALF, run=(
        (kernel("softmax_backward", 3, HALF), 3 * once),), dims=(scores, scores)))  # fmt: skip
    product([heads, length, length], [heads, length, 64])


def swept(rt: Framed, fixed: bool) -> None:
    """DeBERTa-v3-base scores essays in a notebook on a T4, AMP, eight texts of 512: after each step `gc.collect()` and
    `torch.cuda.empty_cache()` "against OOM", all segments go back to the driver, 54 of them, and are asked for anew in
    the next step; without: neither. `GradScaler` waits once a step. Stacks.

    First: memory that is freed and asked for in each step (drop `empty_cache()`). Not: a loader, TF32 or bf16, which a
    T4 has not, `expandable_segments`, a larger batch.
    """
    tape, x = Tape(), [ESSAYS, WORDS, BASE]
    loader(rt, 170)
    for _ in range(3):
        pinned(rt, ESSAYS * WORDS * 8, x[:2], "long int")
    wants = 0 if fixed or rt.number == 0 else SEGMENTS
    with rt.frame("ipykernel_41/3127719250.py(14): train_fn", "nn.Module: CustomModel_0"):
        rt.op("aten::embedding", run=((REDUCE, TURING.moves(6 * prod(x))),), gap=14, dims=([128_100, BASE], x[:2]))
        small(rt, tape, ("layer_norm", "mul"), x, TURING.moves(8 * prod(x)))
        for number in range(12):
            for _ in range(wants // 18):
                asked(rt)
            with rt.frame(f"nn.Module: DebertaV2Layer_{number}"):
                casts(rt, TURING, *[[BASE, BASE]] * 6, [4 * BASE, BASE], [BASE, 4 * BASE])
                for _ in range(3):
                    dense(rt, tape, TURING, ESSAYS, (prod(x[:2]), BASE, BASE))
                for _ in range(2):
                    dense(rt, tape, TURING, 1, (512, BASE, BASE))
                _disentangled(rt, tape)
                dense(rt, tape, TURING, ESSAYS, (prod(x[:2]), BASE, BASE))
                elementwise(rt, tape, TURING, "add", x, 2)
                norm(rt, tape, TURING, x)
                dense(rt, tape, TURING, ESSAYS, (prod(x[:2]), BASE, 4 * BASE))
                elementwise(rt, tape, TURING, "gelu", [*x[:2], 4 * BASE], back=(("gelu_backward", 3),))
                dense(rt, tape, TURING, ESSAYS, (prod(x[:2]), 4 * BASE, BASE))
                elementwise(rt, tape, TURING, "add", x, 2)
                norm(rt, tape, TURING, x)
        small(rt, tape, ("mul", "sum", "clamp", "div", "addmm", "smooth_l1_loss"), [ESSAYS, BASE], 5)
    with rt.frame("torch/_tensor.py(525): backward"):
        for _ in range(wants - wants // 18 * 12):
            asked(rt)
        back(rt, tape)
    unscaled(rt, TURING, PARAMETERS)
    fused_adamw(rt, TURING, PARAMETERS)
    if not fixed:
        with rt.frame(SHARE[0], "<built-in function collect>"):
            rt.now += rt.vary(16_000, 0.1)
        with rt.frame(*SHARE):
            emptied(rt, SEGMENTS)
    rt.host(420)


SOUNDS, FRAMES, CARD = 12, 1_214, replace(L40S, kind=BF16, names=AMPERE, attention=FLASH)
DROPPED = "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(…)"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMax{0}<4, float, float, float, {0}Epilogue>(…)"


def _with_weights(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`F.multi_head_attention_forward(…, need_weights=True)`: products, softmax to fp32, dropout, a mean of heads."""
    batch, length, _ = x
    heads = batch * 12
    scores, n = [heads, length, length], heads * length**2
    us = max(CARD.product(heads * length, length, 64) * 1.6, CARD.moves(2.2 * n))

    def product(left: list[int], right: list[int]) -> None:
        number = rt.op("aten::bmm", run=((CARD.names[0], us),), dims=(left, right), kind=BF16, graph=True, gap=16)
        tape.append(lambda: rt.grad("BmmBackward0", number, "aten::bmm", run=((CARD.names[1], us),) * 2, kind=BF16,
                                    dims=(left, right)))  # fmt: skip

    def passed(names: tuple[str, ...], run: tuple[str, float], title: str, behind: tuple[str, str, float]) -> None:
        number = rt.op(*names, run=((run[0], CARD.moves(run[1] * n)),), dims=(scores,), graph=True, gap=14)

        def backward() -> None:
            with node(rt, title, number):
                rt.op(behind[0], run=((behind[1], CARD.moves(behind[2] * n)),), dims=(scores, scores), gap=1)

        tape.append(backward)

    elementwise(rt, tape, CARD, "mul", [heads, length, 64], back=(("mul", 2),))
    product([heads, length, 64], [heads, 64, length])
    passed(("aten::to", "aten::_to_copy", "aten::copy_"), (COPY, 6), "ToCopyBackward0", ("aten::to", COPY, 6))
    passed(("aten::softmax", "aten::_softmax"), (SOFTMAX.format("SoftMaxForward"), 8), "SoftmaxBackward0",
           ("aten::_softmax_backward_data", SOFTMAX.format("SoftMaxBackward"), 12))  # fmt: skip
    scaled = VECTOR.format("masked_scale_kernel<bool, float, float>", 3)
    passed(("aten::dropout", "aten::native_dropout"), (DROPPED, 9), "NativeDropoutBackward0",
           ("aten::native_dropout_backward", scaled, 9))  # fmt: skip
    passed(("aten::to", "aten::_to_copy", "aten::copy_"), (COPY, 6), "ToCopyBackward0", ("aten::to", COPY, 6))
    product([heads, length, length], [heads, length, 64])
    rt.op("aten::mean", run=((REDUCE, CARD.moves(4 * n)),), dims=([batch, 12, length, length],), graph=True, gap=12)


def weighed(rt: Framed, fixed: bool) -> None:
    """An audio spectrogram transformer on an L40S, autocast in bf16, 12 sounds of 1,214 patches: its blocks call
    `nn.MultiheadAttention` and throw the second result away, but `need_weights=True` is the default, so that scores
    are written, softmax and dropout go over them in fp32, and their mean is taken; without: `need_weights=False`, which
    is `scaled_dot_product_attention`. Shapes, with strides.

    First: attention op by op, kernels bound by memory (`need_weights=False`). Not: launches, a loader, TF32, the batch.
    """
    tape, x = Tape(), [SOUNDS, FRAMES, 768]
    loader(rt, 160)
    pinned(rt, SOUNDS * 1_024 * 128 * 4, [SOUNDS, 1_024, 128])
    pinned(rt, SOUNDS * 527 * 4, [SOUNDS, 527])
    dense(rt, tape, CARD, SOUNDS, (SOUNDS * 1_212, 256, 768))
    small(rt, tape, ("cat", "add"), x, CARD.moves(4 * prod(x)))
    for _ in range(12):
        casts(rt, CARD, [2_304, 768], [768, 768], [3_072, 768], [768, 3_072])
        if fixed:
            encoder(rt, tape, CARD, (SOUNDS, FRAMES, 768))
            continue
        norm(rt, tape, CARD, x)
        dense(rt, tape, CARD, SOUNDS, (prod(x[:2]), 768, 2_304))
        _with_weights(rt, tape, x)
        dense(rt, tape, CARD, SOUNDS, (prod(x[:2]), 768, 768))
        elementwise(rt, tape, CARD, "add", x, 2)
        norm(rt, tape, CARD, x)
        dense(rt, tape, CARD, SOUNDS, (prod(x[:2]), 768, 3_072))
        elementwise(rt, tape, CARD, "gelu", [*x[:2], 3_072], back=(("gelu_backward", 3),))
        dense(rt, tape, CARD, SOUNDS, (prod(x[:2]), 3_072, 768))
        elementwise(rt, tape, CARD, "add", x, 2)
    norm(rt, tape, CARD, x)
    linear(rt, tape, CARD, [SOUNDS, 1, 768], 527)
    small(rt, tape, ("binary_cross_entropy_with_logits",), [SOUNDS, 527], 5)
    back(rt, tape)
    fused_adamw(rt, CARD, 87e6)
    rt.host(340)
