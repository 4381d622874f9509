"""Jobs of the thirteenth set without a fault, and two at their first steps."""

from __future__ import annotations

from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, foreach, kernel, node
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Tape, back, dense
from ..runtime import COPIES, MAIN
from ..tenth_set import RTX3090
from ..tenth_set.jobs import H100
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, sgd, small
from ..twelfth_set.rows import Conv, Framed, conv_norm, loader
from .rows import Fresh

FUSED = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, …>"
RADIX = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<unsigned long, unsigned int>>"
CHANNELS = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn"


def script(rt: Fresh, fixed: bool) -> None:
    """`with profile():` around a whole script: fine-tuning of BERT, RTX 3090; only the first iteration is slow."""
    rt.cold = True
    if rt.number == 0:
        rt.context()
        for place in range(197):
            nbytes = (768 * 768, 768, 768 * 3_072, 3_072)[place % 4] * 4
            rt.taken(nbytes / 1e6)
            rt.moved(nbytes, 9, [nbytes // 4])
    tape, batch = Tape(), 32
    loader(rt, 180)
    for _ in range(3):
        rt.moved(batch * 256 * 8, 6, [batch, 256], "long int")
    if rt.number == 0:
        rt.library("aten::linear", 0.38)
    for _ in range(12):
        if rt.number < 2:
            rt.taken(420 if rt.number == 0 else 4)
        encoder(rt, tape, RTX3090, (batch, 256, 768))
    dense(rt, tape, RTX3090, batch, (batch, 768, 2))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 2])
    back(rt, tape)
    rt.taken(440 if rt.number == 0 else 0)
    foreach(rt, "_foreach_norm", "LpNormFunctor", RTX3090.moves(4 * 110e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", RTX3090.moves(8 * 110e6), 3)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=250):
        if rt.number == 0:
            for _ in range(394):
                rt.taken(1.1)
                rt.op("aten::zeros_like", "aten::zero_", "aten::fill_", run=((kernel("fill", 1), 3),), gap=9)
        rt.op("aten::_fused_adamw_", us=60, run=((FUSED, RTX3090.moves(28 * 110e6 / 3)),) * 3)
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=90):
        pass
    rt.host(200)


def printed(rt: Fresh, fixed: bool) -> None:
    """A ResNet on pictures of 32 pixels, RTX 4090, `schedule(wait=0, warmup=0, active=4)`; loss and accuracy are read
    for a progress bar in each step; without: no read. The first step is cold."""
    rt.cold, tape, batch = True, Tape(), 128
    if rt.number == 0:
        rt.context()
    loader(rt, 160)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(batch * 3 * 32 * 32 * 4)
    if rt.number == 0:
        rt.library("aten::cudnn_convolution", 0.74)
    for level in range(3):
        width, size = 64 << level, 32 >> level
        for block in range(3):
            if rt.number == 0:
                rt.taken(180)
            conv_norm(rt, tape, ADA, Conv(batch, 3 if level == block == 0 else width, width, 3, size, size))
            conv_norm(rt, tape, ADA, Conv(batch, width, width, 3, size, size))
    if rt.number == 0:
        rt.library("aten::linear", 0.11)
    dense(rt, tape, ADA.card, batch, (batch, 256, 100))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 100])
    if not fixed:
        rt.value()
        rt.host(900)  # the bar is drawn
        small(rt, None, ("argmax", "eq", "sum"), [batch])
        rt.value()
    back(rt, tape)
    sgd(rt, ADA.card, 2.8e6)
    rt.host(120)


