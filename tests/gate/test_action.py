"""The GitHub action: its script as a runner calls it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from advisor.model import Metric, Report, RunInfo, StepsSummary

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "gate"

pytestmark = pytest.mark.skipif(
    not shutil.which("bash") or not shutil.which("advisor"), reason="needs bash and advisor"
)


def report(path: Path, ops: float) -> str:
    metrics = {"cpu_ops": Metric("cpu_ops", ops, "count")}
    made = Report(RunInfo(), (), StepsSummary(count=5, source="loader"), metrics, (), ())
    path.write_bytes(msgspec.json.encode(made))
    return str(path)


def run(folder: Path, arguments: str, allow: str = "false") -> tuple[int, str, str, str]:
    """(status, stdout, step summary, outputs) of the action's script."""
    env = {
        **os.environ,
        "ADVISOR_GATE_ARGUMENTS": arguments,
        "ADVISOR_GATE_OUTPUT": str(folder / "out put"),
        "ADVISOR_GATE_ALLOW": allow,
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "GITHUB_OUTPUT": str(folder / "output"),
    }
    done = subprocess.run(
        ["bash", str(ACTION / "gate.sh")], env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    summary = folder / "summary"
    return (
        done.returncode,
        done.stdout,
        summary.read_text() if summary.exists() else "",
        (folder / "output").read_text(),
    )


def test_a_regression_fails_with_summary_and_annotations(tmp_path: Path) -> None:
    base, head = report(tmp_path / "a b.json", 10.0), report(tmp_path / "head.json", 11.0)
    status, out, summary, outputs = run(tmp_path, f"'{base}' {head}")
    assert status == 1
    assert "::error title=Performance gate%3A regression::cpu_ops grew" in out
    assert "Performance gate: regression" in summary
    assert outputs == "verdict=regression\nstatus=1\n"
    assert {path.name for path in (tmp_path / "out put").iterdir()} == {
        "gate.txt", "gate.json", "gate.md", "gate.annotations", "gate.sarif", "gate.xml"}  # fmt: skip


@pytest.mark.parametrize(("allow", "expected"), [("false", 3), ("true", 0)])
def test_no_baseline_fails_unless_allowed_and_is_never_a_pass(tmp_path: Path, allow: str, expected: int) -> None:
    status, out, _, outputs = run(tmp_path, f"{tmp_path / 'none.json'} {report(tmp_path / 'h.json', 1.0)}", allow)
    assert status == expected
    assert "status=3" in outputs
    assert ("it is no pass" in out) == (allow == "true")


def test_every_input_reaches_the_script_through_the_environment() -> None:
    text = (ACTION / "action.yml").read_text()
    script = text[text.index("run: bash") :]
    assert "${{" not in script
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == {"arguments", "output", "allow-inconclusive"}


def test_words_of_the_input_are_never_run_as_code(tmp_path: Path) -> None:
    run(tmp_path, "'a.json; touch owned' '$(touch owned)'")
    assert not (tmp_path / "owned").exists()
