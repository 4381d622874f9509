"""Jobs of the nineteenth set whose fault is work of the device: logits that are kept, scores that are written out,
layers that run once more, an optimizer op by op.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import Remembered, casts, pinned
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, moved_as, node
from ..fifteenth_set.rows import encoded, product
from ..layers import CAST, REDUCE, Tape, back, fused_adamw
from ..runtime import Row
from ..seventeenth_set.rows import compiled_loss, linear_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import H100, MI300X
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Framed, loader

CLASSES, EACH = 50_265, [16, 512]
BATCHED = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<at::native::(anonymous namespace)::"
    "OpaqueType<4u>, unsigned int, 3, 64, 64, 16, 4>(char*, …)"
)


class Started(Remembered):
    """before: bytes that were taken before the window, beside 1.4 GB."""

    before = 0

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        for row in known["traceEvents"]:
            if row["name"] == "[memory]":
                row["args"]["Total Allocated"] += self.before
                row["args"]["Total Reserved"] += -(-self.before // (1 << 25)) << 25
        return known


def _held(rt: Started, nbytes: int) -> None:
    address = 0x7F60_0000_0000 + 0x200 * len(rt.memory)
    rt.taken.append((address, nbytes))
    rt.memory.append((rt.now - 1, address, nbytes))


def _kept(rt: Started, name: str, seen: int, dims: list[int], width: int) -> None:
    """What was gathered so far and this batch's are put together in a new tensor; the old one is given back."""
    rows = [EACH[0] * (seen + 1), *dims[1:]]
    nbytes = width * prod(rows)
    rt.host(26)
    with rt.span("aten::cat", us=9):
        if nbytes > 1e9:
            rt.call("Malloc", 700)
        rt.work(BATCHED if width * prod(dims) > 1e6 else BATCHED.replace("_vectorized", ""),
                A100.moves(2 * nbytes))  # fmt: skip
    place = ("losses", "preds", "logits", "labels").index(name)
    address = 0x7000_0000_0000 + 0x8_0000_0000 * (4 * seen + place)
    rt.memory.append((rt.now - 1, address, nbytes))
    rt.memory.append((rt.now, address - 4 * 0x8_0000_0000, -width * prod([EACH[0] * seen, *dims[1:]])))
    if rt.number == 0:
        rt.before += width * prod([EACH[0] * seen, *dims[1:]])


def hoarded(rt: Started, fixed: bool) -> None:
    """Trainer evaluates RoBERTa-base as a masked language model on an A100, 16 texts of 512 a batch, a step is a batch:
    `compute_metrics` without `preprocess_logits_for_metrics`, so that logits of 50,265 classes in fp32 are kept on the
    GPU, 1.6 GB a batch, and all so far are copied anew by each `torch.cat`; without: only the chosen class is kept.
    Steps become longer by 2.3 ms each, memory grows to 44 GB. Rows of memory, none of steps.

    First: the concatenation of what grows, or its ops of memory; keep less (`argmax`), or hand it to the host in
    between. Not: a loader, launches, the batch, `cudaMalloc`, which waits for nothing here.
    """
    seen = rt.number + 5
    loader(rt, 160)
    for _ in range(3):
        pinned(rt, prod(EACH) * 8, EACH, "long int")
    with without_graph(rt):
        casts(rt, A100, [CLASSES, 768], [768, 768])
        for _ in range(12):
            casts(rt, A100, *([768, 768],) * 4, [3_072, 768], [768, 3_072])
            encoded(rt, A100, [*EACH, 768])
        product(rt, A100, [*EACH, 768], 768)
        product(rt, A100, [*EACH, 768], CLASSES)
        dims = [*EACH, CLASSES]
        rt.op("aten::cross_entropy_loss", run=((kernel("log_softmax", 2), A100.moves(10 * prod(dims))), (REDUCE, 30)),
              dims=(dims, EACH), kind=BF16, gap=20)  # fmt: skip
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(6 * prod(dims))),), dims=(dims,),
              kind=BF16, gap=14)  # fmt: skip
        rt.op("aten::repeat", "aten::copy_", run=((COPY, 2.3),), dims=([],), gap=30)
        _held(rt, 4 * prod(dims))
        _kept(rt, "losses", seen, [EACH[0]], 4)
        if fixed:
            rt.op("aten::argmax", run=((REDUCE.replace("sum", "ArgMaxOps"), A100.moves(4 * prod(dims))),), gap=20,
                  dims=(dims,))  # fmt: skip
            _kept(rt, "preds", seen, EACH, 8)
        else:
            _kept(rt, "logits", seen, dims, 4)
        _kept(rt, "labels", seen, EACH, 8)
        rt.freed(1)
    rt.host(420)


