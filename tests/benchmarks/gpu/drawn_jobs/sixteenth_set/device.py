"""Jobs of the sixteenth set whose fault is work of the device that nothing needs: fills, masks, encoders, products."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..fifteenth_set.rows import passed, product, sdpa
from ..layers import REDUCE, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from ..twelfth_set.pictures import ADA, HALF, residual, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm
from .rows import GATHER, Filled, without_graph

SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<…>"
BACKWARD = "void at::native::indexing_backward_kernel<c10::Half, 4>(long const*, long const*, c10::Half const*, …)"


def _enlarged(rt: Framed, tape: Tape, dims: list[int], scale: int, *, sorts: bool) -> None:
    """`F.interpolate(mode="bilinear")` of pictures;  sorts: by indices, whose gradients are sorted before a sum."""
    size = [*dims[:2], dims[2] * scale, dims[3] * scale]
    once = ADA.card.moves(2 * prod(size))
    if not sorts:
        name = "void at::native::(anonymous namespace)::upsample_bilinear2d_{}out_frame_nhwc<c10::Half, float>(…)"
        number = rt.op("aten::upsample_bilinear2d", run=((name.format(""), 1.3 * once),), dims=(dims,), kind=HALF,
                       graph=True, gap=14)  # fmt: skip
        tape.append(lambda: rt.grad("UpsampleBilinear2DBackward0", number, "aten::upsample_bilinear2d_backward", run=(
            (name.format("backward_"), 2.4 * once),), dims=(size,), kind=HALF))  # fmt: skip
        return
    for name in ("arange", "add", "mul", "sub", "clamp", "_to_copy", "add", "clamp", "sub"):
        small(rt, None, (name,) * 2, [size[2]], 2.2)
    for _ in range(4):
        number = rt.op("aten::_unsafe_index", "aten::index", run=((GATHER, 1.6 * once),), dims=(dims,), kind=HALF,
                       graph=True, gap=12)  # fmt: skip
        elementwise(rt, tape, ADA.card, "mul", size, back=(("mul", 2),))
        elementwise(rt, tape, ADA.card, "add", size, 2)

        def backward(number: int = number) -> None:
            with node(rt, "UnsafeIndexBackward0", number):
                rt.op("aten::new_zeros", "aten::zero_", run=((COPY, ADA.card.moves(2 * prod(dims))),), gap=1)
                rt.op("aten::_unsafe_index_put", "aten::_index_put_impl_", gap=1, us=60, dims=(dims, [], [], size),
                      kind=HALF, run=((COPY, 2.1 * once), (SORT, 5), (SORT, 5), (SORT, 6), (BACKWARD, 3.4 * once),
                                      (COPY, ADA.card.moves(4 * prod(dims)))))  # fmt: skip

        tape.append(backward)


def deterministic(rt: Filled, fixed: bool) -> None:
    """A feature pyramid that segments, by AMP on an RTX 4090, `use_deterministic_algorithms(True)`: each tensor is
    filled before it is written (3 ms), and gradients of enlarged pictures are sorted (12 ms); without: neither.

    To say: fills and sorts that this setting brings (`fill_uninitialized_memory = False` keeps runs alike and drops the
    fills); not a loader, reads or a compiler first.
    """
    rt.filled = 0.0 if fixed else 900.0
    tape, batch = Tape(), 12
    rt.batch(batch * 3 * 512 * 512 * 4, batch * 512 * 512 * 8)
    for level, width in enumerate((64, 128, 256, 512)):
        size = 128 >> level
        conv(rt, tape, ADA, Conv(batch, max(3, width // 2) if level else 3, width, 3, size, size))
        for _ in range(3):
            conv_norm(rt, tape, ADA, Conv(batch, width, width, 3, size, size))
            conv_norm(rt, tape, ADA, Conv(batch, width, width, 3, size, size))
            elementwise(rt, tape, ADA.card, "add", [batch, width, size, size], 2)
    for level in range(4):
        size = 128 >> level
        conv(rt, tape, ADA, Conv(batch, 64 << level, 128, 1, size, size))
        if level:
            _enlarged(rt, tape, [batch, 128, size, size], 1 << level, sorts=not fixed)
    rt.op("aten::cat", run=((COPY, ADA.card.moves(4 * batch * 512 * 128 * 128)),), gap=12, kind=HALF,
          dims=([batch, 512, 128, 128],))  # fmt: skip
    conv_norm(rt, tape, ADA, Conv(batch, 512, 128, 1, 128, 128))
    conv(rt, tape, ADA, Conv(batch, 128, 19, 1, 128, 128))
    small(rt, tape, ("log_softmax", "nll_loss2d"), [batch, 19, 128, 128], ADA.card.moves(8 * batch * 19 * 128**2))
    back(rt, tape)
    unscaled(rt, ADA.card, 12e6)
    sgd(rt, ADA.card, 12e6)
    rt.host(240)


LONG, SMALL_OPS = 32_768, ("arange", "view", "index", "gt", "eq", "bitwise_not", "_to_copy", "sum", "sort", "_to_copy")
FLEX = ("triton_tem_fused_flex_attention_0", "triton_tem_fused_flex_attention_backward_zeros_1")


def _masked(rt: Framed) -> None:
    """`create_block_mask` that is not compiled: the whole mask is written, then counted block by block."""
    size = [1, 1, LONG, LONG]
    cells = LONG**2
    for name, passes in (("ge", 1), ("eq", 1), ("bitwise_and", 3)):
        rt.op(f"aten::{name}", run=((kernel(name, 3), H100.moves(passes * cells)),), dims=(size,), gap=110, us=9,
              kind="bool")  # fmt: skip
    rt.op(
        "aten::sum", run=((REDUCE, H100.moves(1.6 * cells)),), dims=([1, 1, 256, 128, 256, 128],), gap=60, kind="bool"
    )
    for name in SMALL_OPS * 3:
        run = ((kernel(name, 2), 9 if name == "sort" else 2.5),) if name != "view" else ()
        rt.op(f"aten::{name}", run=run, dims=([1, 1, 256, 256],), gap=28)


def remasked(rt: Framed, fixed: bool) -> None:
    """A Llama of 1 B over packed texts of 32,768 tokens on an H100: each of 16 layers writes the mask of FlexAttention
    anew, 1 GB for each comparison; without: one for the batch, compiled.

    To say: kernels of masks, 45 ms, that `create_block_mask(..., _compile=True)`, once for a batch, saves; attention
    and products are right; not "use FlashAttention", not launches.
    """
    tape, x = Tape(), [1, LONG, 2_048]
    rt.batch(LONG * 8, LONG * 8, LONG * 8)
    if fixed:
        rt.host(300)
        rt.work("triton_red_fused_bitwise_and_eq_ge_sum_0", 260, call="cuLaunchKernel")
        small(rt, None, ("gt", "sum", "sort", "_to_copy"), [1, 1, 256, 256])
    us = H100.product(32 * LONG, 2_600, 2 * 64) / 0.9  # of texts of 2,600 tokens
    for _ in range(16):
        if not fixed:
            _masked(rt)
        fused_norm(rt, tape, H100, x)
        for out in (2_048, 512, 512):
            linear(rt, tape, H100, x, out)
        for heads in (32, 8):
            elementwise(rt, tape, H100, "mul", [1, heads, LONG, 64], 2, (("mul", 3),))
        rt.sequence += 1
        with (rt.span("Torch-Compiled Region: 1/0", us=50),
              rt.span("CompiledFunction", us=30, **{"Sequence number": rt.sequence, "Fwd thread id": 0})):  # fmt: skip
            rt.work(FLEX[0], us, call="cuLaunchKernel")

        def backward(number: int = rt.sequence, us: float = us) -> None:
            with node(rt, "CompiledFunctionBackward", number):
                rt.work("triton_per_fused_mul_sum_0", H100.moves(4 * LONG * 2_048), call="cuLaunchKernel")
                rt.work(FLEX[1], 2.7 * us, call="cuLaunchKernel")

        tape.append(backward)
        linear(rt, tape, H100, x, 2_048)
        elementwise(rt, tape, H100, "add", x, 2)
        fused_norm(rt, tape, H100, x)
        for _ in range(2):
            linear(rt, tape, H100, x, 8_192)
        wide = [1, LONG, 8_192]
        elementwise(rt, tape, H100, "silu", wide, back=(("silu_backward", 3),))
        elementwise(rt, tape, H100, "mul", wide, 2, (("mul", 3), ("mul", 3)))
        linear(rt, tape, H100, wide, 2_048)
        elementwise(rt, tape, H100, "add", x, 2)
    us = H100.product(LONG, 128_256, 2_048)
    parts = ((H100.names[0], us / 4), ("liger_cross_entropy_kernel", 540), (H100.names[1], us / 4)) * 4
    number = rt.op("LigerFusedLinearCrossEntropyFunction", us=300, graph=True, run=parts, kind=BF16,
                   dims=(x[1:], [128_256, 2_048]))  # fmt: skip
    tape.append(lambda: rt.grad("LigerFusedLinearCrossEntropyFunctionBackward", number, run=(
        ("element_mul_kernel", H100.moves(4 * LONG * 2_048)),)))  # fmt: skip
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 1.2e9), 4)
    fused_adamw(rt, H100, 1.2e9 / 2)
    rt.host(500)


VAE = Look(replace(H100, tflops=320), tuple(  # type: ignore[arg-type]
    f"sm90_xmma_{way}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cgasize1x1x1_stage4"
    for way in ("fprop", "dgrad", "wgrad")), "", False)  # fmt: skip


def _t5(rt: Framed, x: list[int]) -> None:
    """A layer of the encoder of T5-XXL."""
    batch, length, width = x
    for name, passes in (("pow", 2), ("mean", 1), ("mul", 3), ("mul", 2)):
        passed(rt, H100, f"aten::{name}", kernel(name, 2), x, passes)
    for _ in range(3):
        product(rt, H100, x, width)
    sdpa(rt, H100, [batch, 64, length, 64], length)
    product(rt, H100, x, width)
    passed(rt, H100, "aten::add", kernel("add", 3, BF16), x, 3)
    for name, passes in (("pow", 2), ("mean", 1), ("mul", 3), ("mul", 2)):
        passed(rt, H100, f"aten::{name}", kernel(name, 2), x, passes)
    for _ in range(2):
        product(rt, H100, x, 10_240)
    for name, passes in (("gelu", 2), ("mul", 3)):
        passed(rt, H100, f"aten::{name}", kernel(name, 2, BF16), [batch, length, 10_240], passes)
    product(rt, H100, [batch, length, 10_240], width)
    passed(rt, H100, "aten::add", kernel("add", 3, BF16), x, 3)


def reencoded(rt: Framed, fixed: bool) -> None:
    """PixArt of 0.6 B at 256 pixels, H100: T5-XXL and a VAE, both frozen, encode the same captions and pictures in each
    epoch; without: what they gave lies on disk, 0.03 GB a batch.

    To say, if anything: half the step is forward passes without gradients, the text's 85 ms, the VAE's 32; their
    kernels are as fast as they can be. Not launches, precision, a loader or a larger batch.
    """
    batch, x = 32, [32, 256, 1_152]
    tape, text = Tape(), [batch, 120, 1_152]
    if fixed:
        rt.batch(batch * 120 * 4_096 * 2, batch * 4 * 32 * 32 * 2, batch * 120 * 8)
    else:
        rt.batch(batch * 3 * 256 * 256 * 4, batch * 120 * 8, batch * 120 * 8)
        begun = len(rt.rows)
        with without_graph(rt):
            for _ in range(24):
                _t5(rt, [batch, 120, 4_096])
            for cin, cout, size in ((128, 128, 256), (128, 256, 128), (256, 512, 64), (512, 512, 32)):
                for width in (cin, cout):
                    residual(rt, None, VAE, Conv(batch, width, cout, 3, size, size))
        for row in rt.rows[begun:]:
            if "group_norm" in row["name"] and "Input type" in row["args"]:
                row["args"]["Input type"] = [BF16]  # as all of this VAE is
    small(rt, None, ("mul", "randn_like", "randint", "index", "mul", "mul", "add"), [batch, 4, 32, 32], 3)
    dense(rt, tape, H100, batch, (batch * 256, 16, 1_152))
    for _ in range(28):
        norm(rt, tape, H100, x)
        elementwise(rt, tape, H100, "mul", x, 2, (("mul", 3), ("sum", 2)))
        dense(rt, tape, H100, batch, (batch * 256, 1_152, 3_456))
        attention(rt, tape, H100, [batch, 16, 256, 72])
        dense(rt, tape, H100, batch, (batch * 256, 1_152, 1_152))
        elementwise(rt, tape, H100, "add", x, 2)
        dense(rt, tape, H100, batch, (batch * 256, 1_152, 1_152))
        dense(rt, tape, H100, batch, (prod(text[:2]), 1_152, 2_304))
        attention(rt, tape, H100, [batch, 16, 256, 72])
        dense(rt, tape, H100, batch, (batch * 256, 1_152, 1_152))
        elementwise(rt, tape, H100, "add", x, 2)
        norm(rt, tape, H100, x)
        dense(rt, tape, H100, batch, (batch * 256, 1_152, 4_608))
        elementwise(rt, tape, H100, "gelu", [batch, 256, 4_608], back=(("gelu_backward", 3),))
        dense(rt, tape, H100, batch, (batch * 256, 4_608, 1_152))
        elementwise(rt, tape, H100, "add", x, 2)
    small(rt, tape, ("sub", "pow", "mul", "mean"), [batch, 4, 32, 32], 4)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * 6e8), 4)
    fused_adamw(rt, H100, 6e8)
    rt.host(500)


SHAPES = ([2_048, 2_048], [512, 2_048], [512, 2_048], [2_048, 2_048], [5_632, 2_048], [5_632, 2_048], [2_048, 5_632])


def _orthogonal(rt: Framed, size: list[int]) -> None:
    """Five steps of Newton and Schulz for a matrix, op by op."""
    m, n = sorted(size)
    cells = m * n
    rt.op("aten::lerp_", run=((kernel("lerp", 3), H100.moves(12 * cells)),), dims=(size, size), gap=8)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, H100.moves(6 * cells)),), dims=(size,), gap=6)
    rt.op("aten::linalg_vector_norm", run=((REDUCE, H100.moves(2 * cells)),), dims=(size,), gap=6, kind=BF16)
    rt.op("aten::div", run=((kernel("div", 2, BF16), H100.moves(4 * cells)),), dims=(size, []), gap=6, kind=BF16)
    for _ in range(5):
        for k, elements, ops in ((n, m * m, ()), (m, m * m, ("mul", "add")), (m, cells, ("add",))):
            us = max(4.0, 2 * elements * k / H100.tflops / 1e6)
            rt.op("aten::matmul", "aten::mm", run=((H100.names[0], us),), gap=5, us=6, kind=BF16,
                  dims=([m, k], [k, elements // m]))  # fmt: skip
            for name in ops:
                rt.op(f"aten::{name}", run=((kernel(name, 3, BF16), H100.moves(6 * elements)),), gap=5, us=5, kind=BF16,
                      dims=([m, elements // m],) * 2)  # fmt: skip
    rt.op("aten::add_", run=((kernel("add", 2), H100.moves(10 * cells)),), dims=(size, size), gap=6)


def muon(rt: Framed, fixed: bool) -> None:
    """A Llama of 0.6 B by DDP on 8 H100: each rank orthogonalizes all 84 matrices for Muon; without: each rank a part,
    and the parts are gathered.

    To say: the optimizer's products are a fifth of the step, and the same on each rank; not `fused=True`, which Muon
    has not, not `no_sync()`, as reductions are hidden.
    """
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 4
    tape, layers, end = Tape(), 12, 0.0
    rt.batch(8 * 2_048 * 8, 8 * 2_048 * 8)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for _ in range(layers):
            llama(rt, tape, H100, (8, 2_048, 2_048, 8, 5_632), fused_norm)
    one = len(tape) // layers
    dense(rt, tape, H100, 8, (16_384, 2_048, 32_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [16_384, 32_000], H100.moves(8 * 16_384 * 32_000))
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % one == 0:
                end = rt.collective("allreduce", 45e6 * 2 * 1.75 / 330e3, (45_000_000,) * 2)
    rt.waits(MAIN, end)
    with rt.span("Optimizer.step#Muon.step", "user_annotation", us=300):
        for place in range(layers * len(SHAPES)):
            if not fixed or place % 8 == 4:
                _orthogonal(rt, SHAPES[place % len(SHAPES)])
        if fixed:
            rt.waits(MAIN, rt.collective("_allgather_base", 5.4e8 * 2 * 0.875 / 330e3, (67_500_000, 540_000_000)))
            foreach(rt, "_foreach_add_", "BinaryOpListAlphaFunctor", H100.moves(10 * 5.4e8), 8)
    fused_adamw(rt, H100, 65e6)
    rt.host(300)
