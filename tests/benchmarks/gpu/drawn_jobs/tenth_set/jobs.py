"""The other jobs of the tenth set: graphs, images, optimizers, experts, compiled models."""

from __future__ import annotations

from ..kineto import Kineto, inputs
from ..layers import CAST, REDUCE, VECTOR, Card, Tape, attention, back, block, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16

FLASH = ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>",
         "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>")  # fmt: skip
AOTRITON = ("attn_fwd", "bwd_kernel_dk_dv")
NVJET = ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT")
TENSILE = ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1",
           "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1")  # fmt: skip
H100 = Card(480, 2_600, BF16, NVJET, FLASH)
MI300X = Card(380, 3_400, BF16, TENSILE, AOTRITON)
V100 = Card(11, 780, "float", ("volta_sgemm_32x128_nn", "volta_sgemm_64x64_tn"), FLASH)
L4 = Card(22, 250, "float", ("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4",) * 2, FLASH)
L4_IMAGES = Card(50, 250, BF16, ("", ""), FLASH)
A10G = Card(52, 480, "c10::Half", ("", ""), FLASH)
RTX4090 = Card(60, 820, "float", ("cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4",) * 2, FLASH)
CONV = ("sm80_xmma_fprop_implicit_gemm_{0}_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16",
        "sm80_xmma_dgrad_implicit_gemm_{0}_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16",
        "sm80_xmma_wgrad_implicit_gemm_indexed_{0}_nhwckrsc_nhwc_tilesize128x128x32_stage3")  # fmt: skip
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(…)"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false, (cudnnKernelDataType_t)0>(…)"
GATHER = "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(…)"
SCATTER = "void at::native::_scatter_gather_elementwise_kernel<128, 8, ReduceAdd>(int, …)"


