"""The MCP server as an agent meets it: a real client of the SDK, over standard input and output."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import reports_fixtures as fixtures

from advisor.gate.files import read_report
from advisor.gate.same_places import same_lines
from advisor.model import Finding, Fix, Metric, Outcome, Report, RunInfo, Saving, StepsSummary
from advisor.report.report_file import encode
from advisor.trying.treatments import parse

pytest.importorskip("mcp.server.mcpserver", reason="needs the extra `mcp`")

from agent_session import Call, session

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "samples" / "pairs" / "garbage-collection" / "slow.py"
# 400 steps of a few ms, most of which a variable of the environment takes away.
PAUSED = """
import os, time, torch
from torch import nn
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    time.sleep(float(os.environ.get("PAUSE", "0.01")))
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""
TOOLS = {"profile", "analyze", "findings", "explain", "compare", "try", "gate"}


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A folder with a report of every kind."""
    for name in fixtures.REPORTS:
        (tmp_path / f"{name}.json").write_bytes(encode(fixtures.REPORTS[name]()))
    return tmp_path


def test_tools_say_what_they_do_and_whether_they_change_anything(tmp_path: Path) -> None:
    async def talk(_: Call, client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == TOOLS
        reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
        assert reading == {"findings", "explain", "compare", "gate"}
        for tool in tools.values():
            assert tool.description
            assert {"next_step", "cannot_answer"} <= set(tool.output_schema["properties"])

    session(tmp_path, talk)


def test_every_report_is_read_page_by_page(reports: Path) -> None:
    async def talk(call: Call, _: Any) -> None:
        for name in sorted(fixtures.REPORTS):
            report = fixtures.REPORTS[name]()
            seen, offset = [], 0
            while offset is not None:
                page = await call("findings", report=f"{name}.json", offset=offset)
                assert page["findings"] or page["next_offset"] is None
                seen += [one["rule"] for one in page["findings"]]
                offset = page["next_offset"]
            assert len(seen) == page["findings_in_all"] == len(report.findings()), name
            assert (page["step_ms"] is None) == (report.step_us is None)
            assert (page["cannot_answer"] is None) == (report.step_us is not None)

    session(reports, talk)


def test_stored_reports_are_compared_and_gated_and_rules_explained(reports: Path) -> None:
    async def talk(call: Call, _: Any) -> None:
        compared = await call("compare", base="canonical.json", head="on_cpu.json")
        assert compared["base_step_ms"]
        assert compared["parts"]
        assert any(note.startswith("A: the profiler recorded no shapes") for note in compared["notes"])
        assert "doubtful" in compared["next_step"]
        same = await call("compare", base="canonical.json", head="canonical.json")
        assert same["change_share"] == 0
        judged = await call("gate", base="canonical.json", head="canonical.json")
        assert judged["verdict"] == "pass"
        assert judged["exit_code"] == 0
        assert "What it looks at" in (await call("explain", rule="small-batch"))["page"]

    session(reports, talk)


def test_a_question_without_an_answer_says_why(reports: Path) -> None:
    (reports / "fails.py").write_text("print('{\"jsonrpc\": \"2.0\"}'); raise SystemExit('no data')")
    (reports / "report").mkdir()

    async def talk(call: Call, _: Any) -> None:
        for name, arguments, why in (
            ("findings", {"report": "nowhere"}, "no such report"),
            ("explain", {"rule": "small-bach"}, "small-batch"),
            ("compare", {"base": "nowhere", "head": "canonical.json"}, "no such report"),
            ("gate", {"base": "canonical.json", "head": "nowhere"}, "no such report"),
            ("analyze", {"paths": ["nowhere"]}, "nowhere"),
            ("profile", {"script": ["nowhere.py"]}, "no such script"),
            ("profile", {"script": ["fails.py"]}, "no data"),
            ("profile", {"script": ["--output", "x"]}, "option"),
            ("try", {"script": ["fails.py"], "report": "nowhere"}, "no such report"),
        ):
            found = await call(name, **arguments)
            assert why in (found["cannot_answer"] or ""), (name, found)

    session(reports, talk)


def test_a_script_past_its_limit_is_ended(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)")

    async def talk(call: Call, _: Any) -> None:
        found = await call("profile", script=["sleeps.py"], limit_s=3)
        assert "time limit" in found["cannot_answer"]

    session(tmp_path, talk)
    status = Path("/proc") / (tmp_path / "pid").read_text()
    assert not status.exists()


@pytest.mark.complete
@pytest.mark.torch
def test_an_agent_makes_a_script_faster(tmp_path: Path) -> None:
    """Profile, take the edit from the finding, apply it, profile again, compare."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_bytes(PAIR.read_bytes())

    async def talk(call: Call, _: Any) -> None:
        before = await call("profile", script=["train.py"], output="before")
        found = next(one for one in before["findings"] if one["rule"] == "garbage-collection")
        assert found["where"][0] == "train.py:22"
        assert 0 < found["saving"]["low_ms"] <= found["saving"]["high_ms"] <= before["step_ms"]
        subprocess.run(["git", "apply"], input=found["diff"], text=True, cwd=tmp_path, check=True)
        assert not re.search(r"gc\.collect", (tmp_path / "train.py").read_text())
        await call("profile", script=["train.py"], output="after")
        compared = await call("compare", base="before", head="after")
        # Other work on the machine moves the step; the Python time that the finding claims goes in any case.
        assert compared["change_share"] < 0
        (host,) = (one for one in compared["parts"] if one["id"] == "host")
        assert host["head"] < 0.5 * host["base"]
        assert any("garbage-collection" in one for one in compared["resolved_findings"])
        # A line below the edit has another number, and is the same line.
        before, after = (read_report(tmp_path / name, baseline=False) for name in ("before", "after"))
        names = [row.name for row in same_lines(before, after)[1]]
        assert "train.py:22 <module> (A: train.py:23)" in names

    session(tmp_path, talk)


@pytest.mark.torch
@pytest.mark.complete
def test_a_try_whose_budget_is_too_small_says_so(tmp_path: Path) -> None:
    """The script runs; no pair of the fix fits, so nothing is claimed and the report stays as it was."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PAUSED)
    fix = Fix("Set `PAUSE=0.001`", "exact", treatment=parse("environment:PAUSE=0.001"))
    found = Finding("The loop waits.", Saving(2_000.0, 9_000.0, "replayed", "how"), fix=fix)
    metrics = {"step_time_us": Metric("step_time_us", 10_000.0, "us")}
    outcomes = (Outcome("input-bound", "found", (found,), title="The step waits for its batch"),)
    (tmp_path / "report").mkdir()
    report = Report(RunInfo(("train.py",)), (), StepsSummary(), metrics, (), outcomes)
    (tmp_path / "report" / "report.json").write_bytes(encode(report))

    async def talk(call: Call, _: Any) -> None:
        tried = await call("try", script=["train.py"], report="report", budget_s=5)
        assert "No change was measured" in tried["cannot_answer"]
        assert "budget_s" in tried["next_step"]
        assert tried["trials"] == []

    session(tmp_path, talk)
    assert (tmp_path / "report" / "report.json").read_bytes() == encode(report)
