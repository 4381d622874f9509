"""Jobs of the twenty-third set whose device works more than it must, or asks for memory: precision, memory, layout.

What the device does without the fault is written with it: products in bf16, memory that stays, clips as NDHWC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..eighteenth_set.rows import casts, pinned, returned
from ..eleventh_set.rows import COPY, elementwise, linear, node
from ..fifteenth_set.rows import AMPERE_HALF, VOLUMES
from ..layers import CAST, Card, Tape, back, dense, fused_adamw, norm
from ..tenth_set.jobs import FLASH, TO_NCHW, TO_NHWC
from ..twelfth_set.pictures import CUTLASS, HALF, NHWC, SGEMM, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, loader
from ..twentieth_set.host import AMPERE_HALF as A100_HALF
from ..twenty_first_set.host import ADA_BF16
from .host import products

SCANS, SIDE, WIDE, WINDOW = 2, 64, 768, 14
FLOAT = Card(52, 850, "float", SGEMM, CUTLASS)


def _looked(rt: Framed, tape: Tape, card: Card, windows: int, side: int) -> None:
    """SAM's attention, op by op: scores, two relative positions, softmax."""
    heads, tokens = windows * 12, side * side
    scores = [heads, tokens, tokens]
    dense(rt, tape, card, windows, (windows * tokens, WIDE, 3 * WIDE))
    elementwise(rt, tape, card, "mul", [heads, tokens, 64], back=(("mul", 2),))
    products(rt, tape, card, (heads, tokens, 64, tokens))
    for _ in range(2):
        products(rt, tape, card, (side, heads * side, 64, side))
    small(rt, tape, ("add", "add"), scores, card.moves(2 * card.size * prod(scores)))
    small(rt, tape, ("softmax",), scores, card.moves((card.size + 4) * prod(scores)))
    products(rt, tape, card, (heads, tokens, tokens, 64))
    rt.op("aten::reshape", "aten::clone", "aten::copy_", run=((COPY, card.moves(2 * card.size * heads * tokens * 64)),),
          dims=([windows, tokens, WIDE],), kind=card.kind, gap=9)  # fmt: skip
    dense(rt, tape, card, windows, (windows * tokens, WIDE, WIDE))


