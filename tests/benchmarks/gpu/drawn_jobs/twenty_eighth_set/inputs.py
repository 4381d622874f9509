"""Jobs of the twenty-eighth set that wait for input: sounds that the loop itself makes ready, masks from
the host.
"""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.rows import elementwise
from ..kineto import inputs
from ..layers import Card, Tape, attention, back, block, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE, trainer_end
from ..twelfth_set.pictures import A100, CUTLASS, TF32
from ..twelfth_set.rows import Conv, Framed, conv, loader
from ..twenty_fourth_set.rows import acts, few

CLIPS, SEEN, WIDE, KINDS = 8, 1_214, 768, 527
A10G = Card(54, 480, BF16, AMPERE, FLASH)
FRAMES = (("aten::as_strided", 9, [998, 400]), ("aten::mean", 160, [998, 400]), ("aten::sub", 120, [998, 400]),
          ("aten::pad", 240, [998, 401]), ("aten::mul", 130, [998, 400]), ("aten::sub", 170, [998, 400]),
          ("aten::mul", 150, [998, 400]), ("aten::constant_pad_nd", 210, [998, 512]),
          ("aten::fft_rfft", 870, [998, 512]),
          ("aten::abs", 420, [998, 257]), ("aten::pow", 110, [998, 257]), ("aten::mm", 330, [998, 257]),
          ("aten::max", 90, [998, 128]), ("aten::log", 380, [998, 128]), ("aten::constant_pad_nd", 70, [1_024, 128]),
          ("aten::sub", 40, [1_024, 128]), ("aten::div", 40, [1_024, 128]))  # fmt: skip


def _extracted(rt: Framed) -> None:
    """`ASTFeatureExtractor` of each clip, a collator, a copy to pinned memory, all in the thread that trains."""
    with rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", us=60):
        for _ in range(CLIPS):
            rt.host(9_600)  # FLAC is decoded and resampled
            for name, us, dims in FRAMES:
                on_host(rt, name, us, dims)
        on_host(rt, "aten::stack", 640, [CLIPS, 1_024, 128])
        for dims in ([CLIPS, 1_024, 128], [CLIPS, KINDS]):
            with rt.span("aten::pin_memory", us=6, **inputs((dims,), "float")), rt.span("aten::_pin_memory", us=8):
                on_host(rt, "aten::copy_", 5 + prod(dims) / 3_000, dims)


