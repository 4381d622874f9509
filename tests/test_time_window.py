"""When a window of time opens, in scripts whose steps nothing tells."""

from __future__ import annotations

import time
from typing import Any

import pytest

from advisor.capture import timewindow

# A module of torch that takes a while to load, as `torch._dynamo` does at an optimizer's first step.
LOADING = """
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.01)
seen.append(len(opened))
"""


@pytest.mark.parametrize(("name", "waits"), [("torch._half", True), ("train", False)])
def test_none_opens_while_torch_loads_a_part_of_itself(name: str, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timewindow, "WAITS_S", (0.05,))
    opened: list[bool] = []
    seen: list[int] = []

    def start() -> bool:
        opened.append(True)
        return True

    window = timewindow.TimeWindow(lambda: not opened, start, lambda: True)
    window.watch()
    names: dict[str, Any] = {"__name__": name, "time": time, "seen": seen, "opened": opened}
    exec(compile(LOADING, f"{name}.py", "exec"), names)
    assert seen == [0 if waits else 1]
    end = time.monotonic() + 20
    while not opened and time.monotonic() < end:
        time.sleep(0.01)
    assert opened == [True]
