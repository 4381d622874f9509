"""Jobs of several ranks of the eighth set, each from one of its ranks.

pipelined: 1F1B, second of four stages, 8 micro-batches: 3 of 11 turns are waits for the other stages, which more
micro-batches or interleaved stages shorten; not gradients, no buckets, no `no_sync()`. tensor_parallel: sums of
activations, which nothing in the layer hides; sequence parallelism or async TP may be named; not gradients. experts:
sizes that `all_to_all` needs are read twice a layer, each drains the queue (4 of 169 ms); the exchange is exposed by
its nature. accumulated: updates come each fourth step, gradients are reduced in each. ring: FP8, context parallelism
and FSDP2, all hidden.
"""

from __future__ import annotations

from ..recorded import Recorded
from ..runtime import LINKS, MAIN
from ..seventh_set import GEMM, NODE, adamw, block

FP8 = "nvjet_qqtst_128x256_128x6_2x1_v_bz_TNT"
FLASH = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"
PARTS = {"_LayerNormLinear": 0, "AttnFuncWithCPAndKVP2P": 1, "_Linear": 2, "_LayerNormMLP": 3}
GROUPED = "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<GroupProblem>>"
RECEIVE, SEND = 22, 23


def groups(rt: Recorded, world: int, **named: list[int]) -> None:
    """What the file says of process groups."""
    config = [
        {"pg_name": str(number), "pg_desc": name, "backend_config": "cuda:nccl", "pg_size": len(ranks), "ranks": ranks}
        for number, (name, ranks) in enumerate(named.items())
    ]
    rt.head = {"distributedInfo": {"backend": "nccl", "rank": 1, "world_size": world, "pg_count": len(config)}}
    rt.head["distributedInfo"] |= {"pg_config": config, "nccl_version": "2.27.5"}


def arrivals(stages: int, batches: int, ahead: float, back: float) -> dict[tuple[str, int, int], float]:
    """1F1B: when each stage ends each part of each micro-batch, from the start of the step, µs."""
    done: dict[tuple[str, int, int], float] = {}
    orders = []
    for stage in range(stages):
        warm = stages - 1 - stage
        order = [("f", number) for number in range(warm)]
        for number in range(batches - warm):
            order += [("f", warm + number), ("b", number)]
        orders.append(order + [("b", number) for number in range(batches - warm, batches)])
    at, times = [0] * stages, [0.0] * stages
    while any(place < len(order) for place, order in zip(at, orders, strict=True)):
        for stage, order in enumerate(orders):
            if at[stage] == len(order):
                continue
            way, number = order[at[stage]]
            needs = ("f", stage - 1, number) if way == "f" else ("b", stage + 1, number)
            if 0 <= needs[1] < stages and needs not in done:
                continue
            times[stage] = max(times[stage], done.get(needs, 0) + 60) + (ahead if way == "f" else back)
            done[way, stage, number] = times[stage]
            at[stage] += 1
    return done


def pipelined(rt: Recorded, fixed: bool) -> None:
    """Without: 64 micro-batches of an eighth's size would wait as long; here simply none waits."""
    groups(rt, 4, default_pg=[0, 1, 2, 3], mesh_pp=[0, 1, 2, 3])
    done = arrivals(4, 8, 10_000, 20_000)
    start = max(rt.now, rt.free[MAIN])
    common = {"ranks": [0, 1, 2, 3], "group": "mesh_pp", "pg": "1"}
    ahead = [("f", 0), ("f", 1)] + [part for number in range(6) for part in (("f", number + 2), ("b", number))]
    for way, number in [*ahead, ("b", 6), ("b", 7)]:
        comes = 0 if fixed else start + done["f", 0, number] if way == "f" else start + done["b", 2, number]
        comes = 0 if fixed else comes + 60
        side = "recv 1<-0" if way == "f" else "recv 1<-2"
        end = rt.collective(side, 40, (16_777_216,) * 2, stream=RECEIVE, until=comes, behind=False, **common)
        rt.waits(MAIN, end)
        if way == "f":
            for layer in range(8):
                block(rt, 100 * number + layer, 1_111)
        else:
            with rt.backward():
                layers(rt, 100 * number, 8, 2_500)
        side = "send 1->2" if way == "f" else "send 1->0"
        rt.collective(side, 40, (16_777_216,) * 2, stream=SEND, **common)
    adamw(rt, 1_500)


