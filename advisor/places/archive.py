"""A job's files in a `.zip`, `.tar`, `.tar.gz` or `.tgz`: members are read as streams, nothing is unpacked to disk."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from advisor.errors import InputError
from advisor.places.remote import Remote, Stat

if TYPE_CHECKING:
    # Imported late: most commands see no archive.
    import tarfile
    import zipfile

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
# A job of 10,000 ranks has some 30,000 files.
MOST_MEMBERS = 100_000
# As for one trace (`advisor.trace.read.source`): no text of Kineto shrinks like this.
BOMB_RATIO = 200
BOMB_BYTES = 512 << 20
# Extended headers of a tar are read into memory: those of a real one are below a kilobyte.
_LONGEST_READ = 16 << 20
_BLOCK = 1 << 20


@dataclass(slots=True)
class Archive:
    """An archive. Its list of members is read once, when it is first asked for."""

    place: Path | Remote
    _sizes: dict[str, int] | None = field(default=None, repr=False)

    @property
    def is_zip(self) -> bool:
        """By its name; everything else is a tar."""
        return self.place.name.lower().endswith(".zip")

    def sizes(self) -> dict[str, int]:
        """Name of each file in it -> bytes that it unpacks to. Raises InputError for what is hostile or damaged."""
        if self._sizes is None:
            with self._checked():
                self._sizes = dict(self._zip_sizes() if self.is_zip else self._tar_sizes())
        return self._sizes

    def open(self, name: str) -> io.BufferedReader:
        """One file of it, as a stream."""
        stack = ExitStack()
        try:
            with self._checked():
                opened = self._open_zip(name, stack) if self.is_zip else self._open_tar(name, stack)
        except BaseException:
            stack.close()
            raise
        return io.BufferedReader(_Unpacked(opened, stack, self, name), _BLOCK)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except _damages() as failure:
            what = failure.strerror if isinstance(failure, OSError) and failure.strerror else failure
            raise InputError(
                f"{self.place}: an unreadable archive ({what}); copy it again, or unpack it yourself"
            ) from None

    def _zip_sizes(self) -> Iterator[tuple[str, int]]:
        import zipfile

        with self.place.open("rb") as file, zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            yield from self._kept([(info.filename, info.file_size) for info in infos])

    def _tar_sizes(self) -> Iterator[tuple[str, int]]:
        with ExitStack() as stack:
            yield from self._kept((info.name, info.size) for info in self._tar(stack) if info.isfile())

    def _kept(self, members: Iterator[tuple[str, int]] | list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        """Names as they are looked for, with the sizes that are stated. Links and devices are never among them."""
        packed, total = self.place.stat().st_size, 0
        for number, (name, size) in enumerate(members):
            total += size
            if number >= MOST_MEMBERS:
                raise InputError(f"{self.place}: more than {MOST_MEMBERS:,} files in it; unpack it yourself")
            if total > max(BOMB_BYTES, BOMB_RATIO * packed):
                raise InputError(f"{self.place}: {packed >> 10} KB state to unpack to {total >> 20} MB; not read")
            known = name.removeprefix("./")
            if _leads_elsewhere(known):
                raise InputError(f"{self.place}: an unsafe file name in it ({name[:80]!r}); not read")
            if not known.startswith("__MACOSX/") and not known.rpartition("/")[2].startswith("._"):
                yield known, size

    def _tar(self, stack: ExitStack) -> tarfile.TarFile:
        import gzip
        import tarfile

        file: IO[bytes] = stack.enter_context(self.place.open("rb"))
        if file.read(2) == b"\x1f\x8b":
            file.seek(0)
            file = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=file)))
        file.seek(0)
        return stack.enter_context(tarfile.open(fileobj=_Bounded(file), mode="r:"))  # type: ignore[call-overload, no-any-return]

    def _open_zip(self, name: str, stack: ExitStack) -> IO[bytes]:
        import zipfile

        archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(self.place.open("rb"))))
        info = next(one for one in archive.infolist() if one.filename.removeprefix("./") == name)
        return stack.enter_context(archive.open(info))

    def _open_tar(self, name: str, stack: ExitStack) -> IO[bytes]:
        archive = self._tar(stack)
        info = next(one for one in archive if one.isfile() and one.name.removeprefix("./") == name)
        found = archive.extractfile(info)
        assert found is not None  # it is a file
        return stack.enter_context(found)


def _damages() -> tuple[type[Exception], ...]:
    """What reading a damaged archive raises; RuntimeError is zipfile's word for passwords and unknown methods."""
    import tarfile
    import zipfile

    values = (ValueError, IndexError, KeyError, StopIteration)
    return (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, *values)


