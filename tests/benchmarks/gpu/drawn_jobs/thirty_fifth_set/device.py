"""Jobs of the thirty-fifth set whose device does more than it must: products in fp32 since nothing else was said, a
validation that keeps what a backward pass would need, attention between texts that have nothing to do with each other.
"""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import DEPTHWISE, pinned
from ..eleventh_set.rows import COPY, Roofline, kernel, linear
from ..fifteenth_set.rows import sdpa
from ..kineto import inputs
from ..layers import CAST, Card, Tape, back, fused_adamw
from ..seventh_set import BF16
from ..tenth_set.jobs import NVJET
from ..thirty_first_set.rows import Told, timed
from ..thirty_second_set.rows import NHWC, NORM_NHWC
from ..thirty_third_set.rows import HEADS_128, batch_of, wide
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import SGEMM
from ..twelfth_set.rows import Conv, Framed, Look, loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import KNOWN, acts, few
from .rows import Taking

ASKED, LENGTH, MODEL, FED, KEYS, DEEP, PIECES = 4, 512, 3_584, 18_944, 512, 28, 152_064
A6000 = wide(104, 650, AMPERE, HEADS_128)
FLOATS = Card(23, 650, "float", SGEMM, ("", ""))
NF4 = "void kDequantizeBlockwise<{}, 512, 64, 8, 2>(float*, unsigned char*, float*, {}*, int, int)"


def _four(rt: Framed, fixed: bool, x: list[int], out: int) -> None:
    """`Linear4bit`: to the compute dtype, weights are unpacked, a product, back."""
    card, name = (A6000, "__nv_bfloat16") if fixed else (FLOATS, "float")
    tokens, given = prod(x[:-1]), x[-1]
    rt.host(16)
    if not fixed:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(x,), kind=BF16, gap=4, run=(
            (CAST, A6000.moves(6 * prod(x))),))  # fmt: skip
    with rt.span("MatMul4Bit", us=24):
        rt.host(14)
        rt.op("bitsandbytes::dequantize_4bit", us=14, gap=4, dims=([out * given // 2, 1],), kind="unsigned char", run=(
            (NF4.format(name, name), A6000.moves((0.57 + card.size) * out * given)),))  # fmt: skip
        with rt.span("aten::linear", us=6, **inputs((x, [out, given]), card.kind)):
            rt.op("aten::t", "aten::transpose", gap=0, us=1)
            rt.op("aten::matmul", "aten::mm", run=((card.names[0], card.product(tokens, out, given)),), gap=0, us=5,
                  kind=card.kind, dims=([tokens, given], [given, out]))  # fmt: skip
    if not fixed:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=([*x[:-1], out],), gap=4, run=(
            (CAST, A6000.moves(6 * tokens * out)),))  # fmt: skip


def _rms(rt: Framed, x: list[int]) -> None:
    """`Qwen2RMSNorm`, op by op in fp32."""
    n = prod(x)
    for name, passes in (("to", 6), ("pow", 8), ("mean", 4), ("add", 0), ("rsqrt", 0), ("mul", 8), ("to", 6),
                         ("mul", 4)):  # fmt: skip
        if name == "to":
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, A6000.moves(passes * n)),), dims=(x,), gap=5,
                  kind=BF16)  # fmt: skip
            continue
        small = [*x[:-1], 1] if not passes else x
        rt.op(f"aten::{name}", run=((kernel(name, 2), A6000.moves(passes * n)),), dims=(small,), gap=5)


def _told(rt: Framed) -> None:
    """Logits become logarithms; of each request the harness reads their sum and whether the answer is the likeliest."""
    size = [ASKED, LENGTH, PIECES]
    n = prod(size)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, A6000.moves(6 * n)),), dims=(size,), kind=BF16)
    rt.op("aten::log_softmax", "aten::_log_softmax", dims=(size,), gap=9, run=(
        (KNOWN["logsumexp"].run.replace("{k}", "float"), A6000.moves(8 * n)),))  # fmt: skip
    for _ in range(ASKED):
        rt.host(60)
        few(rt, "slice slice unsqueeze argmax", [1, 12, PIECES], 9.0)
        few(rt, "eq all", [1, 12])
        few(rt, "gather squeeze sum", [1, 12])
        rt.value()
        rt.value()
        rt.host(120)


