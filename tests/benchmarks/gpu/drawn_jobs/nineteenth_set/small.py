"""Jobs of the nineteenth set whose host waits for small values: tokens of an expert, boxes of a picture."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import FILL, elementwise, foreach, kernel, linear, node
from ..layers import CAST, REDUCE, Card, Tape, back, fused_adamw
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import GATHER
from ..tenth_set.jobs import H100
from ..twelfth_set.pictures import ADA, HALF, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader

DEEP, TEXT, WIDE, INNER, EXPERTS, TOP = 8, (8, 1_024), 1_024, 768, 32, 4
ADDED = "void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true, ReduceAdd>(…)"
GROUPED = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<…>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90ArrayTmaGmmaWarpSpecialized<…>>>>(…)"
)


def _linear(rt: Framed, tape: Tape, rows: int, wide: int, out: int) -> None:
    """A product of an expert: bound by its weights or by how small it is."""
    us = max(4.6, H100.product(rows, out, wide) * 1.5, H100.moves(2 * wide * out))
    rt.host(10)
    with rt.span("aten::linear", us=6):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        number = rt.op("aten::matmul", "aten::mm", run=((H100.names[0], us),), gap=0, graph=True, us=6,
                       dims=([rows, wide], [wide, out]), kind=BF16)  # fmt: skip

    def backward() -> None:
        with node(rt, "MmBackward0", number):
            for left, right in (([out, rows], [rows, wide]), ([rows, out], [out, wide])):
                rt.op("aten::mm", run=((H100.names[1], us),), gap=1, us=8, dims=(left, right), kind=BF16)
        rt.accumulated()

    tape.append(backward)


def _expert(rt: Framed, tape: Tape, rows: int) -> None:
    """`idx, top_x = torch.where(expert_mask[expert_idx])`, three products, a weight, `index_add_`."""
    tokens = prod(TEXT)
    rt.host(16)
    with rt.span("aten::where", us=4), rt.span("aten::nonzero_numpy", us=3), rt.span("aten::nonzero", us=5):
        rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<…>", 4)
        rt.copy(4, "DtoH", "Pageable", waits=True)
        rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<…>", 5)
    moved = H100.moves(4 * rows * WIDE)
    number = rt.op("aten::index", run=((GATHER, moved),), dims=([tokens, WIDE], [rows]), kind=BF16, gap=20, graph=True)

    def spread() -> None:
        with node(rt, "IndexBackward0", number), rt.span("aten::_index_put_impl_", us=6):
            rt.op("aten::new_zeros", "aten::zero_", "aten::fill_", run=((FILL, H100.moves(2 * tokens * WIDE)),), gap=1)
            rt.op("aten::index_add_", run=((ADDED, 2 * moved),), gap=2, us=7, kind=BF16, dims=([tokens, WIDE], [rows]))

    tape.append(spread)
    for _ in range(2):
        _linear(rt, tape, rows, WIDE, INNER)
    elementwise(rt, tape, H100, "silu", [rows, INNER], back=(("silu_backward", 3),))
    elementwise(rt, tape, H100, "mul", [rows, INNER], 2, (("mul", 3), ("mul", 3)))
    _linear(rt, tape, rows, INNER, WIDE)
    small(rt, tape, ("index",), [rows, 1], 2.4)
    elementwise(rt, tape, H100, "mul", [rows, WIDE], 2, (("mul", 3), ("mul", 3)))
    added = rt.op("aten::index_add_", run=((ADDED, 1.6 * moved),), gap=10, us=7, kind=BF16, graph=True,
                  dims=([tokens, WIDE], [rows], [rows, WIDE]))  # fmt: skip
    tape.append(lambda: rt.grad("IndexAddBackward0", added, "aten::index_select", run=((GATHER, moved),), kind=BF16,
                                dims=([tokens, WIDE], [rows])))  # fmt: skip


def _grouped(rt: Framed, tape: Tape) -> None:
    """The same by `torch._grouped_mm` of sorted tokens; how many an expert has stays on the device."""
    rows, tokens = prod(TEXT) * TOP, prod(TEXT)
    small(rt, None, ("sort", "bincount", "cumsum"), [rows], 9)
    moved = H100.moves(4 * rows * WIDE)

    def product(wide: int, out: int) -> None:
        us = H100.product(rows, out, wide) * 1.35
        number = rt.op("aten::_grouped_mm", run=((GROUPED, us),), gap=14, us=14, kind=BF16, graph=True,
                       dims=([rows, wide], [EXPERTS, wide, out], [EXPERTS]))  # fmt: skip
        tape.append(lambda: rt.grad("GroupedMmBackward0", number, "aten::_grouped_mm", us=20, kind=BF16, run=(
            (GROUPED, us), (GROUPED, us)), dims=([rows, out], [EXPERTS, out, wide], [EXPERTS])))  # fmt: skip

    number = rt.op("aten::index_select", run=((GATHER, moved),), gap=14, kind=BF16, graph=True,
                   dims=([tokens, WIDE], [rows]))  # fmt: skip
    tape.append(lambda: rt.grad("IndexSelectBackward0", number, "aten::index_add_", run=((ADDED, 1.6 * moved),)))
    for _ in range(2):
        product(WIDE, INNER)
    elementwise(rt, tape, H100, "silu", [rows, INNER], back=(("silu_backward", 3),))
    elementwise(rt, tape, H100, "mul", [rows, INNER], 2, (("mul", 3), ("mul", 3)))
    product(INNER, WIDE)
    elementwise(rt, tape, H100, "mul", [rows, WIDE], 2, (("mul", 3), ("mul", 3)))
    added = rt.op("aten::index_add_", run=((ADDED, 1.6 * moved),), gap=10, kind=BF16, graph=True,
                  dims=([tokens, WIDE], [rows]))  # fmt: skip
    tape.append(lambda: rt.grad("IndexAddBackward0", added, "aten::index_select", run=((GATHER, moved),)))


def _routed(rt: Framed, tape: Tape, fixed: bool) -> None:
    tokens = prod(TEXT)
    linear(rt, tape, H100, [*TEXT, WIDE], EXPERTS)
    small(rt, tape, ("softmax", "topk", "sum", "div"), [tokens, EXPERTS], 5)
    if fixed:
        _grouped(rt, tape)
        return
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, H100.moves(2 * tokens * WIDE)),), gap=12)
    small(rt, None, ("one_hot", "permute_copy"), [tokens, TOP, EXPERTS], 7)
    even = tokens * TOP // EXPERTS
    for number in range(EXPERTS):
        _expert(rt, tape, round(even * (0.5 + (number * 7 % EXPERTS) / (EXPERTS - 1))))


def moe_loop(rt: Framed, fixed: bool) -> None:
    """A mixture of 32 experts in transformers' form (Qwen3-MoE) from scratch by Trainer on an H100: each layer loops
    over its experts, `torch.where` waits for which tokens each has, and products of 1,000 rows are launched one by one,
    7,200 works a step that the host does not bring in time; without: tokens are sorted, `torch._grouped_mm`.

    First: experts in one grouped product; without its waits alone the loop is still bound by its launches. Not: a
    loader, the batch, pinned memory.
    """
    tape, x = Tape(), [*TEXT, WIDE]
    loader(rt, 160)
    for _ in range(2):
        pinned(rt, prod(TEXT) * 8, list(TEXT), "long int")
    for _ in range(DEEP):
        fused_norm(rt, tape, H100, x)
        for out in (WIDE, 256, 256):
            linear(rt, tape, H100, x, out)
        flash(rt, tape, H100, [TEXT[0], WIDE // 64, TEXT[1], 64])
        linear(rt, tape, H100, x, WIDE)
        elementwise(rt, tape, H100, "add", x, 2)
        fused_norm(rt, tape, H100, x)
        _routed(rt, tape, fixed)
        elementwise(rt, tape, H100, "add", x, 2)
    fused_norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, 32_000)
    compiled_loss(rt, tape, H100, prod(TEXT), 32_000)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * 0.7e9), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * 0.7e9), 3)
    fused_adamw(rt, H100, 0.7e9)
    rt.host(500)


PICTURES, SIDE, BOXES, ANCHORS = 16, 640, 34, 8_400
ADA_HALF = Card(95, 850, HALF, ADA.card.names, ("", ""))
YOLO = Look(ADA_HALF, ADA.names, ADA.norm, True)
OVERLAPS = ("sub", "clamp", "mul", "sub", "clamp", "mul", "add", "div", "max", "min", "sub", "pow", "add", "div",
            "atan", "sub", "pow", "mul", "add", "div", "mul", "sub")  # fmt: skip


def _conv(rt: Framed, tape: Tape, of: Conv) -> None:
    """A convolution, its batch norm and SiLU in place."""
    conv(rt, tape, YOLO, of)
    y = of.dims[2]
    once = ADA_HALF.moves(ADA_HALF.size * prod(y))
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((YOLO.norm.format("fw"), 3 * once),), dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=HALF, run=((YOLO.norm.format("bw"), 5 * once),)))  # fmt: skip
    elementwise(rt, tape, ADA_HALF, "silu_", y, back=(("silu_backward", 3),))


def _stage(rt: Framed, tape: Tape, cin: int, cout: int, high: int, bottlenecks: int) -> None:
    """A `C2f` of YOLOv8."""
    _conv(rt, tape, Conv(PICTURES, cin, cout, 1, high, high))
    for _ in range(2 * bottlenecks):
        _conv(rt, tape, Conv(PICTURES, cout // 2, cout // 2, 3, high, high))
    dims = [PICTURES, cout, high, high]
    elementwise(rt, tape, ADA_HALF, "cat", dims, back=(("narrow", 2),))
    _conv(rt, tape, Conv(PICTURES, cout, cout, 1, high, high))


def _targets(rt: Framed, fixed: bool) -> None:
    """`v8DetectionLoss.preprocess`: boxes by pictures."""
    rt.op("aten::unique", "aten::_unique2", run=(("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<…>", 11),),
          gap=20, dims=([PICTURES * BOXES],))  # fmt: skip
    small(rt, None, ("zeros", "cat"), [PICTURES, BOXES, 5], 2.4)
    if fixed:
        small(rt, None, ("argsort", "searchsorted", "sub", "index_put_"), [PICTURES * BOXES], 5)
    else:
        for _ in range(PICTURES):
            small(rt, None, ("eq", "sum"), [PICTURES * BOXES], 2.4)
            rt.value("aten::is_nonzero")
            rt.host(12)
            with rt.span("aten::index", us=6), rt.span("aten::nonzero", us=5):
                rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<…>", 4)
                rt.copy(4, "DtoH", "Pageable", waits=True)
                rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<…>", 5)
                rt.work(GATHER, 2.6)
            rt.op("aten::item", gap=8, us=3)
            rt.op("aten::copy_", run=((kernel("copy", 2), 2.3),), gap=14, dims=([BOXES, 5],))
    small(rt, None, ("mul", "sub", "div", "cat"), [PICTURES, BOXES, 4], 2.6)


def yolo(rt: Framed, fixed: bool) -> None:
    """YOLOv8s by ultralytics on an RTX 4090, AMP, 16 pictures of 640: the loss asks for each picture which boxes it has
    (32 waits, while forward's work is done and backward's is not queued), and the bar reads three losses a step;
    without: boxes are placed by a sort, losses stay there. `GradScaler` waits besides, once, which it has to.

    First: waits in the loss; what the bar reads costs next to nothing, as `GradScaler` has waited just before. Not: a
    loader, pinned memory, TF32, mixed precision.
    """
    tape, width = Tape(), (32, 64, 128, 256, 512)
    loader(rt, 190)
    pinned(rt, PICTURES * 3 * SIDE**2, [PICTURES, 3, SIDE, SIDE], "unsigned char")
    for size in ([PICTURES * BOXES], [PICTURES * BOXES, 1], [PICTURES * BOXES, 4]):
        pinned(rt, 4 * prod(size), size)
    picture = [PICTURES, 3, SIDE, SIDE]
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, ADA_HALF.moves(5 * prod(picture))),),
          dims=(picture,))  # fmt: skip
    small(rt, None, ("div",), picture, ADA_HALF.moves(8 * prod(picture)))
    _conv(rt, tape, Conv(PICTURES, 3, width[0], 3, SIDE // 2, SIDE // 2))
    for place, deep in ((1, 1), (2, 2), (3, 2), (4, 1)):
        high = SIDE >> (place + 1)
        _conv(rt, tape, Conv(PICTURES, width[place - 1], width[place], 3, high, high))
        _stage(rt, tape, width[place], width[place], high, deep)
    small(rt, tape, ("max_pool2d",) * 3, [PICTURES, 256, 20, 20], 6)
    for cin, cout, high in ((768, 256, 40), (384, 128, 80), (384, 256, 40), (768, 512, 20)):
        small(rt, tape, ("upsample_nearest2d",), [PICTURES, cout, high, high], 9)
        _stage(rt, tape, cin, cout, high, 1)
    for cin, high in ((128, 80), (256, 40), (512, 20)):
        for _ in range(2):
            for side_in in (cin, 64):
                _conv(rt, tape, Conv(PICTURES, side_in, 64, 3, high, high))
            conv(rt, tape, YOLO, Conv(PICTURES, 64, 72, 1, high, high))
    small(rt, tape, ("cat", "permute", "softmax", "matmul"), [PICTURES, ANCHORS, 64], ADA_HALF.moves(2e8))
    _targets(rt, fixed)
    small(rt, None, ("gt", "bitwise_and", "index", *OVERLAPS, "pow", "mul", "topk", "where", "scatter_add_"),
          [PICTURES, BOXES, ANCHORS], ADA_HALF.moves(10 * PICTURES * BOXES * ANCHORS))  # fmt: skip
    small(rt, None, ("argmax", "gather", "index", "one_hot", "where", "amax", "div", "mul"), [PICTURES, ANCHORS, 80],
          14)  # fmt: skip
    small(rt, tape, ("binary_cross_entropy_with_logits", "sum", "div"), [PICTURES, ANCHORS, 80], 60)
    small(rt, tape, (*OVERLAPS[:12], "cross_entropy_loss", "mul", "sum", "div", "mul", "add"), [4_800, 4], 2.8)
    back(rt, tape)
    unscaled(rt, ADA_HALF, 11.2e6)
    with rt.span("Optimizer.step#SGD.step", "user_annotation", us=350):
        for name in ("add_", "mul_", "add_", "add_"):
            foreach(rt, f"_foreach_{name}", "BinaryOpListAlphaFunctor", 24, 2, 130)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", 30, 2, 150)
    rt.op("aten::add_", run=((REDUCE, 2.4),), dims=([3],), gap=9)
    if not fixed:
        for _ in range(3):
            rt.host(9)
            rt.value()
    rt.host(700)
