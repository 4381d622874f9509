"""What the twenty-seventh set's jobs share: cards, norms before convolutions, depthwise ones, gathers of edges."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eleventh_set.rows import elementwise
from ..fifteenth_set.rows import L40S
from ..kineto import device
from ..layers import Card, Tape
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, GATHER, H100
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, Look

H100_PCIE_DEVICE = device("NVIDIA H100 PCIe", (9, 0), 114, 79)
A6000_DEVICE = device("NVIDIA RTX A6000", (8, 6), 84, 47)
H100_PCIE = replace(H100, tflops=330, gbs=1_750)
A6000 = Card(78, 660, BF16, AMPERE, FLASH)
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)


class Apart(Conv):
    """A convolution of each channel by itself."""

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        x = [self.batch, self.cin, self.height, self.width]
        return (x, [self.cout, 1, self.side, self.side], x)

    def us(self, card: Card) -> float:
        """By what it reads and writes."""
        return 2.1 * card.moves(2 * card.size * prod(self.dims[0]))


def norm_relu(rt: Framed, tape: Tape, look: Look, y: list[int]) -> None:
    """A batch norm that stands before its convolution, and a ReLU in place."""
    card, nbytes = look.card, look.card.size * prod(y)
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                   run=((look.norm.format("fw"), card.moves(3 * nbytes)),), dims=(y,), kind=card.kind)  # fmt: skip
    tape.append(lambda: rt.grad("CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
                                kind=card.kind, run=((look.norm.format("bw"), card.moves(5 * nbytes)),)))  # fmt: skip
    elementwise(rt, tape, card, "relu_", y, back=(("threshold_backward", 3),))


def gathered(rt: Framed, tape: Tape, card: Card, nodes: int, edges: int, wide: int) -> None:
    """`x[edge_index[0]]`: the nodes of edges, whose gradients are added up."""
    us = card.moves(2 * card.size * edges * wide)
    number = rt.op("aten::index_select", run=((GATHER, us),), dims=([nodes, wide], [], [edges]), graph=True, gap=14)
    add = (("void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int, 2>(…)", 1.4 * us),)
    tape.append(lambda: rt.grad("IndexSelectBackward0", number, "aten::index_add_", run=add, us=8))


def summed(rt: Framed, tape: Tape, card: Card, nodes: int, edges: int, wide: int) -> None:
    """`scatter(reduce="sum")` of edges to their nodes."""
    us = card.moves(2 * card.size * edges * wide)
    name = "void at::native::_scatter_gather_elementwise_kernel<128, 8>(…)"
    number = rt.op("aten::scatter_add", "aten::scatter_add_", run=((name.replace("8>", "8, ReduceAdd>"), 1.5 * us),),
                   dims=([nodes, wide], [edges, wide]), graph=True, gap=19)  # fmt: skip
    tape.append(lambda: rt.grad("ScatterAddBackward0", number, "aten::gather", run=((name, us),), us=7))