def fourbit(rt: Told, fixed: bool) -> None:
    """Qwen2.5 7B answers multiple choice by lm-eval's harness on an RTX A6000, its weights in four bits by
    bitsandbytes, four requests of 512 words at once: `load_in_4bit=True` without `bnb_4bit_compute_dtype`, whose
    default is fp32, so that weights are unpacked to fp32 and all products of layers run on the CUDA cores; without:
    `bnb_4bit_compute_dtype=torch.bfloat16`. Words come from the host, logarithms of each request are read. Shapes, no
    rows of steps: a step is a batch.

    First: products in fp32 (the compute dtype, or at least TF32). Not: the reads of each request, copies, launches,
    attention, unpacking, a larger batch; casts only beside it.
    """
    x, wider, heads = [ASKED, LENGTH, MODEL], [ASKED, LENGTH, FED], [ASKED, 28, LENGTH, 128]
    rt.causal = True
    rt.host(1_700)
    rt.moved(8 * ASKED * LENGTH, 4.6, x[:2], "long int")
    acts(rt, None, A6000, "embedding", x)
    few(rt, "bmm cat cos sin to to", [1, LENGTH, 128], 2.6)
    for _ in range(DEEP):
        _rms(rt, x)
        for out in (MODEL, KEYS, KEYS):
            _four(rt, fixed, x, out)
            acts(rt, None, A6000, "add", [*x[:2], out], gap=5)
        for size in (heads, [ASKED, 4, LENGTH, 128]):
            acts(rt, None, A6000, "mul neg cat mul add", size, gap=5)
        for _ in range(2):
            acts(rt, None, A6000, "turn", heads, gap=6)
        sdpa(rt, A6000, heads, LENGTH, causal=2.0)
        _four(rt, fixed, x, MODEL)
        acts(rt, None, A6000, "add", x)
        _rms(rt, x)
        for name in ("silu", "mul"):
            _four(rt, fixed, x, FED)
            acts(rt, None, A6000, name, wider)
        _four(rt, fixed, wider, MODEL)
        acts(rt, None, A6000, "add", x)
    _rms(rt, x)
    linear(rt, [], A6000, x, PIECES)
    _told(rt)
    rt.host(2_300)


VIEWS, SIDE, KINDS = 40, 384, 1_203
A100 = Roofline(180, 1_450, BF16, AMPERE, ("", ""))
LOOK = Look(A100, (NHWC[0], NHWC[1], NHWC[2]), NORM_NHWC)
STAGES = ((2, 24, 24, 1, 1), (4, 24, 48, 4, 2), (4, 48, 64, 4, 2))  # blocks, in, out, grown, stride: fused ones
DEEPER = ((6, 64, 128, 4, 2), (9, 128, 160, 6, 1), (15, 160, 256, 6, 2))  # those with depthwise convolutions


def _conv(rt: Taking, of: Conv, *, graph: bool, act: bool = True, each: bool = False) -> None:
    """A convolution under autocast, its batch norm as validation has it, SiLU."""
    x, weight, y = of.dims
    n, kind = prod(y), BF16
    more = {"made": y, "graph": graph, "kind": kind}
    cast = ((CAST, A100.moves(6 * prod(weight) / (of.cin if each else 1))),)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=cast, dims=(weight,), gap=4, us=3, graph=graph)
    if each:
        run = ((DEPTHWISE.format("forward"), A100.moves(5 * n)),)
        rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::_conv_depthwise2d", run=run, gap=9,
              dims=(x, [of.cout, 1, of.side, of.side]), **more)  # fmt: skip
    else:
        rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=9, dims=(
            x, weight), run=((LOOK.names[0], of.us(A100)),), **more)  # fmt: skip
    name = "void at::native::batch_norm_transform_input_channels_last_kernel<4, c10::BFloat16, float, float>(…)"
    rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", gap=11, dims=(y,),
          run=((name, A100.moves(4 * n)),), graph=graph, kind=kind)  # fmt: skip
    if act:
        rt.op("aten::silu", run=((kernel("silu", 2, kind), A100.moves(4 * n)),), gap=5, dims=(y,), graph=graph,
              kind=kind)  # fmt: skip