GEMMA, LENGTH, HEADS = (26, 2_304, 9_216, 256_000), 4_096, 8
CAP = (("div", 2), ("tanh", 2), ("mul", 2))
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMax{0}Reg<float, float, float, {0}Epilogue, long, 8>(…)"


def _scores(rt: Framed, tape: Tape, batch: int) -> None:
    """`eager_attention_forward` of Gemma 2: products, a scale, the soft cap, a mask, softmax in fp32, back to bf16."""
    size = [batch, HEADS, LENGTH, LENGTH]
    x = [batch * HEADS, LENGTH, 256]
    us = MI300X.product(prod(size), 1, 256) * 1.3
    once = MI300X.moves(2 * prod(size))

    def multiplied(name: str, dims: tuple[list[int], list[int]]) -> None:
        number = rt.op("aten::matmul", "aten::bmm", run=((MI300X.names[0], us),), dims=dims, kind=BF16, gap=16,
                       graph=True, us=7)  # fmt: skip

        def backward() -> None:
            with node(rt, name, number):
                for _ in range(2):
                    rt.op("aten::bmm", run=((MI300X.names[1], us),), dims=dims, kind=BF16, gap=1, us=7)

        tape.append(backward)

    moved = MI300X.moves(6 * prod(x))
    for _ in range(2):  # `repeat_kv`
        held = [batch, HEADS // 2, LENGTH, 256]
        kept = rt.op("aten::reshape", "aten::clone", "aten::copy_", run=((COPY, moved),), gap=14, dims=(held,),
                     kind=BF16, graph=True)  # fmt: skip
        tape.append(lambda kept=kept, held=held: rt.grad("ExpandBackward0", kept, "aten::sum", run=((REDUCE, moved),),
                                                         dims=(held,), kind=BF16))  # fmt: skip
    multiplied("BmmBackward0", (x, [x[0], 256, LENGTH]))
    for name in ("mul", *(cap for cap, _ in CAP)):
        elementwise(rt, tape, MI300X, name, size, 1, ((f"{name}_backward" if name == "tanh" else name, 3),))
    elementwise(rt, tape, MI300X, "add", size, 2)
    number = rt.op("aten::softmax", "aten::_softmax", run=((SOFTMAX.format("Forward"), 3 * once),), dims=(size,),
                   kind=BF16, gap=10, graph=True)  # fmt: skip
    tape.append(lambda: rt.grad("SoftmaxBackward0", number, "aten::_softmax_backward_data", dims=(size, size), run=(
        (SOFTMAX.format("Backward"), 5 * once),)))  # fmt: skip
    moved_as(rt, tape, MI300X, size, 3, "float")
    multiplied("BmmBackward0", ([x[0], LENGTH, LENGTH], x))


def _flash(rt: Framed, tape: Tape, batch: int) -> None:
    """flash-attn's function, which has the cap inside."""
    us = MI300X.product(batch * HEADS * LENGTH, LENGTH, 2 * 256) / 0.9
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with rt.span("FlashAttnFunc", us=30, **args), rt.span("flash_attn::_flash_attn_forward", us=26):
        rt.work("attn_fwd", us, call="ModuleLaunchKernel")

    def backward() -> None:
        with node(rt, "FlashAttnFuncBackward", number), rt.span("flash_attn::_flash_attn_backward", us=26):
            rt.work("_bwd_preprocess", 0.1 * us, call="ModuleLaunchKernel")
            rt.work("_bwd_kernel_dkdvdq", 2.4 * us, call="ModuleLaunchKernel")

    tape.append(backward)


def softcapped(rt: Framed, fixed: bool) -> None:
    """Gemma-2-2B fine-tuned on an MI300X, 2 texts of 4,096, `attn_implementation="eager"`, as its warning asks for:
    scores of 0.5 GB are written and read some thirty times a layer; without: flash-attn with `softcap`. Liger's loss.

    First: attention that is not fused. Not: launches, a loader, the batch; bf16 it has.
    """
    batch, tape = 2, Tape()
    deep, width, hidden, classes = GEMMA
    x, wide = [batch, LENGTH, width], [batch, LENGTH, hidden]
    rt.batch(batch * LENGTH * 8, batch * LENGTH * 8, batch * LENGTH * 8)
    for _ in range(deep):
        fused_norm(rt, tape, MI300X, x)
        for out in (2_048, 1_024, 1_024):
            linear(rt, tape, MI300X, x, out)
        for heads in (HEADS, HEADS // 2):
            elementwise(rt, tape, MI300X, "mul", [batch, heads, LENGTH, 256], 2, (("mul", 3),))
        (_flash if fixed else _scores)(rt, tape, batch)
        linear(rt, tape, MI300X, [batch, LENGTH, 2_048], width)
        fused_norm(rt, tape, MI300X, x)
        elementwise(rt, tape, MI300X, "add", x, 2)
        fused_norm(rt, tape, MI300X, x)
        for _ in range(2):
            linear(rt, tape, MI300X, x, hidden)
        elementwise(rt, tape, MI300X, "gelu", wide, back=(("gelu_backward", 3),))
        elementwise(rt, tape, MI300X, "mul", wide, 2, (("mul", 3), ("mul", 3)))
        linear(rt, tape, MI300X, wide, width)
        fused_norm(rt, tape, MI300X, x)
        elementwise(rt, tape, MI300X, "add", x, 2)
    fused_norm(rt, tape, MI300X, x)
    linear_loss(rt, tape, MI300X, "LigerFusedLinearCrossEntropyFunction",
                ("liger_cross_entropy_kernel", 4 * MI300X.moves(batch * LENGTH * classes)),
                (batch * LENGTH, width, classes), 2)  # fmt: skip
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2 * 2.6e9), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", MI300X.moves(4 * 2.6e9), 4)
    fused_adamw(rt, MI300X, 2.6e9 / 2)
    rt.host(600)


LAYERS, SHAPE, QWEN = 24, (8, 1_024, 896, 2, 4_864), 151_936


def recomputing(rt: Started, fixed: bool) -> None:
    """SFT of Qwen2.5-0.5B by TRL on an H100, 8 packed texts of 1,024; `gradient_checkpointing=True` is TRL's default:
    each layer runs once more in the backward pass, for memory that is not short: no more than 5 of 79 GB are taken;
    without: activations stay, 16 GB. Rows of memory.

    First: no checkpointing while there is memory (or a larger batch). Not: a loader, launches, attention.
    """
    rt.before = 2_600_000_000  # gradients and states
    x, last, numbers, tape = list(SHAPE[:3]), Tape(), list[int](), Tape()
    loader(rt, 180)
    for _ in range(3):
        pinned(rt, prod(SHAPE[:2]) * 8, list(SHAPE[:2]), "long int")
    for _ in range(LAYERS):
        if fixed:
            llama(rt, tape, H100, SHAPE, fused_norm)
            continue
        rt.sequence += 1
        numbers.append(rt.sequence)
        args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
        with rt.span("CheckpointFunction", us=40, **args), without_graph(rt):
            before = len(rt.taken)
            llama(rt, [], H100, SHAPE, fused_norm)
            rt.freed(len(rt.taken) - before)
        _held(rt, 2 * prod(x))
    fused_norm(rt, last, H100, x)
    linear_loss(rt, last, H100, "LigerFusedLinearCrossEntropyFunction",
                ("liger_cross_entropy_kernel", 4 * H100.moves(prod(SHAPE[:2]) * QWEN)),
                (prod(SHAPE[:2]), SHAPE[2], QWEN), 2)  # fmt: skip
    with rt.backward():
        while last:
            last.pop()()
        while tape:
            tape.pop()()
        for number in reversed(numbers):
            with node(rt, "CheckpointFunctionBackward", number):
                again: Tape = []
                before = len(rt.taken)
                llama(rt, again, H100, SHAPE, fused_norm)
                while again:
                    again.pop()()
                rt.freed(len(rt.taken) - before)
            rt.freed(1)
    rt.freed(len(rt.taken))
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 0.494e9), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * 0.494e9), 2)
    fused_adamw(rt, H100, 0.494e9 / 2)
    rt.host(700)


