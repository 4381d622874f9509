"""`--what-if-ranks`: the step on other numbers of ranks, added to a report from what is left of its ranks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.engine.rank_result import RankResult
    from advisor.model import Report

# Far beyond any job: a larger number is a mistake of typing.
_MOST = 10**7


def numbers(text: str) -> tuple[int, ...]:
    """The option's numbers of ranks, in order."""
    found = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= _MOST for part in found):
        raise argparse.ArgumentTypeError(f"{text}: must be numbers of ranks, such as 64,256")
    return tuple(sorted({int(part) for part in found}))


def added(report: Report, results: Sequence[RankResult], wanted: tuple[int, ...]) -> Report:
    """The report with the answer for these numbers of ranks."""
    from msgspec.structs import replace

    from advisor.report.what_if_ranks import at_ranks

    here = [one for one in results if one.facts is not None]
    at = next((i for i, one in enumerate(here) if one.summary.rank == report.run.reference_rank), 0)
    facts = [one.facts for one in here if one.facts is not None]
    return replace(report, what_if_ranks=at_ranks(facts, at, report.steps.source, wanted))