def _block(rt: Taking, sizes: tuple[int, int, int], side: int, *, fused: bool, graph: bool, stride: int) -> None:
    """MBConv, or its fused form."""
    given, out, grown = sizes
    wide_of = given * grown
    if fused:
        _conv(rt, Conv(VIEWS, given, wide_of, 3, side, side), graph=graph)
        if grown > 1:
            _conv(rt, Conv(VIEWS, wide_of, out, 1, side, side), graph=graph, act=False)
    else:
        _conv(rt, Conv(VIEWS, given, wide_of, 1, side * stride, side * stride), graph=graph)
        _conv(rt, Conv(VIEWS, wide_of, wide_of, 3, side, side), graph=graph, each=True)
        y, thin = [VIEWS, wide_of, side, side], [VIEWS, given // 4, 1, 1]
        rt.op("aten::mean", run=((kernel("mean", 1), A100.moves(2 * prod(y))),), dims=(y,), kind=BF16, gap=7)
        for size, name in ((thin, "silu"), ([VIEWS, wide_of, 1, 1], "sigmoid")):
            rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", dims=(
                [VIEWS, 4 * given, 1, 1], [size[1], 4 * given, 1, 1]), run=((LOOK.names[0], 5.2),), kind=BF16,
                gap=9)  # fmt: skip
            few(rt, f"add_ {name}", size, 2.3)
        rt.op("aten::mul", run=((kernel("mul", 2, BF16), A100.moves(4 * prod(y))),), dims=(y,), kind=BF16, gap=5,
              graph=graph)  # fmt: skip
        _conv(rt, Conv(VIEWS, wide_of, out, 1, side, side), graph=graph, act=False)
    if given == out:
        y = [VIEWS, out, side, side]
        rt.op("aten::add", run=((kernel("add", 3, BF16), A100.moves(6 * prod(y))),), dims=(y, y), kind=BF16, gap=5,
              graph=graph)  # fmt: skip


def hoarded(rt: Taking, fixed: bool) -> None:
    """EfficientNetV2-S is validated on beetles by a plain loop on an A100, autocast in bf16, channels_last, 40 pictures
    of 384: `model.eval()` but no `torch.no_grad()`, and the losses are collected in a list, so that the activations of
    each batch stay until the end of the validation, eight batches that have room, and most of what an op writes is
    asked of the driver by `cudaMalloc`, which takes longer than the op; without: `torch.no_grad()`. Pictures come
    pinned, nothing is read. Shapes, memory.

    First: memory that is taken anew in each batch and never given back (`no_grad`, or `inference_mode`). Not: the
    loader, copies, waits, precision, the layout, a setting of the allocator, a larger batch; launches at most
    beside it.
    """
    rt.last, rt.stays, graph = True, not fixed, not fixed
    picture, side = [VIEWS, 3, SIDE, SIDE], SIDE // 2
    loader(rt, 210)
    pinned(rt, prod(picture), picture, "unsigned char")
    for name, passes in (("to", 3), ("sub", 4), ("div", 4)):
        few(rt, name, picture, A100.moves(passes * prod(picture)))
    pinned(rt, 8 * VIEWS, [VIEWS], "long int")
    _conv(rt, Conv(VIEWS, 3, 24, 3, side, side), graph=graph)
    for fused, stages in ((True, STAGES), (False, DEEPER)):
        for count, given, out, grown, stride in stages:
            side //= stride
            for turn in range(count):
                _block(rt, (out if turn else given, out, grown), side, fused=fused, graph=graph,
                       stride=1 if turn else stride)  # fmt: skip
    _conv(rt, Conv(VIEWS, 256, 1_280, 1, side, side), graph=graph)
    few(rt, "mean", [VIEWS, 1_280, side, side], 6.0)
    few(rt, "addmm", [VIEWS, 1_280], 6.4)
    few(rt, "log_softmax nll_loss argmax eq sum add_", [VIEWS, KINDS], 3.0)
    rt.host(340)


BATCH, ROW, BROAD, GATED, SHARED, LAYERS, WORDS, EACH = 2, 8_192, 1_536, 8_960, 256, 28, 151_936, 820
H100 = wide(440, 2_650, NVJET, HEADS_128)
MASKED = ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<bfloat16_t, …>::Params)",
          "fmha_cutlassB_bf16_aligned_128x128_k128_dropout_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<…>)",
          )  # fmt: skip
VARLEN = ("void flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<…, (Varlen) true, …>>(…)",
          "void flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<…, (Varlen) true, …>>(…)")  # fmt: skip
Y = [BATCH, ROW, BROAD]


