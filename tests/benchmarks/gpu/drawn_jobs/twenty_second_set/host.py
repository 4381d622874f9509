"""Jobs of the twenty-second set that wait for the host: late batches, large copies, lengths and boxes that are read.

The waits stand in the middle of the forward pass, where the device runs out of work.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned, returned
from ..eleventh_set.rows import FILL, Roofline, elementwise, kernel, node
from ..layers import CAST, REDUCE, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..sixteenth_set.rows import INDEX
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import TF32, V100, looked_for, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader

SOUNDS, FRAMES, MELS, EVERY = 32, 1_000, 64, 168_000.0  # µs between two batches of all workers together
POOL = "void at::native::(anonymous namespace)::avg_pool2d_out_cuda_frame<c10::Half, float, int>(int, …)"


def mels(rt: Framed, fixed: bool) -> None:
    """CNN14 of PANNs on a V100, AMP, channels_last, 32 sounds of ten seconds: three workers read flac and compute
    spectra by librosa, a batch in 168 ms, while the GPU takes some 117; without: spectra that lie on disk. No shapes.

    First: the wait for batches (more workers, spectra that were computed before). Not: launches, pinned memory,
    `GradScaler`'s wait, the batch, TF32 or bf16, which a V100 has not.
    """
    tape: Tape = []
    loader(rt, 180 if fixed else max(180.0, 1_000_000 + EVERY * (rt.number + 1) - rt.now))
    picture = [SOUNDS, 1, FRAMES, MELS]
    pinned(rt, prod(picture) * 4, picture)
    pinned(rt, SOUNDS * 527 * 4, [SOUNDS, 527])
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, V100.card.moves(6 * prod(picture))),),
          dims=(picture,))  # fmt: skip
    cin = 1
    for number in range(6):
        width, high, wide = 64 << number, FRAMES >> number, max(1, MELS >> number)
        conv_norm(rt, tape, V100, Conv(SOUNDS, cin, width, 3, high, wide))
        conv_norm(rt, tape, V100, Conv(SOUNDS, width, width, 3, high, wide))
        cin, y = width, [SOUNDS, width, high, wide]
        us = V100.card.moves(2.5 * prod(y))
        count = rt.op("aten::avg_pool2d", run=((POOL, us),), dims=(y,), graph=True, gap=14)
        run = ((POOL.replace("out_cuda", "backward_out_cuda"), us),)
        tape.append(lambda count=count, run=run, y=y: rt.grad(
            "AvgPool2DBackward0", count, "aten::avg_pool2d_backward", run=run, dims=(y,)))  # fmt: skip
    small(rt, tape, ("mean", "max", "mean", "add"), [SOUNDS, 2_048, 31], 6)
    for out in (2_048, 527):
        dense(rt, tape, V100.card, SOUNDS, (SOUNDS, 2_048, out))
    small(rt, tape, ("sigmoid", "binary_cross_entropy"), [SOUNDS, 527], 4)
    back(rt, tape)
    unscaled(rt, V100.card, 80.8e6)
    fused_adamw(rt, V100.card, 80.8e6)
    rt.host(300)


PATCHES = (21_400, 34_800, 16_900, 28_300, 39_200, 24_600, 31_700)
A10G = Roofline(30, 480, "float", TF32, ("", ""))
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMax{0}<4, float, float, float, SoftMax{0}Epilogue>(…)"


def _bag(rt: Framed, fixed: bool) -> None:
    """Features of a slide's patches: this one's, or ahead on a stream of its own the next one's."""
    dims = [PATCHES[rt.number], 1_024]
    if not fixed:
        rt.moved(4 * prod(dims), 6.0, dims)
        rt.moved(8, 1, [1], "long int")
        return
    came = rt.free.get(COPIES, 0.0)
    if came:
        rt.waits(MAIN, came)
    pinned(rt, 4 * prod(dims), dims, stream=COPIES)
    pinned(rt, 8, [1], "long int", stream=COPIES)


