"""Jobs of the thirty-first set whose loop waits for the GPU: paths of a CRF that are read word by word, an optimizer
that asks for norms.
"""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.rows import Roofline, kernel
from ..layers import CAST, REDUCE, Card, Tape, back, block, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import resnet, sgd
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_sixth_set.rows import PROFILED
from .inputs import H100, LOOK
from .rows import Told, small

SENTENCES, LENGTH, MODEL, DEEP, TAGS = 64, 96, 1_024, 24, 19
A10G = Card(57, 480, BF16, AMPERE, FLASH)
FLOAT = Roofline(20, 480, "float", ("ampere_sgemm_32x128_tn", "ampere_sgemm_64x32_sliced1x4_nn"), FLASH)
SCORES = [SENTENCES, TAGS, TAGS]


def _likelihood(rt: Framed, tape: Tape) -> None:
    """pytorch-crf: the score of the right path and the sum over all paths, word by word."""
    for _ in range(LENGTH - 1):
        few(rt, "select select", [LENGTH, SENTENCES], gap=3)
        small(rt, tape, FLOAT, "index mul add", [SENTENCES])
        few(rt, "unsqueeze unsqueeze", [SENTENCES, TAGS], gap=3)
        small(rt, tape, FLOAT, "add add", SCORES)
        acts(rt, tape, FLOAT, "logsumexp", SCORES)
        small(rt, tape, FLOAT, "where", [SENTENCES, TAGS])
    small(rt, tape, FLOAT, "sub sum neg", [SENTENCES])


def _decoded(rt: Framed) -> None:
    """`crf.decode`: best scores word by word, then the best path of each sentence, each of whose tags is read."""
    for _ in range(LENGTH - 1):
        few(rt, "unsqueeze unsqueeze", [SENTENCES, TAGS], gap=3)
        few(rt, "add add max where", SCORES, 2.6, gap=5)
    few(rt, "to sum sub", [LENGTH, SENTENCES])
    for _ in range(SENTENCES):
        few(rt, "select add", [TAGS], gap=5)
        few(rt, "max", [TAGS], 3.1, gap=4)
        rt.value()
        few(rt, "select", [SENTENCES], gap=3)
        rt.value()
        for _ in range(round(rt.vary(25, 0.6))):
            few(rt, "select select", SCORES[:2], gap=2)
            rt.value()
            rt.host(2)
    rt.host(5_200)  # seqeval


def bertcrf(rt: Framed, fixed: bool) -> None:
    """BERT-large with a CRF learns names in court rulings by a plain loop on an A10G, autocast in bf16, 64 sentences of
    96: F1 of each batch is shown, so `crf.decode` walks back through each sentence and reads tag by tag by `.item()`,
    some 1,800 waits a step, while the GPU has nothing; without: F1 is computed on the validation set only. The CRF's
    own loop over words is hidden behind the encoder. SDPA, AdamW is fused, the loss is summed on the GPU. Shapes.

    First: waits for single values in the decoder. Not: the loader, copies, casts, attention, the optimizer, precision;
    launches of the CRF's loop at most beside the waits.
    """
    tape, x = Tape(), [SENTENCES, LENGTH, MODEL]
    loader(rt, 180)
    for _ in range(4):
        pinned(rt, 8 * SENTENCES * LENGTH, x[:2], "long int")
    acts(rt, tape, A10G, "embedding embedding add embedding add", x)
    norm(rt, tape, A10G, x)
    acts(rt, tape, A10G, "dropout", x)
    for _ in range(DEEP):
        casts(rt, A10G, *[[MODEL, MODEL]] * 4, [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        block(rt, tape, A10G, SENTENCES, LENGTH, MODEL)
        acts(rt, tape, A10G, "dropout dropout", x)
    casts(rt, A10G, [TAGS, MODEL])
    dense(rt, tape, A10G, SENTENCES, (SENTENCES * LENGTH, MODEL, TAGS))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, 2.6),), dims=([SENTENCES, LENGTH, TAGS],), kind=BF16)
    few(rt, "copy_", [LENGTH, SENTENCES, TAGS])
    _likelihood(rt, tape)
    if not fixed:
        _decoded(rt)
    back(rt, tape)
    clipped(rt, A10G, 334e6, 2)
    fused_adamw(rt, A10G, 334e6)
    few(rt, "detach add_", [1])
    rt.host(320)


