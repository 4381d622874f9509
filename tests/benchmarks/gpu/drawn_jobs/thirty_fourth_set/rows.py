"""What the thirty-fourth set's jobs share: cards, edges of graphs, layers that Inductor made, anomaly mode's checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from ..eleventh_set.rows import FILL, node
from ..kineto import Kernels, device, inputs
from ..layers import REDUCE, Card, Tape
from ..runtime import Row, Span
from ..seventh_set import NODE
from ..thirty_second_set.rows import Worked
from ..thirty_third_set.rows import Ended
from ..twelfth_set.rows import Framed
from ..twenty_fourth_set.rows import GATHER, NATIVE

A100_PCIE_DEVICE = device("NVIDIA A100-PCIE-40GB", (8, 0), 108, 39)
RTX4070_DEVICE = device("NVIDIA GeForce RTX 4070 Ti SUPER", (8, 9), 66, 15)
RTX5090_DEVICE = device("NVIDIA GeForce RTX 5090", (12, 0), 170, 31)

SUMMED = NATIVE + "indexFuncLargeIndex<{k}, long, unsigned int, 2, 2, -2, true, ReduceAdd>(…)"
TOLD = "void at::native::vectorized_elementwise_kernel<{n}, at::native::isnan_kernel_impl<{k}>, std::array<char*, 2ul>>"
ANY = REDUCE.replace("sum", "or").replace("float", "bool")
PLUS = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
READS = 1.3  # a gather or a sum by index, beside what a plain copy takes


class Starved(Ended, Worked):
    """A loader whose workers are late."""


class _Asked(Span):
    """A node of the backward pass behind which anomaly mode looks for NaN in each gradient that it made."""

    __slots__ = ()

    def __exit__(self, *failed: object) -> None:
        name = self.name.removeprefix(NODE)
        counts = {"ConvolutionBackward0": 2, "CudnnBatchNormBackward0": 3, "ToCopyBackward0": 1, "AddBackward0": 2}
        last = next((row for row in reversed(self.rt.rows[-9:]) if row["args"].get("Input Dims")), None)
        for place in range(counts.get(name, 1)):
            _looked_at(self.rt, last["args"]["Input Dims"][0] if last and not place else [64])
        super().__exit__(*failed)


def _looked_at(rt: Any, size: list[int]) -> None:
    """`isnan(output)._is_any_true().item<bool>()`."""
    n = prod(size)
    rt.op("aten::isnan", "aten::ne", dims=(size,), kind=rt.kind, gap=1, us=3,
          run=((TOLD.format(n=4, k=rt.kind), rt.card.moves(3 * n)),))  # fmt: skip
    rt.op("aten::_is_any_true", "aten::any", dims=(size,), kind="bool", gap=1, us=3, run=((ANY, rt.card.moves(n) + 1),))
    rt.value()


class Anomalous(Ended):
    """asks: whether anomaly mode is on;  card, kind: of gradients."""

    asks, kind, card = False, "c10::BFloat16", Card(1, 600, "c10::BFloat16", ("", ""), ("", ""))

    def op(self, *names: str, run: Kernels = (), dims: tuple[Any, ...] = (), kind: str = "float", **more: Any) -> int:
        """Returns its number in the graph; anomaly mode writes Python's frames down for each node."""
        if self.asks and more.get("graph"):
            self.host(48)
        return super().op(*names, run=run, dims=dims, kind=kind, **more)

    def span(self, name: str, category: str = "cpu_op", *, us: float = 3, **args: Any) -> Span:
        """An op or annotation, with what it calls."""
        checked = self.asks and name.startswith(NODE) and "Accumulate" not in name
        return (_Asked if checked else Span)(self, name, category, us, args)


class Added(Ended):
    """adds: whether gradients are added to zeros, as `zero_grad(set_to_none=False)` leaves them;  weights: of layers,
    in the order of the forward pass.
    """

    adds, card = False, Card(1, 880, "float", ("", ""), ("", ""))

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.weights: list[list[int]] = []

    def accumulated(self) -> None:
        """A gradient that becomes `.grad`, or is added to it."""
        size = self.weights.pop()
        if not self.adds:
            super().accumulated()
            return
        name = "torch::autograd::AccumulateGrad"
        with self.span(NODE + name, us=3), self.span(name, us=2):
            run = ((PLUS, self.card.moves(12 * prod(size))),)
            self.op("aten::add_", run=run, dims=(size, size), gap=1, us=4)


