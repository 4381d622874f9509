"""What the thirty-second set's jobs share: cards, a loader whose workers are late, convolutions over a line."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import casts
from ..kineto import device
from ..layers import Card, Tape, attention, dense, norm
from ..runtime import Row
from ..seventh_set import BF16
from ..thirty_first_set.rows import Told
from ..twelfth_set.pictures import XMMA
from ..twelfth_set.rows import Framed, Look, conv
from ..twenty_fourth_set.rows import acts
from ..twenty_sixth_set.waits import Line

RTX4080_DEVICE = device("NVIDIA GeForce RTX 4080", (8, 9), 76, 16)
RTX2080TI_DEVICE = device("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 11)
RTX3080_DEVICE = device("NVIDIA GeForce RTX 3080", (8, 6), 68, 10)
RTX6000_DEVICE = device("NVIDIA RTX 6000 Ada Generation", (8, 9), 142, 47)
A100_40_DEVICE = device("NVIDIA A100-SXM4-40GB", (8, 0), 108, 39)
A10_DEVICE = device("NVIDIA A10", (8, 6), 72, 22)
A40_DEVICE = device("NVIDIA A40", (8, 6), 84, 44)

NARROW = "bf16bf16_bf16f32_f32"
NHWC = tuple(XMMA.format(way, NARROW, 16) for way in ("fprop", "dgrad", "wgrad"))
NCHW = tuple(name.replace("nhwckrsc_nhwc", "nchwkcrs_nchw") for name in NHWC)
NORM_NHWC = "void cudnn::bn_{}_tr_1C11_kernel_NHWC<__nv_bfloat162, float, int, 512, true, 1, true>(…)"
NORM_NCHW = "void cudnn::bn_{}_tr_1C11_kernel_NCHW<__nv_bfloat16, float, int, 512, true, 1, true>(…)"


def look(card: Card) -> Look:
    """Convolutions of pictures in bf16 by autocast, channels_last."""
    return Look(card, (NHWC[0], NHWC[1], NHWC[2]), NORM_NHWC, True)


Args = tuple[tuple[str, str], ...]


def _scalars(*values: str) -> Args:
    return tuple(("ScalarList" if value.startswith("[") else "Scalar", value) if value else ("", "")
                 for value in values)  # fmt: skip


_MORE: dict[str, tuple[int, Args]] = {  # how many tensors the op has, what follows them
    "aten::threshold_backward": (2, _scalars("0")),
    "aten::glu": (1, _scalars("1")),
    "aten::gelu_backward": (2, _scalars("none")),
    "aten::clamp": (1, _scalars("0.0001", "0.99990000000000001")),
    "aten::clamp_min": (1, _scalars("0")),
    "aten::embedding": (2, _scalars("-1", "False", "False")),
    "aten::masked_fill": (2, _scalars("-inf")),
    "aten::gt": (1, _scalars("0.10000000000000001")),
    "aten::le": (1, _scalars("0.5")),
    "aten::histc": (1, _scalars("64", "-0.0041503906", "0.0038146973")),
    "aten::_histc": (1, _scalars("64", "-0.0041503906", "0.0038146973")),
    "aten::all": (1, ()),
    "aten::gather": (1, (("Scalar", "1"), ("long int", ""), ("Scalar", "False"))),
    "aten::where": (3, ()),
    "aten::div": (2, ()),
    "aten::fill_": (1, _scalars("0")),
    "aten::zeros": (0, ()),
}
_LINES = ("aten::conv1d", "aten::conv_transpose1d", "aten::convolution", "aten::_convolution",
          "aten::cudnn_convolution", "aten::cudnn_convolution_transpose")  # fmt: skip


_POOLS = ("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool2d_with_indices")


class Plain(Told):
    """Plain arguments of more ops."""

    def _told(self, name: str, args: Row) -> Row:
        told = super()._told(name, args)
        sizes = told.get("Input Dims", [])
        if name == "aten::linear" and sizes and len(sizes[0]) == 3 and sizes[0][1] == 1:
            sizes[0], told["Input Strides"][0] = [sizes[0][0], sizes[0][2]], [sizes[0][2], 1]
        if name in _POOLS and sizes[0][2] == 1:
            halved = ("[2]", "[2]", "[0]", "[1]", "False")
            if name == _POOLS[0]:
                batch, wide, _, length = sizes[0]
                told |= {"Input Dims": [[batch, wide, length]], "Input Strides": [[wide * length, length, 1]]}
                told = {key: told[key] + [[]] * 5 if "Input " in key and key != "Input type" else told[key]
                        for key in told}  # fmt: skip
                kinds = ["ScalarList"] * 4 + ["Scalar"]
                return told | {"Input type": told["Input type"] + kinds, "Concrete Inputs": ["", *halved]}
            return told | {"Concrete Inputs": ["", "[1, 2]", "[1, 2]", "[0, 0]", "[1, 1]", "False"]}
        count, more = _MORE.get(name, (0, ()))
        if name in _LINES and len(sizes) == 2 and len(sizes[1]) == 3:
            more = _line(name, sizes)
        elif name == "aten::linear" and len(sizes) == 2:
            more = (("", ""),)
        elif name == "aten::convolution_backward" and len(sizes) == 3:
            more = _behind(sizes)
        elif not count or not sizes:
            return told
        for key, last in (("Input Dims", []), ("Input Strides", []), ("Input type", ""), ("Concrete Inputs", "")):
            known = told[key] + [told[key][-1]] * max(0, count - len(sizes))
            plain = [list[int]()] * len(more) if last == [] else [kind if key == "Input type" else value
                                                                  for kind, value in more]  # fmt: skip
            told[key] = known + plain
        if name in _LINES[-2:] and len(sizes[0]) == 3:  # cuDNN is given a picture of one row
            for place in (0, 1):
                batch, wide, length = told["Input Dims"][place]
                told["Input Dims"][place] = [batch, wide, 1, length]
                told["Input Strides"][place] = [wide * length, length, length, 1]
        return told


def _line(name: str, sizes: list[list[int]]) -> Args:
    side = sizes[1][2]
    stride, padding = ("[4]", "[0]") if side == 8 else ("[1]", f"[{side // 2}]")
    turned = "transpose" in name or (side == 8 and sizes[0][1] == sizes[1][0] and sizes[0][1] != sizes[1][1])
    if name == "aten::conv1d":
        return _scalars("", stride, padding, "[1]", "1")
    if name == "aten::conv_transpose1d":
        return _scalars("", stride, padding, "[0]", "1", "[1]")
    if name == "aten::convolution":
        return _scalars("", stride, padding, "[1]", str(turned), "[0]", "1")
    if name == "aten::_convolution":
        return _scalars("", stride, padding, "[1]", str(turned), "[0]", "1", "False", "False", "True", "True")
    two = [one.replace("[", "[1, " if one != "[0]" else "[0, ") for one in (padding, stride, "[1]")]
    if padding != "[0]":
        two[0] = padding.replace("[", "[0, ")
    return _scalars(two[0], *(["[0, 0]"] if turned else []), two[1], two[2], "1", "False", "False", "True")


def _behind(sizes: list[list[int]]) -> Args:
    rank = len(sizes[2]) - 2
    ones, nothing = str([1] * rank), str([0] * rank)
    padding = str([side // 2 for side in sizes[2][2:]])
    if rank == 1 and sizes[2][2] == 8:
        return _scalars("[0]", "[4]", "[0]", "[1]", str(sizes[0][2] > sizes[1][2]), "[0]", "1", "[True, True, False]")
    groups = str(max(1, sizes[1][1] // sizes[2][1]) if rank > 1 else 1)
    return _scalars("[0]", ones, padding, ones, "False", nothing, groups, "[True, True, False]")


class Worked(Plain):
    """due: when each of the loader's workers has its next batch."""

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.due: list[float] = []

    def fetched(self, workers: int, us: float) -> None:
        """`next` of a loader: each worker makes a batch in so many µs and begins the next at once."""
        if not self.due:
            self.due = [self.now + us * (place + 1) / workers for place in range(workers)]
        turn = self.number % workers
        start = self.now
        begun = max(self.due[turn], start)
        with self.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=0):
            self.now = max(start + self.vary(170, 0.1), self.due[turn] + self.vary(900, 0.3))  # a thread pins it
        self.due[turn] = begun + self.vary(us, 0.07)


