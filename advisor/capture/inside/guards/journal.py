"""Notes what a measured process is about to change in files, with copies, so that `advisor.gate.undo` takes it back.

An audit hook of Python (PEP 578) sees every file that Python code opens, removes or renames, whichever function was
called; it is installed before the script's first line. What C code writes by itself is not seen, except for the
functions in `_WRITERS`. Every audit event then takes about 0.8 us (`id()` 1.1 us instead of 0.25, one core of a busy
machine, Python 3.11, 10^6 calls); a step of a small network with a DataLoader raised four, all of `id()`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import tempfile
from _thread import get_ident
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# A larger file is not copied before it is changed.
_MOST_BYTES = 1 << 31
# Not what a training is for: compiled modules, installed packages.
_NEVER = (f"{os.sep}__pycache__{os.sep}", f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_SYSTEM = ("/proc", "/dev", "/sys", "/run")
# Variables that name folders of caches, where downloads and compiled kernels belong: HF_HOME, TRITON_CACHE_DIR.
_CACHES = ("_HOME", "_CACHE", "_CACHE_DIR")
# Functions of C code that write a file: module, function, position of the file's name.
_WRITERS = (
    ("torch.serialization", "_open_zipfile_writer", 0),
    ("torch.jit", "save", 1),
    ("safetensors", "serialize_file", 1),
    ("safetensors.torch", "serialize_file", 1),
    ("safetensors.numpy", "serialize_file", 1),
)


def install(folder: str, own: str) -> None:
    """Notes changes from now on. folder: of the journals; own: another folder of ours, which does not count."""
    sys.addaudithook(Journal(folder, own).hook)


def training_begins(settings: Mapping[str, Any]) -> None:
    """Notes that the first backward pass begins: files that are there by now may be downloads of data."""
    if settings.get("undo"):
        _watch_writers()
        _append(settings["undo"], "trains")


def _append(folder: str, what: str, *words: str) -> None:
    """Opened for each note: scripts may close all files, and forks share this module."""
    line = json.dumps([monotonic_ns(), what, *words]) + "\n"
    place = os.open(os.path.join(folder, f"{os.getpid()}.journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(place, line.encode("utf-8", "surrogateescape"))
    finally:
        os.close(place)


class Journal:
    """The first change of each path that is there; later ones are undone with it."""

    def __init__(self, folder: str, own: str) -> None:
        self.folder = folder
        scripts = (os.path.dirname(os.path.abspath(path)) for path in sys.argv[:1] if path)
        self.roots = _below(os.getcwd(), *scripts)
        caches = _below(*(os.path.abspath(value) for name, value in os.environ.items() if name.endswith(_CACHES)))
        inner = (place for place in caches if not any(root.startswith(place) for root in self.roots))
        kernels = os.path.join(tempfile.gettempdir(), "torchinductor_")
        self.never = (*_below(folder, own, *_SYSTEM), *inner, kernels)
        self.hidden = os.path.join(os.path.expanduser("~"), ".")
        self.seen: set[str] = set()
        self.numbers = itertools.count()
        self.busy: set[int] = set()
        self.watched: dict[str, Callable[..., None]] = {
            "open": self._opens,
            "os.mkdir": self._makes,
            "os.rename": self._renames,
            "os.remove": self._removes,
            "os.rmdir": self._removes,
            "os.truncate": lambda path, _: self._writes(path),
            "os.link": lambda _, path, __, folder: self._writes(path, folder),
            "os.symlink": lambda _, path, folder: self._writes(path, folder),
            "sqlite3.connect": self._writes,
        }

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by Python; an exception of ours would end what the script is doing."""
        note = self.watched.get(event)
        if note is None or get_ident() in self.busy:
            return
        self.busy.add(get_ident())
        try:
            _watch_writers()
            note(*arguments)
        except Exception:
            pass
        finally:
            self.busy.discard(get_ident())

    def _opens(self, path: Any, _mode: Any, flags: int) -> None:
        if flags & _WRITES:
            self._writes(path)

    def _writes(self, path: Any, folder: int = -1) -> None:
        """A file is about to be made or changed."""
        name = self._path(path, folder)
        if name and not os.path.lexists(name):
            # Noted whenever it is tried: the first time its folder may not be there, which is made later.
            self.seen.add(name)
            self._note("made", name)
        elif name and self._is_new(name) and os.path.isfile(name):
            self._keep(name)

    def _makes(self, path: Any, _mode: int, folder: int) -> None:
        name = self._path(path, folder)
        if name and not os.path.lexists(name):
            self.seen.add(name)
            self._note("folder", name)

    def _renames(self, source: Any, target: Any, from_folder: int, to_folder: int) -> None:
        old, new = self._path(source, from_folder), self._path(target, to_folder)
        if old and new and os.path.isdir(old):
            self._note("moved", old, new)
            return
        if old and self._is_new(old):
            self._goes(old)
        if new and os.path.islink(new) and self._is_new(new):
            self._goes(new)
        self._writes(target, to_folder)

    def _removes(self, path: Any, folder: int) -> None:
        name = self._path(path, folder)
        if not name or not self._is_new(name):
            return
        if os.path.isdir(name) and not os.path.islink(name):
            self._note("gone", name)
        else:
            self._goes(name)

    def _goes(self, name: str) -> None:
        """A file or a link is about to go."""
        if os.path.islink(name):
            self._note("link", name, os.readlink(name))
        elif os.path.isfile(name):
            self._keep(name)

    def _keep(self, name: str) -> None:
        """Copies a file, that which a link leads to included."""
        if os.path.getsize(name) > _MOST_BYTES:
            self._note("lost", name)
            return
        import shutil

        copy = os.path.join(self.folder, f"{os.getpid()}-{next(self.numbers)}")
        shutil.copy2(name, copy)
        self._note("kept", name, copy)

    def _note(self, what: str, *words: str) -> None:
        _append(self.folder, what, *words)

    def _is_new(self, name: str) -> bool:
        if name in self.seen:
            return False
        self.seen.add(name)
        return True

    def _path(self, path: Any, folder: int) -> str:
        """The full path, if it may be one that a training writes; else empty."""
        if isinstance(path, int) or path is None:
            return ""
        name = os.fsdecode(path)
        if folder >= 0 and not os.path.isabs(name):
            name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        name = os.path.abspath(name)
        return name if self._counts(name) else ""

    def _counts(self, name: str) -> bool:
        if name.startswith(self.never) or any(part in name for part in _NEVER) or name.endswith("__pycache__"):
            return False
        if name.startswith(self.hidden) and not any(root.startswith(self.hidden) for root in self.roots):
            return False  # ~/.cache and the like, of a script that is started in ~
        return name.startswith(self.roots) or f"{os.sep}." not in name


def _below(*folders: str) -> tuple[str, ...]:
    """How paths begin that lie in one of these folders."""
    return tuple(dict.fromkeys(os.path.join(folder, "") for folder in folders))


def _watch_writers() -> None:
    for module, name, place in _WRITERS:
        call = getattr(sys.modules.get(module), name, None)
        if call is not None and not hasattr(call, "_advisor_writes"):
            setattr(sys.modules[module], name, _announced(call, place))


def _announced(call: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function, which first raises the event that `open` would."""

    @functools.wraps(call)
    def write(*args: Any, **kwargs: Any) -> Any:
        file = args[place] if len(args) > place else kwargs.get("f", kwargs.get("filename"))
        if isinstance(file, (str, bytes, os.PathLike)):
            sys.audit("open", os.fspath(file), "w", os.O_WRONLY | os.O_CREAT)
        return call(*args, **kwargs)

    write._advisor_writes = True  # type: ignore[attr-defined]
    return write
