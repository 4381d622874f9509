"""The optimizer decomposes matrices in every step.

## What it looks at
Eigenvalue, singular value, QR and Cholesky decompositions and inverses within optimizers' steps, in most of the steps:
preconditioners as those of Shampoo, SOAP, K-FAC or natural gradients.

## Why it costs time
A decomposition of an n by n matrix takes some ten to a hundred times as long as a product of that size, in Python's
loop over the parameters and, on a GPU, with waits for the host. The matrices are averages over many steps: from one
step to the next they hardly change.

## How to fix it
Compute the preconditioner every N steps and keep it between: the papers and their implementations do so (Shampoo every
20 to 100 steps, SOAP every 10), as `precondition_frequency`, `update_freq` or the like.

## When to leave it
The first steps, in which the averages change fast. Methods that need the decomposition of this step's gradient itself,
such as Muon with an SVD: there a few Newton-Schulz products replace it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import Category, Ev, Example, Finding, Fix, Lines, OptimizerFacts, Price

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..shared._examples import two_steps
from ..shared._places import made_at
from ..shared._words import count

_NAMES = tuple(
    f"aten::{name}"
    for name in (
        *("linalg_eigh", "linalg_eigvalsh", "linalg_eig", "linalg_svd", "linalg_qr", "linalg_cholesky"),
        *("linalg_cholesky_ex", "linalg_inv", "linalg_inv_ex", "linalg_pinv", "svd", "inverse", "cholesky"),
    )
)
# How often they come where they come less often.
_EVERY = 10
# Of all steps; in fewer of them they come every few steps already.
_MOST = 0.5
_FIX = Fix(
    f"Decompose every {_EVERY}th step, and keep the result between",
    "semantics",
    "values, vectors = torch.linalg.eigh(state['average'])",
    f"if state['step'] % {_EVERY} == 0:\n"
    "    state['values'], state['vectors'] = torch.linalg.eigh(state['average'])\n"
    "values, vectors = state['values'], state['vectors']",
)


def check(
    price: Price,
    facts: OptimizerFacts | None,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # an argument to set, or a condition; but the training is another one
) -> Iterator[Finding]:
    events, nesting, steps = price.ops.events, price.ops.nesting, price.ops.steps
    named = events.of(Category.CPU_OP) & events.exactly(*_NAMES)
    rows = np.flatnonzero(named & nesting.within(events.named("Optimizer.step#")))
    rows = rows[nesting.ancestor_of(nesting.parent[rows], named) < 0]
    step = steps.step_of(events.start_ns[rows])
    rows = rows[step >= 0]
    if len(np.unique(step[step >= 0])) < max(_MOST * steps.count, 1):
        return
    one = Equivalent(
        parts=((rows, 1 - 1 / _EVERY, 1.0),),
        how=f"low: in every {_EVERY}th step; high: never",
        claims=("optimizer",),
        shown=rows[np.argsort(-events.dur_ns[rows], kind="stable")],
        at_most="medium",  # another training, however little it differs
    )
    if known := worth(price, lines, one, min_share):
        each = len(rows) / steps.count
        finding = known.finding(
            f"The optimizer decomposes {count(each)} matrices in each step{known.at}: {known.spent}.",
            {"matrices": each, "spent_us": known.spent_us},
            _FIX,
        )
        made = made_at(facts.optimizers[0]) if facts and len(facts.optimizers) == 1 else ()
        yield replace(finding, where=(*made, *finding.where))


_DECOMPOSED = Ev("aten::linalg_eigh", dims=[[128, 128], []])
_PRODUCT = Ev("aten::mm", dims=[[128, 128], [128, 128]])
_STEP = ("[F   ][B   ][O               ]", "            [C ][D  ][D   ]")

EXAMPLES = [
    Example(
        "roots of two averages in each step",
        two_steps(*_STEP, C=_PRODUCT, D=_DECOMPOSED),
        saves_us=(700, 1300),
        says=("decomposes 2 matrices in each step",),
    ),
    Example("products in Newton's iteration instead", two_steps(*_STEP, C=_PRODUCT, D=_PRODUCT), near_miss=True),
    Example("a whitening layer of the model", two_steps("[F   ][D   ][B   ][O   ]", D=_DECOMPOSED), near_miss=True),
    Example("Adam", two_steps("[F   ][B   ][O   ]")),
]
