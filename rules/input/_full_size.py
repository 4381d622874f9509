"""Ops of samples on tensors that are far larger than what the batch gets of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    NEXT,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    InputWaits,
    Ints,
    LineCosts,
    RowMask,
    Source,
    StepOps,
    callers_above,
    draw,
    duration,
    element_counts,
)

from ..shared._places import first_of, place
from ..shared._words import count, percent
from ._loader import Seen

_Place = tuple[str, int]

# Ops that make a tensor smaller: one that comes after others on the whole tensor could have come before them.
_SHRINKS = ("aten::slice", "aten::narrow", "aten::select", "aten::index", "upsample", "interpolate")
# What is kept of a crop is often a half or a third; from a quarter on there is more to gain than a new order costs.
_LARGER = 4
# A slice that leaves off an end cuts less.
_HALF = 2


class FullSize(Struct, frozen=True, eq=False):
    """Outermost ops of fetches on tensors of four times the numbers of a sample and more, before these become smaller.

    rows     of these ops;  shrinks: rows of the last op that makes each smaller
    share    that these ops take of the fetches, 0 to 1
    kept     (least, most) of the numbers that is left: what a sample has in the batch; the largest tensor afterwards
    large    numbers of the largest tensor
    """

    rows: Ints
    shrinks: Ints
    share: float
    kept: tuple[float, float]
    large: int


def advice(seen: Seen, least: float) -> Finding | None:
    """Making samples smaller first, if that saves this share of the step; else None."""
    if seen.made is None or seen.workers != 0 or seen.facts is None or not seen.facts.batch_size:
        return None
    found = full_size(seen.price.ops, seen.waits, seen.facts.batch_size)
    if found is None:
        return None
    us = min(found.share * seen.made.us, seen.step_us)
    where = _where(found, seen.price.ops.events.dur_ns[found.rows].tolist(), seen.costs)
    # The profiler lengthens Python between ops more than ops: of their lines, both are known without it.
    costly = zip(seen.costly.sources, seen.costly.us, strict=True) if seen.costly else ()
    of_lines = sum(line_us for at, line_us in costly if at in where)
    low_us, high_us = (1 - found.kept[1]) * us, (1 - found.kept[0]) * max(us, min(of_lines, seen.made.us))
    if high_us < least * seen.step_us:
        return None
    said = (
        f": its samples are transformed at full size{place(where[0] if where else None)}, which takes {duration(us)} "
        f"for up to {count(found.large)} numbers each, of which a batch gets {percent(found.kept[0])}."
    )
    how = "low: the measured time of samples in these ops, on the largest size that is left after them; high: with the "
    how += "Python of their lines, on the size that the batch has"
    finding = seen.finding(
        seen.waits_for(seen.made.us, min(seen.made.us / seen.step_us, 1.0), said),
        seen.price.of_us(low_us, high_us, how, basis="modelled"),
        _FIRST,
        {"transformed_share": found.share, "kept": list(found.kept), "numbers": found.large},
    )
    return replace(finding, where=first_of(where, finding.where))


def _where(found: FullSize, took_ns: list[int], costs: LineCosts | None) -> tuple[Source, ...]:
    """The line to move behind the one that makes samples smaller, where one function calls both; the ops' own line."""
    if costs is None:
        return ()
    spent: dict[int, int] = defaultdict(int)
    for line, ns in zip(costs.op_line[found.rows].tolist(), took_ns, strict=True):
        spent[line] += ns
    spent.pop(-1, None)
    last = [line for line in costs.op_line[found.shrinks].tolist() if line >= 0]
    if not spent:
        return ()
    own = costs.lines[max(spent, key=lambda line: spent[line])].source
    known = {line.source.place: line.source for line in costs.lines}
    called = costs.callers
    smaller = [known[at] for line in last[-1:] for at in _way(costs.lines[line].source, called) if at in known]
    functions = {(one.file, one.function) for one in smaller}
    above = (known[at] for at in _way(own, called) if at in known)
    shared = next((one for one in above if (one.file, one.function) in functions), own)
    return tuple(dict.fromkeys((shared, own)))


def _way(at: Source, called: Mapping[_Place, _Place | None]) -> list[_Place]:
    return [(at.file, at.line), *callers_above((at.file, at.line), called)]


_FIRST = Fix(
    "Crop or resize first, then transform what is left",
    "semantics",
    "image = distort(image)\nimage = crop(image)",
    "image = crop(image)\nimage = distort(image)  # the same for single pixels; contrast and blur look at others, too",
)


