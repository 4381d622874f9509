"""Jobs of the twenty-third set that wait for the host: late batches, copies of frames, masks and checks that are read.

Two workers that begin together come together, so that each second batch lies ready.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import COPY, FILL, Roofline, elementwise, foreach, kernel, linear, node
from ..fifteenth_set.rows import V100
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..sixteenth_set.rows import INDEX
from ..tenth_set.jobs import gathered, pooled
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import HALF, TF32, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twentieth_set.host import TURING
from ..twenty_first_set.host import answered

SCENES, CLASSES, EVERY = 4, 150, 640_000.0  # µs that each of both workers takes for a batch
MIT = ((3, 64, 1, 8, 128), (4, 128, 2, 4, 64), (6, 320, 5, 2, 32), (3, 512, 8, 1, 16))
PLAIN = Look(TURING, ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
                      "turing_fp16_s1688cudnn_fp16_128x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1",
                      "turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1"),
             cast=True)  # fmt: skip
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_{}_kernel<3, c10::Half, int>(…)"


def products(rt: Framed, tape: Tape, card: Card, sizes: tuple[int, int, int, int]) -> None:
    """`torch.matmul` of so many matrices of (rows, inner, columns)."""
    count, rows, inner, columns = sizes
    us = max(card.product(count * rows, columns, inner),
             card.moves(card.size * count * (rows * inner + inner * columns + rows * columns)))  # fmt: skip
    dims = ([count, rows, inner], [count, inner, columns])
    number = rt.op("aten::matmul", "aten::bmm", run=((card.names[0], us),), dims=dims, graph=True, gap=15,
                   kind=card.kind)  # fmt: skip

    def backward() -> None:
        with node(rt, "BmmBackward0", number):
            for _ in range(2):
                rt.op("aten::bmm", run=((card.names[1], us),), gap=2, us=7, dims=dims, kind=card.kind)

    tape.append(backward)


def _mixed(rt: Framed, tape: Tape, sizes: tuple[int, int, int, int, int]) -> None:
    """A block of a Mix Transformer: attention to fewer places, a depthwise convolution in the MLP."""
    _, width, heads, fewer, side = sizes
    tokens, kept = side**2, (side // fewer) ** 2
    x, scores = [SCENES, tokens, width], [SCENES, heads, tokens, kept]
    casts(rt, TURING, *[[width, width]] * 4, [4 * width, width], [width, 4 * width])
    norm(rt, tape, TURING, x)
    dense(rt, tape, TURING, SCENES, (SCENES * tokens, width, width))
    if fewer > 1:
        conv(rt, tape, PLAIN, Conv(SCENES, width * fewer**2, width, 1, side // fewer, side // fewer))
        norm(rt, tape, TURING, [SCENES, kept, width])
    for _ in range(2):
        dense(rt, tape, TURING, SCENES, (SCENES * kept, width, width))
    products(rt, tape, TURING, (SCENES * heads, tokens, width // heads, kept))
    for name in ("div", "softmax"):
        elementwise(rt, tape, TURING, name, scores, back=((f"{name}_backward", 3),))
    products(rt, tape, TURING, (SCENES * heads, tokens, kept, width // heads))
    dense(rt, tape, TURING, SCENES, (SCENES * tokens, width, width))
    elementwise(rt, tape, TURING, "add", x, 2)
    norm(rt, tape, TURING, x)
    dense(rt, tape, TURING, SCENES, (SCENES * tokens, width, 4 * width))
    wide = [SCENES, 4 * width, side, side]
    once = TURING.moves(4 * prod(wide))
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", gap=16,
                   run=((DEPTHWISE.format("forward"), 1.3 * once),), dims=(wide, [4 * width, 1, 3, 3]), kind=HALF,
                   graph=True)  # fmt: skip
    behind = ((DEPTHWISE.format("backward"), 1.5 * once), (DEPTHWISE.format("grad_weight"), 1.9 * once))
    tape.append(lambda: rt.grad("ConvolutionBackward0", number, "aten::convolution_backward", run=behind, us=16,
                                dims=(wide, wide, [4 * width, 1, 3, 3]), kind=HALF))  # fmt: skip
    elementwise(rt, tape, TURING, "gelu", wide, back=(("gelu_backward", 3),))
    dense(rt, tape, TURING, SCENES, (SCENES * tokens, 4 * width, width))
    elementwise(rt, tape, TURING, "add", x, 2)


def colab(rt: Framed, fixed: bool) -> None:
    """SegFormer-B2 fine-tuned on ADE20k in a notebook of Colab, a T4 and two virtual processors, autocast in fp16, four
    scenes of 512: two workers decode, augment and resize large pictures, 0.64 s a batch each, so that the loop waits
    for each pair; without: pictures that were resized before. `GradScaler` waits once, the loss is summed on the GPU.
    Stacks, no shapes.

    First: the wait for batches (cheaper augmentation, data made small before). Not: launches, `GradScaler`'s wait,
    pinned memory, the batch, TF32 or bf16, which a T4 has not.
    """
    tape, picture = Tape(), [SCENES, 3, 512, 512]
    loader(rt, 240 if fixed else max(240.0, 1_000_000 + EVERY * (rt.number // 2 + 1) - rt.now))
    pinned(rt, prod(picture) * 4, picture)
    pinned(rt, SCENES * 512 * 512 * 8, [SCENES, 512, 512], "long int")
    with rt.frame("transformers/models/segformer/modeling_segformer.py(763): forward",
                  "nn.Module: SegformerForSemanticSegmentation_0"):  # fmt: skip
        cin = 3
        for place, stage in enumerate(MIT):
            width, side = stage[1], stage[4]
            with rt.frame("nn.Module: SegformerEncoder_0", f"nn.Module: SegformerOverlapPatchEmbeddings_{place}"):
                conv(rt, tape, PLAIN, Conv(SCENES, cin, width, 3 if place else 7, side, side))
                norm(rt, tape, TURING, [SCENES, side**2, width])
            for number in range(stage[0]):
                with rt.frame(f"nn.Module: SegformerLayer_{number}"):
                    _mixed(rt, tape, stage)
            cin = width
        for _, width, _, _, side in MIT:
            dense(rt, tape, TURING, SCENES, (SCENES * side**2, width, 768))
            small(rt, tape, ("upsample_bilinear2d",), [SCENES, 768, 128, 128], TURING.moves(3 * SCENES * 768 * 128**2))
        whole = [SCENES, 4 * 768, 128, 128]
        small(rt, tape, ("cat",), whole, TURING.moves(4 * prod(whole)))
        conv(rt, tape, PLAIN, Conv(SCENES, 4 * 768, 768, 1, 128, 128))
        small(rt, tape, ("batch_norm", "relu"), [SCENES, 768, 128, 128], TURING.moves(5 * SCENES * 768 * 128**2))
        conv(rt, tape, PLAIN, Conv(SCENES, 768, CLASSES, 1, 128, 128))
        scores = [SCENES, CLASSES, 512, 512]
        small(rt, tape, ("upsample_bilinear2d", "log_softmax", "nll_loss2d"), scores, TURING.moves(6 * prod(scores)))
    with rt.frame("torch/_tensor.py(521): backward"):
        back(rt, tape)
    unscaled(rt, TURING, 27.5e6)
    with rt.frame("torch/optim/optimizer.py(385): wrapper"):
        fused_adamw(rt, TURING, 27.5e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(420)


TAKEN, FRAMES = 1_024, [1_024, 4, 84, 84]
GAMES = Look(Roofline(55, 860, "float", TF32, ("", "")), TF32_LOOK.names)


def _seen(rt: Framed, tape: Tape | None) -> None:
    """IMPALA's network of twice its width: three stages of residual blocks, a layer of 512, values of actions."""
    cin, kept = 4, [] if tape is None else tape
    for width, side in ((32, 84), (64, 42), (64, 21)):
        conv(rt, tape, GAMES, Conv(TAKEN, cin, width, 3, side, side))
        half = (side + 1) // 2
        small(rt, tape, ("max_pool2d",), [TAKEN, width, half, half], GAMES.card.moves(5 * TAKEN * width * side**2))
        y = [TAKEN, width, half, half]
        for _ in range(2):
            for _ in range(2):
                elementwise(rt, kept, GAMES.card, "relu", y, back=(("threshold_backward", 3),))
                conv(rt, tape, GAMES, Conv(TAKEN, width, width, 3, half, half))
            elementwise(rt, kept, GAMES.card, "add", y, 2)
        cin = width
    for wide, out in ((64 * 11**2, 512), (512, 18)):
        dense(rt, kept, GAMES.card, TAKEN, (TAKEN, wide, out))
        elementwise(rt, kept, GAMES.card, "relu", [TAKEN, out], back=(("threshold_backward", 3),))


