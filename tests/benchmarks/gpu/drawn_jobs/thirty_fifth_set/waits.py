"""Jobs of the thirty-fifth set whose loop waits for the GPU: distributions that check what they are given, rewards of
a simulated robot that are read term by term.
"""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import graphed
from ..eleventh_set.rows import FILL, Roofline, kernel, node
from ..fifteenth_set.rows import product
from ..layers import REDUCE, Tape, back
from ..thirty_first_set.rows import Told, small
from ..twelfth_set.pictures import TF32
from ..twelfth_set.rows import Framed
from ..twenty_fourth_set.rows import GATHER, NATIVE, acts, few

LINES, SHOPS, GOODS, WEEKS = 9_000_000, 2_300, 48_000, 156
V100 = Roofline(11, 770, "float", ("volta_sgemm_32x128_tn", "volta_sgemm_64x64_nn"), ("", ""))
TEST = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::CompareFunctor<float>, …>"
ALL = REDUCE.replace("sum", "and").replace("float", "bool")
SUMS = NATIVE + "indexFuncLargeIndex<float, long, unsigned int, 1, 1, -2, true, ReduceAdd>(…)"


def _checked(rt: Framed, fixed: bool, size: list[int], *, count: int = 1) -> None:
    """`if not constraint.check(value).all()`."""
    for _ in range(0 if fixed else count):
        rt.host(22)
        rt.op("aten::gt", run=((TEST, V100.moves(5 * prod(size))),), dims=(size,), gap=5)
        rt.op("aten::all", run=((ALL, V100.moves(prod(size))),), dims=(size,), kind="bool", gap=5)
        rt.value("aten::is_nonzero")


def _site(rt: Framed, tape: Tape, fixed: bool, size: list[int]) -> None:
    """What `AutoNormal` draws of a latent and says of it."""
    rt.host(120)
    acts(rt, tape, V100, "exp", size)
    few(rt, "expand expand", size)
    _checked(rt, fixed, size, count=2)  # place and scale
    rt.op(
        "aten::normal",
        "aten::normal_",
        dims=(size,),
        gap=8,
        run=((NATIVE + "distribution_elementwise_grid_stride_kernel<float, 4, …>(…)", V100.moves(5 * prod(size))),),
    )
    acts(rt, tape, V100, "mul add", size)
    rt.host(90)
    _checked(rt, fixed, size)  # its support, for the density
    acts(rt, tape, V100, "sub pow mul div sub log sub sum", size)


def _prior(rt: Framed, tape: Tape, fixed: bool, size: list[int]) -> None:
    """What the model says of it."""
    rt.host(110)
    few(rt, "expand", size)
    _checked(rt, fixed, [1], count=2)
    _checked(rt, fixed, size)
    acts(rt, tape, V100, "sub pow div sub sum", size)


def _by(rt: Framed, tape: Tape, groups: int) -> None:
    """`effect[group]` of each line; behind, sums by group."""
    size, us = [LINES], V100.moves(12 * LINES)
    number = rt.op("aten::index_select", run=((GATHER.replace("{k}", "float"), us),), dims=([groups], size), graph=True,
                   gap=9)  # fmt: skip

    def backward() -> None:
        with node(rt, "IndexSelectBackward0", number):
            rt.op("aten::new_zeros", "aten::zero_", "aten::fill_", run=((FILL, 2.2),), dims=([groups],), gap=2)
            rt.op("aten::index_add_", run=((SUMS, 2.4 * us),), dims=([groups], size, size), gap=2)

    tape.append(backward)


def sales(rt: Told, fixed: bool) -> None:
    """A model of nine million sales, by shop, good and week, is fitted by Pyro's SVI on a V100, as `AutoNormal` guesses
    it: `pyro.enable_validation` is on as it is by default, so that each distribution asks the GPU whether its
    parameters and values are allowed, some 90 waits in each forward pass; without:
    `pyro.enable_validation(False)`. All data lie on the GPU, `svi.step` returns the loss, which is read, the optimizer
    is Pyro's, parameter by parameter, there are no batches. Shapes, no rows of steps.

    First: waits of the checks (`validate_args`). Not: the read of the loss, precision (nothing but sums), a loader,
    copies, a larger batch; launches and the optimizer at most beside them.
    """
    tape, line = Tape(), [LINES]
    groups = (SHOPS, GOODS, WEEKS) * 3 + (12, 7, 64)
    rt.host(340)
    for size in (*(LINES,) * 3, *groups):
        _site(rt, tape, fixed, [size])
    for size in (*(LINES,) * 3, *groups):
        _prior(rt, tape, fixed, [size])
    for size in groups:
        _by(rt, tape, size)
        acts(rt, tape, V100, "mul add", line)
    acts(rt, tape, V100, "add exp", line)
    _checked(rt, fixed, [1])
    _checked(rt, fixed, line, count=2)
    acts(rt, tape, V100, "log lgamma lgamma lgamma mul mul add sub sub add scale sum", line)
    rt.host(200)
    small(rt, tape, V100, "add add add neg", [1])
    back(rt, tape)
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=60):
        for size in (*groups, *(LINES,) * 3) * 2:
            rt.host(26)
            for name, passes in (("lerp", 3), ("mul", 2), ("addcmul", 3), ("sqrt", 2), ("div", 2), ("add", 2),
                                 ("addcdiv", 4)):  # fmt: skip
                run = ((kernel(name, passes), V100.moves(4 * passes * size)),)
                rt.op(
                    f"aten::_foreach_{name}_",
                    run=run,
                    gap=3,
                    us=5,
                    **{"Input Dims": [[[size]]], "Input type": ["TensorList"]},
                )
    few(rt, "zeros_like", [1])
    rt.value()
    rt.host(120)


