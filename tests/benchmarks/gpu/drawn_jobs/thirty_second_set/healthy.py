"""Jobs of the thirty-second set without a fault: packs on an MI300X, pictures that the GPU decodes beside its work,
stems of music on a V100, two towers by graphs on an L4, a pair of cards with a bridge.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import FILL, elementwise, kernel, linear, node
from ..fifteenth_set.rows import V100, VOLTA_HALF
from ..kineto import Kernels, inputs
from ..layers import CAST, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import LINKS, MAIN
from ..seventeenth_set.rows import compiled_loss, triton
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, MI300X
from ..thirty_first_set.rows import Told, ahead, timed
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import NHWC, VOLTA, sgd, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv_norm, loader
from ..twenty_fifth_set.rows import adam, clipped
from ..twenty_fourth_set.rows import acts, few, judged, recorded
from .rows import Wave, encoder, look, wave, wide

PACKS, LENGTH, WIDE, FED, DEEP, WORDS = 4, 4_096, 2_048, 6_144, 28, 151_936


def qwen3(rt: Told, fixed: bool) -> None:
    """Nothing to change: Qwen3-1.7B is tuned whole by TRL on an MI300X, all in bf16, four packs of 4,096: the GPU is
    busy with products of hipBLASLt and AOTriton's attention, norms are fused, the loss is compiled, AdamW is fused,
    clipped by lists, the loss is logged each 25th step. Shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, recomputation, the batch.
    """
    rt.causal = True
    tape, x = Tape(), [PACKS, LENGTH, WIDE]
    loader(rt, 230)
    for _ in range(3):
        pinned(rt, 8 * PACKS * LENGTH, x[:2], "long int")
    acts(rt, tape, MI300X, "embedding", x)
    for _ in range(DEEP):
        llama(rt, tape, MI300X, (PACKS, LENGTH, WIDE, 8, FED), fused_norm)
    fused_norm(rt, tape, MI300X, x)
    linear(rt, tape, MI300X, x, WORDS)
    compiled_loss(rt, tape, MI300X, PACKS * LENGTH, WORDS)
    back(rt, tape)
    clipped(rt, MI300X, 1.72e9, 4, 2)
    fused_adamw(rt, MI300X, 1.72e9 / 2)
    few(rt, "add_", [1])
    rt.host(460)


PICTURES, KINDS, DECODES, DALI = 160, 1_000, 24, 3
A100 = wide(165, 1_450, AMPERE)
LOOK = look(A100)
DECODED = (
    ("void nvjpeg::encoding_kernels::huffmanDecodePass<unsigned int, 128>(…)", 910.0),
    ("void nvjpeg::idct_kernel<unsigned char, 8>(short const*, unsigned char*, int, …)", 420.0),
    ("void nvjpeg::YCbCrToRGBKernel<unsigned char>(…)", 260.0),
    ("void dali::resampling::BatchedSeparableResampleKernel<2, float, unsigned char, …>(…)", 640.0),
    ("void dali::resampling::BatchedSeparableResampleKernel<2, unsigned char, float, …>(…)", 520.0),
    ("void dali::kernels::SliceFlipNormalizePermutePadKernel<__half, unsigned char, 3, …>(…)", 230.0),
)


def _decoded(rt: Framed) -> float:
    """DALI's thread: bytes of JPEGs go to the GPU, which decodes, cuts, resizes and turns them on a stream of its own;
    returns when they are there.
    """
    main, rt.thread = rt.now, DALI
    rt.now += 340
    rt.copy(int(rt.vary(118_000 * PICTURES, 0.03)), stream=DECODES)
    for part in range(4):
        for name, us in DECODED:
            rt.now += rt.vary(24 if part else 60, 0.3)
            rt.work(name, us / 4, stream=DECODES)
    rt.call("EventRecord", 1)
    rt.now, rt.thread = main, 1
    return rt.free[DECODES]


def nvjpegs(rt: Told, fixed: bool) -> None:
    """Nothing to change: ResNet-101 learns parts of machines by a plain loop on an A100, autocast in bf16,
    channels_last, 160 pictures: DALI's thread copies bytes of JPEGs and lets the GPU decode the next batch on a stream
    of its own, the GPU is busy with convolutions and norms, SGD by lists, the loss is read each 50th step. Shapes.

    Not: the loader, copies (they are hidden), launches, the layout, precision, the optimizer, norms, the batch.
    """
    rt.last = True
    tape, picture, given = Tape(), [PICTURES, 3, 224, 224], 64
    rt.host(120)
    with rt.span("DALIGenericIterator.__next__", "user_annotation", us=90):
        rt.call("StreamWaitEvent", 1)
    there = _decoded(rt)
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, A100.moves(4 * prod(picture))),), dims=(picture,))
    conv_norm(rt, tape, LOOK, Conv(PICTURES, 3, 64, 7, 112, 112))
    acts(rt, tape, A100, "max_pool2d", [PICTURES, 64, 56, 56])
    for blocks, width, side in ((3, 64, 56), (4, 128, 28), (23, 256, 14), (3, 512, 7)):
        for number in range(blocks):
            for cin, cout, of in ((given, width, 1), (width, width, 3), (width, 4 * width, 1)):
                conv_norm(rt, tape, LOOK, Conv(PICTURES, cin, cout, of, side, side))
            if not number:
                conv_norm(rt, tape, LOOK, Conv(PICTURES, given, 4 * width, 1, side, side))
            elementwise(rt, tape, A100, "add_", [PICTURES, 4 * width, side, side], 2)
            given = 4 * width
    acts(rt, tape, A100, "mean", [PICTURES, given, 7, 7])
    casts(rt, A100, [KINDS, given])
    dense(rt, tape, A100, PICTURES, (PICTURES, given, KINDS))
    acts(rt, tape, replace(A100, kind="float"), "to", [PICTURES, KINDS])
    judged(rt, tape, A100, PICTURES, KINDS)
    back(rt, tape)
    sgd(rt, A100, 44.5e6)
    few(rt, "add_", [1])
    rt.waits(MAIN, there)
    rt.host(210)


SONGS, SAMPLES, NARROWEST, STAGES = 28, 180_224, 64, 6
VOLTA_LOOK = Look(V100, VOLTA, NHWC, True)
CELL = "void LSTM_elementWise_{}<__half, __half, float>(int, int, int, int, __half const*, __half const*, …)"


def _between(rt: Framed, tape: Tape, times: int, width: int) -> None:
    """Two layers of LSTM in both directions over what is left of the song, and a product."""
    x = [times, SONGS, width]

    def cells(ways: int) -> Kernels:
        found: list[tuple[str, float]] = []
        for layer in range(2):
            given = width * (1 + layer)
            for _ in range(2):
                found += [(VOLTA_HALF[0], V100.product(times * SONGS, 4 * width, given))] * ways
                us = max(V100.product(SONGS, 4 * width, width), V100.moves(8 * width**2))
                found += [(VOLTA_HALF[0], us), (CELL.format("fp" if ways == 1 else "bp1"), 4.4)] * times
        return tuple(found)

    number = rt.op("aten::lstm", "aten::_cudnn_rnn", run=cells(1), graph=True, gap=44, us=40, kind=V100.kind,
                   dims=(x, [4 * width, width]))  # fmt: skip

    def backward() -> None:
        with node(rt, "CudnnRnnBackward0", number):
            rt.op("aten::_cudnn_rnn_backward", run=((FILL, 3.0), *cells(2)), gap=2, us=44, kind=V100.kind,
                  dims=(x, [times, SONGS, 2 * width]))  # fmt: skip
        for _ in range(16):
            rt.accumulated()

    tape.append(backward)
    casts(rt, V100, [width, 2 * width])
    dense(rt, tape, V100, SONGS, (times * SONGS, 2 * width, width))
    acts(rt, tape, V100, "turn", [SONGS, width, times])


def _gated(rt: Framed, tape: Tape, x: list[int]) -> None:
    """`F.glu` over channels."""
    us = V100.moves(V100.size * prod(x))
    ahead, behind = (kernel(f"glu{way}", 3, V100.kind) for way in ("", "_backward"))
    timed(rt, tape, "glu", (ahead, 1.5 * us), (behind, 2.5 * us), x, V100.kind)


def demucs(rt: Told, fixed: bool) -> None:
    """Nothing to change: Demucs parts music into four stems by its authors' loop on a V100, AMP in fp16, 28 parts of
    four seconds: the GPU is busy with convolutions over the line and what stands between, an LSTM of cuDNN takes 44
    times, launches are ahead, `GradScaler` waits once at the end, Adam by lists, the next parts come from pinned memory
    on a stream of their own. Shapes, no rows of steps.

    Not: `GradScaler`'s wait, launches, the loader, copies, precision (a V100 has neither TF32 nor bf16), the layout (of
    a line there is no channels_last), the optimizer, the batch.
    """
    rt.narrow = "5"
    tape, song, length, given, width = Tape(), [SONGS, 2, SAMPLES], SAMPLES, 2, NARROWEST
    stems = [SONGS, 4, 2, SAMPLES]
    loader(rt, 210)
    there = ahead(rt, (4 * prod(stems), stems, "float"))
    few(rt, "roll mul sum", stems, V100.moves(8 * prod(stems)))
    few(rt, "mean std sub div", song, V100.moves(4 * prod(song)))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((CAST, V100.moves(6 * prod(song))),), dims=(song,))
    for _ in range(STAGES):
        length //= 4
        wave(rt, tape, Wave(SONGS, given, width, 8, 1, length, 4), VOLTA_LOOK)
        acts(rt, tape, V100, "relu", [SONGS, width, length])
        wave(rt, tape, Wave(SONGS, width, 2 * width, 1, 1, length), VOLTA_LOOK)
        _gated(rt, tape, [SONGS, 2 * width, length])
        given, width = width, 2 * width
    width = given
    acts(rt, tape, V100, "turn", [length, SONGS, width])
    _between(rt, tape, length, width)
    for stage in reversed(range(STAGES)):
        out = width // 2 if stage else 8
        acts(rt, tape, V100, "add", [SONGS, width, length])
        wave(rt, tape, Wave(SONGS, width, 2 * width, 3, 1, length), VOLTA_LOOK)
        _gated(rt, tape, [SONGS, 2 * width, length])
        length *= 4
        wave(rt, tape, Wave(SONGS, width, out, 8, 1, length, 4, 1, True), VOLTA_LOOK)
        if stage:
            acts(rt, tape, V100, "relu", [SONGS, out, length])
        width = out
    acts(rt, tape, replace(V100, kind="float"), "to mul add sub abs mean", stems)
    back(rt, tape)
    unscaled(rt, V100, 128e6)
    adam(rt, V100, 128e6, "Adam", 2)
    few(rt, "detach add_", [1])
    rt.waits(MAIN, there)
    rt.host(310)


PAIRS, VECTOR = 8_192, 384
L4 = Card(54, 250, BF16, AMPERE, FLASH)


def _towers(rt: Framed) -> None:
    """Both towers as Inductor makes them, their scores with each other, the loss, behind."""
    sizes = ((VECTOR, 2_048), (2_048, 2_048), (2_048, 256))
    n, widest = PAIRS * PAIRS, PAIRS * 2_048
    for way in (1, 2):
        for tower in range(2):
            for place, (given, out) in enumerate(sizes):
                for _ in range(way if place or way == 1 else 1):
                    rt.work(L4.names[way - 1], L4.product(PAIRS, out, given))
                named = ("triton_poi_fused_addmm_gelu", "triton_red_fused_gelu_backward_sum")[way - 1]
                rt.work(f"{named}_{3 * tower + place}", L4.moves((2 + way) * 2 * min(widest, PAIRS * out)))
            rt.work(f"triton_per_fused_div_linalg_vector_norm_{way}{tower}", L4.moves(2 * way * 2 * PAIRS * 256))
        for _ in range(way):
            rt.work(L4.names[way - 1], L4.product(PAIRS, PAIRS, 256))
        if way == 1:
            for number in (0, 1):
                triton(rt, f"triton_red_fused__log_softmax__to_copy_mul_{number}", L4.moves(2 * n))
            triton(rt, "triton_poi_fused__log_softmax_backward_data_add_mul_nll_loss_2", L4.moves(4 * n))


def twotower(rt: Told, fixed: bool) -> None:
    """Nothing to change: two towers (products of a shop and what is asked for) learn from vectors that were computed
    before by a plain loop on an L4, bf16, 8,192 pairs, which are told from each other: `torch.compile(mode=
    "reduce-overhead")` makes forward and behind one launch of a graph, vectors come pinned, AdamW is fused, the loss is
    read each 100th step. Shapes.

    Not: launches, waits, the loader, copies, precision, the optimizer, the batch.
    """
    loader(rt, 170)
    for _ in range(2):
        pinned(rt, 2 * PAIRS * VECTOR, [PAIRS, VECTOR], BF16)
    with rt.span("TorchDynamo Cache Lookup", us=24):
        pass
    with rt.span("Torch-Compiled Region: 0/0", us=70), rt.span("CompiledFunction", us=40):
        for _ in range(2):
            rt.op("aten::copy_", run=((CAST, L4.moves(4 * PAIRS * VECTOR)),), gap=5, kind=BF16,
                  dims=([PAIRS, VECTOR], [PAIRS, VECTOR]))  # fmt: skip
        recorded(rt, _towers, 5)
    fused_adamw(rt, L4, 11e6)
    few(rt, "detach add_", [1])
    rt.host(230)


PAIR, TEXTS, SAID, MODEL, LAYERS, PIECES, BRIDGE = [0, 1], 40, 384, 768, 12, 31_102, 44e3
RTX3090 = Card(58, 780, BF16, AMPERE, FLASH)
LAYER = 7_087_872


def bridge(rt: Told, fixed: bool) -> None:
    """Nothing to change: a BERT (base) goes on learning papers of science by the Trainer in DDP on two RTX 3090 with a
    bridge of NVLink, autocast in bf16, 40 packs of 384 a rank: gradients travel beside the backward pass, only the
    table's last sum shows, two ms of a step; FlashAttention, AdamW is fused, clipped by lists, the loss is logged each
    50th step. Rank 1. Shapes.

    Not: communication (hardly any shows), `no_sync`, buckets, a late rank, the loader, launches, casts, attention.
    """
    groups(rt, 2, default_pg=PAIR)
    rt.head["distributedInfo"]["rank"] = 1
    rt.free.setdefault(LINKS, 0.0)
    tape, marks, x = Tape(), set[int](), [TEXTS, SAID, MODEL]
    whole = replace(RTX3090, kind="float")

    def summed(count: int) -> float:
        given: dict[str, Any] = {"ranks": PAIR, "dtype": "Float", "kernel": "AllReduce_Sum_f32_RING_LL"}
        return rt.collective("allreduce", rt.vary(24 + 4 * count / BRIDGE, 0.04), (count, count), **given)

    loader(rt, 220)
    for _ in range(3):
        pinned(rt, 8 * TEXTS * SAID, x[:2], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=70):
        acts(rt, tape, whole, "embedding embedding add embedding add", x)
        norm(rt, tape, whole, x)
        acts(rt, tape, RTX3090, "dropout", x)
        for _ in range(LAYERS):
            marks.add(len(tape))
            casts(rt, RTX3090, [3 * MODEL, MODEL], [MODEL, MODEL], [4 * MODEL, MODEL], [MODEL, 4 * MODEL])
            encoder(rt, tape, RTX3090, x)
            acts(rt, tape, RTX3090, "dropout dropout", x)
        casts(rt, RTX3090, [MODEL, MODEL], [PIECES, MODEL])
        dense(rt, tape, RTX3090, TEXTS, (TEXTS * SAID, MODEL, MODEL))
        acts(rt, tape, RTX3090, "gelu", x)
        norm(rt, tape, whole, x)
        with rt.span("aten::linear", us=7, **inputs((x, [PIECES, MODEL], [PIECES]), BF16)):
            us = RTX3090.product(TEXTS * SAID, PIECES, MODEL)
            number = rt.op("aten::addmm", run=((RTX3090.names[0], us),), gap=1, graph=True, us=9, kind=BF16,
                           dims=([PIECES], [TEXTS * SAID, MODEL], [MODEL, PIECES]))  # fmt: skip
    tape.append(lambda: rt.grad("AddmmBackward0", number, "aten::mm", run=((RTX3090.names[1], us),) * 2, us=9,
                                kind=BF16, dims=([TEXTS * SAID, PIECES], [PIECES, MODEL])))  # fmt: skip
    acts(rt, tape, whole, "to", [TEXTS * SAID, PIECES])
    judged(rt, tape, whole, TEXTS * SAID, PIECES)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marks:
                summed(LAYER)
        end = summed(PIECES * MODEL + 400_000)
    rt.waits(MAIN, end)
    clipped(rt, RTX3090, 110e6)
    fused_adamw(rt, RTX3090, 110e6)
    few(rt, "add_", [1])
    rt.host(390)
