"""A process of its own: runs one kernel under the profiler and prints, as JSON, what could be recorded.

Standard library, and torch of the interpreter that runs this. Never part of the user's process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any


def main() -> None:
    """Prints one line of JSON: the fields of `preflight.Probe`."""
    # The folder of this file holds modules of ours; the interpreter put it first.
    sys.path[:1] = []
    import torch

    seen: dict[str, Any] = {
        "torch": str(torch.__version__),
        "built_for": _built_for(torch),
        "available": False,
        "activities": sorted(one.name for one in torch.profiler.supported_activities()),
        "packages": os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))),
    }
    device = _device(torch)
    if device:
        seen["available"] = True
        seen["name"] = getattr(torch, device).get_device_name(0)
        seen["kernels"] = _kernels(torch, device)
        seen["cupti"] = _loaded("libcupti")
    print(json.dumps(seen))


def _built_for(torch: Any) -> str:
    for name in ("cuda", "hip", "xpu"):
        version = getattr(torch.version, name, None)
        if version:
            return f"{name} {version}"
    return ""


def _device(torch: Any) -> str:
    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available():
            return name
    return ""


def _kernels(torch: Any, device: str) -> int:
    """Device kernels in a trace of two matrix products; the first session after start-up may lose events, so twice."""
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, kinds.XPU if device == "xpu" else kinds.CUDA]
    found = 0
    for _ in range(2):
        with torch.profiler.profile(activities=activities) as profiler:
            one = torch.ones(64, 64, device=device)
            (one @ one).sum().item()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(path)
            with open(path, encoding="utf-8", errors="replace") as file:
                rows = json.load(file, strict=False)["traceEvents"]
        found = max(found, sum(1 for row in rows if str(row.get("cat", "")).lower() == "kernel"))
    return found


def _loaded(name: str) -> list[str]:
    """Files of that library which this process has loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return sorted({line.split(maxsplit=5)[-1].strip() for line in file if name in line})
    except OSError:
        return []


if __name__ == "__main__":
    main()
