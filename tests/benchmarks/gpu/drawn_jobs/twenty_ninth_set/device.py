"""Jobs of the twenty-ninth set whose device does more than it must: potentials in float64, activations that go to the
host, attention by a mask that says nothing.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import Roofline, elementwise, linear
from ..fifteenth_set.rows import Third
from ..kineto import Kernels
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import Row
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..twelfth_set.language import A100
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_seventh_set.rows import A6000, gathered, summed

ATOMS, EDGES, WIDE, RADIAL = 2_300, 82_000, 128, 64
DGEMM = ("volta_dgemm_128x64_tn", "volta_dgemm_64x64_nn")
SGEMM = ("volta_sgemm_128x64_tn", "volta_sgemm_64x64_nn")


class Forced(Third):
    """forces: whether the backward pass that runs is one for positions, in which weights get no gradient."""

    forces = False

    def accumulated(self) -> None:
        """A gradient that becomes `.grad`."""
        if not self.forces:
            super().accumulated()


class Doubled(Roofline):
    """A card whose tensors are in float64."""

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8


DOUBLE = Doubled(6.1, 780, "double", DGEMM, ("", ""))
SINGLE = Roofline(12.4, 780, "float", SGEMM, ("", ""))


def _tensor_product(rt: Framed, tape: Tape, card: Card, parts: int) -> None:
    """e3nn's `conv_tp`: products of what neighbours hold with harmonics and weights of edges, path by path."""
    for part in range(parts):
        size = [EDGES, WIDE, 1 if part % 2 == 0 else 3]
        acts(rt, tape, card, "mul mul", size)
        if part % 3 == 2:
            acts(rt, tape, card, "scale", size)
    acts(rt, tape, card, "cat", [EDGES, 4 * WIDE])


def _interaction(rt: Framed, tape: Tape, card: Card, first: bool) -> None:
    """A layer of MACE: linear maps, messages of edges, their sum, the product basis."""
    node_size, kept = [ATOMS, WIDE, 1 if first else 4], 1 if first else 4
    linear(rt, tape, card, [ATOMS * kept, WIDE], WIDE)
    for wide, out in ((8, RADIAL), (RADIAL, RADIAL), (RADIAL, RADIAL)):
        linear(rt, tape, card, [EDGES, wide], out)
        acts(rt, tape, card, "silu scale", [EDGES, out])
    linear(rt, tape, card, [EDGES, RADIAL], 4 * WIDE)
    gathered(rt, tape, card, ATOMS, EDGES, WIDE * kept)
    _tensor_product(rt, tape, card, 4 if first else 7)
    summed(rt, tape, card, ATOMS, EDGES, 4 * WIDE)
    linear(rt, tape, card, [ATOMS * 4, WIDE], WIDE)
    acts(rt, tape, card, "scale", [ATOMS, 4 * WIDE])
    for inner in (16, 4):  # contractions of the symmetric basis
        acts(rt, tape, card, "mul mul sum", [ATOMS, WIDE, inner, 4])
        acts(rt, tape, card, "add", node_size)
    linear(rt, tape, card, [ATOMS * 4, WIDE], WIDE)
    acts(rt, tape, card, "add", [ATOMS, 4 * WIDE])


def _energies(rt: Framed, tape: Tape, card: Card) -> None:
    acts(rt, tape, card, "sub pow sum sqrt", [EDGES, 3])
    acts(rt, tape, card, "div mul mul add div mul", [EDGES, 8])  # Bessel's functions, the cutoff
    acts(rt, tape, card, "mul mul sub cat", [EDGES, 4])  # spherical harmonics
    for layer in range(2):
        _interaction(rt, tape, card, layer == 0)
        linear(rt, tape, card, [ATOMS, WIDE], 16)
        acts(rt, tape, card, "silu", [ATOMS, 16])
        linear(rt, tape, card, [ATOMS, 16], 1)
    acts(rt, tape, card, "sum add", [ATOMS])


def mace(rt: Forced, fixed: bool) -> None:
    """MACE (128 channels, vectors) learns energies and forces of crystals on a V100 by its `run_train.py`, 2,300 atoms
    and 82,000 edges a step: `default_dtype` is float64, as it is by default, so that all tensors are twice as large and
    products take twice as long; without: `--default_dtype=float32`. Forces are a gradient that is differentiated again,
    graphs come pinned, Adam by lists, an average of weights by lists, the loss is summed on the GPU. Shapes.

    First: float64 (products and what memory moves). Not: launches, waits, the loader, copies, TF32 or bf16 (a V100 has
    neither), the optimizer.
    """
    card, tape, kind = SINGLE if fixed else DOUBLE, Tape(), "float" if fixed else "double"
    loader(rt, 220)
    for size, each in (([ATOMS, 3], card.size), ([ATOMS, 10], card.size), ([EDGES, 3], card.size),
                       ([2, EDGES], 8), ([ATOMS], 8), ([ATOMS, 3], card.size)):  # fmt: skip
        pinned(rt, each * prod(size), size, kind if each == card.size else "long int")
    _energies(rt, tape, card)
    rt.forces, judged_by = True, Tape()
    with rt.backward():  # `torch.autograd.grad(energy, positions, create_graph=True)`
        for one in reversed(tape):
            one()
    acts(rt, judged_by, card, "neg sub pow mul mean", [ATOMS, 3])
    with rt.backward():
        while judged_by:
            judged_by.pop()()
        for one in tape:  # the first backward pass, differentiated
            one()
        rt.forces = False
        for one in reversed(tape):
            one()
    clipped(rt, card, 2.1e6, 1, card.size)
    adam(rt, card, 2.1e6 * card.size / 4, "Adam", 1)
    few(rt, "add_ add_", [1])
    rt.host(330)


