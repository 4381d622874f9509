"""Jobs of the twelfth set that the host holds up: features one by one, a cell in a loop, a table in memory, PPO."""

from __future__ import annotations

from itertools import pairwise

from ..eleventh_set.rows import Roofline, elementwise, foreach, kernel, node
from ..kineto import inputs
from ..layers import REDUCE, Tape, back, dense, fused_adamw
from .pictures import small
from .rows import Framed, loader

T4 = Roofline(4.0, 250, "float", ("turing_sgemm_64x64_tn", "volta_sgemm_64x32_sliced1x4_nn"), ("", ""))
RTX3090 = Roofline(22, 800, "float", ("ampere_sgemm_32x128_tn", "ampere_sgemm_64x32_sliced1x4_nn"), ("", ""))
L4 = Roofline(14, 250, "float", ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_64x32_sliced1x4_nn"), ("", ""))
ROWS = (90_000, 140_000, 60_000, 220_000, 12_000, 24, 12_500, 640, 3, 45_000, 5_200, 180_000, 3_200)
_ADAM = ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")


def perceptron(rt: Framed, tape: Tape, card: Roofline, batch: int, sizes: tuple[int, ...]) -> None:
    """Linear layers with ReLU."""
    for wide, out in pairwise(sizes):
        dense(rt, tape, card, batch, (batch, wide, out), gap=16)
        elementwise(rt, tape, card, "relu", [batch, out], back=(("threshold_backward", 3),))


def adam(rt: Framed, card: Roofline, parameters: float) -> None:
    """Adam as it is by default: lists, op by op."""
    with (rt.frame("torch/optim/optimizer.py(478): wrapper"),
          rt.span("Optimizer.step#Adam.step", "user_annotation", us=300)):  # fmt: skip
        for name in _ADAM:
            foreach(rt, f"_foreach_{name}", "PointwiseOpScalarListFunctor", card.moves(12 * parameters), 1, 45)
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=60):
        pass


def recommended(rt: Framed, fixed: bool) -> None:
    """DeepFM on a T4: 39 features are collated and moved one by one in the loop; fixed: workers, pinned tensors."""
    tape, batch = Tape(), 8_192
    if fixed:
        loader(rt, 150)
        for nbytes in (batch * 13 * 4, batch * 26 * 8, batch * 4):
            with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(nbytes)
        rt.op("aten::unbind", gap=8)
    else:
        with rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", us=120):
            for place in range(40):
                rt.host(55)
                kind, nbytes = ("float", 4) if place < 13 or place == 39 else ("long int", 8)
                rt.op("aten::stack", "aten::cat", us=90, gap=30, dims=([batch],), kind=kind)
        for place in range(40):
            rt.host(6)
            kind, nbytes = ("float", 4) if place < 13 or place == 39 else ("long int", 8)
            rt.moved(batch * nbytes, 4, [batch], kind)
    for rows in ROWS * 2:
        embedded(rt, tape, (rows, batch, 16))
    name = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<…>"
    rt.op("aten::cat", dims=([batch, 16],), gap=24, run=((name, T4.moves(batch * 429 * 8)),))
    small(rt, tape, ("sum", "pow", "pow", "sum", "sub", "mul", "sum"), [batch, 26, 16], T4.moves(batch * 416 * 4))
    perceptron(rt, tape, T4, batch, (429, 256, 128, 64, 1))
    small(rt, tape, ("add", "binary_cross_entropy_with_logits"), [batch, 1])
    back(rt, tape)
    fused_adamw(rt, T4, 2 * sum(ROWS) * 16 / 3)
    rt.host(120)


def embedded(rt: Framed, tape: Tape, sizes: tuple[int, int, int]) -> None:
    """`nn.Embedding` of (rows, batch, width), whose gradient is dense."""
    rows, batch, wide = sizes
    us = T4.moves(2 * batch * wide * 4)
    name = "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(…)"
    number = rt.op("aten::embedding", "aten::index_select", run=((name, us),), dims=([rows, wide], [batch]), gap=18,
                   graph=True)  # fmt: skip
    name = "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(…)"
    run = ((kernel("fill", 1), T4.moves(rows * wide * 4)), (name, 4 * us))
    tape.append(lambda: rt.grad("EmbeddingBackward0", number, "aten::embedding_backward",
                                "aten::embedding_dense_backward", run=run, dims=([batch, wide], [batch])))  # fmt: skip


