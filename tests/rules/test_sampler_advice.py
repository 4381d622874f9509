"""What a sampler's draws give back: by the line that takes most of them, and by what it calls."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.api import Source
from advisor.capture.record import Loader

sampler: Any = import_module("advisor.rules.input._sampler")


def scale(step_us: float, mean_us: float | None = None) -> Any:
    return SimpleNamespace(step_us=step_us, factor=1.0, unprofiled=SimpleNamespace(mean=mean_us))


def costs(**by_line: float) -> Any:
    """us of the fetches by line of train.py, as `L26=3000.0`."""
    return SimpleNamespace(
        lines=[
            SimpleNamespace(source=Source("train.py", int(name[1:]), "f"), parts={"input": us})
            for name, us in by_line.items()
        ]
    )


def loader(**changes: Any) -> Loader:
    known: dict[str, Any] = {
        "num_workers": 0,
        "batch_size": 32,
        "sampler": "Own",
        "sampler_us": 3200.0,
        "sampler_median_us": 3200.0,
        "sampler_file": "train.py",
        "sampler_lines": [[10, 12], [24, 26]],
        "sampler_weighted": [26],
    }
    return Loader(**(known | changes))


def test_a_draw_by_weight_gives_all_back_but_one_draw_and_what_indices_cost() -> None:
    found = sampler.drawing(loader(), 1.0, scale(10_000.0), costs(L26=3000.0, L40=5000.0))
    low_us, high_us = found.range_us
    # 3,200 µs for 32 indices: 100 µs for one, and 32 µs for the indices of a batch.
    assert low_us == pytest.approx(3200 - 100 - 32)
    assert 3200 - 2 < high_us <= 3200 + 400
    assert found.by_weight
    assert [one.line for one in found.where] == [26]


@pytest.mark.parametrize(
    "lines",
    [
        {"L25": 3000.0, "L26": 40.0},  # most of it on a line that draws nothing
        {"L11": 3000.0, "L26": 40.0},  # in a function that the sampler calls
        {},  # no line of it was recorded
        {"L40": 3000.0},  # a line of something else
    ],
)
def test_what_else_a_sampler_does_may_take_as_long_at_once(lines: dict[str, float]) -> None:
    found = sampler.drawing(loader(), 1.0, scale(10_000.0), costs(**lines))
    assert found.range_us[0] == 0.0
    assert not found.by_weight


def test_without_lines_the_function_is_named() -> None:
    found = sampler.drawing(loader(), 1.0, scale(10_000.0), None)
    assert [(one.line, one.precision) for one in found.where] == [(10, "function")]


def test_draws_as_an_epoch_begins_are_a_share_of_the_mean_step() -> None:
    """1 ms in the mean of steps that take 20 ms in the mean and 10 ms in the median: a twentieth."""
    found = sampler.drawing(loader(sampler_us=1000.0, sampler_median_us=5.0), 1.0, scale(10_000.0, 20_000.0), None)
    assert found.by_epoch
    assert found.us == pytest.approx(500.0)
    assert found.range_us[1] <= 500.0


def test_a_device_waits_for_no_more_than_it_was_seen_to_wait() -> None:
    found = sampler.drawing(loader(), 1.0, scale(10_000.0), costs(L26=3000.0), 800.0)
    assert found.us == 800.0
    assert found.range_us[1] <= 800.0


def test_several_batches_in_a_step_are_drawn_one_after_the_other() -> None:
    found = sampler.drawing(loader(sampler_us=1000.0), 4.0, scale(10_000.0), costs(L26=3000.0))
    assert found.us == 4000.0


def test_draws_that_nobody_timed_are_unknown() -> None:
    assert sampler.drawing(loader(sampler_us=None), 1.0, scale(10_000.0), None) is None
    assert sampler.drawing(None, 1.0, scale(10_000.0), None) is None
