"""Jobs of the fifteenth set in which nothing is worth a change."""

from __future__ import annotations

from functools import partial

from ..eighth_set.ranks import groups
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Card, Tape, back, dense
from ..runtime import LINKS, MAIN
from ..seventh_set import BF16
from ..twelfth_set.pictures import sgd, small, unscaled
from ..twelfth_set.rows import Framed
from .rows import AMPERE_HALF, B200, L40S, V100, convolved, encoded, fetched, passed

WHOLE, TOKENS, WIDE, HIDDEN = 218_112_000, 16_384, 4_096, 14_336
MM = "mm"


def titan(rt: Framed, fixed: bool) -> None:
    """Nothing to change: torchtitan's Llama by FSDP2 on 8 B200, layers compiled, gathers and sums behind products."""
    ranks = list(range(8))
    groups(rt, 8, default_pg=ranks, mesh_dp_shard=ranks)
    shard = {"group": "mesh_dp_shard", "pg": "1", "ranks": ranks}
    flash = B200.product(2 * 32 * 8_192, 8_192, 256) / 1.2
    one = B200.moves(2 * TOKENS * WIDE)
    parts = (("triton_red_fused_add_mul_rsqrt_0", 2.4 * one), (MM, 1.5 * WIDE * WIDE), ("triton_poi_fused_rope_1",
             2.6 * one), ("flash", flash), (MM, WIDE * WIDE), ("triton_red_fused_add_mul_rsqrt_2", 3.4 * one),
             (MM, 2 * WIDE * HIDDEN), ("triton_poi_fused_mul_silu_3", 10 * one), (MM, WIDE * HIDDEN))  # fmt: skip
    gather = partial(rt.collective, "_allgather_base", 760, (WHOLE // 8, WHOLE), **shard)

    def layer(behind: bool) -> None:
        for name, us in reversed(parts) if behind else parts:
            rt.host(7)
            for _ in range(2 if behind and name == MM else 1):
                if name == MM:
                    rt.op("aten::mm", run=((B200.names[behind], B200.product(TOKENS, 1, us)),), gap=1, us=6, kind=BF16)
                elif name == "flash":
                    rt.op(f"aten::_scaled_dot_product_cudnn_attention{'_backward' if behind else ''}", gap=2, us=14,
                          run=((B200.attention[behind], (2.5 if behind else 1) * us),), kind=BF16)  # fmt: skip
                else:
                    rt.work(name.replace("fused_", "fused_backward_") if behind else name, (2 if behind else 1) * us,
                            call="cuLaunchKernel")  # fmt: skip

    rt.batch(2 * 8_192 * 8, 2 * 8_192 * 8)
    ahead = gather()
    numbers = []
    for number in range(16):
        with rt.span(f"FSDP::pre_forward (layers.{number})", us=20):
            rt.waits(MAIN, ahead)
            if number < 15:
                with rt.span(f"FSDP::all_gather (layers.{number + 1})", us=12):
                    ahead = gather()
        rt.sequence += 1
        numbers.append(rt.sequence)
        with (rt.span("Torch-Compiled Region: 0/0", us=40),
              rt.span("CompiledFunction", us=30, **{"Sequence number": rt.sequence, "Fwd thread id": 0})):  # fmt: skip
            layer(behind=False)
    last = 0.0
    with rt.backward():
        ahead = gather()
        for number in reversed(range(16)):
            with rt.span(f"FSDP::pre_backward (layers.{number})", us=20):
                rt.waits(MAIN, ahead)
                if number:
                    ahead = gather()
            with node(rt, "CompiledFunctionBackward", numbers[number]):
                layer(behind=True)
            with rt.span(f"FSDP::post_backward_reduce (layers.{number})", us=20):
                last = rt.collective("_reduce_scatter_base", 1_480, (WHOLE, WHOLE // 8), dtype="Float",
                                     kernel="ReduceScatter_Sum_f32_RING_LL", stream=LINKS + 4, **shard)  # fmt: skip
    rt.waits(MAIN, last)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 80, 2)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=160):
        rt.op("aten::_fused_adamw_", us=70, run=(("void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>",
                                                  B200.moves(28 * 16 * WHOLE / 8 / 4)),) * 4)  # fmt: skip
    rt.host(600)


def volumes(rt: Framed, fixed: bool) -> None:
    """Nothing to change: nnU-Net on an RTX 3090, AMP; batches come by threads of its own, the loss is read once."""
    tape, card = Tape(), AMPERE_HALF.card
    rt.host(300)
    for nbytes in (2 * 128**3 * 4, 2 * 128**3 * 2):
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(nbytes)
    x, skips = [2, 1, 128, 128, 128], []
    for level, width in enumerate((32, 64, 128, 256, 320, 320)):
        x = convolved(rt, tape, card, x, width, stride=2 if level else 1)
        x = convolved(rt, tape, card, x, width)
        skips.append(x)
    for skip in reversed(skips[:-1]):
        number = rt.op("aten::conv_transpose3d", "aten::convolution", "aten::cudnn_convolution_transpose", graph=True,
                       run=(("sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_ndhwckrsc_ndhwc_tilesize128x64x32_stage5",
                             card.moves(6 * skip[0] * skip[1] * skip[2] ** 3)),), dims=(x, skip), gap=16)  # fmt: skip
        tape.append(partial(rt.grad, "ConvolutionBackward0", number, "aten::convolution_backward", us=16, run=(
            ("cutlass_tensorop_f16_s16816fprop_optimized_f16_128x64_32x5_ndhwc_align8",
             card.moves(8 * skip[0] * skip[1] * skip[2] ** 3)),)))  # fmt: skip
        x = [*skip[:1], 2 * skip[1], *skip[2:]]
        run = (("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::Opaque"
                "Type<2u>, unsigned int, 5, 64, 64>(…)", card.moves(4 * x[0] * x[1] * x[2] ** 3)),)  # fmt: skip
        rt.op("aten::cat", run=run, dims=(skip, skip), gap=12)
        for _ in range(2):
            x = convolved(rt, tape, card, x, skip[1])
        if skip[2] > 16:
            convolved(rt, tape, card, x, 3, side=1, forward=True)
    for size in (128, 64, 32):
        us = card.moves(4 * 3 * 2 * 2 * size**3)
        small(
            rt, tape, ("_to_copy", "softmax", "mul", "sum", "log_softmax", "nll_loss3d"), [2, 3, size, size, size], us
        )
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * 31e6), 2)
    unscaled(rt, card, 31e6)
    sgd(rt, card, 31e6)
    rt.value()  # `l.detach().cpu().numpy()`
    rt.host(350)