def layers(rt: Recorded, first: int, count: int, us: float, gemm: str = GEMM) -> None:
    """A backward pass."""
    for number in reversed(range(first, first + count)):
        for part in (2, 1, 0):
            name = "ScaledDotProductFlashAttentionBackward0" if part == 2 else "AddmmBackward0"
            node = {"Sequence number": 4 * number + part, "Fwd thread id": 1}
            with rt.span(NODE + name, **node), rt.span(name, **node):
                for _ in range(2):
                    rt.work("void flash_bwd_kernel" if part == 2 else gemm, us / 6)


def tensor_parallel(rt: Recorded, fixed: bool) -> None:
    """Two sums of activations a layer and pass; without: they are hidden behind the products."""
    groups(rt, 8, default_pg=list(range(8)), mesh_tp=list(range(8)))
    gemm = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0"
    given = {"group": "mesh_tp", "pg": "1", "kernel": "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"}
    for number in range(24):
        block(rt, number, 1_200, gemm=gemm)
        for _ in range(2):
            end = rt.collective("allreduce", 450, (33_554_432,) * 2, stream=3, **given)
            if not fixed:
                rt.waits(MAIN, end)
    with rt.backward():
        for number in reversed(range(24)):
            layers(rt, number, 1, 2_400, gemm)
            for _ in range(2):
                end = rt.collective("allreduce", 450, (33_554_432,) * 2, stream=3, **given)
                if not fixed:
                    rt.waits(MAIN, end)
    adamw(rt, 1_400)


def experts(rt: Recorded, fixed: bool) -> None:
    """Sizes of the exchange are read in each layer; without: they stay on the device."""
    groups(rt, 8, default_pg=list(range(8)), mesh_ep=list(range(8)))
    given = {"group": "mesh_ep", "pg": "1", "kernel": "SendRecv"}
    for number in range(12):
        block(rt, number, 1_800)
        with rt.span("aten::topk"):
            rt.work("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>", 60)
        with rt.span("aten::histc"):
            rt.work("void at::native::kernelHistogram1D<float, float, long, 1, 2, -1>", 15)
        rt.waits(MAIN, rt.collective("all_to_allv", 40, (64, 64), dtype="Long", **given))
        if not fixed:
            for _ in range(2):
                with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                    rt.copy(512, "DtoH", "Pageable")
            rt.host(180)
        for us in (900, 1_000):
            tokens = int(rt.vary(33_554_432, 0.4))
            end = rt.collective("all_to_allv", rt.vary(us, 0.4), (tokens, 33_554_432), splits="[4096, 3711]", **given)
            rt.waits(MAIN, end)
            if us == 900:
                with rt.span("aten::_grouped_mm"):
                    rt.work(
                        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<GroupProblem>>", 1_500
                    )
    with rt.backward():
        for number in reversed(range(12)):
            layers(rt, number, 1, 3_600)
            for _ in range(2):
                with rt.span(NODE + "_AllToAllBackward"):
                    end = rt.collective("all_to_allv", rt.vary(950, 0.4), (33_554_432,) * 2, **given)
                rt.waits(MAIN, end)
            with rt.span(NODE + "GroupedMmBackward0"):
                rt.work(GROUPED, 3_000)
    adamw(rt, 1_600)


