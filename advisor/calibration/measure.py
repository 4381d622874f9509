"""A process of its own: measures what ops, threads, memory and a device cost here, and prints it as one line of JSON.

Standard library, and torch of the interpreter that runs this; never part of the user's process. The only argument is
JSON: `threads` (of torch, as the script had them; null: torch's own choice), `seconds` for the host and
`device_seconds` for an accelerator (0: it is left alone), torch's import and the device's start not included.

Every quantity is sampled again and again until the time is over, the one next that has had least of it, so that a burst
of other work on the machine touches a sample of each rather than all samples of one. What is given of each: low and
high (10 % and 90 % of the samples), median, and their number. What one thread does is measured in its CPU time, which
another process cannot stretch; what several threads or a device do, in wall time.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# A quantity with fewer samples is left out; with more it is known well enough.
FEWEST, MOST = 3, 60
Sample = Callable[[], float]


def main() -> None:
    """Prints one line of JSON: the fields of `measured.Measured`."""
    wanted = json.loads(sys.argv[1])
    import torch

    from .on_device import device_samples
    from .on_host import host_samples

    if wanted.get("threads"):
        torch.set_num_threads(wanted["threads"])
    started, before = time.perf_counter(), scheduled()
    failed: dict[str, str] = {}
    quantities = sampled(host_samples(torch), wanted["seconds"] - (time.perf_counter() - started), failed)
    found = {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "waited": waited(before, scheduled()),
        "device": "",
        "seconds": time.perf_counter() - started,
    }
    device = usable_device(torch) if wanted["device_seconds"] else ""
    if device:
        module = getattr(torch, device)
        found["device"] = module.get_device_name(0)
        module.synchronize()
        made = device_samples(torch, device, module.synchronize)
        quantities |= sampled(made, wanted["device_seconds"], failed)
    sys.stdout.write(json.dumps({**found, "quantities": quantities, "failed": failed}) + "\n")


def usable_device(torch: Any) -> str:
    """The kind of accelerator that torch can use here; empty where there is none."""
    kinds = (kind for kind in ("cuda", "xpu") if hasattr(torch, kind))
    return next((kind for kind in kinds if getattr(torch, kind).is_available()), "")


def sampled(makers: dict[str, Callable[[], Sample]], seconds: float, failed: dict[str, str]) -> dict[str, Any]:
    """name -> [low, median, high, samples]. makers: prepare a quantity and give the function that samples it.

    One that cannot be measured here is told in `failed` by its error's first line, and the others go on. Half of the
    time is kept for samples: where other work has the cores, what is prepared last is left out.
    """
    began = time.perf_counter()
    ends = began + seconds
    open_: dict[str, Sample] = {}
    spent: dict[str, float] = {}
    values: dict[str, list[float]] = {}
    for name, make in makers.items():
        if time.perf_counter() - began > seconds / 2:
            failed[name] = "other processes left no time for it"
            continue
        try:
            open_[name] = make()
            open_[name]()  # the first call chooses kernels, packs weights, starts threads
        except Exception as failure:
            open_.pop(name, None)
            failed[name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            continue
        spent[name], values[name] = 0.0, []
    while open_ and time.perf_counter() < ends:
        # A quantity with too few samples is lost: each gets those first, the cheapest before the others.
        name = min(open_, key=lambda one: (len(values[one]) >= FEWEST, spent[one]))
        chosen = time.perf_counter()
        values[name].append(open_[name]())
        spent[name] += time.perf_counter() - chosen
        if len(values[name]) == MOST:
            del open_[name]
    return {name: summed_up(found) for name, found in values.items() if len(found) >= FEWEST}


def summed_up(values: list[float]) -> list[float]:
    """[low, median, high, number] of the samples: the 10 % and 90 % points, between samples as numpy does."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return [tenths[0], tenths[4], tenths[8], len(values)]


def scheduled() -> tuple[int, int] | None:
    """ns that this process's first thread ran so far, and that it was ready and had no core; None where unknown."""
    try:
        ran_ns, queued_ns = map(int, Path("/proc/self/schedstat").read_text("ascii").split()[:2])
    except (OSError, ValueError):
        return None
    return ran_ns, queued_ns


def waited(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """Share of the time between in which it was ready and had no core."""
    if before is None or after is None:
        return None
    ran_ns, queued_ns = (end - start for start, end in zip(before, after, strict=True))
    return queued_ns / max(ran_ns + queued_ns, 1)


def as_package(name: str = "_advisor_calibration") -> Any:
    """This module as a part of a package, where its files find each other and no module of the script."""
    sys.path[:1] = []  # the folder of this file, which the interpreter put first
    package = ModuleType(name)
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules[name] = package
    return importlib.import_module(f"{name}.measure")


if __name__ == "__main__":
    as_package().main()
