"""What the thirty-first set's jobs share: plain arguments of ops as files hold them, strides of channels_last, FSDP."""

from __future__ import annotations

from math import prod

from ..eleventh_set.rows import kernel
from ..kineto import device, inputs
from ..layers import Card, Tape
from ..runtime import COPIES, Row
from ..seventh_set import BF16
from ..twelfth_set.rows import Framed

A5000_DEVICE = device("NVIDIA RTX A5000", (8, 6), 64, 23)
B200_DEVICE = device("NVIDIA B200", (10, 0), 148, 179)

Plain = tuple[tuple[str, str], ...]
_N = ("", "")


def _scalars(*values: str) -> Plain:
    return tuple(("ScalarList" if value.startswith("[") else "Scalar", value) if value else _N for value in values)


_PLAIN: dict[str, tuple[int, Plain]] = {  # how many tensors the op has, what follows them
    "aten::mul": (2, ()),
    "aten::add": (2, _scalars("1")),
    "aten::add_": (2, _scalars("1")),
    "aten::sub": (2, _scalars("1")),
    "aten::copy_": (2, _scalars("False")),
    "aten::addmm": (3, _scalars("1", "1")),
    "aten::softmax": (1, _scalars("-1", "")),
    "aten::_softmax": (1, _scalars("-1", "False")),
    "aten::log_softmax": (1, _scalars("-1", "")),
    "aten::_log_softmax": (1, _scalars("-1", "False")),
    "aten::gelu": (1, _scalars("none")),
    "aten::dropout": (1, _scalars("0.10000000000000001", "True")),
    "aten::native_dropout": (1, _scalars("0.10000000000000001", "True")),
    "aten::max_pool2d": (1, _scalars("[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False")),
    "aten::max_pool2d_with_indices": (1, _scalars("[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False")),
    "aten::contiguous": (1, _scalars("0")),
    "aten::clone": (1, _scalars("0")),
    "aten::pow": (1, _scalars("2")),
    "aten::select": (1, _scalars("0", "0")),
    "aten::slice": (1, _scalars("0", "0", "9223372036854775807", "1")),
    "aten::unsqueeze": (1, _scalars("1")),
    "aten::cross_entropy_loss": (1, _scalars("", "", "1", "-100", "0.")),
    "aten::mean": (1, _scalars("[1]", "False", "")),
    "aten::sum": (1, _scalars("[-1]", "False", "")),
}
_NORMS = ("aten::layer_norm", "aten::native_layer_norm")
_CONVOLVED = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
_LAST = (*_CONVOLVED, "aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", "aten::relu_",
         "aten::threshold_backward", "aten::cudnn_batch_norm_backward", "aten::add_", "aten::max_pool2d",
         "aten::max_pool2d_with_indices", "aten::convolution_backward", "aten::add", "aten::mul",
         "aten::mean", "aten::cat", "aten::_conv_depthwise2d")  # fmt: skip


_KINDS = {"15": BF16, "5": "c10::Half", "6": "float", "4": "long int", "0": "unsigned char"}
_REST = ("False", "False", "")
_WIDER = (("Scalar", "6"), *_scalars(*_REST))


def _travelled(rows: list[Row], pinned: bool) -> None:
    """`.to(device)`: what it says of the tensor, and its inner ops as well."""
    given = rows[0]["args"]
    size, stride, kind = given["Input Dims"][0], given["Input Strides"][0], given["Input type"][0]
    dtype = next((number for number, name in _KINDS.items() if name == kind), "6")
    for row, plain in zip(rows, (_scalars(dtype, "0", "", "", str(pinned), "False", ""),
                                 _scalars(dtype, "0", "", "", str(pinned), ""), _scalars(str(pinned))),
                          strict=True):  # fmt: skip
        count = 2 if row["name"] == "aten::copy_" else 1
        row["args"] |= {
            "Input Dims": [size] * count + [[]] * len(plain), "Input Strides": [stride] * count + [[]] * len(plain),
            "Input type": [kind] * count + [name for name, _ in plain],
            "Concrete Inputs": [""] * count + [value for _, value in plain],
        }  # fmt: skip


