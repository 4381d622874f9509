"""Jobs of the twentieth set without a fault: a policy's update, latents, training with an evaluation, masks, FSDP2."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import foreach, kernel, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import AMPERE_HALF
from ..layers import CAST, REDUCE, Tape, back, dense, fused_adamw
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import linear_loss, triton
from ..seventh_set import BF16
from ..sixteenth_set.rows import GATHER, without_graph
from ..tenth_set.jobs import FLASH, H100, MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import resnet, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader

MICRO, QWEN, TEXT, CLASSES, SMALL = 2, 28, (1, 8_192, 1_536, 4, 8_960), 151_936, 1.54e9
ADDED = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, …>(…)"


def _chosen(rt: Framed, tape: Tape, grads: int) -> None:
    """The chosen tokens' log probabilities, in chunks, and GRPO's loss."""
    tokens, width = prod(TEXT[:2]), TEXT[2]
    linear_loss(rt, tape, H100, "LigerFusedLinearGRPOFunction" if grads else "SelectiveLogSoftmaxFunction",
                ("_selective_log_softmax_kernel", 3 * H100.moves(tokens * CLASSES)), (tokens, width, CLASSES),
                grads)  # fmt: skip


def policy(rt: Framed, fixed: bool) -> None:
    """Nothing to change: GRPO's update of Qwen2.5-1.5B on an H100, rollouts are done elsewhere: two micro-batches of
    8,192 packed tokens, the reference's log probabilities without a graph, the policy's forward and backward pass, sums
    of gradients in place, one fused update; five metrics are read together after it, once in 0.7 s. No shapes.

    Not: waits, launches, the second model's forward pass, accumulation, a loader, the optimizer.
    """
    x = list(TEXT[:3])
    loader(rt, 210)
    for micro in range(MICRO):
        tape: Tape = []
        for _ in range(5):
            pinned(rt, TEXT[1] * 8, x[:2], "long int")
        with without_graph(rt):
            for _ in range(QWEN):
                llama(rt, [], H100, TEXT, fused_norm)
            fused_norm(rt, [], H100, x)
            _chosen(rt, [], 0)
        for _ in range(QWEN):
            llama(rt, tape, H100, TEXT, fused_norm)
        one = len(tape) // QWEN
        fused_norm(rt, tape, H100, x)
        _chosen(rt, tape, 2)
        small(rt, None, ("mean", "sub", "abs", "gt", "mean", "detach"), [TEXT[1]], 3)
        with rt.backward():
            while tape:
                tape.pop()()
                if micro and len(tape) < QWEN * one and len(tape) % one == 0:
                    for count in (2_360_000, 1_180_000, 2_360_000, 13_760_000, 13_760_000, 13_760_000):
                        rt.op("aten::add_", run=((ADDED, H100.moves(6 * count)),), gap=2, us=3, dims=([count],))
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * SMALL), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * SMALL), 3)
    fused_adamw(rt, H100, SMALL / 2)
    rt.op("aten::stack", "aten::cat", run=((REDUCE, 3),), dims=([5],))
    rt.value("aten::item")
    rt.host(900)


LATENTS, TOKENS, WIDTH, BLOCKS, DIT = 64, 256, 1_152, 28, 675e6
Parts = list[tuple[str, float]]


def _blocks() -> tuple[Parts, Parts]:
    """Kernels of DiT-XL/2's compiled blocks."""
    rows, once = LATENTS * TOKENS, A100.moves(2 * LATENTS * TOKENS * WIDTH)
    product = A100.names[0]
    ahead = [("triton_poi_fused_silu_0", 2.4), (product, A100.product(LATENTS, 6 * WIDTH, WIDTH) + 9),
             ("triton_per_fused_add_mul_native_layer_norm_1", 2.6 * once),
             (product, A100.product(rows, 3 * WIDTH, WIDTH)), (FLASH[0], A100.product(rows * 16, TOKENS, 144) / 0.5),
             (product, A100.product(rows, WIDTH, WIDTH)),
             ("triton_per_fused_add_mul_native_layer_norm_2", 4.6 * once),
             (product, A100.product(rows, 4 * WIDTH, WIDTH)), ("triton_poi_fused_gelu_3", 8 * once),
             (product, A100.product(rows, WIDTH, 4 * WIDTH)), ("triton_poi_fused_add_mul_4", 3.2 * once)]  # fmt: skip
    behind = []
    for name, us in reversed(ahead):
        if name == product:
            behind += [(A100.names[1], us), (A100.names[1], us), ("triton_red_fused_sum_5", 0.2 * us)]
        elif name == FLASH[0]:
            behind.append((FLASH[1], 2.6 * us))
        else:
            behind.append((name.replace("_fused_", "_fused_backward_"), 1.9 * us))
    return ahead * BLOCKS, behind * BLOCKS


