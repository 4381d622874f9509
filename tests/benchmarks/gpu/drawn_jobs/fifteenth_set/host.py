"""Jobs of the fifteenth set whose fault is on the host: workers, averages, counters, caches, outliers, memory."""

from __future__ import annotations

from dataclasses import replace

from ..eleventh_set.rows import COPY, foreach, kernel
from ..eleventh_set.small import encoder
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100
from ..twelfth_set.language import A100, AMPERE, qwen
from ..twelfth_set.pictures import ADA, HALF, SAMPLE, residual, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, loader
from .rows import AMPERE_HALF, fetched, passed, product, sdpa

EPOCH, WORKERS = 6, 12
DATALOADER = "torch/utils/data/dataloader.py"


def respawned(rt: Framed, fixed: bool) -> None:
    """ResNet-50 for poses by AMP, RTX 4090: epochs of 6 batches start 12 workers anew; without: they stay."""
    tape: Tape = []
    if rt.number % EPOCH == 2:
        loader(rt, 900 if fixed else 210_000)  # the last call, which ends workers that do not stay
        rt.host(4_000)  # averages of the epoch
        with rt.frame(f"{DATALOADER}(484): __iter__", f"{DATALOADER}(415): _get_iterator",
                      f"{DATALOADER}(1167): _reset" if fixed else f"{DATALOADER}(1076): __init__"):  # fmt: skip
            for _ in range(0 if fixed else WORKERS):
                with rt.frame("multiprocessing/process.py(110): start", "multiprocessing/popen_fork.py(62): _launch",
                              "<built-in function fork>"):  # fmt: skip
                    rt.now += rt.vary(88_000, 0.1)
            rt.host(2_000)
        loader(rt, 260_000 if fixed else 690_000)
    else:
        loader(rt, 170)
    with (rt.frame(SAMPLE, "<method 'to' of 'torch._C.TensorBase' objects>"), rt.span("aten::to"),
          rt.span("aten::_to_copy"), rt.span("aten::copy_")):  # fmt: skip
        rt.copy(96 * 3 * 256 * 192 * 4)
    with rt.frame("mmpose/models/pose_estimators/topdown.py(74): loss", "nn.Module: ResNet_0"):
        resnet(rt, tape, ADA, 96, (8, 6))
    small(rt, tape, ("sub", "pow", "mul", "mean"), [96, 17, 64, 48], 40)
    with rt.frame("torch/_tensor.py(581): backward", "torch/autograd/__init__.py(243): backward"):
        back(rt, tape)
    unscaled(rt, ADA.card, 34e6)
    sgd(rt, ADA.card, 34e6)
    rt.host(240)


SIZES = ([512, 256, 3, 3], [256], [256, 256, 3, 3], [256], [384, 256, 1, 1], [256], [512], [64, 64, 3, 3])


def averaged(rt: Framed, fixed: bool) -> None:
    """A UNet that denoises, RTX 3090: its moving average lies on the host; without: beside it, by lists."""
    tape, batch, count = Tape(), 24, 30e6
    loader(rt, 180)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(batch * 3 * 128 * 128 * 4)
    small(rt, None, ("randint", "index", "randn_like", "mul", "mul", "add"), [batch, 3, 128, 128], 9)
    levels = ((64, 128), (64, 64), (128, 32), (256, 16), (256, 16), (128, 32), (64, 64), (64, 128))
    with rt.frame("denoising_diffusion_pytorch.py(760): p_losses", "nn.Module: Unet_0"):
        for width, size in levels:
            for _ in range(2):
                residual(rt, tape, AMPERE_HALF, Conv(batch, width, width, 3, size, size))
    small(rt, tape, ("mse_loss", "mul", "mean"), [batch, 3, 128, 128], 12)
    with rt.frame("accelerate/accelerator.py(2218): backward"):
        back(rt, tape)
    unscaled(rt, AMPERE_HALF.card, count)
    fused_adamw(rt, AMPERE_HALF.card, count)
    with rt.frame("ema_pytorch/ema_pytorch.py(310): update", "ema_pytorch/ema_pytorch.py(376): update_moving_average"):
        if fixed:
            foreach(rt, "_foreach_lerp_", "TernaryOpScalarFunctor", AMPERE_HALF.card.moves(12 * count), 2, 150)
        for place in range(0 if fixed else 256):
            size = SIZES[place % len(SIZES)]
            length = size[0] * (size[1] * size[2] * size[3] if size[1:] else 1)
            with rt.frame("<method 'to' of 'torch._C.TensorBase' objects>"):
                fetched(rt, 4 * length, 5.6 if length > 16_000 else 0.9, size)
            rt.op("aten::lerp_", us=3 + 12 * length / 14e3, gap=9, dims=(size, size))
    rt.host(260)


