"""Pictures of the twelfth set: a slow loader, detection, Stable Diffusion, segmentation, DCGAN, a ViT in DDP."""

from __future__ import annotations

from dataclasses import replace

from ..eighth_set.ranks import groups
from ..eleventh_set.rows import FILL, elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..layers import CAST, REDUCE, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from .rows import Conv, Framed, Look, conv, conv_norm, loader

HALF = "c10::Half"
NHWC = "void cudnn::bn_{}_tr_1C11_kernel_NHWC<__half2, float, int, 512, true, 1, true>(…)"
VOLTA = ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
         "volta_fp16_s884cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1",
         "volta_fp16_s884cudnn_fp16_256x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1")  # fmt: skip
XMMA = "sm80_xmma_{}_implicit_gemm_{}_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x{}"
V100 = Look(Card(42, 760, HALF, ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",) * 2, ("", "")), VOLTA, NHWC, True)
SGEMM = ("ampere_sgemm_128x128_tn", "ampere_sgemm_128x64_nn")
TF32 = ("cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4", "cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4")
CUTLASS = ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, …>::Params)",
           "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<float>::Params)",
           )  # fmt: skip
A100_FLOAT = Card(15.5, 1_450, "float", SGEMM, CUTLASS)
A100 = Look(Card(70, 1_450, "float", TF32, A100_FLOAT.attention), tuple(
    XMMA.format(way, "tf32f32_tf32f32_f32", 8) for way in ("fprop", "dgrad", "wgrad")))  # type: ignore[arg-type]  # fmt: skip
ADA = Look(Card(110, 860, HALF, ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",) * 2, ("", "")), tuple(
    XMMA.format(way, "f16f16_f16f32_f32", 16) for way in ("fprop", "dgrad", "wgrad")), NHWC, True)  # type: ignore[arg-type]  # fmt: skip
SAMPLE = "train.py(118): train_one_epoch"


def resnet(rt: Framed, tape: Tape, look: Look, batch: int, scale: tuple[int, int]) -> None:
    """ResNet-50's convolutions; scale: height and width of the deepest layers."""
    high, wide = scale
    conv_norm(rt, tape, look, Conv(batch, 3, 64, 7, 16 * high, 16 * wide))
    for blocks, width, more in ((3, 64, 8), (4, 128, 4), (6, 256, 2), (3, 512, 1)):
        for _ in range(blocks):
            with rt.frame("torch/nn/modules/module.py(1747): _call_impl", f"nn.Module: Bottleneck_{blocks}"):
                for cin, cout, side in ((4 * width, width, 1), (width, width, 3), (width, 4 * width, 1)):
                    conv_norm(rt, tape, look, Conv(batch, cin, cout, side, more * high, more * wide))
                size = [batch, 4 * width, more * high, more * wide]
                elementwise(rt, tape, look.card, "add_", size, 2)


def unscaled(rt: Framed, card: Card, parameters: float) -> None:
    """`GradScaler.step`: gradients are checked, the host reads whether one is infinite."""
    name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, unscale>(…)"
    rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", run=((name, card.moves(8 * parameters)),), us=70)
    with rt.frame("torch/amp/grad_scaler.py(453): step", "torch/amp/grad_scaler.py(350): _maybe_opt_step",
                  "<method 'item' of 'torch._C.TensorBase' objects>"):  # fmt: skip
        rt.value()


def sgd(rt: Framed, card: Card, parameters: float, kind: str = "SGD") -> None:
    """`SGD(momentum=0.9)` by lists, as it is by default."""
    with rt.frame("torch/optim/optimizer.py(478): wrapper"):
        with rt.span(f"Optimizer.step#{kind}.step", "user_annotation", us=350):
            for name, passes in (("add_", 3), ("mul_", 2), ("add_", 3), ("add_", 3)):
                foreach(rt, f"_foreach_{name}", "BinaryOpListAlphaFunctor", card.moves(4 * passes * parameters), 2, 130)
        with rt.span(f"Optimizer.zero_grad#{kind}.zero_grad", "user_annotation", us=120):
            pass


