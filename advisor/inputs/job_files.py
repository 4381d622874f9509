"""The files behind the paths that a user gives: traces, recorded runs, and what is left aside."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import InputError

_TRACES = (".json", ".json.gz", ".json.zip", ".zip", ".trace.gz")
# Other tools' files that lie beside traces: said, so that nobody wonders why they are not in the report.
_FOREIGN = {
    ".pftrace": "a Perfetto trace, protobuf",
    ".pb": "protobuf",
    ".pb.gz": "protobuf",
    ".nsys-rep": "a report of Nsight Systems",
    ".qdrep": "a report of Nsight Systems",
    ".sqlite": "an SQLite database",
    ".pickle": "a pickle, which is not opened",
}
_OURS = ("run.json", "report.json")


@dataclass(slots=True)
class Files:
    """What was found.

    runs: folder of a run.json -> the files of it that were named, or None for all
    traces: files that may be traces; named: those that the user named; aside: path -> why it is none
    """

    asked: list[Path] = field(default_factory=list)
    runs: dict[Path, set[Path] | None] = field(default_factory=dict)
    traces: list[Path] = field(default_factory=list)
    named: set[Path] = field(default_factory=set)
    aside: dict[Path, str] = field(default_factory=dict)


def collect(paths: Iterable[Path]) -> Files:
    """Files and folders, looked through. Raises InputError for a path that does not exist."""
    files = Files()
    for path in paths:
        files.asked.append(path)
        if path.is_dir():
            _folder(path, files)
        elif path.is_file():
            _file(path, files)
        else:
            raise InputError(f"{path}: no such file or folder; pass a *.pt.trace.json[.gz] file or a folder of them")
    return files


def _file(path: Path, files: Files) -> None:
    if path.name == "run.json":
        files.runs[path.parent] = None
    elif path.name in _listed(path.parent):
        wanted = files.runs.setdefault(path.parent, set())
        if wanted is not None:
            wanted.add(path)
    elif path not in files.named:
        files.named.add(path)
        files.traces.append(path)


def _listed(folder: Path) -> set[str]:
    """Names of the files that the run.json in a folder lists; empty without one."""
    try:
        ranks = json.loads((folder / "run.json").read_bytes())["ranks"]
        beside = {Path((rank.get("dataflow") or {}).get("file", "")).name for rank in ranks}
        return beside | {Path(file["path"]).name for rank in ranks for file in rank["files"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _folder(root: Path, files: Files) -> None:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        if "run.json" in names:
            files.runs[here] = None
            folders.clear()
            continue
        folders.sort()
        present = set(names)
        for name in sorted(names):
            foreign = next((what for suffix, what in _FOREIGN.items() if name.endswith(suffix)), None)
            # Kineto writes <name>.tmp and renames it at the end: alone, it is what a killed run left.
            unfinished = name.endswith(".tmp") and name.removesuffix(".tmp") not in present
            if foreign is not None:
                files.aside[here / name] = foreign
            elif name not in _OURS and (name.endswith(_TRACES) or (unfinished and ".json" in name)):
                files.traces.append(here / name)