def _between(rt: Framed, tape: Tape, fixed: bool) -> None:
    """Attention within texts: all of the row with a mask, or each text by itself."""
    heads = [BATCH, BROAD // 128, ROW, 128]
    full = 4 * BATCH * ROW * ROW * BROAD / 1e6  # operations of the whole row, forward
    if fixed:
        lasts = full * EACH / ROW * 1.35 / 2 / 330
        flat = [BATCH * ROW, BROAD // 128, 128]
        number = rt.op("flash_attn::_flash_attn_varlen_forward", run=((VARLEN[0], lasts),), dims=(flat,) * 3, us=26,
                       kind=BF16, graph=True, gap=30)  # fmt: skip
        tape.append(
            lambda: rt.grad(
                "FlashAttnVarlenFuncBackward",
                number,
                "flash_attn::_flash_attn_varlen_backward",
                run=((VARLEN[1], 2.8 * lasts),),
                us=24,
                dims=(flat,) * 4,
                kind=BF16,
            )
        )
        return
    outer, lasts = "aten::_scaled_dot_product_efficient_attention", full / 150
    number = rt.op(
        "aten::scaled_dot_product_attention",
        outer,
        "aten::_efficient_attention_forward",
        gap=14,
        kind=BF16,
        run=((MASKED[0], lasts),),
        dims=(heads, heads, heads, [BATCH, 1, ROW, ROW]),
        graph=True,
    )
    tape.append(lambda: rt.grad("ScaledDotProductEfficientAttentionBackward0", number, outer + "_backward",
                                run=((MASKED[1], 2.9 * lasts),), us=12, dims=(heads,) * 4, kind=BF16))  # fmt: skip


def packmask(rt: Told, fixed: bool) -> None:
    """Qwen2.5 1.5B learns answers of a help desk by a loop of its owner's own on an H100, all in bf16, two rows of
    8,192 packed of texts of some 820: a mask of 8,192 x 8,192 for each row keeps the texts apart, so that SDPA takes
    the memory-efficient kernel and computes scores between all texts, nine tenths of which the mask strikes out;
    without: FlashAttention with lengths of texts (`flash_attn_varlen_func`, as transformers does by positions). Norms,
    rotations, gates and the loss are Liger's kernels, AdamW is fused, clipped by lists, the loss is read each 20th
    step. Shapes.

    First: attention (lengths instead of a mask). Not: precision, the loader, copies, waits, launches, the optimizer,
    recomputation, a larger batch.
    """
    tape, wider = Tape(), [BATCH, ROW, GATED]
    once, more = H100.moves(2 * prod(Y)), H100.moves(2 * prod(wider))
    loader(rt, 190)
    batch_of(rt, (Y[:2], "long int"), (Y[:2], "long int"), (Y[:2], "long int"))
    if not fixed:
        for name in ("eq", "tril", "bitwise_and", "where"):
            few(rt, name, [BATCH, 1, ROW, ROW], H100.moves(BATCH * ROW * ROW * (3 if name == "where" else 2)))
    acts(rt, tape, H100, "embedding", Y)
    for _ in range(LAYERS):
        timed(rt, tape, "LigerRMSNormFunction", ("_rms_norm_forward_kernel", 2 * once),
              ("_rms_norm_backward_kernel", 3.2 * once), Y, BF16, gap=16)  # fmt: skip
        for out in (BROAD, SHARED, SHARED):
            linear(rt, tape, H100, Y, out)
        timed(rt, tape, "LigerRopeFunction", ("_triton_rope", 2.6 * once), ("_triton_rope", 2.6 * once), Y, BF16,
              gap=24)  # fmt: skip
        _between(rt, tape, fixed)
        linear(rt, tape, H100, Y, BROAD)
        acts(rt, tape, H100, "add", Y)
        timed(rt, tape, "LigerRMSNormFunction", ("_rms_norm_forward_kernel", 2 * once),
              ("_rms_norm_backward_kernel", 3.2 * once), Y, BF16, gap=16)  # fmt: skip
        for _ in range(2):
            linear(rt, tape, H100, Y, GATED)
        timed(rt, tape, "LigerSiLUMulFunction", ("_swiglu_forward_kernel", 3 * more),
              ("_swiglu_backward_kernel", 5 * more), wider, BF16, gap=16)  # fmt: skip
        linear(rt, tape, H100, wider, BROAD)
        acts(rt, tape, H100, "add", Y)
    timed(rt, tape, "LigerRMSNormFunction", ("_rms_norm_forward_kernel", 2 * once),
          ("_rms_norm_backward_kernel", 3.2 * once), Y, BF16, gap=16)  # fmt: skip
    linear(rt, tape, H100, Y, WORDS)
    us = H100.moves(2 * BATCH * ROW * WORDS)
    timed(rt, tape, "LigerCrossEntropyFunction", ("liger_cross_entropy_kernel", 3 * us), ("element_mul_kernel", 2 * us),
          [BATCH * ROW, WORDS], BF16, gap=20)  # fmt: skip
    back(rt, tape)
    clipped(rt, H100, 1.54e9, 4, 2)
    fused_adamw(rt, H100, 1.54e9 / 2)
    few(rt, "detach add_", [1])
    rt.host(300)
