"""Jobs of the thirty-first set that wait for input: windows of series that the loop cuts itself, volumes that are
copied from memory that is not pinned.
"""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.rows import Roofline, elementwise
from ..layers import CAST, Tape, attention, back, dense
from ..runtime import MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, Look, conv_norm, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_sixth_set.rows import PROFILED
from .rows import Told, ahead

WINDOWS, SERIES, PATCHES, LONG, WIDE, FED, DEEP, SAID = 512, 21, 42, 336, 128, 256, 3, 96
RTX3090 = Roofline(58, 780, BF16, AMPERE, FLASH)
TOKENS = WINDOWS * SERIES * PATCHES


def _cut(rt: Framed) -> None:
    """A `DataLoader` without workers: `__getitem__` cuts each window out of a frame, `collate_fn` stacks them."""
    with rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", us=90):
        for _ in range(WINDOWS):
            rt.host(158)
            for size in ([LONG, SERIES], [SAID, SERIES]):
                rt.op("aten::slice", us=2, gap=3, dims=([30_000, SERIES],))
                rt.op("aten::clone", us=5, gap=2, dims=(size,))
        on_host(rt, "aten::stack", 5_600, [LONG, SERIES])
        on_host(rt, "aten::stack", 1_700, [SAID, SERIES])
        for size in ([WINDOWS, LONG, SERIES], [WINDOWS, SAID, SERIES]):
            rt.op("aten::pin_memory", "aten::_pin_memory", us=700, gap=12, dims=(size,))


