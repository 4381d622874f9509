"""Jobs of the thirtieth set whose host is too slow: a table for each column, Fourier layers in a loop over time."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import FILL, Roofline, kernel, node
from ..fifteenth_set.rows import VOLTA_CUTLASS, VOLTA_HALF
from ..kineto import device
from ..layers import REDUCE, Tape, back, dense, norm
from ..twelfth_set.pictures import CUTLASS, HALF, TF32, unscaled
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam
from ..twenty_fourth_set.rows import GATHER, NATIVE, acts, few, recorded

ROWS, COLUMNS, EACH, WIDE = 16_384, 220, 16, 1_024
V100 = Roofline(60, 770, HALF, VOLTA_HALF, VOLTA_CUTLASS)
FLOAT = Roofline(12.5, 770, "float", ("volta_sgemm_128x64_tn", "volta_sgemm_64x64_nn"), VOLTA_CUTLASS)
CUB = "void at_cuda_detail::cub::Device{}Kernel<at_cuda_detail::cub::…Policy{}, …>"
SORTED = (  # `embedding_backward_cuda_kernel`: indices are sorted, then segments are found and summed
    (CUB.format("RadixSortHistogram", 700), 0.012),
    (CUB.format("RadixSortExclusiveSum", 700), 0.0),
    (CUB.format("RadixSortOnesweep", 700), 0.03),
    (CUB.format("RadixSortOnesweep", 700), 0.03),
    (NATIVE + "krn_partials_per_segment<long>(long*, long const*, long*, long)", 0.004),
    (CUB.format("Scan", 600), 0.004),
    (NATIVE + "krn_partial_segment_offset<long>(long*, long const*, long const*, long const*, long*)", 0.004),
)


def _embedded(rt: Framed, tape: Tape, count: int, rows: int, sparse: float) -> None:
    """`nn.Embedding` of so many indices;  sparse: how much of the work of a sort is latency, µs."""
    us, n = FLOAT.moves(8 * count * EACH), count * EACH
    number = rt.op("aten::embedding", "aten::index_select", run=((GATHER.replace("{k}", "float"), us),), graph=True,
                   dims=([rows, EACH], [count]), gap=15)  # fmt: skip
    sums = (
        (NATIVE + "compute_grad_weight<float, long>(long*, float const*, long*, long, long, …)", FLOAT.moves(4 * n)),
        (NATIVE + "sum_and_scatter<float, long>(long*, float*, long, long*, …)", 3.2),
    )

    def backward() -> None:
        with node(rt, "EmbeddingBackward0", number), rt.span("aten::embedding_backward", us=4):
            rt.host(4)
            run = ((FILL, FLOAT.moves(4 * rows * EACH)), (kernel("arange", 1), 2.4))
            run += tuple((name, sparse + part * count / 1e3) for name, part in SORTED)
            rt.op("aten::embedding_dense_backward", us=24, gap=1, dims=([count, EACH], [count]), run=run + sums)
        rt.accumulated()

    tape.append(backward)


def columns(rt: Framed, fixed: bool) -> None:
    """A network for claims with 220 columns of categories learns by fastai's tabular learner on a V100, AMP in fp16,
    16,384 rows a step: each column has its own `nn.Embedding` of 16 values, which the model calls in a loop; each is a
    kernel forward and nine behind of a few µs, which take longer to launch than to run; without: one table with
    offsets, called once. Batches come pinned, Adam by lists, `GradScaler` waits once. Shapes.

    First: launches (a loop over 220 tables; one table, `EmbeddingBag`, graphs). Not: the loader, copies, `GradScaler`'s
    wait, the optimizer, precision (a V100 has neither TF32 nor bf16).
    """
    tape, wide = Tape(), COLUMNS * EACH
    loader(rt, 160)
    pinned(rt, 8 * ROWS * COLUMNS, [ROWS, COLUMNS], "long int")
    pinned(rt, 4 * ROWS * 30, [ROWS, 30])
    pinned(rt, 8 * ROWS, [ROWS], "long int")
    if fixed:
        few(rt, "add", [ROWS, COLUMNS], FLOAT.moves(16 * ROWS * COLUMNS))
        _embedded(rt, tape, ROWS * COLUMNS, 900 * COLUMNS, 3)
        few(rt, "slice", [ROWS, wide])
    else:
        for _ in range(COLUMNS):
            few(rt, "select", [ROWS, COLUMNS], gap=4)
            _embedded(rt, tape, ROWS, 900, 2.3)
    acts(rt, tape, FLOAT, "cat dropout", [ROWS, wide])
    for given, out in ((wide + 30, WIDE), (WIDE, WIDE // 2)):
        casts(rt, V100, [out, given])
        if given > WIDE:
            acts(rt, tape, FLOAT, "to", [ROWS, given])
        dense(rt, tape, V100, ROWS, (ROWS, given, out))
        acts(rt, tape, V100, "relu_", [ROWS, out])
        norm(rt, tape, FLOAT, [ROWS, out])
        acts(rt, tape, FLOAT, "dropout", [ROWS, out])
    casts(rt, V100, [2, WIDE // 2])
    dense(rt, tape, V100, ROWS, (ROWS, WIDE // 2, 2))
    acts(rt, tape, FLOAT, "logsumexp mul mean", [ROWS, 2])
    back(rt, tape)
    unscaled(rt, FLOAT, 7.3e6)
    adam(rt, FLOAT, 7.3e6, "Adam", 1 if fixed else 4)
    few(rt, "lerp_", [1])
    rt.host(260)


RTX5090_DEVICE = device("NVIDIA GeForce RTX 5090", (12, 0), 170, 31)
FLOWS, GRID, WIDTH, MODES, LAYERS, TIMES = 32, 64, 20, 12, 4, 10
RTX5090 = Roofline(80, 1_550, "float", TF32, CUTLASS)
FFT = "void regular_fft<{}u, EPT<8u>, {}u, 4u, padding_t<0u>, twiddle_t<0u>, loadstore_modifier_t<2u>, …>(…)"
COMPLEX = "void at::native::vectorized_elementwise_kernel<2, at::native::{}<c10::complex<float>>, std::array<…>>(…)"
CGEMM = "void cutlass::Kernel2<cutlass_80_simt_cgemm_64x64_8x4_{}_align1>(cutlass_80_simt_cgemm_64x64_8x4_{}_align1::…)"


def _spectral(rt: Framed, tape: Tape) -> None:
    """`SpectralConv2d`: to frequencies, two corners by complex weights, back."""
    x, half = [FLOWS, WIDTH, GRID, GRID], [FLOWS, WIDTH, GRID, GRID // 2 + 1]
    once, there = RTX5090.moves(8 * prod(x)), RTX5090.moves(8 * prod(half))
    rfft = rt.op("aten::fft_rfft2", "aten::_fft_r2c", gap=22, us=16, graph=True, dims=(x,), run=(
        (FFT.format(64, 16) + "_r2c", once), (FFT.format(64, 8), 2 * there)))  # fmt: skip
    tape.append(lambda: rt.grad("FftR2CBackward0", rfft, "aten::_fft_c2c", us=16, dims=(half,), run=(
        (COMPLEX.format("FillFunctor"), there), (COMPLEX.format("CopyFunctor"), there), (FFT.format(64, 8), 2 * there),
        (FFT.format(64, 16), there), (kernel("mul", 2), once))))  # fmt: skip
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((COMPLEX.format("FillFunctor"), there),), gap=8,
          dims=(half,))  # fmt: skip
    for _ in range(2):
        corner = [MODES * MODES, FLOWS, WIDTH]
        few(rt, "slice slice slice slice", half, gap=3)
        number = rt.op("aten::einsum", "aten::bmm", gap=38, us=14, graph=True, dims=(corner, [MODES**2, WIDTH, WIDTH]),
                       run=((COMPLEX.format("CopyFunctor"), 3.1), (COMPLEX.format("CopyFunctor"), 3.1),
                            (CGEMM.format("nn", "nn"), 7.5)))  # fmt: skip
        put = rt.op("aten::copy_", gap=12, graph=True, dims=(corner,), run=((COMPLEX.format("CopyFunctor"), 3.2),))

        def backward(number: int = number, put: int = put, corner: list[int] = corner) -> None:
            rt.grad("CopySlices", put, "aten::copy_", dims=(half,), us=14, run=(
                (COMPLEX.format("CopyFunctor"), there), (COMPLEX.format("FillFunctor"), 2.4)))  # fmt: skip
            with node(rt, "BmmBackward0", number):
                for way in ("nt", "tn"):
                    rt.op("aten::conj", us=2, gap=1)
                    rt.op("aten::resolve_conj", "aten::clone", "aten::copy_", gap=1, dims=(corner,),
                          run=((COMPLEX.format("conj_kernel"), 3.0),))  # fmt: skip
                    rt.op("aten::bmm", gap=1, us=8, dims=(corner,), run=((CGEMM.format(way, way), 7.8),))
            with node(rt, "SliceBackward0", number):
                rt.op("aten::slice_backward", gap=1, us=8, dims=(corner,), run=(
                    (COMPLEX.format("FillFunctor"), there), (COMPLEX.format("CopyFunctor"), 3.2)))  # fmt: skip
            rt.accumulated()
            rt.op("aten::add_", gap=2, dims=(corner,), run=((COMPLEX.format("CUDAFunctor_add"), 3.4),))

        tape.append(backward)
    irfft = rt.op("aten::fft_irfft2", "aten::_fft_c2r", gap=22, us=18, graph=True, dims=(half,), run=(
        (COMPLEX.format("CopyFunctor"), there), (FFT.format(64, 8), 2 * there), (FFT.format(64, 16) + "_c2r", once),
        (kernel("mul", 2), once)))  # fmt: skip
    tape.append(
        lambda: rt.grad(
            "FftC2RBackward0",
            irfft,
            "aten::_fft_r2c",
            us=16,
            dims=(x,),
            run=((FFT.format(64, 16) + "_r2c", once), (FFT.format(64, 8), 2 * there), (COMPLEX.format("mul"), there)),
        )
    )


def _pointwise(rt: Framed, tape: Tape, given: int, out: int, side: int = GRID) -> None:
    """`nn.Conv2d(…, 1)`."""
    us, x = RTX5090.product(FLOWS * side**2, out, given), [FLOWS, given, side, side]
    weight = [out, given, 1, 1]
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=15,
                   run=((TF32[0], max(us, 5.5)), (kernel("add_", 2), RTX5090.moves(8 * FLOWS * out * side**2))),
                   graph=True, dims=(x, weight))  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", us=18, gap=1, dims=(x, weight), run=(
                (TF32[1], max(us, 5.8)), (TF32[1], max(us, 6.4)), (REDUCE, RTX5090.moves(4 * prod(x)))))  # fmt: skip
        for _ in range(2):
            rt.accumulated()

    tape.append(backward)


def _rolled(rt: Framed) -> None:
    """Ten times the model, each fed with what it said before, then all of it backwards."""
    tape = Tape()
    x = [FLOWS, WIDTH, GRID, GRID]
    for _ in range(TIMES):
        few(rt, "repeat repeat", [FLOWS, GRID, GRID], 2.6)
        acts(rt, tape, RTX5090, "cat", [FLOWS, GRID, GRID, 12])
        dense(rt, tape, RTX5090, FLOWS, (FLOWS * GRID**2, 12, WIDTH))
        acts(rt, tape, RTX5090, "turn", x)
        for layer in range(LAYERS):
            _spectral(rt, tape)
            for _ in range(2):
                _pointwise(rt, tape, WIDTH, WIDTH)
                acts(rt, tape, RTX5090, "gelu", x)
            _pointwise(rt, tape, WIDTH, WIDTH)
            acts(rt, tape, RTX5090, "add gelu" if layer < LAYERS - 1 else "add", x)
        _pointwise(rt, tape, WIDTH, 4 * WIDTH)
        acts(rt, tape, RTX5090, "gelu", [FLOWS, 4 * WIDTH, GRID, GRID])
        _pointwise(rt, tape, 4 * WIDTH, 1)
        acts(rt, tape, RTX5090, "sub pow sum sqrt div sum add cat", [FLOWS, GRID * GRID])
    back(rt, tape)


def fno(rt: Framed, fixed: bool) -> None:
    """A Fourier neural operator learns Navier-Stokes by its authors' script on an RTX 5090, fp32 with TF32, 32 flows of
    64 x 64: a loop over ten times calls four layers of small transforms, complex products, copies of corners and 1 x 1
    convolutions, some 2,800 kernels of a few µs, which take longer to launch than to run; without: a CUDA graph of both
    passes. The data lie on the GPU, Adam is by lists, the loss is summed there. Shapes, no rows of steps.

    First: launches (graphs, compile). Not: the loader, copies, waits, TF32, a larger batch alone, the layout.
    """
    for size in ([FLOWS, GRID, GRID, 10], [FLOWS, GRID, GRID, TIMES]):
        few(rt, "index", size, RTX5090.moves(8 * prod(size)))
    if fixed:
        recorded(rt, _rolled, 1)
    else:
        _rolled(rt)
    adam(rt, RTX5090, 0.93e6, "Adam", 1)
    few(rt, "add_ add_", [1])
    rt.host(150)
