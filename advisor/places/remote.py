"""Files behind addresses, by fsspec: read block by block, never copied as a whole. fsspec is imported when one is used.

What libraries say of a failure may hold the address with its signature: none of their words are shown.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from advisor.errors import InputError

# Scheme -> what fsspec calls it, and the package that it needs. Only these: fsspec's others copy, cache or run things.
_SCHEMES = {
    "s3": ("s3", "s3fs"),
    "s3a": ("s3", "s3fs"),
    "gs": ("gs", "gcsfs"),
    "gcs": ("gs", "gcsfs"),
    "az": ("az", "adlfs"),
    "abfs": ("abfs", "adlfs"),
    "abfss": ("abfs", "adlfs"),
    "hf": ("hf", "huggingface_hub"),
    "http": ("http", "aiohttp"),
    "https": ("https", "aiohttp"),
    "memory": ("memory", "fsspec"),
}
# A block of the network: a glance at a trace's start takes one of the first, a whole trace mostly those of the largest.
_FIRST_BYTES, _LARGEST_BYTES = 256 << 10, 4 << 20
# No byte for so long is a failure.
STALL_S = 30.0
_TRIES = 3
_PAUSE_S = 0.5
# What stores tell versions of a file apart by.
_VERSION = ("size", "ETag", "etag", "Last-Modified", "LastModified", "last_modified", "md5Hash", "content_md5", "mtime")


class Stat(NamedTuple):
    """The part of os.stat_result that is known of every file."""

    st_size: int


@dataclass(frozen=True, slots=True)
class Remote:
    """A file or a folder behind an address, which may hold credentials: `str()` leaves them out."""

    address: str

    def __str__(self) -> str:
        scheme, _, rest = self.address.partition("://")
        at, slash, path = rest.partition("/")
        user, sign, host = at.rpartition("@")
        # abfs://container@account is no user.
        shown = host if sign and (scheme.lower() in ("http", "https") or ":" in user) else at
        return f"{scheme}://{shown}{slash}{_unsigned(path)}"

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def __fspath__(self) -> str:
        return self.address

    def __truediv__(self, name: str | Path) -> Remote:
        base, _, query = self.address.partition("?")
        return Remote(f"{base.rstrip('/')}/{Path(name).as_posix()}{'?' * bool(query)}{query}")

    @property
    def name(self) -> str:
        return str(self).rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Remote:
        base, _, query = self.address.partition("?")
        return Remote(f"{base.rstrip('/').rpartition('/')[0]}/{'?' * bool(query)}{query}")

    @property
    def _http(self) -> bool:
        return self.address.lower().startswith(("http://", "https://"))

    def is_dir(self) -> bool:
        """Of HTTP: whether the address ends in a slash."""
        if self._http:
            return _unsigned(self.address).endswith("/")
        with _in_words(self), suppress(FileNotFoundError):
            return _system(self).info(self._inner)["type"] == "directory"  # type: ignore[no-any-return]
        return False

    def is_file(self) -> bool:
        """Raises InputError where that cannot be known."""
        if self._http and self.is_dir():
            return False
        try:
            return self.info().get("type") == "file"
        except AbsentError:
            return False

    def info(self) -> dict[str, Any]:
        """What the store says of it now. Raises InputError."""
        with _in_words(self):
            try:
                found: dict[str, Any] = _system(self).info(self._inner)
            except FileNotFoundError as failure:
                # fsspec says this of every refusal over HTTP, and keeps the reason beside it.
                if failure.__cause__ is not None:
                    raise failure.__cause__ from None
                raise
        return found

    def stat(self) -> Stat:
        try:
            return Stat(int(self.info().get("size") or 0))
        except InputError as failure:
            raise OSError(str(failure)) from None

    def files(self) -> list[str]:
        """Names of all files in this folder and those below. Raises InputError."""
        with _in_words(self):
            root = self._inner.rstrip("/") + "/"
            return sorted(name[len(root) :] for name in _system(self).find(root) if name.startswith(root))

    def glob(self, pattern: str) -> list[Remote]:
        return (self / pattern).expanded()

    def expanded(self) -> list[Remote]:
        """What an address with `*`, `?` or `[]` stands for. Raises InputError."""
        with _in_words(self), suppress(FileNotFoundError):
            scheme = self.address.partition("://")[0]
            names = sorted(map(str, _system(self).glob(self._inner)))
            return [Remote(name if "://" in name else f"{scheme}://{name.lstrip('/')}") for name in names]
        return []

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for several. A `?` begins the query of an address, so it is none of the signs."""
        return any(sign in self.address.partition("?")[0] for sign in "*[")

    def open(self, _mode: str = "rb") -> io.BufferedReader:
        """As a stream that can be searched. Raises InputError."""
        return io.BufferedReader(_Blocks(self), _FIRST_BYTES)

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    @property
    def _inner(self) -> str:
        return str(type(_system(self))._strip_protocol(self.address))


