"""The cost of the model by module, as a report shows it: every module, and the costliest as a folded tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.costs.module_calls import ModuleCalls
from advisor.analyses.costs.module_costs import ModuleCosts
from advisor.arrays import Floats
from advisor.capture.record import RankRecord
from advisor.computed import Computed, Missing
from advisor.model import ModuleCost, ModuleTable
from advisor.report.module_tree import fold

# Rows of report.json: as many as a large vision model has modules. Beyond them the cheapest are left out.
_MOST_ROWS = 400
# All ranks of a job run the same model, and thousands of equal tables would fill the memory of who merges them.
_MOST_RANKS = 8
_MIXED = "several models have modules with the same path in this capture; capture the script again to distinguish them"


def modules(computed: Computed, rank: int, record: RankRecord | None) -> ModuleTable | None:
    """The table of a rank. None where nothing speaks of modules, and for all but the first ranks."""
    if rank >= _MOST_RANKS:
        return None
    listed = _listed(record)
    try:
        if len({row["path"] for row in listed}) < len(listed):
            raise Missing(_MIXED)
        costs = computed.get(ModuleCosts)
    except Missing as reason:
        return ModuleTable(rank, why=str(reason)) if record is not None else None
    busy = computed.find(GpuBusy)
    rows = list(_rows(costs, listed, costs.step_us / (busy.longer if busy else 1.0)))
    kept = _costliest(rows)
    return ModuleTable(
        rank=rank,
        steps=int(costs.calls.kept.sum()),
        rows=tuple(kept),
        left_out=len(rows) - len(kept),
        folded=fold(rows, alone=_alone(rows, listed)),
    )


def _listed(record: RankRecord | None) -> list[Mapping[str, Any]]:
    """What capture wrote of each module: path, kind, parameters."""
    found = ((record.model if record else None) or {}).get("modules")
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("path"), str)]


def _alone(rows: list[ModuleCost], listed: list[Mapping[str, Any]]) -> bool:
    """Whether the first row is the whole model: capture leaves its name out of the paths inside it."""
    roots = sum(row.get("root") is True for row in listed)
    return bool(listed) and roots <= 1 and rows[0].calls > 0


def _rows(costs: ModuleCosts, listed: list[Mapping[str, Any]], device_step_us: float) -> Iterable[ModuleCost]:
    """Every module: those that capture knows in the model's order, then those that only the trace has.

    device_step_us: the step that device work takes a share of; the profiler does not slow it as it does the host.
    """
    calls = costs.calls
    index: dict[str, int] = {}
    for at, path in enumerate(calls.paths):
        index.setdefault(path, at)
    known = {row["path"]: row for row in listed}
    for path in dict.fromkeys((*known, *calls.paths)):
        row = known.get(path, {})
        ran = index.get(path)
        kind = calls.kinds[ran] if ran is not None else str(row.get("kind", ""))
        parameters, size = _whole(row.get("parameters")), _whole(row.get("parameter_bytes"))
        told = ModuleCost(path, kind, parameters=parameters, parameter_bytes=size)
        yield told if ran is None else _with_costs(told, costs, calls, ran, device_step_us)


def _with_costs(told: ModuleCost, costs: ModuleCosts, calls: ModuleCalls, at: int, device_step_us: float) -> ModuleCost:
    def value(of: Mapping[str, Floats | None], name: str) -> float | None:
        column = of[name]
        return float(column[at]) if column is not None and np.isfinite(column[at]) else None

    forward, backward = value(costs.whole, "forward_us"), value(costs.whole, "backward_us")
    forward_own, backward_own = value(costs.own, "forward_us"), value(costs.own, "backward_us")
    device = value(costs.whole, "device_us")
    return replace(
        told,
        calls=calls.calls[at],
        flops=value(costs.whole, "flops"),
        forward_us=forward,
        forward_own_us=forward_own,
        backward_us=backward,
        backward_own_us=backward_own,
        device_us=device,
        device_own_us=value(costs.own, "device_us"),
        share=((forward or 0.0) + (backward or 0.0)) / costs.step_us,
        own_share=((forward_own or 0.0) + (backward_own or 0.0)) / costs.step_us,
        device_share=device / device_step_us if device is not None else None,
        low_us=float(costs.plain_us[0][at]) if costs.plain_us else None,
        high_us=float(costs.plain_us[1][at]) if costs.plain_us else None,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _costliest(rows: list[ModuleCost]) -> list[ModuleCost]:
    """At most so many rows, in their order: the longest, and of those without a time the first."""
    order = sorted(range(len(rows)), key=lambda at: (-(rows[at].share or -1.0), at))
    return [rows[at] for at in sorted(order[:_MOST_ROWS])]
