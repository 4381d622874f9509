"""Loops over lists of tensors beside a device, as weight averages and clipping by hand are, told by their ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import Finding, Fix, Ints, KernelWork, Lines, Price, RankRecord, SampledLoops, duration

from ..cheaper_equivalents._positions_on_device import ToldPositions
from ..shared._listed import as_lists
from ..shared._op_loops import OpLoop, op_loops
from ..shared._words import each_step, often

_AVERAGE = Fix(
    "Update all tensors at once, as `torch._foreach_lerp_` does",
    "numerics",
    "for average, p in zip(ema.parameters(), model.parameters()):\n    average.mul_(decay).add_(p, alpha=1 - decay)",
    "torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)",
)
# What averages are made of; differences and quotients are something else.
_IN_AVERAGES = ("mul", "add", "lerp", "copy")
# Ops that have a form for lists, as in torch 2.14.
_FOR_LISTS = {
    "add": "torch._foreach_add",
    "sub": "torch._foreach_sub",
    "mul": "torch._foreach_mul",
    "div": "torch._foreach_div",
    "lerp": "torch._foreach_lerp",
    "addcmul": "torch._foreach_addcmul",
    "addcdiv": "torch._foreach_addcdiv",
    "neg": "torch._foreach_neg",
    "pow": "torch._foreach_pow",
    "sqrt": "torch._foreach_sqrt",
    "abs": "torch._foreach_abs",
}
_NORMS = Fix(
    "Compute all norms at once",
    "numerics",
    "norms = [p.grad.norm() for p in model.parameters()]",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, foreach=True)\n"
    "# the norms alone: torch._foreach_norm([p.grad for p in model.parameters()])",
)


class Priced(Struct, frozen=True, eq=False):
    """The price of what goes, what the device does for what stays, and loops that only samples of the stack show.

    positions: loops that `recurrent-positions` tells
    """

    price: Price
    work: KernelWork | None
    sampled: SampledLoops | None
    record: RankRecord | None
    positions: ToldPositions

    @classmethod
    def compute(
        cls,
        price: Price,
        work: KernelWork | None,
        sampled: SampledLoops | None,
        record: RankRecord | None,
        positions: ToldPositions,
    ) -> Priced:
        """All of them, of a trace and its run."""
        return cls(price, work, sampled, record, positions)


def over_tensors(priced: Priced, lines: Lines, seen: Ints, min_share: float) -> Iterator[Finding]:
    """What the device does for them, and waits for meanwhile; the costliest first. Small parts count together.

    seen: rows of loops that are known already.
    """
    price, work = priced.price, priced.work
    found = [loop for loop in op_loops(price) if not np.isin(loop.rows, seen).any()]
    loops = [(loop, as_lists(price, work, loop.rows, loop.runs * len(loop.ops), _passes(loop))) for loop in found]
    steps, scale = price.ops.steps, price.scale
    if sum(listed.most_us for _, listed in loops) < min_share * steps.step_us:
        return
    for loop, listed in sorted(loops, key=lambda one: -one[1].most_us):
        how = "high: as ops on lists, at the memory's rate; low: nothing, as other work may hide the loop"
        saving = listed.saving(price, how)
        if saving.high_us < min_share / len(loops) * scale.step_us:
            continue
        where = lines.where_op(int(loop.rows[0]))
        took_us = price.ops.us(price.ops.launched(loop.rows))
        yield Finding(
            message=(
                f"A loop runs {_named(loop)} {often(loop.times)}, tensor by tensor: the GPU spends "
                f"{each_step(price, took_us)} on these small kernels, "
                f"and waits {duration(scale.scaled(listed.waited_us))} between them."
            ),
            saving=saving,
            where=(where,) if where else (),
            facts={"times": loop.times, "ops": list(loop.ops), "kernels_us": took_us, "waited_us": listed.waited_us},
            fix=_fix(loop),
            claims=listed.claims,
            at_most="medium",
        )


def _passes(loop: OpLoop) -> float:
    """`lerp_` reads two lists and writes one, where `mul_` and `add_` read three and write two."""
    return 3 / 5 if loop.ops == ("add_", "mul_") else 1.0


def _fix(loop: OpLoop) -> Fix:
    names = [op.removesuffix("_") for op in loop.ops]
    if loop.of_norms:
        return _NORMS
    if set(names) <= set(_IN_AVERAGES):
        return _AVERAGE
    known = [f"`{_FOR_LISTS[name]}`" for name in names if name in _FOR_LISTS]
    by = f", by {' and '.join(known)}" if known else ""
    return Fix(
        f"Compute all tensors at once{by}",
        "numerics",
        "stepped = [w - rate * g for w, g in zip(weights, gradients)]",
        "stepped = torch._foreach_sub(weights, torch._foreach_mul(gradients, rate))  # lists of tensors",
    )


def _named(loop: OpLoop) -> str:
    """ "`add_` and `mul_`"."""
    *most, last = (f"`{op}`" for op in loop.ops)
    return f"{', '.join(most)} and {last}" if most else last
