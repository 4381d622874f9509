"""Which of many later windows stay."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.windows.later import Later  # noqa: E402


def test_what_was_asked_for_stays_and_every_second_of_the_others_goes(tmp_path: Path) -> None:
    requests: Any = SimpleNamespace(every=10)
    later = Later({"folder": str(tmp_path)}, requests, lambda: "cpu", lambda: None, lambda: None)
    for at in range(10, 150, 10):
        why = "asked" if at == 50 else "every"
        (tmp_path / str(at)).touch()
        later.windows.append({"at": at, "why": why, "files": [{"path": str(at)}]})
    later.told.append((later.windows[3], None, None))  # type: ignore[arg-type]
    later._thin()
    assert [window["at"] for window in later.windows][-1] == 140
    assert 50 in [window["at"] for window in later.windows]
    assert 40 in [window["at"] for window in later.windows], "the first of its loop"
    assert len(later.windows) == 8
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [window["at"] for window in later.windows]
    assert requests.every == 20