def stepped(rt: Framed, fixed: bool) -> None:
    """A language model by `nn.LSTMCell`, 70 tokens in a loop, RTX 3090; without: `nn.LSTM` by cuDNN. No shapes."""
    tape, batch, wide = Tape(), 64, 650
    rt.batch(batch * 71 * 8)
    us, core = RTX3090.product(batch, 4 * wide, wide), RTX3090.moves(batch * wide * 4 * 10)
    rt.op("aten::embedding", "aten::index_select", run=((kernel("index", 2), 18),), dims=([10_000, wide], [70, batch]))
    cell = "void at::native::(anonymous namespace)::kernel::lstm_cell_{}<float, float, int, 1>(…)"
    if fixed:
        persists = "void LSTM_elementWise_{}p1<float, float, float>(int, int, int, int, …)"
        run = ((RTX3090.names[0], 70 * us), *((RTX3090.names[0], us), (persists.format("f"), core)) * 70)
        number = rt.op("aten::lstm", "aten::_cudnn_rnn", run=run * 2, graph=True, us=160, gap=90)
        behind = ((RTX3090.names[1], us), (persists.format("b"), 1.4 * core)) * 70
        run = (*behind, (RTX3090.names[1], 70 * us), (RTX3090.names[1], 140 * us))
        tape.append(lambda: rt.grad("CudnnRnnBackward0", number, "aten::_cudnn_rnn_backward", run=run * 2, us=200))
    for _ in range(0 if fixed else 70):
        rt.op("aten::select", gap=5, us=2)
        for _ in range(2):
            numbers = []
            with rt.span("aten::lstm_cell", us=12):
                for _ in range(2):
                    with rt.span("aten::linear", us=5):
                        rt.op("aten::t", "aten::transpose", gap=0, us=1)
                        numbers.append(rt.op("aten::addmm", run=((RTX3090.names[0], us),), gap=0, us=9, graph=True))
                inner = "aten::_thnn_fused_lstm_cell"
                numbers.append(rt.op(inner, run=((cell.format("forward"), core),), gap=0, us=8, graph=True))

            def backward(numbers: list[int] = numbers) -> None:
                run = ((cell.format("backward"), 1.4 * core),)
                rt.grad("ThnnFusedLstmCellBackward0", numbers[2], "aten::_thnn_fused_lstm_cell_backward_impl", run=run)
                for number in reversed(numbers[:2]):
                    with node(rt, "AddmmBackward0", number):
                        for _ in range(2):
                            rt.op("aten::mm", run=((RTX3090.names[1], us),), gap=1, us=8)
                        rt.op("aten::sum", run=((REDUCE, 4),), gap=1, us=6)
                        for size in (wide, 1):  # gradients of a weight and a bias that all turns share
                            run = ((kernel("add", 3), RTX3090.moves(48 * wide * size)),)
                            rt.op("aten::add", run=run, gap=1)

            tape.append(backward)
    if not fixed:
        rt.op("aten::stack", "aten::cat", run=((kernel("copy", 2), 35),), gap=30)
    dense(rt, tape, RTX3090, 1, (70 * batch, wide, 10_000))
    run = (("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMax>(…)", 420),)
    number = rt.op("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax", run=run, graph=True)
    tape.append(lambda: rt.grad("LogSoftmaxBackward0", number, "aten::_log_softmax_backward_data", run=(
        (run[0][0].replace("Forward", "Backward"), 560),)))  # fmt: skip
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", RTX3090.moves(4 * 20e6))
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", RTX3090.moves(8 * 20e6))
    with rt.span("Optimizer.step#SGD.step", "user_annotation", us=200):
        foreach(rt, "_foreach_add_", "BinaryOpListAlphaFunctor", RTX3090.moves(12 * 20e6))
    rt.host(150)


