"""Places in the user's code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the user's code. `function` precision: the line is where the function starts, not the call."""

    file: str
    line: int
    function: str = ""
    precision: Literal["call", "function"] = "call"
