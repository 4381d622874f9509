"""What the twenty-fourth set's jobs share: ops by the kernels that PyTorch has for them, masks, losses, graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ..eighteenth_set.rows import graphed
from ..eleventh_set.rows import COPY, FILL, elementwise, kernel
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape
from ..sixteenth_set.rows import INDEX
from ..twelfth_set.rows import Framed

NATIVE = "void at::native::(anonymous namespace)::"
CAT = NATIVE + "CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::OpaqueType<{b}u>, unsigned …>"
GATHER = NATIVE + "indexSelectLargeIndex<{k}, long, unsigned int, 2, 2, -2, true>(…)"
SCALED = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::masked_scale_kernel<…>>"
LOSS = NATIVE + "nll_loss_{}_reduce_cuda_kernel_2d<float, float, long>(…)"
SOFT = NATIVE + "cunn_SoftMax{}<8, {}, float, {}, at::native::(anonymous namespace)::LogSoftMax{}Epilogue>(…)"


@dataclass(frozen=True)
class Known:
    """An op: its rows, its kernel, its node, that one's rows and kernel;  moves: in sizes, forward and backward."""

    ops: tuple[str, ...]
    run: str
    node: str
    inner: tuple[str, ...]
    back: str
    moves: tuple[float, float]


KNOWN = {
    "softmax": Known(("aten::softmax", "aten::_softmax"),
                     "void (anonymous namespace)::softmax_warp_forward<{k}, {k}, float, 10, false, false>(…)",
                     "SoftmaxBackward0", ("aten::_softmax_backward_data",),
                     "void (anonymous namespace)::softmax_warp_backward<{k}, {k}, float, 10, false, false>(…)", (2, 3)),
    "dropout": Known(("aten::dropout", "aten::native_dropout"),
                     NATIVE + "fused_dropout_kernel_vec<{k}, float, unsigned int, 1, 4, bool>(…)",
                     "NativeDropoutBackward0", ("aten::native_dropout_backward",), SCALED, (2.5, 2.5)),
    "cat": Known(("aten::cat",), CAT, "CatBackward0", ("aten::narrow",), "", (2, 0)),
    "stack": Known(("aten::stack", "aten::cat"), CAT, "StackBackward0", ("aten::unbind",), "", (2, 0)),
    "turn": Known(("aten::contiguous", "aten::clone", "aten::copy_"), COPY, "CloneBackward0",
                  ("aten::contiguous", "aten::clone", "aten::copy_"), COPY, (2, 2)),
    "roll": Known(("aten::roll",), "void roll_cuda_kernel<{k}>({k} const*, {k}*, long, long, …)", "RollBackward0",
                  ("aten::roll",), "void roll_cuda_kernel<{k}>({k} const*, {k}*, long, long, …)", (2, 2)),
    "embedding": Known(("aten::embedding", "aten::index_select"), GATHER, "EmbeddingBackward0",
                       ("aten::embedding_backward", "aten::embedding_dense_backward"),
                       NATIVE + "embedding_backward_feature_kernel<{k}, float, long>(…)", (2, 3)),
    "max_pool2d": Known(("aten::max_pool2d", "aten::max_pool2d_with_indices"),
                        NATIVE + "max_pool_forward_nhwc<{k}, int>(…)", "MaxPool2DWithIndicesBackward0",
                        ("aten::max_pool2d_with_indices_backward",), NATIVE + "max_pool_backward_nhwc<{k}, float>(…)",
                        (5, 6)),
    "upsample": Known(("aten::upsample_bilinear2d",), NATIVE + "upsample_bilinear2d_nhwc_out_frame<{k}, float>(…)",
                      "UpsampleBilinear2DBackward0", ("aten::upsample_bilinear2d_backward",),
                      NATIVE + "upsample_bilinear2d_backward_nhwc_out_frame<{k}, float>(…)", (1.6, 2.5)),
    "mean": Known(("aten::mean",), REDUCE.replace("sum", "MeanOps"), "MeanBackward1", ("aten::div",),
                  kernel("div", 2), (1, 1)),
    "sum": Known(("aten::sum",), REDUCE, "SumBackward1", ("aten::expand",), "", (1, 0)),
    "logsumexp": Known(("aten::log_softmax", "aten::_log_softmax"), SOFT.format("Forward", "{k}", "float", "Forward"),
                       "LogSoftmaxBackward0", ("aten::_log_softmax_backward_data",),
                       SOFT.format("Backward", "{k}", "float", "Backward"), (2, 3)),
}  # fmt: skip
_BACK = {
    "gelu": (("gelu_backward", 3),), "silu": (("silu_backward", 3),), "relu": (("threshold_backward", 3),),
    "relu_": (("threshold_backward", 3),), "sigmoid": (("sigmoid_backward", 3),), "tanh": (("tanh_backward", 3),),
    "mul": (("mul", 3), ("mul", 3)), "sub": (("neg", 2),), "exp": (("mul", 3),), "log": (("div", 3),),
    "pow": (("pow", 2), ("mul", 3)), "div": (("div", 2),),
}  # fmt: skip
VIEWS = ("select", "slice", "expand", "unsqueeze")
PLAIN = {
    **dict.fromkeys(("sum", "max", "min", "any", "argmax", "argmin", "prod"), REDUCE),
    **dict.fromkeys(
        ("scatter_", "gather", "one_hot"), "void at::native::_scatter_gather_elementwise_kernel<128, 8>(…)"
    ),
    **dict.fromkeys(("repeat", "clone", "copy_", "to"), COPY),
    **dict.fromkeys(("stack", "cat"), CAT.replace("{b}", "4")),
    "index": INDEX,
    "zeros_like": FILL,
    "cumsum": "void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::…Policy600, …>(…)",
    "multinomial": NATIVE
    + "sampleMultinomialOnce<float, float>(long*, long, int, float const*, float const*, int, int)",
    "softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(…)",
}
_PAIRS = ("add", "add_", "mul", "sub")


