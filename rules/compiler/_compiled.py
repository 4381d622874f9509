"""What torch.compile said of itself: reasons of recompilations and of graph breaks, as capture recorded them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from msgspec import Struct

from advisor.api import RankRecord, Source

# A message is one line; the reasons of the compiler go on for ten.
_LONGEST = 90


class Recompile(Struct, frozen=True):
    """One recompilation: of which frame, because of which guard, and at which line, where it is said."""

    frame: str
    reason: str
    where: Source | None


def recompiles(record: RankRecord | None) -> list[Recompile]:
    """Recorded recompilations in order; empty where nothing was recorded."""
    recorded: Any = (record.compile or {}).get("recompiles") if record else None
    found = []
    for text in recorded if isinstance(recorded, list) else []:
        frame, _, rest = str(text).partition(": ")
        if re.fullmatch(r"\d+/\d+", frame):
            found.append(Recompile(frame.partition("/")[0], _first_line(rest), _where(rest)))
    return found


def given_up(record: RankRecord | None, *, limit: int = 8) -> dict[str, int]:
    """Frames that were compiled anew as often as PyTorch allows (8 times unless set otherwise), and how often."""
    return {
        frame: number for frame, number in Counter(one.frame for one in recompiles(record)).items() if number >= limit
    }


def graph_breaks(record: RankRecord | None) -> dict[str, int]:
    """Reasons of graph breaks, one line each, with how often the compiler met them; most frequent first."""
    recorded: Any = (record.compile or {}).get("graph_breaks") if record else None
    found: Counter[str] = Counter()
    for reason, number in recorded.items() if isinstance(recorded, dict) else ():
        found[_first_line(str(reason))] += int(number)
    return dict(found.most_common())


def marks_regions(record: RankRecord | None) -> bool:
    """Whether compiled code has rows of its own in the trace; taken for true where capture does not deny it."""
    return ((record.compile or {}).get("regions") if record else None) is not False


def _first_line(text: str) -> str:
    # What follows the guard is the line of code that it was made for.
    line = re.split(r"\s{2,}#|\n", text.strip(), maxsplit=1)[0].strip()
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _where(text: str) -> Source | None:
    frames = re.findall(r'File "([^"\n]+)", line (\d+), in (\S+)', text)
    if not frames:
        return None
    file, line, function = frames[-1]
    resumed = re.match(r"torch_dynamo_resume_in_(.+)_at_\d+$", function)
    return Source(file, int(line), resumed[1] if resumed else function, "call")
