"""Calls of a causal layer on a sequence that each time is longer by what the call before it added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.api import Events, Floats, Ints, StepOps, dims_of, sizes

# Their results for a position depend on no later one.
_RECURRENT = ("aten::gru", "aten::lstm", "aten::rnn_tanh", "aten::rnn_relu")
_ATTENTION = "aten::scaled_dot_product_attention"
_MASK_AT, _CAUSAL_AT = 3, 5  # query, key, value, mask, dropout, is_causal
_APPENDS = "aten::cat"
# Fewer calls tell no rate, and are nobody's loop over positions.
_FEWEST = 4
# Where nothing but their lengths tells, and a lookup of tokens begins a call of a language model.
_LOOKUP, _FEWEST_TEXTS = "aten::embedding", 8


class Prefixes(Struct, frozen=True, eq=False):
    """The calls of one loop over positions.

    calls    for each call on a longer prefix the ops from what appended to it until the next append
    lengths  the length of each call's prefix;  added: by how much each is longer than the one before
    layers   the rows of the layer itself;  appends: the rows that make the longer sequence
    """

    calls: tuple[Ints, ...]
    lengths: tuple[int, ...]
    added: int
    layers: Ints
    appends: Ints

    def kept(self, spent_ns: Floats) -> list[tuple[Ints, float, float]]:
        """(ops of a call, least, most of their time that stays) where each call computes the added positions alone.

        By a line through the time of all calls over their lengths: its slope with two standard errors.
        spent_ns: of each event of the trace.
        """
        took = np.array([float(spent_ns[rows].sum()) for rows in self.calls])
        lengths = np.array(self.lengths, float)
        off = lengths - lengths.mean()
        slope = float((off * took).sum() / (off**2).sum())
        left = took - took.mean() - slope * off
        error = float(np.sqrt((left**2).sum() / max(len(took) - 2, 1) / (off**2).sum()))
        least, most = max(slope - 2 * error, 0.0), max(slope + 2 * error, 0.0)

        def stays(rate: float, length: float, us: float) -> float:
            return float(np.clip(1 - rate * (length - self.added) / max(us, 1.0), 0, 1))

        return [
            (rows, stays(most, length, us), stays(least, length, us))
            for rows, length, us in zip(self.calls, self.lengths, took.tolist(), strict=True)
            if length > self.added
        ]


def prefixes(ops: StepOps) -> Iterator[Prefixes]:
    """The loops over positions of every step."""
    events = ops.events
    outer = ops.outermost
    step = ops.steps.step_of(events.start_ns[outer])
    appends = ops.outermost_named(_APPENDS)
    asked = step[events.exactly(*_RECURRENT, _ATTENTION, _LOOKUP)[outer] & (step >= 0)]
    # Most steps of most loops have no such calls: those are not looked at one by one.
    for number in np.flatnonzero(np.bincount(asked, minlength=1) >= _FEWEST).tolist():
        here = outer[step == number]
        by_form: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
        for row in here[events.exactly(*_RECURRENT, _ATTENTION)[here]].tolist():
            for form, length in _forms(events, row):
                by_form[form].append((row, length))
        for called in by_form.values():
            yield from _growing(events, here, appends, called)
        yield from _of_tokens(events, here)


def _of_tokens(events: Events, here: Ints) -> Iterator[Prefixes]:
    """Calls of a model on the tokens so far, each with as many more as the one before, by the lookup they begin with.

    Which op appends the new ones does not matter: whole texts of lengths that grow one by one are drawn, not read.
    """
    at_lookup = np.flatnonzero(events.exactly(_LOOKUP)[here])
    found: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for at in at_lookup.tolist():
        dims = dims_of(events, int(here[at]))
        weight, indices = sizes(dims, 0), sizes(dims, 1)
        if len(indices) in (1, 2):
            found[(*weight, *indices[:-1])].append((at, indices[-1]))
    for calls in found.values():
        for run in _one_by_one(calls):
            places = [at for at, _ in run]
            if not _may_be_causal(events, here[places[0] : places[-1]]):
                continue
            ends = [*places[1:], 2 * places[-1] - places[-2]]
            yield Prefixes(
                calls=tuple(here[at:end] for at, end in zip(places[1:], ends[1:], strict=True)),
                lengths=tuple(length for _, length in run[1:]),
                added=run[1][1] - run[0][1],
                layers=here[places],
                appends=here[places[1:]],
            )


def _may_be_causal(events: Events, rows: Ints) -> bool:
    """Whether a model of attention runs in these rows, none of which is known to attend to later positions."""
    attends = rows[events.exactly(_ATTENTION)[rows]]
    if not len(attends) or events.exactly(*_RECURRENT)[rows].any():
        return False
    for values in np.unique(events.values[attends]).tolist():
        given = _given(events.values_table[values] if values >= 0 else "")
        if len(given) > _CAUSAL_AT and "True" not in given[_CAUSAL_AT] and not _has_mask(events, attends, values):
            return False
    return True


def _has_mask(events: Events, attends: Ints, values: int) -> bool:
    """Whether these calls of attention have a mask, which may hide later positions."""
    return all(sizes(dims_of(events, int(row)), _MASK_AT) for row in attends[events.values[attends] == values].tolist())


def _one_by_one(calls: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Runs of calls in which each length is the one before plus the same number."""
    run = [*calls[:1]]
    for before, this in pairwise(calls):
        added = this[1] - before[1]
        if added <= 0 or (len(run) > 1 and added != run[1][1] - run[0][1]):
            if len(run) >= _FEWEST_TEXTS:
                yield run
            run = []
        run.append(this)
    if len(run) >= _FEWEST_TEXTS:
        yield run