def resumed(rt: Framed, fixed: bool) -> None:
    """A ViT-L in Lightning, A100, resumed: Adam's counters lie on the GPU and are read; without: on the host."""
    tape, batch, tensors, count = Tape(), 8, 296, 303e6
    rt.batch(batch * 3 * 224 * 224 * 2, batch * 8)
    for _ in range(24):
        encoder(rt, tape, A100, (batch, 197, 1_024))
    dense(rt, tape, A100, batch, (batch, 1_024, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 1_000], 5)
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=180):
        pass
    back(rt, tape)
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=900):
        if fixed:
            with rt.span("aten::_foreach_add_", us=20):
                for _ in range(tensors):
                    rt.op("aten::add_", us=1.3, gap=0, dims=([], []))
        else:
            foreach(rt, "_foreach_add_", "BinaryOpScalarFunctor", 3, 1, 90)
        for name, passes in (("lerp_", 3), ("mul_", 2), ("addcmul_", 4)):
            foreach(rt, f"_foreach_{name}", "TernaryOpScalarFunctor", A100.moves(4 * passes * count), 8, 190)
        for _ in range(2 * tensors):  # both corrections of the bias
            if fixed:
                rt.op("aten::item", "aten::_local_scalar_dense", us=0.6, gap=0.7)
            else:
                rt.host(2)
                rt.value()
        for name, passes in (("sqrt", 2), ("div_", 2), ("add_", 2), ("addcdiv_", 4)):
            foreach(rt, f"_foreach_{name}", "PointwiseOpScalarListFunctor", A100.moves(4 * passes * count), 8, 190)
    rt.host(500)


PROMPT, MADE = 640, 12
SILU = "_swiglu_forward_kernel"


def written(rt: Framed, batch: int, new: int, keys: int, cached: bool) -> None:
    """A pass of Qwen2.5-1.5B by Liger's kernels over so many new tokens of each text, and the choice of the next."""
    x, width, hidden = [batch, new, 1_536], 1_536, 8_960
    rt.op("aten::embedding", "aten::index_select", gap=14, dims=([151_936, width], [batch, new]), kind=BF16, run=(
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2>",
         H100.moves(4 * batch * new * width)),))  # fmt: skip
    for _ in range(28):
        passed(rt, H100, "LigerRMSNormFunction", "_rms_norm_forward_kernel", x, 2)
        for out in (width, 256, 256):
            product(rt, H100, x, out)
        passed(rt, H100, "LigerRopeFunction", "_triton_rope", [batch, new, 14 * 128], 2)
        for _ in range(2 if cached else 0):
            passed(rt, H100, "aten::cat", kernel("cat", 2), [batch, 2, keys, 128], 2)
        sdpa(rt, H100, [batch, 12, new, 128], keys, causal=1.0 if cached else 2.0)
        product(rt, H100, x, width)
        passed(rt, H100, "aten::add", kernel("add", 3, BF16), x, 3)
        passed(rt, H100, "LigerRMSNormFunction", "_rms_norm_forward_kernel", x, 2)
        for _ in range(2):
            product(rt, H100, x, hidden)
        passed(rt, H100, "LigerSiLUMulFunction", SILU, [batch, new, hidden], 3)
        product(rt, H100, [batch, new, hidden], width)
        passed(rt, H100, "aten::add", kernel("add", 3, BF16), x, 3)
    product(rt, H100, [batch, 1, width], 151_936)
    for name in ("_to_copy", "div", "softmax", "multinomial", "mul", "add", "cat", "isin", "bitwise_and", "max", "eq"):
        rt.op(f"aten::{name}", run=((kernel(name, 2), 7 if name in ("softmax", "multinomial") else 2.8),), gap=14,
              dims=([batch, 151_936],))  # fmt: skip
    rt.value("aten::is_nonzero")
    rt.host(90)


def uncached(rt: Framed, fixed: bool) -> None:
    """TRL on an H100: checkpointing turned `use_cache` off, each token passes the whole text; without: a cache."""
    batch, tape = 8, Tape()
    rt.batch(batch * PROMPT * 8, batch * PROMPT * 8)
    with rt.frame("trl/trainer/grpo_trainer.py(1046): _generate", "transformers/generation/utils.py(2024): generate",
                  "transformers/generation/utils.py(2714): _sample"):  # fmt: skip
        for token in range(MADE):
            held = PROMPT + token
            written(rt, batch, 1 if fixed and token else held, held, fixed)
    length = PROMPT + MADE
    with rt.frame("trl/trainer/grpo_trainer.py(1490): compute_loss", "nn.Module: Qwen2ForCausalLM_0"):
        for _ in range(28):
            qwen(rt, tape, H100, (batch, length, 1_536, 2, 8_960), eager=False, liger=True)
    small(rt, tape, ("log_softmax", "gather", "sub", "exp", "mul", "mean"), [batch, MADE], 9)
    back(rt, tape)
    fused_adamw(rt, H100, 2e6)
    rt.host(700)


