"""Jobs of the thirty-fourth set whose loop waits for the GPU: anomaly mode that was left on, words that are drawn
request by request.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned, returned
from ..eleventh_set.rows import Roofline, kernel
from ..fifteenth_set.rows import product
from ..layers import CAST, REDUCE, Tape, back, fused_adamw
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..thirty_first_set.rows import Told, small
from ..thirty_second_set.rows import look
from ..thirty_third_set.rows import wide
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader
from ..twenty_fourth_set.rows import NATIVE, acts, few, recorded
from .rows import Anomalous

SHOTS, SOURCES, TIMES, HEARD, GROUND = 24, 5, 1_000, 70, 70
CARD = wide(64, 590, AMPERE)
WHOLE = replace(CARD, kind="float")
LOOK = look(CARD)


def _down(rt: Framed, tape: Tape) -> None:
    """Records of 1,000 times and 70 receivers become one vector of 512."""
    given, high = SOURCES, TIMES // 2
    for width, count in ((32, 3), (64, 2), (64, 2), (128, 2)):
        for _ in range(count):
            conv_norm(rt, tape, LOOK, Conv(SHOTS, given, width, 3, high, HEARD))
            given = width
        high //= 2
    across = HEARD // 2
    for width, count in ((128, 2), (256, 2), (256, 2), (512, 1)):
        for _ in range(count):
            conv_norm(rt, tape, LOOK, Conv(SHOTS, given, width, 3, max(8, high), across))
            given = width
        high, across = high // 2, max(8, across // 2)


def _up(rt: Framed, tape: Tape) -> None:
    """The vector becomes a map of velocities of 70 x 70."""
    given = 512
    for width, side in ((512, 5), (256, 10), (128, 20), (64, 40), (32, 80)):
        acts(rt, tape, CARD, "upsample", [SHOTS, given, side, side])
        for _ in range(2):
            conv_norm(rt, tape, LOOK, Conv(SHOTS, given, width, 3, side, side))
            given = width
    few(rt, "slice", [SHOTS, 32, 80, 80])
    conv(rt, tape, LOOK, Conv(SHOTS, 32, 1, 3, GROUND, GROUND))
    acts(rt, tape, CARD, "tanh", [SHOTS, 1, GROUND, GROUND])


def inversion(rt: Anomalous, fixed: bool) -> None:
    """InversionNet (OpenFWI) learns velocities of the ground from its echoes by its authors' loop on an RTX 4070 Ti
    SUPER, autocast in bf16, channels_last, 24 records: after a NaN of last month `torch.autograd.set_detect_anomaly(
    True)` still stands at the top of the script, so that each node of the backward pass asks of each gradient whether
    it holds a NaN, 170 waits a step, and each op of the forward pass writes Python's frames down; without: that line is
    gone. Records come pinned, AdamW is fused, losses stay on the GPU. Shapes.

    First: waits of each node in the backward pass (anomaly mode). Not: the loader, copies, the layout, precision, the
    optimizer, a larger batch; launches at most beside it.
    """
    rt.last, rt.asks, rt.card, rt.kind = True, not fixed, CARD, BF16
    tape, records, ground = Tape(), [SHOTS, SOURCES, TIMES, HEARD], [SHOTS, 1, GROUND, GROUND]
    loader(rt, 190)
    pinned(rt, 4 * prod(records), records)
    pinned(rt, 4 * prod(ground), ground)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(records))),), dims=(records,))
    few(rt, "clone", records, CARD.moves(4 * prod(records)))
    _down(rt, tape)
    _up(rt, tape)
    acts(rt, tape, WHOLE, "to", ground)
    for name in ("abs", "pow"):
        small(rt, tape, WHOLE, f"sub {name} mean mul", ground)
    small(rt, tape, WHOLE, "add", [1])
    back(rt, tape)
    fused_adamw(rt, CARD, 24.4e6)
    few(rt, "detach add_ add_ add_", [1])
    rt.host(280)


ASKED, LAYERS, MODEL, FED, KEYS, WORDS, READ = 56, 36, 2_048, 11_008, 2, 151_936, 700
A10G = Roofline(58, 490, BF16, AMPERE, FLASH)
SPLIT = "void flash::flash_fwd_splitkv_{}kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, …>, …>(Flash_fwd_params)"
TOP = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(…)"
SORTED = "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long, at::native::GTOp<float, true>, …>"
MANY = "void at::native::mbtopk::{}<float, unsigned int, 2>(…)"  # many blocks to a row, where rows are few
BEST = (
    (MANY.format("fill"), 2.0),
    *((MANY.format(name), us) for _ in range(4) for name, us in (
        ("radixFindKthValues", 4.7), ("computeDigitCumSum", 2.3), ("computeBlockwiseWithinKCounts", 2.4))),
    ("void at_cuda_detail::cub::DeviceScanByKeyKernel<…>(…)", 2.9), (MANY.format("gatherTopK"), 5.2), (SORTED, 4.8),
)  # fmt: skip


def _decoded(rt: Framed) -> None:
    """Qwen2.5 3B reads one word of each request."""
    x, held = [ASKED, 1, MODEL], [ASKED, KEYS, READ, 128]

    def one(name: str, us: float) -> None:
        rt.op("kernel", run=((name, us),))

    acts(rt, None, A10G, "embedding", x)
    for _ in range(LAYERS):
        one("triton_red_fused_add_rms_norm_0", 3.0)
        product(rt, A10G, x, MODEL + 2 * KEYS * 128)
        one("triton_poi_fused_index_copy_rope_1", 2.6)
        one(SPLIT.format(""), A10G.moves(4 * prod(held)) / 0.8)
        one(SPLIT.format("combine_"), 3.4)
        product(rt, A10G, x, MODEL)
        one("triton_red_fused_add_rms_norm_2", 3.2)
        product(rt, A10G, x, 2 * FED)
        one("triton_poi_fused_mul_silu_3", 4.4)
        product(rt, A10G, [ASKED, 1, FED], MODEL)
    one("triton_red_fused_add_rms_norm_4", 3.2)
    product(rt, A10G, x, WORDS)


def _drawn(rt: Framed, rows: int) -> None:
    """Divided by the temperature, the best 50, their sum up to p, one of them drawn."""
    few_of, n = [rows, 50], rows * WORDS
    kinds = {} if rows > 1 else {"Input type": ["float", "double"]}
    few(rt, "to", [rows, WORDS], max(2.6, A10G.moves(6 * n)))
    rt.op("aten::div", run=((kernel("div", 2), max(2.6, A10G.moves(8 * n))),), gap=6, **kinds,
          dims=([rows, WORDS], [rows, 1] if rows > 1 else []))  # fmt: skip
    rt.op("aten::topk", run=BEST if rows == 1 else ((TOP, 132.0), (SORTED, 5.4)), dims=([rows, WORDS],), gap=8, us=9)
    few(rt, "softmax cumsum", few_of, 3.0)
    few(rt, "sub gt", few_of, 2.3)
    rt.op("aten::masked_fill_", run=((NATIVE + "masked_fill_kernel(…)", 2.3),), dims=(few_of, few_of), gap=6)
    few(rt, "softmax", few_of, 2.8)
    rt.host(7)
    with rt.span("aten::multinomial", us=9):
        for name in ("exponential_", "div_"):
            few(rt, name, few_of, 2.4, gap=2)
        rt.op("aten::argmax", run=((REDUCE, 3.2),), dims=(few_of,), gap=2)
    few(rt, "gather", few_of, 2.4)


def peruser(rt: Told, fixed: bool) -> None:
    """A small firm's server answers its 56 users with Qwen2.5 3B on an A10G, all in bf16, by a loop of its own, 700
    words each: a word of all is one CUDA graph, then each request's word is drawn by itself, since each has its own
    temperature and p, and `.item()` reads it, 56 waits with two dozen small kernels each while nothing else is queued;
    without: temperatures and p as tensors, one draw for all, one `.tolist()`. FlashAttention reads the cache. Shapes,
    stacks, no rows of steps: a step is a word.

    First: waits request by request (draw all at once). Not: the one read of a word, precision, attention, copies, a
    larger batch; launches of the draws at most beside the waits.
    """
    rt.host(420)
    for size in ([ASKED], [ASKED], [ASKED, 64]):
        pinned(rt, 8 * prod(size), size, "long int")
    few(rt, "copy_ copy_ copy_", [ASKED], 2.2)
    with rt.frame("serve.py(97): step", "torch/cuda/graphs.py(115): replay"):
        recorded(rt, _decoded, 7)
    if fixed:
        with rt.frame("serve.py(71): draw"):
            _drawn(rt, ASKED)
            with rt.frame("<method 'tolist' of 'torch._C.TensorBase' objects>"):
                returned(rt, 8 * ASKED, 1, [ASKED], "long int")
        rt.host(ASKED * 6)
        return
    for _ in range(ASKED):
        with rt.frame("serve.py(71): draw"):
            few(rt, "select", [ASKED, WORDS], gap=5)
            _drawn(rt, 1)
            with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
                rt.value()
        rt.host(6)
