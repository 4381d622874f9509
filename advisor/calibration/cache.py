"""Calibrations of this machine, kept in the user's cache folder: one file each, named by what it belongs to."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from advisor.calibration.calibration import busy
from advisor.calibration.machine import Machine
from advisor.capture.record import Measured

# Raised where a quantity is added or changes its meaning: what older versions stored is measured again.
VERSION = 5
_BUSY_FOR_S = 3600


class _Stored(msgspec.Struct, frozen=True):
    version: int
    machine: Machine
    measured: Measured


def load(home: Path, machine: Machine) -> Measured | None:
    """What was measured on this machine; None where nothing was, or where its file is damaged or of another version.

    What was measured while other work had the cores counts for an hour: there may be less of it later.
    """
    path = _path(home, machine)
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        age_s = time.time() - path.stat().st_mtime
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if stored.version != VERSION or stored.machine != machine or (busy(stored.measured) and age_s > _BUSY_FOR_S):
        return None
    return stored.measured


def store(home: Path, machine: Machine, measured: Measured) -> bool:
    """Keeps it, whole or not at all; False where the folder cannot be written to: a later run measures again."""
    aside = home / f".calibration-{os.getpid()}.tmp"
    try:
        home.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(msgspec.json.encode(_Stored(VERSION, machine, measured)))
        aside.replace(_path(home, machine))
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        return False
    return True


def _path(home: Path, machine: Machine) -> Path:
    key = hashlib.sha256(msgspec.json.encode(machine, order="deterministic")).hexdigest()[:16]
    return home / f"calibration-{key}.json"
