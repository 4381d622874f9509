"""What the fifteenth set's jobs share: cards, layers without a graph, copies that wait, a barrier."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eleventh_set.rows import elementwise, node
from ..kineto import device, inputs
from ..layers import Card, Tape
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import AOTRITON, FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, HALF, NHWC, XMMA
from ..twelfth_set.rows import Framed, Look

B200_DEVICE = device("NVIDIA B200", (10, 0), 148, 179)
L40S_DEVICE = device("NVIDIA L40S", (8, 9), 142, 45)
MI250X_DEVICE = device("AMD Instinct MI250X", (9, 0), 110, 64)

NVJET = ("nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_TNT", "nvjet_sm100_tst_256x256_64x4_2x1_2cta_v_bz_NNT")
CUDNN = ("cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_3i_128x128x128_kernel0_0",
         "cudnn_generated_fort_native_sdpa_sm100_flash_bprop_f16_knob_21_128x128x128_kernel0_0")  # fmt: skip
HALF_TENSILE = ("Cijk_Alik_Bljk_HHS_BH_Bias_AS_SAV_UserArgs_MT128x128x32_MI16x16x16x1_SN_LDSB0_AFC1",
                "Cijk_Ailk_Bljk_HHS_BH_Bias_AS_SAV_UserArgs_MT128x128x32_MI16x16x16x1_SN_LDSB0_AFC1")  # fmt: skip
VOLTA_HALF = ("volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_tn", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nt")
VOLTA_CUTLASS = ("fmha_cutlassF_f16_aligned_64x64_rf_sm70(PyTorchMemEffAttention::AttentionKernel<half, …>::Params)",
                 "fmha_cutlassB_f16_aligned_128x64_k65536_sm70(PyTorchMemEffAttention::AttentionBackwardKernel<…>)",
                 )  # fmt: skip

B200 = Card(1_250, 6_400, BF16, NVJET, CUDNN)
L40S = Card(165, 720, HALF, ADA.card.names, FLASH)
MI250X = Card(85, 1_250, HALF, HALF_TENSILE, AOTRITON)
V100 = Card(62, 760, HALF, VOLTA_HALF, VOLTA_CUTLASS)
RTX3090 = Card(58, 780, BF16, AMPERE, FLASH)
AMPERE_HALF = Look(Card(58, 780, HALF, ADA.card.names, FLASH), ADA.names, NHWC, True)
ROWS = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float, false>(int, float, …)"
VOLUMES = tuple(XMMA.format(way, "f16f16_f16f32_f32", 16).replace("nhwckrsc_nhwc", "ndhwckrsc_ndhwc")
                for way in ("fprop", "dgrad", "wgrad"))  # fmt: skip


class Third(Framed):
    """A host whose PCIe is of the third generation."""

    def work(self, name: str, us: float, **given: Any) -> float:
        """Queues work; returns when it ends."""
        copies = given.get("category") == "gpu_memcpy"
        return super().work(name, us * 20 / 12 if copies else us, **given)


def product(rt: Framed, card: Card, x: list[int], out: int, *, gap: float = 9) -> None:
    """`nn.Linear(bias=False)` without a graph."""
    tokens, wide = prod(x[:-1]), x[-1]
    us = max(card.product(tokens, out, wide), card.moves(card.size * (tokens * (wide + out) + wide * out)))
    rt.host(gap)
    with rt.span("aten::linear", us=6, **inputs((x, [out, wide]), card.kind)):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        rt.op("aten::matmul", "aten::mm", run=((card.names[0], us),), gap=0, us=5, kind=card.kind,
              dims=([tokens, wide], [wide, out]))  # fmt: skip


def passed(rt: Framed, card: Card, name: str, kernel: str, dims: list[int], passes: float, *, gap: float = 9) -> None:
    """An op bound by memory, without a graph;  passes: what it moves, in sizes of the tensor."""
    us = card.moves(passes * card.size * prod(dims))
    rt.op(name, run=((kernel, us),), dims=(dims,), kind=card.kind, gap=gap, us=6)


def sdpa(rt: Framed, card: Card, queries: list[int], keys: int, *, causal: float = 1.0) -> None:
    """Attention of (batch, heads, length, width) to so many keys, without a graph."""
    us = card.product(prod(queries[:3]), keys, 2 * queries[3]) / 0.6 / causal
    us = max(us, card.moves(2 * card.size * queries[0] * queries[1] * keys * queries[3]))
    outer = "aten::_scaled_dot_product_flash_attention"
    held = [*queries[:2], keys, queries[3]]
    rt.op("aten::scaled_dot_product_attention", outer, "aten::_flash_attention_forward", kind=card.kind, gap=11,
          run=((card.attention[0], us),), dims=(queries, held, held))  # fmt: skip


def encoded(rt: Framed, card: Card, x: list[int]) -> None:
    """An encoder's layer without a graph."""
    batch, length, width = x
    for _ in range(3):
        product(rt, card, x, width)
    sdpa(rt, card, [batch, width // 64, length, 64], length)
    product(rt, card, x, width)
    passed(rt, card, "aten::add", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half>>", x, 3)
    passed(rt, card, "aten::layer_norm", ROWS, x, 2)
    product(rt, card, x, 4 * width)
    passed(rt, card, "aten::gelu", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl<c10::Half>>",
           [batch, length, 4 * width], 2)  # fmt: skip
    product(rt, card, [batch, length, 4 * width], width)
    passed(rt, card, "aten::add", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half>>", x, 3)
    passed(rt, card, "aten::layer_norm", ROWS, x, 2)


def fetched(rt: Framed, nbytes: int, rate: float, dims: list[int]) -> None:
    """`.cpu()` of a tensor, GB/s: memory that is not pinned, so that the copy's call returns when all is there."""
    with rt.span("aten::to", **inputs((dims,), "float")), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        place = len(rt.rows)
        end = rt.work("Memcpy DtoH (Device -> Pageable)", 2 + nbytes / rate / 1e3, call="MemcpyAsync",
                      category="gpu_memcpy", bytes=nbytes)  # fmt: skip
        rt.now = max(rt.now, end + 3)
        rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)
        rt.call("StreamSynchronize", 3)


def barrier(rt: Framed, ranks: list[int], others: float) -> None:
    """`dist.barrier()`: a sum of one value, and the host waits for it;  others: when the last rank comes."""
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", us=3, gap=12, dims=([1],), run=(
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", 2.2),))  # fmt: skip
    end = rt.collective("barrier", 14, (1, 1), dtype="Float", ranks=ranks, until=others,
                        kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    next(row for row in reversed(rt.rows) if row["name"] == "nccl:barrier")["name"] = "nccl:all_reduce_barrier"
    rt.waits(MAIN, end)
    rt.call("StreamSynchronize", 3, until=rt.free[MAIN] + 4)


def convolved(rt: Framed, tape: Tape, card: Card, dims: list[int], cout: int, *, side: int = 3, stride: int = 1,
              forward: bool = False) -> list[int]:  # fmt: skip
    """`Conv3d`, instance norm, leaky ReLU of (batch, channels, depth, height, width);  forward: no norm behind."""
    batch, cin, *size = dims
    size = [one // stride for one in size]
    y, area = [batch, cout, *size], batch * prod(size)
    weight = [cout, cin, side, side, side]
    us = max(2 * area * cin * cout * side**3 / card.tflops / 1e6, card.moves(2 * area * (cin * stride**3 + cout)))
    number = rt.op("aten::conv3d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((VOLUMES[0], us),), dims=(dims, weight), kind=card.kind, gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((VOLUMES[1], us), (VOLUMES[2], 1.1 * us)), us=16, gap=1,
                  dims=(y, dims, weight), kind=card.kind)  # fmt: skip
        rt.accumulated()

    tape.append(backward)
    if forward:
        return y
    nbytes = card.size * prod(y)
    name = "void cudnn::bn_{}_tr_1C11_kernel_NCHW<__half2, float, int, 512, true, 1, true>(…)"
    normed: dict[str, Any] = {"dims": (y,), "kind": card.kind}
    seen = rt.op("aten::instance_norm", "aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm",
                 graph=True, gap=22, run=((name.format("fw"), card.moves(3 * nbytes)),), **normed)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", seen, "aten::cudnn_batch_norm_backward", **normed,
                                run=((name.format("bw"), card.moves(5 * nbytes)),)))  # fmt: skip
    elementwise(rt, tape, card, "leaky_relu_", y, back=(("leaky_relu_backward", 3),))
    return y
