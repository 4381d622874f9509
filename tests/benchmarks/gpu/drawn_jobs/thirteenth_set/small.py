"""Jobs of the thirteenth set that wait for the host: small models, metrics, a scan in a loop, rays, doubles."""

from __future__ import annotations

from ..eleventh_set.rows import FILL, Roofline, elementwise, foreach, kernel
from ..eleventh_set.small import encoder
from ..layers import Card, Tape, back, dense, fused_adamw, norm
from ..seventh_set import NODE
from ..tenth_set import CUTLASS
from ..tenth_set import RTX4090 as ADA
from ..twelfth_set.pictures import HALF, NHWC, small
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twelfth_set.small import adam, perceptron
from .rows import as_graph, waited_copy

L4 = Roofline(26, 250, "float", ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_64x32_sliced1x4_nn"), CUTLASS)
T4 = Look(Roofline(24, 250, HALF, ("turing_fp16_s1688gemm_fp16_64x64_sliced1x2_ldg8_f2f_tn",) * 2, ("", "")), (
    "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
    "turing_fp16_s1688cudnn_fp16_128x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1",
    "turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1"), NHWC, True)  # fmt: skip
RTX3090 = Roofline(45, 780, HALF, ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn",) * 2, ("", ""))
A100 = Look(Roofline(60, 1_400, "float", ("cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4",) * 2, ("", "")), (
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x16_stage4_warpsize4x1x1",
    "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x16_stage4_warpsize4x1x1",
    "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x16_stage3"))  # fmt: skip
MI210 = Look(Roofline(30, 1_250, "float", ("Cijk_Alik_Bljk_SB_MT128x128x16_SN_1LDSB0",) * 2, ("", "")), (
    "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_dilation2_stride1", "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1",
    "igemm_wrw_gtcx2_nhwc_fp32_bx0_ex1_bt128x128x16_wt32x32x2_ws1x1_wr2x2_ta1x4x2x1_1x4x1x32"),
    "MIOpenBatchNorm{}TrainSpatialNorm.kd")  # fmt: skip


def chatty(rt: Framed, fixed: bool) -> None:
    """A transformer for series, 4 layers of 128, batch of 32, L4, `loss.item()` in each step; without: one graph."""
    rt.batch(32 * 48 * 16 * 4, 32 * 4, us=90)

    def step(rt: Framed) -> None:
        tape: Tape = []
        dense(rt, tape, L4, 32, (32 * 48, 16, 128))
        for _ in range(4):
            encoder(rt, tape, L4, (32, 48, 128))
        dense(rt, tape, L4, 32, (32, 128, 1))
        small(rt, tape, ("sub", "pow", "mean"), [32, 1])
        back(rt, tape)
        adam(rt, L4, 900_000)

    as_graph(rt, step) if fixed else step(rt)
    rt.value()
    rt.host(60)


def metered(rt: Framed, fixed: bool) -> None:
    """ResNet-18 by AMP on a T4 beside a `MetricCollection`, which checks its inputs; without: `validate_args=False`."""
    tape, batch = Tape(), 32
    rt.batch(batch * 3 * 64 * 64 * 4, batch * 8)
    conv_norm(rt, tape, T4, Conv(batch, 3, 64, 3, 64, 64))
    for level in range(4):
        width, size = 64 << level, 64 >> level
        for block in range(2):
            conv_norm(rt, tape, T4, Conv(batch, width if block or not level else width // 2, width, 3, size, size))
            conv_norm(rt, tape, T4, Conv(batch, width, width, 3, size, size))
            elementwise(rt, tape, T4.card, "add", [batch, width, size, size], 2)
    dense(rt, tape, T4.card, batch, (batch, 512, 200))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 200], 6)
    sort = "void at_cuda_detail::cub::DeviceRadixSortSingleTileKernel<…>"
    for _ in range(5):  # accuracy, precision, recall, F1, a matrix of confusions
        for _ in range(0 if fixed else 2):
            for name, width in (("max", 1), ("ge", 1), ("all", 1)):
                rt.op(f"aten::{name}", run=((kernel(name, 2), 3.5),), dims=([batch, width],), gap=14)
            rt.value("aten::is_nonzero")
            rt.op("aten::_unique2", run=((sort, 11), (kernel("unique", 2), 5)), dims=([batch],), gap=18, us=20)
            rt.value()
        small(rt, None, ("argmax", "flatten", "mul", "add", "bincount", "reshape", "add"), [batch, 200], 5)
    back(rt, tape)
    name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, unscale>(…)"
    rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", run=((name, T4.card.moves(8 * 11e6)),), us=70)
    rt.value()
    fused_adamw(rt, T4.card, 11e6)
    rt.host(250)


def scanned(rt: Framed, fixed: bool) -> None:
    """Mamba as `selective_scan_ref` has it, RTX 4090: a loop over 160 tokens; without: mamba_ssm's kernel."""
    tape, batch, length, wide, states = Tape(), 8, 160, 768, 16
    x, inner = [batch, length, wide], 2 * wide
    rt.batch(batch * length * 8, batch * length * 8)
    one = ADA.moves(4 * batch * inner * states)
    whole = ADA.moves(4 * batch * inner * states * length)
    for _ in range(2):
        norm(rt, tape, ADA, x)
        dense(rt, tape, ADA, batch, (batch * length, wide, 2 * inner))
        elementwise(rt, tape, ADA, "silu", [batch, length, inner], back=(("silu_backward", 3),))
        if fixed:
            number = rt.op("SelectiveScanFn", run=(("void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<"
                           "128, 4, 1, true, true, true, true, c10::BFloat16, float>>(SSMParamsBase)", 190),), us=30,
                           graph=True, dims=([batch, inner, length],))  # fmt: skip
            tape.append(
                lambda number=number: rt.grad(
                    "SelectiveScanFnBackward",
                    number,
                    run=(
                        ("void selective_scan_bwd_kernel<Selective_Scan_bwd_kernel_traits<128, 4, true, true>>", 480),
                    ),
                )
            )
        else:
            looped(rt, tape, (batch, inner, length, states), one, whole)
        dense(rt, tape, ADA, batch, (batch * length, inner, wide))
        elementwise(rt, tape, ADA, "add", x, 2)
    dense(rt, tape, ADA, batch, (batch * length, wide, 8_192))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch * length, 8_192], 60)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(4 * 13e6))
    fused_adamw(rt, ADA, 13e6)
    rt.host(200)


