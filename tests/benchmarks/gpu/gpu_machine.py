"""The machine that a benchmark ran on: its GPU and versions, what they can do, and what recording costs there.

This process never initialises CUDA: it forks the scripts that it times, and CUDA does not outlive a fork.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

FACTS = "machine.json"
CALIBRATION = "calibration.json"


def of_torch() -> dict[str, Any]:
    """What torch says of this machine. Initialises CUDA: for a process of its own. gpu is "" where there is none."""
    import torch

    gpu, more = "", {}
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
        found = torch.cuda.get_device_properties(0)
        gpu = found.name
        more = {
            "GPU memory, GB": round(found.total_memory / 1e9),
            "multiprocessors": found.multi_processor_count,
            "compute capability": f"{found.major}.{found.minor}",
            "CUDA": torch.version.cuda,
            "cuDNN": str(torch.backends.cudnn.version()),
        }
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"gpu": gpu, **more, "torch": torch.__version__, "Python": platform.python_version(), "cores": cores}


def facts() -> tuple[dict[str, Any], bool]:
    """(the facts, whether a process that is forked from this one reaches the device)."""
    # The question whether there is a GPU must not initialise CUDA in a process that forks.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch  # noqa: F401  (before the fork, as the scripts that are forked later have it)

    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as one:
            found, forks = one.submit(of_torch).result(timeout=120), True
    except Exception as failure:  # whatever CUDA raises there
        print(f"a forked process does not reach the device ({failure}): each script gets its own", file=sys.stderr)
        code = "import gpu_machine, json; print(json.dumps(gpu_machine.of_torch()))"
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parent, timeout=120)
        found, forks = json.loads(done.stdout.splitlines()[-1]), False
    return found | ({"driver": driver()} if found["gpu"] else {}), forks


def driver() -> str:
    """Version of the driver, as nvidia-smi says it; "" where it does not."""
    if not shutil.which("nvidia-smi"):
        return ""
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def calibrate(folder: Path) -> None:
    """Keeps what `advisor doctor --calibrate` measures in the folder; runs that follow use the same figures."""
    words = [sys.executable, "-m", "advisor", "doctor", "--calibrate", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        print(f"calibration left out: {done.stderr.strip()[-300:]}", file=sys.stderr)
    else:
        (folder / CALIBRATION).write_text(done.stdout, "utf-8")


def document(folder: Path) -> str:
    """What is known about the machine whose results lie in the folder, as Markdown."""
    lines = []
    if (folder / FACTS).exists():
        known = json.loads((folder / FACTS).read_text("utf-8"))
        known["gpu"] = known["gpu"] or "none: a CPU, for a test of this command; no figure here is one of a GPU"
        lines.append("; ".join(f"{name}: {value}" for name, value in known.items()))
    if (folder / CALIBRATION).exists():
        import msgspec

        from advisor.calibration import table
        from advisor.capture.record import Measured

        measured = msgspec.json.decode((folder / CALIBRATION).read_bytes(), type=Measured)
        lines += ["", "```", *table.lines(measured), "```"]
    return "\n".join(lines)


def recorded(profile: Path) -> dict[str, float]:
    """Median time of a step, ms, by what was recorded (none | shapes | lines, which has both), from the run's files."""
    run = json.loads((profile / "run.json").read_text("utf-8"))["ranks"][0]
    times = {"none": run["steps"].get("unprofiled_us"), "shapes": run["steps"].get("profiled_us")}
    for file in run["files"]:
        trace = profile / Path(file["path"]).name
        if file["role"] == "lines" and trace.exists():
            times["lines"] = step_rows_us(trace)  # no hook times these steps
    return {name: statistics.median(us) / 1e3 for name, us in times.items() if us}


def step_rows_us(trace: Path) -> list[float]:
    """The host's rows of the profiled steps of a trace, µs."""
    text = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    rows = json.loads(text)["traceEvents"]
    named = (row for row in rows if str(row.get("name", "")).startswith("ProfilerStep#"))
    return [float(row["dur"]) for row in named if row.get("cat") == "user_annotation" and "dur" in row]


def dilation_row(name: str, profile: Path) -> str:
    """One line of the table of what recording costs; "" where nothing was recorded."""
    found = recorded(profile) if (profile / "run.json").exists() else {}
    if "none" not in found:
        return ""
    times = [
        f"{found[key]:.1f} ({found[key] / found['none']:.2f})" if key in found else "" for key in ("shapes", "lines")
    ]
    return f"| {name} | {found['none']:.1f} | {' | '.join(times)} |"
