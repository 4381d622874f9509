"""What the thirty-fifth set's jobs share: cards, layers of given parts by Inductor, memory that is taken anew."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..kineto import Kernels, device
from ..layers import Card
from ..runtime import Row
from ..seventeenth_set.rows import triton
from ..thirty_third_set.rows import Kept
from ..twelfth_set.rows import Framed

RTX3060_DEVICE = device("NVIDIA GeForce RTX 3060", (8, 6), 28, 11)
RTX5080_DEVICE = device("NVIDIA GeForce RTX 5080", (12, 0), 84, 15)

Part = tuple[str, float] | tuple[int, int] | None


@dataclass(frozen=True)
class Made:
    """A layer as Inductor makes it.

    parts: a kernel with what it moves, in sizes of `x`; a product of so many inner and outer columns; None: attention
    of `heads`;  spared: the share of attention that need not be computed;  reach: its speed beside that of products;
    outer: its op;  frozen: whether weights have no gradient.
    """

    card: Card
    x: tuple[int, int, int]
    heads: tuple[int, int, int, int]
    parts: tuple[Part, ...]
    spared: float = 0.0
    reach: float = 0.85
    outer: str = "aten::_scaled_dot_product_flash_attention"
    frozen: bool = False

    @property
    def once(self) -> float:
        """µs of `x`, read or written once."""
        return self.card.moves(self.card.size * prod(self.x))

    @property
    def attention(self) -> float:
        """µs of attention, forward."""
        batch, heads, length, wide = self.heads
        return self.card.product(batch * heads * length, length, 2 * wide) / self.reach * (1 - self.spared)


def ran(rt: Framed, of: Made, *, back: bool = False) -> None:
    """What the compiled layer launches, ahead or behind."""
    tokens = of.x[0] * of.x[1]
    for place, part in enumerate(reversed(of.parts) if back else of.parts):
        if part is None:
            rt.op(of.outer + ("_backward" if back else ""), run=((of.card.attention[back], of.attention * (
                2.6 if back else 1)),), gap=5, us=15, dims=(of.heads,) * 3, kind=of.card.kind)  # fmt: skip
        elif isinstance(part[0], str):
            rt.host(5)
            name = f"triton_{part[0]}{'_backward' if back else ''}_{place}"
            triton(rt, name, max(2.4, (1.6 if back else 1) * part[1] * of.once))
        else:
            inner, out = int(part[0]), int(part[1])
            for turn in range(2 if back and not of.frozen else 1):
                sizes = ([out, tokens], [tokens, inner]) if turn else ([tokens, inner], [inner, out])
                rt.op("aten::mm", run=((of.card.names[back], of.card.product(tokens, out, inner)),), gap=3, us=7,
                      kind=of.card.kind, dims=sizes)  # fmt: skip


class Taking(Kept):
    """A run whose activations stay: what the cache of the allocator lacks is asked of the driver.

    stays: whether they do;  rest: of the segment that was cut last;  asked: sizes of segments that are missing.
    """

    stays = False

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.rest, self.asked = 0, list[int]()

    def op(self, *names: str, run: Kernels = (), dims: tuple[Any, ...] = (), kind: str = "float", **more: Any) -> int:
        """Returns its number in the graph."""
        if self.stays and more.get("graph") and dims and names[0][-1] != "_":
            self._wanted(prod(more.pop("made", dims[0])) * (4 if kind == "float" else 2))
        more.pop("made", None)
        return super().op(*names, run=run, dims=dims, kind=kind, **more)

    def _wanted(self, nbytes: int) -> None:
        """Blocks of 10 MB and more are whole segments, smaller ones are cut out of segments of 20 MB."""
        if nbytes >= 10 << 20:
            self.asked.append(-(-nbytes >> 21) << 21)
        elif nbytes > 1 << 20:
            if self.rest < nbytes:
                self.asked.append(20 << 20)
                self.rest = 20 << 20
            self.rest -= nbytes

    def work(self, name: str, us: float, **given: Any) -> float:
        """Queues work; returns when it ends."""
        while self.asked:
            self.call("Malloc", 90 + self.asked.pop() / 1e6 * 0.9)
        return super().work(name, us, **given)
