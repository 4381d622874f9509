"""Jobs of the seventeenth set in which nothing is worth a change, though some of it may look so."""

from __future__ import annotations

from math import prod

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm
from ..eleventh_set.rows import COPY, foreach, kernel, linear, node
from ..kineto import device
from ..layers import REDUCE, Card, Tape, back, fused_adamw
from ..runtime import COPIES, MAIN
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH, H100
from ..thirteenth_set.healthy import FUSED
from ..thirteenth_set.rows import Fresh
from ..twelfth_set.language import A100, AMPERE, qwen
from ..twelfth_set.pictures import HALF, small
from ..twelfth_set.rows import Framed
from .rows import linear_loss, triton, triton_loss

SHAPE, VOCABULARY = (1, 16_384, 3_584, 4, 18_944), 152_064
LAYER = "transformers/modeling_layers.py(94): __call__"


def recomputed(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Qwen2.5-7B with adapters over 16,384 tokens on an H100 by Trainer; layers run once more in the
    backward pass, as without it 100 GB of activations had to stay. What Trainer reads comes after 2.5 s of work.
    """
    numbers, last = list[int](), Tape()
    rt.batch(SHAPE[1] * 8, SHAPE[1] * 8, SHAPE[1] * 8)
    with rt.frame("transformers/trainer.py(3745): training_step", "nn.Module: Qwen2ForCausalLM_0"):
        for _ in range(28):
            with rt.frame(LAYER, "torch/utils/checkpoint.py(488): checkpoint"):
                rt.sequence += 1
                numbers.append(rt.sequence)
                args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
                with rt.span("CheckpointFunction", us=40, **args), without_graph(rt):
                    qwen(rt, [], H100, SHAPE, eager=False, liger=True)
        linear_loss(rt, last, H100, "LigerFusedLinearCrossEntropyFunction",
                    ("liger_cross_entropy_kernel", 4 * H100.moves(SHAPE[1] * VOCABULARY)),
                    (SHAPE[1], SHAPE[2], VOCABULARY), 1)  # fmt: skip
    with rt.frame("accelerate/accelerator.py(2734): backward"), rt.backward():
        last.pop()()
        for number in reversed(numbers):
            with node(rt, "CheckpointFunctionBackward", number):
                tape: Tape = []
                qwen(rt, tape, H100, SHAPE, eager=False, liger=True)
                while tape:
                    tape.pop()()
    with rt.frame("transformers/trainer.py(2604): _inner_training_loop"):
        for name in ("isnan", "isinf"):
            rt.op(f"aten::{name}", run=((COPY, 3),), dims=([],))
            rt.value("aten::is_nonzero")
        foreach(rt, "_foreach_norm", "LpNormFunctor", 40, 2)
        fused_adamw(rt, H100, 5e6)
        rt.value()  # the norm of gradients, for the log
        rt.host(1_100)


WIDTH, BLOCKS, PATCHES = 1_152, 28, 64 * 256


def smoothed(rt: Framed, fixed: bool) -> None:
    """Nothing to change: DiT-XL/2 on an A100 from latents that lie on disk, compiled, clipped and with a moving average
    by lists; the loss is added up on the device and read in one of the steps. No shapes.
    """
    with rt.span("TorchDynamo Cache Lookup", us=24):
        pass
    rt.batch(64 * 4 * 32 * 32 * 4, 64 * 8)
    small(rt, None, ("randint", "randn_like", "index", "mul", "mul", "add"), [64, 4, 32, 32], 3)
    rt.sequence += 1
    number = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    once = A100.moves(2 * PATCHES * WIDTH)
    flash = A100.product(64 * 16 * 256, 256, 2 * 72) / 0.6
    block = (("triton_per_fused_add_mul_native_layer_norm_0", 2.2 * once), (3 * WIDTH, WIDTH), ("flash", flash),
             (WIDTH, WIDTH), ("triton_per_fused_add_mul_native_layer_norm_1", 4.2 * once), (4 * WIDTH, WIDTH),
             ("triton_poi_fused_gelu_2", 8.2 * once), (WIDTH, 4 * WIDTH),
             ("triton_poi_fused_add_mul_3", 3.2 * once))  # fmt: skip

    def launched(part: tuple[str | int, float], backward: bool) -> None:
        name, size = part
        rt.host(5)
        if isinstance(name, int):
            for _ in range(2 if backward else 1):
                rt.op("aten::addmm" if not backward else "aten::mm", gap=1, us=6,
                      run=((A100.names[backward], A100.product(PATCHES, name, round(size))),))  # fmt: skip
        elif name == "flash":
            way = "backward" if backward else "forward"
            rt.op(f"aten::_scaled_dot_product_flash_attention{'_backward' * backward}",
                  f"aten::_flash_attention_{way}", us=8, gap=1,
                  run=((A100.attention[backward], size * (2.5 if backward else 1)),))  # fmt: skip
        else:
            triton(rt, name.replace("fused", "fused_backward") if backward else name, size * (1.9 if backward else 1))

    with (rt.span("Torch-Compiled Region: 0/0", us=90), rt.span("CompiledFunction", us=40, **number),
          rt.span("## Call CompiledFxGraph fq2x7ab ##", "user_annotation", us=20)):  # fmt: skip
        for _ in range(BLOCKS):
            for part in block:
                launched(part, False)
    small(rt, None, ("sub", "pow", "mean", "detach", "add_"), [64, 4, 32, 32], 4)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph fbb0k3u ##", "user_annotation", us=20)):  # fmt: skip
        for _ in range(BLOCKS):
            for part in reversed(block):
                launched(part, True)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 675e6), 6)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 675e6), 6)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=150):
        rt.op("aten::_fused_adamw_", us=80, run=((FUSED, A100.moves(28 * 675e6 / 6)),) * 6)
    foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", A100.moves(12 * 675e6), 6, 210)
    if rt.number == 5:
        rt.op("aten::div", run=((kernel("div", 2), 2.4),), gap=12)
        rt.value()
    rt.host(240)


INNER, DEEP = 3_072, 32
SCAN = (("_chunk_cumsum_fwd_kernel", 0.05), ("_chunk_state_fwd_kernel", 1.6), ("_state_passing_fwd_kernel", 0.9),
        ("_bmm_chunk_fwd_kernel", 0.3), ("_chunk_scan_fwd_kernel", 3.4))  # fmt: skip
SCANNED = (("_chunk_scan_bwd_dz_kernel", 3.2), ("_chunk_scan_bwd_dstates_kernel", 1.5),
           ("_state_passing_bwd_kernel", 1.1), ("_chunk_scan_chunk_state_bwd_dx_kernel", 3.6),
           ("_chunk_state_bwd_db_kernel", 1.4), ("_chunk_scan_bwd_dcb_kernel", 1.6), ("_bmm_chunk_bwd_kernel", 0.4),
           ("_chunk_scan_bwd_ddAcs_stable_kernel", 1.5), ("_chunk_cumsum_bwd_kernel", 0.1))  # fmt: skip
CONV = ("void causal_conv1d_channellast_fwd_kernel<Causal_conv1d_channellast_fwd_kernel_traits<128, 4, 64, …>, false>",
        "void causal_conv1d_channellast_bwd_kernel<Causal_conv1d_channellast_bwd_kernel_traits<128, 4, 64, …>>",
        )  # fmt: skip


def _scanned(rt: Framed, tape: Tape, x: list[int]) -> None:
    """A layer of Mamba-2 by its authors' kernels."""
    once = H100.moves(2 * x[0] * x[1] * INNER)
    fused_norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, 2 * INNER + 2 * 128 + 48)
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("MambaSplitConv1dScanCombinedFn", us=90, **args):
        rt.work(CONV[0], 2.4 * once)
        for name, passes in (*SCAN, ("_layer_norm_fwd_1pass_kernel", 3)):
            rt.host(14)
            triton(rt, name, max(4, passes * once))

    def backward() -> None:
        with node(rt, "MambaSplitConv1dScanCombinedFnBackward", number):
            for name, passes in (("_layer_norm_bwd_kernel", 4), *SCAN[1:3], *SCANNED):
                rt.host(14)
                triton(rt, name, max(4, passes * once))
            rt.work(CONV[1], 4.2 * once)
        rt.accumulated()

    tape.append(backward)
    linear(rt, tape, H100, [x[0], x[1], INNER], x[2])
    rt.op("aten::add", run=((kernel("add", 3, BF16), H100.moves(6 * prod(x))),), dims=(x, x), kind=BF16, graph=True)


