"""The files behind the paths that a user gives: traces, recorded runs, and what is left aside."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from advisor.engine.reduced_form import SUFFIX
from advisor.errors import InputError
from advisor.places.archive import NESTED, SUFFIXES, Archive, Member, holds_a_job
from advisor.places.place import Place, folders
from advisor.places.remote import Remote

# Traces, and what `advisor reduce` makes of them.
_TRACES = (
    *(".json", ".json.gz", ".json.zip", ".json.zst", ".zip", ".trace.gz", SUFFIX),
    *(".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz", ".sqlite"),
)
# Other tools' files that lie beside traces: said, so that nobody wonders why they are not in the report.
_FOREIGN = {
    ".pb": "protobuf",
    ".pb.gz": "protobuf",
    ".nsys-rep": "an Nsight Systems report; export it with `nsys export --type sqlite`",
    ".qdrep": "an Nsight Systems report; export it with `nsys export --type sqlite`",
    ".pickle": "a pickle, which is never opened",
}
_OURS = ("run.json", "report.json", "report.perfetto.json.gz")
_ABSENT = "no such file or folder"


class Files(Struct):
    """What was found.

    runs: folder of a run.json -> the files of it that were named, or None for all
    traces: files that may be traces; named: those that the user named; aside: path -> why it is none
    """

    asked: list[Place] = field(default_factory=list)
    runs: dict[Place, set[Place] | None] = field(default_factory=dict)
    traces: list[Place] = field(default_factory=list)
    named: set[Place] = field(default_factory=set)
    aside: dict[Place, str] = field(default_factory=dict)


def collect(paths: Iterable[Place]) -> Files:
    """Files and folders, looked through. Raises InputError where the only path does not exist."""
    files = Files(asked=list(paths))
    for path in [each for one in files.asked for each in _expanded(one)]:
        if path.is_dir():
            _folder(path, files)
        elif path.is_file():
            if not isinstance(path, Member) and holds_a_job(path):
                _folder(Member(Archive(path)), files)
            else:
                _file(path, files)
        elif len(files.asked) == 1:
            raise InputError(f"{path}: {_ABSENT}; pass a *.pt.trace.json[.gz] file or a folder of them")
        else:
            files.aside[path] = _ABSENT
            files.named.add(path)
    return files


def _expanded(path: Place) -> list[Place]:
    """The files that an address with `*` stands for; itself where it has none."""
    if isinstance(path, Remote) and path.is_pattern:
        return list(path.expanded()) or [path]
    return [path]


def _file(path: Place, files: Files) -> None:
    if path.name == "run.json":
        files.runs[path.parent] = None
    elif path.name in _listed(path.parent):
        wanted = files.runs.setdefault(path.parent, set())
        if wanted is not None:
            wanted.add(path)
    elif path not in files.named:
        files.named.add(path)
        files.traces.append(path)


def _listed(folder: Place) -> set[str]:
    """Names of the files that the run.json in a folder lists; empty without one."""
    try:
        ranks = json.loads((folder / "run.json").read_bytes())["ranks"]
        windows = [one for rank in ranks for one in (rank, *rank.get("later", ()))]
        beside = {Path((one.get("dataflow") or {}).get("file", "")).name for one in windows}
        return beside | {Path(file["path"]).name for one in windows for file in one["files"]}
    except (InputError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _folder(root: Place, files: Files) -> None:
    for here, folders_in, names in folders(root):
        if "run.json" in names:
            files.runs[here] = None
            folders_in.clear()
            continue
        folders_in.sort()
        present = set(names)
        for name in sorted(names):
            foreign = next((what for suffix, what in _FOREIGN.items() if name.endswith(suffix)), None)
            # Kineto writes <name>.tmp and renames it at the end: alone, it is what a killed run left.
            unfinished = name.endswith(".tmp") and name.removesuffix(".tmp") not in present
            if foreign is not None:
                files.aside[here / name] = foreign
            elif isinstance(here, Member) and name.lower().endswith(SUFFIXES):
                files.aside[here / name] = NESTED
            elif name not in _OURS and (name.endswith(_TRACES) or (unfinished and ".json" in name)):
                files.traces.append(here / name)
