"""What is said of training jobs beside a simulated device: healthy ones, and the same ones with a fault.

    python tests/benchmarks/gpu/healthy_jobs.py [--profiles FOLDER] [--only NAME …] [--page PAGE]

Each script of `healthy_jobs/` is recorded on this machine's CPU with `advisor run`, those of several ranks with gloo
(once: what FOLDER holds is taken from there), and turned into the run beside a simulated A100 and H100
(`simulated_device/`), as if of a larger batch. For a job with a fault the healthy one, simulated alike, is the truth.

No figure of this was measured on a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "pairs"))

import pair_table
import simulated_pairs
from simulated_device.devices import DEVICES
from simulated_device.simulate import Truth

BEGIN, END = "<!-- healthy jobs -->", "<!-- end of healthy jobs -->"
SCRIPTS = Path(__file__).with_suffix("")
SHOWN = ("A100", "H100")
# glibc maps large tensors anew each time, and the page faults would be read as the host's work; a device's caching
# allocator keeps memory (mallopt(3): M_MMAP_MAX, M_TRIM_THRESHOLD).
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_ARENA_MAX": "1"}
RANKS = 2


@dataclass(frozen=True)
class Job:
    """A script, and at which load it is shown.

    batch  of the script, a prime;  times: how many times as large it is taken to be, for each device
    fault  the word that gives the script its fault;  rules: of which one has to find it
    """

    script: str
    batch: int
    times: dict[str, int]
    fault: str = ""
    rules: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The recording's name."""
        return Path(self.script).stem + (f"-{self.fault}" if self.fault else "")


_LIGHT, _HEAVY = {"A100": 16, "H100": 64}, {"A100": 64, "H100": 256}
HEALTHY = (
    Job("gpt.py", 5, _LIGHT),
    Job("diffusion_unet.py", 11, {"A100": 8, "H100": 32}),
    Job("ranks/gpt_ddp.py", 13, _LIGHT),
    Job("ranks/trainer_loop.py", 13, _LIGHT),
    Job("ranks/gpt_fsdp2.py", 13, _HEAVY),
    Job("ranks/gpt_zero.py", 13, _LIGHT),
    Job("ranks/moe.py", 13, _LIGHT),
    Job("ranks/embeddings.py", 13, _HEAVY),
)
FAULTY = (
    Job("ranks/gpt_ddp.py", 13, {"A100": 16}, "small-buckets", ("slow-collectives", "exposed-communication")),
    Job("ranks/gpt_ddp.py", 13, {"A100": 16}, "one-bucket", ("exposed-communication",)),
    Job("ranks/gpt_ddp.py", 13, {"A100": 16}, "item", ("sync-in-loop", "straggling-rank")),
    Job("ranks/gpt_ddp.py", 13, {"A100": 16}, "straggler", ("straggling-rank", "host-work", "idle-gpu")),
    Job("ranks/gpt_fsdp2.py", 13, {"A100": 64}, "late-gathers", ("late-shard-gathers", "sync-in-loop")),
    Job("ranks/moe.py", 13, {"A100": 16}, "uneven", ("uneven-exchanges", "straggling-rank")),
)


@dataclass(frozen=True)
class Row:
    """A job beside a device: its step without a profiler, and findings of `pair_table.MATERIAL` of the step or more."""

    job: str
    device: str
    truth: Truth
    findings: list[dict[str, Any]]
    failed: str = ""


def recorded(job: Job, profiles: Path) -> Path:
    """The script's recorded run. Raises CalledProcessError where the script or its recording failed."""
    folder = profiles / job.name
    if not (folder / "run.json").exists():
        script = SCRIPTS / job.script
        words = [sys.executable, "-m", "advisor", "run", "--quiet", "--stop-after-profile", "--output", str(folder)]
        if script.parent != SCRIPTS:
            words += ["--", "torchrun", "--nproc-per-node", str(RANKS)]
        threads = {"OMP_NUM_THREADS": "1"} if script.parent != SCRIPTS else {}
        words += [str(script), job.fault] if job.fault else [str(script)]
        subprocess.run(words, check=True, env={**os.environ, **KEPT, **threads})
    return folder


@cache
def judged(profile: Path, device: str, *, steady: bool, enlarged: tuple[int, int] | None = None) -> Row:
    """One recorded job beside one device."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, kind = Path(temporary), DEVICES[device]
        said, truth = simulated_pairs.advised(profile, folder, kind, steady=steady, enlarged=enlarged)
    if "failed" in said:
        return Row(profile.name, device, truth, [], said["failed"])
    return Row(profile.name, device, truth, pair_table.findings(said))


def _loud(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in findings if (one["high"] or 0) >= pair_table.MATERIAL]


def faulty(job: Job, profiles: Path, *, steady: bool) -> list[str]:
    """Rows of the table of faults: what the healthy job takes less stands beside the promise."""
    healthy = next(one for one in HEALTHY if one.script == job.script)
    lines = []
    for device, times in job.times.items():
        load = (job.batch, times)
        slow = judged(recorded(job, profiles), device, steady=steady, enlarged=load)
        fixed = judged(recorded(healthy, profiles), device, steady=steady, enlarged=load)
        gain = 1 - fixed.truth.step_us / slow.truth.step_us
        found = [one for one in slow.findings if one["rule"] in job.rules]
        others = [one for one in _loud(slow.findings) if one["rule"] not in job.rules]
        cells = [job.name, device, f"{100 * gain:.0f} % of {slow.truth.step_us / 1000:.1f} ms"]
        cells += [f"{100 * slow.truth.busy:.0f} %", slow.failed or _said(found) or "**missed**", _said(others)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _said(findings: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['rule']} {pair_table.percent(one['low'], one['high'])}" for one in findings)


def document(rows: list[Row]) -> str:
    """The table as Markdown."""
    lines = ["| job | *simulated device* | step | device busy | findings ≥ 2 % of the step |", "|---|---|---|---|---|"]
    for row in rows:
        said = _said(_loud(row.findings))
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
    wanted = [one for one in (*HEALTHY, *FAULTY) if not args.only or one.name in args.only]
    rows, faults = [], []
    for job in wanted:
        profile = recorded(job, args.profiles)
        if job.fault:
            faults += faulty(job, args.profiles, steady=args.steady)
        else:
            loads = job.times.items()
            rows += [judged(profile, name, steady=args.steady, enlarged=(job.batch, n)) for name, n in loads]
        print((faults if job.fault else [document(rows[-1:]).splitlines()[-1]])[-1], file=sys.stderr, flush=True)
    text = document(rows)
    if faults:
        head = "| job with a fault | *simulated device* | simulated gain | device busy | found by | others ≥ 2 % |"
        text += "\n\n" + "\n".join([head, "|---|---|---|---|---|---|", *faults])
    print(text)
    if args.page:
        args.page.write_text(written(args.page.read_text("utf-8"), text), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
