"""Whether a drift that begins late in a long run is found, with its cause, and what watching for it costs.

    python tests/benchmarks/capture/late_drift.py [--steps 216000] [--keep FOLDER]

216,000 steps are three hours of 50 ms; here each takes a third of a millisecond. Something piles up from two thirds of
them on. Prints CPU seconds bare and watched, and which windows the report has.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "late_drift.py"


def cpu_s(words: list[str]) -> float:
    """CPU seconds of a command and its children."""

    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime

    before = used()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return used() - before


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=216_000)
    parser.add_argument("--keep", type=Path, help="keep the reports in this folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("hooks", "history", "nothing"):
            words = [str(SCRIPT), kind, str(args.steps)]
            out = (args.keep or Path(folder)).absolute() / kind
            bare_s, watched_s = cpu_s(words), cpu_s(["-m", "advisor", "run", "--quiet", "-o", str(out), *words])
            report = json.loads((out / "report.json").read_bytes())
            print(f"\n{kind}: {bare_s:.1f} CPU s bare, {watched_s:.1f} with advisor run", flush=True)
            for window in report["windows"]:
                moved = [f"{one['name']} {one['before_us']:.0f} -> {one['after_us']:.0f} us" for one in window["moved"]]
                print(
                    f"  window after step {window['at']} ({window['why']}): {window['step_us']:.0f} us",
                    *moved,
                    sep="; ",
                )
            for outcome in report["outcomes"]:
                for found in outcome["findings"] if outcome["rule"] == "growing-step-time" else ():
                    print(f"  growing-step-time: {found['message']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