def bags(rt: Framed, fixed: bool) -> None:
    """CLAM's gated attention over slides on an A10G, TF32, one slide a step: 17,000 to 39,000 features of patches, up
    to 161 MB in float32, go to the GPU by `.to(device)` from memory that is not pinned, and all of the small model's
    work waits for them; without: pinned, a slide ahead on a stream of its own. The loss is summed on the GPU. Shapes.

    First: copies of pageable memory. Not: the loader, whose workers are ahead, launches, the batch of one slide, TF32.
    """
    tape, count = Tape(), PATCHES[rt.number]
    x, gate = [count, 512], [count, 256]
    loader(rt, 160)
    _bag(rt, fixed)
    dense(rt, tape, A10G, 1, (count, 1_024, 512))
    elementwise(rt, tape, A10G, "relu", x, back=(("threshold_backward", 3),))
    number = rt.op("aten::dropout", "aten::native_dropout", dims=(x,), graph=True, gap=12, run=(
        ("void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(…)",
         A10G.moves(9 * prod(x))),))  # fmt: skip
    tape.append(lambda: rt.grad("NativeDropoutBackward0", number, "aten::native_dropout_backward", dims=(x, x), run=(
        (kernel("masked_scale", 3), A10G.moves(9 * prod(x))),)))  # fmt: skip
    for name in ("tanh", "sigmoid"):
        dense(rt, tape, A10G, 1, (count, 512, 256))
        elementwise(rt, tape, A10G, name, gate, back=((f"{name}_backward", 3),))
    elementwise(rt, tape, A10G, "mul", gate, 2, (("mul", 3), ("mul", 3)))
    dense(rt, tape, A10G, 1, (count, 256, 1))
    chosen = rt.op("aten::softmax", "aten::_softmax", run=((SOFTMAX.format("Forward"), 34),), dims=([1, count],),
                   graph=True, gap=14)  # fmt: skip
    tape.append(lambda: rt.grad("SoftmaxBackward0", chosen, "aten::_softmax_backward_data", dims=([1, count],) * 2,
                                run=((SOFTMAX.format("Backward"), 41),)))  # fmt: skip
    dense(rt, tape, A10G, 1, (512, count, 1))
    dense(rt, tape, A10G, 1, (1, 512, 2))
    small(rt, tape, ("log_softmax", "nll_loss"), [1, 2], 3)
    back(rt, tape)
    fused_adamw(rt, A10G, 0.8e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(190)


TEXTS, LETTERS, MEL, HIDDEN = 16, 84, 620, 256
RTX3090 = Roofline(27, 780, "float", TF32, ("", ""))
ONE_WIDE = tuple(name.replace("tilesize128x128x32", "tilesize128x64x32") for name in TF32_LOOK.names)
MODULES = ("model/fastspeech2.py(44): forward", "nn.Module: VarianceAdaptor_0", "model/modules.py(106): forward")
EXPANDED = (*MODULES, "nn.Module: LengthRegulator_0", "model/modules.py(187): forward", "model/modules.py(163): LR",
            "model/modules.py(177): expand")  # fmt: skip
CAT = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>>(…)"
)


def _conv1d(rt: Framed, tape: Tape, length: int, sizes: tuple[int, int, int]) -> None:
    """`Conv1d` of (channels in and out, side)."""
    cin, cout, side = sizes
    us = RTX3090.product(TEXTS * length, cout, cin * side)
    dims = ([TEXTS, cin, length], [cout, cin, side])
    number = rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", dims=dims,
                   graph=True, run=((ONE_WIDE[0], us),), gap=16)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((ONE_WIDE[1], us), (ONE_WIDE[2], us)), us=16, gap=1,
                  dims=([TEXTS, cout, length], *dims))  # fmt: skip
        rt.accumulated()

    tape.append(backward)
    elementwise(rt, tape, RTX3090, "add", [TEXTS, cout, length], back=(("sum", 2),))


def _batch_norm(rt: Framed, tape: Tape, card: Roofline, dims: list[int]) -> None:
    """`nn.BatchNorm1d` of many rows, which cuDNN does not take."""
    once, name = card.moves(4 * prod(dims)), "void at::native::batch_norm_{}_channels_last_kernel<4, float, float, …>"
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", dims=(dims,), gap=16,
                   graph=True, run=((name.format("collect_statistics"), once), (name.format("transform_input"),
                                                                                2 * once)))  # fmt: skip
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", number, "aten::native_batch_norm_backward", run=(
        (name.format("backward_reduce"), 2 * once), (name.format("backward_elemt"), 3 * once)),
        dims=(dims, dims)))  # fmt: skip


