"""Jobs of the thirty-third set that wait for what comes and goes: a stream of two files for eight workers, heat maps
that go back to the host in each step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, on_host, pinned, returned
from ..eleventh_set.language import flash
from ..eleventh_set.rows import elementwise
from ..layers import CAST, Tape, back, dense, fused_adamw, norm
from ..tenth_set.jobs import FLASH
from ..thirty_first_set.rows import Told, small
from ..thirty_second_set.rows import encoder, look
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import Working, across, blocking, unfinite, wide

LINES, SEEN, SAID, VIEW, MODEL, WORDS, DEEP = 32, 577, 64, 768, 1_024, 50_265, 12
A100 = wide(150, 1_300, AMPERE, FLASH)


def _decoder(rt: Framed, tape: Tape) -> None:
    """A layer of BART's decoder: what was said, what was seen, two products; norms behind."""
    x = [LINES, SAID, MODEL]
    tokens = LINES * SAID
    casts(rt, A100, *([[MODEL, MODEL]] * 6), *([[MODEL, VIEW]] * 2), [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
    for turn in range(2):
        dense(rt, tape, A100, LINES, (tokens, MODEL, MODEL))
        for _ in range(2):
            dense(rt, tape, A100, LINES, (LINES * SEEN, VIEW, MODEL) if turn else (tokens, MODEL, MODEL))
        if turn:
            across(rt, tape, A100, [LINES, MODEL // 64, SAID, 64], SEEN, FLASH)
        else:
            flash(rt, tape, A100, [LINES, MODEL // 64, SAID, 64])
        dense(rt, tape, A100, LINES, (tokens, MODEL, MODEL))
        acts(rt, tape, A100, "dropout add", x)
        norm(rt, tape, A100, x)
    dense(rt, tape, A100, LINES, (tokens, MODEL, 4 * MODEL))
    acts(rt, tape, A100, "gelu", [LINES, SAID, 4 * MODEL])
    dense(rt, tape, A100, LINES, (tokens, 4 * MODEL, MODEL))
    acts(rt, tape, A100, "dropout add", x)
    norm(rt, tape, A100, x)


def trocr(rt: Working, fixed: bool) -> None:
    """TrOCR (base) learns to read parish registers by `Seq2SeqTrainer` on an A100 of 40 GB, `bf16=True`, 32 lines of
    384 x 384: the data set is streamed (`streaming=True`) from two Parquet files, so that of eight workers six are
    stopped as they start ("Too many dataloader workers") and two decode and resize a batch in 0.5 s each; the GPU waits
    for every batch; without: the data set is written in 32 files, eight workers. Batches come pinned, AdamW is fused,
    clipped by lists, the loss is logged each 50th step; the Trainer asks in each step whether it is finite. Shapes.

    First: the loader (more workers that work, more files). Not: copies (they are pinned), the Trainer's two reads,
    launches, precision, attention, the optimizer, a larger batch.
    """
    tape, picture, x = Tape(), [LINES, 3, 384, 384], [LINES, SEEN, VIEW]
    rt.fetched(8 if fixed else 2, 500_000)
    blocking(rt, 4 * prod(picture), picture, "float")
    blocking(rt, 8 * LINES * SAID, [LINES, SAID])
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(picture))),), dims=(picture,))
    casts(rt, A100, [VIEW, VIEW])
    dense(rt, tape, A100, LINES, (LINES * (SEEN - 1), VIEW, VIEW))
    acts(rt, tape, A100, "cat add", x)
    for _ in range(DEEP):
        casts(rt, A100, [3 * VIEW, VIEW], [VIEW, VIEW], [4 * VIEW, VIEW], [VIEW, 4 * VIEW])
        encoder(rt, tape, A100, x)
    norm(rt, tape, A100, x)
    acts(rt, tape, replace(A100, kind="float"), "embedding scale embedding add", [LINES, SAID, MODEL])
    norm(rt, tape, replace(A100, kind="float"), [LINES, SAID, MODEL])
    for _ in range(DEEP):
        _decoder(rt, tape)
    casts(rt, A100, [WORDS, MODEL])
    dense(rt, tape, A100, LINES, (LINES * SAID, MODEL, WORDS))
    acts(rt, tape, replace(A100, kind="float"), "to", [LINES * SAID, WORDS])
    judged(rt, tape, replace(A100, kind="float"), LINES * SAID, WORDS)
    back(rt, tape)
    unfinite(rt)
    clipped(rt, A100, 334e6)
    fused_adamw(rt, A100, 334e6)
    few(rt, "add_", [1])
    rt.host(640)


PEOPLE, JOINTS, HIGH, ACROSS = 128, 17, 64, 48
WIDTHS = (32, 64, 128, 256)
A6000 = wide(72, 650, AMPERE)
LOOK = look(A6000)
MAPS = [PEOPLE, JOINTS, HIGH, ACROSS]
WHOLE = replace(A6000, kind="float")
TRAIN, COUNTS = "lib/core/function.py(28): train", "lib/core/evaluate.py(40): accuracy"


def _shrunk(rt: Framed, tape: Tape, given: int, width: int, level: int) -> None:
    conv_norm(rt, tape, LOOK, Conv(PEOPLE, given, width, 3, HIGH >> level, ACROSS >> level))


def _branches(rt: Framed, tape: Tape, count: int) -> None:
    """A module of HRNet: four blocks in each branch, then each branch hears all others."""
    for level in range(count):
        width, size = WIDTHS[level], (HIGH >> level, ACROSS >> level)
        for _ in range(4):
            with rt.frame("torch/nn/modules/module.py(1747): _call_impl", f"nn.Module: BasicBlock_{level}"):
                for _ in range(2):
                    conv_norm(rt, tape, LOOK, Conv(PEOPLE, width, width, 3, *size))
                elementwise(rt, tape, A6000, "add_", [PEOPLE, width, *size], 2)
    for to in range(count):
        size = [PEOPLE, WIDTHS[to], HIGH >> to, ACROSS >> to]
        for came in range(count):
            if came > to:
                conv_norm(rt, tape, LOOK, Conv(PEOPLE, WIDTHS[came], WIDTHS[to], 1, HIGH >> came, ACROSS >> came))
                acts(rt, tape, A6000, "upsample", size)
            for level in range(came, to):
                last = level == to - 1
                _shrunk(rt, tape, WIDTHS[came], WIDTHS[to] if last else WIDTHS[came], level + 1)
            if came:
                acts(rt, tape, A6000, "add", size)
        acts(rt, tape, A6000, "relu", size)


def _seen(rt: Framed, tape: Tape, picture: list[int]) -> None:
    """HRNet-W32."""
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A6000.moves(6 * prod(picture))),), dims=(picture,))
    few(rt, "clone", picture, A6000.moves(4 * prod(picture)))
    for given, level in ((3, -1), (64, 0)):
        conv_norm(rt, tape, LOOK, Conv(PEOPLE, given, 64, 3, HIGH << -level, ACROSS << -level))
    given = 64
    for number in range(4):
        for cin, cout, side in ((given, 64, 1), (64, 64, 3), (64, 256, 1)):
            conv_norm(rt, tape, LOOK, Conv(PEOPLE, cin, cout, side, HIGH, ACROSS))
        if not number:
            conv_norm(rt, tape, LOOK, Conv(PEOPLE, given, 256, 1, HIGH, ACROSS))
        elementwise(rt, tape, A6000, "add_", [PEOPLE, 256, HIGH, ACROSS], 2)
        given = 256
    _shrunk(rt, tape, 256, 32, 0)
    _shrunk(rt, tape, 256, 64, 1)
    for count, modules in ((2, 1), (3, 4), (4, 3)):
        if count > 2:
            _shrunk(rt, tape, WIDTHS[count - 2], WIDTHS[count - 1], count - 1)
        for _ in range(modules):
            _branches(rt, tape, count)
    conv(rt, tape, LOOK, Conv(PEOPLE, 32, JOINTS, 1, HIGH, ACROSS))


