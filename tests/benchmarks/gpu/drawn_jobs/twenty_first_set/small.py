"""Jobs of the twenty-first set whose host is too slow: an equation in steps, an optimizer in a loop."""

from __future__ import annotations

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, elementwise, foreach, kernel
from ..layers import CAST, Card, Tape, back, dense, fused_adamw
from ..thirteenth_set.rows import as_graph
from ..twelfth_set.pictures import ADA, NHWC, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv_norm, loader

BATCH, STATE, HIDDEN, STEPS = 1_024, 64, 256, 16
SGEMM = ("ampere_sgemm_64x32_sliced1x4_tn", "ampere_sgemm_32x128_nn")
RTX3090 = Roofline(14, 780, "float", SGEMM, ("", ""))


def _derivative(rt: Framed, tape: Tape) -> None:
    """The network that says how the state changes: time beside it, three layers."""
    size = [BATCH, STATE]
    small(rt, None, ("ones_like", "mul"), [BATCH, 1], 2.2)
    number = rt.op("aten::cat", run=(("void at::native::(anonymous namespace)::CatArrayBatchedCopy<…>", 3.1),), gap=9,
                   dims=(size, [BATCH, 1]), graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("CatBackward0", number, "aten::narrow"))
    for wide, out in ((STATE + 1, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, STATE)):
        dense(rt, tape, RTX3090, BATCH, (BATCH, wide, out))
        if out == HIDDEN:
            elementwise(rt, tape, RTX3090, "tanh", [BATCH, HIDDEN], back=(("tanh_backward", 3),))


def _solved(rt: Framed) -> None:
    """`odeint(…, method="rk4")` with its own graph, the loss, the gradients by all of its steps."""
    tape, size = Tape(), [BATCH, STATE]
    for _ in range(STEPS):
        small(rt, None, ("sub", "div"), [], 2.0)
        for part in range(4):
            _derivative(rt, tape)
            for name in ("mul", "add") if part < 2 else ("sub", "mul", "add"):
                elementwise(rt, tape, RTX3090, name, size, 2, ((name, 3),))
        for name in ("add", "mul", "add", "mul", "add"):
            elementwise(rt, tape, RTX3090, name, size, 2, ((name, 3),))
    small(rt, tape, ("stack", "sub", "pow", "mean"), [STEPS, *size], 7)
    back(rt, tape)


def odes(rt: Framed, fixed: bool) -> None:
    """A neural ODE of latent series on an RTX 3090, torchdiffeq's `rk4` with 16 steps: 64 times a small network, some
    1,700 launches of kernels of a few µs in a loop of Python over time, forward and backward, in fp32, and the device
    is busy for a sixth of a step; without: one CUDA graph of both. The optimizer is fused. Shapes.

    First: launches (CUDA graphs, `torch.compile`). Not: a loader, TF32 (its products are tiny), waits, the optimizer.
    """
    loader(rt, 110)
    for _ in range(2):
        pinned(rt, STEPS * BATCH * STATE * 4, [STEPS, BATCH, STATE])
    if fixed:
        as_graph(rt, _solved)
    else:
        _solved(rt)
    fused_adamw(rt, RTX3090, 116_000)
    rt.host(140)


STAGES = ((2, 24, 24, 1, 112), (4, 24, 48, 4, 56), (4, 48, 64, 4, 28), (6, 64, 128, 4, 14), (9, 128, 160, 6, 14),
          (15, 160, 256, 6, 7))  # fmt: skip
SHOWN, WEIGHTS, TENSORS = 96, 21.5e6, 452
CARD = ADA.card
GROUPED = Look(CARD, tuple(
    f"void cudnn::cnn::conv2d_grouped_direct_{way}kernel<false, true, false, false, 0, 0, int, __half, __half, …>(…)"
    for way in ("", "dgrad_", "wgrad_")), NHWC, True)  # type: ignore[arg-type]  # fmt: skip


class Depthwise(Conv):
    """A convolution of each channel by itself."""

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        x = [self.batch, self.cin, self.height, self.width]
        return (x, [self.cout, 1, self.side, self.side], x)

    def us(self, card: Card) -> float:
        """By what it reads and writes."""
        return 1.6 * card.moves(2 * card.size * self.batch * self.height * self.width * self.cout)


