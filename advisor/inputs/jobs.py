"""Which files form one job: traces, ranks and `run.json` in files and folders.

    find(paths) -> list[Job]

A `Job` is what one report is about: `job.run` (RunRecord or None), `job.traces` (one `RankTrace` per rank, by rank:
`.rank`, `.profile` path, `.lines` path or None, `.record` RankRecord or None), `job.health` (missing ranks, duplicates,
files that were left aside and why) and `job.name` for people. Files that belong together: those that one run.json
lists; those whose metadata says world_size > 1, distinct ranks, and overlapping time or exactly one of each rank; and,
where metadata is silent, names that are equal but for `rank<N>`/`worker<N>`, with overlapping windows. All else is
another job.

`find` raises InputError (one line) when a path does not exist, a named file is no trace, or nothing is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from msgspec import Struct, structs
from msgspec.structs import replace

from advisor.capture.record import LaterWindow, RankRecord, RunRecord, Vitals, read
from advisor.engine.reduced_form import SUFFIX, is_reduced, origin_of, prefix
from advisor.errors import InputError, UsageError
from advisor.inputs.job_files import Files, collect
from advisor.inputs.rank_group import Group, whole
from advisor.model import Health
from advisor.places.place import Place, place
from advisor.trace.read.peek import Peek, peek

_RANK = re.compile(r"(?<![a-z])(rank|worker)[-_]?(\d+)(?!\d)", re.IGNORECASE)
_STAMP = re.compile(r"\d{6,}")
# tensorboard_trace_handler's default name: <host>_<pid>.<time>.pt.trace.json
_HANDLER = re.compile(r"^.+_\d+\.#\.pt\.trace\.json")
# What a window in another training loop states anew, as far as it is known there.
_OF_LOOPS = ("settings", "loaders", "optimizers", "devices", "model", "environment")
# Of the training time: a window there says more of the run than one in another loop.
_MOST = 0.5


class RankTrace(Struct, frozen=True):
    """The files of one rank. `lines` gives source lines only and is never counted.

    later     the windows that the rank recorded after its first one, with what capture knew then; of such a one
              at: training iterations before it; why: as in `LaterWindow` of run.json
    reduced   what `advisor reduce` made of the trace, which then need not be there: `profile` only names it
    """

    rank: int
    profile: Place
    lines: Place | None = None
    record: RankRecord | None = None
    partial: bool = False
    later: tuple[RankTrace, ...] = ()
    reduced: Place | None = None
    at: int = 0
    why: str = ""


class Job(Struct, frozen=True):
    """One training job: its ranks' traces, and what capture recorded about it."""

    name: str
    traces: tuple[RankTrace, ...]
    run: RunRecord | None = None
    health: tuple[Health, ...] = ()
    world_size: int | None = None


def find(paths: Iterable[str | PathLike[str]]) -> list[Job]:
    """The jobs in these files and folders: recorded runs first, then other traces, in the order of their files."""
    files = collect(map(place, paths))
    jobs = [_recorded(folder, read(folder / "run.json"), wanted) for folder, wanted in files.runs.items()]
    jobs += [_job(group) for group in _groups(files)]
    if not jobs:
        raise InputError(_nothing(files))
    return [replace(job, health=(*job.health, *_left_aside(files))) for job in jobs]


def windowed(job: Job, number: int) -> Job:
    """The job as one of its windows shows it: 1 is the first, 2 the next later one, in the order of the run.

    Later windows of the same loop come without what ops read and write, which is recorded once. Raises UsageError for a
    window that no rank has.
    """
    if number == 1:
        return replace(job, traces=tuple(replace(trace, later=()) for trace in job.traces))
    most = 1 + max(len(trace.later) for trace in job.traces)
    if number > most:
        raise UsageError(f"{job.name} has {most} window{'s' * (most > 1)}, so there is no window {number}")
    traces = tuple(trace.later[number - 2] for trace in job.traces if len(trace.later) > number - 2)
    text = f"this is window {number} of {most}, after step {traces[0].at:,}{_unobserved(traces[0])}"
    return _noted(job, traces, text)