def _ran(rt: Framed, parts: Parts) -> None:
    for name, us in parts:
        if name.startswith("triton"):
            rt.host(4)
            triton(rt, name, us)
        elif "flash" in name:
            way = "backward" if "bwd" in name else "forward"
            outer = "aten::_scaled_dot_product_flash_attention" + "_backward" * (way == "backward")
            rt.op(outer, f"aten::_flash_attention_{way}", run=((name, us),), gap=3, us=8)
        else:
            rt.op("aten::addmm", run=((name, us),), gap=3, us=5, kind=BF16)


def latents(rt: Framed, fixed: bool) -> None:
    """Nothing to change: DiT-XL/2 on an A100, compiled, autocast in bf16, 64 latents that were computed before and come
    from pinned memory; fused AdamW, the moving average by one list's `lerp_`; the loss is read in one of five steps.

    Not: launches, waits, casts of weights (once a step), the average, the loader, the batch, recompiles.
    """
    ahead, behind = _blocks()
    loader(rt, 160)
    pinned(rt, LATENTS * 4 * 32 * 32 * 4, [LATENTS, 4, 32, 32])
    pinned(rt, LATENTS * 8, [LATENTS], "long int")
    small(rt, None, ("randint", "randn", "index", "mul", "index", "mul", "add"), [LATENTS, 4, 32, 32], 3)
    with rt.span("TorchDynamo Cache Lookup", us=24):
        pass
    rt.sequence += 1
    args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=70, **args),
          rt.span("## Call CompiledFxGraph fhl3vq0ks ##", "user_annotation", us=18)):  # fmt: skip
        for _ in range(6):
            rt.host(4)
            triton(rt, "triton_poi_fused__to_copy_6", A100.moves(6 * DIT / 6))
        _ran(rt, ahead)
    small(rt, None, ("sub", "pow", "mean", "mean"), [LATENTS, 4, 32, 32], 3)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph fzc8w2r5t ##", "user_annotation", us=18)):  # fmt: skip
        _ran(rt, behind)
        for _ in range(28):
            rt.accumulated()
    fused_adamw(rt, A100, DIT)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", A100.moves(12 * DIT), 8, 160)
    if rt.number == 3:
        rt.value()
    rt.host(350)


LOOK, PICTURES, SEEN, HIGH, WIDE = AMPERE_HALF, 12, 4, 512, 1_024


