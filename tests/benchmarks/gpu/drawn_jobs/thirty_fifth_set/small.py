"""Jobs of the thirty-fifth set whose host is too slow: an optimizer that turns matrices one by one, a fluid on a grid
op by op.
"""

from __future__ import annotations

from math import prod

from ..eleventh_set.rows import COPY, Roofline, kernel, linear
from ..layers import Card, Tape, back, fused_adamw
from ..seventeenth_set.rows import compiled_loss, triton
from ..seventh_set import BF16
from ..tenth_set.jobs import NVJET
from ..thirty_first_set.rows import Told
from ..thirty_fourth_set.rows import behind, region
from ..thirty_third_set.rows import batch_of
from ..twelfth_set.rows import Framed, loader
from ..twenty_fourth_set.rows import NATIVE, few, recorded
from .rows import Made, ran

TEXTS, READ, WIDE, DEEP, WORDS = 8, 1_024, 768, 12, 50_304
SM90 = ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_32_64x64x128_4x1x1_kernel0_0")  # fmt: skip
H100 = Card(430, 2_600, BF16, NVJET, SM90)
ROOF = Roofline(430, 2_600, BF16, NVJET, SM90)
LAYER = Made(
    H100, (TEXTS, READ, WIDE), (TEXTS, 6, READ, 128),
    (("red_fused_add_rms_norm", 3.2), (WIDE, 3 * WIDE), ("red_fused_cat_mul_rms_norm_rope", 4.2), None, (WIDE, WIDE),
     ("red_fused_add_rms_norm", 3.4), (WIDE, 4 * WIDE), ("poi_fused_pow_relu", 8.0), (4 * WIDE, WIDE)),
    spared=0.5, outer="aten::_scaled_dot_product_cudnn_attention",
)  # fmt: skip
WEIGHTS = [(WIDE, WIDE)] * 4 + [(4 * WIDE, WIDE), (WIDE, 4 * WIDE)]


def _one(rt: Framed, name: str, size: list[int], passes: float, *, nbytes: int = 2) -> None:
    us = max(1.9, H100.moves(nbytes * passes * prod(size)) - 0.5)
    rt.op(f"aten::{name}", dims=(size,), kind=BF16 if nbytes == 2 else "float", gap=4, us=3, run=(
        (COPY if name in ("copy_", "stack") else kernel(name, 2, BF16), us),))  # fmt: skip


def _turned(rt: Framed, count: int, rows: int, columns: int) -> None:
    """Newton-Schulz, five times, of so many matrices at once."""
    few_of, more = min(rows, columns), max(rows, columns)
    x, square = [few_of, more], [few_of, few_of]
    if count > 1:
        x, square = [count, *x], [count, *square]
    name = "aten::bmm" if count > 1 else "aten::mm"
    _one(rt, "to", x, 3)
    _one(rt, "norm", x, 1)
    for part in ("add", "div"):
        _one(rt, part, x if part == "div" else [count], 2)
    for _ in range(5):
        for left, right, inner, out in ((x, [*x[:-2], more, few_of], more, few_of), (square, square, few_of, few_of),
                                        (square, x, few_of, more)):  # fmt: skip
            us = max(3.6, count * 2 * few_of * inner * out / (430 if count > 1 else 300) / 1e6)
            rt.op("aten::matmul", name, run=((NVJET[0], us),), dims=(left, right), kind=BF16, gap=6, us=5)
            for part in {few_of: ("mul", "mul", "add"), more: ("mul", "add")}[out] if left is square else ():
                _one(rt, part, square if out == few_of else x, 2.5)
            if few_of == more and left is square and right is x:
                break


def _muon(rt: Framed, fixed: bool) -> None:
    """Momentum, matrices that are turned, weights."""
    with rt.span("Optimizer.step#Muon.step", "user_annotation", us=200):
        for rows, columns in () if fixed else WEIGHTS * DEEP:
            rt.host(12)
            for name, passes in (("lerp_", 3), ("lerp", 3)):
                _one(rt, name, [rows, columns], passes, nbytes=4)
            _turned(rt, 1, rows, columns)
            for name, passes in (("mul_", 2), ("add_", 2.5)):
                _one(rt, name, [rows, columns], passes, nbytes=4)
        for rows, columns, count in ((WIDE, WIDE, 4), (4 * WIDE, WIDE, 1), (WIDE, 4 * WIDE, 1)) if fixed else ():
            rt.host(90)
            size = [count * DEEP, rows, columns]
            _one(rt, "stack", size, 2, nbytes=4)
            for name, passes in (("lerp_", 3), ("lerp", 3)):
                _one(rt, name, size, passes, nbytes=4)
            _turned(rt, count * DEEP, rows, columns)
            for name, passes in (("_foreach_mul_", 2), ("_foreach_add_", 2.5)):
                _one(rt, name, size, passes, nbytes=4)
    with rt.span("Optimizer.zero_grad#Muon.zero_grad", "user_annotation", us=60):
        pass


