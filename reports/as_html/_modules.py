"""The table of modules: rows of the folded tree with everything said in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from advisor.api import ModuleCost, ModuleTable, Report, dataclass

from .. import _words
from . import _charts

# Deeper rows stand no further to the right: the page has to fit a phone.
_DEEPEST = 9
_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """A row. label: the path below the row that this one lies in;  bar: its length, the longest fills the column."""

    label: str
    path: str
    kind: str
    members: int
    depth: int
    bar: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Modules:
    """The table, or why there is none.

    steps     which steps the figures are of
    columns   those in which anything is known;  gaps: not everything in them is
    """

    why: str
    steps: str
    rank: int
    on_device: bool
    columns: tuple[str, ...]
    gaps: bool
    rows: tuple[ModuleRow, ...]


def modules(report: Report) -> Modules | None:
    """What the page says of modules; None where the input never told of any."""
    table = report.modules
    if table is None or not (table.folded or table.why):
        return None
    on_device = any(row.device_us is not None for row in table.folded)
    widest = max((_weight(row, on_device) for row in table.folded), default=0.0) or 1.0
    labels = _labels(table.folded)
    rows = [_row(row, label, on_device, widest) for row, label in zip(table.folded, labels, strict=True)]
    told = {name: any(dict(row.cells)[name] != _UNKNOWN for row in rows) for row in rows[:1] for name, _ in row.cells}
    columns = tuple(name for name, known in told.items() if known)
    shown = [replace(row, cells=tuple(cell for cell in row.cells if told[cell[0]])) for row in rows]
    gaps = any(value == _UNKNOWN for row in shown for _, value in row.cells)
    return Modules(table.why, _of_steps(report, table), table.rank, on_device, columns, gaps, tuple(shown))


def _of_steps(report: Report, table: ModuleTable) -> str:
    """Which steps the figures are of."""
    count = report.steps.count
    if count == 1:
        return "of the one profiled step"
    if table.steps == count:
        return f"typical of the {count} profiled steps"
    return f"typical of {table.steps} of the {count} profiled steps, which ran the same ops"


def _weight(row: ModuleCost, on_device: bool) -> float:
    return (row.device_share if on_device else row.share) or 0.0


def _labels(rows: Sequence[ModuleCost]) -> list[str]:
    """Each path without that of the row above that it lies in."""
    found, around = [], list[str]()
    for row in rows:
        del around[row.depth :]
        inside = f"{around[-1]}." if around else ""
        found.append(row.path.removeprefix(inside) if inside else row.path)
        around.append(row.path)
    return found


def _row(row: ModuleCost, label: str, on_device: bool, widest: float) -> ModuleRow:
    share = row.device_share if on_device else row.share
    cells = [
        ("Parameters", _known(row.parameters, _words.amount)),
        ("FLOPs forward", _known(row.flops, _words.amount)),
        ("Forward", _known(row.forward_us, _words.time)),
        ("Backward", _known(row.backward_us, _words.time)),
        *([("On the device", _known(row.device_us, _words.time))] if on_device else []),
        ("Share of step", _known(share, _words.share)),
    ]
    bar = _charts.percent(_weight(row, on_device) / widest)
    return ModuleRow(label, row.path, row.kind, row.members, min(row.depth, _DEEPEST), bar, tuple(cells))


def _known(value: float | None, say: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else say(value)
