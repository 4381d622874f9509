"""Jobs of the twenty-fourth set whose loop waits for the GPU: labels picture by picture, clocks that synchronise."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import FILL, foreach, linear
from ..fifteenth_set.rows import L40S
from ..layers import CAST, Card, Tape, attention, back, dense, norm
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import HALF, V100, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, loader
from .rows import acts, chosen, few, judged

SHOWN, EDGE, ANCHORS = 16, 640, 8_400
CARD = V100.card
TOP = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(…)"
PER_PICTURE = (9, 4, 13, 6, 2, 7, 11, 5, 8, 3, 6, 16, 4, 7, 10, 5)


def _based(rt: Framed, tape: Tape, of: Conv) -> None:
    """YOLOX' `BaseConv`: a convolution, batch norm, SiLU."""
    conv(rt, tape, V100, of)
    y = of.dims[2]
    once = CARD.moves(2 * prod(y))
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((V100.norm.format("fw"), 3 * once),), dims=(y,), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=HALF, run=((V100.norm.format("bw"), 5 * once),)))  # fmt: skip
    acts(rt, tape, CARD, "silu", y)


def _stage(rt: Framed, tape: Tape, width: int, side: int, blocks: int) -> None:
    """`CSPLayer`."""
    half = width // 2
    for _ in range(2):
        _based(rt, tape, Conv(SHOWN, width, half, 1, side, side))
    for _ in range(blocks):
        _based(rt, tape, Conv(SHOWN, half, half, 1, side, side))
        _based(rt, tape, Conv(SHOWN, half, half, 3, side, side))
        acts(rt, tape, CARD, "add", [SHOWN, half, side, side])
    acts(rt, tape, CARD, "cat", [SHOWN, width, side, side])
    _based(rt, tape, Conv(SHOWN, width, width, 1, side, side))


