"""Real gates on this machine: does the gate stay silent on equal code, and find what was put into a script?

    python tests/benchmarks/gate/gate_real.py --out gate_real.jsonl              # resumes where it was ended
    python tests/benchmarks/gate/gate_real.py --out gate_real.jsonl --summary

The script is a small training on a CPU with a step of some milliseconds. Its update is written by hand, because
torch.optim imports torch._dynamo: two seconds for each of the thousand processes that are started here. Time cases run
the whole A/B gate (self-test, pairs, sequential test) on the script and on a copy that spends a fixed share more of
each step; counter cases run `advisor gate check` on a copy with one line more. One JSON line per gate. With --lock FILE
each gate holds that file locked, so that other measurements on the machine wait.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from advisor.gate import ab, pairs
from advisor.gate.config import parse
from advisor.gate.pairs import Side
from advisor.gate.turns import environment

SCRIPT = """
import time
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
{compiled}
parameters = list(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(60_000, 256), torch.randint(0, 10, (60_000,)))
loader = torch.utils.data.DataLoader(data, batch_size=128)
criterion = nn.CrossEntropyLoss()


def forward(x):
    hidden = model[1](model[0](x))
    {broken}
    return model[4](model[3](model[2](hidden)))


{wrap}
began = time.process_time()
for epoch in range(2):
    for x, y in loader:
        for parameter in parameters:
            parameter.grad = None
        loss = criterion(forward(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter -= 0.01 * parameter.grad
        {added}
"""
# A share more of the CPU time of the whole step, its batch included: the wall clock runs on while the side is stopped.
SPIN = (
    "until = began + {factor} * (time.process_time() - began)\n"
    "        while (now := time.process_time()) < until: pass\n"
    "        began = now"
)
TIME_CASES = {"same": ("pass", None), "slower 10 %": ("regression", 1.10), "slower 5 %": ("not pass", 1.05)}
COUNTER_CASES = {
    "counters: same": ("pass", {}),
    "counters: one item()": ("regression", {"added": "loss.item()"}),
    "counters: one copy": ("regression", {"added": "x.clone()"}),
    "counters: one op": ("regression", {"added": "loss.detach() + 1"}),
    "counters: one graph break": ("regression", {"broken": "torch._dynamo.graph_break()"}),
}
REPEATS = {"same": 30, "counters: same": 30}


def script(*, compiled: bool = False, added: str = "pass", broken: str = "pass") -> str:
    """The training script with a change."""
    wrap = 'forward = torch.compile(forward, backend="eager")' if compiled else ""
    return SCRIPT.format(compiled="", wrap=wrap, added=added, broken=broken)


def time_gate(folder: Path, factor: float | None) -> dict[str, object]:
    """One A/B gate."""
    base, head = folder / "base", folder / "head"
    for place, added in ((base, "pass"), (head, SPIN.format(factor=factor) if factor else "pass")):
        place.mkdir(parents=True)
        (place / "train.py").write_text(script(added=added))
    command = pairs.command_of(["train.py"])
    sides = Side("base", command, base, environment()), Side("head", command, head, environment())
    result = ab.run(*sides, parse({}), lambda _text: None, explain=False)
    time_ = result.step_time
    assert time_ is not None
    return {
        "verdict": result.verdict,
        **{key: round(getattr(time_, key), 4) for key in ("change", "low", "high", "noise", "detectable", "seconds")},
        "pairs": time_.pairs,
        "step_us": round(time_.base_us),
        "self_test_noise": round(time_.self_test_noise or 0.0, 4),
        "confirmed": time_.confirmed,
    }


def counter_gate(folder: Path, changes: dict[str, str]) -> dict[str, object]:
    """One `gate check` against a baseline that is written once per folder of baselines."""
    compiled = "broken" in changes
    baselines = folder.parent / ("compiled" if compiled else "eager")
    held = baselines / "perf-baseline.json"
    if not held.exists():
        baselines.mkdir(parents=True, exist_ok=True)
        (baselines / "train.py").write_text(script(compiled=compiled))
        done = _advisor(baselines, "gate", "baseline", "write", "--", "train.py")
        if done.returncode:
            raise SystemExit(done.stderr)
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(script(compiled=compiled, **changes))
    began = time.monotonic()
    done = _advisor(folder, "gate", "check", "--baseline", str(held), "--format", "json", "--", "train.py")
    if done.returncode not in (0, 1, 3):
        return {"verdict": f"exit {done.returncode}", "reason": done.stderr.strip().splitlines()[-3:]}
    document = json.loads(done.stdout)
    moved = {row["id"]: [row["base"], row["head"]] for row in document["counters"] if row["status"] == "worse"}
    seconds = round(time.monotonic() - began, 1)
    return {"verdict": document["verdict"], "reason": document["reason"], "moved": moved, "seconds": seconds}


def _advisor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "advisor", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@contextlib.contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Holds the lock file, where one was named."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wait_for_quiet(most: float) -> None:
    """Waits until the machine's load average is below `most`: a crowded machine only shows that it is crowded."""
    while os.getloadavg()[0] > most:
        time.sleep(5)


def planned(kinds: list[str], done: Counter[str]) -> Iterator[str]:
    """Cases that are still missing, taking turns, so that an early end leaves some of each."""
    left = {kind: REPEATS.get(kind, 10) - done[kind] for kind in kinds}
    while any(number > 0 for number in left.values()):
        for kind in kinds:
            share = 3 if REPEATS.get(kind, 10) > 10 else 1
            for _ in range(min(share, max(left[kind], 0))):
                left[kind] -= 1
                yield kind


def summary(rows: list[dict[str, object]]) -> Iterator[str]:
    """Verdicts by case, with what was expected."""
    for case, (expected, _) in {**TIME_CASES, **COUNTER_CASES}.items():
        chosen = [row for row in rows if row["case"] == case]
        if not chosen:
            continue
        verdicts = Counter(str(row["verdict"]) for row in chosen)
        line = f"{case:<28} {len(chosen):>3} gates, expected {expected}: {dict(verdicts)}"
        changes = sorted(float(str(row["change"])) for row in chosen if "change" in row)
        noises = sorted(float(str(row["noise"])) for row in chosen if "noise" in row)
        if changes:
            seconds = sorted(float(str(row["seconds"])) for row in chosen)
            middle = len(chosen) // 2
            line += (
                f"; change {changes[0]:+.1%} .. {changes[-1]:+.1%}, noise median {noises[middle]:.1%}"
                f" max {noises[-1]:.1%}, {seconds[middle]:.0f} s (max {seconds[-1]:.0f} s),"
                f" step {chosen[0]['step_us']} us"
            )
        yield line


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--load", type=float, default=1e9, help="begin a time gate only below this load average")
    parser.add_argument("--only", choices=("time", "counters"))
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long; a later run goes on")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    kinds = [*(TIME_CASES if args.only != "counters" else ()), *(COUNTER_CASES if args.only != "time" else ())]
    until = time.monotonic() + args.minutes * 60
    with tempfile.TemporaryDirectory(prefix="gate-real-") as scratch:
        for number, case in enumerate(
            [] if args.summary else planned(kinds, Counter(str(row["case"]) for row in rows))
        ):
            if time.monotonic() > until:
                break
            folder = Path(scratch) / f"gate{number}"
            if case in TIME_CASES:
                wait_for_quiet(args.load)
                with locked(args.lock):
                    row = time_gate(folder, TIME_CASES[case][1])
            else:
                row = counter_gate(folder, COUNTER_CASES[case][1])
            row = {"case": case, "load": round(os.getloadavg()[0], 1), **row}
            rows.append(row)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    for line in summary(rows):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
