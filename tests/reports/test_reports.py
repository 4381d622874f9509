"""Every reporter on every report: complete, harmless, the same bytes each time, and within its limits."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import report_parts
import reports_fixtures as fixtures
from hostile_text import HOSTILE
from markdown_it import MarkdownIt
from msgspec.structs import replace

from advisor.engine import registry
from advisor.model import Finding, Fix, Health, Outcome, Report, Saving, Source
from advisor.report.report_file import decode, encode

FORMATS = ("agent", "html", "json", "junit", "markdown", "sarif", "text")
ROOT = Path(__file__).parents[2]
SUFFIX = {
    "agent": "agent.md",
    "html": "html",
    "json": "json",
    "junit": "xml",
    "markdown": "md",
    "sarif": "sarif",
    "text": "txt",
}
# C0 and C1 controls but for tab and newline, and what turns text around.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def render(form: str, report: Report) -> str:
    return registry.load_reporter(form)(report)


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
@pytest.mark.parametrize("form", FORMATS)
def test_every_reporter_renders_every_report_to_the_same_bytes(form: str, name: str) -> None:
    text = render(form, fixtures.REPORTS[name]())
    assert text.encode("utf-8")
    assert text == render(form, fixtures.REPORTS[name]())


@pytest.mark.parametrize("name", ["canonical", "empty", "many_ranks", "on_cpu"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_output_is_a_function_of_report_json(form: str, name: str) -> None:
    report = fixtures.REPORTS[name]()
    assert render(form, report) == render(form, decode(encode(report)))


@pytest.mark.parametrize("form", FORMATS)
def test_the_canonical_report_looks_as_reviewed(form: str, golden: Callable[[str, str], None]) -> None:
    text = render(form, fixtures.canonical())
    if form == "html":
        # The stylesheet and the script have their own files; here is what is said, not how it looks.
        text = re.sub(r"(?s)<(style|script)>.*?</\1>", r"<\1></\1>", text)
        text = re.sub(r"sha256-[^']+", "sha256-…", text)
    golden(f"canonical.{SUFFIX[form]}", text)


def test_the_summary_of_a_cpu_run_looks_as_reviewed(golden: Callable[[str, str], None]) -> None:
    golden("on_cpu.txt", render("text", fixtures.on_cpu()))


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
@pytest.mark.parametrize("form", [form for form in FORMATS if form != "json"])
def test_no_output_holds_a_control_character(form: str, name: str) -> None:
    assert not CONTROL.search(render(form, fixtures.REPORTS[name]()))


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "json"])
def test_no_output_names_the_user(form: str) -> None:
    """Home folders lose the user's name wherever a path can stand."""
    report = fixtures.canonical()
    where = (Source("/home/alice/code/train.py", 3, "main"), Source("C:\\Users\\alice\\train.py", 4))
    found = Outcome("r", "found", (Finding("m", Saving(1, 2, "modelled", ""), where),))
    files = ("/Users/alice/trace.json", "/tmp/torchinductor_alice/x.py")
    roots = "/".join(("", "root", "tmp"))
    run = replace(report.run, command=("/home/alice/train.py",), files=files, environment={"TMP": roots})
    ranks = (replace(report.ranks[0], file=files[0]),)
    text = render(form, replace(report, run=run, outcomes=(found,), ranks=ranks))
    assert "alice" not in text
    assert "/root" not in text


@pytest.mark.parametrize("form", ["html", "text", "markdown", "agent"])
def test_numbers_are_never_none_or_nan(form: str) -> None:
    for name in ("canonical", "empty", "on_cpu", "many_ranks"):
        visible = re.sub(r"(?s)<(style|script)>.*?</\1>|<[^>]+>", " ", render(form, fixtures.REPORTS[name]()))
        assert not re.search(r"\b(None|nan|inf|NaN|Infinity|undefined)\b", visible), name


@pytest.mark.parametrize("form", FORMATS)
def test_all_four_outcomes_are_shown(form: str) -> None:
    text = render(form, fixtures.canonical())
    for rule in ("input-bound", "fp32-matmul", "exposed-communication", "my-rule", "loop-optimizer"):
        assert rule in text


