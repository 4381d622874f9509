"""Jobs of the twenty-fifth set whose host is too slow: an optical flow that is refined in a loop, small networks."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, foreach
from ..layers import CAST, Tape, back, dense
from ..sixteenth_set.rows import INDEX, without_graph
from ..twelfth_set.pictures import ADA, HALF, NHWC, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv
from ..twenty_fourth_set.rows import NATIVE, Known, acts, few, products, recorded
from ..twenty_fourth_set.rows import _known as known
from .rows import clipped, group_norm

PAIRS, HIGH, BROAD, TIMES = 4, 46, 62, 12
H100 = Roofline(330, 2_600, HALF, ("nvjet_hsh_128x128_64x6_1x2_h_bz_TNT", "nvjet_hsh_128x64_64x8_2x1_v_bz_NNT"),
                ("", ""))  # fmt: skip
HOPPER = tuple(name.replace("sm80_xmma", "sm90_xmma").replace("_g1_tensor16x8x16", "_gmma") for name in ADA.names)
WHOLE, KEPT = Look(H100, HOPPER, NHWC, True), Look(H100, HOPPER, NHWC)  # type: ignore[arg-type]
SAMPLED = Known(("aten::grid_sampler", "aten::grid_sampler_2d"), NATIVE + "grid_sampler_2d_kernel<float, int>(…)",
                "GridSampler2DBackward0", ("aten::grid_sampler_2d_backward",),
                NATIVE + "grid_sampler_2d_backward_kernel<float, int>(…)", (3, 5))  # fmt: skip
FIELD = [PAIRS, 2, HIGH, BROAD]


def _features(rt: Framed, tape: Tape, count: int, out: int, normed: bool) -> None:
    """RAFT's encoder."""
    width, side = 3, 8
    for number, (wide, scale) in enumerate(((64, 4), (64, 4), (64, 4), (96, 2), (96, 2), (128, 1), (128, 1))):
        for _ in range(1 if number == 0 else 2):
            conv(rt, tape, WHOLE, Conv(count, width, wide, 7 if number == 0 else 3, HIGH * scale, BROAD * scale))
            size = [count, wide, HIGH * scale, BROAD * scale]
            if normed:
                group_norm(rt, tape, H100, size)
            else:
                acts(rt, tape, H100, "mul add", size)
            acts(rt, tape, H100, "relu_", size)
            width = wide
        if number:
            acts(rt, tape, H100, "add relu", size)
        side = scale
    conv(rt, tape, WHOLE, Conv(count, width, out, side, HIGH, BROAD))


def _refined(rt: Framed, tape: Tape, look: Look) -> None:
    """One iteration: correlations are looked up, a GRU, a step of the flow, which is enlarged by a learned mask."""
    wide = replace(H100, kind="float")
    few(rt, "detach", FIELD, 2.2)
    for level in range(4):
        acts(rt, None, wide, "div add mul sub", [PAIRS * HIGH * BROAD, 9, 9, 2])
        known(rt, tape, wide, SAMPLED, [PAIRS * HIGH * BROAD >> (2 * level and 1), 1, 9, 9], 30)
    acts(rt, tape, wide, "cat turn", [PAIRS, 324, HIGH, BROAD])
    acts(rt, tape, wide, "sub", FIELD)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, H100.moves(6 * PAIRS * 324 * HIGH * BROAD)),),
          dims=([PAIRS, 324, HIGH, BROAD],), gap=8)  # fmt: skip
    for cin, out, side in ((324, 256, 1), (256, 192, 3), (2, 128, 7), (128, 64, 3), (256, 126, 3)):
        conv(rt, tape, look, Conv(PAIRS, cin, out, side, HIGH, BROAD))
        acts(rt, tape, H100, "relu", [PAIRS, out, HIGH, BROAD])
    acts(rt, tape, H100, "cat cat", [PAIRS, 256, HIGH, BROAD])
    for _ in range(2):  # 1 x 5, then 5 x 1
        state = [PAIRS, 128, HIGH, BROAD]
        acts(rt, tape, H100, "cat", [PAIRS, 384, HIGH, BROAD])
        for number in range(3):
            conv(rt, tape, look, Conv(PAIRS, 384, 128, 2, HIGH, BROAD))
            acts(rt, tape, H100, "tanh" if number == 2 else "sigmoid", state)
            if number == 1:
                acts(rt, tape, H100, "mul cat", state)
        acts(rt, tape, H100, "sub mul mul add", state)
    for cin, out in ((128, 256), (256, 2)):
        conv(rt, tape, look, Conv(PAIRS, cin, out, 3, HIGH, BROAD))
        acts(rt, tape, H100, "relu" if out == 256 else "add", [PAIRS, out, HIGH, BROAD])
    for cin, out in ((128, 256), (256, 576)):
        conv(rt, tape, look, Conv(PAIRS, cin, out, 3 if cin == 128 else 1, HIGH, BROAD))
        acts(rt, tape, H100, "relu" if out == 256 else "scale", [PAIRS, out, HIGH, BROAD])
    acts(rt, tape, wide, "softmax", [PAIRS, 1, 9, 64 * HIGH * BROAD])
    acts(rt, tape, wide, "scale", FIELD)
    number = rt.op("aten::unfold", "aten::im2col", run=((NATIVE + "im2col_kernel<float>(long, float const*, …)", 3.4),),
                   dims=(FIELD,), graph=True, gap=14)  # fmt: skip
    tape.append(lambda: rt.grad("Im2ColBackward0", number, "aten::col2im", dims=(FIELD,),
                                run=((NATIVE + "col2im_kernel<float, float>(long, …)", 3.6),)))  # fmt: skip
    acts(rt, tape, wide, "mul sum turn", [PAIRS, 2, 9, 64 * HIGH * BROAD])


