"""Reads inside observers of quantization: told with the class that makes them, where the model has modules of it."""

from __future__ import annotations

import importlib

import msgspec
import pytest

from advisor.capture.record import RankRecord
from advisor.model import Finding, Fix, Source

of_observers = importlib.import_module("advisor.rules.host._observers").of_observers
READS = Finding("It reads.", fix=Fix("Read them at once", "exact"), where=(Source("train.py", 63),))


def record(*kinds: str) -> RankRecord:
    modules = [{"path": str(at), "kind": kind, "parameters": 0} for at, kind in enumerate(kinds)]
    at = {"histogram_observer": {"file": "train.py", "line": 80}}
    return msgspec.convert({"rank": 0, "model": {"modules": modules}, "settings": {"set_at": at}}, RankRecord)


def test_histograms_are_named_with_the_line_that_asks_for_them() -> None:
    found = of_observers(READS, record("Conv2d", "HistogramObserver", "HistogramObserver"))
    assert "2 modules of class `HistogramObserver`" in found.message
    assert found.fix.title.startswith("Observe activations by moving averages")
    assert [one.line for one in found.where] == [80, 63]


@pytest.mark.parametrize("known", [None, record("Conv2d", "MovingAverageMinMaxObserver")])
def test_other_reads_stay_as_they_are(known: RankRecord | None) -> None:
    assert of_observers(READS, known) is READS


def test_the_class_and_the_one_instead_are_torchs() -> None:
    observer = pytest.importorskip("torch.ao.quantization.observer")
    assert issubclass(observer.HistogramObserver, observer.UniformQuantizationObserverBase)
    assert issubclass(observer.MovingAverageMinMaxObserver, observer.MinMaxObserver)
