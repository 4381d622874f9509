"""Which files form one job: traces, ranks and `run.json` in files and folders.

    find(paths) -> list[Job]

A `Job` is what one report is about: `job.run` (RunRecord or None), `job.traces` (one `RankTrace` per rank, by rank:
`.rank`, `.profile` path, `.lines` path or None, `.record` RankRecord or None), `job.health` (missing ranks, duplicates,
files that were left aside and why) and `job.name` for people. Files that belong together: those that one run.json
lists; those whose metadata says world_size > 1, distinct ranks and overlapping time; and, where metadata is silent,
names that are equal but for `rank<N>`/`worker<N>`, with overlapping windows. Everything else is a job of its own.

`find` raises InputError (one line) when a path does not exist, a named file is no trace, or nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from advisor.capture.record import RankRecord, RunRecord, read
from advisor.errors import InputError
from advisor.model import Health


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The files of one rank. `lines` gives source lines only and is never counted."""

    rank: int
    profile: Path
    lines: Path | None = None
    record: RankRecord | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One training job: its ranks' traces, and what capture recorded about it."""

    name: str
    traces: tuple[RankTrace, ...]
    run: RunRecord | None = None
    health: tuple[Health, ...] = ()
    world_size: int | None = None


def find(paths: Iterable[str | PathLike[str]]) -> list[Job]:
    """The jobs in these files and folders, in the order of their first file."""
    jobs: list[Job] = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; give a *.pt.trace.json[.gz] file or a folder with some")
        if path.is_dir() and (path / "run.json").is_file():
            jobs.append(_recorded(path, read(path / "run.json")))
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*.json*") if file.is_file())
            jobs.append(_plain(path.name, files))
        else:
            jobs.append(_plain(path.name, [path]))
    return jobs


def _recorded(folder: Path, run: RunRecord) -> Job:
    traces = []
    for record in run.ranks:
        by_role = {file.role: file for file in record.files if (folder / file.path).is_file()}
        if "profile" in by_role:
            lines = by_role.get("lines")
            traces.append(
                RankTrace(
                    record.rank,
                    folder / by_role["profile"].path,
                    folder / lines.path if lines else None,
                    record,
                    by_role["profile"].partial,
                )
            )
    if not traces:
        raise InputError(f"{folder}: its run.json lists no trace that is there; run `advisor run` again")
    return Job(folder.name, tuple(sorted(traces, key=lambda trace: trace.rank)), run, (), run.ranks[0].world_size)


def _plain(name: str, files: list[Path]) -> Job:
    if not files:
        raise InputError(f"{name}: no trace in this folder; give a folder that holds *.pt.trace.json[.gz] files")
    return Job(name, tuple(RankTrace(rank, file) for rank, file in enumerate(files)))
