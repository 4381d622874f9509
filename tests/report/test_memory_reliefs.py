"""What a change would free of the peak, against the peak of the changed script."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from advisor.computed import Computed  # noqa: E402
from advisor.model import MemoryPeak  # noqa: E402
from advisor.report.memory_view import memory  # noqa: E402
from advisor.trace.read.load import load  # noqa: E402


def _peak(folder: Path, *, foreach: bool, batch: int = 4) -> MemoryPeak:
    """Four steps of eight layers of 256 x 256, profiled here and now."""
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach)
    data = torch.randn(batch, 256)

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    step()
    path = folder / f"{foreach}-{batch}.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=4, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(5):
            step()
            profiler.step()
    found = memory(Computed(trace=load(path)), 0, None)
    assert found is not None
    return found


def _freed(peak: MemoryPeak) -> int:
    return sum(one.bytes for one in peak.reliefs if "foreach=False" in one.title)


def test_the_temporaries_of_a_foreach_step_bound_what_foreach_false_frees(tmp_path: Path) -> None:
    together, alone = (_peak(tmp_path, foreach=foreach) for foreach in (True, False))
    freed = together.peak_bytes - alone.peak_bytes
    assert freed > 0  # or nothing was tested
    assert freed <= _freed(together) <= 2 * freed
    assert _freed(alone) == 0


@pytest.mark.complete
def test_where_the_peak_lies_elsewhere_nothing_is_said_of_the_optimizer(tmp_path: Path) -> None:
    assert _freed(_peak(tmp_path, foreach=True, batch=20_000)) == 0
