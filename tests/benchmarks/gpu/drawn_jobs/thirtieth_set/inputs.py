"""Jobs of the thirtieth set that wait for input: rows of a table that the host picks and copies, a tokenizer in the
loop.
"""

from __future__ import annotations

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.rows import Roofline
from ..layers import Card, Tape, back, block, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import CUTLASS, TF32
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged

ROWS, FEATURES, WIDE, BLOCKS = 65_536, 320, 768, 4
RTX4090 = Roofline(62, 880, "float", TF32, CUTLASS)


def rtdl(rt: Framed, fixed: bool) -> None:
    """A tabular ResNet (rtdl, LayerNorm, four blocks) learns loans of 320 columns by a plain loop on an RTX 4090, TF32,
    65,536 rows a step: `x[index].to(device)` picks rows out of a tensor of 4.9 GB in the host's memory and copies 84 MB
    from memory that is not pinned in the stream that computes; without: the table lies on the GPU, which has room for
    it, and rows are picked there. AdamW by lists, the loss is summed on the GPU. Shapes, no rows of steps.

    First: the copy from pageable memory that waits (the table to the GPU, or pinned and ahead). Not: launches, TF32,
    the optimizer, a larger batch; the host's `index` only with the copy, since the GPU's work hides it.
    """
    tape, x = Tape(), [ROWS, WIDE]
    rt.host(40)
    if fixed:
        few(rt, "slice", [ROWS])
        few(rt, "index", [ROWS, FEATURES], RTX4090.moves(8 * ROWS * FEATURES))
        few(rt, "index", [ROWS], 4.5)
    else:
        on_host(rt, "aten::slice", 2, [ROWS], "long int")
        on_host(rt, "aten::index", rt.vary(17_500, 0.06), [15_400_000 // 4, FEATURES])
        rt.moved(4 * ROWS * FEATURES, 6.1, [ROWS, FEATURES])
        on_host(rt, "aten::index", rt.vary(310, 0.1), [15_400_000 // 4])
        rt.moved(4 * ROWS, 3.2, [ROWS])
    dense(rt, tape, RTX4090, ROWS, (ROWS, FEATURES, WIDE))
    for _ in range(BLOCKS):
        norm(rt, tape, RTX4090, x)
        dense(rt, tape, RTX4090, ROWS, (ROWS, WIDE, WIDE))
        acts(rt, tape, RTX4090, "relu dropout", x)
        dense(rt, tape, RTX4090, ROWS, (ROWS, WIDE, WIDE))
        acts(rt, tape, RTX4090, "dropout add", x)
    norm(rt, tape, RTX4090, x)
    acts(rt, tape, RTX4090, "relu", x)
    dense(rt, tape, RTX4090, ROWS, (ROWS, WIDE, 1))
    acts(rt, tape, RTX4090, "sub abs exp add log mean", [ROWS, 1])  # `binary_cross_entropy_with_logits`
    back(rt, tape)
    adam(rt, RTX4090, 5.0e6, "AdamW", 1)
    few(rt, "detach add_", [1])
    rt.host(120)


TEXTS, LENGTH, MODEL, DEEP, SIGNS = 48, 256, 768, 12, 5
A100 = Card(200, 1_450, BF16, AMPERE, FLASH)


def _tokenized(rt: Framed) -> None:
    """A loader without workers: `collate_fn` calls MeCab and WordPiece in Python, text by text."""
    with rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", us=120):
        for _ in range(TEXTS):
            rt.host(1_720)
        for _ in range(4):
            rt.host(900)
            rt.op("aten::empty", us=3, gap=2)
            rt.op("aten::lift_fresh", us=1, gap=1)
            rt.op("aten::detach_", us=2, gap=1)
            rt.op("aten::pin_memory", "aten::_pin_memory", us=30, gap=4)


def mecab(rt: Framed, fixed: bool) -> None:
    """BERT-base for Japanese learns five signs of reviews by Accelerate on an A100, autocast in bf16, 48 texts padded
    to 256: the tokenizer (MeCab, then WordPiece in Python; there is no fast one) is called in `collate_fn` of a loader
    without workers, some 86 ms a step, more than the GPU has to do; without: texts were tokenized once by `map`, two
    workers stack them. SDPA, AdamW is fused, clipped by lists, the loss is read each 50th step. Shapes.

    First: the loader's work in the loop (workers, tokenize before). Not: launches, copies, casts, attention, padding,
    the optimizer, precision.
    """
    tape, x = Tape(), [TEXTS, LENGTH, MODEL]
    if fixed:
        loader(rt, 190)
    else:
        _tokenized(rt)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    pinned(rt, 8 * TEXTS, [TEXTS], "long int")
    acts(rt, tape, A100, "embedding embedding add embedding add", x)
    norm(rt, tape, A100, x)
    acts(rt, tape, A100, "dropout", x)
    for _ in range(DEEP):
        casts(rt, A100, *[[MODEL, MODEL]] * 4, [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        block(rt, tape, A100, TEXTS, LENGTH, MODEL)
        acts(rt, tape, A100, "dropout dropout", x)
    casts(rt, A100, [MODEL, MODEL], [SIGNS, MODEL])
    dense(rt, tape, A100, TEXTS, (TEXTS, MODEL, MODEL))
    acts(rt, tape, A100, "tanh dropout", [TEXTS, MODEL])
    dense(rt, tape, A100, TEXTS, (TEXTS, MODEL, SIGNS))
    judged(rt, tape, A100, TEXTS, SIGNS)
    back(rt, tape)
    clipped(rt, A100, 111e6)
    fused_adamw(rt, A100, 111e6)
    few(rt, "detach add_", [1])
    rt.host(380)
