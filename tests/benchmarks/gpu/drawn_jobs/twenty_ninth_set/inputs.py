"""Jobs of the twenty-ninth set that wait for input: epochs of three batches, a frozen encoder that travels to the GPU
and back in each step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned, returned
from ..eleventh_set.language import flash
from ..eleventh_set.rows import elementwise, node
from ..fifteenth_set.rows import encoded
from ..layers import CAST, Card, Tape, back, dense, fused_adamw, norm
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import resnet, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, adapter, conv, frozen, loader
from ..twentieth_set.host import TURING
from ..twenty_eighth_set.device import T4
from ..twenty_fifth_set.rows import group_norm
from ..twenty_fourth_set.rows import acts, few, judged
from ..twenty_sixth_set.rows import PROFILED

MOTHS, KINDS, BATCHES = 72, 9, 3


def _begun(rt: Framed) -> None:
    """An epoch ends and the next begins: what was logged is read, old workers are joined, four are forked, each opens
    the data set and makes its first batch.
    """
    with rt.span(f"{PROFILED}[LightningModule]Moths.on_train_epoch_end", "user_annotation", us=120):
        rt.value()
    rt.host(61_000)  # old workers end
    for _ in range(4):
        rt.host(43_000)  # a process is forked
    loader(rt, 345_000)


def epochs(rt: Framed, fixed: bool) -> None:
    """ResNet-50 is tuned on 216 pictures of moths by Lightning (`precision="16-mixed"`) on a T4, channels_last, 72
    pictures of 224: an epoch has three batches, at the end of each all workers are ended and forked anew
    (`persistent_workers` is False, as it is by default), and the GPU waits until the first has decoded a batch;
    without: the set is repeated a hundred times in an epoch, so that batches lie ready. Pictures come pinned as bytes,
    SGD by lists, `GradScaler` waits once. Shapes.

    First: the wait for the loader (workers that begin anew). Not: `GradScaler`'s wait, copies, launches, the layout,
    precision (a T4 has neither TF32 nor bf16).
    """
    tape, picture = Tape(), [MOTHS, 3, 224, 224]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        if fixed or rt.number % BATCHES:
            loader(rt, 230)
        else:
            _begun(rt)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, 8 * MOTHS, [MOTHS], "long int")
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        acts(rt, None, replace(TURING, kind="float"), "to sub div", picture)
        few(rt, "copy_", picture, TURING.moves(8 * prod(picture)))  # channels_last
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(picture,),
              run=((CAST, TURING.moves(6 * prod(picture))),))  # fmt: skip
        resnet(rt, tape, T4, MOTHS, (7, 7))
        acts(rt, tape, TURING, "mean", [MOTHS, 2_048, 7, 7])
        casts(rt, TURING, [KINDS, 2_048])
        dense(rt, tape, TURING, MOTHS, (MOTHS, 2_048, KINDS))
        judged(rt, tape, TURING, MOTHS, KINDS)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with rt.span(f"{PROFILED}[LightningModule]Moths.optimizer_step", "user_annotation", us=50):
        unscaled(rt, TURING, 23.5e6)
        sgd(rt, TURING, 23.5e6)
    few(rt, "add_", [1])
    rt.host(420)


SHOWN, SAID, FED = 5, 77, 768
CARD = Card(58, 780, BF16, AMPERE, FLASH)
LOOK = Look(CARD, tuple(f"sm80_xmma_{way}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_"
                        "warpsize2x2x1_g1_tensor16x8x16" for way in ("fprop", "dgrad", "wgrad")))  # type: ignore[arg-type]  # fmt: skip
LEVELS = ((320, 64), (640, 32), (1_280, 16))
WEIGHTS = [[49_408, FED], [SAID, FED]]  # of CLIP's text encoder
WEIGHTS += [size for _ in range(12) for size in (*([FED, FED], [FED]) * 4, [FED], [FED], [3_072, FED], [3_072],
                                                 [FED, 3_072], [FED], [FED], [FED])]  # fmt: skip
WEIGHTS += [[FED], [FED]]


def _fixed_conv(rt: Framed, tape: Tape, of: Conv) -> None:
    """A convolution whose weight is not trained."""
    us, (x, w, y) = of.us(CARD), of.dims
    number = rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", graph=True,
                   run=((LOOK.names[0], us),), dims=(x, w), kind=BF16, gap=14)  # fmt: skip

    def backward() -> None:
        with node(rt, "ConvolutionBackward0", number):
            rt.op("aten::convolution_backward", run=((LOOK.names[1], us),), dims=(y, x, w), us=14, kind=BF16, gap=1)

    tape.append(backward)


def _residual(rt: Framed, tape: Tape | None, of: Conv) -> None:
    """Group norm, SiLU, convolution, twice."""
    for size, cin in ((of.dims[0], of.cin), (of.dims[2], of.cout)):
        group_norm(rt, tape, CARD, size)
        acts(rt, tape, CARD, "silu", size)
        part = replace(of, cin=cin)
        if tape is None:
            conv(rt, None, LOOK, part)
        else:
            _fixed_conv(rt, tape, part)
    acts(rt, tape, CARD, "add", of.dims[2])


def _crossed(rt: Framed, tape: Tape, x: list[int]) -> None:
    """A transformer's block of the UNet, with adapters at what attention reads and writes."""
    for keys in (x, [x[0], SAID, FED]):
        norm(rt, tape, CARD, x)
        for given in (x, keys, keys):
            frozen(rt, tape, CARD, given, x[2])
            adapter(rt, tape, CARD, given, x[2])
        if keys is x:
            flash(rt, tape, CARD, [x[0], 8, x[1], x[2] // 8], causal=False)
        else:
            us = CARD.product(x[0] * x[1], SAID, 2 * x[2]) / 0.5
            heads = [x[0], 8, x[1], x[2] // 8]
            number = rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
                           "aten::_flash_attention_forward", run=((FLASH[0], us),), gap=14, kind=BF16, graph=True,
                           dims=(heads, [x[0], 8, SAID, x[2] // 8]))  # fmt: skip
            tape.append(lambda number=number, us=us, heads=heads: rt.grad(
                "ScaledDotProductFlashAttentionBackward0", number, "aten::_scaled_dot_product_flash_attention_backward",
                run=((FLASH[1], 2.5 * us),), dims=(heads,), kind=BF16))  # fmt: skip
        frozen(rt, tape, CARD, x, x[2])
        adapter(rt, tape, CARD, x, x[2])
        acts(rt, tape, CARD, "add", x)
    norm(rt, tape, CARD, x)
    frozen(rt, tape, CARD, x, 8 * x[2])
    elementwise(rt, tape, CARD, "gelu", [*x[:2], 4 * x[2]], back=(("gelu_backward", 3),))
    acts(rt, tape, CARD, "mul", [*x[:2], 4 * x[2]])
    frozen(rt, tape, CARD, [*x[:2], 4 * x[2]], x[2])
    acts(rt, tape, CARD, "add", x)


def _autoencoder() -> list[list[int]]:
    found = [[128, 3, 3, 3], [128]]
    for cin, cout, blocks in ((128, 128, 4), (128, 256, 4), (256, 512, 4), (512, 512, 6), (512, 512, 6), (512, 512, 4)):
        for number in range(blocks):
            found += [[cout, cin if number == 0 else cout, 3, 3], [cout], [cout], [cout]]
    return found


PARTS = {"text_encoder": WEIGHTS, "vae": _autoencoder()}


def _carried(rt: Framed, part: str, there: bool) -> None:
    """`module.to(device)` or `module.to("cpu")`, tensor by tensor, in bf16."""
    rt.host(700)
    for size in PARTS[part]:
        rt.host(9)
        if there:
            rt.moved(2 * prod(size), 5.6 if prod(size) > 30_000 else 1.2, size, BF16)
        else:
            returned(rt, 2 * prod(size), 3.1 if prod(size) > 30_000 else 1.2, size, BF16)


def shuttled(rt: Framed, fixed: bool) -> None:
    """Stable Diffusion 1.5 learns a style by adapters, diffusers' script with Accelerate on an RTX 3090, bf16, five
    pictures of 512: a script "for 8 GB" moves the frozen text encoder and the VAE to the GPU before they are called and
    back to the host behind, in each step, from memory that is not pinned; without: they stay on the GPU, which has
    room for them. Flash attention, AdamW of the adapters is fused, the loss is read each 20th step. Shapes, no rows of
    steps.

    First: copies of weights both ways in each step (pageable memory, waits). Not: the loader, launches, precision,
    attention, the optimizer, a larger batch.
    """
    tape, picture = Tape(), [SHOWN, 3, 512, 512]
    loader(rt, 210)
    pinned(rt, 4 * prod(picture), picture)
    pinned(rt, 8 * SHOWN * SAID, [SHOWN, SAID], "long int")
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    if not fixed:
        _carried(rt, "vae", True)
    for cin, cout, side in ((128, 128, 512), (128, 256, 256), (256, 512, 128), (512, 512, 64)):
        _residual(rt, None, Conv(SHOWN, cin, cout, 3, side, side))
        _residual(rt, None, Conv(SHOWN, cout, cout, 3, side, side))
    few(rt, "chunk clamp exp randn mul add mul", [SHOWN, 4, 64, 64], 3)
    if not fixed:
        _carried(rt, "vae", False)
        _carried(rt, "text_encoder", True)
    acts(rt, None, CARD, "embedding add", [SHOWN, SAID, FED])
    for _ in range(12):
        encoded(rt, CARD, [SHOWN, SAID, FED])
    if not fixed:
        _carried(rt, "text_encoder", False)
    few(rt, "randn_like randint index sqrt mul rsub sqrt mul add", [SHOWN, 4, 64, 64], 3, 16)
    for width, side in (*LEVELS, *reversed(LEVELS)):
        for _ in range(2):
            _residual(rt, tape, Conv(SHOWN, width, width, 3, side, side))
            _crossed(rt, tape, [SHOWN, side * side, width])
    acts(rt, tape, replace(CARD, kind="float"), "to sub pow mean", [SHOWN, 4, 64, 64])
    back(rt, tape)
    fused_adamw(rt, CARD, 3.2e6)
    few(rt, "detach add_", [1])
    rt.host(900)