def _fft(rt: Framed, tape: Tape, length: int) -> None:
    """A block of FastSpeech2: attention of two heads op by op, two convolutions."""
    x, scores = [TEXTS, length, HIDDEN], [2 * TEXTS, length, length]
    for _ in range(3):
        dense(rt, tape, RTX3090, TEXTS, (prod(x[:2]), HIDDEN, HIDDEN))
    us = RTX3090.product(2 * TEXTS * length, length, 128)
    for name in ("bmm", "div", "masked_fill", "softmax", "bmm"):
        if name != "bmm":
            elementwise(rt, tape, RTX3090, name, scores, back=((f"{name}_backward", 3),))
            continue
        number = rt.op("aten::bmm", run=((TF32[0], us),), dims=(scores, x), graph=True, gap=14)
        tape.append(lambda number=number: rt.grad("BmmBackward0", number, "aten::bmm", run=((TF32[1], us),) * 2,
                                                  dims=(scores, x)))  # fmt: skip
    dense(rt, tape, RTX3090, TEXTS, (prod(x[:2]), HIDDEN, HIDDEN))
    elementwise(rt, tape, RTX3090, "add", x, 2)
    norm(rt, tape, RTX3090, x)
    _conv1d(rt, tape, length, (HIDDEN, 1_024, 9))
    elementwise(rt, tape, RTX3090, "relu", [TEXTS, 1_024, length], back=(("threshold_backward", 3),))
    _conv1d(rt, tape, length, (1_024, HIDDEN, 1))
    elementwise(rt, tape, RTX3090, "add", x, 2)
    norm(rt, tape, RTX3090, x)
    elementwise(rt, tape, RTX3090, "masked_fill", x, back=(("masked_fill", 2),))


def _expanded(rt: Framed, tape: Tape) -> None:
    """A text: each phoneme's state is widened to as many frames as Python read, and all are put together."""
    states, parts = [LETTERS, HIDDEN], list[int]()
    whole = rt.op("aten::unbind", us=60, dims=(states,), graph=True)
    for _ in range(LETTERS):
        with rt.span("aten::select", us=1.6):
            pass
        with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
            rt.value()
        parts.append(rt.op("aten::expand", us=2.2, gap=2, dims=([1, HIDDEN],), graph=True))
    number = rt.op("aten::cat", run=((CAT, 5),), dims=([MEL, HIDDEN],), graph=True, gap=26, us=30)

    def backward() -> None:
        with node(rt, "CatBackward0", number):
            for _ in range(LETTERS):
                with rt.span("aten::narrow", us=1.6):
                    pass
        for part in reversed(parts):
            rt.grad("ExpandBackward0", part, "aten::sum", run=((REDUCE, 2.6),), dims=([7, HIDDEN],))
        rt.grad("UnbindBackward0", whole, "aten::stack", "aten::cat", run=((CAT, 4),), us=40, dims=(states,))

    tape.append(backward)


def _regulated(rt: Framed, tape: Tape, fixed: bool) -> None:
    """Each phoneme's state as often as it lasts: text by text, phoneme by phoneme, or by one index for all."""
    whole = [TEXTS, MEL, HIDDEN]
    once = RTX3090.moves(8 * prod(whole))
    if fixed:
        small(rt, None, ("cumsum", "arange", "searchsorted", "clamp"), [TEXTS, MEL], 4)
        number = rt.op("aten::gather", run=((kernel("gather", 2), once),), dims=(whole,), graph=True, gap=14)
        tape.append(lambda: rt.grad("GatherBackward0", number, "aten::scatter_add_", run=((FILL, once / 2),
                                    (kernel("scatter_add", 2), 1.6 * once)), dims=(whole, whole)))  # fmt: skip
        return
    with rt.frame(*EXPANDED[:-1]):
        for _ in range(TEXTS):
            with rt.frame(EXPANDED[-1]):
                _expanded(rt, tape)
        small(rt, tape, ("constant_pad_nd",) * TEXTS, [MEL, HIDDEN], 3)
        small(rt, tape, ("stack",), whole, once)


