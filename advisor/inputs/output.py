"""Writes reports whole: aside first, then renamed; what another run left is moved out of the way, never overwritten."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

from advisor.errors import AdvisorError, UsageError

# What we write into a folder of ours; anything else in it is the user's.
_OF_WINDOWS = tuple(f"{role}-{of}" for role in ("trace", "profile", "lines", "dataflow") for of in ("rank", "step"))
# In a folder that a run has claimed and not filled yet: another run must not take it for an empty one.
_TAKEN = ".taken"
_OUR_NAMES = ("report.", "run.json", "rank", "gate.", _TAKEN, *_OF_WINDOWS)
# Each try but the last fails only if two other runs meet in it; what stands in the way for good is then said.
_MOST_TRIES = 20


def claim_folder(folder: Path) -> Path:
    """Makes `folder` for a new run. One that another run of ours filled is renamed folder.1, folder.2 …

    A folder that holds the user's own files is used as it is, unless a report stands in it, or another run is about to
    write one: then UsageError. `release` it once something of ours lies in it.
    """
    for _ in range(_MOST_TRIES):
        names = _names(folder)
        if names and all(name.startswith(_OUR_NAMES) for name in names):
            _move_aside(folder)
        elif names & {"report.json", "report.html", "run.json"}:
            raise UsageError(
                f"{folder} contains other files in addition to a report; name another folder with --output"
            )
        try:
            _make(folder)
            (folder / _TAKEN).touch(exist_ok=False)
        except (FileExistsError, FileNotFoundError) as failure:
            if not folder.is_dir() and failure.filename == str(folder):
                raise AdvisorError(_no_folder(folder, failure)) from failure
            continue  # another run came first, or moved the folder aside
        except OSError as failure:
            raise AdvisorError(_no_folder(folder, failure)) from failure
        return folder
    raise UsageError(f"another run writes to {folder}; name another folder with --output, or remove {folder / _TAKEN}")


def release(folder: Path) -> None:
    """What a run has claimed is filled: by its names, others know that it is not empty."""
    (folder / _TAKEN).unlink(missing_ok=True)


def _no_folder(folder: Path, failure: OSError) -> str:
    return f"cannot create {folder}: {failure.strerror}; name another folder with --output"


def _make(folder: Path) -> None:
    """Makes the folder where none is. Raises OSError."""
    for _ in range(_MOST_TRIES - 1):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            continue  # another run made it first, and a third moved it aside before we saw that it is a folder
        return
    folder.mkdir(parents=True, exist_ok=True)


def _names(folder: Path) -> set[str]:
    """What lies in the folder; nothing where there is none (or another run has just moved it)."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except NotADirectoryError as failure:
        raise UsageError(f"{folder} is a file; name another folder with --output") from failure
    except OSError as failure:
        raise AdvisorError(f"cannot read {folder}: {failure.strerror}; name another with --output") from failure


def _move_aside(path: Path) -> Path | None:
    """Renames to the first free of path.1, path.2 …, and returns it; two runs at once never take the same name."""
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.{number}")
        if aside.exists():
            continue
        try:
            path.rename(aside)
        except FileNotFoundError:
            return None  # another run moved it first
        except OSError as failure:
            if failure.errno in (errno.EEXIST, errno.ENOTEMPTY):
                continue
            text = f"cannot rename {path} to {aside.name}: {failure.strerror}; name another folder with --output"
            raise AdvisorError(text) from failure
        return aside
    return None


def write_file(path: Path, data: str | bytes, *, replace: bool) -> Path | None:
    """Writes the whole file aside, then renames it. Without `replace` an older file is kept as path.1, path.2 …

    Returns where that is, None where there was none.
    """
    import tempfile

    older = None

    payload = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    try:
        _make(path.parent)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(payload)
            # mkstemp makes files that only their owner reads; a report is an ordinary file.
            mask = os.umask(0)
            os.umask(mask)
            Path(aside).chmod(0o666 & ~mask)
            if path.exists() and not replace:
                older = _move_aside(path)
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
    except OSError as failure:
        do = "free some space" if failure.errno in (errno.ENOSPC, errno.EDQUOT) else "name another place"
        raise AdvisorError(f"cannot write {path}: {failure.strerror}; {do}") from failure
    return older
