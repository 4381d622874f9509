"""Jobs of the thirty-third set whose device does more than it must: products in fp32 on a card that has fp16, a cache
that is copied for each word, attention to pairs op by op.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import COPY, FILL, Roofline, elementwise, foreach, kernel, linear, moved_as
from ..fifteenth_set.rows import V100, VOLTA_CUTLASS, product
from ..layers import CAST, REDUCE, Card, Tape, attention, back, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import NVJET
from ..thirty_first_set.rows import Told
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import HALF
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import CAT, NATIVE, acts, few, products
from .rows import Kept, across, blocking, wide

TEXTS, LENGTH, WIDE, FED, DEEP, WORDS = 112, 32, 1_024, 4_096, 6, 32_768
FLOAT = tuple(name.replace("f16", "f32").replace("half", "float") for name in VOLTA_CUTLASS)
SLOW = Card(12.4, 770, "float", ("volta_sgemm_128x64_tn", "volta_sgemm_128x128_nn"), (FLOAT[0], FLOAT[1]))
HALVED = replace(V100, tflops=46)
TRANSFORMER = DEEP * (4 * WIDE**2 + 2 * WIDE * FED) + DEEP * (8 * WIDE**2 + 2 * WIDE * FED) + WORDS * WIDE


def _sublayer(rt: Framed, tape: Tape, card: Card, keys: int) -> None:
    """Attention of fairseq, to itself or to the source; keys: where it looks."""
    x, heads = [LENGTH, TEXTS, WIDE], [TEXTS, WIDE // 64, LENGTH, 64]
    for _ in range(3):
        dense(rt, tape, card, LENGTH, (LENGTH * TEXTS, WIDE, WIDE))
    if keys:
        across(rt, tape, card, heads, keys, card.attention)
    else:
        attention(rt, tape, card, heads)
    dense(rt, tape, card, LENGTH, (LENGTH * TEXTS, WIDE, WIDE))
    acts(rt, tape, card, "dropout add", x)
    norm(rt, tape, card, x)


def _fed(rt: Framed, tape: Tape, card: Card) -> None:
    x, wider = [LENGTH, TEXTS, WIDE], [LENGTH, TEXTS, FED]
    dense(rt, tape, card, LENGTH, (LENGTH * TEXTS, WIDE, FED))
    acts(rt, tape, card, "relu", wider)
    dense(rt, tape, card, LENGTH, (LENGTH * TEXTS, FED, WIDE))
    acts(rt, tape, card, "dropout add", x)
    norm(rt, tape, card, x)


def _smoothed(rt: Framed, tape: Tape, card: Card) -> None:
    """`label_smoothed_cross_entropy`: log-softmax in fp32, what was said, the sum of all."""
    rows, whole = LENGTH * TEXTS, replace(card, kind="float")
    if card.kind == HALF:
        acts(rt, tape, whole, "to", [rows, WORDS])
    acts(rt, tape, whole, "logsumexp", [rows, WORDS])
    filling = ((FILL, whole.moves(4 * rows * WORDS)), ("void at::native::_scatter_gather_elementwise_kernel<128, 8>(…)",
                                                      5.0))  # fmt: skip
    number = rt.op("aten::gather", run=(filling[1],), dims=([rows, WORDS], [rows, 1]), graph=True, gap=9)
    tape.append(lambda: rt.grad("GatherBackward0", number, "aten::gather_backward", run=filling, dims=([rows, WORDS],)))
    acts(rt, tape, whole, "sum", [rows, WORDS])
    few(rt, "eq masked_fill_ masked_fill_ sum sum mul mul add", [rows, 1], 2.6)


def wmt(rt: Told, fixed: bool) -> None:
    """fairseq's `transformer_wmt_en_de_big` learns to translate patents on a V100, 3,584 words a step: the command has
    no `--fp16`, so that all products are fp32 without tensor cores; without: `--fp16`, weights in half precision with
    a copy in fp32 that Adam steps. apex' Adam is fused, norms are clipped by lists, fairseq asks in each step whether
    the norm is finite. Shapes.

    First: precision (fp16 with a scaler). Not: TF32 and bf16 (a V100 has neither), launches, waits, the loader, copies,
    attention, the optimizer, the batch.
    """
    card, tape, x = HALVED if fixed else SLOW, Tape(), [LENGTH, TEXTS, WIDE]
    rt.narrow = "5"
    loader(rt, 170)
    for size in ([TEXTS, LENGTH], [TEXTS], [TEXTS, LENGTH], [TEXTS, LENGTH]):
        blocking(rt, 8 * prod(size), size)
    for side in range(2):
        acts(rt, tape, card, "embedding scale add dropout", x)
        for _ in range(DEEP):
            for turn in range(1 + side):
                _sublayer(rt, tape, card, LENGTH if turn else 0)
            _fed(rt, tape, card)
    linear(rt, tape, card, x, WORDS)
    _smoothed(rt, tape, card)
    back(rt, tape)
    if fixed:  # gradients to the flat copy in fp32
        foreach(rt, "_foreach_copy_", "CopyFunctor", V100.moves(6 * TRANSFORMER), 4)
    clipped(rt, V100, TRANSFORMER)
    few(rt, "isfinite all", [], 2.3)
    rt.value("aten::is_nonzero")
    fused_adamw(rt, V100, TRANSFORMER)
    if fixed:
        foreach(rt, "_foreach_copy_", "CopyFunctor", V100.moves(6 * TRANSFORMER), 4)
    rt.host(700)


ASKED, BEGUN, LAYERS, MODEL, GATED, KEYS, PIECES = 96, 2_600, 32, 4_096, 14_336, 8, 128_256
H200 = Roofline(480, 3_900, BF16, NVJET, ("", ""))
SPLIT = "void flash::flash_fwd_splitkv_{}kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, …>, …>(Flash_fwd_params)"


def _rms(rt: Framed) -> None:
    """`LlamaRMSNorm`, op by op in fp32."""
    x = [ASKED, 1, MODEL]
    for name in ("to", "pow", "mean", "add", "rsqrt", "mul", "to", "mul"):
        if name == "to":
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, 2.6),), dims=(x,), kind=BF16, gap=5)
            continue
        rt.op(f"aten::{name}", run=((REDUCE if name == "mean" else kernel(name, 2), 2.5),), dims=(x,), gap=5)


def _remembered(rt: Framed, words: int, fixed: bool) -> None:
    """`past_key_values.update(keys, values)`: all that was said is copied to a new tensor, or one word is written."""
    held, new = [ASKED, KEYS, words - 1, 128], [ASKED, KEYS, 1, 128]
    rt.host(9)
    for _ in range(2):
        if fixed:
            run = ((NATIVE + "index_copy_kernel_impl<c10::BFloat16>(…)", 3.2),)
            rt.op("aten::index_copy_", run=run, dims=(held, [1], new), kind=BF16, gap=6)
        else:
            rt.op("aten::cat", run=((CAT.replace("{b}", "2"), H200.moves(4 * prod(held))),), gap=7, us=6, kind="",
                  dims=(held,), **{"Input Dims": [[held, new], []], "Input type": ["TensorList", "Scalar"],
                                   "Input Strides": [[], []], "Concrete Inputs": ["", "-2"]})  # fmt: skip


def kvcat(rt: Told, fixed: bool) -> None:
    """Llama 3.1 8B writes summaries by transformers' `generate` on an H200, in bf16, 96 texts of 2,600 words at once:
    the cache is `DynamicCache`, as it is by default, so that each word concatenates keys and values of all that was
    said, 33 GB that are read and written anew; without: a cache that is allocated once
    (`cache_implementation="static"`). FlashAttention reads the cache, `generate` asks after each word whether all have
    ended. Shapes, no rows of steps: a step is a word.

    First: the cache that grows by `cat` (allocate it once). Not: the read of each word (it ends the loop), precision,
    attention, the batch; launches only behind it.
    """
    words, x = BEGUN + rt.number, [ASKED, 1, MODEL]
    rt.host(620)
    few(rt, "cat add sub cumsum", [ASKED, words], 3.0)
    acts(rt, None, H200, "embedding", x)
    few(rt, "mul cat cos sin mul mul to to", [1, 1, 128], 2.2)
    for _ in range(LAYERS):
        _rms(rt)
        for out in (MODEL, KEYS * 128, KEYS * 128):
            product(rt, H200, x, out, gap=6)
        for heads in (32, KEYS):
            acts(rt, None, H200, "mul neg cat mul add", [ASKED, heads, 1, 128], gap=4)
        _remembered(rt, words, fixed)
        held = [ASKED, words, KEYS, 128]
        rt.op("flash_attn::_flash_attn_forward", us=12, gap=16, kind=BF16, dims=([ASKED, 1, 32, 128], held, held), run=(
            (SPLIT.format(""), H200.moves(4 * prod(held)) / 0.85), (SPLIT.format("combine_"), 4.5)))  # fmt: skip
        product(rt, H200, x, MODEL, gap=6)
        acts(rt, None, H200, "add", x, gap=5)
        _rms(rt)
        for name in ("silu", "mul"):
            product(rt, H200, x, GATED, gap=6)
            acts(rt, None, H200, name, [ASKED, 1, GATED], gap=5)
        product(rt, H200, [ASKED, 1, GATED], MODEL, gap=6)
        acts(rt, None, H200, "add", x, gap=5)
    _rms(rt)
    product(rt, H200, x, PIECES)
    few(rt, "to", [ASKED, PIECES], H200.moves(6 * ASKED * PIECES))
    few(rt, "argmax mul add cat eq any bitwise_and max eq", [ASKED], 3.4)
    rt.value("aten::is_nonzero")
    rt.host(140)


CROP, PAIR, EACH, BLOCKS, ATOMS = 384, 128, 4, 7, 4
A100 = wide(150, 1_450, AMPERE)
WHOLE = replace(A100, kind="float")
Z = [1, CROP, CROP, PAIR]
TRIANGLE = "void cueq_ops::triangle_attention_{}_sm80<__nv_bfloat16, 32, 64, 64, …>(…)"
SOFTMAX = ("void at::native::(anonymous namespace)::cunn_SoftMaxForwardSmem<4, float, float, float, SoftMaxForwardEp…>",
           "void at::native::(anonymous namespace)::cunn_SoftMaxBackwardSmem<4, float, float, float, SoftMaxBackwar…>",
           )  # fmt: skip


def _biased(rt: Framed, tape: Tape, scores: list[int], summed: bool) -> None:
    """`a = a + bias`, where a bias is of one row;  summed: whether it learns."""
    us = A100.moves(4 * prod(scores))
    number = rt.op("aten::add", run=((kernel("add", 3, BF16), us),), dims=(scores,), graph=True, gap=8, kind=BF16)
    if summed:
        tape.append(lambda: rt.grad("AddBackward0", number, "aten::sum", run=((REDUCE, 0.55 * us),), dims=(scores,),
                                    kind=BF16))  # fmt: skip


def _op_by_op(rt: Framed, tape: Tape) -> None:
    """Scores of each row of pairs, two biases, softmax in fp32, what it says."""
    scores = [CROP, EACH, CROP, CROP]
    products(rt, tape, A100, (CROP * EACH, CROP, PAIR // EACH, CROP))
    for summed in (False, True):
        _biased(rt, tape, scores, summed)
    moved_as(rt, tape, A100, scores)
    number = rt.op("aten::softmax", "aten::_softmax", graph=True, dims=(scores,), gap=7, run=(
        (SOFTMAX[0], WHOLE.moves(8 * prod(scores))),))  # fmt: skip
    tape.append(lambda: rt.grad("SoftmaxBackward0", number, "aten::_softmax_backward_data", dims=(scores, scores), run=(
        (SOFTMAX[1], WHOLE.moves(12 * prod(scores))),)))  # fmt: skip
    moved_as(rt, tape, A100, scores, kind="float")
    products(rt, tape, A100, (CROP * EACH, CROP, CROP, PAIR // EACH))


def _triangle(rt: Framed, tape: Tape) -> None:
    """cuEquivariance's `triangle_attention`, one kernel each way."""
    flops = 4 * CROP * EACH * CROP * CROP * (PAIR // EACH)
    us, states = flops / 62e6, [1, CROP, EACH, CROP, PAIR // EACH]
    number = rt.op("cuequivariance::triangle_attention", run=((TRIANGLE.format("fwd"), us),), dims=(states,) * 3, us=18,
                   graph=True, gap=24, kind=BF16)  # fmt: skip
    behind = ((TRIANGLE.format("bwd"), 2.7 * us),)
    tape.append(lambda: rt.grad("cuequivariance_triangle_attentionBackward", number, run=behind, dims=(states,) * 4,
                                us=18, kind=BF16))  # fmt: skip


def _multiplied(rt: Framed, tape: Tape) -> None:
    """Edges of triangles by products over a third residue, gated."""
    casts(rt, A100, *([[2 * PAIR, PAIR]] * 2), *([[PAIR, PAIR]] * 2))
    norm(rt, tape, A100, Z)
    linear(rt, tape, A100, Z, 2 * PAIR)
    linear(rt, tape, A100, Z, 2 * PAIR)
    acts(rt, tape, A100, "sigmoid mul", [*Z[:3], 2 * PAIR])
    acts(rt, tape, A100, "turn turn", Z)
    products(rt, tape, A100, (PAIR, CROP, CROP, CROP))
    acts(rt, tape, A100, "turn", Z)
    norm(rt, tape, A100, Z)
    linear(rt, tape, A100, Z, PAIR)
    linear(rt, tape, A100, Z, PAIR)
    acts(rt, tape, A100, "sigmoid mul mul add", Z)


def _attended(rt: Framed, tape: Tape, fixed: bool) -> None:
    casts(rt, A100, *([[PAIR, PAIR]] * 5), [EACH, PAIR])
    norm(rt, tape, A100, Z)
    linear(rt, tape, A100, Z, EACH)
    for _ in range(3):
        linear(rt, tape, A100, Z, PAIR)
    acts(rt, tape, A100, "turn turn turn", Z)
    (_triangle if fixed else _op_by_op)(rt, tape)
    acts(rt, tape, A100, "turn", Z)
    linear(rt, tape, A100, Z, PAIR)
    acts(rt, tape, A100, "sigmoid mul", Z)
    linear(rt, tape, A100, Z, PAIR)
    acts(rt, tape, A100, "mul add", Z)


def boltz(rt: Kept, fixed: bool) -> None:
    """A small Boltz (seven blocks of pairs) learns complexes of a laboratory by a plain loop on an A100, autocast in
    bf16, crops of 384 residues: attention around triangles is written out, scores of 384 x 4 x 384 x 384 with two
    biases and a softmax in fp32, as `use_kernels=False` has it; without: cuEquivariance's kernels. AdamW is fused,
    clipped by lists, features come pinned, the loss stays on the GPU. Shapes, memory.

    First: attention op by op (a fused kernel with a bias). Not: precision, the softmax alone, recomputation, launches,
    the loader, copies, the optimizer, a larger batch.
    """
    tape, n = Tape(), CROP * CROP
    loader(rt, 200)
    for size in ([1, CROP, 384], [1, CROP, CROP, 39], [1, CROP, ATOMS * 32], [1, CROP, 3], [1, CROP, CROP, 64]):
        pinned(rt, 4 * prod(size), size)
    for given in (103, 384):
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * n * given / 3)),),
              dims=([1, CROP, CROP, given // 3],))  # fmt: skip
        casts(rt, A100, [PAIR, given])
        linear(rt, tape, A100, [1, CROP, CROP, given], PAIR)
        acts(rt, tape, A100, "add", Z)
    for _ in range(BLOCKS):
        for _ in range(2):
            _multiplied(rt, tape)
        for _ in range(2):
            _attended(rt, tape, fixed)
        casts(rt, A100, *([[4 * PAIR, PAIR]] * 2), [PAIR, 4 * PAIR])
        norm(rt, tape, A100, Z)
        for name in ("silu", "mul"):
            linear(rt, tape, A100, Z, 4 * PAIR)
            acts(rt, tape, A100, name, [*Z[:3], 4 * PAIR])
        linear(rt, tape, A100, [*Z[:3], 4 * PAIR], PAIR)
        acts(rt, tape, A100, "add", Z)
    norm(rt, tape, A100, Z)
    casts(rt, A100, [64, PAIR])
    linear(rt, tape, A100, Z, 64)
    acts(rt, tape, WHOLE, "to add logsumexp mul sum mul", [1, CROP, CROP, 64])
    elementwise(rt, tape, WHOLE, "mean", [1, CROP, CROP])
    back(rt, tape)
    rt.freed(len(rt.taken))
    clipped(rt, A100, 9.6e6)
    fused_adamw(rt, A100, 9.6e6)
    few(rt, "add_", [1])
    rt.host(360)
