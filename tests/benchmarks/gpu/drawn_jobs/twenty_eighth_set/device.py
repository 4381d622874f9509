"""Jobs of the twenty-eighth set whose device does more than it must, or gives its memory back: weights in fp32, memory
that is not kept, convolutions without cuDNN.

What the device does without the fault is written with it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.language import flash
from ..eleventh_set.rows import elementwise, mean, moved_as, node
from ..fifteenth_set.rows import L40S
from ..kineto import Kernels, device, inputs
from ..layers import CAST, Card, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import Row
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import HALF, NHWC, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, adapter, conv_norm, frozen, loader
from ..twentieth_set.host import TURING
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import acts, few, judged

TEXTS, LENGTH, WIDE, KEYS, FED, DEEP, WORDS = 2, 1_024, 3_072, 1_024, 8_192, 28, 128_256
PCIE_DEVICE = device("NVIDIA A100-PCIE-40GB", (8, 0), 108, 39)
PCIE = Card(195, 1_280, BF16, AMPERE, FLASH)
FLOAT = replace(PCIE, kind="float")


def _frozen(rt: Framed, tape: Tape, x: list[int], out: int, fixed: bool, *, wide: bool = True) -> None:
    """A linear layer that is not trained, whose weight is in fp32: autocast keeps no copy of what has no gradient;
    wide: whether its input is in fp32 as well.
    """
    if not fixed:
        if wide:
            moved_as(rt, tape, PCIE, x, kind="float")
        weight = [out, x[-1]]
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, PCIE.moves(6 * prod(weight))),), dims=(weight,),
              gap=4)  # fmt: skip
    frozen(rt, tape, PCIE, x, out)


def _rooted(rt: Framed, tape: Tape, x: list[int], fixed: bool) -> None:
    """`LlamaRMSNorm`, op by op in fp32; of a stream in bf16 it converts both ways."""
    if fixed:
        moved_as(rt, tape, PCIE, x)
    elementwise(rt, tape, FLOAT, "pow", x, back=(("pow", 2), ("mul", 3)))
    mean(rt, tape, FLOAT, x)
    acts(rt, tape, FLOAT, "add rsqrt", [*x[:-1], 1])
    elementwise(rt, tape, FLOAT, "mul", x, back=(("mul", 3), ("mul", 3)))
    if fixed:
        moved_as(rt, tape, PCIE, x, kind="float")
    elementwise(rt, tape, PCIE if fixed else FLOAT, "mul", x, back=(("mul", 3),))


def undtyped(rt: Framed, fixed: bool) -> None:
    """Llama-3.2-3B with adapters by TRL and `bf16=True` on an A100 of 40 GB, two texts of 1,024: `from_pretrained` was
    given no `torch_dtype`, so that the base lies in fp32, autocast makes a bf16 copy of each of its weights in each
    step (19 GB are moved for it), and what runs between layers is in fp32; without: `torch_dtype=torch.bfloat16`. Flash
    attention by SDPA, AdamW of the adapters is fused, clipped by lists, the loss is read each 20th step. Shapes.

    First: casts of weights that never change, a base in fp32. Not: launches, waits, the loader, TF32 (products are in
    bf16), attention, the optimizer, the batch.
    """
    tape, x, fed = Tape(), [TEXTS, LENGTH, WIDE], [TEXTS, LENGTH, FED]
    stream = PCIE if fixed else FLOAT
    loader(rt, 180)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * LENGTH, x[:2], "long int")
    acts(rt, None, stream, "embedding", x)
    for _ in range(DEEP):
        _rooted(rt, tape, x, fixed)
        for place, out in enumerate((WIDE, KEYS, KEYS)):
            _frozen(rt, tape, x, out, fixed)
            if place != 1:
                adapter(rt, tape, PCIE, x, out)
        for heads in (24, 8):
            acts(rt, tape, stream, "mul neg cat mul add", [TEXTS, heads, LENGTH, 128])
        if not fixed:
            for heads in (24, 8):
                moved_as(rt, tape, PCIE, [TEXTS, heads, LENGTH, 128], kind="float")
        flash(rt, tape, PCIE, [TEXTS, 24, LENGTH, 128])
        _frozen(rt, tape, x, WIDE, fixed, wide=False)
        acts(rt, tape, stream, "add", x)
        _rooted(rt, tape, x, fixed)
        for _ in range(2):
            _frozen(rt, tape, x, FED, fixed)
        acts(rt, tape, PCIE, "silu mul", fed)
        _frozen(rt, tape, fed, WIDE, fixed, wide=False)
        acts(rt, tape, stream, "add", x)
    _rooted(rt, tape, x, fixed)
    _frozen(rt, tape, x, WORDS, fixed)
    moved_as(rt, tape, PCIE, [TEXTS, LENGTH, WORDS])
    judged(rt, tape, FLOAT, TEXTS * LENGTH, WORDS)
    back(rt, tape)
    clipped(rt, FLOAT, 4.6e6)
    fused_adamw(rt, FLOAT, 4.6e6)
    rt.host(640)


SHOWN, SEEN, MODEL, BLOCKS = 64, 257, 1_024, 24
LOVELACE = Card(L40S.tflops, L40S.gbs, BF16, AMPERE, FLASH)


class Uncached(Framed):
    """bare: whether nothing is kept, each tensor is asked of the driver and given back to it at once."""

    bare = False

    def _inside(self, names: list[str], us: float, args: Row, run: Kernels) -> None:
        if not self.bare or names[1:] or not run or names[0][-1] == "_":
            super()._inside(names, us, args, run)
            return
        with self.span(names[0], us=us, **args):
            self.asked(args)
            for name, lasts in run:
                self.work(name, lasts)

    def asked(self, args: Row) -> None:
        """Memory for a tensor, about as large as the first that is read."""
        dims = args.get("Input Dims") or [[1]]
        with self.span("aten::empty", us=2):
            self.call("Malloc", self.vary(34 + 2 * prod(dims[0]) / 1.6e6, 0.5))

    def given(self, count: int) -> None:
        """Tensors that nothing refers to any more: the driver waits for the device before the first is free."""
        for number in range(count if self.bare else 0):
            self.call("Free", self.vary(62, 0.6), until=0 if number else max(self.free.values()) + 5)

    def grad(self, name: str, number: int, *inner: str, run: Kernels = (), **more: Any) -> None:
        """A node of the backward pass, behind which its gradient and what was saved for it are free."""
        super().grad(name, number, *inner, run=run, **more)
        self.given(2)


def nocache(rt: Uncached, fixed: bool) -> None:
    """CLIP's ViT-L/14 goes on learning pictures by a plain loop on an L40S, autocast in bf16, 64 pictures of 224:
    `PYTORCH_NO_CUDA_MEMORY_CACHING=1` is still set since compute-sanitizer was run, so that each tensor is asked of the
    driver, and each `cudaFree` of the backward pass waits until the GPU is done; without: the variable is not set.
    Pictures come pinned as bytes, AdamW is fused, clipped by lists, the loss is summed on the GPU. Shapes.

    First: `cudaMalloc` and `cudaFree` in each step (the allocator's cache is off). Not: the loader, launches, copies,
    `empty_cache()`, attention, casts of weights, the optimizer.
    """
    rt.bare = not fixed
    tape, picture, x = Tape(), [SHOWN, 3, 224, 224], [SHOWN, SEEN, MODEL]
    loader(rt, 190)
    for nbytes, size, kind in ((prod(picture), picture, "unsigned char"), (8 * SHOWN, [SHOWN], "long int")):
        if rt.bare:
            rt.asked({"Input Dims": [size]})
        pinned(rt, nbytes, size, kind)
    acts(rt, None, replace(LOVELACE, kind="float"), "to sub div", picture)
    rt.given(3)
    casts(rt, LOVELACE, picture, [MODEL, 588])
    dense(rt, tape, LOVELACE, SHOWN, (SHOWN * 256, 588, MODEL))
    acts(rt, tape, LOVELACE, "cat add", x)
    norm(rt, tape, LOVELACE, x)
    for _ in range(BLOCKS):
        casts(rt, LOVELACE, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
        norm(rt, tape, LOVELACE, x)
        dense(rt, tape, LOVELACE, SHOWN, (SHOWN * SEEN, MODEL, 3 * MODEL))
        attention(rt, tape, LOVELACE, [SHOWN, 16, SEEN, 64])
        dense(rt, tape, LOVELACE, SHOWN, (SHOWN * SEEN, MODEL, MODEL))
        acts(rt, tape, LOVELACE, "add", x)
        rt.given(1)
        norm(rt, tape, LOVELACE, x)
        dense(rt, tape, LOVELACE, SHOWN, (SHOWN * SEEN, MODEL, 4 * MODEL))
        acts(rt, tape, LOVELACE, "gelu", [SHOWN, SEEN, 4 * MODEL])
        dense(rt, tape, LOVELACE, SHOWN, (SHOWN * SEEN, 4 * MODEL, MODEL))
        acts(rt, tape, LOVELACE, "add", x)
        rt.given(1)
    norm(rt, tape, LOVELACE, x)
    casts(rt, LOVELACE, [120, MODEL])
    dense(rt, tape, LOVELACE, SHOWN, (SHOWN, MODEL, 120))
    rt.given(4 * BLOCKS)  # copies of weights, when autocast ends
    judged(rt, tape, LOVELACE, SHOWN, 120)
    back(rt, tape)
    clipped(rt, LOVELACE, 304e6, 2)
    rt.given(8)
    fused_adamw(rt, LOVELACE, 304e6)
    rt.given(294)  # gradients
    few(rt, "add_", [1])
    rt.host(330)


PLANTS, LEAVES = 32, 38
CUDNN = ("turing_fp16_s1688cudnn_fp16_256x128_ldg8_relu_f2f_exp_medium_nhwc_tn_v1",
         "turing_fp16_s1688cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_medium_nhwc_tt_v1",
         "turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1")  # fmt: skip
T4 = Look(TURING, CUDNN, NHWC, True)
COLUMNS = "void at::native::im2col_kernel<c10::Half>(long, c10::Half const*, long, long, long, long, …)"
PIXELS = "void at::native::col2im_kernel<c10::Half, float>(long, c10::Half const*, long, long, long, long, …)"
MOMENTS = "void at::native::batch_norm_{}_kernel<{}c10::Half, float, float, int, GenericPackedTensorAccessor<…>>(…)"


def _unrolled(rt: Framed, tape: Tape, of: Conv, strides: int) -> None:
    """`slow_conv2d`: picture by picture columns are written out, then a product; of 1 x 1 only the product."""
    card, (x, w, y) = TURING, of.dims
    x = [*x[:2], strides * x[2], strides * x[3]]
    area, inner = of.height * of.width, of.cin * of.side**2
    product = max(2 * area * of.cout * inner / card.tflops / 1e6,
                  card.moves(2 * (area * inner + area * of.cout + inner * of.cout)))  # fmt: skip
    columns = card.moves(2 * (area * inner + strides**2 * area * of.cin)) if of.side > 1 or strides > 1 else 0
    ahead, weighed = (((COLUMNS, columns),) * bool(columns) + ((name, product),) for name in card.names)
    behind = ((card.names[1], product), *(((PIXELS, columns * 1.3),) if columns else ()))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(6 * prod(w))),), dims=(w,), gap=4)
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::thnn_conv2d",
                   "aten::_slow_conv2d_forward", run=tuple(ahead) * of.batch, dims=(x, w), kind=HALF, graph=True,
                   gap=14)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number), rt.span("aten::convolution_backward", us=9,
                                                               **inputs((y, x, w), HALF)):  # fmt: skip
            rt.op("aten::_slow_conv2d_backward", run=(behind + tuple(weighed)) * of.batch, us=9, gap=1,
                  dims=(y, x, w), kind=HALF)  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def _layer(rt: Framed, tape: Tape, of: Conv, fixed: bool, strides: int = 1) -> None:
    """A convolution, a norm, a ReLU in place."""
    if fixed:
        conv_norm(rt, tape, T4, of)
        return
    _unrolled(rt, tape, of, strides)
    y = of.dims[2]
    once, named = TURING.moves(2 * prod(y)), dict[str, Any](dims=(y,), kind=HALF)
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", graph=True, gap=18,
                   run=((MOMENTS.format("collect_statistics", "InvStd, "), 1.2 * once),
                        (MOMENTS.format("transform_input", ""), 2 * once)), **named)  # fmt: skip
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", number, "aten::native_batch_norm_backward", **named, run=(
        (MOMENTS.format("backward", ""), 5 * once),)))  # fmt: skip
    elementwise(rt, tape, TURING, "relu_", y, back=(("threshold_backward", 3),))


def nocudnn(rt: Framed, fixed: bool) -> None:
    """ResNet-34 learns sick leaves by fastai's plain loop in a notebook's T4, AMP in fp16, channels_last, 32 pictures
    of 224: `torch.backends.cudnn.enabled = False` came from a thread about `CUDNN_STATUS_NOT_INITIALIZED`, so that each
    convolution writes columns out picture by picture and multiplies; without: cuDNN's kernels. Pictures come pinned,
    SGD by lists, `GradScaler` waits once, the loss is summed on the GPU. Shapes.

    First: slow convolutions (cuDNN is off). Not: `GradScaler`'s wait, the loader, copies, precision (fp16 is used; a T4
    has neither TF32 nor bf16), the batch; launches at most beside the convolutions.
    """
    tape, picture = Tape(), [PLANTS, 3, 224, 224]
    loader(rt, 240)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * PLANTS, [PLANTS], "long int")
    if fixed:
        few(rt, "copy_", picture, TURING.moves(8 * prod(picture)))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, TURING.moves(6 * prod(picture))),), dims=(picture,))
    _layer(rt, tape, Conv(PLANTS, 3, 64, 7, 112, 112), fixed, 2)
    acts(rt, tape, TURING, "max_pool2d", [PLANTS, 64, 56, 56])
    given = 64
    for blocks, width, side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for _ in range(blocks):
            first = 2 if given != width else 1
            _layer(rt, tape, Conv(PLANTS, given, width, 3, side, side), fixed, first)
            _layer(rt, tape, Conv(PLANTS, width, width, 3, side, side), fixed)
            if first == 2:
                _layer(rt, tape, Conv(PLANTS, given, width, 1, side, side), fixed, 2)
            acts(rt, tape, TURING, "add", [PLANTS, width, side, side])
            given = width
    acts(rt, tape, TURING, "mean", [PLANTS, 512, 7, 7])
    casts(rt, TURING, [LEAVES, 512])
    dense(rt, tape, TURING, PLANTS, (PLANTS, 512, LEAVES))
    judged(rt, tape, TURING, PLANTS, LEAVES)
    back(rt, tape)
    unscaled(rt, TURING, 21.3e6)
    sgd(rt, TURING, 21.3e6)
    few(rt, "add_", [1])
    rt.host(310)
