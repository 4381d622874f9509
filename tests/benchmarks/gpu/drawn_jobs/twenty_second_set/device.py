"""Jobs of the twenty-second set whose device works more than it must, or asks for memory: precision, memory, layout.

What the device does without the fault is written with it: products in bf16, memory that is found, tensors as NHWC.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.language import flash
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import AMPERE_HALF, L40S
from ..layers import CAST, REDUCE, VECTOR, Card, Tape, attention, back, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import A10G, AMPERE
from ..twelfth_set.pictures import ADA, CUTLASS, SGEMM, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, loader

SPOKEN, HEARD, WRITTEN, WIDE, WORDS = 8, 1_500, 160, 768, 51_865
FLOAT = Card(14.5, 480, "float", SGEMM, CUTLASS)


def _decoder(rt: Framed, tape: Tape, card: Card, x: list[int], heard: list[int]) -> None:
    """A layer of Whisper's decoder: attention to itself, to what was heard, an MLP."""
    for states in (x, heard):
        norm(rt, tape, card, x)
        for part in (x, states, states):
            dense(rt, tape, card, SPOKEN, (prod(part[:2]), WIDE, WIDE))
        attention(rt, tape, card, [SPOKEN, 12, int((x[1] * states[1]) ** 0.5), 64])
        dense(rt, tape, card, SPOKEN, (prod(x[:2]), WIDE, WIDE))
        elementwise(rt, tape, card, "add", x, 2)
    norm(rt, tape, card, x)
    dense(rt, tape, card, SPOKEN, (prod(x[:2]), WIDE, 4 * WIDE))
    elementwise(rt, tape, card, "gelu", [*x[:2], 4 * WIDE], back=(("gelu_backward", 3),))
    dense(rt, tape, card, SPOKEN, (prod(x[:2]), 4 * WIDE, WIDE))
    elementwise(rt, tape, card, "add", x, 2)


def whispering(rt: Framed, fixed: bool) -> None:
    """Whisper small fine-tuned by `Seq2SeqTrainer` on an A10G, eight recordings of 30 s: `bf16=True` and `tf32=True`
    were forgotten, all products are fp32 on the CUDA cores; without: autocast in bf16. The optimizer is fused, the loss
    is not read in these steps. Shapes.

    First: products in fp32 (autocast in bf16, or TF32). Not: launches, waits, a loader, the batch.
    """
    card = A10G if fixed else FLOAT
    tape, x, y = Tape(), [SPOKEN, HEARD, WIDE], [SPOKEN, WRITTEN, WIDE]
    square, wider = [WIDE, WIDE], [4 * WIDE, WIDE]
    loader(rt, 180)
    pinned(rt, SPOKEN * 80 * 3_000 * 4, [SPOKEN, 80, 3_000])
    pinned(rt, SPOKEN * WRITTEN * 8, y[:2], "long int")
    for wide in (3 * 80, 3 * WIDE):
        dense(rt, tape, card, SPOKEN, (prod(x[:2]) * (2 if wide == 240 else 1), wide, WIDE))
        elementwise(rt, tape, card, "gelu", [SPOKEN, HEARD * (2 if wide == 240 else 1), WIDE],
                    back=(("gelu_backward", 3),))  # fmt: skip
    for _ in range(12):
        if fixed:
            casts(rt, A10G, square, square, square, square, wider, wider[::-1])
        encoder(rt, tape, card, (SPOKEN, HEARD, WIDE))
    norm(rt, tape, card, x)
    rt.op("aten::embedding", run=((REDUCE, A10G.moves(8 * prod(y))),), gap=14, dims=([WORDS, WIDE], y[:2]))
    small(rt, tape, ("add",), y, A10G.moves(8 * prod(y)))
    for _ in range(12):
        if fixed:
            casts(rt, A10G, *[square] * 8, wider, wider[::-1])
        _decoder(rt, tape, card, y, x)
    norm(rt, tape, card, y)
    if fixed:
        casts(rt, A10G, [WORDS, WIDE])
    linear(rt, tape, card, y, WORDS)
    small(rt, tape, ("log_softmax", "nll_loss"), [prod(y[:2]), WORDS], A10G.moves(8 * prod(y[:2]) * WORDS))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A10G.moves(4 * 242e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A10G.moves(8 * 242e6), 3)
    fused_adamw(rt, A10G, 242e6)
    rt.host(450)


SHOWN, HEADS, CARD = 8, 5, AMPERE_HALF.card
SCALES = ((20, 30), (26, 38), (22, 34), (28, 42), (21, 32), (25, 40), (23, 36))  # of the deepest layers
LARGER = (17, 23, 12, 28, 15, 21, 18)  # segments that go back, because none has the size that is asked for


