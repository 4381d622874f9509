"""Jobs of the twentieth set whose host is too slow or waits: graphs that were skipped, distributions that check."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import graphed, pinned
from ..eleventh_set.rows import elementwise, foreach, kernel, node
from ..layers import REDUCE, Tape, back, fused_adamw
from ..seventeenth_set.rows import triton
from ..seventh_set import BF16
from ..tenth_set.jobs import FLASH, H100, MI300X
from ..twelfth_set.pictures import small
from ..twelfth_set.rows import Conv, Framed, Look, conv, loader

LAYERS, WIDE, TEXTS, LENGTH = 8, 384, 64, 48
Parts = list[tuple[str, float]]


def _policy() -> tuple[Parts, Parts]:
    """Kernels of a compiled policy with a Transformer over 48 steps, forward and backward."""
    rows = TEXTS * LENGTH
    once = H100.moves(2 * rows * WIDE)
    ahead: Parts = [("triton_poi_fused_add_cat_embedding_0", 3 * once)]
    for _ in range(LAYERS):
        ahead += [("triton_per_fused_native_layer_norm_1", 3.1), (H100.names[0], 7.4), (FLASH[0], 8.6),
                  (H100.names[0], 5.1), ("triton_per_fused_add_native_layer_norm_2", 3.6), (H100.names[0], 8.8),
                  ("triton_poi_fused_gelu_3", 3.4), (H100.names[0], 9.2)]  # fmt: skip
    ahead += [("triton_per_fused_native_layer_norm_4", 3.0), (H100.names[0], 4.9),
              ("triton_red_fused_mse_loss_5", 4.1), ("triton_poi_fused_add_copy__mul_6", 2.3)]  # fmt: skip
    behind: Parts = []
    for name, us in reversed(ahead):
        if name == H100.names[0]:
            behind += [(H100.names[1], us), (H100.names[1], us), ("triton_red_fused_sum_7", 2.9)]
        elif name == FLASH[0]:
            behind += [(FLASH[1], 2.2 * us)]
        else:
            behind.append((name.replace("_fused_", "_fused_backward_"), 1.5 * us))
    return ahead, behind


def _called(rt: Framed, parts: Parts) -> None:
    """Inductor's code calls kernel by kernel."""
    for name, us in parts:
        if name.startswith("triton"):
            rt.host(7)
            triton(rt, name, us)
        elif "flash" in name:
            way = "backward" if "bwd" in name else "forward"
            outer = "aten::_scaled_dot_product_flash_attention" + "_backward" * (way == "backward")
            rt.op(outer, f"aten::_flash_attention_{way}", run=((name, us),), gap=5, us=9)
        else:
            rt.op("aten::mm", run=((name, us),), gap=5, us=6, kind=BF16)


def skipped(rt: Framed, fixed: bool) -> None:
    """A diffusion policy for a robot on an H100, compiled with `mode="reduce-overhead"`: its statistics are updated in
    place and handed over as arguments, so that PyTorch said once "skipping cudagraphs due to mutated inputs (2
    instances)" and launches some 200 kernels one by one, most shorter than their launch; without: they are buffers, a
    graph forward, a graph backward. The optimizer is fused. No rows of steps.

    First: launches, by CUDA graphs (what the mode was to give). Not: a loader, waits, the batch by itself, recompiles,
    breaks of the graph.
    """
    ahead, behind = _policy()
    loader(rt, 90)
    for dims in ([TEXTS, LENGTH, 14], [TEXTS, LENGTH, 10], [TEXTS, 512]):
        pinned(rt, 4 * prod(dims), dims)
    small(rt, None, ("randn", "randint", "mul", "mul", "add"), [TEXTS, LENGTH, 10], 2.4)
    with rt.span("TorchDynamo Cache Lookup", us=22):
        pass
    rt.sequence += 1
    args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
    with (rt.span("Torch-Compiled Region: 0/0", us=70), rt.span("CompiledFunction", us=60, **args),
          rt.span("## Call CompiledFxGraph fk2m7zq9c ##", "user_annotation", us=18)):  # fmt: skip
        if fixed:
            graphed(rt, ahead, 2)
        else:
            _called(rt, ahead)
    with (rt.backward(), node(rt, "CompiledFunctionBackward", rt.sequence),
          rt.span("## Call CompiledFxGraph fp4wd0x6h ##", "user_annotation", us=18)):  # fmt: skip
        if fixed:
            graphed(rt, behind, 3)
        else:
            _called(rt, behind)
    fused_adamw(rt, H100, 16e6)
    rt.host(90)


