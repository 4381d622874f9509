"""Jobs of the seventeenth set whose fault shows between ranks: a ring out of balance, weights that are given back."""

from __future__ import annotations

from math import prod

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, linear, node
from ..layers import Card, Tape, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Framed
from .rows import compiled_loss, triton

RANKS, RANK, LENGTH, WIDE, DEEP = [0, 1, 2, 3], 1, 16_384, 2_048, 16
BLOCK = H100.product(32 * LENGTH, LENGTH, 2 * 64) / 0.6  # of queries with keys of another rank, all of them
BACKWARD = 2.5
KEYS = 2 * LENGTH * 8 * 64
ELEMENTS = 60_821_504


def _sent(rt: Framed, passes: int, until: float) -> float:
    """Keys and values, and in the backward pass their gradients, go to the next rank, while attention runs."""
    return rt.collective("send 1->2", 20 + passes * KEYS * 2 / 170e3, (passes * KEYS,) * 2, ranks=RANKS,
                         group="mesh_cp", pg="1", kernel="SendRecv", stream=LINKS + 6, behind=False,
                         until=until)  # fmt: skip


def _round(rt: Framed, parts: tuple[float, ...], backward: bool, until: float) -> None:
    """Attention to four blocks of keys;  parts: of each how much this rank has to do;  until: when the last rank, which
    has most to do, begins the layer, and so gives its keys away.
    """
    passes, kernel = (2, FLASH[1]) if backward else (1, FLASH[0])
    op = "aten::_flash_attention_backward" if backward else "aten::_flash_attention_forward"
    end = 0.0
    for place, part in enumerate(parts):
        if place:
            rt.waits(MAIN, end)
        if place < len(parts) - 1:
            end = _sent(rt, passes, until if place == 1 else 0.0)
        if part:
            us = part * BLOCK * (BACKWARD if backward else 1)
            rt.op("aten::_scaled_dot_product_flash_attention" + "_backward" * backward, op, run=((kernel, us),), gap=14,
                  dims=([1, 32, LENGTH, 64],) * 3, kind=BF16, us=9)  # fmt: skip
        if place and not backward:
            triton(rt, "triton_poi_fused_exp_logaddexp_mul_sub_0", H100.moves(10 * LENGTH * WIDE))


UNEVEN, EVEN = (0.5, 1.0, 0.0, 0.0), (0.5, 0.5, 0.5, 0.5)


class Paced(Framed):
    """last: when the last rank begins the layer at hand of the backward pass."""

    last = 0.0


def _layer(rt: Paced, tape: Tape, begin: float, parts: tuple[float, ...]) -> None:
    """begin: when the last rank begins it, 0 where all do alike."""
    x, hidden = [1, LENGTH, WIDE], 8_192
    fused_norm(rt, tape, H100, x)
    for out in (WIDE, 512, 512):
        linear(rt, tape, H100, x, out)
    for heads in (32, 8):
        elementwise(rt, tape, H100, "mul", [1, heads, LENGTH, 64], 2, (("mul", 3),))
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("RingFlashAttnFunc", us=30, **args):
        _round(rt, parts, False, begin)

    def backward(number: int = number) -> None:
        with node(rt, "RingFlashAttnFuncBackward", number):
            _round(rt, parts, True, rt.last)

    tape.append(backward)
    linear(rt, tape, H100, x, WIDE)
    elementwise(rt, tape, H100, "add", x, 2)
    fused_norm(rt, tape, H100, x)
    for _ in range(2):
        linear(rt, tape, H100, x, hidden)
    elementwise(rt, tape, H100, "silu", [1, LENGTH, hidden], back=(("silu_backward", 3),))
    elementwise(rt, tape, H100, "mul", [1, LENGTH, hidden], 2, (("mul", 3), ("mul", 3)))
    linear(rt, tape, H100, [1, LENGTH, hidden], WIDE)
    elementwise(rt, tape, H100, "add", x, 2)


def _others() -> tuple[float, float]:
    """What a layer takes without its attention, forward and backward, µs."""
    rt = Paced({"name": "NVIDIA H100 80GB HBM3", "numSms": 132}, seed=3)
    tape: Tape = []
    _layer(rt, tape, 0.0, (0.0,))
    middle = len(rt.rows)
    with rt.backward():
        while tape:
            tape.pop()()
    rows = [[row["dur"] + 1.2 for row in part if row["cat"] == "kernel"] for part in (rt.rows[:middle],
                                                                                    rt.rows[middle:])]  # fmt: skip
    return sum(rows[0]), sum(rows[1])


