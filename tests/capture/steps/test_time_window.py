"""When a window of time opens, in scripts whose steps nothing tells."""

from __future__ import annotations

import time
from typing import Any

import pytest

from advisor.capture.inside.steps import time_window

# A module of torch that takes a while to load, as `torch._dynamo` does at an optimizer's first step.
LOADING = """
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.01)
seen.append(len(opened))
"""


# The compiler's function that stands on the stack for as long as code is made of another.
COMPILING = f"""
def _compile():
{LOADING.replace(chr(10), chr(10) + "    ")}
_compile()
"""


@pytest.mark.parametrize(
    ("name", "code", "waits"),
    [
        ("torch._half", LOADING, True),
        ("train", LOADING, False),
        ("torch._dynamo.convert_frame", COMPILING, True),
        ("train", COMPILING, False),
    ],
)
def test_none_opens_while_torch_loads_a_part_of_itself_or_compiles(
    name: str, code: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_window, "WAITS_S", (0.05,))
    opened: list[bool] = []
    seen: list[int] = []

    def start() -> bool:
        opened.append(True)
        return True

    window = time_window.TimeWindow(lambda: not opened, start, lambda: True)
    window.watch()
    names: dict[str, Any] = {"__name__": name, "time": time, "seen": seen, "opened": opened}
    exec(compile(code, f"{name}.py", "exec"), names)
    assert seen == [0 if waits else 1]
    end = time.monotonic() + 20
    while not opened and time.monotonic() < end:
        time.sleep(0.01)
    assert opened == [True]


@pytest.mark.torch
def test_one_that_is_open_ends_before_torch_compiles() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch._dynamo.callback")
    from advisor.capture.inside.facts import compiler

    told: list[str] = []
    end = compiler.before_each(lambda: told.append("begins"))
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    if not told:
        pytest.skip("this torch does not say when it compiles")
    end()
    end()  # a second time does nothing
    before = len(told)
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    assert len(told) == before
