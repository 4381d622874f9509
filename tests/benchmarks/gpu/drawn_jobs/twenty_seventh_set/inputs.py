"""Jobs of the twenty-seventh set that wait for input: large X-rays, masks of one plane for each class."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import FILL
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw
from ..twelfth_set.pictures import ADA, HALF, NHWC, V100, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fifth_set.rows import adam
from ..twenty_fourth_set.rows import acts, few
from ..twenty_sixth_set.rows import PROFILED
from .rows import norm_relu

CHESTS, SIDE, SIGNS = 48, 320, 14
CARD = V100.card
CAME = (61_000.0, 148_000.0, 3_400.0, 91_000.0, 127_000.0, 17_000.0, 74_000.0, 139_000.0, 800.0, 102_000.0)


def _densenet(rt: Framed, tape: Tape) -> None:
    """DenseNet-121: each layer takes all that was made before it in its block."""
    conv_norm(rt, tape, V100, Conv(CHESTS, 3, 64, 7, SIDE // 2, SIDE // 2))
    acts(rt, tape, CARD, "max_pool2d", [CHESTS, 64, SIDE // 4, SIDE // 4])
    width, side = 64, SIDE // 4
    for place, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            acts(rt, tape, CARD, "cat", [CHESTS, width, side, side])
            norm_relu(rt, tape, V100, [CHESTS, width, side, side])
            conv_norm(rt, tape, V100, Conv(CHESTS, width, 128, 1, side, side))
            conv(rt, tape, V100, Conv(CHESTS, 128, 32, 3, side, side))
            width += 32
        acts(rt, tape, CARD, "cat", [CHESTS, width, side, side])
        norm_relu(rt, tape, V100, [CHESTS, width, side, side])
        if place < 3:
            width //= 2
            conv(rt, tape, V100, Conv(CHESTS, 2 * width, width, 1, side, side))
            side //= 2
            acts(rt, tape, CARD, "mean", [CHESTS, 2 * width, side, side])
    acts(rt, tape, CARD, "mean", [CHESTS, width, side, side])


def xray(rt: Framed, fixed: bool) -> None:
    """DenseNet-121 finds fourteen signs in X-rays of chests by Lightning (`precision="16-mixed"`) on a V100,
    channels_last, 48 pictures of 320 a step: six workers decode PNGs of some 2,500 by 2,500 pixels in 16 bit and make
    them small anew in each epoch, which all together take longer for than the GPU needs; without: pictures that were
    made small before. Pinned, Adam by lists, `GradScaler` waits once, the loss is logged each 50th step. Shapes.

    First: the wait for batches (workers, what they decode). Not: launches, copies, `GradScaler`'s wait, the layout,
    TF32 or bf16, which a V100 has not.
    """
    tape, picture = Tape(), [CHESTS, 3, SIDE, SIDE]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 210 if fixed else CAME[rt.number % len(CAME)] + 24_000)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, 4 * prod(picture), picture)
        pinned(rt, 4 * CHESTS * SIGNS, [CHESTS, SIGNS])
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),),
              dims=(picture,))  # fmt: skip
        _densenet(rt, tape)
        dense(rt, tape, CARD, CHESTS, (CHESTS, 1_024, SIGNS))
        acts(rt, tape, CARD, "to sub mul exp log mean", [CHESTS, SIGNS])
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    unscaled(rt, CARD, 7e6)
    adam(rt, CARD, 7e6, "Adam", 1)
    with rt.span(f"{PROFILED}[Callback]ModelCheckpoint.on_train_batch_end", "user_annotation", us=60):
        pass
    rt.host(390)


SCENES, ROOM, KINDS = 16, 512, 21
RTX4090 = Card(120, 860, HALF, ADA.card.names, ("", ""))
LOOK = Look(RTX4090, ADA.names, NHWC, True)
FLOAT = replace(RTX4090, kind="float")


def _unet(rt: Framed, tape: Tape) -> None:
    """A UNet on ResNet-34."""
    conv_norm(rt, tape, LOOK, Conv(SCENES, 3, 64, 7, 256, 256))
    acts(rt, tape, RTX4090, "max_pool2d", [SCENES, 64, 128, 128])
    for blocks, width, side in ((3, 64, 128), (4, 128, 64), (6, 256, 32), (3, 512, 16)):
        for number in range(blocks):
            given = width // 2 if number == 0 and width > 64 else width
            conv_norm(rt, tape, LOOK, Conv(SCENES, given, width, 3, side, side))
            conv_norm(rt, tape, LOOK, Conv(SCENES, width, width, 3, side, side))
            if given != width:
                conv_norm(rt, tape, LOOK, Conv(SCENES, given, width, 1, side, side))
            acts(rt, tape, RTX4090, "add", [SCENES, width, side, side])
    for cin, skip, out, side in ((512, 256, 256, 32), (256, 128, 128, 64), (128, 64, 64, 128), (64, 64, 32, 256),
                                 (32, 0, 16, 512)):  # fmt: skip
        acts(rt, tape, RTX4090, "upsample", [SCENES, cin, side, side])
        if skip:
            acts(rt, tape, RTX4090, "cat", [SCENES, cin + skip, side, side])
        conv_norm(rt, tape, LOOK, Conv(SCENES, cin + skip, out, 3, side, side))
        conv_norm(rt, tape, LOOK, Conv(SCENES, out, out, 3, side, side))
    conv(rt, tape, LOOK, Conv(SCENES, 16, KINDS, 3, ROOM, ROOM))


def planes(rt: Framed, fixed: bool) -> None:
    """A UNet on ResNet-34 of segmentation_models_pytorch learns 21 kinds of things on an RTX 4090, AMP, channels_last,
    16 scenes of 512: the dataset makes a plane of float32 for each kind of a mask, so that 352 MB a step go from
    pinned memory to the GPU in the stream that computes; without: masks as bytes, from which the GPU makes the planes.
    Pictures come as bytes, workers are ahead, AdamW is fused, `GradScaler` waits once, the loss is summed on the GPU.
    Shapes, no rows of steps.

    First: copies that nothing hides (fewer bytes, a batch ahead on another stream). Not: pinned memory, the loader,
    launches, `GradScaler`'s wait, the layout.
    """
    tape, picture, mask = Tape(), [SCENES, 3, ROOM, ROOM], [SCENES, KINDS, ROOM, ROOM]
    loader(rt, 220)
    pinned(rt, prod(picture), picture, "unsigned char")
    acts(rt, None, FLOAT, "to sub div", picture)
    if fixed:
        pinned(rt, SCENES * ROOM**2, [SCENES, ROOM, ROOM], "unsigned char")
        few(rt, "to", [SCENES, ROOM, ROOM], FLOAT.moves(9 * SCENES * ROOM**2))
        rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, FLOAT.moves(4 * prod(mask))),), dims=(mask,))
        few(rt, "scatter_", mask, FLOAT.moves(40 * SCENES * ROOM**2))
    else:
        pinned(rt, 4 * prod(mask), mask)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, RTX4090.moves(6 * prod(picture))),), dims=(picture,))
    _unet(rt, tape)
    acts(rt, tape, FLOAT, "to softmax mul", mask)  # what is common of both, its sums
    for _ in range(2):
        rt.op("aten::sum", run=((REDUCE, FLOAT.moves(4 * prod(mask))),), dims=(mask,), gap=9)
    acts(rt, tape, FLOAT, "sum mul add add div sub mean", [SCENES, KINDS])
    back(rt, tape)
    unscaled(rt, RTX4090, 24.4e6)
    fused_adamw(rt, RTX4090, 24.4e6)
    few(rt, "add_", [1])
    rt.host(300)