PICTURES, HIDDEN, OUT = 512, 2_048, 128
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def _sizes() -> list[list[int]]:
    found, given = [[64, 3, 7, 7], [64], [64]], 64
    for blocks, width in STAGES:
        for number in range(blocks):
            for cin, cout, side in ((given, width, 1), (width, width, 3), (width, 4 * width, 1)):
                found += [[cout, cin, side, side], [cout], [cout]]
            if not number:
                found += [[4 * width, given, 1, 1], [4 * width], [4 * width]]
            given = 4 * width
    return [*found, [HIDDEN, HIDDEN], [HIDDEN], [OUT, HIDDEN]]


SIZES = _sizes()


def _scaled(rt: Framed, fixed: bool) -> None:
    """Apex' `LARC.step`: `if param_norm != 0 and grad_norm != 0` of each parameter, or `torch.where`."""
    for size in SIZES:
        us = H100.moves(4 * prod(size))
        rt.host(5)
        for _ in range(2):
            rt.op("aten::norm", "aten::linalg_vector_norm", dims=(size,), gap=4, us=5, run=(
                (REDUCE.replace("sum", "NormTwoOps<float>"), max(3.1, us)),))  # fmt: skip
        if not fixed:
            for _ in range(2):
                few(rt, "ne", [], gap=4)
                rt.value("aten::is_nonzero")
        few(rt, "mul mul add add div", [], gap=4)
        if fixed:
            few(rt, "gt where", [], gap=4)
        for name, passes in (("add_", 3), ("mul_", 2)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), max(2.2, passes * us)),), dims=(size, size), gap=4, us=4)


def larc(rt: Told, fixed: bool) -> None:
    """SimCLR with ResNet-50 learns pictures of the ocean's ground by Lightning on an H100, `precision="bf16-mixed"`,
    channels_last, two views of 256 pictures: Apex' LARC asks of each of 162 parameters `if param_norm != 0 and
    grad_norm != 0`, each a wait for a value of the GPU, so that launches of the update are never ahead; without:
    `torch.where`. Views come pinned as bytes and are changed on the GPU, SGD by lists, the loss is logged each 50th
    step. Shapes.

    First: waits of the optimizer for norms of each parameter. Not: the loader, copies, the layout, casts, TF32, the
    batch; launches of the loop over parameters at most beside the waits.
    """
    rt.last = True
    tape, picture = Tape(), [PICTURES, 3, 224, 224]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 220)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, prod(picture), picture, "unsigned char")
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        acts(rt, None, FLOAT, "to", picture[1:])
        for _ in range(4):  # brightness, contrast, saturation, noise
            few(rt, "mul add clamp", picture, H100.moves(8 * prod(picture)))
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, H100.moves(6 * prod(picture))),),
              dims=(picture,))  # fmt: skip
        few(rt, "clone", picture, H100.moves(4 * prod(picture)))
        resnet(rt, tape, LOOK, PICTURES, (7, 7))
        acts(rt, tape, H100, "mean", [PICTURES, HIDDEN, 7, 7])
        casts(rt, H100, [HIDDEN, HIDDEN], [OUT, HIDDEN])
        dense(rt, tape, H100, PICTURES, (PICTURES, HIDDEN, HIDDEN))
        acts(rt, tape, H100, "relu", [PICTURES, HIDDEN])
        dense(rt, tape, H100, PICTURES, (PICTURES, HIDDEN, OUT))
        acts(rt, tape, H100, "pow sum div", [PICTURES, OUT])
        dense(rt, tape, H100, PICTURES, (PICTURES, OUT, PICTURES))
        judged(rt, tape, H100, PICTURES, PICTURES)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with (
        rt.span(f"{PROFILED}[LightningModule]SimCLR.optimizer_step", "user_annotation", us=50),
        rt.span("Optimizer.step#LARC.step", "user_annotation", us=90),
    ):
        _scaled(rt, fixed)
        sgd(rt, H100, 28e6)
    few(rt, "add_", [1])
    rt.host(380)
