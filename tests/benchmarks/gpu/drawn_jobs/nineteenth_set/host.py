"""Jobs of the nineteenth set whose fault is on the host: weights that travel, a loader, an update, blocking calls."""

from __future__ import annotations

from math import prod
from typing import Any

from ..eighteenth_set.rows import on_host, pinned
from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import Roofline, elementwise, foreach, kernel, linear
from ..eleventh_set.small import encoder
from ..fifteenth_set.rows import AMPERE_HALF, product, sdpa
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw
from ..runtime import COPIES, LINKS, MAIN, Row
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import ADA, HALF, NHWC, SAMPLE, resnet, small, unscaled
from ..twelfth_set.rows import Framed, Look, loader

ADA_HALF = Card(140, 850, HALF, ADA.card.names, FLASH)
PRE = ("accelerate/hooks.py(171): new_forward", "accelerate/hooks.py(341): pre_forward",
       "accelerate/utils/modeling.py(217): set_module_tensor_to_device")  # fmt: skip
POST = ("accelerate/hooks.py(171): new_forward", "accelerate/hooks.py(397): post_forward")
CONVOLVED = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1"
GEGLU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, …)>"


def _weights(rt: Framed, fixed: bool, *sizes: list[int]) -> None:
    """Accelerate's hook before a module runs: its weights come from memory that is not pinned."""
    for dims in () if fixed else sizes:
        rt.host(24)
        with rt.frame(*PRE):
            rt.moved(2 * prod(dims), 9.2 if prod(dims) > 1e6 else 3.0, dims, HALF)
    if not fixed:
        with rt.frame(*POST):
            rt.host(9 * len(sizes))


def _projected(rt: Framed, fixed: bool, x: list[int], out: int, bias: bool = True) -> None:
    _weights(rt, fixed, [out, x[-1]], *([[out]] if bias else []))
    product(rt, ADA_HALF, x, out)


def _passed(rt: Framed, name: str, dims: list[int], passes: float) -> None:
    run = ((GEGLU if name == "gelu" else kernel(name, 2), ADA_HALF.moves(2 * passes * prod(dims))),)
    rt.op(f"aten::{name}", run=run, dims=(dims,), kind=HALF, gap=9, us=6)


def _attending(rt: Framed, fixed: bool, x: list[int]) -> None:
    """A block of a transformer of SDXL's UNet: to itself, to 77 words, a gated MLP."""
    width, heads = x[2], x[2] // 64
    for context in (x, [x[0], 77, 2_048]):
        _weights(rt, fixed, [width], [width])
        _passed(rt, "layer_norm", x, 2)
        _projected(rt, fixed, x, width, False)
        for _ in range(2):
            _projected(rt, fixed, context, width, False)
        sdpa(rt, ADA_HALF, [x[0], heads, x[1], 64], context[1])
        _projected(rt, fixed, x, width)
        _passed(rt, "add", x, 3)
    _weights(rt, fixed, [width], [width])
    _passed(rt, "layer_norm", x, 2)
    _projected(rt, fixed, x, 8 * width)
    _passed(rt, "gelu", [*x[:2], 4 * width], 2)
    _passed(rt, "mul", [*x[:2], 4 * width], 3)
    _projected(rt, fixed, [*x[:2], 4 * width], width)
    _passed(rt, "add", x, 3)


def _convolution(rt: Framed, fixed: bool, dims: list[int], cout: int, side: int = 3) -> list[int]:
    batch, cin, high, wide = dims
    weight, y = [cout, cin, side, side], [batch, cout, high, wide]
    _weights(rt, fixed, weight, [cout])
    us = max(2 * prod(y) * cin * side**2 / ADA_HALF.tflops / 1e6, ADA_HALF.moves(2 * (prod(dims) + prod(y))))
    rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", run=((CONVOLVED, us),),
          dims=(dims, weight), kind=HALF, gap=14)  # fmt: skip
    return y


def _resnet(rt: Framed, fixed: bool, dims: list[int], cout: int) -> list[int]:
    """A residual block of the UNet."""
    y = dims
    for _ in range(2):
        _weights(rt, fixed, [y[1]], [y[1]])
        _passed(rt, "native_group_norm", y, 3)
        _passed(rt, "silu", y, 2)
        y = _convolution(rt, fixed, y, cout)
    _projected(rt, fixed, [dims[0], 1_280], cout)
    if dims[1] != cout:
        _convolution(rt, fixed, dims, cout, 1)
    _passed(rt, "add", y, 3)
    return y


