"""Jobs of the twenty-sixth set that wait for input: tiles of large rasters, clips in memory that is not pinned."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import pinned
from ..fifteenth_set.rows import AMPERE_HALF, VOLUMES
from ..layers import CAST, Card, Tape, back, dense, fused_adamw
from ..tenth_set.jobs import FLASH
from ..twelfth_set.pictures import ADA, HALF, NHWC, resnet, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import PROFILED, clip, judged_map, staged

TILES, SIDE, COVERS = 12, 512, 9
L4 = Card(52, 250, HALF, ADA.card.names, FLASH)
LOOK = Look(L4, ADA.names, NHWC, True)
CAME = (141_000.0, 22_600.0, 5_300.0, 128_500.0, 36_900.0, 800.0, 152_300.0, 17_800.0, 9_400.0)  # µs until a batch is


def landcover(rt: Framed, fixed: bool) -> None:
    """DeepLabV3+ on ResNet-50 of segmentation_models_pytorch learns land cover on an L4, AMP, channels_last, twelve
    tiles of 512 a step: each of three workers opens the GeoTIFF anew for each tile and reads its window of compressed
    strips by rasterio, which all three together take longer for than the GPU needs for a step; without: rasters are
    cut into tiles before, six workers. Pinned, AdamW is fused, `GradScaler` waits once, the loss is summed on the GPU.
    Shapes.

    First: the wait for batches (workers, what they read). Not: launches, copies, `GradScaler`'s wait, the layout.
    """
    tape, tile = Tape(), [TILES, 3, SIDE, SIDE]
    loader(rt, 190 if fixed else CAME[rt.number % len(CAME)])
    pinned(rt, 4 * prod(tile), tile)
    pinned(rt, 8 * TILES * SIDE**2, [TILES, SIDE, SIDE], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, L4.moves(6 * prod(tile))),), dims=(tile,))
    resnet(rt, tape, LOOK, TILES, (16, 16))
    for side in (1, 3, 3, 3):
        conv_norm(rt, tape, LOOK, Conv(TILES, 2_048, 256, side, 16, 16))
    acts(rt, tape, L4, "mean", [TILES, 2_048, 16, 16])
    conv_norm(rt, tape, LOOK, Conv(TILES, 2_048, 256, 1, 1, 1))
    acts(rt, tape, L4, "cat", [TILES, 1_280, 16, 16])
    conv_norm(rt, tape, LOOK, Conv(TILES, 1_280, 256, 1, 16, 16))
    acts(rt, tape, L4, "upsample", [TILES, 256, 128, 128])
    conv_norm(rt, tape, LOOK, Conv(TILES, 256, 48, 1, 128, 128))
    acts(rt, tape, L4, "cat", [TILES, 304, 128, 128])
    for cin in (304, 256):
        conv_norm(rt, tape, LOOK, Conv(TILES, cin, 256, 3, 128, 128))
    conv(rt, tape, LOOK, Conv(TILES, 256, COVERS, 1, 128, 128))
    acts(rt, tape, L4, "upsample", [TILES, COVERS, SIDE, SIDE])
    judged_map(rt, tape, L4, [TILES, COVERS, SIDE, SIDE])
    back(rt, tape)
    unscaled(rt, L4, 26.7e6)
    fused_adamw(rt, L4, 26.7e6)
    few(rt, "add_", [1])
    rt.host(310)


CLIPS, FRAMES, HIGH = 8, 32, 256
CARD = AMPERE_HALF.card
SEEN = Look(CARD, VOLUMES, NHWC, True)  # type: ignore[arg-type]


def _stage(rt: Framed, tape: Tape, x: list[int], width: int, blocks: int, deep: int) -> list[int]:
    """Bottlenecks; deep: how many frames the first convolution sees."""
    for number in range(blocks):
        given, stride = x, 2 if number == 0 and width not in (8, 64) else 1
        x = clip(rt, tape, SEEN, x, (width, (deep, 1, 1)))
        x = clip(rt, tape, SEEN, x, (width, (1, 3, 3)), stride)
        x = clip(rt, tape, SEEN, x, (4 * width, (1, 1, 1)), relu=False)
        if number == 0:
            clip(rt, tape, SEEN, given, (4 * width, (1, 1, 1)), stride, relu=False)
        acts(rt, tape, CARD, "add relu_", x)
    return x


def slowfast(rt: Framed, fixed: bool) -> None:
    """PyTorchVideo's SlowFast-R50 by Lightning (`precision="16-mixed"`) on an RTX 3090, channels_last_3d, eight clips
    of 32 frames of 256, both pathways as float32: workers are ahead, but the loader was made without `pin_memory`, so
    that 252 MB a step go at 5 GB/s while no kernel runs (`non_blocking` does not help memory that is not pinned);
    without: `pin_memory=True`. SGD by lists, `GradScaler` waits once, nothing is logged in a step. No rows of steps.
    Shapes.

    First: copies of memory that is not pinned. Not: the loader, launches, the layout, TF32, the batch.
    """
    tape, fast, slow = Tape(), [CLIPS, 3, FRAMES, HIGH, HIGH], [CLIPS, 3, FRAMES // 4, HIGH, HIGH]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 230)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=70):
        for size, width, kind in ((slow, 4, "float"), (fast, 4, "float"), ([CLIPS], 8, "long int")):
            if fixed:
                pinned(rt, width * prod(size), size, kind)
            else:
                staged(rt, width * prod(size), 5.2, size, kind)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        for size in (slow, fast):
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(size))),), dims=(size,))
        x = clip(rt, tape, SEEN, slow, (64, (1, 7, 7)), 4)
        y = clip(rt, tape, SEEN, fast, (8, (5, 7, 7)), 4)
        for place, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
            fused = clip(rt, tape, SEEN, [y[0], y[1], x[2], *y[3:]], (2 * y[1], (7, 1, 1)))
            acts(rt, tape, CARD, "cat", [x[0], x[1] + fused[1], *x[2:]])
            x = _stage(rt, tape, [x[0], x[1] + fused[1], *x[2:]], width, blocks, 3 if place > 1 else 1)
            y = _stage(rt, tape, y, width // 8, blocks, 3)
        for size in (x, y):
            acts(rt, tape, CARD, "mean", size)
        acts(rt, tape, CARD, "cat dropout", [CLIPS, 2_304])
        dense(rt, tape, CARD, CLIPS, (CLIPS, 2_304, 400))
        judged(rt, tape, CARD, CLIPS, 400)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    unscaled(rt, CARD, 34.6e6)
    sgd(rt, CARD, 34.6e6)
    for hook in ("[Callback]TQDMProgressBar.on_train_batch_end", "[Callback]ModelCheckpoint.on_train_batch_end"):
        with rt.span(PROFILED + hook, "user_annotation", us=65):
            pass
    rt.host(420)
