"""Waits for batches that are long as each epoch begins, distinguished from noise and from steady waits."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.capture.record import Loader, StepTimes

uneven: Any = import_module("advisor.rules.input._uneven_waits")
LOADER = Loader(batch_size=16, num_workers=2, persistent_workers=True, dataset_size=64)


def found(waits: list[float], loader: Loader = LOADER, before: int = 0) -> Any:
    parts = {"fetch": waits, "backward": [6000.0] * len(waits), "rest": [2000.0] * len(waits)}
    timed = StepTimes(unprofiled_parts_us=parts, timed_before=before)
    return uneven.uneven_waits(SimpleNamespace(steps=timed), loader)


def epochs(count: int, first: float = 40_000.0, every: int = 4) -> list[float]:
    return [first if step % every == 0 else 300.0 for step in range(count * every)]


def test_the_mean_of_all_steps_counts() -> None:
    waits = found(epochs(10))
    assert waits.every == 4
    assert waits.us == pytest.approx((40_000 + 3 * 300) / 4)
    assert waits.share == pytest.approx(waits.us / (waits.us + 8000))


def test_the_profiled_window_shifts_the_rhythm() -> None:
    assert found(epochs(3)[:10] + epochs(8)[2:], before=10).every == 4


def test_steady_waits_are_told_by_the_median() -> None:
    assert found([5_000.0] * 40) is None


def test_short_waits_are_no_matter_however_uneven() -> None:
    assert found(epochs(10, first=900.0)) is None


def test_a_few_long_waits_at_random_are_not_the_beginning_of_an_epoch() -> None:
    rng = np.random.default_rng(0)
    waits = [300.0] * 80
    for step in rng.choice(80, 8, replace=False):
        waits[step] = 40_000.0
    assert found(waits) is None


def test_two_epochs_are_no_rhythm() -> None:
    assert found(epochs(2, every=4)) is None


def test_without_workers_the_loop_waits_for_each_batch() -> None:
    assert found(epochs(10), Loader(batch_size=16, num_workers=0, dataset_size=64)) is None
    assert found(epochs(10), Loader(batch_size=16, num_workers=2)) is None
