"""Jobs of the twenty-first set that wait for the host: late batches, large copies, metrics, gradients that are checked.

Each is the plainest form of its fault; the model around it keeps the GPU busy as long as it has work.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned, returned
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import L40S
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import A100, AMPERE
from ..twelfth_set.pictures import TF32, small
from ..twelfth_set.rows import Framed, loader

ADA = replace(L40S, kind=BF16, names=AMPERE)
PAIRS, EVERY = 512, 455_000.0  # µs between two batches of all workers together


def _tower(rt: Framed, tape: Tape, layers: int, x: list[int]) -> None:
    """A tower of CLIP under autocast."""
    width = x[2]
    for _ in range(layers):
        casts(rt, ADA, [3 * width, width], [width, width], [4 * width, width], [width, 4 * width])
        encoder(rt, tape, ADA, (x[0], x[1], width))
    norm(rt, tape, ADA, x)
    linear(rt, tape, ADA, [x[0], 1, width], 512)


def webbed(rt: Framed, fixed: bool) -> None:
    """CLIP ViT-B/32 by open_clip on an L40S, bf16, 512 pairs: shards of tar files are read by four workers, which
    decode and resize some 1,100 pictures a second, while the GPU would take 2,200; without: workers enough. Pictures
    come as float32 from pinned memory in line, 15 ms in either case. No shapes, no rows of steps.

    First: the wait for batches (more workers, a faster decoder). Not: launches, pinned memory, waits, the batch.
    """
    tape: Tape = []
    loader(rt, 170 if fixed else max(170.0, 1_000_000 + EVERY * (rt.number + 1) - rt.now))
    pinned(rt, PAIRS * 3 * 224**2 * 4, [PAIRS, 3, 224, 224])
    pinned(rt, PAIRS * 77 * 8, [PAIRS, 77], "long int")
    picture = [PAIRS, 3, 224, 224]
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, ADA.moves(6 * prod(picture))),), dims=(picture,))
    dense(rt, tape, ADA, PAIRS, (PAIRS * 49, 3_072, 768))
    small(rt, tape, ("cat", "add", "layer_norm"), [PAIRS, 50, 768], ADA.moves(4 * PAIRS * 50 * 768))
    _tower(rt, tape, 12, [PAIRS, 50, 768])
    rt.op(
        "aten::embedding", run=((REDUCE, ADA.moves(6 * PAIRS * 77 * 512)),), gap=14, dims=([49_408, 512], [PAIRS, 77])
    )
    small(rt, tape, ("add",), [PAIRS, 77, 512], ADA.moves(4 * PAIRS * 77 * 512))
    _tower(rt, tape, 12, [PAIRS, 77, 512])
    small(rt, tape, ("linalg_vector_norm", "div", "linalg_vector_norm", "div", "exp", "mul"), [PAIRS, 512], 4)
    linear(rt, tape, ADA, [1, PAIRS, 512], PAIRS)
    small(rt, tape, ("log_softmax", "nll_loss", "t", "log_softmax", "nll_loss", "add", "div"), [PAIRS, PAIRS], 5)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(4 * 151e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA.moves(8 * 151e6), 2)
    fused_adamw(rt, ADA, 151e6)
    small(rt, None, ("clamp_",), [], 2.2)
    rt.host(420)


STATES, VARIABLES, GRID, PATCHED, WIDE, MIXERS = 4, 20, (720, 1_440), (90, 180), 768, 12
A100_TF32 = Card(70, 1_450, "float", TF32, ("", ""))
FFT = (
    "void vector_fft<180u, EPT<10u>, 9u, 8u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2, (layout_t)1, …>(…)",
    "void regular_fft<90u, EPT<10u>, 3u, 16u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2, (layout_t)0, …>(…)",
)


def _transformed(rt: Framed, tape: Tape, name: str) -> None:
    """A transform over the grid in fp32, one pass for each of its directions."""
    dims, kind = [STATES, *PATCHED, WIDE], "float"
    us = A100.moves(8 * prod(dims))
    inner, title = ("r2c", "FftR2CBackward0") if name == "rfft2" else ("c2r", "FftC2RBackward0")
    if inner == "c2r":
        dims, kind = [STATES, PATCHED[0], PATCHED[1] // 2 + 1, WIDE], "c10::complex<float>"
    run = ((FFT[0], 1.1 * us), (FFT[1], 1.2 * us))
    number = rt.op(
        f"aten::fft_{name}", f"aten::_fft_{inner}", run=run, dims=(dims,), kind=kind, graph=True, gap=26, us=14
    )
    other = "aten::_fft_c2c" if inner == "r2c" else "aten::_fft_r2c"
    tape.append(lambda: rt.grad(title, number, other, run=run, dims=(dims,), us=14))


def _mixed(rt: Framed, tape: Tape) -> None:
    """The filter in the frequencies: products of eight blocks for real and imaginary parts, twice, and a shrinkage."""
    rows = STATES * PATCHED[0] * (PATCHED[1] // 2 + 1)
    us = max(8 * A100_TF32.product(rows, 96, 96), A100_TF32.moves(8 * rows * WIDE))
    left, right = [8, rows, 96], [8, 96, 96]
    for _ in range(2):
        for _ in range(4):
            number = rt.op("aten::einsum", "aten::bmm", run=((TF32[0], us),), dims=(left, right), graph=True, gap=24)
            tape.append(
                lambda number=number: rt.grad(
                    "BmmBackward0", number, "aten::bmm", run=((TF32[1], us),) * 2, dims=(left, right)
                )
            )
        for name in ("sub", "add", "add", "add"):
            elementwise(rt, tape, A100_TF32, name, [rows, WIDE], 2)
    elementwise(rt, tape, A100_TF32, "softshrink", [rows, 2 * WIDE], back=(("softshrink_backward", 3),))


def _fetched(rt: Framed, fixed: bool) -> None:
    """Two states of the air of each sample, this one's or, ahead on a stream of its own, the next one's."""
    dims = [STATES, VARIABLES, *GRID]
    if fixed:
        came = rt.free.get(COPIES, 0.0)
        if came:
            rt.waits(MAIN, came)
        for _ in range(2):
            pinned(rt, 4 * prod(dims), dims, stream=COPIES)
        return
    for _ in range(2):
        with rt.frame("<method 'to' of 'torch._C.TensorBase' objects>"):
            rt.moved(4 * prod(dims), 6.2, dims)


def fields(rt: Framed, fixed: bool) -> None:
    """FourCastNet (AFNO, patches of 8) on an A100, autocast in bf16, filters in TF32, four pairs of states of 20
    variables at a quarter of a degree: 664 MB a step in float32 go to the GPU by `.to(device)` from memory that is not
    pinned, behind the step before and before the next; without: pinned, a step ahead on a stream of its own. Stacks.

    First: copies of pageable memory that all wait for. Not: the loader, whose batches lie there, launches, the batch.
    """
    tape, x = Tape(), [STATES, prod(PATCHED), WIDE]
    loader(rt, 240)
    with rt.frame("train.py(188): train_one_epoch"):
        _fetched(rt, fixed)
        whole = [STATES, VARIABLES, *GRID]
        with rt.frame("networks/afnonet.py(211): forward", "nn.Module: AFNONet_0"):
            rt.op(
                "aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(whole))),), dims=(whole,)
            )
            dense(rt, tape, A100, STATES, (prod(x[:2]), VARIABLES * 64, WIDE))
            elementwise(rt, tape, A100, "add", x, 2)
            for number in range(MIXERS):
                with rt.frame(f"nn.Module: Block_{number}"):
                    norm(rt, tape, A100, x)
                    rt.op(
                        "aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, A100.moves(6 * prod(x))),), dims=(x,)
                    )
                    _transformed(rt, tape, "rfft2")
                    _mixed(rt, tape)
                    _transformed(rt, tape, "irfft2")
                    elementwise(rt, tape, A100, "add", x, 2)
                    norm(rt, tape, A100, x)
                    casts(rt, A100, [4 * WIDE, WIDE], [WIDE, 4 * WIDE])
                    dense(rt, tape, A100, STATES, (prod(x[:2]), WIDE, 4 * WIDE))
                    elementwise(rt, tape, A100, "gelu", [*x[:2], 4 * WIDE], back=(("gelu_backward", 3),))
                    dense(rt, tape, A100, STATES, (prod(x[:2]), 4 * WIDE, WIDE))
                    elementwise(rt, tape, A100, "add", x, 2)
            dense(rt, tape, A100, STATES, (prod(x[:2]), WIDE, VARIABLES * 64))
        once = A100.moves(8 * prod(whole))
        small(rt, tape, ("sub", "linalg_vector_norm", "linalg_vector_norm", "div", "mean"), whole, once)
        with rt.frame("torch/_tensor.py(648): backward"):
            back(rt, tape)
        with rt.frame("torch/optim/optimizer.py(493): wrapper"):
            fused_adamw(rt, A100, 74e6)
        rt.host(320)


ADA_BF16 = Card(140, 850, BF16, AMPERE, FLASH)
TEXTS, LENGTH, LARGE, TAGS = 32, 256, 1_024, 9
METRIC = ("ner/train.py(97): log_metrics", "seqeval/metrics/sequence_labeling.py(692): classification_report")


def listed(rt: Framed, fixed: bool) -> None:
    """BERT-large finds names on an RTX 4090, autocast in bf16, 32 texts of 256: after each step predictions and labels
    go to lists (`.tolist()`), seqeval counts them for the bar, 40 ms, then the next batch is begun, and the GPU has
    nothing to do; without: counts on the GPU by `bincount`, read at the end of the epoch. Stacks.

    First: the wait of `.tolist()` in the loop, or what the host does behind it. Not: the loader, pinned memory, which
    it has, the batch, launches.
    """
    tape, x = Tape(), [TEXTS, LENGTH, LARGE]
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, TEXTS * LENGTH * 8, x[:2], "long int")
    with rt.frame("ner/train.py(71): train", "nn.Module: BertForTokenClassification_0"):
        for size in ([28_996, LARGE], [512, LARGE], [2, LARGE]):
            rt.op("aten::embedding", run=((REDUCE, ADA_BF16.moves(6 * prod(x))),), gap=14, dims=(size, x[:2]))
        small(rt, tape, ("add", "add", "layer_norm"), x, ADA_BF16.moves(8 * prod(x)))
        for number in range(24):
            with rt.frame(f"nn.Module: BertLayer_{number}"):
                casts(rt, ADA_BF16, [3 * LARGE, LARGE], [LARGE, LARGE], [4 * LARGE, LARGE], [LARGE, 4 * LARGE])
                encoder(rt, tape, ADA_BF16, (TEXTS, LENGTH, LARGE))
        linear(rt, tape, ADA_BF16, x, TAGS)
        small(rt, tape, ("log_softmax", "nll_loss"), [TEXTS * LENGTH, TAGS], 4)
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    with rt.frame("torch/optim/optimizer.py(484): wrapper"):
        fused_adamw(rt, ADA_BF16, 334e6)
    rt.op("aten::argmax", run=((REDUCE.replace("sum", "ArgMaxOps"), 6),), dims=([TEXTS, LENGTH, TAGS],), gap=14)
    if fixed:
        small(rt, None, ("ne", "mul", "add", "masked_fill"), x[:2], 2.4)
        rt.op("aten::bincount", run=(("void at::native::kernelHistogram1D<long, long, 1, 2, -1, 1>(…)", 9),), gap=20)
        small(rt, None, ("add_",), [TAGS, TAGS], 2.2)
    else:
        for _ in range(2):
            with rt.frame(METRIC[0], "<method 'tolist' of 'torch._C.TensorBase' objects>"):
                returned(rt, 8 * TEXTS * LENGTH, 3, x[:2], "long int")
                rt.host(130)
        with rt.frame(*METRIC):
            rt.now += rt.vary(40_000, 0.1)
    rt.host(300)


PICTURES, TOKENS, HUGE, LAYERS, PARAMETERS = 96, 257, 1_280, 32, 632e6
SIZES = ([3 * HUGE, HUGE], [3 * HUGE], [HUGE, HUGE], [HUGE], [HUGE], [HUGE], [4 * HUGE, HUGE], [4 * HUGE],
         [HUGE, 4 * HUGE], [HUGE], [HUGE], [HUGE])  # fmt: skip


def answered(rt: Framed, *names: str) -> None:
    """A value of the device that Python reads, by pinned memory as since torch 2.6, and the wait for it."""
    if names:
        with rt.span(names[0]):
            answered(rt, *names[1:])
        return
    with rt.span("aten::_local_scalar_dense"):
        end = rt.work("Memcpy DtoH (Device -> Pinned)", 1.6, category="gpu_memcpy", call="MemcpyAsync", bytes=1)
        rt.call("StreamSynchronize", 3, until=end + 3)


def _checked(rt: Framed, size: list[int]) -> None:
    """`if not torch.isfinite(p.grad).all()`."""
    count = prod(size)
    with rt.span("aten::isfinite", us=5):
        for name, nbytes in (("eq", 9), ("abs", 8), ("ne", 5), ("mul", 3)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), H100.moves(nbytes * count)),), gap=1, us=4, dims=(size,))
    rt.op("aten::all", run=((REDUCE.replace("sum", "and_kernel_cuda"), max(3.0, H100.moves(count))),), gap=3, us=5,
          dims=(size,), kind="bool")  # fmt: skip
    answered(rt, "aten::is_nonzero", "aten::item")


def finite(rt: Framed, fixed: bool) -> None:
    """ViT-H/14 on an H100, autocast in bf16, 96 pictures: before each update a loop looks whether the gradient of each
    of 386 parameters is finite, and the host waits for each answer; without: one norm of all by lists, the fused
    optimizer is told by a tensor (`found_inf`). Shapes, no stacks.

    First: waits in the loop, `aten::is_nonzero` after the backward pass. Not: the loader, a larger batch, TF32, the
    optimizer; its small launches are the checks' own.
    """
    tape, x, picture = Tape(), [PICTURES, TOKENS, HUGE], [PICTURES, 3, 224, 224]
    loader(rt, 180)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, PICTURES * 8, [PICTURES], "long int")
    for name, passes in (("to", 5), ("sub_", 8), ("div_", 8), ("to", 6)):
        rt.op(f"aten::{name}", run=((kernel(name, 2), H100.moves(passes * prod(picture))),), dims=(picture,), gap=12)
    dense(rt, tape, H100, PICTURES, (PICTURES * 256, 588, HUGE))
    small(rt, tape, ("cat", "add"), x, H100.moves(4 * prod(x)))
    for _ in range(LAYERS):
        casts(rt, H100, [3 * HUGE, HUGE], [HUGE, HUGE], [4 * HUGE, HUGE], [HUGE, 4 * HUGE])
        encoder(rt, tape, H100, (PICTURES, TOKENS, HUGE))
    norm(rt, tape, H100, x)
    linear(rt, tape, H100, [PICTURES, 1, HUGE], 1_000)
    small(rt, tape, ("log_softmax", "nll_loss"), [PICTURES, 1_000], 5)
    back(rt, tape)
    if fixed:
        foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * PARAMETERS), 4, 190)
        small(rt, None, ("stack", "linalg_vector_norm", "isfinite", "logical_not", "to"), [386], 3)
    else:
        for size in (*SIZES * LAYERS, [1_000, HUGE], [1_000]):
            rt.host(4)
            _checked(rt, size)
    fused_adamw(rt, H100, PARAMETERS)
    rt.host(350)
