"""Jobs of the eleventh set without a fault: an evaluation, a recommender, Whisper, a compiled diffusion model.

evaluating: timm's validation reads three values after 170 ms of work. prefetching: TorchRec exchanges the next batch's
indices beside the kernels; its reads wait for a stream that has little to do. whispered: GPU-bound; Trainer's look for
NaN. denoising: compiles in the first step.
"""

from __future__ import annotations

from contextlib import ExitStack

from ..eighth_set.ranks import groups
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16, NODE
from ..tenth_set.jobs import FLASH, H100
from .language import flash
from .rows import COPY, FOREACH, Sized, elementwise, foreach, node
from .small import encoder

GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
HALF = "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_tn"
A100_HALF = Card(230, 1_450, "c10::Half", (HALF, HALF), FLASH)
TF32 = "cutlass_80_tensorop_s1688gemm_256x128_32x3_tn_align4"
A100_TF32 = Card(75, 1_450, "float", (TF32, TF32), FLASH)
L4 = Card(62, 250, BF16, (GEMM, GEMM), FLASH)
DIST, SPARSE = 17, 24


def evaluating(rt: Sized, fixed: bool) -> None:
    """ViT-L/16, 256 pictures, fp16 by autocast, no gradients; `synchronize()` and three `item()` after it."""
    begun = len(rt.rows)
    with rt.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=260):
        pass
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        end = rt.copy(256 * 3 * 224 * 224, stream=COPIES)
    rt.waits(MAIN, 0 if rt.number else end)  # later batches were copied a step ahead
    for name in ("aten::sub_", "aten::div_"):
        rt.op(name, run=((COPY, A100_HALF.moves(256 * 3 * 224 * 224 * 8)),), dims=([256, 3, 224, 224], [1, 3, 1, 1]))
    for _ in range(24):
        for size in ([3072, 1024], [1024, 1024], [4096, 1024], [1024, 4096]):
            run = ((CAST, A100_HALF.moves(6 * size[0] * size[1])),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
        encoder(rt, [], A100_HALF, (256, 197, 1_024))
    dense(rt, [], A100_HALF, 256, (256, 1_024, 1_000))
    for name in ("cross_entropy_loss", "topk", "eq", "sum", "mul_", "sum", "mul_"):
        rt.op(f"aten::{name}", run=((REDUCE, 6),), dims=([256, 1000],), kind="c10::Half")
    rt.wait()
    for _ in range(3):
        rt.value()
    rt.host(160)
    for row in rt.rows[begun:]:
        row["args"].pop("Sequence number", None)
        row["args"].pop("Fwd thread id", None)


def exchanged(rt: Sized, us: float, count: int, stream: int, *, behind: bool = True) -> float:
    """`all_to_all_single` of a table-wise sharded model."""
    return rt.collective("all_to_allv", us, (count, count), stream=stream, behind=behind, dtype="Float",
                         splits=str([count // 8] * 8))  # fmt: skip


def prefetching(rt: Sized, fixed: bool) -> None:
    """TorchRec, rank 1 of 8: `TrainPipelineSparseDist`."""
    groups(rt, 8, default_pg=list(range(8)))
    tape: Tape = []
    with rt.span("## zero_grad ##", "user_annotation", us=60):
        pass
    with rt.span("## wait_for_batch ##", "user_annotation", us=20):
        rt.waits(MAIN, 0)
    with rt.span("## start_sparse_data_dist 2 ##", "user_annotation", us=80):
        rt.op("fbgemm::permute_2D_sparse_data", us=60)
        name = "void fbgemm_gpu::permute_2D_data_kernel<false, long, int, float>(…)"
        rt.work(name, 160, stream=DIST)
        rt.free[SPARSE] = max(rt.free.get(SPARSE, 0), rt.free[DIST])
        exchanged(rt, 60, 8 * 26 * 4_096, SPARSE, behind=False)
    with rt.span("## forward ##", "user_annotation", us=90):
        for width in (512, 512, 256, 128):
            dense(rt, tape, A100_TF32, 1, (8_192, width, width))
        lookup = "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 64ul>(…)"
        number = rt.op("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", us=45, graph=True,
                       run=((lookup, 2_600),), dims=([48_000_000, 128], [26 * 65_536]))  # fmt: skip
        with rt.span("All2All_Pooled_Req", us=60):
            done = exchanged(rt, 2_900, 26 * 8_192 * 128, SPARSE)
        rt.op("aten::linear", "aten::addmm", run=((A100_TF32.names[0], 2_500),), dims=([8192, 2048], [2048, 2048]))
        with rt.span("All2All_Pooled_Wait", us=30):
            rt.waits(MAIN, done)
        for _ in range(7):
            dense(rt, tape, A100_TF32, 1, (8_192, 3_456, 3_456))
            elementwise(rt, tape, A100_TF32, "relu", [8_192, 3_456], back=(("threshold_backward", 3),))
    with rt.span("## wait_sparse_data_dist 2 ##", "user_annotation", us=70):
        for _ in range(4):
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(832, "DtoH", "Pageable", stream=DIST)
        rt.free[SPARSE] = max(rt.free[SPARSE], rt.free[DIST])
        exchanged(rt, 900, 26 * 65_536, SPARSE, behind=False)
    with rt.span("## backward ##", "user_annotation", us=60), rt.backward():
        place, end, outer = len(tape), 0.0, "All2All_Pooled_ReqBackward"
        while tape:
            tape.pop()()
            if len(tape) == 4:
                with rt.span(NODE + outer, us=20), rt.span(outer, us=20):
                    done = exchanged(rt, 2_900, 26 * 8_192 * 128, SPARSE)
            elif len(tape) % 4 == 0 and len(tape) < place:
                end = rt.collective("allreduce", 320, (24_000_000,) * 2, dtype="Float", stream=30,
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
        rt.op("aten::mm", run=((A100_TF32.names[1], 2_500),) * 2, dims=([8192, 2048], [2048, 2048]))
        rt.waits(MAIN, done)
        with node(rt, "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", number):
            for name, us in (
                ("DeviceRadixSortOnesweepKernel", 240),
                ("DeviceReduceByKeyKernel", 170),
                ("split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1", 3_100),
            ):
                rt.work(f"void {name}<float, float, long, 2ul>(…)", us)
        rt.waits(MAIN, end)
    with rt.span("## optimizer ##", "user_annotation", us=40):
        fused_adamw(rt, A100_TF32, 84e6)
    with rt.span("## copy_batch_to_gpu 3 ##", "user_annotation", us=60):
        rt.copy(26 * 65_536 * 8, stream=COPIES)


def whispered(rt: Sized, fixed: bool) -> None:
    """Whisper small on an L4, bf16 by autocast."""
    tape: Tape = []
    rt.batch(16 * 80 * 3_000 * 4, 16 * 200 * 8)
    for _ in range(12):
        for size in ([2304, 768], [768, 768], [3072, 768], [768, 3072]):
            run = ((CAST, L4.moves(6 * size[0] * size[1])),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
        encoder(rt, tape, L4, (16, 1_500, 768))
    for _ in range(12):
        x = [16, 200, 768]
        encoder(rt, tape, L4, (16, 200, 768))
        norm(rt, tape, L4, x)
        dense(rt, tape, L4, 16, (3_200, 768, 768))
        dense(rt, tape, L4, 16, (24_000, 768, 1_536))
        flash(rt, tape, L4, [16, 12, 200, 64], causal=False)
        dense(rt, tape, L4, 16, (3_200, 768, 768))
    dense(rt, tape, L4, 16, (3_200, 768, 51_865))
    run = ((REDUCE, L4.moves(3_200 * 51_865 * 6)),)
    number = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", run=run, graph=True,
                   dims=([3_200, 51_865],), kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", number, "aten::_log_softmax_backward_data", run=run,
                                dims=([3_200, 51_865],) * 2, kind=BF16))  # fmt: skip
    back(rt, tape)
    for name in ("isnan", "isinf"):
        rt.op(f"aten::{name}", run=((COPY, 3),), dims=([],))
        rt.value("aten::is_nonzero")
    foreach(rt, "_foreach_norm", "LpNormFunctor", L4.moves(970e6), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", L4.moves(1.94e9), 4)
    fused_adamw(rt, L4, 242e6)
    rt.host(900)


_PHASES = (
    "_compile.compile_inner",
    "OutputGraph.call_user_compiler",
    "create_aot_dispatcher_function",
    "compile_fx.<locals>.fw_compiler_base",
    "GraphLowering.compile_to_module",
    "async_compile.wait",
)


def compiled_here(rt: Sized, seconds: float) -> None:
    """Rows of a compilation, one within another."""
    with ExitStack() as open_rows:
        for name in _PHASES:
            open_rows.enter_context(rt.span(f"{name} (dynamo_timed)", "user_annotation", us=4_000))
            rt.host(seconds * 1e6 / len(_PHASES))


def denoising(rt: Sized, fixed: bool) -> None:
    """A DiT of 12 layers, 4 x 4,096 tokens, compiled in its first step, with a moving average."""
    product = H100.product(16_384, 3_072, 3_072)
    core, one = H100.product(4 * 24 * 4_096, 4_096, 256) / 0.6, H100.moves(2 * 16_384 * 3_072)
    mm = "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT"
    products = {"qkv": 3 * product, "out": product, "up": 4 * product, "down": 4 * product}
    layer = (("triton_per_fused_add_mul_native_layer_norm_2", 2 * one), (mm, products["qkv"]), (FLASH[0], core),
             (mm, products["out"]), ("triton_per_fused_add_mul_native_layer_norm_5", 3 * one), (mm, products["up"]),
             ("triton_poi_fused_gelu_6", 8 * one), (mm, products["down"]))  # fmt: skip
    behind = tuple(
        part
        for name, us in reversed(layer)
        for part in (((name, us),) * 2 if name is mm else ((_behind(name), 2.5 * us if "flash" in name else 1.7 * us),))
    )
    rt.batch(4 * 16 * 128 * 128 * 2, 4 * 512 * 4_096 * 2)
    cold, rt.sequence = rt.number == 0, rt.sequence + 1
    number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("TorchDynamo Cache Lookup", us=25):
        pass
    if cold:
        compiled_here(rt, 31)
    with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=40, **number),
          rt.span("## Call CompiledFxGraph fqv6ya7 ##", "user_annotation", us=20)):  # fmt: skip
        for _ in range(12):
            launched(rt, layer, mm)
    with rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence):
        if cold:
            compiled_here(rt, 24)
        with rt.span("## Call CompiledFxGraph fj3m0sl ##", "user_annotation", us=20):
            for _ in range(12):
                launched(rt, behind, mm)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2.7e9), 6)
    fused_adamw(rt, H100, 1.36e9)
    kernel = FOREACH.format(2, "TernaryOpScalarFunctor", 2, "LerpFunctor<float>")
    rt.op("aten::_foreach_lerp_", run=((kernel, H100.moves(12 * 1.36e9 / 6)),) * 6, us=200)
    for _ in range(14 if rt.number < 2 else 0):
        rt.call("Malloc", rt.vary(500, 0.5))
    rt.host(300)


def _behind(name: str) -> str:
    return FLASH[1] if "flash" in name else name.replace("native_layer_norm", "native_layer_norm_backward")


def launched(rt: Sized, kernels: tuple[tuple[str, float], ...], mm: str) -> None:
    """What inductor's code calls: products by `extern_kernels.mm`, the rest by launches of its own."""
    for name, us in kernels:
        if name is mm:
            rt.op("aten::mm", run=((name, us),), gap=3, us=7, kind=BF16)
        else:
            rt.host(5)
            rt.work(name, us, call="cuLaunchKernel" if "triton" in name else "")
