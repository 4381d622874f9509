"""Places in the user's code, and how often something happens, as messages name them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import Lines, Loader, Optimizer, Settings, Source

from ._words import count

# Below it the nearest whole number of steps is two or more.
_ONCE_IN_TWO = 2 / 3


def place(where: Source | None) -> str:
    """' at train.py:88'; where only the function is known ' in train(), from train.py:80'; nothing where unknown."""
    if where is None:
        return ""
    at = f"{where.file.rpartition('/')[2]}:{where.line}"
    if where.precision == "function" and where.function:
        return f" in {where.function}(), from {at}"
    return f" at {at}"


def made_at(made: Loader | Optimizer | None) -> tuple[Source, ...]:
    """Where a loader or an optimizer was made; empty where capture did not see it."""
    return (Source(made.file, made.line, made.function),) if made and made.file else ()


def set_at(settings: Settings | None, name: str) -> tuple[Source, ...]:
    """Where the script set this setting, as `Settings.set_at` names it; empty where it did not, or nobody saw it."""
    found = settings.set_at.get(name) if settings else None
    return (Source(found.file, found.line, found.function),) if found else ()


def first_line(lines: Lines | None, rows: npt.NDArray[np.int64]) -> Source | None:
    """The line of the first of these rows whose line is known."""
    return next((found for row in rows.tolist() if lines and (found := lines.where_op(row))), None)


def often(per_step: float) -> str:
    """'once a step', '2 times a step'; 'once in 5 steps' for what is rarer. per_step: above 0."""
    if per_step < _ONCE_IN_TWO:
        return f"once in {count(round(1 / per_step))} steps"
    return "once a step" if round(per_step, 1) == 1 else f"{count(per_step)} times a step"
