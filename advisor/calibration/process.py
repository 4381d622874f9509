"""Starts the process that measures, with the script's interpreter, threads and variables, and reads its answer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from advisor.calibration import cache
from advisor.calibration.machine import Machine
from advisor.capture.record import Measured
from advisor.errors import AdvisorError
from advisor.places.user_folders import cache_folder

# What the process may measure for, of the host and of a device.
HOST_S = 1.8
WITH_DEVICE_S = (1.0, 0.8)
# Importing torch from a network's file system and bringing up a device may take long; a hang must not be ours.
LIMIT_S = 60.0


def measure(python: str, machine: Machine, environment: Mapping[str, str], limit_s: float = LIMIT_S) -> Measured:
    """Measures now. Raises AdvisorError (one line) where the process fails or does not end in time."""
    script = Path(__file__).with_name("measure.py")
    host_s, device_s = WITH_DEVICE_S if machine.device else (HOST_S, 0.0)
    wanted = {"threads": machine.threads, "seconds": host_s, "device_seconds": device_s}
    clean = {name: value for name, value in environment.items() if name != "TORCH_ADVISOR_CAPTURE"} | machine.switches
    if machine.threads:
        clean["OMP_NUM_THREADS"] = str(machine.threads)
    try:
        done = subprocess.run(
            [python, str(script), json.dumps(wanted)],
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AdvisorError(f"calibration: not finished within {limit_s:g} s; using built-in figures") from None
    except OSError as failure:
        raise AdvisorError(f"calibration: {python} cannot be started ({failure.strerror})") from failure
    try:
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)
    except (IndexError, msgspec.MsgspecError, UnicodeDecodeError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = said[-1][:200] if said else f"it ended with status {done.returncode}"
        raise AdvisorError(f"calibration: {last}; using built-in figures") from None


def obtain(
    python: str,
    machine: Machine,
    *,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
    again: bool = False,
) -> tuple[Measured, bool]:
    """(what this machine does, whether it was known already). again: measured in any case. Raises AdvisorError."""
    home = cache_folder(environment) if home is None else home
    known = None if again else cache.load(home, machine)
    if known is not None:
        return known, True
    measured = measure(python, machine, environment)
    if measured.quantities:
        cache.store(home, machine, measured)
    return measured, False


def as_json(measured: Measured) -> Any:
    """The calibration as it stands in run.json."""
    return msgspec.to_builtins(measured)