def patchtst(rt: Framed, fixed: bool) -> None:
    """PatchTST learns loads of 21 meters by Lightning on an RTX 3090, `precision="bf16-mixed"`, 512 windows of 336
    hours: the loader has no workers (`num_workers=0`, as it is by default), `__getitem__` cuts each window out of a
    pandas frame, some 100 ms a batch, more than the GPU has to do; without: eight workers. SDPA, batch norms, Adam by
    lists, clipped by lists, the loss is logged each 50th step. Shapes.

    First: the loader's work in the loop (workers). Not: launches, copies (they are pinned), casts, attention, the
    optimizer, precision, a larger batch.
    """
    tape, x = Tape(), [WINDOWS * SERIES, PATCHES, WIDE]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        if fixed:
            loader(rt, 200)
        else:
            _cut(rt)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        for size in ([WINDOWS, LONG, SERIES], [WINDOWS, SAID, SERIES]):
            pinned(rt, 4 * prod(size), size)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        few(rt, "mean sub var sqrt div", [WINDOWS, LONG, SERIES], RTX3090.moves(8 * WINDOWS * LONG * SERIES))
        acts(rt, None, RTX3090, "turn to", [WINDOWS * SERIES, PATCHES, 16])
        casts(rt, RTX3090, [WIDE, 16])
        dense(rt, tape, RTX3090, WINDOWS, (TOKENS, 16, WIDE))
        acts(rt, tape, RTX3090, "add dropout", x)
        for _ in range(DEEP):
            casts(rt, RTX3090, *[[WIDE, WIDE]] * 4, [FED, WIDE], [WIDE, FED])
            for _ in range(3):
                dense(rt, tape, RTX3090, WINDOWS, (TOKENS, WIDE, WIDE))
            attention(rt, tape, RTX3090, [WINDOWS * SERIES, 4, PATCHES, 32])
            dense(rt, tape, RTX3090, WINDOWS, (TOKENS, WIDE, WIDE))
            acts(rt, tape, RTX3090, "dropout add", x)
            _normed(rt, tape, x)
            dense(rt, tape, RTX3090, WINDOWS, (TOKENS, WIDE, FED))
            acts(rt, tape, RTX3090, "gelu dropout", [WINDOWS * SERIES, PATCHES, FED])
            dense(rt, tape, RTX3090, WINDOWS, (TOKENS, FED, WIDE))
            acts(rt, tape, RTX3090, "dropout add", x)
            _normed(rt, tape, x)
        casts(rt, RTX3090, [SAID, PATCHES * WIDE])
        dense(rt, tape, RTX3090, WINDOWS, (WINDOWS * SERIES, PATCHES * WIDE, SAID))
        acts(rt, tape, RTX3090, "mul add sub pow mean", [WINDOWS * SERIES, SAID])
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with rt.span(f"{PROFILED}[LightningModule]PatchTST.optimizer_step", "user_annotation", us=50):
        clipped(rt, RTX3090, 0.9e6)
        adam(rt, RTX3090, 0.9e6, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(410)


def _normed(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`Transpose`, `nn.BatchNorm1d`, `Transpose`."""
    size = [x[0], x[2], x[1]]
    name = "void at::native::batch_norm_{}_kernel<c10::BFloat16, float, float, int>(…)"
    us = RTX3090.moves(2 * prod(x))
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", graph=True, gap=20,
                   run=((name.format("collect_statistics_channels_last"), us), (
                       name.format("transform_input_channels_last"), 2 * us)), dims=(size,), kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", number, "aten::native_batch_norm_backward", kind=BF16,
                                run=((name.format("backward_reduce_channels_last"), 2 * us), (
                                    name.format("backward_elemt_channels_last"), 3 * us)),
                                dims=(size, size)))  # fmt: skip


VOLUMES, SLICES, SIDE, FINDINGS = 4, 72, 512, 14
HOPPER = "sm90_xmma_{}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_cudnn"
H100 = Roofline(330, 2_600, BF16, ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", "nvjet_tst_64x128_64x8_1x2_h_bz_NNT"), FLASH)
NORM = "void cudnn::bn_{}_tr_1C11_kernel_NHWC<__nv_bfloat162, float, int, 512, true, 1, true>(…)"
LOOK = Look(H100, (HOPPER.format("fprop"), HOPPER.format("dgrad"), HOPPER.format("wgrad")), NORM, True)


def ctslices(rt: Told, fixed: bool) -> None:
    """A ResNet-18 looks at CT volumes slice by slice for findings of the chest by a plain loop on an H100, autocast in
    bf16, channels_last, four volumes of 72 slices of 512 x 512 a step: the loader normalises to float32 and its memory
    is not pinned, 302 MB a step are copied by `.to(device)` in the stream that computes, which waits; without:
    `pin_memory=True`, the next batch is copied on a stream of its own. AdamW by lists, the loss is summed on the GPU.
    Shapes, no rows of steps.

    First: the copy from pageable memory that waits (pin it, copy ahead). Not: the loader's workers, launches, casts,
    the layout, precision, the optimizer, the batch.
    """
    rt.last = True
    tape, count, side, given, there = Tape(), VOLUMES * SLICES, SIDE // 2, 64, 0.0
    size = [VOLUMES, SLICES, SIDE, SIDE]
    loader(rt, 230)
    if fixed:
        there = ahead(rt, (4 * prod(size), size, "float"), (4 * VOLUMES * FINDINGS, [VOLUMES, FINDINGS], "float"))
    else:
        rt.moved(4 * prod(size), 7.4, size)
        rt.moved(4 * VOLUMES * FINDINGS, 0.4, [VOLUMES, FINDINGS])
    rt.op("aten::view", us=2, dims=(size,))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, H100.moves(6 * prod(size))),), dims=(size,))
    conv_norm(rt, tape, LOOK, Conv(count, 1, 64, 7, side, side))
    side //= 2
    acts(rt, tape, H100, "max_pool2d", [count, 64, side, side])
    for width in (64, 128, 256, 512):
        side = side if width == 64 else side // 2
        for block in range(2):
            conv_norm(rt, tape, LOOK, Conv(count, given, width, 3, side, side))
            conv_norm(rt, tape, LOOK, Conv(count, width, width, 3, side, side))
            if given != width:
                conv_norm(rt, tape, LOOK, Conv(count, given, width, 1, side, side))
            elementwise(rt, tape, H100, "add_", [count, width, side, side], 2)
            given = width if block == 0 else given
    acts(rt, tape, H100, "mean", [count, 512, side, side])
    casts(rt, H100, [256, 512], [FINDINGS, 512])
    dense(rt, tape, H100, VOLUMES, (count, 512, 256))
    acts(rt, tape, H100, "tanh softmax mul sum", [count, 256])
    dense(rt, tape, H100, VOLUMES, (VOLUMES, 512, FINDINGS))
    judged(rt, tape, H100, VOLUMES, FINDINGS)
    back(rt, tape)
    adam(rt, H100, 11.3e6, "AdamW", 1)
    few(rt, "detach add_", [1])
    if fixed:
        rt.waits(MAIN, there)
    rt.host(190)
