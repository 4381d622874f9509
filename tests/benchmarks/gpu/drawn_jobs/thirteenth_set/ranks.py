"""Jobs of the thirteenth set on several devices: FSDP2 with offloaded parameters, uneven experts, `nn.DataParallel`."""

from __future__ import annotations

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, kernel, linear, moved_as
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Tape, dense, fused_adamw, norm
from ..runtime import COPIES, LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import H100, MI300X, RTX4090
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Framed
from .rows import SECOND, Pair

LAYERS, LAYER, PARAMETERS = 10, 218_112_000, 110e6
ADAMW = (
    ("mul_", 2),
    ("lerp_", 3),
    ("mul_", 2),
    ("addcmul_", 3),
    ("sqrt", 2),
    ("div_", 2),
    ("add_", 2),
    ("addcdiv_", 4),
)


def offloaded(rt: Framed, fixed: bool) -> None:
    """FSDP2 with `CPUOffloadPolicy()`, rank 0 of 4 H100: AdamW goes op by op on the host; without: `fused=True`."""
    groups(rt, 4, default_pg=[0, 1, 2, 3], mesh_dp=[0, 1, 2, 3])
    rt.head["distributedInfo"]["rank"] = 0
    tape, shard, layer = Tape(), LAYER // 4, list[int]()
    given = {"group": "mesh_dp", "pg": "1", "ranks": [0, 1, 2, 3]}
    rt.batch(2 * 8_192 * 8, 2 * 8_192 * 8)

    def fetched(number: int) -> float:
        with rt.span(f"FSDP::all_gather (layers.{number})", us=30):
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.free[LINKS] = max(rt.free.get(LINKS, 0), rt.copy(shard * 4, stream=COPIES))
            return rt.collective("_allgather_base", 1_500, (shard, LAYER), behind=False, **given)

    ahead = fetched(0)
    for number in range(LAYERS):
        with rt.span(f"FSDP::pre_forward (layers.{number})", us=30):
            rt.waits(MAIN, ahead)
            if number < LAYERS - 1:
                ahead = fetched(number + 1)
        start = len(tape)
        llama(rt, tape, H100, (2, 8_192, 4_096, 8, 14_336), fused_norm)
        layer.append(len(tape) - start)
    back = 0.0
    with rt.backward():
        for number in reversed(range(LAYERS)):
            with rt.span(f"FSDP::pre_backward (layers.{number})", us=30):
                rt.waits(MAIN, ahead)
                if number:
                    ahead = fetched(number - 1)
            for _ in range(layer[number]):
                tape.pop()()
            with rt.span(f"FSDP::post_backward_reduce (layers.{number})", us=40):
                end = rt.collective("_reduce_scatter_base", 2_900, (LAYER, shard), stream=LINKS + 4, dtype="Float",
                                    kernel="ReduceScatter_Sum_f32_RING_LL", **given)  # fmt: skip
                rt.free[LINKS + 4] = end
                with rt.span("aten::copy_"):
                    back = rt.copy(shard * 4, "DtoH", stream=LINKS + 4)
    rt.call("EventSynchronize", 4, until=back + 6)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=600):
        if fixed:
            with rt.span("aten::_fused_adamw_", us=LAYERS * shard * 28 / 95e3):
                pass
        for _ in range(0 if fixed else LAYERS):
            for place in range(9):
                size = ([1_024, 4_096], [3_584, 4_096], [1_024])[0 if place < 4 else 1 if place < 7 else 2]
                nbytes = size[0] * (size[1] if size[1:] else 1) * 4 * shard / 56_623_104
                for name, passes in ADAMW:
                    rt.op(f"aten::{name}", us=6 + passes * nbytes / 95e3, gap=4, dims=(size, size))
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=200):
        pass
    rt.host(500)


