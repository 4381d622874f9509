"""Jobs of the twenty-first set without a fault: FlexAttention, DDP with a hook, a prefetcher, likelihoods, patches."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import L40S
from ..kineto import inputs
from ..layers import CAST, REDUCE, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventeenth_set.rows import triton
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import H100
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, NHWC, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from .host import answered

Parts = list[tuple[str, float]]
DOCUMENTS, LAYERS, WIDE, HEADS, HIDDEN, WORDS, PARAMETERS = 32_768, 28, 1_024, 16, 3_072, 151_936, 596e6
FLEX = ("triton_tem_fused_flex_attention_3", "triton_tem_fused_flex_attention_backward_9")


def _parts() -> tuple[Parts, Parts]:
    """Kernels of compiled layers of Qwen3-0.6B over packed documents, forward and backward."""
    once, product = H100.moves(2 * DOCUMENTS * WIDE), H100.names[0]
    core = H100.product(DOCUMENTS * HEADS, 2_600, 256) / 1.3  # to what a document holds, some 2,600 keys
    layer = [("triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_0", 2.3 * once),
             (product, H100.product(DOCUMENTS, 4 * WIDE, WIDE)),
             ("triton_per_fused_cat_mean_mul_neg_rsqrt_1", 6 * once), (FLEX[0], core),
             (product, H100.product(DOCUMENTS, WIDE, 2 * WIDE)),
             ("triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_4", 3.4 * once),
             (product, H100.product(DOCUMENTS, 2 * HIDDEN, WIDE)), ("triton_poi_fused_mul_silu_5", 9 * once),
             (product, H100.product(DOCUMENTS, WIDE, HIDDEN))]  # fmt: skip
    behind: Parts = []
    for name, us in reversed(layer):
        if name == product:
            behind += [(H100.names[1], us), (H100.names[1], us)]
        else:
            behind.append((FLEX[1], 2.7 * us) if name == FLEX[0] else (name.replace("_fused_", "_fused_backward_"),
                                                                       1.8 * us))  # fmt: skip
    head: Parts = []
    for _ in range(8):  # the loss by parts of the tokens, as compiled code has it
        us = H100.product(DOCUMENTS // 8, WORDS, WIDE)
        head += [(product, us), ("triton_red_fused__log_softmax_nll_loss_6", H100.moves(3 * DOCUMENTS // 8 * WORDS)),
                 ("triton_poi_fused__log_softmax_backward_data_7", H100.moves(4 * DOCUMENTS // 8 * WORDS)),
                 (H100.names[1], us), (H100.names[1], us)]  # fmt: skip
    return layer * LAYERS + head, behind * LAYERS


def _ran(rt: Framed, parts: Parts) -> None:
    for name, us in parts:
        if name.startswith("triton"):
            rt.host(4)
            triton(rt, name, us)
        else:
            rt.op("aten::mm", run=((name, us),), gap=3, us=5, kind=BF16)


def flexed(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Qwen3-0.6B from scratch on an H100, `torch.compile` of model and loss, bf16, FlexAttention by
    documents in 32,768 packed tokens, whose block mask is made by a compiled function; fused AdamW; the loss is read in
    one of four steps.

    Not: launches, waits, attention, recompiles, casts of weights, the loader, CUDA graphs.
    """
    ahead, behind = _parts()
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, DOCUMENTS * 8, [1, DOCUMENTS], "long int")
    with rt.span("TorchDynamo Cache Lookup", us=18):
        pass
    with rt.span("Torch-Compiled Region: 1/0", us=90):
        for number in range(3):
            rt.host(5)
            triton(rt, f"triton_red_fused_create_block_mask_{number}", 36)
    with rt.span("TorchDynamo Cache Lookup", us=26):
        pass
    rt.sequence += 1
    args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=60, **args),
          rt.span("## Call CompiledFxGraph fq7zx1m4c ##", "user_annotation", us=18)):  # fmt: skip
        for number in range(5):
            rt.host(4)
            triton(rt, f"triton_poi_fused__to_copy_{10 + number}", H100.moves(6 * PARAMETERS / 5))
        _ran(rt, ahead)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph fy2kd8w3e ##", "user_annotation", us=18)):  # fmt: skip
        _ran(rt, behind)
        for _ in range(20):
            rt.accumulated()
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * PARAMETERS), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * PARAMETERS), 4)
    fused_adamw(rt, H100, PARAMETERS)
    if rt.number == 2:
        answered(rt, "aten::item")
    rt.host(360)


EIGHT, SHOWN, TOKENS, LARGE = list(range(8)), 256, 197, 1_024
SCALED = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<…, DivFunctor<float>>, …>(…)"


