"""Everything that `advisor doctor` checks, in the order in which it would fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from advisor.capture.inside.facts import cores
from advisor.capture.launcher import interpreter, launch, preflight
from advisor.capture.launcher.preflight import Check
from advisor.errors import UsageError

# The oldest torch that the tests run with. Older ones may work: nothing but the export of a trace is asked of them.
OLDEST = (2, 1)
# A trace of ten steps before compression, with room to spare.
_ROOM_BYTES = 1 << 30


def all_checks(python: str | None) -> list[Check]:
    """Interpreter and torch, whether capture reaches the script, device events, cores, room, how traces are read."""
    try:
        path = interpreter.find(python)
    except UsageError as failure:
        return [Check("torch", "error", str(failure))]
    checks = [_torch(path), _reached(path)]
    checks += preflight.check(path, os.environ).checks
    checks += [_cores(), _room(Path.cwd()), _reader()]
    return checks


def _torch(path: str) -> Check:
    """The version of torch, read from its package's metadata: importing it takes seconds."""
    version = interpreter.torch_version(path)
    if version is None:
        return Check("torch", "warning", f"{path} has torch, but its version is unknown")
    return too_old(version) or Check("torch", "ok", f"torch {version} in {path}")


def too_old(version: str) -> Check | None:
    """A warning where this torch is older than any that is tested; None otherwise."""
    numbers = tuple(int(part) for part in version.partition("+")[0].split(".")[:2] if part.isdigit())
    if not numbers or numbers >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return Check("torch", "warning", f"torch {version} is older than {oldest}, the oldest tested version; upgrade it")


def _reached(path: str) -> Check:
    """Whether an interpreter that we start runs our sitecustomize."""
    with tempfile.TemporaryDirectory(prefix="torch-advisor-") as folder:
        target = launch.Target((path, "-c", "import sys; print('_torch_advisor' in sys.modules)"), True)
        environment = launch.environment(target, Path(folder), launch.Options(), os.environ)
        done = subprocess.run(target.command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.stdout.strip() == "True":
        return Check("capture", "ok", "scripts started here can be captured")
    return Check("capture", "error", f"{path} ignores PYTHONPATH, so capture cannot start; use a regular one")


def _cores() -> Check:
    count, reason = cores.available()
    return Check("cores", "ok" if count > 1 else "note", f"{count} core{'s' * (count != 1)} may be used ({reason})")


def _reader() -> Check:
    """Whether the extension was built that reads ordinary rows."""
    try:
        import advisor.trace.read.native_columns  # noqa: F401
    except ImportError:
        return Check(
            "reader",
            "note",
            "installed without its C extension, so large traces take longer to read; install a C compiler, then "
            "reinstall torch-advisor",
        )
    return Check("reader", "ok", "large traces are read by the C extension")


def _room(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        return Check("output", "warning", f"cannot write to {folder}; name another folder with --output")
    if free < _ROOM_BYTES:
        return Check(
            "output", "warning", f"only {free >> 20} MB are free in {folder}; free some space, or use --output"
        )
    return Check("output", "ok", "advisor-report/ can be written here")
