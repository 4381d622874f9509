"""Earlier positions of a sequence are recomputed for each new one.

## What it looks at
Calls of a recurrent layer, or of attention with `is_causal=True`, within a step: each on a sequence that is longer than
that of the previous call by what `torch.cat` has appended since. Of language models also eight calls and more whose
lookups of tokens are longer by the same number each time. How the duration of a call grows with the length of
its sequence gives the cost of a position: of the device's work, if the GPU computes them. Shapes are needed
(`record_shapes=True`; `advisor run` records them).

## Why it costs time
In such layers a position depends only on earlier ones, so each call computes the same results for these as the
previous call did. Generating T positions one by one from whole prefixes computes about T² / 2 positions instead of T.

## How to fix it
Pass a recurrent layer only the new position and the state that the previous call returned:
`logits, state = policy(tokens[:, -1:], state)`. For attention, keep the keys and values of earlier positions and append
those of the new one (a KV cache, `use_cache=True` in Hugging Face's `generate`).

## When to leave it
Layers that also see later positions, such as a bidirectional LSTM or normalization over positions. Sequences of only a
few positions. Results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    D2H_PAGEABLE,
    GEMM,
    ITEM,
    CallSites,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Floats,
    Ints,
    Lines,
    Price,
    Source,
    StepOps,
    draw,
    edits,
)

from ..shared._places import TRIED, first_line, place
from ..shared._words import count, each_step
from ._prefixes import Prefixes, prefixes

_CLAIMS = ("forward", "other_ops", "host")


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # of the step: the state has to be passed from call to call, which less does not justify
) -> Iterator[Finding]:
    found = list(prefixes(price.ops))
    if not found:
        return
    work = _DeviceWork.of(price.ops) if price.on_device else None
    spent_ns = work.spent_ns if work else price.ops.events.dur_ns.astype(float)
    kept = [one for each in found for one in each.kept(spent_ns)]
    # Calls of one layer that are seen by two axes, or by several layers of it, lie in the same ops.
    kept = _apart(kept)
    claims = ("compute",) if work else _CLAIMS
    # The host launches as many kernels for one position as for all of them: only the device's work becomes less.
    edited = [(work.launched_by(rows) if work else rows, least, most) for rows, least, most in kept]
    # How long a device takes for one position, these calls of hundreds do not tell: its kernels then wait for memory.
    saving = price.divided(
        [] if work else [edits.scale(rows, most) for rows, _, most in edited],
        [edits.scale(rows, least) for rows, least, _ in edited],
        claims,
        "a line fitted to the duration of these calls by sequence length: the time of all but the added positions; "
        + (
            "low: kernels of one position are bound by memory"
            if work
            else "low, high: two standard errors of its slope"
        ),
    )
    if saving.high_us < min_share * price.scale.step_us:
        return
    loop = max(found, key=lambda one: len(one.lengths))
    rows = np.unique(np.concatenate([ops for ops, _, _ in kept]))
    where = tuple(dict.fromkeys(_where(price, lines, found)))
    yield Finding(
        message=(
            f"{count(len(loop.lengths) + 1)} calls{place(where[0] if where else None)} process sequences of "
            f"{count(loop.lengths[0] - loop.added)} to {count(loop.lengths[-1])} positions, each the previous one plus "
            f"{count(loop.added)} more: {each_step(price, price.spent_us(rows))}, most of it for positions that "
            "earlier calls computed already."
        ),
        saving=saving,
        where=where,
        facts={"calls": len(loop.lengths) + 1, "longest": loop.lengths[-1], "calls_us": price.spent_us(rows)},
        fix=Fix(
            "Compute only the new position, from the state that the previous call returned",
            "numerics",
            "logits, _ = policy(tokens)\ntokens = torch.cat((tokens, drawn), dim=1)",
            "logits, state = policy(tokens[:, -1:], state)\ntokens = torch.cat((tokens, drawn), dim=1)",
        ),
        claims=claims,
    )


class _DeviceWork(Struct, frozen=True, eq=False):
    """What the outermost ops launched.

    spent_ns    for each event of the trace the device time of what it launched, if it is an outermost op
    rows, owner  device work, and the outermost op that launched it, sorted by that op
    """

    spent_ns: Floats
    rows: Ints
    owner: Ints

    @classmethod
    def of(cls, ops: StepOps) -> _DeviceWork:
        launch = ops.links.launch
        rows = np.flatnonzero(ops.trace.device_work & ops.links.inside & (launch >= 0))
        owner = ops.nesting.outer_op[launch[rows]]
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        order = np.argsort(owner, kind="stable")
        rows, owner = rows[order], owner[order]
        spent_ns = np.bincount(owner, ops.events.dur_ns[rows].astype(float), len(ops.events)).astype(float)
        return cls(spent_ns, rows, owner)

    def launched_by(self, ops: Ints) -> Ints:
        first, stop = (np.searchsorted(self.owner, ops, side) for side in ("left", "right"))
        return np.concatenate([self.rows[a:b] for a, b in zip(first.tolist(), stop.tolist(), strict=True)])


def _apart(kept: Sequence[tuple[Ints, float, float]]) -> list[tuple[Ints, float, float]]:
    """The calls, each op once."""
    seen: set[int] = set()
    result = []
    for rows, least, most in kept:
        mine = np.array([row for row in rows.tolist() if row not in seen], np.int64)
        seen |= set(mine.tolist())
        if len(mine):
            result.append((mine, least, most))
    return result


def _where(price: Price, lines: Lines | None, found: Sequence[Prefixes]) -> Iterator[Source]:
    """The line that makes the calls, the one that appends, and that of the layer."""
    layers = np.concatenate([one.layers for one in found])
    appends = np.concatenate([one.appends for one in found])
    apart = CallSites.compute(price.ops.trace, lines).where_apart(layers) if lines is not None else None
    yield from (one for one in (apart, first_line(lines, appends[:TRIED]), first_line(lines, layers[:TRIED])) if one)


# Calls of 300 µs and 200 µs more for each position.
_CALLS = "[G1 ][C1 ][G2   ][C2 ][G3     ][C3 ][G4       ][C4 ][G5         ]"
_WEIGHTS = [[384, 32], [384, 128], [384], [384]]


def _loop(*, layer: str = "gru", whole: bool = True, appended: bool = True, causal: bool = True) -> Drawing:
    """A loop over five positions.

    whole: each call gets all of them, else the new one; appended: it is longer by what `torch.cat` appended; causal: of
    attention, each position sees no later one.
    """
    rows: dict[str, Any] = {}
    for at in range(1, 6):
        now = at if whole else 1
        if layer == "gru":
            rows[f"G{at}"] = Ev("aten::gru", dims=[[96, now, 32], [1, 96, 128], _WEIGHTS])
        else:
            given = ["", "", "", "", "0.", str(causal), "", "False"]
            dims = [[8, 4, now, 16], *[[8, 4, at, 16]] * 2, *[[] for _ in range(5)]]
            rows[f"G{at}"] = Ev(f"aten::{layer}", dims=dims, args={"Concrete Inputs": given})
        other = [[[96, at], [96, 1]], []] if appended else [[[96, 1], [96, 1]], []]
        rows[f"C{at}"] = Ev("aten::cat", dims=other)
    rows.pop("C5")
    width = len(_CALLS) - 2
    return draw(f"step [{1:<{width}}][{2:<{width}}]\ncpu  {_CALLS}{_CALLS}", us=100, **rows)


def _tokens(grows: bool = True) -> Drawing:
    """Ten calls in a step of a GPU, which each takes 200 µs and 10 µs more for each position beyond a hundred."""
    rows: dict[str, Any] = {"H": Ev("aten::scaled_dot_product_attention"), "K": GEMM, "I": ITEM, "C": D2H_PAGEABLE}
    cpu, gpu = "", " " * 6
    for at in range(1, 11):
        more = at if grows else 7 * at % 11
        rows[f"E{at}"] = Ev("aten::embedding", launches="", dims=[[1000, 64], [8, 100 + more]])
        cpu += f"[E{at}".ljust(5) + "][H ]"
        gpu += "[K".ljust(19 + more) + "]"
    cpu, gpu = (cpu + "[I").ljust(287) + "]  ", (gpu + "[C]").ljust(290)
    return draw(f"step [{1:<288}][{2:<288}]\ncpu  {cpu}{cpu}\ngpu 7 {gpu[1:]}{gpu}", us=10, device="H100", **rows)


EXAMPLES = [
    Example(
        "a recurrent policy gets all letters so far for each new one",
        _loop(),
        # 200 µs for one to four earlier positions in the calls behind the first.
        saves_us=(1_900, 2_100),
        says=("5 calls", "sequences of 1 to 5 positions"),
    ),
    Example(
        "causal attention over all tokens so far",
        _loop(layer="scaled_dot_product_attention"),
        saves_us=(1_900, 2_100),
        says=("5 calls",),
    ),
    Example(
        "a language model on a GPU gets all tokens so far for each new one",
        _tokens(),
        saves_us=(0, 5_000),
        says=("10 calls", "sequences of 101 to 110 positions"),
    ),
    Example("texts of other lengths each time", _tokens(grows=False), near_miss=True),
    Example("the new letter and the state", _loop(whole=False)),
    Example("sequences of other lengths than what was appended", _loop(appended=False), near_miss=True),
    Example(
        "a new token attends to keys that are kept",
        _loop(layer="scaled_dot_product_attention", whole=False),
        near_miss=True,
    ),
    Example(
        "attention to later positions, too", _loop(layer="scaled_dot_product_attention", causal=False), near_miss=True
    ),
]