def _network(rt: Framed, tape: Tape) -> None:
    """YOLOX-S: CSPDarknet, PAFPN, a decoupled head on three levels."""
    acts(rt, tape, CARD, "cat", [SHOWN, 12, 320, 320])
    _based(rt, tape, Conv(SHOWN, 12, 32, 3, 320, 320))
    for width, side, blocks in ((64, 160, 1), (128, 80, 3), (256, 40, 3), (512, 20, 1)):
        _based(rt, tape, Conv(SHOWN, width // 2, width, 3, side, side))
        _stage(rt, tape, width, side, blocks)
    for width, side in ((256, 40), (128, 80), (256, 40), (512, 20)):
        _based(rt, tape, Conv(SHOWN, 2 * width if side > 20 else 256, width, 1, side, side))
        acts(rt, tape, CARD, "upsample cat", [SHOWN, width, side, side])
        _stage(rt, tape, width, side, 1)
    for width, side in ((128, 80), (256, 40), (512, 20)):
        _based(rt, tape, Conv(SHOWN, width, 128, 1, side, side))
        for _ in range(4):
            _based(rt, tape, Conv(SHOWN, 128, 128, 3, side, side))
        for out in (80, 4, 1):
            conv(rt, tape, V100, Conv(SHOWN, 128, out, 1, side, side))
        acts(rt, tape, CARD, "cat turn", [SHOWN, 85, side, side])
    acts(rt, tape, CARD, "cat", [SHOWN, ANCHORS, 85])


def _matched(rt: Framed, boxes: int) -> None:
    """SimOTA of a picture: `get_assignments` and `simota_matching`."""
    few(rt, "select slice", [120, 5], 1.8)
    few(rt, "sub sub add add repeat repeat sub sub sub sub stack min gt sum gt", [boxes, ANCHORS], 3)
    few(rt, "sub sub add add sub sub sub sub stack min gt sum gt bitwise_or bitwise_and", [boxes, ANCHORS], 3)
    for size in ([ANCHORS, 4], [ANCHORS, 80], [ANCHORS, 1], [boxes, ANCHORS]):
        chosen(rt, size)
    few(rt, "max min sub prod prod lt mul sub add div log neg one_hot repeat", [boxes, 1_400], 3)
    few(rt, "sigmoid sigmoid mul sqrt binary_cross_entropy sum bitwise_not mul mul add add", [boxes, 1_400, 80], 6)
    few(rt, "zeros_like", [boxes, 1_400])
    rt.op("aten::topk", run=((TOP, 9), ("void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long>(…)", 4)),
          dims=([boxes, 1_400],), gap=7, us=8)  # fmt: skip
    few(rt, "sum clamp", [boxes])
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):  # dynamic_ks.tolist()
        rt.copy(4 * boxes, "DtoH", "Pageable", waits=True)
    for _ in range(boxes):
        rt.op("aten::topk", run=((TOP, 8),), dims=([1_400],), gap=7, us=7)
        rt.op("aten::index_put_", "aten::_index_put_impl_", run=((FILL, 2.2),), dims=([1_400],), gap=6, us=7)
    few(rt, "sum max gt", [1_400])
    rt.value("aten::is_nonzero")
    few(rt, "sum gt sum", [1_400])
    rt.value()
    for size in ([ANCHORS], [boxes, 1_400]):
        chosen(rt, size)
    few(rt, "argmax index mul sum", [boxes, 1_400])
    chosen(rt, [1_400])
    few(rt, "one_hot mul", [40, 80])


def _targets(rt: Framed, fixed: bool) -> None:
    """Picture by picture, or all at once on boxes that are padded."""
    if fixed:
        few(rt, "sub sub add add sub sub sub sub stack min gt sum gt bitwise_or", [SHOWN, 16, ANCHORS], 14)
        few(rt, "max min sub prod prod mul sub add div log neg mul add where", [SHOWN, 16, ANCHORS], 14)
        few(rt, "gather sigmoid mul sqrt log mul neg add mul add where", [SHOWN, 16, ANCHORS], 16)
        rt.op("aten::topk", run=((TOP, 210),), dims=([SHOWN, 16, ANCHORS],), gap=7, us=8)
        few(rt, "sum clamp scatter_ cumsum lt mul sum gt argmin where gather one_hot mul", [SHOWN, 16, ANCHORS], 12)
        return
    few(rt, "sum gt sum", [SHOWN, 120, 5])
    for number in range(SHOWN):
        rt.value()  # int(nlabel[batch_idx])
        _matched(rt, PER_PICTURE[(number + 3 * rt.number) % SHOWN])
    few(rt, "cat cat cat cat", [540, 80])


def simota(rt: Framed, fixed: bool) -> None:
    """YOLOX-S on a V100, AMP, channels_last, 16 pictures of 640: labels are assigned picture by picture by SimOTA,
    which takes candidates by boolean masks, reads how many each box gets (`.tolist()`, `.item()`) and goes through the
    boxes in a loop, some 180 waits a step in which the GPU has next to nothing to do; without: all pictures at once on
    padded boxes. A prefetcher copies batches on a stream of its own,
    `GradScaler` waits once. Shapes.

    First: waits in the loop. Not: the loader, the batch, pinned memory, TF32 or bf16, which a V100 has not.
    """
    tape, picture, came = Tape(), [SHOWN, 3, EDGE, EDGE], rt.free.get(COPIES, 0.0)
    loader(rt, 210)
    pinned(rt, 4 * prod(picture), picture, stream=COPIES)
    pinned(rt, 4 * SHOWN * 120 * 5, [SHOWN, 120, 5], stream=COPIES)
    if came:
        rt.waits(MAIN, came)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    _network(rt, tape)
    _targets(rt, fixed)
    wide = replace(CARD, kind="float")
    for size, names in (([540, 4], "sub pow sub mul sum"), ([SHOWN * ANCHORS, 1], "sigmoid log mul sum"),
                        ([540, 80], "sigmoid log mul sum")):  # fmt: skip
        acts(rt, tape, wide, names, size)
    acts(rt, tape, wide, "div add add add", [1])
    back(rt, tape)
    unscaled(rt, CARD, 9e6)
    sgd(rt, CARD, 9e6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", CARD.moves(12 * 9e6), 2, 140)
    rt.host(420)


TEXTS, LENGTH, WIDE, DEEP, WORDS = 2, 512, 1_024, 24, 50_304
ADA = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)


def _neox(rt: Framed, tape: Tape) -> None:
    """A layer of GPT-NeoX as transformers has it: attention and MLP side by side, a quarter of heads turns."""
    x, heads = [TEXTS, LENGTH, WIDE], [TEXTS, 16, LENGTH, 64]
    norm(rt, tape, ADA, x)
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, 3 * WIDE))
    for _ in range(2):
        acts(rt, tape, ADA, "mul cat mul add cat", [*heads[:3], 16])
    attention(rt, tape, ADA, heads)
    acts(rt, tape, ADA, "turn", x)
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
    norm(rt, tape, ADA, x)
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
    acts(rt, tape, ADA, "gelu", [*x[:2], 4 * WIDE])
    dense(rt, tape, ADA, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
    acts(rt, tape, ADA, "add add", x)


def _clock(rt: Framed, fixed: bool, times: int = 1) -> None:
    """`SynchronizedWallClockTimer`: `torch.cuda.synchronize()` when a timer is started and when it is stopped."""
    for _ in range(0 if fixed else times):
        rt.host(6)
        rt.wait()


def breakdown(rt: Framed, fixed: bool) -> None:
    """Pythia-410M, DeepSpeed's ZeRO 1 on one L40S, bf16, two texts of 512: `"wall_clock_breakdown": true` was left in
    the configuration, so that the host waits for the GPU at the beginning and at the end of each of the forward pass,
    the backward pass and the step, and its launches are no longer ahead; without: false. Its Adam is fused. No shapes.

    First: `cudaDeviceSynchronize` in each step. Not: the loader, copies, TF32, the optimizer.
    """
    tape, x = Tape(), [TEXTS, LENGTH, WIDE]
    loader(rt, 120)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    _clock(rt, fixed, 2)
    acts(rt, tape, ADA, "embedding", x)
    for _ in range(DEEP):
        _neox(rt, tape)
    norm(rt, tape, ADA, x)
    linear(rt, tape, ADA, x, WORDS)
    acts(rt, tape, replace(ADA, kind="float"), "turn", [TEXTS * LENGTH, WORDS])
    judged(rt, tape, ADA, TEXTS * LENGTH, WORDS)
    _clock(rt, fixed, 2)
    rt.host(120)
    acts(rt, None, ADA, "div", [1])
    _clock(rt, fixed, 3)
    back(rt, tape)
    _clock(rt, fixed, 2)
    rt.host(90)
    _clock(rt, fixed, 4)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(2 * 405e6), 4, 210)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA.moves(4 * 405e6), 4, 140)
    adam = "void (anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, int>>(…)"
    with rt.span("Optimizer.step#FusedAdam.step", "user_annotation", us=150):
        for _ in range(20):  # a function of an extension, no op
            rt.work(adam, ADA.moves(28 * 405e6 / 20))
    rt.op("aten::copy_", run=((CAST, ADA.moves(6 * 405e6)),), dims=([405_000_000],), gap=30)
    _clock(rt, fixed, 3)
    rt.host(680)
