"""Reads the gate's input files; each obstacle is one clear line and has its own exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import INCONCLUSIVE, USAGE, AdvisorError
from advisor.model import SCHEMA, VERSION, Report


class GateError(AdvisorError):
    """An obstacle of the gate with its own exit status."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def read_report(path: Path, *, baseline: bool) -> Report:
    """A stored report (a report.json, or a folder that holds one).

    Raises GateError: a missing or foreign baseline is *no baseline* (3); everything else is a usage error (2).
    """
    file = path / "report.json" if path.is_dir() else path
    role, absent = ("baseline", INCONCLUSIVE) if baseline else ("report", USAGE)
    missing = f"no such {role}; create one with `advisor run --output DIR train.py` or `advisor analyze TRACE`"
    data = read_bytes(file, role, missing, absent)
    document = parse_json(file, data)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise GateError(f"{file}: not a report of torch-advisor (no schema {SCHEMA}); pass a report.json", absent)
    check_version(file, document.get("version"), VERSION)
    try:
        return msgspec.convert(document, Report)
    except msgspec.ValidationError as failure:
        raise GateError(f"{file}: damaged report ({failure}); create it again", USAGE) from failure


def made_s(path: Path) -> float:
    """When a stored report was made, as its file's time of change; `try`, which adds to it later, leaves that."""
    return (path / "report.json" if path.is_dir() else path).stat().st_mtime


def read_bytes(path: Path, role: str, missing: str, absent: int = INCONCLUSIVE) -> bytes:
    """What a file holds. Raises GateError: `absent` with the words `missing` where there is none; 2 else."""
    try:
        return path.read_bytes()
    except FileNotFoundError as failure:
        raise GateError(f"{path}: {missing}", absent) from failure
    except OSError as failure:
        raise GateError(f"{path}: cannot read the {role} ({failure.strerror})", USAGE) from failure


def parse_json(path: Path, data: bytes) -> Any:
    """The document in `data`. Raises GateError (2) where it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        what = "an empty file" if not data.strip() else f"damaged, not JSON ({failure})"
        raise GateError(f"{path}: {what}; create it again", USAGE) from failure


def check_version(path: Path, version: object, known: int) -> None:
    """Raises GateError (2) for a version that this program does not read."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise GateError(f"{path}: damaged, its version is {version!r}; create it again", USAGE)
    if version > known:
        text = (
            f"{path}: written by a newer torch-advisor (version {version}, this one reads {known}); upgrade to read it"
        )
        raise GateError(text, USAGE)