def sequential(rt: Framed, fixed: bool) -> None:
    """SDXL by diffusers with `enable_sequential_cpu_offload()` on an RTX 4090 whose 24 GB have room for all 7 GB of it,
    a step is one of denoising, two pictures of 1,024: the UNet's 5.1 GB come tensor by tensor from memory that is not
    pinned, each waited for, 1,700 times a step; without: `pipe.to("cuda")`. Stacks, no rows of steps.

    First: keep the weights on the GPU (no offloading, or of whole models). Not: a loader, launches, the batch.
    """
    rt.host(300)
    _passed(rt, "cat", [2, 4, 128, 128], 3)
    with rt.frame("diffusers/models/unets/unet_2d_condition.py(1040): forward"), without_graph(rt):
        for _ in range(2):
            _projected(rt, fixed, [2, 1_280], 1_280)
        y = _convolution(rt, fixed, [2, 4, 128, 128], 320)
        plan = ((320, 128, 2, 0), (640, 64, 2, 2), (1_280, 32, 2, 10), (1_280, 32, 2, 10), (1_280, 32, 3, 10),
                (640, 64, 3, 2), (320, 128, 3, 0))  # fmt: skip
        for place, (width, side, blocks, deep) in enumerate(plan):
            for number in range(blocks):
                more = (1_280, 640, 320)[min(2, place - 4)] if place > 3 else 0  # of the skip connection
                y = _resnet(rt, fixed, [2, y[1] + more, side, side], width)
                if deep and (place != 3 or number == 0):
                    with rt.frame("nn.Module: Transformer2DModel_4"):
                        _projected(rt, fixed, [2, side * side, width], width)
                        for _ in range(deep):
                            _attending(rt, fixed, [2, side * side, width])
                        _projected(rt, fixed, [2, side * side, width], width)
        _passed(rt, "silu", y, 2)
        _convolution(rt, fixed, y, 4)
    small(rt, None, ("sub", "mul", "add", "to", "sub", "div", "mul", "add"), [1, 4, 128, 128], 3)
    rt.host(400)


