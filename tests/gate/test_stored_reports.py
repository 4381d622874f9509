"""`advisor gate BASE HEAD` and `advisor compare A B` on stored reports: verdicts, exit statuses, one line each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor import cli
from advisor.model import BreakdownItem, Counter, Finding, Metric, OpRow, Outcome, Report, RunInfo, Saving, Source
from advisor.model import StepsSummary as Steps

COUNTS = {"cpu_ops": 339.0, "kernels": 120.0, "syncs": 1.0, "h2d_bytes": 12288.0}


def report(counts: dict[str, float] | None = None, **changes: Any) -> Report:
    """A small report with these counters."""
    metrics = {id_: Metric(id_, v, "bytes" if "bytes" in id_ else "count") for id_, v in (counts or COUNTS).items()}
    metrics["step_time_us"] = Metric("step_time_us", changes.pop("step_us", 2400.0), "us")
    fields: dict[str, Any] = {
        "run": RunInfo(("train.py",), {"torch": "2.15.0+cu132"}, ("NVIDIA H100",)),
        "health": (),
        "steps": Steps(count=5, source="loader"),
        "metrics": metrics,
        "breakdown": (BreakdownItem("compute", 1800.0, 0.75), BreakdownItem("idle_input", 600.0, 0.25)),
        "outcomes": (),
    }
    return Report(**{**fields, **changes})


def save(path: Path, what: Report | dict[str, Any]) -> str:
    """Writes the report and returns its path."""
    path.write_bytes(msgspec.json.encode(what))
    return str(path)


@pytest.fixture
def gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command on two reports: (exit status, stdout, stderr)."""

    def run(base: Report, head: Report, *options: str) -> tuple[int, str, str]:
        status = cli.main(["gate", save(tmp_path / "b.json", base), save(tmp_path / "h.json", head), *options])
        streams = capsys.readouterr()
        return status, streams.out, streams.err

    return run


def test_equal_counters_pass(gate: Any) -> None:
    status, out, _ = gate(report(), report(step_us=9000.0))
    assert status == 0
    assert out.startswith("gate: PASS: 4 counters compared")
    assert "step_time_us" in out  # it informs, and does not fail: the two were not measured side by side


@pytest.mark.parametrize("id_", sorted(COUNTS))
def test_one_more_of_any_counter_is_a_regression_that_is_named(gate: Any, id_: str) -> None:
    status, out, _ = gate(report(), report({**COUNTS, id_: COUNTS[id_] + 1}))
    assert status == 1
    assert f"REGRESSION: {id_} grew" in out


def test_fewer_is_a_pass_that_asks_for_a_new_baseline(gate: Any) -> None:
    status, out, _ = gate(report(), report({**COUNTS, "kernels": 100.0}))
    assert status == 0
    assert "kernels fell: update the baseline" in out


def test_peak_memory_may_move_by_an_allocator_block(gate: Any) -> None:
    base = {**COUNTS, "peak_memory_bytes": 1e9}
    assert gate(report(base), report({**base, "peak_memory_bytes": 1.009e9}))[0] == 0
    assert gate(report(base), report({**base, "peak_memory_bytes": 1.011e9}))[0] == 1


def test_a_counter_that_differs_between_steps_is_demoted_with_a_note(gate: Any) -> None:
    steady = (Counter("cpu_ops", "count", (339.0,) * 5),)
    wild = (Counter("cpu_ops", "count", (339.0, 339.0, 361.0, 339.0, 339.0)),)
    status, out, _ = gate(report(counters=steady), report({**COUNTS, "cpu_ops": 343.4}, counters=wild))
    assert status == 0
    assert "cpu_ops is informational: it differs between 339 and 361 in the steps of one run" in out