def eightbit(rt: Framed, fixed: bool) -> None:
    """A model of 1.1 B in bf16 on an A100, bitsandbytes' AdamW8bit launches once for each parameter; the host runs
    ahead of the device, and its rows of steps are far shorter than the device's steps."""
    tape: Tape = []
    rt.batch(65_536, 65_536)
    for _ in range(22):
        llama(rt, tape, A100, (4, 2_048, 2_048, 4, 5_632), fused_norm)
    dense(rt, tape, A100, 4, (8_192, 2_048, 32_000))
    liger = "liger_cross_entropy_kernel"
    number = rt.op("LigerCrossEntropyFunction", run=((liger, A100.moves(4 * 8_192 * 32_000)),), graph=True)
    tape.append(lambda: rt.grad("LigerCrossEntropyFunctionBackward", number, run=(("element_mul_kernel", 300),)))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(2 * 1.1e9), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(4 * 1.1e9), 4)
    name = "void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 3, 256, 1>(…)"
    with rt.span("Optimizer.step#AdamW8bit.step", "user_annotation", us=200):
        for place in range(201):
            rt.host(14)
            rt.work(name, A100.moves(8 * (4.2e6, 11.5e6, 2_048, 2.1e6)[place % 4]))
    rt.host(350)


def overlapped(rt: Framed, fixed: bool) -> None:
    """SGLang with its overlapping schedule decodes 64 sequences, H100: graphs follow one another, tokens are read a
    step later from pinned memory."""
    with rt.span("scheduler.get_next_batch", "user_annotation", us=60):
        rt.host(700)
    for nbytes in (512, 512, 1_024):
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(nbytes)
    correlation, called = len(rt.rows) + 1, rt.now
    rt.call("GraphLaunch", 240, correlation=correlation)
    begin = max(called + 12, rt.free[MAIN] + 1.2)
    norm, gemm = "fused_add_rmsnorm_kernel", "nvjet_tst_64x64_64x13_4x1_v_bz_TNN"
    layer = ((norm, 5), (gemm, 24), ("flashinfer::rope_kernel", 4), ("BatchDecodeWithPagedKVCacheKernel", 58),
             (gemm, 17), (norm, 5), ("nvjet_tst_128x64_64x10_2x1_v_bz_TNN", 82), ("act_and_mul_kernel", 7),
             ("nvjet_tst_64x64_64x13_2x2_v_bz_splitK_TNN", 45))  # fmt: skip
    for place in range(32 * len(layer)):
        name, us = layer[place % len(layer)]
        end = begin + rt.vary(us)
        ids = {"device": 0, "stream": MAIN, "correlation": correlation, "graph id": 3, "graph node id": place}
        rt.row(name, "kernel", begin, end, MAIN, **ids)
        begin = end + 0.8
    rt.free[MAIN] = begin
    rt.queued.append(begin)
    for name, us in (("softmax", 30), ("sort", 140), ("cumsum", 40), ("multinomial", 25)):
        rt.op(f"aten::{name}", run=((kernel(name, 2), us),), gap=12)
    rt.waits(COPIES, rt.free[MAIN])
    before = rt.free.get(COPIES + 1, 0)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.free[COPIES + 1] = rt.copy(512, "DtoH", stream=COPIES)
    rt.call("EventSynchronize", 3, until=before + 5)
    with rt.span("scheduler.process_batch_result", "user_annotation", us=40):
        rt.host(1_600)


