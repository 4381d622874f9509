"""Jobs of the twenty-sixth set whose host is too slow: routes town by town, an average tensor by tensor."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import Roofline, foreach, kernel
from ..layers import CAST, Card, Tape, back, dense
from ..sixteenth_set.rows import INDEX
from ..twelfth_set.pictures import ADA, HALF, NHWC, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fifth_set.device import DIRECT
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import NATIVE, acts, few, judged, products, recorded

ROUTES, TOWNS, WIDE, HEADS = 512, 50, 128, 8
A10G = Roofline(32, 480, "float", ("cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4",
                                   "cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4"), ("", ""))  # fmt: skip


def _encoded(rt: Framed, tape: Tape) -> None:
    """Three layers of attention between towns, batch norms."""
    x, each = [ROUTES, TOWNS, WIDE], WIDE // HEADS
    dense(rt, tape, A10G, ROUTES, (ROUTES * TOWNS, 2, WIDE))
    for _ in range(3):
        for _ in range(3):
            products(rt, tape, A10G, (HEADS, ROUTES * TOWNS, WIDE, each))
        products(rt, tape, A10G, (HEADS * ROUTES, TOWNS, each, TOWNS))
        acts(rt, tape, A10G, "scale softmax", [HEADS, ROUTES, TOWNS, TOWNS])
        products(rt, tape, A10G, (HEADS * ROUTES, TOWNS, TOWNS, each))
        acts(rt, tape, A10G, "turn", x)
        dense(rt, tape, A10G, ROUTES, (ROUTES * TOWNS, WIDE, WIDE))
        for part in range(2):
            acts(rt, tape, A10G, "add", x)
            number = rt.op(
                "aten::batch_norm",
                "aten::_batch_norm_impl_index",
                "aten::native_batch_norm",
                graph=True,
                run=(
                    (NATIVE + "batch_norm_collect_statistics_kernel<float, …>(…)", 9),
                    (NATIVE + "batch_norm_transform_input_kernel<float, …>(…)", 11),
                ),
                dims=(x,),
                gap=20,
            )
            tape.append(lambda number=number: rt.grad("NativeBatchNormBackward0", number, run=(
                (NATIVE + "batch_norm_backward_kernel<float, …>(…)", 24),), dims=(x, x)))  # fmt: skip
            if part == 0:
                dense(rt, tape, A10G, ROUTES, (ROUTES * TOWNS, WIDE, 512))
                acts(rt, tape, A10G, "relu", [ROUTES, TOWNS, 512])
                dense(rt, tape, A10G, ROUTES, (ROUTES * TOWNS, 512, WIDE))
    acts(rt, tape, A10G, "mean", x)
    dense(rt, tape, A10G, 1, (ROUTES, WIDE, WIDE))
    dense(rt, tape, A10G, ROUTES, (ROUTES * TOWNS, WIDE, 3 * WIDE))


def _next(rt: Framed, tape: Tape) -> None:
    """The next town of each route: a glimpse, a distribution, a draw, what was visited."""
    one, each = [ROUTES, 1, WIDE], WIDE // HEADS
    number = rt.op("aten::gather", run=(("void at::native::_scatter_gather_elementwise_kernel<128, 8>(…)", 3.2),),
                   graph=True, gap=12, dims=([ROUTES, TOWNS, WIDE], one))  # fmt: skip
    tape.append(lambda: rt.grad("GatherBackward0", number, "aten::scatter_add_", dims=([ROUTES, TOWNS, WIDE],), run=(
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", 6.1),
        ("void at::native::_scatter_gather_elementwise_kernel<128, 8, ReduceAdd>(…)", 4.4))))  # fmt: skip
    acts(rt, tape, A10G, "cat", [ROUTES, 1, 2 * WIDE])
    dense(rt, tape, A10G, ROUTES, (ROUTES, 2 * WIDE, WIDE))
    acts(rt, tape, A10G, "add", one)
    products(rt, tape, A10G, (HEADS * ROUTES, 1, each, TOWNS))
    acts(rt, tape, A10G, "div", [HEADS, ROUTES, 1, TOWNS])
    few(rt, "masked_fill_", [HEADS, ROUTES, 1, TOWNS], 2.6)
    acts(rt, tape, A10G, "softmax", [HEADS, ROUTES, 1, TOWNS])
    products(rt, tape, A10G, (HEADS * ROUTES, 1, TOWNS, each))
    acts(rt, tape, A10G, "turn", one)
    dense(rt, tape, A10G, ROUTES, (ROUTES, WIDE, WIDE))
    products(rt, tape, A10G, (ROUTES, 1, WIDE, TOWNS))
    acts(rt, tape, A10G, "div tanh scale", [ROUTES, TOWNS])
    few(rt, "masked_fill_", [ROUTES, TOWNS])
    acts(rt, tape, A10G, "logsumexp", [ROUTES, TOWNS])
    few(rt, "exp multinomial select gather index scatter_", [ROUTES, TOWNS], 2.8)
    few(rt, "sub pow sum sqrt add", [ROUTES, 2])


def _routed(rt: Framed) -> None:
    """Both passes of REINFORCE."""
    tape = Tape()
    _encoded(rt, tape)
    for _ in range(TOWNS):
        _next(rt, tape)
    acts(rt, tape, A10G, "stack", [ROUTES, TOWNS, TOWNS])
    few(rt, "stack", [ROUTES, TOWNS])
    acts(rt, tape, A10G, "sum", [ROUTES, TOWNS])
    few(rt, "sub", [ROUTES])
    acts(rt, tape, A10G, "mul mean", [ROUTES])
    back(rt, tape)


def routes(rt: Framed, fixed: bool) -> None:
    """The attention model of wouterkool/attention-learn-to-route for 50 towns on an A10G, TF32, 512 routes: the decoder
    draws town by town in a loop of Python, some 30 kernels of a few µs each time and twice as many behind, which the
    GPU is done with sooner than they are launched; without: a CUDA graph of both passes (draws by Philox are captured).
    Values of the baseline come with the batch, Adam and clipping by lists. Shapes, no
    rows of steps.

    First: launches in a loop (graphs, `torch.compile`, a larger batch). Not: the loader, copies, waits, TF32, the
    optimizer.
    """
    loader(rt, 150)
    pinned(rt, 8 * ROUTES * TOWNS, [ROUTES, TOWNS, 2])
    pinned(rt, 4 * ROUTES, [ROUTES])
    if fixed:
        recorded(rt, _routed, 1)
    else:
        _routed(rt)
    clipped(rt, A10G, 7.1e5)
    adam(rt, A10G, 7.1e5, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(210)


PICTURES = 80
RTX4090 = Card(120, 860, HALF, ADA.card.names, ("", ""))
LOOK = Look(RTX4090, ADA.names, NHWC, True)
ALONE = Look(RTX4090, DIRECT, NHWC, True)  # type: ignore[arg-type]
# EfficientNetV2-S: fused blocks, then blocks with a depthwise convolution: count, widths, factor, side of the output
FUSED = ((2, 24, 24, 1, 112), (4, 24, 48, 4, 56), (4, 48, 64, 4, 28))
DEPTHWISE = ((6, 64, 128, 4, 14), (9, 128, 160, 6, 14), (15, 160, 256, 6, 7))


class Apart(Conv):
    """A convolution of each channel by itself."""

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        x = [self.batch, self.cin, self.height, self.width]
        return (x, [self.cout, 1, self.side, self.side], x)

    def us(self, card: Card) -> float:
        """By what it reads and writes."""
        return 2.2 * card.moves(2 * card.size * prod(self.dims[0]))


def _sizes() -> list[list[int]]:
    """Tensors of the state, by their sizes."""
    sizes = [[24, 3, 3, 3]]
    norms = [24]
    for count, cin, cout, factor, _ in FUSED:
        for number in range(count):
            given = cin if number == 0 else cout
            sizes += [[given * factor, given, 3, 3]] + ([[cout, given * factor, 1, 1]] if factor > 1 else [])
            norms += [given * factor] + ([cout] if factor > 1 else [])
    for count, cin, cout, factor, _ in DEPTHWISE:
        for number in range(count):
            given = cin if number == 0 else cout
            wide, less = given * factor, given // 4
            sizes += [[wide, given, 1, 1], [wide, 1, 3, 3], [less, wide, 1, 1], [less], [wide, less, 1, 1], [wide],
                      [cout, wide, 1, 1]]  # fmt: skip
            norms += [wide, wide, cout]
    sizes += [[1_280, 256, 1, 1], [1_000, 1_280], [1_000]]
    return sizes + [size for width in [*norms, 1_280] for size in ([width],) * 4 + ([],)]


STATE = _sizes()


def _blocks(rt: Framed, tape: Tape) -> None:
    """EfficientNetV2-S."""
    conv_norm(rt, tape, LOOK, Conv(PICTURES, 3, 24, 3, 112, 112))
    for count, cin, cout, factor, side in FUSED:
        for number in range(count):
            given = cin if number == 0 else cout
            conv_norm(rt, tape, LOOK, Conv(PICTURES, given, given * factor, 3, side, side))
            if factor > 1:
                conv_norm(rt, tape, LOOK, Conv(PICTURES, given * factor, cout, 1, side, side))
            if given == cout:
                acts(rt, tape, RTX4090, "add", [PICTURES, cout, side, side])
    for count, cin, cout, factor, side in DEPTHWISE:
        for number in range(count):
            given = cin if number == 0 else cout
            wide = given * factor
            size = [PICTURES, wide, side, side]
            conv_norm(rt, tape, LOOK, Conv(PICTURES, given, wide, 1, side, side))
            conv_norm(rt, tape, ALONE, Apart(PICTURES, wide, wide, 3, side, side))
            acts(rt, tape, RTX4090, "mean", size)
            for one, out, name in ((wide, given // 4, "silu"), (given // 4, wide, "sigmoid")):
                conv(rt, tape, LOOK, Conv(PICTURES, one, out, 1, 1, 1))
                acts(rt, tape, RTX4090, name, [PICTURES, out, 1, 1])
            acts(rt, tape, RTX4090, "mul", size)
            conv_norm(rt, tape, LOOK, Conv(PICTURES, wide, cout, 1, side, side))
            if given == cout:
                acts(rt, tape, RTX4090, "scale add", [PICTURES, cout, side, side])
    conv_norm(rt, tape, LOOK, Conv(PICTURES, 256, 1_280, 1, 7, 7))
    acts(rt, tape, RTX4090, "mean dropout", [PICTURES, 1_280, 1, 1])


def _shadowed(rt: Framed) -> None:
    """timm's `ModelEmaV2`: `ema_v.copy_(decay * ema_v + (1. - decay) * model_v)` for each tensor of the state."""
    with rt.span("ModelEmaV2.update", "user_annotation", us=40):
        for size in STATE:
            rt.host(5)
            for name, passes in (("mul", 2), ("mul", 2), ("add", 3), ("copy_", 2)):
                run = ((kernel(name, passes), RTX4090.moves(4 * passes * prod(size))),)
                rt.op(f"aten::{name}", run=run, dims=(size,) * max(1, passes - 1), gap=2, us=3,
                      kind="float" if size else "long int")  # fmt: skip