MIOPEN = tuple(
    f"void ck::kernel_grouped_conv_{way}_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleD_xdl_cshuffle<…>>(…)"
    for way in ("fwd", "bwd_data", "bwd_weight")
)
PICTURES, GROUPS = 48, ((8, 512, 6), (16, 384, 8), (32, 256, 10), (64, 128, 8))
CONVOLVES = Look(MI300X, MIOPEN, "MIOpenBatchNorm{}TrainSpatial", False)  # type: ignore[arg-type]


def _checked(rt: Framed, fixed: bool, dims: list[int]) -> None:
    """`Normal(loc, scale)`: both are looked at, and the host waits for each."""
    us = MI300X.moves(3 * prod(dims))
    rt.host(14)
    for names in () if fixed else (("eq",), ("gt",)):
        small(rt, None, names, dims, us)
        rt.op("aten::all", run=((REDUCE, max(4.0, us / 2)),), gap=6, dims=(dims,))
        rt.value("aten::is_nonzero")


def _group(rt: Framed, tape: Tape, fixed: bool, dims: list[int]) -> None:
    """A group of latents: blocks to the prior and the posterior, a sample, their divergence, a block behind."""
    batch, width, high, _ = dims
    for blocks in (2, 2):
        for _ in range(blocks):
            elementwise(rt, tape, MI300X, "silu", dims, back=(("silu_backward", 3),))
            conv(rt, tape, CONVOLVES, Conv(batch, width, width, 3, high, high))
        conv(rt, tape, CONVOLVES, Conv(batch, width, 40, 1, high, high))
    latent = [batch, 20, high, high]
    us = MI300X.moves(6 * prod(latent))
    for _ in range(2):
        small(rt, tape, ("clamp", "exp"), latent, us)
        _checked(rt, fixed, latent)
    small(rt, tape, ("normal", "mul", "add"), latent, us)
    small(rt, tape, ("div", "pow", "sub", "pow", "add", "log", "sub", "mul", "sum"), latent, us)
    conv(rt, tape, CONVOLVES, Conv(batch, 20, width, 1, high, high))
    elementwise(rt, tape, MI300X, "add", dims, 2)


def ladder(rt: Framed, fixed: bool) -> None:
    """A hierarchical VAE of 32 groups in bf16 on an MI300X, 48 pictures: each group makes two `Normal`s, which check
    `loc` and `scale` as they do by default, and the host waits for each of the four values, 128 a step, in the forward
    pass; without: `validate_args=False`. The optimizer is fused, gradients' norm stays there. Shapes.

    First: waits in the loop, by where they come from (`aten::is_nonzero` under distributions). Not: a loader, a read of
    the loss each N steps, the batch, TF32.
    """
    tape: Tape = []
    loader(rt, 150)
    pinned(rt, PICTURES * 3 * 64**2, [PICTURES, 3, 64, 64], "unsigned char")
    small(rt, None, ("to", "div", "sub"), [PICTURES, 3, 64, 64], 4)
    for high, width, groups in reversed(GROUPS):
        for _ in range(groups):
            dims = [PICTURES, width, high, high]
            elementwise(rt, tape, MI300X, "silu", dims, back=(("silu_backward", 3),))
            conv(rt, tape, CONVOLVES, Conv(PICTURES, width, width, 3, high, high))
    for high, width, groups in GROUPS:
        for _ in range(groups):
            _group(rt, tape, fixed, [PICTURES, width, high, high])
        small(rt, tape, ("upsample_nearest2d",), [PICTURES, width, 2 * high, 2 * high], 24)
    number = rt.op("aten::mean", run=((REDUCE, 9),), dims=([PICTURES, 100, 64, 64],), graph=True)
    tape.append(lambda: rt.grad("MeanBackward0", number, run=((kernel("div", 2), 6),)))
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", MI300X.moves(2 * 160e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", MI300X.moves(4 * 160e6), 2)
    fused_adamw(rt, MI300X, 160e6 / 2)
    rt.host(350)
