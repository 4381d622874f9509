"""Modules as a tree in which equal neighbours are one row: `encoder.layers.0-11`, twelve of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from advisor.model import ModuleCost

# Rows that a reader takes in; each of them is at least this share of the costliest, which is the model: of a step that
# was long for other reasons the model's parts are no less worth a look.
_MOST_ROWS, _LEAST_SHARE = 20, 0.01
_NUMBER = re.compile(r"\d{1,6}")
# What a row of several modules sums up, each of it known only where it is of all of them.
_SUMMED = (
    *("calls", "parameters", "parameter_bytes", "flops", "forward_us", "forward_own_us", "backward_us"),
    *("backward_own_us", "device_us", "device_own_us", "share", "own_share", "device_share", "low_us", "high_us"),
)


class _Node(Struct, eq=False):
    """A module, or several equal ones, with the modules inside.

    name: the last part of its path;  whole: the single model, whose name is not part of the paths inside it
    """

    name: str
    cost: ModuleCost | None = None
    whole: bool = False
    parts: dict[str, _Node] = field(default_factory=dict)

    def shape(self) -> tuple[object, ...]:
        """What two modules have in common that can stand in one row: classes and names of all in them."""
        kind = self.cost.kind if self.cost else ""
        ran = bool(self.cost and self.cost.calls)
        return (kind, ran, tuple((name, part.shape()) for name, part in self.parts.items()))


def fold(rows: Sequence[ModuleCost], alone: bool) -> tuple[ModuleCost, ...]:
    """The costliest rows of the tree, each below what it lies in; modules that did not run are no rows.

    rows: in the model's order, a module before those inside it.  alone: the first is the whole model, and its name is
    not part of the paths of the others; else the paths alone make the tree.
    """
    top = _tree(rows, alone)
    _fold_equal(top)
    found = list(_flat(top, "", 0))
    cost = [_weight(row) for row in found]
    order = sorted(range(len(found)), key=lambda at: (-cost[at], at))
    least = _LEAST_SHARE * max(cost, default=0.0)
    return tuple(found[at] for at in sorted(order[:_MOST_ROWS]) if cost[at] >= least and cost[at] > 0)


def _weight(row: ModuleCost) -> float:
    return max(row.share or 0.0, row.device_share or 0.0)


def _tree(rows: Sequence[ModuleCost], alone: bool) -> _Node:
    top = holder = _Node("")
    if alone and rows:
        holder = top.parts[rows[0].path] = _Node(rows[0].path, rows[0], whole=True)
        rows = rows[1:]
    for row in rows:
        node = holder
        for name in row.path.split("."):
            node = node.parts.setdefault(name, _Node(name))
        node.cost = row
    return top


def _fold_equal(node: _Node) -> None:
    """Makes one node of neighbours with consecutive numbers and the same shape, in all of the tree."""
    for part in node.parts.values():
        _fold_equal(part)
    runs: list[list[_Node]] = []
    for part in node.parts.values():
        last = runs[-1][-1] if runs else None
        if last is not None and _follows(last, part) and last.shape() == part.shape():
            runs[-1].append(part)
        else:
            runs.append([part])
    folded = [_sum(run) for run in runs]
    node.parts = {part.name: part for part in folded}


def _follows(one: _Node, other: _Node) -> bool:
    numbers = _NUMBER.fullmatch(one.name) and _NUMBER.fullmatch(other.name)
    return bool(numbers) and int(other.name) == int(one.name) + 1


def _sum(run: Sequence[_Node], name: str = "") -> _Node:
    """One node for all of these, and one for each of the parts that they have in common."""
    if len(run) == 1:
        return run[0]
    name = name or f"{run[0].name}-{run[-1].name}"
    parts = {key: _sum([one.parts[key] for one in run], key) for key in run[0].parts}
    costs = [one.cost for one in run if one.cost is not None]
    return _Node(name, _together(costs) if len(costs) == len(run) else None, parts=parts)


def _together(costs: Sequence[ModuleCost]) -> ModuleCost:
    columns = {name: [getattr(cost, name) for cost in costs] for name in _SUMMED}
    sums: dict[str, Any] = {name: None if None in column else sum(column) for name, column in columns.items()}
    return replace(costs[0], members=sum(cost.members for cost in costs), **sums)


def _flat(node: _Node, path: str, depth: int) -> Iterator[ModuleCost]:
    """The rows of what lies in a node, each before its own parts."""
    for part in node.parts.values():
        here = f"{path}.{part.name}" if path else part.name
        ran = part.cost is not None and part.cost.calls > 0
        if part.cost is not None and ran:
            yield replace(part.cost, path=here, depth=depth)
        yield from _flat(part, path if part.whole else here, depth + ran)
