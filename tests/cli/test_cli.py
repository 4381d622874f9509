"""The command line: one clear line for every mistake, the right exit code, nothing overwritten or lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from advisor.engine import rule_pages
from advisor.engine.rule import Rule

pytestmark = pytest.mark.variants(2)

DRAWING = "step [1         ][2         ][3         ]\ncpu  [F ]         [F ]        [F ]"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    from advisor.api import draw

    path = tmp_path / "step.pt.trace.json"
    path.write_text(json.dumps(dict(draw(DRAWING, us=100))))
    return path


def advisor(*arguments: object, cwd: Path, columns: int = 80) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "advisor", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": str(columns)}  # 0: as in a pipe
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60, check=False)


MISTAKES = [
    (["analyze", "absent.json"], 4, ["absent.json", "no such file"]),
    (["analyze", "empty.json"], 4, ["empty.json"]),
    (["analyze", "text.json"], 4, ["text.json"]),
    (["analyze", "folder"], 4, ["folder", "no trace"]),
    (["analyze", "nothing.json"], 4, ["nothing.json", "neither CPU ops nor device work"]),
    (["analyze", "step.pt.trace.json", "-o", "step.pt.trace.json"], 2, ["step.pt.trace.json is what is to be read"]),
    (["analyze", "step.pt.trace.json", "--format", "pdf"], 2, ["unknown format 'pdf'", "html"]),
    (["analyze", "step.pt.trace.json", "--format", "jsn"], 2, ["did you mean 'json'?"]),
    (["analyze", "step.pt.trace.json", "--select", "small-bach"], 2, ["did you mean 'small-batch'?"]),
    (["analyze", "step.pt.trace.json", "--ignore", "nothing"], 2, ["unknown rule 'nothing'"]),
    (["analyze", "step.pt.trace.json", "--output", "x.pdf"], 2, ["x.pdf", "matches no format"]),
    (["analyze", "step.pt.trace.json", "--output", "x.html", "--format", "html,json"], 2, ["name a folder"]),
    (["explain", "smal-batch"], 2, ["did you mean 'small-batch'?"]),
    (["run", "absent.py"], 2, ["absent.py"]),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    MISTAKES,
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, list) else None,
)
def test_a_mistake_is_one_line_and_the_right_code(
    trace: Path, arguments: list[str], code: int, words: list[str]
) -> None:
    (trace.parent / "empty.json").write_text("")
    (trace.parent / "text.json").write_text("this is no trace")
    odd = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1e300, "dur": 1e300, "pid": 1, "tid": 1}
    (trace.parent / "nothing.json").write_text(json.dumps({"traceEvents": [odd]}))
    (trace.parent / "folder").mkdir()
    before = sorted(path.name for path in trace.parent.iterdir())
    done = advisor(*arguments, cwd=trace.parent)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert sorted(path.name for path in trace.parent.iterdir()) == before


def test_one_format_without_output_goes_to_stdout_and_makes_no_folder(trace: Path) -> None:
    done = advisor("analyze", trace, "--format", "json", cwd=trace.parent)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "torch-advisor/report"
    assert report["version"] == 1
    assert [path.name for path in trace.parent.iterdir()] == [trace.name]


def test_the_default_is_a_folder_and_a_summary_and_an_older_folder_is_kept(trace: Path) -> None:
    for _ in range(2):
        done = advisor("analyze", trace, cwd=trace.parent)
        assert done.returncode == 0, done.stderr
    assert "step" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
    for folder in ("advisor-report", "advisor-report.1"):
        names = {path.name for path in (trace.parent / folder).iterdir()}
        assert {"report.html", "report.json"} <= names


def test_the_suffix_picks_the_format(trace: Path) -> None:
    done = advisor("analyze", trace, "--output", "page.md", "--quiet", cwd=trace.parent)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (trace.parent / "page.md").read_text().startswith("#")


def test_unrelated_traces_are_listed_and_each_makes_a_report_each(trace: Path) -> None:
    other = trace.with_name("other.pt.trace.json")
    other.write_bytes(trace.read_bytes())
    done = advisor("analyze", trace, other, cwd=trace.parent)
    assert done.returncode == 2
    assert "2 unrelated jobs" in done.stderr
    assert "--each" in done.stderr
    done = advisor("analyze", "--each", trace, other, cwd=trace.parent)
    assert done.returncode == 0, done.stderr
    assert len(list((trace.parent / "advisor-report").glob("*/report.json"))) == 2


@pytest.mark.parametrize("command", ["run", "analyze", "gate", "compare", "explain", "rules", "doctor"])
def test_help_fits_a_screen_and_has_an_example(command: str, tmp_path: Path) -> None:
    done = advisor(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "example" in done.stdout
    assert len(done.stdout.splitlines()) <= 45
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("command", [["rules"], ["explain", "input-bound"]])
def test_text_takes_the_width_of_the_terminal(command: list[str], columns: int, tmp_path: Path) -> None:
    """Piped text is not broken anew (one rule stays one line for grep), and breaking loses no word."""
    plain = advisor(*command, cwd=tmp_path, columns=0).stdout
    assert max(map(len, plain.splitlines())) > 100
    fitted = advisor(*command, cwd=tmp_path, columns=columns).stdout
    longest = max(map(len, fitted.splitlines()))
    assert columns - 20 < longest <= columns
    assert fitted.split() == plain.split()


def test_a_page_keeps_its_code_and_its_lists() -> None:
    page = "Title.\n\n## How to fix it\nSome words\nand more:\n\n    a = 1  # code of some length\n- one\n  word\n- two"
    rule = SimpleNamespace(
        id="x", page=page, thresholds={}, confirmed="", pack="builtin", family="", threshold_reasons=dict
    )
    lines = rule_pages.page(cast(Rule, rule), 20).splitlines()
    for line in (
        "x: Title.",
        "## How to fix it",
        "Some words and more:",
        "    a = 1  # code of some length",
        "- one word",
    ):
        assert line in lines
    assert "- two" in lines


def test_an_internal_error_is_one_line_with_a_code_of_its_own(tmp_path: Path) -> None:
    broken = (
        "import sys, advisor.engine.registry as registry\n"
        "registry.load_rules = lambda: 1 / 0\n"
        "from advisor.cli import main\n"
        "sys.exit(main(['rules']))"
    )
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 70
    assert done.stderr.startswith("advisor: internal error: ZeroDivisionError")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["rules"], ["explain", "small-batch"]])
def test_a_full_disk_behind_the_output_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "advisor", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 4
    assert done.stderr == (
        "advisor: cannot write the output: No space left on device; free some space, or write to another place\n"
    )


def test_a_terminal_of_another_encoding_is_no_obstacle(trace: Path) -> None:
    for form in ("text", "json"):
        command = [sys.executable, "-m", "advisor", "analyze", str(trace), "--format", form]
        environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(command, capture_output=True, cwd=trace.parent, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert "·" in done.stdout.decode("utf-8")


def test_an_older_file_that_is_kept_is_named(trace: Path) -> None:
    (trace.parent / "notes.md").write_text("mine")
    done = advisor("analyze", trace.name, "-o", "notes.md", cwd=trace.parent)
    assert "advisor: what was notes.md is notes.md.1 now\n" in done.stderr
    assert (trace.parent / "notes.md.1").read_text() == "mine"


def test_python_m_advisor_without_a_command_says_what_there_is(tmp_path: Path) -> None:
    done = advisor(cwd=tmp_path)
    assert done.returncode == 2
    assert "COMMAND" in done.stderr
