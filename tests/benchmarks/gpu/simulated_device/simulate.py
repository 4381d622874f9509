"""A recorded CPU run turned into the run beside a simulated device.

    python -m simulated_device.simulate RECORDED OUT [--device T4|A100|H100] [--cold]      (in tests/benchmarks)

OUT holds what `advisor analyze` reads. Printed is the *true* step time of the same simulated run without a profiler.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import collectives, kineto, placement, recording, run_facts
from .collectives import Meetings, Plan
from .devices import DEVICES, Costs, Device
from .enlarged import enlarge
from .machine import Machine
from .recording import Recording, Step
from .replayed import Host, Ranks, Workers

CYCLES = 3  # the window's steps are gone through so often for the truth, after one cycle that fills queues


@dataclass(frozen=True)
class Truth:
    """What the simulated run takes without a profiler.

    step_us      mean time of a step, µs;  median_us: the median
    profiled_us  mean time of a step in the profiled window
    kernel_us    work of the device in a step;  busy: its share of the step
    unaligned    ops of the window, as a share, that the observed step does not have
    """

    step_us: float
    median_us: float
    profiled_us: float
    kernel_us: float
    busy: float
    unaligned: float = 0.0


def simulate(
    folder: Path,
    out: Path,
    device: Device,
    *,
    cold: bool = False,
    steady: bool = False,
    enlarged: tuple[int, int] | None = None,
    costs: Costs | None = None,
) -> Truth:
    """Writes the run beside the device to `out`. Raises ValueError where the recording cannot be simulated.

    Returned is what is true of the slowest rank.
    cold: the window begins with the first step of the process;  steady: see `recording.steadied`
    enlarged: the batch that was recorded, and how many times as large it is to be (`enlarged`)
    """
    run = json.loads((folder / "run.json").read_text("utf-8"))
    found = [recording.read(folder, i) for i in range(len(run["ranks"]))]
    jobs = [Job(one, out, device, costs or Costs(), cold) for one in found]
    for job in jobs:
        job.plan()
    if steady:
        recording.steadied(*(one.steps for one in found))
    if enlarged:
        for one in found:
            enlarge(one, *enlarged)
    for phase in jobs[0].plans:
        if len({len(job.plans[phase].calls) for job in jobs}) > 1:
            raise ValueError("the ranks' windows hold different numbers of collectives")
    out.mkdir(parents=True, exist_ok=True)
    meetings = Meetings(device, costs or Costs(), len(jobs))
    with ThreadPoolExecutor(len(jobs)) as pool:
        truths = list(pool.map(lambda job: job.simulated(meetings), jobs))
    run["ranks"] = [job.record for job in jobs]
    run["preflight"] = [one for one in run.get("preflight") or [] if one.get("id") != "device"]
    (out / "run.json").write_text(json.dumps(run), "utf-8")
    return max(truths, key=lambda one: one.step_us)


@dataclass
class Job:
    """One rank's part. plans: its collectives in the window and in the step with lines; record: of run.json."""

    recorded: Recording
    out: Path
    device: Device
    costs: Costs
    cold: bool
    plans: dict[str, Plan] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)

    def plan(self) -> None:
        """Finds the collectives, and takes the host's waiting for them out of the recording."""
        one = self.recorded
        self.plans["profile"] = collectives.plan(one.trace, one.thread, one.steps)
        if one.lines_trace is not None:
            self.plans["lines"] = collectives.plan(one.lines_trace, one.thread, one.lines)

    def simulated(self, meetings: Meetings) -> Truth:
        """Writes the rank's files."""
        one, device, costs = self.recorded, self.device, self.costs
        truth = self._host(meetings, "truth", one.steps, profiled=False)
        times, kernel_us = _true_times(truth, one)
        host = self._host(meetings, "profile", one.steps, profiled=True)
        profiled = _profile(host, one, cold=self.cold)
        files = {each["role"]: each["path"] for each in one.rank["files"]}
        kineto.write(self.out / files["profile"], host.machine.rows, device, one.trace, one.thread)
        if one.lines_trace is not None:
            lines = self._host(meetings, "lines", one.lines, profiled=True)
            lines.machine.recording = True
            _pass(lines, one.lines)
            kineto.write(self.out / files["lines"], lines.machine.rows, device, one.lines_trace, one.thread)
        if one.nodes:
            with gzip.open(self.out / one.rank["dataflow"]["file"], "wt", encoding="utf-8") as file:
                json.dump({**one.dataflow, "nodes": one.nodes}, file)
        wanted = len(one.rank["steps"]["unprofiled_us"]) or len(times)
        many = (times * (wanted // len(times) + 1))[:wanted]
        self.record = run_facts.beside(one.rank, device, costs, (many, profiled), _peak_bytes(one))
        mean = statistics.fmean(times)
        return Truth(mean, statistics.median(times), statistics.fmean(profiled), kernel_us, min(1.0, kernel_us / mean))

    def _host(self, meetings: Meetings, phase: str, steps: list[Step], *, profiled: bool) -> Host:
        host = _host(replace(self.recorded, steps=steps), self.device, self.costs, profiled=profiled)
        found = self.plans["lines" if phase == "lines" else "profile"]
        if found.calls:
            host.ranks = Ranks(found, meetings, self.recorded.rank.get("rank") or 0, phase)
        return host


def _host(recorded: Recording, device: Device, costs: Costs, *, profiled: bool) -> Host:
    measured = (recorded.rank.get("calibration") or {}).get("quantities", {})
    row_us = measured.get("profiler_row_us", [0, run_facts.ROW_US])[1]
    machine = Machine(device, costs)
    if profiled:
        machine.row_us, machine.call_us = row_us, costs.call_row_us
    settings = recorded.rank["settings"]
    loader = next(iter(recorded.rank.get("loaders") or []), {})
    tensors = {one["name"] for one in recorded.rank.get("optimizers") or [] if _walks_lists(one)}
    host = Host(
        machine,
        row_us,
        (bool(settings.get("tf32_matmul")), bool(settings.get("tf32_cudnn"))),
        bool(loader.get("pin_memory")),
        _workers(loader),
        foreach=tensors,
    )
    _choose(host, recorded, recorded.steps)
    return host


def _walks_lists(optimizer: dict[str, Any]) -> bool:
    """Whether it takes lists of tensors on a device, where nobody says otherwise (`_default_to_fused_or_foreach`)."""
    known = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop")
    return optimizer["name"] in known and optimizer.get("foreach") is None and not optimizer.get("fused")


def _workers(loader: dict[str, Any]) -> Workers | None:
    count, each = loader.get("num_workers") or 0, loader.get("worker_us") or []
    if not count or not each:
        return None
    return Workers(statistics.fmean(each), count, count * (loader.get("prefetch_factor") or 2))


def _choose(host: Host, recorded: Recording, steps: list[Step]) -> None:
    rows = [step.row for step in steps]
    for row, choices in zip(rows, placement.of_steps(recorded, rows), strict=True):
        host.choices.update({id(op): one for op, one in zip(recording.outermost(row), choices, strict=True)})


def _boundary(machine: Machine) -> float:
    """When an event that is recorded now happens: after all work that was launched before."""
    return max(machine.now, machine.stream_end)


def _pass(host: Host, steps: list[Step]) -> list[float]:
    """One time through the steps; the time of each training step by events of the device."""
    times = []
    for step in steps:
        before = _boundary(host.machine)
        host.walk(step.row)
        if step.number is not None:
            times.append(_boundary(host.machine) - before)
    return times


def _true_times(host: Host, recorded: Recording) -> tuple[list[float], float]:
    """Step times without a profiler, and the work of the device in a step, µs.

    Between the rows of two steps runs what recorded them, and nothing of the script: the truth has no such time.
    """
    steps = [step for step in recorded.steps if step.row.category != "gap"]
    _pass(host, steps)
    before = host.machine.kernel_us
    times = [one for _ in range(CYCLES) for one in _pass(host, steps)]
    return times, (host.machine.kernel_us - before) / len(times)


def _profile(host: Host, recorded: Recording, *, cold: bool) -> list[float]:
    """The window under the profiler; its step times."""
    machine = host.machine
    if not cold:
        _pass(host, recorded.steps)
    machine.cold, machine.recording, machine.needs_bytes = cold, True, _peak_bytes(recorded)
    begun = machine.now
    times = _pass(host, recorded.steps)
    machine.synchronize("cudaDeviceSynchronize", 165)
    for row in machine.rows:
        row["ts"] -= begun
    return times


def _peak_bytes(recorded: Recording) -> int:
    """Weights, gradients, the optimizer's state and, once more as much, what the forward pass keeps: an estimate."""
    weights = (recorded.rank.get("model") or {}).get("parameter_bytes") or 0
    state = sum(one.get("state_bytes") or 0 for one in recorded.rank.get("optimizers") or [])
    return int(2 * (2 * weights + state)) or 1


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=DEVICES, default="A100")
    parser.add_argument("--cold", action="store_true", help="the window begins with the first step of the process")
    parser.add_argument("--steady", action="store_true", help="take out what other processes added to some steps")
    parser.add_argument("--enlarged", type=int, nargs=2, metavar=("BATCH", "TIMES"), help="as if of a larger batch")
    args = parser.parse_args()
    larger = tuple(args.enlarged) if args.enlarged else None
    device = DEVICES[args.device]
    print(simulate(args.recorded, args.out, device, cold=args.cold, steady=args.steady, enlarged=larger))


if __name__ == "__main__":
    main()
