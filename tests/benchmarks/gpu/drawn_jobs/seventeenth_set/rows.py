"""What the seventeenth set's jobs share: losses by Triton's kernels, which the driver launches."""

from __future__ import annotations

from ..eleventh_set.rows import node
from ..kineto import inputs
from ..layers import Card, Tape
from ..seventh_set import BF16
from ..twelfth_set.rows import Framed


def triton(rt: Framed, name: str, us: float) -> None:
    """A kernel that Triton compiled."""
    rt.work(name, us, call="ModuleLaunchKernel" if rt.prefix == "hip" else "cuLaunchKernel")


def compiled_loss(rt: Framed, tape: Tape, card: Card, tokens: int, classes: int) -> None:
    """`torch.compile(cross_entropy)`: bf16 is read, nothing in fp32 is written."""
    rt.sequence += 1
    number, once = rt.sequence, card.moves(4 * tokens * classes)
    with rt.span("TorchDynamo Cache Lookup", us=20):
        pass
    with (rt.span("Torch-Compiled Region: 0/0", us=60),
          rt.span("CompiledFunction", us=30, **{"Sequence number": number, "Fwd thread id": 0})):  # fmt: skip
        triton(rt, "triton_red_fused__log_softmax__to_copy_nll_loss_forward_0", once)
        triton(rt, "triton_per_fused_nll_loss_forward_1", 6)

    def backward() -> None:
        with node(rt, "CompiledFunctionBackward", number):
            triton(rt, "triton_poi_fused__log_softmax__log_softmax_backward_data__to_copy_nll_loss_backward_2", once)

    tape.append(backward)


def linear_loss(rt: Framed, tape: Tape, card: Card, name: str, kernel: tuple[str, float],
                sizes: tuple[int, int, int], grads: int) -> None:  # fmt: skip
    """Liger's head and loss in one function of (tokens, width, classes), four chunks of tokens, gradients at once;
    kernel: that of the loss;  grads: how many of tokens and weights have one.
    """
    tokens, wide, classes = sizes
    us, part = card.product(tokens, classes, wide) / 4, tokens // 4
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    rt.host(30)
    with rt.span(name, us=40, **args, **inputs(([tokens, wide], [classes, wide]), BF16)):
        for _ in range(4):
            rt.op("aten::matmul", "aten::mm", run=((card.names[0], us),), gap=8, us=5, kind=BF16,
                  dims=([part, wide], [wide, classes]))  # fmt: skip
            rt.host(12)
            triton(rt, kernel[0], kernel[1] / 4)
            for left, right in (([part, classes], [classes, wide]), ([classes, part], [part, wide]))[:grads]:
                rt.op("aten::mm", run=((card.names[1], us),), gap=8, us=5, kind=BF16, dims=(left, right))

    def backward() -> None:
        with node(rt, f"{name}Backward", number):
            triton(rt, "element_mul_kernel", card.moves(4 * tokens * wide))

    tape.append(backward)


def triton_loss(rt: Framed, tape: Tape, card: Card, tokens: int, classes: int) -> None:
    """flash-attn's cross entropy, whose gradient takes the place of the logits."""
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    once = card.moves(2 * tokens * classes)
    with rt.span("CrossEntropyLoss", us=30, **args, **inputs(([tokens, classes], [tokens]), BF16)):
        triton(rt, "cross_entropy_fwd_kernel", once)

    def backward() -> None:
        with node(rt, "CrossEntropyLossBackward", number):
            triton(rt, "cross_entropy_bwd_kernel", 2 * once)

    tape.append(backward)
