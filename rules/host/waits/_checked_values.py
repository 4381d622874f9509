"""Values that are only checked: arguments of distributions, and conditions that a script asks the GPU for.

Where each line is documented:

- torch.distributions.distribution.Distribution (`validate_args`, `set_default_validate_args`). What is checked, and in
  which order: torch/distributions/distribution.py, Distribution.__init__ and _validate_sample; by which ops:
  torch/distributions/constraints.py. `_is_all_true` is what it asks by; versions before asked by `all`.
- torch._assert_async: aten/src/ATen/native/TensorCompare.cpp, and its kernel in cuda/TensorCompare.cu, which asserts.
"""

from __future__ import annotations

import json

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from advisor.api import (
    D2H_PAGEABLE,
    ELEMENTWISE,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Fix,
    Ints,
    Price,
    RowMask,
    SyncSite,
    draw,
    edits,
    starts_in,
)

from ...shared._examples import op
from ...shared._listed import idle_before
from ._waits import READS, Wait


def _aten(names: str) -> tuple[str, ...]:
    return tuple(f"aten::{name}" for name in names.split())


_OF_TORCH = "aten::_is_all_true"
_ASKS = (_OF_TORCH, *_aten("all any _is_any_true"))
_ORDERS = _aten("ge gt le lt")
_COMPARES = (*_ORDERS, *_aten("eq ne isfinite isnan isinf"))
# How constraints, and conditions, join what they have found.
_JOINS = _aten("logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not __and__ __or__ reshape all any")
# These ask whether one number is valid, or read the answer themselves.
_VALID, _READ_THEMSELVES = _aten("isfinite isnan isinf"), _aten("equal allclose")
_FRAMES = "torch/distributions/"
# The device needs a µs or two between two kernels that are queued: with fewer kernels that goes as well.
_QUEUED = "idle_unknown"

UNCHECKED = Fix(
    "Turn off the checks of distributions' arguments once the script works: `validate_args=False`",
    "exact",
    "for batch in loader:\n    loss = -Normal(mean, scale).log_prob(target).mean()",
    "torch.distributions.Distribution.set_default_validate_args(False)  # once, at the start\n\n"
    "for batch in loader:\n    loss = -Normal(mean, scale).log_prob(target).mean()",
)
_SELDOM = Fix(
    "Check in every hundredth step, or on the device, where the host reads no answer",
    "semantics",
    "if not torch.isfinite(x).all():\n    raise ValueError(x)",
    "if step % 100 == 0 and not torch.isfinite(x).all():\n    raise ValueError(x)\n"
    "# or in each step: torch._assert_async(torch.isfinite(x).all())\n"
    "# arguments of distributions: torch.distributions.Distribution.set_default_validate_args(False)",
)
OF_CHECKS = (UNCHECKED, _SELDOM)


def checked(site: SyncSite, price: Price) -> Fix | None:
    """The change for reads that only tell whether values are valid; None where most of them read something else."""
    events, outer = price.ops.events, price.ops.outermost
    at = _reads(site, price)
    if not len(at):
        return None
    checks = _checks(events, outer)[at]
    if 2 * int(checks.sum()) <= len(site.rows):
        return None
    return UNCHECKED if 2 * int(_of_distributions(events, outer, at[checks]).sum()) > int(checks.sum()) else _SELDOM


def without_checks(wait: Wait, price: Price) -> Wait:
    """The wait, priced with the ops whose result goes to the read alone: a check that goes takes them along.

    A comparison may be used elsewhere, too: they are part of the high end.
    """
    ops = _asked_by(wait.site, price)
    kernels = price.ops.launched(ops)
    if not len(kernels):
        return wait
    of_device_us = price.ops.us(kernels) + price.breakdown.us_in("idle_unknown", idle_before(price, kernels, _QUEUED))
    waits_us = wait.saving.high_us * price.ops.steps.step_us / price.scale.step_us
    gone = [edits.unsync(np.array(wait.site.rows, int)), edits.remove(ops)]
    how = f"{wait.saving.how}, and without the ops that compute what is read"
    # What most of it is comes first.
    parts = (*wait.claims, _QUEUED), ("compute", "exposed_copy")
    claims = tuple(dict.fromkeys((*parts[of_device_us > waits_us], *parts[of_device_us <= waits_us])))
    bound_us = waits_us + of_device_us
    found = price.saving([], gone, claims, how, model_us=(0.0, bound_us), bound_us=bound_us)
    saving = replace(found, low_us=wait.saving.low_us, high_us=max(found.high_us, wait.saving.high_us))
    return structs.replace(wait, saving=saving, claims=claims, checks_us=price.ops.us(kernels))