def muon(rt: Told, fixed: bool) -> None:
    """A GPT of 124M learns web pages by a script after modded-nanogpt on an H100, in bf16, eight texts of 1,024: layers
    are compiled, attention is cuDNN's, but Muon goes over its 72 matrices one by one, each by five turns of
    Newton-Schulz, some 3,000 kernels of 2 to 8 µs that take longer to launch than to run; without: matrices of
    a size are stacked and turned at once. Embeddings have a fused AdamW, the loss is compiled and read each 100th step.
    Shapes.

    First: launches of the optimizer (stacks of matrices, or compiled). Not: the loader, copies, waits, precision,
    attention, layers; a larger batch at most beside it.
    """
    tape, numbers, ends = Tape(), list[int](), WORDS * WIDE
    loader(rt, 170)
    batch_of(rt, ([TEXTS, READ], "long int"), ([TEXTS, READ], "long int"))
    few(rt, "embedding", [TEXTS, READ, WIDE], 2 * LAYER.once)
    for _ in range(DEEP):
        rt.sequence += 1
        numbers.append(rt.sequence)
        with region(rt, "fmu2n4a", rt.sequence):
            ran(rt, LAYER)
    triton(rt, "triton_red_fused_rms_norm_9", 2 * LAYER.once)
    linear(rt, tape, H100, [TEXTS, READ, WIDE], WORDS)
    compiled_loss(rt, tape, H100, TEXTS * READ, WORDS)
    back(rt, tape)
    with rt.backward():
        for number in reversed(numbers):
            with behind(rt, "fbx7k2e", number):
                ran(rt, LAYER, back=True)
            for _ in range(6):
                rt.accumulated()
        few(rt, "embedding_dense_backward", [WORDS, WIDE], H100.moves(4 * ends))
    fused_adamw(rt, H100, 2 * ends)
    _muon(rt, fixed)
    few(rt, "detach add_", [1])
    rt.host(200)


WAYS, LONG, ACROSS, STEPS = 9, 640, 256, 40
FIELD = [WAYS, LONG, ACROSS]
A100 = Roofline(14, 1_280, "float", ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_64x32_sliced1x4_nn"), ("", ""))
ROLL = "void roll_cuda_kernel<float>(float const*, float*, long, long, long, long, long, long)"


def _each(rt: Framed, name: str, size: list[int], passes: float, run: str = "") -> None:
    """An op of a field; what is small lies in the cache."""
    us = max(2.3, A100.moves(4 * passes * prod(size)) * 0.62)
    rt.op(f"aten::{name}", dims=(size,), gap=4, us=3, run=((run or kernel(name, 2), us),))


def _summed(rt: Framed, name: str, size: list[int], passes: float) -> None:
    """`torch.einsum` over the directions."""
    us = max(3.1, A100.moves(4 * passes * prod(size)) * 0.62)
    rt.host(9)
    with rt.span("aten::einsum", us=26):
        for part in ("permute", "reshape"):
            rt.op(f"aten::{part}", dims=(size,), gap=1, us=2)
        rt.op("aten::bmm", run=((name, us),), gap=2, us=6, dims=([1, *size[1:]], [1, WAYS, 2]))


def _balanced(rt: Framed, size: list[int]) -> None:
    """`QuadraticEquilibrium`."""
    plane = [1, *size[1:]]
    for _ in range(2):
        _summed(rt, A100.names[0], size, 1.3)
    for name, passes in (("mul", 2), ("pow", 2), ("mul", 2), ("add", 3), ("sub", 2.2), ("add", 2), ("mul", 2.2)):
        _each(rt, name, size, passes)
    _each(rt, "mul", plane, 3)
    _each(rt, "mul", size, 2.2)


def _streamed(rt: Framed) -> None:
    """Each direction is rolled and written back."""
    for way in range(1, WAYS):
        few(rt, "select", FIELD, gap=3)
        for _ in range(2 if way > 4 else 1):
            _each(rt, "roll", FIELD[1:], 2, ROLL)
        _each(rt, "copy_", FIELD[1:], 2, COPY)


def _turn(rt: Framed) -> None:
    """A step of the fluid."""
    _streamed(rt)
    _each(rt, "sum", FIELD, 1.1)
    _summed(rt, A100.names[1], FIELD, 1.2)
    _each(rt, "div", [2, *FIELD[1:]], 2.5)
    _balanced(rt, FIELD)
    for name in ("sub", "div", "sub"):
        _each(rt, name, FIELD, 3)
    for name in ("index", "where"):  # walls: back where it came from
        _each(rt, name, FIELD, 3, NATIVE + "index_elementwise_kernel<128, 4, …>(…)" if name == "index" else "")
    inlet = [WAYS, 1, ACROSS]
    for name in ("ones", "mul", "expand", "sum"):
        few(rt, name, inlet, 2.2)
    _balanced(rt, inlet)
    for name in ("copy_", "sub", "mul", "add", "copy_"):  # the inlet, and what leaves
        few(rt, name, inlet, 2.3)


def _forty(rt: Framed) -> None:
    for _ in range(STEPS):
        _turn(rt)


def lattice(rt: Told, fixed: bool) -> None:
    """The wake of a cylinder is simulated by Lattice Boltzmann (D2Q9, 640 x 256, fp32) by lettuce on an A100 of PCIe:
    each step of the fluid is some 60 kernels of 2 to 8 µs, which take longer to launch than to run; without: forty
    steps are one CUDA graph. Forces on the cylinder are kept on the GPU and read each 2,000 steps. No batches, no
    gradients, no rows of steps. Shapes: a step is forty of the fluid's.

    First: launches (a graph, compile, or lettuce's own kernels). Not: a loader, copies, waits, precision (TF32 and half
    would spoil it), an optimizer, a larger batch.
    """
    rt.host(30)
    if fixed:
        few(rt, "copy_", [1], 2.1)
        recorded(rt, _forty, 3)
    else:
        for _ in range(STEPS):
            _turn(rt)
            rt.host(22)
    for name in ("index", "mul", "sum", "copy_"):
        few(rt, name, [2, 4_100], 2.6)
    rt.host(60)
