"""Loops over tensors where a step has too many ops for its lines to be recorded: told by samples of the stack."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import MOST_KEPT, Drawing, Ev, Example, Finding, Fix, Price, SampledLoop, SampledLoops, draw

from ..shared._loop_saving import NOT_SEEN
from ..shared._places import place
from ..shared._run_examples import run_of, sample
from ..shared._words import count, percent

AS_NUMBERS = Fix(
    "Do it with ops over all elements, or with Python numbers or NumPy: read with one `.tolist()`, write with one "
    "`torch.tensor(...)`",
    "numerics",
    "for i in range(n):\n    for j in range(n):\n        if j > i:\n            mask[i, j] = float('-inf')",
    "mask = torch.full((n, n), float('-inf')).triu(1)",
)


def in_samples(sampled: SampledLoops, price: Price, at_once: Fix, min_share: float) -> Iterator[Finding]:
    """The loops that take that share of the step for certain. at_once: the fix where elements are no single numbers."""
    # What ops take beyond bare calls may all be in the loop, and stay.
    beyond = sampled.beyond or 0.0
    for loop in sampled.of:
        if loop.low - beyond >= min_share:
            yield _finding(loop, sampled, price, beyond, AS_NUMBERS if sampled.numbers else at_once)


def _finding(loop: SampledLoop, sampled: SampledLoops, price: Price, beyond: float, fix: Fix) -> Finding:
    low, high = min(loop.low * (1 - MOST_KEPT), loop.low - beyond), loop.high
    seen = f"its share of {loop.of} samples of the stack, 95 % interval"
    how = f"high: {seen}; low: the same, and three tenths of it remain"
    if not sampled.numbers:
        low, high = 0.0, min(loop.high + sampled.backward, 1.0)
        how = f"high: {seen}, with all of the backward pass; low: nothing, since {NOT_SEEN}"
    kind = ", nearly all of them on single numbers" if sampled.numbers else ""
    head = loop.where[0]
    return Finding(
        message=(
            f"The loop{place(head)} in `{head.function}` runs in {loop.hits} of {loop.of} samples of the stack "
            f"during training steps ({percent(loop.low)} to {percent(loop.high)} of each step); "
            f"a step has {count(round(sampled.ops))} ops{kind}."
        ),
        saving=price.shares(low, high, how),
        where=loop.where,
        facts={"samples": loop.hits, "of_samples": loop.of, "ops": sampled.ops},
        fix=fix,
        claims=("forward", "backward", "other_ops", "host"),
        at_most="medium",
    )


def _many(*dims: list[int]) -> Drawing:
    return draw(
        """
        step   [1                     ][2                     ]
        cpu    [L           ][B      ]  [L           ][B      ]
        """,
        us=100,
        L=Ev("aten::copy_", times=1200, dims=[*dims], dtypes=["float"] * len(dims)),
    )


_IN_LOOP = {"loop": ("train.py", 15, "causal_mask"), "inner": ("train.py", 18, "causal_mask")}
_STEPS = {"step": (30.0, 300), "between": (0.1, 300), "long": (0.1, 1)}
EXAMPLES = [
    Example(
        "1,200 numbers written one by one, in nine of ten samples",
        _many([], []),
        facts=run_of(_STEPS, sample("step", 80, 90, hits=90, **_IN_LOOP), sample("step", 85, 10, "backward", hits=10)),
        saves_us=(1300, 2300),
        says=("train.py:15 in `causal_mask` runs in 90 of 100 samples", "on single numbers"),
        fixes=("tolist",),
    ),
    Example(
        "1,200 ops on rows, whose turns may need each other",
        _many([4, 8], [8]),
        facts=run_of(_STEPS, sample("step", 80, 90, hits=90, **_IN_LOOP), sample("step", 85, 10, "backward", hits=10)),
        saves_us=(0, 2400),
        says=("train.py:15",),
    ),
    Example(
        "a loop in a function that a loop over pictures calls",
        _many([4, 8], [8]),
        facts=run_of(
            _STEPS,
            sample("step", 80, 85, hits=85, inner_loop=("train.py", 34, "suppressed"), **_IN_LOOP),
            sample("step", 80, 5, hits=5, inner_loop=_IN_LOOP["loop"], **_IN_LOOP),
            sample("step", 85, 10, "backward", hits=10),
        ),
        saves_us=(0, 2400),
        says=("train.py:34 in `suppressed` runs in 85 of 100 samples",),
    ),
    Example(
        "the same in a loop of the script itself",
        _many([], []),
        facts=run_of(_STEPS, sample("step", 82, 90, hits=90, block=81))
        | {"blocks": {"train.py": [["loop", 78, 79, 90], ["loop", 81, 82, 83]]}},
        saves_us=(1300, 2400),
        says=("train.py:81 in `main` runs in 90 of 90 samples",),
    ),
    Example(
        "1,200 numbers, and samples that show no loop",
        _many([], []),
        facts=run_of(_STEPS, sample("step", 80, 90, hits=90)),
        near_miss=True,
    ),
]
