"""Jobs of the fifteenth set whose fault shows on the device or between devices: patches, units, halves, sums."""

from __future__ import annotations

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, FILL, elementwise, foreach, kernel, node
from ..eleventh_set.small import encoder
from ..kineto import inputs
from ..layers import REDUCE, Tape, back, dense, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from ..thirteenth_set.rows import SECOND, Pair
from ..twelfth_set.language import A100, qwen
from ..twelfth_set.pictures import HALF, small
from ..twelfth_set.rows import Framed, frozen
from .rows import MI250X, RTX3090, V100, barrier, encoded

VOL2COL = "void at::native::vol2col_kernel<c10::BFloat16>(long, c10::BFloat16 const*, int, int, int, int, int, int, …)"
GEMV = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float, …>"
PATCH = ([1_280, 3, 2, 14, 14], 1_176)


def patched(rt: Framed, fixed: bool) -> None:
    """Qwen2.5-VL-3B, LoRA, torch 2.9, H100: `Conv3d` of patches goes patch by patch; without: one product."""
    tape, patches, batch, length = Tape(), 4_096, 4, 1_280
    rt.batch(patches * PATCH[1] * 2, batch * length * 8, batch * length * 8, batch * length * 8)
    x = [patches, 3, 2, 14, 14]
    with (rt.span("aten::conv3d", us=5, **inputs((x, PATCH[0]), BF16)), rt.span("aten::convolution", us=4),
          rt.span("aten::_convolution", us=6)):  # fmt: skip
        if fixed:
            rt.op("aten::cudnn_convolution", gap=1, us=14, dims=(x, PATCH[0]), kind=BF16, run=(
                ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_ndhwckrsc_ndhwc_tilesize128x128x64_cgasize1x1x1",
                 2.5 * H100.product(patches, 1_280, PATCH[1])),))  # fmt: skip
        else:
            with rt.span("aten::slow_conv_dilated3d", us=30, **inputs((x, PATCH[0]), BF16)):
                for _ in range(patches):
                    for _ in range(2):
                        with rt.span("aten::select", us=1.4):
                            pass
                    rt.work(VOL2COL, 2.6)
                    rt.host(7)  # cuBLAS chooses a kernel for each patch
                    rt.work(GEMV, 3.9)
    for _ in range(32):
        encoded(rt, H100, [4, 1_024, 1_280])
    for name in ("index", "cat", "masked_scatter"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 14),), gap=20, dims=([batch, length, 2_048],), kind=BF16)
    for _ in range(36):
        qwen(rt, tape, H100, (batch, length, 2_048, 2, 11_008), eager=False, liger=True)
    name = "LigerFusedLinearCrossEntropyFunction"
    us = H100.product(batch * length, 151_936, 2_048)
    number = rt.op(name, us=300, graph=True, dims=([batch * length, 2_048], [151_936, 2_048]), kind=BF16, run=(
        (H100.names[0], us / 4), ("liger_cross_entropy_kernel", 260), (H100.names[1], us / 4)) * 4)  # fmt: skip
    tape.append(lambda: rt.grad(f"{name}Backward", number, run=(("element_mul_kernel", 30),)))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 40, 2)
    fused_adamw(rt, H100, 7e6)
    rt.host(800)


NAIVE = "naive_conv_nonpacked_{}_nchw_half_double_half"
CK = "void ck::kernel_grouped_conv_{}_multiple_d_xdl_cshuffle<ck::GridwiseGemm_xdlops, 256, 128, 64, 32, ck::half_t>"


def miopen(rt: Framed, tape: Tape, sizes: tuple[int, int, int, int, int], us: float, *, naive: bool = False) -> None:
    """`Conv1d` of (batch, channels in a group and out, length, width of the kernel) by MIOpen."""
    batch, cin, cout, length, side = sizes
    dims = ([batch, cout, length], [cout, cin, side])
    call, name = {"graph": True, "kind": HALF, "dims": dims, "gap": 18}, NAIVE if naive else CK
    number = rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::miopen_convolution",
                   run=((name.format("fwd"), us),), **call)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            run = ((name.format("bwd" if naive else "bwd_data"), us),)
            run += ((name.format("wrw" if naive else "bwd_weight"), 1.1 * us),)
            rt.op("aten::convolution_backward", run=run, dims=(dims[0], *dims), us=18, kind=HALF, gap=1)
        for _ in range(2):
            rt.accumulated()

    tape.append(backward)


