"""A step under the observer, as capture observes two of them after its window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.capture.inside.dataflow.observer import Observer


def observed(folder: Path, step: Callable[[], object]) -> Observer:
    """The observer after two steps, its finds in `found` and `waits`. Skips where this torch does not tell them."""
    observer = Observer(str(folder))
    observer.look()
    step()
    assert observer.start(100, False), observer.why
    for number in range(2):
        observer.open(number)
        step()
        observer.close()
    observer.stop(True)
    if observer.found is None and "this torch does not say" in observer.why:
        pytest.skip(observer.why)
    assert observer.found is not None, observer.why
    return observer
