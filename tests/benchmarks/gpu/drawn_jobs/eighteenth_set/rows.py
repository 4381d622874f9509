"""What the eighteenth set's jobs share: rows of memory, ops of the host, graphs' kernels, a Conformer's layer."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eleventh_set.rows import elementwise, kernel, linear, node
from ..kineto import PYTHON, Kernels, inputs
from ..layers import CAST, Card, Tape, attention, norm
from ..runtime import MAIN, Row
from ..seventh_set import BF16
from ..twelfth_set.rows import Framed

DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_{}_kernel<0, c10::BFloat16, int>(…)"


class Remembered(Framed):
    """`profile_memory=True`: a row for what ops take of the device, one for what nodes of the backward pass give back;
    of each op that was asked for a gradient the output, what is left at the end of a step goes then.
    """

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.taken: list[tuple[int, int]] = []
        self.memory: list[tuple[float, int, int]] = []

    def op(self, *names: str, run: Kernels = (), dims: tuple[Any, ...] = (), kind: str = "float", **more: Any) -> int:
        """Returns its number in the graph."""
        kept = bool(more.get("graph"))
        number = super().op(*names, run=run, dims=dims, kind=kind, **more)
        if kept and dims and names[0][-1] != "_":
            nbytes = -(-prod(dims[0]) * (2 if kind == BF16 else 4) // 512) * 512
            address = 0x7F20_0000_0000 + 0x200 * (7919 * len(self.memory) % 40_000_000)
            self.taken.append((address, nbytes))
            self.memory.append((self.now - 1, address, nbytes))
        return number

    def grad(self, name: str, number: int, *inner: str, run: Kernels = (), **more: Any) -> None:
        """A node of the backward pass, which gives an activation back."""
        super().grad(name, number, *inner, run=run, **more)
        self.freed(1)

    def freed(self, count: int) -> None:
        """The youngest of what was taken is given back."""
        for _ in range(min(count, len(self.taken))):
            address, nbytes = self.taken.pop()
            self.memory.append((self.now, address, -nbytes))
            self.now += 0.1

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        total, most, rows = 1_400_000_000, 0, []
        for number, (ts, address, nbytes) in enumerate(self.memory):
            total += nbytes
            most = max(most, total)
            args = {"Total Reserved": -(-most // (1 << 25)) << 25, "Total Allocated": total, "Bytes": nbytes}
            args |= {"Addr": address, "Device Id": 0, "Device Type": 1, "Ev Idx": 500_000 + number}
            rows.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PYTHON,
                         "tid": PYTHON, "ts": round(ts, 3), "args": args})  # fmt: skip
        known["traceEvents"] += rows
        return known | {"profile_memory": 1}


def on_host(rt: Framed, name: str, us: float, dims: list[int], kind: str = "float") -> None:
    """An op of tensors in the host's memory."""
    rt.host(8)
    with rt.span(name, us=us, **inputs((dims,), kind)):
        pass


def returned(rt: Framed, nbytes: int, rate: float, dims: list[int], kind: str = "float") -> None:
    """`.to("cpu")`, GB/s: memory of the host that is new and not pinned, so that the call returns when all is there."""
    with rt.span("aten::to", **inputs((dims,), kind)), rt.span("aten::_to_copy"):
        rt.op("aten::empty_strided", us=9, gap=0)
        with rt.span("aten::copy_", **inputs((dims, dims), kind)):
            place = len(rt.rows)
            end = rt.work("Memcpy DtoH (Device -> Pageable)", 2 + nbytes / rate / 1e3, call="MemcpyAsync",
                          category="gpu_memcpy", bytes=nbytes)  # fmt: skip
            rt.now = max(rt.now, end + 3)
            rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)
            rt.call("StreamSynchronize", 3)


def pinned(rt: Framed, nbytes: int, dims: list[int], kind: str = "float", *, stream: int = MAIN) -> float:
    """`.to(device, non_blocking=True)` of pinned memory; returns when it is there."""
    rt.host(8)
    with rt.span("aten::to", **inputs((dims,), kind)), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        return rt.copy(nbytes, stream=stream)


def graphed(rt: Framed, kernels: list[tuple[str, float]], number: int) -> float:
    """A launch of a CUDA graph of such kernels; returns when it ends."""
    correlation, called = len(rt.rows) + 1, rt.now
    rt.call("GraphLaunch", 24 + len(kernels) / 10, correlation=correlation)
    begin = max(called + 13, rt.free[MAIN] + 1.2)
    for place, (name, us) in enumerate(kernels):
        end = begin + rt.vary(us)
        ids = {"device": 0, "stream": MAIN, "correlation": correlation, "graph id": number, "graph node id": place}
        rt.row(name, "kernel", begin, end, MAIN, **ids)
        begin = end + 0.7
    rt.free[MAIN] = begin
    rt.queued.append(begin)
    return begin