def gathered(rt: Kineto, tape: Tape, card: Card, rows: int, wide: int, gap: float) -> None:
    """`x[index]` of nodes for edges."""
    us = card.moves(2 * rows * wide * 4)
    number = rt.op("aten::index_select", run=((GATHER, us),), dims=([rows // 4, wide], [], [rows]), graph=True, gap=gap)
    add = (("void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int, 2>(…)", 1.3 * us),)
    tape.append(lambda: rt.grad("IndexSelectBackward0", number, "aten::index_add_", run=add, us=8))


def pooled(rt: Kineto, tape: Tape, card: Card, rows: int, wide: int, gap: float) -> None:
    """A sum of edges for each node."""
    us = card.moves(1.5 * rows * wide * 4)
    number = rt.op("aten::scatter_add_", run=((SCATTER, us),), dims=([rows // 4, wide], [], [rows, wide]), graph=True,
                   gap=gap)  # fmt: skip
    tape.append(lambda: rt.grad("ScatterAddBackward0", number, "aten::gather", us=8, run=(
        ("void at::native::_scatter_gather_elementwise_kernel<128, 8, TensorAssign>(int, …)", 1.1 * us),)))  # fmt: skip


def timed(rt: Kineto, fixed: bool) -> None:
    """KPConv: `torch.cuda.synchronize()` before the clock is read, averages and a line of log after it."""
    tape: Tape = []
    with rt.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=250):
        pass
    for nbytes in (1 << 20, 4 << 20, 400_000):
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(nbytes)
    for number in range(12):
        rows, wide = 900_000 >> number // 3, 32 << number // 3
        gathered(rt, tape, V100, rows, wide, 150)
        for name in ("sub", "pow", "clamp"):
            us = V100.moves(rows * 15 * 8)
            rt.op(f"aten::{name}", run=((VECTOR.format(name, 2), us),), dims=([rows // 15, 15, 15],) * 2, gap=120)
        pooled(rt, tape, V100, rows, wide, 180)
        dense(rt, tape, V100, 1, (rows // 15, wide, wide), gap=200)
        count = rt.op("aten::leaky_relu", run=((VECTOR.format("leaky_relu", 2), V100.moves(rows * wide)),), gap=90,
                      dims=([rows // 15, wide],), graph=True)  # fmt: skip
        tape.append(
            lambda count=count, rows=rows, wide=wide: rt.grad(
                "LeakyReluBackward0", count, run=((VECTOR.format("leaky_relu_back", 3), V100.moves(rows * wide)),)
            )
        )
    back(rt, tape)
    with rt.span("Optimizer.step#SGD.step", "user_annotation", us=300):
        for name in ("add_", "mul_", "add_"):
            rt.op(f"aten::_foreach_{name}", us=90, run=(("void at::native::multi_tensor_apply_kernel<add>", 190),))
    if not fixed:
        rt.wait()
    rt.host(3_500)


def sampled(rt: Kineto, fixed: bool) -> None:
    """PyG: `NeighborLoader` without workers samples and gathers rows on the host; then `.to(device)`, `float(loss)`."""
    tape, nodes, edges = Tape(), 44_000, 180_000
    kind = "_MultiProcessingDataLoaderIter" if fixed else "_SingleProcessDataLoaderIter"
    with rt.span(f"enumerate(DataLoader)#{kind}.__next__", "user_annotation", us=300):
        if not fixed:
            rt.op("pyg::neighbor_sample", us=rt.vary(12_500, 0.1), gap=400)
            rt.op("aten::index_select", us=rt.vary(4_800, 0.1), dims=([2_449_029, 128], [], [nodes]), gap=150)
            rt.op("aten::index_select", us=60, dims=([2_449_029, 1], [], [nodes]), kind="long int")
            rt.host(700)
    rt.moved(nodes * 512, 6.5, [nodes, 128])
    rt.moved(edges * 16, 6.5, [2, edges], "long int")
    for layer in range(3):
        wide = 128 if layer == 0 else 256
        gathered(rt, tape, L4, edges, wide, 60)
        pooled(rt, tape, L4, edges, wide, 70)
        for _ in range(2):
            dense(rt, tape, L4, 1, (nodes, wide, 256), gap=25)
    run = (("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", 9),)
    number = rt.op("aten::cross_entropy_loss", run=run, dims=([1024, 47], [1024]), graph=True)
    tape.append(lambda: rt.grad("NllLossBackward0", number, run=run))
    back(rt, tape)
    fused_adamw(rt, L4, 400_000)
    rt.value()


def convolution(rt: Kineto, tape: Tape, card: Card, sizes: tuple[int, int, int, int], swaps: bool) -> None:
    """A convolution of (channels in, out, kernel, size of the picture) of 64 pictures, with its batch norm and ReLU."""
    cin, cout, side, hw = sizes
    x, y, w = [64, cin, hw, hw], [64, cout, hw, hw], [cout, cin, side, side]
    us = 2 * 64 * hw * hw * cin * cout * side * side / card.tflops / 1e6
    into, out, weight = (card.moves(4 * 64 * c * hw * hw) for c in (cin, cout, cin * cout * side * side / 64 / hw / hw))
    kind = "f16f16_f16f32_f32" if card.kind == "c10::Half" else "bf16bf16_bf16f32_f32"
    names = [name.format(kind) for name in CONV]
    least = card.moves(2 * 64 * hw * hw * (cin + cout))
    first = (((TO_NHWC, into), (TO_NHWC, weight)), ((TO_NCHW, out),)) if swaps else ((), ())
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, 1.5 * weight),), dims=(w,), gap=6)
    number = rt.op(
        "aten::conv2d",
        "aten::convolution",
        "aten::_convolution",
        "aten::cudnn_convolution",
        graph=True,
        run=(*first[0], (names[0], max(us, least)), *first[1]),
        dims=(x, w),
        kind=card.kind,
        gap=10,
    )
    layout = f"{'NCHW' if swaps else 'NHWC'}<{'__half' if card is A10G else '__nv_bfloat16'}, float, int, 512>"
    other = rt.op(
        "aten::batch_norm",
        "aten::_batch_norm_impl_index",
        "aten::cudnn_batch_norm",
        dims=(y,),
        graph=True,
        run=((f"void cudnn::bn_fw_tr_1C11_kernel_{layout}(…)", 1.5 * out),),
        kind=card.kind,
        gap=16,
    )
    third = rt.op("aten::relu_", "aten::clamp_min_", run=((VECTOR.format("clamp_min", 2), out),), dims=(y,), graph=True,
                  kind=card.kind, gap=8)  # fmt: skip

    def backward() -> None:
        rt.grad("ReluBackward0", third, "aten::threshold_backward", dims=(y, y), kind=card.kind,
                run=((VECTOR.format("threshold", 3), 1.5 * out),))  # fmt: skip
        rt.grad("CudnnBatchNormBackward0", other, "aten::cudnn_batch_norm_backward", dims=(y, y), kind=card.kind,
                run=((f"void cudnn::bn_bw_1C11_kernel_new<{layout}(…)", 2.5 * out),))  # fmt: skip
        gradient = ((TO_NHWC, out), (TO_NHWC, weight)) if swaps else ()
        both = ((TO_NHWC, out), (TO_NHWC, into)) if swaps else ()
        rt.grad("ConvolutionBackward0", number, "aten::convolution_backward", dims=(y, x, w), kind=card.kind, us=14,
                run=(*gradient, (names[1], max(us, least)), *(((TO_NCHW, into),) if swaps else ()), *both,
                     (names[2], max(us, least)), *(((TO_NCHW, weight),) if swaps else ())))  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def images(rt: Kineto, fixed: bool) -> None:
    """ResNet-50 by AMP, on an A10G as NCHW; as timm does it: channels_last, prefetched, with a moving average."""
    timm = rt.device["name"] == "NVIDIA L4"
    tape, card = Tape(), L4_IMAGES if timm else A10G
    with rt.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=220):
        pass
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        end = rt.copy(9 << 20, stream=COPIES if timm else MAIN)
    if timm:
        rt.waits(MAIN, 0 if rt.number else end)  # later batches were copied while the step before them ran
    rt.op("aten::div", run=((VECTOR.format("div", 2), card.moves(58 << 20)),), dims=([64, 3, 224, 224],))
    convolution(rt, tape, card, (3, 64, 7, 112), not fixed)
    for blocks, wide, hw in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for _ in range(blocks):
            for sizes in ((4 * wide, wide, 1, hw), (wide, wide, 3, hw), (wide, 4 * wide, 1, hw)):
                convolution(rt, tape, card, sizes, not fixed)
    run = ((REDUCE, 14),)
    number = rt.op("aten::cross_entropy_loss", run=run, dims=([64, 1000], [64]), graph=True)
    tape.append(lambda: rt.grad("NllLossBackward0", number, run=run))
    back(rt, tape)
    if not timm:
        rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", us=60, run=(
            ("void at::native::multi_tensor_apply_kernel<unscale>", card.moves(200e6)),))  # fmt: skip
        rt.value()
    fused_adamw(rt, card, 25.5e6)
    if timm:
        rt.op("aten::_foreach_lerp_", us=160, run=(("void at::native::multi_tensor_apply_kernel<TernaryOpScalar, lerp>",
                                                   card.moves(306e6)),))  # fmt: skip
    rt.host(200)


_CAUTIOUS = ("mul_", "add_", "mul_", "addcmul_", "sqrt", "add_", "mul", "gt", "to", "sum", "add", "reciprocal", "mul_",
             "mul", "div", "add_", "add_")  # fmt: skip


def cautious(rt: Kineto, fixed: bool) -> None:
    """GPT-2 medium in bf16; C-AdamW takes each parameter by itself in 17 ops; without: `torch._foreach_*`."""
    tape: Tape = []
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(262_144)
    for _ in range(24):
        block(rt, tape, H100, 16, 1_024, 1_024)
    dense(rt, tape, H100, 16, (16_384, 1_024, 50_304))
    back(rt, tape)
    matrices = ([3072, 1024], [1024, 1024], [4096, 1024], [1024, 4096])
    vectors = ([3072], [1024], [4096], [1024], [1024], [1024], [1024], [1024])
    sizes = [size for _ in range(24) for size in (*matrices, *vectors)] + [[50304, 1024]]
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=200):
        if fixed:
            for name in _CAUTIOUS:
                total = sum(12 * (size[0] * size[1] if size[1:] else size[0]) for size in sizes)
                rt.op(
                    f"aten::_foreach_{name}",
                    us=250,
                    run=tuple(
                        ("void at::native::multi_tensor_apply_kernel<BinaryOp>", H100.moves(total / 20))
                        for _ in range(20)
                    ),
                )
            return
        for size in sizes:
            nbytes = 12 * (size[0] * size[1] if size[1:] else size[0])
            for name in _CAUTIOUS:
                rt.op(
                    f"aten::{name}", run=((VECTOR.format(name, 3), H100.moves(nbytes)),), dims=(size, size), gap=2, us=3
                )


def experts(rt: Kineto, fixed: bool) -> None:
    """8 experts in a loop, `torch.where(mask)` of each is waited for; without: tokens are sorted, sizes stay there."""
    tape, x = Tape(), [4096, 4096]
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(65_536)
    for _ in range(6):
        norm(rt, tape, MI300X, [2, 2048, 4096])
        dense(rt, tape, MI300X, 2, (4_096, 4_096, 6_144))
        attention(rt, tape, MI300X, [2, 32, 2048, 128])
        dense(rt, tape, MI300X, 2, (4_096, 4_096, 4_096))
        norm(rt, tape, MI300X, [2, 2048, 4096])
        dense(rt, tape, MI300X, 2, (4_096, 4_096, 8))
        for name in ("softmax", "topk", "one_hot", "permute"):
            rt.op(f"aten::{name}", run=((f"void at::native::{name}_kernel<c10::BFloat16, 8>", 6),), dims=([4096, 8],))
        for _ in range(8):
            if not fixed:
                with rt.span("aten::where"), rt.span("aten::nonzero_numpy"), rt.span("aten::nonzero"):
                    rt.work("void rocprim::detail::partition_kernel<rocprim::detail::select>", 8)
                    rt.value()
            rt.op("aten::index", run=((GATHER.replace("float", "c10::BFloat16"), MI300X.moves(2 * 1024 * 8192)),),
                  dims=(x, [1024]), kind=BF16, gap=25)  # fmt: skip
            for _ in range(2):
                dense(rt, tape, MI300X, 1, (1_024, 4_096, 4_096), gap=20)
            for name in ("silu", "mul"):
                rt.op(f"aten::{name}", run=((VECTOR.format(name, 3), MI300X.moves(3 * 1024 * 8192)),), kind=BF16,
                      dims=([1024, 4096],) * 2, gap=12)  # fmt: skip
            dense(rt, tape, MI300X, 1, (1_024, 4_096, 4_096), gap=20)
            rt.op("aten::index_add_", run=(("void at::native::indexFuncLargeIndex<c10::BFloat16, long>", MI300X.moves(
                3 * 1024 * 8192)),), dims=(x, [1024], [1024, 4096]), kind=BF16, gap=15)  # fmt: skip
    back(rt, tape)
    fused_adamw(rt, MI300X, 600e6)


def compiled(rt: Kineto, fixed: bool) -> None:
    """nanoGPT, compiled: four micro-batches, `no_sync` in three, DDP's buckets beside backward in the last."""
    rt.head = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1}}
    gemm, end = ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 420.0), 0.0
    forward = (
        ("triton_per_fused_add_native_layer_norm_2", 60.0),
        gemm,
        (FLASH[0], 260.0),
        gemm,
        ("triton_per_fused_add_native_layer_norm_4", 62.0),
        gemm,
        ("triton_poi_fused_gelu_5", 85.0),
        gemm,
    )
    backward = (gemm, gemm, ("triton_poi_fused_gelu_gelu_backward_9", 120.0), gemm, gemm, (FLASH[1], 640.0), gemm, gemm,
                ("triton_per_fused_native_layer_norm_backward_11", 110.0), gemm, gemm)  # fmt: skip
    for micro in range(4):
        for _ in range(2):
            with rt.span("aten::pin_memory"), rt.span("aten::_pin_memory"), rt.span("aten::copy_", us=20):
                pass
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(98_304)
        rt.sequence += 1
        number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
        with rt.span("DistributedDataParallel.forward", "user_annotation", us=40):
            with rt.span("TorchDynamo Cache Lookup", us=18):
                pass
            with (rt.span("Torch-Compiled Region: 0/0", us=70), rt.span("CompiledFunction", us=30, **number),
                  rt.span("## Call CompiledFxGraph fbz4k2oq ##", "user_annotation", us=20)):  # fmt: skip
                for _ in range(12):
                    _launched(rt, forward)
        with rt.backward():
            given = {**number, "Fwd thread id": 1}
            name = "CompiledFunctionBackward"
            with rt.span(f"autograd::engine::evaluate_function: {name}", us=20, **given), rt.span(name, us=20, **given):
                for layer in range(12):
                    _launched(rt, backward)
                    if micro == 3 and layer % 3 == 2:
                        end = rt.collective("allreduce", 700, (31_000_000, 31_000_000), dtype="Float",
                                            kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    for name in ("norm", "mul_"):
        rt.op(f"aten::_foreach_{name}", us=60, run=(("void at::native::multi_tensor_apply_kernel<lp>", 420),))
    fused_adamw(rt, Card(200, 1_450, BF16, (gemm[0],) * 2, FLASH), 124e6)
    rt.host(300)


def _launched(rt: Kineto, kernels: tuple[tuple[str, float], ...]) -> None:
    for name, us in kernels:
        if "gemm" in name:
            rt.op("aten::mm", run=((name, us),), gap=3, us=7, **inputs((), BF16))
        else:
            rt.host(5)
            rt.work(name, us, call="cuLaunchKernel" if "triton" in name else "")


def full_graph(rt: Kineto, fixed: bool) -> None:
    """A GCN on all of ogbn-products' nodes, in TF32, whose loss is read after each epoch."""
    tape, nodes = Tape(), 2_449_029
    for layer in range(3):
        wide = 100 if layer == 0 else 256
        dense(rt, tape, RTX4090, 1, (nodes // 4, wide, 256), gap=40)
        us = 14_000 if layer else 9_000
        name = (
            "void spmm_kernel<float, (ReductionType)0, true>(long const*, long const*, float const*, float const*, …)"
        )
        number = rt.op("torch_sparse::spmm_sum", run=((name, us),), graph=True, gap=60, us=12)
        tape.append(
            lambda number=number, us=us, name=name: rt.grad(
                "torch::autograd::CppNode<SPMMSum>", number, "torch_sparse::spmm_sum", run=((name, 1.1 * us),)
            )
        )
        if layer < 2:
            size = [nodes // 4, 256]
            run = ((VECTOR.format("clamp_min", 2), RTX4090.moves(8 * nodes / 4 * 256)),)
            other = rt.op("aten::relu", "aten::clamp_min", run=run, dims=(size,), graph=True)
            tape.append(
                lambda other=other, run=run: rt.grad("ReluBackward0", other, "aten::threshold_backward", run=run)
            )
    back(rt, tape)
    fused_adamw(rt, RTX4090, 200_000)
    rt.value(memory="Pinned")
    rt.host(250)
