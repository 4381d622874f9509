"""Jobs of the twenty-fourth set that wait for input: pictures decoded by the loop itself, features moved one by one."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from ..eighteenth_set.rows import casts, on_host, pinned
from ..eleventh_set.rows import Roofline, kernel, node
from ..layers import CAST, Tape, attention, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..tenth_set.jobs import CONV
from ..twelfth_set.language import A10G
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from .rows import NATIVE, acts, judged, products

PLANTS, EACH = 64, 1_600.0  # µs to read, decode, crop and turn one picture
SWIN = ((2, 96, 56), (2, 192, 28), (6, 384, 14), (2, 768, 7))
LOOK = Look(A10G, tuple(name.format("bf16bf16_bf16f32_f32") for name in CONV), cast=True)  # type: ignore[arg-type]
WINDOWED = ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, …>)",
            "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<…>::Params)",
            )  # fmt: skip
LIGHTNING = "[pl][profile]"


def _decoded(rt: Framed) -> None:
    """`DataLoader(num_workers=0, pin_memory=True)`: torchvision's transforms in the process that trains."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    with (rt.span(LIGHTNING + "[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=30),
          rt.span(name, "user_annotation", us=60)):  # fmt: skip
        for _ in range(PLANTS):
            rt.host(EACH * 0.78)
            for name, us in (("permute", 2), ("contiguous", 95), ("to", 80), ("div", 40)):
                on_host(rt, f"aten::{name}", us, [3, 224, 224], "unsigned char" if us > 90 else "float")
            rt.host(EACH * 0.05)
            for name, us in (("clone", 45), ("sub_", 60), ("div_", 65)):
                on_host(rt, f"aten::{name}", us, [3, 224, 224])
        on_host(rt, "aten::stack", 5_200, [PLANTS, 3, 224, 224])
        on_host(rt, "aten::pin_memory", 4_300, [PLANTS, 3, 224, 224])


def _window(rt: Framed, tape: Tape, width: int, side: int, shifted: bool) -> None:
    """A block of Swin: windows of 7, turned by a roll in each second, attention with a bias, stochastic depth."""
    card, x, tokens = A10G, [PLANTS, side, side, width], PLANTS * side**2
    heads, windows = width // 32, tokens // 49
    casts(rt, card, [3 * width, width], [width, width], [4 * width, width], [width, 4 * width])
    norm(rt, tape, card, x)
    acts(rt, tape, card, "roll turn" if shifted else "turn", x)
    dense(rt, tape, card, windows, (tokens, width, 3 * width))
    acts(rt, tape, card, "turn", [3 * heads, 49, 49])
    known = type(card)(card.tflops, card.gbs, card.kind, card.names, WINDOWED)
    attention(rt, tape, known, [windows, heads, 49, 32])
    dense(rt, tape, card, windows, (tokens, width, width))
    acts(rt, tape, card, "turn roll scale add" if shifted else "turn scale add", x)
    norm(rt, tape, card, x)
    dense(rt, tape, card, PLANTS, (tokens, width, 4 * width))
    acts(rt, tape, card, "gelu", [*x[:3], 4 * width])
    dense(rt, tape, card, PLANTS, (tokens, 4 * width, width))
    acts(rt, tape, card, "scale add", x)


