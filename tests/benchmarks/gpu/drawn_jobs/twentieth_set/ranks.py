"""Jobs of the twentieth set whose fault shows between ranks: one that reads for all, a backward pass in one piece."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, pinned, returned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import elementwise, foreach, linear, node
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Card, Tape, fused_adamw
from ..runtime import MAIN
from ..seventeenth_set.rows import compiled_loss, triton
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Framed, loader

FOUR, BASE = [0, 1, 2, 3], 125_000_000
ADA_LOW = Card(58, 250, BF16, AMPERE, FLASH)
TEXTS, LENGTH, DEEP, CLASSES = 24, 512, 12, 50_304
FETCH = ("accelerate/data_loader.py(861): __iter__", "accelerate/data_loader.py(795): _fetch_batches")
READS = 410_000  # µs of rank 0 for the texts of all
BUS = 9e3  # of PCIe, without peers, bytes a µs


def _broadcast(rt: Framed, count: int, dtype: str, *, until: float = 0.0) -> None:
    """`dist.broadcast` of rank 0's, which the main stream waits for;  until: when rank 0 comes."""
    size = {"Long": 8, "Byte": 1, "Int": 4}[dtype]
    begun = len(rt.rows)
    end = rt.collective("broadcast", 18 + count * size / BUS, (count, count), dtype=dtype, ranks=FOUR, until=until,
                        kernel="Broadcast_RING_LL")  # fmt: skip
    for row in rt.rows[begun:]:
        row["name"] = "c10d::broadcast_" if row["name"] == "c10d::broadcast" else row["name"]
    rt.waits(MAIN, end)


def _dispatched(rt: Framed) -> None:
    """`DataLoaderDispatcher` on a rank that gets its batches: what they are as an object, then each tensor of all."""
    with rt.frame(*FETCH, "accelerate/utils/operations.py(636): broadcast_object_list",
                  "torch/distributed/distributed_c10d.py(3540): broadcast_object_list"):  # fmt: skip
        rt.op("aten::empty", us=6, gap=60)
        _broadcast(rt, 1, "Long", until=rt.now + rt.vary(READS, 0.08))
        rt.op("aten::sum", run=((REDUCE, 2.6),), gap=9, dims=([1],), kind="long int")
        rt.value()
        rt.op("aten::empty", us=6, gap=30)
        _broadcast(rt, 412, "Byte")
        returned(rt, 412, 1, [412], "unsigned char")
        rt.host(420)
    with rt.frame(FETCH[0], "accelerate/utils/operations.py(672): broadcast"):
        for _ in range(3):
            rt.op("aten::empty", us=6, gap=40)
            _broadcast(rt, 4 * TEXTS * LENGTH, "Long")
            rt.op("aten::slice", us=3, gap=14)
    rt.host(180)


def relayed(rt: Framed, fixed: bool) -> None:
    """RoBERTa from scratch by accelerate on four L4, bf16, 24 texts of 512 each, rank 2 of DDP: the data set is a
    stream, so `dispatch_batches` is on: rank 0 reads and tokenizes for all, which takes longer than a step, and
    broadcasts; this rank waits in the broadcast of 8 bytes, and its host for that value; without: each rank reads its
    own by workers (`dispatch_batches=False`). Stacks.

    First: that batches come late, by rank 0's broadcast (input, or a wait for another rank). Not: gradients, `no_sync`,
    buckets, launches, pinned memory, the few bytes that the host copies.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    tape, x, end = Tape(), [TEXTS, LENGTH, 768], 0.0
    if fixed:
        loader(rt, 170)
        for _ in range(3):
            pinned(rt, TEXTS * LENGTH * 8, x[:2], "long int")
    else:
        _dispatched(rt)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for size in ([50_265, 768], [514, 768]):
            rt.op("aten::embedding", run=((REDUCE, ADA_LOW.moves(6 * prod(x))),), gap=14, dims=(size, x[:2]))
        for _ in range(DEEP):
            casts(rt, ADA_LOW, [2_304, 768], [768, 768], [3_072, 768], [768, 3_072])
            encoder(rt, tape, ADA_LOW, (TEXTS, LENGTH, 768))
        linear(rt, tape, ADA_LOW, x, 768)
        elementwise(rt, tape, ADA_LOW, "gelu", x, back=(("gelu_backward", 3),))
        linear(rt, tape, ADA_LOW, x, CLASSES)
    compiled_loss(rt, tape, ADA_LOW, TEXTS * LENGTH, CLASSES)
    with rt.backward():
        part = len(tape) // 5
        while tape:
            tape.pop()()
            if len(tape) % part == 0:
                end = rt.collective("allreduce", 60 + BASE / 6 * 4 * 1.5 / BUS, (BASE // 6,) * 2, ranks=FOUR,
                                    dtype="Float", kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA_LOW.moves(4 * BASE), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA_LOW.moves(8 * BASE), 2)
    fused_adamw(rt, ADA_LOW, BASE)
    rt.host(500)


RTX4090, PARTS, MEDIUM = Card(140, 850, BF16, AMPERE, FLASH), 12, 355_000_000
CUT, ROWS, WIDE = 24, 12 * 1_024, 1_024


def _layers(count: int) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Kernels of so many compiled layers of GPT-2 medium, forward and backward."""
    once = RTX4090.moves(2 * ROWS * WIDE)
    sizes = ((3 * WIDE, WIDE), (WIDE, WIDE), (4 * WIDE, WIDE), (WIDE, 4 * WIDE))
    products = [(AMPERE[0], RTX4090.product(ROWS, out, wide)) for out, wide in sizes]
    attention = RTX4090.product(ROWS * 16, 1_024, 128) / 1.1
    ahead = [("triton_per_fused_native_layer_norm_0", 2.4 * once), products[0], (FLASH[0], attention), products[1],
             ("triton_per_fused_add_native_layer_norm_1", 3.5 * once), products[2],
             ("triton_poi_fused_gelu_2", 8 * once), products[3]]  # fmt: skip
    behind = []
    for name, us in reversed(ahead):
        if name == AMPERE[0]:
            behind += [(AMPERE[1], us), (AMPERE[1], us), ("triton_red_fused_sum_3", 1.4 * once)]
        elif name == FLASH[0]:
            behind.append((FLASH[1], 2.6 * us))
        else:
            behind.append((name.replace("_fused_", "_fused_backward_"), 1.8 * us))
    return ahead * count, behind * count


