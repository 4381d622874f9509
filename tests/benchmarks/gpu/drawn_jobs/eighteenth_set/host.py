"""Jobs of the eighteenth set whose fault is on the host: a model that travels, boxes, windows, rates that compile."""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, foreach, kernel, linear
from ..fifteenth_set.rows import AMPERE_HALF, convolved
from ..layers import REDUCE, Tape, back, fused_adamw
from ..seventeenth_set.rows import compiled_loss, triton, triton_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import H100
from ..twelfth_set.pictures import looked_for, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, conv, conv_norm, loader
from .rows import on_host, pinned, returned

PAIRS, LENGTH, WIDE, CLASSES = 32, 1_024, 896, 151_936
SHAPE = (PAIRS, LENGTH, WIDE, 2, 4_864)
WEIGHTS = ([CLASSES, WIDE], *([WIDE, WIDE], [128, WIDE], [128, WIDE], [WIDE, WIDE], [WIDE], [128], [128], [WIDE],
                              [4_864, WIDE], [4_864, WIDE], [WIDE, 4_864], [WIDE]) * 24, [WIDE])  # fmt: skip
APPLIED = ("torch/nn/modules/module.py(1329): to", "torch/nn/modules/module.py(916): _apply",
           "torch/nn/modules/module.py(1315): convert", "<method 'to' of 'torch._C.TensorBase' objects>")  # fmt: skip


def _moved(rt: Framed, there: bool) -> None:
    """`reference.to(device)`, parameter by parameter."""
    with rt.frame("preferences.py(94): reference_logps"):
        for dims in WEIGHTS:
            rt.host(9)
            with rt.frame(*APPLIED):
                if there:
                    rt.moved(2 * prod(dims), 7.4, dims, BF16)
                else:
                    returned(rt, 2 * prod(dims), 3.6, dims, BF16)


def _scored(rt: Framed, tape: Tape) -> None:
    """Qwen2.5-0.5B and the logarithms of what was written."""
    with rt.frame("torch/nn/modules/module.py(1747): _call_impl", "nn.Module: Qwen2ForCausalLM_0"):
        for _ in range(24):
            with rt.frame("nn.Module: Qwen2DecoderLayer_5"):
                llama(rt, tape, H100, SHAPE, fused_norm)
        fused_norm(rt, tape, H100, [PAIRS, LENGTH, WIDE])
        linear(rt, tape, H100, [PAIRS, LENGTH, WIDE], CLASSES)
    triton_loss(rt, tape, H100, PAIRS * LENGTH, CLASSES)
    small(rt, tape, ("mul", "sum"), [PAIRS, LENGTH], 3)


def referred(rt: Framed, fixed: bool) -> None:
    """DPO of Qwen2.5-0.5B on an H100, `preferences.py` takes care of memory that is not short: the frozen reference
    model comes to the GPU after the policy's forward pass, 1 GB from memory that is not pinned, and leaves after its
    own, to memory that is new each time; without: it stays. Stacks.
    """
    tape: Tape = []
    loader(rt, 190)
    for _ in range(4):
        pinned(rt, PAIRS * LENGTH * 8, [PAIRS, LENGTH], "long int")
    _scored(rt, tape)
    if not fixed:
        _moved(rt, True)
    with rt.frame("preferences.py(94): reference_logps"), without_graph(rt):
        _scored(rt, [])
    if not fixed:
        _moved(rt, False)
    small(rt, tape, ("sub", "sub", "mul", "logsigmoid", "neg", "mean"), [PAIRS // 2], 2.6)
    with rt.frame("torch/_tensor.py(581): backward", "torch/autograd/__init__.py(243): backward"):
        back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 0.494e9), 2)
    fused_adamw(rt, H100, 0.494e9 / 2)
    rt.host(500)


ANCHORS, CROWD = 191_700, (61, 148, 36, 24)
OVERLAPS = (("max", 2.2), ("min", 2.2), ("sub", 1.5), ("clamp", 1.2), ("mul", 1.1), ("add", 1.0), ("sub", 1.0),
            ("max", 0.6), ("div", 1.0))  # fmt: skip
ASSIGNER = "mmdet/models/task_modules/assigners/max_iou_assigner.py(157): assign"