def _hooked(rt: Framed, count: int) -> float:
    """`bf16_compress_hook`: to bf16, by the number of ranks, a reduction; what comes is copied back behind it."""
    for name, passes in (("to", 6), ("div_", 4)):
        rt.op(f"aten::{name}", run=((COPY if name == "to" else SCALED, A100.moves(passes * count)),), dims=([count],),
              gap=4)  # fmt: skip
    end = rt.collective("allreduce", 34 + count * 2 * 1.75 / 215e3, (count, count), ranks=EIGHT)
    rt.waits(COPIES, end)
    with rt.span("aten::copy_", **inputs(([count], [count]), BF16)):
        return rt.work(COPY, A100.moves(6 * count), stream=COPIES)


def hooked(rt: Framed, fixed: bool) -> None:
    """Nothing to change: ViT-L/16 in DDP on the eight A100 of a node by NVLink, rank 5, autocast in bf16,
    `static_graph` and `bf16_compress_hook`, 256 pictures each: 15 buckets travel beside the backward pass, the last is
    short; the optimizer is fused. Shapes.

    Not: communication (some 0.6 ms show), buckets, `no_sync`, casts, launches, a late rank, waits.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 5
    tape, picture, end = Tape(), [SHOWN, 3, 224, 224], 0.0
    loader(rt, 190)
    pinned(rt, prod(picture), picture, "unsigned char")
    pinned(rt, SHOWN * 8, [SHOWN], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for name, passes in (("to", 3), ("sub_", 4), ("div_", 4)):
            us = A100.moves(passes * prod(picture))
            rt.op(f"aten::{name}", run=((kernel(name, 2, BF16), us),), dims=(picture,), gap=12)
        dense(rt, tape, A100, SHOWN, (SHOWN * 196, 768, LARGE))
        small(rt, tape, ("cat", "add"), [SHOWN, TOKENS, LARGE], A100.moves(4 * SHOWN * TOKENS * LARGE))
        for _ in range(24):
            casts(rt, A100, [3 * LARGE, LARGE], [LARGE, LARGE], [4 * LARGE, LARGE], [LARGE, 4 * LARGE])
            encoder(rt, tape, A100, (SHOWN, TOKENS, LARGE))
        norm(rt, tape, A100, [SHOWN, TOKENS, LARGE])
        linear(rt, tape, A100, [SHOWN, 1, LARGE], 1_000)
    small(rt, tape, ("log_softmax", "nll_loss"), [SHOWN, 1_000], 6)
    part, count = len(tape) // 14, 304_000_000 // 14
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % part == 0 and len(tape) >= part:
                end = _hooked(rt, count)
        end = _hooked(rt, 1_800_000)
    rt.waits(MAIN, end)
    fused_adamw(rt, A100, 304e6)
    rt.host(300)


LOOK = Look(replace(L40S, names=ADA.card.names), ADA.names, NHWC, True)
PICTURES = 256


def prefetcher(rt: Framed, fixed: bool) -> None:
    """Nothing to change: ResNet-50 by timm on an L40S, AMP, channels_last, 256 pictures: its prefetcher copies the next
    batch as bytes from pinned memory and makes it float16 on a stream of its own; cuDNN's kernels are NHWC.
    `GradScaler` waits once a step, the loss is read in one of six. No shapes.

    Not: the loader, copies, the layout, `GradScaler`'s wait, launches, SGD by lists (1 % of a step).
    """
    picture, came = [PICTURES, 3, 224, 224], rt.free.get(COPIES, 0.0)
    loader(rt, 230)
    pinned(rt, prod(picture), picture, "unsigned char", stream=COPIES)
    pinned(rt, PICTURES * 8, [PICTURES], "long int", stream=COPIES)
    for name, passes in (("to", 3), ("sub_", 4), ("div_", 4)):
        rt.host(9)
        with rt.span(f"aten::{name}", us=6):
            rt.work(kernel(name, 2), LOOK.card.moves(passes * prod(picture)), stream=COPIES)
    if came:
        rt.waits(MAIN, came)
    tape: Tape = []
    resnet(rt, tape, LOOK, PICTURES, (7, 7))
    small(rt, tape, ("mean",), [PICTURES, 2_048, 7, 7], LOOK.card.moves(4 * PICTURES * 2_048 * 49))
    dense(rt, tape, LOOK.card, PICTURES, (PICTURES, 2_048, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [PICTURES, 1_000], 6)
    back(rt, tape)
    unscaled(rt, LOOK.card, 25.6e6)
    sgd(rt, LOOK.card, 25.6e6)
    if rt.number == 3:
        rt.value()
    rt.host(330)


TEXTS, LONG, MISTRAL = 4, 2_048, (4, 2_048, 4_096, 8, 14_336)


def likelihoods(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Mistral-7B in bf16 on an A100, an evaluation by lm-eval-harness without gradients: requests
    are sorted by length and padded, four of 2,048 a batch; the logits of answers, their log-softmax, sums and greedy
    tokens stay on the GPU until two small values of each text are read at a batch's end, once in 0.65 s. No rows of
    steps.

    Not: waits (2 of a batch), launches, `no_grad`, copies of 32 bytes, the loader, quantization.
    """
    x = list(MISTRAL[:3])
    rt.host(1_900)
    with without_graph(rt):
        pinned(rt, TEXTS * LONG * 8, x[:2], "long int")
        rt.op("aten::embedding", run=((REDUCE, A100.moves(4 * prod(x))),), gap=16, dims=([32_768, x[2]], x[:2]))
        for _ in range(32):
            llama(rt, [], A100, MISTRAL, fused_norm)
        fused_norm(rt, [], A100, x)
        linear(rt, [], A100, x, 32_768)
        dims = [TEXTS, LONG, 32_768]
        for name, passes in (("to", 6), ("log_softmax", 8)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), A100.moves(passes * prod(dims))),), dims=(dims,), gap=16)
        for _ in range(TEXTS):
            small(rt, None, ("slice", "argmax", "eq", "all", "gather", "sum"), [1, 96, 32_768], 9)
        small(rt, None, ("stack", "stack"), [TEXTS], 2.6)
        for _ in range(2):
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(4 * TEXTS, "DtoH", "Pageable", waits=True)
    rt.host(1_200)


