"""What is said of healthy training jobs beside a simulated device: every finding of 2 % of the step or more.

    python tests/benchmarks/healthy_jobs.py [--profiles FOLDER] [--only NAME …] [--page PAGE]

Each script of `healthy_jobs/` is recorded on this machine's CPU with `advisor run` (once: what FOLDER holds is taken
from there) and turned into the run beside a simulated A100 and H100 (`simulated_device/`). The simulator takes one
process; jobs of several ranks are not among them.

No figure of this was measured on a GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pair_table
import simulated_pairs
from simulated_device.devices import DEVICES
from simulated_device.simulate import Truth

BEGIN, END = "<!-- healthy jobs -->", "<!-- end of healthy jobs -->"
SCRIPTS = Path(__file__).with_suffix("")
SHOWN = ("A100", "H100")


@dataclass(frozen=True)
class Row:
    """A job beside a device: its step without a profiler, and findings of `pair_table.MATERIAL` of the step or more."""

    job: str
    device: str
    truth: Truth
    findings: list[dict[str, Any]]
    failed: str = ""


def recorded(script: Path, profiles: Path) -> Path:
    """The script's recorded run. Raises CalledProcessError where the script or its recording failed."""
    folder = profiles / script.stem
    if not (folder / "run.json").exists():
        options = ["--quiet", "--stop-after-profile", "--output", str(folder)]
        words = [sys.executable, "-m", "advisor", "run", *options, str(script)]
        subprocess.run(words, check=True)
    return folder


def judged(profile: Path, device: str, *, steady: bool) -> Row:
    """One recorded job beside one device."""
    with tempfile.TemporaryDirectory() as temporary:
        said, truth = simulated_pairs.advised(profile, Path(temporary), DEVICES[device], steady=steady)
    loud = [one for one in pair_table.findings(said) if (one["high"] or 0) >= pair_table.MATERIAL]
    return Row(profile.name, device, truth, loud, said.get("failed", ""))


def document(rows: list[Row]) -> str:
    """The table as Markdown."""
    lines = ["| job | *simulated device* | step | device busy | findings ≥ 2 % of the step |", "|---|---|---|---|---|"]
    for row in rows:
        said = ", ".join(f"{one['rule']} {pair_table.percent(one['low'], one['high'])}" for one in row.findings)
        cells = [row.job, row.device, f"{row.truth.step_us / 1000:.1f} ms", f"{100 * row.truth.busy:.0f} %"]
        lines.append("| " + " | ".join([*cells, row.failed or said or "none"]) + " |")
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """The page with the table between its markers."""
    head, begin, rest = page.partition(BEGIN)
    if not begin:
        raise ValueError(f"{BEGIN} is not in the page")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, default=Path.home() / ".cache/torch-advisor-healthy")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--steady", action="store_true", help="the runs were recorded on a busy machine")
    parser.add_argument("--page", type=Path, help="also write the table into this page, between its markers")
    args = parser.parse_args()
    scripts = [one for one in sorted(SCRIPTS.glob("*.py")) if not args.only or one.stem in args.only]
    profiles = [recorded(script, args.profiles) for script in scripts]
    rows = [judged(profile, device, steady=args.steady) for profile in profiles for device in SHOWN]
    text = document(rows)
    print(text)
    if args.page:
        args.page.write_text(written(args.page.read_text("utf-8"), text), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
