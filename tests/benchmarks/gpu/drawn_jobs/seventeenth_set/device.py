"""Jobs of the seventeenth set whose fault is work of the device: fp32, windows, masks, wide frames, casts."""

from __future__ import annotations

from math import prod

from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import B200
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import HALF, NHWC, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv
from .rows import compiled_loss, triton

TURING = ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
          "turing_fp16_s1688cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1",
          "turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1")  # fmt: skip
T4_HALF = Look(Card(18, 250, HALF, ("turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_tn",) * 2, ("", "")), TURING, NHWC,
               True)  # fmt: skip
T4_FLOAT = Look(Card(4.0, 250, "float", ("volta_sgemm_128x32_tn",) * 2, ("", "")),
                ("volta_scudnn_128x64_relu_medium_nn_v1",) * 3)  # fmt: skip


def _judged(rt: Framed, look: Look, batch: int) -> None:
    """ResNet-50 in `eval()`: norms read what was learned."""
    card = look.card

    def layer(of: Conv) -> None:
        conv(rt, None, look, of)
        y = of.dims[2]
        once = card.moves(2 * card.size * prod(y))
        rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", gap=18, dims=(y,),
              run=((INFERENCE.format("__half2" if card.size == 2 else "float"), once),), kind=card.kind)  # fmt: skip
        rt.op("aten::relu_", "aten::clamp_min_", run=((kernel("relu", 2, card.kind), once),), dims=(y,), gap=9,
              kind=card.kind)  # fmt: skip

    layer(Conv(batch, 3, 64, 7, 112, 112))
    for blocks, width, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for _ in range(blocks):
            for cin, cout, side in ((4 * width, width, 1), (width, width, 3), (width, 4 * width, 1)):
                layer(Conv(batch, cin, cout, side, size, size))
            y = [batch, 4 * width, size, size]
            rt.op("aten::add_", run=((kernel("add", 3, card.kind), card.moves(3 * card.size * prod(y))),), gap=8,
                  dims=(y, y), kind=card.kind)  # fmt: skip


def validated(rt: Framed, fixed: bool) -> None:
    """A ResNet-50 by AMP on a T4; in one of the window's six steps the model is validated on eight batches, outside of
    `autocast`, so that all convolutions are in fp32, without tensor cores; without: validation under `autocast`.

    A batch of it takes 87 ms and would take 29: of 221 ms, the window's mean step, 92. Steps without it take 82 ms and
    are right; steps with one are rarer than in the window.
    """
    tape, batch = Tape(), 32
    rt.batch(batch * 3 * 224 * 224 * 4, batch * 8)
    resnet(rt, tape, T4_HALF, batch, (7, 7))
    dense(rt, tape, T4_HALF.card, batch, (batch, 2_048, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 1_000], 5)
    back(rt, tape)
    unscaled(rt, T4_HALF.card, 25.5e6)
    sgd(rt, T4_HALF.card, 25.5e6)
    rt.host(300)
    if rt.number != 3:
        return
    look = T4_HALF if fixed else T4_FLOAT
    with rt.span("validate", "user_annotation", us=200), without_graph(rt):
        for _ in range(8):
            rt.batch(batch * 3 * 224 * 224 * 4, batch * 8)
            _judged(rt, look, batch)
            dense(rt, [], look.card, batch, (batch, 2_048, 1_000))
            small(rt, None, ("argmax", "eq", "sum", "add_"), [batch, 1_000], 4)
        rt.value()  # how many were right


INFERENCE = "void cudnn::bn_fw_inf_1C11_kernel_NCHW<{}, float, true, 1>(float, float, cudnnTensorStruct, …)"
ADA = Card(60, 850, "float", ("", ""), ("", ""))
SPLATS, FRAME = 2_400_000, [1, 3, 1_080, 1_920]
RADIX = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, unsigned int>::Policy900, …>"
WINDOW = "void at::native::(anonymous namespace)::conv_depthwise2d_{}_kernel{}<11, 1, float, int>(…)"


