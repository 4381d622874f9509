"""Jobs of the thirty-fifth set without a fault: LoRA of a large diffusion model on an H200, V-JEPA on eight H100, a
reward model on an MI300X, scores of pictures and texts on an L4, drones by CUDA graphs on an RTX 5080.
"""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import graphed, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import foreach
from ..layers import REDUCE, Card, fused_adamw
from ..runtime import COPIES, LINKS, MAIN
from ..seventeenth_set.rows import triton
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, MI300X, NVJET
from ..thirty_first_set.rows import Told, ahead
from ..thirty_fourth_set.healthy import SM90
from ..thirty_fourth_set.rows import behind, mm, region
from ..thirty_third_set.rows import Marked, batch_of
from ..twelfth_set.pictures import HALF
from ..twelfth_set.rows import loader
from ..twenty_fifth_set.rows import clipped
from ..twenty_fourth_set.rows import few
from .rows import Made, Part, ran

CUDNN = "aten::_scaled_dot_product_cudnn_attention"
SHOTS, SEEN, SAID, WIDE, PAIRED, SINGLE, RANK = 2, 4_096, 512, 3_072, 19, 38, 32
H200 = Card(580, 3_900, BF16, NVJET, SM90)
X = (SHOTS, SEEN + SAID, WIDE)


def _low(given: int, out: int) -> tuple[Part, ...]:
    """An adapter beside a product."""
    return ((given, RANK), (RANK, out))


DOUBLE = Made(H200, X, (SHOTS, WIDE // 128, SEEN + SAID, 128), (
    ("red_fused_add_mul_native_layer_norm", 2.2), (WIDE, 3 * WIDE), *_low(WIDE, 3 * WIDE),
    ("red_fused_add_cat_mul_rms_norm_rope", 6.5), None, (WIDE, WIDE), *_low(WIDE, WIDE),
    ("red_fused_add_mul_native_layer_norm", 3.4), (WIDE, 4 * WIDE), ("poi_fused_gelu", 8.0), (4 * WIDE, WIDE)),
    outer=CUDNN, frozen=True)  # fmt: skip
ALONE = Made(H200, X, DOUBLE.heads, (
    ("red_fused_add_mul_native_layer_norm", 3.2), (WIDE, 7 * WIDE), *_low(WIDE, 3 * WIDE),
    ("red_fused_add_cat_mul_rms_norm_rope", 6.5), ("poi_fused_gelu", 8.0), None, ("poi_fused_cat", 8.0),
    (5 * WIDE, WIDE), *_low(5 * WIDE, WIDE)), outer=CUDNN, frozen=True)  # fmt: skip


def flux(rt: Told, fixed: bool) -> None:
    """Nothing to change: FLUX.1 learns a painter's hand by a LoRA of rank 32 by ai-toolkit on an H200, all in bf16, two
    pictures of 1,024 as latents that were made before: each of 57 blocks is compiled, attention is cuDNN's, activations
    have room without recomputation, AdamW is fused over 170M values, the loss is read each 50th step. Shapes.

    Not: launches, waits, the loader, precision, attention, the optimizer, recomputation, a larger batch.
    """
    rt.sequence += 1
    numbers, latents = list[tuple[int, Made]](), [SHOTS, 16, 128, 128]
    loader(rt, 190)
    batch_of(rt, (latents, BF16), ([SHOTS, SAID, 4_096], BF16), ([SHOTS, 768], BF16))
    few(rt, "randn sigmoid mul rsub mul add permute", latents, 3.4)
    for inner in (64, 4_096):
        mm(rt, H200, (SHOTS * (SEEN if inner == 64 else SAID), inner, WIDE))
    for place in range(PAIRED + SINGLE):
        rt.sequence += 1
        of = DOUBLE if place < PAIRED else ALONE
        numbers.append((rt.sequence, of))
        with region(rt, "ffx3dq8" if of is DOUBLE else "ffx5wr2", rt.sequence):
            for out in (6 * WIDE, 6 * WIDE) if of is DOUBLE else (3 * WIDE,):
                rt.op("aten::mm", run=((NVJET[0], H200.moves(2 * WIDE * out)),), gap=3, us=7, kind=BF16,
                      dims=([SHOTS, WIDE], [WIDE, out]))  # fmt: skip
            ran(rt, of)
    triton(rt, "triton_red_fused_add_mul_native_layer_norm_9", 2.2 * DOUBLE.once)
    mm(rt, H200, (SHOTS * SEEN, WIDE, 64))
    few(rt, "sub pow mean", latents, 3.2)
    with rt.backward():
        few(rt, "div mul", latents, 3.0)
        mm(rt, H200, (SHOTS * SEEN, 64, WIDE))
        for number, of in reversed(numbers):
            with behind(rt, "fbx2kq4" if of is DOUBLE else "fbx8tn6", number):
                ran(rt, of, back=True)
                for inner, out in _low(WIDE, 3 * WIDE) + _low(WIDE, WIDE):  # gradients of adapters
                    mm(rt, H200, (int(inner), SHOTS * X[1], int(out)))
            for _ in range(4):
                rt.accumulated()
    clipped(rt, H200, 170e6, 1, 2)
    fused_adamw(rt, H200, 170e6 / 2)
    few(rt, "detach add_", [1])
    rt.host(380)