def test_a_counter_that_grew_in_every_step_is_no_matter_of_chance(gate: Any) -> None:
    wild = (Counter("cpu_ops", "count", (339.0, 361.0, 339.0)),)
    wilder = (Counter("cpu_ops", "count", (4000.0, 4020.0, 4010.0)),)
    base = report({**COUNTS, "cpu_ops": 346.3}, counters=wild)
    status, out, _ = gate(base, report({**COUNTS, "cpu_ops": 4010.0}, counters=wilder))
    assert status == 1
    assert "REGRESSION: cpu_ops grew" in out
    # Overlapping ranges stay open.
    assert (
        gate(base, report({**COUNTS, "cpu_ops": 354.0}, counters=(Counter("cpu_ops", "count", (347.0, 361.0)),)))[0]
        == 0
    )


def test_a_lost_counter_never_passes(gate: Any) -> None:
    head = report()
    lost = {**head.metrics, "syncs": Metric("syncs", None, "count", "not_measured", "no device")}
    status, out, _ = gate(report(), report(metrics=lost))
    assert status == 3
    assert "measured in the base but not in the head: syncs" in out


@pytest.mark.parametrize("side", [0, 1])
def test_a_report_without_steps_never_passes(gate: Any, side: int) -> None:
    pair = [report(), report()]
    pair[side] = report(steps=Steps(count=0))
    status, out, _ = gate(*pair)
    assert status == 3
    assert "has no steps" in out


def test_reports_without_counters_never_pass(gate: Any) -> None:
    empty = report(metrics={"step_time_us": Metric("step_time_us", 1.0, "us")})
    assert gate(empty, empty)[0] == 3


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (RunInfo(("train.py",), {"torch": "2.14.1"}, ("NVIDIA H100",)), "torch 2.15 and 2.14"),
        (RunInfo(("train.py",), {"torch": "2.15.1"}, ("NVIDIA A100",)), "devices NVIDIA H100 and NVIDIA A100"),
        (RunInfo(("train.py",), {"torch": "2.15.1"}, ("NVIDIA H100",), world_size=8), "number of ranks 1 and 8"),
    ],
)
def test_another_environment_is_not_comparable(gate: Any, run: RunInfo, word: str) -> None:
    status, out, _ = gate(report(), report({**COUNTS, "kernels": 999.0}, run=run))
    assert status == 3
    assert "NOT COMPARABLE" in out
    assert word in out


def test_a_patch_release_of_torch_is_comparable(gate: Any) -> None:
    assert gate(report(), report(run=RunInfo(("train.py",), {"torch": "2.15.1"}, ("NVIDIA H100",))))[0] == 0


def test_windows_without_steps_never_say_regression(gate: Any) -> None:
    window = Steps(count=1, source="window")
    assert gate(report(steps=window), report(steps=window))[0] == 0
    assert gate(report(steps=window), report({**COUNTS, "kernels": 121.0}, steps=window))[0] == 3
    assert gate(report(steps=window), report())[0] == 3


def test_new_and_gone_findings_are_told_apart_by_place_not_by_line(gate: Any) -> None:
    def found(line: int, function: str) -> tuple[Outcome, ...]:
        where = (Source("train.py", line, function),)
        return (Outcome("sync-in-loop", "found", (Finding("a sync", Saving(1, 2, "modelled", "x"), where),)),)

    _, moved, _ = gate(report(outcomes=found(10, "train")), report(outcomes=found(12, "train")))
    assert "new findings" not in moved
    _, out, _ = gate(report(outcomes=found(10, "train")), report(outcomes=found(90, "log")))
    assert "new findings" in out
    assert "resolved findings" in out


def test_json_holds_the_verdict_and_the_exit_code(gate: Any) -> None:
    status, out, _ = gate(report(), report({**COUNTS, "syncs": 3.0}), "--format", "json")
    document = json.loads(out)
    assert (document["schema"], document["verdict"], document["exit_code"], status) == (
        "torch-advisor/gate",
        "regression",
        1,
        1,
    )
    row = next(row for row in document["counters"] if row["id"] == "syncs")
    assert (row["base"], row["head"], row["status"], row["gated"]) == (1.0, 3.0, "worse", True)


