"""Jobs of the twenty-sixth set whose loop waits for the GPU: codebooks that ask for flags, a policy's minibatches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, elementwise
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, back, dense
from ..sixteenth_set.rows import INDEX
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few
from .rows import tuned

SOUNDS, RATE, BOOKS, CODES, WIDTH = 16, 32_000, 12, 1_024, 512
A100 = Roofline(60, 1_450, "float", TF32, ("", ""))
LOOK = Look(A100, TF32_LOOK.names)
STEPS = ((32, 64, 2), (64, 128, 4), (128, 256, 5), (256, 512, 8))


@dataclass(frozen=True)
class Line(Conv):
    """A convolution over time; width: of its output;  turned: a transposed one."""

    stride: int = 1
    groups: int = 1
    turned: bool = False

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        came = self.width // self.stride if self.turned else self.width * self.stride
        weight = [self.cin, self.cout, self.side] if self.turned else [self.cout, self.cin, self.side]
        return ([self.batch, self.cin * self.groups, came], weight, [self.batch, self.cout, self.width])

    def us(self, card: Card) -> float:
        """By operations, or by what it reads and writes."""
        x, weight, y = self.dims
        area = self.batch * (x[2] if self.turned else self.width)
        return max(2 * area * prod(weight) / card.tflops / 1e6, card.moves(4 * (prod(x) + prod(y))))


def line(rt: Framed, tape: Tape, of: Line, look: Look = LOOK) -> None:
    """`nn.Conv1d`, or `nn.ConvTranspose1d`, which runs as a gradient of the input does."""
    begun, (ahead, behind, weight) = len(rt.rows), look.names
    name = "aten::conv_transpose1d" if of.turned else "aten::conv1d"
    conv(rt, tape, replace(look, names=(behind, ahead, weight)) if of.turned else look, of)
    for row in rt.rows[begun:]:
        if row["name"] == "aten::conv2d":
            row["name"] = name
        elif row["name"] == "aten::cudnn_convolution" and of.turned:
            row["name"] = "aten::cudnn_convolution_transpose"


def _units(rt: Framed, tape: Tape, width: int, length: int) -> None:
    """Three residual units, dilated by 1, 3 and 9."""
    x = [SOUNDS, width, length]
    for _ in range(3):
        rt.op("aten::pad", "aten::constant_pad_nd", gap=9, us=6, dims=(x,), run=(
            ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", 2.3),))  # fmt: skip
        for side in (7, 1):
            line(rt, tape, Line(SOUNDS, width, width, side, 1, length))
            tuned(rt, A100, x, tape)
        acts(rt, tape, A100, "add", x)


def _flag(rt: Framed, fixed: bool) -> None:
    """`if not flag: …` of a tensor of the GPU."""
    rt.host(5)
    if not fixed:
        rt.value("aten::is_nonzero")
        rt.host(6)


def _quantized(rt: Framed, tape: Tape, fixed: bool) -> None:
    """A codebook of vector-quantize-pytorch, which is learned by moving averages."""
    frames = SOUNDS * RATE // 320
    x, codes = [frames, WIDTH], [CODES, WIDTH]
    _flag(rt, fixed)  # `initted`
    few(rt, "pow sum", x, 6)
    few(rt, "pow sum", codes, 4)
    rt.op("aten::matmul", "aten::mm", gap=9, us=7, dims=(x, [WIDTH, CODES]),
          run=((A100.names[0], A100.product(frames, CODES, WIDTH)),))  # fmt: skip
    few(rt, "mul add sub neg", [frames, CODES], A100.moves(8 * frames * CODES))
    few(rt, "argmax", [frames, CODES], A100.moves(4 * frames * CODES) + 3)
    few(rt, "one_hot to", [frames, CODES], A100.moves(8 * frames * CODES))
    rt.op("aten::embedding", "aten::index_select", run=((INDEX, 5.4),), gap=9, dims=(codes, [frames]))
    few(rt, "sum mul_ mul add_", [CODES], 3)
    rt.op("aten::matmul", "aten::mm", gap=9, us=7, dims=([WIDTH, frames], [frames, CODES]),
          run=((A100.names[1], A100.product(WIDTH, CODES, frames)),))  # fmt: skip
    few(rt, "mul_ mul add_", codes, 4)
    few(rt, "sum add mul div mul", [CODES])
    few(rt, "div copy_", codes, 4)
    if not fixed:
        few(rt, "lt any", [CODES])
        _flag(rt, fixed)  # `torch.any(expired_codes)`
    acts(rt, tape, A100, "sub", x)
    acts(rt, tape, A100, "pow mean", x)
    few(rt, "sub add", x, 6)  # straight through
    acts(rt, tape, A100, "sub add", x)


def soundstream(rt: Framed, fixed: bool) -> None:
    """SoundStream's autoencoder of audiolm-pytorch learns on an A100, TF32, sixteen sounds of two seconds: each of its
    twelve codebooks asks `if self.initted` (a buffer) and `if not torch.any(expired_codes)`, so that the host waits 24
    times in the middle of the forward pass, first for all that was queued; without: a flag of Python, codes are
    replaced each 500th step. Pinned, clipping and Adam by lists, the loss is read each 10th step. Shapes.

    First: values that are read in each step (24 of codebooks). Not: the loader, copies, TF32, the optimizer.
    """
    tape, length = Tape(), RATE
    loader(rt, 160)
    pinned(rt, 4 * SOUNDS * RATE, [SOUNDS, RATE])
    line(rt, tape, Line(SOUNDS, 1, 32, 7, 1, length))
    for cin, cout, stride in STEPS:
        _units(rt, tape, cin, length)
        length //= stride
        line(rt, tape, Line(SOUNDS, cin, cout, 2 * stride, 1, length, stride=stride))
    line(rt, tape, Line(SOUNDS, 512, WIDTH, 3, 1, length))
    acts(rt, tape, A100, "turn", [SOUNDS, length, WIDTH])
    for _ in range(BOOKS):
        _quantized(rt, tape, fixed)
    few(rt, "stack stack", [BOOKS, SOUNDS, length], 3)
    line(rt, tape, Line(SOUNDS, WIDTH, 512, 7, 1, length))
    for cin, cout, stride in reversed(STEPS):
        length *= stride
        line(rt, tape, Line(SOUNDS, cout, cin, 2 * stride, 1, length, stride=stride, turned=True))
        _units(rt, tape, cin, length)
    line(rt, tape, Line(SOUNDS, 32, 1, 7, 1, length))
    acts(rt, tape, A100, "sub pow mean", [SOUNDS, 1, length])
    for power in range(6, 12):  # spectra of the loss
        bins, frames = 2**power // 2 + 1, 4 * RATE // 2**power
        for kept in (None, tape):
            acts(rt, kept, A100, "turn mul", [SOUNDS, frames, 2**power])
            rt.op(
                "aten::stft",
                "aten::_fft_r2c",
                gap=22,
                us=14,
                dims=([SOUNDS * frames, 2**power],),
                run=((f"void vector_fft<{2**power}u, EPT<8>, float>(…)", A100.moves(12 * SOUNDS * frames * bins)),),
            )
            acts(rt, kept, A100, "pow", [SOUNDS, bins, frames])
            rt.op("aten::matmul", "aten::mm", gap=12, us=7, dims=([SOUNDS * frames, bins], [bins, 64]),
                  run=((A100.names[0], A100.product(SOUNDS * frames, 64, bins)),))  # fmt: skip
        acts(rt, tape, A100, "sub mean", [SOUNDS, 64, frames])
    acts(rt, tape, A100, "scale add", [1])
    back(rt, tape)
    clipped(rt, A100, 31e6)
    adam(rt, A100, 31e6, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(240)


BATCH, ACTIONS, HELD = 1_024, 6, 16_384
V100 = Roofline(10.5, 770, "float", ("volta_sgemm_128x64_tn", "volta_sgemm_128x64_nt"), ("", ""))
VOLTA = ("volta_scudnn_128x64_relu_interior_nn_v1", "volta_scudnn_128x64_stridedB_interior_nn_v1",
         "volta_scudnn_128x64_stridedB_splitK_interior_nn_v1")  # fmt: skip
EYES = Look(V100, VOLTA)


def _taken(rt: Framed, size: list[int], fixed: bool) -> None:
    """`b_obs[mb_inds]`: indices of numpy go to the GPU with each tensor that is indexed."""
    us = V100.moves(8 * BATCH * prod(size))
    rt.host(9)
    with rt.span("aten::index", us=8, **inputs(([HELD, *size], [BATCH]), "float")):
        if not fixed:
            rt.moved(8 * BATCH, 4, [BATCH], "long int")
        rt.work(INDEX, us)


def cleanppo(rt: Framed, fixed: bool) -> None:
    """CleanRL's PPO of Atari learns from minibatches on a V100, fp32, 1,024 frames each, a row of steps for each:
    rollouts lie on the GPU, but their indices are numpy's, so that six small copies wait, and `clipfracs` takes
    `.item()` behind the forward pass, where the host waits for all that is queued; what follows is launched one by one
    while the GPU idles; without: indices and `clipfracs` stay on the GPU. Adam and clipping by lists. Shapes.

    First: waits in the loop (indices, a value in each minibatch). Not: a loader, TF32 or bf16, which a V100 has not,
    the batch, the optimizer.
    """
    tape, frames = Tape(), [BATCH, 4, 84, 84]
    rt.host(30)
    _taken(rt, [4, 84, 84], fixed)
    _taken(rt, [], fixed)
    few(rt, "to", [BATCH])
    acts(rt, None, V100, "div", frames)
    for cin, cout, side, out in ((4, 32, 8, 20), (32, 64, 4, 9), (64, 64, 3, 7)):
        conv(rt, tape, EYES, Conv(BATCH, cin, cout, side, out, out))
        elementwise(rt, tape, V100, "add_", [BATCH, cout, out, out], 2)
        acts(rt, tape, V100, "relu", [BATCH, cout, out, out])
    dense(rt, tape, V100, 1, (BATCH, 3_136, 512))
    acts(rt, tape, V100, "relu", [BATCH, 512])
    for out in (ACTIONS, 1):
        dense(rt, tape, V100, 1, (BATCH, 512, out))
    rt.host(40)  # `Categorical`
    acts(rt, tape, V100, "logsumexp sub softmax", [BATCH, ACTIONS])
    few(rt, "expand to gather", [BATCH])
    acts(rt, tape, V100, "mul sum", [BATCH, ACTIONS])
    for size in range(2):
        _taken(rt, [], fixed)
        acts(rt, tape, V100, "sub exp" if size == 0 else "mul", [BATCH])
    few(rt, "neg mean sub sub mean sub abs gt to mean", [BATCH])
    if fixed:
        few(rt, "add_", [1])
    else:
        rt.value()
    few(rt, "mean std sub add div neg", [BATCH])
    acts(rt, tape, V100, "mul scale mul max mean", [BATCH])
    for _ in range(2):
        _taken(rt, [], fixed)
        acts(rt, tape, V100, "sub pow", [BATCH])
    acts(rt, tape, V100, "clamp add sub pow max mean scale", [BATCH])
    acts(rt, tape, V100, "mean scale sub scale add", [1])
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=30):
        pass
    back(rt, tape)
    small = replace(V100, gbs=700)
    clipped(rt, small, 1.7e6)
    adam(rt, small, 1.7e6, "Adam", 1)
    rt.op("aten::sum", run=((REDUCE, 2.4),), gap=8, dims=([1],))
    rt.host(60)
