"""Jobs of the eleventh set whose fault is on the host: a loop over parameters, a search of plans, matching in parts."""

from __future__ import annotations

from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, attention, back, dense, fused_adamw, norm
from ..tenth_set import T4_HALF
from .rows import Roofline, Sized, elementwise, foreach, kernel, node

PLANS = (
    "sm80_xmma_{0}_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
    "sm80_xmma_{0}_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x32_stage3_warpsize2x2x1_g1_tensor16x8x8",
    "cutlass_tensorop_s1688{0}_optimized_tf32_128x64_32x3_nhwc_align4",
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float, float, float>",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int, …)",
)
TIMES = (1.0, 1.1, 1.5, 2.4, 4.5)
L4 = Roofline(30, 250, "float", ("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4",) * 2, ("", ""))
DIMS = ([32, 64, 21, 21], [64, 64, 3, 3])


def convolved(rt: Sized, tape: Tape | None, us: float, dims: tuple[list[int], list[int]], found: bool = True) -> None:
    """A convolution;  found: whether its plans were timed before."""

    def one(way: str) -> None:
        if not found:
            timed(rt, way, us)
        if way == "fprop":
            rt.op("aten::cudnn_convolution", run=((PLANS[0].format(way), us),), dims=dims, gap=1, us=9)
        else:
            rt.work(PLANS[0].format(way), us)

    rt.host(14)
    rt.sequence += 1
    number, given = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0} if tape is not None else {}
    name = "aten::conv1d" if len(dims[1]) == 3 else "aten::conv2d"
    with (rt.span(name, us=4, **inputs(dims, "float"), **given), rt.span("aten::convolution", us=3, **given),
          rt.span("aten::_convolution", us=5, **given)):  # fmt: skip
        one("fprop")
    if tape is None:
        return

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number), rt.span("aten::convolution_backward", us=16,
                                                               **inputs((dims[0], *dims), "float")):  # fmt: skip
            one("dgrad")
            one("wgrad")
        rt.accumulated()

    tape.append(backward)


def timed(rt: Sized, way: str, us: float) -> None:
    """cuDNN's plans, each run once and then once for its time."""
    for plan, times in zip(PLANS, TIMES, strict=True):
        if times > 2:
            rt.call("Malloc", rt.vary(260, 0.4))
        rt.work(plan.format(way), us * times)
        rt.wait()
        rt.call("EventRecord", 2)
        rt.work(plan.format(way), us * times)
        rt.call("EventRecord", 2)
        rt.call("EventSynchronize", 3, until=max(rt.free.values()) + 4)


def network(rt: Sized, tape: Tape | None, count: int, us: float) -> None:
    """An encoder of pictures: convolutions with ReLU."""
    for _ in range(count):
        convolved(rt, tape, us, DIMS)
        elementwise(rt, tape if tape is not None else [], L4, "relu", DIMS[0], back=(("threshold_backward", 3),))


def polyak(rt: Sized, fixed: bool) -> None:
    """SPR on an L4: `t.copy_(tau * p + (1 - tau) * t)` of 118 parameters; without: `torch._foreach_lerp_`."""
    tape: Tape = []
    for size in ([32, 4, 84, 84], [32], [32], [32, 5]):
        run = (("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<…>>(…)", 4),)
        rt.op("aten::index", run=run, dims=([100_000, *size[1:]], [32]), gap=22, us=10)
    network(rt, tape, 15, 40)
    for _ in range(5):
        network(rt, tape, 2, 40)
        dense(rt, tape, L4, 1, (32, 1_024, 512))
    network(rt, None, 15, 40)
    for _ in range(6):
        for name in ("linear", "log_softmax", "gather", "mul", "clamp", "sum", "mean"):
            number = rt.op(f"aten::{name}", run=((kernel(name, 2), 3),), dims=([32, 51],), graph=True, gap=9)
            title = name.title().replace("_", "") + "Backward0"
            tape.append(lambda number=number, title=title: rt.grad(title, number, run=((kernel("mul", 3), 3),)))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 30)
    fused_adamw(rt, L4, 6.6e6)
    if fixed:
        foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", L4.moves(12 * 6.6e6), 2, 150)
    else:
        for place in range(118):
            size = ([64, 64, 3, 3], [64], [512, 512], [512])[place % 4]
            for name in ("mul", "mul", "add", "copy_"):
                with rt.span("aten::detach", us=1):
                    pass
                rt.op(f"aten::{name}", run=((kernel(name, 2), 2.4),), dims=(size, []), gap=2, us=4)
    rt.host(350)


_FRAMES = (1_412, 1_268, 1_530, 1_092, 1_347, 1_268, 1_475, 1_181, 1_390, 1_301)


