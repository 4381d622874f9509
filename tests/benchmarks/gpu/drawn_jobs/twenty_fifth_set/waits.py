"""Jobs of the twenty-fifth set whose loop waits for the GPU: schedules that lie in numpy, a bar that reads values."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..eighteenth_set.rows import pinned
from ..eleventh_set.rows import Roofline, elementwise
from ..layers import Tape, attention, back, dense, norm
from ..sixteenth_set.rows import INDEX
from ..twelfth_set.pictures import A100 as TF32_LOOK
from ..twelfth_set.pictures import CUTLASS, TF32
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader
from ..twenty_fourth_set.rows import acts, few
from .rows import adam, averaged, clipped

LATENTS, TOKENS, WIDE, DEEP = 16, 64, 768, 12
ADA = Roofline(62, 860, "float", TF32, CUTLASS)
LATENT, TWICE = [LATENTS, 4, 32, 32], [LATENTS, 8, 32, 32]
WEIGHTS = [size for _ in range(DEEP) for size in (
    [3 * WIDE, WIDE], [3 * WIDE], [WIDE, WIDE], [WIDE], [4 * WIDE, WIDE], [4 * WIDE], [WIDE, 4 * WIDE], [WIDE],
    [6 * WIDE, WIDE], [6 * WIDE])] + [[WIDE, 16 * 4], [WIDE], [1_001, WIDE], [WIDE, 256], [WIDE, WIDE],
                                      [2 * WIDE, WIDE], [32 * 4, WIDE]]  # fmt: skip


def _extracted(rt: Framed, fixed: bool, times: int) -> None:
    """`_extract_into_tensor`: `th.from_numpy(arr).to(device=timesteps.device)[timesteps].float()`, or a buffer's."""
    for _ in range(times):
        rt.host(7)
        if not fixed:
            rt.moved(8_000, 2, [1_000], "double")
        rt.op("aten::index", run=((INDEX, 2.6),), dims=([1_000], [LATENTS]), gap=7, us=8)
        few(rt, "to add", [LATENTS, 1, 1, 1], 2.3)


def _adaptive(rt: Framed, tape: Tape) -> None:
    """A block of DiT: norms that are shifted and scaled by what the time says."""
    x, tokens = [LATENTS, TOKENS, WIDE], LATENTS * TOKENS
    acts(rt, tape, ADA, "silu", [LATENTS, WIDE])
    dense(rt, tape, ADA, LATENTS, (LATENTS, WIDE, 6 * WIDE))
    with rt.span("aten::chunk", us=6), rt.span("aten::split", us=4):
        pass
    norm(rt, tape, ADA, x)
    acts(rt, tape, ADA, "add", [LATENTS, 1, WIDE])
    acts(rt, tape, ADA, "mul add", x)
    dense(rt, tape, ADA, LATENTS, (tokens, WIDE, 3 * WIDE))
    attention(rt, tape, replace(ADA, tflops=36), [LATENTS, 12, TOKENS, 64])
    acts(rt, tape, ADA, "turn", x)
    dense(rt, tape, ADA, LATENTS, (tokens, WIDE, WIDE))
    acts(rt, tape, ADA, "mul add", x)
    norm(rt, tape, ADA, x)
    acts(rt, tape, ADA, "add", [LATENTS, 1, WIDE])
    acts(rt, tape, ADA, "mul add", x)
    dense(rt, tape, ADA, LATENTS, (tokens, WIDE, 4 * WIDE))
    acts(rt, tape, ADA, "gelu", [LATENTS, TOKENS, 4 * WIDE])
    dense(rt, tape, ADA, LATENTS, (tokens, 4 * WIDE, WIDE))
    acts(rt, tape, ADA, "mul add", x)