def starved(rt: Framed, fixed: bool) -> None:
    """torchvision's reference, ResNet-50, AMP, V100: 4 workers are too few, memory is not pinned; without: neither."""
    tape: Tape = []
    loader(rt, 190 if fixed else 420_000 - rt.vary(195_000, 0.05))
    nbytes = 128 * 3 * 224 * 224 * 4
    with rt.frame(SAMPLE, "<method 'to' of 'torch._C.TensorBase' objects>"):
        if fixed:
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(nbytes)
        else:
            rt.moved(nbytes, 5.8, [128, 3, 224, 224])
            rt.moved(1_024, 1, [128], "long int")
    with rt.frame("torchvision/models/resnet.py(284): forward", "nn.Module: ResNet_0"):
        run = ((CAST, V100.card.moves(6 * nbytes / 4)),)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=([128, 3, 224, 224],))
        resnet(rt, tape, V100, 128, (7, 7))
        dense(rt, tape, V100.card, 128, (128, 2_048, 1_000))
    number = rt.op("aten::cross_entropy_loss", run=((REDUCE, 12),), dims=([128, 1000], [128]), graph=True)
    tape.append(lambda: rt.grad("NllLossBackward0", number, run=((REDUCE, 12),)))
    with rt.frame("torch/_tensor.py(581): backward", "torch/autograd/__init__.py(243): backward",
                  "<built-in method run_backward of torch._C._EngineBase object>"):  # fmt: skip
        back(rt, tape)
    unscaled(rt, V100.card, 25.5e6)
    sgd(rt, V100.card, 25.5e6)
    for name in ("topk", "t", "eq", "sum", "mul_", "sum", "mul_"):
        rt.op(f"aten::{name}", run=((REDUCE, 5),) if name != "t" else (), dims=([128, 1000],))
    with rt.frame("torchvision/references/utils.py(31): update"):
        for _ in range(3):
            with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
                rt.value()
            rt.host(40)


_ANCHORS = ("sub", "mul", "add", "exp", "mul", "stack", "flatten", "clamp", "where", "sub", "ge", "and")


def looked_for(rt: Framed, name: str, size: list[int]) -> None:
    """An op whose size depends on values: the host waits for it."""
    rt.op(f"aten::{name}", run=(("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<…>", 4),), dims=(size,), gap=9)
    with rt.span("aten::nonzero"):
        rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<…>", 5)
        rt.copy(8, "DtoH", "Pageable", waits=True)


def small(rt: Framed, tape: Tape | None, names: tuple[str, ...], size: list[int], us: float = 3.2) -> None:
    """Small ops one by one."""
    for name in names:
        number = rt.op(f"aten::{name}", run=((kernel(name, 2), us),), dims=(size,), gap=8, us=5, graph=tape is not None)
        if tape is not None and name not in ("ge", "and", "where"):
            title = f"{name.title()}Backward0"
            tape.append(lambda number=number, title=title: rt.grad(title, number, run=((kernel("mul", 3), us),)))


def handed(rt: Framed, fixed: bool) -> None:
    """Pictures and the keys of their targets."""
    loader(rt, 300)
    for nbytes, dims in ((3 * 800 * 1_216 * 4, [3, 800, 1_216]), *((size * 8, [size]) for size in (36, 9, 1, 9, 9))):
        for _ in range(4):
            rt.host(7)
            if not fixed:
                rt.moved(nbytes, 6.1 if nbytes > 65_536 else 1, dims, "float" if dims[1:] else "long int")
                continue
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(nbytes)


def proposed(rt: Framed) -> None:
    """Proposals of each picture, and their targets."""
    for _ in range(4):
        for _ in range(5):
            rt.op("aten::topk", run=(("void at::native::sbtopk::gatherTopK<float, unsigned int, 2>", 38),), gap=12)
        looked_for(rt, "ge", [4_693])
        small(rt, None, ("index", "index", "sort"), [4_693, 4], 8)
        rt.op("torchvision::nms", run=(("void nms_kernel_impl<float>(int, double, float const*, …)", 160),), gap=20)
        with rt.span("aten::to"), rt.span("aten::copy_"):
            rt.copy(2_000_000, "DtoH", "Pageable", waits=True)
        rt.host(420)
    for _ in range(8):
        small(rt, None, _ANCHORS, [2_000, 24], 5)
        for _ in range(3):
            looked_for(rt, "eq", [2_000])
        rt.op("aten::randperm", run=(("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<…>", 9),), gap=14)


