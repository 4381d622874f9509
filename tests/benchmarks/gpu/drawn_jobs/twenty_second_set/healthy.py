"""Jobs of the twenty-second set without a fault: a compiled encoder, DDP on V100, a UNet, graphs that rank, depths."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, graphed, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import elementwise, foreach, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import V100, Third
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventeenth_set.rows import triton
from ..seventh_set import BF16
from ..sixteenth_set.rows import A10_HALF
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import A100, AMPERE
from ..twelfth_set.pictures import HALF, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader
from ..twenty_first_set.host import ADA_BF16, answered

Parts = list[tuple[str, float]]
TOKENS, LAYERS, WIDE, HIDDEN, WORDS, PARAMETERS = 24_576, 22, 768, 1_152, 50_368, 149e6
LOCAL = "void flash::flash_{}_kernel<Flash_{}_kernel_traits<64, 128, 64, 4, false, false, cutlass::bfloat16_t>, …>"


def _parts() -> tuple[Parts, Parts]:
    """Kernels of compiled layers of ModernBERT, forward and backward; two of three layers see 128 tokens."""
    once, product = ADA_BF16.moves(2 * TOKENS * WIDE), ADA_BF16.names[0]
    ahead: Parts = []
    behind: Parts = []
    for number in range(LAYERS):
        seen = 128 if number % 3 else 512
        core = ADA_BF16.product(TOKENS * 12, seen, 128) / 0.6
        layer = [(f"triton_per_fused_native_layer_norm_{1 if number else 0}", 2.1 * once),
                 (product, ADA_BF16.product(TOKENS, 3 * WIDE, WIDE)),
                 ("triton_poi_fused_cat_mul_neg_view_2", 6.2 * once), (LOCAL.format("fwd", "fwd"), core),
                 (product, ADA_BF16.product(TOKENS, WIDE, WIDE)),
                 ("triton_per_fused_add_native_layer_norm_4", 4.1 * once),
                 (product, ADA_BF16.product(TOKENS, 2 * HIDDEN, WIDE)),
                 ("triton_poi_fused_gelu_mul_split_5", 4.6 * once),
                 (product, ADA_BF16.product(TOKENS, WIDE, HIDDEN)),
                 ("triton_poi_fused_add_6", 3 * once)]  # fmt: skip
        ahead += layer
        mirrored: Parts = []
        for name, us in reversed(layer):
            if name == product:
                mirrored += [(ADA_BF16.names[1], us), (ADA_BF16.names[1], us)]
            elif "flash" in name:
                mirrored.append((LOCAL.format("bwd_dq_dk_dv_loop_seqk_parallel", "bwd"), 2.6 * us))
            else:
                mirrored.append((name.replace("_fused_", "_fused_backward_"), 1.7 * us))
        behind = mirrored + behind
    head, n = ADA_BF16.product(TOKENS, WORDS, WIDE), TOKENS * WORDS
    ahead += [(product, head), ("triton_red_fused__log_softmax_nll_loss_forward_7", ADA_BF16.moves(4 * n)),
              ("triton_per_fused_nll_loss_forward_8", 7)]  # fmt: skip
    first = [("triton_poi_fused__log_softmax_backward_data_nll_loss_backward_9", ADA_BF16.moves(4 * n)),
             (ADA_BF16.names[1], head), (ADA_BF16.names[1], head)]  # fmt: skip
    return ahead, first + behind


def _ran(rt: Framed, parts: Parts) -> None:
    for name, us in parts:
        if name.startswith("triton"):
            rt.host(4)
            triton(rt, name, us)
        elif "flash" in name:
            rt.op("flash_attn::_flash_attn_varlen_" + ("backward" if "bwd" in name else "forward"), run=((name, us),),
                  gap=5, us=9, kind=BF16)  # fmt: skip
        else:
            rt.op("aten::mm", run=((name, us),), gap=3, us=5, kind=BF16)


def modern(rt: Framed, fixed: bool) -> None:
    """Nothing to change: ModernBERT-base learns masked words on an RTX 4090, `torch.compile` of the whole model, bf16,
    flash-attn over 24,576 unpadded tokens; fused AdamW, clipping by lists, the loss is read in one of five steps.

    Not: launches, waits, attention, recompiles, casts, the loader, the batch, CUDA graphs.
    """
    ahead, behind = _parts()
    loader(rt, 160)
    for count in (TOKENS, TOKENS, 49):
        pinned(rt, count * 8, [count], "long int")
    with rt.span("TorchDynamo Cache Lookup", us=24):
        pass
    rt.sequence += 1
    args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=60, **args),
          rt.span("## Call CompiledFxGraph fk5h2w9qa ##", "user_annotation", us=18)):  # fmt: skip
        for number in range(3):
            rt.host(4)
            triton(rt, f"triton_poi_fused__to_copy_{20 + number}", ADA_BF16.moves(2 * PARAMETERS))
        rt.op("aten::embedding", run=((REDUCE, ADA_BF16.moves(4 * TOKENS * WIDE)),), gap=4, kind=BF16)
        _ran(rt, ahead)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph fw8z1t6lc ##", "user_annotation", us=18)):  # fmt: skip
        _ran(rt, behind)
        for _ in range(24):
            rt.accumulated()
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA_BF16.moves(4 * PARAMETERS), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA_BF16.moves(8 * PARAMETERS), 2)
    fused_adamw(rt, ADA_BF16, PARAMETERS)
    if rt.number == 3:
        answered(rt, "aten::item")
    rt.host(300)


EIGHT, TEXTS, LENGTH, LARGE = list(range(8)), 14, 512, 1_024


def nvlinked(rt: Third, fixed: bool) -> None:
    """Nothing to change: BERT-large in DDP on the eight V100 of a DGX-1, rank 7, AMP in fp16, 14 texts of 512 each: a
    bucket for each layer travels by NVLink beside the backward pass, the embeddings' is short enough; `GradScaler`
    waits once a step, the optimizer is fused. No shapes.

    Not: communication, buckets, `no_sync`, launches, waits, a late rank, TF32 or bf16, which a V100 has not.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 7
    tape, x, end, square = Tape(), [TEXTS, LENGTH, LARGE], 0.0, [LARGE, LARGE]
    loader(rt, 170)
    for _ in range(4):
        pinned(rt, TEXTS * LENGTH * 8, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for size in ([30_522, LARGE], [512, LARGE], [2, LARGE]):
            rt.op("aten::embedding", run=((REDUCE, V100.moves(6 * prod(x))),), gap=14, dims=(size, x[:2]))
        small(rt, tape, ("add", "add", "layer_norm"), x, V100.moves(8 * prod(x)))
        for _ in range(24):
            casts(rt, V100, [3 * LARGE, LARGE], square, [4 * LARGE, LARGE], [LARGE, 4 * LARGE])
            encoder(rt, tape, V100, (TEXTS, LENGTH, LARGE))
        linear(rt, tape, V100, x, LARGE)
        linear(rt, tape, V100, [TEXTS, 80, LARGE], 30_522)
    small(rt, tape, ("log_softmax", "nll_loss"), [TEXTS * 80, 30_522], V100.moves(8 * TEXTS * 80 * 30_522))
    layer = (len(tape) - 7) // 24
    with rt.backward():
        while tape:
            tape.pop()()
            if 3 <= len(tape) < 3 + 24 * layer and (len(tape) - 3) % layer == 0:
                end = rt.collective("allreduce", 40 + 12_596_224 * 4 * 1.75 / 125e3, (12_596_224,) * 2, dtype="Float",
                                    ranks=EIGHT, kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        end = rt.collective("allreduce", 40 + 31_780_864 * 4 * 1.75 / 125e3, (31_780_864,) * 2, dtype="Float",
                            ranks=EIGHT, kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    unscaled(rt, V100, 335e6)
    foreach(rt, "_foreach_norm", "LpNormFunctor", V100.moves(4 * 335e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", V100.moves(8 * 335e6), 3)
    fused_adamw(rt, V100, 335e6)
    rt.host(300)


SLICES = 24


def organs(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a UNet finds organs in slices on an A10G, AMP, channels_last, 24 of 256 pixels: workers
    augment, batches are pinned and come to the GPU on a stream of their own while the step before runs; losses are
    summed on the GPU, the optimizer is fused, `GradScaler` waits once a step. Shapes.

    Not: the loader, copies, the layout, waits, launches, TF32, the batch.
    """
    tape, card, picture, came = Tape(), A10_HALF.card, [SLICES, 1, 256, 256], rt.free.get(COPIES, 0.0)
    loader(rt, 190)
    pinned(rt, prod(picture) * 4, picture, stream=COPIES)
    pinned(rt, prod(picture) * 8, [SLICES, 256, 256], "long int", stream=COPIES)
    if came:
        rt.waits(MAIN, came)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, card.moves(6 * prod(picture))),), dims=(picture,))
    for level in range(5):
        width, size = 64 << level, 256 >> level
        conv_norm(rt, tape, A10_HALF, Conv(SLICES, max(1, width // 2 if level else 1), width, 3, size, size))
        conv_norm(rt, tape, A10_HALF, Conv(SLICES, width, width, 3, size, size))
        if level < 4:
            us = card.moves(2.5 * SLICES * width * size**2)
            small(rt, tape, ("max_pool2d",), [SLICES, width, size, size], us)
    for level in reversed(range(4)):
        width, size = 64 << level, 256 >> level
        us = card.moves(4 * SLICES * 2 * width * size**2)
        small(rt, tape, ("upsample_bilinear2d", "cat"), [SLICES, width, size, size], us)
        conv_norm(rt, tape, A10_HALF, Conv(SLICES, 3 * width, width, 3, size, size))
        conv_norm(rt, tape, A10_HALF, Conv(SLICES, width, width, 3, size, size))
    conv(rt, tape, A10_HALF, Conv(SLICES, 64, 14, 1, 256, 256))
    whole = [SLICES, 14, 256, 256]
    small(
        rt, tape, ("to", "log_softmax", "nll_loss", "softmax", "mul", "sum", "div"), whole, card.moves(8 * prod(whole))
    )
    back(rt, tape)
    unscaled(rt, card, 34e6)
    fused_adamw(rt, card, 34e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(280)


PAIRS, LONG, BASE = 96, 384, 768
RANKER = (AMPERE[0].replace("bf16", "fp16"), AMPERE[1].replace("bf16", "fp16"))
L4 = Card(56, 245, HALF, RANKER, FLASH)


def _ranked() -> Parts:
    """Kernels of a cross-encoder of 12 layers, compiled and recorded."""
    tokens = PAIRS * LONG
    once, product = L4.moves(2 * tokens * BASE), L4.names[0]
    layer = [(product, L4.product(tokens, 3 * BASE, BASE)),
             (FLASH[0].replace("bfloat16_t", "half_t"), L4.product(tokens * 12, LONG, 128) / 0.6),
             (product, L4.product(tokens, BASE, BASE)), ("triton_per_fused_add_native_layer_norm_2", 3.1 * once),
             (product, L4.product(tokens, 4 * BASE, BASE)), ("triton_poi_fused_gelu_3", 8.2 * once),
             (product, L4.product(tokens, BASE, 4 * BASE)),
             ("triton_per_fused_add_native_layer_norm_4", 3.1 * once)]  # fmt: skip
    return [("triton_per_fused_add_embedding_native_layer_norm_0", 4.2 * once), *layer * 12,
            (L4.names[1], 46), ("triton_poi_fused_tanh_5", 3), (L4.names[1], 8)]  # fmt: skip


def reranked(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a cross-encoder scores 96 pairs of 384 tokens a batch in fp16 on an L4, `torch.no_grad()`,
    `mode="reduce-overhead"`: tokens go from pinned memory to the graph's inputs, a batch is one launch, scores leave to
    pinned memory and are looked at a batch later, by an event. No shapes, no rows of steps.

    Not: launches, waits, the loader, copies, `no_grad`, the batch.
    """
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, PAIRS * LONG * 8, [PAIRS, LONG], "long int")
    with rt.span("Torch-Compiled Region: 0/0", us=70), rt.span("## Call CompiledFxGraph fq3c7x0vd ##",
                                                               "user_annotation", us=20):  # fmt: skip
        foreach(rt, "_foreach_copy_", "CopyFunctor", 4, host=16)
        graphed(rt, _ranked(), 2)
    rt.host(8)
    with rt.span("aten::copy_", us=6):
        rt.copy(PAIRS * 2, "DtoH", "Pinned")
    rt.call("EventRecord", 2)
    if rt.number:
        rt.call("EventSynchronize", 3, until=rt.ends[-1] + 30)
    rt.host(900)


SHOWN, PATCHES, VIT, SIDE = 12, 1_370, 1_024, 37
DRAWN = (("depth/data/transform.py(71): crop_and_flip", 34_000), ("depth/data/transform.py(118): color_jitter", 61_000),
         ("torch/utils/data/_utils/collate.py(398): default_collate", 19_000))  # fmt: skip


def depths(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Depth Anything, ViT-L with a head of convolutions, on an A100, autocast in bf16, 12 pictures
    of 518: the loop itself crops and colours pictures, 115 ms, and writes a line of log of what lies on the host, but
    the GPU has more than that queued when it begins, and never waits. Losses stay on the GPU. Stacks.

    Not: the loader's time (`num_workers`), what the host does, launches, waits, the batch.
    """
    tape, x, picture = Tape(), [SHOWN, PATCHES, VIT], [SHOWN, 3, 518, 518]
    with (rt.frame("torch/utils/data/dataloader.py(733): __next__"),
          rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation")):  # fmt: skip
        for name, us in DRAWN:
            with rt.frame(name):
                rt.now += rt.vary(us, 0.1)
    for count in (3, 1):
        pinned(rt, SHOWN * count * 518 * 518 * 4, [SHOWN, count, 518, 518])
    with rt.frame("train.py(142): train", "nn.Module: DepthAnythingV2_0"):
        run = ((CAST, A100.moves(6 * prod(picture))),)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(picture,))
        dense(rt, tape, A100, SHOWN, (SHOWN * 1_369, 588, VIT))
        small(rt, tape, ("cat", "add"), x, A100.moves(4 * prod(x)))
        for number in range(24):
            with rt.frame(f"nn.Module: Block_{number}"):
                casts(rt, A100, [3 * VIT, VIT], [VIT, VIT], [4 * VIT, VIT], [VIT, 4 * VIT])
                encoder(rt, tape, A100, (SHOWN, PATCHES, VIT))
                elementwise(rt, tape, A100, "mul", x, back=(("mul", 3),))
        norm(rt, tape, A100, x)
        for times in (1, 2, 4, 8):
            with rt.frame("nn.Module: FeatureFusionBlock_1"):
                side = SIDE * times
                for _ in range(4):
                    us = A100.product(SHOWN * side**2, 256, 256 * 9) * 1.4
                    size = [SHOWN, 256, side, side]
                    number = rt.op(
                        "aten::conv2d",
                        "aten::convolution",
                        "aten::_convolution",
                        "aten::cudnn_convolution",
                        run=((CONV[0], us),),
                        dims=(size, [256, 256, 3, 3]),
                        kind=BF16,
                        graph=True,
                        gap=16,
                    )
                    tape.append(lambda number=number, us=us, size=size: rt.grad(
                        "ConvolutionBackward0", number, "aten::convolution_backward", kind=BF16, us=16,
                        dims=(size, size, [256, 256, 3, 3]), run=((CONV[1], us), (CONV[2], us))))  # fmt: skip
                    elementwise(rt, tape, A100, "relu", size, back=(("threshold_backward", 3),))
                small(rt, tape, ("add", "upsample_bilinear2d"), [SHOWN, 256, side, side],
                      A100.moves(8 * SHOWN * 256 * side**2))  # fmt: skip
    small(rt, tape, ("log", "sub", "masked_fill", "pow", "mean", "mean", "sub", "sqrt"), [SHOWN, 518, 518], 14)
    with rt.frame("torch/_tensor.py(648): backward"):
        back(rt, tape)
    with rt.frame("torch/optim/optimizer.py(493): wrapper"):
        fused_adamw(rt, A100, 335e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    with rt.frame("train.py(171): log", "logging/__init__.py(1477): info"):
        rt.now += rt.vary(900, 0.1)
    rt.host(280)


CONV = tuple(f"sm80_xmma_{way}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_"
             "warpsize2x2x1_g1_tensor16x8x16" for way in ("fprop", "dgrad", "wgrad"))  # fmt: skip