def full_size(ops: StepOps, waits: InputWaits, size: int) -> FullSize | None:
    """Those of this loader, whose batches have `size` samples; None where none of its batches shows it."""
    events = ops.events
    fetching = np.zeros(len(events), bool)
    fetching[list(waits.rows)] = True
    inside = ops.nesting.within(fetching)
    rows = np.flatnonzero(events.of(Category.CPU_OP) & inside & (events.dims >= 0) & ~fetching)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    sizes = {int(dims): element_counts(events.dims_table[dims]) for dims in np.unique(events.dims[rows])}
    joined = [sizes[int(dims)] for dims in events.dims[rows[events.exactly("aten::cat")[rows]]]]
    whole = max((max(one) for one in joined if len(one) == size), default=0)
    if not whole:
        return None
    rows = _outermost(events, rows)
    most = np.array([max(sizes[int(dims)], default=0) for dims in events.dims[rows]], np.int64)
    lists = np.array([len(sizes[int(dims)]) == size for dims in events.dims[rows]], bool)
    cuts = events.named(*_SHRINKS)[rows]
    large = (most >= _LARGER * whole) & ~lists
    last = _shrunk(most, cuts & large, whole)
    works = large & ~cuts & (np.arange(len(rows)) < max(last, default=0))
    if not works.any():
        return None
    top = int(most[works].max())
    left = int(most[~large & ~lists].max(initial=whole))
    spent = float(events.dur_ns[rows[works]].sum()) / max(float(events.dur_ns[list(waits.rows)].sum()), 1.0)
    return FullSize(rows[works], rows[last], min(spent, 1.0), (whole / top, left / top), top)


def _shrunk(most: Ints, cuts: RowMask, whole: int) -> list[int]:
    """The last op of each run of those that cut a large tensor, if the next op on a sample has half of its numbers."""
    found = []
    ends = np.flatnonzero(cuts & ~np.append(cuts[1:], False))
    samples = np.flatnonzero(~cuts & (most >= whole))
    for at in ends.tolist():
        first = at
        while first and cuts[first - 1]:
            first -= 1
        after = samples[samples > at]
        if len(after) and _HALF * most[after[0]] <= most[first]:
            found.append(at)
    return found


def _outermost(events: Events, rows: Ints) -> Ints:
    """Of rows of one thread in order of start those that lie in no other."""
    ends = np.maximum.accumulate(events.end_ns[rows])
    inner = np.concatenate(([False], events.start_ns[rows][1:] < ends[:-1]))
    found: Ints = rows[~inner]
    return found


def _steps(large: list[int], small: bool = False, pooled: bool = False) -> Drawing:
    """Two batches of two samples: an op on a picture of this size, a crop to 3 x 32 x 32, and what stacks them."""
    picture, window = Ev("aten::mul", dims=[large, []]), [3, 32, 32]
    cut = Ev("aten::slice", dims=[large, [], [], [], []])
    return draw(
        """
        step   [1                           ][2                           ]
        cpu    [A                    ][F ][B][A                    ][F ][B]
        cpu    [D                    ]       [D                    ]
        cpu    [L       ][L       ][S]       [L       ][L       ][S]
        cpu    [P       ][P       ]          [P       ][P       ]
        cpu    [M][C][R][M][C][R]            [M][C][R][M][C][R]
        """,
        us=1000,
        A=Ev("train.py(48): train"),
        D=NEXT,
        L=Ev("data.py(24): __getitem__"),
        P=Ev("data.py(12): preprocess"),
        M=picture if not small else Ev("aten::mul", dims=[window, []]),
        C=cut,
        R=Ev("aten::adaptive_avg_pool2d", dims=[large, []]) if pooled else Ev("aten::flip", dims=[window, []]),
        S=Ev("aten::cat", dims=[[window, window], []]),
    )


def _facts(**changes: object) -> dict[str, object]:
    """Samples of 9 ms, two a batch."""
    loader = {"num_workers": 0, "batch_size": 2, "sample_us": 9_000.0, "collate_us": 1_000.0} | changes
    return {"loaders": [loader]}


_GENERAL = ("in preprocess()", "num_workers=0")

AT_FULL_SIZE = [
    Example(
        "colours of a whole photograph, of which a ninth is used",
        _steps([3, 96, 96]),
        facts=_facts(),
        saves_us=(4_000, 15_000),
        says=("at full size", "27,648 numbers", "a batch gets 11 %"),
        fixes=("Crop or resize first",),
    ),
    Example("the crop comes first", _steps([3, 96, 96], small=True), (0, 23_500), _facts(), _GENERAL, near_miss=True),
    Example(
        "only an end is cut off, and all the rest is averaged",
        _steps([3, 96, 96], pooled=True),
        (0, 23_500),
        _facts(),
        _GENERAL,
        near_miss=True,
    ),
    Example("pictures of the size that the batch has", _steps([3, 32, 32]), (0, 23_500), _facts(), _GENERAL),
    Example("a crop to half of the numbers", _steps([3, 48, 40]), (0, 23_500), _facts(), _GENERAL, near_miss=True),
]
