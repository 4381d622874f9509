"""Jobs of the thirty-fourth set without a fault: proteins on an MI300X, FSDP2 on eight H200, an engine of TensorRT on a
T4, clouds by a compiled U-Net on an RTX 5090, vLLM on a B200.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import graphed, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import flash
from ..eleventh_set.rows import foreach, linear
from ..fifteenth_set.rows import CUDNN, NVJET
from ..layers import CAST, REDUCE, Card, Tape, back, fused_adamw, norm
from ..runtime import COPIES, LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss, triton
from ..seventh_set import BF16
from ..tenth_set.jobs import MI300X
from ..tenth_set.jobs import NVJET as HOPPER
from ..thirty_first_set.rows import Told, ahead, timed
from ..thirty_second_set.rows import NHWC
from ..thirty_third_set.rows import Marked, batch_of
from ..twelfth_set.rows import Conv, Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few
from .rows import behind, mm, region

CHAINS, LENGTH, WIDE, DEEP, ACIDS = 24, 512, 2_560, 36, 33
TURNED = "rotary_kernel"


def antibodies(rt: Told, fixed: bool) -> None:
    """Nothing to change: ESM-2 (3B) goes on learning antibodies by a plain loop on an MI300X, all in bf16, 24 chains of
    512, packed without padding: the GPU is busy with products of hipBLASLt and AOTriton's attention, rotations are
    flash-attn's kernel, AdamW is fused, clipped by lists, the loss is read each 50th step. Shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, recomputation, the batch.
    """
    tape, x = Tape(), [CHAINS, LENGTH, WIDE]
    turns = [CHAINS, LENGTH, WIDE // 64, 64]
    us = MI300X.moves(4 * prod(x))
    loader(rt, 190)
    batch_of(rt, ([CHAINS, LENGTH], "long int"), ([CHAINS, LENGTH], "long int"))
    acts(rt, tape, MI300X, "embedding", x)
    for _ in range(DEEP):
        norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, 3 * WIDE)
        for _ in range(2):
            timed(rt, tape, "ApplyRotaryEmb", (TURNED, us), (TURNED, us), turns, BF16, gap=14)
        flash(rt, tape, MI300X, [CHAINS, WIDE // 64, LENGTH, 64], causal=False)
        linear(rt, tape, MI300X, x, WIDE)
        acts(rt, tape, MI300X, "add", x)
        norm(rt, tape, MI300X, x)
        linear(rt, tape, MI300X, x, 4 * WIDE)
        acts(rt, tape, MI300X, "gelu", [CHAINS, LENGTH, 4 * WIDE])
        linear(rt, tape, MI300X, [CHAINS, LENGTH, 4 * WIDE], WIDE)
        acts(rt, tape, MI300X, "add", x)
    norm(rt, tape, MI300X, x)
    linear(rt, tape, MI300X, x, WIDE)
    acts(rt, tape, MI300X, "gelu", x)
    norm(rt, tape, MI300X, x)
    linear(rt, tape, MI300X, x, ACIDS)
    compiled_loss(rt, tape, MI300X, CHAINS * LENGTH, ACIDS)
    back(rt, tape)
    total = DEEP * 12 * WIDE**2
    clipped(rt, MI300X, total, 4, 2)
    fused_adamw(rt, MI300X, total / 2)
    few(rt, "add_", [1])
    rt.host(420)


EIGHT, TEXTS, READ, MODEL, FED, KEYS, LAYERS, WORDS = list(range(8)), 2, 8_192, 4_096, 14_336, 1_024, 32, 128_256
TOKENS, NVLINK, COPY_IN, GATHERS = TEXTS * READ, 330e3, 21, 22
LAYER = 2 * MODEL**2 + 2 * MODEL * KEYS + 3 * MODEL * FED
SM90 = ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_32_64x64x128_4x1x1_kernel0_0")  # fmt: skip
H200 = Card(560, 3_900, BF16, HOPPER, SM90)
ONE = H200.moves(2 * TOKENS * MODEL)


def _block(rt: Framed, ways: bool) -> None:
    """A layer of Llama as Inductor makes it, ahead or behind."""
    us = H200.product(TEXTS * MODEL // 128 * READ, READ, 256) / 1.7
    heads, grown = [TEXTS, MODEL // 128, READ, 128], 1.8 if ways else 1
    parts: list[Any] = [("red_fused_add_mul_rms_norm", 2.3), MODEL, KEYS, KEYS, ("poi_fused_cat_mul_neg_rope", 2.6),
                        None, MODEL, ("red_fused_add_mul_rms_norm", 3.4), FED, FED,
                        ("poi_fused_mul_silu", 10.6), -FED]  # fmt: skip
    for place, part in enumerate(reversed(parts) if ways else parts):
        if part is None:
            outer = "aten::_scaled_dot_product_cudnn_attention" + ("_backward" if ways else "")
            rt.op(outer, run=((SM90[ways], us * (2.6 if ways else 1)),), gap=5, us=16, dims=(heads,) * 3, kind=BF16)
        elif isinstance(part, int):
            inner, out = (FED, MODEL) if part < 0 else (MODEL, part)
            mm(rt, H200, (TOKENS, inner, out), ways=ways)
        else:
            rt.host(5)
            triton(rt, f"triton_{part[0]}{'_backward' if ways else ''}_{place}", grown * part[1] * ONE)


class _Sharded:
    """FSDP2: how weights and gradients of a layer travel."""

    def __init__(self, rt: Framed) -> None:
        self.rt, self.out = rt, 0.0
        for stream in (COPY_IN, GATHERS, LINKS):
            rt.free.setdefault(stream, 0.0)

    def gathered(self, count: int) -> float:
        """All ranks' shards, beside the work."""
        rt = self.rt
        rt.free[COPY_IN] = max(rt.free[COPY_IN], self.out)  # no more than one layer ahead
        with rt.span("FSDP::all_gather_copy_in", "user_annotation", us=20), rt.span("fsdp::all_gather_copy_in", us=24):
            end = rt.work(CAST, H200.moves(6 * count / 8), stream=COPY_IN)
        rt.waits(GATHERS, end)
        with rt.span("FSDP::all_gather", "user_annotation", us=14):
            return rt.collective("_allgather_base", rt.vary(28 + 2 * count * 0.875 / NVLINK, 0.03), (count // 8, count),
                                 stream=GATHERS, behind=False, ranks=EIGHT, group="mesh_dp_shard", pg="1")  # fmt: skip

    def arrived(self, came: float, count: int) -> None:
        """The work waits for them and lays them out."""
        rt = self.rt
        with rt.span("FSDP::all_gather_copy_out", "user_annotation", us=20):
            rt.waits(MAIN, came)
            rt.op("fsdp::split_with_sizes_copy", us=20, gap=6, run=(
                ("void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(…)",
                 H200.moves(4 * count)),))  # fmt: skip
            self.out = rt.free[MAIN]

    def scattered(self, count: int) -> float:
        """Sums of a layer's gradients in fp32, each rank keeps its shard."""
        rt = self.rt
        with rt.span("FSDP::post_backward_reduce", "user_annotation", us=50):
            rt.op("fsdp::chunk_cat", us=24, gap=6, run=(
                ("void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(…)",
                 H200.moves(6 * count)),))  # fmt: skip
            us = 30 + 4 * count * 0.875 / NVLINK
            return rt.collective("_reduce_scatter_base", rt.vary(us, 0.03), (count, count // 8), dtype="Float",
                                 kernel="ReduceScatter_Sum_f32_RING_LL", ranks=EIGHT, group="mesh_dp_shard",
                                 pg="1")  # fmt: skip


def titan8b(rt: Marked, fixed: bool) -> None:
    """Nothing to change: Llama 3.1 8B goes on learning law by torchtitan's FSDP2 on the eight H200 of a node, bf16, two
    texts of 8,192 a rank: each layer is compiled, attention is cuDNN's, weights are gathered ahead and gradients
    scattered in fp32 beside the work, activations have room, AdamW is fused, the loss is read each 20th step. Rank 5.
    No shapes.

    Not: communication (hardly any shows), launches, waits, the loader, precision, attention, the optimizer,
    recomputation, the batch.
    """
    groups(rt, 8, default_pg=EIGHT, mesh_dp_shard=EIGHT)
    rt.head["distributedInfo"]["rank"] = 5
    units, numbers, ends = _Sharded(rt), list[int](), WORDS * MODEL
    loader(rt, 200)
    batch_of(rt, ([TEXTS, READ], "long int"), ([TEXTS, READ], "long int"))
    units.arrived(units.gathered(ends), ends)
    few(rt, "embedding", [TEXTS, READ, MODEL], 2 * ONE)
    for number in range(LAYERS):
        with rt.span(f"FSDP::pre_forward (layers.{number})", "user_annotation", us=60):
            units.arrived(units.gathered(LAYER), LAYER)
        rt.sequence += 1
        numbers.append(rt.sequence)
        with region(rt, "fkq2w7d", rt.sequence):
            _block(rt, False)
        with rt.span(f"FSDP::post_forward (layers.{number})", "user_annotation", us=20):
            pass
    units.arrived(units.gathered(ends), ends)
    tape = Tape()
    triton(rt, "triton_red_fused_add_mul_rms_norm_9", 2 * ONE)
    linear(rt, tape, H200, [TEXTS, READ, MODEL], WORDS)
    compiled_loss(rt, tape, H200, TOKENS, WORDS)
    with rt.backward():
        coming = units.gathered(LAYER)
        while tape:
            tape.pop()()
        last = units.scattered(ends)
        for number in reversed(range(LAYERS)):
            with rt.span(f"FSDP::pre_backward (layers.{number})", "user_annotation", us=60):
                units.arrived(coming, LAYER)
                coming = units.gathered(LAYER) if number else 0.0
            with behind(rt, "fb3kx5a", numbers[number]):
                _block(rt, True)
            last = units.scattered(LAYER)
        last = max(last, units.scattered(ends))
    rt.waits(MAIN, last)
    mine = (LAYERS * LAYER + 2 * ends) / 8
    foreach(rt, "_foreach_norm", "LpNormFunctor", H200.moves(4 * mine), 1)
    end = rt.collective("allreduce", 24, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", ranks=EIGHT,
                        group="mesh_dp_shard", pg="1")  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H200.moves(8 * mine), 1)
    fused_adamw(rt, H200, mine)
    rt.host(480)


FRAMES, HIGH, RESULTS = 8, 1_024, 17
ENGINE = ("sm72_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32_"
          "tilesize{}_stage1_warpsize2x2x1_g1_tensor8x8x16")  # fmt: skip
T4 = Card(30, 255, "c10::Half", ("", ""), ("", ""))


def _engine() -> list[tuple[str, float]]:
    """DDRNet-23 as TensorRT made it: convolutions with what stands behind them, two sizes beside one another."""
    parts = [("__myl_TraCasSub_0x1f", 260.0)]
    for place, (count, us) in enumerate(((2, 1_050), (4, 720), (4, 690), (7, 560), (6, 510), (5, 470), (4, 430))):
        for turn in range(count):
            name = ENGINE.format("128x128x64" if (place + turn) % 3 else "96x64x64") + "_kernel_trt"
            parts += [(name, us), (name.replace("tensor8x8x16", "tensor8x8x16_t1r3s3"), us * 0.72)]
        parts.append(("void ResizeBilinear::resizeBilinear<__half, __half, 8>(…)", 190.0))
    return [*parts, ("void genericReformat::copyVectorizedKernel<double, __half, float, true, false, 1>(…)", 310.0)]


def tensorrt(rt: Marked, fixed: bool) -> None:
    """Nothing to change: DDRNet-23 finds weeds in pictures of drones by an engine of Torch-TensorRT on a T4, int8,
    eight pictures of 1,024 a batch: the next batch comes from pinned memory on a stream of its own, classes go back as
    bytes on another, the host waits for those of the batch before while the engine works. No shapes, no rows of steps.

    Not: the wait for the batch before, copies (they are hidden), launches, the loader, precision (it is int8), a larger
    batch.
    """
    picture, classes = [FRAMES, 3, HIGH, HIGH], [FRAMES, HIGH, HIGH]
    for stream in (COPIES, RESULTS):
        rt.free.setdefault(stream, 0.0)
    loader(rt, 240)
    there = ahead(rt, (prod(picture), picture, "unsigned char"))
    for name, passes in (("to", 3), ("sub", 4), ("div", 4)):
        few(rt, name, picture, T4.moves(passes * prod(picture)))
    rt.host(30)
    with rt.span("tensorrt::execute_engine", us=60):
        for name, us in _engine():
            rt.work(name, us)
    rt.op("aten::argmax", run=((REDUCE, T4.moves(2.4 * 19 * prod(classes) / 4)),), dims=(classes,), gap=9)
    few(rt, "to", classes, T4.moves(9 * prod(classes) / 2))
    rt.waits(RESULTS, rt.free[MAIN])
    with rt.span("aten::copy_", us=6):
        end = rt.copy(prod(classes), "DtoH", "Pinned", stream=RESULTS)
    rt.waits(MAIN, there)
    if rt.mark:
        rt.call("EventSynchronize", 3, until=rt.mark + 3)
    rt.mark = end
    rt.host(1_400)


PATCHES, SIDE, BANDS, WIDTHS = 24, 256, 15, (64, 128, 256, 512, 512)
RTX5090 = Card(112, 1_480, BF16, ("", ""), ("", ""))


def _convs() -> list[tuple[Conv, str]]:
    """Down and up, two convolutions a level, with what Inductor puts behind each."""
    found, given = list[tuple[Conv, str]](), BANDS
    for level, width in enumerate(WIDTHS):
        for turn in range(2):
            size = SIDE >> level
            name = "red_fused__native_batch_norm_legit_functional_relu" + ("_max_pool2d_with_indices" if turn else "")
            found.append((Conv(PATCHES, given, width, 3, size, size), name))
            given = width
    for level in reversed(range(len(WIDTHS) - 1)):
        size, width = SIDE >> level, WIDTHS[level]
        for cin in (given + width, width):
            name = "red_fused__native_batch_norm_legit_functional_cat_relu_upsample_bilinear2d"
            found.append((Conv(PATCHES, cin, width, 3, size, size), name))
        given = width
    return found


def clouds(rt: Told, fixed: bool) -> None:
    """Nothing to change: a U-Net of 15 bands learns to take clouds away from satellites' pictures by a plain loop on an
    RTX 5090, autocast in bf16, channels_last, 24 pieces of 256: `torch.compile` fuses norms, ReLUs, sizes and the loss
    between cuDNN's convolutions, the next batch comes from pinned memory on a stream of its own, AdamW is fused, the
    loss is read each 25th step. Shapes.

    Not: launches, waits, the loader, copies (they are hidden), precision, the layout, the optimizer, recompiles, a
    larger batch.
    """
    rt.last = True
    picture, made = [PATCHES, BANDS, SIDE, SIDE], _convs()
    loader(rt, 180)
    there = ahead(rt, (4 * prod(picture), picture, "float"), (4 * prod(picture) * 13 // 15, picture, "float"))
    rt.sequence += 1
    number = rt.sequence
    with region(rt, "fun5et2", number):
        triton(rt, "triton_poi_fused__to_copy_0", RTX5090.moves(6 * prod(picture) + 6 * 17e6))
        for place, (of, name) in enumerate(made):
            x, weight, y = of.dims
            rt.op("aten::convolution", "aten::_convolution", "aten::cudnn_convolution", run=(
                (NHWC[0], of.us(RTX5090)),), gap=4, us=7, dims=(x, weight), kind=BF16)  # fmt: skip
            triton(rt, f"triton_{name}_{place + 1}", RTX5090.moves(2 * 3.2 * prod(y)))
        triton(rt, "triton_red_fused_abs_mean_sub_sigmoid_40", RTX5090.moves(8 * prod(picture)))
    with rt.backward(), behind(rt, "fbk7un3", number):
        triton(rt, "triton_poi_fused_div_mul_sgn_sigmoid_backward_0", RTX5090.moves(8 * prod(picture)))
        for place, (of, name) in enumerate(reversed(made)):
            x, weight, y = of.dims
            triton(rt, f"triton_{name.replace('legit_functional', 'backward')}_{place + 1}",
                   RTX5090.moves(2 * 4.6 * prod(y)))  # fmt: skip
            us = of.us(RTX5090)
            rt.op("aten::convolution_backward", run=((NHWC[1], us), (NHWC[2], 1.05 * us)), us=14, gap=4, kind=BF16,
                  dims=(y, x, weight))  # fmt: skip
    clipped(rt, RTX5090, 17e6)
    fused_adamw(rt, RTX5090, 17e6)
    few(rt, "detach add_", [1])
    rt.waits(MAIN, there)
    rt.host(260)


ASKED, SAID, BROAD, GATED, STACK, PIECES, TAKEN = 128, 2_000, 5_120, 25_600, 64, 151_936, 18
B200 = replace(Card(2_200, 6_300, BF16, NVJET, CUDNN), kind="c10::Float8_e4m3fn")
PRODUCT = "cutlass::device_kernel<GemmUniversal<…, cutlass::float_e4m3_t, …, MainloopSm100TmaUmmaWarpSpecialized…>>"
PAGED = "fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvDenseP32VarSeqQ16Kv128StaticSwapsAbForGen"


def _word() -> list[tuple[str, float]]:
    """Kernels of a word of all requests: weights and the cache are read once, both in fp8."""
    held = 2 * ASKED * SAID * 8 * 128
    layer = [("triton_red_fused_add_rms_norm_quant_fp8_0", 3.2), (PRODUCT, B200.moves(BROAD * 10_240) * 1.1),
             ("void flashinfer::RopeQuantizeKernel<true, 8, __nv_bfloat16, int, __nv_fp8_e4m3>(…)", 3.4),
             ("void vllm::reshape_and_cache_flash_kernel<…, (vllm::Fp8KVCacheDataType)1>(…)", 2.6),
             (PAGED, B200.moves(held) * 1.15), ("triton_poi_fused_quant_fp8_1", 2.4),
             (PRODUCT, B200.moves(BROAD * 8_192) * 1.12), ("triton_red_fused_add_rms_norm_quant_fp8_2", 3.2),
             (PRODUCT, B200.moves(BROAD * 2 * GATED) * 1.08), ("triton_poi_fused_mul_silu_quant_fp8_3", 3.6),
             (PRODUCT, B200.moves(BROAD * GATED) * 1.08)]  # fmt: skip
    return [("triton_poi_fused_embedding_0", 2.8), *(layer * STACK), ("triton_red_fused_add_rms_norm_4", 3.0)]


def vllm(rt: Marked, fixed: bool) -> None:
    """Nothing to change: vLLM (V1) writes for 128 users with Qwen3 32B on a B200, weights and cache in fp8, 2,000 words
    each: a word is one CUDA graph of some 700 kernels, `--async-scheduling` prepares the next word while the GPU reads
    weights and cache, what was drawn goes back on a stream of its own, the host waits for that of the word before. No
    shapes, no rows of steps: a step is a word.

    Not: the wait for the word before, launches (they are one graph), copies, precision (fp8), attention, the batch.
    """
    rt.free.setdefault(TAKEN, 0.0)
    rt.host(1_100)
    with rt.span(f"execute_context_0(0)_generation_{ASKED}({ASKED})", "user_annotation", us=40):
        with rt.span("gpu_model_runner: preprocess", "user_annotation", us=30):
            rt.host(900)
            for nbytes in (4 * ASKED, 4 * ASKED, 8 * ASKED, 4 * ASKED, 4 * ASKED * 64, 4 * ASKED):
                pinned(rt, nbytes, [nbytes // 4], "int")
            few(rt, "index scatter_ add", [ASKED], 2.3)
        with rt.span("gpu_model_runner: forward", "user_annotation", us=40):
            graphed(rt, _word(), 9)
        with rt.span("gpu_model_runner: postprocess", "user_annotation", us=20):
            rt.op("aten::linear", "aten::matmul", "aten::mm", us=7, kind=BF16, dims=([ASKED, BROAD], [BROAD, PIECES]),
                  run=((NVJET[0], B200.moves(2 * BROAD * PIECES)),))  # fmt: skip
        with rt.span("gpu_model_runner: sample", "user_annotation", us=30):
            few(rt, "to div_", [ASKED, PIECES], 24)
            rt.op("_C::top_k_top_p_sampling_from_probs", us=14, gap=20, run=(
                ("void flashinfer::sampling::OnlineSoftmaxFusedKernel<1024, 4, float>(…)", 38.0),
                ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024, …, float>(…)", 96.0)))  # fmt: skip
        with rt.span("gpu_model_runner: bookkeep", "user_annotation", us=30):
            rt.waits(TAKEN, rt.free[MAIN])
            with rt.span("aten::copy_", us=5):
                end = rt.copy(4 * ASKED, "DtoH", "Pinned", stream=TAKEN)
            rt.call("EventRecord", 1)
    if rt.mark:
        rt.call("EventSynchronize", 3, until=rt.mark + 4)
    rt.mark = end
    rt.host(1_500)
