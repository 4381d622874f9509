"""Keys and values of all that was generated, copied for each new token: a cache that grows by concatenation."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    SYNC,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GrowingOps,
    Ints,
    Price,
    draw,
    duration,
    edits,
)

from ..shared._words import count, percent

_PUT, _ATTENTION = "aten::cat", "scaled_dot_product"
_CLAIMS = ("compute",)
_HOW = "the step replayed without the copies; attention reads more where far more is allocated than is there"
# huggingface.co/docs/transformers/kv_cache: `DynamicCache`, the default, concatenates; "static" allocates once.
_ALLOCATE = Fix(
    "Allocate keys and values once, for the longest sequence, and write each new token's into them",
    "numerics",
    "keys = torch.cat((keys, key), dim=2)\n\nmodel.generate(**inputs)",
    "keys[:, :, position] = key  # attention with a mask for what follows\n\n"
    'model.generate(**inputs, cache_implementation="static")',
)


def is_cache(growing: GrowingOps, price: Price) -> bool:
    """Whether what grows most is what attention reads, or is put together of what was kept and what is new, in pairs.

    Without a backward pass, as a training step keeps no such thing for the next.
    """
    if growing.calls or price.ops.events.named(AUTOGRAD_NODE).any():
        return False
    return _ATTENTION in growing.names[0] or (growing.names[0] == _PUT and _in_pairs(_puts(growing, price), price))


def _in_pairs(puts: Ints, price: Price) -> bool:
    """Whether two tensors are made longer at a time: keys and values of each layer."""
    events = price.ops.events
    each = np.bincount(price.ops.links.step[puts], minlength=price.ops.steps.count)
    return each.min() >= 2 and bool((each % 2 == 0).all()) and _is_joined(events.dims_table[events.dims[puts[-1]]])


def _puts(growing: GrowingOps, price: Price) -> Ints:
    """What concatenates; attention, which reads the cache, stays."""
    found: Ints = growing.rows[price.ops.events.exactly(_PUT)[growing.rows]]
    return found


def _is_joined(dims: str) -> bool:
    """Whether two tensors of three dimensions or more are put together, which differ in one of them.

    dims: [[[96, 8, 2599, 128], [96, 8, 1, 128]], []]
    """
    shapes = json.loads(dims)[0]
    if len(shapes) != 2 or not all(isinstance(one, list) and len(one) > 2 for one in shapes):
        return False
    kept, new = shapes
    return len(kept) == len(new) and sum(one != other for one, other in zip(kept, new, strict=True)) == 1


def of_cache(growing: GrowingOps, price: Price) -> Finding | None:
    """What is said of it, on a device; nothing where no copy of it is made."""
    puts = _puts(growing, price)
    if not _in_pairs(puts, price):
        return None
    spent_us, gone = price.spent_us(puts), edits.remove(price.ops.launched(puts))
    per_step = (growing.last - growing.first) / (price.ops.steps.count - 1)
    return Finding(
        message=(
            f"Keys and values are concatenated again for each token: {count(growing.last)} numbers in the last "
            f"profiled step, {count(per_step)} more each time, which takes {duration(price.scale.scaled(spent_us))} of "
            f"it ({percent(spent_us / price.ops.steps.step_us)})."
        ),
        saving=price.saving([gone], [gone], _CLAIMS, _HOW),
        facts={"ops": [_PUT], "numbers": growing.last, "more_per_step": per_step, "us": spent_us},
        fix=_ALLOCATE,
        claims=_CLAIMS,
    )


def _generated(*, trained: bool = False) -> Drawing:
    """Five tokens: keys and values of one layer are concatenated, in 280 of 480 us."""
    words: dict[str, Any] = {
        letter: Ev(
            "aten::cat", dims=[[[8, 4, 1_000 + n, 64], [8, 4, 1, 64]], []], dtypes=["TensorList", "Scalar"], times=2
        )
        for n, letter in enumerate("PQRST")
    }
    step = "".join(f"[{n}         ]" for n in range(1, 6))
    cpu = "".join(f"[M][{word}][B][W]" for word in words)
    return draw(
        f"step  {step}\ncpu   {cpu}\ngpu 7  {'[K ][C    ] ' * 5}",
        us=40,
        M=Ev("aten::mm", dims=[[8, 512], [512, 512]], dtypes=["float"] * 2),
        B=Ev("autograd::engine::evaluate_function: MmBackward0" if trained else "aten::argmax", launches=""),
        W=SYNC,
        K="ampere_sgemm_128x64_nn",
        C=Ev("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>", "kernel", times=2),
        **words,
    )


CACHES = [
    Example(
        "keys and values of a cache that grows by each token",
        _generated(),
        saves_us=(100, 300),
        says=("Keys and values are concatenated again for each token",),
        fixes=("Allocate keys and values once",),
    ),
    Example(
        "the same in steps that train: what is kept is a history",
        _generated(trained=True),
        saves_us=(100, 300),
        says=("`aten::cat`",),
        fixes=("Keep a running sum",),
    ),
]
