"""Jobs of the thirty-fourth set whose device does more than it must: vectors of texts in fp32, gradients that are added
to zeros, attention in fp32 because of its angles.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned, returned
from ..eleventh_set.rows import COPY, Roofline, foreach, kernel, linear, node
from ..fifteenth_set.rows import ROWS, passed
from ..kineto import inputs
from ..layers import CAST, Card, Tape, back, fused_adamw, norm
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..thirty_first_set.rows import Told
from ..thirty_third_set.rows import Kept, wide
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import CUTLASS, HALF, SGEMM
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few
from .rows import Added, biased

TEXTS, LENGTH, MODEL, DEEP = 64, 512, 1_024, 24
SIXTEEN = ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",) * 2
NARROW = Roofline(54, 245, HALF, SIXTEEN, FLASH)
WHOLE = Roofline(11.6, 245, "float", SGEMM, CUTLASS)
FLOATS = ROWS.replace("c10::Half", "float")


def _attended(rt: Framed, card: Card) -> None:
    """`scaled_dot_product_attention` without a graph."""
    dims, half = [TEXTS, MODEL // 64, LENGTH, 64], card.kind == HALF
    us = card.product(prod(dims[:3]), LENGTH, 128) / 0.7
    kind = "flash" if half else "efficient"
    rt.op("aten::scaled_dot_product_attention", f"aten::_scaled_dot_product_{kind}_attention", gap=12, kind=card.kind,
          dims=(dims,) * 3, run=((card.attention[0].replace("bfloat16_t", "half_t"), us),))  # fmt: skip


def bge(rt: Told, fixed: bool) -> None:
    """BGE (large, 335M) makes vectors of a library's abstracts by sentence-transformers' `encode` on an L4, 64 texts of
    512 words a batch: weights are in fp32 as they were loaded and TF32 is off as it is by default, so that all products
    run on the CUDA cores; without: `model.half()`. Texts are cut into words by a fast tokenizer before each batch, 11
    ms, vectors go to the host behind each, as `encode` does. Shapes, stacks, no rows of steps: a step is a
    batch.

    First: precision (half, bf16, or at least TF32). Not: the copies of words and vectors, the tokenizer, launches, the
    read behind each batch, attention, a larger batch.
    """
    card, x = NARROW if fixed else WHOLE, [TEXTS, LENGTH, MODEL]
    rows = ROWS if fixed else FLOATS
    rt.narrow = "5"
    with rt.frame("sentence_transformers/models/Transformer.py(318): tokenize", *_TOKENS):
        rt.host(8_600)
    with rt.frame("sentence_transformers/util.py(1021): batch_to_device"):
        for _ in range(3):
            with rt.frame(_MOVES):
                rt.moved(8 * TEXTS * LENGTH, 5.0, x[:2], "long int")
    with rt.frame(_MODULE.format("Transformer"), "nn.Module: BertModel_0"):
        _read(rt, card, x, rows)
    few(rt, "select", x)
    few(rt, "linalg_vector_norm clamp_min expand div", [TEXTS, MODEL], 2.8)
    with rt.frame("<method 'cpu' of 'torch._C.TensorBase' objects>"):
        returned(rt, card.size * TEXTS * MODEL, 2.6, [TEXTS, MODEL], card.kind)
    rt.host(420)


_TOKENS = ("transformers/tokenization_utils_base.py(2828): __call__",
           "transformers/tokenization_utils_fast.py(527): _batch_encode_plus",
           "<method 'encode_batch' of 'tokenizers.Tokenizer' objects>")  # fmt: skip
_MOVES = "<method 'to' of 'torch._C.TensorBase' objects>"
_MODULE = "nn.Module: {}_0"


def _read(rt: Framed, card: Card, x: list[int], rows: str) -> None:
    """BERT; transformers asks first whether a mask of padding is needed."""
    few(rt, "eq all", [TEXTS, LENGTH], 2.8)
    with rt.frame("<method '__bool__' of 'torch._C.TensorBase' objects>"):
        rt.value("aten::is_nonzero")
    for _ in range(3):
        acts(rt, None, card, "embedding", x)
    acts(rt, None, card, "add add", x)
    passed(rt, card, "aten::layer_norm", rows, x, 2)
    for number in range(DEEP):
        with rt.frame(f"nn.Module: BertLayer_{number}"):
            _layer(rt, card, x, rows)


def _layer(rt: Framed, card: Card, x: list[int], rows: str) -> None:
    with rt.frame("nn.Module: BertSdpaSelfAttention_0"):
        for _ in range(3):
            biased(rt, card, x, MODEL)
        _attended(rt, card)
    biased(rt, card, x, MODEL)
    acts(rt, None, card, "add", x)
    passed(rt, card, "aten::layer_norm", rows, x, 2)
    biased(rt, card, x, 4 * MODEL)
    acts(rt, None, card, "gelu", [TEXTS, LENGTH, 4 * MODEL])
    biased(rt, card, [TEXTS, LENGTH, 4 * MODEL], MODEL)
    acts(rt, None, card, "add", x)
    passed(rt, card, "aten::layer_norm", rows, x, 2)


ROWED, READ, BROAD, STACK, WORDS = 2, 1_024, 1_280, 36, 50_304
RTX4090 = Card(145, 880, BF16, AMPERE, FLASH)
SINGLE = replace(RTX4090, kind="float")
Y = [ROWED, READ, BROAD]


def _taught(rt: Added, tape: Tape, x: list[int], out: int) -> None:
    """`nn.Linear` under autocast: its weight is copied to bf16, its gradient goes back to fp32 and to `.grad`."""
    weight, us = [out, x[-1]], RTX4090.moves(6 * out * x[-1])
    rt.weights.append(weight)
    cast = rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, us),), dims=(weight,), gap=4, graph=True)
    tokens, given = prod(x[:-1]), x[-1]
    lasts = RTX4090.product(tokens, out, given)
    rt.host(9)
    with rt.span("aten::linear", us=7, **inputs((x, weight), BF16)):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        number = rt.op("aten::matmul", "aten::mm", run=((RTX4090.names[0], lasts),), gap=0, graph=True, us=6,
                       dims=([tokens, given], [given, out]), kind=BF16)  # fmt: skip

    def backward() -> None:
        with node(rt, "MmBackward0", number):
            for left, right in (([out, tokens], [tokens, given]), ([tokens, out], [out, given])):
                rt.op("aten::mm", run=((RTX4090.names[1], lasts),), gap=1, us=8, dims=(left, right), kind=BF16)
        rt.grad("ToCopyBackward0", cast, "aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, us),),
                dims=(weight,), kind=BF16)  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def zeroed(rt: Added, fixed: bool) -> None:
    """A GPT-2 (large, 770M) goes on learning on chats of a forum by a plain loop on an RTX 4090, autocast in bf16, two
    texts of 1,024, which is what has room: `optimizer.zero_grad(set_to_none=False)` came with a script of torch 1.6, so
    that 3.1 GB of gradients are filled with zeros in each step and each gradient is added to its zeros; without:
    `zero_grad()`, gradients become `.grad` as they are. SDPA, AdamW is fused, clipped by lists, the loss is compiled
    and read each 50th step. Shapes.

    First: gradients that are filled and added (`set_to_none`). Not: the loader, copies, waits, launches, precision,
    attention, the optimizer, casts, recomputation, a larger batch.
    """
    rt.adds, rt.card, rt.causal = not fixed, SINGLE, True
    tape, wider = Tape(), [ROWED, READ, 4 * BROAD]
    total = STACK * 12 * BROAD**2 + (WORDS + READ) * BROAD
    loader(rt, 180)
    for _ in range(2):
        pinned(rt, 8 * ROWED * READ, Y[:2], "long int")
    acts(rt, tape, SINGLE, "embedding embedding add", Y)
    for _ in range(STACK):
        norm(rt, tape, SINGLE, Y)
        _taught(rt, tape, Y, 3 * BROAD)
        us = RTX4090.product(ROWED * BROAD // 64 * READ, READ, 128) / 1.2
        heads = [ROWED, BROAD // 64, READ, 64]
        number = rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
                       "aten::_flash_attention_forward", run=((FLASH[0], us),), gap=14, dims=(heads,) * 3, kind=BF16,
                       graph=True)  # fmt: skip
        tape.append(lambda number=number, us=us, heads=heads: rt.grad(
            "ScaledDotProductFlashAttentionBackward0", number, "aten::_scaled_dot_product_flash_attention_backward",
            "aten::_flash_attention_backward", run=((FLASH[1], 2.5 * us),), us=10, dims=(heads,) * 4,
            kind=BF16))  # fmt: skip
        _taught(rt, tape, Y, BROAD)
        acts(rt, tape, SINGLE, "add", Y)
        norm(rt, tape, SINGLE, Y)
        _taught(rt, tape, Y, 4 * BROAD)
        acts(rt, tape, RTX4090, "gelu", wider)
        _taught(rt, tape, wider, BROAD)
        acts(rt, tape, SINGLE, "add", Y)
    norm(rt, tape, SINGLE, Y)
    _taught(rt, tape, Y, WORDS)
    compiled_loss(rt, tape, RTX4090, ROWED * READ, WORDS)
    back(rt, tape)
    clipped(rt, SINGLE, total, 4)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=180):
        rt.op("aten::_fused_adamw_", us=60, run=((_ADAM, SINGLE.moves(28 * total / 12)),) * 12)
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=80):
        if not fixed:
            foreach(rt, "_foreach_zero_", "ZeroFunctor", SINGLE.moves(4 * total), 6, 90)
    few(rt, "detach add_", [1])
    rt.host(310)


_ADAM = ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
         "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW, false>>")  # fmt: skip
GENES, BASES, EACH, UNITS, LETTERS = 12, 2_048, 1_024, 24, 4_107
A100 = wide(205, 1_450, AMPERE, FLASH)
FLOAT = replace(A100, kind="float")
STATES = [GENES, EACH // 64, BASES, 64]


def _angled(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`q * cos + rotate_half(q) * sin`: where angles are fp32, so is what comes of it."""
    card, n = A100 if fixed else FLOAT, prod(STATES)
    for name, passes in (("mul", 3), ("neg", 2), ("cat", 2), ("mul", 3), ("add", 3)):
        us = A100.moves((4 if not fixed and name in ("mul", "add") else 2) * passes * n * (0.9 if passes == 3 else 0.5))
        kinds = [BF16, BF16] if fixed or name in ("neg", "cat") else [BF16 if name == "mul" else "float", "float"]
        number = rt.op(f"aten::{name}", run=((kernel(name, passes, card.kind), us),), dims=(STATES, STATES), graph=True,
                       kind=kinds[1], gap=7, **{"Input type": kinds})  # fmt: skip
        run = ((kernel("mul", 3, card.kind), us),) if name in ("mul", "neg") else ()
        tape.append(lambda number=number, run=run, name=name: rt.grad(
            f"{name.title()}Backward0", number, f"aten::{name}", run=run, dims=(STATES, STATES),
            kind=card.kind))  # fmt: skip