def tagged(rt: Framed, fixed: bool) -> None:
    """An audio spectrogram transformer learns AudioSet by the Trainer on an A10G, autocast in bf16, eight clips of ten
    seconds: `dataloader_num_workers` stays 0, as it is by default, so that the thread that launches decodes sounds and
    makes spectrograms between steps, and the Trainer's look for NaN has waited for the GPU before; without: workers
    that are ahead. AdamW is fused, clipped by lists. Shapes.

    First: the wait for batches (workers). Not: the look for NaN (it waits for work that must be done), copies,
    launches, pinned memory, attention, TF32.
    """
    tape, x = Tape(), [CLIPS, SEEN, WIDE]
    if fixed:
        loader(rt, 200)
    else:
        _extracted(rt)
    pinned(rt, 4 * CLIPS * 1_024 * 128, [CLIPS, 1_024, 128])
    pinned(rt, 4 * CLIPS * KINDS, [CLIPS, KINDS])
    casts(rt, A10G, [CLIPS, 1_024, 128], [WIDE, 256])
    dense(rt, tape, A10G, CLIPS, (CLIPS * 1_212, 256, WIDE))  # patches of 16 each ten
    acts(rt, tape, A10G, "cat add dropout", x)
    for _ in range(12):
        casts(rt, A10G, *[[WIDE, WIDE]] * 4, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
        block(rt, tape, A10G, CLIPS, SEEN, WIDE)
    norm(rt, tape, A10G, x)
    norm(rt, tape, A10G, [CLIPS, 1, WIDE])
    casts(rt, A10G, [KINDS, WIDE])
    dense(rt, tape, A10G, CLIPS, (CLIPS, WIDE, KINDS))
    acts(rt, tape, A10G, "to sub mul exp log mean", [CLIPS, KINDS])
    back(rt, tape)
    trainer_end(rt, A10G, 86.6e6)


PATCHES, SIDE, CHANNELS, HEADS, WINDOW, BLOCKS = 4, 96, 192, 6, 8, 36
CARD = Card(A100.card.tflops, A100.card.gbs, "float", TF32, CUTLASS)
COUNT = (SIDE // WINDOW) ** 2


def _masked(rt: Framed) -> None:
    """`self.calculate_mask(x_size).to(x.device)`: parts of a picture by numbers, windows, where numbers differ."""
    whole, windows, pairs = [1, SIDE, SIDE, 1], [COUNT, WINDOW**2], [COUNT, WINDOW**2, WINDOW**2]
    on_host(rt, "aten::zeros", 9, whole)
    for _ in range(9):
        for name in ("aten::slice", "aten::slice", "aten::slice", "aten::slice"):
            on_host(rt, name, 2, whole)
        on_host(rt, "aten::fill_", 8, whole)
    for name, us, dims in (("aten::view", 2, whole), ("aten::permute", 3, whole), ("aten::contiguous", 28, whole),
                           ("aten::view", 2, windows), ("aten::unsqueeze", 2, windows), ("aten::unsqueeze", 2, windows),
                           ("aten::sub", 420, pairs), ("aten::ne", 260, pairs), ("aten::masked_fill", 690, pairs),
                           ("aten::eq", 250, pairs), ("aten::masked_fill", 660, pairs)):  # fmt: skip
        on_host(rt, name, us, dims)
    rt.host(7)
    rt.moved(4 * prod(pairs), 5.4, pairs)


def _window(rt: Framed, tape: Tape, shifted: bool, fixed: bool) -> None:
    """A block of SwinIR: attention inside windows, every second time of shifted ones, and an MLP."""
    x, tokens = [PATCHES, SIDE**2, CHANNELS], PATCHES * SIDE**2
    norm(rt, tape, CARD, x)
    if shifted:
        acts(rt, tape, CARD, "roll", x)
    acts(rt, tape, CARD, "turn", x)
    dense(rt, tape, CARD, PATCHES * COUNT, (tokens, CHANNELS, 3 * CHANNELS))
    if shifted and not fixed:
        _masked(rt)
    few(rt, "index", [WINDOW**4, HEADS], 3)
    if shifted:
        few(rt, "add", [COUNT, HEADS, WINDOW**2, WINDOW**2], CARD.moves(8 * COUNT * HEADS * WINDOW**4))
    attention(rt, tape, CARD, [PATCHES * COUNT, HEADS, WINDOW**2, CHANNELS // HEADS])
    acts(rt, tape, CARD, "turn", x)
    dense(rt, tape, CARD, PATCHES * COUNT, (tokens, CHANNELS, CHANNELS))
    acts(rt, tape, CARD, "turn", x)
    if shifted:
        acts(rt, tape, CARD, "roll", x)
    acts(rt, tape, CARD, "add", x)
    norm(rt, tape, CARD, x)
    dense(rt, tape, CARD, PATCHES, (tokens, CHANNELS, 2 * CHANNELS))
    acts(rt, tape, CARD, "gelu", [PATCHES, SIDE**2, 2 * CHANNELS])
    dense(rt, tape, CARD, PATCHES, (tokens, 2 * CHANNELS, CHANNELS))
    acts(rt, tape, CARD, "add", x)


def swinir(rt: Framed, fixed: bool) -> None:
    """SwinIR makes pictures four times as large by a plain loop on an A100, TF32, four patches of 96: `img_size` was
    left at 64, so that each block of shifted windows makes its mask anew on the host and moves it, pageable, which
    waits for all that is queued and leaves the GPU idle meanwhile; without: `img_size=96`, whose masks are buffers on
    the GPU. SDPA with masks and biases, patches come pinned, Adam is fused, the loss is summed on the GPU. Shapes.

    First: copies from pageable memory in the forward pass, 18 masks that never change (buffers). Not: the loader,
    launches, TF32, attention, the optimizer.
    """
    tape, look = Tape(), A100
    x = [PATCHES, SIDE**2, CHANNELS]
    loader(rt, 180)
    for side in (SIDE, 4 * SIDE):
        pinned(rt, 12 * PATCHES * side**2, [PATCHES, 3, side, side])
    conv(rt, tape, look, Conv(PATCHES, 3, CHANNELS, 3, SIDE, SIDE))
    acts(rt, tape, CARD, "turn", x)
    norm(rt, tape, CARD, x)
    for number in range(BLOCKS):
        _window(rt, tape, number % 2 == 1, fixed)
        if number % 6 == 5:
            acts(rt, tape, CARD, "turn", x)
            conv(rt, tape, look, Conv(PATCHES, CHANNELS, CHANNELS, 3, SIDE, SIDE))
            acts(rt, tape, CARD, "turn add", x)
    norm(rt, tape, CARD, x)
    acts(rt, tape, CARD, "turn", x)
    conv(rt, tape, look, Conv(PATCHES, CHANNELS, CHANNELS, 3, SIDE, SIDE))
    acts(rt, tape, CARD, "add", x)
    conv(rt, tape, look, Conv(PATCHES, CHANNELS, 64, 3, SIDE, SIDE))
    elementwise(rt, tape, CARD, "leaky_relu_", [PATCHES, 64, SIDE, SIDE], back=(("leaky_relu_backward", 3),))
    for more in (1, 2):
        conv(rt, tape, look, Conv(PATCHES, 64, 256, 3, more * SIDE, more * SIDE))
        acts(rt, tape, CARD, "pixel_shuffle", [PATCHES, 64, 2 * more * SIDE, 2 * more * SIDE])
    conv(rt, tape, look, Conv(PATCHES, 64, 3, 3, 4 * SIDE, 4 * SIDE))
    acts(rt, tape, CARD, "sub abs mean", [PATCHES, 3, 4 * SIDE, 4 * SIDE])
    back(rt, tape)
    fused_adamw(rt, CARD, 16.6e6)
    few(rt, "add_", [1])
    rt.host(260)