def _segmented(rt: Framed, tape: Tape | None, batch: int) -> None:
    """A ResNet-50 with an FPN's head on half of a city's pictures; without a tape: `no_grad`."""
    picture, kept = [batch, 3, HIGH, WIDE], [] if tape is None else tape
    run = ((CAST, LOOK.card.moves(6 * prod(picture))),)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(picture,))
    resnet(rt, kept, LOOK, batch, (HIGH // 32, WIDE // 32))
    for cin, more in ((2_048, 32), (1_024, 16), (512, 8), (256, 4)):
        conv_norm(rt, kept, LOOK, Conv(batch, cin, 128, 1, HIGH // more, WIDE // more))
        conv_norm(rt, kept, LOOK, Conv(batch, 128, 128, 3, HIGH // more, WIDE // more))
    small(rt, kept, ("upsample_bilinear2d",) * 3 + ("cat",), [batch, 128, HIGH // 4, WIDE // 4], 140)
    conv(rt, kept, LOOK, Conv(batch, 512, 19, 1, HIGH // 4, WIDE // 4))
    small(rt, kept, ("upsample_bilinear2d",), [batch, 19, HIGH, WIDE], LOOK.card.moves(2.2 * batch * 19 * HIGH * WIDE))


def alternating(rt: Framed, fixed: bool) -> None:
    """Nothing to change: segmentation of streets on an RTX 3090, AMP, channels_last, 12 pictures of 512 by 1,024; the
    window holds the end of an epoch: four steps of training, then four batches of the evaluation, without a graph and
    by autocast as well, whose counts stay on the GPU. `GradScaler` waits once a step. No rows of steps.

    Not: steps that differ, waits, the loader, layouts, launches, casts of weights, the batch of the evaluation.
    """
    training, dims = rt.number < SEEN, [PICTURES, 3, HIGH, WIDE]
    loader(rt, 240)
    pinned(rt, 4 * prod(dims), dims)
    pinned(rt, PICTURES * HIGH * WIDE, [PICTURES, HIGH, WIDE], "unsigned char")
    size, once = [PICTURES, 19, HIGH, WIDE], LOOK.card.moves(4 * PICTURES * 19 * HIGH * WIDE)
    if not training:
        with without_graph(rt):
            _segmented(rt, None, PICTURES)
            rt.op("aten::argmax", run=((REDUCE.replace("sum", "ArgMaxOps"), once / 2),), dims=(size,), gap=14)
            small(rt, None, ("ge", "mul", "add"), [PICTURES, HIGH, WIDE], 90)
            rt.op("aten::bincount", run=(("void at::native::kernelHistogram1D<long, long, 1, 2, -1, 1>(…)", 310),),
                  dims=([PICTURES * HIGH * WIDE],), gap=18)  # fmt: skip
            small(rt, None, ("reshape", "add_"), [19, 19], 2.3)
        rt.host(260)
        return
    tape: Tape = []
    _segmented(rt, tape, PICTURES)
    small(rt, tape, ("to", "log_softmax", "nll_loss2d"), size, 1.6 * once)
    back(rt, tape)
    unscaled(rt, LOOK.card, 27e6)
    fused_adamw(rt, LOOK.card, 27e6)
    rt.host(300)


SHOWN, VISIBLE, ALL = 512, 50, 197


def autoencoder(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a masked autoencoder, ViT-L, on an MI300X, autocast in bf16, 512 pictures: a quarter of the
    patches goes through the encoder, all through a small decoder; patches are drawn on the GPU; the optimizer is fused.
    Norms and sums take their time as they do there. Shapes.

    Not: launches (the host is ahead), casts, `gather`s, the loader, the batch, TF32.
    """
    tape: Tape = []
    loader(rt, 200)
    pinned(rt, SHOWN * 3 * 224**2, [SHOWN, 3, 224, 224], "unsigned char")
    picture = [SHOWN, 3, 224, 224]
    for name, passes in (("to", 5), ("sub_", 8), ("div_", 8)):
        rt.op(f"aten::{name}", run=((kernel(name, 2), MI300X.moves(passes * prod(picture))),), dims=(picture,), gap=12)
    dense(rt, tape, MI300X, SHOWN, (SHOWN * 196, 768, 1_024))
    small(rt, None, ("rand", "argsort", "argsort"), [SHOWN, 196], 60)
    moved = MI300X.moves(4 * SHOWN * VISIBLE * 1_024)
    rt.op("aten::gather", run=((GATHER, moved),), dims=([SHOWN, 196, 1_024], [SHOWN, 49, 1_024]), kind=BF16, gap=14)
    for _ in range(24):
        casts(rt, MI300X, [3_072, 1_024], [1_024, 1_024], [4_096, 1_024], [1_024, 4_096])
        encoder(rt, tape, MI300X, (SHOWN, VISIBLE, 1_024))
    dense(rt, tape, MI300X, SHOWN, (SHOWN * VISIBLE, 1_024, 512))
    rt.op("aten::gather", run=((GATHER, 2 * moved),), dims=([SHOWN, ALL, 512],), kind=BF16, gap=16)
    for _ in range(8):
        casts(rt, MI300X, [1_536, 512], [512, 512], [2_048, 512], [512, 2_048])
        encoder(rt, tape, MI300X, (SHOWN, ALL, 512))
    dense(rt, tape, MI300X, SHOWN, (SHOWN * ALL, 512, 768))
    small(rt, tape, ("sub", "pow", "mean", "mul", "sum", "div"), [SHOWN, 196, 768], MI300X.moves(5 * SHOWN * 196 * 768))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(4 * 330e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", MI300X.moves(8 * 330e6), 2)
    fused_adamw(rt, MI300X, 330e6)
    if rt.number == 2:
        rt.value()
    rt.host(420)


RANKS, SEVEN, LAYER, LLAMA = list(range(8)), 28, 233_057_792, (2, 4_096, 3_584, 4, 18_944)
SHARD = {"group": "mesh_dp", "pg": "1", "ranks": RANKS}
SPLIT = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel<…>"
CHUNKED = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(…)"
NVLINK = 210e3


def _asked(rt: Framed, number: int) -> float:
    """Weights of a layer in bf16, on the stream of gathers."""
    with rt.span(f"FSDP::all_gather (model.layers.{number})", us=28):
        return rt.collective("_allgather_base", 60 + LAYER * 2 * 7 / 8 / NVLINK, (LAYER // 8, LAYER), behind=False,
                             **SHARD)  # fmt: skip


def _came(rt: Framed, ahead: float) -> None:
    rt.waits(MAIN, ahead)
    with rt.span("FSDP::all_gather_copy_out", us=20):
        rt.op("fsdp::split_with_sizes_copy", gap=2, us=15, run=((SPLIT, A100.moves(4 * LAYER)),), kind=BF16,
              dims=([8, LAYER // 8],))  # fmt: skip


def _left(rt: Framed, number: int) -> float:
    """Gradients of a layer leave in fp32, behind the next layer."""
    with rt.span(f"FSDP::post_backward_reduce (model.layers.{number})", us=45):
        rt.op("fsdp::chunk_cat", gap=2, us=14, dims=([LAYER],), kind=BF16, run=((CHUNKED, A100.moves(6 * LAYER)),))
        return rt.collective("_reduce_scatter_base", 60 + LAYER * 4 * 7 / 8 / NVLINK, (LAYER, LAYER // 8),
                             dtype="Float", stream=LINKS + 4, kernel="ReduceScatter_Sum_f32_RING_LL",
                             **SHARD)  # fmt: skip


def fsdp2(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Qwen2.5-7B fine-tuned whole on 8 A100, `fully_shard` of each layer in bf16 with sums in fp32,
    Liger's loss, 2 packed texts of 4,096 a rank, rank 3: weights come a layer ahead, gradients leave beside the next,
    the norm of gradients is one sum, the optimizer is fused. No shapes.

    Not: communication (hidden but for both ends), launches, waits, buckets, `no_sync`, the batch, checkpointing.
    """
    groups(rt, 8, default_pg=RANKS, mesh_dp=RANKS)
    rt.head["distributedInfo"]["rank"] = 3
    x, tape, last, end = list(LLAMA[:3]), list[Tape](), Tape(), 0.0
    loader(rt, 170)
    for _ in range(3):
        pinned(rt, prod(x[:2]) * 8, x[:2], "long int")
    ahead = _asked(rt, 0)
    for number in range(SEVEN):
        with rt.span(f"FSDP::pre_forward (model.layers.{number})", us=34):
            _came(rt, ahead)
            ahead = _asked(rt, number + 1) if number + 1 < SEVEN else 0.0
        tape.append([])
        llama(rt, tape[-1], A100, LLAMA, fused_norm)
    fused_norm(rt, last, A100, x)
    linear_loss(rt, last, A100, "LigerFusedLinearCrossEntropyFunction",
                ("liger_cross_entropy_kernel", 4 * A100.moves(prod(x[:2]) * CLASSES)),
                (prod(x[:2]), x[2], CLASSES), 2)  # fmt: skip
    with rt.backward():
        ahead = _asked(rt, SEVEN - 1)
        while last:
            last.pop()()
        for number in reversed(range(SEVEN)):
            with rt.span(f"FSDP::pre_backward (model.layers.{number})", us=34):
                _came(rt, ahead)
                ahead = _asked(rt, number - 1) if number else 0.0
            while tape[number]:
                tape[number].pop()()
            end = _left(rt, number)
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(SEVEN * LAYER / 2), 3)
    norms = {"dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
    rt.waits(MAIN, rt.collective("allreduce", 24, (1, 1), **norms, **SHARD))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(SEVEN * LAYER), 3)
    fused_adamw(rt, A100, SEVEN * LAYER / 8)
    rt.host(600)