def _overlapped(rt: Framed, boxes: int, fixed: bool) -> None:
    """Overlaps of all anchors with a picture's boxes, and which box an anchor has;  boxes: more than 100 go to the
    host, as `gpu_assign_thr=100` says.
    """
    size, card = [boxes, ANCHORS], AMPERE_HALF.card
    there = fixed or boxes <= 100
    with rt.frame(ASSIGNER):
        if not there:
            returned(rt, ANCHORS * 16, 4.2, [ANCHORS, 4])
            returned(rt, boxes * 16, 1, [boxes, 4])
            returned(rt, boxes * 8, 1, [boxes], "long int")
        with rt.frame("mmdet/structures/bbox/bbox_overlaps.py(13): bbox_overlaps"):
            for name, passes in OVERLAPS:
                if there:
                    us = card.moves(5 * passes * prod(size))
                    rt.op(f"aten::{name}", run=((kernel(name, 3), us),), dims=(size, size), gap=14)
                else:
                    on_host(rt, f"aten::{name}", passes * prod(size) / 2.3e3, size)
        with rt.frame("mmdet/models/task_modules/assigners/max_iou_assigner.py(231): assign_wrt_overlaps"):
            for name in ("max", "max", "eq"):
                if there:
                    rt.op(f"aten::{name}", run=((REDUCE, card.moves(4 * prod(size))),), dims=(size,), gap=18)
                else:
                    on_host(rt, f"aten::{name}", prod(size) / 2.6e3, size)
        if not there:
            rt.moved(ANCHORS * 8, 5.6, [ANCHORS], "long int")
            rt.moved(ANCHORS * 4, 5.6, [ANCHORS])
    looked_for(rt, "gt", [ANCHORS])
    small(rt, None, ("index", "sub", "div", "log", "stack", "index_put_"), [boxes, 4], 3)