def _alike(rt: Framed, tape: Tape) -> None:
    """SSIM as many copied it: a window of 11 by `conv2d(groups=3)`, five times, and all between op by op."""
    for place in range(5):
        if place > 1:
            elementwise(rt, tape if place != 3 else [], ADA, "mul", FRAME, 2, (("mul", 3),))
        number = rt.op("aten::conv2d", "aten::convolution", "aten::_conv_depthwise2d", graph=True, gap=22,
                       dims=(FRAME, [3, 1, 11, 11]), run=((WINDOW.format("forward", "_generic"), 265),))  # fmt: skip

        def backward(number: int = number) -> None:
            with node(rt, "ConvDepthwise2DBackward0", number):
                rt.op("aten::_conv_depthwise2d_backward", gap=1, us=12, dims=(FRAME, FRAME, [3, 1, 11, 11]),
                      run=((WINDOW.format("backward", ""), 330),))  # fmt: skip

        if place in (0, 2, 4):  # the other picture has no gradient
            tape.append(backward)
    for name in ("pow", "pow", "mul", "sub", "sub", "sub", "mul", "add", "mul", "add", "mul", "add", "add", "add",
                 "mul", "div"):  # fmt: skip
        reads = 1 if name == "pow" else 2
        elementwise(rt, tape, ADA, name, FRAME, reads, (("mul", 3),) * (2 if name in ("mul", "div") else 1))


def blurred(rt: Framed, fixed: bool) -> None:
    """Gaussian splatting by gsplat on an RTX 4090, 2.4 M splats, pictures of 1080 lines: SSIM of the loss goes op by op
    with a window of 121 by a plain depthwise kernel; without: `fused_ssim`, two kernels.

    Of 22.2 ms a step 5.4. The count of crossings is read in each step, as the rasterizer needs it; the loss is read
    each tenth.
    """
    tape, sort = Tape(), ADA.moves(4 * SPLATS)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(prod(FRAME) * 4)
    small(rt, tape, ("exp", "sigmoid", "normalize"), [SPLATS, 4], ADA.moves(28 * SPLATS))
    number = rt.op("_SphericalHarmonics", graph=True, us=30, gap=40, dims=([SPLATS, 16, 3],), run=(
        ("void gsplat::spherical_harmonics_fwd_kernel<float>(…)", ADA.moves(210 * SPLATS)),))  # fmt: skip
    seen = rt.op("_FullyFusedProjection", graph=True, us=40, gap=60, dims=([SPLATS, 3], [SPLATS, 4]), run=(
        ("void gsplat::projection_ewa_3dgs_fused_fwd_kernel<float>(…)", ADA.moves(76 * SPLATS)),))  # fmt: skip
    rt.op("gsplat::intersect_tile", run=(("void gsplat::intersect_tile_kernel<float>(…)", 2 * sort),), gap=30)
    rt.op("aten::cumsum", run=(("void at_cuda_detail::cub::DeviceScanKernel<…>", 1.5 * sort),), dims=([SPLATS],))
    rt.value()  # how many tiles are crossed
    rt.op("gsplat::intersect_tile", run=(("void gsplat::intersect_tile_kernel<float>(…)", 7 * sort),), gap=20)
    for _ in range(6):
        rt.work(RADIX, 112)
    rt.op("gsplat::intersect_offset", run=(("void gsplat::intersect_offset_kernel(…)", 34),), gap=20)
    drawn = rt.op("_RasterizeToPixels", graph=True, us=30, gap=30, dims=([1, SPLATS, 2], [1, 68, 120]), run=(
        ("void gsplat::rasterize_to_pixels_3dgs_fwd_kernel<3u, float>(…)", 1_700),))  # fmt: skip
    elementwise(rt, tape, ADA, "sub", FRAME, 2, (("neg", 2),))
    elementwise(rt, tape, ADA, "abs", FRAME, 1, (("sgn", 2), ("mul", 3)))
    if fixed:
        one = rt.op("FusedSSIMMap", graph=True, us=20, run=(("void fusedssimCUDA<11>(int, int, int, float, …)", 330),),
                    gap=20)  # fmt: skip
        tape.append(lambda: rt.grad("FusedSSIMMapBackward", one, run=(
            ("void fusedssim_backwardCUDA<11>(int, int, int, float, …)", 360),)))  # fmt: skip
    else:
        _alike(rt, tape)
    small(rt, tape, ("mean", "mean", "rsub", "mul", "mul", "add"), [], 9)
    with rt.backward():
        while len(tape) > 3:
            tape.pop()()
        rt.grad("_RasterizeToPixelsBackward", drawn, run=(
            ("void gsplat::rasterize_to_pixels_3dgs_bwd_kernel<3u, float>(…)", 4_300),))  # fmt: skip
        rt.grad("_FullyFusedProjectionBackward", seen, run=(
            ("void gsplat::projection_ewa_3dgs_fused_bwd_kernel<float>(…)", ADA.moves(120 * SPLATS)),))  # fmt: skip
        rt.grad("_SphericalHarmonicsBackward", number, run=(
            ("void gsplat::spherical_harmonics_bwd_kernel<float>(…)", ADA.moves(400 * SPLATS)),))  # fmt: skip
        while tape:
            tape.pop()()
    for width in (3, 4, 3, 1, 3, 45):
        fused_adamw(rt, ADA, width * SPLATS)
    small(rt, None, ("norm", "index_put_", "maximum"), [SPLATS], sort)
    if rt.number % 10 == 9:
        rt.value()
    rt.host(120)