class Wave(Line):
    """A convolution over a line, of elements of the card's size."""

    def us(self, card: Card) -> float:
        """By operations, or by what it reads and writes."""
        x, weight, y = self.dims
        area = self.batch * (x[2] if self.turned else self.width)
        return max(2 * area * prod(weight) / card.tflops / 1e6, card.moves(card.size * (prod(x) + prod(y))))


def wave(rt: Framed, tape: Tape, of: Wave, how: Look) -> None:
    """`nn.Conv1d` or `nn.ConvTranspose1d`."""
    if how.cast:
        casts(rt, how.card, of.dims[1])
    begun = len(rt.rows)
    ahead, behind, weight = how.names
    conv(rt, tape, Look(how.card, (behind, ahead, weight) if of.turned else how.names, how.norm), of)
    for row in rt.rows[begun:]:
        if row["name"] == "aten::conv2d":
            row["name"] = "aten::conv_transpose1d" if of.turned else "aten::conv1d"
        elif row["name"] == "aten::cudnn_convolution" and of.turned:
            row["name"] = "aten::cudnn_convolution_transpose"


def normed(rt: Framed, tape: Tape, how: Look, y: list[int]) -> None:
    """`nn.BatchNorm1d` or `nn.BatchNorm2d` by cuDNN."""
    card, nbytes = how.card, how.card.size * prod(y)
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((how.norm.format("fw"), card.moves(3 * nbytes)),), dims=(y,), kind=card.kind)  # fmt: skip

    def backward() -> None:
        rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y), kind=card.kind,
                run=((how.norm.format("bw"), card.moves(5 * nbytes)),))  # fmt: skip
        for _ in range(2):
            rt.accumulated()

    tape.append(backward)