def _looked(rt: Framed, tape: Tape, fixed: bool) -> None:
    """Attention, by FlashAttention in bf16 or by the kernel that takes fp32."""
    flops = 4 * prod(STATES) * BASES
    ahead, behind = (flops / 118e6, 2.5 * flops / 112e6) if fixed else (flops / 21e6, 2.5 * flops / 16e6)
    kind, names = ("flash", FLASH) if fixed else ("efficient", CUTLASS)
    outer = f"aten::_scaled_dot_product_{kind}_attention"
    number = rt.op("aten::scaled_dot_product_attention", outer, f"aten::_{kind}_attention_forward", graph=True, gap=14,
                   run=((names[0], ahead),), dims=(STATES,) * 3, kind=BF16 if fixed else "float")  # fmt: skip
    tape.append(lambda: rt.grad(f"ScaledDotProduct{kind.title()}AttentionBackward0", number, outer + "_backward",
                                f"aten::_{kind}_attention_backward", run=((names[1], behind),), us=12,
                                dims=(STATES,) * 4, kind=BF16 if fixed else "float"))  # fmt: skip


def _as(rt: Framed, tape: Tape, kind: str) -> None:
    """`.to(dtype)` of a tensor of all heads."""
    us = A100.moves(6 * prod(STATES))
    number = rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, us),), dims=(STATES,), graph=True, gap=6,
                   kind=kind)  # fmt: skip
    tape.append(lambda: rt.grad("ToCopyBackward0", number, "aten::to", "aten::_to_copy", "aten::copy_",
                                run=((COPY, us),), dims=(STATES,), kind="float" if kind == BF16 else BF16))  # fmt: skip


