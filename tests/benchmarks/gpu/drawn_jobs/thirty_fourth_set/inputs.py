"""Jobs of the thirty-fourth set that wait for what comes and goes: neighbours that workers seek anew in each epoch,
a cache of keys and values that lies in the host's memory.
"""

from __future__ import annotations

from math import prod

from ..eleventh_set.rows import COPY, Roofline, kernel, linear
from ..fifteenth_set.rows import product
from ..layers import REDUCE, Tape, back, dense, norm
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16
from ..thirty_first_set.rows import Told, small
from ..thirty_third_set.rows import HEADS_128, batch_of
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Framed
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import CAT, NATIVE, acts, few
from .rows import Starved, gathered, summed

SYSTEMS, ATOMS, EACH, WIDE, BASIS, DEEP = 24, 1_800, 45, 256, 128, 6
A100 = Roofline(90, 1_280, "float", TF32, ("", ""))


def _message(rt: Framed, tape: Tape, edges: int) -> None:
    """What neighbours say, of numbers and of vectors."""
    norm(rt, tape, A100, [ATOMS, WIDE])
    dense(rt, tape, A100, 1, (ATOMS, WIDE, WIDE))
    acts(rt, tape, A100, "silu", [ATOMS, WIDE])
    dense(rt, tape, A100, 1, (ATOMS, WIDE, 3 * WIDE))
    dense(rt, tape, A100, 1, (edges, BASIS, 3 * WIDE))
    wide, turned = [edges, 3 * WIDE], [edges, 3, WIDE]
    gathered(rt, tape, A100, wide, [ATOMS, 3 * WIDE])
    acts(rt, tape, A100, "mul scale", wide)
    few(rt, "slice slice slice", wide, gap=4)
    gathered(rt, tape, A100, turned, [ATOMS, 3, WIDE])
    acts(rt, tape, A100, "mul mul add scale", turned)
    summed(rt, tape, A100, turned, [ATOMS, 3, WIDE])
    summed(rt, tape, A100, [edges, WIDE], [ATOMS, WIDE])
    acts(rt, tape, A100, "add add scale", [ATOMS, WIDE])


def _update(rt: Framed, tape: Tape) -> None:
    """Each atom by itself."""
    linear(rt, tape, A100, [ATOMS, 3, WIDE], 2 * WIDE)
    acts(rt, tape, A100, "mul sum scale pow sum add", [ATOMS, 3, WIDE])
    dense(rt, tape, A100, 1, (ATOMS, 2 * WIDE, WIDE))
    acts(rt, tape, A100, "silu", [ATOMS, WIDE])
    dense(rt, tape, A100, 1, (ATOMS, WIDE, 3 * WIDE))
    acts(rt, tape, A100, "mul add scale mul add", [ATOMS, WIDE])


def painn(rt: Starved, fixed: bool) -> None:
    """PaiNN (six layers of 256) learns forces on catalysts by the trainer of Open Catalyst on an A100 of PCIe, TF32, 24
    slabs of some 75 atoms a batch: neighbours within 6 Å are sought by ASE in the data set, 22 ms a slab and anew in
    each epoch, four workers make a batch in 0.53 s each and the GPU waits for every batch; without: twelve workers (or
    neighbours that are written beside the slabs once). Batches come pinned, AdamW by lists, clipped by lists, the loss
    is read each 50th step. Shapes.

    First: the loader (workers, neighbours sought ahead). Not: copies (they are pinned), launches, waits, TF32 (it is
    on), the optimizer, a larger batch; sums by index at most beside it.
    """
    rt.fetched(12 if fixed else 4, 530_000)
    tape, edges = Tape(), round(ATOMS * EACH * (0.97 + 0.06 * rt.draw.random()))
    batch_of(rt, ([ATOMS, 3], "float"), ([ATOMS], "long int"), ([2, edges], "long int"), ([edges, 3], "float"),
             ([SYSTEMS, 3, 3], "float"), ([ATOMS, 3], "float"), ([SYSTEMS], "float"))  # fmt: skip
    few(rt, "index index sub bmm add", [edges, 3], 4.6)
    few(rt, "linalg_vector_norm div sub pow", [edges], 3.4)
    few(rt, "mul exp mul", [edges, BASIS], A100.moves(8 * edges * BASIS))
    acts(rt, tape, A100, "embedding", [ATOMS, WIDE])
    for _ in range(DEEP):
        _message(rt, tape, edges)
        _update(rt, tape)
    for out in (WIDE // 2, 1):
        dense(rt, tape, A100, 1, (ATOMS, WIDE // (1 if out > 1 else 2), out))
        acts(rt, tape, A100, "silu" if out > 1 else "mul", [ATOMS, out])
    summed(rt, tape, A100, [ATOMS, 1], [SYSTEMS, 1])
    for _ in range(2):
        linear(rt, tape, A100, [ATOMS, 3, WIDE], WIDE)
        acts(rt, tape, A100, "pow sum", [ATOMS, 3, WIDE])
        dense(rt, tape, A100, 1, (ATOMS, 2 * WIDE, WIDE))
        acts(rt, tape, A100, "silu mul", [ATOMS, WIDE])
    small(rt, tape, A100, "sub abs sub pow sum sqrt mean add", [ATOMS, 3])
    back(rt, tape)
    clipped(rt, A100, 9.8e6)
    adam(rt, A100, 9.8e6, "AdamW", 1)
    few(rt, "detach add_", [1])
    rt.host(360)


TEXTS, BEGUN, LAYERS, MODEL, GATED, KEYS, PIECES = 16, 1_400, 32, 4_096, 14_336, 8, 32_768
L40S = Roofline(160, 720, BF16, AMPERE, HEADS_128)
SPLIT = "void pytorch_flash::flash_fwd_splitkv_{}kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, …>, …>(…)"


def _rms(rt: Framed, x: list[int]) -> None:
    """`MistralRMSNorm`, op by op in fp32."""
    for name in ("to", "pow", "mean", "add", "rsqrt", "mul", "to", "mul"):
        if name == "to":
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, 2.5),), dims=(x,), kind=BF16, gap=5)
            continue
        rt.op(f"aten::{name}", run=((REDUCE if name == "mean" else kernel(name, 2), 2.4),), dims=(x,), gap=5)


