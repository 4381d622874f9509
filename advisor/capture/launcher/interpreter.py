"""Finds the interpreter that runs the script, and makes sure that it has torch, without importing torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from advisor.errors import UsageError

_ASK = "import importlib.util as u; print(u.find_spec('torch') is not None)"
_VERSION = "import importlib.metadata as m; print(m.version('torch'))"
_INSTALL = "install it there (pip install torch), or name the script's interpreter with --python"


def find(asked: str | None) -> str:
    """The interpreter to start the script with. Raises UsageError where none has torch.

    Without a wish it is ours; where that has no torch, the one of the active environment.
    """
    if asked:
        path = shutil.which(asked)
        if path is None:
            raise UsageError(f"--python {asked}: no such interpreter")
        if not _has_torch(path):
            raise UsageError(f"{asked} has no torch; {_INSTALL}")
        return path
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    for path in _active():
        if _has_torch(path):
            return path
    raise UsageError(f"this environment has no torch; {_INSTALL}")


def torch_version(path: str) -> str | None:
    """The version of that interpreter's torch, from its package's metadata; None where it is not known."""
    if path == sys.executable:
        try:
            return importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            return None
    try:
        done = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _active() -> list[str]:
    """Interpreters of the environments that the shell has active, the innermost first."""
    found = []
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        path = Path(os.environ.get(name, "")) / "bin" / "python"
        if name in os.environ and path.is_file():
            found.append(str(path))
    first = shutil.which("python")
    if first and first not in found:
        found.append(first)
    return found


def _has_torch(path: str) -> bool:
    try:
        done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "True"
