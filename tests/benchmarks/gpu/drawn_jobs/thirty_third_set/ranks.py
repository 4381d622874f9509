"""Jobs of the thirty-third set whose fault shows between ranks: masks of a model that rank 0 sends in each step, a
table that one rank has alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash
from ..eleventh_set.rows import COPY, Roofline, linear, node
from ..layers import Tape, dense, fused_adamw, norm
from ..runtime import COPIES, LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..tenth_set.jobs import FLASH
from ..thirty_first_set.rows import Told
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import CAT, acts, few
from .rows import Marked, wide

FOUR, TEXTS, LENGTH, WIDE, DEEP, WORDS, PCIE = list(range(4)), 8, 2_048, 1_024, 24, 1_024, 13.5e3
L40S = wide(160, 720, AMPERE, FLASH)
X = [TEXTS, LENGTH, WIDE]
MASK = LENGTH * LENGTH  # of float32, one in each layer
LAYER = 12 * WIDE * WIDE


def _sent(rt: Framed, masks: int) -> float:
    """Buffers in one message of rank 0: they become one tensor, travel, go back to their places."""
    count = masks * MASK
    with rt.span("aten::cat", us=14):
        rt.work(CAT.replace("{b}", "4"), L40S.moves(8 * count))
    us = 30 + 4 * count / PCIE
    end = rt.collective("broadcast", rt.vary(us, 0.02), (count, count), dtype="Float", ranks=FOUR,
                        kernel="Broadcast_RING_LL")  # fmt: skip
    next(row for row in reversed(rt.rows) if row["name"] == "c10d::broadcast")["name"] += "_"
    rt.waits(MAIN, end)
    for _ in range(masks):
        rt.op("aten::copy_", run=((COPY, L40S.moves(8 * MASK)),), dims=([LENGTH, LENGTH],) * 2, gap=4)
    return end


def _layer(rt: Framed, tape: Tape) -> None:
    casts(rt, L40S, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
    norm(rt, tape, L40S, X)
    linear(rt, tape, L40S, X, 3 * WIDE)
    flash(rt, tape, L40S, [TEXTS, WIDE // 64, LENGTH, 64])
    linear(rt, tape, L40S, X, WIDE)
    acts(rt, tape, L40S, "dropout add", X)
    norm(rt, tape, L40S, X)
    linear(rt, tape, L40S, X, 4 * WIDE)
    acts(rt, tape, L40S, "gelu", [TEXTS, LENGTH, 4 * WIDE])
    linear(rt, tape, L40S, [TEXTS, LENGTH, 4 * WIDE], WIDE)
    acts(rt, tape, L40S, "dropout add", X)


def tril(rt: Told, fixed: bool) -> None:
    """A GPT of 350M after minGPT learns scores of music by a plain loop in DDP on the four L40S of a machine by PCIe,
    autocast in bf16, eight pieces of 2,048 a rank: each layer still has `register_buffer("bias", torch.tril(…))`,
    float32 and used by nobody since attention is SDPA, and DDP sends all buffers of rank 0 before each forward pass,
    403 MB that nothing hides; without: `broadcast_buffers=False`. Gradients travel beside the backward pass, AdamW is
    fused, clipped by lists, the loss is compiled and read each 50th step. Rank 2. Shapes.

    First: the broadcast of buffers before each forward pass. Not: gradients' sums (they are hidden), `no_sync`,
    buckets, a late rank, the loader, launches, casts, attention.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    rt.free.setdefault(LINKS, 0.0)
    rt.causal = True
    tape, marks = Tape(), set[int]()
    loader(rt, 200)
    for _ in range(2):
        pinned(rt, 8 * TEXTS * LENGTH, X[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        if not fixed:
            for masks in (15, 9):  # 250 MB at a time
                _sent(rt, masks)
        acts(rt, tape, replace(L40S, kind="float"), "embedding embedding add", X)
        for _ in range(DEEP):
            marks.add(len(tape))
            _layer(rt, tape)
        norm(rt, tape, L40S, X)
        casts(rt, L40S, [WORDS, WIDE])
        linear(rt, tape, L40S, X, WORDS)
    compiled_loss(rt, tape, L40S, TEXTS * LENGTH, WORDS)

    def summed(count: int) -> float:
        us = 30 + 4 * count * 1.5 / PCIE
        return rt.collective("allreduce", rt.vary(us, 0.03), (count, count), dtype="Float", ranks=FOUR,
                             kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip

    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                summed(LAYER)
        end = summed((LENGTH + WORDS) * WIDE)
    rt.waits(MAIN, end)
    total = DEEP * LAYER + (LENGTH + 2 * WORDS) * WIDE
    clipped(rt, L40S, total, 2)
    fused_adamw(rt, L40S, total)
    few(rt, "add_", [1])
    rt.host(380)


EIGHT, ROWS, TABLES, EACH, NVLINK = list(range(8)), 32_768, 32, 128, 300e3
H100 = Roofline(230, 2_600, "float", TF32, ("", ""))
SPARSE, DIST = 24, 28
TBE = "void {}split_embedding_{}(…)"
FOUND = TBE.format("", "codegen_forward_unweighted_kernel<float, float, float, false, long, 128ul>")
STEPPED = TBE.format("", "backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, float, float, …>")
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::…Policy900, …>"
OWN = (5_200_000, 11_600_000)  # indices that this rank looks up, by hand and by the planner
LATEST = (42_500, 9_300)  # from one exchange to the next of the slowest rank, µs
KEYS = 11_600_000  # of a rank's samples


def _exchanged(rt: Framed, nelems: int, stream: int, **given: Any) -> float:
    """All-to-all of rows among all ranks."""
    us = 35 + 4 * nelems * 0.875 / NVLINK
    return rt.collective("all_to_allv", rt.vary(us, 0.03), (nelems, nelems), dtype="Float", ranks=EIGHT, stream=stream,
                         kernel="SendRecv", splits=str([nelems // 8] * 8), **given)  # fmt: skip


def _ahead(rt: Framed) -> None:
    """`TrainPipelineSparseDist`: the next batch is copied, its keys are exchanged beside this one's work."""
    for nbytes, kind in ((4 * ROWS * 13, "float"), (8 * KEYS, "long int"), (4 * ROWS * TABLES, "int")):
        pinned(rt, nbytes, [nbytes // 8], kind, stream=COPIES)
    rt.free[DIST] = max(rt.free.get(DIST, 0.0), rt.free[COPIES])
    for nelems in (ROWS * TABLES, KEYS):
        us = 35 + 8 * nelems * 0.875 / NVLINK
        rt.collective("all_to_allv", us, (nelems, nelems), dtype="Long", ranks=EIGHT, stream=DIST, kernel="SendRecv",
                      splits=str([nelems // 8] * 8), behind=False)  # fmt: skip
        if nelems != KEYS:
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(512, "DtoH", "Pageable", stream=DIST, waits=True)  # how many keys come


def _looked_up(rt: Marked, tape: Tape, fixed: bool) -> float:
    """This rank's tables in one call of FBGEMM, then sums of rows go to those whose samples they are."""
    keys = OWN[fixed]
    us, held = H100.moves(4 * keys * EACH * 0.9), ROWS * TABLES * EACH
    rt.host(40)
    with rt.span("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", us=24):
        number = rt.op("fbgemm::split_embedding_codegen_forward_unweighted_cuda", gap=4, us=20, graph=True, run=(
            (FOUND, us),), dims=([4 * 30_000_000 * EACH], [keys], [8 * ROWS * 4 + 1]))  # fmt: skip

    def backward() -> None:
        with node(rt, "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", number):
            run = (("void fbgemm_gpu::linearize_index_kernel<long, long>(…)", H100.moves(16 * keys)),)
            run += ((SORT, H100.moves(28 * keys)),) * 4
            run += (("void at_cuda_detail::cub::DeviceRunLengthEncodeSweepKernel<…>", H100.moves(16 * keys)),)
            rt.op("fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", gap=2, us=40,
                  run=(*run, (STEPPED, 2.1 * us)), dims=([ROWS, 4 * EACH], [keys]))  # fmt: skip

    tape.append(backward)
    with rt.span("All2All_Pooled_Req", us=70):
        until = rt.mark + rt.vary(LATEST[fixed], 0.02) if rt.mark else 0.0
        rows = _exchanged(rt, held, SPARSE, until=until)
    if fixed:
        travel, nelems = 35 + 4 * 7 * ROWS * EACH / NVLINK, (8 * ROWS * EACH, ROWS * EACH)
        rows = rt.collective("_reduce_scatter_base", travel, nelems, dtype="Float", ranks=EIGHT, stream=SPARSE,
                             kernel="ReduceScatter_Sum_f32_RING_LL")  # fmt: skip
    return rows


def _dense(rt: Framed, tape: Tape) -> None:
    """Where rows and numbers meet, by DCN's layers of low rank and five products; the loss."""
    wide_of = (TABLES + 1) * EACH
    acts(rt, tape, H100, "cat", [ROWS, wide_of])
    for _ in range(3):
        dense(rt, tape, H100, 1, (ROWS, wide_of, 512))
        dense(rt, tape, H100, 1, (ROWS, 512, wide_of))
        acts(rt, tape, H100, "mul add", [ROWS, wide_of])
    given = wide_of
    for out in (2_048, 1_024, 512, 256, 1):
        dense(rt, tape, H100, 1, (ROWS, given, out))
        if out > 1:
            acts(rt, tape, H100, "relu", [ROWS, out])
        given = out
    acts(rt, tape, H100, "to sub exp log add mean", [ROWS])


def hotshard(rt: Marked, fixed: bool) -> None:
    """A DLRM (32 tables, DCNv2) by TorchRec on the eight H100 of a node, TF32, 32,768 rows a rank, seen from rank 2:
    somebody gave the planner constraints, `table_wise` for all, so that rank 5 has the table of words, 200 indices a
    sample, alone and takes 40 ms to look up and to step what others do in 10; they wait for its rows in the exchange;
    without: the planner may split rows of that table over all ranks. The next batch's keys travel beside the work,
    dense gradients as well, tables are stepped by FBGEMM, the loss stays on the GPU. No shapes.

    First: a rank that comes late to the exchange of rows (its tables, the plan). Not: gradients' sums, `no_sync`,
    buckets, the loader, launches, copies, precision, NCCL's settings.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 2
    for stream in (LINKS, SPARSE, DIST):
        rt.free.setdefault(stream, 0.0)
    tape, sparse, held = Tape(), Tape(), ROWS * TABLES * EACH
    loader(rt, 170)
    with rt.span("## forward ##", "user_annotation", us=30):
        rows = _looked_up(rt, sparse, fixed)
        given = 13
        for out in (512, 256, EACH):
            dense(rt, tape, H100, 1, (ROWS, given, out))
            acts(rt, tape, H100, "relu", [ROWS, out])
            given = out
        _ahead(rt)
        rt.waits(MAIN, rows)
        _dense(rt, tape)
    summed = partial(rt.collective, "allreduce", dtype="Float", ranks=EIGHT, kernel="AllReduce_Sum_f32_RING_LL")
    with rt.span("## backward ##", "user_annotation", us=20), rt.backward():
        while tape:
            tape.pop()()
        with rt.span("All2All_Pooled_ReqBackward", us=60):
            rt.mark = _exchanged(rt, held, SPARSE)
            if fixed:
                rt.mark = rt.collective("_allgather_base", 35 + 4 * 7 * ROWS * EACH / NVLINK, (ROWS * EACH,
                                        8 * ROWS * EACH), dtype="Float", ranks=EIGHT, stream=SPARSE)  # fmt: skip
        reduced = summed(30 + 3.6e7 * 4 * 1.75 / NVLINK, (36_000_000,) * 2)
        rt.waits(MAIN, rt.mark)
        sparse.pop()()
    rt.waits(MAIN, reduced)
    with rt.span("## optimizer ##", "user_annotation", us=20):
        fused_adamw(rt, H100, 36e6)
    few(rt, "add_ add_", [1])
    rt.host(260)
