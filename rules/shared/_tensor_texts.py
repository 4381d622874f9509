"""Ops by which PyTorch turns tensors into text."""

from __future__ import annotations

import numpy as np

from advisor.api import Events, Ints, Lines

# torch/_tensor_str.py: `_Formatter` asks for these directly one after the other.
_SELECTS = ("aten::isfinite", "aten::ne", "aten::__and__", "aten::masked_select")


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names.split())


# Of a large tensor it shows the first and last values, which it joins before.
_BEFORE = _aten("reshape stack cat slice select")
_AFTER = _aten("abs to min max unbind ceil ne is_nonzero div gt lt detach item resolve_conj resolve_neg select slice")


def texts(events: Events, outer: Ints) -> tuple[Ints, Ints]:
    """Places among these ops, the outermost of a thread in order, of the first and last op of each text."""
    if len(outer) < len(_SELECTS):
        return outer[:0], outer[:0]
    named = [events.exactly(name)[outer] for name in _SELECTS]
    length = len(outer) - len(_SELECTS) + 1
    found = np.flatnonzero(np.all([names[at : at + length] for at, names in enumerate(named)], axis=0))
    before, after = events.exactly(*_BEFORE)[outer], events.exactly(*_AFTER)[outer]
    first, last = found, found + len(_SELECTS) - 1
    while (earlier := (first > 0) & before[np.maximum(first - 1, 0)]).any():
        first = first - earlier
    end = len(outer) - 1
    while (later := (last < end) & after[np.minimum(last + 1, end)]).any():
        last = last + later
    return first, last


def lines_of_texts(events: Events, outer: Ints, lines: Lines) -> frozenset[tuple[str, int]]:
    """File and line of those that turn a tensor into text."""
    _, last = texts(events, outer)
    found = (lines.where_op(row) for row in outer[last].tolist())
    return frozenset((at.file, at.line) for at in found if at is not None)
