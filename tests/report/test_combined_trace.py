"""The ranks of a job as one trace: on one clock, nested, bounded, and read by our own reader."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.api import GLOO, NEXT, draw
from advisor.cli import main
from advisor.computed import Computed
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import load_rules
from advisor.ranks.common_clock import CommonClock
from advisor.report.combined_trace import DrawnRank, combined_trace
from advisor.trace.events import Category
from advisor.trace.export.chrome import MARK, Row, nested
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
DLRM = TRACES / "dlrm_8ranks_v100"
RESNET = TRACES / "resnet50_workers0_v100.pt.trace.json.gz"
RANK = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D][F ][B ]                     [D][F ][B ]                     [D][F ][B ]
    cpu 2  [G ]       [G                 ] [G ]       [G                 ] [G ]       [G                 ]
    """
AHEAD_US = 700_000.0


def job(folder: Path, ranks: int = 2) -> Path:
    """Files of drawn ranks, the clock of each further one ahead by 0.7 s."""
    for rank in range(ranks):
        drawing = dict(draw(RANK, us=1000, world_size=ranks, D=NEXT, G=GLOO))
        trace = json.loads(json.dumps(drawing))
        trace["distributedInfo"]["rank"] = rank
        for row in trace["traceEvents"]:
            if "ts" in row:
                row["ts"] += rank * AHEAD_US
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(trace))
    return folder


def perfetto(target: Path, *words: str) -> dict[str, Any]:
    assert main(["analyze", *words, "-q", "--format", "perfetto", "-o", str(target)]) == 0
    data = target.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if target.suffix == ".gz" else data)
    return found