TOKENS, WIDE, HIDDEN, EXPERTS, ROOM = 8_192, 2_048, 5_632, 16, 1_280
MASK = [TOKENS, EXPERTS, ROOM]


def _batched(rt: Framed, tape: Tape, name: str, sizes: tuple[int, int, int, int], grads: int) -> None:
    """A product of (batch, m, k, n) that `einsum` makes;  grads: how many of its inputs have one."""
    b, m, k, n = sizes
    us = max(MI300X.product(b * m, n, k), MI300X.moves(2 * b * (m * k + k * n + m * n)))
    number = rt.op(*name.split(), "aten::bmm", run=((MI300X.names[0], us),), graph=True, gap=24, us=9, kind=BF16,
                   dims=([b, m, k], [b, k, n]))  # fmt: skip

    def backward() -> None:
        with node(rt, "BmmBackward0", number):
            for _ in range(grads):
                rt.op("aten::bmm", run=((MI300X.names[1], us),), gap=1, us=8, kind=BF16, dims=([b, k, m], [b, m, n]))

    tape.append(backward)


def _mixed(rt: Framed, tape: Tape, fixed: bool) -> None:
    """Experts with room for 1.25 of their share; who comes later is dropped."""
    x, cells = [TOKENS, WIDE], prod(MASK)
    linear(rt, tape, MI300X, x, EXPERTS)
    small(rt, tape, ("_to_copy", "softmax", "argmax", "one_hot", "add", "argmax", "one_hot", "cumsum", "sub", "lt",
                     "mul", "sum", "div"), [TOKENS, EXPERTS], 4)  # fmt: skip
    if fixed:
        us = MI300X.moves(4 * EXPERTS * ROOM * WIDE)
        name = "void at::native::vectorized_gather_kernel<16, long>(…)"
        number = rt.op("aten::index_select", run=((name, us),), graph=True, gap=12)
        tape.append(lambda: rt.grad("IndexSelectBackward0", number, "aten::index_add_", run=((name, 1.4 * us),)))
    else:
        for _ in range(2):  # the first and the second choice
            rt.op("aten::one_hot", "aten::scatter_", run=((kernel("fill_", 1), MI300X.moves(4 * TOKENS * ROOM)),),
                  gap=20, kind="long int", dims=([TOKENS, ROOM],))  # fmt: skip
            elementwise(rt, tape, Card(1, MI300X.gbs, "float", ("", ""), ("", "")), "mul", MASK, 1, (("mul", 3),))
        rt.op("aten::add", run=((kernel("add", 3), MI300X.moves(12 * cells)),), dims=(MASK, MASK), gap=9)
        for name, nbytes in (("ne", 5), ("_to_copy", 3), ("_to_copy", 6)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), MI300X.moves(nbytes * cells)),), dims=(MASK,), gap=9)
        _batched(rt, tape, "aten::einsum", (1, EXPERTS * ROOM, TOKENS, WIDE), 1)
    for m in (HIDDEN, HIDDEN):
        _batched(rt, tape, "aten::matmul", (EXPERTS, ROOM, WIDE, m), 2)
    elementwise(rt, tape, MI300X, "silu", [EXPERTS, ROOM, HIDDEN], back=(("silu_backward", 3),))
    elementwise(rt, tape, MI300X, "mul", [EXPERTS, ROOM, HIDDEN], 2, (("mul", 3), ("mul", 3)))
    _batched(rt, tape, "aten::matmul", (EXPERTS, ROOM, HIDDEN, WIDE), 2)
    if fixed:
        us = MI300X.moves(10 * TOKENS * WIDE)
        name = "void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2>(…)"
        number = rt.op("aten::index_add", run=((name, us),), graph=True, gap=12)
        tape.append(lambda: rt.grad("IndexAddBackward0", number, "aten::index_select", run=((name, us),)))
    else:
        _batched(rt, tape, "aten::einsum", (1, TOKENS, EXPERTS * ROOM, WIDE), 2)


