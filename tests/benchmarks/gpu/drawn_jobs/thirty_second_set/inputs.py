"""Jobs of the thirty-second set that wait for input: heat maps that too few workers draw, tracks of a genome that are
copied from memory that is not pinned.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import elementwise, linear
from ..layers import CAST, Tape, back, fused_adamw
from ..runtime import MAIN
from ..thirty_first_set.rows import Told, ahead
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few
from .rows import Wave, Worked, flat, halved, look, normed, wave, wide

PICTURES, SIDE, PARTS = 32, 512, 6
RTX4080 = wide(82, 640, AMPERE)
LOOK = look(RTX4080)
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def _basic(rt: Framed, tape: Tape, given: int, width: int, side: int) -> None:
    """ResNet's block of two convolutions."""
    conv_norm(rt, tape, LOOK, Conv(PICTURES, given, width, 3, side, side))
    conv_norm(rt, tape, LOOK, Conv(PICTURES, width, width, 3, side, side))
    if given != width:
        conv_norm(rt, tape, LOOK, Conv(PICTURES, given, width, 1, side, side))
    elementwise(rt, tape, RTX4080, "add_", [PICTURES, width, side, side], 2)


def _raised(rt: Framed, tape: Tape, given: int, width: int, side: int) -> None:
    """`nn.ConvTranspose2d` that doubles a side, with its norm: as its input's gradient would run."""
    begun = len(rt.rows)
    turned = replace(LOOK, names=(LOOK.names[1], LOOK.names[0], LOOK.names[2]))
    conv_norm(rt, tape, turned, Conv(PICTURES, given, width, 2, side, side))
    for row in rt.rows[begun:]:
        if row["name"] in ("aten::conv2d", "aten::cudnn_convolution"):
            row["name"] = {"aten::conv2d": "aten::conv_transpose2d"}.get(
                row["name"], "aten::cudnn_convolution_transpose"
            )