LLAMA = (4_096, 4_096, 4_096, 4_096, 11_008, 11_008, 4_096)
INT8 = "cutlass_80_tensorop_i16832gemm_s8_128x64_64x6_tn_align16"
GEMV = "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false, true, …>(…)"


def quantized(rt: Framed, fixed: bool) -> None:
    """LLaMA-7B writes on an A100, `load_in_8bit=True`: outliers are looked for in each product; without: fp16."""
    card, state = replace(A100, kind=HALF), [1, 1, 4_096]

    def weighed(wide: int, out: int) -> None:
        if fixed:
            rt.op("aten::linear", "aten::matmul", "aten::mm", gap=12, dims=([1, 1, wide], [out, wide]), kind=HALF,
                  run=((GEMV, card.moves(2 * wide * out)),))  # fmt: skip
            return
        rt.host(34)
        with rt.span("MatMul8bitLt", us=22, **{"Input Dims": [[1, 1, wide], [out, wide]], "Input type": [HALF] * 2}):
            with rt.span("bitsandbytes::int8_vectorwise_quant", us=12):
                for name in ("abs", "ge", "any"):
                    rt.op(f"aten::{name}", run=((kernel(name, 2), 2.4),), gap=4, us=5, dims=([1, wide],))
                rt.value("aten::is_nonzero")
                rt.work("void kInt8VectorQuant<__half, 1024, 1>(__half*, signed char*, float*, float, int, int)", 3.6)
            with rt.span("bitsandbytes::int8_scaled_mm", us=10):
                rt.work(INT8, card.moves(wide * out) * 1.25)
                rt.work("void kdequant_mm_int32_fp16<4, 512>(int*, float*, float*, __half*, __half*, int, int)", 3)
            rt.op("aten::index", run=((kernel("index", 2), 2.6),), gap=8, dims=([1, wide], [7]))
            rt.op("aten::mul", run=((kernel("mul", 3), 3.4),), gap=8, dims=([out, 7], [out, 1]))
            rt.op("aten::addmm", run=((GEMV, 4.2),), gap=6, us=8, dims=([1, out], [1, 7], [7, out]), kind=HALF)

    for _ in range(32):
        for name, count in (("pow", 1), ("mean", 1), ("rsqrt", 1), ("mul", 2)):
            for _ in range(count):
                rt.op(f"aten::{name}", run=((kernel(name, 2), 2.4),), gap=7, us=5, dims=(state,))
        for place, out in enumerate(LLAMA):
            weighed(11_008 if place == 6 else 4_096, out)
            if place == 2:
                for name in ("mul", "neg", "cat", "mul", "add", "cat", "cat"):
                    rt.op(f"aten::{name}", run=((kernel(name, 2), 2.8),), gap=8, us=5, dims=([1, 32, 1, 128],))
                sdpa(rt, card, [1, 32, 1, 128], 700)
            if place == 5:
                for name in ("silu", "mul"):
                    rt.op(f"aten::{name}", run=((kernel(name, 2), 2.3),), gap=7, us=5, dims=([1, 1, 11_008],))
    rt.op("aten::linear", "aten::matmul", "aten::mm", run=((GEMV, card.moves(2 * 4_096 * 32_000)),), gap=12)
    rt.op("aten::argmax", run=((REDUCE, 11),), dims=([1, 32_000],), gap=14)
    rt.value("aten::is_nonzero")
    rt.host(80)


LENGTHS = (1_180, 1_720, 1_410, 1_960, 1_250, 1_830)
ADA_LOW = Card(58, 250, BF16, AMPERE, FLASH)


def squeezed(rt: Framed, fixed: bool) -> None:
    """LoRA of 3 B on an L4 that is full, a length in each step: cached memory is freed again and again; without:
    segments that grow."""
    length, tape = LENGTHS[rt.number], Tape()
    rt.batch(2 * length * 8, 2 * length * 8, 2 * length * 8)

    def again() -> None:
        rt.call("Malloc", 800)  # it fails
        for _ in range(22):
            rt.call("Free", 1_050, until=max(rt.free.values()) + 30)
        rt.call("Malloc", 1_900)

    for layer in range(36):
        qwen(rt, tape, ADA_LOW, (2, length, 2_048, 2, 11_008), eager=False, liger=True)
        if not fixed and layer in (6, 17, 29):
            with rt.span("aten::empty", us=4):
                again()
    rt.op("aten::cat", run=((COPY, 9),), gap=10)
    small(rt, tape, ("log_softmax", "nll_loss", "div"), [2 * length, 32_000], 900)
    places = {len(tape) * part // 4 for part in (1, 2, 3)}
    with rt.backward():
        while tape:
            if not fixed and len(tape) in places:
                with rt.span("aten::empty_strided", us=4):
                    again()
            tape.pop()()
    foreach(rt, "_foreach_norm", "LpNormFunctor", 60)
    fused_adamw(rt, ADA_LOW, 5e6)
    rt.host(500)
