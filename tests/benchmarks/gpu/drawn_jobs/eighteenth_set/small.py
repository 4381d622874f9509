"""Jobs of the eighteenth set whose fault is between small works: lengths that are asked for, features one by one."""

from __future__ import annotations

from math import prod

from ..eleventh_set.language import fused_norm
from ..eleventh_set.rows import COPY, elementwise, foreach, kernel, linear, node
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, back, fused_adamw
from ..seventeenth_set.host import L40S
from ..seventeenth_set.rows import compiled_loss
from ..seventh_set import BF16
from ..twelfth_set.language import A100
from ..twelfth_set.pictures import XMMA, looked_for, small
from ..twelfth_set.rows import Framed, loader
from .rows import Remembered, casts, conformer, ctc, on_host, pinned

LAYERS, BATCH, LONGEST, WIDE, HIDDEN = 24, 4, 640, 896, 4_864
VARLEN = ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, …>>",
          "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, …>>",
          )  # fmt: skip
GATHERED = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"


def _unpadded(rt: Framed) -> None:
    """`_get_unpad_data(attention_mask)`: which tokens there are, and how long the longest text is."""
    rt.op("aten::sum", run=((REDUCE, 4.2),), dims=([BATCH, LONGEST],), kind="int", gap=22)
    small(rt, None, ("flatten",), [BATCH * LONGEST], 2.2)
    looked_for(rt, "ne", [BATCH * LONGEST])
    rt.op("aten::max", run=((REDUCE, 3.4),), dims=([BATCH],), kind="int", gap=12)
    rt.value()
    rt.op("aten::cumsum", run=(("void at_cuda_detail::cub::DeviceScanKernel<…>", 4.1),), dims=([BATCH],), gap=14)
    rt.op("aten::constant_pad_nd", run=((COPY, 2.3),), dims=([BATCH],), kind="int", gap=14)


def _attended(rt: Framed, tape: Tape, card: Card, tokens: int, fixed: bool) -> None:
    """flash-attn's function for texts without their padding."""
    if not fixed:
        _unpadded(rt)
    for heads in (14, 2, 2):
        rt.op("aten::index", "aten::index_select", run=((GATHERED, card.moves(4 * tokens * 64 * heads)),), gap=16,
              dims=([BATCH * LONGEST, heads * 64], [tokens]), kind=BF16)  # fmt: skip
    us = card.product(14 * tokens, tokens // BATCH, 128) / 1.1
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with (rt.span("FlashAttnVarlenFunc", us=26, **args, **inputs(([tokens, 14, 64],) * 3, BF16)),
          rt.span("flash_attn::_flash_attn_varlen_forward", us=30)):  # fmt: skip
        rt.work(VARLEN[0], us)

    def backward() -> None:
        with node(rt, "FlashAttnVarlenFuncBackward", number), rt.span("flash_attn::_flash_attn_varlen_backward", us=30):
            for name, lasts in ((VARLEN[1].replace("dq_dk_dv_loop_seqk_parallel", "dot_do_o"), 0.2 * us),
                                (VARLEN[1], 2.5 * us), (VARLEN[1].replace("dq_dk_dv_loop_seqk_parallel", "convert_dq"),
                                                        0.2 * us)):  # fmt: skip
                rt.work(name, lasts)

    tape.append(backward)
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((COPY, card.moves(2 * BATCH * LONGEST * WIDE)),), gap=10)
    rt.op("aten::index_put_", run=((GATHERED, card.moves(4 * tokens * WIDE)),), gap=16, kind=BF16,
          dims=([BATCH * LONGEST, WIDE], [tokens]))  # fmt: skip


def unpadded(rt: Remembered, fixed: bool) -> None:
    """Qwen2.5-0.5B with FlashAttention on an L40S, 4 answers of up to 640 tokens with padding: each of 24 layers looks
    for the tokens that are there and reads how long the longest text is, as transformers did until 4.43, with two waits
    a layer; without: once a step. Rows of memory, none of steps.
    """
    tape, card, x = Tape(), L40S, [BATCH, LONGEST, WIDE]
    tokens = (1_910, 2_160, 1_780, 2_020, 1_690)[rt.number % 5]
    loader(rt, 180)
    for _ in range(3):
        pinned(rt, BATCH * LONGEST * 8, [BATCH, LONGEST], "long int")
    if fixed:
        _unpadded(rt)
    for _ in range(LAYERS):
        fused_norm(rt, tape, card, x)
        for out in (WIDE, 128, 128):
            linear(rt, tape, card, x, out)
        for heads in (14, 2):
            for name in ("mul", "cat", "mul", "add"):
                elementwise(rt, tape, card, name, [BATCH, heads, LONGEST, 64], 2,
                            () if name in ("add", "cat") else ((name, 3),))  # fmt: skip
        _attended(rt, tape, card, tokens, fixed)
        linear(rt, tape, card, x, WIDE)
        elementwise(rt, tape, card, "add", x, 2)
        fused_norm(rt, tape, card, x)
        for _ in range(2):
            linear(rt, tape, card, x, HIDDEN)
        elementwise(rt, tape, card, "silu", [BATCH, LONGEST, HIDDEN], back=(("silu_backward", 3),))
        elementwise(rt, tape, card, "mul", [BATCH, LONGEST, HIDDEN], 2, (("mul", 3), ("mul", 3)))
        linear(rt, tape, card, [BATCH, LONGEST, HIDDEN], WIDE)
        elementwise(rt, tape, card, "add", x, 2)
    fused_norm(rt, tape, card, x)
    linear(rt, tape, card, x, 151_936)
    compiled_loss(rt, tape, card, BATCH * LONGEST, 151_936)
    back(rt, tape)
    rt.freed(len(rt.taken))
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(2 * 0.494e9), 2)
    fused_adamw(rt, card, 0.494e9 / 4)
    rt.host(260)