def _unsigned(path: str) -> str:
    return re.split(r"[?#]", path, maxsplit=1)[0]


def _system(remote: Remote) -> Any:
    """fsspec's file system for an address; the same object each time, by fsspec's own doing."""
    scheme = remote.address.partition("://")[0].lower()
    if scheme not in _SCHEMES:
        known = ", ".join(_SCHEMES)
        raise InputError(f"{remote}: {scheme}:// addresses are not supported, only {known}, file")
    name, package = _SCHEMES[scheme]
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(name)
    except ImportError:
        raise InputError(
            f"{remote}: {scheme}:// needs the package {package}; pip install 'torch-advisor[cluster]' {package}"
        ) from None
    said = {} if name in ("http", "https") else kind._get_kwargs_from_urls(remote.address)
    return fsspec.filesystem(name, **{**_options(name), **said})


def _options(name: str) -> dict[str, Any]:
    """Listings are asked for anew, and waiting for bytes has an end."""
    if name in ("http", "https"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S)
        return {"client_kwargs": {"timeout": timeout, "trust_env": True}, "use_listings_cache": False}
    if name == "s3":
        # s3fs itself tries again; botocore's own tries would multiply the waiting.
        limits = {"connect_timeout": STALL_S, "read_timeout": STALL_S, "retries": {"max_attempts": 0}}
        return {"config_kwargs": limits, "use_listings_cache": False}
    return {} if name == "memory" else {"use_listings_cache": False}


class AbsentError(InputError):
    """There is no such file."""


@contextmanager
def _in_words(remote: Remote) -> Iterator[None]:
    """Failures of any of the libraries as one line of our own, without the address's secrets."""
    try:
        yield
    except InputError:
        raise
    except Exception as failure:
        raise _said(remote, failure) from None


def _said(remote: Remote, failure: BaseException) -> InputError:
    status = _status(failure)
    if status == 404 or (status is None and isinstance(failure, FileNotFoundError)):
        return AbsentError(f"{remote}: no such file or folder (404); check the address")
    if status in (401, 403) or isinstance(failure, PermissionError):
        return InputError(f"{remote}: access is refused ({status or 403}); check its credentials or signature")
    if isinstance(failure, TimeoutError) or "Timeout" in type(failure).__name__:
        return InputError(f"{remote}: no answer within {STALL_S:g} s; try again, or copy the file")
    if "NoCredentials" in type(failure).__name__:
        return InputError(f"{remote}: no credentials were found for it; set them as for the provider's own tools")
    what = f"status {status}" if status else type(failure).__name__
    return InputError(f"{remote}: cannot be read ({what}); check the address and the connection")


def _status(failure: BaseException) -> int | None:
    status = getattr(failure, "status", None)
    answer = getattr(failure, "response", None) or getattr(failure.__cause__, "response", None)
    if status is None and isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


