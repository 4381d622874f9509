"""Jobs of the sixteenth set whose fault is on the host: rewards, augmentations, points one by one, batches in order."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from ..eleventh_set.rows import COPY, elementwise, foreach, kernel
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import fetched
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from ..thirteenth_set.rows import Fresh
from ..twelfth_set.language import A10G, qwen
from ..twelfth_set.pictures import SAMPLE, TF32, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv_norm, loader
from .rows import A10_HALF, GATHER, INDEX, asked, emptied, without_graph

SHAPE, MADE, LENGTH = (64, 256, 1_536, 2, 8_960), 64, 256


def _scored(rt: Framed, tape: Tape, tokens: int) -> None:
    """Logits, and the logarithms of what was chosen, in bf16 row by row."""
    us = H100.product(tokens, 151_936, 1_536)
    number = rt.op("aten::linear", "aten::matmul", "aten::mm", run=((H100.names[0], us),), gap=12, graph=True,
                   kind=BF16, dims=([tokens, 1_536], [1_536, 151_936]))  # fmt: skip
    tape.append(lambda: rt.grad("MmBackward0", number, "aten::mm", run=((H100.names[1], us),), kind=BF16,
                                dims=([tokens, 151_936], [151_936, 1_536])))  # fmt: skip
    once = H100.moves(2 * tokens * 151_936)
    for name, passes in (("div", 2), ("gather", 0.01), ("logsumexp", 3), ("sub", 0.01)):
        seen = rt.op(f"aten::{name}", run=((kernel(name, 2, BF16), passes * once),), graph=True, kind=BF16, gap=10,
                     dims=([MADE, LENGTH, 151_936 if passes > 1 else 1],))  # fmt: skip
        if passes > 1:
            tape.append(lambda seen=seen, name=name: rt.grad(f"{name.title()}Backward0", seen, run=(
                (kernel("mul", 3, BF16), 3 * once),)))  # fmt: skip


def rewarded(rt: Framed, fixed: bool) -> None:
    """GRPO by TRL on an H100: `math_verify` reads 64 answers one after another on the host, 0.9 s, then the cache of
    memory is emptied, 0.03 s; without: a pool of processes reads them while the batch before is trained on.

    To say: the host's work between two passes; not a loader, nor launches. `empty_cache()` is the lesser fault.
    """
    tape: Tape = []
    rt.batch(MADE * LENGTH * 8, MADE * LENGTH * 8, us=220)  # what a server of rollouts wrote
    with rt.frame("trl/trainer/grpo_trainer.py(1466): _generate_and_score_completions"):
        fetched(rt, MADE * 160 * 8, 1.6, [MADE, 160])
        with rt.frame("transformers/tokenization_utils_base.py(3858): batch_decode"):
            rt.host(14_000)
        with rt.frame("trl/trainer/grpo_trainer.py(1101): _calculate_rewards"):
            if fixed:
                with rt.frame("concurrent/futures/_base.py(428): result"):
                    rt.host(700)
            for _ in range(0 if fixed else MADE):
                with rt.frame("rewards.py(57): accuracy_reward", "math_verify/parser.py(690): parse"):
                    rt.host(3_900)
                with rt.frame("rewards.py(57): accuracy_reward", "math_verify/grader.py(871): verify",
                              "sympy/simplify/simplify.py(418): simplify"):  # fmt: skip
                    rt.host(6_500)
            rt.moved(MADE * 4, 1, [MADE, 1])
        if not fixed:
            with rt.frame("<built-in function _cuda_emptyCache>"):
                emptied(rt, 16)
        small(rt, None, ("mean", "std", "sub", "add", "div"), [MADE])
    with rt.frame("trl/trainer/grpo_trainer.py(1842): _compute_loss"), without_graph(rt):
        for layer in range(28):
            if not fixed and layer < 16:
                asked(rt)
            qwen(rt, [], H100, SHAPE, eager=False, liger=True)
        _scored(rt, [], MADE * LENGTH)
    with rt.frame("trl/trainer/grpo_trainer.py(1842): _compute_loss", "nn.Module: Qwen2ForCausalLM_0"):
        for _ in range(28):
            qwen(rt, tape, H100, SHAPE, eager=False, liger=True)
        _scored(rt, tape, MADE * LENGTH)
    small(rt, tape, ("sub", "exp", "clamp", "mul", "min", "neg", "mul", "mean"), [MADE, 160], 4)
    with rt.frame("accelerate/accelerator.py(2734): backward"):
        back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 40, 2)
    fused_adamw(rt, H100, 2.2e6)
    rt.host(900)


PICTURES = [48, 3, 224, 224]
HSV = ("max", "min", "sub", "div", "eq", "where", "sub", "sub", "mul", "where", "add", "where", "fmod", "mul", "stack")
RGB = ("fmod", "floor", "sub", "mul", "rsub", "mul", "rsub", "mul", "rsub", "mul", "stack", "gather", "stack")
KORNIA = {"RandomResizedCrop": True, "RandomHorizontalFlip": False, "RandomAffine": True, "ColorJiggle": False,
          "RandomGaussianBlur": False}  # fmt: skip


def _augmented(rt: Framed, name: str, warps: bool) -> None:
    """kornia draws what to do on the host, moves it, and does it op by op; a matrix is inverted and checked."""
    once = A10_HALF.card.moves(4 * prod(PICTURES))
    for _ in range(9):
        rt.op("aten::uniform_", us=6, gap=22, dims=([48],))
    rt.host(520)  # shapes, ranges and devices are checked, a matrix for each picture is made
    for _ in range(4):
        rt.host(60)
        rt.moved(48 * 8, 1, [48, 2])
    small(rt, None, ("eye", "mul", "add", "copy_", "matmul", "index"), [48, 3, 3], 3)
    if warps:
        solve = "void getrf_pivot<float, float, 3>(int, int, float*, int*, int*)"
        rt.op("aten::linalg_inv", "aten::linalg_inv_ex", run=((solve, 9), (solve, 11)), dims=([48, 3, 3],), gap=40)
        rt.value("aten::is_nonzero")  # was there a singular one?
        rt.op("aten::affine_grid_generator", "aten::bmm", run=((TF32[0], 60),), dims=([48, 3, 3],), gap=60)
        rt.op("aten::grid_sampler", "aten::grid_sampler_2d", gap=20, dims=(PICTURES, [48, 224, 224, 2]), run=(
            ("void at::native::(anonymous namespace)::grid_sampler_2d_kernel<float, int>(int, …)", 2.9 * once),
        ))  # fmt: skip
    for op in HSV + RGB if name == "ColorJiggle" else ("flip",) if "Flip" in name else ():
        rt.op(f"aten::{op}", run=((kernel(op, 2), once * (0.7 if op in ("fmod", "max", "min") else 1)),), gap=24,
              dims=([48, 1, 224, 224],))  # fmt: skip
    if "Blur" in name:
        for _ in range(2):
            name = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<0, float, int>(…)"
            rt.op("aten::conv2d", "aten::convolution", "aten::_conv_depthwise2d", gap=70, run=((name, 3 * once),),
                  dims=([1, 144, 224, 224], [144, 1, 1, 9]))  # fmt: skip
    rt.op("aten::where", run=((kernel("where", 4), 1.5 * once),), dims=(PICTURES, PICTURES), gap=90)


def augmented(rt: Framed, fixed: bool) -> None:
    """SimCLR of a ResNet-50 by AMP on an A10G, two views by kornia in the loop: what is drawn on the host is moved by
    40 small copies that wait, and a jitter is 28 passes over pictures; without: drawn there, moved once, compiled.

    To say: copies that wait (9 ms, with the host's work between them), then the passes (5 ms); not
    `DataLoader(pin_memory=True)`, more workers, TF32.
    """
    tape, card = Tape(), A10_HALF.card
    loader(rt, 160)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(4 * prod(PICTURES))
    if fixed:
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(96 * 64)
        for place, passes in enumerate((3, 3, 2, 4) * 2):
            rt.host(40)
            rt.work(f"triton_poi_fused_grid_sampler_where_{place}", card.moves(4 * passes * prod(PICTURES)),
                    call="cuLaunchKernel")  # fmt: skip
    else:
        for name, warps in (*KORNIA.items(), *KORNIA.items()):
            with rt.span(f"kornia.augmentation.{name}", "user_annotation"):
                _augmented(rt, name, warps)
    resnet(rt, tape, A10_HALF, 96, (7, 7))
    dense(rt, tape, card, 96, (96, 2_048, 128))
    small(rt, tape, ("normalize", "mul", "sum", "div", "log_softmax"), [96, 96], 6)
    back(rt, tape)
    unscaled(rt, card, 25.5e6)
    sgd(rt, card, 25.5e6)
    rt.host(260)


POINTS = Look(Card(24, 780, "float", TF32, ("", "")), (
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16_stage4_warpsize2x2x1_g1",
    "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16_stage4_warpsize2x2x1_g1",
    "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16_stage3_g1"))  # fmt: skip
SELECT = "void at_cuda_detail::cub::DeviceSelectSweepKernel<…>"


def _masked(rt: Framed, name: str, size: list[int]) -> None:
    """`x[mask]`: the host waits for how many there are."""
    with rt.span(name, us=5, **inputs((size, size), "float")):
        with rt.span("aten::nonzero", us=4):
            rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<…>", 2.6)
            rt.work(SELECT, 3.2)
            rt.copy(8, "DtoH", "Pageable", waits=True)
        rt.work(INDEX, 3.1)


def _farthest(rt: Framed, points: int, count: int) -> None:
    """`farthest_point_sample` as many copied it: for each point, distances to it, and the farthest."""
    size = [24, points]
    for _ in range(count):
        rt.op("aten::copy_", run=((COPY, 2.1),), dims=([24], [24]), gap=5, us=3)
        rt.op("aten::index", run=((GATHER, 2.8),), dims=([24, points, 3], [24], [24]), gap=5, us=6)
        for name in ("sub", "pow", "sum", "lt"):
            rt.op(f"aten::{name}", run=((REDUCE if name == "sum" else kernel(name, 2), 2.7),), gap=4, us=4,
                  dims=([*size, 3], [24, 1, 3]))  # fmt: skip
        _masked(rt, "aten::index", size)
        _masked(rt, "aten::index_put_", size)
        rt.op("aten::max", run=((REDUCE, 4.1),), dims=(size,), gap=5, us=5)


def pointed(rt: Fresh, fixed: bool) -> None:
    """PointNet++ in PyTorch alone, RTX 3090: points are chosen one by one, with two waits each, and batches are altered
    in numpy, 3 ms; the first step loads all kernels; without: a kernel chooses, workers alter.

    To say: a loop of small ops with waits in it, 51 ms (`torch_cluster.fps`, `pointnet2_ops`); numpy is the lesser.
    """
    rt.cold, tape, batch = rt.number == 0, Tape(), 24
    if rt.cold:
        rt.library("aten::cudnn_convolution", 0.9)
    loader(rt, 200)
    rt.host(120 if fixed else 3_100)  # dropout, scale and shift of `provider.py`
    rt.moved(batch * 1_024 * 12, 4.5, [batch, 3, 1_024])
    rt.moved(batch * 8, 1, [batch], "long int")
    for points, count, near, widths in ((1_024, 256, 32, (3, 64, 64, 128)), (256, 64, 64, (131, 128, 128, 256))):
        if fixed:
            rt.op("pointnet2_ops::furthest_point_sampling", dims=([batch, points, 3],), gap=30, run=(
                ("void furthest_point_sampling_kernel<512u>(int, int, int, float const*, float*, int*)", 3.1 * count),
            ))  # fmt: skip
        else:
            _farthest(rt, points, count)
        size = [batch, count, points]
        rt.op("aten::matmul", "aten::bmm", run=((TF32[0], 14),), dims=([batch, count, 3], [batch, 3, points]), gap=18)
        for name in ("mul", "add_", "add_", "gt", "index_put_"):
            rt.op(f"aten::{name}", run=((kernel(name, 2), POINTS.card.moves(8 * prod(size))),), dims=(size,), gap=9)
        sort = "void at::native::(anonymous namespace)::segmented_sort_kernel<long, long, 256>(…)"
        rt.op("aten::sort", run=((sort, POINTS.card.moves(60 * prod(size))),), dims=(size,), gap=14, kind="long int")
        rt.op("aten::index", run=((GATHER, POINTS.card.moves(8 * batch * count * near * widths[0])),), gap=12,
              dims=([batch, points, widths[0]], [batch, count, near]))  # fmt: skip
        for cin, cout in pairwise(widths):
            conv_norm(rt, tape, POINTS, Conv(batch, cin, cout, 1, near, count))
    for sizes in ((batch, 1_024, 512), (batch, 512, 256), (batch, 256, 40)):
        dense(rt, tape, POINTS.card, batch, sizes)
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 40])
    back(rt, tape)
    fused_adamw(rt, POINTS.card, 1.5e6)
    rt.value()
    rt.host(140)


def ordered(rt: Framed, fixed: bool) -> None:
    """VideoMAE on an A10G: batches come in the order of 8 workers, which take longer than 8 steps, so that each eighth
    step waits 0.5 s; without: videos are decoded in a third of the time.

    To say: the loader, by its mean over steps; not a slow step by itself, compilation, a checkpoint, pinned memory.
    """
    tape, x = Tape(), [4, 1_568, 384]
    late = {3: 560_000, 4: 34_000, 5: 2_100}.get(rt.number % 8, 150)
    loader(rt, 150 if fixed else late)
    with (rt.frame(SAMPLE, "<method 'to' of 'torch._C.TensorBase' objects>"), rt.span("aten::to"),
          rt.span("aten::_to_copy"), rt.span("aten::copy_")):  # fmt: skip
        rt.copy(4 * 3 * 16 * 224 * 224 * 2)
    with rt.frame("transformers/models/videomae/modeling_videomae.py(840): forward", "nn.Module: VideoMAEEncoder_0"):
        for _ in range(12):
            encoder(rt, tape, A10G, (x[0], x[1], x[2]))
        elementwise(rt, tape, A10G, "add", x, 2)
        dense(rt, tape, A10G, x[0], (x[0], x[2], 174))
        small(rt, tape, ("log_softmax", "nll_loss"), [x[0], 174])
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A10G.moves(4 * 22e6), 2)
    fused_adamw(rt, A10G, 22e6)
    rt.host(300)
