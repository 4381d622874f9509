"""Jobs of the eleventh set whose fault is in kernels: a dense mask, a dense gradient, indices that are sorted."""

from __future__ import annotations

from math import prod

from ..kineto import inputs
from ..layers import REDUCE, Tape, back, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import GATHER, H100, SCATTER
from .language import flash
from .rows import FILL, Roofline, Sized, elementwise, foreach, kernel, node

MASKED = (
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, "
    "cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)",
    "fmha_cutlassB_bf16_aligned_128x64_k128_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::bfloat16_t, "
    "cutlass::arch::Sm80, true, false, true, 128, 64, 128, false>::Params)",
)
TF32 = ("ampere_sgemm_128x64_tn", "cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4")
A100 = Roofline(60, 1_450, "float", (TF32[1].replace("nt", "tn"), TF32[1]), ("", ""))
L4 = Roofline(25, 250, "float", (TF32[1].replace("nt", "tn"), TF32[1]), ("", ""))
SORT = "void at_cuda_detail::cub::DeviceRadixSort{}Kernel<at_cuda_detail::cub::DeviceRadixSortPolicy<long, long, int>…>"
INDEX = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
    "at::native::OpaqueType<4>>>(…)>(…)"
)


def masked(rt: Sized, fixed: bool) -> None:
    """A video DiT, 16,640 tokens; padded text makes a dense mask, no FlashAttention; without: neither of them."""
    tape, x, heads = Tape(), [1, 16_640, 3_072], [1, 24, 16_640, 128]
    rt.batch(16_384 * 64 * 2, 256 * 4_096 * 2)
    for _ in range(8):
        for part in range(2):
            norm(rt, tape, H100, x)
            for name, reads in (("mul", 2), ("add", 2)):
                elementwise(rt, tape, H100, name, x, reads, (("mul", 3),) if name == "mul" else ())
            dense(rt, tape, H100, 1, (16_640, 3_072, 12_288 if part else 9_216))
            if part:
                elementwise(rt, tape, H100, "gelu", [1, 16_640, 12_288], back=(("gelu_backward", 3),))
            elif fixed:
                flash(rt, tape, H100, heads, causal=False)
            else:
                dense_mask(rt, tape, heads)
            dense(rt, tape, H100, 1, (16_640, 12_288 if part else 3_072, 3_072))
            elementwise(rt, tape, H100, "mul", x, 2, (("mul", 3), ("mul", 3)))
            elementwise(rt, tape, H100, "add", x, 2)
    dense(rt, tape, H100, 1, (16_640, 3_072, 64))
    run = ((REDUCE, 5),)
    number = rt.op("aten::mse_loss", run=run, dims=([1, 16_384, 64],) * 2, kind=BF16, graph=True)
    tape.append(lambda: rt.grad("MseLossBackward0", number, "aten::mse_loss_backward", run=run))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(3.6e9), 5)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(7.2e9), 5)
    fused_adamw(rt, H100, 0.91e9)


def dense_mask(rt: Sized, tape: Tape, dims: list[int]) -> None:
    """A mask of truth values becomes a bias in bf16, which the memory-efficient kernel adds: 140 and 85 TFLOP/s."""
    length, tera = dims[2], 4 * dims[1] * dims[2] ** 2 * dims[3] / 1e6
    mask, mib = [1, 1, length, length], length * length
    given = inputs((dims, dims, dims, mask), BF16) | {"Input type": [BF16, BF16, BF16, "bool"]}
    rt.host(14)
    with rt.span("aten::scaled_dot_product_attention", us=8, **given):
        rt.op("aten::zeros_like", "aten::zero_", "aten::fill_", run=((FILL, H100.moves(2 * mib)),), gap=0, dims=(mask,))
        rt.op("aten::logical_not", run=((kernel("logical_not", 2, "bool"), H100.moves(2 * mib)),), gap=0,
              dims=(mask,), kind="bool")  # fmt: skip
        rt.op("aten::masked_fill_", run=((kernel("masked_fill", 2, BF16), H100.moves(5 * mib)),), gap=0,
              dims=(mask, mask, []), kind=BF16)  # fmt: skip
        outer = "aten::_scaled_dot_product_efficient_attention"
        number = rt.op(outer, "aten::_efficient_attention_forward", run=((MASKED[0], tera / 140),), gap=0, graph=True,
                       dims=(dims, dims, dims, mask), kind=BF16, us=8)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductEfficientAttentionBackward0", number, outer + "_backward",
                                "aten::_efficient_attention_backward", run=((MASKED[1], 2.5 * tera / 85),), us=12,
                                dims=(dims, dims, dims, dims, mask), kind=BF16))  # fmt: skip


