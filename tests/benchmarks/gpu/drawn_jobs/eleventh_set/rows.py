"""What the eleventh set's jobs share: kernels with a grid of their size, nodes of several ops, plain layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

from ..kineto import Kineto, inputs
from ..layers import REDUCE, VECTOR, Card, Tape
from ..runtime import Row
from ..seventh_set import NODE

_ROCM_COPY = {"HtoD": "Memcpy HtoD (Host -> Device)", "DtoH": "Memcpy DtoH (Device -> Host)"}
_PRODUCTS = ("gemm", "nvjet", "fprop", "dgrad", "wgrad", "Cijk", "cutlass", "flash", "fmha")
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>>"
)
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(…)"
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<{}>, at::native::(anonymous namespace)::{}<float, {}>, {}>(…)"
)


class Roofline(Card):
    """Products that are no faster than what they read and write; for cards whose jobs have no attention."""

    def product(self, m: int, n: int, k: int) -> float:
        """µs of a product."""
        return max(super().product(m, n, k), self.moves(self.size * (m * k + k * n + m * n)))


class Sized(Kineto):
    """Kernels whose grids are as large as they are long, copies with the bandwidth that they reached."""

    def work(self, name: str, us: float, **given: Any) -> float:
        """Queues work; returns when it ends."""
        category = given.get("category", "kernel")
        if category == "gpu_memcpy" and "T4" in self.device["name"]:
            us *= 20 / 12  # its PCIe is of the third generation
        if category == "gpu_memcpy" and given.get("bytes"):
            given["memory bandwidth (GB/s)"] = round(given["bytes"] / us / 1e3, 3)
        if category == "kernel" and "grid" not in given:
            given |= _launch(name, us, int(self.device["numSms"]))
        return super().work(name, us, **given)

    def _as_on_disk(self, row: Row) -> None:
        nbytes = row.get("args", {}).get("bytes", 0)
        super()._as_on_disk(row)
        if self.prefix == "hip" and row.get("cat") == "gpu_memcpy":
            way = row["name"].split()[1]
            row["name"] = _ROCM_COPY.get(way, row["name"])
            row["args"] |= {"kind": way, "bytes": nbytes}

    def batch(self, *sizes: int, us: float = 150) -> None:
        """A batch of a loader's workers in pinned memory, copied with `non_blocking`."""
        with self.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=us):
            pass
        for nbytes in sizes:
            self.host(8)
            with self.span("aten::to"), self.span("aten::_to_copy"), self.span("aten::copy_"):
                self.copy(nbytes)


@cache
def _is_product(kernel: str) -> bool:
    return any(part in kernel for part in _PRODUCTS) and "fbgemm" not in kernel


