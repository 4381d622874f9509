"""Jobs of the thirtieth set whose loop waits for the GPU: priorities of a replay, a decoder that asks for its end."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned, returned
from ..eleventh_set.rows import FILL, node
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, back, dense
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import ADA, HALF, NHWC, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged, products
from ..twenty_sixth_set.rows import PROFILED

STATES, SIDE, ACTIONS, ATOMS = 512, 84, 18, 51
L4 = Card(52, 250, HALF, ADA.card.names, FLASH)
LOOK = Look(L4, ADA.names, NHWC, True)
FLOAT = replace(L4, kind="float")


def _network(rt: Framed, tape: Tape | None) -> None:
    """IMPALA's ResNet with dueling heads over atoms."""
    side, given = SIDE, 4
    for width in (32, 64, 64):
        conv(rt, tape, LOOK, Conv(STATES, given, width, 3, side, side))
        side = (side + 1) // 2
        size = [STATES, width, side, side]
        acts(rt, tape, L4, "max_pool2d", size)
        for _ in range(2):
            for _ in range(2):
                acts(rt, tape, L4, "relu", size)
                conv(rt, tape, LOOK, Conv(STATES, width, width, 3, side, side))
            acts(rt, tape, L4, "add", size)
        given = width
    acts(rt, tape, L4, "relu", [STATES, given, side, side])
    kept = Tape() if tape is None else tape
    casts(rt, L4, [512, given * side**2], [512, 512], [ATOMS * ACTIONS, 512], [ATOMS, 512])
    dense(rt, kept, L4, STATES, (STATES, given * side**2, 512))
    acts(rt, tape, L4, "relu", [STATES, 512])
    dense(rt, kept, L4, STATES, (STATES, 512, ATOMS * ACTIONS))
    dense(rt, kept, L4, STATES, (STATES, 512, ATOMS))
    acts(rt, tape, FLOAT, "mean sub add logsumexp", [STATES * ACTIONS, ATOMS])


def _sampled(rt: Framed) -> None:
    """512 draws from a sum tree in Python, frames are stacked by numpy, the batch goes to pinned memory."""
    rt.host(7_400)
    rt.host(9_600)
    for _ in range(2):
        rt.op("aten::pin_memory", "aten::_pin_memory", us=1_900, gap=30)


def _projected(rt: Framed) -> None:
    """Target of the distribution: Bellman's step on atoms."""
    size = [STATES, ATOMS]
    few(rt, "exp mul sum argmax index exp mul add clamp sub div floor to ceil to eq sub_ eq add_", size, 3)
    few(rt, "zeros_like add sub mul add sub mul", size, 3)
    for _ in range(2):
        rt.op("aten::index_add_", gap=11, us=8, dims=([STATES * ATOMS],), run=(
            ("void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long, unsigned int, 1>(…)", 6),),
        )  # fmt: skip


def rainbow(rt: Framed, fixed: bool) -> None:
    """Rainbow with IMPALA's ResNet learns an Atari game by a plain loop on an L4, AMP in fp16, channels_last, 512
    transitions a step: behind each step `losses.detach().cpu().numpy()` waits for the GPU, the sum tree of priorities
    is changed in Python and the next batch is drawn from it, while the GPU has nothing; without: a thread draws one
    batch ahead, priorities come by pinned memory a step later. `GradScaler` waits once, Adam by lists. Shapes.

    First: the wait for priorities, behind which the host works while the GPU idles. Not: launches, copies of frames
    (they are pinned), `GradScaler`'s wait, TF32, the layout, the batch.
    """
    tape, frames = Tape(), [STATES, 4, SIDE, SIDE]
    if fixed:
        rt.host(130)
    else:
        _sampled(rt)
    for _ in range(2):
        pinned(rt, prod(frames), frames, "unsigned char")
    for kind in ("long int", "float", "float", "float"):
        pinned(rt, 4 * STATES, [STATES], kind)
    for graph in (None, None, tape):
        acts(rt, None, FLOAT, "to div", frames)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(frames,), run=((CAST, L4.moves(6 * prod(frames))),))
        _network(rt, graph)
        if graph is None:
            few(rt, "detach", [STATES], gap=2)
    _projected(rt)
    few(rt, "index", [STATES, ATOMS], 3)
    acts(rt, tape, FLOAT, "mul sum neg mul mean", [STATES, ATOMS])
    back(rt, tape)
    unscaled(rt, L4, 6.6e6)
    clipped(rt, L4, 6.6e6)
    adam(rt, L4, 6.6e6, "Adam", 1)
    rt.op("aten::_foreach_lerp_", us=80, gap=30, run=(
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
         "TernaryOpScalarFunctor<float, 2, 2, 0>, …>(…)", L4.moves(12 * 6.6e6)),))  # fmt: skip
    if fixed:
        with rt.span("aten::copy_", **inputs(([STATES], [STATES]), "float")):
            rt.copy(4 * STATES, "DtoH")
        rt.call("EventRecordWithFlags", 1)
        rt.host(160)
        return
    returned(rt, 4 * STATES, 1.1, [STATES])
    rt.host(6_200)  # 512 leaves and what lies over them
    rt.host(160)


LINES, HIGH, LONG, TURNS, UNITS, SIGNS = 40, 32, 256, 28, 512, 97
A10G = Card(56, 480, BF16, AMPERE, FLASH)
SEEN = Look(A10G, tuple(name.replace("f16f16_f16", "bf16bf16_bf16") for name in ADA.names),  # type: ignore[arg-type]
            ADA.norm.replace("__half2", "__nv_bfloat162"), True)  # fmt: skip