TURING = Roofline(26, 250, HALF, ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",) * 2, ("", ""))
T4_HALF = Look(TURING, ("turing_fp16_s1688cudnn_fp16_256x128_ldg8_relu_f2f_exp_medium_nhwc_tn_v1",
                        "turing_fp16_s1688cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_medium_nhwc_tt_v1",
                        "turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1"),
               NHWC, True)  # fmt: skip
PICTURES = 48


class Plain(Framed):
    """A file of torch 1.13: no arrows, no steps on the device, no strides, no numbers of events."""

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        known["traceEvents"] = [row for row in known["traceEvents"]
                                if row["ph"] not in "sf" and row.get("cat") != "gpu_user_annotation"]  # fmt: skip
        for row in known["traceEvents"]:
            for name in ("Input Strides", "Concrete Inputs", "Ev Idx", "Record function id"):
                row.get("args", {}).pop(name, None)
        return known


def _decoded(rt: Framed) -> None:
    """A batch in the main process: PIL decodes and cuts, `ToTensor` and `Normalize` are ops of the host."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    with rt.span(name, "user_annotation", us=60):
        for _ in range(PICTURES):
            rt.now += rt.vary(7_300, 0.35)
            for op, us in (("from_file", 9), ("permute", 4), ("contiguous", 95), ("_to_copy", 60), ("div", 55),
                           ("sub_", 48), ("div_", 50)):  # fmt: skip
                on_host(rt, f"aten::{op}", us, [3, 224, 224])
        on_host(rt, "aten::stack", 3_900, [PICTURES, 3, 224, 224])
        on_host(rt, "aten::tensor", 12, [PICTURES], "long int")


def unworkered(rt: Framed, fixed: bool) -> None:
    """Lightning fine-tunes a ResNet-50 on a T4, `precision="16-mixed"`, `DataLoader(dataset, batch_size=48)` as it is
    by default: pictures are decoded by the loop itself while the GPU waits, and come from memory that is not pinned,
    4.9 ms; without: 4 workers, `pin_memory=True`. Lightning's annotations.

    First: `num_workers`, then `pin_memory`. Not: launches, the batch, TF32 or bf16, which a T4 has not.
    """
    tape: Tape = []
    with rt.span("[pl][profile][_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=30):
        loader(rt, 240) if fixed else _decoded(rt)
    with rt.span("[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=40):
        nbytes, dims = PICTURES * 3 * 224 * 224 * 4, [PICTURES, 3, 224, 224]
        if fixed:
            pinned(rt, nbytes, dims)
            pinned(rt, PICTURES * 8, [PICTURES], "long int")
        else:
            rt.moved(nbytes, 9.8, dims)  # of PCIe's third generation: 5.9 GB/s
            rt.moved(PICTURES * 8, 1, [PICTURES], "long int")
    with rt.span("[pl][profile]run_training_batch", "user_annotation", us=60):
        with (rt.span("[pl][profile][LightningModule]Classifier.optimizer_step", "user_annotation", us=50),
              rt.span("[pl][profile][Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=40),
              rt.span("[pl][module]torchvision.models.resnet.ResNet: model", "user_annotation", us=30)):  # fmt: skip
            run = ((CAST, TURING.moves(6 * prod(dims))),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(dims,))
            resnet(rt, tape, T4_HALF, PICTURES, (7, 7))
            dense(rt, tape, TURING, PICTURES, (PICTURES, 2_048, 100))
        small(rt, tape, ("log_softmax", "nll_loss"), [PICTURES, 100], 4)
        with rt.span("[pl][profile][Strategy]SingleDeviceStrategy.backward", "user_annotation", us=50):
            back(rt, tape)
        unscaled(rt, TURING, 23.7e6)
        fused_adamw(rt, TURING, 23.7e6)
    for hook in ("on_train_batch_end", "on_before_zero_grad"):
        with rt.span(f"[pl][profile][Callback]TQDMProgressBar.{hook}", "user_annotation", us=180):
            pass


DEEP, TEXT, WIDE, HIDDEN = 24, (6, 2_048), 2_048, 5_632
RANKS, SHARE, BUCKET, LAYER = [0, 1, 2, 3], 1.3e9 / 4, 100_000_000, 51_000_000
STAGE = "deepspeed/runtime/zero/stage_1_and_2.py"


def _partitioned(rt: Framed, fixed: bool) -> None:
    """A bucket's gradients are reduced to the ranks that own them; offloaded, what is this rank's goes to the host."""
    with rt.frame(f"{STAGE}(1066): average_tensor"):
        end = rt.collective("_reduce_scatter_base", 40 + BUCKET * 2 * 0.75 / 210e3, (BUCKET, BUCKET // 4), ranks=RANKS)
        if fixed:
            return
        rt.free[COPIES] = max(rt.free.get(COPIES, 0), end)
        for _ in range(4):
            with rt.frame(f"{STAGE}(1218): async_inplace_copy_grad_to_fp32_buffer_from_gpu"), rt.span("aten::copy_"):
                rt.copy(BUCKET // 4, "DtoH", "Pinned", stream=COPIES)


def cpu_adam(rt: Framed, fixed: bool) -> None:
    """DeepSpeed ZeRO-2 with `offload_optimizer: {device: cpu}`, 1.3 B in bf16 on 4 A100 of 80 GB, rank 2: after each
    backward pass the norm of 0.33 B gradients and `DeepSpeedCPUAdam` take 0.6 s on the host, which no op shows, then
    weights are copied back and gathered; without: FusedAdam on the GPU, where the states' 3.9 GB have room. Stacks.

    First: no offloading of the optimizer (or fewer, larger steps). Not: a loader, launches, `no_sync`, the network.
    """
    groups(rt, 4, default_pg=RANKS)
    rt.head["distributedInfo"]["rank"] = 2
    tape: Tape = []
    loader(rt, 170)
    for _ in range(3):
        pinned(rt, prod(TEXT) * 8, list(TEXT), "long int")
    with rt.frame("deepspeed/runtime/engine.py(1899): forward"):
        for _ in range(DEEP):
            with rt.frame("nn.Module: LlamaDecoderLayer_3"):
                llama(rt, tape, A100, (*TEXT, WIDE, 32, HIDDEN), fused_norm)
        one = len(tape) // DEEP
        fused_norm(rt, tape, A100, [*TEXT, WIDE])
        linear(rt, tape, A100, [*TEXT, WIDE], 32_000)
        compiled_loss(rt, tape, A100, prod(TEXT), 32_000)
    with rt.frame("deepspeed/runtime/engine.py(2053): backward"), rt.backward():
        while tape:
            tape.pop()()
            if len(tape) % (2 * one) == 0:
                _partitioned(rt, fixed)
    rt.waits(MAIN, rt.free[LINKS])
    with rt.frame("deepspeed/runtime/engine.py(2191): step", f"{STAGE}(1836): step"):
        if fixed:
            foreach(rt, "_foreach_norm", "LpNormFunctor", A100.moves(4 * SHARE), 2)
            fused_adamw(rt, A100, SHARE)
        else:
            rt.call("StreamSynchronize", 4, until=max(rt.free.values()) + 5)
            with rt.frame(f"{STAGE}(1681): scaled_global_norm"):
                for _ in range(DEEP * 7 // 4):
                    on_host(rt, "aten::linalg_vector_norm", SHARE / (DEEP * 7 / 4) / 5.6e3, [int(SHARE / DEEP / 1.75)])
            with (rt.frame("torch/optim/optimizer.py(478): wrapper", "deepspeed/ops/adam/cpu_adam.py(107): step",
                           "<built-in method adam_update of PyCapsule object>"),
                  rt.span("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation", us=200)):  # fmt: skip
                rt.now += rt.vary(SHARE * 28 / 17.5e3, 0.05)
            with rt.span("aten::copy_", us=9, **inputs(([int(SHARE)],) * 2, BF16)):
                rt.copy(int(2 * SHARE))
        with rt.frame("deepspeed/runtime/utils.py(972): all_gather_dp_groups"):
            end = rt.collective(
                "_allgather_base", 40 + SHARE * 2 * 3 / 210e3, (int(SHARE), int(4 * SHARE)), ranks=RANKS
            )
            rt.waits(MAIN, end)
    rt.host(600)


class Blocking(Plain):
    """`CUDA_LAUNCH_BLOCKING=1`: a launch returns when its kernel is done."""

    blocks = True

    def work(self, name: str, us: float, **given: Any) -> float:
        """Queues work; returns when it ends."""
        end = super().work(name, us, **given)
        if self.blocks and given.get("category", "kernel") == "kernel":
            call = next(row for row in reversed(self.rows[-3:]) if row["cat"] == "cuda_runtime")
            self.now = max(self.now, end + self.vary(4, 0.3))
            call["dur"] = round(self.now - call["ts"], 3)
        return end


def blocking(rt: Blocking, fixed: bool) -> None:
    """BERT-base of transformers fine-tuned by AMP in a plain loop on an RTX 3090; `os.environ["CUDA_LAUNCH_BLOCKING"] =
    "1"` was left in the script after a search for an error: each launch waits for its kernel, and the GPU for the host
    between any two; without it the host is ahead. No shapes.

    First: that launches wait, and the variable. Not: fewer or fused launches before it, a loader, the batch.
    """
    rt.blocks = not fixed
    tape, card, x = Tape(), AMPERE_HALF.card, [32, 128, 768]
    loader(rt, 150)
    for _ in range(4):
        pinned(rt, 32 * 128 * 8, [32, 128], "long int")
    for _ in range(3):
        rt.op("aten::embedding", run=((REDUCE, card.moves(6 * prod(x))),), gap=14, dims=([30_522, 768], [32, 128]))
    small(rt, tape, ("add", "add", "layer_norm"), x, card.moves(8 * prod(x)))
    for _ in range(12):
        for size in ([768, 768], [768, 768], [768, 768], [768, 768], [3_072, 768], [768, 3_072]):
            run = ((CAST, card.moves(6 * prod(size))),)
            rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
        encoder(rt, tape, card, (x[0], x[1], x[2]))
    linear(rt, tape, card, [32, 768], 768)
    elementwise(rt, tape, card, "tanh", [32, 768], back=(("tanh_backward", 3),))
    linear(rt, tape, card, [32, 768], 2)
    small(rt, tape, ("log_softmax", "nll_loss"), [32, 2], 3)
    back(rt, tape)
    unscaled(rt, card, 110e6)
    with rt.frame(SAMPLE):
        fused_adamw(rt, card, 110e6)
    rt.host(240)