@pytest.mark.parametrize("form", ["html", "text", "markdown", "agent"])
def test_an_unconfirmed_rule_is_never_among_the_best(form: str) -> None:
    """Whatever it promises: it stands apart, after the confirmed ones."""
    huge = Finding("Dreams come true.", Saving(90_000, 98_000, "assumed", ""))
    report = fixtures.canonical()
    outcomes = (*report.outcomes, Outcome("dreamer", "found", (huge,), confirmed=False, title="A dream"))
    text = render(form, replace(report, outcomes=outcomes))
    apart = re.search(r"[Nn]ot confirmed yet", text)
    assert apart
    assert text.index("Dreams come true" if form != "text" else "dreamer") > apart.start()
    if form == "html":
        best = re.search(r'(?s)<ol class="best">.*?</ol>', text)
        assert best
        assert "98.0 ms" not in best[0]


@pytest.mark.parametrize(("share", "told"), [(0.2, True), (0.01, False)])
def test_the_summary_says_the_fix_of_an_unconfirmed_finding_that_matters(share: float, told: bool) -> None:
    report = fixtures.canonical()
    saving = Saving(0.0, share * (report.step_us or 0.0), "replayed", "how")
    finding = Finding("Kernels are slow.", saving=saving, fix=Fix("Choose other kernels", "numerics"))
    outcomes = (*report.outcomes, Outcome("dreamer", "found", (finding,), confirmed=False, title="A dream"))
    text = render("text", replace(report, outcomes=outcomes))
    assert ("fix: Choose other kernels" in text) is told
    assert "dreamer: saves" in text


def test_the_summary_fits_a_terminal() -> None:
    for make in fixtures.REPORTS.values():
        assert max(map(len, render("text", make()).splitlines())) <= 80
    assert len(render("text", fixtures.on_cpu()).splitlines()) <= 40
    assert len(render("text", replace(fixtures.canonical(), windows=())).splitlines()) <= 56
    assert len(render("text", fixtures.canonical()).splitlines()) <= 62, "further windows are there by request"


def test_the_summary_counts_what_it_does_not_list() -> None:
    outcomes = tuple(
        Outcome(f"rule-{i}", "found", (Finding("m", Saving(i, i + 1, "modelled", "")),)) for i in range(30)
    )
    text = render("text", replace(fixtures.canonical(), outcomes=outcomes))
    listed = len(re.findall(r"^  \d+\. rule-", text, re.MULTILINE))
    assert f"{30 - listed} smaller findings" in text


def test_json_holds_no_nan() -> None:
    for make in fixtures.REPORTS.values():
        fixtures.as_plain(render("json", make()))


def many(count: int, text: str) -> Report:
    """A report with many findings of long texts."""
    findings = tuple(
        Finding(f"{text} {i}", Saving(i, i + 1, "modelled", text), (Source(f"f{i % 7}.py", i, "f"),))
        for i in range(count)
    )
    return replace(fixtures.canonical(), outcomes=(Outcome("r", "found", findings), *report_parts.findings()))


def test_markdown_stays_below_the_limit_of_a_comment_and_leaves_nothing_open() -> None:
    for report in (many(900, "long `text`"), many(500, HOSTILE), many(2000, "x" * 3000)):
        text = render("markdown", report)
        assert 30_000 < len(text.encode("utf-8")) <= 60_000
        assert "do not fit here" in text
        assert text.count("<details>") == text.count("</details>")
        assert MarkdownIt("commonmark").parse(text)[-1].type == "paragraph_close"


def test_markdown_shows_hostile_names_as_text() -> None:
    text = render("markdown", fixtures.hostile())
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    pieces = [piece for token in tokens for piece in (token, *(token.children or ()))]
    assert not [piece for piece in pieces if piece.type in ("link_open", "image", "html_inline")]
    assert {p.content.strip() for p in pieces if p.type == "html_block"} <= {
        "<details><summary>Numbers</summary>",
        "</details>",
    }
    headings = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]
    assert len(headings) == len([line for line in text.splitlines() if line.startswith("##")])
    # Every row of a table has its two to four cells: no name has broken out of one.
    rows = [i for i, token in enumerate(tokens) if token.type == "tr_open"]
    assert rows
    for i in rows:
        end = next(j for j in range(i, len(tokens)) if tokens[j].type == "tr_close")
        assert sum(token.type in ("td_open", "th_open") for token in tokens[i:end]) in (2, 3, 4)