def herbarium(rt: Framed, fixed: bool) -> None:
    """Swin-T fine-tuned on plants by Lightning on an A10G, `bf16-mixed`, 64 pictures: `DataLoader` has no workers (the
    default), so that the loop reads, decodes and crops each picture itself, some 115 ms a batch, while the GPU, which
    takes less, runs out of work; without: eight workers. The batch is pinned, the loss stays on the GPU. Shapes.

    First: the wait for batches (`num_workers`). Not: launches, copies, waits, the optimizer, the batch.
    """
    tape, picture = Tape(), [PLANTS, 3, 224, 224]
    if fixed:
        with rt.span(LIGHTNING + "[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=30):
            loader(rt, 170)
    else:
        _decoded(rt)
    with rt.span(LIGHTNING + "[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=40):
        pinned(rt, 4 * prod(picture), picture)
        pinned(rt, 8 * PLANTS, [PLANTS], "long int")
    with rt.span(LIGHTNING + "run_training_batch", "user_annotation", us=90):
        with rt.span(LIGHTNING + "[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=40):
            run = ((CAST, A10G.moves(6 * prod(picture))),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(picture,))
            conv(rt, tape, LOOK, Conv(PLANTS, 3, 96, 4, 56, 56))
            norm(rt, tape, A10G, [PLANTS, 56, 56, 96])
            for count, width, side in SWIN:
                for number in range(count):
                    _window(rt, tape, width, side, number % 2 == 1 and side > 7)
                if side > 7:
                    acts(rt, tape, A10G, "cat", [PLANTS, side // 2, side // 2, 4 * width])
                    norm(rt, tape, A10G, [PLANTS, side // 2, side // 2, 4 * width])
                    dense(rt, tape, A10G, PLANTS, (PLANTS * side**2 // 4, 4 * width, 2 * width))
            norm(rt, tape, A10G, [PLANTS, 7, 7, 768])
            acts(rt, tape, A10G, "mean", [PLANTS, 49, 768])
            dense(rt, tape, A10G, PLANTS, (PLANTS, 768, 1_081))
            judged(rt, tape, A10G, PLANTS, 1_081)
        with rt.span(LIGHTNING + "[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=30):
            back(rt, tape)
        fused_adamw(rt, A10G, 28.3e6)
    acts(rt, None, A10G, "add_", [1])
    rt.host(900)


CLICKS, TABLES, DIM = 65_536, 26, 64
A100 = Roofline(85, 1_450, "float", TF32, ("", ""))
BAGS = (NATIVE + "EmbeddingBag_updateOutputKernel_sum_mean<float, long>(long const*, long const*, float const*, …)",
        NATIVE + "vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
        NATIVE + "indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true, ReduceAdd>(…)")  # fmt: skip
LOWER = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<…OpaqueType<4>>>(long, …)"


def _clicked(rt: Framed, fixed: bool) -> None:
    """`lS_i = [S_i.to(device) for S_i in lS_i]`, offsets, dense features and targets alike."""
    sizes = [([CLICKS, 13], 4, "float"), ([CLICKS, 1], 4, "float")]
    for size, width, kind in sizes[:1] + [([CLICKS], 8, "long int")] * 2 * TABLES + sizes[1:]:
        rt.host(5)
        if fixed:
            pinned(rt, width * prod(size), size, kind, stream=COPIES)
        else:
            rt.moved(width * prod(size), 6.4, size, kind)


def _bag(rt: Framed, tape: Tape) -> None:
    """`nn.EmbeddingBag(sparse=True)`."""
    number = rt.op("aten::embedding_bag", "aten::_embedding_bag", graph=True, gap=14, us=7, kind="float",
                   run=((BAGS[0], A100.moves(14 * CLICKS * DIM)),),
                   dims=([2_000_000, DIM], [CLICKS], [CLICKS]))  # fmt: skip

    def backward() -> None:
        with node(rt, "EmbeddingBagBackward0", number), rt.span("aten::_embedding_bag_backward", us=6):
            rt.op("aten::_embedding_bag_sparse_backward", "aten::index_select", gap=1, us=6, dims=([CLICKS, DIM],),
                  run=((BAGS[1], A100.moves(8 * CLICKS * DIM)),))  # fmt: skip
        rt.accumulated()

    tape.append(backward)


def _perceptron(rt: Framed, tape: Tape, widths: tuple[int, ...]) -> None:
    for wide, out in pairwise(widths):
        dense(rt, tape, A100, 1, (CLICKS, wide, out))
        acts(rt, tape, A100, "sigmoid" if out == 1 else "relu", [CLICKS, out])


def criteo(rt: Framed, fixed: bool) -> None:
    """DLRM on Criteo's clicks on an A100, TF32, 65,536 a step, 26 tables on the GPU: indices and offsets of each table
    go there by a `.to(device)` of their own from memory that is not pinned, 54 copies of half a megabyte, each waits,
    while no kernel runs; without: pinned, a batch ahead on a stream of its own. SGD of sparse gradients, the loss is
    printed each 1,024th step. No rows of steps.

    First: copies of memory that is not pinned (pinned, fewer, ahead). Not: launches, the loader, TF32, the batch.
    """
    tape, came = Tape(), rt.free.get(COPIES, 0.0)
    rt.host(140)
    _clicked(rt, fixed)
    if fixed and came:
        rt.waits(MAIN, came)
    _perceptron(rt, tape, (13, 512, 256, DIM))
    for _ in range(TABLES):
        _bag(rt, tape)
    whole = [CLICKS, TABLES + 1, DIM]
    acts(rt, tape, A100, "cat", whole)
    products(rt, tape, A100, (CLICKS, TABLES + 1, DIM, TABLES + 1))
    pairs = [CLICKS, 351]
    number = rt.op("aten::index", run=((LOWER, A100.moves(12 * prod(pairs))),), dims=(pairs,), graph=True, gap=20, us=9)
    tape.append(lambda: rt.grad("IndexBackward0", number, "aten::_index_put_impl_", dims=(pairs,), run=(
        (LOWER.replace("gpu_index_kernel", "index_put_kernel"), A100.moves(14 * prod(pairs))),)))  # fmt: skip
    acts(rt, tape, A100, "cat", [CLICKS, 415])
    _perceptron(rt, tape, (415, 512, 256, 1))
    acts(rt, tape, A100, "sub pow mean", [CLICKS, 1])
    back(rt, tape)
    with rt.span("Optimizer.step#SGD.step", "user_annotation", us=90):
        for _ in range(14):
            rt.op("aten::add_", run=((kernel("add", 3), 2.4),), dims=([512, 256],), gap=6)
        for _ in range(TABLES):
            rt.op("aten::add_", "aten::index_add_", gap=6, us=9, dims=([2_000_000, DIM], [CLICKS, DIM]),
                  run=((BAGS[2], A100.moves(16 * CLICKS * DIM)),))  # fmt: skip
    with rt.span("Optimizer.zero_grad#SGD.zero_grad", "user_annotation", us=40):
        pass
    acts(rt, None, A100, "add_", [1])
    rt.host(160)
