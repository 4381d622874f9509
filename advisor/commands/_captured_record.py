"""What run.json says of a capture beyond what its processes wrote: added when they are done, by a process of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from advisor.capture.launcher import run_file
from advisor.report import module_work


def complete(folder: Path, record: dict[str, Any], python: str, *, calibrate: bool, quiet: bool) -> None:
    """Adds operations by module, checks of the device and costs on this machine to `record`, and writes run.json.

    python: the interpreter that has torch. calibrate: whether costs are measured.
    """
    module_work.add_flops(folder, record)
    _add_preflight(record, python)
    if calibrate:
        add_calibration(record, python, quiet=quiet)
    run_file.write(folder, record)


def _add_preflight(record: dict[str, Any], python: str) -> None:
    """Says in run.json whether device events can be recorded, whether an accelerator stood unused, and of an old torch.

    Checked after the script: a process that brings up a device while it runs would disturb what is measured.
    """
    from advisor.capture.launcher import doctor, preflight

    found = preflight.check(python, os.environ)
    old = doctor.too_old(record["versions"].get("torch", ""))
    checks = [*found.checks, *([old] if old else [])]
    record["preflight"] = [{"id": one.id, "status": one.status, "message": one.message} for one in checks]
    for rank in record["ranks"]:
        settings = rank.get("settings")
        if settings and settings.get("accelerator_available") is None:
            settings["accelerator_available"] = found.accelerator
            settings["accelerator_name"] = found.name or None


def add_calibration(record: dict[str, Any], python: str, *, quiet: bool) -> None:
    """Measures what ops, threads, memory and the device cost here, once for this machine; a failure is one line.

    After the script, so that it disturbs nothing; with the threads and variables of the first rank.
    """
    from advisor.calibration import machine, process
    from advisor.errors import AdvisorError

    first = next(rank for rank in record["ranks"] if rank["files"])
    devices = first.get("devices") or [{}]
    here = machine.here(
        python,
        record["versions"].get("torch", ""),
        (first.get("settings") or {}).get("threads"),
        devices[0].get("name", ""),
        os.environ | (first.get("environment") or {}),
    )
    try:
        measured, _ = process.obtain(python, here)
    except (AdvisorError, KeyboardInterrupt) as failure:
        if not quiet:
            text = str(failure) or "calibration: interrupted; using built-in figures"
            print(f"advisor: {text}", file=sys.stderr)
        return
    for rank in record["ranks"]:
        rank["calibration"] = process.as_json(measured)