SMALL = (6, 1_024, 1_024, 16, 2_816)
EVERY = ([1_024, 1_024],) * 4 + ([2_816, 1_024],) * 2 + ([1_024, 2_816], [1_024], [1_024])


def _factored(rt: Framed, dims: list[int]) -> None:
    """An update of a parameter by transformers' Adafactor."""
    single = replace(A100, kind="float")
    once = single.moves(4 * prod(dims))
    matrix = len(dims) == 2
    whole = (("pow", 2), ("add", 2), *((("mean", 1), ("mul_", 0), ("add_", 0), ("mean", 1), ("mul_", 0), ("add_", 0),
              ("mean", 0), ("div", 0), ("rsqrt_", 0), ("rsqrt", 0), ("mul", 2)) if matrix else
             (("mul_", 2), ("add_", 3), ("rsqrt", 2))), ("mul_", 3), ("linalg_vector_norm", 1), ("div", 0), ("div", 0),
             ("clamp_", 0), ("div_", 2), ("mul_", 2), ("neg", 2), ("add_", 3), ("linalg_vector_norm", 1),
             ("div", 0))  # fmt: skip
    for name, passes in whole:
        reduced = name in ("mean", "linalg_vector_norm")
        us = max(2.2, passes * once) if passes else 2.2
        rt.op(f"aten::{name}", run=((REDUCE if reduced else kernel(name, 2), us),), gap=6, us=5,
              dims=(dims if passes else dims[:1],))  # fmt: skip


