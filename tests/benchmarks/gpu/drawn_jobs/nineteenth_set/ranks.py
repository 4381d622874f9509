"""The job of the nineteenth set whose fault shows between ranks: gradients and weights that travel by themselves."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import kernel, linear
from ..layers import Tape
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss
from ..twelfth_set.language import A100
from ..twelfth_set.rows import Framed, loader

RANKS, DEEP, MICRO, SHAPE, CLASSES = list(range(32)), 24, 2, (2, 2_048, 2_048, 32, 5_504), 50_304
LAYER, WHOLE = 50_600_000, 24 * 50_600_000 + 2 * 103_000_000
BUS = 70e3  # of four links of 200 Gb/s a node, bytes a µs
SPARE = LINKS + 4
ADAM = (
    "void transformer_engine::multi_tensor_apply::multi_tensor_apply_kernel<TensorListMetadata<5, false>, "
    "transformer_engine::multi_tensor_adam::AdamFunctorMaster<__nv_bfloat16, float, float, long>, float, …>(…)"
)
L2NORM = (
    "void transformer_engine::multi_tensor_apply::multi_tensor_apply_kernel<TensorListMetadata<1, false>, "
    "transformer_engine::multi_tensor_l2norm::L2NormFunctor<float>, float*, float*, bool, int>(…)"
)
SCALE = L2NORM.replace("<1, false>", "<2, false>").replace("l2norm::L2Norm", "scale::Scale")
DP = {"ranks": RANKS, "group": "DATA_PARALLEL_GROUP_WITH_CP", "pg": "3"}


def _scattered(rt: Framed, count: int, stream: int = LINKS) -> float:
    """Gradients of so many weights in fp32 go to the ranks that own them."""
    return rt.collective("_reduce_scatter_base", 60 + count * 4 * 31 / 32 / BUS, (count, count // 32), dtype="Float",
                         kernel="ReduceScatter_Sum_f32_RING_LL", stream=stream, **DP)  # fmt: skip


def _gathered(rt: Framed, count: int, *, behind: bool) -> float:
    """Weights in bf16 come from the ranks that own them."""
    return rt.collective("_allgather_base", 60 + count * 2 * 31 / 32 / BUS, (count // 32, count), stream=SPARE,
                         behind=behind, **DP)  # fmt: skip


def unhidden(rt: Framed, fixed: bool) -> None:
    """Megatron-LM, 1.4 B, on 32 A100 of 4 nodes, rank 5, `--use-distributed-optimizer` without `--overlap-grad-reduce`
    and `--overlap-param-gather`: all gradients are reduced after the last backward pass, all weights are gathered after
    the update, in one piece each, and nothing runs beside; without: in buckets beside the layers. No shapes.

    First: communication that nothing hides, by these two options. Not: a loader, launches, `no_sync` (only the last of
    two micro-batches reduces), another rank that is late.
    """
    groups(rt, 32, default_pg=RANKS, TENSOR_MODEL_PARALLEL_GROUP=[5], PIPELINE_MODEL_PARALLEL_GROUP=[5],
           DATA_PARALLEL_GROUP_WITH_CP=RANKS)  # fmt: skip
    rt.head["distributedInfo"]["rank"] = 5
    x, end = list(SHAPE[:3]), 0.0
    for micro in range(MICRO):
        tape: Tape = []
        loader(rt, 110)
        for _ in range(4):
            pinned(rt, prod(x[:2]) * 8, x[:2], "long int")
        ahead = _gathered(rt, LAYER, behind=True) if fixed and micro == 0 else 0.0
        for number in range(DEEP):
            if fixed and micro == 0:
                rt.waits(MAIN, ahead)
                ahead = _gathered(rt, LAYER, behind=False) if number + 1 < DEEP else 0.0
            llama(rt, tape, A100, SHAPE, fused_norm)
        one = len(tape) // DEEP
        fused_norm(rt, tape, A100, x)
        linear(rt, tape, A100, x, CLASSES)
        compiled_loss(rt, tape, A100, prod(x[:2]), CLASSES)
        with rt.backward():
            while tape:
                tape.pop()()
                if len(tape) < DEEP * one and len(tape) % one == 0:
                    rt.op("aten::add_", run=((kernel("add_", 3), A100.moves(10 * LAYER)),), gap=3, dims=([LAYER],))
                    if fixed and micro == MICRO - 1:
                        end = _scattered(rt, LAYER)
    rt.waits(MAIN, max(end, _scattered(rt, WHOLE - DEEP * LAYER if fixed else WHOLE)))
    rt.host(90)
    rt.op("multi_tensor_l2norm", us=30, run=((L2NORM, A100.moves(4 * WHOLE / 32)), (L2NORM, 3)))
    rt.waits(MAIN, rt.collective("allreduce", 45, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", **DP))
    rt.value()
    rt.op("multi_tensor_scale", us=24, run=((SCALE, A100.moves(8 * WHOLE / 32)),))
    with rt.span("Optimizer.step#FusedAdam.step", "user_annotation", us=160):
        rt.op("multi_tensor_adam", us=40, run=((ADAM, A100.moves(30 * WHOLE / 32)),))
    if not fixed:
        rt.waits(MAIN, _gathered(rt, WHOLE, behind=True))
    rt.host(700)
