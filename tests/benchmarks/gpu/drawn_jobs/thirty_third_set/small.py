"""Jobs of the thirty-third set whose host is too slow: a robot's policy that refines its actions ten times, networks
whose weights are divided by their spectral norm in each pass.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ..eighteenth_set.rows import returned
from ..eleventh_set.rows import COPY, Roofline, kernel, node
from ..fifteenth_set.rows import ROWS, passed, product
from ..layers import REDUCE, Tape, dense
from ..seventh_set import BF16
from ..thirty_first_set.rows import Told, small
from ..thirty_second_set.rows import normed
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import TF32, XMMA
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fifth_set.rows import adam
from ..twenty_fourth_set.rows import acts, few, recorded
from .rows import batch_of

VIEWS, PATCHES, SIGHT, TASK, PREFIX, EXPERT, CHUNK = 3, 256, 1_152, 48, 2_048, 1_024, 51
SEEN = VIEWS * PATCHES + TASK
FLASH = ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<96, 128, 64, 4, false, false, "
         "cutlass::bfloat16_t>, false, false, false, false, false, true, false>(pytorch_flash::Flash_fwd_params)",
         "")  # fmt: skip

NORM = ROWS.replace("c10::Half", "c10::BFloat16")
RTX4090 = Roofline(135, 880, BF16, AMPERE, FLASH)


def _rms(rt: Framed, x: list[int]) -> None:
    """Gemma's norm op by op, in fp32."""
    us = RTX4090.moves(6 * prod(x))
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, us),), dims=(x,), kind=BF16, gap=6)
    for name in ("pow", "mean", "add", "rsqrt", "mul", "add", "mul"):
        rt.op(f"aten::{name}", run=((REDUCE if name == "mean" else kernel(name, 2), us if x[1] > 99 else 2.2),),
              dims=(x,), gap=5)  # fmt: skip
    rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=((COPY, us),), dims=(x,), gap=5)


def _layer(rt: Framed, tokens: int, keys: int, width: int, fed: int) -> None:
    """Gemma's layer: eight heads of 256, one of keys; attention op by op, as the authors' port has it."""
    x, scores = [1, tokens, width], [1, 8, tokens, keys]
    _rms(rt, x)
    for out in (2_048, 256, 256):
        product(rt, RTX4090, x, out, gap=7)
    for heads in (8, 1):
        acts(rt, None, RTX4090, "mul mul sub mul mul add cat", [1, tokens, heads, 128], gap=5)
    if keys > tokens:
        acts(rt, None, RTX4090, "cat cat", [1, keys, 1, 256], gap=6)
    acts(rt, None, RTX4090, "turn turn", [1, 8, keys, 256], gap=6)
    for rows, inner, out in ((tokens, 256, keys), (tokens, keys, 256)):
        us = RTX4090.product(8 * rows, out, inner)
        rt.op("aten::matmul", "aten::bmm", run=((AMPERE[0], us),), dims=([8, rows, inner], [8, inner, out]), gap=9,
              kind=BF16)  # fmt: skip
        if inner == 256:
            acts(rt, None, RTX4090, "mul where to softmax to", scores, gap=6)
    product(rt, RTX4090, [1, tokens, 2_048], width, gap=8)
    acts(rt, None, RTX4090, "add", x, gap=6)
    _rms(rt, x)
    for name in ("gelu", "mul"):
        product(rt, RTX4090, x, fed, gap=8)
        acts(rt, None, RTX4090, name, [1, tokens, fed], gap=6)
    product(rt, RTX4090, [1, tokens, fed], width, gap=8)
    acts(rt, None, RTX4090, "add", x, gap=6)


def _looked(rt: Framed) -> None:
    """SigLIP reads three cameras, Gemma what they show and what is to be done."""
    x = [VIEWS, PATCHES, SIGHT]
    few(rt, "to mul sub", [VIEWS, 3, 224, 224], 2.6)
    product(rt, RTX4090, [VIEWS, PATCHES, 588], SIGHT)
    acts(rt, None, RTX4090, "add", x)
    for _ in range(27):
        passed(rt, RTX4090, "aten::layer_norm", NORM, x, 2)
        for _ in range(3):
            product(rt, RTX4090, x, SIGHT)
        us = RTX4090.product(VIEWS * 16 * PATCHES, PATCHES, 144) / 0.4
        rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
              "aten::_flash_attention_forward", run=((FLASH[0], us),), dims=([VIEWS, 16, PATCHES, 72],) * 3, gap=12,
              kind=BF16)  # fmt: skip
        product(rt, RTX4090, x, SIGHT)
        acts(rt, None, RTX4090, "add", x)
        passed(rt, RTX4090, "aten::layer_norm", NORM, x, 2)
        product(rt, RTX4090, x, 4_304)
        acts(rt, None, RTX4090, "gelu", [VIEWS, PATCHES, 4_304])
        product(rt, RTX4090, [VIEWS, PATCHES, 4_304], SIGHT)
        acts(rt, None, RTX4090, "add", x)
    product(rt, RTX4090, x, PREFIX)
    acts(rt, None, RTX4090, "cat", [1, SEEN, PREFIX])
    for _ in range(18):
        _layer(rt, SEEN, SEEN, PREFIX, 16_384)