def _efficient(rt: Framed, tape: Tape) -> None:
    """EfficientNetV2-S: fused blocks, then depthwise ones with squeeze and excitation."""
    conv_norm(rt, tape, ADA, Conv(SHOWN, 3, 24, 3, 112, 112))
    for stage, (blocks, given, width, wider, side) in enumerate(STAGES):
        for number in range(blocks):
            cin = given if number == 0 else width
            if stage < 3:
                conv_norm(rt, tape, ADA, Conv(SHOWN, cin, wider * cin, 3, side, side))
            else:
                conv_norm(rt, tape, ADA, Conv(SHOWN, cin, wider * cin, 1, side, side))
                conv_norm(rt, tape, GROUPED, Depthwise(SHOWN, wider * cin, wider * cin, 3, side, side))
                small(rt, tape, ("mean", "conv2d", "silu", "conv2d", "sigmoid"), [SHOWN, wider * cin, 1, 1], 4)
                elementwise(rt, tape, CARD, "mul", [SHOWN, wider * cin, side, side], 2, (("mul", 3), ("sum", 2)))
            if wider > 1:
                conv_norm(rt, tape, ADA, Conv(SHOWN, wider * cin, width, 1, side, side))
            if number:
                elementwise(rt, tape, CARD, "add", [SHOWN, width, side, side], 2)
    conv_norm(rt, tape, ADA, Conv(SHOWN, 256, 1_280, 1, 7, 7))
    small(rt, tape, ("mean",), [SHOWN, 1_280, 7, 7], 9)
    dense(rt, tape, CARD, SHOWN, (SHOWN, 1_280, 1_000))


def _looped(rt: Framed) -> None:
    """lucidrains' `Lion`: parameter by parameter."""
    for place in range(TENSORS):
        count = (1_280 * 256, 256, 256, 960 * 160)[place % 4] * (0.4 if place % 3 else 1)
        size = [round(count)]
        rt.host(5)
        for name, passes in (("mul_", 2), ("clone", 2), ("mul_", 2), ("add", 3), ("sign_", 2), ("add_", 3),
                             ("mul_", 2), ("add_", 3)):  # fmt: skip
            if name == "clone":
                with rt.span("aten::clone", us=4), rt.span("aten::copy_", us=3):
                    rt.work("Memcpy DtoD (Device -> Device)", CARD.moves(8 * count), category="gpu_memcpy",
                            call="MemcpyAsync", bytes=4 * size[0])  # fmt: skip
                continue
            rt.op(f"aten::{name}", run=((kernel(name, 2), CARD.moves(4 * passes * count)),), dims=(size, []), gap=2,
                  us=4)  # fmt: skip


def lions(rt: Framed, fixed: bool) -> None:
    """EfficientNetV2-S on an RTX 4090, AMP, channels_last, 96 pictures: Lion as its package has it goes through 452
    parameters in a loop, eight small works each, behind `GradScaler`'s wait, so that the GPU idles between them;
    without: the same by lists (`foreach=True`). No shapes.

    First: the optimizer, which is not fused, or its launches. Not: a loader, `GradScaler`'s wait, layouts, TF32.
    """
    tape: Tape = []
    loader(rt, 150)
    pinned(rt, SHOWN * 3 * 224**2 * 4, [SHOWN, 3, 224, 224])
    pinned(rt, SHOWN * 8, [SHOWN], "long int")
    run = ((CAST, CARD.moves(6 * SHOWN * 3 * 224**2)),)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=([SHOWN, 3, 224, 224],))
    _efficient(rt, tape)
    small(rt, tape, ("log_softmax", "nll_loss"), [SHOWN, 1_000], 6)
    back(rt, tape)
    unscaled(rt, CARD, WEIGHTS)
    with rt.span("Optimizer.step#Lion.step", "user_annotation", us=60):
        if fixed:
            for name, passes in (("mul_", 2), ("mul", 2), ("add_", 3), ("sign_", 2), ("add_", 3), ("mul_", 2),
                                 ("add_", 3)):  # fmt: skip
                foreach(rt, f"_foreach_{name}", "BinaryOpListAlphaFunctor", CARD.moves(4 * passes * WEIGHTS), 3, 190)
        else:
            _looped(rt)
    with rt.span("Optimizer.zero_grad#Lion.zero_grad", "user_annotation", us=160):
        pass
    rt.host(300)
