"""Modules of the rooms of tests/benchmarks, which are no packages, and scripts that are run for a few steps."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """One of them, by name; those of its room find each other while it is loaded."""
    (file,) = BENCHMARKS.glob(f"*/{name}.py")
    room = str(file.parent)
    sys.path.insert(0, room)
    try:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(room)
    return module


RUN_ALL = """
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import pandas, torchvision  # imported once, for all
import step_times
seen = {}
with tempfile.TemporaryDirectory() as folder:
    for script in sys.argv[3:]:
        out = Path(folder) / "ends.json"
        out.unlink(missing_ok=True)
        try:
            step_times.run_forked(script, out, int(sys.argv[2]))
            seen[script] = len(json.loads(out.read_text()))
        except RuntimeError as failure:
            seen[script] = str(failure)
print(json.dumps(seen))
"""


def steps_made(scripts: Sequence[Path], steps: int) -> dict[str, int | str]:
    """How many optimizer steps each script made, ended after so many; or how it failed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, str(BENCHMARKS / "pairs"), str(steps), *map(str, scripts)],
        capture_output=True,
        text=True,
        timeout=1500,  # a hang: on a busy machine each script takes several times as long
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # threads wait for each other where other tests run beside this one
    )
    seen: dict[str, int | str] = json.loads(done.stdout.splitlines()[-1])
    return seen