ROBOTS, SENSED, ACTED = 16_384, 235, 12
L40S = Roofline(70, 720, "float", TF32, ("", ""))
TERMS = ("sub square sum mul exp mul", "square sum mul", "sub square sum mul exp mul", "sub abs sum mul",
         "square sum sqrt mul", "lt mul sum mul", "sub square sum mul")  # fmt: skip
TILE = ("eval_kinematics_kernel_{}_cuda_kernel_forward", "collide_{}_cuda_kernel_forward",
        "solve_{}_cuda_kernel_forward", "integrate_{}_cuda_kernel_forward")  # fmt: skip


def _physics() -> list[tuple[str, float]]:
    """Four steps of 5 ms of Warp's solver."""
    step = [(TILE[0].format("8f2c"), 41.0), (TILE[1].format("b1a7"), 196.0), (TILE[1].format("c930"), 46.0)]
    step += [(TILE[2].format("4e55"), 52.0), (TILE[2].format("d71b"), 37.0)] * 8
    return [*step, (TILE[3].format("99e0"), 33.0)] * 4


def _rewarded(rt: Framed, fixed: bool) -> None:
    """22 terms of the reward; each one's mean goes to the log."""
    for number in range(22):
        rt.host(14)
        few(rt, TERMS[number % len(TERMS)], [ROBOTS, ACTED], 2.7, gap=5)
        few(rt, "add_ add_", [ROBOTS], 2.3, gap=4)
        few(rt, "mean", [ROBOTS], 2.9, gap=4)
        if fixed:
            few(rt, "copy_", [1], 2.1, gap=4)
            continue
        with rt.frame("legs/envs/rewards.py(88): log_term", "<method 'item' of 'torch._C.TensorBase' objects>"):
            rt.value()
        rt.host(4)


def _reset(rt: Framed) -> None:
    """Those that fell begin anew: everything by `torch.where`."""
    few(rt, "gt gt any bitwise_or ge bitwise_or", [ROBOTS], 2.4, gap=5)
    for size in ([ROBOTS, 13], [ROBOTS, ACTED], [ROBOTS, ACTED], [ROBOTS, 3], [ROBOTS, 4], [ROBOTS]):
        few(rt, "uniform_ mul add where", size, 2.7, gap=5)


def legged(rt: Told, fixed: bool) -> None:
    """A robot dog learns to climb in a simulation of its owner's own on an L40S, 16,384 at once: Warp's physics are one
    CUDA graph, resets are `torch.where`, and each of 22 terms of the reward writes its mean to a dictionary by
    `.item()`, so that the host waits for the physics and then for each term while nothing else is queued; without:
    means stay on the GPU until the log is written. The policy (512, 256, 128) runs in TF32. No batches come from the
    host. Stacks, no rows of steps: a step is a move of all robots.

    First: reads term by term (keep means on the GPU). Not: the physics, precision, copies, a loader, a larger batch,
    the policy; launches at most beside them.
    """
    with rt.frame("legs/envs/base.py(141): step"):
        rt.host(60)
        few(rt, "clamp mul add", [ROBOTS, ACTED], 2.6)
        with rt.frame("warp/context.py(7210): capture_launch"):
            graphed(rt, _physics(), 2)
        few(rt, "bmm sub mul index norm div", [ROBOTS, ACTED], 3.0, gap=5)
        with rt.frame("legs/envs/base.py(203): compute_reward"):
            _rewarded(rt, fixed)
        with rt.frame("legs/envs/base.py(266): reset_fallen"):
            _reset(rt)
        with rt.frame("legs/envs/base.py(301): compute_observations"):
            for _ in range(7):
                few(rt, "sub mul mul", [ROBOTS, 24], 2.6, gap=5)
            few(rt, "grid_sampler_2d sub clamp mul cat uniform_ mul add clamp", [ROBOTS, SENSED], 9.5)
    with rt.frame("legs/ppo/runner.py(74): act"):
        given = SENSED
        for out in (512, 256, 128, ACTED):
            product(rt, L40S, [ROBOTS, given], out, gap=7)
            acts(rt, None, L40S, "elu" if out > ACTED else "add", [ROBOTS, out], gap=5)
            given = out
        given = SENSED
        for out in (512, 256, 128, 1):
            product(rt, L40S, [ROBOTS, given], out, gap=7)
            acts(rt, None, L40S, "elu" if out > 1 else "add", [ROBOTS, out], gap=5)
            given = out
        few(rt, "normal_ mul add sub pow div sub sum", [ROBOTS, ACTED], 2.6)
        few(rt, "copy_ copy_ copy_ copy_ copy_ copy_", [ROBOTS, SENSED], 4.2, gap=5)
    rt.host(40)