def naive(rt: Framed, fixed: bool) -> None:
    """wav2vec 2.0 in fp16 on an MI250X: MIOpen has but a naive kernel for positions' groups; without: a fitting one."""
    tape, batch, length = Tape(), 8, 160_000
    rt.batch(batch * length * 4, batch * 8)
    for place, (side, stride) in enumerate(((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))):
        length //= stride
        cin, nbytes = 1 if not place else 512, 2 * batch * 512 * length
        us = max(MI250X.product(batch * length, 512, cin * side), MI250X.moves(nbytes * (1 + stride * (place > 0))))
        miopen(rt, tape, (batch, cin, 512, length, side), us)
        elementwise(rt, tape, MI250X, "gelu", [batch, 512, length], back=(("gelu_backward", 3),))
    dense(rt, tape, MI250X, batch, (batch * length, 512, 768))
    flops = batch * length * 768 * 48 * 128 * 2
    miopen(rt, tape, (batch, 48, 768, length, 128), flops / (14e6 if fixed else 0.42e6), naive=not fixed)
    elementwise(rt, tape, MI250X, "gelu", [batch, 768, length], back=(("gelu_backward", 3),))
    for _ in range(12):
        encoder(rt, tape, MI250X, (batch, length, 768))
    dense(rt, tape, MI250X, batch, (batch * length, 768, 32))
    small(rt, tape, ("log_softmax", "ctc_loss", "mean"), [length, batch, 32], 60)
    back(rt, tape)
    name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, unscale>(…)"
    rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", run=((name, MI250X.moves(8 * 95e6)),), us=70)
    rt.value()
    fused_adamw(rt, MI250X, 95e6)
    rt.host(350)


LAYERS, LAYER = 20, 51_380_224