def crowded(rt: Framed, fixed: bool) -> None:
    """RetinaNet of mmdetection on VisDrone, AMP, RTX 3090: boxes of pictures with more than 100 are matched with the
    anchors on the host, one of four pictures here; without: the threshold is higher, 0.2 GB are there. Stacks. That
    the host waits for how many anchors are taken, four times, is left.
    """
    tape: Tape = []
    loader(rt, 240)
    pinned(rt, 4 * 3 * 800 * 1_344 * 4, [4, 3, 800, 1_344])
    with rt.frame("mmengine/model/wrappers/utils.py(51): forward", "nn.Module: RetinaNet_0"):
        resnet(rt, tape, AMPERE_HALF, 4, (25, 42))
        for more in (1, 2, 4):
            for cin, side in ((2_048 // more, 1), (256, 3)):
                conv(rt, tape, AMPERE_HALF, Conv(4, cin, 256, side, 25 * more, 42 * more))
        with rt.frame("nn.Module: RetinaHead_0"):
            for more in (1, 2, 4):
                for _ in range(8):
                    conv_norm(rt, tape, AMPERE_HALF, Conv(4, 256, 256, 3, 25 * more, 42 * more))
                for out in (90, 36):
                    conv(rt, tape, AMPERE_HALF, Conv(4, 256, out, 3, 25 * more, 42 * more))
        with rt.frame("mmdet/models/dense_heads/anchor_head.py(339): get_targets"):
            for boxes in CROWD:
                _overlapped(rt, boxes, fixed)
    focal = AMPERE_HALF.card.moves(4 * 4 * ANCHORS * 10)
    number = rt.op("SigmoidFocalLossFunction", gap=40, graph=True, us=20, dims=([4 * ANCHORS, 10],), run=(
        ("void sigmoid_focal_loss_forward_cuda_kernel<float>(int, float const*, long const*, …)", 3 * focal),
    ))  # fmt: skip
    tape.append(lambda: rt.grad("SigmoidFocalLossFunctionBackward", number, us=20, run=(
        ("void sigmoid_focal_loss_backward_cuda_kernel1<float>(int, float const*, …)", 3 * focal),
        ("void sigmoid_focal_loss_backward_cuda_kernel2<float>(int, float const*, …)", 2 * focal))))  # fmt: skip
    small(rt, tape, ("sub", "abs", "mul", "sum", "div", "add"), [4 * ANCHORS, 4], 18)
    with rt.frame("mmengine/optim/optimizer/amp_optimizer_wrapper.py(126): backward"):
        back(rt, tape)
    unscaled(rt, AMPERE_HALF.card, 36e6)
    sgd(rt, AMPERE_HALF.card, 36e6)
    rt.host(600)


ROI, ORGANS, WINDOWS = 128, 5, 18
VOLUME = [1, ORGANS, 256, 320, 320]


def _windowed(rt: Framed, dims: list[int]) -> None:
    """A UNet's prediction for one window."""
    x, kept = dims, []
    for level, width in enumerate((32, 64, 128, 256, 320)):
        x = convolved(rt, [], AMPERE_HALF.card, x, width, stride=2 if level else 1)
        x = convolved(rt, [], AMPERE_HALF.card, x, width)
        kept.append(x)
    for skip in reversed(kept[:-1]):
        rt.op("aten::conv_transpose3d", "aten::convolution", "aten::cudnn_convolution_transpose", kind="c10::Half",
              run=(("sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_ndhwckrsc_ndhwc_tilesize128x128x32_stage4_g1",
                    AMPERE_HALF.card.moves(6 * prod(skip))),), dims=(x,), gap=18)  # fmt: skip
        run = ((COPY, AMPERE_HALF.card.moves(8 * prod(skip))),)
        rt.op("aten::cat", run=run, dims=(skip, skip), kind="c10::Half", gap=12)
        x = convolved(rt, [], AMPERE_HALF.card, [1, 2 * skip[1], *skip[2:]], skip[1])
        x = convolved(rt, [], AMPERE_HALF.card, x, skip[1])
    convolved(rt, [], AMPERE_HALF.card, x, ORGANS, side=1, forward=True)


def slid(rt: Framed, fixed: bool) -> None:
    """MONAI's `sliding_window_inference(..., device="cpu")` that validates a UNet, RTX 3090, a step is a volume of 18
    windows: each prediction is copied to memory that is not pinned, weighted and added there by the host, before the
    next begins; without: sums stay on the GPU, 0.5 GB.
    """
    card, size = AMPERE_HALF.card, [1, ORGANS, ROI, ROI, ROI]
    loader(rt, 900)
    pinned(rt, prod(VOLUME[2:]) * 4, [1, 1, *VOLUME[2:]])
    with without_graph(rt):
        for _ in range(WINDOWS):
            rt.host(190)
            rt.op("aten::cat", run=((COPY, card.moves(8 * ROI**3)),), dims=([1, 1, ROI, ROI, ROI],), gap=20)
            _windowed(rt, [1, 1, ROI, ROI, ROI])
            if fixed:
                for name, passes in (("_to_copy", 6), ("mul_", 8), ("add_", 12), ("add_", 0.3)):
                    rt.op(
                        f"aten::{name}", run=((kernel(name, 3), card.moves(passes * prod(size))),), dims=(size,), gap=12
                    )
                continue
            returned(rt, 2 * prod(size), 3.1, size, "c10::Half")
            for name, rate in (("_to_copy", 4.6e3), ("mul_", 3.4e3), ("add_", 1.9e3), ("add_", 60e3)):
                on_host(rt, f"aten::{name}", prod(size) / rate, size)
        if fixed:
            for name, passes in (("div", 12), ("argmax", 4), ("_to_copy", 2)):
                rt.op(
                    f"aten::{name}", run=((kernel(name, 2), card.moves(passes * prod(VOLUME))),), dims=(VOLUME,), gap=14
                )
            returned(rt, prod(VOLUME[2:]), 3.1, VOLUME[2:], "unsigned char")
        else:
            on_host(rt, "aten::div_", prod(VOLUME) / 4.2e3, VOLUME)
            on_host(rt, "aten::argmax", prod(VOLUME) / 2.6e3, VOLUME)
    rt.host(2_400)  # Dice on the host, of classes


DEEP, TOKENS, HIDDEN = 20, (32, 2_048), 1_024
COMPILED = (("_compile.compile_inner", 96_000), ("OutputGraph.call_user_compiler", 8_000),
            ("create_aot_dispatcher_function", 120_000), ("compile_fx.<locals>.fw_compiler_base", 14_000),
            ("compile_fx_inner", 11_000), ("GraphLowering.run", 170_000), ("GraphLowering.compile_to_module", 230_000),
            ("async_compile.wait", 185_000))  # fmt: skip


def _compiled_again(rt: Framed) -> None:
    """A guard on the rate fails: the optimizer's step is traced, lowered and compiled again."""
    with ExitStack() as opened:
        for name, us in COMPILED:
            opened.enter_context(rt.span(f"{name} (dynamo_timed)", "user_annotation", us=600))
            rt.now += rt.vary(us, 0.08)
    rt.call("ModuleLoadData", 900)


def rated(rt: Framed, fixed: bool) -> None:
    """A Llama of 0.3 B on an H100 with `torch.compile(optimizer.step)`, the rate of each step is a number of Python:
    each compiles the update again, 0.8 s, a part of it beside what the device has to do; without: `lr` is a tensor.
    """
    tape, x = Tape(), [*TOKENS, HIDDEN]
    rt.batch(prod(TOKENS) * 8, prod(TOKENS) * 8)
    for _ in range(DEEP):
        llama(rt, tape, H100, (*TOKENS, HIDDEN, 4, 4_096), fused_norm)
    fused_norm(rt, tape, H100, x)
    linear(rt, tape, H100, x, 50_304)
    compiled_loss(rt, tape, H100, prod(TOKENS), 50_304)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(4 * 0.35e9), 3)
    rt.host(60)
    with rt.span("Optimizer.step#AdamW.step", "user_annotation", us=80):
        with rt.span("TorchDynamo Cache Lookup", us=260):
            pass
        if not fixed:
            _compiled_again(rt)
        with rt.span(f"Torch-Compiled Region: 1/{0 if fixed else rt.number + 2}", us=120):
            for _ in range(6):
                triton(rt, "triton_for_fused_0", H100.moves(28 * 0.35e9 / 6))
    rt.host(240)
