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

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from advisor.capture.record import RankRecord, RunRecord, read
from advisor.errors import InputError
from advisor.inputs.job_files import Files, collect
from advisor.model import Health
from advisor.trace.read.peek import Peek, peek

# Ranks of one job are profiled at the same steps. Clocks of two machines may differ, by far less than this.
SLACK_NS = 10**9
_RANK = re.compile(r"(?<![a-z])(rank|worker)[-_]?(\d+)(?!\d)", re.IGNORECASE)
_STAMP = re.compile(r"\d{6,}")
# tensorboard_trace_handler's default name: <host>_<pid>.<time>.pt.trace.json
_HANDLER = re.compile(r"^.+_\d+\.#\.pt\.trace\.json")


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


@dataclass(slots=True)
class _Group:
    """Traces without a run.json that belong together, by rank."""

    key: str
    world_size: int | None
    peeks: dict[int, Peek] = field(default_factory=dict)
    twice: list[Path] = field(default_factory=list)


def find(paths: Iterable[str | PathLike[str]]) -> list[Job]:
    """The jobs in these files and folders: recorded runs first, then other traces, in the order of their files."""
    files = collect(map(Path, paths))
    jobs = [_recorded(folder, read(folder / "run.json"), wanted) for folder, wanted in files.runs.items()]
    jobs += [_job(group) for group in _groups(files)]
    if not jobs:
        raise InputError(_nothing(files))
    return [replace(job, health=(*job.health, *_left_aside(files))) for job in jobs]


def _recorded(folder: Path, run: RunRecord, wanted: set[Path] | None) -> Job:
    """A run of `advisor run`: run.json says which file is what. `wanted`: only these files were named."""
    traces: dict[int, RankTrace] = {}
    missing: list[str] = []
    for record in run.ranks:
        known = {file.role: file for file in record.files if _inside(folder, file.path) is not None}
        profile, lines = known.get("profile"), known.get("lines")
        if profile is None:
            missing.append(str(record.rank))
        elif wanted is None or folder / profile.path in wanted:
            lines_path = _inside(folder, lines.path) if lines else None
            traces[record.rank] = RankTrace(record.rank, folder / profile.path, lines_path, record, profile.partial)
    if not traces:
        what = "none of the named files is a trace" if wanted else "no trace listed in its run.json exists"
        raise InputError(f"{folder}: {what}; pass the whole folder, or run `advisor run` again")
    world = max([record.world_size for record in run.ranks], default=1)
    health = list(_ranks_health(sorted(traces), world))
    if any(trace.partial for trace in traces.values()):
        health.append(
            Health("window-partial", "warning", "the profiled window ended early; figures cover what was recorded")
        )
    if missing and not health:
        health.append(Health("ranks-missing", "warning", f"the trace of rank {', '.join(missing)} is missing"))
    if run.exit_status is None:
        health.append(
            Health("run-unfinished", "note", "the script was still running when this was read; the window is complete")
        )
    return Job(folder.name, tuple(traces[rank] for rank in sorted(traces)), run, tuple(health), world)


def _inside(folder: Path, name: str) -> Path | None:
    """The file that a run.json names, if it is there and lies in the run's folder: content never leads elsewhere."""
    path = folder / name
    try:
        return path if path.is_file() and path.resolve().is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):
        return None


def _groups(files: Files) -> list[_Group]:
    groups: list[_Group] = []
    several = len(files.traces) > 1
    for path in files.traces:
        try:
            found = peek(path, whole=several)
        except InputError as failure:
            if path in files.named:
                raise
            files.aside[path] = str(failure).removeprefix(f"{path}: ")
            continue
        _place(found, groups)
    return groups


def _place(found: Peek, groups: list[_Group]) -> None:
    """Puts a trace into the group that it belongs to, or into a new one."""
    key, named = _key(found.path)
    stated = found.rank is not None and found.world_size is not None
    rank = found.rank if found.rank is not None else named if named is not None else 0
    single = found.world_size == 1 or (not stated and named is None)
    for group in () if single else groups:
        if group.world_size != found.world_size or not _meets(found, group) or not (stated or group.key == key):
            continue
        if rank not in group.peeks:
            group.peeks[rank] = found
            return
        if group.key == key:
            group.twice.append(found.path)
            return
    groups.append(_Group(key, found.world_size, {rank: found}))


def _key(path: Path) -> tuple[str, int | None]:
    """Folder and name without rank and stamps, equal for the ranks of one job; and the rank that they say."""
    found = list(_RANK.finditer(f"{path.parent.name}/{path.name}"))
    name = _HANDLER.sub("*.pt.trace.json", _STAMP.sub("#", path.name))
    return _RANK.sub(r"\1", f"{path.parent}/{name}"), int(found[-1][2]) if found else None


def _meets(found: Peek, group: _Group) -> bool:
    """Whether its window overlaps that of another rank. Unknown times are no reason against."""
    return any(_overlap(found, other) for other in group.peeks.values())


def _overlap(a: Peek, b: Peek) -> bool:
    if a.start_ns is None or a.end_ns is None or b.start_ns is None or b.end_ns is None:
        return True
    return a.start_ns < b.end_ns + SLACK_NS and b.start_ns < a.end_ns + SLACK_NS


def _job(group: _Group) -> Job:
    ranks = sorted(group.peeks)
    traces = tuple(RankTrace(rank, group.peeks[rank].path) for rank in ranks)
    health = list(_ranks_health(ranks, group.world_size))
    if group.twice:
        names = ", ".join(path.name for path in group.twice)
        health.append(Health("ranks-twice", "warning", f"a second trace of the same rank, not read: {names}"))
    name = traces[0].profile.name if len(traces) == 1 else traces[0].profile.parent.name
    return Job(name, traces, None, tuple(health), group.world_size or (len(traces) if len(traces) > 1 else None))


def _ranks_health(ranks: list[int], world_size: int | None) -> tuple[Health, ...]:
    """Which ranks of the job are missing: their share in a wait cannot be known."""
    expected = world_size if world_size is not None else (max(ranks) + 1 if len(ranks) > 1 else 1)
    missing = sorted(set(range(expected)) - set(ranks))
    if not missing or expected <= 1:
        return ()
    some = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
    many = f"{len(ranks)} of {expected} ranks have a trace; missing: {some}"
    text = f"{many}. What those ranks did, and which rank waited for which, is unknown"
    return (Health("ranks-missing", "warning", text),)


def _left_aside(files: Files) -> tuple[Health, ...]:
    if not files.aside:
        return ()
    shown = [f"{path.name} ({why.split(';')[0]})" for path, why in list(files.aside.items())[:5]]
    more = f" and {len(files.aside) - 5} more" if len(files.aside) > 5 else ""
    return (Health("files-aside", "note", f"not read: {', '.join(shown)}{more}"),)


def _nothing(files: Files) -> str:
    where = ", ".join(map(str, files.asked)) or "."
    if files.aside:
        path, why = next(iter(files.aside.items()))
        number = len(files.aside)
        return f"{where}: no trace among {number} file{'s' * (number != 1)}; {path.name}: {why}"
    return f"{where}: no trace in it; pass a folder of *.pt.trace.json[.gz] files, or one such file"