EIGHT, CLIPS, PATCHES, SHOWN, NARROW, GUESSED = list(range(8)), 12, 2_048, 416, 1_024, 384
H100 = Card(440, 2_650, BF16, NVJET, SM90)
LAYERS, GUESSES, NVLINK = 24, 12, 310e3


def _vit(length: int, width: int) -> Made:
    """A layer of so many patches."""
    casts = 3 * 12 * width**2 / (CLIPS * length * width)  # autocast's copies of weights
    return Made(H100, (CLIPS, length, width), (CLIPS, width // 64, length, 64), (
        ("poi_fused__to_copy", casts), ("red_fused_add_native_layer_norm", 3.2), (width, 3 * width),
        ("poi_fused_cat_mul_rope", 4.0), None, (width, width), ("red_fused_add_native_layer_norm", 3.4),
        (width, 4 * width), ("poi_fused_gelu", 8.0), (4 * width, width)), outer=CUDNN)  # fmt: skip


STUDENT, TEACHER, GUESSER = _vit(SHOWN, NARROW), _vit(PATCHES, NARROW), _vit(PATCHES, GUESSED)


def vjepa(rt: Marked, fixed: bool) -> None:
    """Nothing to change: V-JEPA (ViT-L) learns from films of a factory in DDP on the eight H100 of a node, autocast in
    bf16, 12 clips of 16 frames a rank: the teacher sees all 2,048 patches, the student a fifth, the predictor guesses
    the rest; all three are compiled, attention is cuDNN's, gradients are summed beside the backward pass, AdamW is
    fused, the teacher follows by lists, decoded clips come pinned as bytes on a stream of their own, the loss is read
    each 10th step. Rank 6. No shapes.

    Not: communication (hardly any shows), launches, waits, the loader, precision, attention, the optimizer, a larger
    batch.
    """
    groups(rt, 8, default_pg=EIGHT)
    rt.head["distributedInfo"]["rank"] = 6
    rt.free.setdefault(LINKS, 0.0)
    clip, once = [CLIPS, 3, 16, 256, 256], H100.moves(2 * CLIPS * PATCHES * NARROW)
    loader(rt, 220)
    there = ahead(rt, (prod(clip), clip, "unsigned char"), (8 * CLIPS * PATCHES, [CLIPS, PATCHES], "long int"))
    numbers = list[tuple[int, Made]]()
    for count, of in ((LAYERS, TEACHER), (LAYERS, STUDENT), (GUESSES, GUESSER)):
        triton(rt, "triton_poi_fused__to_copy_gather_0", 2.4 * once)
        mm(rt, H100, (of.x[0] * of.x[1], 1_536 if of is not GUESSER else NARROW, of.x[2]))
        for _ in range(count):
            rt.sequence += of is not TEACHER
            if of is not TEACHER:
                numbers.append((rt.sequence, of))
            with region(rt, "fvj2qa6", 0 if of is TEACHER else rt.sequence):
                ran(rt, of)
        triton(rt, "triton_red_fused_native_layer_norm_9", 2 * of.once)
    triton(rt, "triton_red_fused_abs_gather_mean_sub_0", 2 * once)
    count, end = 12 * NARROW**2, 0.0
    with rt.backward():
        triton(rt, "triton_poi_fused_div_sgn_0", 2 * once)
        for place, (number, of) in enumerate(reversed(numbers)):
            with behind(rt, "fvb7ce1", number):
                ran(rt, of, back=True)
            for _ in range(12):
                rt.accumulated()
            if of is GUESSER and place < GUESSES - 1:
                continue
            values = count if of is STUDENT else 12 * 12 * GUESSED**2
            us = rt.vary(40 + 4 * values * 1.75 / NVLINK, 0.04)
            end = rt.collective("allreduce", us, (values, values), dtype="Float", ranks=EIGHT,
                                kernel="AllReduce_Sum_f32_RING_LL")  # fmt: skip
    rt.waits(MAIN, end)
    total = LAYERS * count + 12 * 12 * GUESSED**2
    fused_adamw(rt, H100, total)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarFunctor", H100.moves(8 * LAYERS * count), 2)
    foreach(rt, "_foreach_add_", "BinaryOpListAlphaFunctor", H100.moves(12 * LAYERS * count), 2)
    few(rt, "detach add_", [1])
    rt.waits(MAIN, there)
    rt.host(330)