class _Blocks(io.RawIOBase):
    """The bytes of one file: each read is a request for a range, larger the longer it is read in order.

    A server that knows no ranges is read as one stream, from its start again where that is asked for.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._system, self._path = _system(remote), remote._inner
        self._known = self._identity()
        self.size = int(self._known.get("size") or 0)
        self._at, self._ends, self._wanted = 0, 0, _FIRST_BYTES
        self._block = b""
        self._stream: Any = None
        if remote._http:
            with _in_words(remote):
                self._file = self._system.open(self._path, "rb", block_size=_FIRST_BYTES, cache_type="none")
                self._stream = self._file if not hasattr(self._file, "_fetch_range") else None
        self._streamed = 0

    def _identity(self) -> dict[str, Any]:
        info = self._remote.info()
        return {key: info[key] for key in _VERSION if key in info}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start = self._ends - len(self._block)
        if not start <= self._at < self._ends:
            self._next(len(buffer))
            start = self._ends - len(self._block)
        data = self._block[self._at - start : self._at - start + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _next(self, asked: int) -> None:
        """The block at the place that is to be read."""
        in_order = self._at == self._ends and self._ends > 0
        self._wanted = min(self._wanted * 4, _LARGEST_BYTES) if in_order else max(min(asked, _FIRST_BYTES), 1)
        if self._at >= self.size > 0:
            self._block, self._ends = b"", self._at
            if in_order:
                self._unchanged()
            return
        end = min(self._at + self._wanted, self.size)
        self._block = self._tried(end)
        self._ends = self._at + len(self._block)
        if self._ends != end and self.size:
            self._unchanged()
            raise InputError(f"{self._remote}: cut off after {self._ends:,} of {self.size:,} bytes; try again")

    def _unchanged(self) -> None:
        if self._identity() != self._known:
            raise InputError(f"{self._remote}: changed while it was being read; try again when it is complete")

    def _tried(self, end: int) -> bytes:
        """A block; a connection that breaks is tried again, a refusal and silence are not."""
        for turn in range(_TRIES):
            try:
                return self._fetched(end)
            except Exception as failure:
                said = _said(self._remote, failure)
                lasting = _status(failure) is not None or "no answer" in str(said) or isinstance(said, AbsentError)
                if _status(failure) == 416:  # the range lies behind its end: it is shorter now
                    self._unchanged()
                if lasting or turn == _TRIES - 1:
                    raise self._broken(said, lasting) from None
                time.sleep(_PAUSE_S)
        raise AssertionError

    def _broken(self, said: InputError, lasting: bool) -> InputError:
        if lasting:
            return said
        return InputError(
            f"{self._remote}: the connection broke after {self._at:,} of {self.size:,} bytes, {_TRIES} times; try again"
        )

    def _fetched(self, end: int) -> bytes:
        if self._stream is not None:
            return self._of_stream(end - self._at if self.size else self._wanted)
        if not self._remote._http:
            return bytes(self._system.cat_file(self._path, start=self._at, end=end))
        try:
            self._file.seek(self._at)
            return bytes(self._file.read(end - self._at))
        except ValueError:  # fsspec's word for a server that sends all in place of a range
            self._stream, self._streamed = self._reopened(), 0
            return self._of_stream(end - self._at)

    def _of_stream(self, length: int) -> bytes:
        if self._at < self._streamed:
            self._stream, self._streamed = self._reopened(), 0
        while self._streamed < self._at:
            skipped = self._stream.read(min(self._at - self._streamed, _LARGEST_BYTES))
            if not skipped:
                return b""
            self._streamed += len(skipped)
        parts: list[bytes] = []
        while length > 0 and (part := self._stream.read(length)):
            parts.append(part)
            length -= len(part)
            self._streamed += len(part)
        return b"".join(parts)

    def _reopened(self) -> Any:
        return self._system.open(self._path, "rb", block_size=0)

    def close(self) -> None:
        closing: list[Callable[[], None]] = [one.close for one in (self._stream,) if one is not None]
        for close in closing:
            with suppress(Exception):
                close()
        super().close()