def searched(rt: Sized, fixed: bool) -> None:
    """Jasper on an L4, `cudnn.benchmark=True`: each new length of a batch times all plans again; without: False."""
    tape, frames = Tape(), _FRAMES[rt.number]
    known = fixed or rt.number in (0, 5)
    rt.batch(32 * 64 * frames * 4, 32 * 200 * 8)
    for layer in range(21):
        wide, side = 256 + 128 * (layer // 8), 11 + 2 * (layer // 5)
        size = [32, wide, frames // 2]
        us = L4.product(32 * (frames // 2), wide, wide * side) * (1.1 if fixed else 1)
        convolved(rt, tape, us, (size, [wide, wide, side]), known)
        moves = L4.moves(4 * size[0] * size[1] * size[2])
        run = (("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(…)", 2 * moves),)
        number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", run=run, gap=12,
                       dims=(size,), graph=True)  # fmt: skip
        run = (("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(…)", 3.2 * moves),)
        tape.append(lambda number=number, size=size, run=run: rt.grad("CudnnBatchNormBackward0", number,
                    "aten::cudnn_batch_norm_backward", run=run, dims=(size, size)))  # fmt: skip
        elementwise(rt, tape, L4, "relu", size, back=(("threshold_backward", 3),))
    for name in ("aten::log_softmax", "aten::ctc_loss"):
        loss = "void at::native::(anonymous namespace)::ctc_loss_log_alpha_gpu_kernel<float, long>(…)"
        run = (
            ((loss, 900),)
            if "ctc" in name
            else (("void (anonymous namespace)::softmax_warp_forward<float, float, float, 5, true>", 20),)
        )
        number = rt.op(name, name.replace("::", "::_"), run=run, dims=([frames // 2, 32, 29],), graph=True)
        title = "CtcLossBackward0" if "ctc" in name else "LogSoftmaxBackward0"
        tape.append(lambda number=number, title=title, run=run: rt.grad(title, number, run=run))
    back(rt, tape)
    fused_adamw(rt, L4, 105e6 / 2)
    rt.host(300)


def encoder(rt: Sized, tape: Tape, card: Card, sizes: tuple[int, int, int]) -> None:
    """A ViT's layer of (batch, length, width)."""
    batch, length, width = sizes
    x = [batch, length, width]
    norm(rt, tape, card, x)
    dense(rt, tape, card, batch, (batch * length, width, 3 * width))
    attention(rt, tape, card, [batch, width // 64, length, 64])
    dense(rt, tape, card, batch, (batch * length, width, width))
    elementwise(rt, tape, card, "add", x, 2)
    norm(rt, tape, card, x)
    dense(rt, tape, card, batch, (batch * length, width, 4 * width))
    elementwise(rt, tape, card, "gelu", [batch, length, 4 * width], back=(("gelu_backward", 3),))
    dense(rt, tape, card, batch, (batch * length, 4 * width, width))
    elementwise(rt, tape, card, "add", x, 2)


COSTS = (
    *("sigmoid", "pow", "mul", "log", "neg", "mul", "rsub", "pow", "mul", "log", "sub", "index", "index", "sub"),
    *("cdist", "unbind", "stack", "max", "min", "sub", "clamp", "mul", "add", "sub", "div", "mul", "add", "add"),
)
LOSSES = (
    *("index", "index", "cat", "full", "index_put_", "sigmoid", "binary_cross_entropy_with_logits", "pow", "mul"),
    *("mul", "mean", "sum", "div", "abs", "sum", "div", "diag", "rsub", "sum", "div", "add", "mul"),
)


def matched(rt: Sized, fixed: bool) -> None:
    """LW-DETR on a T4: 52 sets of predictions are matched one by one, 8 copies and waits each; without: one batch."""
    tape, images = Tape(), 8
    rt.batch(images * 3 * 640 * 640 * 4, images * 12 * 40)
    for _ in range(10):
        encoder(rt, tape, T4_HALF, (images, 1_600, 384))
    for _ in range(3):
        encoder(rt, tape, T4_HALF, (images, 1_300, 256))
    for _ in range(1 if fixed else 52):
        assigned(rt, tape, images, 52 if fixed else 1)
    back(rt, tape)
    unscale = (("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<…, unscale>", T4_HALF.moves(180e6)),)
    rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", us=60, run=unscale)
    rt.value()
    fused_adamw(rt, T4_HALF, 22e6)
    rt.host(500)


def assigned(rt: Sized, tape: Tape, images: int, sets: int) -> None:
    """Costs, `linear_sum_assignment` of each image on the host, losses of what it chose."""
    size, us = [sets * images, 100, 96], 3.0 + 0.9 * (sets - 1)
    for name in COSTS:
        if name == "unbind":
            with rt.span(f"aten::{name}", us=2):
                continue
        rt.op(f"aten::{name}", run=((kernel(name, 2), us),), dims=(size,), gap=5, us=4)
    for _ in range(images if sets == 1 else 1):
        with rt.span("aten::to", **inputs((size,), "float")), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(100 * 12 * 4 * (1 if sets == 1 else sets * images), "DtoH", "Pageable")
        rt.host(70 if sets == 1 else 38 * sets * images)
    for _ in range(3):
        with (
            rt.span("aten::to", **inputs(([images * 12 * sets],), "long int")),
            rt.span("aten::_to_copy"),
            rt.span("aten::copy_"),
        ):
            rt.copy(images * 12 * sets * 8, "HtoD", "Pageable")
    for name in LOSSES:
        run = ((REDUCE if name in ("sum", "mean") else kernel(name, 2), us),)
        number = rt.op(f"aten::{name}", run=run, dims=(size,), gap=5, us=4, graph=True)
        if name not in ("full", "index", "diag"):
            title = name.strip("_").title().replace("_", "") + "Backward0"
            tape.append(lambda number=number, title=title: rt.grad(title, number, run=((kernel("mul", 3), us),)))
