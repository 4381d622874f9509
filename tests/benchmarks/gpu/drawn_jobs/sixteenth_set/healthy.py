"""Jobs of the sixteenth set in which nothing is worth a change; the first two look as if something were."""

from __future__ import annotations

from functools import partial

from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash, fused_norm, llama
from ..eleventh_set.language import limited as until_freed
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import RTX3090
from ..layers import REDUCE, Tape, back, dense, fused_adamw
from ..runtime import COPIES, LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import H100, MI300X
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Framed
from .rows import DGEMM, Double, beside

WHOLE, LAYERS = 218_112_000, 12


def limited(rt: Framed, fixed: bool) -> None:
    """Looks bad, is right: FSDP's rate limiter keeps the host waiting for nine tenths of the step, 8 H100, all gathers
    and reductions but the ends hidden. The waits hold memory down; without them nothing would be faster.
    """
    ranks = list(range(8))
    groups(rt, 8, default_pg=ranks)
    rt.head["distributedInfo"]["rank"] = 7
    tape, layer, done = Tape(), list[int](), [0.0] * LAYERS
    gather = partial(
        rt.collective, "_allgather_base", 30 + WHOLE * 2 * 0.875 / 340e3, (WHOLE // 8, WHOLE), behind=False
    )
    rt.batch(2 * 8_192 * 8, 2 * 8_192 * 8)
    with rt.span("FullyShardedDataParallel.forward", "user_annotation", us=240):
        for number in range(LAYERS):
            with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=90):
                until_freed(rt, done[number - 2] if number > 1 else 0)
                rt.waits(MAIN, gather())
            start = len(tape)
            llama(rt, tape, H100, (2, 8_192, 4_096, 8, 14_336), fused_norm)
            layer.append(len(tape) - start)
            done[number] = rt.free[MAIN]
    last = 0.0
    with rt.backward():
        ahead = gather()
        for number in reversed(range(LAYERS)):
            with rt.span("FullyShardedDataParallel._pre_backward_hook", "user_annotation", us=80):
                rt.waits(MAIN, ahead)
                if number:
                    with rt.span("FullyShardedDataParallel._pre_backward_prefetch", "user_annotation", us=40):
                        until_freed(rt, done[min(number + 1, LAYERS - 1)])
                        ahead = gather()
            for _ in range(layer[number]):
                tape.pop()()
            done[number] = rt.free[MAIN]
            with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=70):
                last = rt.collective("_reduce_scatter_base", 40 + WHOLE * 2 * 0.875 / 330e3, (WHOLE, WHOLE // 8),
                                     stream=LINKS + 1)  # fmt: skip
    rt.waits(MAIN, last)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 110, 2)
    fused_adamw(rt, H100, LAYERS * WHOLE / 8)
    rt.host(300)


A100 = Double(15.5, 1_450, "double", DGEMM, ("", ""))
POINTS, HISTORY, WEIGHTS = 262_144, 50, 330_000


def _read(rt: Framed, name: str) -> None:
    """A number that L-BFGS compares on the host."""
    rt.op(f"aten::{name}", run=((REDUCE, 4),), dims=([WEIGHTS],), gap=9, kind="double")
    rt.value("aten::item")


def converged(rt: Framed, fixed: bool) -> None:
    """Looks bad, is right: a PINN in float64 by L-BFGS on an A100. Its curvature needs float64, which the card
    multiplies in tensor cores, and its five reads decide how it goes on; they take 0.3 ms of a step of 150 ms.
    """
    tape, x = Tape(), [POINTS, 256]
    with rt.span("Optimizer.step#LBFGS.step", "user_annotation", us=200):
        for name in ("neg", "sub", "mul"):
            rt.op(f"aten::{name}", run=((kernel(name, 2, "double"), 4),), dims=([WEIGHTS],), gap=9, kind="double")
        _read(rt, "dot")
        for _ in range(2 * HISTORY):
            rt.op(
                "aten::dot", run=((REDUCE.replace("float", "double"), 4),), dims=([WEIGHTS],) * 2, gap=7, kind="double"
            )
            rt.op("aten::add_", run=((kernel("add", 3, "double"), 6),), dims=([WEIGHTS],) * 2, gap=6, kind="double")
        for name in ("dot", "max"):
            _read(rt, name)
        for _ in range(3):  # the solution, its first and its second derivatives
            for wide in (256,) * 5:
                linear(rt, tape, A100, [POINTS, wide], 256)
                elementwise(rt, tape, A100, "tanh", x, 1, (("tanh_backward", 3), ("mul", 3)))
        small(rt, tape, ("sub", "pow", "mean", "add"), [POINTS, 3], 5)
        back(rt, tape)
        rt.op("aten::cat", run=((COPY, 6),), dims=([WEIGHTS],), gap=30, kind="double")
        for name in ("sum", "max"):
            _read(rt, name)
    rt.host(130)


PINNER, STAGER, WRITER, SAVED = 4_466, 4_501, 4_502, 3_600_000_000