def _pictured(rt: Framed, tape: Tape, card: Card) -> None:
    """SAM's image encoder, ViT-B: windows of 14, all places in each third layer."""
    x, patches = [SCANS, SIDE, SIDE, WIDE], SCANS * SIDE**2
    dense(rt, tape, card, SCANS, (patches, 768, WIDE))
    elementwise(rt, tape, card, "add", x, 2)
    for number in range(12):
        if card.kind != "float":
            casts(rt, card, [3 * WIDE, WIDE], [WIDE, WIDE], [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
        norm(rt, tape, card, x)
        if number % 3 == 2:
            _looked(rt, tape, card, SCANS, SIDE)
        else:
            padded = [SCANS, 70, 70, WIDE]
            small(rt, tape, ("constant_pad_nd", "clone"), padded, card.moves(2 * card.size * prod(padded)))
            _looked(rt, tape, card, 25 * SCANS, WINDOW)
            small(rt, tape, ("clone",), x, card.moves(2 * card.size * prod(x)))
        elementwise(rt, tape, card, "add", x, 2)
        norm(rt, tape, card, x)
        dense(rt, tape, card, SCANS, (patches, WIDE, 4 * WIDE))
        elementwise(rt, tape, card, "gelu", [*x[:3], 4 * WIDE], back=(("gelu_backward", 3),))
        dense(rt, tape, card, SCANS, (patches, 4 * WIDE, WIDE))
        elementwise(rt, tape, card, "add", x, 2)
    for width in (WIDE, 9 * 256):
        dense(rt, tape, card, SCANS, (patches, width, 256))
        norm(rt, tape, card, [SCANS, SIDE, SIDE, 256])


def _masked(rt: Framed, tape: Tape) -> None:
    """The decoder of masks: two layers of attention both ways, masks of 256."""
    image, tokens = [SCANS, SIDE**2, 256], [SCANS, 8, 256]
    for _ in range(2):
        for queries, keys in ((tokens, tokens), (tokens, image), (image, tokens)):
            casts(rt, ADA_BF16, *[[256, 256]] * 4)
            for size in (queries, keys, keys):
                linear(rt, tape, ADA_BF16, size, 128)
            products(rt, tape, ADA_BF16, (SCANS * 8, queries[1], 16, keys[1]))
            small(rt, tape, ("div", "softmax"), [SCANS, 8, queries[1], keys[1]], 4)
            products(rt, tape, ADA_BF16, (SCANS * 8, queries[1], keys[1], 16))
            linear(rt, tape, ADA_BF16, [*queries[:2], 128], 256)
            small(rt, tape, ("add", "layer_norm"), queries, ADA_BF16.moves(6 * prod(queries)))
        for out in (2_048, 256):
            linear(rt, tape, ADA_BF16, [SCANS, 8, 2_304 - out], out)
    for width, side in ((64, 128), (32, 256)):
        size = [SCANS, width, side, side]
        small(rt, tape, ("conv_transpose2d", "layer_norm", "gelu"), size, ADA_BF16.moves(6 * prod(size)))
    small(rt, tape, ("addmm", "relu") * 3 + ("bmm",), tokens, 4)


def medsam(rt: Framed, fixed: bool) -> None:
    """SAM ViT-B fine-tuned on scans of 1,024 pixels, RTX 4090, two a step: `image_embedding = model.image_encoder(x)`
    stands before `with torch.autocast(…)`, which is around the decoder of masks and the loss alone, and TF32 is off, so
    that nearly all products are fp32; without: the encoder is within it, in bf16. AdamW is fused. Shapes.

    First: products in fp32 (autocast around the whole forward pass, or TF32). Not: launches, waits, the loader, the
    batch.
    """
    tape, picture = Tape(), [SCANS, 3, 1_024, 1_024]
    loader(rt, 190)
    pinned(rt, prod(picture) * 4, picture)
    pinned(rt, SCANS * 256 * 256 * 4, [SCANS, 1, 256, 256])
    pinned(rt, SCANS * 16, [SCANS, 4])
    _pictured(rt, tape, ADA_BF16 if fixed else FLOAT)
    _masked(rt, tape)
    names = ("sigmoid", "mul", "sum", "pow", "add", "div", "rsub", "binary_cross_entropy_with_logits", "mean", "add")
    small(rt, tape, names, [SCANS, 1, 256, 256], 4)
    back(rt, tape)
    fused_adamw(rt, FLOAT, 93.7e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(300)


TILES, EDGE, CHANNELS, GROWTH, SEGMENTS, LATE = 4, 276, 64, 32, (15, 17, 14, 18), 7
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>"


def _asked(rt: Framed, segments: list[int]) -> None:
    """Memory that the caching allocator has not, and asks the driver for."""
    if segments:
        segments.pop()
        with rt.span("aten::empty", us=3):
            rt.call("Malloc", rt.vary(720, 0.4))


def _grown(rt: Framed, segments: list[int]) -> None:
    """A residual dense block: each convolution sees what those before it made."""
    card = AMPERE_HALF.card
    plain = replace(AMPERE_HALF, cast=False)
    for place in range(5):
        cin, cout = CHANNELS + place * GROWTH, GROWTH if place < 4 else CHANNELS
        size = [1, cin, EDGE, EDGE]
        if len(segments) > LATE:
            _asked(rt, segments)
        if place:
            rt.op("aten::cat", run=((CAT, card.moves(4 * prod(size))),), dims=(size,), kind=HALF, gap=9)
        conv(rt, None, plain, Conv(1, cin, cout, 3, EDGE, EDGE))
        if place < 4:
            small(rt, None, ("leaky_relu_",), [1, cout, EDGE, EDGE], card.moves(4 * cout * EDGE**2))
    small(rt, None, ("mul", "add"), [1, CHANNELS, EDGE, EDGE], card.moves(5 * CHANNELS * EDGE**2))


def _tile(rt: Framed, segments: list[int]) -> None:
    """RRDBNet with 23 blocks, four times as large at its end;  segments: of memory that are not there."""
    plain, card = replace(AMPERE_HALF, cast=False), AMPERE_HALF.card
    conv(rt, None, plain, Conv(1, 3, CHANNELS, 3, EDGE, EDGE))
    for _ in range(23):
        for _ in range(3):
            _grown(rt, segments)
        small(rt, None, ("mul", "add"), [1, CHANNELS, EDGE, EDGE], card.moves(5 * CHANNELS * EDGE**2))
    for side in (EDGE, 2 * EDGE, 4 * EDGE, 4 * EDGE):
        size = [1, CHANNELS, side, side]
        for _ in range(2):
            _asked(rt, segments)
        if side > EDGE:
            small(rt, None, ("upsample_nearest2d",), size, card.moves(2.5 * prod(size)))
        conv(rt, None, plain, Conv(1, CHANNELS, CHANNELS, 3, side, side))
        small(rt, None, ("leaky_relu_",), size, card.moves(4 * prod(size)))
    conv(rt, None, plain, Conv(1, CHANNELS, 3, 3, 4 * EDGE, 4 * EDGE))
    small(rt, None, ("slice", "copy_"), [1, 3, 1_024, 1_024], card.moves(12 * 1_024**2))


def _emptied(rt: Framed, tile: int) -> None:
    """`torch.cuda.empty_cache()`: the first `cudaFree` returns when the device is done; segments are asked for anew."""
    with rt.frame("torch/cuda/memory.py(224): empty_cache", "<built-in function _cuda_emptyCache>"):
        for place in range(SEGMENTS[tile]):
            rt.call("Free", rt.vary(610, 0.3), until=0 if place else max(rt.free.values()) + 5)


def tiles(rt: Framed, fixed: bool) -> None:
    """Real-ESRGAN enlarges pictures four times on an RTX 3090, fp16, no gradients, four tiles of 256 pixels each: after
    each tile `torch.cuda.empty_cache()` gives all segments back, 16 of them, and the next tile asks for them again,
    while the GPU has nothing to do; without: memory stays. A picture goes back once, as bytes. No shapes, no rows of
    steps.

    First: memory that is freed and asked for within steps (`empty_cache`). Not: launches, the loader, the copy of the
    result, layouts, TF32, the batch.
    """
    rt.host(5_200)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(3 * 512 * 512 * 2)
    for number in range(TILES):
        _tile(rt, [] if fixed else list(range(SEGMENTS[number])))
        if not fixed:
            _emptied(rt, number)
    whole = [3, 2_048, 2_048]
    small(rt, None, ("clamp", "mul", "round", "to", "permute"), whole, AMPERE_HALF.card.moves(4 * prod(whole)))
    returned(rt, prod(whole), 6, whole, "unsigned char")
    rt.host(900)


CLIPS, FRAMES = 16, 8
SLOW = replace(A100_HALF, tflops=150, attention=FLASH)


@dataclass(frozen=True)
class Moving:
    """A convolution in time and space: channels in and out, sides of its kernel, side and stride of the output."""

    cin: int
    cout: int
    sides: tuple[int, int]
    size: int
    stride: int = 1

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        time, space = self.sides
        whole = self.size * self.stride
        return ([CLIPS, self.cin, FRAMES, whole, whole], [self.cout, self.cin, time, space, space],
                [CLIPS, self.cout, FRAMES, self.size, self.size])  # fmt: skip

    def us(self) -> float:
        """By operations, or by memory."""
        x, w, y = self.dims
        return max(2 * prod(w) * prod(y) / self.cout / SLOW.tflops / 1e6, SLOW.moves(2 * (prod(x) + prod(y))))


def _moved(rt: Framed, tape: Tape, of: Moving, fixed: bool) -> None:
    """`Conv3d` under autocast, whose kernels are NDHWC, its batch norm and a ReLU."""
    (x, w, y), us = of.dims, of.us()

    def run(name: str, us: float, came: tuple[list[int], ...], gone: list[int]) -> tuple[tuple[str, float], ...]:
        turned = () if fixed else tuple((TO_NHWC, SLOW.moves(4.5 * prod(one))) for one in came)
        behind = () if fixed else ((TO_NCHW, SLOW.moves(4.5 * prod(gone))),)
        return (*turned, (name, us), *behind)

    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, SLOW.moves(6 * prod(w))),), dims=(w,), gap=4)
    number = rt.op("aten::conv3d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=run(VOLUMES[0], us, (x, w), y), dims=(x, w), kind=HALF, gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            both = run(VOLUMES[1], us, (y, w), x) + run(VOLUMES[2], 1.1 * us, (y, x), w)
            rt.op("aten::convolution_backward", run=both, dims=(y, x, w), us=18, kind=HALF, gap=1)
        rt.accumulated()

    tape.append(backward)
    once, name = SLOW.moves(2 * prod(y)), NHWC if fixed else NHWC.replace("NHWC", "NCHW")
    seen = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                 run=((name.format("fw"), 3 * once),), dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", seen, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=HALF, run=((name.format("bw"), 5 * once),)))  # fmt: skip
    elementwise(rt, tape, SLOW, "relu_", y, back=(("threshold_backward", 3),))


def kinetics(rt: Framed, fixed: bool) -> None:
    """The slow path of SlowFast, ResNet-50 in 3D, on Kinetics, an A100, AMP in fp16, 16 clips of eight frames: clips
    and weights are NCDHW, so that cuDNN turns tensors before and after each `Conv3d`; without: `channels_last_3d`.
    Frames come as bytes, `GradScaler` waits once. Shapes.

    First: kernels that turn layouts (`channels_last_3d`). Not: launches, waits, the loader, TF32, bf16, the batch.
    """
    tape, clip = Tape(), [CLIPS, 3, FRAMES, 224, 224]
    loader(rt, 200)
    pinned(rt, prod(clip), clip, "unsigned char")
    pinned(rt, CLIPS * 8, [CLIPS], "long int")
    for name, passes in (("to", 5), ("sub_", 8), ("div_", 8), ("to", 6)):
        small(rt, None, (name,), clip, SLOW.moves(passes * prod(clip)))
    _moved(rt, tape, Moving(3, 64, (1, 7), 112, 2), fixed)
    small(rt, tape, ("max_pool3d",), [CLIPS, 64, FRAMES, 56, 56], SLOW.moves(2.5 * CLIPS * 64 * FRAMES * 112**2))
    cin = 64
    for blocks, width, size, time in ((3, 64, 56, 1), (4, 128, 28, 1), (6, 256, 14, 3), (3, 512, 7, 3)):
        for number in range(blocks):
            stride = 2 if number == 0 and size < 56 else 1
            if number == 0:
                _moved(rt, tape, Moving(cin, 4 * width, (1, 1), size, stride), fixed)
            _moved(rt, tape, Moving(cin, width, (time, 1), size * stride), fixed)
            _moved(rt, tape, Moving(width, width, (1, 3), size, stride), fixed)
            _moved(rt, tape, Moving(width, 4 * width, (1, 1), size), fixed)
            elementwise(rt, tape, SLOW, "add_", [CLIPS, 4 * width, FRAMES, size, size], 2)
            cin = 4 * width
    small(rt, tape, ("mean", "dropout"), [CLIPS, 2_048, FRAMES, 7, 7], 14)
    dense(rt, tape, SLOW, CLIPS, (CLIPS, 2_048, 400))
    small(rt, tape, ("log_softmax", "nll_loss"), [CLIPS, 400], 4)
    back(rt, tape)
    unscaled(rt, SLOW, 32.5e6)
    sgd(rt, SLOW, 32.5e6)
    rt.host(360)