def _launch(name: str, us: float, sms: int) -> dict[str, Any]:
    if "nccl" in name:
        return {"grid": [24, 1, 1], "block": [544, 1, 1], "est. achieved occupancy %": 9}
    if _is_product(name):
        return {"grid": [max(4, round(us * sms / 60)), 2, 1], "block": [256, 1, 1], "est. achieved occupancy %": 13}
    blocks = max(1, round(us * sms / 4))
    filled = min(100, round(100 * blocks * 256 / (sms * 2048)))
    return {"grid": [blocks, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": filled}


@contextmanager
def node(rt: Kineto, name: str, number: int) -> Iterator[None]:
    """A node of the backward pass that calls more than one op."""
    args = {"Sequence number": number, "Fwd thread id": 1}
    with rt.span(NODE + name, us=5, **args), rt.span(name, us=3, **args):
        yield


_FUNCTORS = {
    "add": "CUDAFunctor_add<{0}>",
    "sub": "CUDAFunctor_sub<{0}>",
    "mul": "BinaryFunctor<{0}, {0}, {0}, at::native::binary_internal::MulFunctor<float>>",
    "div": "BinaryFunctor<{0}, {0}, {0}, at::native::binary_internal::DivFunctor<float>>",
    "relu": "(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, …)",
    "threshold_backward": "BinaryFunctor<{0}, {0}, {0}, at::native::(anonymous namespace)::threshold_kernel_impl<{0}>>",
    "silu": "(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{{lambda()#1}}::{{lambda({0})#1}}",
    "silu_backward": "(anonymous namespace)::silu_backward_kernel(at::TensorIteratorBase&)::{{lambda({0}, {0})#1}}",
    "gelu": "GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{{lambda()#2}}::{{lambda({0})#1}}",
    "gelu_backward": "GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{{lambda({0})#1}}",
    "pow": "(anonymous namespace)::pow_tensor_scalar_kernel_impl<{0}, {0}>(at::TensorIteratorBase&, {0})",
}


def kernel(op: str, tensors: int, kind: str = "float") -> str:
    """The name of an op's kernel over tensors of one size."""
    functor = _FUNCTORS.get(op.strip("_"), op.strip("_") + "_kernel_cuda(at::TensorIteratorBase&)::{{lambda({0})#1}}")
    return VECTOR.format(functor.format(kind), tensors)


def elementwise(rt: Kineto, tape: Tape, card: Card, name: str, dims: list[int], reads: int = 1,
                back: tuple[tuple[str, int], ...] = ()) -> None:  # fmt: skip
    """An op of so many reads of a tensor's size and one write;  back: ops of its node, with what each moves."""
    nbytes = prod(dims) * card.size
    run = ((kernel(name, reads + 1, card.kind), card.moves((reads + 1) * nbytes)),)
    number = rt.op(f"aten::{name}", run=run, dims=(dims,) * reads, kind=card.kind, graph=True, gap=7)

    def backward() -> None:
        with node(rt, f"{name.strip('_').title().replace('_', '')}Backward0", number):
            for op, passes in back:
                run = ((kernel(op, passes, card.kind), card.moves(passes * nbytes)),)
                rt.op(f"aten::{op}", run=run, dims=(dims,) * (passes - 1), kind=card.kind, gap=1)

    tape.append(backward)


def linear(rt: Kineto, tape: Tape, card: Card, x: list[int], out: int, *, gap: float = 12) -> None:
    """`nn.Linear(bias=False)` of a tensor of any rank."""
    tokens, wide = prod(x[:-1]), x[-1]
    us = max(card.product(tokens, out, wide), card.moves(card.size * (tokens * (wide + out) + wide * out)))
    rt.host(gap)
    with rt.span("aten::linear", us=7, **inputs((x, [out, wide]), card.kind)):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        number = rt.op("aten::matmul", "aten::mm", run=((card.names[0], us),), gap=0, graph=True, us=6,
                       dims=([tokens, wide], [wide, out]), kind=card.kind)  # fmt: skip

    def backward() -> None:
        with node(rt, "MmBackward0", number):
            for left, right in (([out, tokens], [tokens, wide]), ([tokens, out], [out, wide])):
                rt.op("aten::mm", run=((card.names[1], us),), gap=1, us=8, dims=(left, right), kind=card.kind)
        rt.accumulated()

    tape.append(backward)


def moved_as(rt: Kineto, tape: Tape, card: Card, dims: list[int], passes: float = 3, kind: str = "") -> None:
    """`.to(dtype)` of a tensor;  passes: what it moves, in sizes of the narrower dtype."""
    us = card.moves(passes * prod(dims) * 2)
    number = rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, us),), dims=(dims, dims), graph=True,
                   kind=kind or card.kind, gap=6)  # fmt: skip
    tape.append(lambda: rt.grad("ToCopyBackward0", number, "aten::to", "aten::_to_copy", "aten::copy_",
                                run=((COPY, us),), dims=(dims, dims), kind=kind or card.kind))  # fmt: skip


def mean(rt: Kineto, tape: Tape, card: Card, dims: list[int], name: str = "mean") -> None:
    """A reduction to a scalar or a row."""
    us = card.moves(prod(dims) * 4)
    number = rt.op(f"aten::{name}", run=((REDUCE, us),), dims=(dims,), graph=True, gap=7)
    tape.append(lambda: rt.grad(f"{name.title()}Backward1", number, "aten::div", dims=(dims,), run=(
        (kernel("div", 2), card.moves(prod(dims) * 4)),)))  # fmt: skip


def foreach(rt: Kineto, name: str, functor: str, us: float, launches: int = 1, host: float = 60,
            listed: tuple[list[int], ...] = ()) -> None:  # fmt: skip
    """An op of `torch._foreach_*`;  listed: shapes of its tensors."""
    kernel = FOREACH.format(2, functor, 2, "std::plus<float>")
    dims = {"Input Dims": [list(listed)], "Input type": ["TensorList"]} if listed else {}
    rt.op(f"aten::{name}", run=((kernel, us / launches),) * launches, us=host, **dims)