PICTURES, SEEN, MODEL, BLOCKS, HELD = 56, 257, 1_280, 32, 7


class Held(Framed):
    """held: whether what is saved for the backward pass goes to pinned memory of the host at once (`save_on_cpu`)."""

    held = False

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.saved: dict[int, list[list[int]]] = {}  # sizes of what nodes have packed

    def op(self, *names: str, run: Kernels = (), dims: tuple[Any, ...] = (), kind: str = "float", **more: Any) -> int:
        """Returns its number in the graph, behind which its inputs are packed."""
        graph = bool(more.get("graph"))
        number = super().op(*names, run=run, dims=dims, kind=kind, **more)
        if self.held and graph:
            self.saved[number] = _saved(names[0], dims)
            for size in self.saved[number]:
                self._packed(size, kind)
        return number

    def grad(self, name: str, number: int, *inner: str, run: Kernels = (), **more: Any) -> None:
        """A node of the backward pass, before which its tensors are unpacked."""
        for size in self.saved.pop(number, ()):
            with self.span("aten::to"), self.span("aten::_to_copy"):
                self.op("aten::empty_strided", us=4, gap=2)
                with self.span("aten::copy_"):
                    self.copy(2 * prod(size))
        super().grad(name, number, *inner, run=run, **more)

    def _packed(self, size: list[int], kind: str) -> None:
        """`torch.empty(size, pin_memory=True).copy_(tensor)`, which waits."""
        self.op("aten::empty", us=9, gap=5)
        self.op("aten::is_pinned", us=2, gap=2)
        with self.span("aten::copy_"):
            end = self.copy(2 * prod(size), "DtoH")
            self.call("StreamSynchronize", 3, until=end + 3)


def _saved(name: str, dims: tuple[Any, ...]) -> list[list[int]]:
    """What an op saves of its inputs."""
    if name == "aten::addmm":
        return [list(dims[1]), list(dims[2])]
    if name == "aten::scaled_dot_product_attention":
        return [list(size) for size in (*dims, dims[0])]
    return [list(dims[0])] if name in ("aten::layer_norm", "aten::gelu") else []


def _block(rt: Held, tape: Tape) -> None:
    x, tokens = [PICTURES, SEEN, MODEL], PICTURES * SEEN
    casts(rt, A6000, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
    norm(rt, tape, A6000, x)
    dense(rt, tape, A6000, PICTURES, (tokens, MODEL, 3 * MODEL))
    attention(rt, tape, A6000, [PICTURES, 16, SEEN, 80])
    dense(rt, tape, A6000, PICTURES, (tokens, MODEL, MODEL))
    acts(rt, tape, A6000, "add", x)
    norm(rt, tape, A6000, x)
    dense(rt, tape, A6000, PICTURES, (tokens, MODEL, 4 * MODEL))
    acts(rt, tape, A6000, "gelu", [PICTURES, SEEN, 4 * MODEL])
    dense(rt, tape, A6000, PICTURES, (tokens, 4 * MODEL, MODEL))
    acts(rt, tape, A6000, "add", x)


def heldback(rt: Held, fixed: bool) -> None:
    """ViT-H/14 goes on learning cells by a plain loop on an RTX A6000, autocast in bf16, 56 pictures of 224: the first
    seven of 32 blocks still run under `save_on_cpu(pin_memory=True)`, which a card of 24 GB had needed, so that all
    they save goes to the host's memory in the forward pass, tensor by tensor, each a wait, and comes back in the
    backward pass; without: it stays, a third of the memory is free. Pictures come pinned as bytes, AdamW is fused,
    clipped by lists, the loss is summed on the GPU. Shapes.

    First: activations that go to the host and back (copies both ways, waits). Not: the loader, launches, casts of
    weights, attention, the optimizer, the batch.
    """
    tape, picture, x = Tape(), [PICTURES, 3, 224, 224], [PICTURES, SEEN, MODEL]
    loader(rt, 200)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    acts(rt, None, replace(A6000, kind="float"), "to sub div", picture)
    casts(rt, A6000, picture, [MODEL, 588])
    dense(rt, tape, A6000, PICTURES, (PICTURES * 256, 588, MODEL))
    acts(rt, tape, A6000, "cat add", x)
    for number in range(BLOCKS):
        rt.held = number < HELD and not fixed
        _block(rt, tape)
    rt.held = False
    norm(rt, tape, A6000, x)
    casts(rt, A6000, [62, MODEL])
    dense(rt, tape, A6000, PICTURES, (PICTURES, MODEL, 62))
    judged(rt, tape, A6000, PICTURES, 62)
    back(rt, tape)
    clipped(rt, A6000, 631e6, 2)
    fused_adamw(rt, A6000, 631e6)
    few(rt, "add_", [1])
    rt.host(320)


TEXTS, LENGTH, WIDTH, KEYS, FED, DEEP, WORDS = 3, 4_096, 2_048, 256, 5_632, 22, 32_000
FMHA = (
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, "
    "cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
    "fmha_cutlassB_bf16_aligned_128x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::bfloat16_t, "
    "cutlass::arch::Sm80, true, false, true, 128, 64, 64, false>::Params)",
)


def _attended(rt: Framed, tape: Tape, fixed: bool) -> None:
    """`scaled_dot_product_attention` of 32 heads: by `is_causal`, or by a mask of (texts, 1, length, length)."""
    dims = [TEXTS, 32, LENGTH, 64]
    if fixed:
        flash(rt, tape, A100, dims)
        return
    us, outer = A100.product(prod(dims[:3]), LENGTH, 128) / 0.43, "aten::_scaled_dot_product_efficient_attention"
    few(rt, "expand", [TEXTS, 1, LENGTH, LENGTH])
    number = rt.op("aten::scaled_dot_product_attention", outer, "aten::_efficient_attention_forward", gap=16,
                   run=((FMHA[0], us),), dims=(dims, dims, dims, [TEXTS, 1, LENGTH, LENGTH]), kind=BF16,
                   graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductEfficientAttentionBackward0", number, outer + "_backward",
                                "aten::_efficient_attention_backward", run=((FMHA[1], 2.6 * us),), us=12, kind=BF16,
                                dims=(dims, dims, dims, dims, [TEXTS, 1, LENGTH, LENGTH])))  # fmt: skip


