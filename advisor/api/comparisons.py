"""Two reports compared, and the history of many: what only their renderers need."""

from __future__ import annotations

from advisor.gate.comparison.model import Compared, Comparison, Mover, Movers
from advisor.gate.comparison.model import in_words as change_in_words
from advisor.gate.history.model import Changed, History, Series
from advisor.gate.history.texts import sentence as history_sentence
from advisor.gate.history.texts import short as short_commit
from advisor.gate.history.texts import summary as history_summary
from advisor.gate.history.texts import value as history_value
from advisor.gate.model import Cause, Flagged
from advisor.gate.model import Row as ComparedRow

__all__ = [
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
