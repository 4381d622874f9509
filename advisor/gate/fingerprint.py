"""The fingerprint of an environment: what must be equal before counters may be compared.

It holds nothing that varies between boots, machines of one kind or runs: no host name, no path, no process id, no time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from advisor.model import Report

Fingerprint = Mapping[str, str]

_WORDS = {
    "cuda": "CUDA",
    "devices": "devices",
    "optimizer_steps_per_step": "optimizer steps per step",
    "python": "Python",
    "rocm": "ROCm",
    "torch": "torch",
    "world_size": "number of ranks",
}


def of_report(report: Report) -> dict[str, str]:
    """What a report says of its environment; what it does not say is absent, and matches anything."""
    versions = {name.lower(): text for name, text in report.run.versions.items()}
    found = {name: minor(versions[name]) for name in ("torch", "cuda", "rocm", "hip") if versions.get(name)}
    if report.run.devices:
        found["devices"] = ", ".join(sorted(report.run.devices))
    found["world_size"] = str(report.run.world_size)
    return dict(sorted(found.items()))


def workload(command: tuple[str, ...] | list[str]) -> str:
    """What was run, without the folders it ran in: `train.py --epochs 3`."""
    words = [word for word in command if word != "--"]
    if words and re.fullmatch(r"python[\d.]*(\.exe)?", PurePosixPath(words[0]).name):
        words = words[1:]
    named = [
        PurePosixPath(word).name if index == 0 or word.endswith(".py") else word for index, word in enumerate(words)
    ]
    return " ".join(named)


def minor(version: str) -> str:
    """`2.15` of `2.15.0+cu132`: counters change between minor versions, not between builds of one."""
    found = re.match(r"(\d+\.\d+)", version)
    return found[1] if found else version


def differences(base: Fingerprint, head: Fingerprint) -> list[str]:
    """Where two fingerprints contradict each other, in words; a fact that a side lacks contradicts nothing."""
    return [
        f"{_WORDS.get(key, key)} {base[key]} and {head[key]}"
        for key in sorted({*base, *head})
        if key in base and key in head and base[key] != head[key]
    ]
