"""Jobs of the twenty-ninth set whose loop waits for the GPU: an assignment picture by picture, experts in a loop."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import casts, pinned
from ..eleventh_set.language import flash, fused_norm
from ..eleventh_set.rows import elementwise, kernel, linear, node
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, attention, back, dense, fused_adamw, norm
from ..seventeenth_set.rows import compiled_loss
from ..sixteenth_set.rows import INDEX
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.pictures import ADA, HALF, NHWC, resnet, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import adam, clipped, group_norm
from ..twenty_fourth_set.rows import NATIVE, PLAIN, acts, few

PICTURES, HIGH, LONG, WIDE, QUERIES, TRUE, DEEP = 4, 100, 152, 256, 300, 14, 6
CARD = Card(165, 1_450, HALF, ADA.card.names, FLASH)
FLOAT = replace(CARD, kind="float")
LOOK = Look(CARD, ADA.names, NHWC, True)
SEEN = HIGH * LONG + 50 * 76 + 25 * 38 + 13 * 19
SAMPLED = "void mmcv::ms_deformable_{}_gpu_kernel{}<float>(int, float const*, long const*, long const*, …)"
CDIST = NATIVE + "cdist_kernel_cuda_impl<float, dists<float>::one>(…)"
COSTS = (
    "sigmoid neg add log mul pow mul neg add log mul pow mul index index sub mul "  # FocalLossCost
    "div slice slice mul add stack cdist mul "  # BBoxL1Cost
    "slice slice mul add stack unsqueeze unsqueeze max min sub clamp mul sub mul add sub div min max sub clamp mul sub "
    "div sub neg mul add add"  # IoUCost, their sum
)


def _copied(rt: Framed, nbytes: int, size: list[int], name: str = "aten::to") -> None:
    """`.cpu()`: the call returns when all is there."""
    with rt.span(name, **inputs((size,), "float")), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(nbytes, "DtoH", "Pageable", waits=True)


def _deformed(rt: Framed, tape: Tape, queries: int) -> None:
    """`MultiScaleDeformableAttention` in fp32, as mmcv has it."""
    x = [PICTURES, queries, WIDE]
    casts(rt, CARD, *[[WIDE, WIDE]] * 2, [256, WIDE], [128, WIDE])
    dense(rt, tape, CARD, PICTURES, (PICTURES * SEEN, WIDE, WIDE))
    dense(rt, tape, CARD, PICTURES, (PICTURES * queries, WIDE, 256))
    dense(rt, tape, CARD, PICTURES, (PICTURES * queries, WIDE, 128))
    acts(rt, tape, FLOAT, "softmax", [PICTURES, queries, 8, 16])
    acts(rt, tape, FLOAT, "div add", [PICTURES, queries, 8, 4, 4, 2])
    us = max(4.0, PICTURES * queries * WIDE * 16 * 4 * 4 / 4_200 / 1e3)  # mostly out of the cache
    number = rt.op("MultiScaleDeformableAttnFunction", run=((SAMPLED.format("im2col", ""), us),), graph=True, gap=60,
                   us=20, dims=([PICTURES, SEEN, 8, 32], [PICTURES, queries, 8, 4, 4, 2]))  # fmt: skip
    name = SAMPLED.format("col2im", "_shm_blocksize_aware_reduce_v1")
    tape.append(lambda: rt.grad("MultiScaleDeformableAttnFunctionBackward", number, "aten::zeros_like", us=20,
                                run=((name, 2.3 * us),), dims=([PICTURES, SEEN, 8, 32],)))  # fmt: skip
    dense(rt, tape, CARD, PICTURES, (PICTURES * queries, WIDE, WIDE))
    acts(rt, tape, CARD, "dropout add", x)
    norm(rt, tape, FLOAT, x)


def _fed(rt: Framed, tape: Tape, queries: int) -> None:
    casts(rt, CARD, [1_024, WIDE], [WIDE, 1_024])
    dense(rt, tape, CARD, PICTURES, (PICTURES * queries, WIDE, 1_024))
    acts(rt, tape, CARD, "relu dropout", [PICTURES, queries, 1_024])
    dense(rt, tape, CARD, PICTURES, (PICTURES * queries, 1_024, WIDE))
    acts(rt, tape, CARD, "dropout add", [PICTURES, queries, WIDE])
    norm(rt, tape, FLOAT, [PICTURES, queries, WIDE])


def _cost(rt: Framed, size: list[int]) -> None:
    for name in COSTS.split():
        if name == "cdist":
            rt.op("aten::cdist", "aten::_cdist_forward", dims=(size,), gap=16, us=9, run=((CDIST, 4),))
            continue
        few(rt, name, size, 2.4, 7)


def _unique(rt: Framed) -> None:
    """`torch.nonzero(gt_inds > 0).squeeze(-1).unique()`: two sizes that the host asks for."""
    few(rt, "gt", [QUERIES])
    with rt.span("aten::nonzero", us=8, **inputs(([QUERIES],), "bool")):
        rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy800, …>", 2.5)
        rt.copy(8, "DtoH", "Pageable", waits=True)
        rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy800, …>", 3)
    with rt.span("aten::_unique2", us=12, **inputs(([TRUE],), "long int")):
        rt.work("void at_cuda_detail::cub::DeviceRadixSortSingleTileKernel<at_cuda_detail::cub::…Policy800, …>", 5.4)
        rt.work("void at_cuda_detail::cub::DeviceUniqueByKeySweepKernel<at_cuda_detail::cub::…Policy800, …>", 3.4)
        rt.copy(8, "DtoH", "Pageable", waits=True)


def _assigned(rt: Framed, fixed: bool) -> None:
    """Targets of each layer of the decoder: costs, `linear_sum_assignment` on the host, indices."""
    if fixed:
        for _ in range(PICTURES):
            _cost(rt, [DEEP * QUERIES, TRUE])
        few(rt, "cat", [DEEP * PICTURES * QUERIES, TRUE], 3)
        _copied(rt, 4 * DEEP * PICTURES * QUERIES * TRUE, [DEEP * PICTURES * QUERIES, TRUE])
        for _ in range(DEEP * PICTURES):
            rt.host(270)
        for _ in range(3):
            pinned(rt, 8 * DEEP * PICTURES * TRUE, [DEEP * PICTURES * TRUE], "long int")
        few(rt, "zeros_like index_put_ zeros_like index_put_ index div index_put_", [DEEP, PICTURES, QUERIES], 3)
        return
    for _ in range(DEEP * PICTURES):
        rt.host(160)
        few(rt, "cat new_full new_full", [QUERIES])
        _cost(rt, [QUERIES, TRUE])
        _copied(rt, 4 * QUERIES * TRUE, [QUERIES, TRUE])
        rt.host(270)  # `linear_sum_assignment`
        for _ in range(2):
            rt.moved(8 * TRUE, 1, [TRUE], "long int")
        few(rt, "fill_ add index_put_ index index_put_", [QUERIES])
        rt.host(90)
        _unique(rt)
        few(rt, "eq", [QUERIES])
        _unique(rt)
        few(rt, "sub index new_full index index_put_ new_ones zeros_like fill_ index_put_", [QUERIES])
        few(rt, "zeros_like div index_put_", [QUERIES, 4])


def detr(rt: Framed, fixed: bool) -> None:
    """Deformable DETR on ResNet-50 learns to find parts of cars by MMDetection on an A100, `AmpOptimWrapper` in fp16,
    channels_last, four pictures of 800 x 1,216: the assigner goes picture by picture and layer by layer, brings each
    matrix of costs to the host, moves indices back and asks how many there are, so that the GPU waits some 170 times a
    step between the passes; without: all costs at once, one copy there, pinned ones back (what scipy takes remains).
    Workers are ahead, AdamW by lists, `GradScaler` waits once. Shapes.

    First: waits in the loss (the assigner). Not: `GradScaler`'s wait, the loader, TF32, casts, the layout; launches of
    small kernels at most beside the waits.
    """
    tape, picture = Tape(), [PICTURES, 3, 8 * HIGH, 8 * LONG]
    loader(rt, 260)
    pinned(rt, prod(picture), picture, "unsigned char")
    for _ in range(PICTURES):
        pinned(rt, 16 * TRUE, [TRUE, 4])
        pinned(rt, 8 * TRUE, [TRUE], "long int")
    acts(rt, None, FLOAT, "to sub div", picture)
    few(rt, "copy_", picture, CARD.moves(8 * prod(picture)))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(picture))),), dims=(picture,))
    resnet(rt, tape, LOOK, PICTURES, (25, 38))
    for cin, side, high, wide in ((512, 1, 100, 152), (1_024, 1, 50, 76), (2_048, 1, 25, 38), (2_048, 3, 13, 19)):
        conv(rt, tape, LOOK, Conv(PICTURES, cin, WIDE, side, high, wide))
        group_norm(rt, tape, CARD, [PICTURES, WIDE, high, wide])
    acts(rt, tape, CARD, "cat add", [PICTURES, SEEN, WIDE])
    for _ in range(DEEP):
        _deformed(rt, tape, SEEN)
        _fed(rt, tape, SEEN)
    for _ in range(DEEP):
        casts(rt, CARD, [3 * WIDE, WIDE], [WIDE, WIDE])
        acts(rt, tape, CARD, "add", [PICTURES, QUERIES, WIDE])
        dense(rt, tape, CARD, PICTURES, (PICTURES * QUERIES, WIDE, 3 * WIDE))
        attention(rt, tape, CARD, [PICTURES, 8, QUERIES, 32])
        dense(rt, tape, CARD, PICTURES, (PICTURES * QUERIES, WIDE, WIDE))
        acts(rt, tape, CARD, "dropout add", [PICTURES, QUERIES, WIDE])
        norm(rt, tape, FLOAT, [PICTURES, QUERIES, WIDE])
        _deformed(rt, tape, QUERIES)
        _fed(rt, tape, QUERIES)
        for out in (WIDE, WIDE, 4, 31):
            dense(rt, tape, CARD, PICTURES, (PICTURES * QUERIES, WIDE, out))
        acts(rt, tape, FLOAT, "add sigmoid", [PICTURES, QUERIES, 4])
    _assigned(rt, fixed)
    for _ in range(DEEP):
        acts(rt, tape, FLOAT, "sigmoid sub abs pow mul mul sum div", [PICTURES * QUERIES, 31])
        acts(rt, tape, FLOAT, "mul sub abs mul sum div", [PICTURES * QUERIES, 4])
        acts(rt, tape, FLOAT, "slice sub mul clamp sub div sub mul sum div", [PICTURES * QUERIES, 4])
    back(rt, tape)
    unscaled(rt, CARD, 40e6)
    clipped(rt, CARD, 40e6)
    adam(rt, CARD, 40e6)
    rt.host(520)


TEXTS, LENGTH, MODEL, FEED, LAYERS, EXPERTS, WORDS = 6, 2_048, 1_024, 2_816, 12, 8, 32_000
ROWS = 2 * TEXTS * LENGTH
SHARES = (0.19, 0.08, 0.13, 0.11, 0.16, 0.07, 0.12, 0.14)
GROUPED = "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::…>>"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::…Policy900, …>"


def _gate(rt: Framed, tape: Tape, x: list[int]) -> None:
    """Which experts each token goes to."""
    linear(rt, tape, H100, x, EXPERTS)
    acts(rt, tape, replace(H100, kind="float"), "softmax", [x[0] * x[1], EXPERTS])
    rt.op("aten::topk", dims=([x[0] * x[1], EXPERTS],), gap=14, us=8, run=(
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(…)", 9),))  # fmt: skip
    acts(rt, tape, replace(H100, kind="float"), "sum div to", [x[0] * x[1], 2])


def _expert(rt: Framed, tape: Tape, tokens: int, rows: int) -> None:
    """`expert_layer(hidden_states[None, top_x]) * routing_weights[top_x, idx]`, and `index_add_`."""
    few(rt, "select", [EXPERTS, 2, tokens])
    rt.host(8)
    with rt.span("aten::where", us=6, **inputs(([2, tokens],), "long int")):  # one argument: nonzero
        with rt.span("aten::nonzero_numpy", us=5), rt.span("aten::nonzero", us=8):
            rt.work("void at_cuda_detail::cub::DeviceReduceKernel<at_cuda_detail::cub::…Policy600, …>", 3.1)
            rt.work("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::…Policy600, …>", 2.4)
            rt.copy(8, "DtoH", "Pageable", waits=True)
            rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::…Policy600, …>", 4.2)
            rt.work("void at::native::(anonymous namespace)::write_indices<long>(long*, …)", 2.4)
        rt.op("aten::unbind", gap=1, us=3)
    x = [rows, MODEL]
    us = H100.moves(4 * prod(x))
    few(rt, "unsqueeze", x)
    taken = rt.op("aten::index", run=((INDEX.replace("<4>", "<2>"), us),), dims=([1, tokens, MODEL], [rows]),
                  graph=True, gap=12, kind=H100.kind)  # fmt: skip
    tape.append(lambda: rt.grad("IndexBackward0", taken, "aten::_index_put_impl_", kind=H100.kind, us=16, run=(
        (NATIVE + "indexing_backward_kernel_stride_1<c10::BFloat16>(…)", 2.4 * us),), dims=(x,)))  # fmt: skip
    for _ in range(2):
        linear(rt, tape, H100, x, FEED)
    acts(rt, tape, H100, "silu mul", [rows, FEED])
    linear(rt, tape, H100, [rows, FEED], MODEL)
    few(rt, "index unsqueeze", [rows], 2.6)
    elementwise(rt, tape, H100, "mul", x, back=(("mul", 3), ("mul", 3)))
    name = NATIVE + "indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>(…)"
    added = rt.op("aten::index_add_", run=((name, 1.5 * us),), dims=([tokens, MODEL], [rows], x), graph=True, gap=9,
                  kind=H100.kind)  # fmt: skip
    tape.append(lambda: rt.grad("IndexAddBackward0", added, "aten::index_select", run=((INDEX, us),), dims=(x,),
                                kind=H100.kind))  # fmt: skip


def _at_once(rt: Framed, tape: Tape, tokens: int) -> None:
    """All experts by `torch._grouped_mm` of sorted rows, whose offsets stay on the GPU."""
    x, fed = [ROWS, MODEL], [ROWS, FEED]
    us = H100.moves(4 * prod(x))
    rt.op("aten::sort", dims=([ROWS],), gap=14, us=16, run=((SORT, 6.5),) * 2)
    rt.op("aten::histc", dims=([ROWS],), gap=9,
          run=(("void at::native::kernelHistogram1D<float, float, long, 1, 2, -1>(…)", 5),))  # fmt: skip
    few(rt, "cumsum to div", [EXPERTS])
    name = NATIVE + "indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>(…)"
    taken = rt.op("aten::index_select", run=((INDEX, us),), dims=([tokens, MODEL], [ROWS]), graph=True, gap=12,
                  kind=H100.kind)  # fmt: skip
    tape.append(lambda: rt.grad("IndexSelectBackward0", taken, "aten::index_add_", run=((name, 1.5 * us),), dims=(x,)))
    for given, out in ((x, FEED), (x, FEED), (fed, MODEL)):
        product = H100.product(ROWS, out, given[1]) * 1.06
        number = rt.op("aten::_grouped_mm", run=((GROUPED, product),), dims=(given, [EXPERTS, given[1], out]), us=14,
                       graph=True, gap=12, kind=H100.kind)  # fmt: skip

        def behind(number: int = number, product: float = product, given: list[int] = given) -> None:
            with node(rt, "GroupedMmBackward0", number):
                for _ in range(2):
                    rt.op("aten::_grouped_mm", run=((GROUPED, product),), dims=(given,), us=14, gap=1, kind=H100.kind)
            rt.accumulated()

        tape.append(behind)
    acts(rt, tape, H100, "silu mul", fed)
    elementwise(rt, tape, H100, "mul", x, back=(("mul", 3), ("mul", 3)))
    added = rt.op("aten::index_add_", run=((name, 1.5 * us),), dims=([tokens, MODEL], [ROWS], x), graph=True, gap=9,
                  kind=H100.kind)  # fmt: skip
    tape.append(lambda: rt.grad("IndexAddBackward0", added, "aten::index_select", run=((INDEX, us),), dims=(x,),
                                kind=H100.kind))  # fmt: skip


def mixtral(rt: Framed, fixed: bool) -> None:
    """A small Mixtral (12 layers, eight experts of which each token has two) learns from scratch by the Trainer on an
    H100, all in bf16, six texts of 2,048: transformers' block goes through the experts in a loop and asks with
    `torch.where` which tokens each has, 96 waits in the forward pass, each of which drains what is queued; without:
    rows are sorted by expert and multiplied by grouped products. FlashAttention, fused norms, a compiled loss, AdamW is
    fused, clipped by lists, the loss is read each 20th step. Shapes.

    First: waits in the forward pass (`where` of each expert). Not: the loader, the optimizer, attention, precision,
    communication; launches at most beside the waits.
    """
    tape, x, tokens = Tape(), [TEXTS, LENGTH, MODEL], TEXTS * LENGTH
    loader(rt, 170)
    for _ in range(2):
        pinned(rt, 8 * tokens, x[:2], "long int")
    acts(rt, tape, H100, "embedding", x)
    for layer in range(LAYERS):
        fused_norm(rt, tape, H100, x)
        for out in (MODEL, MODEL // 4, MODEL // 4):
            linear(rt, tape, H100, x, out)
        for heads in (16, 4):
            acts(rt, tape, H100, "mul neg cat mul add", [TEXTS, heads, LENGTH, 64])
        flash(rt, tape, H100, [TEXTS, 16, LENGTH, 64])
        linear(rt, tape, H100, x, MODEL)
        acts(rt, tape, H100, "add", x)
        fused_norm(rt, tape, H100, x)
        _gate(rt, tape, x)
        few(rt, "zeros_like", x, H100.moves(2 * prod(x)))
        if fixed:
            _at_once(rt, tape, tokens)
        else:
            rt.op("aten::one_hot", gap=12, us=8, dims=([tokens, 2],), run=((PLAIN["scatter_"], 4),))
            few(rt, "permute", [tokens, 2, EXPERTS])
            for number in range(EXPERTS):
                _expert(rt, tape, tokens, round(ROWS * SHARES[(number + layer) % EXPERTS]))
        acts(rt, tape, H100, "add", x)
    fused_norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, WORDS)
    compiled_loss(rt, tape, H100, tokens, WORDS)
    few(rt, "mean", [tokens, EXPERTS])
    rt.op("aten::sum", run=((REDUCE, 3), (kernel("mul", 2), 2.2)), dims=([EXPERTS],), gap=9)
    back(rt, tape)
    clipped(rt, H100, 905e6, 3, 2)
    fused_adamw(rt, H100, 905e6 / 2)
    rt.host(450)
