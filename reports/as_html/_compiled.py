"""Templates that were compiled before, kept in the user's cache folder: compiling takes 0.1 CPU s a page."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from advisor.api import cache_folder


def cache() -> jinja2.BytecodeCache | None:
    """Jinja's own cache, in a folder that nobody else can write to; None where there is none."""
    with contextlib.suppress(OSError, RuntimeError):  # of a read-only place, and of a user without a home
        folder = cache_folder() / "templates"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        known = folder.stat()
        # What lies here is run as code.
        if os.name == "nt" or (known.st_uid == os.getuid() and not known.st_mode & 0o022):
            return _Cache(str(folder), "%s.cache")
    return None


class _Cache(jinja2.FileSystemBytecodeCache):
    """Jinja writes files whole or not at all; a folder that cannot be read or written is as good as an empty one."""

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)

    def get_source_checksum(self, source: str) -> str:
        """Of the template and of all code that compiling may call: filters of constants are called then."""
        return hashlib.sha256(f"{_code()}\n{source}".encode()).hexdigest()


@functools.cache
def _code() -> str:
    """What the code of reports and of Jinja is, by names, sizes and times of the files."""
    folder = Path(__file__).parent
    files = [*sorted(folder.glob("*.py")), *sorted(folder.parent.glob("*.py")), Path(jinja2.__file__)]
    return "\n".join(f"{one} {(known := one.stat()).st_size} {known.st_mtime_ns}" for one in files)