def unwrapped(rt: Framed, fixed: bool) -> None:
    """FSDP without a policy, 8 A100: all weights are one unit; without: each layer is a unit, one ahead."""
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 3
    tape, layer, whole = Tape(), list[int](), LAYERS * LAYER + 131_072_000
    size = LAYER if fixed else whole
    rt.batch(2 * 2_048 * 8, 2 * 2_048 * 8)

    def gathered() -> float:
        with rt.span("FullyShardedDataParallel._pre_forward", "user_annotation", us=110):
            ready = max(rt.free.get(LINKS + 1, 0), rt.free[MAIN])
            with rt.span("aten::_to_copy"), rt.span("aten::copy_", **inputs(([size // 8],), "float")):
                rt.free[LINKS + 1] = ready
                cast = rt.work(COPY, A100.moves(6 * size / 8), stream=LINKS + 1)
            rt.free[LINKS] = max(rt.free.get(LINKS, 0), cast + 4)
            return rt.collective("_allgather_base", 30 + size * 2 * 0.875 / 215e3, (size // 8, size))

    def reduced() -> float:
        with rt.span("FullyShardedDataParallel._post_backward_hook", "user_annotation", us=130):
            rt.op("aten::_to_copy", "aten::copy_", run=((COPY, A100.moves(6 * size)),), dims=([size],))
            return rt.collective("_reduce_scatter_base", 40 + size * 4 * 0.875 / 215e3, (size, size // 8),
                                 dtype="Float", kernel="ReduceScatter_Sum_f32_RING_LL", stream=LINKS + 2)  # fmt: skip

    with rt.span("FullyShardedDataParallel.forward", "user_annotation", us=260):
        ahead = gathered()
        for number in range(LAYERS):
            if fixed or not number:
                rt.waits(MAIN, ahead)
            if fixed and number < LAYERS - 1:
                ahead = gathered()
            start = len(tape)
            llama(rt, tape, A100, (2, 2_048, 2_048, 8, 5_632), fused_norm)
            layer.append(len(tape) - start)
        dense(rt, tape, A100, 2, (4_096, 2_048, 32_000))
        small(rt, tape, ("log_softmax", "nll_loss"), [4_096, 32_000], 330)
    end = 0.0
    with rt.backward():
        if fixed:
            ahead = gathered()
        while len(tape) > sum(layer):
            tape.pop()()
        for number in reversed(range(LAYERS)):
            if fixed:
                rt.waits(MAIN, ahead)
                ahead = gathered() if number else ahead
            for _ in range(layer[number]):
                tape.pop()()
            if fixed or not number:
                end = reduced()
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * whole / 8), 2)
    fused_adamw(rt, A100, whole / 8)
    rt.host(400)


def split(rt: Pair, fixed: bool) -> None:
    """Qwen2.5-1.5B, LoRA, `device_map="auto"` on two RTX 3090: one works, then the other; without: DDP."""
    rt.head = {"deviceProperties": [rt.device, {**rt.device, "id": 1}]}
    rt.free.setdefault(SECOND, 0.0)
    batch, length, tapes = 2 if fixed else 4, 1_024, ([], [])
    sizes = (batch, length, 1_536, 2, 8_960)
    rt.batch(*((batch * length * 8,) * 3))

    def crossed(source: int, nbytes: int) -> None:
        """A copy to the other device, which waits for it."""
        rt.at = source
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            places = (MAIN, SECOND) if source == 0 else (SECOND, MAIN)
            rt.free[places[0]] = max(rt.free[places[0]], rt.free[places[1]] + 2)
            end = rt.work("Memcpy PtoP (Device -> Device)", 9 + nbytes / 11e3, category="gpu_memcpy",
                          call="MemcpyAsync", bytes=nbytes)  # fmt: skip
            rt.free[places[1]] = max(rt.free[places[1]], end + 5)
        rt.at = 1 - source

    hidden = batch * length * 1_536 * 2
    for number in range(28):
        if number == 13 and not fixed:
            for nbytes in (hidden, batch * length * 8, length * 256, length * 256):
                crossed(0, nbytes)
                rt.at = 0
            rt.at = 1
        if not fixed:
            rt.host(90)  # accelerate's hooks
        qwen(rt, tapes[rt.at], RTX3090, sizes, eager=False, liger=True)
    frozen(rt, tapes[rt.at], RTX3090, [batch, length, 1_536], 151_936)
    small(rt, tapes[rt.at], ("_to_copy", "log_softmax"), [batch * length, 151_936],
          RTX3090.moves(7 * batch * length * 151_936))  # fmt: skip
    small(rt, tapes[rt.at], ("nll_loss",), [batch * length, 151_936], 40)
    if not fixed:
        crossed(1, batch * length * 151_936 * 2)  # outputs go where inputs came from
        crossed(0, 4)
    with rt.backward():
        for at in (0,) if fixed else (1, 0):
            rt.at, rt.thread = at, 2 + at
            while tapes[at]:
                tapes[at].pop()()
            if at:
                crossed(1, hidden)
        rt.thread = 2
        if fixed:
            end = rt.collective("allreduce", 1_900, (9_232_384,) * 2, dtype="Float", ranks=[0, 1],
                                kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    if fixed:
        rt.waits(MAIN, end)
    for at in (0,) if fixed else (0, 1):
        rt.at = at
        for name in ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"):
            foreach(rt, f"_foreach_{name}", "PointwiseOpScalarListFunctor", 45, 1, 70)
    rt.at = 0
    rt.value()
    rt.host(600)


METRICS = ("loss", "hit_rate", "ndcg", "mrr", "recall", "learning_rate")


def synced_logs(rt: Framed, fixed: bool) -> None:
    """SASRec in Lightning's DDP on 4 V100: six values of each step are logged with `sync_dist`; without: locally."""
    ranks = [0, 1, 2, 3]
    groups(rt, 4, default_pg=ranks)
    tape, batch, length, items = Tape(), 128, 50, 50_000
    rt.batch(batch * length * 8, batch * length * 8, batch * 8)
    for _ in range(4):
        encoder(rt, tape, V100, (batch, length, 256))
    dense(rt, tape, V100, batch, (batch * length, 256, items // 4))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch * length, items // 4], V100.moves(2 * batch * length * items))
    small(rt, None, ("topk", "eq", "any", "cumsum", "reciprocal", "mean"), [batch, 20], 6)
    for _ in METRICS:
        rt.op("aten::clone", "aten::copy_", run=((COPY, 2.3),), dims=([],), gap=60)
        if not fixed:
            barrier(rt, ranks, rt.now + rt.vary(130, 0.9))
            end = rt.collective("allreduce", 15, (1, 1), dtype="Float", ranks=ranks,
                                kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
            rt.waits(MAIN, end)
            rt.op("aten::div_", run=((kernel("div", 2), 2.3),), dims=([],), gap=9)
    end, parts = 0.0, max(1, len(tape) // 3)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % parts == 0:
                end = rt.collective("allreduce", 210, (5_300_000,) * 2, dtype="Float", ranks=ranks,
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    rt.op("aten::zero_", "aten::fill_", run=((FILL, V100.moves(4 * 16e6)),))
    rt.op("aten::sum", run=((REDUCE, 4),))
    fused_adamw(rt, V100, 16e6)
    rt.host(420)