SECONDS = (9, 15, 4, 12, 7, 16, 5, 11)


def varied(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a Conformer by fp16 on a V100; batches of like length, so that steps differ; no shapes."""
    tape, batch, length = Tape(), 16, 25 * SECONDS[rt.number]
    rt.batch(batch * length * 4 * 80 * 4, batch * 8, batch * 60 * 8)
    x, inner = [batch, length, 512], [batch, length, 2_048]
    for _ in range(16):
        for _ in range(2):
            dense(rt, tape, V100, batch, (batch * length, 512, 2_048))
            elementwise(rt, tape, V100, "silu", inner, back=(("silu_backward", 3),))
            dense(rt, tape, V100, batch, (batch * length, 2_048, 512))
            elementwise(rt, tape, V100, "add", x, 2)
        encoder(rt, tape, V100, (batch, length, 512))
        linear(rt, tape, V100, x, 1_024)
        name = "void at::native::(anonymous namespace)::conv_depthwise2d_{}_kernel<31, c10::Half, int>(…)"
        us = 31 * V100.moves(2 * batch * length * 512) / 5
        number = rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", gap=16,
                       graph=True, run=((name.format("forward"), us),))  # fmt: skip
        tape.append(partial(rt.grad, "ConvolutionBackward0", number, "aten::convolution_backward", us=14, run=(
            (name.format("backward"), us), (name.format("grad_weight"), 1.4 * us))))  # fmt: skip
        elementwise(rt, tape, V100, "silu", x, back=(("silu_backward", 3),))
        linear(rt, tape, V100, x, 512)
    linear(rt, tape, V100, x, 5_000)
    size = [length, batch, 5_000]
    for name in ("log_softmax", "ctc_loss"):
        us = V100.moves(4 * length * batch * 5_000)
        number = rt.op(f"aten::{name}", f"aten::_{name}", run=((kernel(name, 2), us),), graph=True, gap=20,
                       dims=(size,))  # fmt: skip
        tape.append(partial(rt.grad, f"{name.title().replace('_', '')}Backward0", number, run=(
            (kernel(name + "_backward", 3), V100.moves(6 * length * batch * 5_000)),)))  # fmt: skip
    back(rt, tape)
    unscaled(rt, V100, 115e6)
    for name, passes in (("lerp_", 3), ("mul_", 2), ("addcmul_", 4), ("sqrt", 2), ("div_", 2), ("add_", 2),
                         ("addcdiv_", 4)):  # fmt: skip
        foreach(rt, f"_foreach_{name}", "PointwiseOpScalarListFunctor", V100.moves(4 * passes * 115e6), 4, 160)
    rt.host(400)


L4_FLOAT = Card(28, 250, "float", ("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4",) * 2, ("", ""))
NODES, EDGES = 169_343, 2_484_941


def spread(rt: Framed, tape: Tape | None, wide: int) -> None:
    """A product with the sparse matrix of a graph."""
    us = L4_FLOAT.moves(4 * wide * EDGES * 0.6 + 8 * EDGES)  # its cache holds some rows
    name = "void cusparse::csrmm_alg2_kernel<cusparse::CsrMMPolicy<32, 4, 2>, int, long, float, float, float>(…)"
    number = rt.op("torch_sparse::spmm_sum", run=((name, us),), dims=([NODES, wide],), gap=30, us=12,
                   graph=tape is not None)  # fmt: skip
    if tape is not None:
        tape.append(lambda: rt.grad("CppNode<SPMMSum>", number, "torch_sparse::spmm_sum", run=((name, us),), us=12))


def whole(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a GCN over all of ogbn-arxiv on an L4; each epoch is judged, four values are read."""
    tape: Tape = []
    for kept in (tape, None):
        for wide, out in ((128, 256), (256, 256), (256, 40)):
            x = [NODES, out]
            if kept is None:
                us = L4_FLOAT.product(NODES, out, wide)
                rt.op("aten::linear", "aten::mm", run=((L4_FLOAT.names[0], us),), gap=14, dims=([NODES, wide],))
            else:
                linear(rt, kept, L4_FLOAT, [NODES, wide], out)
            spread(rt, kept, out)
            if out == 256:
                for name in ("add", "batch_norm", "relu") + (("dropout",) if kept is not None else ()):
                    if kept is None:
                        passed(rt, L4_FLOAT, f"aten::{name}", kernel(name, 2), x, 2)
                    else:
                        elementwise(rt, kept, L4_FLOAT, name, x, back=(("threshold_backward", 3),))
        small(rt, kept, ("log_softmax",), [NODES, 40], L4_FLOAT.moves(8 * NODES * 40))
        if kept is not None:
            small(rt, kept, ("index", "nll_loss"), [90_941, 40], 90)
            back(rt, kept)
            for name in ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"):
                foreach(rt, f"_foreach_{name}", "PointwiseOpScalarListFunctor", 4, 1, 30)
            rt.value()
    rt.op("aten::argmax", run=((REDUCE, L4_FLOAT.moves(4 * NODES * 40)),), dims=([NODES, 40],))
    for _ in range(3):
        small(rt, None, ("index", "index", "eq", "sum"), [48_603], 9)
        rt.value()
    rt.host(110)


def embedded(rt: Framed, fixed: bool) -> None:
    """Nothing to change: BGE-large embeds texts on an L40S; what a batch gave is fetched, the next lies ready."""
    batch, length = 256, 256
    for _ in range(3):
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(batch * length * 8)
    for name in ("embedding", "embedding", "add", "layer_norm"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), L40S.moves(4 * batch * length * 1_024)),), gap=14)
    for _ in range(24):
        encoded(rt, L40S, [batch, length, 1_024])
    for name in ("select", "linalg_vector_norm", "clamp_min", "div"):
        rt.op(f"aten::{name}", run=((COPY, 5),) if name != "select" else (), gap=12, dims=([batch, 1_024],))
    fetched(rt, batch * 1_024 * 2, 5.4, [batch, 1_024])
    rt.host(420)
