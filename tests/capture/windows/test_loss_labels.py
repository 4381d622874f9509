"""How many labels a cross entropy ignores, as the step whose lines are recorded sees it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from advisor.capture.inside.windows.lines import LineRecorder  # noqa: E402


def seen(*losses: Any) -> list[dict[str, int]]:
    """What a recorder notes of these losses."""
    recorder = LineRecorder({})
    recorder.start()
    try:
        for loss in losses:
            loss()
    finally:
        recorder.stop()
    return recorder.labels.record()


def test_labels_that_are_ignored_are_counted() -> None:
    labels = torch.tensor([3, -100, -100, 2])
    found = seen(lambda: cross_entropy(torch.randn(4, 5), labels))
    assert found == [{"labels": 4, "ignored": 2, "classes": 5, "largest": 3}]
    module = nn.CrossEntropyLoss(ignore_index=0)
    found = seen(lambda: module(torch.randn(2, 7, 3), torch.tensor([[0, 0, 1], [0, 4, 0]])))
    assert found == [{"labels": 6, "ignored": 4, "classes": 7, "largest": 4}]


def test_labels_of_which_none_counts_have_no_largest() -> None:
    found = seen(lambda: cross_entropy(torch.randn(2, 3), torch.tensor([-100, -100])))
    assert found == [{"labels": 2, "ignored": 2, "classes": 3}]


def test_labels_of_other_kinds_tell_nothing() -> None:
    def cross_entropy_of_mine(scores: Any) -> Any:
        return scores.sum()

    spread = torch.randn(4, 5).softmax(1)
    assert seen(lambda: cross_entropy(torch.randn(4, 5), spread), lambda: cross_entropy_of_mine(spread)) == []


def test_a_loop_of_losses_is_not_held() -> None:
    labels = torch.tensor([1, 2])
    assert seen(*[lambda: cross_entropy(torch.randn(2, 3), labels)] * 40) == []


def test_what_was_counted_once_stays() -> None:
    recorder = LineRecorder({})
    recorder.start()
    cross_entropy(torch.randn(2, 3), torch.tensor([1, -100]))
    recorder.stop()
    first = recorder.labels.record()
    assert first == [{"labels": 2, "ignored": 1, "classes": 3, "largest": 1}]
    assert recorder.labels.record() == first