def _retried(rt: Framed, share: float) -> None:
    """The caching allocator is refused memory, gives back what it holds and asks again."""
    count = max(1, round(LARGER[rt.number] * share))
    with rt.span("aten::empty", us=5):
        rt.call("Malloc", 140)
        for place in range(count):
            rt.call("Free", 640, until=0 if place else max(rt.free.values()) + 6)
        rt.call("Malloc", 1_100)
    for _ in range(count // 2):
        with rt.span("aten::empty", us=3):
            rt.call("Malloc", 820)


def _towers(rt: Framed, tape: Tape, high: int, wide: int, fixed: bool) -> None:
    """FPN and the head of FCOS on five levels, group norms in it."""
    for more, cin in ((1, 2_048), (2, 1_024), (4, 512)):
        conv(rt, tape, AMPERE_HALF, Conv(SHOWN, cin, 256, 1, high * more, wide * more))
        conv(rt, tape, AMPERE_HALF, Conv(SHOWN, 256, 256, 3, high * more, wide * more))
    for level in range(HEADS):
        size = (max(1, high * 4 >> level), max(1, wide * 4 >> level))
        if level == 0 and not fixed:
            _retried(rt, 0.6)
        for _ in range(2):
            for _ in range(4):
                conv(rt, tape, AMPERE_HALF, Conv(SHOWN, 256, 256, 3, *size))
                y = [SHOWN, 256, *size]
                number = rt.op("aten::group_norm", "aten::native_group_norm", dims=(y,), graph=True, gap=16, run=(
                    ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, …)",
                     CARD.moves(2 * prod(y))), (kernel("group_norm", 2), CARD.moves(6 * prod(y)))))  # fmt: skip
                run = ((kernel("group_norm_backward", 3), CARD.moves(10 * prod(y))),)
                tape.append(
                    lambda number=number, run=run, y=y: rt.grad(
                        "NativeGroupNormBackward0", number, "aten::native_group_norm_backward", run=run, dims=(y, y)
                    )
                )
                elementwise(rt, tape, CARD, "relu_", y, back=(("threshold_backward", 3),))
        for out in (80, 4, 1):
            conv(rt, tape, AMPERE_HALF, Conv(SHOWN, 256, out, 3, *size))


def multiscale(rt: Framed, fixed: bool) -> None:
    """FCOS on ResNet-50, AMP, channels_last, eight pictures, scales drawn for each batch, on an RTX 3090 whose memory
    is nearly full: what is cached has the wrong sizes, the allocator is refused memory twice a step, gives segments
    back one by one while the device has nothing to do, and asks again; without: `expandable_segments:True`, nothing is
    given back. `GradScaler` waits once a step. No shapes.

    First: memory that is freed and asked for within steps. Not: a loader, waits, launches, a larger batch, TF32.
    """
    tape: Tape = []
    high, wide = SCALES[rt.number]
    picture = [SHOWN, 3, 32 * high, 32 * wide]
    loader(rt, 190)
    pinned(rt, prod(picture) * 4, picture)
    pinned(rt, SHOWN * 60 * 20, [SHOWN, 60, 5])
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    resnet(rt, tape, AMPERE_HALF, SHOWN, (high, wide))
    _towers(rt, tape, high, wide, fixed)
    places = SHOWN * 21 * high * wide
    names = ("sub", "stack", "min", "ge", "where", "gather", "sigmoid", "mul", "pow", "mul", "sum", "div")
    small(rt, tape, names, [places, 80], 34)
    if not fixed:
        _retried(rt, 0.8)
    back(rt, tape)
    unscaled(rt, CARD, 32e6)
    sgd(rt, CARD, 32e6)
    rt.host(360)


PICTURES, BASE = 64, 128
L40S_BF16 = replace(L40S, kind=BF16, names=AMPERE, attention=FLASH)
NAMES = tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names)
TO_NHWC = (
    "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, (cudnnKernelDataType_t)9>"
)
TO_NCHW = (
    "void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false, (cudnnKernelDataType_t)9>"
)


def _convolved(rt: Framed, tape: Tape, of: Conv, fixed: bool) -> None:
    """`Conv2d` under autocast: cuDNN's kernels are NHWC, so that it turns all that comes as NCHW, and its result."""
    (x, w, y), us = of.dims, of.us(L40S_BF16)

    def run(name: str, us: float, came: tuple[list[int], ...], gone: list[int]) -> tuple[tuple[str, float], ...]:
        turned = () if fixed else tuple((TO_NHWC, L40S_BF16.moves(4.6 * prod(one))) for one in came)
        behind = () if fixed else ((TO_NCHW, L40S_BF16.moves(4.6 * prod(gone))),)
        return (*turned, (name, us), *behind)

    casts(rt, L40S_BF16, w)
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=run(NAMES[0], us, (x, w), y), dims=(x, w), kind=BF16, gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            both = run(NAMES[1], us, (y, w), x) + run(NAMES[2], 1.1 * us, (y, x), w)
            rt.op("aten::convolution_backward", run=both, dims=(y, x, w), us=18, kind=BF16, gap=1)
        rt.accumulated()

    tape.append(backward)


