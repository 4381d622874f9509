"""Everything that rules and reporters may import: the promise to third parties.

Additive changes only. A rule asks for these types in the parameters of its `check`; a reporter receives a `Report`.
"""

# ruff: noqa: F403, F405 - each part lists its names
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advisor.api import analyses, drawings, findings, recorded
from advisor.api.analyses import *
from advisor.api.drawings import *
from advisor.api.findings import *
from advisor.api.recorded import *

if TYPE_CHECKING:
    from advisor.api.comparisons import *

# Former names, for packs that import them.
TURNS = analyses.LOOP_ITERATIONS
Undilated = analyses.Deprofiled

__all__ = ["dataclass"]
__all__ += analyses.__all__
__all__ += drawings.__all__
__all__ += findings.__all__
__all__ += recorded.__all__
# Those of `advisor.api.comparisons`, which is imported when one of them is asked for: most commands need none of it.
__all__ += [
    "Cause",
    "Changed",
    "Compared",
    "ComparedRow",
    "Comparison",
    "Flagged",
    "History",
    "Mover",
    "Movers",
    "Series",
    "change_in_words",
    "history_sentence",
    "history_summary",
    "history_value",
    "short_commit",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from advisor.api import comparisons

    return getattr(comparisons, name)
