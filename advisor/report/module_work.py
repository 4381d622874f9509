"""Floating-point operations by module, from the step whose lines were recorded: forward and backward.

An op belongs to the innermost module whose forward was running. An op of the backward belongs to the module of the
forward op that autograd made its node for: both carry the same sequence number. Counted are matrix products and
convolutions, which are nearly all of a model's work; a module that holds other modules counts theirs as its own. Of a
convolution both gradients count, though the first layer needs none of its input: the trace does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.costs.module_calls import PREFIX, parse_range
from advisor.analyses.work.op_work import flops, shapes
from advisor.errors import AdvisorError
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.intervals import starts_in
from advisor.trace.op_names import AUTOGRAD_NODE
from advisor.trace.read.load import load

_NODE = f"{AUTOGRAD_NODE}: "


def add_flops(folder: Path, record: dict[str, Any]) -> None:
    """Writes `flops` into the modules of the first rank's model that has lines. A damaged trace changes nothing.

    One rank is enough: ranks run the same model, and of hundreds nobody would wait for the reading.
    """
    for rank in record["ranks"]:
        modules = (rank.get("model") or {}).get("modules")
        lines = next((file["path"] for file in rank["files"] if file["role"] == "lines"), None)
        if not modules or lines is None:
            continue
        try:
            found = flops_by_module(load(folder / lines))
        except (AdvisorError, OSError):
            continue
        for row in modules:
            # A model whose forward was not seen by module (compiled code) leaves them unknown.
            row["flops"] = found.get(row["path"], 0.0) if found else None
        return


def flops_by_module(trace: Trace) -> dict[str, float]:
    """Path of a module -> floating-point operations per step, of it and of the modules inside it."""
    events = trace.events
    nesting = Nesting.compute(trace)
    ranges = events.named(PREFIX)
    inside = nesting.ancestor(ranges)
    home = _with_backward(events, nesting, inside)
    spans = _spans(events)
    steps = len(spans)
    counted = starts_in(events.start_ns, np.array(spans)) & events.of(Category.CPU_OP) & (events.dims >= 0)
    found: dict[str, float] = {}
    for row in np.flatnonzero(counted & (home >= 0)).tolist():
        work = flops(events.text(row), shapes(events.dims_table[events.dims[row]]))
        if work:
            for path in _paths(events, nesting.parent, inside, int(home[row])):
                found[path] = found.get(path, 0.0) + work / steps
    return found


def _with_backward(events: Events, nesting: Nesting, inside: Ints) -> Ints:
    """For each event the row of the module that it works for, -1 where none is known."""
    home = inside.copy()
    forward = np.flatnonzero((inside >= 0) & (events.sequence >= 0) & (events.forward_thread <= 0))
    nodes = np.flatnonzero(events.named(_NODE) & (events.sequence >= 0))
    node = nesting.ancestor(events.named(_NODE) & (events.sequence >= 0))
    left = np.flatnonzero((home < 0) & (node >= 0))
    # Steps need not follow each other: two that were recorded apart differ from their forward ops by another number.
    for first, last in _spans(events):
        within = [rows[(events.start_ns[rows] >= first) & (events.start_ns[rows] < last)] for rows in (forward, nodes)]
        by_sequence = {int(events.sequence[row]): int(row) for row in within[0]}
        shift = _shift(events, by_sequence, within[1].tolist())
        if not by_sequence or shift is None:
            continue
        mine = np.isin(node[left], within[1])
        for row in left[mine].tolist():
            made = by_sequence.get(int(events.sequence[node[row]]) + shift)
            home[row] = inside[made] if made is not None else -1
    return home


def _spans(events: Events) -> list[tuple[int, int]]:
    """Beginning and end of each step, ns; of the whole trace where it marks none."""
    steps = np.flatnonzero(events.named("ProfilerStep#"))
    if not len(steps):
        return [(int(events.start_ns.min()), int(events.end_ns.max()) + 1)]
    return [(int(events.start_ns[row]), int(events.end_ns[row])) for row in steps]


def _shift(events: Events, by_sequence: dict[int, int], nodes: list[int]) -> int | None:
    """What leads from a node of the backward to its forward op in this step: 0, or the distance of two steps.

    A step that begins with its backward holds the forward of the next one. Two steps of the same model differ by a
    constant; None where they do not, because the ops then are not those that the nodes are of.
    """
    known = [(int(events.sequence[row]), _made_by(events.text(row))) for row in nodes]
    wanted = [(number, op) for number, op in known if op]
    ops = {number: events.text(row) for number, row in by_sequence.items()}
    last = max((number for number, op in wanted), default=0)
    ends = [number for number, name in ops.items() if any(name == op for _, op in wanted)]
    for shift in (0, max(ends, default=0) - last):
        if wanted and all(ops.get(number + shift) == op for number, op in wanted):
            return shift
    return None


def _made_by(node: str) -> str:
    """The op that autograd makes this node for, of those whose work is counted."""
    kind = node.removeprefix(_NODE).partition("Backward")[0]
    return {"Addmm": "aten::addmm", "Mm": "aten::mm", "Bmm": "aten::bmm", "Baddbmm": "aten::baddbmm",
            "Convolution": "aten::convolution"}.get(kind, "")  # fmt: skip


def _paths(events: Events, parent: Ints, inside: Ints, row: int) -> Iterator[str]:
    """Paths of a module's range and of all module ranges around it."""
    seen = set()
    while row >= 0:
        path, _ = parse_range(events.text(row))
        if path not in seen:  # a module that calls itself
            seen.add(path)
            yield path
        above = int(parent[row])
        row = int(inside[above]) if above >= 0 else -1
