"""Jobs of the twenty-eighth set whose loop waits for the GPU: classes that may be absent, pictures that are changed by
masks.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.rows import FILL
from ..kineto import inputs
from ..layers import CAST, Card, Tape, back, dense
from ..seventh_set import BF16
from ..sixteenth_set.rows import INDEX
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, V100, resnet, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fourth_set.rows import NATIVE, VIEWS, acts, chosen, few, judged
from ..twenty_sixth_set.rows import PROFILED

STREETS, HIGH, WIDE, NAMED = 8, 480, 480, 11
PRESENT = (7, 8, 6, 9, 7, 7, 5, 8, 9, 6)
CARD, FLOAT = V100.card, replace(V100.card, kind="float")
PIXELS = HIGH * WIDE
SORTS = (
    "void at_cuda_detail::cub::DeviceRadixSortHistogramKernel<at_cuda_detail::cub::…Policy<…>>",
    "void at_cuda_detail::cub::DeviceRadixSortExclusiveSumKernel<at_cuda_detail::cub::…Policy<…>>",
    *("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::…Policy<…>>",) * 4,
)


SCATTER = "void at::native::_scatter_gather_elementwise_kernel<128, 8>(…)"


def _lovasz(rt: Framed, tape: Tape) -> None:
    """Errors of a class, sorted, times the gradient of Jaccard's index."""
    size = [PIXELS]
    few(rt, "select", size)
    acts(rt, tape, FLOAT, "sub abs", size)
    number = rt.op("aten::sort", dims=(size,), graph=True, gap=9, us=16, run=tuple((name, 6.2) for name in SORTS))
    tape.append(lambda: rt.grad("SortBackward0", number, "aten::value_selecting_reduction_backward", "aten::scatter_",
                                dims=(size,), run=((SCATTER, 3),)))  # fmt: skip
    few(rt, "index", size, 3.6)
    few(rt, "sum cumsum sub sub cumsum add div sub slice sub", size, 3.2)
    acts(rt, tape, FLOAT, "mul sum", size)  # `torch.dot`