ANSWERS, LENGTH, MODEL, FED, DEEP = 4, 2_048, 4_608, 36_864, 46
JUDGE = Made(MI300X, (ANSWERS, LENGTH, MODEL), (ANSWERS, 32, LENGTH, 128), (
    ("red_fused_add_mul_rms_norm", 2.2), (MODEL, 8_192), ("poi_fused_cat_mul_rope", 4.2), None, (4_096, MODEL),
    ("red_fused_add_mul_rms_norm", 4.4), (MODEL, 2 * FED), ("poi_fused_gelu_mul", 3.0 * FED / MODEL), (FED, MODEL),
    ("red_fused_add_mul_rms_norm", 3.2)), spared=0.5, reach=0.6)  # fmt: skip


def rewarded(rt: Told, fixed: bool) -> None:
    """Nothing to change: a reward model (Gemma 2, 27B) scores answers by a script on an MI300X, all in bf16, four of
    2,048 words at once, packed from requests of like lengths: 46 compiled layers, products of hipBLASLt are nine tenths
    of the time; four scores are read behind each batch. No rows of steps: a step is a batch. Shapes.

    Not: the read behind each batch, launches, copies of words, the loader, precision, attention, a larger batch.
    """
    rt.host(900)
    for _ in range(2):
        pinned(rt, 8 * ANSWERS * LENGTH, [ANSWERS, LENGTH], "long int")
    few(rt, "embedding mul", [ANSWERS, LENGTH, MODEL], 2 * JUDGE.once)
    for _ in range(DEEP):
        with region(rt, "frw6ub9"):
            ran(rt, JUDGE)
    triton(rt, "triton_red_fused_mul_rms_norm_9", 2 * JUDGE.once)
    few(rt, "index", [ANSWERS, MODEL], 4.0)
    mm(rt, MI300X, (ANSWERS, MODEL, 1))
    few(rt, "to squeeze", [ANSWERS], 2.6)
    rt.value()
    rt.host(400)