def where_it_trains(job: Job) -> Job:
    """The job as the window shows it that lies in the loop in which most of its training time was spent.

    That is the first one, unless training moved to another loop.
    """
    loops = [window for window in job.traces[0].later if window.why == "elsewhere"] if len(job.traces) == 1 else []
    record = job.traces[0].record if loops else None
    if record is None or record.run is None or not sum(record.run.trend.spent_us):
        return job
    trend = record.run.trend
    moves = [*record.run.moved_at, *(window.at for window in loops), float("inf")]
    for window in loops:
        start = max((at for at in moves if at <= window.at), default=window.at)
        end = min(at for at in moves if at > window.at)
        mine_us = sum(us for at, us in zip(trend.first, trend.spent_us, strict=True) if start <= at < end)
        share = mine_us / sum(trend.spent_us)
        if share >= _MOST:
            text = (
                f"training moved to another loop and spent {share:.0%} of its time there: the figures are of the "
                f"window after step {window.at:,}{_unobserved(window)}; `--window 1` shows the first loop"
            )
            here = (one for one in job.traces[0].later if window.at < one.at < end and one.why != "elsewhere")
            return _noted(job, (replace(window, later=tuple(here)),), text)
    return job


def _unobserved(window: RankTrace) -> str:
    observed = window.record is not None and window.record.dataflow is not None and window.record.dataflow.file
    return "" if observed else "; what ops read was recorded in the first"


def _noted(job: Job, traces: tuple[RankTrace, ...], text: str) -> Job:
    return replace(job, traces=traces, health=(*job.health, Health("later-window", "note", text)))


def each(paths: Iterable[str | PathLike[str]]) -> tuple[list[tuple[RankTrace, RunRecord | None]], tuple[Health, ...]]:
    """Every trace by itself, whatever job it belongs to, in an order that every process sees; and what is no trace.

    For each what capture recorded of its job. Ranks are as their names say where no run.json does.
    """
    files = collect(map(place, paths))
    found: list[tuple[RankTrace, RunRecord | None]] = []
    for folder, wanted in sorted(files.runs.items(), key=lambda item: str(item[0])):
        run = read(folder / "run.json")
        found += [(trace, run) for trace in _recorded(folder, run, wanted).traces if trace.reduced is None]
    for path in sorted(files.traces, key=str):
        if not is_reduced(path):
            found.append((RankTrace(_key(path)[1] or 0, path), None))
    if not found:
        raise InputError(_nothing(files))
    return found, _left_aside(files)


def _recorded(folder: Place, run: RunRecord, wanted: set[Place] | None) -> Job:
    """A run of `advisor run`: run.json says which file is what. `wanted`: only these files were named."""
    traces: dict[int, RankTrace] = {}
    missing: list[str] = []
    for record in run.ranks:
        known = {file.role: file for file in record.files if _inside(folder, file.path) is not None}
        profile, lines = known.get("profile"), known.get("lines")
        if profile is None:
            reduced = _reduced_in(folder, record)
            if reduced is None:
                missing.append(str(record.rank))
            elif wanted is None:
                traces[record.rank] = reduced
        elif wanted is None or folder / profile.path in wanted:
            lines_path = _inside(folder, lines.path) if lines else None
            later = tuple(_later(folder, record))
            traces[record.rank] = RankTrace(
                record.rank, folder / profile.path, lines_path, record, profile.partial, later
            )
    if not traces:
        what = "none of the named files is a trace" if wanted else "no trace listed in its run.json exists"
        raise InputError(f"{folder}: {what}; pass the whole folder, or run `advisor run` again")
    world = max([record.world_size for record in run.ranks], default=1)
    health = list(_ranks_health(sorted(traces), world))
    if any(trace.partial for trace in traces.values()):
        health.append(
            Health(
                "window-partial", "warning", "the profiled window ended early; the figures cover only the recorded part"
            )
        )
    if missing and not health:
        health.append(Health("ranks-missing", "warning", f"the trace of rank {', '.join(missing)} is missing"))
    if run.exit_status is None:
        health.append(
            Health("run-unfinished", "note", "the script was still running when this was read; the window is complete")
        )
    return Job(folder.name, tuple(traces[rank] for rank in sorted(traces)), run, tuple(health), world)