def _refined(rt: Framed) -> None:
    """One of ten steps of the flow: the expert of 300M reads 51 tokens and all that was seen."""
    few(rt, "sin cos cat to", [1, EXPERT], 2.2)
    for wide_of in (32, 2 * EXPERT, EXPERT):
        product(rt, RTX4090, [1, CHUNK - 1, wide_of], EXPERT)
        acts(rt, None, RTX4090, "silu", [1, CHUNK - 1, EXPERT])
    acts(rt, None, RTX4090, "cat", [1, CHUNK, EXPERT])
    few(rt, "cumsum le mul", [1, CHUNK, SEEN + CHUNK], 2.4)
    for _ in range(18):
        _layer(rt, CHUNK, SEEN + CHUNK, EXPERT, 4_096)
    _rms(rt, [1, CHUNK, EXPERT])
    product(rt, RTX4090, [1, CHUNK - 1, EXPERT], 32)
    few(rt, "to mul add_", [1, CHUNK - 1, 32], 2.2)


def pizero(rt: Told, fixed: bool) -> None:
    """LeRobot's server for policies answers a robot with π0 (3.3B) on an RTX 4090, all in bf16, one request at a time:
    ten steps of the flow run an expert of 300M over 51 tokens, some 11,000 kernels of 2 to 5 µs that take longer to
    launch than to run; without: `compile_model` with graphs, a step of the flow is one launch. Pictures of three
    cameras come from memory that is not pinned (0.6 MB each), the actions are read at the end. Shapes.

    First: launches (graphs, compile). Not: the read of the actions (the robot needs it), copies, the loader (there is
    none), precision, attention alone, a larger batch (one robot asks).
    """
    rt.host(2_600)  # a request comes, pictures are unpacked
    for _ in range(VIEWS):
        rt.moved(4 * 3 * 224 * 224, 5.0, [1, 3, 224, 224])
    rt.moved(8 * TASK, 1, [1, TASK], "long int")
    rt.moved(4 * 32, 1, [1, 32])
    _looked(rt)
    few(rt, "normal_", [1, CHUNK - 1, 32])
    for number in range(10):
        if fixed:
            few(rt, "copy_ copy_", [1, CHUNK - 1, 32], 2.2)
            recorded(rt, _refined, number)
        else:
            _refined(rt)
    few(rt, "slice mul add", [1, CHUNK - 1, 14])
    returned(rt, 4 * (CHUNK - 1) * 14, 1, [1, CHUNK - 1, 14])
    rt.host(1_900)


IMAGES, LATENT, MAKER, JUDGE = 64, 128, 256, 128
H100 = Roofline(210, 1_700, "float", TF32, ("", ""))
NAMES = tuple(XMMA.format(way, "tf32f32_tf32f32_f32", 8) for way in ("fprop", "dgrad", "wgrad"))
LOOK = Look(H100, (NAMES[0], NAMES[1], NAMES[2]))
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, cublasGemvParamsEx…>"


def _divided(rt: Framed, tape: Tape | None, weight: list[int]) -> None:
    """`spectral_norm`: one step of the power method, sigma, the weight divided by it."""
    rows, flat = weight[0], [weight[0], prod(weight[1:])]
    us = max(2.6, H100.moves(4 * prod(weight)))
    for size in (flat[1], rows):
        rt.op("aten::mv", "aten::addmv_", run=((GEMV, us),), dims=(flat, [size]), gap=7)
        rt.op("aten::linalg_vector_norm", run=((REDUCE, 2.8),), dims=([size],), gap=7)
        few(rt, "clamp_min expand div", [size], 2.2, gap=4)
    few(rt, "clone clone", [rows], 2.2, gap=4)
    turned = rt.op("aten::mv", "aten::addmv_", run=((GEMV, us),), dims=(flat, [flat[1]]), gap=6, graph=True)
    rt.op("aten::vdot", "aten::dot", run=(("void dot_kernel<float, 128, 0, cublasDotParams<…>>(…)", 2.6),
                                          ("void reduce_1Block_kernel<float, 128, 7, …>(…)", 2.4)), gap=5)  # fmt: skip
    number = rt.op("aten::div", run=((kernel("div", 3), max(2.2, H100.moves(8 * prod(weight)))),), dims=(weight,),
                   graph=True, gap=6)  # fmt: skip
    if tape is None:
        return

    def backward() -> None:
        with node(rt, "DivBackward0", number):
            for name in ("div", "neg", "div", "mul"):
                few(rt, name, weight, us, gap=1)
            rt.op("aten::sum", run=((REDUCE, us + 1),), dims=(weight,), gap=1)
        few(rt, "mul mul", [rows], 2.2, gap=2)
        with node(rt, "MvBackward0", turned):
            few(rt, "mul", flat, us, gap=1)
        few(rt, "add", weight, us, gap=2)

    tape.append(backward)


