"""Jobs of the thirty-second set whose device does more than it must, or waits for the allocator: products in TF32 that
bf16 would do, a limit of memory with a collector's threshold, attention op by op.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import linear
from ..layers import Card, Tape, back, dense, fused_adamw, norm
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100
from ..thirty_first_set.rows import Told, small
from ..twelfth_set.language import AMPERE, eager_attention
from ..twelfth_set.pictures import CUTLASS, TF32
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged, products
from ..twenty_sixth_set.rows import PROFILED
from .rows import encoder

CELLS, GENES, MODEL, DEEP, NAMES, HIDDEN_GENES = 10, 2_048, 512, 12, 25_426, 3_072
WHOLE = Card(96, 1_300, "float", TF32, CUTLASS)
NARROW = Card(205, 1_300, BF16, AMPERE, FLASH)


def geneformer(rt: Told, fixed: bool) -> None:
    """A BERT of genes (12 layers of 512) learns hidden genes of single cells by Lightning on an A100 of 40 GB, ten
    cells of 2,048 genes: Lightning's warning was followed (`set_float32_matmul_precision("high")`) and `precision`
    stays at its default, so that products are in TF32 and all tensors and attention in fp32; without:
    `precision="bf16-mixed"`. SDPA, AdamW is fused, clipped by lists, the loss is logged each 50th step. Shapes.

    First: precision (autocast in bf16). Not: TF32 (it is on), launches, waits, the loader, copies, the optimizer, a
    larger batch; attention's kernels at most beside it.
    """
    card, tape, x = NARROW if fixed else WHOLE, Tape(), [CELLS, GENES, MODEL]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 200)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        for _ in range(2):
            pinned(rt, 8 * CELLS * GENES, x[:2], "long int")
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        acts(rt, tape, WHOLE, "embedding embedding add", x)
        norm(rt, tape, WHOLE, x)
        acts(rt, tape, card, "dropout", x)
        for _ in range(DEEP):
            if fixed:
                casts(rt, card, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
            encoder(rt, tape, card, x)
            acts(rt, tape, card, "dropout dropout", x)
        few(rt, "index", [HIDDEN_GENES, MODEL], card.moves(2 * card.size * HIDDEN_GENES * MODEL))
        if fixed:
            casts(rt, card, [MODEL, MODEL], [NAMES, MODEL])
        dense(rt, tape, card, CELLS, (HIDDEN_GENES // CELLS * CELLS, MODEL, MODEL))
        acts(rt, tape, card, "gelu", [HIDDEN_GENES, MODEL])
        norm(rt, tape, WHOLE, [HIDDEN_GENES, MODEL])
        dense(rt, tape, card, 2, (HIDDEN_GENES, MODEL, NAMES))
        if fixed:
            acts(rt, tape, WHOLE, "to", [HIDDEN_GENES, NAMES])
        judged(rt, tape, WHOLE, HIDDEN_GENES, NAMES)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with rt.span(f"{PROFILED}[LightningModule]Genes.optimizer_step", "user_annotation", us=50):
        clipped(rt, WHOLE, 51e6)
        fused_adamw(rt, WHOLE, 51e6)
    few(rt, "add_", [1])
    rt.host(380)


QUERIES, ASKED, WIDE, LAYERS, SMALL = 40, 32, 768, 12, 128
MASKED = (
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, …>::Params)",
    "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<…>::Params)",
)
A40 = Card(66, 590, BF16, AMPERE, MASKED)
LENGTHS = (236, 178, 300, 204, 268, 160, 284, 220)


def _collected(rt: Framed, blocks: int) -> None:
    """The cache is above the threshold: before a new block is asked for, old ones go back. The first `cudaFree` returns
    when the device is done.
    """
    rt.host(5)
    with rt.span("aten::empty", us=7):
        for number in range(blocks):
            rt.call("Free", rt.vary(780, 0.4), until=0 if number else max(rt.free.values()) + 7)
        rt.call("Malloc", rt.vary(960, 0.4))


def _read(rt: Framed, tape: Tape, texts: int, length: int, shares: tuple[int, ...]) -> None:
    """BERT under autocast, and vectors of 128 of each word;  shares: layers at whose begin the collector works."""
    x = [texts, length, WIDE]
    acts(rt, tape, replace(A40, kind="float"), "embedding embedding add embedding add", x)
    norm(rt, tape, replace(A40, kind="float"), x)
    acts(rt, tape, A40, "dropout", x)
    for layer in range(LAYERS):
        if layer in shares:
            _collected(rt, 3)
        casts(rt, A40, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
        encoder(rt, tape, A40, x)
        acts(rt, tape, A40, "dropout dropout", x)
    casts(rt, A40, [SMALL, WIDE])
    linear(rt, tape, A40, x, SMALL)
    acts(rt, tape, A40, "pow sum div mul", [texts, length, SMALL])


def colbert(rt: Told, fixed: bool) -> None:
    """ColBERT learns which of two passages answers by a plain loop on an A40 that two people share, autocast in bf16,
    40 questions and 80 passages, padded to the longest of a step: `set_per_process_memory_fraction(0.45)` stands with
    `garbage_collection_threshold:0.5`, so that the allocator is above it in each step, gives blocks back by `cudaFree`
    and asks for others, some nine times a step; without: the threshold is gone, with `expandable_segments:True`. SDPA
    with a mask, AdamW by lists, clipped by lists, the loss is read each 50th step. Shapes.

    First: the allocator's `cudaFree` and `cudaMalloc` in each step. Not: `empty_cache()` (nobody calls it), the loader,
    launches, copies, attention, the optimizer, checkpointing, the batch.
    """
    tape = Tape()
    length = LENGTHS[rt.number % len(LENGTHS)]
    loader(rt, 190)
    for size in ([QUERIES, ASKED], [QUERIES, ASKED], [2 * QUERIES, length], [2 * QUERIES, length]):
        pinned(rt, 8 * prod(size), size, "long int")
    _read(rt, tape, QUERIES, ASKED, ())
    _read(rt, tape, 2 * QUERIES, length, () if fixed else (0, 3, 6, 9))
    products(rt, tape, A40, (2 * QUERIES, length, SMALL, ASKED))
    acts(rt, tape, replace(A40, kind="float"), "to where", [2 * QUERIES, length, ASKED])
    small(rt, tape, replace(A40, kind="float"), "max sum", [2 * QUERIES, ASKED])
    judged(rt, tape, replace(A40, kind="float"), QUERIES, 2)
    whole = len(tape)
    with rt.backward():
        while tape:
            tape.pop()()
            if not fixed and len(tape) in (whole - 12, whole * 7 // 8, whole * 6 // 8, whole * 5 // 8, whole // 3):
                _collected(rt, 3)
    clipped(rt, A40, 110e6)
    adam(rt, A40, 110e6, "AdamW", 2)
    few(rt, "add_", [1])
    rt.host(330)


TEXTS, LENGTH, SIZE, STACK, WORDS = 4, 2_048, 2_048, 24, 50_368
ALIBI = ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, false, "
         "true, false, true, false, true, false>(Flash_fwd_params)",
         "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, "
         "false, cutlass::bfloat16_t>, false, true, false, true, false, true>(Flash_bwd_params)")  # fmt: skip


def _flashed(rt: Framed, tape: Tape, dims: list[int]) -> None:
    """`flash_attn_func(q, k, v, causal=True, alibi_slopes=…)` of the package."""
    batch, heads, length, each = dims
    us, states = H100.product(batch * heads * length, length, 2 * each) / 1.1, [batch, length, heads, each]
    number = rt.op("FlashAttnFunc", "flash_attn::_flash_attn_forward", run=((ALIBI[0], us),), graph=True, gap=20, us=14,
                   dims=(states,) * 3, kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("FlashAttnFuncBackward", number, "flash_attn::_flash_attn_backward", us=16, kind=BF16,
                                run=((ALIBI[1], 2.5 * us),), dims=(states,) * 4))  # fmt: skip


def mpt(rt: Told, fixed: bool) -> None:
    """MPT of 1.3B goes on learning texts of law by Composer on an H100, all in bf16, four packs of 2,048:
    `attn_config` was taken from an example with `attn_impl: torch`, so that scores of ALiBi are written out, in fp32
    for the softmax, op by op; without: `attn_impl: flash`. AdamW is fused, clipped by lists, the loss is compiled and
    logged each tenth step. Shapes.

    First: attention op by op (a fused kernel). Not: precision, launches, waits, the loader, the optimizer, the loss,
    recomputation, the batch.
    """
    rt.causal = True
    tape, x = Tape(), [TEXTS, LENGTH, SIZE]
    loader(rt, 200)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    acts(rt, tape, H100, "embedding", x)
    for _ in range(STACK):
        norm(rt, tape, H100, x)
        linear(rt, tape, H100, x, 3 * SIZE)
        if fixed:
            _flashed(rt, tape, [TEXTS, SIZE // 128, LENGTH, 128])
        else:
            eager_attention(rt, tape, H100, [TEXTS, SIZE // 128, LENGTH, 128])
        linear(rt, tape, H100, x, SIZE)
        acts(rt, tape, H100, "add", x)
        norm(rt, tape, H100, x)
        linear(rt, tape, H100, x, 4 * SIZE)
        acts(rt, tape, H100, "gelu", [TEXTS, LENGTH, 4 * SIZE])
        linear(rt, tape, H100, [TEXTS, LENGTH, 4 * SIZE], SIZE)
        acts(rt, tape, H100, "add", x)
    norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, WORDS)
    compiled_loss(rt, tape, H100, TEXTS * LENGTH, WORDS)
    back(rt, tape)
    total = 12 * STACK * SIZE**2 + WORDS * SIZE
    clipped(rt, H100, total, 4, 2)
    fused_adamw(rt, H100, total / 2)
    few(rt, "add_", [1])
    rt.host(450)