PLACES = LONG // 4
CELL = "void at::native::(anonymous namespace)::kernel::gru_cell_{}<c10::BFloat16, float, int, 2>(…)"


def _looked(rt: Framed, tape: Tape) -> None:
    """The encoder: MMOCR's ResNet31, then what it saw as places of a line."""
    high, wide, given = HIGH, LONG, 3
    for width in (64, 128):
        conv_norm(rt, tape, SEEN, Conv(LINES, given, width, 3, high, wide))
        given = width
    for blocks, width, halves in ((1, 256, (2, 2)), (2, 256, (2, 2)), (5, 512, (2, 1)), (3, 512, (1, 1))):
        high, wide = high // halves[0], wide // halves[1]
        if halves != (1, 1):
            acts(rt, tape, A10G, "max_pool2d", [LINES, given, high, wide])
        for _ in range(blocks):
            conv_norm(rt, tape, SEEN, Conv(LINES, given, width, 3, high, wide))
            conv_norm(rt, tape, SEEN, Conv(LINES, width, width, 3, high, wide))
            acts(rt, tape, A10G, "add", [LINES, width, high, wide])
            given = width
        conv_norm(rt, tape, SEEN, Conv(LINES, width, width, 3, high, wide))
    acts(rt, tape, A10G, "mean", [LINES, UNITS, high, PLACES])
    acts(rt, tape, A10G, "turn", [LINES, PLACES, UNITS])


def _turn(rt: Framed, tape: Tape) -> None:
    """A sign: attention over places, `nn.GRUCell`, scores, what is fed next."""
    seen = [LINES, PLACES, UNITS]
    dense(rt, tape, A10G, LINES, (LINES, UNITS, UNITS))
    acts(rt, tape, A10G, "add tanh", seen)
    dense(rt, tape, A10G, LINES, (LINES * PLACES, UNITS, 1))
    acts(rt, tape, A10G, "softmax", [LINES, PLACES])
    products(rt, tape, A10G, (LINES, 1, PLACES, UNITS))
    acts(rt, tape, A10G, "embedding cat", [LINES, UNITS])
    for given in (2 * UNITS, UNITS):
        dense(rt, tape, A10G, LINES, (LINES, given, 3 * UNITS))
    number = rt.op("aten::gru_cell", "aten::_thnn_fused_gru_cell", run=((CELL.format("forward"), 3.4),), graph=True,
                   dims=([LINES, 3 * UNITS], [LINES, 3 * UNITS]), kind=BF16, gap=12)  # fmt: skip

    def backward() -> None:
        with node(rt, "ThnnFusedGruCellBackward0", number):
            rt.op("aten::_thnn_fused_gru_cell_backward", run=((CELL.format("backward"), 4.1),), gap=1, us=9, kind=BF16,
                  dims=([LINES, UNITS],))  # fmt: skip
            rt.op("aten::zeros_like", run=((FILL, 2.2),), gap=1, dims=([LINES, UNITS],))

    tape.append(backward)
    dense(rt, tape, A10G, LINES, (LINES, UNITS, SIGNS))
    few(rt, "argmax rand lt where", [LINES], 2.6)


def _ended(rt: Framed) -> None:
    """`if done.all(): break`"""
    few(rt, "eq bitwise_or", [LINES])
    rt.op("aten::all", gap=7, us=5, dims=([LINES],), run=((REDUCE.replace("sum", "and"), 3.1),))
    rt.value("aten::is_nonzero")


def lines(rt: Framed, fixed: bool) -> None:
    """An attention model for lines of handwriting (ResNet31, a GRU that looks at places) learns by Lightning on an
    A10G, `precision="bf16-mixed"`, channels_last, 40 lines of 32 x 256: the decoder's loop asks at each of 28 signs
    whether all lines have ended, so that the host waits for the encoder and then for each turn, and its launches are no
    longer ahead, forward and behind; without: the loop goes on to the longest line of the batch, whose length the
    collator knows. Adam by lists, clipped by lists, pictures come pinned as bytes. Shapes.

    First: waits in the decoder's loop. Not: the loader, copies, the layout, casts, TF32, the optimizer; launches of the
    loop at most beside the waits.
    """
    tape, picture = Tape(), [LINES, 3, HIGH, LONG]
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 210)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, prod(picture), picture, "unsigned char")
        pinned(rt, 8 * LINES * TURNS, [LINES, TURNS], "long int")
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
        acts(rt, None, replace(A10G, kind="float"), "to sub div", picture)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", dims=(picture,),
              run=((CAST, A10G.moves(6 * prod(picture))),))  # fmt: skip
        _looked(rt, tape)
        casts(rt, A10G, [UNITS, UNITS], [UNITS, UNITS], [3 * UNITS, 2 * UNITS], [3 * UNITS, UNITS], [SIGNS, UNITS])
        dense(rt, tape, A10G, LINES, (LINES * PLACES, UNITS, UNITS))
        for _ in range(TURNS):
            _turn(rt, tape)
            if not fixed:
                _ended(rt)
        acts(rt, tape, A10G, "stack", [LINES, TURNS, SIGNS])
        judged(rt, tape, A10G, LINES * TURNS, SIGNS)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
        back(rt, tape)
    with rt.span(f"{PROFILED}[LightningModule]Lines.optimizer_step", "user_annotation", us=50):
        clipped(rt, A10G, 47e6)
        adam(rt, A10G, 47e6, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(390)
