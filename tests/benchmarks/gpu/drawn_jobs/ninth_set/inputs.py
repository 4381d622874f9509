"""Jobs of the ninth set that are about what comes in: pictures, points, rows of tables, batches.

decoded: 48 pictures by `torchvision.io.decode_jpeg(device="cuda")`, each with seven short kernels and a wait; in one
call for all, or a step ahead, it goes. sparse: 20 sparse convolutions, each makes its index pairs and reads how many
there are; layers of one resolution can share them (`indice_key`), then 4 are left; the read cannot be made in another
step. managed: 24 tables of FBGEMM in managed memory, which kernels read over PCIe; `MANAGED_CACHING` keeps most rows on
the device. moved: ROCm says neither what memory is pinned nor how many bytes. waited: `loss.item()`, then 4 ms of
Python on an XPU, whose rows name no streams.
"""

from __future__ import annotations

from ..arrowed import Arrowed
from ..runtime import MAIN
from ..seventh_set import NODE, adamw

CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4"
CIJK = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0"
DECODER, JPEG = 3, 31


def convolutions(rt: Arrowed, count: int, us: float, gemm: str = CONV) -> None:
    """Forward and backward pass of a picture model."""
    for number in range(count):
        with rt.span("aten::conv2d", **{"Sequence number": number}), rt.span("aten::cudnn_convolution"):
            rt.work(gemm, us)
    with rt.backward():
        for number in reversed(range(count)):
            node = {"Sequence number": number, "Fwd thread id": 1}
            with rt.span(NODE + "ConvolutionBackward0", **node), rt.span("ConvolutionBackward0", **node):
                for way in ("dgrad", "wgrad"):
                    rt.work(gemm.replace("fprop", way), us)


def decoded(rt: Arrowed, fixed: bool) -> None:
    """Pictures one by one; without: in one call, whose kernels are as long together."""
    for _ in range(1 if fixed else 48):
        with rt.span("image::decode_jpegs_cuda", us=60 if fixed else 240):
            for part in range(7):
                rt.work(f"void nvjpeg::{('DecodeHuffmanKernel', 'iDctKernel')[part % 2]}<unsigned char>",
                        48 * 11 if fixed else 11)  # fmt: skip
            rt.call("StreamSynchronize", 4, until=rt.free[MAIN] + 4)
        with rt.span("aten::_upsample_bilinear2d_aa"):
            rt.work("void at::native::upsample_gen2d_aa_out_frame<float>", 48 * 14 if fixed else 14)
        rt.host(20 if fixed else 60)
    convolutions(rt, 50, 380)
    adamw(rt, 800)


def sparse(rt: Arrowed, fixed: bool) -> None:
    """Sparse convolutions; a size is read before each can launch."""
    for number in range(20):
        with rt.span("SubMConvFunction", us=25, **{"Sequence number": number}):
            if number % 5 == 0 or not fixed:
                for kernel in ("build_subm_conv_hash_table", "calc_subm_conv_indices", "init_indice_pair"):
                    rt.work(f"void spconv::{kernel}_kernel<int>", 130)
                rt.read()
                rt.host(140)
            rt.work("void cutlass::Kernel<spconv::gather_gemm_scatter_f16_128x128x32>", 700)
    with rt.backward():
        for number in reversed(range(20)):
            node = {"Sequence number": number, "Fwd thread id": 1}
            with rt.span(NODE + "SubMConvFunctionBackward", **node), rt.span("SubMConvFunctionBackward", **node):
                for _ in range(2):
                    rt.work("void cutlass::Kernel<spconv::gather_gemm_scatter_f16_128x128x32>", 700)
    adamw(rt, 500)


def managed(rt: Arrowed, fixed: bool) -> None:
    """Lookups over PCIe; without: of rows that are cached."""
    rows = {"Input Dims": [[24_000_000, 128], [1_572_865], [40_000_000]], "Input type": ["c10::Half", "long", "long"]}
    forward = "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, c10::Half, float, long, 128ul>"
    with rt.span("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", us=40, **rows):
        rt.work(forward, 1_900 if fixed else 17_500)
    for number in range(8):
        shape = {"Input Dims": [[4096], [65536, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 3}
        with rt.span("aten::linear", **shape), rt.span("aten::addmm", **shape, **{"Sequence number": number}):
            rt.work("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 900)
    with rt.backward():
        for number in reversed(range(8)):
            node = {"Sequence number": number, "Fwd thread id": 1}
            with rt.span(NODE + "AddmmBackward0", **node), rt.span("AddmmBackward0", **node):
                for _ in range(2):
                    rt.work("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nt", 900)
        with rt.span(NODE + "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", us=30):
            rt.work("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1",
                    2_600 if fixed else 21_000)  # fmt: skip
    adamw(rt, 250)


def moved(rt: Arrowed, fixed: bool) -> None:
    """ROCm: `x.to(device)` in line, 7.7 ms; without: a step ahead on another stream."""
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        if fixed:
            rt.work("Memcpy HtoD (Host -> Device)", 7_700, stream=5, category="gpu_memcpy", call="MemcpyAsync")
        else:
            end = rt.work("Memcpy HtoD (Host -> Device)", 7_700, category="gpu_memcpy", call="MemcpyWithStream")
            rt.rows[-2]["dur"] = round(end + 5 - rt.rows[-2]["ts"], 3)
            rt.now = max(rt.now, end + 6)
    convolutions(rt, 40, 420, CIJK)
    adamw(rt, 900)


def waited(rt: Arrowed, fixed: bool) -> None:
    """XPU: a read, then Python of a logger."""
    for number in range(20):
        with rt.span("aten::linear", **{"Sequence number": number}), rt.span("aten::addmm"):
            rt.work("gemm_kernel_bf16_xe_hpc", 700)
    with rt.backward():
        for number in reversed(range(20)):
            node = {"Sequence number": number, "Fwd thread id": 1}
            with rt.span(NODE + "AddmmBackward0", **node), rt.span("AddmmBackward0", **node):
                for _ in range(2):
                    rt.work("gemm_kernel_bf16_xe_hpc", 700)
    adamw(rt, 600)
    if not fixed:
        rt.read()
    rt.host(4_000)


def dali(rt: Arrowed, fixed: bool) -> None:
    """DALI decodes the next batch on threads and a stream of its own, while this one trains."""
    at, thread = rt.now, rt.thread
    rt.thread = DECODER
    rt.open.append(0)
    for part in range(24):
        rt.now = at + 400 * part
        name = ("DecodeHuffmanKernel", "iDctKernel", "nvjpegResize")[part % 3]
        rt.work(f"void nvjpeg::{name}<unsigned char>", 160, stream=JPEG)
    rt.now, rt.thread = at, thread
    rt.open.pop()
    rt.host(180)
    with rt.span("aten::copy_"):
        rt.work("Memcpy DtoD (Device -> Device)", 90, category="gpu_memcpy", call="MemcpyAsync", bytes=38 << 20)
    convolutions(rt, 50, 380)
    adamw(rt, 800)
