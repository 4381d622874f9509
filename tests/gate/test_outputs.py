"""Every output of the gate on canonical and hostile results, within the limits of the platforms that show it."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as Xml

import pytest

from advisor.gate import verdict
from advisor.gate.formats import outputs
from advisor.gate.model import Cause, Flagged, Result, Row, StepTime

STEP = StepTime(
    decision="regression",
    change=0.061,
    low=0.040,
    high=0.083,
    pairs=10,
    noise=0.021,
    detectable=0.034,
    margin=0.02,
    tolerance=0.05,
    base_us=8400.0,
    head_us=8912.0,
    self_test_noise=0.019,
)
HOSTILE = "void k<float, 4>(a*, b|c) `x` \x07 \ud800 & </table>\n::error::owned %0A"


def result(rows: int = 2, text: str = "kernels", **changes: object) -> Result:
    """A regression with this many counters that grew."""
    counters = tuple(
        Row(f"{text}{n}", "count", 100.0 + n, 101.0 + 2 * n, "worse", True, "exact", "", f"src/train.py:{n + 1}")
        for n in range(rows)
    )
    fields: dict[str, object] = {
        "verdict": "regression",
        "reason": f"{text} grew",
        "base": "main",
        "head": text,
        "counters": counters,
        "new_findings": (Flagged("sync-in-loop", "high", text, "src/train.py:88", 900.0),),
        "step_time": STEP,
        "causes": (Cause("line", text, 100.0, 612.0, "us", "src/train.py:88"),),
        "notes": (text,),
        "new_baseline": "{}\n",
    }
    return Result(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(outputs.FORMATS))
@pytest.mark.parametrize("text", ["kernels", HOSTILE])
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_every_format_takes_everything(name: str, text: str, rows: int) -> None:
    shown = outputs.render(result(rows, text), name)
    assert shown.strip()
    assert shown.endswith("\n")


def test_json_is_the_whole_result() -> None:
    document = json.loads(outputs.render(result(3), "json"))
    assert document["schema"] == "torch-advisor/gate"
    assert document["exit_code"] == 1
    assert len(document["counters"]) == 3
    assert document["step_time"]["change"] == 0.061


def test_annotations_stay_below_the_limit_and_say_how_many_more() -> None:
    lines = outputs.render(result(500), "github").splitlines()
    # GitHub shows ten errors and ten warnings of a step.
    assert sum(line.startswith("::error") for line in lines) <= 10
    assert sum(line.startswith("::warning") for line in lines) <= 10
    assert len(lines) == 1 + 8 + 1
    assert "494 more" in lines[-1]  # 500 counters, a finding and a line, less the eight that are shown
    assert "file=src/train.py,line=500::" in lines[1]  # the largest growth first


def test_annotations_cannot_be_broken_out_of() -> None:
    shown = outputs.render(result(2, HOSTILE), "github")
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in shown.splitlines())
    assert "%250A" in shown


def test_an_absolute_path_is_no_file_of_the_repository() -> None:
    row = Row("syncs", "count", 1.0, 2.0, "worse", True, "exact", "", "/home/a/train.py:3")
    assert "file=" not in outputs.render(result(counters=(row,), new_findings=(), causes=()), "github")


def test_markdown_fits_a_comment_and_holds_no_markup_of_others() -> None:
    shown = outputs.render(result(5000, HOSTILE * 20, new_baseline="x" * 200_000), "markdown")
    assert len(shown.encode("utf-8", "replace")) < 64_000
    assert "omitted here" in shown
    assert shown.startswith("<!-- torch-advisor-gate -->")
    small = outputs.render(result(1, HOSTILE), "markdown")
    assert "</table>" not in re.sub(r"`[^`]*`", "", small)
    for line in small.splitlines():
        if line.startswith("| `"):
            assert line.count("|") == 6


def test_junit_fails_regressions_and_skips_what_is_open() -> None:
    open_ = Row("syncs", "count", 1.0, 2.0, "unsteady", False, "exact", "between 1 and 3 in the steps of one run")
    root = Xml.fromstring(outputs.render(result(2, counters=(*result(2).counters, open_)), "junit"))
    suite = next(suite for suite in root if suite.get("name") == "counters")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "2", "1")
    inconclusive = Xml.fromstring(
        outputs.render(result(0, verdict="inconclusive", step_time=None, new_findings=()), "junit")
    )
    assert inconclusive.find("testsuite/testcase/skipped") is not None
    assert inconclusive.find("testsuite/testcase/failure") is None


def test_sarif_has_what_code_scanning_needs() -> None:
    log = json.loads(outputs.render(result(2), "sarif"))
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    prints = set()
    for entry in run["results"]:
        assert entry["ruleId"] in rules
        assert entry["level"] in ("error", "warning", "note")
        assert entry["message"]["text"]
        prints.add(entry["partialFingerprints"]["gate/v1"])
    assert len(prints) == len(run["results"])
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "src/train.py"}, "region": {"startLine": 1}}
    moved = result(1, counters=(Row("kernels0", "count", 1.0, 2.0, "worse", True, "exact", "", "src/train.py:70"),))
    again = json.loads(outputs.render(moved, "sarif"))["runs"][0]["results"][0]
    assert again["partialFingerprints"] == run["results"][0]["partialFingerprints"]  # an edit above moves no print


def test_the_line_that_people_quote() -> None:
    decision, reason = verdict.of_step_time(STEP)
    assert decision == "regression"
    assert reason.startswith("step time +6.1 % [+4.0, +8.3], 10 lockstep pairs, noise 2.1 % per pair")


def test_an_open_gate_names_the_smallest_change_and_what_would_decide() -> None:
    for further, words in ((14, "about 14 more pairs would decide"), (0, "no practical number of pairs")):
        open_ = StepTime("inconclusive", 0.01, -0.04, 0.07, 16, 0.08, 0.09, 0.02, 0.05, 1.0, 1.0, further_pairs=further)
        said = verdict.of_step_time(open_)[1]
        assert "the smallest change it can find is 9.0%" in said
        assert words in said
