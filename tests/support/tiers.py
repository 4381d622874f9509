"""What the short run of the tests leaves to the complete one, `pytest --complete`.

A script that imports torch in a process of its own takes 1.3 CPU seconds at the least. The short run captures each kind
of script once; variants of a kind are marked `complete`.
"""

from __future__ import annotations

from typing import Any

import pytest


def complete(*cases: Any) -> list[Any]:
    """Cases of a `parametrize` that only the complete run has: values, or tuples of values where there are several."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.complete) for case in cases]
