"""Jobs of the thirtieth set without a fault: long texts on an H200, speech on a V100, code on an MI300X, clicks whose
tables are bound by memory, ZeRO 2 whose gradients travel beside the work.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, ctc, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm, llama
from ..eleventh_set.rows import COPY, Roofline, kernel, linear, node
from ..fifteenth_set.rows import V100, Third
from ..kineto import device
from ..layers import CAST, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, H100, MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import VOLTA, unscaled
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, products

H200_DEVICE = device("NVIDIA H200", (9, 0), 132, 140)
H200 = replace(H100, gbs=3_900)
PACKS, LENGTH, WIDE, FED, WORDS = 2, 16_384, 3_072, 8_192, 49_152


def longtext(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a model of Granite's form (1.8B) goes on learning long texts by torchtune on an H200, all in
    bf16, two packs of 16,384: the GPU is busy with products and attention, norms are fused, the loss is compiled, AdamW
    is fused, clipped by lists, the loss is read each tenth step. No shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, recomputation, the batch.
    """
    tape, x = Tape(), [PACKS, LENGTH, WIDE]
    loader(rt, 190)
    for _ in range(3):
        pinned(rt, 8 * PACKS * LENGTH, x[:2], "long int")
    acts(rt, tape, H200, "embedding scale", x)
    for _ in range(16):
        llama(rt, tape, H200, (PACKS, LENGTH, WIDE, 8, FED), fused_norm)
    fused_norm(rt, tape, H200, x)
    linear(rt, tape, H200, x, WORDS)
    compiled_loss(rt, tape, H200, PACKS * LENGTH, WORDS)
    back(rt, tape)
    clipped(rt, H200, 1.7e9, 4, 2)
    fused_adamw(rt, H200, 1.7e9 / 2)
    rt.host(380)


SOUNDS, SECONDS, FRAMES, MODEL, SIGNS = 14, 15, 749, 768, 32
FILTERS = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))


def _features(rt: Framed) -> None:
    """Seven convolutions of the sound, which are frozen, so without a graph."""
    long, given = 16_000 * SECONDS, 1
    for number, (side, stride) in enumerate(FILTERS):
        long //= stride
        size = [SOUNDS, 512, long]
        casts(rt, V100, [512, given, side])
        us = max(2 * SOUNDS * long * given * 512 * side / V100.tflops / 1e6 / 0.7, V100.moves(4 * prod(size)))
        rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=16,
              run=((VOLTA[0], us),), dims=(size, [512, given, side]), kind=V100.kind)  # fmt: skip
        if not number:
            rt.op("aten::group_norm", "aten::native_group_norm", dims=(size,), gap=15, kind=V100.kind, run=(
                ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half>(…)",
                 V100.moves(2 * prod(size))), (kernel("group_norm", 2), V100.moves(4 * prod(size)))))  # fmt: skip
        acts(rt, None, V100, "gelu", size)
        given = 512


