"""Takes back what measured processes wrote to files, once all of them have ended; the last change first."""

from __future__ import annotations

import contextlib
import filecmp
import json
import math
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

# What stays: nothing; or what was made before the first backward pass and is large, as downloads are, which every start
# would repeat. Changes of files that were there are always taken back.
Stays = Literal["nothing", "downloads"]
# Below it are the folder of a run and its settings, which some scripts refuse to find; data sets are above.
_LARGE_BYTES = 1 << 20
Note = tuple[int, str, list[str]]


@contextlib.contextmanager
def journal(stays: Stays = "nothing") -> Iterator[tuple[str, list[str]]]:
    """A folder for the journals of processes that end inside, and what could not be taken back, filled at the end."""
    left: list[str] = []
    with tempfile.TemporaryDirectory(prefix="advisor-undo-") as folder:
        try:
            yield folder, left
        finally:
            with _uninterrupted():
                left += undo(Path(folder), stays)


def undo(folder: Path, stays: Stays = "nothing") -> list[str]:
    """Takes back what the journals of a folder note; returns paths that stay changed or cannot be removed."""
    notes = sorted(note for path in folder.glob("*.journal") for note in _notes(path))
    trains = min((time for time, what, _ in notes if what == "trains"), default=math.inf)
    staying = _large([note for note in notes if note[0] < trains]) if stays == "downloads" else set()
    left = []
    for time, what, words in reversed(notes):
        if what == "trains" or (words[0] in staying and time < trains):
            continue
        try:
            _WAYS[what](*map(Path, words))
        except OSError:
            left.append(words[0])
    return left


def _large(notes: Sequence[Note]) -> set[str]:
    """Paths that were made and are large: each file, or all in the outermost folder that was made."""
    made = {words[0]: words[-1] for _, what, words in notes if what in ("made", "folder", "moved")}
    groups: dict[str, set[str]] = {}
    for name in made:
        outer = [str(up) for up in Path(name).parents if str(up) in made]
        groups.setdefault(outer[-1] if outer else name, set()).add(name)
    return {
        name
        for names in groups.values()
        if sum(_bytes(Path(made[one])) for one in names) >= _LARGE_BYTES
        for name in names
    }


def _bytes(path: Path) -> int:
    """Of a file; nothing where it is none, or is gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_size if path.is_file() else 0
    return 0


def _notes(path: Path) -> Iterator[Note]:
    """Time, what happened, and to which path, with another path that belongs to it."""
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):  # the process was ended while it wrote
            time, what, *words = json.loads(line)
            yield time, what, words


def _made(path: Path) -> None:
    path.unlink(missing_ok=True)


def _folder(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def _gone(path: Path) -> None:
    path.mkdir(exist_ok=True)


def _link(path: Path, target: Path) -> None:
    if not path.is_symlink():
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _moved(path: Path, to: Path) -> None:
    if to.is_dir() and not path.exists():
        to.rename(path)


def _kept(path: Path, copy: Path) -> None:
    """Writes the former content into the file, which stays the same file where it still exists."""
    if not path.is_file() or not filecmp.cmp(copy, path, shallow=False):
        shutil.copyfile(copy, path)
    shutil.copystat(copy, path)


def _lost(path: Path) -> None:
    raise OSError(f"{path} was too large to be copied")


_WAYS: dict[str, Callable[..., None]] = {
    "made": _made,
    "folder": _folder,
    "gone": _gone,
    "link": _link,
    "moved": _moved,
    "kept": _kept,
    "lost": _lost,
}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C waits until all is taken back."""
    numbers: Any = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
