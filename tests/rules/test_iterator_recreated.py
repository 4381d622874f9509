"""An iterator of a loader that is made anew for each batch: when that is said, where, and what it gives back."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.api import Price, RankRecord, Source
from advisor.capture.record import Loader, StepTimes

anew: Any = import_module("advisor.rules.input._iterator_recreated")

SCALE: Any = SimpleNamespace(step_us=10_000.0, scaled=lambda us: us)
# Recording doubled nothing: what was recorded is what it takes.
DEPROFILED: Any = SimpleNamespace(in_part=lambda name, us, rows: us, us=lambda us: (us, us))


def loader(**changes: Any) -> Loader:
    known: dict[str, Any] = {
        "num_workers": 0,
        "batch_size": 32,
        "dataset_size": 300_000,
        "sampler_us": 2_000.0,
        "batches_per_iterator": 1.0,
    }
    return Loader(**(known | changes))


def costs(*lines: tuple[int, float, float]) -> Any:
    """(line, its own µs in fetches, its µs of Python), each run once a step."""
    return SimpleNamespace(
        lines=[
            SimpleNamespace(
                source=Source("train.py", line, "f"),
                us=fetch_us + python_us,
                parts={"input": fetch_us},
                python_us=python_us,
                rows=0.0,
                work=python_us,
                visits=1.0,
            )
            for line, fetch_us, python_us in lines
        ]
    )


WAITS: Any = SimpleNamespace(asked_at=(Source("train.py", 47), Source("train.py", 48)))
LINES = costs((47, 100.0, 20.0), (48, 4_400.0, 800.0), (60, 5_000.0, 0.0))


def seen(record: RankRecord | None, lines: Any) -> Any:
    price = Price(None, None, SCALE, DEPROFILED, None, None)  # type: ignore[arg-type]
    return SimpleNamespace(price=price, record=record, costs=lines, waits=WAITS)


def advice(*loaders: Loader, lines: Any = LINES, least: float = 0.05) -> Any:
    return anew.advice(seen(RankRecord(rank=0, loaders=list(loaders)), lines), least)


def test_it_is_said_where_most_is_asked_for_with_what_drawing_takes_at_least() -> None:
    found = advice(loader(batches_per_iterator=200.0, sampler_us=5.0), loader())
    assert [at.line for at in found.where] == [48]
    # Making the iterator and one draw: two times of 2 ms in the mean.
    assert found.saving.low_us == pytest.approx(4_000.0)
    assert 5_200.0 <= found.saving.high_us <= 5_200.0 + 0.2 * 4_800.0
    assert "300,000 samples takes 4 ms of each step (40 %)" in found.message


@pytest.mark.parametrize(
    "changes",
    [
        {"batches_per_iterator": 20.0},  # an epoch
        # Four batches an epoch, all of which two workers draw ahead.
        {"num_workers": 2, "prefetch_factor": 2, "batches_per_iterator": 5.1, "dataset_size": 128},
        {"batches_per_iterator": None},  # one that was made before anybody looked
        {"sampler_us": None},
        {"dataset_size": 64},  # two batches
        {"dataset_size": None},
        {"num_workers": 2, "prefetch_factor": 2, "batches_per_iterator": 8.0},
    ],
)
def test_iterators_that_give_more_than_a_batch_or_tell_nothing(changes: dict[str, Any]) -> None:
    assert advice(loader(**changes)) is None


def test_workers_draw_ahead() -> None:
    assert advice(loader(num_workers=2, prefetch_factor=2, batches_per_iterator=5.0)) is not None


def test_what_costs_little_is_no_finding() -> None:
    assert advice(loader(sampler_us=20.0), lines=costs((48, 400.0, 30.0))) is None


def test_without_lines_nothing_is_said() -> None:
    assert anew.advice(seen(RankRecord(rank=0, loaders=[loader()]), None), 0.05) is None
    assert advice(loader(), lines=costs((60, 400.0, 3000.0))) is None
    assert anew.advice(seen(None, LINES), 0.05) is None


WITH_WORKERS: dict[str, Any] = {
    "num_workers": 2,
    "prefetch_factor": 2,
    "batches_per_iterator": 4.9,  # two loaders of one line, of which one goes on with its epoch
    "iterators": 99,
}


def of_steps(count: int, **changes: Any) -> Any:
    record = RankRecord(rank=0, loaders=[loader(**(WITH_WORKERS | changes))], steps=StepTimes(count=count))
    return anew.advice(seen(record, costs((47, 100.0, 0.0), (48, 1_000.0, 3_000.0))), 0.05)


def test_workers_that_are_started_in_each_step_are_what_it_costs() -> None:
    found = of_steps(96)
    assert [at.line for at in found.where] == [48]
    # Starting them is Python of the line; the wait for their first batch comes on top.
    assert (found.saving.low_us, found.saving.high_us) == (3_000.0, 4_000.0)
    assert "each one starts 2 workers and stops them again, 3 ms of each step (30 %)" in found.message


@pytest.mark.parametrize(
    ("count", "changes"),
    [
        (400, {}),  # an evaluation of some batches, now and then
        (96, {"persistent_workers": True}),
        (96, {"dataset_size": 64}),  # epochs of two batches
    ],
)
def test_epochs_that_start_workers_are_another_fault(count: int, changes: dict[str, Any]) -> None:
    found = of_steps(count, **changes)
    assert found is None or "starts 2 workers" not in found.message