def dit(rt: Framed, fixed: bool) -> None:
    """DiT-B/4 from latents on disk on an RTX 4090, TF32, 16 a step: the diffusion's schedules lie in numpy, and each
    `_extract_into_tensor` copies one to the GPU from memory that is not pinned, which waits for all that is queued: 2
    times before the model and 12 times behind it, so that launches are never ahead; without: schedules are buffers on
    the GPU. AdamW and clipping by lists, the moving average parameter by parameter, the loss is read each 100th step.
    Shapes.

    First: waits in the loop (the small copies of the schedules). Not: the loader, the batch's copies, TF32, the
    optimizer; that launches bind the average comes second.
    """
    tape, x = Tape(), [LATENTS, TOKENS, WIDE]
    loader(rt, 150)
    pinned(rt, 4 * prod(LATENT), LATENT)
    pinned(rt, 8 * LATENTS, [LATENTS], "long int")
    few(rt, "randint", [LATENTS])
    few(rt, "randn_like", LATENT, 2.8)
    _extracted(rt, fixed, 2)
    few(rt, "mul mul add", LATENT, 3)
    few(rt, "mul exp mul cos sin cat", [LATENTS, 256])
    for wide in (256, WIDE):
        dense(rt, tape, ADA, LATENTS, (LATENTS, wide, WIDE))
    few(rt, "rand where", [LATENTS])
    acts(rt, tape, ADA, "silu embedding add", [LATENTS, WIDE])
    dense(rt, tape, ADA, LATENTS, (LATENTS * TOKENS, 64, WIDE))
    acts(rt, tape, ADA, "add", x)
    for _ in range(DEEP):
        _adaptive(rt, tape)
    norm(rt, tape, ADA, x)
    acts(rt, tape, ADA, "mul add", x)
    dense(rt, tape, ADA, LATENTS, (LATENTS * TOKENS, WIDE, 128))
    acts(rt, tape, ADA, "turn", TWICE)
    _extracted(rt, fixed, 4)  # q_posterior_mean_variance
    few(rt, "mul mul add", LATENT, 3)
    _extracted(rt, fixed, 2)  # _min_log, _max_log
    acts(rt, tape, ADA, "add div mul sub mul add", LATENT)
    _extracted(rt, fixed, 2)  # _predict_xstart_from_eps
    acts(rt, None, ADA, "mul mul sub", LATENT)
    _extracted(rt, fixed, 4)
    acts(rt, tape, ADA, "mul add sub exp pow mul add exp add scale mean", LATENT)
    acts(rt, tape, ADA, "tanh exp log sub log mean", LATENT)
    few(rt, "where where clamp", LATENT, 3)
    acts(rt, tape, ADA, "sub pow mean add mean", LATENT)
    back(rt, tape)
    clipped(rt, ADA, 130e6, 2)
    adam(rt, ADA, 130e6, parts=3)
    averaged(rt, ADA, WEIGHTS)
    few(rt, "add_", [1])
    rt.host(260)


MIXED, FRAMES, BOTTLE, HID = 3, 3_000, 128, 512
A100 = Roofline(60, 1_450, "float", TF32, ("", ""))
LOOK = Look(A100, TF32_LOOK.names)
ONE_WIDE = Look(A100, ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(…)",
                       "void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<3, 1, float, int>(…)",
                       "void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<float, int>(…)",
                       ))  # fmt: skip
PROFILED = "[pl][profile]"


class Dilated(Conv):
    """A convolution over time of each channel by itself."""

    @property
    def dims(self) -> tuple[list[int], list[int], list[int]]:
        """Input, weight, output."""
        x = [self.batch, self.cin, self.height, self.width]
        return (x, [self.cout, 1, 1, self.side], x)

    def us(self, card: Roofline) -> float:  # type: ignore[override]
        """By what it reads and writes."""
        return 1.5 * card.moves(2 * card.size * self.batch * self.width * self.cout)


def _global_norm(rt: Framed, tape: Tape, size: list[int]) -> None:
    """`GlobLN`: a norm over channels and time, op by op."""
    acts(rt, tape, A100, "mean sub pow mean", size)
    acts(rt, tape, A100, "add pow", [MIXED, 1, 1])
    acts(rt, tape, A100, "div mul add", size)


def _prelu(rt: Framed, tape: Tape, size: list[int]) -> None:
    elementwise(rt, tape, A100, "prelu", size, back=(("prelu_backward", 3), ("sum", 2)))


