"""Promised against what a simulated device shows, over every pair, healthy script and control that was recorded.

    python tests/benchmarks/gpu/simulated_pairs.py --profiles FOLDER [--device A100] [--only NAME …] [--page PAGE]

FOLDER holds the runs that `pairs.py` recorded on a CPU (`RESULTS/profiles`: `pair-<name>-slow`, …). Each is turned into
the run beside a simulated device (`simulated_device/`), `advisor analyze` is asked about it, and the step time of the
same simulated run without a profiler is the truth: what `fixed` takes less stands beside the promise on `slow`.

No figure of this was measured on a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "pairs"))

import pair_table
import pairs
from simulated_device.devices import DEVICES, Device
from simulated_device.simulate import Truth, simulate

BEGIN, END = "<!-- simulated device -->", "<!-- end of simulated device -->"
# Faults of which a window beside a device shows nothing: the device is used there, steps that become slower over the
# run are one step here, and the host's threads are those of the recording.
ELSEWHERE = ("unused-accelerator", "slowing-steps", "growing-memory", "unused-cores", "slow-start")
NOISE = 0.02  # of the step: two recordings of one script differ by that much, and a fault below it does not show


def advised(
    profile: Path, folder: Path, device: Device, *, steady: bool, enlarged: tuple[int, int] | None = None
) -> tuple[dict[str, Any], Truth]:
    """What is said of a recorded run beside the device, and what is true of it."""
    run = folder / profile.name
    truth = simulate(profile, run, device, steady=steady, enlarged=enlarged)
    out = folder / f"{profile.name}.json"
    words = [sys.executable, "-m", "advisor", "analyze", "--quiet", "--output", str(out), str(run)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": f"status {done.returncode}: {done.stderr.strip()[-300:]}"}, truth
    report = json.loads(out.read_text("utf-8"))
    kept = {key: report.get(key) for key in ("steps", "breakdown", "outcomes", "joint", "replay")}
    for outcome in kept["outcomes"]:
        outcome.pop("page", None)
    metrics = {k: m["value"] for k, m in report["metrics"].items() if m["status"] == "measured"}
    return {**kept, "metrics": metrics}, truth


def result_of(
    case: pairs.Case, profiles: Path, device: Device, keep: Path | None, *, steady: bool
) -> dict[str, Any] | None:
    """One case in the form of `pairs.py`; None where it was not recorded."""
    found = {role: profiles / f"{case.kind}-{case.name}-{role}" for role in case.scripts}
    if not all((folder / "run.json").exists() for folder in found.values()):
        return None
    with tempfile.TemporaryDirectory() as temporary:
        said, truth = {}, {}
        for role, folder in found.items():
            said[role], truth[role] = advised(folder, keep or Path(temporary), device, steady=steady)
    result: dict[str, Any] = {"name": case.name, "kind": case.kind, "facts": case.facts, "advised": said}
    result["busy"] = {role: one.busy for role, one in truth.items()}
    if "fixed" in truth:
        work = float(case.facts.get("work", 1))
        saving = 1 - truth["fixed"].step_us / work / truth["slow"].step_us
        times = {f"{role}_us": [one.step_us] for role, one in truth.items()}
        result["measured"] = {**times, "saving": saving, "low": saving - NOISE, "high": saving + NOISE}
    return result


def figures(results: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What sums the table up."""
    known = pair_table.known_rules(results)
    rows = [pair_table.judged(one, known) for one in results if one["kind"] == "pair"]
    shown = [row for row in rows if row["counts"] and not row["failed"]]
    promised = [row for row in shown if row["error"] is not None]
    every = [row for row in rows if row["error"] is not None]
    silent = [row["silent"] for row in rows if row["silent"] is not None]
    crashed = sum(bool(said.get("failed")) for one in results for said in one["advised"].values())
    return [
        ("pairs, and of them with a fault that shows there", f"{len(rows)}, {len(shown)}"),
        ("found", pair_table.share(sum(bool(row["found"]) for row in shown), len(shown))),
        (
            "simulated gain inside the promised range",
            pair_table.share(sum(r["inside"] for r in promised), len(promised)),
        ),
        ("wrong promises", pair_table.share(sum(row["wrong"] for row in every), len(every))),
        ("silent on `fixed.py`", pair_table.share(sum(silent), len(silent))),
        ("runs that could not be analysed", str(crashed)),
    ]