def tracks(trace: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """(name of the process, name of the track) -> bars."""
    processes, threads, bars = {}, {}, defaultdict(list)
    for event in trace["traceEvents"]:
        if event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            threads[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            bars[event["pid"], event["tid"]].append(event)
    assert set(bars) == set(threads)
    return {(processes[pid], threads[pid, tid]): found for (pid, tid), found in bars.items()}


def crossings(bars: list[dict[str, Any]]) -> int:
    """Pairs of bars that overlap and do not nest: each against each, in whole ns."""
    spans = np.array([(round(b["ts"] * 1000), round((b["ts"] + b["dur"]) * 1000)) for b in bars])
    starts, ends = spans.T
    crossed = 0
    for start, end in spans:
        crossed += int(((starts > start) & (starts < end) & (ends > end)).sum())
    return crossed


def test_ranks_lie_on_one_clock(tmp_path: Path) -> None:
    found = tracks(perfetto(tmp_path / "all.json.gz", str(job(tmp_path))))
    first, second = ([bar["ts"] for bar in bars] for (_, track), bars in found.items() if track == "steps")
    assert len(first) == 3
    assert first == pytest.approx(second)
    assert min(first) >= 0


def test_steps_parts_and_findings_are_drawn(tmp_path: Path) -> None:
    found = tracks(perfetto(tmp_path / "all.json", str(job(tmp_path))))
    own = {track: bars for (process, track), bars in found.items() if process.startswith("rank 1 ")}
    assert [bar["name"] for bar in own["steps"]] == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]
    parts = own["training loop, by part"]
    assert sum(bar["dur"] for bar in parts) == pytest.approx(sum(bar["dur"] for bar in own["steps"]))
    report = json.loads(_json_report(tmp_path))
    mine = [
        (outcome["rule"], finding["message"])
        for outcome in report["outcomes"]
        for finding in outcome["findings"]
        if 1 in finding["ranks"]
    ]
    assert mine
    assert sorted(mine) == sorted((bar["args"]["rule"], bar["args"]["message"]) for bar in own["findings"])


def _json_report(folder: Path) -> str:
    target = folder / "out.report.json"
    traces = [str(path) for path in sorted(folder.glob("rank*.json"))]
    assert main(["analyze", *traces, "-q", "--format", "json", "-o", str(target)]) == 0
    return target.read_text()


def test_chosen_ranks_alone_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(job(tmp_path, 3))
    trace = perfetto(tmp_path / "some.json", folder, "--ranks", "0,2")
    assert trace[MARK]["ranks"] == [0, 2]
    assert "aligned by the ends of collectives" in trace[MARK]["clock"]
    assert {process.split(" (")[0] for process, _ in tracks(trace)} == {"rank 0", "rank 2"}
    for words, why in (
        (("--ranks", "9"), "no trace of rank 9 was read; there are ranks 0 to 2"),
        (("--ranks", "2-1"), "'2-1' is neither a rank nor a range"),
    ):
        target = ("--format", "perfetto", "-o", str(tmp_path / "no.json"))
        assert main(["analyze", *(str(p) for p in sorted(tmp_path.glob("rank*"))), "-q", *words, *target]) == 2
        assert why in capsys.readouterr().err
    assert main(["analyze", folder, "-q", "--ranks", "0", "--format", "json"]) == 2
    assert "add --format perfetto" in capsys.readouterr().err


def test_it_is_not_taken_for_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "all.json.gz"
    perfetto(target, str(job(tmp_path)))
    assert main(["analyze", str(target), "--format", "json"]) == 4
    assert "output of --format perfetto; pass the original traces" in capsys.readouterr().err
    assert main(["analyze", str(tmp_path), "-q", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ranks"]) == 2


def test_reduced_forms_have_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, small = job(tmp_path), tmp_path / "small"
    assert main(["reduce", str(folder), "-q", "-o", str(small)]) == 0
    assert main(["analyze", str(small), "--format", "perfetto", "-o", str(tmp_path / "x.json")]) == 2
    assert "reduced traces contain no events" in capsys.readouterr().err


def test_what_does_not_fit_is_left_out_and_counted() -> None:
    trace = read_bytes(json.dumps(dict(draw(RANK, us=1000, D=NEXT, G=GLOO))).encode(), "a")
    report = analyse([RankInput(0, "a", trace)], load_rules(), Config())
    start = int(trace.events.start_ns.min())
    one = DrawnRank(0, "a", lambda: Computed(trace=trace), start, 0)
    pieces, about = combined_trace([one], report, CommonClock((0,), 0.0, "one"), [], most_rows=10)
    bars = [row for row in json.loads("".join(pieces))["traceEvents"] if row["ph"] == "X"]
    counted = [bar for bar in bars if bar["cat"] not in ("advisor_step", "advisor_finding")]
    assert len(counted) == 10
    whole = json.loads("".join(combined_trace([one], report, CommonClock((0,), 0.0, "one"), [])[0]))["traceEvents"]
    missing = sum(row["ph"] == "X" for row in whole) - len(bars)
    assert about["left_out"] == [f"rank 0: {missing} of its events, host events and the shortest first"]


def test_rows_that_overlap_get_lines_of_their_own() -> None:
    spans = [(0, 10), (2, 5), (4, 8), (5, 10), (9, 12), (10, 11), (11, 12), (11, 13)]
    rows = [Row(start, end, "", "", {}) for start, end in spans]
    lines = nested(rows)
    assert sorted(row[:2] for line in lines for row in line) == sorted(spans)
    for line in lines:
        bars = [{"ts": row.start_ns / 1000, "dur": (row.end_ns - row.start_ns) / 1000} for row in line]
        assert not crossings(bars)
    assert crossings([{"ts": 0.0, "dur": 0.01}, {"ts": 0.004, "dur": 0.01}]) == 1


@pytest.mark.skipif(not DLRM.exists(), reason="the recorded traces are not here")
def test_eight_recorded_ranks_agree_on_the_ends_of_collectives(tmp_path: Path) -> None:
    target = tmp_path / "dlrm.json.gz"
    found = tracks(perfetto(target, str(DLRM)))
    assert sum(crossings(bars) for bars in found.values()) == 0
    ends: dict[int, list[float]] = defaultdict(list)
    for bars in found.values():
        kernels = [bar for bar in bars if bar["cat"] == "kernel" and "AllReduce" in bar["name"]]
        for place, bar in enumerate(sorted(kernels, key=lambda bar: bar["ts"])):
            ends[place].append(bar["ts"] + bar["dur"])
    spread = [max(found) - min(found) for found in ends.values() if len(found) == 8]
    assert len(spread) == 3
    assert max(spread) < 50  # µs: a step takes 9 ms
    read = load(target)
    recorded = [load(path) for path in sorted(DLRM.iterdir())]
    work = sum(int(one.device_work.sum()) for one in recorded)
    assert 0.9 * work < int(read.device_work.sum()) <= work


@pytest.mark.skipif(not RESNET.exists(), reason="the recorded traces are not here")
def test_one_recorded_trace_shows_its_idle_time_with_causes(tmp_path: Path) -> None:
    found = tracks(perfetto(tmp_path / "resnet.json", str(RESNET)))
    ((_, idle),) = [one for one in found.items() if one[0][1] == "device idle, by cause"]
    device = [bar for bars in found.values() for bar in bars if bar["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    busy = sorted((bar["ts"], bar["ts"] + bar["dur"]) for bar in device)
    for gap in idle[:: max(len(idle) // 200, 1)]:
        inside = sum(min(e, gap["ts"] + gap["dur"]) - max(s, gap["ts"]) > 1e-3 for s, e in busy)
        assert inside == 0, gap
    assert {"idle_input"} <= {gap["name"] for gap in idle}
    assert any(gap["args"].get("host") for gap in idle)
    read = load(tmp_path / "resnet.json")
    assert not (read.events.of(Category.KERNEL) & read.events.named("idle_")).any()
