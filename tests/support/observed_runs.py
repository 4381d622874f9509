"""A step under the observer, as capture observes two of them after its window, and what is concluded from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from advisor.analyses.dataflow.judged_steps import JudgedSteps
from advisor.analyses.dataflow.observed.observed_steps import ObservedSteps
from advisor.capture.inside.dataflow.observer import Observer
from advisor.capture.inside.guards import hooks
from advisor.capture.record import Dataflow, JudgedOps, RankRecord
from advisor.computed import Computed


@dataclass(frozen=True, slots=True)
class Run:
    """What was written down of two steps."""

    observer: Observer
    file: Path

    @property
    def record(self) -> RankRecord:
        """As run.json has it now."""
        known = msgspec.convert(self.observer.record(), Dataflow)
        return RankRecord(dataflow=msgspec.structs.replace(known, file=str(self.file)) if known.file else known)

    @property
    def steps(self) -> ObservedSteps:
        """As the report reads them. Skips where this torch does not tell them."""
        found = Computed(record=self.record).get(ObservedSteps)
        if "this version of torch" in found.why:
            pytest.skip(found.why)
        assert found.steps, found.why
        return found

    @property
    def seen(self) -> JudgedOps:
        """What is concluded from them."""
        return Computed(record=self.record, observed=self.steps).get(JudgedSteps).seen

    @property
    def ops(self) -> list[str]:
        """The names of the ops, in order."""
        seen = self.seen
        return [seen.names[at].removeprefix("aten::") for at in seen.ops]


def observed(folder: Path, step: Callable[[], object]) -> Run:
    """Two steps, observed. Skips where this torch does not tell them."""
    file = folder / "dataflow.gz"
    observer = Observer(str(folder), lambda: str(file))
    observer.look()
    step()
    assert observer.start(False), observer.why
    placed = hooks.watch_backward(observer.factors.passed)
    for number in range(2):
        observer.open(number)
        step()
        observer.close()
    for undo in placed:
        undo()
    observer.stop(True)
    assert observer.file, observer.why
    return Run(observer, file)