def _flowing(rt: Framed) -> None:
    """Both passes, the loss of all twelve flows."""
    tape, wide = Tape(), replace(H100, kind="float")
    acts(rt, None, wide, "div scale sub div scale sub", [PAIRS, 3, 8 * HIGH, 8 * BROAD])
    _features(rt, tape, 2 * PAIRS, 256, True)
    products(rt, tape, replace(H100, tflops=180), (PAIRS, HIGH * BROAD, 256, HIGH * BROAD))
    acts(rt, tape, wide, "div", [PAIRS, HIGH * BROAD, HIGH * BROAD])
    for level in range(1, 4):
        acts(rt, tape, wide, "avg_pool2d", [PAIRS, HIGH * BROAD, HIGH * BROAD >> (2 * level - 1)])
    _features(rt, tape, PAIRS, 256, False)
    acts(rt, tape, H100, "tanh relu", [PAIRS, 128, HIGH, BROAD])
    for number in range(TIMES):
        _refined(rt, tape, KEPT if number else WHOLE)  # autocast keeps what it made of the weights
    few(rt, "pow sum sqrt lt bitwise_and", [PAIRS, 8 * HIGH, 8 * BROAD], 4)
    for _ in range(TIMES):
        acts(rt, tape, wide, "sub abs mul mean scale", [PAIRS, 2, 8 * HIGH, 8 * BROAD])
        acts(rt, tape, wide, "add", [1])
    back(rt, tape)


def raft(rt: Framed, fixed: bool) -> None:
    """RAFT learns optical flow on an H100, AMP in fp16, channels_last, four pairs of 368 by 496: a loop of Python looks
    up correlations and refines the flow twelve times, some 75 kernels of a few µs each time and twice as many behind,
    which the GPU is done with sooner than they are launched; without: a CUDA graph of both passes. Batches are pinned,
    clipping by lists, AdamW fused, `GradScaler` waits once. Shapes.

    First: launches in a loop (graphs, `torch.compile`, a larger batch). Not: the loader, copies, the layout,
    `GradScaler`'s wait, the optimizer.
    """
    with rt.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", us=190):
        pass
    for channels in (3, 3, 2, 1):
        pinned(rt, 4 * PAIRS * channels * 64 * HIGH * BROAD, [PAIRS, channels, 8 * HIGH, 8 * BROAD])
    if fixed:
        recorded(rt, _flowing, 1)
    else:
        _flowing(rt)
    unscaled(rt, H100, 5.3e6)
    clipped(rt, H100, 5.3e6)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=170):
        rt.op("aten::_fused_adamw_", us=60, run=((NATIVE + "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata"
              "<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW, false>>", H100.moves(28 * 5.3e6)),))  # fmt: skip
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=60):
        pass
    few(rt, "add_", [1])
    rt.host(280)


