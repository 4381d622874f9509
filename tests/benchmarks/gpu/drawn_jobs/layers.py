"""Layers whose kernels take what their sizes say on a card, with the backward pass that they leave on a tape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from .kineto import Kineto, inputs

Tape = list[Callable[[], None]]
VECTOR = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, at::detail::Array<char*, {}>>(int, …)"
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}::operator()() const::{lambda()#12}>"
)
REDUCE = "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, sum>>>"


@dataclass(frozen=True)
class Card:
    """tflops: of its products here;  gbs: of its memory;  names: of its products, forward and backward;  attention."""

    tflops: float
    gbs: float
    kind: str
    names: tuple[str, str]
    attention: tuple[str, str]

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 4 if self.kind == "float" else 2

    def product(self, m: int, n: int, k: int) -> float:
        """µs of a product."""
        return 2 * m * n * k / self.tflops / 1e6

    def moves(self, nbytes: float) -> float:
        """µs of what memory takes."""
        return max(2.2, nbytes / self.gbs / 1e3)


def dense(rt: Kineto, tape: Tape, card: Card, batch: int, sizes: tuple[int, int, int], *, gap: float = 12) -> None:
    """`nn.Linear` of (tokens, inputs, outputs)."""
    tokens, wide, out = sizes
    rt.host(gap)
    named = inputs(([batch, tokens // batch, wide], [out, wide], [out]), card.kind)
    with rt.span("aten::linear", us=8, **named):
        rt.op("aten::t", "aten::transpose", gap=0, us=1)
        number = rt.op("aten::addmm", run=((card.names[0], card.product(tokens, out, wide)),), gap=0, graph=True, us=9,
                       dims=([out], [tokens, wide], [wide, out]), kind=card.kind)  # fmt: skip

    def back() -> None:
        us = card.product(tokens, out, wide)
        rt.grad("AddmmBackward0", number, "aten::mm", run=((card.names[1], us),), us=9, kind=card.kind,
                dims=([tokens, out], [out, wide]))  # fmt: skip
        rt.op("aten::mm", run=((card.names[1], us),), gap=1, us=9, dims=([out, tokens], [tokens, wide]),
              kind=card.kind)  # fmt: skip
        rt.op("aten::sum", run=((REDUCE, card.moves(tokens * out * card.size)),), gap=1, us=6,
              dims=([tokens, out],), kind=card.kind)  # fmt: skip
        for _ in range(2):
            rt.accumulated()

    tape.append(back)


def pointwise(rt: Kineto, tape: Tape, card: Card, name: str, dims: list[int], *, reads: int = 1) -> None:
    """An op that reads so many tensors of a size and writes one."""
    nbytes, functor = prod(dims) * card.size, name.capitalize() + "Functor<c10::BFloat16>"
    run = ((VECTOR.format(functor, reads + 1), card.moves((reads + 1) * nbytes)),)
    number = rt.op(f"aten::{name}", run=run, dims=(dims,) * reads, kind=card.kind, graph=True, gap=8)
    back = ((VECTOR.format(functor + "Backward", 3), card.moves(3 * nbytes)),)
    title = name.title().replace("_", "") + "Backward0"
    tape.append(lambda: rt.grad(title, number, f"aten::{name}_backward", run=back, kind=card.kind, dims=(dims, dims)))


def norm(rt: Kineto, tape: Tape, card: Card, dims: list[int]) -> None:
    """`nn.LayerNorm`."""
    nbytes = prod(dims) * card.size
    forward = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, …)"
    number = rt.op("aten::layer_norm", "aten::native_layer_norm", run=((forward, card.moves(2 * nbytes)),), gap=10,
                   dims=(dims, [dims[-1]], [dims[-1]]), kind=card.kind, graph=True)  # fmt: skip
    back = (("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>(…)",
             card.moves(3 * nbytes)),
            ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 256>(…)",
             card.moves(2 * nbytes)))  # fmt: skip
    tape.append(lambda: rt.grad("NativeLayerNormBackward0", number, "aten::native_layer_norm_backward", run=back,
                                kind=card.kind, dims=(dims, dims)))  # fmt: skip


def attention(rt: Kineto, tape: Tape, card: Card, dims: list[int]) -> None:
    """`scaled_dot_product_attention` of (batch, heads, length, width)."""
    us = card.product(dims[0] * dims[1] * dims[2], dims[2], 2 * dims[3]) / 0.6
    flash = "flash" in card.attention[0]
    inner = "aten::_flash_attention_forward" if flash else "aten::_efficient_attention_forward"
    outer = "aten::_scaled_dot_product_flash_attention" if flash else "aten::_scaled_dot_product_efficient_attention"
    number = rt.op("aten::scaled_dot_product_attention", outer, inner, run=((card.attention[0], us),), gap=14,
                   dims=(dims,) * 3, kind=card.kind, graph=True)  # fmt: skip
    node = "ScaledDotProduct{}AttentionBackward0".format("Flash" if flash else "Efficient")
    tape.append(lambda: rt.grad(node, number, outer + "_backward", run=((card.attention[1], 2.5 * us),), us=12,
                                dims=(dims,) * 4, kind=card.kind))  # fmt: skip


def block(rt: Kineto, tape: Tape, card: Card, batch: int, length: int, width: int) -> None:
    """A transformer's block, heads of 64."""
    tokens, x = batch * length, [batch, length, width]
    norm(rt, tape, card, x)
    dense(rt, tape, card, batch, (tokens, width, 3 * width))
    attention(rt, tape, card, [batch, width // 64, length, 64])
    dense(rt, tape, card, batch, (tokens, width, width))
    pointwise(rt, tape, card, "add", x, reads=2)
    norm(rt, tape, card, x)
    dense(rt, tape, card, batch, (tokens, width, 4 * width))
    pointwise(rt, tape, card, "gelu", [batch, length, 4 * width])
    dense(rt, tape, card, batch, (tokens, 4 * width, width))
    pointwise(rt, tape, card, "add", x, reads=2)


def back(rt: Kineto, tape: Tape) -> None:
    """`loss.backward()`."""
    with rt.backward():
        while tape:
            tape.pop()()


def fused_adamw(rt: Kineto, card: Card, parameters: float) -> None:
    """`AdamW(fused=True)` of parameters in fp32."""
    name = (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW, false>>"
    )
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=60):
        pass
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=180):
        parts = max(1, round(parameters / 40e6))
        rt.op("aten::_fused_adamw_", us=40, run=tuple((name, card.moves(28 * parameters / parts))
                                                      for _ in range(parts)))  # fmt: skip