def centernet(rt: Worked, fixed: bool) -> None:
    """CenterNet on ResNet-34 learns six parts of wind turbines by its authors' loop on an RTX 4080, bf16 by autocast,
    channels_last, 32 pictures of 512: four workers (the script's default) of a machine of 16 processors read JPEGs,
    warp them and draw heat maps in numpy, a batch in 0.6 s each, so that the GPU waits for every batch; without: twelve
    workers. Batches come pinned as bytes, Adam by lists, the loss is read each 100th step. Shapes, no rows of steps.

    First: the loader (more workers). Not: copies (they are pinned), launches, waits, the layout, precision, the
    optimizer, a larger batch.
    """
    rt.last = True
    tape, picture, maps = Tape(), [PICTURES, 3, SIDE, SIDE], [PICTURES, PARTS, SIDE // 4, SIDE // 4]
    rt.fetched(12 if fixed else 4, 606_000)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 4 * prod(maps), maps)
    for size, kind in (([PICTURES, 128], "long int"), ([PICTURES, 128, 2], "float"), ([PICTURES, 128, 2], "float"),
                       ([PICTURES, 128], "unsigned char")):  # fmt: skip
        pinned(rt, prod(size) * {"long int": 8, "float": 4}.get(kind, 1), size, kind)
    acts(rt, None, replace(RTX4080, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, RTX4080.moves(6 * prod(picture))),), dims=(picture,))
    few(rt, "clone", picture, RTX4080.moves(4 * prod(picture)))
    side, given = SIDE // 2, 64
    conv_norm(rt, tape, LOOK, Conv(PICTURES, 3, 64, 7, side, side))
    side //= 2
    acts(rt, tape, RTX4080, "max_pool2d", [PICTURES, 64, side, side])
    for blocks, width in STAGES:
        side = side if width == 64 else side // 2
        for _ in range(blocks):
            _basic(rt, tape, given, width, side)
            given = width
    for width in (256, 128, 64):
        side *= 2
        conv_norm(rt, tape, LOOK, Conv(PICTURES, given, width, 3, side // 2, side // 2))
        _raised(rt, tape, width, width, side)
        given = width
    for out in (PARTS, 2, 2):
        conv(rt, tape, LOOK, Conv(PICTURES, 64, 64, 3, side, side))
        acts(rt, tape, RTX4080, "relu_", [PICTURES, 64, side, side])
        conv(rt, tape, LOOK, Conv(PICTURES, 64, out, 1, side, side))
    whole = replace(RTX4080, kind="float")
    acts(rt, tape, whole, "to sigmoid clamp", maps)
    acts(rt, tape, whole, "log mul mul sub log mul mul sum sum add", maps)
    for _ in range(2):
        acts(rt, tape, whole, "turn gather mul sub abs sum div mul add", [PICTURES, 128, 2])
    back(rt, tape)
    adam(rt, RTX4080, 24.6e6, "Adam", 1)
    few(rt, "detach add_", [1])
    rt.host(260)


SEQUENCES, BASES, BINS, TRACKS = 12, 131_072, 896, 5_313
A100 = wide(118, 1_450, AMPERE)
LINE = flat(A100)
TOWER = ((288, 339), (339, 399), (399, 470), (470, 554), (554, 652), (652, 768))


def _stage(rt: Framed, tape: Tape, of: Wave, *, pooled: bool = False) -> None:
    """GELU, a convolution, its norm, at times a pool."""
    acts(rt, tape, A100, "gelu", of.dims[0])
    wave(rt, tape, of, LINE)
    normed(rt, tape, LINE, of.dims[2])
    if pooled:
        halved(rt, tape, A100, [of.batch, of.cout, of.width // 2])


def basenji(rt: Told, fixed: bool) -> None:
    """Basenji2 learns 5,313 tracks of a genome by a plain loop on an A100, autocast in bf16, twelve sequences of
    131,072 bases: targets are float32 and come with the letters in memory that is not pinned, 254 MB a step, which
    `.to(device)` copies in the stream that computes while the host waits; without: `pin_memory=True`, the next batch is
    copied on a stream of its own. AdamW is fused, clipped by lists, the loss is read each 50th step. Shapes.

    First: the copy from pageable memory that waits (pin it, copy ahead). Not: the loader's workers, launches, casts,
    the layout (of a line there is no channels_last), precision, the optimizer, the batch.
    """
    tape, letters, tracks = Tape(), [SEQUENCES, 4, BASES], [SEQUENCES, BINS, TRACKS]
    there = 0.0
    loader(rt, 210)
    if fixed:
        there = ahead(rt, (4 * prod(letters), letters, "float"), (4 * prod(tracks), tracks, "float"))
    else:
        rt.moved(4 * prod(letters), 5.9, letters)
        rt.moved(4 * prod(tracks), 6.6, tracks)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(letters))),), dims=(letters,))
    wave(rt, tape, Wave(SEQUENCES, 4, 288, 15, 1, BASES), LINE)
    normed(rt, tape, LINE, [SEQUENCES, 288, BASES])
    halved(rt, tape, A100, [SEQUENCES, 288, BASES // 2])
    length = BASES // 2
    for given, out in TOWER:
        _stage(rt, tape, Wave(SEQUENCES, given, out, 5, 1, length), pooled=True)
        length //= 2
    for _ in range(11):
        _stage(rt, tape, Wave(SEQUENCES, 768, 384, 3, 1, length))
        _stage(rt, tape, Wave(SEQUENCES, 384, 768, 1, 1, length))
        acts(rt, tape, A100, "dropout add", [SEQUENCES, 768, length])
    rt.op("aten::slice", us=2, dims=([SEQUENCES, 768, length],), kind=A100.kind)
    _stage(rt, tape, Wave(SEQUENCES, 768, 1_536, 1, 1, BINS))
    acts(rt, tape, A100, "dropout gelu turn", [SEQUENCES, BINS, 1_536])
    casts(rt, A100, [TRACKS, 1_536])
    linear(rt, tape, A100, [SEQUENCES, BINS, 1_536], TRACKS)
    acts(rt, tape, replace(A100, kind="float"), "to softplus log mul sub mean", tracks)
    back(rt, tape)
    clipped(rt, A100, 30.1e6)
    fused_adamw(rt, A100, 30.1e6)
    few(rt, "add_", [1])
    if fixed:
        rt.waits(MAIN, there)
    rt.host(280)
