"""Jobs of the thirty-second set whose loop waits for the GPU: hardest pairs that are sought picture by picture,
histograms of each gradient for a page of curves.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.rows import COPY, FILL, node
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import Row
from ..tenth_set import HALF as TURING
from ..tenth_set.jobs import FLASH
from ..thirty_first_set.rows import Told, small
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import HALF, NHWC, resnet, sgd, unscaled
from ..twelfth_set.rows import Framed, Look, loader
from ..twenty_fourth_set.rows import NATIVE, acts, chosen, few, judged
from ..twenty_sixth_set.rows import PROFILED
from .rows import Plain, encoder, wide

PEOPLE, KNOWN, WIDE = 96, 751, 2_048
RTX2080TI = Card(46, 560, HALF, TURING, ("", ""))
FLOAT = Card(11, 560, "float", ("volta_sgemm_128x64_tn", "volta_sgemm_64x64_nn"), ("", ""))
CUDNN = tuple(f"turing_fp16_s1688cudnn_fp16_256x128_ldg8_{way}_f2f_exp_{rest}_v1" for way, rest in (
    ("relu", "small_nhwc_tn"), ("dgrad", "small_nhwc_tt"), ("wgrad_idx", "interior_nhwc_nt")))  # fmt: skip
LOOK = Look(RTX2080TI, (CUDNN[0], CUDNN[1], CUDNN[2]), NHWC, True)
BETWEEN = [PEOPLE, PEOPLE]
SCATTER = "void at::native::_scatter_gather_elementwise_kernel<128, 8>(…)"


def _row(rt: Framed, tape: Tape) -> None:
    """`dist_mat[i]`, whose gradient fills a whole matrix."""
    number = rt.op("aten::select", graph=True, dims=(BETWEEN,), gap=5, us=3)

    def backward() -> None:
        with node(rt, "SelectBackward0", number), rt.span("aten::select_backward", us=4):
            rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, 2.2),), gap=1, us=2, dims=(BETWEEN,))
            rt.op("aten::copy_", run=((COPY, 2.2),), gap=1, dims=(BETWEEN[:1], BETWEEN[:1]))
        few(rt, "add_", BETWEEN, 2.4, gap=1)

    tape.append(backward)


def _extreme(rt: Framed, tape: Tape, name: str) -> None:
    """`.max()` or `.min()` of all values."""
    few_of = [6 if name == "max" else PEOPLE - 4]
    number = rt.op(f"aten::{name}", run=((REDUCE.replace("sum", f"{name.title()}Ops"), 3.2),), graph=True, gap=5,
                   dims=(few_of,))  # fmt: skip

    def backward() -> None:
        with node(rt, f"{name.title()}Backward1", number):
            for op in ("eq", "sum", "div", "mul"):
                few(rt, op, few_of, 2.2, gap=1)

    tape.append(backward)
    few(rt, "unsqueeze", [], gap=3)


def _hardest(rt: Framed, tape: Tape) -> None:
    """`for i in range(n): dist_ap.append(dist_mat[i][mask[i]].max().unsqueeze(0))`, and so for others."""
    for _ in range(PEOPLE):
        _row(rt, tape)
        few(rt, "select", BETWEEN, gap=4)
        chosen(rt, [PEOPLE], tape)
        _extreme(rt, tape, "max")
        _row(rt, tape)
        few(rt, "select", BETWEEN, gap=4)
        few(rt, "eq", [PEOPLE], gap=4)
        chosen(rt, [PEOPLE], tape)
        _extreme(rt, tape, "min")


def reid(rt: Told, fixed: bool) -> None:
    """ResNet-50 learns to know people again (Market-1501, 24 of them with four pictures each) by a baseline that many
    copy on an RTX 2080 Ti, AMP in fp16, channels_last, 96 pictures of 256 x 128: the triplet loss seeks the hardest
    pairs in a loop over pictures by boolean masks, 192 waits a step, each with a few small kernels forward and behind;
    without: `torch.where` with infinity and one `max` and `min` of the matrix. `GradScaler` waits once, batches come
    pinned, SGD by lists, the loss is summed on the GPU. Shapes.

    First: waits of boolean masks in the loss (or the loop). Not: `GradScaler`'s wait, the loader, copies, the layout,
    precision (a 2080 Ti has neither TF32 nor bf16), the optimizer, the batch.
    """
    rt.last, rt.narrow = True, "5"
    tape, picture = Tape(), [PEOPLE, 3, 256, 128]
    loader(rt, 200)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * PEOPLE, [PEOPLE], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, RTX2080TI.moves(6 * prod(picture))),),
          dims=(picture,))  # fmt: skip
    few(rt, "clone", picture, RTX2080TI.moves(4 * prod(picture)))
    resnet(rt, tape, LOOK, PEOPLE, (8, 4))
    acts(rt, tape, RTX2080TI, "mean", [PEOPLE, WIDE, 8, 4])
    small(rt, tape, FLOAT, "to batch_norm", [PEOPLE, WIDE])
    casts(rt, RTX2080TI, [KNOWN, WIDE])
    dense(rt, tape, RTX2080TI, PEOPLE, (PEOPLE, WIDE, KNOWN))
    acts(rt, tape, FLOAT, "to", [PEOPLE, KNOWN])
    judged(rt, tape, FLOAT, PEOPLE, KNOWN)
    acts(rt, tape, FLOAT, "pow sum", [PEOPLE, WIDE])
    few(rt, "expand expand", BETWEEN)
    small(rt, tape, FLOAT, "add", BETWEEN)
    dense(rt, tape, FLOAT, PEOPLE, (PEOPLE, WIDE, PEOPLE))
    small(rt, tape, FLOAT, "clamp sqrt", BETWEEN)
    few(rt, "expand expand eq", BETWEEN)
    if fixed:
        for name in ("max", "min"):
            small(rt, tape, FLOAT, "where", BETWEEN)
            number = rt.op(f"aten::{name}", run=((REDUCE.replace("sum", f"{name.title()}Ops"), 3.6),), graph=True,
                           gap=7, dims=(BETWEEN,))  # fmt: skip
            tape.append(lambda number=number, name=name: rt.grad(
                f"{name.title()}Backward0", number, "aten::value_selecting_reduction_backward", dims=(BETWEEN[:1],),
                run=((FILL, 2.2), (SCATTER, 2.5))))  # fmt: skip
    else:
        _hardest(rt, tape)
        acts(rt, tape, FLOAT, "cat cat", [PEOPLE])
    small(rt, tape, FLOAT, "neg add clamp_min mean add", [PEOPLE])
    back(rt, tape)
    unscaled(rt, RTX2080TI, 25.1e6)
    sgd(rt, RTX2080TI, 25.1e6)
    few(rt, "detach add_", [1])
    rt.host(290)


PICTURES, TOKENS, MODEL, DEEP, KINDS = 88, 197, 768, 12, 340
ADA = wide(160, 840, AMPERE, FLASH)
HISTOGRAM = NATIVE.replace("(anonymous namespace)::", "") + (
    "kernelHistogram1D<float, float, long, 1, 2, -1, (at::native::CUDAHistogramMemoryType)0, …>(…)"
)


ALL = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::func_wrapper_t<bool, "
    "at::native::and_kernel_cuda(at::TensorIterator&)::{lambda()#1}::operator()() const::{lambda(bool, bool)#1}>>>"
)


class Watching(Plain):
    """sizes: of weights in the order in which they were used;  watched: whether a hook looks at each gradient."""

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.sizes: list[list[int]] = []
        self.watched = False

    def grad(self, name: str, number: int, *inner: str, **more: Any) -> None:
        """A node of the backward pass; norms have a weight and a bias."""
        super().grad(name, number, *inner, **more)
        if name == "NativeLayerNormBackward0":
            for _ in range(2):
                self.accumulated()

    def accumulated(self) -> None:
        """A gradient that becomes `.grad`, behind the hook of `wandb.watch`."""
        size = self.sizes.pop()
        if self.watched:
            self._looked(size)
        super().accumulated()

    def _finite(self, size: list[int], us: float) -> None:
        with self.span("aten::isfinite", us=3):
            few(self, "eq abs ne mul", size, us, gap=1)

    def _all(self, size: list[int], us: float) -> None:
        self.op("aten::all", run=((ALL, us),), gap=4, us=5, dims=(size,))

    def _looked(self, size: list[int]) -> None:
        """`log_tensor_stats`: whether values are finite, the least, the largest, a histogram of 64 bins."""
        flattened, us = [prod(size)], max(2.3, ADA.moves(4 * prod(size)))
        self.host(14)
        self.op("aten::reshape", "aten::view", us=2, gap=2, dims=(size,))
        self._finite(flattened, us)
        few(self, "bitwise_not", flattened, 2.3, gap=3)
        self._all(flattened, 2.6)
        self.value()
        self._finite(flattened, us)
        self._all(flattened, 2.6)
        self.value("aten::is_nonzero")
        for name in ("min", "max"):
            self.op(f"aten::{name}", run=((REDUCE.replace("sum", f"{name.title()}Ops"), 1.5 + us),), gap=5, us=5,
                    dims=(flattened,))  # fmt: skip
            self.value()
        self.op("aten::histc", "aten::_histc", run=((FILL, 2.2), (HISTOGRAM, 3 + 1.4 * us)), gap=6, us=6,
                dims=(flattened,))  # fmt: skip
        with self.span("aten::to"), self.span("aten::_to_copy"), self.span("aten::copy_"):
            self.copy(256, "DtoH", "Pageable", waits=True)
        on_host(self, "aten::linspace", 7, [65])
        self.host(62)  # lists of Python, a dict of wandb


def _used(rt: Watching, *sizes: list[int]) -> None:
    rt.sizes += sizes


def curves(rt: Watching, fixed: bool) -> None:
    """ViT-B/16 learns 340 kinds of seeds by Lightning on an RTX 6000 Ada, `precision="bf16-mixed"`, 88 pictures:
    `WandbLogger.watch(model, log="gradients", log_freq=1)` looks at the gradient of each of 150 weights in each step,
    from a hook that reads four values and a histogram back from the GPU, some 750 waits in the backward pass; without:
    `log_freq=500`. FlashAttention, AdamW is fused, pictures come pinned as bytes. Shapes.

    First: waits of a hook in the backward pass. Not: the loader, copies, casts, attention, the optimizer, the batch;
    launches at most beside the waits.
    """
    tape, picture, x = Tape(), [PICTURES, 3, 224, 224], [PICTURES, TOKENS, MODEL]
    rt.watched, rt.sizes = not fixed, []
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 210)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, 8 * PICTURES, [PICTURES], "long int")
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        for name in ("to", "sub", "div"):
            few(rt, name, picture, ADA.moves(8 * prod(picture)))
        casts(rt, ADA, [MODEL, MODEL])
        _used(rt, [MODEL, 3, 16, 16], [MODEL])
        dense(rt, tape, ADA, PICTURES, (PICTURES * (TOKENS - 1), MODEL, MODEL))
        acts(rt, tape, ADA, "cat add", x)
        for _ in range(DEEP):
            casts(rt, ADA, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
            _used(rt, [MODEL], [MODEL], [3 * MODEL, MODEL], [3 * MODEL], [MODEL, MODEL], [MODEL])
            _used(rt, [MODEL], [MODEL], [4 * MODEL, MODEL], [4 * MODEL], [MODEL, 4 * MODEL], [MODEL])
            encoder(rt, tape, ADA, x)
        _used(rt, [MODEL], [MODEL], [KINDS, MODEL], [KINDS])
        norm(rt, tape, ADA, x)
        few(rt, "select", x)
        casts(rt, ADA, [KINDS, MODEL])
        dense(rt, tape, ADA, PICTURES, (PICTURES, MODEL, KINDS))
        judged(rt, tape, ADA, PICTURES, KINDS)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with rt.span(f"{PROFILED}[LightningModule]Seeds.optimizer_step", "user_annotation", us=50):
        fused_adamw(rt, ADA, 86e6)
    few(rt, "add_", [1])
    rt.host(420)