def looped(rt: Framed, tape: Tape, sizes: tuple[int, int, int, int], one: float, whole: float) -> None:
    """`for i in range(length): x = deltaA[:, :, i] * x + deltaB_u[:, :, i]`, and a product with C."""
    batch, inner, length, states = sizes
    held, every = [batch, inner, states], [batch, inner, length, states]
    for name in ("exp", "mul"):
        elementwise(rt, tape, ADA, name, every, back=((name, 3),))
    for at in range(length):
        numbers = {}
        for place, name in enumerate(("select", "mul", "select", "add", "select", "bmm")):
            run = () if name == "select" else ((kernel(name, 3), (3 if name != "bmm" else 1.2) * one),)
            dims = (every,) if name == "select" else (held, held)
            numbers[place] = rt.op(f"aten::{name}", run=run, dims=dims, gap=5, us=3, graph=True)

        def backward(numbers: dict[int, int] = numbers, at: int = at) -> None:
            rt.grad("BmmBackward0", numbers[5], "aten::bmm", run=((ADA.names[1], 1.4 * one),) * 2, dims=(held, held))
            rt.grad("AddBackward0", numbers[3], "aten::add", run=((kernel("add", 3), 3 * one),), dims=(held, held))
            for place in (2, 0):
                with rt.span(f"{NODE}SelectBackward0", us=5, **{"Sequence number": numbers[place], "Fwd thread id": 1}):
                    given = {"Concrete Inputs": ["", str(every), "2", str(at)]}
                    with rt.span("SelectBackward0", us=3), rt.span("aten::select_backward", **given):
                        run = ((FILL, whole),)
                        rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=run, gap=1, dims=(every,))
                        rt.op("aten::copy_", run=((kernel("copy", 2), 2 * one),), gap=1, dims=(held, held))
                    run = ((kernel("add", 3), 3 * whole),)
                    rt.op("aten::add_", run=run, gap=1, dims=(every, every))
            rt.grad("MulBackward0", numbers[1], "aten::mul", run=((kernel("mul", 3), 3 * one),) * 2, dims=(held, held))

        tape.append(backward)
    rt.op("aten::stack", "aten::cat", run=((kernel("copy", 2), whole / 8),), gap=20)