VIEWS, SIDE, EACH, BLOCKS, TAKEN = 96, 224, 1_280, 32, 18
L4 = Card(56, 250, HALF, ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",) * 2, FLASH)


def _tower() -> list[tuple[str, float]]:
    """Kernels of ViT-H/14 as `mode="max-autotune"` made them."""
    tokens = VIEWS * 257
    once, core = L4.moves(2 * tokens * EACH), L4.product(VIEWS * 16 * 257, 257, 160) / 0.55
    flash = FLASH[0].replace("<64, 128, 128, 4, cutlass::bfloat16_t>", "<96, 128, 64, 4, cutlass::half_t>")
    layer = [("triton_red_fused_add_native_layer_norm_0", 2.3 * once), ("triton_tem_fused_addmm_1", 0.0),
             (flash, core), ("triton_tem_fused_addmm_2", 0.0), ("triton_red_fused_add_native_layer_norm_3", 3.2 * once),
             ("triton_tem_fused_addmm_gelu_4", 0.0), ("triton_tem_fused_addmm_5", 0.0)]  # fmt: skip
    sizes = {
        "triton_tem_fused_addmm_1": (EACH, 3 * EACH),
        "triton_tem_fused_addmm_2": (EACH, EACH),
        "triton_tem_fused_addmm_gelu_4": (EACH, 4 * EACH),
        "triton_tem_fused_addmm_5": (4 * EACH, EACH),
    }
    made = [(name, L4.product(tokens, sizes[name][1], sizes[name][0]) if name in sizes else us) for name, us in layer]
    return [("triton_poi_fused__to_copy_div_sub_0", L4.moves(4 * VIEWS * 3 * SIDE**2)),
            ("triton_tem_fused_convolution_1", L4.product(tokens, EACH, 588)), *(made * BLOCKS),
            ("triton_red_fused_native_layer_norm_6", 1.4 * once), ("triton_tem_fused_mm_7", 160.0),
            ("triton_per_fused_bmm_div_linalg_vector_norm_8", 11.0)]  # fmt: skip


def clipscore(rt: Marked, fixed: bool) -> None:
    """Nothing to change: pictures from the web are scored against their captions by CLIP (ViT-H/14) on an L4, in fp16,
    96 at once, texts' vectors were made before: the compiled tower is one CUDA graph, the next pictures come from
    pinned memory as bytes on a stream of their own, scores go back on another, and the host waits for those of the
    batch before. No shapes, no rows of steps: a step is a batch.

    Not: the wait for the batch before, copies (they are hidden), launches, the loader, precision, attention, a larger
    batch.
    """
    picture = [VIEWS, 3, SIDE, SIDE]
    for stream in (COPIES, TAKEN):
        rt.free.setdefault(stream, 0.0)
    loader(rt, 260)
    there = ahead(rt, (prod(picture), picture, "unsigned char"), (2 * VIEWS * 1_024, [VIEWS, 1_024], HALF))
    few(rt, "copy_ copy_", picture, L4.moves(2 * prod(picture)))
    graphed(rt, _tower(), 4)
    rt.waits(TAKEN, rt.free[MAIN])
    with rt.span("aten::copy_", us=6):
        end = rt.copy(4 * VIEWS, "DtoH", "Pinned", stream=TAKEN)
    rt.call("EventRecord", 1)
    rt.waits(MAIN, there)
    if rt.mark:
        rt.call("EventSynchronize", 3, until=rt.mark + 3)
    rt.mark = end
    rt.host(1_900)


DRONES, MOVES, SENSED, ROUNDS, PARTS = 32_768, 24, 78, 4, 4
PRODUCTS = ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align8",) * 2
RTX5080 = Card(105, 820, BF16, PRODUCTS, ("", ""))


def _flown() -> list[tuple[str, float]]:
    """A move: the policy, four steps of the air, what is seen and what is earned."""
    found, given = list[tuple[str, float]](), SENSED
    for out in (256, 256, 128, 4):
        found += [(RTX5080.names[0], max(6.0, RTX5080.product(DRONES, out, given))),
                  ("triton_poi_fused_addmm_elu_0", RTX5080.moves(4 * DRONES * out))]  # fmt: skip
        given = out
    found += found[:6]  # the critic
    found += [("triton_poi_fused_add_mul_normal_log_1", 5.0)]
    air = [("rotor_forces_9b1e_cuda_kernel_forward", 21.0), ("contact_pairs_77c0_cuda_kernel_forward", 34.0),
           ("integrate_bodies_1d42_cuda_kernel_forward", 17.0)]  # fmt: skip
    return [*found, *(air * 4), ("triton_red_fused_reward_terms_2", 14.0), ("triton_poi_fused_observe_reset_3", 26.0)]


def _learned() -> list[tuple[str, float]]:
    """An update by a quarter of what was flown."""
    rows, both = DRONES * MOVES // PARTS, list[tuple[str, float]]()
    for _ in range(2):
        given = SENSED
        for out in (256, 256, 128, 4):
            us = max(RTX5080.product(rows, out, given), RTX5080.moves(2 * rows * (given + out)))
            both += [(RTX5080.names[0], us), ("triton_poi_fused_addmm_elu_4", RTX5080.moves(4 * rows * out)),
                     ("triton_poi_fused_elu_backward_5", RTX5080.moves(6 * rows * out)), (RTX5080.names[1], us),
                     (RTX5080.names[1], us), (REDUCE, RTX5080.moves(2 * rows * out))]  # fmt: skip
            given = out
    return [("triton_poi_fused_index_6", RTX5080.moves(8 * rows * (SENSED + 12))), *both,
            ("triton_red_fused_clamp_exp_mean_minimum_mul_sub_7", RTX5080.moves(4 * rows * 14)),
            ("triton_per_fused_linalg_vector_norm_8", 4.2), ("triton_for_fused_adam_9", 6.8)]  # fmt: skip


def drones(rt: Marked, fixed: bool) -> None:
    """Nothing to change: drones learn to race in a simulation by Warp on an RTX 5080, 32,768 at once, by PPO in bf16:
    a move of all is one CUDA graph, so is an update, and a step is an iteration of 24 moves and 16 updates; the rate of
    learning is adapted on the GPU, numbers of the iteration before are read from pinned memory when its event has come.
    No shapes.

    Not: the wait for the iteration before, launches (they are graphs), copies, precision, the optimizer, a larger
    batch.
    """
    rt.free.setdefault(TAKEN, 0.0)
    flown, learned = _flown(), _learned()
    for _ in range(MOVES):
        rt.host(38)
        few(rt, "copy_ copy_", [DRONES, SENSED], RTX5080.moves(8 * DRONES * SENSED))
        graphed(rt, flown, 2)
    few(rt, "flip cumsum sub mul add mean std sub div", [MOVES, DRONES], 9.0)
    for _ in range(ROUNDS):
        few(rt, "randperm", [DRONES * MOVES], 46.0)
        for _ in range(PARTS):
            rt.host(30)
            graphed(rt, learned, 3)
    few(rt, "stack", [14])
    rt.waits(TAKEN, rt.free[MAIN])
    with rt.span("aten::copy_", us=6):
        end = rt.copy(56, "DtoH", "Pinned", stream=TAKEN)
    rt.call("EventRecord", 1)
    if rt.mark:
        rt.call("EventSynchronize", 3, until=rt.mark + 3)
    rt.mark = end
    rt.host(700)
