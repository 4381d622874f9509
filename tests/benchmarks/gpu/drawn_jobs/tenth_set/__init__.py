"""Twelve jobs as people train and report them; each without its fault is its truth.

Drawn 27 November 2026, before anything was analysed and before any rule was read for them, after threads:
huggingface/transformers#31372 (`empty_cache` in the loop), leggedrobotics/rsl_rl#228 and
computational-cell-analytics/micro-sam#1329 (gradients reduced by hand after backward), Nerogar/OneTrainer#1608
(statistics moved to the GPU in each step), HuguesTHOMAS/KPConv-PyTorch#22 (`synchronize` for a timer),
pyg-team/pytorch_geometric#1877 (sampling in the main process), georgian-io/LLM-Finetuning-Toolkit#134 (a T4: fp16,
neither bf16 nor TF32), NVIDIA/apex#668 (AMP without channels_last), kyleliang919/C-Optim#8 (an optimizer in a loop),
jingyaogong/minimind#835 (experts that are asked for); without a fault nanoGPT compiled in DDP, timm's prefetcher and
moving average, a graph network on its whole graph. Wrong advice stands with each as `silent`.

What they cost, ms of a step (`drawn_traces.py` computes it): emptied 9.3 of 282.9, by_hand 32.7 of 250.0, scaled 6.4 of
126.6, timed 6.5 of 26.2, sampled 18.8 of 42.5, single 210 of 291, images 29.0 of 93.4, cautious 12.6 of 151.8 by
`torch._foreach_*`, and more where ops are fused, experts 4.6 of 81.5.
"""

from __future__ import annotations

from .. import kineto
from ..eighth_set import Recording
from ..kineto import Kineto
from ..layers import CAST, REDUCE, VECTOR, Card, Tape, back, block, dense, fused_adamw, pointwise
from ..runtime import MAIN
from ..seventh_set import BF16
from .jobs import cautious, compiled, experts, full_graph, images, sampled, timed

FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8>>",
)
CUTLASS = (
    "fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
    "fmha_cutlassB_f32_aligned_64x64_k64_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<float>::Params)",
)
AMPERE = (
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nt",
)
A100 = Card(200, 1_450, BF16, AMPERE, FLASH)
RTX4090 = Card(140, 850, BF16, AMPERE, FLASH)
RTX3090 = Card(60, 780, BF16, AMPERE, FLASH)
T4 = Card(4.2, 255, "float", ("volta_sgemm_128x64_tn", "volta_sgemm_128x64_nn"), CUTLASS)
HALF = ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn")
T4_HALF = Card(20, 255, "c10::Half", HALF, (CUTLASS[0].replace("f32", "f16"), CUTLASS[1].replace("f32", "f16")))


def batches(rt: Kineto, nbytes: int, us: float = 140) -> None:
    """A batch of a loader's workers, copied from pinned memory."""
    with rt.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=us):
        pass
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(nbytes)


def loss(rt: Kineto, tape: Tape, card: Card, tokens: int, classes: int) -> None:
    """Cross entropy."""
    size = [tokens, classes]
    run = (("void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>(…)", card.moves(
        2 * tokens * classes * card.size)),)  # fmt: skip
    number = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", run=run, dims=(size,),
                   kind=card.kind, graph=True)  # fmt: skip
    other = rt.op(
        "aten::nll_loss_nd",
        "aten::nll_loss",
        "aten::nll_loss_forward",
        graph=True,
        dims=(size, [tokens]),
        run=(("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", 9),),
    )
    done = (("void (anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float>(…)", run[0][1] * 1.4),)
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", number, "aten::_log_softmax_backward_data", run=done,
                                dims=(size, size), kind=card.kind))  # fmt: skip
    tape.append(lambda: rt.grad("NllLossBackward0", other, "aten::nll_loss_backward", run=(("nll_loss_backward", 12),)))


def emptied(rt: Kineto, fixed: bool) -> None:
    """HF Trainer: `torch.cuda.empty_cache()` after the loss: 14 calls of `cudaFree`, then blocks are made again."""
    tape: Tape = []
    batches(rt, 65_536)
    for _ in range(14):
        block(rt, tape, A100, 2, 2_048, 3_072)
    dense(rt, tape, A100, 2, (4_096, 3_072, 32_064))
    loss(rt, tape, A100, 4_096, 32_064)
    if not fixed:
        rt.host(40)
        for _ in range(14):
            rt.call("Free", rt.vary(720, 0.4), until=max(rt.free.values()) + 30)
    again = 0 if fixed else 14
    with rt.backward():
        while tape:
            if again:
                again -= 1
                with rt.span("aten::empty", us=2):
                    rt.call("Malloc", rt.vary(380, 0.4))
            tape.pop()()
    rt.op("aten::_foreach_norm", run=(("void at::native::lpnorm_cleanup", 400),))
    rt.op("aten::_foreach_mul_", run=(("void at::native::multi_tensor_apply_kernel<BinaryOpScalarTensor>", 700),))
    fused_adamw(rt, A100, 1.7e9 / 4)