def ringed(rt: Paced, fixed: bool) -> None:
    """Llama of 1 B over texts of 65,536 tokens on 4 H100, a ring of keys, this is the second rank: each rank has a
    quarter of the text in one piece, so that by the causal mask the first attends to half a block, the last to 3.5, and
    all wait for the last, layer by layer, in the ring's receives; without: two pieces each, from both ends (zigzag).

    Of 1,801 ms a step 637. Neither the network nor gradients: keys take a tenth of the time of their attention.
    """
    groups(rt, 4, default_pg=RANKS, mesh_cp=RANKS)
    rt.head["distributedInfo"]["rank"] = RANK
    tape, parts = Tape(), EVEN if fixed else UNEVEN
    ahead, behind = _others()
    pace = 0.0 if fixed else ahead + 3.5 * BLOCK
    rt.batch(LENGTH * 8, LENGTH * 8, LENGTH * 8)
    start = max(rt.now, rt.free[MAIN])
    for number in range(DEEP):
        begun = len(tape)
        _layer(rt, tape, 0.0 if fixed else start + 700 + number * pace, parts)
    one = len(tape) - begun
    fused_norm(rt, tape, H100, [1, LENGTH, WIDE])
    linear(rt, tape, H100, [1, LENGTH, WIDE], 128_256)
    compiled_loss(rt, tape, H100, LENGTH, 128_256)
    first = start + DEEP * pace + 3 * H100.product(LENGTH, 128_256, WIDE) + 3 * H100.moves(4 * LENGTH * 128_256)
    done, end = 0, 0.0

    def begins(layers: int) -> float:
        return 0.0 if fixed else first + layers * (behind + 3.5 * BACKWARD * BLOCK)

    with rt.backward():
        while tape:
            rt.last = begins(done)
            tape.pop()()
            if len(tape) < DEEP * one and len(tape) % one == 0:
                done += 1
                end = rt.collective("allreduce", 30 + ELEMENTS * 2 * 1.5 / 300e3, (ELEMENTS,) * 2, ranks=RANKS,
                                    until=begins(done))  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 1.24e9), 4)
    fused_adamw(rt, H100, 1.24e9 / 2)
    rt.host(350)


RTX4090 = Card(140, 850, BF16, AMPERE, FLASH)
LAYERS, MICRO, WHOLE = 12, 4, 60_821_504
BUS = 8.0e3  # what a rank receives over PCIe through the host's memory, bytes a µs
UNPACK = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel<…>"
SHARD = {"group": "mesh_dp", "pg": "1", "ranks": RANKS}


def _gathered(rt: Framed, number: int, way: str) -> float:
    """FSDP2 gathers a layer's parameters in bf16."""
    with rt.span(f"FSDP::pre_{way} (layers.{number})", us=20), rt.span("FSDP::all_gather", us=15):
        return rt.collective("_allgather_base", 60 + WHOLE * 2 * 0.75 / BUS, (WHOLE // 4, WHOLE), behind=False, **SHARD)


def _unpacked(rt: Framed) -> None:
    """Gathered parameters are copied to where the layer looks for them."""
    with rt.span("FSDP::all_gather_copy_out", us=20):
        rt.op("fsdp::split_with_sizes_copy", gap=2, us=14, dims=([4, WHOLE // 4],), kind=BF16,
              run=((UNPACK, RTX4090.moves(4 * WHOLE)),))  # fmt: skip


def resharded(rt: Framed, fixed: bool) -> None:
    """A Llama of 0.9 B by FSDP2 on 4 RTX 4090 without NVLink, four micro-batches a step, gradients are reduced in the
    last alone; weights are given back after each layer (`reshard_after_forward=True`, the default), so that each micro-
    batch gathers all of them twice, 11 ms a layer, which its products do not hide; without: gathered once a step, as
    1.5 GB of weights and 3 GB of gradients have room in 24 GB. Of 1,246 ms a step 391.
    """
    groups(rt, 4, default_pg=RANKS, mesh_dp=RANKS)
    rt.head["distributedInfo"]["rank"] = 2
    x, last = [2, 2_048, WIDE], 0.0
    for micro in range(MICRO):
        tape, one = Tape(), 0
        rt.batch(prod(x[:2]) * 8, prod(x[:2]) * 8)
        needed = not fixed or micro == 0
        ahead = _gathered(rt, 0, "forward") if needed else 0.0
        for number in range(LAYERS):
            if needed:
                rt.waits(MAIN, ahead)
                _unpacked(rt)
                ahead = _gathered(rt, number + 1, "forward") if number + 1 < LAYERS else 0.0
            begun = len(tape)
            llama(rt, tape, RTX4090, (2, 2_048, WIDE, 8, 8_192), fused_norm)
            one = len(tape) - begun
        linear(rt, tape, RTX4090, x, 32_000)
        compiled_loss(rt, tape, RTX4090, prod(x[:2]), 32_000)
        with rt.backward():
            while len(tape) > LAYERS * one:
                tape.pop()()
            ahead = 0.0 if fixed else _gathered(rt, LAYERS - 1, "backward")
            for number in reversed(range(LAYERS)):
                if not fixed:
                    rt.waits(MAIN, ahead)
                    _unpacked(rt)
                    ahead = _gathered(rt, number - 1, "backward") if number else 0.0
                for _ in range(one):
                    tape.pop()()
                if micro == MICRO - 1:
                    with rt.span(f"FSDP::post_backward_reduce (layers.{number})", us=40):
                        rt.op("fsdp::chunk_cat", gap=2, us=12, dims=([WHOLE],), kind=BF16, run=((
                            "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<c10::BFloat16, …>",
                            RTX4090.moves(4 * WHOLE)),))  # fmt: skip
                        last = rt.collective("_reduce_scatter_base", 60 + WHOLE * 2 * 0.75 / BUS, (WHOLE, WHOLE // 4),
                                             **SHARD)  # fmt: skip
    rt.waits(MAIN, last)
    foreach(rt, "_foreach_norm", "LpNormFunctor", RTX4090.moves(LAYERS * WHOLE), 2)
    rt.waits(MAIN, rt.collective("allreduce", 60, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", **SHARD))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", RTX4090.moves(2 * LAYERS * WHOLE), 2)
    fused_adamw(rt, RTX4090, LAYERS * WHOLE / 4)
    rt.host(300)
