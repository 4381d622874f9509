"""What the twelfth set's jobs share: Python's frames as `with_stack` records them, convolutions, frozen layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..eleventh_set.rows import Sized, elementwise, node
from ..kineto import inputs
from ..layers import CAST, Card, Tape
from ..runtime import Row

SLOWER = 1.35  # what `with_stack` adds to Python between ops, by Python's calls


class Framed(Sized):
    """outer: frames that are open while the window lasts, outermost first; empty: no stacks were recorded."""

    def __init__(self, device: Row, *, outer: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(device, **options)
        self.outer, self.frames = outer, len(outer)
        self.parents = list(range(1, len(outer) + 1)) or [0]

    def usual(self, category: str) -> Row:
        """Nothing of Python's frames."""
        return {} if category == "python_function" else super().usual(category)

    def host(self, us: float) -> None:
        """Python that no op names."""
        super().host(us * SLOWER if self.outer else us)

    @contextmanager
    def frame(self, *names: str) -> Iterator[None]:
        """Calls of Python, outermost first."""
        if not self.outer or not names:
            yield
            return
        self.frames += 1
        number, parent, start = self.frames, self.parents[-1], self.now
        self.parents.append(number)
        self.now += 0.4
        with self.frame(*names[1:]):
            yield
        self.now += 0.4
        self.parents.pop()
        ids = {"Python parent id": parent, "Python id": number}
        ids |= {"Python module id": number % 97} if names[0].startswith("nn.Module") else {}
        self.row(names[0], "python_function", start, self.now, **ids)

    def document(self) -> Row:
        """What is in the file, with what was called before the window began."""
        first, last = min(row["ts"] for row in self.rows), self.now + 30
        kept = len(self.rows)
        for number, name in enumerate(self.outer, 1):
            ids = {"Python parent id": number - 1 or None, "Python id": number}
            self.row(name, "python_function", first - 60 + 3 * number, last - number, **ids)
        made = super().document()
        del self.rows[kept:]
        return made | {"with_stack": 1} if self.outer else made


@dataclass(frozen=True)
class Look:
    """names: of convolutions, forward, of the input, of the weight;  cast: whether autocast converts weights."""

    card: Card
    names: tuple[str, str, str]
    norm: str = "void cudnn::bn_{}_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(…)"
    cast: bool = False


@dataclass(frozen=True)
class Conv:
    """A convolution: its tensors (batch, channels in and out, side of the kernel, height, width of the output)."""

    batch: int
    cin: int
    cout: int
    side: int
    height: int
    width: int

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        return ([self.batch, self.cin, self.height, self.width], [self.cout, self.cin, self.side, self.side],
                [self.batch, self.cout, self.height, self.width])  # fmt: skip

    def us(self, card: Card) -> float:
        """By operations, or by what it reads and writes."""
        area = self.batch * self.height * self.width
        return max(2 * area * self.cin * self.cout * self.side**2 / card.tflops / 1e6,
                   card.moves(card.size * area * (self.cin + self.cout)))  # fmt: skip


def conv(rt: Framed, tape: Tape | None, look: Look, of: Conv, *, gap: float = 14) -> None:
    """`nn.Conv2d` with its backward pass;  tape: None without gradients."""
    card, us, (x, w, y), graph = look.card, of.us(look.card), of.dims, tape is not None
    if look.cast:
        nbytes = 6 * w[0] * w[1] * w[2] * w[3]
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(nbytes)),), dims=(w,), gap=4)
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=graph,
                   run=((look.names[0], us),), dims=(x, w), kind=card.kind, gap=gap)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((look.names[1], us), (look.names[2], us)), dims=(y, x, w), us=16,
                  kind=card.kind, gap=1)  # fmt: skip
        rt.accumulated()

    if tape is not None:
        tape.append(backward)


def conv_norm(rt: Framed, tape: Tape | None, look: Look, of: Conv) -> None:
    """A convolution, its batch norm and a ReLU in place."""
    conv(rt, tape, look, of)
    card, y = look.card, of.dims[2]
    nbytes, graph = card.size * y[0] * y[1] * y[2] * y[3], tape is not None
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=graph, gap=18,
                   run=((look.norm.format("fw"), card.moves(3 * nbytes)),), dims=(y,), kind=card.kind)  # fmt: skip
    run = ((look.norm.format("bw"), card.moves(5 * nbytes)),)
    if tape is not None:
        tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                    kind=card.kind, run=run))  # fmt: skip
    elementwise(rt, [] if tape is None else tape, card, "relu_", y, back=(("threshold_backward", 3),))


def frozen(rt: Framed, tape: Tape, card: Card, x: list[int], out: int) -> None:
    """`nn.Linear` of a weight that is not trained: only the input has a gradient."""
    tokens, wide = x[0] * x[1], x[-1]
    us = card.product(tokens, out, wide)
    rt.host(12)
    with rt.span("aten::linear", us=7, **inputs((x, [out, wide]), card.kind)):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        number = rt.op("aten::matmul", "aten::mm", run=((card.names[0], us),), gap=0, graph=True, us=6,
                       dims=([tokens, wide], [wide, out]), kind=card.kind)  # fmt: skip
    tape.append(lambda: rt.grad("MmBackward0", number, "aten::mm", run=((card.names[1], us),), us=8, kind=card.kind,
                                dims=([tokens, out], [out, wide])))  # fmt: skip


def adapter(rt: Framed, tape: Tape, card: Card, x: list[int], out: int) -> None:
    """PEFT's LoRA of rank 16 in fp32 under autocast: two products, a scale, a sum."""
    tokens, wide, rank = x[0] * x[1], x[-1], 16
    for m, k in ((rank, wide), (out, rank)):
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(6 * m * k)),), dims=([m, k],), gap=9)
        us = card.moves(card.size * tokens * (m + k))
        given = [x[0], x[1], k]
        number = rt.op("aten::linear", "aten::matmul", "aten::mm", run=((card.names[0], us),), graph=True, gap=14,
                       dims=(given, [m, k]), kind=card.kind)  # fmt: skip

        def backward(number: int = number, us: float = us, m: int = m, k: int = k) -> None:
            with node(rt, "MmBackward0", number):
                for left, right in (([m, tokens], [tokens, k]), ([tokens, m], [m, k])):
                    rt.op("aten::mm", run=((card.names[1], us),), gap=1, us=8, dims=(left, right), kind=card.kind)
            rt.accumulated()

        tape.append(backward)
    elementwise(rt, tape, card, "mul", [x[0], x[1], out], back=(("mul", 2),))
    elementwise(rt, tape, card, "add", [x[0], x[1], out], 2)


def loader(rt: Framed, us: float, *, workers: bool = True) -> None:
    """The wait for a batch of a loader's workers."""
    source = "torch/utils/data/dataloader.py"
    kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    with (rt.frame(f"{source}(701): __next__"), rt.span(f"enumerate(DataLoader)#{kind}.__next__", "user_annotation"),
          rt.frame(f"{source}(1445): _next_data", f"{source}(1408): _get_data", f"{source}(1243): _try_get_data",
                   "multiprocessing/queues.py(100): get", "multiprocessing/connection.py(253): poll",
                   "selectors.py(402): select", "<method 'poll' of 'select.poll' objects>")):  # fmt: skip
        rt.now += rt.vary(us, 0.08)