def _forms(events: Events, row: int) -> Iterator[tuple[tuple[object, ...], int]]:
    """(what all calls of one layer have in common, the length) with each of its axes taken for the one of positions."""
    dims = dims_of(events, row)
    first, name = sizes(dims, 0), events.text(row)
    if name == _ATTENTION:
        if len(first) < 3 or not _is_causal(events, row) or sizes(dims, 1)[-2:-1] != first[-2:-1]:
            return
        yield (name, *first[:-2], first[-1]), first[-2]
    elif len(first) == 3:
        weights = str(dims[2:3])
        for axis in (0, 1):
            yield (name, axis, *first[:axis], *first[axis + 1 :], weights), first[axis]


def _is_causal(events: Events, row: int) -> bool:
    given = _given(events.values_table[int(events.values[row])] if events.values[row] >= 0 else "")
    return len(given) > _CAUSAL_AT and "True" in given[_CAUSAL_AT]


def _given(values: str) -> list[str]:
    return values.strip("[]").split('", "')


def _growing(events: Events, here: Ints, appends: Ints, called: Sequence[tuple[int, int]]) -> Iterator[Prefixes]:
    """The runs of calls in which each length is the one before and what was appended to it."""
    run: list[tuple[list[int], int]] = []
    cats: list[int] = []
    for row, length in called:
        if run and length == run[-1][1]:
            run[-1][0].append(row)  # the next layer of the same call
            continue
        added = length - run[-1][1] if run else 0
        cat = _appended(events, appends, run[-1][0][-1], row, run[-1][1], added) if added > 0 else -1
        same = len(run) < 2 or added == run[-1][1] - run[-2][1]
        if run and (cat < 0 or not same):
            yield from _of_run(events, here, run, cats)
            run, cats = [], []
        elif cat >= 0:
            cats.append(cat)
        run.append(([row], length))
    yield from _of_run(events, here, run, cats)


def _appended(events: Events, appends: Ints, before: int, row: int, length: int, added: int) -> int:
    """The cat between two rows that adds so many positions to a sequence of that length; -1 for none."""
    first, stop = np.searchsorted(events.start_ns[appends], (events.end_ns[before], events.start_ns[row])).tolist()
    for cat in appends[first:stop].tolist():
        parts = dims_of(events, cat)
        given = parts[0] if parts and isinstance(parts[0], list) and len(parts[0]) == 2 else []
        shapes = [part for part in given if isinstance(part, list)]
        if len(shapes) == 2 and any(pair == (length, added) for pair in zip(*shapes, strict=False)):
            return int(cat)
    return -1


def _of_run(
    events: Events, here: Ints, run: Sequence[tuple[list[int], int]], cats: Sequence[int]
) -> Iterator[Prefixes]:
    if len(run) < _FEWEST or len(cats) < len(run) - 1:
        return
    added = run[1][1] - run[0][1]
    starts = events.start_ns[here]
    ends = [int(events.start_ns[cat]) for cat in cats]
    # The last call ends where as long after its layer as the one before it did.
    ends.append(int(events.end_ns[run[-1][0][-1]]))
    begins = [int(events.end_ns[cat]) for cat in cats]
    calls = [here[(starts >= begin) & (starts < end)] for begin, end in zip(begins, ends[1:], strict=True)]
    yield Prefixes(
        calls=tuple(calls),
        lengths=tuple(length for _, length in run[1:]),
        added=added,
        layers=np.array([row for rows, _ in run for row in rows], np.int64),
        appends=np.array(cats, np.int64),
    )