def tuned(rt: Framed, fixed: bool) -> None:
    """ConvNeXt on an H100: channels_last, compiled, fused AdamW, clipping and a moving average by lists, no read."""
    rt.batch(256 * 3 * 224 * 224 * 2, 256 * 8)
    rt.sequence += 1
    number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    one = H100.moves(2 * 2 * 256 * 28 * 28 * 256)
    ahead = ("conv", "triton_per_fused_native_layer_norm_1", "mm", "triton_poi_fused_gelu_2", "mm",
             "triton_poi_fused_add_mul_3")  # fmt: skip
    product = H100.product(256 * 28 * 28, 256, 1_024) * 1.2

    def launched(name: str, times: float = 1) -> None:
        rt.host(5)
        if name == "mm":
            rt.op("aten::mm", run=(("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", times * product),), gap=1, us=6)
        elif name == "conv":
            rt.op("aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=1, us=8,
                  run=((CHANNELS, 2.2 * times * one),))  # fmt: skip
        else:
            rt.work(name, times * (3.4 if "gelu" in name else 1.2) * one, call="cuLaunchKernel")

    with rt.span("TorchDynamo Cache Lookup", us=20):
        pass
    with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=40, **number),
          rt.span("## Call CompiledFxGraph fd4kk2z ##", "user_annotation", us=20)):  # fmt: skip
        for _ in range(18):
            for name in ahead:
                launched(name)
    rt.op("aten::cross_entropy_loss", run=((REDUCE, 7),), dims=([256, 1000], [256]))
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph f6gq0ab ##", "user_annotation", us=20)):  # fmt: skip
        for _ in range(18):
            for name in reversed(ahead):
                launched(name.replace("fused_", "fused_backward_"), 2 if name in ("mm", "conv") else 1.7)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * 89e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * 89e6), 2)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=150):
        rt.op("aten::_fused_adamw_", us=60, run=((FUSED, H100.moves(28 * 89e6 / 2)),) * 2)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", H100.moves(12 * 89e6), 2, 150)
    rt.host(260)


def splatted(rt: Framed, fixed: bool) -> None:
    """3D Gaussian splatting, RTX 3090, as its authors wrote it: counts are read inside of the rasterizer, the loss for
    a bar; without: the loss is not read. Little is to gain."""
    tape, count = Tape(), 1_600_000
    card = RTX3090
    small(rt, tape, ("exp", "sigmoid", "normalize"), [count, 4], card.moves(32 * count))
    rt.op("aten::cat", run=((COPY, card.moves(8 * 48 * count)),), gap=20)
    rt.host(60)
    with rt.span("_RasterizeGaussians", us=40, **{"Sequence number": 1, "Fwd thread id": 0}):
        rt.work("void preprocessCUDA<3>(int, int, int, float const*, …)", 620)
        rt.work("void cub::DeviceScanKernel<cub::DeviceScanPolicy<unsigned int>::Policy600>", 30)
        rt.copy(4, "DtoH", "Pageable", waits=True)
        for _ in range(4):
            rt.work(RADIX, 210)
        rt.work("identifyTileRanges(int, unsigned long*, uint2*)", 40)
        rt.work("void renderCUDA<3u>(uint2 const*, unsigned int const*, int, int, …)", 1_350)
    conv = "void conv_depthwise2d_forward_kernel<11, float, int>(…)"
    for _ in range(5):
        number = rt.op("aten::conv2d", "aten::_conv_depthwise2d", run=((conv, 180),), gap=16, graph=True)
        tape.append(lambda number=number: rt.grad("ConvDepthwise2DBackward0", number, run=((conv, 220),)))
    small(
        rt, tape, ("sub", "abs", "mean", "mul", "mul", "add", "div", "mean", "rsub", "mul", "add"), [3, 800, 1200], 28
    )
    with rt.backward():
        while len(tape) > 3:
            tape.pop()()
        rt.grad("_RasterizeGaussiansBackward", 1, run=(
            ("void renderCUDA<3u>(uint2 const*, unsigned int const*, int, int, float const*, …)", 3_900),
            ("void preprocessCUDA<3>(int, float3 const*, int const*, float const*, …)", 480)))  # fmt: skip
        while tape:
            tape.pop()()
    if not fixed:
        rt.value()
    small(rt, None, ("maximum", "index_put_", "norm", "add"), [count], card.moves(12 * count))
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=200):
        for place in range(6):
            nbytes = (3, 3, 45, 1, 3, 4)[place] * count * 4
            for name, passes in (("lerp_", 3), ("mul_", 2), ("addcmul_", 4), ("sqrt", 2), ("div_", 2), ("add_", 2),
                                 ("addcdiv_", 4)):  # fmt: skip
                foreach(rt, f"_foreach_{name}", "PointwiseOpScalarListFunctor", card.moves(passes * nbytes), 1, 28)
    rt.host(140)