def staged(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a model of 0.6 B on an H100; in one step a thread copies a checkpoint to pinned memory on a
    stream of its own, and another writes it. 3.6 GB leave the device beside its products, no step is longer. All
    threads are recorded, also the one that pins batches.
    """
    tape: Tape = []
    with beside(rt, PINNER, rt.now + 150), rt.span("aten::pin_memory", us=8), rt.span("aten::copy_", us=40):
        rt.call("EventQuery", 2)
    rt.batch(8 * 2_048 * 8, 8 * 2_048 * 8)
    end = 0.0
    if rt.number == 2:
        with beside(rt, STAGER, rt.now + 400):
            rt.free[COPIES] = rt.free[MAIN]
            for _ in range(36):
                with rt.span("aten::copy_", us=6):
                    end = rt.work("Memcpy DtoH (Device -> Pinned)", SAVED / 36 / 24e3, stream=COPIES,
                                  category="gpu_memcpy", call="MemcpyAsync", bytes=SAVED // 36)  # fmt: skip
            rt.call("StreamSynchronize", 4, until=end + 4)
        with beside(rt, WRITER, end + 600):
            for _ in range(8):
                with rt.span("aten::clone"), rt.span("aten::copy_", us=9_000):
                    rt.now += rt.vary(6_000)
                rt.now += rt.vary(24_000)
    for _ in range(LAYERS):
        llama(rt, tape, H100, (8, 2_048, 2_048, 8, 5_632), fused_norm)
    dense(rt, tape, H100, 8, (16_384, 2_048, 32_000))
    number = rt.op("LigerCrossEntropyFunction", run=(("liger_cross_entropy_kernel", 820),), graph=True,
                   dims=([16_384, 32_000],), kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("LigerCrossEntropyFunctionBackward", number, run=(("element_mul_kernel", 300),)))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 6e8), 3)
    if end:
        rt.waits(MAIN, end)  # weights change when they have been copied
    fused_adamw(rt, H100, 6e8 / 2)
    rt.host(300)


def lagged(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a ViT-B on an RTX 3090, bf16; the host waits for the event of the loss of the step before and
    reads it from pinned memory, while more than a step of work lies queued. No rows of steps.
    """
    tape, batch = Tape(), 64
    rt.batch(batch * 3 * 224 * 224 * 2, batch * 8)
    for _ in range(12):
        encoder(rt, tape, RTX3090, (batch, 197, 768))
    dense(rt, tape, RTX3090, batch, (batch, 768, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 1_000], 5)
    with rt.span("aten::detach"), rt.span("detach", us=1):
        pass
    with rt.span("aten::copy_"):
        rt.copy(4, "DtoH", "Pinned")
        rt.call("EventRecord", 2)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", RTX3090.moves(4 * 86e6), 2)
    fused_adamw(rt, RTX3090, 86e6)
    losses = [row["ts"] + row["dur"] for row in rt.rows if row["name"].startswith("Memcpy DtoH")]
    if rt.number:
        rt.call("EventSynchronize", 3, until=losses[-2])
        with rt.span("aten::item"), rt.span("aten::_local_scalar_dense"):
            pass
    rt.host(180)


EXPERTS = "_ZN2ck16tensor_operation6device12_GLOBAL__N_143kernel_grouped_gemm_xdl_fixed_nkINS_13GridwiseGemmXdl_bf16"


def grouped(rt: Framed, fixed: bool) -> None:
    """Nothing to change: 64 experts of a model on an MI300X by one grouped product a matrix, tokens are sorted on the
    device and nothing is read; no shapes.
    """
    tape, tokens, wide, each = Tape(), 4 * 4_096, 2_048, 1_024
    x, sent = [4, 4_096, wide], 6 * tokens
    rt.batch(tokens * 8, tokens * 8)

    def moved(name: str, kernel: str, passes: float) -> None:
        us = MI300X.moves(passes * 2 * sent * wide)
        number = rt.op(name, run=((kernel, us),), graph=True, gap=12)
        title = name.split("::")[1].title().replace("_", "") + "Backward0"
        tape.append(lambda: rt.grad(title, number, "aten::index_add_", run=((kernel, 1.3 * us),)))

    for _ in range(10):
        fused_norm(rt, tape, MI300X, x)
        for out in (wide, 512, 512):
            linear(rt, tape, MI300X, x, out)
        flash(rt, tape, MI300X, [4, 32, 4_096, 64])
        linear(rt, tape, MI300X, x, wide)
        elementwise(rt, tape, MI300X, "add", x, 2)
        fused_norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, 64)
        small(rt, tape, ("softmax", "topk", "div"), [tokens, 64], 9)
        for name in ("sort", "histc", "cumsum", "_to_copy"):
            rt.op(
                f"aten::{name}", run=((f"void at::native::{name}_kernel<int>(…)", 14 if name == "sort" else 4),), gap=9
            )
        moved("aten::index_select", "void at::native::vectorized_gather_kernel<16, long>(…)", 2)
        for m, k in ((2 * each, wide), (wide, each)):
            us = 1.25 * MI300X.product(sent, m, k)
            number = rt.op("aten::_grouped_mm", run=((EXPERTS, us),), graph=True, gap=14, us=20)

            def backward(number: int = number, us: float = us) -> None:
                with node(rt, "GroupedMmBackward0", number):
                    for _ in range(2):
                        rt.op("aten::_grouped_mm", run=((EXPERTS, us),), gap=2, us=16)

            tape.append(backward)
            if k == wide:
                elementwise(rt, tape, MI300X, "silu", [sent, each], 2, (("silu_backward", 3), ("mul", 3)))
        moved("aten::index_add", "void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2>(…)", 3)
        elementwise(rt, tape, MI300X, "add", x, 2)
    dense(rt, tape, MI300X, 4, (tokens, wide, 50_304))
    small(rt, tape, ("log_softmax", "nll_loss"), [tokens, 50_304], MI300X.moves(6 * tokens * 50_304))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2 * 4.3e9), 6)
    fused_adamw(rt, MI300X, 4.3e9 / 2)
    rt.host(400)
