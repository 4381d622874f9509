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


def batch_size_at(loader: Loader | None) -> tuple[Source, ...]:
    """The line that gives the batch size its number, then where the loader was made, as far as they are known."""
    number = loader.batch_size_at if loader else None
    made = made_at(loader)
    known = (Source(number.file, number.line, number.function),) if number else ()
    return known + tuple(one for one in made if (one.file, one.line) not in {(at.file, at.line) for at in known})


def set_at(settings: Settings | None, *names: str) -> tuple[Source, ...]:
    """Where the script set one of these, as `Settings.set_at` names them; empty where it did not, or nobody saw it."""
    known = settings.set_at if settings else {}
    found = next((known[name] for name in names if name in known), None)
    return (Source(found.file, found.line, found.function),) if found else ()


def first_line(lines: Lines | None, rows: npt.NDArray[np.int64]) -> Source | None:
    """The line of the first of these rows whose line is known."""
    return next((found for row in rows.tolist() if lines and (found := lines.where_op(row))), None)


def often(per_step: float) -> str:
    """'once a step', '2 times a step'; 'once in 5 steps' for what is rarer. per_step: above 0."""
    if per_step < _ONCE_IN_TWO:
        return f"once in {count(round(1 / per_step))} steps"
    return "once a step" if round(per_step, 1) == 1 else f"{count(per_step)} times a step"