def detected(rt: Framed, fixed: bool) -> None:
    """Faster R-CNN of torchvision's references, batch of 4, A100: memory is not pinned, targets are moved key by key,
    five losses are read for the log; without: pinned, what is moved does not wait, losses stay there."""
    tape, card = Tape(), A100.card
    handed(rt, fixed)
    for _ in range(4):
        small(rt, None, ("sub", "div", "upsample_bilinear2d", "copy_"), [3, 800, 1216], 38)
    resnet(rt, tape, A100, 4, (25, 38))
    for more in (1, 2, 4, 8):
        for cin, side in ((1_024, 1), (256, 3)):
            conv(rt, tape, A100, Conv(4, cin, 256, side, 25 * more, 38 * more))
    for more in (1, 2, 4, 8):
        for side, cout in ((3, 256), (1, 15)):
            conv(rt, tape, A100, Conv(4, 256, cout, side, 25 * more, 38 * more))
    small(rt, None, _ANCHORS * 3, [4, 242_991, 4], 9)
    proposed(rt)
    small(rt, tape, ("sub", "abs", "sum", "div", "index", "sigmoid", "mean"), [1_024, 4])
    number = rt.op("torchvision::roi_align", run=(("void roi_align_forward_kernel_impl<float>(int, …)", 900),), gap=60,
                   graph=True, dims=([4, 256, 200, 304], [2048, 5]))  # fmt: skip
    run = ((FILL, 180), ("void roi_align_backward_kernel_impl<float>(int, float const*, …)", 2_600))
    tape.append(lambda: rt.grad("torch::autograd::CppNode<ROIAlignFunction>", number,
                                "torchvision::_roi_align_backward", run=run))  # fmt: skip
    for sizes in ((2_048, 12_544, 1_024), (2_048, 1_024, 1_024), (2_048, 1_024, 91), (2_048, 1_024, 364)):
        dense(rt, tape, card, 1, sizes)
    small(rt, tape, ("log_softmax", "nll_loss", "index", "sub", "abs", "sum", "div"), [2_048, 91])
    small(rt, tape, ("add",) * 3, [])
    if not fixed:
        small(rt, None, ("stack", "add", "add", "add"), [])
        for _ in range(5):
            rt.value()
            rt.host(22)
    back(rt, tape)
    sgd(rt, card, 41e6)
    rt.host(700)


def residual(rt: Framed, tape: Tape | None, look: Look, of: Conv) -> None:
    """A block of a UNet or a VAE: group norm, SiLU, convolution, twice."""
    card, x, y = look.card, of.dims[0], of.dims[2]
    kept = [] if tape is None else tape
    for size, cin in ((x, of.cin), (y, of.cout)):
        nbytes = card.size * size[0] * size[1] * size[2] * size[3]
        name = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, …)"
        run = ((name, card.moves(nbytes)), (kernel("group_norm", 2), card.moves(2 * nbytes)))
        number = rt.op("aten::group_norm", "aten::native_group_norm", run=run, dims=(size,), gap=15,
                       graph=tape is not None)  # fmt: skip
        kept.append(lambda number=number, size=size, nbytes=nbytes: rt.grad(
            "NativeGroupNormBackward0", number, "aten::native_group_norm_backward", dims=(size, size), run=(
                ("void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>(…)",
                 card.moves(2 * nbytes)), (kernel("group_norm_backward", 3), card.moves(3 * nbytes)))))  # fmt: skip
        elementwise(rt, kept, card, "silu", size, back=(("silu_backward", 3),))
        conv(rt, tape, look, replace(of, cin=cin))
    elementwise(rt, kept, card, "add", y, 2)