_TABLES = (10_131_227, 8_351_593, 7_046_547, 5_461_306, 2_202_608, 286_181, 142_572, 93_145, 14_992, 12_517, 11_938,
           5_683, 5_652, 3_194, 2_173, 1_460, 633, 583, 305, 105, 27, 24, 18, 15, 10, 4)  # fmt: skip
_ADAM = (("_foreach_lerp_", 3), ("_foreach_mul_", 2), ("_foreach_addcmul_", 4), ("_foreach_sqrt", 2),
         ("_foreach_div_", 2), ("_foreach_add_", 2), ("_foreach_addcdiv_", 4))  # fmt: skip


def table(rt: Sized, fixed: bool) -> None:
    """DLRM, `EmbeddingBag(sparse=False)` and Adam: 34 M rows are updated for 426,000; without: sparse, SparseAdam."""
    tape, batch, wide = Tape(), 16_384, 32
    _warming(rt)
    rt.batch(batch * 13 * 4, batch * 26 * 8, batch * 4)
    for sizes in ((13, 512), (512, 256), (256, 32)):
        perceptron(rt, tape, batch, sizes)
    for rows in _TABLES:
        looked_up(rt, tape, (rows, batch, wide), fixed)
    size = [batch, 27, wide]
    us = A100.moves(2 * prod(size) * 4)
    run = (
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<float, unsigned int, 2>", us),
    )
    joined = rt.op("aten::cat", run=run, dims=([batch, wide],), graph=True, gap=30)
    tape.append(lambda: rt.grad("CatBackward0", joined, "aten::narrow", run=()))
    number = rt.op("aten::bmm", run=((A100.names[0], us),), dims=(size, [batch, wide, 27]), graph=True)
    tape.append(lambda: rt.grad("BmmBackward0", number, "aten::bmm", run=((A100.names[1], us),) * 2, dims=(size, size)))
    for sizes in ((383, 512), (512, 256), (256, 1)):
        perceptron(rt, tape, batch, sizes)
    run = ((REDUCE, 4),)
    loss = rt.op("aten::binary_cross_entropy_with_logits", run=run, dims=([batch, 1],) * 2, graph=True)
    tape.append(lambda: rt.grad("BinaryCrossEntropyWithLogitsBackward0", loss, "aten::sub", run=run))
    back(rt, tape)
    if fixed:
        sparse_adam(rt, wide)
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=260):
        nbytes = 4 * (0.5e6 if fixed else sum(_TABLES) * wide)
        for name, passes in _ADAM:
            launches = 1 if fixed else round(nbytes / 4 / 21e6)
            foreach(rt, name, "PointwiseOpScalarListFunctor", A100.moves(passes * nbytes), launches, 110,
                    () if fixed else tuple([rows, wide] for rows in _TABLES))  # fmt: skip
    rt.host(250)


def perceptron(rt: Sized, tape: Tape, batch: int, sizes: tuple[int, int]) -> None:
    """`nn.Linear` and `ReLU`."""
    dense(rt, tape, A100, batch, (batch, *sizes))
    elementwise(rt, tape, A100, "relu", [batch, sizes[1]], back=(("threshold_backward", 3),))


def looked_up(rt: Sized, tape: Tape, sizes: tuple[int, int, int], fixed: bool) -> None:
    """`nn.EmbeddingBag` of (rows, batch, width)."""
    rows, batch, wide = sizes
    us = A100.moves(2.4 * batch * wide * 4)
    name = "void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float, long>(…)"
    number = rt.op("aten::embedding_bag", "aten::_embedding_bag", run=((name, us),), graph=True, gap=24, us=9,
                   dims=([rows, wide], [batch], [batch]))  # fmt: skip
    kind = "sparse" if fixed else "dense"
    order = [(SORT.format(part), 4) for part in ("Histogram", "ExclusiveSum", "Onesweep", "Onesweep")]
    added = [
        ("void at::native::(anonymous namespace)::compute_grad_weight_bags<float, long>(…)", 2 * us),
        ("void at::native::(anonymous namespace)::sum_and_scatter<float, long>(…)", 2 * us),
    ]
    run = (("void at::native::index_elementwise_kernel<128, 4, …>", us),) if fixed else (
        (FILL, A100.moves(rows * wide * 4)), *order, *added)  # fmt: skip
    outer = "aten::_embedding_bag_backward"
    tape.append(lambda: rt.grad("EmbeddingBagBackward0", number, outer, f"aten::_embedding_bag_{kind}_backward", us=12,
                                run=tuple(run), dims=([batch, wide], [batch], [batch])))  # fmt: skip


