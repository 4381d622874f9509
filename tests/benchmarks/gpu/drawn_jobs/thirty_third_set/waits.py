"""Jobs of the thirty-third set whose loop waits for the GPU: padding that each layer takes away anew, a score that is
read picture by picture and class by class.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import COPY, FILL, elementwise, linear, node
from ..layers import CAST, REDUCE, Tape, back, dense, fused_adamw, norm
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from ..thirty_first_set.rows import Told
from ..thirty_second_set.rows import look
from ..twelfth_set.language import AMPERE
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import PLAIN, acts, few
from .rows import blocking, counted, filled, unfinite, wide

TALKS, LENGTH, WIDE, FED, DEEP, WORDS, HEADS = 4, 512, 2_048, 5_632, 24, 100_352, 32
X, TOKENS = [TALKS, LENGTH, WIDE], TALKS * LENGTH
FLAT = [TOKENS, HEADS, 64]
VARLEN = ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>, false, "
          "true, false, false, false, true, false, false>(Flash_fwd_params)",
          "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, "
          "false, cutlass::bfloat16_t>, false, true, false, false, false, true, false>(Flash_bwd_params)",
          )  # fmt: skip
GATHERED = "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::…gather…<c10::BFloat16>>(…)"
PUT = "void at::native::index_elementwise_kernel<128, 4, at::native::index_put_kernel_impl<at::native::OpaqueType<2>>>"


def _without_padding(rt: Framed, tape: Tape) -> None:
    """`_upad_input` of one layer: lengths, where words are, the longest, then queries, keys and values without gaps."""
    few(rt, "sum", [TALKS, LENGTH], 2.6)
    counted(rt, [TOKENS])
    few(rt, "max", [TALKS], 2.6)
    rt.value()
    few(rt, "cumsum", [TALKS], 2.4)
    rt.op("aten::pad", "aten::constant_pad_nd", run=((FILL, 2.2), (COPY, 2.2)), dims=([TALKS],), kind="int", gap=6)
    us = H100.moves(4 * prod(FLAT))
    for _ in range(3):
        number = rt.op("IndexFirstAxis", "aten::gather", run=((GATHERED, 1.6 * us),), dims=(FLAT, [TOKENS]), us=9,
                       graph=True, gap=16, kind=BF16)  # fmt: skip

        def backward(number: int = number) -> None:
            with node(rt, "IndexFirstAxisBackward", number):
                filled(rt, FLAT, us / 2)
                rt.op("aten::scatter_", run=((GATHERED.replace("gather…", "scatter…"), 1.8 * us),), dims=(FLAT,),
                      kind=BF16, gap=4)  # fmt: skip

        tape.append(backward)


def _with_padding(rt: Framed, tape: Tape) -> None:
    """`pad_input`: what attention said goes back to its place."""
    us = H100.moves(4 * prod(FLAT))
    filled(rt, FLAT, us / 2)
    number = rt.op("IndexPutFirstAxis", "aten::index_put_", run=((PUT, 1.6 * us),), dims=(FLAT, FLAT), us=9, graph=True,
                   gap=9, kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("IndexPutFirstAxisBackward", number, "aten::index", dims=(FLAT,), kind=BF16, run=(
        (PLAIN["index"], 1.6 * us),)))  # fmt: skip


def _attended(rt: Framed, tape: Tape) -> None:
    """`flash_attn_varlen_func`."""
    us = H100.product(TALKS * HEADS * LENGTH, LENGTH, 128) / 0.8
    number = rt.op("FlashAttnVarlenFunc", "flash_attn::_flash_attn_varlen_forward", run=((VARLEN[0], us),), graph=True,
                   gap=24, us=14, dims=(FLAT,) * 3, kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("FlashAttnVarlenFuncBackward", number, "flash_attn::_flash_attn_varlen_backward", us=16,
                                run=((VARLEN[1], 2.5 * us),), dims=(FLAT,) * 4, kind=BF16))  # fmt: skip


def _layer(rt: Framed, tape: Tape, fixed: bool) -> None:
    """StableLM: a quarter of each head turns with its place."""
    rt.host(70)  # what transformers does around a layer
    norm(rt, tape, H100, X)
    for _ in range(3):
        dense(rt, tape, H100, TALKS, (TOKENS, WIDE, WIDE))
    for _ in range(2):
        part = [TALKS, HEADS, LENGTH, 16]
        few(rt, "slice slice", part, gap=4)
        for name in ("mul", "neg", "cat", "mul", "add"):
            elementwise(rt, tape, H100, name, part, 2 if name != "neg" else 1,
                        () if name in ("add", "cat") else ((name, 3),))  # fmt: skip
        acts(rt, tape, H100, "cat", X)
    if not fixed:
        _without_padding(rt, tape)
    _attended(rt, tape)
    if not fixed:
        _with_padding(rt, tape)
    linear(rt, tape, H100, X, WIDE)
    acts(rt, tape, H100, "add", X)
    norm(rt, tape, H100, X)
    for _ in range(2):
        linear(rt, tape, H100, X, FED)
    acts(rt, tape, H100, "silu mul", [TALKS, LENGTH, FED])
    linear(rt, tape, H100, [TALKS, LENGTH, FED], WIDE)
    acts(rt, tape, H100, "add", X)


def stablelm(rt: Told, fixed: bool) -> None:
    """StableLM 2 (1.6B) is tuned on a shop's talks by TRL's `SFTTrainer` on an H100, all in bf16, four talks of some
    512 words, by `group_by_length` nearly without padding: with `flash_attention_2` and a mask of padding each of 24
    layers counts the words anew, the host waits twice in each (`nonzero`, `.item()`) and gathers queries, keys and
    values; without: `DataCollatorWithFlattening(return_flash_attn_kwargs=True)`, lengths come from the host. AdamW is
    fused, clipped by lists, the loss is compiled, logged each 25th step. Shapes.

    First: waits of each layer in the forward pass. Not: the Trainer's two reads alone, the loader, copies, precision,
    the optimizer; launches and a larger batch at most beside it.
    """
    tape = Tape()
    loader(rt, 210)
    for _ in range(3):
        blocking(rt, 8 * TOKENS, X[:2])
    acts(rt, tape, H100, "embedding", X)
    for _ in range(DEEP):
        _layer(rt, tape, fixed)
    norm(rt, tape, H100, X)
    linear(rt, tape, H100, X, WORDS)
    compiled_loss(rt, tape, H100, TOKENS, WORDS)
    back(rt, tape)
    unfinite(rt)
    total = DEEP * (4 * WIDE**2 + 3 * WIDE * FED) + 2 * WORDS * WIDE
    clipped(rt, H100, total, 4, 2)
    fused_adamw(rt, H100, total / 2)
    few(rt, "add_", [1])
    rt.host(520)


EYES, SIDE, LESIONS = 10, 512, 5
A4000 = wide(37, 385, AMPERE)
WHOLE = replace(A4000, kind="float")
LOOK = look(A4000)
MAPS = [EYES, LESIONS, SIDE, SIDE]
ONE = [SIDE, SIDE]


def _unet(rt: Framed, tape: Tape) -> None:
    """ResNet-34 down, five blocks up."""
    conv_norm(rt, tape, LOOK, Conv(EYES, 3, 64, 7, SIDE // 2, SIDE // 2))
    side, given = SIDE // 4, 64
    acts(rt, tape, A4000, "max_pool2d", [EYES, 64, side, side])
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        side = side if width == 64 else side // 2
        for _ in range(blocks):
            with rt.frame("torchvision/models/resnet.py(89): forward", f"nn.Module: BasicBlock_{blocks}"):
                conv_norm(rt, tape, LOOK, Conv(EYES, given, width, 3, side, side))
                conv_norm(rt, tape, LOOK, Conv(EYES, width, width, 3, side, side))
                if given != width:
                    conv_norm(rt, tape, LOOK, Conv(EYES, given, width, 1, side, side))
                elementwise(rt, tape, A4000, "add_", [EYES, width, side, side], 2)
            given = width
    for came, width in ((256, 256), (128, 128), (64, 64), (64, 32), (0, 16)):
        side *= 2
        with rt.frame("segmentation_models_pytorch/decoders/unet/decoder.py(52): forward", "nn.Module: DecoderBlock"):
            acts(rt, tape, A4000, "upsample", [EYES, given, side, side])
            if came:
                acts(rt, tape, A4000, "cat", [EYES, given + came, side, side])
            conv_norm(rt, tape, LOOK, Conv(EYES, given + came, width, 3, side, side))
            conv_norm(rt, tape, LOOK, Conv(EYES, width, width, 3, side, side))
        given = width
    conv(rt, tape, LOOK, Conv(EYES, 16, LESIONS, 3, SIDE, SIDE))


def _dice(rt: Framed) -> None:
    """`for i in range(len(pred)): for c in range(5): if target[i, c].sum() == 0: continue; …; scores[c].append(
    dice.item())`.
    """
    us = WHOLE.moves(4 * prod(ONE))
    read = "<method 'item' of 'torch._C.TensorBase' objects>"
    for eye in range(EYES):
        for lesion in range(LESIONS):
            few(rt, "select select select select", ONE, gap=4)
            few(rt, "sum eq", ONE, us)
            with rt.frame("<method '__bool__' of 'torch._C.TensorBase' objects>"):
                rt.value("aten::is_nonzero")
            if (eye * 3 + lesion * 5) % 7 == 0:
                continue  # no such lesion in this eye
            few(rt, "mul", ONE, 3 * us)
            rt.op("aten::sum", run=((REDUCE, us + 1.5),), dims=(ONE,), gap=5)
            few(rt, "mul add", [], 2.2, gap=5)
            for _ in range(2):
                rt.op("aten::sum", run=((REDUCE, us + 1.5),), dims=(ONE,), gap=5)
            few(rt, "add add div", [], 2.2, gap=5)
            with rt.frame(read):
                rt.value()
            rt.host(5)


def fundus(rt: Told, fixed: bool) -> None:
    """A U-Net on ResNet-34 (segmentation_models_pytorch) learns five lesions of the eye by a plain loop on an RTX
    A4000, autocast in bf16, channels_last, ten pictures of 512: after each step a Dice score is read from the GPU eye
    by eye and lesion by lesion, some 90 waits with a few small kernels each, while nothing else is queued; without:
    sums over eyes and lesions at once, kept on the GPU. Batches come pinned, AdamW is fused, the loss is summed on the
    GPU. Shapes, stacks, no rows of steps.

    First: waits for single scores after each step (or the loop). Not: the loader, copies, the layout, precision, the
    optimizer, a larger batch; launches at most beside the waits.
    """
    rt.last = True
    tape, picture = Tape(), [EYES, 3, SIDE, SIDE]
    with rt.frame("train_lesions.py(88): train_epoch"):
        loader(rt, 220)
        pinned(rt, 4 * prod(picture), picture)
        pinned(rt, 4 * prod(MAPS), MAPS)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A4000.moves(6 * prod(picture))),),
              dims=(picture,))  # fmt: skip
        few(rt, "clone", picture, A4000.moves(4 * prod(picture)))
        with rt.frame("segmentation_models_pytorch/base/model.py(59): forward", "nn.Module: Unet_0"):
            _unet(rt, tape)
        acts(rt, tape, WHOLE, "to", MAPS)
        acts(rt, tape, WHOLE, "clamp mul sub exp log add mean", MAPS)
        with rt.frame("torch/_tensor.py(581): backward"):
            back(rt, tape)
        fused_adamw(rt, A4000, 24.4e6)
        few(rt, "detach add_", [1])
        for name in ("sigmoid", "gt", "to"):
            few(rt, name, MAPS, WHOLE.moves(8 * prod(MAPS)))
        if fixed:
            few(rt, "mul", MAPS, WHOLE.moves(12 * prod(MAPS)))
            few(rt, "sum sum sum", MAPS, WHOLE.moves(4 * prod(MAPS)))
            few(rt, "mul add add add div sum add_", [EYES, LESIONS])
        else:
            with rt.frame("train_lesions.py(47): dice_per_lesion"):
                _dice(rt)
        rt.host(310)
