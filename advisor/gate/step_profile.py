"""Profiles a step function in this process: for a test suite, where no script is run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import UsageError
from advisor.gate import budgets, words
from advisor.gate.config import Budget
from advisor.gate.counters import Count, is_total
from advisor.model import Counter, Metric


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What a step does, per step. metrics: as in a report; counters: of each step, parts of totals included."""

    metrics: dict[str, Metric]
    counters: tuple[Counter, ...]

    def __getitem__(self, id_: str) -> float:
        """The value of a metric or counter. Raises KeyError, with the reason, where it was not measured."""
        value, why = budgets.value_of(id_, self.metrics, self.counts())
        if value is None:
            raise KeyError(f"{id_} was not measured: {why}")
        return value

    def counts(self) -> dict[str, Count]:
        """The counters by id: the largest value of any step, because a budget holds for every step."""
        return {
            c.id: Count(c.id, c.unit, max(c.per_step), len(set(c.per_step)) == 1) for c in self.counters if c.per_step
        }

    def exceeded(self, limits: Sequence[Budget]) -> list[str]:
        """One line for each hard limit that is exceeded, or that could not be checked."""
        said = []
        for row in budgets.rows(limits, {}, {**self._measured(), **self.counts()}):
            if row.gated and row.status == "worse":
                said.append(f"{row.id} is {words.value(row.head, row.unit)}, {row.limit}{self._where(row.id)}")
            elif row.gated and row.status == "not measured":
                metric = self.metrics.get(row.id)
                said.append(f"{row.id} has a budget and was not measured: {(metric.why if metric else '') or row.why}")
        return said

    def _measured(self) -> dict[str, Count]:
        return {m.id: Count(m.id, m.unit, m.value) for m in self.metrics.values() if m.status == "measured"}

    def _where(self, id_: str) -> str:
        """The largest parts of a total, so that the message says what to look at."""
        prefix = {"cpu_ops": "op:", "syncs": "sync:"}.get(id_)
        parts = [c for c in self.counters if prefix and c.id.startswith(prefix) and not is_total(c.id)]
        parts.sort(key=lambda c: -max(c.per_step))
        named = [f"{max(c.per_step):g} {c.id.partition(':')[2]}" for c in parts[:3]]
        return f" ({', '.join(named)} …)" if named else ""


def profile_step(step: Callable[[], Any], *, steps: int = 5, warmup: int = 3) -> StepProfile:
    """Profiles `steps` calls of `step` after `warmup` calls. Needs torch. Raises UsageError for impossible numbers."""
    if steps < 1 or warmup < 0:
        raise UsageError(f"advisor_step: needs steps >= 1 and warmup >= 0, got {steps} and {warmup}")
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    for _ in range(warmup):
        step()
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_initialized():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as recorded:
        for number in range(steps):
            with record_function(f"ProfilerStep#{number}"):
                step()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="advisor-step-") as folder:
        path = Path(folder) / "step.pt.trace.json"
        recorded.export_chrome_trace(str(path))
        return _read(path)


def _read(path: Path) -> StepProfile:
    from advisor.analyses.step.step_counts import StepCounts
    from advisor.computed import Computed
    from advisor.report import metrics
    from advisor.trace.read.load import load

    computed = Computed(trace=load(path))
    return StepProfile(metrics.measure(computed), computed.get(StepCounts).counters)
