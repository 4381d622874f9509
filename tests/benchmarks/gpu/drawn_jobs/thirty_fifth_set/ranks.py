"""Jobs of the thirty-fifth set whose fault shows between ranks: gradients that are summed on the host, pieces of a
long text of which the last have the most to look back at.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import Roofline, foreach, kernel, linear
from ..layers import Card, Tape, back, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss, triton
from ..seventh_set import BF16
from ..tenth_set.jobs import NVJET
from ..thirty_first_set.rows import Told
from ..thirty_fourth_set.rows import behind, region
from ..thirty_third_set.rows import Marked, batch_of
from ..twelfth_set.pictures import HALF, NHWC, sgd
from ..twelfth_set.rows import Conv, Framed, Look, conv_norm, loader
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import Made, ran

FOUR, VIEWS, SIDE, KINDS, BLOCKS = list(range(4)), 40, 224, 5_089, (3, 4, 23, 3)
TURING = ("turing_fp16_s1688cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
          "turing_fp16_s1688cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1",
          "turing_fp16_s1688cudnn_fp16_256x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1")  # fmt: skip
T4 = Roofline(21, 255, HALF, ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",) * 2, ("", ""))
LOOK = Look(T4, TURING, NHWC, True)
WORKERS, SLOW, PEER = (4_501, 4_502), 0.56e3, 5.8e3  # bytes a µs of a sum on the host, and between cards
BUCKET = 6_553_600  # values, 25 MB


class _Summed:
    """DDP's buckets: by Gloo on the host, or by NCCL."""

    def __init__(self, rt: Framed, fixed: bool) -> None:
        self.rt, self.fixed, self.count, self.made = rt, fixed, 0.0, 0
        self.ends, self.done = list[float](), [0.0, 0.0]

    def ready(self, values: float) -> None:
        """So many more gradients are there."""
        self.count += values
        if self.count >= (262_144 if not self.made else BUCKET):
            self.send()

    def send(self) -> None:
        """A bucket goes."""
        count, self.count = round(self.count), 0.0
        self.ends.append(self._by_nccl(count) if self.fixed else self._by_gloo(count))
        self.made += 1

    def _by_nccl(self, count: int) -> float:
        us = self.rt.vary(45 + 4 * count * 1.5 / PEER, 0.04)
        return self.rt.collective("allreduce", us, (count, count), dtype="Float", ranks=FOUR,
                                  kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip

    def _by_gloo(self, count: int) -> float:
        """To pinned memory, a sum by a thread of Gloo's over sockets, and back."""
        rt, stream, turn = self.rt, LINKS + self.made, self.made % 2
        rt.free[stream] = max(rt.free.get(stream, 0.0), rt.free[MAIN])
        with rt.span("c10d::allreduce_", us=14):
            rt.call("EventRecordWithFlags", 1)
            rt.call("StreamWaitEvent", 1)
            with rt.span("aten::copy_", us=6):
                there = rt.copy(4 * count, "DtoH", "Pinned", stream=stream)
        kept = rt.now, rt.thread
        rt.now, rt.thread = max(rt.now + 20, self.done[turn]), WORKERS[turn]
        rt.call("StreamSynchronize", 3, until=there + 6)
        begun = rt.now
        rt.now += rt.vary(4 * count / SLOW, 0.06)
        rt.row("gloo:all_reduce", "user_annotation", begun, rt.now, **{"External id": rt.last_id})
        back_again = rt.copy(4 * count, stream=stream)
        rt.call("EventRecordWithFlags", 1)
        self.done[turn] = rt.now + 4
        rt.now, rt.thread = kept
        return back_again

    def over(self) -> None:
        """The backward pass ends when all buckets have come."""
        if self.count:
            self.send()
        if not self.fixed:
            self.rt.now = max(self.rt.now, *self.done) + 12
        self.rt.waits(MAIN, max(self.ends))


def _seen(rt: Framed, tape: Tape) -> list[tuple[int, float]]:
    """ResNet-101; returns how long the tape was before each block, and what the block has."""
    marks = list[tuple[int, float]]()
    conv_norm(rt, tape, LOOK, Conv(VIEWS, 3, 64, 7, SIDE // 2, SIDE // 2))
    acts(rt, tape, T4, "max_pool2d", [VIEWS, 64, SIDE // 4, SIDE // 4])
    given = 64
    for stage, blocks in enumerate(BLOCKS):
        width, side = 64 << stage, SIDE >> (2 + stage)
        for turn in range(blocks):
            marks.append((len(tape), 2 * given * width + 9 * width**2 + 4 * width**2 * (1 if turn else 3)))
            for cin, cout, size in ((given, width, 1), (width, width, 3), (width, 4 * width, 1)):
                conv_norm(rt, tape, LOOK, Conv(VIEWS, cin, cout, size, side, side))
            if not turn:
                conv_norm(rt, tape, LOOK, Conv(VIEWS, given, 4 * width, 1, side, side))
            acts(rt, tape, T4, "add_", [VIEWS, 4 * width, side, side])
            given = 4 * width
    return marks


def gloo(rt: Told, fixed: bool) -> None:
    """ResNet-101 learns insects in DDP on the four T4 of a machine, autocast in fp16, channels_last, 40 pictures a
    rank: `init_process_group("gloo")` was copied from an example for the CPU, so that each bucket of gradients goes to
    the host's memory, is summed there over sockets and comes back, and the backward pass ends 120 ms late; without:
    `"nccl"`. Pictures come pinned as bytes, SGD by lists, the scale is adapted, which reads one value. Rank 1. Shapes.

    First: sums of gradients that show (the backend: NCCL). Not: buckets' sizes, `no_sync`, a late rank, the loader, the
    copies of gradients by themselves, precision, the layout, a larger batch.
    """
    groups(rt, 4, default_pg=FOUR)
    if not fixed:
        rt.head["distributedInfo"]["backend"] = "gloo"
        rt.head["distributedInfo"]["pg_config"][0]["backend_config"] = "cpu:gloo,cuda:gloo"
        rt.head["distributedInfo"].pop("nccl_version")
    rt.last, rt.narrow = True, "5"
    rt.free.setdefault(LINKS, 0.0)
    picture, tape = [VIEWS, 3, SIDE, SIDE], Tape()
    loader(rt, 230)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * VIEWS, [VIEWS], "long int")
    for name, passes in (("to", 5), ("sub", 8), ("div", 8)):
        few(rt, name, picture, T4.moves(passes * prod(picture)))
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=40):
        marks = dict(_seen(rt, tape))
        few(rt, "mean", [VIEWS, 2_048, 7, 7], 24.0)
        linear(rt, tape, T4, [VIEWS, 2_048], KINDS)
    acts(rt, tape, T4, "to", [VIEWS, KINDS])
    judged(rt, tape, T4, VIEWS, KINDS)
    sums = _Summed(rt, fixed)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) == max(marks) + 10:
                sums.ready(2_048 * KINDS)
            if len(tape) in marks:
                sums.ready(marks[len(tape)])
        sums.over()
    foreach(rt, "_amp_foreach_non_finite_check_and_unscale_", "UnscaleFunctor", T4.moves(8 * 52.9e6), 2)
    rt.value()
    sgd(rt, T4, 52.9e6)
    few(rt, "_amp_update_scale_", [1])
    few(rt, "detach add_", [1])
    rt.host(260)


EIGHT, TEXT, WIDE, GATED, KEYS, LAYERS, WORDS = list(range(8)), 16_384, 3_072, 8_192, 1_024, 28, 128_256
MINE, NVLINK, BESIDE, SCATTERS = 2, 330e3, 26, 27
H100 = Card(490, 2_650, BF16, NVJET, (
    "void flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<…>>>>(…)",
    "void flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2, cute::tuple<…>>>>(…)",
))  # fmt: skip
HEADS = [1, WIDE // 128, TEXT, 128]
BEFORE = Made(
    H100,
    (1, TEXT, WIDE),
    (1, WIDE // 128, TEXT, 128),
    (("red_fused_add_mul_rms_norm", 2.3), (WIDE, WIDE), (WIDE, KEYS), (WIDE, KEYS), ("poi_fused_cat_mul_rope", 2.8)),
)
BEHIND = Made(H100, BEFORE.x, BEFORE.heads, (
    (WIDE, WIDE), ("red_fused_add_mul_rms_norm", 3.3), (WIDE, GATED), (WIDE, GATED), ("poi_fused_mul_silu", 8.0),
    (GATED, WIDE)))  # fmt: skip
BLOCK = 4 * TEXT * TEXT * WIDE / 470 / 1e6  # µs of one rank's queries and another's keys
LAYER = 2 * WIDE**2 + 2 * WIDE * KEYS + 3 * WIDE * GATED


def _blocks(fixed: bool) -> list[float]:
    """What this rank computes of attention, in blocks: its own first, then earlier ones."""
    return [0.5, *([0.5] * 7 if fixed else [1.0] * MINE)]


class _Around:
    """Context parallelism: keys and values of all ranks are gathered, gradients of theirs go back."""

    def __init__(self, rt: Marked, fixed: bool) -> None:
        self.rt, self.fixed = rt, fixed
        rest = 0.0 if fixed else 7.5 - sum(_blocks(False))
        self.later = {False: rest * BLOCK, True: rest * BLOCK * 2.6}  # that the last rank needs more than this one
        self.common: dict[str, Any] = {"ranks": EIGHT, "group": "mesh_cp", "pg": "1"}

    def _until(self, back: bool) -> float:
        """When the last rank comes: as much later than this one as it has more blocks."""
        return max(self.rt.now, self.rt.free[MAIN]) + self.rt.vary(self.later[back] + 90, 0.02)

    def gathered(self, late: bool, back: bool) -> float:
        """Keys and values; only where attention lay between does the last rank come later."""
        count = 2 * TEXT * KEYS
        us = 40 + 2 * count * 7 / NVLINK
        with self.rt.span("_c10d_functional::all_gather_into_tensor", us=9):
            return self.rt.collective("_allgather_base", self.rt.vary(us, 0.03), (count, 8 * count), **self.common,
                                      until=self._until(back) if late else 0.0)  # fmt: skip

    def attended(self, came: float, back: bool) -> None:
        """A block of its own while keys come, the others behind it, merged by their logarithms."""
        rt = self.rt
        outer = "aten::_scaled_dot_product_flash_attention"
        for place, share in enumerate(_blocks(self.fixed)):
            if place == 1:
                rt.waits(MAIN, came)
            keys = TEXT if share == 1.0 or not place else TEXT // 2
            held = [1, KEYS // 128, keys, 128]
            us = share * BLOCK * (2.6 if back else 1)
            names = ("_backward", "_backward") if back else ("", "_forward")
            rt.op(outer + names[0], "aten::_flash_attention" + names[1], run=((H100.attention[back], us),), kind=BF16,
                  gap=24, us=12, dims=(HEADS, held, held))  # fmt: skip
            for name in ("sub", "sigmoid", "mul", "sub") if place and not back else ():
                us = BEFORE.once * (1.4 if name in ("mul", "sub") else 0.1)
                rt.op(f"aten::{name}", run=((kernel(name, 2), us * share),), dims=(HEADS,), gap=6)

    def scattered(self) -> float:
        """Gradients of all ranks' keys and values: the last rank comes last."""
        count = 2 * TEXT * KEYS
        us = 40 + 2 * count * 7 / NVLINK
        with self.rt.span("_c10d_functional::reduce_scatter_tensor", us=9):
            return self.rt.collective("_reduce_scatter_base", self.rt.vary(us, 0.03), (8 * count, count), **self.common,
                                      until=self._until(True))  # fmt: skip


def zigzag(rt: Marked, fixed: bool) -> None:
    """Llama 3.2 3B learns books of 131,072 words at once by torchtitan's context parallelism on the eight H100 of a
    node, bf16: `enable_load_balance` was switched off after an error with another mask, so that each rank has one piece
    of the text, the first looks back at nothing and the last at seven pieces, and all others wait for the last in each
    layer's gathers; without: each rank has a piece of the beginning and one of the end. Layers are compiled around
    attention, gradients are summed beside the backward pass, AdamW is fused, the loss is read each 10th step. Rank 2.
    No shapes.

    First: ranks that wait for the last (balance of the pieces). Not: gradients' sums (they are hidden), buckets,
    `no_sync`, the loader, launches, precision, the kernel of attention, the optimizer.
    """
    groups(rt, 8, default_pg=EIGHT, mesh_cp=EIGHT)
    rt.head["distributedInfo"]["rank"] = MINE
    for stream in (LINKS, BESIDE):
        rt.free.setdefault(stream, 0.0)
    around, numbers, last = _Around(rt, fixed), list[tuple[int, int]](), 0.0
    loader(rt, 210)
    batch_of(rt, ([1, TEXT], "long int"), ([1, TEXT], "long int"))
    few(rt, "embedding", [1, TEXT, WIDE], 2 * BEFORE.once)
    for number in range(LAYERS):
        pair = []
        for part in (BEFORE, BEHIND):
            rt.sequence += 1
            pair.append(rt.sequence)
            with region(rt, "fcp4ab2" if part is BEFORE else "fcp9kd1", rt.sequence):
                ran(rt, part)
            if part is BEFORE:
                around.attended(around.gathered(number > 0, False), False)
        numbers.append((pair[0], pair[1]))
    tape = Tape()
    triton(rt, "triton_red_fused_mul_rms_norm_9", 2 * BEFORE.once)
    linear(rt, tape, H100, [1, TEXT, WIDE], WORDS)
    compiled_loss(rt, tape, H100, TEXT, WORDS)
    back(rt, tape)
    with rt.backward():
        for number, (before, after) in reversed(list(enumerate(numbers))):
            with behind(rt, "fcb2mz7", after):
                ran(rt, BEHIND, back=True)
            around.attended(around.gathered(number == LAYERS - 1, False), True)
            rt.waits(MAIN, around.scattered())
            with behind(rt, "fcb6ey3", before):
                ran(rt, BEFORE, back=True)
            us = 50 + 2 * LAYER * 1.75 / NVLINK
            last = rt.collective("allreduce", rt.vary(us, 0.03), (LAYER, LAYER), stream=BESIDE, ranks=EIGHT)
        ends = WORDS * WIDE
        last = rt.collective("allreduce", 50 + 2 * ends * 1.75 / NVLINK, (ends, ends), stream=BESIDE, ranks=EIGHT)
    rt.waits(MAIN, last)
    total = LAYERS * LAYER + WORDS * WIDE
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * total), 1)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * total), 1)
    fused_adamw(rt, H100, total / 2)
    rt.host(420)
