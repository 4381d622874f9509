"""What formatting a stack takes, where anomaly detection stores one for each node."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_frames_and_files_are_told_apart() -> None:
    from torch.fx import traceback

    from advisor.capture.inside.facts import stack_traces

    assert stack_traces.cost() is None
    seen: list[int] = []
    whole = traceback.format_stack

    def counted() -> list[str]:
        found: list[str] = whole()
        seen.append(len(found))
        return found

    traceback.format_stack = counted
    try:
        with torch.autograd.set_detect_anomaly(True):
            found = stack_traces.cost()
    finally:
        traceback.format_stack = whole
    assert found is not None
    assert found["us"] >= 0
    assert found["frame_us"] > 0
    # No frame of whoever asks: the plain stack, then 16 frames more, then one of each file.
    depths = sorted(set(seen))
    assert depths[0] + 16 == depths[-1]
    assert len(depths) == 3


def test_a_stack_trace_for_each_parameter() -> None:
    """The node of a parameter stores one, too, in each step anew."""
    from torch.fx import traceback

    weight = torch.nn.Parameter(torch.ones(3))
    calls, whole = [0], traceback.format_stack

    def counted() -> list[str]:
        calls[0] += 1
        found: list[str] = whole()
        return found

    traceback.format_stack = counted
    try:
        with torch.autograd.set_detect_anomaly(True):
            for _ in range(2):
                (weight * 2).sum().backward()
    finally:
        traceback.format_stack = whole
    assert calls[0] == 2 * 3