def casts(rt: Framed, card: Card, *sizes: list[int]) -> None:
    """Autocast makes a copy in bf16 of each weight."""
    for size in sizes:
        rt.op(
            "aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(6 * prod(size))),), dims=(size,), gap=3
        )


def depthwise(rt: Framed, tape: Tape, card: Card, x: list[int], side: int) -> None:
    """`Conv1d(groups=channels)` of (batch, length, channels), and its batch norm."""
    once, size = card.moves(2 * card.size * prod(x)), [x[0], x[2], 1, x[1]]
    weight = [x[2], 1, 1, side]
    number = rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", graph=True,
                   run=((DEPTHWISE.format("forward"), 1.6 * once),), dims=(size, weight), kind=card.kind,
                   gap=26)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((DEPTHWISE.format("backward"), 1.8 * once), (
                "void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<c10::BFloat16, int>(…)",
                2.6 * once)), dims=(size, size, weight), kind=card.kind, us=16, gap=1)  # fmt: skip
        rt.accumulated()

    tape.append(backward)
    name = "void at::native::batch_norm_{}_kernel<c10::BFloat16, float, float, int, at::GenericPackedTensorAccessor<…>>"
    seen = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", graph=True, gap=20,
                   run=((name.format("collect_statistics"), 0.6 * once), (name.format("transform_input"), 1.1 * once)),
        dims=(size,), kind=card.kind)  # fmt: skip
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", seen, "aten::native_batch_norm_backward", run=(
        (name.format("backward"), 2.4 * once),), dims=(size, size), kind=card.kind))  # fmt: skip


def conformer(rt: Framed, tape: Tape, card: Card, x: list[int]) -> None:
    """A layer of a Conformer under autocast: half a step, attention, convolution, half a step."""
    width = x[2]
    casts(rt, card, [4 * width, width], [width, 4 * width], [3 * width, width], [width, width], [2 * width, width],
          [width, width], [4 * width, width], [width, 4 * width])  # fmt: skip
    for part in range(2):
        norm(rt, tape, card, x)
        linear(rt, tape, card, x, 4 * width)
        elementwise(rt, tape, card, "silu", [*x[:2], 4 * width], back=(("silu_backward", 3),))
        linear(rt, tape, card, [*x[:2], 4 * width], width)
        elementwise(rt, tape, card, "mul", x, back=(("mul", 2),))
        elementwise(rt, tape, card, "add", x, 2)
        if part:
            break
        norm(rt, tape, card, x)
        linear(rt, tape, card, x, 3 * width)
        attention(rt, tape, card, [x[0], width // 64, x[1], 64])
        linear(rt, tape, card, x, width)
        elementwise(rt, tape, card, "add", x, 2)
        norm(rt, tape, card, x)
        linear(rt, tape, card, x, 2 * width)
        elementwise(rt, tape, card, "glu", x, 2, (("glu_backward", 4),))
        depthwise(rt, tape, card, x, 31)
        elementwise(rt, tape, card, "silu", x, back=(("silu_backward", 3),))
        linear(rt, tape, card, x, width)
        elementwise(rt, tape, card, "add", x, 2)


def ctc(rt: Framed, tape: Tape, card: Card, sizes: tuple[int, int, int], longest: int) -> None:
    """`log_softmax` in fp32 and `ctc_loss` of (length, batch, classes)."""
    dims = list(sizes)
    us = card.moves(8 * prod(sizes))
    soft = rt.op("aten::log_softmax", "aten::_log_softmax", run=((kernel("log_softmax", 2), us),), graph=True,
                 dims=(dims,), gap=16)  # fmt: skip
    name = "void at::native::(anonymous namespace)::ctc_loss_{}_gpu_kernel<float, long>(…)"
    number = rt.op("aten::ctc_loss", "aten::_ctc_loss", run=((name.format("log_alpha"), 1.6 * sizes[0]),), graph=True,
                   us=30, dims=(dims, [sizes[1], longest]), gap=30)  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", soft, "aten::_log_softmax_backward_data", dims=(dims, dims),
                                run=((kernel("log_softmax_backward", 3), 1.5 * us),)))  # fmt: skip
    tape.append(lambda: rt.grad("CtcLossBackward0", number, "aten::_ctc_loss_backward", us=24, dims=(dims,), run=(
        (name.format("backward_log_beta"), 1.7 * sizes[0]), (name.format("backward_collect"), us))))  # fmt: skip