def gathered(rt: Framed, tape: Tape, card: Card, rows: list[int], into: list[int]) -> None:
    """`x.index_select(0, edges)`: a row for each edge; behind, sums by node."""
    us = READS * card.moves(2 * card.size * prod(rows))
    number = rt.op("aten::index_select", run=((GATHER.replace("{k}", card.kind), us),), dims=(into, rows[:1]), gap=9,
                   graph=True, us=6)  # fmt: skip

    def backward() -> None:
        with node(rt, "IndexSelectBackward0", number), rt.span("aten::index_select_backward", us=4):
            _added(rt, card, rows, into)

    tape.append(backward)


def summed(rt: Framed, tape: Tape, card: Card, rows: list[int], into: list[int]) -> None:
    """`index_add_`: what edges say, summed by node; behind, a row for each edge."""
    number = _added(rt, card, rows, into, graph=True)
    us = READS * card.moves(2 * card.size * prod(rows))
    tape.append(lambda: rt.grad("IndexAddBackward0", number, "aten::index_select", dims=(into, rows[:1]), run=(
        (GATHER.replace("{k}", card.kind), us),)))  # fmt: skip


def _added(rt: Framed, card: Card, rows: list[int], into: list[int], *, graph: bool = False) -> int:
    filling = ((FILL, card.moves(card.size * prod(into))),)
    rt.op("aten::new_zeros", "aten::zero_", "aten::fill_", run=filling, dims=(into,), gap=4, us=3)
    run = ((SUMMED.replace("{k}", card.kind), READS * card.moves(2 * card.size * prod(rows))),)
    return rt.op("aten::index_add_", run=run, dims=(into, rows[:1], rows), gap=4, us=6, graph=graph)


def biased(rt: Framed, card: Card, x: list[int], out: int, *, gap: float = 8) -> None:
    """`nn.Linear` without a graph."""
    tokens, wide = prod(x[:-1]), x[-1]
    us = max(card.product(tokens, out, wide), card.moves(card.size * (tokens * (wide + out) + wide * out)))
    rt.host(gap)
    with rt.span("aten::linear", us=6, **inputs((x, [out, wide], [out]), card.kind)):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        rt.op("aten::addmm", run=((card.names[0], us),), gap=0, us=6, kind=card.kind,
              dims=([out], [tokens, wide], [wide, out]))  # fmt: skip


@contextmanager
def region(rt: Framed, name: str, number: int = 0) -> Iterator[None]:
    """A region that `torch.compile` made.  number: in the graph, where it has one."""
    more = {"Sequence number": number, "Fwd thread id": 0} if number else {}
    with rt.span("TorchDynamo Cache Lookup", us=22), rt.span("aten::detach", us=1):
        pass
    with (rt.span("Torch-Compiled Region: 0/0", us=50), rt.span("CompiledFunction", us=36, **more),
          rt.span(f"## Call CompiledFxGraph {name} ##", "user_annotation", us=16)):  # fmt: skip
        yield


@contextmanager
def behind(rt: Framed, name: str, number: int) -> Iterator[None]:
    """Its backward pass."""
    with (node(rt, "CompiledFunctionBackward", number),
          rt.span(f"## Call CompiledFxGraph {name} ##", "user_annotation", us=16)):  # fmt: skip
        yield


def mm(rt: Framed, card: Card, sizes: tuple[int, int, int], *, ways: bool = False) -> None:
    """A product of (rows, inner, columns) that compiled code calls; behind, of both sides."""
    rows, inner, columns = sizes
    for _ in range(1 + ways):
        rt.op("aten::mm", run=((card.names[ways], card.product(rows, columns, inner)),), gap=3, us=7, kind=card.kind,
              dims=([rows, inner], [inner, columns]))  # fmt: skip
