"""Jobs of the twentieth set whose fault is on the host: a quota of processors, pictures that are logged, a mask."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, on_host, pinned, returned
from ..eleventh_set.rows import elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw, norm, pointwise
from ..runtime import Row
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, HALF, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader

TURING = Card(24, 250, HALF, ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
                              "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nt"),
              ("fmha_cutlassF_f16_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<half, …>::Params)",
               "fmha_cutlassB_f16_aligned_64x64_k64_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<…>::Params)",
               ))  # fmt: skip
PERIOD, ALLOWED = 100_000.0, 36_000.0


class Throttled(Framed):
    """The host's threads stand still once the group of the container has used its time of a period (CFS' quota)."""

    held = False
    _now = 0.0

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.stops: dict[int, float] = {}

    @property
    def now(self) -> float:
        """The host's time, µs."""
        return self._now

    @now.setter
    def now(self, value: float) -> None:
        """Time that falls where the group stands still goes on in the next period."""
        period = int(value // PERIOD)
        if self.held and value > self._now:
            stop = self.stops.setdefault(period, period * PERIOD + self.vary(ALLOWED, 0.2))
            if value >= stop:
                value = (period + 1) * PERIOD + min(value - max(stop, self._now), 400)
        self._now = value


def throttled(rt: Throttled, fixed: bool) -> None:
    """BERT-base by Trainer in fp16 on a T4 of a cluster, 24 texts of 192, `limits: {cpu: "2"}`: six workers of the
    loader and the loop together have used their 200 ms of processors after some 36 of 100 ms, then all of them stand
    still; any op, call or gap lasts 60 ms longer, at even distances, and the GPU has no more to do; without: the host
    is ahead. `GradScaler` waits once a step. No stacks.

    First: an idle GPU while the host stands still (processors of the container, fewer workers). Not: a loader, though
    its workers stand still as well, fused launches, the batch, TF32 or bf16, which a T4 has not.
    """
    rt.held = not fixed
    tape, x = Tape(), [24, 192, 768]
    loader(rt, 180)
    for _ in range(4):
        pinned(rt, prod(x[:2]) * 8, x[:2], "long int")
    for _ in range(3):
        rt.op("aten::embedding", run=((REDUCE, TURING.moves(6 * prod(x))),), gap=14, dims=([30_522, 768], x[:2]))
    small(rt, tape, ("add", "add", "layer_norm"), x, TURING.moves(8 * prod(x)))
    for _ in range(12):
        casts(rt, TURING, [768, 768], [768, 768], [768, 768], [768, 768], [3_072, 768], [768, 3_072])
        encoder(rt, tape, TURING, (x[0], x[1], x[2]))
    linear(rt, tape, TURING, [24, 768], 768)
    elementwise(rt, tape, TURING, "tanh", [24, 768], back=(("tanh_backward", 3),))
    linear(rt, tape, TURING, [24, 768], 4)
    small(rt, tape, ("log_softmax", "nll_loss"), [24, 4], 3)
    back(rt, tape)
    unscaled(rt, TURING, 110e6)
    foreach(rt, "_foreach_norm", "LpNormFunctor", TURING.moves(4 * 110e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", TURING.moves(8 * 110e6), 2)
    fused_adamw(rt, TURING, 110e6)
    rt.host(450)


ADA_HALF = Card(100, 850, HALF, ADA.card.names, ("", ""))
PAINTED = Look(ADA_HALF, ADA.names, ADA.norm, True)
PICTURES, SIDE, WIDTHS = 12, 256, (64, 128, 256, 512, 512)
WRITER = ("torch/utils/tensorboard/writer.py(630): add_images", "torch/utils/tensorboard/summary.py(417): image")


def _logged(rt: Framed) -> None:
    """`writer.add_image(…, make_grid(pictures))`: small works, a copy, uint8 by numpy, a PNG by PIL."""
    dims = [PICTURES, 3, SIDE, SIDE]
    once = ADA_HALF.moves(8 * prod(dims))
    with rt.frame("pix2pix/train.py(164): log_images", "torchvision/utils.py(30): make_grid"):
        small(rt, None, ("clone", "add", "mul", "clamp_"), dims, once)
        rt.op("aten::full", "aten::fill_", run=((kernel("fill_", 1), once / 2),), gap=16, dims=([3, 776, 1_034],))
        for _ in range(PICTURES):
            rt.op("aten::narrow", "aten::slice", gap=5, us=2)
            rt.op("aten::copy_", run=((kernel("copy", 2), 4),), gap=5, dims=(dims[1:], dims[1:]))
    with rt.frame("pix2pix/train.py(164): log_images", *WRITER):
        size = [3, 776, 1_034]
        with rt.frame("torch/utils/tensorboard/_convert_np.py(23): make_np"):
            returned(rt, 4 * prod(size), 6.4, size)
        with rt.frame("torch/utils/tensorboard/_utils.py(97): convert_to_HWC"):
            rt.now += rt.vary(5_200, 0.1)
        with rt.frame("torch/utils/tensorboard/summary.py(596): make_image", "PIL/Image.py(2530): save",
                      "PIL/PngImagePlugin.py(1320): _save", "PIL/ImageFile.py(530): _save",
                      "<method 'encode' of 'ImagingEncoder' objects>"):  # fmt: skip
            rt.now += rt.vary(61_000, 0.12)


def _unet(rt: Framed, tape: Tape) -> None:
    """The generator of pix2pix with batch norms."""
    wide, high = 3, SIDE
    for width in WIDTHS:
        high //= 2
        conv_norm(rt, tape, PAINTED, Conv(PICTURES, wide, width, 4, high, high))
        for _ in range(2):
            conv_norm(rt, tape, PAINTED, Conv(PICTURES, width, width, 3, high, high))
        wide = width
    for width in (512, 256, 128, 64, 64):
        high *= 2
        small(rt, tape, ("upsample_nearest2d", "cat"), [PICTURES, wide, high, high],
              ADA_HALF.moves(3 * PICTURES * wide * high * high))  # fmt: skip
        for cin in (2 * width, width):
            conv_norm(rt, tape, PAINTED, Conv(PICTURES, cin, width, 3, high, high))
        wide = width
    conv(rt, tape, PAINTED, Conv(PICTURES, 64, 3, 3, SIDE, SIDE))
    elementwise(rt, tape, ADA_HALF, "tanh", [PICTURES, 3, SIDE, SIDE], back=(("tanh_backward", 3),))


def _judged(rt: Framed, tape: Tape) -> None:
    """The discriminator of patches."""
    wide, high = 6, SIDE
    for width in (64, 128, 256, 512):
        high //= 2
        conv_norm(rt, tape, PAINTED, Conv(PICTURES, wide, width, 4, high, high))
        wide = width
    conv(rt, tape, PAINTED, Conv(PICTURES, 512, 1, 4, high, high))
    small(rt, tape, ("binary_cross_entropy_with_logits",), [PICTURES, 1, high, high], 4)


def pictured(rt: Framed, fixed: bool) -> None:
    """pix2pix on an RTX 4090, AMP, 12 pictures of 256: after each step three grids (input, made, target) go to
    TensorBoard: `.cpu()`, uint8 by numpy, PNG by PIL, 70 ms each, while the GPU waits; without: each 500 steps, none
    of them in the window. Two `GradScaler`s wait besides. Stacks.

    First: the host's work after a step, by its frames (log fewer pictures), or the idle GPU; the copies alone are
    4.5 ms. Not: a loader, pinned memory, launches, the batch, TF32.
    """
    tape: Tape = []
    loader(rt, 170)
    for _ in range(2):
        pinned(rt, PICTURES * 3 * SIDE**2 * 4, [PICTURES, 3, SIDE, SIDE])
    with rt.frame("pix2pix/train.py(88): train_step"):
        _unet(rt, tape)
        _judged(rt, tape)
        small(rt, tape, ("sub", "abs", "mean", "mul", "add"), [PICTURES, 3, SIDE, SIDE], 26)
        back(rt, tape)
        unscaled(rt, ADA_HALF, 41e6)
        fused_adamw(rt, ADA_HALF, 41e6)
        for _ in range(2):
            _judged(rt, tape)
        small(rt, tape, ("add", "mul"), [], 2.3)
        back(rt, tape)
        unscaled(rt, ADA_HALF, 2.8e6)
        fused_adamw(rt, ADA_HALF, 2.8e6)
    if not fixed:
        for _ in range(3):
            _logged(rt)
    rt.host(400)


TEXTS, LENGTH, WIDE, HEADS, DEEP, CLASSES = 8, 2_048, 1_024, 16, 24, 50_272
AMPERE_HALF = replace(A100, kind=HALF, names=("ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_tn",
                                              "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_nt"),
                      attention=("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::…::Params)",
                                 "fmha_cutlassB_f16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::…::Params)",
                                 ))  # fmt: skip


def _mask(rt: Framed, fixed: bool) -> None:
    """`_make_causal_mask` and `_expand_mask`: the first on the host, widened to all texts by `.to(device)`."""
    square, whole = [LENGTH, LENGTH], [TEXTS, 1, LENGTH, LENGTH]
    if fixed:
        for name in ("full", "arange", "add", "lt", "masked_fill_", "to"):
            us = 2.2 if name in ("arange", "add") else AMPERE_HALF.moves(2 * prod(square))
            rt.op(f"aten::{name}", run=((kernel(name, 2), us),), gap=9, dims=(square,), kind=HALF)
    else:
        for name, us in (("full", 1_900), ("arange", 14), ("add", 6), ("lt", 1_500), ("masked_fill_", 2_600),
                         ("to", 3_100)):  # fmt: skip
            on_host(rt, f"aten::{name}", us, square if us > 20 else [LENGTH])
        with rt.span("aten::to", **inputs((whole,), HALF)), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            on_host(rt, "aten::contiguous", 2 * prod(whole) / 5.2e3, whole, HALF)
            place, nbytes = len(rt.rows), 2 * prod(whole)
            end = rt.work("Memcpy HtoD (Pageable -> Device)", nbytes / 6.3e3, call="MemcpyAsync", bytes=nbytes,
                          category="gpu_memcpy")  # fmt: skip
            rt.rows[place]["dur"] = round(end + 2 - rt.rows[place]["ts"], 3)
            rt.now = end + 2
            rt.call("StreamSynchronize", 3)
    for name, passes in (("expand", 0), ("rsub", 3), ("to", 2), ("masked_fill", 3), ("add", 3)):
        us = AMPERE_HALF.moves(2 * passes * prod(whole)) if passes else 0
        rt.op(f"aten::{name}", run=((kernel(name, 2), us),) if passes else (), gap=10, dims=(whole,), kind=HALF)


def masking(rt: Framed, fixed: bool) -> None:
    """OPT-350m fine-tuned in fp16 on an A100, 8 padded texts of 2,048, attention by `scaled_dot_product_attention`
    with the mask that padding needs: the causal part is built on the host in each forward pass and moved, widened to
    all texts, 67 MB from memory that is not pinned, after the loss scale's wait and so while the GPU is idle; without:
    it is built on the GPU.

    First: what the host computes, or the copy that is not pinned, and that it comes from the model's forward pass: on
    the device from the first. Not: a loader, `pin_memory=True` of it, launches, the batch.
    """
    tape, x = Tape(), [TEXTS, LENGTH, WIDE]
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, TEXTS * LENGTH * 8, x[:2], "long int")
    rt.op("aten::embedding", run=((REDUCE, AMPERE_HALF.moves(4 * prod(x))),), gap=14, dims=([CLASSES, 512], x[:2]))
    _mask(rt, fixed)
    small(rt, tape, ("cumsum", "mul", "sub", "embedding", "add"), x[:2], 9)
    for _ in range(DEEP):
        norm(rt, tape, AMPERE_HALF, x)
        for _ in range(3):
            dense(rt, tape, AMPERE_HALF, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
        _attended(rt, tape)
        dense(rt, tape, AMPERE_HALF, TEXTS, (TEXTS * LENGTH, WIDE, WIDE))
        pointwise(rt, tape, AMPERE_HALF, "add", x, reads=2)
        norm(rt, tape, AMPERE_HALF, x)
        dense(rt, tape, AMPERE_HALF, TEXTS, (TEXTS * LENGTH, WIDE, 4 * WIDE))
        elementwise(rt, tape, AMPERE_HALF, "relu", [*x[:2], 4 * WIDE], back=(("threshold_backward", 3),))
        dense(rt, tape, AMPERE_HALF, TEXTS, (TEXTS * LENGTH, 4 * WIDE, WIDE))
        pointwise(rt, tape, AMPERE_HALF, "add", x, reads=2)
    linear(rt, tape, AMPERE_HALF, [TEXTS, LENGTH, 512], CLASSES)
    logits = [TEXTS * LENGTH, CLASSES]
    number = rt.op("aten::cross_entropy_loss", "aten::log_softmax", run=(
        (kernel("log_softmax", 2), AMPERE_HALF.moves(4 * prod(logits))),), dims=(logits,), kind=HALF,
        graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", number, "aten::_log_softmax_backward_data", kind=HALF,
                                dims=(logits, logits), run=((kernel("log_softmax_backward", 3),
                                                 AMPERE_HALF.moves(6 * prod(logits))),)))  # fmt: skip
    back(rt, tape)
    unscaled(rt, AMPERE_HALF, 331e6 / 2)
    fused_adamw(rt, AMPERE_HALF, 331e6 / 2)
    rt.host(380)


def _attended(rt: Framed, tape: Tape) -> None:
    """Attention with a mask of numbers, by CUTLASS' kernel."""
    dims, mask = [TEXTS, HEADS, LENGTH, WIDE // HEADS], [TEXTS, 1, LENGTH, LENGTH]
    us = AMPERE_HALF.product(prod(dims[:3]), LENGTH, 2 * dims[3]) / 0.45
    outer = "aten::_scaled_dot_product_efficient_attention"
    number = rt.op("aten::scaled_dot_product_attention", outer, "aten::_efficient_attention_forward", gap=16,
                   graph=True, run=((AMPERE_HALF.attention[0], us),), dims=(dims, dims, dims, mask),
                   kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductEfficientAttentionBackward0", number, outer + "_backward", us=12,
                                run=((AMPERE_HALF.attention[1], 2.4 * us),), dims=(dims,) * 4, kind=HALF))  # fmt: skip
