"""Jobs of the nineteenth set without a fault: torchtitan, graphs, RCCL, vectors of texts, Lightning."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import graphed, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, kernel, linear, node
from ..fifteenth_set.rows import encoded, passed
from ..layers import CAST, REDUCE, Card, Tape, dense, fused_adamw
from ..runtime import COPIES, LINKS, MAIN
from ..seventeenth_set.rows import linear_loss, triton
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH, H100, MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, HALF, NHWC, XMMA, resnet, small
from ..twelfth_set.rows import Framed, Look, loader

RANKS, DEEP, TOKENS, WIDE, HIDDEN, CLASSES, LAYER = list(range(8)), 32, 8_192, 4_096, 14_336, 128_256, 218_112_000
SHARD = {"group": "mesh_dp_shard", "pg": "1", "ranks": RANKS}
COPY_OUT = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel<…>"
Parts = list[tuple[str, float]]


def _layer() -> tuple[Parts, Parts]:
    """Kernels of a compiled layer of Llama 3 8B, forward and backward."""
    once = H100.moves(2 * TOKENS * WIDE)
    attention = H100.product(32 * TOKENS, TOKENS, 2 * 128) / 1.3
    products = [H100.product(TOKENS, out, wide) for out, wide in
                ((6_144, WIDE), (WIDE, WIDE), (2 * HIDDEN, WIDE), (WIDE, HIDDEN))]  # fmt: skip
    ahead = [("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", 2.6 * once), (H100.names[0], products[0]),
             ("triton_poi_fused__to_copy_complex_mul_view_1", 3.1 * once), (FLASH[0], attention),
             (H100.names[0], products[1]), ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", 3.4 * once),
             (H100.names[0], products[2]), ("triton_poi_fused_mul_silu_3", 3 * HIDDEN / WIDE * once),
             (H100.names[0], products[3])]  # fmt: skip
    behind = []
    for name, us in reversed(ahead):
        if name == H100.names[0]:
            behind += [(H100.names[1], us)] * 2
        elif name == FLASH[0]:
            behind.append((FLASH[1], 2.6 * us))
        else:
            behind.append((name.replace("_fused_", "_fused_backward_"), 1.8 * us))
    return ahead, behind


def _gathers(rt: Framed, number: int, way: str) -> float:
    with rt.span(f"FSDP::all_gather (layers.{number})", us=25):
        return rt.collective("_allgather_base", 60 + LAYER * 2 * 7 / 8 / 330e3, (LAYER // 8, LAYER), behind=False,
                             **SHARD)  # fmt: skip


def _arrived(rt: Framed, ahead: float) -> None:
    rt.waits(MAIN, ahead)
    with rt.span("FSDP::all_gather_copy_out", us=18):
        rt.op("fsdp::split_with_sizes_copy", gap=2, us=14, run=((COPY_OUT, H100.moves(4 * LAYER)),), kind=BF16,
              dims=([8, LAYER // 8],))  # fmt: skip


def titan(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama 3 8B by torchtitan on 8 H100, FSDP2, layers compiled one by one, fused AdamW; weights
    come a layer ahead, gradients leave behind the next layer; metrics are read in one of four steps. Of the device's
    time less than 2 % is idle.

    Not: communication (nearly all is hidden), launches, waits, recompiles, the batch.
    """
    groups(rt, 8, default_pg=RANKS, mesh_dp_shard=RANKS)
    rt.head["distributedInfo"]["rank"] = 0
    first, second = _layer()
    numbers = list[int]()
    rt.batch(TOKENS * 8, TOKENS * 8)
    ahead = _gathers(rt, 0, "forward")
    for number in range(DEEP):
        with rt.span(f"FSDP::pre_forward (layers.{number})", us=30):
            _arrived(rt, ahead)
            ahead = _gathers(rt, number + 1, "forward") if number + 1 < DEEP else 0.0
        with rt.span("TorchDynamo Cache Lookup", us=24):
            pass
        rt.sequence += 1
        numbers.append(rt.sequence)
        args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
        with (rt.span("Torch-Compiled Region: 0/1", us=50), rt.span("CompiledFunction", us=40, **args),
              rt.span("## Call CompiledFxGraph fw3mzk4qt ##", "user_annotation", us=16)):  # fmt: skip
            for name, us in first:
                _called(rt, name, us)
    last: Tape = []
    fused_norm(rt, last, H100, [1, TOKENS, WIDE])
    linear(rt, last, H100, [1, TOKENS, WIDE], CLASSES)
    _loss(rt, last)
    end = 0.0
    with rt.backward():
        ahead = _gathers(rt, DEEP - 1, "backward")
        while last:
            last.pop()()
        for number in reversed(range(DEEP)):
            with rt.span(f"FSDP::pre_backward (layers.{number})", us=30):
                _arrived(rt, ahead)
                if number:
                    with rt.span(f"FSDP::backward_prefetch for layers.{number - 1}", us=10):
                        ahead = _gathers(rt, number - 1, "backward")
            with (node(rt, "CompiledFunctionBackward", numbers[number]),
                  rt.span("## Call CompiledFxGraph f6b2qjx1s ##", "user_annotation", us=16)):  # fmt: skip
                for name, us in second:
                    _called(rt, name, us)
            with rt.span(f"FSDP::post_backward_reduce (layers.{number})", us=40):
                rt.op("fsdp::chunk_cat", gap=2, us=12, dims=([LAYER],), kind=BF16, run=((
                    "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(…)",
                    H100.moves(6 * LAYER)),))  # fmt: skip
                end = rt.collective("_reduce_scatter_base", 60 + LAYER * 4 * 7 / 8 / 330e3, (LAYER, LAYER // 8),
                                    stream=LINKS + 4, dtype="Float", kernel="ReduceScatter_Sum_f32_RING_LL",
                                    **SHARD)  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(DEEP * LAYER / 2), 3)
    rt.waits(MAIN, rt.collective("allreduce", 22, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", **SHARD))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(DEEP * LAYER), 3)
    fused_adamw(rt, H100, DEEP * LAYER / 8)
    if rt.number == 2:
        rt.waits(
            MAIN, rt.collective("allreduce", 22, (1, 1), dtype="Float", kernel="AllReduce_Sum_f32_RING_LL", **SHARD)
        )
        rt.value()
    rt.host(400)


def _called(rt: Framed, name: str, us: float) -> None:
    """What Inductor's code calls."""
    if name.startswith("triton"):
        rt.host(4)
        triton(rt, name, us)
    elif "flash" in name:
        way = "backward" if "bwd" in name else "forward"
        outer = "aten::_scaled_dot_product_flash_attention" + "_backward" * (way == "backward")
        rt.op(outer, f"aten::_flash_attention_{way}", run=((name, us),), gap=3, us=8)
    else:
        rt.op("aten::mm", run=((name, us),), gap=3, us=5, kind=BF16)


def _loss(rt: Framed, tape: Tape) -> None:
    """`torch.compile(cross_entropy_loss)`."""
    rt.sequence += 1
    number, once = rt.sequence, H100.moves(4 * TOKENS * CLASSES)
    with rt.span("Torch-Compiled Region: 1/0", us=50), rt.span("CompiledFunction", us=30, **{
            "Sequence number": number, "Fwd thread id": 0}):  # fmt: skip
        triton(rt, "triton_red_fused__log_softmax__to_copy_nll_loss_forward_0", once)
        triton(rt, "triton_red_fused_nll_loss_forward_1", 7)

    def backward() -> None:
        with node(rt, "CompiledFunctionBackward", number):
            triton(rt, "triton_poi_fused__log_softmax_backward_data_nll_loss_backward_2", 1.2 * once)

    tape.append(backward)


VIT = (24, 1_024, 96, 197)


def _vit() -> tuple[Parts, Parts]:
    """Kernels of a compiled ViT-L's layer."""
    _, width, batch, length = VIT
    rows, once = batch * length, A100.moves(2 * batch * length * width)
    name = "triton_tem_fused_addmm_{}"
    ahead = [("triton_per_fused_native_layer_norm_0", 2.2 * once),
             (A100.names[0], A100.product(rows, 3 * width, width)),
             (FLASH[0], A100.product(rows * 16, length, 128) / 0.55), (A100.names[0], A100.product(rows, width, width)),
             ("triton_per_fused_add_native_layer_norm_1", 3.4 * once),
             (name.format("gelu_2"), A100.product(rows, 4 * width, width) * 1.04),
             (A100.names[0], A100.product(rows, width, 4 * width))]  # fmt: skip
    behind = []
    for kept, us in reversed(ahead):
        if kept == A100.names[0] or "addmm" in kept:
            behind += [(A100.names[0], us), (A100.names[0], us), ("triton_red_fused_sum_5", once)]
        elif kept == FLASH[0]:
            behind.append((FLASH[1], 2.6 * us))
        else:
            behind.append((kept.replace("norm", "norm_backward"), 1.7 * us))
    return ahead * VIT[0], behind * VIT[0]


def replayed_vit(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a ViT-L compiled with `mode="max-autotune"` on an A100, 96 pictures: one graph forward, one
    backward, inputs go to its static memory, the optimizer is fused, the loss is read in one of six steps. No shapes.

    Not: launches, idle time, waits, kernels of Triton, the batch.
    """
    ahead, behind = _vit()
    loader(rt, 180)
    nbytes = VIT[2] * 3 * 224 * 224 * 2
    rt.free[COPIES] = max(rt.free.get(COPIES, 0), pinned(rt, nbytes, [VIT[2], 3, 224, 224], BF16, stream=COPIES))
    rt.waits(MAIN, rt.free[COPIES])
    with rt.span("TorchDynamo Cache Lookup", us=22):
        pass
    rt.sequence += 1
    args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with (rt.span("Torch-Compiled Region: 0/0", us=90), rt.span("CompiledFunction", us=60, **args),
          rt.span("## Call CompiledFxGraph fzq6ld7w2 ##", "user_annotation", us=20)):  # fmt: skip
        rt.op("aten::copy_", run=((CAST, A100.moves(2 * nbytes)),), gap=8)
        graphed(rt, ahead, 3)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph f2mhy0vna ##", "user_annotation", us=20)):  # fmt: skip
        graphed(rt, behind, 4)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 304e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 304e6), 2)
    fused_adamw(rt, A100, 304e6)
    if rt.number == 4:
        rt.value()
    rt.host(260)


AMD, BLOCKS, TEXT, QWEN = list(range(8)), 28, (6, 2_048, 1_536, 4, 8_960), 151_936


def rccl(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Qwen2.5-1.5B in bf16 by Trainer on 8 MI300X, DDP, Liger's kernels; gradients travel over
    Infinity Fabric beside the backward pass, 1 of 29 reductions ends after it. No shapes, no rows of steps.

    Not: communication, buckets, launches (the host is ahead), waits, attention, the optimizer.
    """
    groups(rt, 8, default_pg=AMD)
    rt.head["distributedInfo"]["rank"] = 6
    tape, x = Tape(), list(TEXT[:3])
    loader(rt, 150)
    for _ in range(3):
        pinned(rt, prod(x[:2]) * 8, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for _ in range(BLOCKS):
            llama(rt, tape, MI300X, TEXT, fused_norm)
        one = len(tape) // BLOCKS
        fused_norm(rt, tape, MI300X, x)
        linear_loss(rt, tape, MI300X, "LigerFusedLinearCrossEntropyFunction",
                    ("liger_cross_entropy_kernel", 4 * MI300X.moves(prod(x[:2]) * QWEN)),
                    (prod(x[:2]), x[2], QWEN), 2)  # fmt: skip
    end, count = 0.0, 46_797_824
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) < BLOCKS * one and len(tape) % one == 0:
                end = rt.collective("allreduce", 40 + count * 2 * 1.75 / 290e3, (count,) * 2,
                                    kernel="Generic_1")  # fmt: skip
        end = rt.collective("allreduce", 40 + QWEN * x[2] * 2 * 1.75 / 290e3, (QWEN * x[2],) * 2,
                            kernel="Generic_1")  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2 * 1.54e9), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", MI300X.moves(4 * 1.54e9), 3)
    fused_adamw(rt, MI300X, 1.54e9 / 2)
    rt.host(800)


LENGTHS = (384, 352, 320, 320, 288, 256, 256)
BGE, TEXTS = (24, 1_024), 128
ADA_HALF = Card(150, 850, HALF, ADA.card.names, FLASH)
POOLED = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::Half, c10::Half, c10::Half, …>>"
)


def vectors(rt: Framed, fixed: bool) -> None:
    """Nothing to change: vectors of texts by BGE-large in fp16 on an RTX 4090, 128 a batch, the longest first, so that
    steps become shorter; workers have the tokens, results leave to pinned memory on a stream of their own and are
    looked at two batches later. Nothing is trained.

    Not: launches, the loader, copies, waits, steps that differ, the batch.
    """
    length = LENGTHS[rt.number % len(LENGTHS)]
    x = [TEXTS, length, BGE[1]]
    loader(rt, 150)
    for _ in range(2):
        pinned(rt, TEXTS * length * 8, [TEXTS, length], "long int")
    with without_graph(rt):
        rt.op("aten::embedding", run=((REDUCE, ADA_HALF.moves(4 * prod(x))),), gap=16, dims=([30_522, BGE[1]], x[:2]))
        passed(rt, ADA_HALF, "aten::layer_norm", kernel("layer_norm", 2), x, 2)
        for _ in range(BGE[0]):
            encoded(rt, ADA_HALF, x)
        for passes in (0.02, 0.02, 0.02):
            passed(rt, ADA_HALF, "aten::linalg_vector_norm", POOLED, [TEXTS, BGE[1]], passes)
    rt.waits(COPIES, rt.free[MAIN])
    with rt.span("aten::copy_", us=6):
        rt.copy(TEXTS * BGE[1] * 2, "DtoH", "Pinned", stream=COPIES)
    if rt.number > 1:
        rt.call("EventSynchronize", 3, until=rt.ends[-2] + 40)
    rt.host(300)


PAIR, PICTURES, BUCKETS = [0, 1], 256, 4
A100_BF16 = Look(replace(A100, tflops=165), tuple(XMMA.format(way, "bf16bf16_bf16f32_f32", 16) for way in (
    "fprop", "dgrad", "wgrad")), NHWC.replace("__half2", "__nv_bfloat162"), True)  # type: ignore[arg-type]  # fmt: skip


def lightning(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a ResNet-50 by Lightning on 2 A100, DDP, `bf16-mixed`, channels_last, 256 pictures each, fused
    SGD; pictures travel as bytes and are normed on the GPU, eight workers are ahead, `log_every_n_steps=50` reads the
    loss in one of six steps. Lightning's annotations.

    Not: a loader, layouts, casts of weights, communication, launches, the one wait.
    """
    groups(rt, 2, default_pg=PAIR)
    tape, card, dims = Tape(), A100_BF16.card, [PICTURES, 3, 224, 224]
    with rt.span("[pl][profile][_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=30):
        loader(rt, 200)
    with rt.span("[pl][profile][Strategy]DDPStrategy.batch_to_device", "user_annotation", us=40):
        pinned(rt, prod(dims), dims, "unsigned char")
        pinned(rt, PICTURES * 8, [PICTURES], "long int")
    with rt.span("[pl][profile][Callback]Normalize.on_train_batch_start", "user_annotation", us=40):
        for name, passes in (("_to_copy", 5), ("sub_", 8), ("div_", 8)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), card.moves(passes * prod(dims))),), dims=(dims,), gap=14)
    with rt.span("[pl][profile]run_training_batch", "user_annotation", us=60):
        with (rt.span("[pl][profile][Strategy]DDPStrategy.training_step", "user_annotation", us=40),
              rt.span("DistributedDataParallel.forward", "user_annotation", us=60)):  # fmt: skip
            run = ((CAST, card.moves(6 * prod(dims))),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(dims,))
            resnet(rt, tape, A100_BF16, PICTURES, (7, 7))
            elementwise(rt, tape, card, "mean", [PICTURES, 2_048, 7, 7], back=(("div", 2),))
            dense(rt, tape, card, PICTURES, (PICTURES, 2_048, 1_000))
        small(rt, tape, ("_to_copy", "log_softmax", "nll_loss"), [PICTURES, 1_000], 4)
        with rt.span("[pl][profile][Strategy]DDPStrategy.backward", "user_annotation", us=50), rt.backward():
            one, end = len(tape) // BUCKETS, 0.0
            while tape:
                tape.pop()()
                if len(tape) % one == 0 and len(tape) < BUCKETS * one:
                    end = rt.collective("allreduce", 30 + 25.6e6 / BUCKETS * 4 / 230e3, (6_400_000,) * 2, ranks=PAIR,
                                        dtype="Float", kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        rt.waits(MAIN, end)
        with rt.span("Optimizer.step#SGD.step", "user_annotation", us=150):
            rt.op("aten::_fused_sgd_", us=40, run=((
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>, "
                "FusedSgdMathFunctor<float, 3>>(…)", card.moves(20 * 25.6e6)),))  # fmt: skip
    with rt.span("[pl][profile][Callback]TQDMProgressBar.on_train_batch_end", "user_annotation", us=150):
        if rt.number == 3:
            rt.value()
    rt.host(300)