def accumulated(rt: Recorded, fixed: bool) -> None:
    """DDP; rows of steps are of micro-batches, the optimizer is called in each fourth."""
    groups(rt, 8, default_pg=list(range(8)))
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=30):
        for number in range(12):
            block(rt, number, 900)
    end, reduced = 0.0, not fixed or rt.number % 4 == 3
    with rt.backward():
        for number in reversed(range(12)):
            layers(rt, number, 1, 1_800)
            if number % 2 == 0 and reduced:
                stores = "torch::autograd::AccumulateGrad"
                with rt.span(NODE + stores), rt.span(stores):
                    end = rt.collective(
                        "allreduce", 6_500, (13_107_200,) * 2, dtype="Float", kernel="AllReduce_Sum_f32_RING_LL"
                    )
        if reduced:
            rt.waits(MAIN, end)
    if rt.number % 4 == 3:
        adamw(rt, 2_500)
        with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=60):
            pass
    rt.host(200)


def ring(rt: Recorded, fixed: bool) -> None:
    """FP8 by Transformer Engine; keys go round a ring while attention runs; parameters come a layer ahead."""
    groups(rt, 16, default_pg=list(range(16)), mesh_dp_shard=[1, 3, 5, 7, 9, 11, 13, 15], mesh_cp=[0, 1])
    shard = {"group": "mesh_dp_shard", "pg": "1", "ranks": [1, 3, 5, 7, 9, 11, 13, 15], "behind": False}
    near = {"group": "mesh_cp", "pg": "2", "ranks": [0, 1], "kernel": "SendRecv", "behind": False}
    for way in ("forward", "backward"):
        with rt.span(f"FSDP::pre_{way}", us=15):
            ahead = rt.collective("_allgather_base", 700, (27_262_976, 218_103_808), **shard)
        for number in range(20) if way == "forward" else reversed(range(20)):
            rt.waits(MAIN, ahead)
            if number != (19 if way == "forward" else 0):
                with rt.span(f"FSDP::pre_{way} (layers.{number})", us=15), rt.span("FSDP::all_gather", us=8):
                    ahead = rt.collective("_allgather_base", 700, (27_262_976, 218_103_808), **shard)
            if way == "forward":
                te_layer(rt, number, near)
            else:
                with rt.backward():
                    te_backward(rt, number)
                    sums = {**shard, "behind": True, "dtype": "Float"}
                    rt.collective("_reduce_scatter_base", 900, (218_103_808, 27_262_976), stream=24, **sums)
    rt.free[MAIN] = max(rt.free[MAIN], rt.free[24] + 5)
    adamw(rt, 1_300)


def te_layer(rt: Recorded, number: int, near: dict[str, object]) -> None:
    """`te.TransformerLayer`."""
    for name, count in (("_LayerNormLinear", 1), ("_Linear", 1), ("_LayerNormMLP", 2)):
        with rt.span(name, us=40, **{"Sequence number": PARTS[name] + 4 * number}):
            rt.work("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<__nv_fp8_e4m3>", 60)
            for _ in range(count):
                rt.work("void (anonymous namespace)::cast_transpose_general_kernel<8, 8, float, __nv_fp8_e4m3>", 45)
                rt.work(FP8, 520)
        if name == "_LayerNormLinear":
            for part in range(2):
                end = 0.0
                if part == 0:
                    end = rt.collective("send 1->0", 260, (8_388_608,) * 2, stream=LINKS + 6, **near)
                with rt.span("AttnFuncWithCPAndKVP2P", us=25, **{"Sequence number": 4 * number + 1}):
                    rt.work(FLASH, 420)
                if part == 0:
                    rt.waits(MAIN, end)


def te_backward(rt: Recorded, number: int) -> None:
    """Its backward pass."""
    parts = {"_LayerNormMLP": 4, "AttnFuncWithCPAndKVP2P": 0, "_Linear": 2, "_LayerNormLinear": 2}
    for forward, count in parts.items():
        name = f"{forward}Backward"
        node = {"Sequence number": 4 * number + PARTS[forward], "Fwd thread id": 1}
        with rt.span(NODE + name, **node), rt.span(name, **node):
            for _ in range(count):
                rt.work("void (anonymous namespace)::cast_transpose_general_kernel<8, 8, float, __nv_fp8_e5m2>", 40)
                rt.work(FP8, 520)
            if not count:
                rt.work(FLASH.replace("fprop", "bprop"), 2_100)
