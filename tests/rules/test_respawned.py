"""The rhythm of loaders that start their workers anew in each epoch, told from noise and from other work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.capture.record import Loader, StepTimes
from advisor.rules.shared._batches import respawned

LOADER = Loader(batch_size=16, num_workers=2, persistent_workers=False, dataset_size=160)


def found(times: list[float], fetches: list[float] | None = None) -> tuple[float, float] | None:
    scale: Any = SimpleNamespace(
        unprofiled=SimpleNamespace(mean=float(np.mean(times)), p10=float(np.percentile(times, 10)))
    )
    return respawned(LOADER, scale, StepTimes(unprofiled_us=times, unprofiled_parts_us={"fetch": fetches or []}))


def steps(period: int, count: int = 120, offset: int = 1) -> list[float]:
    return [50_000.0 if (step - offset) % period == 0 else 5_000.0 for step in range(count)]


@pytest.mark.parametrize("period", [9, 10, 11])  # one step not timed, as the numbers say, and a last batch of fewer
def test_every_epoch_opens_with_a_long_step(period: int) -> None:
    times = steps(period)
    result = found(times)
    assert result is not None
    assert result[0] == pytest.approx(1 - 5_000 * len(times) / sum(times))


def test_a_few_long_steps_elsewhere_and_a_few_short_openings_do_not_hide_the_rhythm() -> None:
    times = steps(10)
    for step in (95, 102, 108):
        times[step] = 150_000.0
    for step in (41, 61):
        times[step] = 6_000.0
    assert found(times) is not None


def test_long_steps_at_random_are_no_rhythm() -> None:
    rng = np.random.default_rng(0)
    times = [5_000.0] * 120
    for step in rng.choice(120, 12, replace=False):
        times[step] = 50_000.0
    assert found(times) is None


def test_long_steps_that_do_not_wait_for_the_loader_have_another_reason() -> None:
    times = steps(10)
    assert found(times, [100.0] * len(times)) is None
    assert found(times, [0.25 * time for time in times]) is not None