def _judged(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`lovasz_softmax(per_image=True, classes="present")`: for each class of each picture whether it is there."""
    acts(rt, tape, FLOAT, "to softmax", [STREETS, NAMED, HIGH, WIDE])
    for place in range(STREETS):
        few(rt, "select unsqueeze", [NAMED, HIGH, WIDE])
        acts(rt, tape, FLOAT, "turn", [PIXELS, NAMED])
        few(rt, "ne", [PIXELS])
        there = PRESENT[(place + 3 * rt.number) % len(PRESENT)]
        for of in range(NAMED):
            absent = of * there // NAMED == (of + 1) * there // NAMED
            if fixed and absent:
                continue
            few(rt, "eq to", [PIXELS], 2.6)
            if not fixed:
                few(rt, "sum eq", [PIXELS], 3)
                rt.value("aten::is_nonzero")
            if not absent:
                _lovasz(rt, tape)
        acts(rt, tape, FLOAT, "stack mean", [there])
    acts(rt, tape, FLOAT, "stack mean", [STREETS])


def lovasz(rt: Framed, fixed: bool) -> None:
    """A network on ResNet-50 learns eleven things of streets on a V100, AMP in fp16, channels_last, eight pictures of
    480: the Lovász loss, picture by picture, asks `fg.sum() == 0` of each class, so that the host waits 88 times
    between the passes and launches some twenty small kernels after each wait while the GPU idles; without: which
    classes are there comes with the labels, launches run ahead. SGD by lists, `GradScaler` waits once. Shapes, no rows
    of steps.

    First: waits in the loss (a value of each class). Not: `GradScaler`'s wait, the loader, the layout, TF32 or bf16,
    which a V100 has not; launches of small kernels at most beside the waits.
    """
    tape, picture = Tape(), [STREETS, 3, HIGH, WIDE]
    loader(rt, 200)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * STREETS * PIXELS, [STREETS, HIGH, WIDE], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    resnet(rt, tape, V100, STREETS, (15, 15))
    for cin, out, side in ((2_048, 256, 30), (256, 128, 60), (128, 64, 120), (64, 64, 240)):
        acts(rt, tape, CARD, "upsample", [STREETS, cin, side, side])
        conv_norm(rt, tape, V100, Conv(STREETS, cin, out, 3, side, side))
        conv_norm(rt, tape, V100, Conv(STREETS, out, out, 3, side, side))
    conv(rt, tape, V100, Conv(STREETS, 64, NAMED, 1, 240, 240))
    acts(rt, tape, CARD, "upsample", [STREETS, NAMED, HIGH, WIDE])
    _judged(rt, tape, fixed)
    back(rt, tape)
    unscaled(rt, CARD, 37e6)
    sgd(rt, CARD, 37e6)
    few(rt, "add_", [1])
    rt.host(260)


SHOWN, ROOM = 56, 224
A100 = Card(150, 1_400, BF16, AMPERE, FLASH)
PIXEL = replace(A100, kind="float")
LOOK = Look(A100, tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),  # type: ignore[arg-type]
            ADA.norm.replace("__half2", "__nv_bfloat162"), True)  # fmt: skip
SAMPLED = NATIVE + "grid_sampler_2d_kernel<float, int>(int, …)"
# of each change: its share of pictures, its values by name, what it does to them
CHANGES = (
    (0.5, ("batch_prob", "order"), "flip"),
    (0.8, ("batch_prob", "angle", "center", "scale", "translations", "shear"), "affine_grid grid_sampler"),
    (0.8, ("batch_prob", "brightness_factor", "contrast_factor", "saturation_factor", "hue_factor"),
     "add clamp mul clamp max min sub div add where fmod cat mul add floor sub mul mul mul stack gather cat"),
    (0.2, ("batch_prob",), "mul sum repeat"),
    (0.3, ("batch_prob", "sigma"), "pad conv2d"),
    (0.3, ("batch_prob", "thresholds", "additions"), "ge sub where add clamp"),
    (0.3, ("batch_prob", "widths", "heights", "xs", "ys", "values"), "arange ge lt bitwise_and where"),
)  # fmt: skip


def _kernel(rt: Framed, name: str, size: list[int]) -> None:
    us = PIXEL.moves(8 * prod(size))
    if name in ("grid_sampler", "conv2d"):
        inner = ("aten::grid_sampler_2d",) if name == "grid_sampler" else ("aten::_conv_depthwise2d",)
        run = SAMPLED if name == "grid_sampler" else NATIVE + "conv_depthwise2d_forward_kernel_generic<float, int>(…)"
        rt.op(f"aten::{name}", *inner, run=((run, 1.7 * us),), dims=(size,), gap=18)
        return
    few(rt, name, size if name not in VIEWS else size[:1], us if name not in ("arange", "ge", "lt") else 3, 13)


def _taken(rt: Framed, size: list[int]) -> None:
    """`input[to_apply]`: how many pictures, the host asks the GPU."""
    rt.host(6)
    with rt.span("aten::index", us=7, **inputs(([SHOWN, *size[1:]], [SHOWN]), "float")):
        with rt.span("aten::nonzero", us=8, **inputs(([SHOWN],), "bool")):
            rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy800, …>", 2.6)
            rt.copy(8, "DtoH", "Pageable", waits=True)
            rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy800, …>", 3.1)
        rt.work(INDEX, PIXEL.moves(8 * prod(size)))


def _changed(rt: Framed, share: float, values: tuple[str, ...], names: str, fixed: bool) -> None:
    """A `RandomX` of Kornia: values are drawn on the host, those pictures that are meant are changed."""
    count = round(SHOWN * share * rt.vary(1, 0.1))
    size = [SHOWN if fixed else count, 3, ROOM, ROOM]
    rt.host(90)
    on_host(rt, "aten::bernoulli_", 5, [SHOWN])
    for _ in values[1:]:
        on_host(rt, "aten::rand", 6, [SHOWN])
        on_host(rt, "aten::mul", 3, [SHOWN])
    for _ in values:
        if fixed:
            pinned(rt, 4 * SHOWN, [SHOWN])
        else:
            rt.moved(4 * SHOWN, 4, [SHOWN])
    if not fixed:
        few(rt, "all", [SHOWN])
        rt.value("aten::is_nonzero")
        _taken(rt, size)
        for _ in values[1:]:
            chosen(rt, [SHOWN])
    rt.host(40)
    for name in names.split():
        _kernel(rt, name, size)
    if fixed:
        few(rt, "where", size, PIXEL.moves(12 * prod(size)))
        return
    with rt.span("aten::index_put_", us=9):
        with rt.span("aten::nonzero", us=8):
            rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy800, …>", 2.4)
            rt.copy(8, "DtoH", "Pageable", waits=True)
            rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy800, …>", 2.9)
        rt.work(INDEX.replace("gpu_index_kernel", "index_put_kernel"), PIXEL.moves(8 * prod(size)))


def kornia(rt: Framed, fixed: bool) -> None:
    """ResNet-50 learns plants by Lightning (`precision="bf16-mixed"`) on an A100, channels_last, 56 pictures of 224:
    Kornia changes pictures on the GPU before each step, its values are moved one by one from pageable memory, and
    masks of what is meant are read of the GPU, so that the host waits some sixty times before the forward pass, and
    launches that from an empty queue; without: pictures that are not meant are kept by `where`, values come pinned.
    Workers are ahead, SGD by lists, the loss is logged each 50th step. Shapes.

    First: waits before the forward pass (masks, small copies from pageable memory). Not: the loader, launches, the
    layout, the optimizer, the copy of pictures.
    """
    tape, picture = Tape(), [SHOWN, 3, ROOM, ROOM]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 210)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, 8 * SHOWN, [SHOWN], "long int")
    with rt.span(f"{PROFILED}[LightningModule]Plants.on_after_batch_transfer", "user_annotation", us=60):
        few(rt, "to div", picture, PIXEL.moves(7 * prod(picture)))
        for share, values, names in CHANGES:
            _changed(rt, share, values, names, fixed)
        few(rt, "sub div", picture, PIXEL.moves(8 * prod(picture)))
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        few(rt, "copy_", picture, PIXEL.moves(8 * prod(picture)))  # channels_last
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(picture,),
              run=((CAST, A100.moves(6 * prod(picture))),))  # fmt: skip
        resnet(rt, tape, LOOK, SHOWN, (7, 7))
        acts(rt, tape, A100, "mean", [SHOWN, 2_048, 7, 7])
        casts(rt, A100, [1_081, 2_048])
        dense(rt, tape, A100, SHOWN, (SHOWN, 2_048, 1_081))
        judged(rt, tape, A100, SHOWN, 1_081)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with rt.span(f"{PROFILED}[LightningModule]Plants.optimizer_step", "user_annotation", us=50):
        sgd(rt, A100, 25.7e6)
    rt.op("aten::zeros", "aten::fill_", run=((FILL, 2),), dims=([1],))
    rt.host(380)