def _later(folder: Place, record: RankRecord) -> Iterator[RankTrace]:
    """The windows after the first whose files are there.

    What only the first one recorded is not known of them. Settings are those of the loop that a window lies in: its
    first window records them.
    """
    known: dict[str, Any] = {name: getattr(record, name) for name in _OF_LOOPS}
    for window in record.later:
        known |= {name: value for name in _OF_LOOPS if (value := getattr(window, name)) is not None}
        found = {file.role: path for file in window.files if (path := _inside(folder, file.path)) is not None}
        if "profile" in found:
            of_window = RankRecord(
                rank=record.rank,
                world_size=record.world_size,
                files=window.files,
                steps=structs.replace(window.steps, source=record.steps.source),
                run=record.run,
                vitals=_vitals(window, record),
                gc_pauses_us=window.gc_pauses_us,
                evaluation_loaders=window.evaluation_loaders or [],
                memory=window.memory,
                compile=window.compile,
                user_files=window.user_files,
                dataflow=window.dataflow,
                lookups=window.lookups,
                masks=window.masks,
                loss_labels=window.loss_labels,
                containers=window.containers,
                calibration=record.calibration,
                **known,
            )
            files = found["profile"], found.get("lines")
            yield RankTrace(record.rank, *files, of_window, at=window.at, why=window.why)


def _vitals(window: LaterWindow, record: RankRecord) -> Vitals | None:
    """The threads and memory of a loop; start and end are those of the process."""
    mine, first = window.vitals, record.vitals
    if mine is None or first is None:
        return mine
    return structs.replace(mine, ended=first.ended, age_us=first.age_us, first_step_us=first.first_step_us)


def _reduced_in(folder: Place, record: RankRecord) -> RankTrace | None:
    """The reduced form of a rank beside its run.json, for whoever copied only the small files."""
    found: list[Place] = [*folder.glob(f"{prefix(record.rank)}*{SUFFIX}")]
    found.sort(key=str)
    name = next((file.path for file in record.files if file.role == "profile"), f"rank {record.rank}")
    return RankTrace(record.rank, folder / Path(name).name, reduced=found[0]) if found else None


def _inside(folder: Place, name: str) -> Place | None:
    """The file that a run.json names, if it is there and lies in the run's folder: content never leads elsewhere."""
    path = folder / name
    if not isinstance(path, Path):
        leads = PurePosixPath(name)
        return path if not leads.is_absolute() and ".." not in leads.parts and path.is_file() else None
    try:
        return path if path.is_file() and path.resolve().is_relative_to(Path(folder).resolve()) else None
    except (OSError, ValueError):
        return None


def _groups(files: Files) -> list[Group]:
    """Traces and reduced forms by job, whatever the order in which they were named: of a rank's two its trace first."""
    groups: list[Group] = []
    reduced = {path for path in files.traces if is_reduced(path)}
    known = _told_apart(path for path in files.traces if path not in reduced and not isinstance(path, Path))
    for path in sorted(files.traces, key=lambda path: (path in reduced, str(path))):
        try:
            if path in reduced:
                origin = origin_of(path.read_bytes(), path)
                window = (origin.start_ns, origin.end_ns)
                found = Peek(path.parent / Path(origin.trace).name, origin.rank, origin.world_size, *window)
                _place(found, groups, path, origin.run)
            else:
                _place(known.get(path) or peek(path, whole=len(files.traces) > 1), groups, path)
        except InputError as failure:
            if len(files.asked) == 1 and path in files.named:
                raise
            files.aside[path] = str(failure).removeprefix(f"{path}: ")
    return whole(groups)