def halved(rt: Framed, tape: Tape, card: Card, y: list[int]) -> None:
    """`nn.MaxPool1d(2)` of (batch, channels, length), length: of its output."""
    name = "void at::native::(anonymous namespace)::max_pool_{}_nchw<" + card.kind
    us, dims = card.moves(card.size * prod(y) * 5 / 2), [y[0], y[1], 1, 2 * y[2]]
    number = rt.op("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool2d_with_indices", graph=True, gap=11,
                   run=((name.format("forward") + f", {card.kind}>(…)", 1.3 * us),), dims=(dims,),
                   kind=card.kind)  # fmt: skip
    tape.append(lambda: rt.grad("MaxPool2DWithIndicesBackward0", number, "aten::max_pool2d_with_indices_backward",
                                run=((name.format("backward") + ", float>(…)", 1.7 * us),), dims=(dims, dims),
                                kind=card.kind))  # fmt: skip


def encoder(rt: Framed, tape: Tape, card: Card, x: list[int]) -> None:
    """A block of (batch, length, width) with norms before, heads of 64."""
    batch, length, width = x
    tokens = batch * length
    norm(rt, tape, card, x)
    dense(rt, tape, card, batch, (tokens, width, 3 * width))
    attention(rt, tape, card, [batch, width // 64, length, 64])
    dense(rt, tape, card, batch, (tokens, width, width))
    acts(rt, tape, card, "add", x)
    norm(rt, tape, card, x)
    dense(rt, tape, card, batch, (tokens, width, 4 * width))
    acts(rt, tape, card, "gelu", [batch, length, 4 * width])
    dense(rt, tape, card, batch, (tokens, 4 * width, width))
    acts(rt, tape, card, "add", x)


def flat(card: Card) -> Look:
    """Convolutions over a line in bf16 by autocast."""
    return Look(card, (NCHW[0], NCHW[1], NCHW[2]), NORM_NCHW, True)


def wide(tflops: float, gbs: float, names: tuple[str, str], attention: tuple[str, str] = ("", "")) -> Card:
    """A card in bf16."""
    return Card(tflops, gbs, BF16, names, attention)
