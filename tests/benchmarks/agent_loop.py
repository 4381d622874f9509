"""What a coding agent achieves over `advisor mcp`: profile, apply the diff of a finding, profile again, compare.

    python tests/benchmarks/agent_loop.py                      the pairs below, a row each
    python tests/benchmarks/agent_loop.py single-thread        these pairs of samples/pairs

The agent is a script of a few lines: it takes the first finding that has a diff. So the table says what the findings
alone are good for. Step times are those of single profiles: measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from agent_session import Call, session

ROOT = Path(__file__).parents[2]
PAIRS = ("garbage-collection", "anomaly-detection", "single-thread", "needless-workers", "loop-optimizer")
HEAD = ("pair", "finding", "before", "promised", "after", "time saved", "resolved")


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", default=PAIRS)
    print(f"| {' | '.join(HEAD)} |")
    print(f"|{'---|' * len(HEAD)}")
    for pair in parser.parse_args().pairs:
        print(f"| {' | '.join((pair, *row(pair)))} |", flush=True)
    return 0


def row(pair: str) -> tuple[str, ...]:
    """The cells of one pair after its name."""
    cells: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "samples" / "pairs" / pair / "slow.py", Path(folder) / "train.py")

        async def talk(call: Call, _: Any) -> None:
            cells.extend(await _loop(call, Path(folder)))

        session(Path(folder), talk)
    return tuple(cells)


async def _loop(call: Call, folder: Path) -> list[str]:
    before = await call("profile", script=["train.py"], output="before")
    if before["cannot_answer"]:
        return [before["cannot_answer"], *[""] * 5]
    found = next((one for one in before["findings"] if one["diff"]), None)
    if found is None:
        return ["no finding has a diff", f"{before['step_ms']} ms", *[""] * 4]
    subprocess.run(["git", "apply"], input=found["diff"], text=True, cwd=folder, check=True)
    await call("profile", script=["train.py"], output="after")
    compared = await call("compare", base="before", head="after")
    saving = found["saving"]
    promised = f"{saving['low_ms']} to {saving['high_ms']} ms" if saving else "not measured"
    gone = any(one.startswith(f"{found['rule']} ") for one in compared["resolved_findings"])
    change = compared["change_share"]
    saved = "not measured" if change is None else f"{-100 * change:.0f} %"
    return [
        found["rule"],
        f"{compared['base_step_ms']} ms",
        promised,
        f"{compared['head_step_ms']} ms",
        saved,
        "yes" if gone else "no",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