def crossed(rt: Framed, tape: Tape, card: Card, x: list[int]) -> None:
    """A transformer's block of Stable Diffusion's UNet."""
    heads = [x[0], 8, x[1], x[2] // 8]
    for _ in range(2):
        norm(rt, tape, card, x)
        for _ in range(3):
            linear(rt, tape, card, x, x[2])
        attention(rt, tape, replace(card, tflops=17), heads)
        linear(rt, tape, card, x, x[2])
        elementwise(rt, tape, card, "add", x, 2)
    norm(rt, tape, card, x)
    linear(rt, tape, card, x, 8 * x[2])
    elementwise(rt, tape, card, "gelu", [*x[:2], 4 * x[2]], back=(("gelu_backward", 3),))
    elementwise(rt, tape, card, "mul", [*x[:2], 4 * x[2]], 2, (("mul", 3), ("mul", 3)))
    linear(rt, tape, card, [*x[:2], 4 * x[2]], x[2])
    elementwise(rt, tape, card, "add", x, 2)


def diffused(rt: Framed, fixed: bool) -> None:
    """diffusers' `train_text_to_image.py` without `--allow_tf32`, A100; frozen VAE and text encoder; fixed: TF32."""
    tape, look, batch = Tape(), A100, 4
    card = A100.card if fixed else A100_FLOAT
    rt.batch(batch * 3 * 512 * 512 * 4, batch * 77 * 8)
    for cin, cout, size in ((128, 128, 512), (128, 256, 256), (256, 512, 128), (512, 512, 64)):
        residual(rt, None, look, Conv(batch, cin, cout, 3, size, size))
        residual(rt, None, look, Conv(batch, cout, cout, 3, size, size))
    for name in ("chunk", "clamp", "exp", "randn", "mul", "add", "mul"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 3),) if name != "chunk" else (), dims=([batch, 4, 64, 64],))
    for _ in range(12):
        encoder(rt, [], card, (batch, 77, 768))
    for name in ("randn_like", "randint", "index", "sqrt", "mul", "rsub", "sqrt", "mul", "add"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 3),), dims=([batch, 4, 64, 64],), gap=18)
    down = ((320, 64), (640, 32), (1_280, 16))
    for width, size in (*down, *reversed(down)):
        for _ in range(2):
            residual(rt, tape, look, Conv(batch, width, width, 3, size, size))
            crossed(rt, tape, card, [batch, size * size, width])
    size = [batch, 4, 64, 64]
    number = rt.op("aten::mse_loss", run=((REDUCE, 5),), dims=(size, size), graph=True)
    tape.append(lambda: rt.grad("MseLossBackward0", number, "aten::mse_loss_backward", run=((REDUCE, 5),)))
    rt.value()  # accelerate gathers the loss for its progress bar
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * 400e6), 10)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", card.moves(8 * 400e6), 10)
    fused_adamw(rt, card, 400e6)
    rt.host(2_200)