def by_hand(rt: Kineto, fixed: bool) -> None:
    """Four RTX 4090 without NVLink: all gradients in one reduction after backward; without: DDP's buckets."""
    rt.head = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4, "pg_count": 1}}
    tape, wide, links = Tape(), 7_087_872, {"ranks": [0, 1, 2, 3], "kernel": "AllReduce_Sum_bf16_RING_SIMPLE"}
    batches(rt, 25 << 20)
    for _ in range(12):
        block(rt, tape, RTX4090, 32, 1_024, 768)
    parts, end, layer = len(tape), 0.0, len(tape) // 12
    with rt.backward():
        while tape:
            tape.pop()()
            if fixed and len(tape) % layer == 0:
                end = rt.collective("allreduce", wide * 2 * 1.5 / 7.5e3, (wide, wide), **links)
    whole = parts // layer * wide
    if not fixed:
        rt.op("aten::cat", run=(("void at::native::(anonymous namespace)::CatArrayBatchedCopy<…>", whole * 4 / 850e3),),
              dims=([wide],), kind=BF16, us=90)  # fmt: skip
        end = rt.collective("allreduce", whole * 2 * 1.5 / 7.5e3, (whole, whole), **links)
    rt.waits(MAIN, end)
    if not fixed:
        rt.op("aten::div_", run=((VECTOR.format("DivFunctor", 2), whole * 4 / 850e3),), dims=([whole], []), kind=BF16)
        for _ in range(144):
            rt.op("aten::copy_", run=((CAST, whole * 4 / 850e3 / 144),), dims=([wide // 12],) * 2, kind=BF16, gap=9)
    fused_adamw(rt, RTX4090, whole)


def scaled(rt: Kineto, fixed: bool) -> None:
    """OneTrainer: the VAE's statistics lie on the host and are moved in each step, before Python prepares the rest."""
    tape: Tape = []
    batches(rt, 300_000)
    for _ in range(2):
        if not fixed:
            rt.moved(512, 2, [128])
    size = [1, 128, 32, 40]
    for name in ("sub", "div", "randn_like", "mul", "add"):
        rt.op(f"aten::{name}", run=((VECTOR.format(name, 3), 3),), dims=(size, size), kind=BF16, gap=30)
    rt.host(6_000)
    for _ in range(24):
        block(rt, tape, RTX3090, 1, 1_280, 1_536)
    run = ((REDUCE, 6),)
    number = rt.op("aten::mse_loss", run=run, dims=([1, 1280, 1536],) * 2, kind=BF16, graph=True)
    tape.append(lambda: rt.grad("MseLossBackward0", number, "aten::mse_loss_backward", run=run))
    back(rt, tape)
    fused_adamw(rt, RTX3090, 60e6)


def single(rt: Kineto, fixed: bool) -> None:
    """HF Trainer fine-tunes BERT in fp32 on a T4; without: `fp16=True`. Trainer looks for NaN."""
    tape, card = Tape(), T4_HALF if fixed else T4
    batches(rt, 50_000)
    for _ in range(12):
        if fixed:
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, 42e6 / 255e3),), dims=([3072, 768],))
        block(rt, tape, card, 16, 128, 768)
    dense(rt, tape, card, 16, (16, 768, 768))
    pointwise(rt, tape, card, "tanh", [16, 768])
    loss(rt, tape, card, 16, 2)
    back(rt, tape)
    if fixed:
        rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", us=90, run=(
            ("void at::native::multi_tensor_apply_kernel<unscale>", 872e6 / 255e3),))  # fmt: skip
    for name in ("isnan", "isinf"):
        rt.op(f"aten::{name}", run=((VECTOR.format("CompareEq", 2), 3),), dims=([],))
        rt.value("aten::is_nonzero")
    fused_adamw(rt, card, 109e6)


JOBS = (
    Recording("emptied", kineto.A100, emptied, "empty_cache in each step", ("allocator-churn",), 5,
              silent=("expandable_segments", "small-batch")),
    Recording("by_hand", kineto.RTX4090, by_hand, "gradients are reduced after backward", ("exposed-communication",), 6,
              silent=("bucket_cap_mb", "no_sync")),
    Recording("scaled", kineto.RTX3090, scaled, "two small tensors are moved in each step, the host waits",
              ("sync-in-loop", "pageable-copies", "blocking-copies"), 8, silent=("input-bound", "num_workers")),
    Recording("timed", kineto.V100, timed, "synchronize() in each step", ("sync-in-loop",), 8, silent=("input-bound",)),
    Recording("sampled", kineto.L4, sampled, "neighbours are sampled in the main process", ("input-bound",), 10,
              silent=("small-batch",)),
    Recording("single", kineto.T4, single, "products in fp32, where fp16 has tensor cores", ("fp32-matmul",), 5,
              silent=("bfloat16", "TF32")),
    Recording("images", kineto.A10G, images, "cuDNN transposes tensors: no channels_last", ("layout-transposes",), 6,
              silent=("fp32-matmul",)),
    Recording("cautious", kineto.H100, cautious, "an optimizer's loop over parameters", ("unfused-optimizer",), 5,
              silent=("small-batch",)),
    Recording("looped_experts", kineto.MI300X, experts, "the host reads the tokens of each expert", ("sync-in-loop",),
              5, rocm=True, silent=("every N steps",)),
    Recording("compiled", kineto.A100, compiled, "nothing: nanoGPT in DDP", (), 5, silent=("exposed-communication",)),
    Recording("prefetched", kineto.L4, lambda rt, fixed: images(rt, True), "nothing: timm as it is", (), 6),
    Recording("full_graph", kineto.RTX4090, full_graph, "nothing: one read after each epoch of 95 ms", (), 8,
              silent=("sync-in-loop",)),
)  # fmt: skip


def run(job: Recording, *, fixed: bool = False) -> Kineto:
    """Some steps of a job."""
    rt = Kineto(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