DRAWN, HIDDEN, SEEN, MOVES = 512, 512, 17, 6
L4 = Roofline(20, 260, "float", ("cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4",
                                 "cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4"), ("", ""))  # fmt: skip


def _perceptron(rt: Framed, tape: Tape, wide: int, out: int) -> None:
    for number, (cin, cout) in enumerate(((wide, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, out))):
        dense(rt, tape, L4, 1, (DRAWN, cin, cout), gap=9)
        if number < 2:
            acts(rt, tape, L4, "relu", [DRAWN, HIDDEN])


def _stepped(rt: Framed, count: int) -> None:
    """Adam by lists of small tensors."""
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=120):
        rt.op("aten::_foreach_add_", us=18, gap=12)
        for op in ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"):
            foreach(rt, f"_foreach_{op}", "PointwiseOpScalarFunctor", L4.moves(12 * count), 1, 22)
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=22):
        pass


def _values(rt: Framed) -> None:
    """IQL's value function: what the target says, an expectile."""
    tape = Tape()
    with without_graph(rt):
        for _ in range(2):
            few(rt, "cat", [DRAWN, SEEN + MOVES])
            _perceptron(rt, [], SEEN + MOVES, 1)
        few(rt, "min", [DRAWN, 1])
    _perceptron(rt, tape, SEEN, 1)
    acts(rt, tape, L4, "sub", [DRAWN, 1])
    few(rt, "lt to rsub abs", [DRAWN, 1])
    acts(rt, tape, L4, "pow mul mean", [DRAWN, 1])
    back(rt, tape)


def _critics(rt: Framed) -> None:
    tape = Tape()
    with without_graph(rt):
        _perceptron(rt, [], SEEN, 1)
        few(rt, "rsub mul mul add", [DRAWN, 1])
    for _ in range(2):
        acts(rt, tape, L4, "cat", [DRAWN, SEEN + MOVES])
        _perceptron(rt, tape, SEEN + MOVES, 1)
        acts(rt, tape, L4, "sub pow mean", [DRAWN, 1])
    acts(rt, tape, L4, "add div", [1])
    back(rt, tape)


def _actor(rt: Framed) -> None:
    tape = Tape()
    few(rt, "sub mul exp clamp", [DRAWN, 1])
    _perceptron(rt, tape, SEEN, MOVES)
    acts(rt, tape, L4, "tanh", [DRAWN, MOVES])
    few(rt, "clamp exp", [MOVES])
    acts(rt, tape, L4, "sub pow div sub sub sum", [DRAWN, MOVES])
    acts(rt, tape, L4, "mul mean", [DRAWN, 1])
    back(rt, tape)


def iql(rt: Framed, fixed: bool) -> None:
    """Implicit Q-learning of CORL on an L4, TF32, 512 transitions of D4RL that lie on the GPU, networks of 512: four
    small networks, three optimizers by lists and a soft update parameter by parameter are some 220 launches of kernels
    of a few µs, so that the GPU is idle for most of a step; without: a CUDA graph of each of the three losses with its
    gradients. Losses are summed on the GPU. No shapes, no rows of steps.

    First: launches (graphs, `torch.compile`, larger batches). Not: a loader, copies, waits, TF32.
    """
    rt.host(60)
    few(rt, "randint", [DRAWN], 2.6)
    for wide in (SEEN, MOVES, 1, SEEN, 1):
        rt.op("aten::index", run=((INDEX, 3.6),), dims=([1_000_000, wide], [DRAWN]), gap=12, us=9)
    for part, (job, count) in enumerate(((_values, 2.7e5), (_critics, 5.5e5), (_actor, 2.8e5))):
        if fixed:
            recorded(rt, job, part + 1)
        else:
            job(rt)
        _stepped(rt, count)
        few(rt, "add_", [1])
        if part == 1:
            for place in range(12):
                size = [HIDDEN, HIDDEN] if place % 6 == 2 else [HIDDEN]
                few(rt, "mul mul add copy_", size, L4.moves(12 * prod(size)), 3)
    rt.host(90)