def acts(rt: Framed, tape: Tape | None, card: Card, names: str, size: list[int], *, gap: float = 8) -> None:
    """Ops one by one, each of a tensor of this size; `scale` is `mul` by a number.  tape: None without gradients."""
    for name in names.split():
        if name not in KNOWN:
            plain = "mul" if name == "scale" else name
            back = (("mul", 2),) if name == "scale" else _BACK.get(name, ())
            kept = [] if tape is None else tape
            if tape is None:
                us = card.moves((3 if name in _PAIRS else 2) * card.size * prod(size))
                run = ((kernel(plain, 2, card.kind), us),)
                rt.op(f"aten::{plain}", run=run, dims=(size,), kind=card.kind, gap=gap)
                continue
            elementwise(rt, kept, card, plain, size, 2 if name in _PAIRS else 1, back)
            continue
        _known(rt, tape, card, KNOWN[name], size, gap)


def _known(rt: Framed, tape: Tape | None, card: Card, of: Known, size: list[int], gap: float) -> None:
    nbytes = card.size * prod(size)
    named = {"k": card.kind, "b": card.size}

    def run(name: str, moves: float) -> tuple[tuple[str, float], ...]:
        filled = name.replace("{k}", named["k"]).replace("{b}", str(named["b"]))  # type: ignore[arg-type]
        return ((filled, card.moves(moves * nbytes)),) if name else ()

    number = rt.op(*of.ops, run=run(of.run, of.moves[0]), dims=(size,), kind=card.kind, gap=gap, us=5,
                   graph=tape is not None)  # fmt: skip
    if tape is not None:
        tape.append(lambda: rt.grad(of.node, number, *of.inner, run=run(of.back, of.moves[1]), dims=(size,),
                                    kind=card.kind))  # fmt: skip


def few(rt: Framed, names: str, size: list[int], us: float = 2.3, gap: float = 6) -> None:
    """Small ops without gradients."""
    for name in names.split():
        run = () if name in VIEWS else ((PLAIN.get(name, kernel(name, 2)), us),)
        rt.op(f"aten::{name}", run=run, dims=(size,), gap=gap)


def products(rt: Framed, tape: Tape | None, card: Card, sizes: tuple[int, int, int, int]) -> None:
    """`torch.matmul` of so many matrices of (rows, inner, columns)."""
    count, rows, inner, columns = sizes
    us = max(2 * count * rows * inner * columns / card.tflops / 1e6,
             card.moves(card.size * count * (rows * inner + inner * columns + rows * columns)))  # fmt: skip
    dims = ([count, rows, inner], [count, inner, columns])
    number = rt.op("aten::matmul", "aten::bmm", run=((card.names[0], us),), dims=dims, graph=tape is not None, gap=15,
                   kind=card.kind)  # fmt: skip
    if tape is not None:
        tape.append(lambda: rt.grad("BmmBackward0", number, "aten::bmm", run=((card.names[1], us),) * 2, dims=dims,
                                    kind=card.kind))  # fmt: skip


def judged(rt: Framed, tape: Tape, card: Card, rows: int, classes: int) -> None:
    """`F.cross_entropy` in fp32."""
    n, size = rows * classes, [rows, classes]
    behind = ((SOFT.format("Backward", "float", "float", "Backward"), card.moves(12 * n)),)
    stores = ((FILL, card.moves(4 * n)), (LOSS.format("backward"), 3 + rows / 900))
    soft = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", graph=True, dims=(size,),
                 gap=14, run=((SOFT.format("Forward", "float", "float", "Forward"), card.moves(8 * n)),))  # fmt: skip
    chosen = rt.op("aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss_forward", graph=True, dims=(size, [rows]),
                   run=((LOSS.format("forward"), 3 + rows / 900),), gap=3)  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", soft, "aten::_log_softmax_backward_data", dims=(size, size),
                                run=behind))  # fmt: skip
    tape.append(lambda: rt.grad("NllLossBackward0", chosen, "aten::nll_loss_backward", dims=([], size, [rows]),
                                run=stores))  # fmt: skip


def chosen(rt: Framed, size: list[int], tape: Tape | None = None) -> None:
    """`x[mask]`: the host waits until it knows how often the mask is true."""
    more = {}
    if tape is not None:
        rt.sequence += 1
        more = {"Sequence number": rt.sequence, "Fwd thread id": 0}
        number = rt.sequence
        tape.append(lambda: rt.grad("IndexBackward0", number, "aten::index_put_", dims=(size,), run=(
            (FILL, 2.2), (INDEX.replace("gpu_index_kernel", "index_put_kernel"), 3))))  # fmt: skip
    rt.host(6)
    with rt.span("aten::index", us=7, **more, **inputs((size, size[:1]), "float")):
        with rt.span("aten::nonzero", us=8, **inputs((size[:1],), "bool")):
            rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy600, …>", 2.6)
            rt.copy(8, "DtoH", "Pageable", waits=True)
            rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy600, …>", 3.1)
        rt.work(INDEX, 2.8)


def recorded(rt: Framed, job: Callable[[Framed], None], number: int) -> None:
    """A job's kernels by one launch of a CUDA graph."""
    other = Framed(rt.device, seed=24)
    job(other)
    graphed(rt, [(row["name"], row["dur"]) for row in other.rows if row["cat"] == "kernel"], number)
