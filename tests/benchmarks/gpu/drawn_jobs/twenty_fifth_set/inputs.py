"""Jobs of the twenty-fifth set that wait for input: volumes that workers read anew, a sampled graph's features."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline
from ..fifteenth_set.rows import L40S, VOLUMES
from ..layers import CAST, Tape, back, dense
from ..tenth_set.jobs import gathered, pooled
from ..twelfth_set.pictures import TF32, unscaled
from ..twelfth_set.rows import Framed, Look, loader
from ..twenty_fourth_set.rows import acts, few, judged
from .rows import adam, group_norm, volume

ROI, MODES = [192, 192, 128], 4
CARD = replace(L40S, tflops=95)
LOOK = Look(CARD, VOLUMES)  # type: ignore[arg-type]
READ = (97_000.0, 1_900.0, 104_000.0, 700.0, 86_000.0, 13_500.0, 101_000.0, 4_200.0)  # µs until a batch is there


def _block(rt: Framed, tape: Tape, x: list[int]) -> None:
    """MONAI's `ResBlock`: norm, ReLU, convolution, twice, and a sum."""
    for _ in range(2):
        group_norm(rt, tape, CARD, x)
        acts(rt, tape, CARD, "relu_", x)
        volume(rt, tape, LOOK, x, x[1])
    acts(rt, tape, CARD, "add", x)


def segresnet(rt: Framed, fixed: bool) -> None:
    """MONAI's SegResNet finds tumours in four kinds of scans on an L40S, AMP, one volume of 192 x 192 x 128 a step: two
    workers read compressed NIfTI files, orient, resample and crop them anew in each epoch (`cache_rate=0.0`), so that
    the GPU waits some 50 ms a step, nearly all of it in every second; without: what is deterministic comes from a
    cache. Pinned, the loss is summed on the GPU, Adam by lists, `GradScaler` waits once. Shapes.

    First: the wait for batches (workers, a cache). Not: launches, copies, `GradScaler`'s wait, TF32, the batch.
    """
    tape, scan = Tape(), [1, MODES, *ROI]
    loader(rt, 170 if fixed else READ[rt.number % len(READ)])
    pinned(rt, 4 * prod(scan), scan)
    pinned(rt, 4 * 3 * prod(ROI), [1, 3, *ROI])
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, CARD.moves(6 * prod(scan))),), dims=(scan,))
    x = volume(rt, tape, LOOK, scan, 16)
    acts(rt, tape, CARD, "dropout", x)
    for level, blocks in enumerate((1, 2, 2, 4)):
        if level:
            x = volume(rt, tape, LOOK, x, 2 * x[1], stride=2)
        for _ in range(blocks):
            _block(rt, tape, x)
    for _ in range(3):
        x = volume(rt, tape, LOOK, x, x[1] // 2, 1)
        x = [1, x[1], *(2 * one for one in x[2:])]
        acts(rt, tape, CARD, "upsample add", x)
        _block(rt, tape, x)
    group_norm(rt, tape, CARD, x)
    acts(rt, tape, CARD, "relu_", x)
    y = volume(rt, tape, LOOK, x, 3, 1)
    wide = replace(CARD, kind="float")
    acts(rt, tape, wide, "sigmoid mul sum", y)
    acts(rt, None, wide, "pow sum sum", y)
    acts(rt, tape, wide, "add add mul add div sub mean", [1, 3])
    back(rt, tape)
    unscaled(rt, CARD, 4.7e6)
    adam(rt, CARD, 4.7e6, "Adam", 1)
    few(rt, "add_", [1])
    rt.host(340)


A10G = Roofline(34, 480, "float", TF32, ("", ""))
SEEDS, FEATURES, HIDDEN, CLASSES = 1_024, 100, 256, 47
SAMPLED = ((268_000, 41_300, 9_100), (241_500, 38_700, 8_800), (295_200, 43_900, 9_600), (257_400, 40_100, 9_000))


def _taken(rt: Framed, nodes: int, edges: int, fixed: bool) -> None:
    """`batch.to(device)`: each tensor of a `Data`."""
    for size, width, kind in (([nodes, FEATURES], 4, "float"), ([2, edges], 8, "long int"), ([nodes, 1], 8, "long int"),
                              ([nodes], 8, "long int"), ([edges], 8, "long int"),
                              ([SEEDS], 8, "long int")):  # fmt: skip
        rt.host(11)
        if fixed:
            pinned(rt, width * prod(size), size, kind)
        else:
            rt.moved(width * prod(size), 5.1, size, kind)


def _sage(rt: Framed, tape: Tape, nodes: int, out: int, edges: int, wide: int) -> None:
    """`SAGEConv`: a mean of neighbours, two products."""
    few(rt, "index index", [edges], 5 + edges / 90_000)
    gathered(rt, tape, A10G, edges, wide, 45)
    pooled(rt, tape, A10G, edges, wide, 30)
    few(rt, "zeros_like scatter_ clamp", [nodes], 6)
    acts(rt, tape, A10G, "div", [nodes, wide])
    dense(rt, tape, A10G, 1, (nodes, wide, out), gap=30)
    dense(rt, tape, A10G, 1, (nodes, wide, out), gap=16)
    acts(rt, tape, A10G, "add", [nodes, out])


def sage(rt: Framed, fixed: bool) -> None:
    """GraphSAGE of three layers on ogbn-products by PyTorch Geometric on an A10G, TF32, 1,024 nodes a batch with 15, 10
    and 5 neighbours: `NeighborLoader` has workers and is ahead, but its batches are not pinned, so that the 100 MB of
    features and the edges go to the GPU by copies of pageable memory at 5 GB/s, and the host waits for each; without:
    `pin_memory=True` and `non_blocking`. The loss is summed on the GPU, Adam is fused. No rows of steps. Shapes.

    First: copies of memory that is not pinned. Not: the loader, launches, TF32, the batch, gathers.
    """
    tape = Tape()
    nodes, inner, outer = SAMPLED[rt.number % len(SAMPLED)]
    edges = nodes * 5 // 4 + 15 * SEEDS
    loader(rt, 320)
    rt.host(90)
    _taken(rt, nodes, edges, fixed)
    for count, among, wide, out in ((nodes, edges, FEATURES, HIDDEN), (inner + nodes // 2, edges // 2, HIDDEN, HIDDEN),
                                    (outer + inner, edges // 6, HIDDEN, CLASSES)):  # fmt: skip
        _sage(rt, tape, count, out, among, wide)
        if out == HIDDEN:
            acts(rt, tape, A10G, "relu dropout", [count, HIDDEN])
    rt.op("aten::slice", dims=([outer, CLASSES],), gap=9)
    judged(rt, tape, A10G, SEEDS, CLASSES)
    back(rt, tape)
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=110):
        rt.op("aten::_fused_adam_", us=40, run=(("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
              "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ORIGINAL, false>>",
              A10G.moves(28 * 2.1e5)),))  # fmt: skip
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=40):
        pass
    few(rt, "argmax eq sum add_ add_", [SEEDS])
    rt.host(260)
