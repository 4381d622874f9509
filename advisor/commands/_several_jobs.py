"""Where one job was asked for and the files are of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.inputs.jobs import Job

# So many of them are named.
_NAMED = 5


def in_words(found: Sequence[Job]) -> str:
    """Why several jobs are no one report, in one line."""
    names = "; ".join(job.name for job in found[:_NAMED])
    names += f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    text = f"these are {len(found)} unrelated jobs ({names}); pass one of them, or --each for one report per job"
    sizes = {job.world_size or 1 for job in found}
    if len(sizes) == 1 and 1 not in sizes and not any(len(job.traces) in sizes for job in found):
        # None of them is whole: perhaps parts of one, whose clocks differ.
        text += ". Ranks whose recorded times do not overlap are one job only if every rank has a trace"
    return text