def regulated(rt: Framed, fixed: bool) -> None:
    """FastSpeech2 by ming024 on an RTX 3090, TF32, 16 texts of some 84 phonemes: its length regulator asks the GPU for
    each phoneme's length by `.item()`, 1,344 a step, while nothing is queued; without: an index by `cumsum`. Stacks.

    First: waits of `.item()` in the forward pass. Not: the loader, the batch, launches, the optimizer, TF32.
    """
    tape: Tape = []
    loader(rt, 150)
    for count, kind in ((TEXTS * LETTERS * 8, "long int"), (TEXTS * MEL * 80 * 4, "float"), (TEXTS * LETTERS * 4,
                        "float"), (TEXTS * LETTERS * 4, "float"), (TEXTS * LETTERS * 8, "long int")):  # fmt: skip
        pinned(rt, count, [TEXTS, count // TEXTS // 4], kind)
    with rt.frame("train.py(84): main", "nn.Module: FastSpeech2_0"):
        rt.op("aten::embedding", run=((REDUCE, 6),), gap=14, dims=([361, HIDDEN], [TEXTS, LETTERS]))
        with rt.frame(MODULES[0], "nn.Module: Encoder_0"):
            for _ in range(4):
                _fft(rt, tape, LETTERS)
        for _ in range(3):
            for cin in (HIDDEN, HIDDEN):
                _conv1d(rt, tape, LETTERS, (cin, HIDDEN, 3))
                small(rt, tape, ("relu", "layer_norm"), [TEXTS, LETTERS, HIDDEN], 4)
            small(rt, tape, ("addmm", "squeeze", "masked_fill"), [TEXTS, LETTERS], 3)
        _regulated(rt, tape, fixed)
        with rt.frame(MODULES[0], "nn.Module: Decoder_0"):
            for _ in range(6):
                _fft(rt, tape, MEL)
        dense(rt, tape, RTX3090, TEXTS, (TEXTS * MEL, HIDDEN, 80))
        for cin, cout in ((80, 512), (512, 512), (512, 512), (512, 512), (512, 80)):
            _conv1d(rt, tape, MEL, (cin, cout, 5))
            _batch_norm(rt, tape, RTX3090, [TEXTS, cout, MEL])
            elementwise(rt, tape, RTX3090, "tanh", [TEXTS, cout, MEL], back=(("tanh_backward", 3),))
    small(rt, tape, ("masked_select", "sub", "abs", "mean") * 2 + ("sub", "pow", "mean") * 3 + ("add",) * 4, [], 4)
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    with rt.frame("torch/optim/optimizer.py(484): wrapper"):
        fused_adamw(rt, RTX3090, 35e6)
    rt.host(260)


POINTS, CLOUDS, BOXES, CLASSES = 12_000, 8, (17, 9, 26, 13, 31, 8, 21, 15), 3
GRAPHICS = Roofline(55, 860, "float", TF32, ("", ""))
ADA = replace(TF32_LOOK, card=GRAPHICS)
ANCHORS = [1, 248, 216, 2, 7]
COSTS = ("sub", "clamp", "mul", "max", "min", "sub", "clamp", "prod", "add", "div")


def asked_if(rt: Framed, *names: str) -> None:
    """A condition of Python on a tensor."""
    small(rt, None, names, [7], 2.2)
    rt.value("aten::is_nonzero")


def _assigned(rt: Framed, fixed: bool) -> None:
    """Targets of anchors: cloud by cloud and class by class, or of all at once."""
    area = CLOUDS * prod(ANCHORS[:4]) * CLASSES
    if fixed:
        once = ADA.card.moves(8 * area * 10)
        for _ in range(2):
            small(rt, None, COSTS, [CLOUDS, 40, prod(ANCHORS[:4])], once)
        small(rt, None, ("ge", "where", "gather", "where", "sub", "div", "log", "stack"), [CLOUDS, 321_408, 7], once)
        return
    for boxes in BOXES:
        # `while cnt > 0 and cur_gt[cnt].sum() == 0`: what pads to the cloud with most of them
        for _ in range(max(BOXES) - boxes):
            asked_if(rt, "select", "sum", "eq")
        for _ in range(CLASSES):
            returned(rt, 8 * boxes, 3, [boxes], "long int")
            rt.host(24)
            small(rt, None, ("index", *COSTS), [boxes, prod(ANCHORS[:4])], 9)
            for name in ("eq", "ge", "lt"):
                looked_for(rt, name, [prod(ANCHORS[:4])])
            small(rt, None, ("index_put_", "sub", "div", "log", "stack", "index_put_"), [prod(ANCHORS[:4])], 5)


def _scattered(rt: Framed, tape: Tape, fixed: bool) -> None:
    """Pillars to their places: by a boolean mask for each cloud, or by one index of all."""
    size, canvas = [CLOUDS * POINTS, 64], [CLOUDS, 64, 496, 432]
    us = ADA.card.moves(4 * prod(canvas))
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, us),), dims=(canvas,), gap=14)
    for _ in range(1 if fixed else CLOUDS):
        part = prod(size) / (1 if fixed else CLOUDS)
        if not fixed:
            looked_for(rt, "eq", size[:1])
            rt.op("aten::index", run=((INDEX, 6),), dims=(size,), gap=9)
            looked_for(rt, "eq", size[:1])
        number = rt.op("aten::index", run=((INDEX, ADA.card.moves(8 * part)),), dims=(size,), gap=12, graph=True)
        tape.append(lambda number=number, part=part: rt.grad("IndexBackward0", number, "aten::index_put_", dims=(size,),
                                                             run=((INDEX, ADA.card.moves(12 * part)),)))  # fmt: skip
        small(rt, None, ("mul", "add", "add", "index_put_"), size[:1], 4)