def _told_apart(elsewhere: Iterable[Place]) -> dict[Place, Peek]:
    """Files behind addresses and in archives whose ranks differ by their starts alone, as those of one job do.

    When they ended is unknown then: that would cost reading packed files twice. Empty where ranks are not told apart.
    """
    glances: dict[Place, Peek] = {}
    for path in elsewhere:
        with suppress(InputError):  # whoever reads it says why
            glances[path] = peek(path, whole=False)
    jobs = {(_key(path)[0], found.world_size) for path, found in glances.items()}
    ranks = {found.rank for found in glances.values()}
    return glances if len(jobs) == 1 and None not in ranks and len(ranks) == len(glances) else {}


def _place(found: Peek, groups: list[Group], path: Place, run: RunRecord | None = None) -> None:
    """Puts a trace into the group that it belongs to, or into a new one. path: its file, or its reduced form."""
    key, named = _key(found.path)
    stated = found.rank is not None and found.world_size is not None
    rank = found.rank if found.rank is not None else named if named is not None else 0
    single = found.world_size == 1 or (not stated and named is None)
    for group in () if single else groups:
        if group.world_size != found.world_size or not group.meets(found) or not (stated or group.key == key):
            continue
        if rank not in group.peeks:
            group.put(rank, found, path, run)
            return
        if group.key == key or group.peeks[rank].path.name == found.path.name:
            group.twice.append(path)
            return
    groups.append(Group(key, found.world_size))
    groups[-1].put(rank, found, path, run)


def _key(path: Place) -> tuple[str, int | None]:
    """Folder and name without rank and stamps, equal for the ranks of one job; and the rank that they say."""
    found = list(_RANK.finditer(f"{path.parent.name}/{path.name}"))
    name = _HANDLER.sub("*.pt.trace.json", _STAMP.sub("#", path.name))
    return _RANK.sub(r"\1", f"{path.parent}/{name}"), int(found[-1][2]) if found else None


def _job(group: Group) -> Job:
    ranks = sorted(group.peeks)
    paths = [group.peeks[rank].path for rank in ranks]
    traces = tuple(
        RankTrace(rank, path, reduced=group.reduced.get(path)) for rank, path in zip(ranks, paths, strict=True)
    )
    health = [*_ranks_health(ranks, group.world_size), *group.said()]
    if group.twice:
        names = ", ".join(path.name for path in group.twice)
        health.append(Health("ranks-twice", "warning", f"a second trace of the same rank, not read: {names}"))
    name = traces[0].profile.name if len(traces) == 1 else traces[0].profile.parent.name
    return Job(name, traces, group.run, tuple(health), group.world_size or (len(traces) if len(traces) > 1 else None))


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
    # What was named was meant to be read.
    aside = sorted(files.aside.items(), key=lambda item: (item[0] not in files.named, str(item[0])))
    shown = [f"{path.name} ({why.split(';')[0]})" for path, why in aside[:5]]
    more = f" and {len(aside) - 5} more" if len(aside) > 5 else ""
    status: Literal["note", "warning"] = "warning" if files.named & files.aside.keys() else "note"
    return (Health("files-aside", status, f"not read: {', '.join(shown)}{more}"),)


def _nothing(files: Files) -> str:
    where = ", ".join(map(str, files.asked)) or "."
    if files.aside:
        path, why = next(iter(files.aside.items()))
        number = len(files.aside)
        return f"{where}: no trace among {number} file{'s' * (number != 1)}; {path.name}: {why}"
    return f"{where}: no trace in it; pass a folder of *.pt.trace.json[.gz] files, or one such file"