def _leads_elsewhere(name: str) -> bool:
    parts = name.split("/")
    return not name.isprintable() or "\\" in name or ".." in parts or "" in parts or name[1:2] == ":"


class _Bounded:
    """A file of which no header may ask for more than a little at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            import tarfile

            raise tarfile.ReadError(f"a header of more than {_LONGEST_READ >> 20} MB")
        return self._file.read(size)


class _Unpacked(io.RawIOBase):
    """A member while it is read: damage is said in one line, and no more comes than the archive states."""

    def __init__(self, file: IO[bytes], stack: ExitStack, archive: Archive, name: str) -> None:
        self._file, self._stack, self._archive, self._name = file, stack, archive, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with self._archive._checked():
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with self._archive._checked():
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._stack.close()
        super().close()


@dataclass(frozen=True, slots=True)
class Member:
    """A file or a folder in an archive; the archive itself, seen as a folder, has no name in itself."""

    archive: Archive = field(compare=False)
    inner: str = ""
    address: str = field(init=False)

    def __post_init__(self) -> None:
        inner = self.inner.strip("/")
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "address", f"{os.fspath(self.archive.place)}!/{inner}")

    def __str__(self) -> str:
        return f"{self.archive.place}!/{self.inner}" if self.inner else str(self.archive.place)

    def __fspath__(self) -> str:
        return self.address

    def __truediv__(self, name: str | Path) -> Member:
        return Member(self.archive, f"{self.inner}/{name}")

    @property
    def name(self) -> str:
        return self.inner.rpartition("/")[2] or self.archive.place.name

    @property
    def parent(self) -> Member:
        return Member(self.archive, self.inner.rpartition("/")[0])

    def files(self) -> list[str]:
        """Names of all files in this folder and those below."""
        start = f"{self.inner}/" if self.inner else ""
        return [name.removeprefix(start) for name in self.archive.sizes() if name.startswith(start)]

    def is_file(self) -> bool:
        return self.inner in self.archive.sizes()

    def is_dir(self) -> bool:
        return not self.is_file() and bool(self.files())

    def glob(self, pattern: str) -> list[Member]:
        """Files of this folder, not of those below."""
        return [self / name for name in self.files() if "/" not in name and fnmatchcase(name, pattern)]

    def stat(self) -> Stat:
        return Stat(self.archive.sizes().get(self.inner, 0))

    def open(self, _mode: str = "rb") -> io.BufferedReader:
        """Raises InputError for an archive in the archive."""
        file = self.archive.open(self.inner)
        if self.name.lower().endswith(SUFFIXES) or file.peek(4)[:4] == b"PK\x03\x04":
            file.close()
            raise InputError(f"{self}: {NESTED}")
        return file

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()


NESTED = "an archive in an archive, which is not read; unpack the outer one"


def holds_a_job(path: Path | Remote) -> bool:
    """Whether a file is to be seen as a folder: a tar, or a zip of anything but one trace."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        return False
    if not name.endswith(".zip"):
        return True
    import zipfile

    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return sum(map(is_trace_member, archive.infolist())) != 1
    except _damages():
        return False  # whoever reads it says why


def is_trace_member(info: zipfile.ZipInfo) -> bool:
    """Whether a member of a zip file may be a trace: not a folder (its name ends in /) nor a Mac's shadow of one."""
    name = info.filename
    return not name.startswith("__MACOSX/") and name.endswith((".json", ".gz", ".zst", ".tmp", ".pftrace"))
