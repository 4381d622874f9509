"""What attention op by op takes, and what of it goes where it is fused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    Events,
    Ints,
    Links,
    Nesting,
    Price,
    RowMask,
    Saving,
    StepOps,
    Steps,
    Trace,
    backward_of,
    constant,
    edits,
)

from ..shared._roofline import saved_us, scaled

SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
# Least share of the softmax that fused attention saves.
_SOFTMAX_GOES = constant("share.softmax_goes").value
# Backward against forward time of what lies between attention's products.
_BACKWARD = constant("share.attention_backward").value


class Cost(Struct, frozen=True):
    """Time of attention op by op, µs of the profiled step: scores product, all, softmax, other ops between products."""

    scores_us: float
    forward_us: float
    softmax_us: float
    between_us: float
    backward_us: float
    softmax_backward_us: float
    between_backward_us: float

    @property
    def least(self) -> tuple[float, float]:
        """What goes at least, (in the forward pass, in the backward pass), µs."""
        again = self.scores_us if self.backward_us else 0.0
        behind = self.between_backward_us + _SOFTMAX_GOES * self.softmax_backward_us - again
        ahead = self.between_us + _SOFTMAX_GOES * self.softmax_us
        return max(ahead + min(behind, 0.0), 0.0), max(behind, 0.0)

    @property
    def most(self) -> tuple[float, float]:
        """What goes at most, (in the forward pass, in the backward pass), µs."""
        return self.between_us + self.softmax_us, self.between_backward_us + self.softmax_backward_us


class Around(Struct, frozen=True, eq=False):
    """What goes of a device's work besides: kernels of the products, with the share that stays, and whole ops."""

    products: Sequence[tuple[Ints, float]] = ()
    others: Ints = np.empty(0, np.int64)


_HOW = (
    "low: the ops between the multiplications disappear, but most of the softmax remains, and the backward pass "
    "recomputes the scores; high: everything between the multiplications disappears"
)
_ARITHMETIC = ", and these take what their arithmetic takes, as no scores are written or read"


def fused(
    cost: Cost, price: Price, claims: Sequence[str], found: Sequence[Ints] = (), around: Around | None = None
) -> Saving:
    """What fusing gives back of these parts of the step. found: the attentions, of which a device's step is replayed
    without what lies between their products, and `around` them.
    """
    inside = min(price.measured_us(claims) / max(cost.forward_us + cost.backward_us, 1e-9), 1.0)
    if price.on_device:
        return _fused_on_device(cost, price, (claims, inside), found, around or Around())
    deprofiled = price.deprofiled
    ends = []
    for ahead_us, behind_us in (cost.least, cost.most):
        # Long ops among short ones: the profiler slowed them as the others, or not at all.
        ends.append(
            [
                deprofiled.share(of("rest", ahead_us * inside) + of("backward", behind_us * inside))
                for of in (deprofiled.slowed_alike, deprofiled.in_part)
            ]
        )
    (least, _), (_, most) = ends
    slowed = sum(unslowed[1] - slowed[0] for slowed, unslowed in ends) / 2
    return price.shares(least[0], most[1], _HOW, slowed=slowed)


def _fused_on_device(
    cost: Cost, price: Price, held: tuple[Sequence[str], float], found: Sequence[Ints], around: Around
) -> Saving:
    """The step replayed without what lies between the products, and no more at least than the kernels tell.

    held: what is claimed, and the share of the attentions' time that these parts hold.
    """
    events, nesting, (claims, inside) = price.ops.events, price.ops.nesting, held
    ahead = np.concatenate([rows[1:-1] for rows in found])
    behind = backward_of(events, ahead)
    softmax = np.concatenate((_is_softmax(events, nesting, ahead), events.named("SoftmaxBackward")[behind]))
    every = np.concatenate((ahead, behind))
    others, products = [edits.remove(around.others)] if len(around.others) else [], scaled(around.products)
    softmaxes = np.concatenate((every[softmax], price.ops.launched(every[softmax])))
    least = [edits.remove(every[~softmax]), edits.scale(softmaxes, 1 - _SOFTMAX_GOES), *others]
    others_us = price.ops.device_us(around.others)
    least_us, most_us = (inside * sum(ends) + others_us for ends in (cost.least, cost.most))
    model_us = least_us, most_us + saved_us(price, around.products)
    how = _HOW + _ARITHMETIC * bool(products)
    saving = price.saving(least, [edits.remove(every), *others, *products], claims, how, model_us=model_us)
    return replace(saving, low_us=min(saving.low_us, price.scale.scaled(least_us)))


