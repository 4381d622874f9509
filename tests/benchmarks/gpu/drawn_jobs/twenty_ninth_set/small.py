"""Jobs of the twenty-ninth set whose host is too slow: inner steps of small networks, Sinkhorn's iterations."""

from __future__ import annotations

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, elementwise, kernel
from ..layers import REDUCE, Tape, attention, back, dense, fused_adamw
from ..twelfth_set.pictures import CUTLASS, TF32, XMMA
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import adam
from ..twenty_fourth_set.rows import acts, few, judged, recorded

TASKS, WAYS, SHOTS, ASKED, INNER, WIDE = 4, 5, 1, 75, 5, 32
RTX4090 = Roofline(45, 900, "float", TF32, CUTLASS)
SMALL = Look(RTX4090, tuple(XMMA.format(way, "tf32f32_tf32f32_f32", 8) for way in ("fprop", "dgrad", "wgrad")))  # type: ignore[arg-type]  # fmt: skip
PARAMETERS = [size for cin in (3, WIDE, WIDE, WIDE) for size in ([WIDE, cin, 3, 3], [WIDE], [WIDE], [WIDE])]
PARAMETERS += [[WAYS, 800], [WAYS]]


def _called(rt: Framed, tape: Tape, pictures: int) -> None:
    """`functional_forward`: four convolutions with norms, a layer, the loss."""
    side = 84
    for cin in (3, WIDE, WIDE, WIDE):
        conv(rt, tape, SMALL, Conv(pictures, cin, WIDE, 3, side, side))
        y = [pictures, WIDE, side, side]
        nbytes = 4 * pictures * WIDE * side**2
        number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm", graph=True, gap=18,
                       run=((SMALL.norm.format("fw"), RTX4090.moves(3 * nbytes)),), dims=(y,))  # fmt: skip
        tape.append(lambda number=number, y=y, nbytes=nbytes: rt.grad(
            "CudnnBatchNormBackward0", number, "aten::cudnn_batch_norm_backward", dims=(y, y),
            run=((SMALL.norm.format("bw"), RTX4090.moves(5 * nbytes)),)))  # fmt: skip
        elementwise(rt, tape, RTX4090, "relu", y, back=(("threshold_backward", 3),))
        side //= 2
        acts(rt, tape, RTX4090, "max_pool2d", [pictures, WIDE, side, side])
    dense(rt, tape, RTX4090, pictures, (pictures, 800, WAYS))
    judged(rt, tape, RTX4090, pictures, WAYS)


def _passes(rt: Framed) -> None:
    """All tasks: inner steps on what is shown, then the gradient of what is asked."""
    for _ in range(TASKS):
        for _ in range(INNER):
            tape = Tape()
            _called(rt, tape, WAYS * SHOTS)
            back(rt, tape)
            for size in PARAMETERS:  # `OrderedDict((name, p - lr * g) for ...)`
                few(rt, "mul sub", size, 2.2, 4)
        tape = Tape()
        _called(rt, tape, ASKED)
        back(rt, tape)
        few(rt, "argmax eq sum add_", [ASKED])