def angles(rt: Kept, fixed: bool) -> None:
    """A transformer of 24 layers of 1,024 learns genomes of moulds by a plain loop on an A100, all in bf16, 12 pieces
    of 2,048 letters: the cosines and sines of its rotary positions are fp32, so that queries and keys become fp32,
    somebody added `v.to(q.dtype)` behind the error that followed, and SDPA has no FlashAttention for fp32; without:
    cosines and sines in bf16. AdamW is fused, clipped by lists, the loss is compiled and read each 50th step. Shapes,
    memory.

    First: attention in fp32 (its inputs in bf16). Not: the precision of products (they are bf16), the loader, copies,
    waits, launches, the optimizer, a larger batch; casts and rotations only beside it.
    """
    tape, x, wider = Tape(), [GENES, BASES, EACH], [GENES, BASES, 4 * EACH]
    loader(rt, 170)
    for _ in range(2):
        pinned(rt, 8 * GENES * BASES, x[:2], "long int")
    acts(rt, tape, A100, "embedding", x)
    for _ in range(UNITS):
        norm(rt, tape, A100, x)
        linear(rt, tape, A100, x, 3 * EACH)
        for _ in range(2):
            _angled(rt, tape, fixed)
        if not fixed:
            _as(rt, tape, BF16)
        _looked(rt, tape, fixed)
        if not fixed:
            _as(rt, tape, "float")
        linear(rt, tape, A100, x, EACH)
        acts(rt, tape, A100, "add", x)
        norm(rt, tape, A100, x)
        linear(rt, tape, A100, x, 4 * EACH)
        acts(rt, tape, A100, "gelu", wider)
        linear(rt, tape, A100, wider, EACH)
        acts(rt, tape, A100, "add", x)
    norm(rt, tape, A100, x)
    linear(rt, tape, A100, x, LETTERS)
    compiled_loss(rt, tape, A100, GENES * BASES, LETTERS)
    back(rt, tape)
    rt.freed(len(rt.taken))
    total = UNITS * 12 * EACH**2 + 2 * LETTERS * EACH
    clipped(rt, A100, total, 2, 2)
    fused_adamw(rt, A100, total / 2)
    few(rt, "add_", [1])
    rt.host(300)