def pillars(rt: Framed, fixed: bool) -> None:
    """PointPillars of OpenPCDet on an RTX 4090, convolutions in TF32, eight clouds: a boolean mask for each cloud puts
    pillars in their places, and targets are made cloud by cloud, class by class: lines that only pad are looked for by
    `while`, classes go to the host, masks become indices, some 220 waits a step; without: all clouds at once by
    indices and `where`. Shapes.

    First: waits in the loop (`nonzero`, `is_nonzero`, `.cpu()`). Not: the loader, pinned memory, the batch, TF32.
    """
    tape, points = Tape(), [CLOUDS * POINTS, 32, 10]
    loader(rt, 170)
    for nbytes, dims in ((CLOUDS * POINTS * 32 * 16, points), (CLOUDS * POINTS * 16, points[:1]), (9_984, [8, 39, 8])):
        pinned(rt, nbytes, dims)
    small(rt, None, ("sum", "div", "sub", "mul", "add", "sub", "cat"), points, ADA.card.moves(4 * prod(points)))
    dense(rt, tape, ADA.card, 1, (prod(points[:2]), 10, 64))
    _batch_norm(rt, tape, GRAPHICS, [*points[:2], 64])
    elementwise(rt, tape, ADA.card, "relu", [*points[:2], 64], back=(("threshold_backward", 3),))
    small(rt, tape, ("max",), [*points[:2], 64], ADA.card.moves(4 * prod(points[:2]) * 64))
    _scattered(rt, tape, fixed)
    cin = 64
    for width, count, high, wide in ((64, 4, 248, 216), (128, 6, 124, 108), (256, 6, 62, 54)):
        for _ in range(count):
            conv_norm(rt, tape, ADA, Conv(CLOUDS, cin, width, 3, high, wide))
            cin = width
        conv_norm(rt, tape, ADA, Conv(CLOUDS, width, 128, 1, 248, 216))
    small(rt, tape, ("cat",), [CLOUDS, 384, 248, 216], ADA.card.moves(8 * CLOUDS * 384 * 248 * 216))
    for out in (18, 42, 12):
        conv(rt, tape, ADA, Conv(CLOUDS, 384, out, 1, 248, 216))
    _assigned(rt, fixed)
    names = ("sigmoid", "mul", "pow", "mul", "sum", "sub", "abs", "where", "mul", "sum", "log_softmax", "sum", "add")
    small(rt, tape, names, [CLOUDS, 321_408, 7], 22)
    back(rt, tape)
    fused_adamw(rt, ADA.card, 4.8e6)
    rt.host(320)
