"""The user's folders of this program, as each platform has them: one for what can be made again, one for the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_OURS = "torch-advisor"


class _Kind(NamedTuple):
    """A kind of folder: the variable that goes first, and paths below LOCALAPPDATA and the home folder."""

    variable: str
    windows: str
    darwin: str
    other: str


_CACHE = _Kind("XDG_CACHE_HOME", f"{_OURS}/Cache", f"Library/Caches/{_OURS}", f".cache/{_OURS}")
_DATA = _Kind("XDG_DATA_HOME", _OURS, f"Library/Application Support/{_OURS}", f".local/share/{_OURS}")


def cache_folder(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """For what can be measured again; an absolute XDG_CACHE_HOME goes first."""
    return _folder(_CACHE, environment, system)


def data_folder(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """For what cannot be made again; an absolute XDG_DATA_HOME goes first."""
    return _folder(_DATA, environment, system)


def _folder(kind: _Kind, environment: Mapping[str, str], system: str) -> Path:
    asked = Path(environment.get(kind.variable, ""))
    if asked.is_absolute():
        return asked / _OURS
    if system == "win32" and environment.get("LOCALAPPDATA"):
        return Path(environment["LOCALAPPDATA"]) / kind.windows
    return Path.home() / (kind.darwin if system == "darwin" else kind.other)
