"""`advisor gate check` and `gate baseline`: the file, its match, budgets, suppressions; on stored reports."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor import cli
from advisor.errors import UsageError
from advisor.gate import baseline, config, fingerprint
from advisor.model import Counter, Finding, Metric, Outcome, Report, RunInfo, Saving, Source, StepsSummary

RUN = RunInfo(("train.py", "--epochs", "3"), {"torch": "2.15.0+cu132", "cuda": "13.2"}, ("NVIDIA H200",))


def report(counts: dict[str, float] | None = None, **changes: Any) -> Report:
    """A report of five steps whose counters are the same in each."""
    known = {"cpu_ops": 339.0, "kernels": 120.0, "op:aten::mul": 4.0, "syncs": 1.0, **(counts or {})}
    fields: dict[str, Any] = {
        "run": RUN,
        "health": (),
        "steps": StepsSummary(count=5, source="loader"),
        "metrics": {id_: Metric(id_, value, "count") for id_, value in known.items() if ":" not in id_},
        "breakdown": (),
        "outcomes": (),
        "counters": tuple(Counter(id_, "count", (value,) * 5) for id_, value in known.items()),
    }
    return Report(**{**fields, **changes})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name: str, what: Report) -> str:
    Path(name).write_bytes(msgspec.json.encode(what))
    return name


def gate(*words: str) -> int:
    return cli.main(["gate", *words])


def configure(text: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.torch-advisor.gate]\n{text}\n")


def test_write_check_update_round_trip(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate("baseline", "write", save("a.json", report())) == 0
    assert gate("check", "a.json") == 0
    assert gate("check", save("b.json", report({"kernels": 121.0, "op:aten::mul": 5.0}))) == 1
    out = capsys.readouterr().out
    assert "REGRESSION: kernels grew" in out
    assert "120 -> 121  +1" in out
    assert "op:aten::mul" in out  # the part that explains the total
    # What the failing check printed is the file that makes it pass.
    printed = out[out.index("the new baseline") :].split("\n", 1)[1]
    Path("perf-baseline.json").write_text(printed)
    assert gate("check", "b.json") == 0
    assert gate("baseline", "update", "a.json") == 0
    assert gate("check", "b.json") == 1


def test_the_file_is_small_sorted_and_one_figure_per_line(here: Path) -> None:
    gate("baseline", "write", save("a.json", report({"zeta": 1.0, "alpha": 2.0})))
    text = Path("perf-baseline.json").read_text()
    document = json.loads(text)
    entry = document["entries"][0]
    assert list(entry["counters"]) == sorted(entry["counters"])
    assert '    "cpu_ops": 339,\n' in text
    assert text.endswith("}\n")
    assert "\r" not in text
    assert entry["workload"] == "train.py --epochs 3"
    assert entry["fingerprint"] == {"cuda": "13.2", "devices": "NVIDIA H200", "torch": "2.15", "world_size": "1"}
    before = text
    gate("baseline", "update", "a.json")
    assert Path("perf-baseline.json").read_text() == before  # the same run writes the same file


def test_write_never_overwrites(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("a.json", report())
    assert gate("baseline", "write", "a.json") == 0
    assert gate("baseline", "write", "a.json") == 2
    assert "baseline update" in capsys.readouterr().err


def test_several_environments_in_one_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = RunInfo(RUN.command, {"torch": "2.15.0", "cuda": "13.2"}, ("NVIDIA A100",))
    gate("baseline", "write", save("h200.json", report()))
    gate("baseline", "update", save("a100.json", report({"kernels": 500.0}, run=other)))
    assert gate("check", "h200.json") == 0
    assert gate("check", "a100.json") == 0
    assert gate("baseline", "show") == 0
    out = capsys.readouterr().out
    assert "NVIDIA A100" in out
    assert "NVIDIA H200" in out
    assert "0 days ago" in out


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RunInfo(RUN.command, {"torch": "2.16.0", "cuda": "13.2"}, RUN.devices), "torch 2.15 and 2.16"),
        (RunInfo(RUN.command, {"torch": "2.15.0"}, RUN.devices), "cuda only in the baseline"),
        (RunInfo(("other.py",), RUN.versions, RUN.devices), "'train.py --epochs 3', but not 'other.py'"),
    ],
)
def test_another_environment_or_workload_is_not_comparable(
    here: Path, capsys: pytest.CaptureFixture[str], run: RunInfo, words: str
) -> None:
    gate("baseline", "write", save("a.json", report()))
    assert gate("check", save("b.json", report(run=run))) == 3
    out = capsys.readouterr().out
    assert "NOT COMPARABLE" in out
    assert words in out
    assert "the new baseline, if this change is intended" in out


def test_the_fingerprint_holds_nothing_that_varies_between_boots() -> None:
    environment = {"HOSTNAME": "node17", "CUDA_VISIBLE_DEVICES": "3"}
    one = report(run=RunInfo(("/home/a/train.py",), RUN.versions, RUN.devices, environment=environment, files=("x",)))
    other = report(run=RunInfo(("/tmp/b7/train.py",), RUN.versions, RUN.devices))
    assert fingerprint.of_report(one) == fingerprint.of_report(other)
    assert fingerprint.workload(one.run.command) == fingerprint.workload(other.run.command) == "train.py"
    assert fingerprint.workload(("/usr/bin/python3.11", "src/train.py", "--lr", "0.1")) == "train.py --lr 0.1"


def test_an_unsteady_counter_is_left_out_of_the_baseline(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = tuple(Counter(id_, "count", (1.0, 2.0)) if id_ == "syncs" else Counter(id_, "count", (3.0, 3.0))
                 for id_ in ("cpu_ops", "syncs"))  # fmt: skip
    gate("baseline", "write", save("a.json", report(counters=wild)))
    assert "omitted because they vary: syncs" in capsys.readouterr().out
    entry = baseline.read(Path("perf-baseline.json")).entries[0]
    assert "syncs" not in entry.counters
    assert entry.unsteady == ("syncs",)


def test_counters_that_differ_between_two_runs_are_left_out() -> None:
    entry = baseline.entry_of([report(), report({"kernels": 122.0})], datetime.date(2026, 1, 2))
    assert "kernels" not in entry.counters
    assert entry.unsteady == ("kernels",)
    assert entry.counters["cpu_ops"] == 339.0


def test_a_run_without_steps_has_failed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate("baseline", "write", save("a.json", report()))
    assert gate("check", save("b.json", report(steps=StepsSummary(count=1, source="window")))) == 4
    assert gate("baseline", "update", "b.json") == 3
    assert capsys.readouterr().err.count("\n") == 2


def test_a_lost_counter_never_passes(here: Path) -> None:
    gate("baseline", "write", save("a.json", report()))
    whole = report()
    fewer = {id_: metric for id_, metric in whole.metrics.items() if id_ != "kernels"}
    counters = tuple(counter for counter in whole.counters if counter.id != "kernels")
    assert gate("check", save("b.json", report(metrics=fewer, counters=counters))) == 3


def test_an_old_baseline_says_its_age() -> None:
    note = baseline.age_note("2026-01-01", datetime.date(2026, 8, 1))
    assert "212 days ago" in note
    assert "it is old" in note


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (None, 3, "no baseline yet; create one with `advisor gate baseline write"),
        ('{"schema": "other"}', 3, "not a baseline"),
        ("", 2, "an empty file"),
        ('{"schema": "torch-advisor/bas', 2, "damaged"),
        ('{"schema": "torch-advisor/baseline", "version": 2, "entries": []}', 2, "newer"),
        ('{"schema": "torch-advisor/baseline", "version": 1}', 2, "damaged baseline"),
        ('{"schema": "torch-advisor/baseline", "version": 1, "entries": [{"workload": 1}]}', 2, "damaged baseline"),
    ],
)
def test_bad_baselines(
    here: Path, capsys: pytest.CaptureFixture[str], text: str | None, status: int, words: str
) -> None:
    if text is not None:
        Path("perf-baseline.json").write_text(text)
    assert gate("check", save("a.json", report())) == status
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


# -- configuration


def test_budgets_hard_soft_and_unmeasured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate("baseline", "write", save("a.json", report()))
    configure("max_syncs = 1\nmax_kernels = {soft = 100, hard = 200}")
    assert gate("check", "a.json") == 0
    assert "at most 100 (soft)" in capsys.readouterr().out
    configure("max_syncs = 0")
    assert gate("check", "a.json") == 1
    assert "over budget: syncs is 1, at most 0" in capsys.readouterr().out
    configure('max_peak_memory_bytes = "70GiB"')
    assert gate("check", "a.json") == 3
    assert "peak_memory_bytes has a budget and was not measured" in capsys.readouterr().out


def test_tolerance_and_level(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate("baseline", "write", save("a.json", report()))
    save("b.json", report({"kernels": 121.0}))
    configure('[tool.torch-advisor.gate.counters]\nkernels = {tolerance = "1%"}')
    assert gate("check", "b.json") == 0
    configure('[tool.torch-advisor.gate.counters]\nkernels = {level = "warn"}')
    capsys.readouterr()
    assert gate("check", "b.json") == 0
    assert "kernels grew (+1); it is a warning only" in capsys.readouterr().out


@pytest.mark.parametrize(("until", "status"), [("2999-01-01", 0), ("2020-01-01", 1)])
def test_a_suppression_holds_until_its_day(
    here: Path, capsys: pytest.CaptureFixture[str], until: str, status: int
) -> None:
    gate("baseline", "write", save("a.json", report()))
    configure(f'suppress = [{{counter = "kernels", reason = "new loss", until = {until}}}]')
    assert gate("check", save("b.json", report({"kernels": 121.0}))) == status
    out = capsys.readouterr().out
    assert ("accepted until 2999-01-01: new loss" in out) == (status == 0)
    assert ("expired on 2020-01-01" in out) == (status == 1)


def test_new_findings_fail_only_when_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate("baseline", "write", save("a.json", report()))
    where = (Source("train.py", 88, "train"),)
    finding = Finding("a sync", Saving(1.0, 2.0, "modelled", "x"), where, severity="high")
    save("b.json", report(outcomes=(Outcome("sync-in-loop", "found", (finding,)),)))
    assert gate("check", "b.json") == 0
    configure('new_findings = "medium"')
    assert gate("check", "b.json") == 1
    assert "new findings of severity medium or more: sync-in-loop" in capsys.readouterr().out
    suppress = '{rule = "sync-in-loop", file = "train.py", reason = "early stop", until = 2999-01-01}'
    configure(f'new_findings = "medium"\nsuppress = [{suppress}]')
    assert gate("check", "b.json") == 0


def test_an_improvement_may_ask_for_a_new_baseline(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate("baseline", "write", save("a.json", report()))
    save("b.json", report({"kernels": 100.0}))
    assert gate("check", "b.json") == 0
    assert "kernels fell: update the baseline" in capsys.readouterr().out
    configure('improvement = "fail"')
    assert gate("check", "b.json") == 1
    assert "baseline update" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"max_sync": 2}, "unknown [tool.torch-advisor.gate] metric 'sync'; did you mean 'syncs'?"),
        ({"stepp_time": {}}, "did you mean 'step_time'?"),
        ({"step_time": {"margin": "5%", "tolerance": "5%"}}, "margin < tolerance"),
        ({"step_time": {"margin": "x"}}, "'x' is not a number"),
        ({"step_time": {"pairs": [6, 6]}}, "increasing numbers"),
        ({"step_time": {"alpha": 2}}, "alpha"),
        ({"step_time": {"foo": 2}}, "foo"),
        ({"counters": {"kernel": {}}}, "did you mean 'kernels'?"),
        ({"max_syncs": {"softt": 2}}, "did you mean 'soft'?"),
        ({"max_syncs": True}, "not a number"),
        ({"max_syncs": -1}, "not a number"),
        ({"suppress": [{"counter": "syncs", "reason": " ", "until": "2027-01-01"}]}, "needs a reason"),
        ({"suppress": [{"reason": "x", "until": "2027-01-01"}]}, "name a counter or a rule"),
        ({"suppress": [{"counter": "syncs", "reason": "x"}]}, "until"),
        ({"new_findings": "often"}, "often"),
    ],
)
def test_configuration_errors_say_what_and_where(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=r"tool\.torch-advisor\.gate") as failure:
        config.parse(table)
    assert words in str(failure.value)
    assert "\n" not in str(failure.value)


def test_quantities_have_units() -> None:
    table = {"max_peak_memory_bytes": "2GiB", "max_step_time_us": {"soft": "12 ms", "hard": "0.1s"}, "min_mfu": "30%"}
    budgets = {budget.id: budget for budget in config.parse(table).budgets}
    assert budgets["peak_memory_bytes"].hard == 2 * 2**30
    assert (budgets["step_time_us"].soft, budgets["step_time_us"].hard) == (12_000.0, 100_000.0)
    assert (budgets["mfu"].hard, budgets["mfu"].side) == (0.3, "min")


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("check", "a.json", "b.json"),
        ("check", "a.json", "--", "train.py"),
        ("baseline",),
        ("baseline", "burn"),
        ("--base", "main"),
        ("--head", "main", "--", "train.py"),
        ("--base-command", "x.py"),
        ("check", "--"),
        ("check", "--", "no_such_script.py"),
    ],
)
def test_wrong_words_are_usage_errors(here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    gate("baseline", "write", save("a.json", report()))
    Path("train.py").write_text("")
    capsys.readouterr()
    assert gate(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1