def _went(rt: Framed, held: list[int]) -> None:
    """`.to("cpu", non_blocking=True)` of the layer before, in the stream that computes."""
    for _ in range(2):
        rt.host(9)
        with rt.span("aten::to", us=4), rt.span("aten::_to_copy", us=4):
            rt.op("aten::empty_strided", gap=0, us=6)
            with rt.span("aten::copy_", us=4):
                rt.copy(2 * prod(held), "DtoH", "Pinned")


def _came(rt: Framed, held: list[int]) -> None:
    """`.to(device, non_blocking=True)` of the next layer, in a stream of its own."""
    for _ in range(2):
        rt.host(9)
        with rt.span("aten::to", us=4), rt.span("aten::_to_copy", us=4):
            rt.op("aten::empty_strided", gap=0, us=5)
            with rt.span("aten::copy_", us=4):
                rt.copy(2 * prod(held), stream=COPIES)


def _remembered(rt: Framed, held: list[int], fixed: bool) -> None:
    """`past_key_values.update(keys, values)`."""
    new = [*held[:2], 1, held[3]]
    if fixed:
        for _ in range(2):
            rt.op("aten::index_copy_", run=((NATIVE + "index_copy_kernel_impl<c10::BFloat16>(…)", 3.0),), gap=6,
                  dims=(held, [1], new), kind=BF16)  # fmt: skip
        return
    rt.call("StreamSynchronize", 3, until=rt.free[MAIN] + 3)
    _went(rt, held)
    rt.call("StreamSynchronize", 3, until=rt.free.get(COPIES, 0.0) + 3)
    _came(rt, held)
    for _ in range(2):
        rt.op("aten::cat", run=((CAT.replace("{b}", "2"), L40S.moves(4 * prod(held))),), gap=7, us=6, kind="",
              dims=(held,), **{"Input Dims": [[held, new], []], "Input type": ["TensorList", "Scalar"],
                               "Input Strides": [[], []], "Concrete Inputs": ["", "-2"]})  # fmt: skip


def offcache(rt: Told, fixed: bool) -> None:
    """Mistral 7B answers mails by transformers' `generate` on an L40S, in bf16, 16 texts of 1,400 words at once:
    `cache_implementation="offloaded"` was taken from a notebook for a card of 16 GB, so that keys and values of each
    layer go to pinned memory of the host and come back for each word, 2.9 GB each way, the host waits for both streams
    in each layer; without: `"static"`, 2.9 GB that have room beside 14.5 GB of weights. SDPA reads the cache,
    `generate` asks after each word whether all have ended. Shapes, no rows of steps: a step is a word.

    First: the cache's way to the host and back (keep it on the card). Not: pinned memory (it is), the read of each word
    (it ends the loop), precision, the batch; launches and `cat` at most behind it.
    """
    words, x = BEGUN + rt.number, [TEXTS, 1, MODEL]
    held = [TEXTS, KEYS, words, 128]
    rt.free.setdefault(COPIES, 0.0)
    rt.host(600)
    few(rt, "cat add sub cumsum", [TEXTS, words], 2.8)
    acts(rt, None, L40S, "embedding", x)
    few(rt, "mul cat cos sin mul mul to to", [1, 1, 128], 2.2)
    for _ in range(LAYERS):
        _rms(rt, x)
        for out in (MODEL, KEYS * 128, KEYS * 128):
            product(rt, L40S, x, out, gap=6)
        for heads in (32, KEYS):
            acts(rt, None, L40S, "mul neg cat mul add", [TEXTS, heads, 1, 128], gap=4)
        _remembered(rt, held, fixed)
        rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
              "aten::_flash_attention_forward", us=9, gap=12, kind=BF16, dims=([TEXTS, 32, 1, 128], held, held),
              run=((SPLIT.format(""), L40S.moves(4 * prod(held)) / 0.85), (SPLIT.format("combine_"), 4.0)))  # fmt: skip
        product(rt, L40S, x, MODEL, gap=6)
        acts(rt, None, L40S, "add", x, gap=5)
        _rms(rt, x)
        for name in ("silu", "mul"):
            product(rt, L40S, x, GATED, gap=6)
            acts(rt, None, L40S, name, [TEXTS, 1, GATED], gap=5)
        product(rt, L40S, [TEXTS, 1, GATED], MODEL, gap=6)
        acts(rt, None, L40S, "add", x, gap=5)
    _rms(rt, x)
    product(rt, L40S, x, PIECES)
    few(rt, "to", [TEXTS, PIECES], 3.4)
    few(rt, "argmax mul add cat eq any bitwise_and max eq", [TEXTS], 3.2)
    rt.value("aten::is_nonzero")
    rt.host(130)