def adafactored(rt: Framed, fixed: bool) -> None:
    """A Llama of 0.3 B from scratch by Trainer on an A100 with `optim="adafactor"`, whose update goes parameter by
    parameter, 22 small ops each, some 4,500 launches that the host does not bring in time; without: `adamw_torch_fused`
    (3.6 GB of states of 80). Trainer's look for NaN waits once a step, before the update. No shapes.

    First: the optimizer, one of lists or fused. Not: a loader, the batch, CUDA graphs of the model, TF32.
    """
    tape: Tape = []
    loader(rt, 170)
    for _ in range(3):
        pinned(rt, prod(SMALL[:2]) * 8, list(SMALL[:2]), "long int")
    for _ in range(LAYERS):
        casts(rt, A100, *EVERY[:7])
        llama(rt, tape, A100, SMALL, fused_norm)
    fused_norm(rt, tape, A100, list(SMALL[:3]))
    linear(rt, tape, A100, list(SMALL[:3]), 32_000)
    compiled_loss(rt, tape, A100, prod(SMALL[:2]), 32_000)
    back(rt, tape)
    for name in ("isnan", "isinf"):
        rt.op(f"aten::{name}", run=((COPY, 3),), dims=([],))
        rt.op("aten::logical_or", run=((COPY, 3),), dims=([],))
    rt.value("aten::is_nonzero")
    foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * 0.34e9), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A100.moves(8 * 0.34e9), 2)
    if fixed:
        fused_adamw(rt, A100, 0.34e9)
    else:
        with rt.span("Optimizer.step#Adafactor.step", "user_annotation", us=260):
            for size in ([32_000, 1_024], *EVERY * LAYERS, [1_024]):
                rt.host(14)
                _factored(rt, size)
    small(rt, None, ("div", "add_"), [], 2.2)
    rt.host(500)