def _normed(rt: Framed, tape: Tape, size: list[int]) -> None:
    """Group norm, which autocast has in fp32, SiLU and what comes back to bf16."""
    once = L40S_BF16.moves(2 * prod(size))
    moments = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::BFloat16>(long, …)"
    number = rt.op("aten::group_norm", "aten::native_group_norm", dims=(size,), graph=True, gap=15, kind=BF16, run=(
        (moments, once), (kernel("group_norm", 2, BF16), 2 * once)))  # fmt: skip
    tape.append(lambda: rt.grad("NativeGroupNormBackward0", number, "aten::native_group_norm_backward", run=(
        (moments.replace("RowwiseMoments", "ComputeInternalGradients"), 2 * once),
        (VECTOR.format("group_norm_backward", 3), 3 * once)), dims=(size, size), kind=BF16))  # fmt: skip
    elementwise(rt, tape, L40S_BF16, "silu", size, back=(("silu_backward", 3),))


def planar(rt: Framed, fixed: bool) -> None:
    """DDPM's UNet on faces of 64 pixels, an L40S, autocast in bf16, 64 pictures: the model and its input are NCHW, so
    that cuDNN turns tensors before and after each of its convolutions; without: `memory_format=torch.channels_last`.
    Attention at 16 pixels, AdamW fused, its moving average by lists. Shapes.

    First: kernels that turn layouts (channels_last). Not: launches, waits, a loader, TF32, the batch.
    """
    tape, picture = Tape(), [PICTURES, 3, 64, 64]
    loader(rt, 160)
    pinned(rt, prod(picture) * 4, picture)
    small(rt, None, ("randn_like", "randint", "index", "mul", "index", "mul", "add"), picture, 9)
    for out in (4 * BASE, 4 * BASE):
        dense(rt, tape, L40S_BF16, PICTURES, (PICTURES, BASE, out))
    _convolved(rt, tape, Conv(PICTURES, 3, BASE, 3, 64, 64), fixed)
    down = ((1, 64), (2, 32), (2, 16), (4, 8))
    for place, (times, side) in enumerate((*down, *down[::-1])):
        width = times * BASE
        for block in range(2 if place < 4 else 3):
            cin = width if place < 4 else 2 * width
            for number, given in enumerate((cin if block or place > 3 else width, width)):
                _normed(rt, tape, [PICTURES, given, side, side])
                _convolved(rt, tape, Conv(PICTURES, given, width, 3, side, side), fixed)
                if number == 0:
                    dense(rt, tape, L40S_BF16, PICTURES, (PICTURES, 4 * BASE, width))
                    elementwise(rt, tape, L40S_BF16, "add", [PICTURES, width, side, side], 2)
            if cin != width:
                _convolved(rt, tape, Conv(PICTURES, cin, width, 1, side, side), fixed)
            elementwise(rt, tape, L40S_BF16, "add", [PICTURES, width, side, side], 2)
            if side == 16:
                _normed(rt, tape, [PICTURES, width, side, side])
                linear(rt, tape, L40S_BF16, [PICTURES, side * side, width], 3 * width)
                flash(rt, tape, L40S_BF16, [PICTURES, width // 64, side * side, 64], causal=False)
                linear(rt, tape, L40S_BF16, [PICTURES, side * side, width], width)
        if place in (3, 7):
            continue
        size = [PICTURES, width, side, side]
        if place > 3:
            number = rt.op("aten::upsample_nearest2d", dims=(size,), kind=BF16, graph=True, gap=14, run=(
                (kernel("upsample_nearest2d", 2, BF16), L40S_BF16.moves(10 * prod(size))),))  # fmt: skip
            run = ((kernel("upsample_nearest2d_backward", 2, BF16), L40S_BF16.moves(10 * prod(size))),)
            tape.append(
                lambda number=number, run=run, size=size: rt.grad(
                    "UpsampleNearest2DBackward0", number, "aten::upsample_nearest2d_backward", run=run, dims=(size,)
                )
            )
        other = 2 * side if place > 3 else side // 2
        _convolved(rt, tape, Conv(PICTURES, width, width, 3, other, other), fixed)
    _normed(rt, tape, [PICTURES, BASE, 64, 64])
    _convolved(rt, tape, Conv(PICTURES, BASE, 3, 3, 64, 64), fixed)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, 8),), dims=(picture,), gap=9)
    small(rt, tape, ("mse_loss",), picture, 9)
    back(rt, tape)
    fused_adamw(rt, L40S_BF16, 78e6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", L40S_BF16.moves(12 * 78e6), 2, 210)
    rt.host(320)