def _reads(site: SyncSite, price: Price) -> Ints:
    """Places of these reads among the outermost ops; none where they are no reads of values."""
    outer = price.ops.outermost
    if site.op not in READS or not len(outer):
        return outer[:0]
    rows = price.ops.nesting.outer_op[np.array(site.rows, int)].astype(np.int64)
    at = np.searchsorted(outer, rows)
    found: Ints = at[(at < len(outer)) & (outer[np.minimum(at, len(outer) - 1)] == rows)]
    return found


def _asked_by(site: SyncSite, price: Price) -> Ints:
    """The checks among these reads, with the comparisons and what joins them directly before each."""
    events, outer, at = price.ops.events, price.ops.outermost, _reads(site, price)
    at = at[_checks(events, outer)[at]] if len(at) else at
    before = events.exactly(*_ASKS, *_COMPARES, *_JOINS)[outer]
    mine = np.zeros(len(outer), bool)
    mine[at] = True
    while (more := np.append(mine[1:], False) & before & ~mine).any():
        mine |= more
    found: Ints = outer[mine]
    return found


def _checks(events: Events, outer: Ints) -> RowMask:
    """Which of these ops read whether a comparison holds, for all of its elements or for any."""
    torch, asks, compares, joins, valid, themselves = (
        events.exactly(*names)[outer] for names in ((_OF_TORCH,), _ASKS, _COMPARES, _JOINS, _VALID, _READ_THEMSELVES)
    )
    while (more := joins & _before(compares) & ~compares).any():
        compares |= more
    found: RowMask = themselves | _before(valid | torch | (asks & _before(compares)))
    return found


def _before(found: RowMask) -> RowMask:
    """Which places have one of these directly before them."""
    return np.concatenate(([False], found[:-1]))


def _of_distributions(events: Events, outer: Ints, at: Ints) -> RowMask:
    """Which of these checks are those of torch.distributions.

    It asks by an op of its own, or in its frames. Else a mean is real, as it equals itself, and the next thing that is
    checked is whether a scale is positive: both by the same loop, with no other op between.
    """
    frames = np.flatnonzero(events.of(Category.PYTHON) & events.named(_FRAMES))
    within = starts_in(events.start_ns[outer[at]], events.covered(frames))
    own = events.exactly(_OF_TORCH)[outer[np.maximum(at - 1, 0)]]
    asked = np.maximum(at - 2, 0)
    real = events.exactly("aten::eq")[outer[asked]]
    real &= np.array([_may_be_itself(events, row) for row in outer[asked].tolist()], np.bool_)
    orders = events.exactly(*_ORDERS)[outer[asked]]
    after = np.concatenate((np.diff(at) == _LONG, [False]))[: len(at)]
    pair = real & after & np.append(orders[1:], False)
    found: RowMask = within | own | pair | _before(pair)
    return found


# A check has a comparison, a question and a read.
_LONG = 3


def _may_be_itself(events: Events, row: int) -> bool:
    """Whether an op may compare a tensor with itself: with one of its shape, as far as both are recorded."""
    dims = int(events.dims[row])
    try:
        shapes = json.loads(events.dims_table[dims]) if dims >= 0 else []
    except ValueError:
        return False
    return not isinstance(shapes, list) or len(shapes) != 2 or shapes[0] == shapes[1]


# Two comparisons (E, G), what asks whether they hold for all elements (A), and what reads the answer (R).
_STEPS = """
    step   [1                                 ]   [2                                 ]
    cpu    [F ][E][A][R     ][G][A][R] [B     ]   [F ][E][A][R     ][G][A][R] [B     ]
    gpu 7   [K           ]              [K     ]   [K           ]              [K     ]
    gpu 7                [C]         [C]                          [C]         [C]
    """