def replay(rt: Framed, fixed: bool) -> None:
    """Discrete SAC learns Atari on an RTX 4090, TF32, 1,024 transitions a step: the replay buffer makes frames float32
    on the host, 116 MB of this and of the next state each, and they go to the GPU by `.to(device)` from memory that is
    not pinned; a thread of its own samples ahead. Without: bytes, pinned, a batch ahead on a stream of its own. No rows
    of steps.

    First: copies of pageable memory. Not: the loader, launches, the batch, waits of `.item()`, TF32.
    """
    tape, came = Tape(), rt.free.get(COPIES, 0.0)
    rt.host(260)
    for _ in range(2):
        if fixed:
            pinned(rt, prod(FRAMES), FRAMES, "unsigned char", stream=COPIES)
        else:
            rt.moved(4 * prod(FRAMES), 6.2, FRAMES)
    for kind in ("long int", "float", "float"):
        if fixed:
            pinned(rt, 8 * TAKEN, [TAKEN, 1], kind, stream=COPIES)
        else:
            rt.moved(8 * TAKEN, 1, [TAKEN, 1], kind)
    if fixed and came:
        rt.waits(MAIN, came)
    if fixed:
        for _ in range(2):
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, GAMES.card.moves(5 * prod(FRAMES))),),
                  dims=(FRAMES,), kind="unsigned char")  # fmt: skip
    for _ in range(2):
        small(rt, None, ("div",), FRAMES, GAMES.card.moves(8 * prod(FRAMES)))
    for _ in range(2):
        _seen(rt, None)
    small(rt, None, ("softmax", "log", "min", "mul", "sub", "mul", "sum", "mul", "add"), [TAKEN, 18], 3)
    _seen(rt, tape)
    small(rt, tape, ("gather", "sub", "pow", "mean") * 2 + ("add",), [TAKEN, 1], 3)
    back(rt, tape)
    fused_adamw(rt, GAMES.card, 8.2e6)
    small(rt, tape, ("softmax", "log", "mul", "sub", "mul", "sum", "mean"), [TAKEN, 18], 3)
    back(rt, tape)
    fused_adamw(rt, GAMES.card, 4.1e6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", GAMES.card.moves(12 * 8.2e6))
    rt.host(300)


MOLECULES, ATOMS, BONDS, WIDE, ASSAYS = 2_048, 53_200, 114_600, 300, 128
RTX3090 = Roofline(27, 780, "float", TF32, ("", ""))


def _layer(rt: Framed, tape: Tape) -> None:
    """A layer of GIN with features of bonds."""
    small(rt, tape, ("embedding",) * 3 + ("add", "add"), [BONDS, WIDE], RTX3090.moves(8 * BONDS * WIDE))
    gathered(rt, tape, RTX3090, BONDS, WIDE, 20)
    for name, reads in (("add", 2), ("relu", 1)):
        elementwise(rt, tape, RTX3090, name, [BONDS, WIDE], reads, back=((f"{name}_backward", 3),))
    pooled(rt, tape, RTX3090, BONDS, WIDE, 24)
    for name in ("mul", "add"):
        elementwise(rt, tape, RTX3090, name, [ATOMS, WIDE], 2, back=(("mul", 3),))
    for wide, out in ((WIDE, 2 * WIDE), (2 * WIDE, WIDE)):
        dense(rt, tape, RTX3090, 1, (ATOMS, wide, out))
        once, size = RTX3090.moves(4 * ATOMS * out), [ATOMS, out]
        small(rt, tape, ("batch_norm",), size, 3 * once)
        elementwise(rt, tape, RTX3090, "relu", size, back=(("threshold_backward", 3),))


def _judged(rt: Framed, tape: Tape, fixed: bool) -> None:
    """The loss of all assays at once, where there is a label, or assay by assay."""
    if fixed:
        size = [MOLECULES, ASSAYS]
        small(rt, None, ("isnan", "logical_not", "nan_to_num"), size, 4)
        small(rt, tape, ("binary_cross_entropy_with_logits", "mul", "sum", "div"), size, 5)
        return
    for _ in range(ASSAYS):
        chosen = rt.op("aten::select", us=1.8, gap=4, dims=([MOLECULES, ASSAYS],), graph=True)
        small(rt, None, ("isnan", "bitwise_not", "sum", "eq"), [MOLECULES], 2.2)
        answered(rt, "aten::is_nonzero", "aten::item")
        tape.append(_behind(rt, "SelectBackward0", chosen, ((FILL, 2.4), (COPY, 2.4))))
        for _ in range(2):
            rt.sequence += 1
            rt.host(7)
            with rt.span("aten::index", us=7, **{"Sequence number": rt.sequence, "Fwd thread id": 0}):
                _found(rt)
                rt.work(INDEX, 3)
        number = rt.sequence - 1
        tape.append(_behind(rt, "IndexBackward0", number, ((FILL, 2), (INDEX.replace("gpu_index", "index_put"), 4))))
        small(rt, tape, ("binary_cross_entropy_with_logits", "add"), [96], 2.4)


def _found(rt: Framed) -> None:
    """Where a mask is true: the host waits for how often."""
    with rt.span("aten::nonzero", us=8, **inputs(([MOLECULES],), "bool")):
        rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<…>", 3)
        rt.copy(8, "DtoH", "Pageable", waits=True)
        rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<…>", 4)


def _behind(rt: Framed, name: str, number: int, run: tuple[tuple[str, float], ...]) -> Callable[[], None]:
    return lambda: rt.grad(name, number, "aten::zeros", run=run, dims=([MOLECULES],))


def assays(rt: Framed, fixed: bool) -> None:
    """GIN predicts 128 assays of PubChem on an RTX 3090, TF32, 2,048 molecules: labels are sparse, so that the loss
    goes assay by assay, asks whether there is a label (`if mask.sum() == 0: continue`) and takes predictions and labels
    by a boolean mask, 384 waits a step; without: a weight of zero where there is none. Shapes.

    First: waits of masks in the loop. Not: the loader, the batch, the optimizer, TF32, every N steps.
    """
    tape: Tape = []
    loader(rt, 170)
    for count, dims in ((ATOMS * 9 * 8, [ATOMS, 9]), (BONDS * 16, [2, BONDS]), (BONDS * 24, [BONDS, 3]),
                        (MOLECULES * ASSAYS * 4, [MOLECULES, ASSAYS]), (ATOMS * 8, [ATOMS])):  # fmt: skip
        pinned(rt, count, dims, "long int")
    small(rt, tape, ("embedding", "add") * 9, [ATOMS, WIDE], RTX3090.moves(8 * ATOMS * WIDE))
    for _ in range(5):
        _layer(rt, tape)
    small(rt, tape, ("scatter_add_", "clamp", "div"), [MOLECULES, WIDE], RTX3090.moves(5 * ATOMS * WIDE))
    dense(rt, tape, RTX3090, 1, (MOLECULES, WIDE, ASSAYS))
    _judged(rt, tape, fixed)
    back(rt, tape)
    fused_adamw(rt, RTX3090, 3.4e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(240)


TEXTS, READ, WRITTEN, BASE, HIDDEN, WORDS = 8, 320, 96, 768, 3_072, 32_128
RMS = ("void cuApplyRMSNorm<c10::Half, float, c10::Half>(c10::Half*, float*, c10::Half const*, int, int, float, …)",
       "void cuComputeGradInput<c10::Half, float, c10::Half>(c10::Half const*, c10::Half const*, int, int, …)",
       "void cuComputePartGradGammaBeta<c10::Half, float, c10::Half>(c10::Half const*, c10::Half const*, …)",
       )  # fmt: skip


def _rms(rt: Framed, tape: Tape, x: list[int]) -> None:
    """apex' `FusedRMSNorm`."""
    rt.sequence += 1
    number, us = rt.sequence, V100.moves(4 * prod(x))
    rt.host(14)
    with rt.span("FusedRMSNormAffineFunction", us=16, **{"Sequence number": number, "Fwd thread id": 0}):
        rt.work(RMS[0], us)

    def backward() -> None:
        with node(rt, "FusedRMSNormAffineFunctionBackward", number):
            for name in RMS[1:]:
                rt.work(name, us)

    tape.append(backward)


def _clamped(rt: Framed, fixed: bool, x: list[int]) -> None:
    """`if torch.isinf(hidden_states).any()`, or a `torch.where` that nobody reads."""
    us = V100.moves(2 * prod(x))
    rt.host(4)
    with rt.span("aten::isinf", us=4, **inputs((x,), HALF)):
        for name in ("abs", "eq"):
            rt.op(f"aten::{name}", run=((kernel(name, 2, HALF), us),), gap=1, dims=(x,), kind=HALF)
    rt.op("aten::any", run=((REDUCE.replace("sum", "or"), 5),), dims=(x,), gap=4)
    if fixed:
        rt.op("aten::where", run=((kernel("where", 2), 2.2),), dims=([],), gap=5)
        rt.op("aten::clamp", run=((kernel("clamp", 2, HALF), us),), dims=(x,), kind=HALF, gap=5)
        return
    answered(rt, "aten::is_nonzero", "aten::item")


def _attended(rt: Framed, tape: Tape, fixed: bool, x: list[int], keys: int) -> None:
    """T5's attention: its bias is added to scores, softmax in fp32."""
    scores = [TEXTS, 12, x[1], keys]
    _rms(rt, tape, x)
    for length in (x[1], keys, keys):
        linear(rt, tape, V100, [TEXTS, length, BASE], BASE)
    products(rt, tape, V100, (TEXTS * 12, x[1], 64, keys))
    elementwise(rt, tape, V100, "add_", scores, 2)
    for name, passes in (("softmax", 4), ("dropout", 3)):
        small(rt, tape, (name,), scores, V100.moves(passes * prod(scores)))
    products(rt, tape, V100, (TEXTS * 12, x[1], keys, 64))
    linear(rt, tape, V100, x, BASE)
    elementwise(rt, tape, V100, "add", x, 2)
    _clamped(rt, fixed, x)


def _fed(rt: Framed, tape: Tape, fixed: bool, x: list[int]) -> None:
    _rms(rt, tape, x)
    linear(rt, tape, V100, x, HIDDEN)
    elementwise(rt, tape, V100, "relu", [*x[:2], HIDDEN], back=(("threshold_backward", 3),))
    linear(rt, tape, V100, [*x[:2], HIDDEN], BASE)
    elementwise(rt, tape, V100, "add", x, 2)
    _clamped(rt, fixed, x)


def flan(rt: Framed, fixed: bool) -> None:
    """T5-base of transformers summarizes on a V100, weights in fp16 by DeepSpeed, apex' norms, eight texts of 320: each
    sublayer asks whether a value is infinite (`torch.isinf(hidden_states).any()`), 60 waits in a forward pass; without:
    `torch.where` on the GPU, as transformers does it since 4.28. No shapes.

    First: waits in the forward pass. Not: the loader, the batch, TF32 or bf16, which a V100 has not, the optimizer.
    """
    tape, x, y = Tape(), [TEXTS, READ, BASE], [TEXTS, WRITTEN, BASE]
    loader(rt, 150)
    for length in (READ, READ, WRITTEN):
        pinned(rt, TEXTS * length * 8, [TEXTS, length], "long int")
    for size, cross in ((x, False), (y, True)):
        rt.op("aten::embedding", run=((REDUCE, V100.moves(4 * prod(size))),), gap=14, dims=([WORDS, BASE], size[:2]))
        for _ in range(12):
            _attended(rt, tape, fixed, size, size[1])
            if cross:
                _attended(rt, tape, fixed, size, READ)
            _fed(rt, tape, fixed, size)
        _rms(rt, tape, size)
    linear(rt, tape, V100, y, WORDS)
    small(rt, tape, ("log_softmax", "nll_loss"), [TEXTS * WRITTEN, WORDS], V100.moves(8 * prod(y[:2]) * WORDS))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", V100.moves(2 * 223e6), 2)
    rt.value()  # DeepSpeed: whether a gradient is infinite
    fused_adamw(rt, V100, 223e6)
    rt.op("aten::copy_", run=((COPY, V100.moves(6 * 223e6)),), dims=([223_000_000],))
    rt.host(360)