def rays(rt: Framed, fixed: bool) -> None:
    """instant-ngp in PyTorch, RTX 3090: rays are taken on the host; without: all are on the GPU."""
    tape, count, samples = Tape(), 8_192, 98_304
    if fixed:
        rt.op("aten::randint", run=((kernel("random", 1), 3),), gap=20)
        rt.op("aten::index", run=((kernel("index", 2), 22),), dims=([64_000_000, 3], [count]), gap=12)
    else:
        rt.op("aten::randint", us=140, gap=20)
        for size in ([64_000_000, 3], [64_000_000, 6]):
            rt.op("aten::index", us=2_400 if size[1] == 3 else 3_600, dims=(size, [count]), gap=15)
        for wide in (3, 6):
            rt.moved(count * wide * 4, 3, [count, wide])
    for name in ("ray_aabb_intersect", "raymarching_train"):
        rt.op(name, run=((f"void {name}_kernel<float>(…)", 60 if "ray_" in name else 240),), gap=30)
    rt.value()
    for sizes in ((32, 64, 16), (32, 64, 64, 3)):
        run = (("void kernel_grid<__half, 3u, 2u>(unsigned int, …)", 420),) if sizes[1:] == (64, 16) else ()
        number = rt.op(
            "_module_function",
            graph=True,
            us=30,
            gap=20,
            run=(*run, ("void tcnn::kernel_mlp_fused<64, 8, __half, (tcnn::Activation)0, false>(…)", 95 * len(sizes))),
        )
        tape.append(lambda number=number, run=run, sizes=sizes: rt.grad("_module_functionBackward", number, run=(
            ("void tcnn::kernel_mlp_fused_backward<64, 8, __half, (tcnn::Activation)0>(…)", 160 * len(sizes)),
            *((name.replace("grid", "grid_backward"), 2.6 * us) for name, us in run))))  # fmt: skip
        small(rt, tape, ("exp", "sigmoid"), [samples, sizes[-1]], 9)
    for name in ("composite_train", "sub", "pow", "mean"):
        number = rt.op(f"aten::{name}", run=((kernel(name, 2), 40 if "_" in name else 3),), gap=12, graph=True)
        tape.append(lambda number=number, name=name: rt.grad(f"{name.title()}Backward0", number, run=(
            (kernel(name, 3), 70 if "_" in name else 3),)))  # fmt: skip
    back(rt, tape)
    adam(rt, RTX3090, 12.6e6)
    rt.host(180)


def vocoded(rt: Framed, fixed: bool) -> None:
    """HiFi-GAN with discriminators on an A100, no shapes: thousands of small launches; without: graphs of each part."""
    loader(rt, 220)
    for nbytes in (16 * 80 * 32 * 4, 16 * 8_192 * 4, 16 * 80 * 32 * 4):
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(nbytes)

    def step(rt: Framed) -> None:
        made: Tape = []
        generated(rt, made)
        for part in range(2):
            tape: Tape = []
            for _ in range(2):
                for period in range(8):
                    judged(rt, tape, period)
            for _ in range(16):
                small(rt, tape, ("rsub", "pow", "mean", "add"), [16, 800], 3)
            if part:
                spectrum = ("pad", "stft", "abs", "matmul", "clamp", "log", "sub", "abs", "mean")
                small(rt, tape, spectrum, [16, 513, 32], 9)
                tape[:0] = made
            back(rt, tape)
            adam(rt, A100.card, 70e6 if not part else 14e6)

    as_graph(rt, step) if fixed else step(rt)
    rt.host(400)


def weighted(rt: Framed, tape: Tape, of: Conv) -> None:
    """A convolution whose weight is normed before it, and a leaky ReLU."""
    run = (("void (anonymous namespace)::weight_norm_fwd_first_dim_kernel<float, float>(float*, …)", 4),)
    number = rt.op("aten::_weight_norm", "aten::_weight_norm_interface", run=run, gap=22, us=6, graph=True)
    conv(rt, tape, A100, of, gap=16)
    back_run = ((run[0][0].replace("fwd", "bwd"), 5),)
    tape.insert(len(tape) - 1, lambda: rt.grad("WeightNormInterfaceBackward0", number, run=back_run))
    elementwise(rt, tape, A100.card, "leaky_relu", of.dims[2], back=(("leaky_relu_backward", 3),))