def test_a_folder_stands_for_its_report(tmp_path: Path) -> None:
    save(tmp_path / "report.json", report())
    assert cli.main(["gate", str(tmp_path), str(tmp_path), "--quiet"]) == 0


BAD = {
    "missing": (None, 3, 2, "no such"),
    "foreign": (b'{"traceEvents": []}', 3, 2, "not a report of torch-advisor"),
    "list": (b"[1]", 3, 2, "not a report of torch-advisor"),
    "empty": (b"", 2, 2, "an empty file"),
    "not json": (b"\x1f\x8b\x00", 2, 2, "damaged"),
    "truncated": (b'{"schema": "torch-advisor/report", "ver', 2, 2, "damaged"),
    "newer": (b'{"schema": "torch-advisor/report", "version": 99}', 2, 2, "newer torch-advisor"),
    "gutted": (b'{"schema": "torch-advisor/report", "version": 1}', 2, 2, "damaged report"),
    "versionless": (b'{"schema": "torch-advisor/report"}', 2, 2, "damaged"),
}


@pytest.mark.parametrize("name", sorted(BAD))
@pytest.mark.parametrize("side", ["base", "head"])
def test_bad_input_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, side: str) -> None:
    data, as_base, as_head, words = BAD[name]
    bad, good = tmp_path / "bad.json", save(tmp_path / "good.json", report())
    if data is not None:
        bad.write_bytes(data)
    pair = [str(bad), good] if side == "base" else [good, str(bad)]
    assert cli.main(["gate", *pair]) == (as_base if side == "base" else as_head)
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert words in streams.err
    assert "bad.json" in streams.err


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = save(tmp_path / "good.json", report())
    assert cli.main(["gate", good]) == 2
    assert cli.main(["gate", good, good, "--format", "pdf"]) == 2
    assert "unknown format 'pdf'" in capsys.readouterr().err


def test_compare_lists_what_differs_and_judges_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = report(kernels=(OpRow("gemm", "kernel", 900.0, 4, 0.5),))
    head = report(
        {**COUNTS, "kernels": 124.0},
        step_us=4800.0,
        kernels=(OpRow("gemm", "kernel", 900.0, 4, 0.2), OpRow("cast", "kernel", 500.0, 4, 0.1)),
        breakdown=(BreakdownItem("compute", 1800.0, 0.5), BreakdownItem("idle_input", 1800.0, 0.5)),
    )
    paths = [save(tmp_path / "a.json", base), save(tmp_path / "b.json", head)]
    assert cli.main(["compare", *paths]) == 0
    out = capsys.readouterr().out
    # Shares on the un-profiled step: idle_input is 0.25 of 2.4 ms and 0.5 of 4.8 ms.
    assert "600 µs -> 2.4 ms  +1.8 ms" in out
    assert "new kernel cast" in out
    assert "120 -> 124  +4" in out
    assert cli.main(["compare", *paths, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"]["head"] == 4800.0


def test_an_op_that_a_full_list_lacks_is_not_called_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = tuple(OpRow(f"op{n}", "op", 1000.0 - n, 1, 0.01) for n in range(40))
    base = report(ops=(OpRow("copy_", "op", 1500.0, 98, 0.1), *many[:39]))
    paths = [save(tmp_path / "a.json", base), save(tmp_path / "b.json", report(ops=many))]
    assert cli.main(["compare", *paths]) == 0
    out = capsys.readouterr().out
    # At most what the least of the list takes, 961 µs: it fell by 539 µs at least.
    assert re.search(r"-539 µs +op copy_\n", out)
    assert "gone op" not in out


def test_compare_of_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = save(tmp_path / "good.json", report())
    assert cli.main(["compare", good, str(tmp_path / "none.json")]) == 4
    assert capsys.readouterr().err.count("\n") == 1
