"""The ranks of a job for the commands that read them: their files, their progress, and what failed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.commands import _options

if TYPE_CHECKING:
    from advisor.capture.record import RunRecord
    from advisor.engine.config import Config
    from advisor.engine.rank_files import Asked, RankFile
    from advisor.engine.rank_results import Watch
    from advisor.engine.reduced_form import Reduced
    from advisor.engine.registry import Rules
    from advisor.inputs.jobs import RankTrace
    from advisor.model import Health
    from advisor.places.place import Place


@dataclass(frozen=True, slots=True)
class Reading:
    """How the user wants ranks to be read.

    workers: processes, 0 as many as fit; limit_s: for each file; scheduler: address of dask's, "" for none
    """

    quiet: bool = False
    workers: int = 0
    limit_s: float = 0.0
    scheduler: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    """--workers, --scheduler, --scheduler-file, --timeout."""
    group = parser.add_argument_group("many ranks")
    readers = group.add_mutually_exclusive_group()
    readers.add_argument(
        "--workers",
        type=_options.positive,
        default=0,
        metavar="N",
        help="processes that read traces (default: what fits)",
    )
    readers.add_argument("--scheduler", default="", metavar="URL", help="read with Dask workers: tcp://host:8786")
    readers.add_argument("--scheduler-file", type=Path, metavar="FILE", help="scheduler file of Dask")
    group.add_argument(
        "--timeout",
        type=_options.positive,
        default=0,
        metavar="S",
        help="seconds per trace, with several workers (default: 600)",
    )


def add_detail(parser: argparse.ArgumentParser) -> None:
    """--detail."""
    parser.add_argument(
        "--detail", type=_numbers, default=(), metavar="R,…", help="also show these ranks in full, such as 3,17"
    )


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [one.strip() for one in text.split(",")]
    if not all(one.isdecimal() and one.isascii() for one in numbers):
        raise argparse.ArgumentTypeError(f"{text}: must be rank numbers, such as 3,17")
    return tuple(dict.fromkeys(map(int, numbers)))


def check_detail(asked: Sequence[int], here: Sequence[int]) -> None:
    """Raises UsageError where a rank of `--detail` was not read."""
    from advisor.errors import UsageError

    for rank in asked:
        if rank not in here:
            raise UsageError(f"--detail {rank}: no trace of rank {rank} was read; there are ranks {_joined(here)}")


def _joined(ranks: Sequence[int]) -> str:
    first, last = min(ranks), max(ranks)
    if len(ranks) == last - first + 1:
        return f"{first} to {last}" if last > first else str(first)
    return f"{', '.join(map(str, sorted(ranks)[:_SHOWN]))} …" if len(ranks) > _SHOWN else ", ".join(map(str, ranks))


def reading_of(args: argparse.Namespace) -> Reading:
    """What the options ask for."""
    scheduler: str = args.scheduler
    if args.scheduler_file:
        from advisor.engine.dask_workers import address_in

        scheduler = address_in(args.scheduler_file)
    return Reading(args.quiet, args.workers, float(args.timeout), scheduler)


def file_of(trace: RankTrace, run: RunRecord | None) -> RankFile:
    """A rank of a job as a file to read."""
    from advisor.engine.rank_files import RankFile

    return RankFile(
        trace.rank,
        fspath(trace.profile),
        fspath(trace.lines or ""),
        fspath(trace.reduced or ""),
        trace.record,
        run,
        tuple(file_of(window, None) for window in trace.later),
        trace.at,
        trace.why,
    )


def read(
    files: Sequence[RankFile], asked: Asked, rules: Rules, config: Config, reading: Reading
) -> Iterator[tuple[int, Reduced | str]]:
    """(place, the rank, or one line of why there is none), as they are done."""
    from advisor.engine.engine import rules_of_ranks
    from advisor.engine.rank_results import LIMIT_S, How, rank_results
    from advisor.trace.read.allocator import keep_freed_memory

    keep_freed_memory()
    with _progress(files, quiet=reading.quiet) as (watch, analysing):
        how = How(analysing, reading.workers, reading.limit_s or LIMIT_S, reading.scheduler)
        yield from rank_results(files, asked, rules_of_ranks(rules, config), how, watch)


@contextmanager
def _progress(
    files: Sequence[RankFile], *, quiet: bool
) -> Iterator[tuple[Watch, Callable[[RankFile], AbstractContextManager[Callable[[str], None] | None]]]]:
    """One bar over all ranks; of a single one what is being worked out, too."""
    from advisor.inputs.progress import analysing, ranks_read

    alone = len(files) == 1
    name = files[0].path.name if alone else ""
    with ranks_read([_size(one.path) for one in files], sys.stderr, name=name, quiet=quiet) as watch:
        yield watch, lambda one: analysing(one.path.name, sys.stderr, quiet=quiet or not alone)


def _size(path: Place) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def said_of(found: Sequence[Reduced], failed: Sequence[str], asked: Asked) -> Iterator[Health]:
    """What is to be said of ranks that could not be read, or were reduced otherwise."""
    from advisor import __version__
    from advisor.model import Health

    if failed:
        more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
        yield Health("ranks-failed", "warning", f"not analyzed: {'; '.join(failed[:_SHOWN])}{more}")
    other = [one for one in found if one.origin.advisor != __version__]
    if other:
        names = ", ".join(dict.fromkeys(one.origin.advisor for one in other))
        text = f"reduced by torch-advisor {names}, this is {__version__}: {_ranks(other)}; findings may differ"
        yield Health("ranks-of-another-version", "warning", text)
    other = [one for one in found if one.origin.rules != asked.rules_text]
    if other:
        text = f"reduced with different rules or thresholds: {_ranks(other)}; their findings use those"
        yield Health("ranks-of-another-configuration", "warning", text)


_SHOWN = 5


def _ranks(found: Sequence[Reduced]) -> str:
    numbers = ", ".join(str(one.origin.rank) for one in found[:_SHOWN])
    return f"rank{'s' * (len(found) > 1)} {numbers}{' …' if len(found) > _SHOWN else ''}"


def in_words(one: RankFile, failure: str) -> str:
    """One line of why a rank could not be read, without the folder that it lies in."""
    return failure.replace(str(one.path), one.path.name)