def generated(rt: Framed, tape: Tape) -> None:
    """The generator: upsampling, then blocks of dilated convolutions over the series."""
    weighted(rt, tape, Conv(16, 80, 512, 3, 1, 32))
    for width, size in ((256, 256), (128, 2_048), (64, 4_096), (32, 8_192)):
        weighted(rt, tape, Conv(16, 2 * width, width, 2, 1, size))
        for _ in range(3):
            for _ in range(6):
                weighted(rt, tape, Conv(16, width, width, 2, 1, size))
            for _ in range(3):
                elementwise(rt, tape, A100.card, "add", [16, width, size], 2)
    small(rt, tape, ("tanh",), [16, 1, 8_192])


def judged(rt: Framed, tape: Tape, period: int) -> None:
    """A discriminator of a period or of a scale."""
    for cin, cout, size in ((1, 32, 2_700), (32, 128, 900), (128, 512, 300), (512, 1_024, 100), (1_024, 1, 100)):
        weighted(rt, tape, Conv(16, cin, cout, 1, 2 + period, size // (2 + period)))


def doubled(rt: Framed, fixed: bool) -> None:
    """A network for EEG on an MI210: batches are float64 and not pinned, `.float()` is on the GPU; without: neither."""
    tape, batch, dims = Tape(), 256, [256, 64, 2_048]
    loader(rt, 200)
    nbytes = 256 * 64 * 2_048 * 4
    if fixed:
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(nbytes)
    else:
        waited_copy(rt, 2 * nbytes, 9.5, dims, "double")
        waited_copy(rt, batch * 8, 1, [batch], "long int")
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((kernel("copy", 2), MI210.card.moves(3 * nbytes)),),
              dims=(dims,), kind="double")  # fmt: skip
    for cin, cout, size in ((64, 128, 2_048), (128, 256, 512), (256, 256, 128), (256, 512, 32)):
        for wide in (cin, cout):
            conv_norm(rt, tape, MI210, Conv(batch, wide, cout, 3, 1, size))
    perceptron(rt, tape, MI210.card, batch, (512, 128, 4))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 4])
    back(rt, tape)
    adam(rt, MI210.card, 2.4e6)
    rt.host(300)


def late(rt: Framed, fixed: bool) -> None:
    """DINO's ViT-S on an A100: the thread that pins batches keeps the interpreter while it takes memory for them."""
    tape, card, batch = Tape(), A100_HALF, 64
    rt.batch(batch * 3 * 2 * (2 * 224**2 + 8 * 96**2), us=180)

    def taken() -> None:
        """The main thread stands still; calls of any thread are recorded, ops of the loader's are not."""
        if fixed:
            return
        began, length = rt.now + 400, rt.vary(24_000, 0.2)
        for part in range(3):
            place = len(rt.rows)
            rt.row("cudaHostAlloc", "cuda_runtime", began + part * length / 3, began + (part + 0.7) * length / 3, 9)
            rt.rows[place]["args"].pop("External id", None)
        rt.now += length + 600

    for _ in range(12):
        encoder(rt, [], card, (batch * 2, 197, 384))
    for layer in range(12):
        encoder(rt, tape, card, (batch * 2, 197, 384))
        if layer == 8:
            taken()
    small(rt, tape, ("softmax", "log_softmax", "mul", "sum", "mean"), [batch * 2, 8_192], 14)
    rt.value()  # `math.isfinite(loss.item())`
    half = len(tape) * 3 // 4
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) == half:
                taken()
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * 22e6))
    fused_adamw(rt, card, 22e6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", card.moves(12 * 22e6), 2, 150)
    rt.host(300)


A100_HALF = Card(150, 1_400, HALF, ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
                                    "ampere_fp16_s16816gemm_fp16_256x64_ldg8_f2f_stages_64x3_nt"), (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::half_t>>",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>"))  # fmt: skip