def sparse_adam(rt: Sized, wide: int) -> None:
    """`SparseAdam`: each table by itself, its gradient coalesced, for which the host reads how many rows there are."""
    with rt.span("Optimizer.step#SparseAdam.step", "user_annotation", us=60):
        for rows in _TABLES:
            touched = min(rows, 16_384)
            us = A100.moves(3 * touched * wide * 4)
            with rt.span("aten::coalesce", us=12), rt.span("aten::_coalesce", us=14):
                for part in ("Histogram", "ExclusiveSum", "Onesweep", "Onesweep"):
                    rt.work(SORT.format(part), 4)
                rt.work("void at_cuda_detail::cub::DeviceUniqueByKeySweepKernel<…>", 5)
                rt.copy(8, "DtoH", "Pageable")
                rt.work("void at::native::apply::coalesceValuesKernel<float, float>(…)", us)
            for name in ("index_select", "sub", "mul_", "add", "index_select", "pow", "sub_", "mul_", "add", "sqrt_",
                         "add_", "div", "index_add_", "index_add_", "index_add_"):  # fmt: skip
                rt.op(f"aten::{name}", run=((kernel(name, 3), us),), dims=([touched, wide],), gap=4, us=5)


def _warming(rt: Sized) -> None:
    """The first steps load modules and make memory."""
    for _ in range((46, 9)[rt.number] if rt.number < 2 else 0):
        rt.call("FuncGetAttributes", rt.vary(2_600, 0.6))
        rt.call("Malloc", rt.vary(600, 0.6))


def indexed(rt: Sized, fixed: bool) -> None:
    """A graph network that writes `x[src]`: its backward pass sorts 1.2 M indices; without: `index_select`."""
    tape, nodes, edges, wide = Tape(), 60_000, 1_200_000, 128
    rt.batch(nodes * 64 * 4, edges * 16, edges * 16 * 4)
    dense(rt, tape, L4, 1, (nodes, 64, wide))
    for _ in range(3):
        for _ in range(2):
            chosen(rt, tape, (nodes, edges, wide), fixed)
        elementwise(rt, tape, L4, "add", [edges, wide], 2)
        elementwise(rt, tape, L4, "silu", [edges, wide], back=(("silu_backward", 3),))
        us = L4.moves(1.3 * edges * wide * 4)
        number = rt.op("aten::scatter_add_", run=((SCATTER, us),), dims=([nodes, wide], [edges, wide], [edges, wide]),
                       graph=True, gap=30)  # fmt: skip
        name = SCATTER.replace("ReduceAdd", "TensorAssign")
        tape.append(lambda number=number, us=us, name=name: rt.grad("ScatterAddBackward0", number, "aten::gather",
                    run=((name, 1.4 * us),), dims=([nodes, wide], [edges, wide])))  # fmt: skip
        for _ in range(2):
            dense(rt, tape, L4, 1, (nodes, wide, wide))
            elementwise(rt, tape, L4, "silu", [nodes, wide], back=(("silu_backward", 3),))
    dense(rt, tape, L4, 1, (nodes, wide, 1))
    run = ((REDUCE, 9),)
    number = rt.op("aten::mse_loss", run=run, dims=([nodes, 1],) * 2, graph=True)
    tape.append(lambda: rt.grad("MseLossBackward0", number, "aten::mse_loss_backward", run=run))
    back(rt, tape)
    fused_adamw(rt, L4, 250_000)
    rt.host(400)


def chosen(rt: Sized, tape: Tape, sizes: tuple[int, int, int], fixed: bool) -> None:
    """Nodes' rows for edges."""
    nodes, edges, wide = sizes
    us, dims = L4.moves(1.5 * edges * wide * 4), ([nodes, wide], [edges])
    name = "aten::index_select" if fixed else "aten::index"
    number = rt.op(name, run=((GATHER if fixed else INDEX, us),), dims=dims, graph=True, gap=25, us=9)

    def backward() -> None:
        zeros = (FILL, L4.moves(nodes * wide * 4))
        with node(rt, "IndexSelectBackward0" if fixed else "IndexBackward0", number):
            rt.op("aten::new_zeros", "aten::zero_", "aten::fill_", run=(zeros,), gap=1, dims=([nodes, wide],))
            if fixed:
                add = "void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2>"
                rt.op("aten::index_add_", run=((add, 1.1 * us),), gap=1, dims=([nodes, wide], [edges], [edges, wide]))
                return
            keys = L4.moves(4 * edges * 8)
            run = [(kernel("remainder", 2, "long"), keys / 2), (kernel("arange", 1, "long"), keys / 4)]
            run += [(SORT.format("Histogram"), keys / 4), (SORT.format("ExclusiveSum"), 3)]
            run += [(SORT.format("Onesweep"), 1.2 * keys)] * 3
            run += [
                (
                    "void at::native::indexing_backward_kernel<float, 4>(long const*, long const*, float const*, …)",
                    2.6 * us,
                )
            ]
            rt.op("aten::index_put_", "aten::_index_put_impl_", run=tuple(run), gap=1, us=20,
                  dims=([nodes, wide], [edges, wide], []))  # fmt: skip

    tape.append(backward)
