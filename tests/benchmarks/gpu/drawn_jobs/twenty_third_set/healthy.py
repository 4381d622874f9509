"""Jobs of the twenty-third set without a fault: a compiled Llama, DDP by PCIe, poses, graphs that paint, a collator."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import casts, graphed, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.rows import elementwise, foreach, linear, node
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import RTX3090
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES, MAIN
from ..seventeenth_set.rows import triton
from ..seventh_set import BF16
from ..tenth_set.jobs import H100
from ..twelfth_set.pictures import HALF, NHWC, VOLTA, resnet, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv, conv_norm, loader
from ..twentieth_set.host import TURING
from ..twenty_first_set.host import ADA, ADA_BF16, answered

Parts = list[tuple[str, float]]
TEXTS, LENGTH, WIDE, HIDDEN, DEEP, WORDS, WEIGHTS = 8, 2_048, 1_536, 4_096, 24, 32_000, 730e6
TOKENS, LAST = TEXTS * LENGTH, 3  # step whose loss is read


def _parts() -> tuple[Parts, Parts]:
    """Kernels of a compiled Llama of 0.7 B, forward and backward."""
    once, product = H100.moves(2 * TOKENS * WIDE), H100.names[0]
    core = H100.product(TOKENS * WIDE // 128, LENGTH, 256) / 1.2
    ahead: Parts = [("triton_poi_fused__to_copy_embedding_0", 2.2 * once)]
    behind: Parts = []
    for number in range(DEEP):
        layer = [(f"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_{1 if number else 0}", 3.2 * once),
                 *((product, H100.product(TOKENS, out, WIDE)) for out in (WIDE, WIDE, WIDE)),
                 ("triton_poi_fused_add_cat_mul_neg_2", 4.4 * once), (H100.attention[0], core),
                 (product, H100.product(TOKENS, WIDE, WIDE)),
                 ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3", 4.2 * once),
                 *((product, H100.product(TOKENS, HIDDEN, WIDE)) for _ in range(2)),
                 ("triton_poi_fused_mul_silu_4", 3 * H100.moves(2 * TOKENS * HIDDEN)),
                 (product, H100.product(TOKENS, WIDE, HIDDEN))]  # fmt: skip
        ahead += layer
        turned: Parts = []
        for name, us in reversed(layer):
            if name == product:
                turned += [(H100.names[1], us), (H100.names[1], us)]
            elif "flash" in name:
                turned.append((H100.attention[1], 2.5 * us))
            else:
                turned.append((name.replace("_fused_", "_fused_backward_"), 1.7 * us))
        behind = turned + behind
    head, n = H100.product(TOKENS, WORDS, WIDE), TOKENS * WORDS
    ahead += [(product, head), ("triton_red_fused__log_softmax__to_copy_nll_loss_forward_5", H100.moves(4 * n))]
    return ahead, [("triton_poi_fused__log_softmax_backward_data_nll_loss_backward_6", H100.moves(4 * n)),
                   (H100.names[1], head), (H100.names[1], head), *behind]  # fmt: skip


def _ran(rt: Framed, parts: Parts) -> None:
    for name, us in parts:
        if name.startswith("triton"):
            rt.host(4)
            triton(rt, name, us)
        elif "flash" in name:
            op = "backward" if "bwd" in name else "forward"
            rt.op(f"aten::_scaled_dot_product_flash_attention{'_backward' if op == 'backward' else ''}",
                  f"aten::_flash_attention_{op}", run=((name, us),), gap=5, us=7, kind=BF16)  # fmt: skip
        else:
            rt.op("aten::mm", run=((name, us),), gap=3, us=5, kind=BF16)


def stories(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a Llama of 0.7 B from scratch on an H100, `torch.compile` of model and loss, bf16, two
    micro-batches of eight texts of 2,048 a step, FlashAttention, clipping by lists, fused AdamW; the loss is read in
    one of four steps. No shapes.

    Not: launches, waits, recompiles, attention, casts, accumulation, CUDA graphs, the batch.
    """
    ahead, behind = _parts()
    for number in range(2):
        loader(rt, 150)
        for _ in range(2):
            pinned(rt, TOKENS * 8, [TEXTS, LENGTH], "long int")
        with rt.span("TorchDynamo Cache Lookup", us=22):
            pass
        rt.sequence += 1
        args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
        with (rt.span("Torch-Compiled Region: 0/0", us=80), rt.span("CompiledFunction", us=60, **args),
              rt.span("## Call CompiledFxGraph fm3q8v1ty ##", "user_annotation", us=18)):  # fmt: skip
            _ran(rt, ahead)
        with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
              rt.span("## Call CompiledFxGraph fz6w2k9hb ##", "user_annotation", us=18)):  # fmt: skip
            _ran(rt, behind)
            if number:
                foreach(rt, "_foreach_add_", "BinaryOpListAlphaFunctor", H100.moves(6 * WEIGHTS), 3, 30)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * WEIGHTS), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * WEIGHTS), 4)
    fused_adamw(rt, H100, WEIGHTS / 2)
    if rt.number == LAST:
        answered(rt, "aten::item")
    rt.host(280)