def statespace(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Mamba-2 of 0.5 B by DDP on 8 H100, buckets of gradients go beside the backward pass; the last
    alone is exposed, and all that is idle is 1.9 of 175 ms.
    """
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 3
    tape, x, end, one, part = Tape(), [8, 2_048, 1_536], 0.0, 0, 14_900_000
    rt.batch(8 * 2_048 * 8, 8 * 2_048 * 8)
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for _ in range(DEEP):
            begun = len(tape)
            _scanned(rt, tape, x)
            one = len(tape) - begun
        fused_norm(rt, tape, H100, x)
        linear(rt, tape, H100, x, 50_288)
    triton_loss(rt, tape, H100, 16_384, 50_288)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) <= DEEP * one and len(tape) % (2 * one) == 0:
                end = rt.collective("allreduce", 30 + 2 * part * 4 * 1.75 / 330e3, (2 * part,) * 2, dtype="Float",
                                    kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * 5e8), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(8 * 5e8), 4)
    fused_adamw(rt, H100, 5e8)
    rt.host(320)


ADA = Card(55, 850, HALF, ("", ""), ("", ""))
GATHERED = "void conv_forward_cuda_setting2_mode1_f16f16f32<{}>(int, int, int, int, __half*, __half*, int*, __half*)"
ROWS = "void at::native::batch_norm_{}_channels_last_kernel<at::native::{}, float, float, 4>(…)"


def _convolved(rt: Framed, tape: Tape, voxels: int, cin: int, cout: int) -> None:
    """A convolution of voxels with eleven neighbours of 27 on the mean, its norm, a ReLU."""
    us = max(2 * voxels * 11 * cin * cout / ADA.tflops / 1e6, ADA.moves(2 * voxels * (6 * cin + cout)))
    dims, y = ([voxels, cin], [27, cin, cout]), 2 * voxels * cout
    number = rt.op("ImplicitGEMMConvolutionFunction", "torchsparse::conv_forward_implicit_gemm_sorted_cuda", us=22,
                   gap=55, graph=True, kind=HALF, dims=dims, run=((GATHERED.format(cout), us),))  # fmt: skip
    tape.append(lambda: rt.grad("ImplicitGEMMConvolutionFunctionBackward", number, us=20, kind=HALF, dims=dims, run=(
        (GATHERED.format(cin), us), (GATHERED.format(27).replace("forward", "backward_wgrad"), 1.4 * us),
        (REDUCE, 9))))  # fmt: skip
    seen = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", graph=True, gap=20,
                 dims=([voxels, cout],), kind=HALF, run=((ROWS.format("collect_statistics", "Var"), ADA.moves(y)),
                                                        (ROWS.format("transform_input", "Var"), ADA.moves(2 * y)),
                                                        ))  # fmt: skip
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", seen, "aten::native_batch_norm_backward", run=(
        (ROWS.format("backward_reduce", "Var"), ADA.moves(2 * y)),
        (ROWS.format("backward_elemt", "Var"), ADA.moves(3 * y))), dims=([voxels, cout],), kind=HALF))  # fmt: skip
    relu = rt.op("aten::relu_", "aten::clamp_min_", graph=True, run=((kernel("relu", 2, HALF), ADA.moves(2 * y)),),
                 gap=8, dims=([voxels, cout],), kind=HALF)  # fmt: skip
    tape.append(lambda: rt.grad("ReluBackward0", relu, "aten::threshold_backward", kind=HALF, run=(
        (kernel("threshold_backward", 3, HALF), ADA.moves(3 * y)),), dims=([voxels, cout],)))  # fmt: skip


def voxels(rt: Fresh, fixed: bool) -> None:
    """Nothing to change: MinkUNet on points of lidar by torchsparse and AMP, RTX 4090; how many voxels a level has is
    read once for each of four levels, the scale once: all that is idle is 1.5 of 219 ms. The first step is cold.
    """
    rt.cold, tape = rt.number == 0, Tape()
    if rt.cold:
        rt.library("aten::mm", 0.4)
    count = (420_000, 260_000, 130_000, 52_000, 19_000)
    rt.batch(count[0] * 16, count[0] * 16, count[0] * 8, us=190)
    for level, points in enumerate(count):
        for name in ("hash_kernel", "insert_coords_kernel", "build_kernel_map_subm_hashmap_int32",
                     "convert_out_in_map_kernel"):  # fmt: skip
            rt.op("torchsparse::build_kernel_map_subm_hashmap", gap=26, us=10, dims=([points, 4],), kind="int", run=(
                (f"void {name}(int, int*, int*, …)", ADA.moves(points * 40)),))  # fmt: skip
        if level < 4:
            with rt.span("aten::_unique2", us=12):
                for _ in range(4):
                    rt.work("void cub::DeviceRadixSortOnesweepKernel<…>", ADA.moves(points * 16))
                rt.work("void cub::DeviceSelectSweepKernel<…>", ADA.moves(points * 12))
                rt.copy(8, "DtoH", "Pageable", waits=True)
    widths = (48, 96, 192, 256, 320)
    for level, points in enumerate(count):
        cin = widths[max(0, level - 1)]
        for _ in range(5):
            _convolved(rt, tape, points, cin, widths[level])
            cin = widths[level]
    for level in reversed(range(4)):
        _convolved(rt, tape, count[level], widths[level + 1], widths[level])
        rt.op("aten::cat", run=((COPY, ADA.moves(8 * count[level] * widths[level])),), gap=14, kind=HALF,
              dims=([count[level], widths[level]],) * 2)  # fmt: skip
        for cin in (2 * widths[level], *(widths[level],) * 3):
            _convolved(rt, tape, count[level], cin, widths[level])
    small(rt, tape, ("linear", "_to_copy", "log_softmax", "nll_loss"), [count[0], 19], ADA.moves(8 * count[0] * 19))
    back(rt, tape)
    name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, unscale>(…)"
    rt.op("aten::_amp_foreach_non_finite_check_and_unscale_", run=((name, ADA.moves(8 * 21e6)),), us=70)
    rt.value()
    fused_adamw(rt, ADA, 21e6)
    rt.host(420)


RTX5090 = device("NVIDIA GeForce RTX 5090", (12, 0), 170, 31)
BLACKWELL = Card(150, 1_500, BF16, AMPERE, FLASH)
GRAPHS, NODES, SIZE = 256, 64, 384


def _recorded() -> list[tuple[str, float]]:
    """Kernels of a whole step of a graph transformer of ten layers, as a CUDA graph holds them."""
    card, rows = BLACKWELL, GRAPHS * NODES
    once = card.moves(2 * rows * SIZE)
    pairs = card.moves(2 * GRAPHS * NODES * NODES * 24)
    ahead = [("triton_per_fused_native_layer_norm_0", 2 * once), (card.names[0], card.product(rows, 3 * SIZE, SIZE)),
             ("triton_poi_fused_embedding_bias_1", pairs), ("triton_tem_fused_flex_attention_2", 74),
             (card.names[0], card.product(rows, SIZE, SIZE)), ("triton_per_fused_add_native_layer_norm_3", 4 * once),
             (card.names[0], card.product(rows, 4 * SIZE, SIZE)), ("triton_poi_fused_gelu_4", 8 * once),
             (card.names[0], card.product(rows, SIZE, 4 * SIZE)), ("triton_poi_fused_add_5", 3 * once),
             ]  # fmt: skip
    behind = [
        kept
        for name, us in reversed(ahead)
        for kept in (((card.names[1], us),) * 2 if name == card.names[0] else ((name + "_backward", 2 * us),))
    ]
    end = [("triton_red_fused_abs_mean_sub_9", 6), ("void at::native::lpnorm_cleanup<float, …>(…)", 12), (FUSED, 290)]
    return ahead * 10 + end[:1] + behind * 10 + end[1:]


def replaying(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a graph transformer on an RTX 5090, padded to 64 nodes a graph, a step is one CUDA graph; the
    next batch comes on a stream of its own while this one runs, and the loss is read each tenth step. 20 steps.
    """
    rt.host(160)
    with rt.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=190):
        pass
    held, ready = rt.free[MAIN], 0.0
    for nbytes in (GRAPHS * NODES * 9 * 8, GRAPHS * NODES * NODES * 2, GRAPHS * 4):
        rt.host(9)
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            ready = rt.copy(nbytes, stream=COPIES)
    rt.waits(MAIN, ready)
    foreach(rt, "_foreach_copy_", "CopyFunctor", 6, host=24)
    correlation, called = len(rt.rows) + 1, rt.now
    kernels = _recorded()
    rt.call("GraphLaunch", 60 + len(kernels) / 8, correlation=correlation)
    begin = max(called + 14, rt.free[MAIN] + 1.2)
    for place, (name, us) in enumerate(kernels):
        end = begin + rt.vary(us)
        ids = {"device": 0, "stream": MAIN, "correlation": correlation, "graph id": 1, "graph node id": place}
        rt.row(name, "kernel", begin, end, MAIN, **ids)
        begin = end + 0.7
    rt.free[MAIN] = begin
    rt.queued.append(begin)
    if rt.number:
        rt.call("EventSynchronize", 3, until=held)  # no more than two steps ahead
    if rt.number % 10 == 9:
        rt.value()
    rt.host(130)
