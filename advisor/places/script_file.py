"""Which script or module a command line starts, and its file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


def named(words: Sequence[str]) -> str:
    """The script of a command, or the last module that it names, since the first may be a launcher; else empty."""
    modules = [after for word, after in pairwise(words) if word in ("-m", "--module")]
    return next((word for word in words if word.endswith(".py")), modules[-1] if modules else "")


def started(words: Sequence[str], folder: Path) -> Path | None:
    """The script, or the file of the module as Python finds it from `folder`; None where it is not there."""
    name = named(words)
    if not name or name.endswith(".py"):
        return folder / name if name else None
    path = Path(*name.split("."))
    places = (folder, *(Path(one) for one in sys.path if one and "site-packages" not in one))
    files = (file for place in places for file in (place / path.with_suffix(".py"), place / path / "__main__.py"))
    return next((file for file in files if file.is_file()), None)