def shadowed(rt: Framed, fixed: bool) -> None:
    """EfficientNetV2-S by timm's `train.py --amp --channels-last --model-ema` on an RTX 4090, 80 pictures: the moving
    average goes through 780 tensors of the state one by one, four small kernels each, behind `GradScaler`'s wait,
    so that nothing hides their launches; without: `ModelEmaV3` by lists. timm's prefetcher copies bytes, AdamW is
    fused, the loss is read each 50th step. No shapes.

    First: launches of small kernels (the average by `torch._foreach_*`). Not: the loader, copies, `GradScaler`'s wait,
    the layout, the batch.
    """
    tape, picture = Tape(), [PICTURES, 3, 224, 224]
    loader(rt, 180)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    acts(rt, None, replace(RTX4090, kind="float"), "to sub div", picture)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, RTX4090.moves(6 * prod(picture))),), dims=(picture,))
    _blocks(rt, tape)
    casts(rt, RTX4090, [1_000, 1_280])
    dense(rt, tape, RTX4090, PICTURES, (PICTURES, 1_280, 1_000))
    judged(rt, tape, RTX4090, PICTURES, 1_000)
    back(rt, tape)
    unscaled(rt, RTX4090, 21.5e6)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=300):
        rt.op(
            "aten::_fused_adamw_",
            us=150,
            run=(
                (
                    NATIVE + "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata"
                    "<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW, false>>",
                    RTX4090.moves(28 * 21.5e6),
                ),
            ),
        )
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=150):
        pass
    if fixed:
        with rt.span("ModelEmaV3.update", "user_annotation", us=300):
            foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", RTX4090.moves(12 * 21.7e6), 4, 220)
            rt.op("aten::index", run=((INDEX, 2.4),), dims=([1],), gap=9)
    else:
        _shadowed(rt)
    rt.host(350)