def _filtered(rt: Framed, tape: Tape | None, of: Conv) -> None:
    _divided(rt, tape, of.dims[1])
    conv(rt, tape, LOOK, of)


def _made(rt: Framed, tape: Tape | None) -> None:
    """The maker: three blocks up to 32 pixels, norms by the class."""
    _divided(rt, tape, [16 * MAKER, LATENT])
    kept = [] if tape is None else tape
    dense(rt, kept, H100, IMAGES, (IMAGES, LATENT, 16 * MAKER))
    for side in (8, 16, 32):
        x = [IMAGES, MAKER, side, side]
        for turn in range(2):
            small_of = [IMAGES, MAKER, side // (1 if turn else 2), side // (1 if turn else 2)]
            normed(rt, kept, LOOK, small_of)
            few(rt, "embedding embedding", [IMAGES, MAKER], 2.6)
            acts(rt, tape, H100, "mul add relu", small_of)
            if not turn:
                acts(rt, tape, H100, "upsample", x)
            _filtered(rt, tape, Conv(IMAGES, MAKER, MAKER, 3, side, side))
        acts(rt, tape, H100, "upsample", x)
        _filtered(rt, tape, Conv(IMAGES, MAKER, MAKER, 1, side, side))
        acts(rt, tape, H100, "add", x)
    normed(rt, kept, LOOK, [IMAGES, MAKER, 32, 32])
    acts(rt, tape, H100, "relu", [IMAGES, MAKER, 32, 32])
    _filtered(rt, tape, Conv(IMAGES, MAKER, 3, 3, 32, 32))
    acts(rt, tape, H100, "tanh", [IMAGES, 3, 32, 32])


def _judged(rt: Framed, tape: Tape, count: int) -> None:
    """The judge: four blocks, a product with the class."""
    given = 3
    for side in (32, 16, 8, 8):
        x = [count, JUDGE, side, side]
        for cin, of in ((given, 3), (JUDGE, 3), (given, 1)):
            acts(rt, tape, H100, "relu", [count, cin, side, side])
            _filtered(rt, tape, Conv(count, cin, JUDGE, of, side, side))
        if side > 8:
            acts(rt, tape, H100, "avg_pool2d avg_pool2d", [count, JUDGE, side // 2, side // 2])
        acts(rt, tape, H100, "add", x)
        given = JUDGE
    acts(rt, tape, H100, "relu sum", [count, JUDGE, 8, 8])
    _divided(rt, tape, [1, JUDGE])
    _divided(rt, tape, [100, JUDGE])
    dense(rt, tape, H100, count, (count, JUDGE, 1))
    acts(rt, tape, H100, "embedding", [count, JUDGE])
    small(rt, tape, H100, "mul sum add", [count, JUDGE])
    small(rt, tape, H100, "neg add relu mean", [count])


def _turn(rt: Framed, maker: bool) -> None:
    """A turn of one of both, forward and behind."""
    tape = Tape()
    few(rt, "normal_ random_", [IMAGES, LATENT])
    _made(rt, tape if maker else None)
    if not maker:
        acts(rt, None, H100, "cat", [2 * IMAGES, 3, 32, 32])
    _judged(rt, tape, IMAGES if maker else 2 * IMAGES)
    with rt.backward():
        while tape:
            tape.pop()()


def sngan(rt: Told, fixed: bool) -> None:
    """SNGAN (a ResNet of 32 pixels) learns drawings of 100 kinds by a plain loop on an H100 by PCIe, TF32, 64 pictures
    a turn, two turns a step: `spectral_norm` divides each weight anew in each pass, some 16 kernels of 2 to 4 µs, and
    the step is some 1,400 that take longer to launch than to run; without: CUDA graphs of both turns. Pictures come
    pinned, Adam by lists, the losses stay on the GPU. Shapes, no rows of steps.

    First: launches (graphs, compile). Not: the loader, copies, waits, TF32 (it is on), autocast, the layout, the
    optimizer alone; a larger batch at most beside it.
    """
    loader(rt, 170)
    batch_of(rt, ([IMAGES, 3, 32, 32], "float"), ([IMAGES], "long int"))
    for number, maker in enumerate((False, True)):
        if fixed:
            few(rt, "copy_ copy_", [IMAGES, 3, 32, 32], 2.6)
            recorded(rt, partial(_turn, maker=maker), 3 + number)
        else:
            _turn(rt, maker)
        adam(rt, H100, 4.3e6 if maker else 1.1e6, "Adam", 1)
    few(rt, "add_ add_", [1])
    rt.host(160)
