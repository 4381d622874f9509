"""Jobs of the thirty-fourth set whose host is too slow: a world model of small layers that is not compiled, a quantum
circuit gate by gate.
"""

from __future__ import annotations

from functools import partial

from ..eleventh_set.rows import COPY, FILL, Roofline, kernel, node
from ..layers import REDUCE, Tape, dense, norm
from ..thirty_first_set.rows import Told, small
from ..thirty_third_set.rows import batch_of
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, recorded

ROWS, AHEAD, STATE, HIDDEN, SENSED, ACTED, JUDGES, BINS = 256, 3, 512, 512, 39, 6, 5, 101
RTX4080 = Roofline(44, 620, "float", TF32, ("", ""))
SOFT = "void (anonymous namespace)::softmax_warp_{}<float, float, float, 3, false, false>(…)"


def _normed(rt: Framed, tape: Tape, rows: int, given: int, out: int, *, simple: bool = False) -> None:
    """`NormedLinear`: a layer, its norm, Mish or SimNorm."""
    dense(rt, tape, RTX4080, 1, (rows, given, out))
    norm(rt, tape, RTX4080, [rows, out])
    if not simple:
        small(rt, tape, RTX4080, "mish", [rows, out])
        return
    rt.op("aten::view", dims=([rows, out],), gap=4, us=2)
    number = rt.op("aten::softmax", "aten::_softmax", graph=True, dims=([rows, out // 8, 8],), gap=8, run=(
        (SOFT.format("forward"), 2.8),))  # fmt: skip
    tape.append(lambda: rt.grad("SoftmaxBackward0", number, "aten::_softmax_backward_data", run=(
        (SOFT.format("backward"), 3.0),), dims=([rows, out // 8, 8],) * 2))  # fmt: skip


def _layers(rt: Framed, tape: Tape, rows: int, given: int, out: int) -> None:
    """Two hidden layers and one of outputs."""
    for came in (given, HIDDEN):
        _normed(rt, tape, rows, came, HIDDEN)
    dense(rt, tape, RTX4080, 1, (rows, HIDDEN, out))


def _judged(rt: Framed, tape: Tape, rows: int) -> None:
    """Five judges at once by `torch.vmap`."""
    acts(rt, tape, RTX4080, "cat", [rows, STATE + ACTED])
    for given, out in ((STATE + ACTED, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, BINS)):
        us = JUDGES * RTX4080.product(rows, out, given)
        dims = ([JUDGES, 1, out], [JUDGES, rows, given], [JUDGES, given, out])
        number = rt.op("aten::baddbmm", run=((TF32[0], us),), dims=dims, graph=True, gap=22, us=12)
        tape.append(lambda number=number, us=us, dims=dims: rt.grad(
            "BaddbmmBackward0", number, "aten::bmm", run=((TF32[1], us), (TF32[1], us), (REDUCE, 3.4)),
            dims=dims))  # fmt: skip
        if out == HIDDEN:
            norm(rt, tape, RTX4080, [JUDGES, rows, HIDDEN])
            small(rt, tape, RTX4080, "mul add mish", [JUDGES, rows, HIDDEN])


def _two_hot(rt: Framed, tape: Tape) -> None:
    """`soft_ce`: the target lies between two bins, the rest is a cross entropy."""
    few(rt, "sign abs add log mul clamp sub div floor sub", [ROWS, 1], 2.2, gap=5)
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, 2.1),), dims=([ROWS, BINS],), gap=5)
    few(rt, "unsqueeze scatter_ add rsub scatter_", [ROWS, BINS], 2.4, gap=5)
    acts(rt, tape, RTX4080, "logsumexp mul sum", [ROWS, BINS])
    small(rt, tape, RTX4080, "neg mean mul add", [1])


def _done(tape: Tape, rt: Framed, parameters: float) -> None:
    with rt.backward():
        while tape:
            tape.pop()()
    clipped(rt, RTX4080, parameters)


def _world(rt: Framed) -> None:
    """What comes is imagined three steps ahead and compared; forward, the losses, behind."""
    tape, wide = Tape(), AHEAD * ROWS
    for out in (HIDDEN, STATE):
        _normed(rt, [], wide, SENSED if out == HIDDEN else HIDDEN, out, simple=out == STATE)
    _layers(rt, [], wide, STATE, 2 * ACTED)
    few(rt, "tanh sub mul add exp normal_ mul add tanh mul sub log sum", [wide, ACTED], 2.2)
    _judged(rt, [], wide)
    few(rt, "index softmax mul sum sign abs exp sub mul min mul add", [2, wide, BINS], 2.8)
    _normed(rt, tape, ROWS, SENSED, HIDDEN)
    _normed(rt, tape, ROWS, HIDDEN, STATE, simple=True)
    for _ in range(AHEAD):
        acts(rt, tape, RTX4080, "cat", [ROWS, STATE + ACTED])
        _normed(rt, tape, ROWS, STATE + ACTED, HIDDEN)
        _normed(rt, tape, ROWS, HIDDEN, HIDDEN)
        _normed(rt, tape, ROWS, HIDDEN, STATE, simple=True)
        small(rt, tape, RTX4080, "sub pow mean mul add", [ROWS, STATE])
        few(rt, "copy_", [ROWS, STATE], 2.4)
    _judged(rt, tape, wide)
    _layers(rt, tape, wide, STATE + ACTED, BINS)
    for _ in range(AHEAD):
        few(rt, "select select select", [AHEAD, ROWS, BINS], gap=4)
        for _ in range(1 + JUDGES):
            _two_hot(rt, tape)
    small(rt, tape, RTX4080, "mul mul mul add add", [1])
    _done(tape, rt, 4.6e6)


def _policy(rt: Framed) -> None:
    """The policy by what the judges say of it."""
    tape, wide = Tape(), (AHEAD + 1) * ROWS
    _layers(rt, tape, wide, STATE, 2 * ACTED)
    small(rt, tape, RTX4080, "tanh sub mul add exp mul add tanh mul sub log sum", [wide, ACTED])
    _judged(rt, tape, wide)
    small(rt, tape, RTX4080, "index softmax mul sum sign abs exp sub mul mean", [2, wide, BINS])
    few(rt, "quantile sub clamp lerp_", [1], 3.2)
    small(rt, tape, RTX4080, "div mul add neg mean mul mean", [AHEAD + 1, ROWS])
    _done(tape, rt, 0.55e6)


def tdmpc(rt: Told, fixed: bool) -> None:
    """TD-MPC2 (5M) learns from a data set of 30 tasks on an RTX 4080, TF32, 256 pieces of three steps: the world model,
    five judges and the policy are some 900 kernels of 2 to 8 µs in each update, which take longer to launch than to
    run; without: `compile=true`, which its authors offer, graphs of both halves. Pieces lie on the GPU, Adam by lists,
    clipped by lists, numbers are read each 500th update. Shapes.

    First: launches (compile, graphs). Not: the loader, copies, waits, TF32 (it is on), autocast, the optimizer alone; a
    larger batch at most beside it.
    """
    rt.host(90)
    few(rt, "randint add", [ROWS], 2.4)
    few(rt, "index index index index", [AHEAD + 1, ROWS, SENSED], 3.2)
    for number, (half, parameters) in enumerate(((_world, 4.6e6), (_policy, 0.55e6))):
        if fixed:
            few(rt, "copy_ copy_ copy_", [AHEAD + 1, ROWS, SENSED], 2.4)
            recorded(rt, half, 3 + number)
        else:
            half(rt)
        adam(rt, RTX4080, parameters, "Adam", 1)
    rt.op("aten::_foreach_lerp_", run=((kernel("lerp", 3), RTX4080.moves(12 * 2.8e6)),), us=60, gap=20)
    few(rt, "detach detach add_", [1])
    rt.host(120)


WIRES, CASES, DEPTH = 10, 256, 4
STATES = [CASES, 1 << (WIRES - 1), 2]
V100 = Roofline(10, 760, "float", ("volta_sgemm_32x128_tn", "volta_sgemm_64x64_nn"), ("", ""))
COMPLEX = "void gemmSN_NN_kernel<float2, 128, 2, 4, 8, 2, 4, false, cublasGemvTensorStridedBatched<float2 const>, …>(…)"
PAIRS = COPY.replace("float", "c10::complex<float>")


def _turned(rt: Framed, tape: Tape, cases: int) -> None:
    """The matrix of a gate from its angle: a cosine, a sine by the imaginary unit, two stacks."""
    small(rt, tape, V100, "to div cos div neg sin mul", [cases, 1])
    for size in ([cases, 2], [cases, 2], [cases, 2, 2]):
        acts(rt, tape, V100, "stack", size)


def _applied(rt: Framed, tape: Tape, *, pair: bool = False) -> None:
    """`apply_unitary_bmm`: the gate's wires go last, one product, and back."""
    rt.host(14)
    for name in ("aten::permute", "aten::view"):
        rt.op(name, dims=(STATES,), gap=4, us=2, kind="c10::complex<float>")
    us = V100.moves(16 * CASES * (1 << WIRES))
    copied = rt.op("aten::reshape", "aten::clone", "aten::copy_", run=((PAIRS, us),), dims=(STATES,), graph=True, gap=6,
                   kind="c10::complex<float>")  # fmt: skip
    tape.append(lambda: rt.grad("CloneBackward0", copied, "aten::permute", dims=(STATES,), kind="c10::complex<float>"))
    rt.op("aten::expand", dims=([2, 2],), gap=4, us=2)
    given = [CASES, 1 << (WIRES - 1 - pair), 2 << pair]
    dims = (given, [CASES, 2 << pair, 2 << pair])
    number = rt.op("aten::bmm", run=((COMPLEX, 1.9 * us),), dims=dims, graph=True, gap=7, us=7,
                   kind="c10::complex<float>")  # fmt: skip

    def backward() -> None:
        with node(rt, "BmmBackward0", number):
            for _ in range(1 if pair else 2):
                rt.op("aten::conj", gap=1, us=2, dims=(given,))
                rt.op("aten::bmm", run=((PAIRS, us), (COMPLEX, 1.9 * us)), gap=1, us=9, dims=dims,
                      kind="c10::complex<float>")  # fmt: skip
        if not pair:
            rt.op("aten::sum", run=((REDUCE, 2.6),), dims=([CASES, 2, 2],), gap=2)

    tape.append(backward)


def _circuit(rt: Framed) -> None:
    """Angles of the data, four layers of turns and a ring of CNOTs, what is measured, the loss, behind."""
    tape = Tape()
    dense(rt, tape, V100, 1, (CASES, 64, WIRES))
    small(rt, tape, V100, "tanh mul", [CASES, WIRES])
    for _ in range(WIRES):
        few(rt, "select", [CASES, WIRES], gap=4)
        _turned(rt, tape, CASES)
        _applied(rt, tape)
    for _ in range(DEPTH):
        for _ in range(2 * WIRES):
            _turned(rt, tape, 1)
            _applied(rt, tape)
        for _ in range(WIRES):
            _applied(rt, tape, pair=True)
    small(rt, tape, V100, "abs pow", [CASES, 1 << WIRES])
    for _ in range(WIRES):
        acts(rt, tape, V100, "sum", [CASES, 1 << WIRES])
        small(rt, tape, V100, "sub", [CASES])
    acts(rt, tape, V100, "stack", [CASES, WIRES])
    dense(rt, tape, V100, 1, (CASES, WIRES, 4))
    acts(rt, tape, V100, "logsumexp", [CASES, 4])
    small(rt, tape, V100, "gather neg mean", [CASES])
    with rt.backward():
        while tape:
            tape.pop()()


def quantum(rt: Told, fixed: bool) -> None:
    """A circuit of ten qubits learns to tell phases of a magnet by TorchQuantum on a V100, 256 cases: each of 130 gates
    is a matrix made of a dozen tiny kernels and a product of 2 MB of states, some 2,400 kernels of 2 to 9 µs in each
    step, which take longer to launch than to run; without: a CUDA graph of forward and backward pass. Cases come
    pinned, Adam by lists, the loss stays on the GPU. Shapes, no rows of steps.

    First: launches (a graph, fewer and larger gates). Not: the loader, copies, waits, precision (a V100 has no TF32,
    states are complex), autocast, the optimizer alone; a larger batch at most beside it.
    """
    loader(rt, 150)
    batch_of(rt, ([CASES, 64], "float"), ([CASES], "long int"))
    if fixed:
        few(rt, "copy_ copy_", [CASES, 64], 2.3)
        recorded(rt, partial(_circuit), 5)
    else:
        _circuit(rt)
    adam(rt, V100, 2_000, "Adam", 1)
    few(rt, "detach add_", [1])
    rt.host(140)