_READ = Ev("aten::is_nonzero", launches="memcpy", blocks=True)


def _drawn(first: Ev, second: Ev, asks: str = "all") -> Drawing:
    return draw(
        _STEPS,
        us=1000,
        F=Ev("aten::linear"),
        E=first,
        A=op(asks, [48, 20], launches=""),
        R=_READ,
        G=second,
        C=D2H_PAGEABLE,
    )


_REAL, _POSITIVE = op("eq", [48, 20], [48, 20], launches=""), op("gt", [48, 20], [], launches="")
# A loop looks at one gradient after the other: the device waits between its kernels (E, A), which nothing else reads.
_LOOP = """
    step   [1                                                   ][2                                                   ]
    cpu    [F ][E][A][R          ][E][A][R  ][E][A][R  ][B ]     [F ][E][A][R          ][E][A][R  ][E][A][R  ][B ]
    gpu 7   [K         ][e][a]     [e][a]     [e][a]     [K    ]  [K         ][e][a]     [e][a]     [e][a]     [K    ]
    gpu 7                     [C]        [C]        [C]                             [C]        [C]        [C]
    """


def _looped(compares: str) -> Drawing:
    return draw(
        _LOOP,
        us=1000,
        F=Ev("aten::linear"),
        E=op(compares, [48, 20], launches="kernel"),
        A=op("all", [48, 20], launches="kernel"),
        R=_READ,
        e=ELEMENTWISE,
        a=ELEMENTWISE,
        C=D2H_PAGEABLE,
    )


CHECKED = [
    Example(
        "a loop asks of three tensors whether they are finite: its kernels go with the answers",
        _looped("isfinite"),
        saves_us=(0, 36_000),  # 54 ms, of which 19 are other work
        says=("The device spends 27 ms of each step",),
        fixes=("Check in every hundredth step",),
    ),
    Example(
        "the same of an op that is no comparison: what `all` reads may be needed elsewhere",
        _looped("mul"),
        saves_us=(0, 21_000),
        fixes=("running += loss.detach()",),
        near_miss=True,
    ),
    Example(
        "a normal distribution checks its mean and its scale",
        _drawn(_REAL, _POSITIVE),
        saves_us=(0, 12_000),
        fixes=("set_default_validate_args(False)  # once",),
    ),
    Example(
        "the same without shapes: a check of real numbers, and one of positive ones behind it",
        _drawn(Ev("aten::eq", launches=""), Ev("aten::gt", launches="")),
        saves_us=(0, 12_000),
        fixes=("set_default_validate_args(False)  # once",),
    ),
    Example(
        "distributions ask by an op of their own",
        _drawn(_POSITIVE, _POSITIVE, "_is_all_true"),
        saves_us=(0, 12_000),
        fixes=("set_default_validate_args(False)  # once",),
    ),
    Example(
        "a script asks whether its values are finite",
        _drawn(op("isfinite", [48, 20], launches=""), op("isfinite", [48, 20], launches="")),
        saves_us=(0, 12_000),
        fixes=("Check in every hundredth step",),
    ),
    Example(
        "a script looks whether a value is finite, without asking for all",
        _drawn(_POSITIVE, op("isnan", [48, 20], launches=""), "any"),
        saves_us=(0, 12_000),
        fixes=("Check in every hundredth step",),
    ),
    Example(
        "two tensors of one shape are compared, and nothing else: they may be two iterations of a solver",
        _drawn(_REAL, _REAL),
        saves_us=(0, 12_000),
        fixes=("Check in every hundredth step",),
    ),
    Example(
        "a generation that ends at a token, or at a length",
        _drawn(op("eq", [48, 20], [], launches=""), _POSITIVE),
        saves_us=(0, 12_000),
        fixes=("Check in every hundredth step",),
    ),
    Example(
        "a sum of what holds is read, which is no check",
        _drawn(_POSITIVE, _POSITIVE, "sum"),
        saves_us=(0, 12_000),
        fixes=("running += loss.detach()",),
    ),
]