def dispatched(rt: Framed, fixed: bool) -> None:
    """A mixture of 16 experts on an MI300X, tokens beyond their room are dropped: as in DeepSpeed's `sec,sm->ecm`, a
    mask of tokens by experts by places is written and multiplied with all tokens, twice a layer; without: tokens are
    taken by their indices. Of 241 ms a step 72. Experts themselves are one batched product, and right.
    """
    tape, x = Tape(), [4, 2_048, WIDE]
    rt.batch(TOKENS * 8, TOKENS * 8)
    for number in range(12):
        fused_norm(rt, tape, MI300X, x)
        for out in (WIDE, 512, 512):
            linear(rt, tape, MI300X, x, out)
        flash(rt, tape, MI300X, [4, 16, 2_048, 128])
        linear(rt, tape, MI300X, x, WIDE)
        elementwise(rt, tape, MI300X, "add", x, 2)
        fused_norm(rt, tape, MI300X, x)
        if number % 2:
            _mixed(rt, tape, fixed)
        else:
            for _ in range(2):
                linear(rt, tape, MI300X, x, HIDDEN)
            elementwise(rt, tape, MI300X, "silu", [4, 2_048, HIDDEN], back=(("silu_backward", 3),))
            elementwise(rt, tape, MI300X, "mul", [4, 2_048, HIDDEN], 2, (("mul", 3), ("mul", 3)))
            linear(rt, tape, MI300X, [4, 2_048, HIDDEN], WIDE)
        elementwise(rt, tape, MI300X, "add", x, 2)
    linear(rt, tape, MI300X, x, 50_304)
    compiled_loss(rt, tape, MI300X, TOKENS, 50_304)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2 * 3.8e9), 6)
    fused_adamw(rt, MI300X, 3.8e9 / 2)
    rt.host(400)


CLIPS, VIDEO = 64, 16 * 3 * 224 * 224


def widened(rt: Framed, fixed: bool) -> None:
    """VideoMAE's pretraining on an A100: workers hand frames as float32, 617 MB a batch, pinned and `non_blocking`, but
    on the stream of the kernels, which stand still for 31 ms; without: as bytes, on a stream of their own a step ahead,
    and made bf16 on the device.

    Of 130 ms a step 31. Neither waits nor pageable memory: the host is far ahead.
    """
    tape, x, deep = Tape(), [CLIPS, 160, 768], [CLIPS, 1_568, 384]
    if fixed:
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            end = rt.copy(CLIPS * VIDEO, stream=COPIES)
        if rt.number == 0:
            rt.waits(MAIN, end)
        triton(rt, "triton_poi_fused__to_copy_div_sub_0", A100.moves(3 * CLIPS * VIDEO))
        rt.batch(CLIPS * 1_568)
    else:
        rt.batch(CLIPS * VIDEO * 4, CLIPS * 1_568)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, A100.moves(6 * CLIPS * VIDEO)),), gap=9,
              dims=([CLIPS, 3, 16, 224, 224],))  # fmt: skip
    dense(rt, tape, A100, CLIPS, (CLIPS * 1_568, 1_536, 768))
    rt.op("aten::index", run=((kernel("index", 2, BF16), A100.moves(4 * prod(x))),), gap=16, dims=(x,), kind=BF16)
    for _ in range(12):
        encoder(rt, tape, A100, (x[0], x[1], x[2]))
    norm(rt, tape, A100, x)
    dense(rt, tape, A100, CLIPS, (CLIPS * 160, 768, 384))
    elementwise(rt, tape, A100, "add", deep, 2)
    for _ in range(4):
        encoder(rt, tape, A100, (deep[0], deep[1], deep[2]))
    dense(rt, tape, A100, CLIPS, (CLIPS * 1_408, 384, 1_536))
    small(rt, tape, ("sub", "pow", "mean"), [CLIPS, 1_408, 1_536], A100.moves(4 * CLIPS * 1_408 * 1_536))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 94e6), 2)
    fused_adamw(rt, A100, 94e6)
    rt.host(280)