def _counted(rt: Framed) -> None:
    """`accuracy(output.detach().cpu().numpy(), target.detach().cpu().numpy())`: where maps are highest, how far apart,
    in loops of Python over people and joints.
    """
    with rt.frame(TRAIN):
        for _ in range(2):
            with rt.frame("<method 'cpu' of 'torch._C.TensorBase' objects>"):
                returned(rt, 4 * prod(MAPS), 2.9, MAPS)
        with rt.frame(COUNTS):
            for _ in range(2):
                with rt.frame("lib/core/inference.py(20): get_max_preds"):
                    rt.host(3_300)
            with rt.frame("lib/core/evaluate.py(15): calc_dists"):
                for _ in range(PEOPLE):
                    with rt.frame("numpy/linalg/linalg.py(2342): norm"):
                        rt.host(68)
            for _ in range(JOINTS):
                with rt.frame("lib/core/evaluate.py(30): dist_acc"):
                    rt.host(9)


def hrpose(rt: Told, fixed: bool) -> None:
    """HRNet-W32 learns joints of athletes by a loop after its authors' on an RTX A6000, autocast in bf16,
    channels_last, 128 people of 256 x 192: after each step the maps and their targets go back to the host, 53 MB into
    memory that is not pinned, where numpy seeks their highest points and Python counts in a loop, while the GPU idles;
    without: `argmax` and distances on the GPU, read each 100th step. Pictures come pinned as bytes, Adam by lists, the
    loss is summed on the GPU. Shapes, stacks.

    First: copies of maps to the host in each step (and what the host does with them). Not: the loader, pinned memory of
    what comes, launches, precision, the layout, the optimizer, the batch.
    """
    rt.last = True
    tape, picture = Tape(), [PEOPLE, 3, 4 * HIGH, 4 * ACROSS]
    with rt.frame(TRAIN):
        loader(rt, 210)
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, 4 * prod(MAPS), MAPS)
        pinned(rt, 4 * PEOPLE * JOINTS, [PEOPLE, JOINTS, 1])
        for name in ("to", "sub", "div"):
            few(rt, name, picture, A6000.moves(8 * prod(picture)))
        with rt.frame("lib/models/pose_hrnet.py(432): forward", "nn.Module: PoseHighResolutionNet_0"):
            _seen(rt, tape, picture)
        acts(rt, tape, WHOLE, "to", MAPS)
        with rt.frame("lib/core/loss.py(23): forward", "nn.Module: JointsMSELoss_0"):
            for _ in range(JOINTS):
                few(rt, "select select", MAPS, gap=4)
                small(rt, tape, WHOLE, "mul mul sub pow", [PEOPLE, HIGH * ACROSS])
                acts(rt, tape, WHOLE, "mean", [PEOPLE, HIGH * ACROSS])
        with rt.frame("torch/_tensor.py(581): backward"):
            back(rt, tape)
        adam(rt, A6000, 28.5e6, "Adam", 1)
        few(rt, "detach add_", [1])
    if not fixed:
        _counted(rt)
        on_host(rt, "aten::detach", 2, [1])
    else:
        few(rt, "argmax argmax", MAPS, WHOLE.moves(4 * prod(MAPS)))
        few(rt, "sub pow sum sqrt lt mean add_", [PEOPLE, JOINTS])
    rt.host(330)
