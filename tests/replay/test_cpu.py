"""Traces that PyTorch records here, on a CPU: replayed, and a fix promised against the fix made."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.replay import Replay
from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Computed
from advisor.replay.edits import remove
from advisor.trace.events import Category
from advisor.trace.read.load import load

pytestmark = pytest.mark.torch
STEPS = 6


def train_step(torch: Any, model: Any, optimizer: Any, twice: bool) -> Any:
    """A training step on random data; `twice` runs a second forward that nothing needs."""
    x = torch.randn(16, 3, 32, 32)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if twice:
        with torch.profiler.record_function("second forward"):
            model(x)
    loss.backward()
    optimizer.step()
    return loss


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float], list[float]]:
    """A trace of steps with a needless second forward, and un-profiled times of steps with and without it, µs."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    nn = torch.nn
    layers = [layer for _ in range(10) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(20):
        for twice in (True, False):
            begin = time.perf_counter()
            train_step(torch, model, optimizer, twice)
            if number >= 5:
                times[twice].append((time.perf_counter() - begin) * 1e6)
    path = tmp_path_factory.mktemp("cpu") / "cpu.pt.trace.json"
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=STEPS)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(STEPS + 2):
            train_step(torch, model, optimizer, True)
            profiler.step()
    return path, times[True], times[False]


def test_a_recorded_step_replays_as_it_was(recorded: tuple[Path, list[float], list[float]]) -> None:
    replay = Computed(trace=load(recorded[0])).get(Replay)
    assert replay.error_share < 0.02
    assert replay.start_error_us is None
    assert replay.steps == STEPS
    assert not replay.low_confidence


def test_the_promise_for_a_needless_forward_is_near_its_measured_gain(
    recorded: tuple[Path, list[float], list[float]],
) -> None:
    path, slow, fast = recorded
    trace = load(path)
    record = RankRecord(steps=StepTimes(unprofiled_us=slow))
    replay = Computed(trace=trace, record=record).get(Replay)
    second = np.flatnonzero(trace.events.named("second forward") & trace.events.of(Category.ANNOTATION))
    saving = replay.saving(remove(second), how="")
    before, after = statistics.median(slow), statistics.median(fast)
    gained_share = 1 - after / before
    promised_share = (saving.low_us + saving.high_us) / 2 / before
    # Machines that run tests are busy; the point is that the promise is neither nothing nor everything.
    assert promised_share == pytest.approx(gained_share, abs=0.12)
