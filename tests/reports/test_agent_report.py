"""The report for coding agents: within its limit whatever the report holds, and with what is needed to act."""

from __future__ import annotations

import pytest
import reports_fixtures as fixtures
from msgspec.structs import replace

from advisor.engine import registry
from advisor.model import Finding, Fix, Metric, Outcome, Report, Saving, Source, Treatment

LIMIT_BYTES = 4096


def render(report: Report) -> str:
    return registry.load_reporter("agent")(report)


def crowded(count: int, text: str) -> Report:
    """Many findings with long names of everything."""
    where = tuple(Source(f"src/{text}/{number}.py", number + 1, text) for number in range(5))
    fix = Fix(text, "exact", f"{text}\n" * 3, f"{text}\n" * 3, Treatment("loader", {"num_workers": 2}))
    found = [Finding(text, Saving(1000, 2000 + n, "replayed", text), where, fix=fix) for n in range(count)]
    outcomes = [Outcome(f"rule-{n}", "found", (one,)) for n, one in enumerate(found)]
    outcomes += [Outcome(f"skipped-{n}", "skipped", reason=f"{text}{n}") for n in range(count)]
    report = fixtures.canonical()
    return replace(report, outcomes=tuple(outcomes), run=replace(report.run, command=("train.py", text)))


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_no_report_is_longer_than_the_limit(name: str) -> None:
    assert len(render(fixtures.REPORTS[name]()).encode()) <= LIMIT_BYTES


@pytest.mark.parametrize("count", [0, 1, 5, 200])
@pytest.mark.parametrize("text", ["x" * 40, "a/long/path" * 30, "語" * 2000, "`*_<" * 300, "é\n" * 500])
def test_many_findings_with_long_names_stay_within_the_limit(count: int, text: str) -> None:
    report = crowded(count, text)
    said = render(report)
    assert len(said.encode()) <= LIMIT_BYTES
    shown = sum(f"`rule-{n}`:" in said for n in range(count))
    if shown < count and "## Not measured" in said:
        assert f"{count - shown} more finding" in said


def test_ordinary_findings_fill_the_space() -> None:
    said = render(crowded(200, "src/train.py"))
    assert 3000 < len(said.encode()) <= LIMIT_BYTES
    assert said.count("\n   Verify:") >= 3


def test_a_finding_says_what_where_how_much_and_how_to_verify_it() -> None:
    report = fixtures.canonical()
    said = render(report)
    text = registry.load_reporter("text")(report)
    assert "saves 34.0 to 39.0 ms per step, 35 to 40 % of the step" in said
    assert "saves 34.0 to 39.0 ms per step, 35 to 40 % of the step" in " ".join(text.split())
    for part in ("`train.py:88`", "num_workers=4", "Before:", "After:", "a step should take 59.4 to 64.4 ms"):
        assert part in said, part
    assert "`advisor compare A after`" in said
    assert said.startswith("# Torch Advisor: `train.py --epochs 3")


def test_a_fix_that_can_be_tried_has_its_command() -> None:
    assert "`advisor try --only rule-0 train.py 'a b'`" in render(crowded(1, "a b"))


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    report = fixtures.canonical()
    metrics = report.metrics | {"step_time_us": Metric("step_time_us", None, "us", "not_measured", "no steps")}
    said = render(replace(report, metrics=metrics, breakdown=()))
    assert "Step time not measured (no steps)" in said
    assert "Where the step goes: not measured" in said
    assert "- not measured: Step time: no steps" in said
    assert "\n98.4 ms" not in said