CROPS, SIDE, CHANNELS, BLOCKS = 16, 96, 256, 32
EDSR = Look(replace(ADA.card, kind=BF16), tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),
            NHWC, True)  # type: ignore[arg-type]  # fmt: skip
CUT = ("torch/utils/data/dataloader.py(733): __next__", "torch/utils/data/dataloader.py(789): _next_data")
DRAWN: tuple[tuple[str, float], ...] = (
    ("edsr/data/patches.py(64): random_crop", 93_000), ("edsr/data/patches.py(88): augment", 51_000),
    ("torch/utils/data/_utils/collate.py(398): default_collate", 26_000),
)  # fmt: skip


def _drawn(rt: Framed) -> None:
    """Crops of pictures that lie in memory, turned and mirrored by numpy in the loop itself, and pinned."""
    with (rt.frame(*CUT),
          rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation")):  # fmt: skip
        for name, us in DRAWN:
            with rt.frame(name):
                rt.now += rt.vary(us, 0.1)
        with rt.frame("torch/utils/data/_utils/pin_memory.py(57): pin_memory",
                      "<method 'pin_memory' of 'torch._C.TensorBase' objects>"):  # fmt: skip
            rt.op("aten::pin_memory", "aten::_pin_memory", us=900)


def patches(rt: Framed, fixed: bool) -> None:
    """Nothing to change: EDSR on an RTX 4090, autocast in bf16, channels_last: the loop itself cuts and turns crops by
    numpy, 170 ms a step, and launches in 12, but nothing waits for the GPU, which has a step's work queued all the time
    (launches wait for room instead). The loss is summed on the GPU. Stacks.

    Not: the loader's 170 ms (`num_workers`), what the host does, launches, waits, the batch.
    """
    tape: Tape = []
    _drawn(rt)
    for side in (SIDE, 2 * SIDE):
        pinned(rt, 4 * CROPS * 3 * side**2, [CROPS, 3, side, side])
    with rt.frame("edsr/train.py(52): train", "nn.Module: EDSR_0"):
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, 6),), gap=9, dims=([CROPS, 3, SIDE, SIDE],))
        conv(rt, tape, EDSR, Conv(CROPS, 3, CHANNELS, 3, SIDE, SIDE))
        for number in range(BLOCKS):
            with rt.frame(f"nn.Module: ResBlock_{number}"):
                size = [CROPS, CHANNELS, SIDE, SIDE]
                conv(rt, tape, EDSR, Conv(CROPS, CHANNELS, CHANNELS, 3, SIDE, SIDE))
                elementwise(rt, tape, EDSR.card, "relu_", size, back=(("threshold_backward", 3),))
                conv(rt, tape, EDSR, Conv(CROPS, CHANNELS, CHANNELS, 3, SIDE, SIDE))
                elementwise(rt, tape, EDSR.card, "mul", size, back=(("mul", 2),))
                elementwise(rt, tape, EDSR.card, "add", size, 2)
        conv(rt, tape, EDSR, Conv(CROPS, CHANNELS, 4 * CHANNELS, 3, SIDE, SIDE))
        us = EDSR.card.moves(4 * CROPS * 4 * CHANNELS * SIDE**2)
        small(rt, tape, ("pixel_shuffle",), [CROPS, 4 * CHANNELS, SIDE, SIDE], us)
        conv(rt, tape, EDSR, Conv(CROPS, CHANNELS, 3, 3, 2 * SIDE, 2 * SIDE))
    small(rt, tape, ("sub", "abs", "mean"), [CROPS, 3, 2 * SIDE, 2 * SIDE], 14)
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    with rt.frame("torch/optim/optimizer.py(484): wrapper"):
        fused_adamw(rt, EDSR.card, 40.7e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(300)