FOUR, SOUNDS, HEARD, SAID, SMALL = list(range(4)), 24, 1_500, 128, 768


def _reduced(rt: Framed, count: int) -> float:
    given: dict[str, Any] = {"dtype": "Float", "ranks": FOUR, "kernel": "AllReduce_Sum_f32_RING_LL"}
    return rt.collective("allreduce", 60 + count * 4 * 1.5 / 18e3, (count, count), **given)


def _decoder(rt: Framed, tape: Tape) -> None:
    """A layer of Whisper's decoder: a block, and attention to what was heard, its keys the most of it."""
    x = [SOUNDS, SAID, SMALL]
    encoder(rt, tape, ADA, (SOUNDS, SAID, SMALL))
    norm(rt, tape, ADA, x)
    for length in (SAID, HEARD, HEARD, SAID):
        dense(rt, tape, ADA, SOUNDS, (SOUNDS * length, SMALL, SMALL))
    elementwise(rt, tape, ADA, "add", x, 2)


def dictated(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Whisper small fine-tuned in DDP on four L40S without NVLink, autocast in bf16, 24 recordings
    of 30 s each, rank 2: a bucket for each layer goes over PCIe beside the backward pass, what is left at its end is
    short; AdamW is fused. Shapes.

    Not: communication, buckets, `no_sync`, a late rank, launches, casts, waits.
    """
    groups(rt, 4, default_pg=FOUR)
    rt.head["distributedInfo"]["rank"] = 2
    tape, x, y, end, square = Tape(), [SOUNDS, HEARD, SMALL], [SOUNDS, SAID, SMALL], 0.0, [SMALL, SMALL]
    wide = ([4 * SMALL, SMALL], [SMALL, 4 * SMALL])
    loader(rt, 190)
    pinned(rt, SOUNDS * 80 * 3_000 * 2, [SOUNDS, 80, 3_000], BF16)
    pinned(rt, SOUNDS * SAID * 8, [SOUNDS, SAID], "long int")
    with rt.span("DistributedDataParallel.forward", "user_annotation", us=60):
        for length, cin in ((3_000, 240), (HEARD, 3 * SMALL)):
            dense(rt, tape, ADA, SOUNDS, (SOUNDS * length, cin, SMALL))
            elementwise(rt, tape, ADA, "gelu", [SOUNDS, length, SMALL], back=(("gelu_backward", 3),))
        marks = [len(tape)]
        for _ in range(12):
            casts(rt, ADA, *[square] * 4, *wide)
            encoder(rt, tape, ADA, (SOUNDS, HEARD, SMALL))
            marks.append(len(tape))
        norm(rt, tape, ADA, x)
        rt.op("aten::embedding", run=((REDUCE, ADA.moves(6 * prod(y))),), gap=14, dims=([51_865, SMALL], y[:2]))
        for _ in range(12):
            casts(rt, ADA, *[square] * 8, *wide)
            _decoder(rt, tape)
            marks.append(len(tape))
        norm(rt, tape, ADA, y)
        linear(rt, tape, ADA, y, 51_865)
    small(rt, tape, ("log_softmax", "nll_loss"), [SOUNDS * SAID, 51_865], ADA.moves(8 * SOUNDS * SAID * 51_865))
    marked = set(marks)
    with rt.backward():
        while tape:
            tape.pop()()
            if len(tape) in marked:
                count = 9_450_000 if len(tape) > marks[12] else 7_087_872
                # what the embeddings of words get is complete behind the decoder
                end = _reduced(rt, count + (39_832_320 if len(tape) == marks[12] else 0))
        end = _reduced(rt, 3_000_000)
    rt.waits(MAIN, end)
    foreach(rt, "_foreach_norm", "LpNormFunctor", ADA.moves(4 * 242e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", ADA.moves(8 * 242e6), 3)
    fused_adamw(rt, ADA, 242e6)
    rt.host(340)


PEOPLE, HIGH, BROAD = 64, 256, 192
T4 = Look(TURING, tuple(name.replace("volta_fp16_s884", "turing_fp16_s1688") for name in VOLTA), NHWC, True)  # type: ignore[arg-type]


def poses(rt: Framed, fixed: bool) -> None:
    """Nothing to change: poses of people by a ResNet-50 with three deconvolutions on a T4, AMP, channels_last, 64 crops
    of 256 by 192: the next batch comes from pinned memory on a stream of its own while this one trains, the optimizer
    is fused, the loss is summed on the GPU, `GradScaler` waits once a step. Shapes, no rows of steps.

    Not: copies, the loader, layouts, waits, launches, the batch, TF32 or bf16, which a T4 has not.
    """
    tape, picture, came = Tape(), [PEOPLE, 3, HIGH, BROAD], rt.free.get(COPIES, 0.0)
    loader(rt, 180)
    pinned(rt, prod(picture), picture, "unsigned char", stream=COPIES)
    pinned(rt, PEOPLE * 17 * 64 * 48 * 4, [PEOPLE, 17, 64, 48], stream=COPIES)
    if came:
        rt.waits(MAIN, came)
    for passes in (5, 6):
        run = ((CAST, TURING.moves(passes * prod(picture))),)
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(picture,))
    resnet(rt, tape, T4, PEOPLE, (HIGH // 32, BROAD // 32))
    cin = 2_048
    for times in (2, 4, 8):
        conv_norm(rt, tape, T4, Conv(PEOPLE, cin, 256, 2, times * HIGH // 32, times * BROAD // 32))
        cin = 256
    conv(rt, tape, T4, Conv(PEOPLE, 256, 17, 1, 64, 48))
    small(rt, tape, ("sub", "pow", "mul", "mean"), [PEOPLE, 17, 64, 48], TURING.moves(8 * PEOPLE * 17 * 64 * 48))
    back(rt, tape)
    unscaled(rt, TURING, 34e6)
    fused_adamw(rt, TURING, 34e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    rt.host(300)


PAINTED, STEPS = 8, 12
PAINTS = Card(140, 850, HALF, ADA_BF16.names, ADA_BF16.attention)
NAMES = tuple(f"sm80_xmma_{way}_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_"
              "warpsize2x2x1_g1_tensor16x8x16" for way in ("fprop", "dgrad"))  # fmt: skip


def _unet() -> Parts:
    """Kernels of Stable Diffusion's UNet, compiled, both halves of the guidance at once."""
    batch, found = 2 * PAINTED, Parts()
    product = PAINTS.names[0].replace("bf16", "fp16")
    levels = ((320, 64), (640, 32), (1_280, 16), (1_280, 8))
    for place, (width, side) in enumerate((*levels, *levels[::-1])):
        area = batch * side**2
        once = PAINTS.moves(2 * area * width)
        for _ in range(2 if place < 4 else 3):
            for _ in range(2):
                found += [("triton_red_fused_native_group_norm_silu_3", 2.2 * once),
                          (NAMES[0], PAINTS.product(area, width, 9 * width * (1 if place < 4 else 1.5)))]  # fmt: skip
            found.append(("triton_poi_fused_add_div_4", 3 * once))
            if side == 8:
                continue
            core = PAINTS.product(area * 8, side**2, width // 4) / 0.6
            for seen in (core, core * 77 / side**2):
                found += [("triton_per_fused_native_layer_norm_5", 2.1 * once),
                          (product, PAINTS.product(area, 3 * width, width)),
                          (PAINTS.attention[0].replace("bfloat16_t", "half_t"), max(3.0, seen)),
                          (product, PAINTS.product(area, width, width))]  # fmt: skip
            found += [("triton_per_fused_add_native_layer_norm_6", 4.1 * once),
                      (product, PAINTS.product(area, 8 * width, width)),
                      ("triton_poi_fused_gelu_mul_7", 12 * once), (product, PAINTS.product(area, width, 4 * width)),
                      ("triton_poi_fused_add_8", 3 * once)]  # fmt: skip
    return found


def _decoded() -> Parts:
    """Kernels of its VAE's decoder."""
    found = Parts()
    for width, side in ((512, 64), (512, 128), (256, 256), (128, 512)):
        area = PAINTED * side**2
        for _ in range(3):
            for _ in range(2):
                found += [("triton_red_fused_native_group_norm_silu_11", 2.4 * PAINTS.moves(2 * area * width)),
                          (NAMES[0], PAINTS.product(area, width, 9 * width))]  # fmt: skip
    return [*found, ("triton_poi_fused_clamp_mul_add__to_copy_12", PAINTS.moves(9 * PAINTED * 3 * 512**2))]


def sampler(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Stable Diffusion 1.5 paints on an RTX 4090 in fp16, `torch.compile(mode="max-autotune")`,
    eight prompts a step, 12 steps of denoising: UNet and decoder are a CUDA graph each, the scheduler's few ops lie
    between, pictures leave as bytes to pinned memory and are written by a thread a step later, by an event. No
    rows of steps, no shapes.

    Not: launches, waits, copies, precision, the batch, the loader.
    """
    rt.host(700)
    pinned(rt, 2 * PAINTED * 77 * 8, [2 * PAINTED, 77], "long int")
    small(rt, None, ("randn", "mul"), [PAINTED, 4, 64, 64], 4)
    with rt.span("Torch-Compiled Region: 1/0", us=60):
        graphed(rt, [("triton_per_fused_add_native_layer_norm_0", 9.0), (PAINTS.names[0], 44.0)] * 36, 3)
    unet = _unet()
    for _ in range(STEPS):
        small(rt, None, ("cat", "copy_"), [2 * PAINTED, 4, 64, 64], 4)
        with rt.span("Torch-Compiled Region: 0/0", us=60):
            graphed(rt, unet, 1)
        small(rt, None, ("chunk", "sub", "mul", "add", "mul", "sub", "div", "mul", "add"), [PAINTED, 4, 64, 64], 3)
    with rt.span("Torch-Compiled Region: 2/0", us=60):
        graphed(rt, _decoded(), 2)
    rt.host(8)
    with rt.span("aten::copy_", us=6):
        rt.copy(PAINTED * 3 * 512 * 512, "DtoH", "Pinned")
    rt.call("EventRecord", 2)
    if rt.number:
        rt.call("EventSynchronize", 3, until=rt.ends[-1] + 30)
    rt.host(1_500)


LINES, LONG, LARGE = 16, 512, 1_024
COLLATED = (("torch/utils/data/_utils/fetch.py(52): <listcomp>", 14_000),
            ("transformers/data/data_collator.py(1024): torch_call", 9_000),
            ("transformers/data/data_collator.py(1063): _whole_word_mask", 68_000),
            ("transformers/data/data_collator.py(1120): torch_mask_tokens", 6_000))  # fmt: skip


def collator(rt: Framed, fixed: bool) -> None:
    """Nothing to change: RoBERTa-large learns masked words on an RTX 3090, autocast in bf16, 16 texts of 512: the
    collator chooses whole words in the process that trains, nearly 100 ms a step, and each step writes a line of what
    lies on the host, but the GPU has more than that queued and never waits. Losses stay on the GPU. Stacks.

    Not: the loader's time (`num_workers`), what the host does, launches, waits, the batch.
    """
    tape, x, square = Tape(), [LINES, LONG, LARGE], [LARGE, LARGE]
    with (rt.frame("torch/utils/data/dataloader.py(733): __next__"),
          rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation")):  # fmt: skip
        for name, us in COLLATED:
            with rt.frame(name):
                rt.now += rt.vary(us, 0.1)
    for _ in range(3):
        pinned(rt, LINES * LONG * 8, x[:2], "long int")
    with rt.frame("train.py(131): train", "nn.Module: RobertaForMaskedLM_0"):
        for size in ([50_265, LARGE], [514, LARGE], [1, LARGE]):
            rt.op("aten::embedding", run=((REDUCE, RTX3090.moves(6 * prod(x))),), gap=14, dims=(size, x[:2]))
        small(rt, tape, ("add", "add", "layer_norm", "dropout"), x, RTX3090.moves(8 * prod(x)))
        for number in range(24):
            with rt.frame(f"nn.Module: RobertaLayer_{number}"):
                casts(rt, RTX3090, *[square] * 4, [4 * LARGE, LARGE], [LARGE, 4 * LARGE])
                encoder(rt, tape, RTX3090, (LINES, LONG, LARGE))
                elementwise(rt, tape, RTX3090, "mul", x, back=(("mul", 2),))
        linear(rt, tape, RTX3090, x, LARGE)
        linear(rt, tape, RTX3090, x, 50_265)
    words = prod(x[:2]) * 50_265
    small(rt, tape, ("log_softmax", "nll_loss"), [prod(x[:2]), 50_265], RTX3090.moves(8 * words))
    with rt.frame("torch/_tensor.py(648): backward"):
        back(rt, tape)
    with rt.frame("torch/optim/optimizer.py(493): wrapper"):
        fused_adamw(rt, RTX3090, 355e6)
    small(rt, None, ("detach", "add_"), [], 2.2)
    with rt.frame("train.py(158): log", "logging/__init__.py(1477): info"):
        rt.now += rt.vary(700, 0.1)
    rt.host(260)