def wav2vec(rt: Third, fixed: bool) -> None:
    """Nothing to change: wav2vec 2.0 (base) learns to write speech down by fairseq's recipe on a V100, AMP in fp16, 14
    sounds of 15 s: filters are frozen, the GPU is busy with products, attention runs by the memory-efficient kernels,
    `GradScaler` waits once at the end, Adam by lists, sounds come pinned. Shapes, no rows of steps.

    Not: `GradScaler`'s wait, launches, the loader, copies, attention, precision (a V100 has neither TF32 nor bf16).
    """
    tape, x, sounds = Tape(), [SOUNDS, FRAMES, MODEL], [SOUNDS, 16_000 * SECONDS]
    loader(rt, 210)
    pinned(rt, 4 * prod(sounds), sounds)
    pinned(rt, 8 * SOUNDS * 190, [SOUNDS, 190], "long int")
    _features(rt)
    acts(rt, None, V100, "turn", [SOUNDS, FRAMES, 512])
    norm(rt, tape, V100, [SOUNDS, FRAMES, 512])
    casts(rt, V100, [MODEL, 512])
    dense(rt, tape, V100, SOUNDS, (SOUNDS * FRAMES, 512, MODEL))
    acts(rt, tape, V100, "dropout", x)
    for _ in range(12):
        casts(rt, V100, *[[MODEL, MODEL]] * 4, [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        for _ in range(3):
            dense(rt, tape, V100, SOUNDS, (SOUNDS * FRAMES, MODEL, MODEL))
        attention(rt, tape, V100, [SOUNDS, 12, FRAMES, 64])
        dense(rt, tape, V100, SOUNDS, (SOUNDS * FRAMES, MODEL, MODEL))
        acts(rt, tape, V100, "dropout add", x)
        norm(rt, tape, V100, x)
        dense(rt, tape, V100, SOUNDS, (SOUNDS * FRAMES, MODEL, 4 * MODEL))
        acts(rt, tape, V100, "gelu", [SOUNDS, FRAMES, 4 * MODEL])
        dense(rt, tape, V100, SOUNDS, (SOUNDS * FRAMES, 4 * MODEL, MODEL))
        acts(rt, tape, V100, "dropout add", x)
        norm(rt, tape, V100, x)
    casts(rt, V100, [SIGNS, MODEL])
    dense(rt, tape, V100, SOUNDS, (SOUNDS * FRAMES, MODEL, SIGNS))
    ctc(rt, tape, V100, (FRAMES, SOUNDS, SIGNS), 190)
    back(rt, tape)
    unscaled(rt, V100, 90e6)
    clipped(rt, V100, 90e6)
    adam(rt, V100, 90e6, "Adam", 2)
    few(rt, "add_", [1])
    rt.host(280)


TEXTS, TOKENS, WIDTH, DEEP, CODE = 6, 4_096, 3_072, 15, 49_152
CDNA = replace(MI300X, attention=AOTRITON)


def starcoder(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a StarCoder2 of 15 layers (1.6B) goes on learning by a plain loop on an MI300X, all in bf16,
    six texts of 4,096: the GPU is busy with products, attention is AOTriton's, AdamW is fused, clipped by lists, the
    loss is read each 25th step. Shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, the batch.
    """
    tape, x = Tape(), [TEXTS, TOKENS, WIDTH]
    loader(rt, 200)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * TOKENS, x[:2], "long int")
    acts(rt, tape, CDNA, "embedding", x)
    for _ in range(DEEP):
        norm(rt, tape, CDNA, x)
        for out in (WIDTH, 256, 256):
            dense(rt, tape, CDNA, TEXTS, (TEXTS * TOKENS, WIDTH, out))
        for heads in (24, 2):
            acts(rt, tape, CDNA, "mul neg cat mul add", [TEXTS, heads, TOKENS, 128])
        flash(rt, tape, CDNA, [TEXTS, 24, TOKENS, 128])
        dense(rt, tape, CDNA, TEXTS, (TEXTS * TOKENS, WIDTH, WIDTH))
        acts(rt, tape, CDNA, "add", x)
        norm(rt, tape, CDNA, x)
        dense(rt, tape, CDNA, TEXTS, (TEXTS * TOKENS, WIDTH, 4 * WIDTH))
        acts(rt, tape, CDNA, "gelu", [TEXTS, TOKENS, 4 * WIDTH])
        dense(rt, tape, CDNA, TEXTS, (TEXTS * TOKENS, 4 * WIDTH, WIDTH))
        acts(rt, tape, CDNA, "add", x)
    norm(rt, tape, CDNA, x)
    linear(rt, tape, CDNA, x, CODE)
    compiled_loss(rt, tape, CDNA, TEXTS * TOKENS, CODE)
    back(rt, tape)
    clipped(rt, CDNA, 1.6e9, 4, 2)
    fused_adamw(rt, CDNA, 1.6e9 / 2)
    rt.host(410)


ROWS, TABLES, EACH, BAG, DENSE = 32_768, 26, 128, 20, 13
TABLE = Roofline(190, 1_450, BF16, A100.names, A100.attention)
TBE = "void fbgemm_gpu::split_embedding_{}(…)"
FOUND = TBE.format("codegen_forward_unweighted_kernel<float, float, float, false, long, 128ul>")
STEPPED = TBE.format("backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, float, float, …>")


def clicks(rt: Framed, fixed: bool) -> None:
    """Nothing to change: DLRM (26 tables of 128 values, 20 indices each) learns clicks by TorchRec on one A100,
    autocast in bf16, 32,768 rows a step: all tables are one fused call of FBGEMM forward and one behind, which steps
    them as well, both bound by memory; the batch comes pinned on a stream of its own, a step ahead. Shapes.

    Not: the loader, copies (they are hidden), launches, tables in a loop (there is none), the optimizer, precision.
    """
    tape, count = Tape(), ROWS * TABLES * BAG
    loader(rt, 180)
    ahead = 0.0
    for size, kind in (([count], "long int"), ([ROWS * TABLES + 1], "long int"), ([ROWS, DENSE], "float"),
                       ([ROWS], "float")):  # fmt: skip
        ahead = pinned(rt, (8 if kind == "long int" else 4) * prod(size), size, kind, stream=27)
    us = TABLE.moves(4 * count * EACH * 0.9)
    rt.host(40)
    with rt.span("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", us=22):
        number = rt.op("fbgemm::split_embedding_codegen_forward_unweighted_cuda", gap=4, us=20, graph=True, run=(
            (FOUND, us),), dims=([TABLES * 2_000_000 * EACH], [count], [ROWS * TABLES + 1]))  # fmt: skip

    def backward() -> None:
        sort = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::…Policy800, …>"
        with node(rt, "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", number):
            run = (("void fbgemm_gpu::linearize_index_kernel<long, long>(…)", TABLE.moves(16 * count)),)
            run += ((sort, TABLE.moves(28 * count)),) * 4
            run += (("void at_cuda_detail::cub::DeviceRunLengthEncodeSweepKernel<…>", TABLE.moves(16 * count)),)
            rt.op("fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", gap=2, us=40,
                  run=(*run, (STEPPED, 2.1 * us)), dims=([ROWS, TABLES * EACH], [count]))  # fmt: skip

    tape.append(backward)
    given = DENSE
    for out in (512, 256, EACH):
        casts(rt, TABLE, [out, given])
        dense(rt, tape, TABLE, ROWS, (ROWS, given, out))
        acts(rt, tape, TABLE, "relu", [ROWS, out])
        given = out
    acts(rt, tape, TABLE, "cat", [ROWS, TABLES + 1, EACH])
    products(rt, tape, TABLE, (ROWS, TABLES + 1, EACH, TABLES + 1))
    acts(rt, tape, TABLE, "cat", [ROWS, EACH + 351])
    given = EACH + 351
    for out in (1_024, 1_024, 512, 256, 1):
        casts(rt, TABLE, [out, given])
        dense(rt, tape, TABLE, ROWS, (ROWS, given, out))
        if out > 1:
            acts(rt, tape, TABLE, "relu", [ROWS, out])
        given = out
    acts(rt, tape, replace(TABLE, kind="float"), "to sub exp log add mean", [ROWS])
    back(rt, tape)
    fused_adamw(rt, TABLE, 2.4e6)
    few(rt, "add_ add_", [1])
    rt.waits(MAIN, ahead)
    rt.host(240)


EIGHT, RUNS, SAID, UNITS, LAYERS, PIECES = list(range(8)), 8, 2_048, 2_048, 24, 50_304
EACH_LAYER, NVLINK, BUCKET = 12 * UNITS * UNITS, 210e3, 2
SUMS: dict[str, Any] = {"ranks": EIGHT, "kernel": "AllReduce_Sum_bf16_RING_LL", "stream": LINKS}


def falcon(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Falcon-RW-1B goes on learning by DeepSpeed on the eight A100 of a node, rank 4, all in bf16,
    eight texts of 2,048 a rank: stage 2 with `overlap_comm`, gradients travel by NVLink beside the backward pass, each
    rank steps an eighth, weights are gathered behind (some 10 ms, which the stage costs). The loss is compiled and read
    each 20th step. No shapes.

    Not: communication (hardly any shows), buckets, `no_sync`, the loader, launches, attention, the optimizer.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 4
    tape, marks, x, seen, end = Tape(), set[int](), [RUNS, SAID, UNITS], 0, 0.0
    loader(rt, 180)
    for _ in range(2):
        pinned(rt, 8 * RUNS * SAID, x[:2], "long int")
    acts(rt, tape, A100, "embedding", x)
    for _ in range(LAYERS):
        marks.add(len(tape))
        norm(rt, tape, A100, x)
        linear(rt, tape, A100, x, 3 * UNITS)
        flash(rt, tape, A100, [RUNS, 32, SAID, 64])
        linear(rt, tape, A100, x, UNITS)
        acts(rt, tape, A100, "add", x)
        norm(rt, tape, A100, x)
        linear(rt, tape, A100, x, 4 * UNITS)
        acts(rt, tape, A100, "gelu", [RUNS, SAID, 4 * UNITS])
        linear(rt, tape, A100, [RUNS, SAID, 4 * UNITS], UNITS)
        acts(rt, tape, A100, "add", x)
    norm(rt, tape, A100, x)
    linear(rt, tape, A100, x, PIECES)
    compiled_loss(rt, tape, A100, RUNS * SAID, PIECES)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) not in marks:
                continue
            rt.op("aten::copy_", run=((COPY, A100.moves(4 * EACH_LAYER)),), dims=([EACH_LAYER],), kind=BF16, gap=30)
            seen += 1
            if seen % BUCKET == 0:
                n = BUCKET * EACH_LAYER
                end = rt.collective("allreduce", rt.vary(50 + 4 * n * 0.875 / NVLINK, 0.04), (n, n), **SUMS)
        n = PIECES * UNITS
        end = max(end, rt.collective("allreduce", rt.vary(50 + 4 * n * 0.875 / NVLINK, 0.04), (n, n), **SUMS))
    rt.waits(MAIN, end)
    total = LAYERS * EACH_LAYER + PIECES * UNITS
    clipped(rt, A100, total / 8, 1, 2)
    fused_adamw(rt, A100, total / 8)
    rt.op("aten::copy_", run=((CAST, A100.moves(6 * total / 8)),), dims=([total // 8],), gap=20)
    rt.waits(MAIN, rt.collective("_allgather_base", rt.vary(60 + 2 * total * 0.875 / NVLINK, 0.04), (total // 8, total),
                                 ranks=EIGHT))  # fmt: skip
    rt.host(650)
