"""Jobs of the sixteenth set whose fault shows between ranks: gathers for each token, uneven lengths, a search."""

from __future__ import annotations

from dataclasses import replace

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, FILL, elementwise, foreach, kernel, linear
from ..fifteenth_set.rows import V100, passed, product, sdpa
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import GATHER, SCATTER
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Framed

RANKS = list(range(8))
SPLIT = "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, …>>"
THIN = "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"
TOKEN = replace(A100, names=(THIN, THIN), attention=(SPLIT, ""))
QWEN, HEAD = 233_057_280, 544_997_376  # parameters of a layer of Qwen2.5-7B and of its head


def _fetched(rt: Framed, count: int) -> float:
    """What DeepSpeed's coordinator gathers for a module, on its own stream."""
    with rt.span("PartitionedParameterCoordinator.fetch_sub_module", us=90), rt.span("_all_gather_dtype", us=30):
        rt.op("aten::empty", us=3, gap=12)
        return rt.collective("_allgather_base", 26 + count * 2 * 0.875 / 215e3, (count // 8, count), behind=False)


def regathered(rt: Framed, fixed: bool) -> None:
    """Rollouts of PPO under ZeRO-3 on 8 A100, `ds3_gather_for_generation=False`: all 7.6 B weights are gathered for
    each token; without: they are gathered once, and a token is bound by launches.

    Steps are tokens, without rows of steps. To say: gathers of weights, 58 ms, outlast the 13 ms that use them; gather
    once, or let vLLM generate. Not gradients, `no_sync()`, buckets; that launches bind a token comes second.
    """
    groups(rt, 8, default_pg=RANKS)
    rt.head["distributedInfo"]["rank"] = 6
    batch, width, hidden, keys = 8, 3_584, 18_944, 420 + rt.number
    x, ahead = [batch, 1, width], 0.0
    small(rt, None, ("cumsum", "sub", "masked_fill_", "slice", "embedding"), [batch, keys], 3)
    for number in range(29):
        if not fixed:
            with rt.span("DeepSpeedZeRoOffload._pre_forward_module_hook", us=60):
                ahead = ahead or _fetched(rt, QWEN)
                reached = ahead
                ahead = _fetched(rt, QWEN if number < 27 else HEAD) if number < 28 else 0.0
                rt.waits(MAIN, reached)
        if number == 28:
            product(rt, TOKEN, x, 152_064)
            continue
        for name in ("_to_copy", "pow", "mean", "rsqrt", "mul", "_to_copy", "mul"):
            passed(rt, TOKEN, f"aten::{name}", kernel(name, 2), x, 2)
        for out in (width, 512, 512):
            product(rt, TOKEN, x, out)
        for name in ("mul", "neg", "cat", "mul", "add") * 2:
            passed(rt, TOKEN, f"aten::{name}", kernel(name, 2, BF16), [batch, 28, 1, 128], 2)
        for _ in range(2):
            passed(rt, TOKEN, "aten::cat", kernel("cat", 2, BF16), [batch, 4, keys, 128], 2)
        sdpa(rt, TOKEN, [batch, 28, 1, 128], keys)
        product(rt, TOKEN, x, width)
        for name in ("add", "_to_copy", "pow", "mean", "rsqrt", "mul", "_to_copy", "mul"):
            passed(rt, TOKEN, f"aten::{name}", kernel(name, 2), x, 2)
        for _ in range(2):
            product(rt, TOKEN, x, hidden)
        for name in ("silu", "mul"):
            passed(rt, TOKEN, f"aten::{name}", kernel(name, 2, BF16), [batch, 1, hidden], 2)
        product(rt, TOKEN, [batch, 1, hidden], width)
        passed(rt, TOKEN, "aten::add", kernel("add", 3, BF16), x, 3)
    small(rt, None, ("_to_copy", "div", "sort", "softmax", "cumsum", "masked_fill", "multinomial"), [batch, 152_064], 9)
    small(rt, None, ("mul", "add", "cat", "isin", "bitwise_and", "max", "eq"), [batch], 2.6)
    end = rt.collective("allreduce", 24, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL")  # `synced_gpus`
    rt.waits(MAIN, end)
    rt.value("aten::is_nonzero")
    rt.host(110)


LENGTHS = (1_180, 1_910, 760, 1_560, 2_048, 940)
LONGEST = 2_048
LAYERS, ELEMENTS = 12, 51_380_224


def _alone(length: int) -> tuple[float, float]:
    """How long the forward and the backward pass of a rank last by themselves, µs."""
    rt = Framed({"name": "NVIDIA A100-SXM4-80GB", "numSms": 108}, seed=5)
    tape = _forward(rt, length)
    start, middle = 1_000_000.0, rt.free[MAIN]
    back(rt, tape)
    return middle - start, rt.free[MAIN] - middle


def _forward(rt: Framed, length: int) -> Tape:
    tape: Tape = []
    for _ in range(LAYERS):
        llama(rt, tape, A100, (4, length, 2_048, 8, 5_632), fused_norm)
    dense(rt, tape, A100, 4, (4 * length, 2_048, 32_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [4 * length, 32_000], A100.moves(8 * 4 * length * 32_000))
    return tape


def unbalanced(rt: Framed, fixed: bool) -> None:
    """Fine-tuning by DDP on 8 A100, each rank pads to the longest of its own texts: this one waits in its reductions
    for the one whose texts are longest; without: batches hold as many tokens on each rank.

    Steps last as long as each other, 206 ms, of which the device's own work is 80 to 205. To say: ranks come late to
    the reductions, so balance or pack lengths. Not the network, buckets, `no_sync()`, launches.
    """
    groups(rt, 8, default_pg=RANKS)
    rt.head["distributedInfo"]["rank"] = 5
    length = sum(LENGTHS) // len(LENGTHS) if fixed else LENGTHS[rt.number]
    start = max(rt.now, rt.free[MAIN])
    ahead, behind = _alone(LONGEST)
    rt.batch(4 * length * 8, 4 * length * 8, 4 * length * 8)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        tape = _forward(rt, length)
    one, end, done = len(tape) // LAYERS, 0.0, 0
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % one == 0 and done < LAYERS:
                done += 1
                last = 0.0 if fixed else start + ahead + behind * done / LAYERS
                end = rt.collective("allreduce", ELEMENTS * 4 * 1.75 / 225e3, (ELEMENTS,) * 2, until=last,
                                    dtype="Float", kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * LAYERS * ELEMENTS), 4)
    fused_adamw(rt, A100, LAYERS * ELEMENTS)
    rt.host(300)


V100_FLOAT = Card(11, 760, "float", ("volta_sgemm_128x64_nn", "volta_sgemm_64x64_nt"), V100.attention)
NODES, EDGES, HIDDEN = 700, 9_800, 128
REDUCER = "torch.distributed.ddp.reducer::"


def unused(rt: Framed, fixed: bool) -> None:
    """A network of atoms by DDP on 4 V100, `find_unused_parameters=True` and `broadcast_buffers=True`, and needs
    neither: the graph is searched after each forward pass, buffers come before it; without: neither.

    To say: first that launches bind the step, then the search (a row of DDP's own, 2.6 ms) and the broadcast that waits
    for rank 0 (0.6 ms). Not the reductions of gradients, which are small and hidden, nor `no_sync()`.
    """
    ranks = [0, 1, 2, 3]
    groups(rt, 4, default_pg=ranks)
    rt.head["distributedInfo"]["rank"] = 2
    tape, x, pairs = Tape(), [NODES, HIDDEN], [EDGES, HIDDEN]
    rt.batch(NODES * 12, NODES * 8, EDGES * 16, 64 * 4)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=80):
        if not fixed:
            with rt.span("_sync_buffers", us=40):
                rt.op("aten::cat", run=((COPY, 4),), gap=30, us=14)
                end = rt.collective("broadcast", 22, (9_216,) * 2, dtype="Float", ranks=ranks,
                                    kernel="Broadcast_RING_LL", until=rt.now + rt.vary(620, 0.5))  # fmt: skip
                rt.waits(MAIN, end)
                for _ in range(24):
                    rt.op("aten::copy_", run=((COPY, 2.6),), gap=5, us=5, dims=([384], [384]))
        for _ in range(6):
            for _ in range(2):
                linear(rt, tape, V100_FLOAT, x, HIDDEN, gap=18)
                elementwise(rt, tape, V100_FLOAT, "silu", x, back=(("silu_backward", 3),))
            rt.op(
                "aten::index_select", run=((GATHER, V100_FLOAT.moves(8 * EDGES * HIDDEN)),), dims=(x, [EDGES]), gap=16
            )
            for name in ("sub", "pow", "mul", "exp", "cos", "add", "mul"):
                elementwise(rt, tape, V100_FLOAT, name, [EDGES, 50], back=((name, 3),))
            for wide in (50, HIDDEN):
                linear(rt, tape, V100_FLOAT, [EDGES, wide], HIDDEN, gap=18)
            elementwise(rt, tape, V100_FLOAT, "mul", pairs, 2, (("mul", 3), ("mul", 3)))
            rt.op("aten::scatter_add_", run=((SCATTER, V100_FLOAT.moves(6 * EDGES * HIDDEN)),), dims=(x, pairs), gap=16)
            for name in ("add", "silu", "mul", "add"):
                elementwise(rt, tape, V100_FLOAT, name, x, 2, ((name, 3),))
        small(rt, tape, ("linear", "sum", "sub", "abs", "mean"), [64], 3)
        if not fixed:
            with rt.span(f"{REDUCER}search_unused_parameters", us=20):
                rt.host(2_600)
    parts, end = len(tape) // 2, 0.0
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in (parts, 0):
                end = rt.collective("allreduce", 95, (620_000,) * 2, dtype="Float", ranks=ranks,
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        if not fixed:
            rt.copy(4 * 212, stream=MAIN)
            end = rt.collective("allreduce", 16, (212, 212), dtype="Int", ranks=ranks,
                                kernel="AllReduce_Sum_u32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    rt.op("aten::zero_", "aten::fill_", run=((FILL, 4),))
    rt.op("aten::linalg_vector_norm", run=((REDUCE, 6),), dims=([1_240_000],))
    fused_adamw(rt, V100_FLOAT, 1.24e6)
    rt.host(220)