def _separated(rt: Framed, tape: Tape) -> None:
    """Conv-TasNet: an encoder, 24 blocks of dilated convolutions, masks, a decoder."""
    size = [MIXED, HID, FRAMES]
    conv(rt, tape, LOOK, Conv(MIXED, 1, HID, 4, 1, FRAMES))
    acts(rt, tape, A100, "relu", size)
    _global_norm(rt, tape, size)
    conv(rt, tape, LOOK, Conv(MIXED, HID, BOTTLE, 1, 1, FRAMES))
    for _ in range(24):
        conv(rt, tape, LOOK, Conv(MIXED, BOTTLE, HID, 1, 1, FRAMES))
        _prelu(rt, tape, size)
        _global_norm(rt, tape, size)
        conv(rt, tape, ONE_WIDE, Dilated(MIXED, HID, HID, 3, 1, FRAMES))
        _prelu(rt, tape, size)
        _global_norm(rt, tape, size)
        for _ in range(2):
            conv(rt, tape, LOOK, Conv(MIXED, HID, BOTTLE, 1, 1, FRAMES))
            acts(rt, tape, A100, "add", [MIXED, BOTTLE, FRAMES])
    _prelu(rt, tape, [MIXED, BOTTLE, FRAMES])
    conv(rt, tape, LOOK, Conv(MIXED, BOTTLE, 2 * HID, 1, 1, FRAMES))
    acts(rt, tape, A100, "relu mul", [MIXED, 2 * HID, FRAMES])
    conv(rt, tape, LOOK, Conv(2 * MIXED, HID, 1, 4, 1, FRAMES))
    for _ in range(4):  # of each estimate and each source
        acts(rt, tape, A100, "mul sum mul div sub pow sum add div log", [MIXED, 24_000])
    acts(rt, tape, A100, "stack mean min mean", [MIXED, 2])


def tasnet(rt: Framed, fixed: bool) -> None:
    """Conv-TasNet separates two voices by Asteroid and Lightning on an A100, TF32, three mixtures of 3 s: the loss is
    logged with `prog_bar=True`, so that the bar reads two values behind each batch (`refresh_rate=1` is the default);
    Lightning's hooks, the logger and the next batch come only then, and the GPU idles until launches reach it; without:
    a bar that is written each 50th batch. Clipping and Adam by lists. No shapes.

    First: values that are read in each step. Not: the loader, copies, launches, TF32, the optimizer.
    """
    tape = Tape()
    with rt.span(f"{PROFILED}[_TrainingEpochLoop].train_dataloader_next", "user_annotation", us=40):
        loader(rt, 170)
    with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.batch_to_device", "user_annotation", us=60):
        pinned(rt, 4 * MIXED * 24_000, [MIXED, 24_000])
        pinned(rt, 8 * MIXED * 24_000, [MIXED, 2, 24_000])
    for hook in ("[Callback]TQDMProgressBar.on_train_batch_start", "[LightningModule]System.on_train_batch_start"):
        with rt.span(PROFILED + hook, "user_annotation", us=55):
            pass
    with rt.span(f"{PROFILED}run_training_batch", "user_annotation", us=140):
        with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.training_step", "user_annotation", us=60):
            _separated(rt, tape)
        rt.host(240)  # self.log
        few(rt, "clone to mul add_", [1])
        with rt.span(f"{PROFILED}[Strategy]SingleDeviceStrategy.backward", "user_annotation", us=40):
            back(rt, tape)
        clipped(rt, A100, 5.1e6)
        adam(rt, A100, 5.1e6, "Adam", 1)
    rt.host(520)
    with rt.span(f"{PROFILED}[Callback]TQDMProgressBar.on_train_batch_end", "user_annotation", us=180):
        few(rt, "div", [1])
        for _ in range(0 if fixed else 2):
            rt.value()
            rt.host(50)
        rt.host(420)
    for hook, us in (("ModelCheckpoint.on_train_batch_end", 60), ("EarlyStopping.on_train_batch_end", 30)):
        with rt.span(f"{PROFILED}[Callback]{hook}", "user_annotation", us=us):
            pass
    rt.host(1_800)