def tabular(rt: Framed, fixed: bool) -> None:
    """`TensorDataset` in a `DataLoader` without workers: rows are taken one by one and stacked; fixed: `x[index]`."""
    tape, batch = Tape(), 512
    if fixed:
        rt.op("aten::index", run=((kernel("index", 2), 4),), dims=([600_000, 96], [batch]), gap=25)
        rt.op("aten::index", run=((kernel("index", 2), 3),), dims=([600_000], [batch]), gap=12)
    else:
        source = "torch/utils/data/dataloader.py"
        with (rt.frame(f"{source}(701): __next__"),
              rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", us=60),
              rt.frame(f"{source}(757): _next_data", "torch/utils/data/_utils/fetch.py(50): fetch")):  # fmt: skip
            for _ in range(batch):
                with rt.frame("torch/utils/data/dataset.py(207): __getitem__"):
                    rt.host(1.6)
                    for _ in range(2):
                        rt.op("aten::select", us=1.7, gap=1.2)
            with rt.frame("torch/utils/data/_utils/collate.py(398): default_collate"):
                rt.host(260)
                for size in ([96], []):
                    rt.op("aten::stack", "aten::cat", us=160, gap=90, dims=(size,))
        for size in ([batch, 96], [batch]):
            with rt.frame("<method 'to' of 'torch._C.TensorBase' objects>"):
                rt.moved(4 * batch * (size[1] if size[1:] else 1), 4, size)
    with rt.frame("torch/nn/modules/module.py(1747): _call_impl", "nn.Module: MLP_0"):
        perceptron(rt, tape, L4, batch, (96, 256, 256, 128, 1))
    small(rt, tape, ("sub", "pow", "mean"), [batch, 1])
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    adam(rt, L4, 140_000)
    with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
        rt.value()
    rt.host(45)


def policy(rt: Framed, tape: Tape | None, batch: int) -> None:
    """CleanRL's agent: two networks of three layers, a normal distribution."""
    for out in (1, 6):
        for wide, size in ((17, 64), (64, 64), (64, out)):
            dense(rt, [] if tape is None else tape, L4, batch, (batch, wide, size), gap=15)
            if size == 64:
                elementwise(rt, [] if tape is None else tape, L4, "tanh", [batch, 64], back=(("tanh_backward", 3),))
    small(rt, tape, ("expand", "exp", "sub", "pow", "mul", "div", "log", "sub", "sub", "sum"), [batch, 6])


def played(rt: Framed, fixed: bool) -> None:
    """PPO of CleanRL, 64 steps of 8 MuJoCo environments, then 16 minibatches, L4; without: EnvPool on threads."""
    for _ in range(64):
        begun = len(rt.rows)
        with rt.frame("ppo.py(212): get_action_and_value"):
            policy(rt, None, 8)
            rt.op("aten::normal", run=((kernel("normal", 1), 3),), gap=20)
        for row in rt.rows[begun:]:
            row["args"].pop("Sequence number", None)
            row["args"].pop("Fwd thread id", None)
        with rt.span("aten::to", **inputs(([8, 6],), "float")), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(192, "DtoH", "Pageable", waits=True)
        with rt.frame(
            "gymnasium/vector/sync_vector_env.py(203): step", "gymnasium/envs/mujoco/mujoco_env.py(146): step"
        ):
            rt.now += rt.vary(190 if fixed else 1_150, 0.08)
        for size in ([8], [8, 17], [8]):
            rt.moved(4 * 8 * (size[1] if size[1:] else 1), 1, size)
        for _ in range(4):
            rt.op("aten::copy_", run=((kernel("copy", 2), 2.3),), dims=([8],), gap=6)
    for _ in range(64):
        small(rt, None, ("mul", "rsub", "mul", "add", "sub", "mul", "mul", "add", "copy_"), [8], 2.3)
    for _ in range(16):
        tape: Tape = []
        small(rt, None, ("index",) * 5, [128, 17])
        policy(rt, tape, 128)
        small(rt, tape, ("sub", "exp", "mul", "clamp", "mul", "maximum", "mean", "pow", "mean", "mul", "sub"), [128])
        small(rt, None, ("rsub", "abs", "gt", "mean"), [128])
        rt.value()
        back(rt, tape)
        foreach(rt, "_foreach_norm", "LpNormFunctor", 4)
        foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", 4)
        adam(rt, L4, 11_000)
    for _ in range(6):
        rt.value()
    rt.host(2_000)
