"""What a calibration belongs to: the same machine, device, torch and number of threads give the same figures again."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec

# Variables that decide how threads wait, which instructions are used and how memory is handed out, by their beginnings.
_SWITCHES = ("OMP_", "KMP_", "GOMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_", "LD_PRELOAD", "MALLOC_")


class Machine(msgspec.Struct, frozen=True):
    """The key of a calibration. threads None: torch's own choice; affinity: the cores that this process may use."""

    cpu: str
    cores: int
    affinity: list[int]
    python: str
    torch: str
    threads: int | None = None
    device: str = ""
    switches: dict[str, str] = {}


def here(python: str, torch: str, threads: int | None, device: str, environment: Mapping[str, str]) -> Machine:
    """This machine, for a script that runs in that interpreter and environment."""
    return Machine(
        cpu=cpu(),
        cores=os.cpu_count() or 1,
        affinity=sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        python=os.path.realpath(python),
        torch=torch,
        threads=threads,
        device=device,
        switches=dict(sorted(switches(environment).items())),
    )


def switches(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a calibration has to share with the script."""
    return {name: value for name, value in environment.items() if name.startswith(_SWITCHES)}


def cpu(path: Path = Path("/proc/cpuinfo")) -> str:
    """Model of the CPU with its family and stepping, as far as the system tells."""
    wanted = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    found: dict[str, str] = {}
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in wanted:
            found.setdefault(name.strip(), value.strip())
    return ", ".join(found[name] for name in wanted if name in found) or platform.machine()