def _ran(rt: Framed, parts: list[tuple[str, float]]) -> None:
    for name, us in parts:
        if name.startswith("triton"):
            rt.host(4)
            triton(rt, name, us)
        elif "flash" in name:
            way = "backward" if "bwd" in name else "forward"
            outer = "aten::_scaled_dot_product_flash_attention" + "_backward" * (way == "backward")
            rt.op(outer, f"aten::_flash_attention_{way}", run=((name, us),), gap=3, us=8)
        else:
            rt.op("aten::mm", run=((name, us),), gap=3, us=5, kind=BF16)


def _reduced(rt: Framed, count: int) -> float:
    """A bucket of gradients in fp32 over PCIe."""
    return rt.collective("allreduce", 60 + count * 4 * 1.5 / 19e3, (count,) * 2, ranks=FOUR, dtype="Float",
                         kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip


def undivided(rt: Framed, fixed: bool) -> None:
    """GPT-2 medium in DDP on four RTX 4090, compiled, rank 1, `torch._dynamo.config.optimize_ddp = False` set after an
    error: the backward pass is one graph, all gradients come at its end, and twelve buckets travel while no kernel
    runs; without: graphs are cut at buckets, most of their way is beside the backward pass. No shapes, no stacks.

    First: communication that nothing hides, as it starts after the backward pass. Not: small buckets, `no_sync`, a
    loader, launches, recompiles, another rank that is late.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 1
    cuts, end, numbers = (PARTS if fixed else 1), 0.0, list[int]()
    ahead, behind = _layers(CUT // cuts)
    loader(rt, 140)
    for _ in range(2):
        pinned(rt, ROWS * 8, [12, 1_024], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for number in range(cuts):
            with rt.span("TorchDynamo Cache Lookup", us=20):
                pass
            rt.sequence += 1
            numbers.append(rt.sequence)
            args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
            with (rt.span(f"Torch-Compiled Region: {number}/0", us=50), rt.span("CompiledFunction", us=40, **args),
                  rt.span(f"## Call CompiledFxGraph fd{number}k3w8x ##", "user_annotation", us=16)):  # fmt: skip
                _ran(rt, ahead)
    last: Tape = []
    linear(rt, last, RTX4090, [12, 1_024, WIDE], CLASSES)
    compiled_loss(rt, last, RTX4090, ROWS, CLASSES)
    with rt.backward():
        while last:
            last.pop()()
        for number in reversed(numbers):
            with (node(rt, "CompiledFunctionBackward", number),
                  rt.span("## Call CompiledFxGraph fb7m2q1s ##", "user_annotation", us=16)):  # fmt: skip
                _ran(rt, behind)
            for _ in range(PARTS // cuts):
                for _ in range(24):
                    rt.accumulated()
                end = _reduced(rt, MEDIUM // PARTS)
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", RTX4090.moves(4 * MEDIUM), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", RTX4090.moves(8 * MEDIUM), 2)
    fused_adamw(rt, RTX4090, MEDIUM)
    small(rt, None, ("div",), [], 2.2)
    rt.host(300)
