"""The pairs for a GPU: each is declared, differs in its fault alone, and trains; the table and the pack are right."""

from __future__ import annotations

import difflib
import gzip
import json
import subprocess
import sys
import tarfile
import time
import tomllib
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmark_modules import benchmark, steps_made

SCRIPTS = Path(__file__).with_name("measured_pairs")
FAULTS = tomllib.loads((SCRIPTS / "faults.toml").read_text("utf-8"))


@pytest.fixture(name="command")
def the_command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the command; what it puts on the path is taken off again."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return benchmark("measured_pairs")


def test_every_folder_is_declared_and_every_declaration_has_its_files() -> None:
    assert {path.name for path in SCRIPTS.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(FAULTS)
    assert all((SCRIPTS / name / f"{role}.py").is_file() for name in FAULTS for role in ("slow", "fixed"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_declaration_is_whole_and_each_of_its_lines_is_in_slow_once(name: str) -> None:
    facts = FAULTS[name]
    assert {"fault", "line", "rules"} <= set(facts) <= {"fault", "line", "rules", "work", "over", "compiles"}
    assert len(facts["fault"]) > 20
    rules = {path.stem.replace("_", "-") for path in (SCRIPTS.parents[3] / "rules").rglob("[a-z]*.py")}
    assert set(facts["rules"]) <= rules
    slow = (SCRIPTS / name / "slow.py").read_text("utf-8").splitlines()
    texts = [facts["line"]] if isinstance(facts["line"], str) else facts["line"]
    assert [sum(text in line for line in slow) for text in texts] == [1] * len(texts)


@pytest.mark.parametrize("name", FAULTS)
def test_the_two_scripts_differ_in_the_fault_alone(name: str) -> None:
    slow, fixed = ((SCRIPTS / name / f"{role}.py").read_text("utf-8").splitlines() for role in ("slow", "fixed"))
    assert slow != fixed
    matches = difflib.SequenceMatcher(None, slow, fixed, autojunk=False).get_matching_blocks()
    shared = sum(block.size for block in matches)
    assert len(slow) - shared <= 6  # attention, written out
    assert len(fixed) - shared <= 2


def test_no_script_knows_of_profilers_or_of_us() -> None:
    for path in SCRIPTS.rglob("*.py"):
        text = path.read_text("utf-8").lower()
        assert not [word for word in ("profil", "advisor", "record_function") if word in text], path


@pytest.mark.torch
@pytest.mark.complete  # nine scripts, each started, trained for two steps and ended
def test_every_fourth_script_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the sizes that they have without a GPU. Compiled for a CPU, they would take a minute each."""
    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    scripts = sorted(SCRIPTS.glob("*/*.py"))[::4]
    assert steps_made(scripts, 2) == dict.fromkeys(map(str, scripts), 2)


def finding(rule: str, low: float, high: float, line: int) -> dict[str, Any]:
    """A finding of a report whose step takes 10 ms."""
    place = {"file": "/somewhere/slow.py", "line": line}
    return {"saving": {"low_us": 1e4 * low, "high_us": 1e4 * high}, "where": [place], "message": rule}


def report(*found: dict[str, Any]) -> dict[str, Any]:
    """An advised entry with these findings, each of its own rule."""
    outcomes = [{"rule": one["message"], "status": "found", "findings": [one]} for one in found]
    return {"metrics": {"step_time_us": 10_000.0}, "outcomes": outcomes}


def result(command: ModuleType, name: str, saving: tuple[float, float, float], **advised: Any) -> dict[str, Any]:
    """What is stored of a pair whose slow step takes 10 ms."""
    case = next(case for case in command.cases() if case.name == name)
    low, middle, high = saving
    measured = {"slow_us": [1e4], "fixed_us": [1e4 * (1 - middle)], "saving": middle, "low": low, "high": high}
    return {"name": name, "kind": "pair", "facts": case.facts, "measured": measured, "advised": advised}


def line_number(name: str, text: str) -> int:
    """Where the text is in slow.py."""
    lines = (SCRIPTS / name / "slow.py").read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_the_table_is_right_on_made_up_results(command: ModuleType) -> None:
    line = line_number("metrics-read-each-step", "history.append(")
    right = result(
        command,
        "metrics-read-each-step",
        (0.15, 0.2, 0.25),
        slow=report(finding("sync-in-loop", 0.1, 0.24, line), finding("launch-bound", 0.0, 0.01, 1)),
        fixed=report(finding("launch-bound", 0.0, 0.08, 7)),
    )
    second = result(
        command,
        "checkpointed-blocks",
        (0.2, 0.25, 0.3),
        slow=report(finding("launch-bound", 0.3, 0.4, 3), finding("recomputed-activations", 0.05, 0.1, 1)),
        fixed=report(finding("launch-bound", 0.0, 0.01, 3)),
    )
    unseen = result(command, "batch-of-four", (-0.1, 0.0, 0.1), slow=report(finding("small-batch", 0.5, 0.9, 1)))
    healthy = {"name": "tiny_gpt", "kind": "healthy", "facts": {}}
    loud = healthy | {"advised": {"slow": report(finding("launch-bound", 0.2, 0.6, 9))}}
    quiet = healthy | {"advised": {"slow": report(finding("launch-bound", 0.0, 0.04, 9))}}
    table = benchmark("measured_table")
    rows = table.document([right, second, unseen, loud, quiet]).splitlines()
    cells = {row.split(" | ")[0].strip("| "): row.split(" | ")[1:] for row in rows if row.startswith("| ")}
    one, two = cells["metrics-read-each-step"], cells["checkpointed-blocks"]
    assert one[:7] == ["10.00", "8.00", "20 % [15, 25]", "sync-in-loop 10-24 %", "yes", "first", "yes"]
    assert one[7:] == ["10.00", f"sync-in-loop 10-24 % @slow:{line}", "launch-bound 0-8 % @slow:7 |"]
    assert two[3:7] == ["recomputed-activations 5-10 %", "**no**", "yes", "**no**"]
    assert cells["batch-of-four"][2] == "0 % [-10, 10] (does not count)"
    figures = {name: rest[0].strip(" |") for name, rest in cells.items()}
    assert figures["pairs measured / whose fault shows here"] == "3 / 2"
    assert figures["fault named"] == "2 of 2 (100 %)"
    assert figures["fault named first"] == figures["measured inside the promised range"] == "1 of 2 (50 %)"
    assert figures["median width of these ranges"] == "9.5 points"
    # Middles of 17 and 7.5 %, beside 20 and 25 %.
    assert figures["median distance from their middle"] == "10.2 points"
    assert figures["wrong promises (≥ 5 %, nothing saved)"] == "1 of 3 (33 %)"
    assert figures["fixed.py with findings ≥ 5 %"] == "1 of 3 (33 %)"
    assert figures["healthy scripts with findings ≥ 5 %"] == "1 of 2 (50 %)"


def test_without_a_gpu_one_line_says_so(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.gpu_machine, "facts", lambda: ({"gpu": ""}, True))
    asked = Namespace(results=tmp_path, stages=["measure"], same_profiles=False, on_cpu=False)
    assert command.measure(asked, time.monotonic()) == 3
    assert capsys.readouterr().err == "measured_pairs: no GPU is visible here, and nothing was measured\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.torch
@pytest.mark.complete  # two processes that import torch
def test_where_a_forked_process_does_not_reach_the_device_another_one_is_asked() -> None:
    pytest.importorskip("torch")
    code = (
        "import gpu_machine; first = gpu_machine.facts(); gpu_machine.of_torch = lambda: None; "  # no pickle has it
        "second = gpu_machine.facts(); print(first[0] == second[0], first[1], second[1])"
    )
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stdout.split() == ["True", "True", "False"]
    assert "a forked process does not reach the device" in done.stderr


def test_no_row_begins_that_would_end_too_late(command: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 60 s in 8 minutes: one that compiles is left out where it would not end in time."""
    now, begun = [0.0], []

    def look_at(cases: list[Any], args: Namespace, line_of: Any) -> int:
        begun.append(cases[0].name)
        now[0] += 60.0
        return 0

    monkeypatch.setattr(command.pairs, "look_at", look_at)
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
    known = command.cases()
    assert command.look_at(known, Namespace(minutes=8.0), 0.0) == len(known) - 8
    assert begun == [case.name for case in known[:8]]
    assert now[0] <= 480


def test_the_pack_holds_what_is_small_and_says_what_is_not(command: ModuleType, tmp_path: Path) -> None:
    results = tmp_path / "results"
    profile = results / "profiles" / "pair-x-slow"
    profile.mkdir(parents=True)
    (results / "machine.json").write_text("{}")
    (profile / "run.json").write_text("{}")
    (profile / "report.html").write_text("as report.json has it")
    (profile / "trace.json.gz").write_bytes(gzip.compress(b"{}"))
    (profile / "lines.json.gz").write_bytes(bytes(command.PACKED_BYTES + 1))
    assert command.pack(results, "a table", tmp_path / "h100.tar.gz") == ["profiles/pair-x-slow/lines.json.gz"]
    with tarfile.open(tmp_path / "h100.tar.gz") as packed:
        names = {name.removeprefix("h100/") for name in packed.getnames()}
    assert names == {
        "machine.json", "profiles/pair-x-slow/run.json", "profiles/pair-x-slow/trace.json.gz", "table.md"
    }  # fmt: skip


def test_what_recording_costs_is_told_from_the_files_of_a_run(tmp_path: Path) -> None:
    machine = benchmark("gpu_machine")
    steps = {"unprofiled_us": [4000.0, 5000.0, 9000.0], "profiled_us": [6000.0]}
    files = [{"path": "trace.json.gz", "role": "profile"}, {"path": "lines.json.gz", "role": "lines"}]
    (tmp_path / "run.json").write_text(json.dumps({"ranks": [{"steps": steps, "files": files}]}))
    row = {"name": "ProfilerStep#3", "cat": "user_annotation", "dur": 10_000}
    rows = [row, row | {"cat": "gpu_user_annotation", "dur": 1}, {"name": "aten::mm", "cat": "cpu_op", "dur": 2}]
    (tmp_path / "lines.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": rows}).encode()))
    assert machine.dilation_row("x, slow", tmp_path) == "| x, slow | 5.0 | 6.0 (1.20) | 10.0 (2.00) |"
    assert not machine.dilation_row("y, slow", tmp_path / "nothing")


def test_ends_of_steps_are_the_devices_where_every_step_has_its_mark() -> None:
    class Mark:
        def __init__(self, ms: float) -> None:
            self.ms = ms

        def elapsed_time(self, other: Mark) -> float:
            return other.ms - self.ms

    times = benchmark("step_times")
    marks = [Mark(100.0), Mark(110.0), Mark(120.0)]
    assert times.on_device([5.0, 5.001, 5.5], marks) == pytest.approx([5.0, 5.01, 5.02])
    assert times.on_device([5.0, 5.001, 5.5], marks[1:]) == [5.0, 5.001, 5.5]


def test_a_checkout_that_is_not_installed_has_its_rules(tmp_path: Path) -> None:
    benchmark("from_checkout").laid_out(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import advisor.rules; print(advisor.rules.__file__); "
        "from importlib.metadata import distribution; "
        "print({point.group for point in distribution('torch-advisor').entry_points} >= "
        "{'advisor.rules', 'advisor.reports'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    file, known = done.stdout.splitlines()
    assert (Path(file), known) == (tmp_path / "advisor" / "rules" / "__init__.py", "True")