def pair_row(row: dict[str, Any], busy: dict[str, float]) -> str:
    """One line of the table of pairs."""
    measured = row["measured"]
    gain = f"{100 * measured['saving']:.0f} % of {measured['slow_us'][0] / 1000:.1f} ms"
    found = row["failed"] or (row["found"]["rule"] if row["found"] else "**missed**" if row["counts"] else "nothing")
    promise = pair_table.percent(row["found"]["low"], row["found"]["high"]) if row["found"] else ""
    cells = [row["name"], gain + ("" if row["counts"] else " (does not show)"), f"{100 * busy['slow']:.0f} %", found]
    cells += [promise, pair_table.yes(row["inside"]), pair_table.yes(row["silent"])]
    return "| " + " | ".join([*cells, ", ".join([*row["others"], *row["also"]])]) + " |"


def document(results: list[dict[str, Any]], device: Device) -> str:
    """All of it as Markdown."""
    known = pair_table.known_rules(results)
    parts = [f"| figure, *simulated device* ({device.name}) | value |", "|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in figures(results)]
    head = "| pair | simulated gain | device busy | found by | promised | inside | silent on fixed | others ≥ 2 % |"
    parts += ["", head]
    parts += ["|---|---|---|---|---|---|---|---|"]
    parts += [pair_row(pair_table.judged(one, known), one["busy"]) for one in results if one["kind"] == "pair"]
    others = [one for one in results if one["kind"] != "pair"]
    if others:
        head = "| script | kind | device busy | simulated gain of the popular fix | findings ≥ 2 % |"
        parts += ["", head, "|---|---|---|---|---|"]
    for one in others:
        gain = f"{100 * one['measured']['saving']:.1f} %" if "measured" in one else ""
        loud = [f for f in pair_table.findings(one["advised"]["slow"]) if (f["high"] or 0) >= pair_table.MATERIAL]
        said = ", ".join(f"{f['rule']} {pair_table.percent(f['low'], f['high'])}" for f in loud)
        cells = [one["name"], one["kind"], f"{100 * one['busy']['slow']:.0f} %", gain]
        parts.append("| " + " | ".join([*cells, one["advised"]["slow"].get("failed") or said or "nothing"]) + " |")
    return "\n".join(parts)


def written(page: str, document: str) -> str:
    """The page with the document between its markers."""
    head, begin, rest = page.partition(BEGIN)
    if not begin:
        raise ValueError(f"{BEGIN} is not in the page")
    return f"{head}{BEGIN}\n\n{document}\n\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--device", choices=DEVICES, default="A100")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--steady", action="store_true", help="the runs were recorded on a busy machine")
    parser.add_argument("--keep", type=Path, help="leave the simulated runs and the reports there")
    parser.add_argument("--page", type=Path, help="also write the table into this page, between its markers")
    args = parser.parse_args()
    results = []
    for case in pairs.cases():
        if args.only and not any(part in case.name for part in args.only):
            continue
        if case.kind == "pair" and set(case.facts["rules"]) <= set(ELSEWHERE):
            continue
        try:
            result = result_of(case, args.profiles, DEVICES[args.device], args.keep, steady=args.steady)
        except ValueError as reason:
            print(f"{case.name}: left out, {reason}", file=sys.stderr, flush=True)
            continue
        if result is not None:
            results.append(result)
            print(case.name, file=sys.stderr, flush=True)
    text = document(results, DEVICES[args.device])
    print(text)
    if args.page:
        args.page.write_text(written(args.page.read_text("utf-8"), text), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