class Told(Framed):
    """narrow: number of the dtype that autocast casts to;  last: whether pictures are channels_last;  causal: whether
    attention looks back only.
    """

    narrow, last, causal = "15", False, False

    def value(self, outer: str = "aten::item", memory: str = "Pageable") -> None:
        """A value of the device that Python reads."""
        if outer == "aten::is_nonzero" or self.prefix != "cuda":
            super().value(outer, memory)
            return
        with self.span(outer), self.span("aten::_local_scalar_dense"):
            self.copy(4, "DtoH", memory, waits=True)

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        ops = {row["args"]["External id"]: row for row in known["traceEvents"] if row.get("cat") == "cpu_op"}
        moved = {row["args"]["External id"]: row["name"] for row in self.rows
                 if row["cat"] == "gpu_memcpy" and "HtoD" in row["name"]}  # fmt: skip
        for number, row in ops.items():
            name, args = row["name"], row["args"]
            if not args.get("Input Dims"):
                continue
            if name == "aten::to" and number + 2 in moved:
                _travelled([row, ops[number + 1], ops[number + 2]], "Pinned" in moved[number + 2])
            elif name == "aten::to" and ops.get(number + 1, row)["name"] != "aten::_to_copy":
                picture = len(args["Input Dims"][0]) == 4 and args["Input Dims"][0][1] == 3
                narrow = "unsigned char" if picture else _KINDS[self.narrow]
                args |= {"Input type": [narrow] + [kind for kind, _ in _WIDER], "Concrete Inputs": ["", "6", *_REST]}
                args |= {key: [*args[key][:1], *([[]] * 4)] for key in ("Input Dims", "Input Strides")}
            elif not (name in ("aten::_to_copy", "aten::copy_") and {number, number + 1} & set(moved)):
                args |= self._told(name, args)
        return known

    def _told(self, name: str, args: Row) -> Row:
        sizes, kinds = list(args["Input Dims"]), list(args["Input type"])
        strides = list(args.get("Input Strides", [[]] * len(sizes)))
        if kinds[0] == "TensorList":
            return {}
        if self.last and name in _LAST:
            strides = [_nhwc(size) if len(size) == 4 else stride for size, stride in zip(sizes, strides, strict=True)]
        plain: Plain = ()
        if name == "aten::mean" and len(sizes[0]) == 4:
            plain = _scalars("[2, 3]", "False", "")
        elif name in _PLAIN:
            count, plain = _PLAIN[name]
            for _ in range(count - len(sizes)):
                sizes, strides, kinds = [*sizes, sizes[-1]], [*strides, strides[-1]], [*kinds, kinds[-1]]
        elif name in ("aten::to", "aten::_to_copy"):
            dtype = self.narrow if kinds[0] == "float" else "6"
            plain = _scalars(dtype, "False", "False", "") if name == "aten::to" else _scalars(
                dtype, "", "", "", "False", "")  # fmt: skip
        elif name in _NORMS:
            sizes, strides, kinds = sizes[:1], strides[:1], kinds[:1]
            wide = [sizes[0][-1]]
            found = [(sizes[0], strides[0], kinds[0], ""), ([], [], "ScalarList", str(wide)), (wide, [1], "float", ""),
                     (wide, [1], "float", ""), ([], [], "Scalar", "1.0000000000000001e-05")]  # fmt: skip
            found += [([], [], "Scalar", "True")] if name == _NORMS[0] else []
            names = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
            return dict(zip(names, (list(part) for part in zip(*found, strict=True)), strict=True))
        elif name in _CONVOLVED and len(sizes) == 2 and len(sizes[1]) == 4:
            plain = _convolved(name, sizes)
        elif name == "aten::batch_norm":
            for _ in range(4):
                sizes, strides, kinds = [*sizes, [sizes[0][1]]], [*strides, [1]], [*kinds, "float"]
            plain = _scalars("True", "0.10000000000000001", "1.0000000000000001e-05", "True")
        elif name == "aten::scaled_dot_product_attention" and len(sizes) == 3:
            plain = (_N, *_scalars("0.", str(self.causal), "", "False"))
        count = len(sizes)
        return {
            "Input Dims": sizes + [[]] * len(plain), "Input Strides": strides + [[]] * len(plain),
            "Input type": kinds + [kind for kind, _ in plain],
            "Concrete Inputs": [""] * count + [value for _, value in plain],
        }  # fmt: skip


def _nhwc(size: list[int]) -> list[int]:
    _, channels, high, wide = size
    return [channels * high * wide, 1, wide * channels, channels]


def _convolved(name: str, sizes: list[list[int]]) -> Plain:
    weight = sizes[1]
    padding, one = f"[{weight[2] // 2}, {weight[3] // 2}]", "[1, 1]"
    groups = str(sizes[0][1] // weight[1])
    if name == "aten::conv2d":
        return _scalars("", one, padding, one, groups)
    if name == "aten::convolution":
        return _scalars("", one, padding, one, "False", "[0, 0]", groups)
    if name == "aten::_convolution":
        return _scalars("", one, padding, one, "False", "[0, 0]", groups, "False", "False", "True", "True")
    return _scalars(padding, one, one, groups, "False", "False", "True")


def ahead(rt: Framed, *batch: tuple[int, list[int], str]) -> float:
    """The next batch on a stream of its own, from pinned memory; returns when it is there."""
    end = 0.0
    for nbytes, size, kind in batch:
        rt.host(9)
        with rt.span("aten::to", **inputs((size,), kind)), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            end = rt.copy(nbytes, stream=COPIES)
    return end


def timed(rt: Framed, tape: Tape | None, name: str, run: tuple[str, float], back: tuple[str, float] | None,
          dims: list[int], kind: str = "float", *, gap: float = 8, inner: str = "") -> None:  # fmt: skip
    """An op and its node by their kernels and how long these last."""
    number = rt.op(f"aten::{name}", run=(run,), dims=(dims,), kind=kind, gap=gap, graph=tape is not None)
    if tape is not None:
        title = name.strip("_").title().replace("_", "") + "Backward0"
        tape.append(lambda: rt.grad(title, number, inner or f"aten::{name.strip('_')}_backward", dims=(dims, dims),
                                    run=(back,) if back else (), kind=kind))  # fmt: skip


def small(rt: Framed, tape: Tape | None, card: Card, names: str, dims: list[int]) -> None:
    """Plain ops of small tensors, each with a node of one kernel."""
    us = card.moves(3 * card.size * prod(dims))
    for name in names.split():
        timed(rt, tape, name, (kernel(name, 2, card.kind), us), (kernel("mul", 3, card.kind), us), dims, card.kind,
              inner="aten::mul")  # fmt: skip