def uneven(rt: Framed, fixed: bool) -> None:
    """Experts on 8 MI300X, rank 3: another rank's experts get most tokens, and all wait for them; without: even."""
    groups(rt, 8, default_pg=list(range(8)), mesh_ep=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 3
    tape, tokens, width = Tape(), 16_384, 4_096
    x = [4, 4_096, width]
    mine, most = (tokens, tokens) if fixed else (tokens * 5 // 8, tokens * 7 // 4)
    rt.batch(4 * 4_096 * 8, 4 * 4_096 * 8)

    def exchanged(sent: int, until: float = 0) -> None:
        splits = str([sent * width // 8] * 8)
        end = rt.collective("all_to_allv", tokens * width * 2 / 260e3, (sent * width,) * 2, group="mesh_ep", pg="1",
                            splits=splits, until=until, kernel="Generic_1")  # fmt: skip
        rt.waits(MAIN, end)

    def experts(part: str, times: int, size: int) -> None:
        us = MI300X.product(size, width, 3 * 2_048)
        name = "void ck::kernel_grouped_gemm_xdl_splitk<ck::GridwiseGemm_xdlops_splitk…>"
        rt.op(part, run=((name, us),) * times, gap=40, us=30, dims=([size, width], [16, width, 2_048]), kind=BF16,
              graph=times == 1)  # fmt: skip

    def later(times: int) -> float:
        """When the rank with the most tokens is done, if it began with this one."""
        return max(rt.now, rt.free[MAIN]) + times * MI300X.product(most, width, 3 * 2_048) + 60

    def behind() -> None:
        exchanged(tokens)
        until = later(2)
        experts("aten::_grouped_mm", 2, mine)
        exchanged(mine, until)

    for _ in range(10):
        norm(rt, tape, MI300X, x)
        for out in (width, 1_024, 1_024):
            linear(rt, tape, MI300X, x, out)
        linear(rt, tape, MI300X, x, width)
        elementwise(rt, tape, MI300X, "add", x, 2)
        norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, 128)
        small(rt, None, ("softmax", "topk", "argsort", "bincount", "cumsum"), [tokens, 128], 14)
        exchanged(tokens)
        until = later(1)
        experts("aten::_grouped_mm", 1, mine)
        exchanged(mine, until)
        tape.append(behind)
        elementwise(rt, tape, MI300X, "add", x, 2)
    moved_as(rt, tape, MI300X, x)
    with rt.backward():
        while tape:
            tape.pop()()
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2e9), 4)
    fused_adamw(rt, MI300X, 4e8)
    rt.host(400)


def both(rt: Pair, name: str, op: str) -> None:
    """A collective of one process on all parameters: a kernel on each device, which run together."""
    with rt.span(op, us=900):
        begin = max(rt.free[MAIN], rt.free[SECOND], rt.now)
        for device in (0, 1):
            rt.at, rt.free[MAIN + 100 * device] = device, begin
            rt.work(f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)", PARAMETERS * 4 / 11e3)
    rt.at = 0


def across(rt: Pair, op: str, count: int, nbytes: int) -> None:
    """Copies between the devices."""
    for _ in range(count):
        with rt.span(op):
            rt.at = 1
            rt.work("Memcpy PtoP (Device -> Device)", 8 + nbytes / 11e3, category="gpu_memcpy",
                    call="MemcpyPeerAsync", bytes=nbytes)  # fmt: skip
            rt.at = 0


def replicated(rt: Pair, fixed: bool) -> None:
    """`nn.DataParallel` of BERT on two RTX 4090, batch of 32; without: DDP, as its rank 0 sees it."""
    rt.head = {"deviceProperties": [rt.device, {**rt.device, "id": 1}]}
    rt.free.setdefault(SECOND, 0.0)
    tapes, batch = ([], []), 16
    rt.batch(*(((batch if fixed else 2 * batch) * 128 * 8,) * 3))
    devices = (0,) if fixed else (0, 1)
    if not fixed:
        across(rt, "Scatter", 3, batch * 1_024)
        both(rt, "Broadcast_RING_LL", "Broadcast")
        rt.host(9_000)  # modules are copied one by one
    for layer in range(14):
        for device in devices:
            rt.at, rt.thread = device, 1 if fixed else 5 + device
            if layer < 12:
                encoder(rt, tapes[device], RTX4090, (batch, 128, 768))
            else:
                dense(rt, tapes[device], RTX4090, batch, (batch, 768, 768 if layer == 12 else 2))
    rt.at, rt.thread = 0, 1
    if not fixed:
        across(rt, "Gather", 1, 128)
    small(rt, None, ("log_softmax", "nll_loss"), [2 * batch, 2])
    rt.op("aten::fill_", run=((REDUCE, 3),))
    behind(rt, tapes, devices)
    fused_adamw(rt, RTX4090, PARAMETERS)
    rt.value()
    rt.host(300)


def behind(rt: Pair, tapes: tuple[Tape, Tape], devices: tuple[int, ...]) -> None:
    """The backward pass: a thread for each device, and sums of gradients."""
    end, parts, nelems = 0.0, len(tapes[0]), int(PARAMETERS / 6)
    with rt.backward():
        while tapes[0]:
            for device in devices:
                rt.at, rt.thread = device, 2 + device
                tapes[device].pop()()
            rt.at = 0
            if len(devices) == 1 and len(tapes[0]) % (parts // 5) == 0:
                end = rt.collective("allreduce", nelems * 4 / 11e3, (nelems,) * 2, dtype="Float", ranks=[0, 1],
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        rt.thread = 2
        if devices[1:]:
            both(rt, "Reduce_Sum_f32_RING_LL", "ReduceAddCoalesced")
            for _ in range(4):
                rt.op("aten::add_", run=((kernel("add", 3), RTX4090.moves(3 * PARAMETERS)),), gap=20)
    if end:
        rt.waits(MAIN, end)