def test_sarif_has_what_code_scanning_asks_for() -> None:
    log = json.loads(render("sarif", fixtures.canonical()))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) == 10
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        assert result["locations"], "a result without a location makes an upload fail"
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    first = next(result for result in run["results"] if result["ruleId"] == "input-bound")
    assert first["properties"]["savingMs"] == {"low": 34.0, "high": 39.0, "basis": "modelled"}
    assert first["rank"] == pytest.approx(39.0 / 98.4 * 100, abs=0.01)
    region = first["locations"][0]["physicalLocation"]
    assert region["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert region["region"] == {"startLine": 88}
    levels = {n["associatedRule"]["id"]: n["level"] for n in run["invocations"][0]["toolExecutionNotifications"]}
    assert levels == {"exposed-communication": "note", "small-batch": "note", "my-rule": "error"}


def test_sarif_fingerprints_survive_moved_lines_and_are_unique() -> None:
    def prints(report: Report) -> list[str]:
        results = json.loads(render("sarif", report))["runs"][0]["results"]
        return [result["partialFingerprints"]["ruleFileFunction/v1"] for result in results]

    def moved(outcome: Outcome) -> Outcome:
        findings = [
            replace(f, where=tuple(replace(source, line=source.line + 7) for source in f.where))
            for f in outcome.findings
        ]
        return replace(outcome, findings=tuple(findings))

    report = fixtures.canonical()
    assert prints(report) == prints(replace(report, outcomes=tuple(map(moved, report.outcomes))))
    assert len(set(prints(many(100, "x")))) == len(prints(many(100, "x")))


@pytest.mark.complete
def test_sarif_stays_within_the_limits() -> None:
    log = json.loads(render("sarif", many(6000, "m")))
    assert len(log["runs"][0]["results"]) == 5000
    assert len(render("sarif", many(6000, HOSTILE * 20))) < 30_000_000
    assert all(len(rule["properties"]["tags"]) <= 20 for rule in log["runs"][0]["tool"]["driver"]["rules"])


def test_junit_has_one_case_per_rule_with_its_outcome() -> None:
    suite = ElementTree.fromstring(render("junit", fixtures.canonical()))[0]
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        "blocking-copies": [],
        "exposed-communication": ["skipped"],
        "fp32-matmul": ["failure"],
        "input-bound": ["failure"],
        "launch-bound": ["skipped"],
        "loop-optimizer": [],
        "my-rule": ["error"],
        "pageable-copies": ["failure"],
        "small-batch": ["skipped"],
        "sync-in-loop": ["failure"],
    }
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["10", "4", "1", "3"]


def test_junit_of_hostile_names_is_well_formed() -> None:
    root = ElementTree.fromstring(render("junit", fixtures.hostile()))
    assert {element.tag for element in root.iter()} == {
        "testsuites", "testsuite", "testcase", "failure", "skipped", "error", "system-out",
    }  # fmt: skip


def test_a_warning_about_the_input_reaches_every_reader() -> None:
    report = replace(fixtures.empty(), health=(Health("cut", "warning", "the file ends in the middle of an event"),))
    for form in ("html", "text", "markdown", "json"):
        assert "the file ends in the middle" in render(form, report)


def test_nothing_is_ever_marked_safe() -> None:
    banned = re.compile(
        r"\|\s*safe\b|\bMarkup\b|autoescape\s+(false|off)|{%-?\s*autoescape|innerHTML|outerHTML|insertAdjacent"
    )
    for path in (ROOT / "reports").rglob("*"):
        if path.suffix in (".py", ".html", ".js", ".css"):
            assert not banned.search(path.read_text("utf-8")), path.name
    tree = ast.parse((ROOT / "reports" / "as_html" / "__init__.py").read_text("utf-8"))
    made = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "Environment"]
    assert len(made) == 1
    (escape,) = [keyword.value for keyword in made[0].keywords if keyword.arg == "autoescape"]
    assert isinstance(escape, ast.Constant)
    assert escape.value is True