def _is_softmax(events: Events, nesting: Nesting, rows: Ints) -> RowMask:
    """Which of these outermost ops hold a softmax."""
    return np.isin(rows, nesting.outer_op[np.flatnonzero(events.exactly(*SOFTMAX))])


def cost_of(recorded: StepOps, found: Sequence[Ints], on_device: bool) -> Cost:
    """What these attentions take, µs per step."""
    trace, steps, nesting, links = recorded.trace, recorded.steps, recorded.nesting, recorded.links
    events = trace.events
    cost = _cost_ns(trace, nesting, links, found, on_device)
    ahead = np.concatenate([rows[1:-1] for rows in found])
    is_softmax = _is_softmax(events, nesting, ahead)
    longer = recorded.longer if on_device else 1.0
    softmax_us, between_us, scores_us, forward_us = (
        steps.per_step_us(float(cost[rows].sum())) * longer
        for rows in (ahead[is_softmax], ahead[~is_softmax], np.array([one[0] for one in found]), np.concatenate(found))
    )
    behind = None if on_device else _backward_us(trace, steps, nesting, links, found)
    if behind is None:
        share = _BACKWARD if events.named("SoftmaxBackward").any() else 0.0
        products_us = forward_us - softmax_us - between_us
        all_us = 2 * products_us * bool(share) + share * (softmax_us + between_us)
        behind = all_us, share * softmax_us, share * between_us
    return Cost(scores_us, forward_us, softmax_us, between_us, *behind)


def cost_of_plain(recorded: StepOps, rows: Ints) -> Cost:
    """What these calls of the plain form of `scaled_dot_product_attention` take on a CPU, µs per step."""
    events, nesting, spent = recorded.events, recorded.nesting, recorded.us
    inside = np.flatnonzero(np.isin(nesting.parent, rows))
    product, softmax = events.named("aten::matmul", "aten::bmm", "aten::baddbmm"), events.named("softmax")
    products = inside[product[inside]]
    scores = products[np.unique(nesting.parent[products], return_index=True)[1]]
    nodes = backward_of(events, rows)
    of_product, of_softmax = events.named("mmBackward")[nodes], softmax[nodes]

    return Cost(
        scores_us=spent(scores),
        forward_us=spent(rows),
        softmax_us=spent(inside[softmax[inside]]),
        between_us=spent(inside[~softmax[inside] & ~product[inside]]),
        backward_us=spent(nodes),
        softmax_backward_us=spent(nodes[of_softmax]),
        between_backward_us=spent(nodes[~of_softmax & ~of_product]),
    )


def _backward_us(
    trace: Trace, steps: Steps, nesting: Nesting, links: Links, found: Sequence[Ints]
) -> tuple[float, float, float] | None:
    """Backward nodes of the ops of these calls, µs per step: all, of softmax, of other ops that are no products.

    None where no op tells its sequence number.
    """
    events = trace.events
    mine = np.zeros(len(events), np.bool_)
    mine[np.concatenate(found)] = True
    inside = nesting.within(mine) & (events.sequence >= 0)
    nodes = events.named(AUTOGRAD_NODE) & (events.sequence >= 0) & links.inside
    if not inside.any() or not nodes.any():
        return None
    hit = nodes & np.isin(events.sequence, np.unique(events.sequence[inside]))
    softmax, product = events.named("SoftmaxBackward"), events.named("bmmBackward")
    every, of_softmax, between = (
        steps.per_step_us(float(events.dur_ns[rows].sum())) for rows in (hit, hit & softmax, hit & ~softmax & ~product)
    )
    return every, of_softmax, between


def _cost_ns(trace: Trace, nesting: Nesting, links: Links, found: Sequence[Ints], on_device: bool) -> Ints:
    """What each of these rows costs: the device time of what it launches, or its own time on a CPU."""
    events = trace.events
    if not on_device:
        return events.dur_ns
    mine = np.zeros(len(events), np.bool_)
    mine[np.concatenate(found)] = True
    work = np.flatnonzero(trace.device_work & (links.launch >= 0))
    row = nesting.ancestor(mine)[links.launch[work]]
    known = row >= 0
    return np.bincount(row[known], weights=events.dur_ns[work[known]], minlength=len(events)).astype(np.int64)