FP8 = ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "nvjet_sm100_qqtst_256x128_128x6_2x2_2cta_h_bz_TNT")
RATE = 2_300  # of products in FP8, TFLOP/s
EAGER = (("_to_copy", 6), ("mul", 8), ("clamp", 8), ("_to_copy", 5))


def _narrowed(rt: Framed, dims: list[int], fixed: bool) -> None:
    """A tensor becomes float8 by its largest value: op by op, or as the compiler fuses it."""
    n = prod(dims)
    if fixed:
        triton(rt, "triton_red_fused_abs_max_0", B200.moves(2 * n))
        triton(rt, "triton_poi_fused__to_copy_clamp_mul_1", B200.moves(3 * n))
        return
    rt.op("aten::abs", run=((kernel("abs", 2, BF16), B200.moves(4 * n)),), gap=4, dims=(dims,), kind=BF16)
    rt.op("aten::max", run=((REDUCE, B200.moves(2 * n)),), gap=3, dims=(dims,), kind=BF16)
    for name in ("_to_copy", "clamp", "reciprocal", "mul"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 2.2),), gap=3, us=3, dims=([],))
    for name, nbytes in EAGER:
        run = ((COPY if name == "_to_copy" else kernel(name, 2), B200.moves(nbytes * n)),)
        names = ("aten::to", "aten::_to_copy", "aten::copy_") if name == "_to_copy" else (f"aten::{name}",)
        rt.op(*names, run=run, gap=3, us=3, dims=(dims,), kind=BF16 if nbytes == 6 else "float")


def _linear8(rt: Framed, tape: Tape, x: list[int], out: int, fixed: bool) -> None:
    """torchao's `Float8Linear` with scales of whole tensors."""
    tokens, wide = prod(x[:-1]), x[-1]
    us = max(2 * tokens * wide * out / RATE / 1e6, B200.moves(tokens * (wide + 2 * out) + wide * out))
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    rt.host(12)
    with rt.span("matmul_with_hp_or_float8_args", us=20, **args, **inputs((x, [wide, out]), BF16)):
        for size in (x, [out, wide]):
            _narrowed(rt, size, fixed)
        rt.op("aten::_scaled_mm", run=((FP8[0], us),), gap=4, us=8, kind="c10::Float8_e4m3fn",
              dims=([tokens, wide], [wide, out]))  # fmt: skip

    def backward() -> None:
        with node(rt, "matmul_with_hp_or_float8_argsBackward", number):
            for size in ([tokens, out], [out, wide], x):
                _narrowed(rt, size, fixed)
            for left, right in (([tokens, out], [out, wide]), ([out, tokens], [tokens, wide])):
                rt.op("aten::_scaled_mm", run=((FP8[1], us),), gap=3, us=8, kind="c10::Float8_e4m3fn",
                      dims=(left, right))  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def eager8(rt: Framed, fixed: bool) -> None:
    """A Llama of 2 B with torchao's float8 on a B200 that nobody compiled: each product reads and writes its inputs
    some seven times to become float8, which takes longer than the product; without: `torch.compile`, two kernels. Of
    251 ms a step 90.
    """
    tape, x, hidden = Tape(), [2, 8_192, 4_096], 14_336
    rt.batch(16_384 * 8, 16_384 * 8)
    for _ in range(8):
        fused_norm(rt, tape, B200, x)
        for out in (4_096, 1_024, 1_024):
            _linear8(rt, tape, x, out, fixed)
        for heads in (32, 8):
            elementwise(rt, tape, B200, "mul", [2, heads, 8_192, 128], 2, (("mul", 3),))
        flash(rt, tape, B200, [2, 32, 8_192, 128])
        _linear8(rt, tape, x, 4_096, fixed)
        elementwise(rt, tape, B200, "add", x, 2)
        fused_norm(rt, tape, B200, x)
        for _ in range(2):
            _linear8(rt, tape, x, hidden, fixed)
        elementwise(rt, tape, B200, "silu", [2, 8_192, hidden], back=(("silu_backward", 3),))
        elementwise(rt, tape, B200, "mul", [2, 8_192, hidden], 2, (("mul", 3), ("mul", 3)))
        _linear8(rt, tape, [2, 8_192, hidden], 4_096, fixed)
        elementwise(rt, tape, B200, "add", x, 2)
    linear(rt, tape, B200, x, 32_000)
    compiled_loss(rt, tape, B200, 16_384, 32_000)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", B200.moves(2 * 2e9), 4)
    fused_adamw(rt, B200, 2e9 / 2)
    rt.host(350)