SECONDS = ((17.6, 0.62), (12.1, 0.71), (9.4, 0.8), (14.8, 0.66), (16.2, 0.6))  # the longest, and means by it
VOICES, RATE = 24, 100
BANKS = (("arange", 4), ("mul", 5), ("add", 5), ("div", 6), ("log", 12), ("mul", 6), ("sub", 9), ("div", 9),
         ("sub", 9), ("div", 9), ("min", 14), ("max", 12), ("pad", 9))  # fmt: skip
FRAMED = (("as_strided", 0), ("randn", 3), ("add", 5), ("mean", 4), ("sub", 5), ("pad", 5), ("mul", 4), ("sub", 5),
          ("mul", 5), ("pad", 5), ("fft_rfft", 9), ("abs", 5), ("pow", 4), ("mm", 7), ("max", 3), ("log", 3),
          ("mean", 4), ("sub", 3), ("copy_", 3))  # fmt: skip
FFT = "void regular_fft<512u, EPT<8u>, 8u, 4u, padding_t(1), twiddle_t(0), loadstore_modifier_t(2), …>(kernel_arg_t<…>)"


def _features(rt: Framed, samples: int) -> None:
    """`torchaudio.compliance.kaldi.fbank` of a wave on the GPU: filters are made on the host anew, and moved."""
    frames = samples // 160
    rt.host(95)
    for name, us in FRAMED:
        if name == "mm":
            for bank, lasts in BANKS:
                on_host(rt, f"aten::{bank}", lasts, [80, 257])
            rt.moved(80 * 257 * 4, 1.4, [80, 257])
        if us:
            run = ((FFT if name == "fft_rfft" else kernel(name, 2), us * max(1, frames / 1_200)),)
            rt.op(f"aten::{name}", run=run, dims=([frames, 512],), gap=15, us=6)
        else:
            rt.op(f"aten::{name}", dims=([samples],), gap=15, us=4)


def _waves(step: int) -> list[int]:
    longest, by = SECONDS[step % len(SECONDS)]
    return [round(16_000 * longest * (1 - (1 - by) * 2 * place / (VOICES - 1))) for place in range(VOICES)]


def fbanks(rt: Framed, fixed: bool) -> None:
    """A Conformer of 17 layers with CTC on an A100, waves of 3 to 18 s: features are computed on the GPU in the loop,
    wave by wave, 460 small works with a wait for each wave's filters; without: workers hand features over. What a step
    takes follows the longest wave, by a factor of 1.7. No shapes.
    """
    tape, card, waves = Tape(), A100, _waves(rt.number)
    frames = waves[0] // 160
    x = [VOICES, frames // 4, 512]
    loader(rt, 210)
    if fixed:
        pinned(rt, VOICES * frames * 80 * 4, [VOICES, frames, 80])
    else:
        for samples in waves:
            pinned(rt, samples * 4, [1, samples])
            _features(rt, samples)
        rt.op("aten::pad_sequence", run=((COPY, card.moves(8 * VOICES * frames * 80)),), gap=30,
              dims=([frames, 80],))  # fmt: skip
    for cin, size in ((1, [VOICES, 256, frames // 2, 40]), (256, [VOICES, 256, frames // 4, 20])):
        us = max(2 * prod(size) * cin * 9 / card.tflops / 1e6, card.moves(2 * prod(size)))
        rt.op("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=24, kind=BF16,
              run=((XMMA.format("fprop", "bf16bf16_bf16f32_f32", 16), us),),
              dims=([VOICES, cin, size[2] * 2, size[3] * 2], [256, cin, 3, 3]))  # fmt: skip
        elementwise(rt, tape, card, "relu", size, back=(("threshold_backward", 3),))
    casts(rt, card, [512, 5_120], [1_024, 512])
    linear(rt, tape, card, [VOICES, frames // 4, 5_120], 512)
    for _ in range(17):
        conformer(rt, tape, card, x)
    linear(rt, tape, card, x, 1_024)
    ctc(rt, tape, card, (x[1], VOICES, 1_024), 90)
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * 120e6), 2)
    fused_adamw(rt, card, 120e6)
    rt.host(300)