def segmented(rt: Framed, fixed: bool) -> None:
    """A UNet by AMP, RTX 4090; a loop reads the norm of each of 118 gradients for the log; without: one `_foreach`."""
    tape, batch, card = Tape(), 8, ADA.card
    loader(rt, 160)
    with (rt.frame(SAMPLE, "<method 'to' of 'torch._C.TensorBase' objects>"), rt.span("aten::to"),
          rt.span("aten::_to_copy"), rt.span("aten::copy_")):  # fmt: skip
        rt.copy(batch * 3 * 512 * 512 * 4)
    with rt.frame("unet/unet_model.py(27): forward", "nn.Module: UNet_0"):
        for level in range(5):
            width, size = 64 << level, 512 >> level
            conv_norm(rt, tape, ADA, Conv(batch, max(3, width // 2), width, 3, size, size))
            conv_norm(rt, tape, ADA, Conv(batch, width, width, 3, size, size))
        for level in reversed(range(4)):
            width, size = 64 << level, 512 >> level
            conv(rt, tape, ADA, Conv(batch, 2 * width, width, 2, size, size))
            rt.op("aten::cat", dims=([batch, width, size, size],) * 2, kind=HALF, run=((
                "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<…>",
                card.moves(8 * batch * width * size**2)),))  # fmt: skip
            for cin in (2 * width, width):
                conv_norm(rt, tape, ADA, Conv(batch, cin, width, 3, size, size))
        conv(rt, tape, ADA, Conv(batch, 64, 2, 1, 512, 512))
    small(rt, tape, ("cross_entropy_loss", "softmax", "mul", "sum", "add", "div"), [batch, 2, 512, 512], 12)
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, unscale>(…)"
    rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", run=((name, card.moves(8 * 31e6)),), us=70)
    with rt.frame("train.py(71): log_gradients"):
        if fixed:
            foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * 31e6), 2, 160)
            rt.op("aten::stack", run=((REDUCE, 4),), gap=20)
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(472, "DtoH", "Pageable", waits=True)
        for place in range(0 if fixed else 118):
            count = (512 * 512 * 9, 512, 512, 512)[place % 4] / (1 + place % 5)
            rt.op("aten::norm", "aten::linalg_vector_norm", run=((REDUCE, card.moves(4 * count)),), gap=7, us=7)
            with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
                rt.value()
            rt.host(9)
    with rt.frame("torch/amp/grad_scaler.py(453): step"):
        rt.value()
    fused_adamw(rt, card, 31e6)
    rt.host(350)


def adversarial(rt: Framed, fixed: bool) -> None:
    """DCGAN at 128 pixels by AMP on a V100, batch 256; five values and two scales are read in each step."""
    look, batch, card = V100, 256, V100.card
    rt.batch(batch * 3 * 128 * 128 * 4, us=200)

    def played(tape: Tape | None, up: bool) -> None:
        widths = ((100, 1_024, 4), (1_024, 512, 8), (512, 256, 16), (256, 128, 32), (128, 64, 64), (64, 3, 128))
        for cin, cout, size in widths if up else ((b, a, c // 2) for a, b, c in reversed(widths)):
            conv_norm(rt, tape, look, Conv(batch, cin, cout, 4, size, size))

    def judged(tape: Tape) -> None:
        small(rt, tape, ("sigmoid", "binary_cross_entropy"), [batch])

    for part in range(2):  # real, then made
        tape: Tape = []
        if part:
            played(None, True)
        played(tape, False)
        judged(tape)
        back(rt, tape)
        if not fixed:
            rt.op("aten::mean", run=((REDUCE, 4),))
            rt.value()
    unscaled(rt, card, 11e6)
    fused_adamw(rt, card, 11e6)
    tape = []
    played(tape, True)
    played(tape, False)
    judged(tape)
    back(rt, tape)
    unscaled(rt, card, 13e6)
    fused_adamw(rt, card, 13e6)
    for _ in range(0 if fixed else 3):
        rt.value()
    rt.host(600)


def transformed(rt: Framed, fixed: bool) -> None:
    """ViT-L/16 in DDP, rank 0 of 8 H100, bf16 by autocast, batch 192: reductions are hidden, the device is busy."""
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 0
    tape, end, total = Tape(), 0.0, 304e6
    rt.batch(192 * 3 * 224 * 224 * 2, 192 * 8)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        for _ in range(24):
            for size in ([3072, 1024], [1024, 1024], [4096, 1024], [1024, 4096]):
                run = ((CAST, H100.moves(6 * size[0] * size[1])),)
                rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
            encoder(rt, tape, H100, (192, 197, 1_024))
        dense(rt, tape, H100, 192, (192, 1_024, 1_000))
    number = rt.op("aten::cross_entropy_loss", run=((REDUCE, 8),), dims=([192, 1000], [192]), kind=BF16, graph=True)
    tape.append(lambda: rt.grad("NllLossBackward0", number, run=((REDUCE, 8),)))
    layer = len(tape) // 24
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % (2 * layer) == 0:
                nelems = int(total / 12)
                end = rt.collective("allreduce", nelems * 4 * 1.75 / 330e3, (nelems,) * 2, dtype="Float",
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * total), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * total), 4)
    fused_adamw(rt, H100, total)
    if rt.number == 2:
        rt.value()  # the loss, each tenth step
    rt.host(420)