def maml(rt: Framed, fixed: bool) -> None:
    """First-order MAML (five kinds, one picture of each) learns mini-ImageNet on an RTX 4090 by a plain loop, TF32,
    four tasks a step with five inner steps each, a network of four convolutions of 32 channels: some 1,800 small
    kernels, which take longer to launch than to run; without: all tasks in a CUDA graph. Pictures come pinned, Adam is
    by lists, hits are summed on the GPU. Shapes, no rows of steps.

    First: launches (graphs, `vmap` over tasks, compile). Not: the loader, copies, waits, TF32, the layout.
    """
    loader(rt, 140)
    for count in (TASKS * WAYS * SHOTS, TASKS * ASKED):
        pinned(rt, 4 * count * 3 * 84**2, [count, 3, 84, 84])
        pinned(rt, 8 * count, [count], "long int")
    if fixed:
        recorded(rt, _passes, 1)
    else:
        _passes(rt)
    adam(rt, RTX4090, 3.3e4, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(190)


PAIRS, POINTS, DEEP, MODEL, ROUNDS = 4, 512, 9, 256, 100
A100 = Roofline(75, 1_400, "float", TF32, CUTLASS)


def _graph_layer(rt: Framed, tape: Tape) -> None:
    """Attention among points of a picture or to those of the other, an MLP with a norm."""
    tokens, x = 2 * PAIRS * POINTS, [2 * PAIRS, POINTS, MODEL]
    for _ in range(3):
        dense(rt, tape, A100, 2 * PAIRS, (tokens, MODEL, MODEL))
    attention(rt, tape, A100, [2 * PAIRS, 4, POINTS, MODEL // 4])
    dense(rt, tape, A100, 2 * PAIRS, (tokens, MODEL, MODEL))
    acts(rt, tape, A100, "cat", [*x[:2], 2 * MODEL])
    dense(rt, tape, A100, 2 * PAIRS, (tokens, 2 * MODEL, 2 * MODEL))
    size = [*x[:2], 2 * MODEL]
    nbytes = 4 * tokens * 2 * MODEL
    number = rt.op("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm", graph=True, gap=18,
                   run=(("void at::native::batch_norm_collect_statistics_channels_last_kernel<…>(…)",
                         A100.moves(nbytes)),
                        ("void at::native::batch_norm_transform_input_channels_last_kernel<…>(…)",
                         A100.moves(2 * nbytes))), dims=(size,))  # fmt: skip
    name = "void at::native::batch_norm_backward_{}_channels_last_kernel<…>(…)"
    tape.append(lambda: rt.grad("NativeBatchNormBackward0", number, "aten::native_batch_norm_backward", dims=(size,),
                                run=((name.format("reduce"), A100.moves(2 * nbytes)),
                                     (name.format("elemt"), A100.moves(3 * nbytes)))))  # fmt: skip
    acts(rt, tape, A100, "relu", size)
    dense(rt, tape, A100, 2 * PAIRS, (tokens, 2 * MODEL, MODEL))
    acts(rt, tape, A100, "add", x)


def _log_sum(rt: Framed, tape: Tape, scores: list[int]) -> None:
    """`torch.logsumexp(Z + v.unsqueeze(1), dim=2)`, and what it is taken from."""
    n, rows = 4 * scores[0] * scores[1] * scores[2], [scores[0], scores[1]]
    few(rt, "unsqueeze", rows, gap=3)
    elementwise(rt, tape, A100, "add", scores, 1)
    number = rt.op("aten::logsumexp", gap=7, us=22, dims=(scores,), graph=True, run=(
        (REDUCE.replace("sum", "MaxNanFunctor"), A100.moves(n)), (kernel("sub", 3), A100.moves(2 * n)),
        (kernel("exp", 2), A100.moves(2 * n)), (REDUCE, A100.moves(n)), (kernel("log", 2), 2.2),
        (kernel("add", 3), 2.2)))  # fmt: skip

    def backward() -> None:
        rt.grad("LogsumexpBackward0", number, "aten::sub", run=((kernel("sub", 3), A100.moves(2 * n)),), dims=(scores,))
        for name in ("exp", "mul"):
            rt.op(f"aten::{name}", run=((kernel(name, 3), A100.moves(2 * n)),), dims=(scores,), gap=1)
        rt.op("aten::sum", run=((REDUCE, A100.moves(n)),), dims=(scores,), gap=2)
        rt.op("aten::add_", run=((kernel("add_", 3), A100.moves(3 * n)),), dims=(scores, scores), gap=1)

    tape.append(backward)
    acts(rt, tape, A100, "sub", rows)


def _matched(rt: Framed) -> None:
    """Both passes."""
    tape = Tape()
    for out in (32, 64, 128, MODEL):  # places of points
        dense(rt, tape, A100, 2 * PAIRS, (2 * PAIRS * POINTS, max(3, out // 2), out))
        acts(rt, tape, A100, "relu", [2 * PAIRS, POINTS, out])
    for _ in range(2 * DEEP):
        _graph_layer(rt, tape)
    dense(rt, tape, A100, 2 * PAIRS, (2 * PAIRS * POINTS, MODEL, MODEL))
    scores = [PAIRS, POINTS + 1, POINTS + 1]
    number = rt.op("aten::einsum", "aten::bmm", run=((TF32[0], A100.product(PAIRS * POINTS, POINTS, MODEL)),),
                   graph=True, gap=40, dims=([PAIRS, POINTS, MODEL], [PAIRS, MODEL, POINTS]))  # fmt: skip
    tape.append(lambda: rt.grad("BmmBackward0", number, "aten::bmm", run=(
        (TF32[1], A100.product(PAIRS * POINTS, POINTS, MODEL)),) * 2))  # fmt: skip
    acts(rt, tape, A100, "scale cat cat", scores)
    for _ in range(ROUNDS):
        for _ in range(2):
            _log_sum(rt, tape, scores)
    acts(rt, tape, A100, "add add sub", scores)
    few(rt, "index", [PAIRS * POINTS])
    acts(rt, tape, A100, "mean", [PAIRS * POINTS])
    back(rt, tape)


def superglue(rt: Framed, fixed: bool) -> None:
    """SuperGlue learns to match 512 points of pictures on an A100 by a plain loop, TF32, four pairs: Sinkhorn's 100
    iterations are 200 `logsumexp` of small tensors with as many behind, and 18 layers of attention are small as well,
    so that launches take longer than kernels; without: a CUDA graph of both passes. Points come pinned, Adam is fused,
    the loss is summed on the GPU. Shapes.

    First: launches (graphs, compile, a kernel for Sinkhorn). Not: the loader, copies, waits, TF32, attention.
    """
    loader(rt, 160)
    for wide in (3, MODEL):
        pinned(rt, 8 * PAIRS * POINTS * wide, [2 * PAIRS, POINTS, wide])
    pinned(rt, 16 * PAIRS * POINTS, [PAIRS, POINTS, 2], "long int")
    if fixed:
        recorded(rt, _matched, 1)
    else:
        _matched(rt)
    fused_adamw(rt, A100, 12e6)
    few(rt, "add_", [1])
    rt.host(210)
