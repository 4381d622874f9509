"""Jobs of the eighteenth set whose fault shows between ranks: keys in line, a last stage, sums through the host."""

from __future__ import annotations

from functools import partial

from ..eighth_set.ranks import RECEIVE, SEND, groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..layers import CAST, Card, Tape, back, dense, fused_adamw
from ..runtime import COPIES, LINKS, MAIN
from ..sixteenth_set.rows import beside
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.pictures import A100, ADA, HALF, small, unscaled
from ..twelfth_set.rows import Framed, loader
from .rows import pinned

RANKS, TABLES, BATCH, KEYS, DIM = list(range(8)), 40, 4_608, 2_900_000, 128
DIST, SPARSE = 18, LINKS + 8
PERMUTE = "void fbgemm_gpu::permute_2D_data_kernel<false, int, long, float>(…)"
LOOKUP = "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float, float, long, 128ul>(…)"
UPDATE = "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_{}_per_row_1<c10::Half, float, …>(…)"


def _exchanged(rt: Framed, nbytes: float, nelems: int, dtype: str, stream: int, behind: bool = True) -> float:
    """`all_to_all_single`;  nbytes: what a rank sends to the others."""
    return rt.collective("all_to_allv", 24 + nbytes / 190e3, (nelems, nelems), dtype=dtype, stream=stream,
                         kernel="SendRecv", splits=str([nelems // 8] * 8), behind=behind)  # fmt: skip


def _keys(rt: Framed, beforehand: bool) -> None:
    """A batch's keys go to the ranks that hold their tables: first how many there are, which the host reads, then they;
    beforehand: of the next batch, on streams of their own.
    """
    stream = DIST if beforehand else MAIN
    with rt.span("## start_sparse_data_dist ##" if beforehand else "## sparse_data_dist ##", "user_annotation", us=90):
        with rt.span("fbgemm::permute_2D_sparse_data", us=40):
            rt.work(PERMUTE.replace("data", "lengths"), 18, stream=stream)
            rt.work(PERMUTE, 2 * KEYS * 8 / 1.1e6, stream=stream)
        rt.free[SPARSE] = max(rt.free.get(SPARSE, 0), rt.free[stream])
        done = _exchanged(rt, TABLES * BATCH * 8, TABLES * BATCH, "Long", SPARSE, not beforehand)
        rt.waits(stream, done)
        with rt.span("fbgemm::segment_sum_csr", us=16):
            rt.work("void fbgemm_gpu::_segment_sum_csr_cuda_kernel<long>(…)", 9, stream=stream)
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(128, "DtoH", "Pageable", stream=stream, waits=True)  # `.tolist()` of the splits
        rt.host(70)
        rt.free[SPARSE] = max(rt.free[SPARSE], rt.free[stream])
        done = _exchanged(rt, KEYS * 8 * 0.875, KEYS, "Long", SPARSE, not beforehand)
        rt.waits(stream, done)
        with rt.span("fbgemm::permute_2D_sparse_data", us=40):
            rt.work(PERMUTE, 2 * KEYS * 8 / 1.1e6, stream=stream)


def _sparse(rt: Framed, tape: Tape) -> float:
    """Rows are looked up and summed here, and go to the ranks whose samples they are; returns when they have come."""
    nbytes = KEYS * DIM * 2
    number = rt.op("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", us=60, gap=40, graph=True,
                   run=((LOOKUP, nbytes / 0.85e6),), dims=([31_000_000, DIM], [KEYS]), kind=HALF)  # fmt: skip

    def backward() -> None:
        with node(rt, "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", number):
            for _ in range(4):
                rt.work("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<…>", KEYS * 24 / 1.1e6)
            for way, share in (("cta", 0.2), ("warp", 1.6)):
                rt.work(UPDATE.format(way), share * nbytes / 0.8e6)

    tape.append(backward)
    with rt.span("All2All_Pooled_Req", us=70):
        return _exchanged(rt, TABLES * BATCH * DIM * 2 * 0.875, TABLES * BATCH * DIM, "Half", SPARSE)


def inlined(rt: Framed, fixed: bool) -> None:
    """A DLRM by TorchRec on 8 A100, tables by columns of ranks, without a pipeline: a batch is copied, its keys are
    exchanged in line, and the host waits for their number when nothing else is queued; without: the next batch's is
    done beside this one's products, as `TrainPipelineSparseDist` does. Exchanges of rows are of the method.
    """
    groups(rt, 8, default_pg=RANKS)
    rt.head["distributedInfo"]["rank"] = 4
    tape, sparse, card = Tape(), Tape(), A100.card
    loader(rt, 160)
    if not fixed:
        for nbytes in (BATCH * 13 * 4, KEYS * 8, TABLES * BATCH * 8):
            pinned(rt, nbytes, [nbytes // 8], "long int")
        _keys(rt, False)
    done = _sparse(rt, sparse)
    for sizes in ((13, 512), (512, 256), (256, DIM)):
        dense(rt, tape, card, 1, (BATCH, *sizes))
        elementwise(rt, tape, card, "relu", [BATCH, sizes[1]], back=(("threshold_backward", 3),))
    if fixed:
        for nbytes in (BATCH * 13 * 4, KEYS * 8, TABLES * BATCH * 8):
            rt.free[DIST] = max(rt.free.get(DIST, 0), pinned(rt, nbytes, [nbytes // 8], "long int", stream=COPIES))
    rt.waits(MAIN, done)
    small(rt, tape, ("cat", "bmm", "index", "cat"), [BATCH, TABLES + 1, DIM], card.moves(8 * BATCH * TABLES * DIM))
    for sizes in ((949, 2_048), (2_048, 2_048), (2_048, 1_024), (1_024, 512), (512, 1)):
        dense(rt, tape, card, 1, (BATCH, *sizes))
        elementwise(rt, tape, card, "relu", [BATCH, sizes[1]], back=(("threshold_backward", 3),))
    small(rt, tape, ("binary_cross_entropy_with_logits",), [BATCH], 4)
    with rt.backward():
        while tape:
            tape.pop()()
        with rt.span("All2All_Pooled_ReqBackward", us=60):
            done = _exchanged(rt, TABLES * BATCH * DIM * 4 * 0.875, TABLES * BATCH * DIM, "Float", SPARSE)
        reduced = rt.collective("allreduce", 30 + 3.2e7 * 4 * 1.75 / 225e3, (32_000_000,) * 2, dtype="Float",
                                kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        rt.waits(MAIN, done)
        sparse.pop()()
    if fixed:
        _keys(rt, True)
    rt.waits(MAIN, reduced)
    fused_adamw(rt, card, 32e6)
    rt.host(220)


STAGES, MICRO, SHAPE = [0, 1, 2, 3], 8, (2, 4_096, 2_048, 8, 8_192)
SLOW, EVEN, HEAD = (6, 6, 6, 10), (7, 7, 7, 7), 4  # layers of the stages, the last one's head is as long as four
PIPE = {"ranks": STAGES, "group": "mesh_pp", "pg": "1"}


def _layer_us() -> tuple[float, float]:
    """What a layer takes ahead and back."""
    rt = Framed({"name": "NVIDIA H100 80GB HBM3", "numSms": 132}, seed=11)
    tape: Tape = []
    llama(rt, tape, H100, SHAPE, fused_norm)
    middle = len(rt.rows)
    back(rt, tape)
    parts = rt.rows[:middle], rt.rows[middle:]
    ahead, behind = (sum(row["dur"] + 1.2 for row in part if row["cat"] == "kernel") for part in parts)
    return ahead, behind


def _order(stage: int) -> list[tuple[str, int]]:
    """1F1B."""
    warm = len(STAGES) - 1 - stage
    first = [("f", number) for number in range(warm)]
    both = [part for number in range(MICRO - warm) for part in (("f", warm + number), ("b", number))]
    return first + both + [("b", number) for number in range(MICRO - warm, MICRO)]


def _ends(layers: tuple[int, ...]) -> dict[tuple[str, int, int], float]:
    """When each stage ends each part of each micro-batch, from the start of the step, µs."""
    us = dict(zip("fb", _layer_us(), strict=True))
    done, times, left = dict[tuple[str, int, int], float](), [0.0] * 4, [_order(stage) for stage in STAGES]
    while any(left):
        for stage in STAGES:
            if not left[stage]:
                continue
            way, number = left[stage][0]
            needs = (way, stage - 1 if way == "f" else stage + 1, number)
            if 0 <= needs[1] < 4 and needs not in done:
                continue
            times[stage] = max(times[stage], done.get(needs, 0) + 300) + layers[stage] * us[way]
            done[way, stage, number] = times[stage]
            left[stage].pop(0)
    return done


def lopsided(rt: Framed, fixed: bool) -> None:
    """A pipeline of four H100, 24 layers and a head of 256,000, 1F1B of 8 micro-batches, this is the second stage: each
    stage has 6 layers, the last the head besides, as long as four, so that the others wait for it from the third micro-
    batch on; without: 7, 7, 7 and 3. That stages wait at either end of a step is of the method. No rows of steps.
    """
    groups(rt, 4, default_pg=STAGES, mesh_pp=STAGES)
    layers = EVEN if fixed else SLOW
    done, start, tapes = _ends(layers), max(rt.now, *rt.free.values()), dict[int, Tape]()
    nelems = SHAPE[0] * SHAPE[1] * SHAPE[2]
    for way, number in _order(1):
        comes = start + done[(way, 0 if way == "f" else 2, number)] + 150
        side = ("recv 1<-0", "send 1->2") if way == "f" else ("recv 1<-2", "send 1->0")
        with rt.span(f"{'Forward' if way == 'f' else 'Backward'} {number}", "user_annotation", us=40):
            end = rt.collective(side[0], 90, (nelems,) * 2, stream=RECEIVE + 4 * (way == "b"), until=comes,
                                behind=False, **PIPE)  # fmt: skip
            rt.waits(MAIN, end)
            if way == "f":
                tapes[number] = []
                for _ in range(layers[1]):
                    llama(rt, tapes[number], H100, SHAPE, fused_norm)
            else:
                back(rt, tapes.pop(number))
            rt.collective(side[1], 90, (nelems,) * 2, stream=SEND + 4 * (way == "b"), **PIPE)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * layers[1] * 60.8e6), 2)
    rt.waits(MAIN, rt.collective("allreduce", 26, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", **PIPE))
    fused_adamw(rt, H100, layers[1] * 60.8e6)
    rt.host(300)


PAIR, BUCKETS, BUCKET = [0, 1], 14, 6_170_000
RTX3090 = Card(58, 780, HALF, ADA.card.names, FLASH)
HOSTED, BACK, THREAD = 24, 25, 5  # streams of gloo, and one of its threads


class Hosted(Framed):
    """idle: when gloo's thread has no more to do."""

    idle = 0.0


def _hosted(rt: Hosted, start: float) -> None:
    """A thread of gloo copies a bucket to pinned memory, adds what comes by TCP, copies it back."""
    rt.free[HOSTED] = max(rt.free.get(HOSTED, 0), start + 8)
    with beside(rt, THREAD, max(rt.idle, rt.now + 30)):
        with rt.span("gloo:all_reduce", "user_annotation", us=30):
            end = rt.copy(4 * BUCKET, "DtoH", "Pinned", stream=HOSTED)
            rt.call("StreamSynchronize", 4, until=end + 5)
            rt.now += rt.vary(4 * BUCKET / 2.6e3, 0.06)
            rt.free[BACK] = max(rt.free.get(BACK, 0), rt.copy(4 * BUCKET, stream=BACK))
        rt.idle = rt.now


def _summed(rt: Hosted, fixed: bool) -> float:
    """A bucket of DDP; returns when it is there, by NCCL."""
    if fixed:
        return rt.collective("allreduce", 40 + BUCKET * 4 / 11e3, (BUCKET,) * 2, dtype="Float", ranks=PAIR,
                             kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": BUCKET, "Out msg nelems": BUCKET,
            "Group size": 2, "Process Group Name": "0", "Process Group Ranks": str(PAIR)}  # fmt: skip
    with rt.span("c10d::allreduce_", us=12), rt.span("record_param_comms", us=8, **args):
        rt.call("EventRecordWithFlags", 1)
        rt.call("StreamWaitEvent", 1)
    _hosted(rt, rt.free[MAIN])
    return 0.0


def glooed(rt: Hosted, fixed: bool) -> None:
    """A ViT-B of two RTX 3090 on Windows, DDP with `backend="gloo"`: gradients are copied to the host, added there and
    copied back, bucket by bucket, which takes longer than the backward pass, and the host waits for it before the
    update; without: NCCL. No shapes.
    """
    groups(rt, 2, default_pg=PAIR)
    if not fixed:
        rt.head["distributedInfo"]["backend"] = "gloo"
        rt.head["distributedInfo"]["pg_config"][0]["backend_config"] = "cpu:gloo,cuda:gloo"
    tape, card, x, end = Tape(), RTX3090, [64, 197, 768], 0.0
    loader(rt, 260)
    pinned(rt, 64 * 3 * 224 * 224 * 4, [64, 3, 224, 224])
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        dense(rt, tape, card, 64, (64 * 196, 768, 768))
        for _ in range(12):
            for size in ([2_304, 768], [768, 768], [3_072, 768], [768, 3_072]):
                run = ((CAST, card.moves(6 * size[0] * size[1])),)
                rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
            encoder(rt, tape, card, (x[0], x[1], x[2]))
        linear(rt, tape, card, [64, 768], 1_000)
    small(rt, tape, ("_to_copy", "log_softmax", "nll_loss"), [64, 1_000], 4)
    one, summed = len(tape) // BUCKETS, partial(_summed, rt, fixed)
    with rt.backward():
        done = 0
        while tape:
            tape.pop()()
            if len(tape) % one == 0 and done < BUCKETS - 1:
                end, done = summed(), done + 1
        end = summed()
        rt.now = max(rt.now, rt.idle + 40)  # the reducer waits for gloo
    rt.waits(MAIN, max(end, rt.free.get(BACK, 0)))
    for _ in range(BUCKETS):
        rt.op("aten::div_", run=((kernel("div_", 2), card.moves(8 * BUCKET)),), dims=([BUCKET],), gap=5)
    unscaled(rt, card, 86e6)
    fused_adamw(rt, card, 86e6)
    rt.host(300)