def _made(rt: Framed) -> None:
    """`_prepare_4d_causal_attention_mask`, once a step: -inf above the diagonal, and where a text is padded."""
    size = [TEXTS, 1, LENGTH, LENGTH]
    few(rt, "full triu mul", size[2:], A100.moves(4 * LENGTH**2))
    few(rt, "clone add eq masked_fill", size, A100.moves(4 * prod(size)))


def masked(rt: Framed, fixed: bool) -> None:
    """TinyLlama-1.1B goes on learning a language by the Trainer on an A100, all in bf16, three packs of 4,096: the
    collator hands an `attention_mask` with a zero at the end of a pack, so that SDPA gets a mask of -inf, takes the
    memory-efficient kernels and works off both halves of all scores; without: packs are full, no mask is given, causal
    FlashAttention runs. Liger's norms, a compiled loss, AdamW is fused, clipped by lists, the loss is read each 50th
    step. No shapes.

    First: attention that is slow for its mask (FlashAttention needs `is_causal` without one). Not: launches, waits, the
    loader, precision, the optimizer, the batch, the loss.
    """
    tape, x, fed = Tape(), [TEXTS, LENGTH, WIDTH], [TEXTS, LENGTH, FED]
    loader(rt, 180)
    for _ in range(2 if fixed else 3):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    if not fixed:
        _made(rt)
    acts(rt, tape, A100, "embedding", x)
    for _ in range(DEEP):
        fused_norm(rt, tape, A100, x)
        for out in (WIDTH, KEYS, KEYS):
            linear(rt, tape, A100, x, out)
        for heads in (32, 4):
            acts(rt, tape, A100, "mul neg cat mul add", [TEXTS, heads, LENGTH, 64])
        for _ in range(2):  # keys and values of each group of heads
            rt.op("aten::reshape", "aten::clone", "aten::copy_", gap=12, kind=BF16,
                  run=((CAST, A100.moves(2.2 * prod(x))),), dims=([TEXTS, 4, 8, LENGTH, 64],))  # fmt: skip
        _attended(rt, tape, fixed)
        linear(rt, tape, A100, x, WIDTH)
        acts(rt, tape, A100, "add", x)
        fused_norm(rt, tape, A100, x)
        for _ in range(2):
            linear(rt, tape, A100, x, FED)
        elementwise(rt, tape, A100, "silu", fed, back=(("silu_backward", 3),))
        acts(rt, tape, A100, "mul", fed)
        linear(rt, tape, A100, fed, WIDTH)
        acts(rt, tape, A100, "add", x)
    fused_norm(rt, tape, A100, x)
    linear(rt, tape, A100, x, WORDS)
    compiled_loss(rt, tape, A100, TEXTS * LENGTH, WORDS)
    back(rt, tape)
    clipped(rt, A100, 1.1e9, 4, 2)
    fused_adamw(rt, A100, 1.1e9 / 2)
    rt.host(410)
