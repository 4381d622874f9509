"""Places in the user's code as messages name them."""

from __future__ import annotations

from advisor.api import Source


def place(where: Source | None) -> str:
    """' at train.py:88'; where only the function is known ' in train(), from train.py:80'; nothing where unknown."""
    if where is None:
        return ""
    at = f"{where.file.rpartition('/')[2]}:{where.line}"
    if where.precision == "function" and where.function:
        return f" in {where.function}(), from {at}"
    return f" at {at}"
