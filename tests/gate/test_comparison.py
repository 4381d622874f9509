"""`advisor compare A B`: what it says, how sure it is, and its page."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from pathlib import Path
from typing import Any

import chromium
import msgspec
import pytest
from msgspec.structs import replace
from reports_fixtures import canonical, empty, hostile

from advisor import cli
from advisor.analyses.lines.line_marks import marks
from advisor.gate.comparison.certainty import change_of
from advisor.gate.comparison.compare import compare
from advisor.gate.comparison.model import Compared
from advisor.gate.same_places import role_of
from advisor.model import BreakdownItem, Metric, OpRow, Report, Saving, Source, Times
from advisor.report.report_file import encode

NAMES = ("a.json", "b.json")


def side(series: list[float], *, profiled: bool = False) -> Compared:
    median = sorted(series)[len(series) // 2]
    times = Times(median, median, min(series), max(series), len(series))
    return Compared("x", (), (), {}, len(series), median, times, tuple(series), profiled)


def run_of(rng: random.Random, step_us: float, count: int = 60) -> Compared:
    """A run whose level differs from that of others as the table says, with steps of 2 % noise."""
    level = step_us * (1 + rng.gauss(0, 0.022 / 0.6745 / 2**0.5))
    return side([level * (1 + rng.gauss(0, 0.02)) for _ in range(count)])


def test_two_runs_of_one_script_are_within_the_noise_and_a_real_change_is_not() -> None:
    rng = random.Random(7)
    same = [change_of(run_of(rng, 1e4), run_of(rng, 1e4)).certainty for _ in range(400)]
    # Five per cent are expected beyond a 95 % interval; 9 % are four standard errors more.
    assert 0 < sum(one != "within the noise" for one in same) < 0.09 * len(same)
    found = [change_of(run_of(rng, 1e4), run_of(rng, 8e3)) for _ in range(100)]
    assert all(one.certainty == "faster" for one in found)
    held = [one.low <= -0.2 <= one.high for one in found if one.low is not None and one.high is not None]
    assert len(held) == 100
    assert sum(held) >= 88


def test_without_comparable_steps_nothing_is_called_sure() -> None:
    steady = side([100.0] * 30)
    assert change_of(steady, dataclasses.replace(steady, step_us=None)).why == "the step time of B was not recorded"
    assert change_of(steady, side([50.0, 50.0])).certainty == "not known"
    assert "profiler adds time" in change_of(steady, side([100.0] * 30, profiled=True)).why


def changed(report: Report, **changes: Any) -> Report:
    return replace(report, **changes)


def test_the_waterfall_leads_from_a_to_b() -> None:
    base = canonical()
    parts = (BreakdownItem("compute", 50_000.0, 0.8), BreakdownItem("idle_input", 12_500.0, 0.2))
    metrics = {**base.metrics, "step_time_us": Metric("step_time_us", 60_000.0, "us")}
    found = compare(base, changed(base, breakdown=parts, metrics=metrics), NAMES)
    assert sum(row.change or 0.0 for row in found.waterfall) == pytest.approx(60_000.0 - (base.step_us or 0.0))
    assert [row.id for row in found.waterfall][:2] == [item.id for item in base.breakdown][:2]


def test_what_a_side_lacks_is_not_recorded_rather_than_zero() -> None:
    base = canonical()
    found = compare(base, changed(base, lines=(), modules=None), NAMES)
    assert {one.kind: one.missing for one in found.movers if one.missing} == {
        "line": "not recorded in B",
        "module": "not recorded in B",
    }
    other = compare(base, changed(base, breakdown=(BreakdownItem("forward", 1.0, 1.0),)), NAMES)
    assert not other.waterfall
    assert {row.id: row.head for row in other.parts if row.id != "forward"} == {
        item.id: None for item in base.breakdown if item.share
    }


def test_lines_and_modules_that_moved_come_first_with_both_times() -> None:
    base = canonical()
    slower = tuple(replace(row, us=row.us * 3) for row in base.lines)
    lines = next(one for one in compare(base, changed(base, lines=slower), NAMES).movers if one.kind == "line")
    assert [row.change_us for row in lines.rows] == sorted((2 * row.us for row in base.lines), reverse=True)
    row = next(one for one in lines.rows if one.name == "train.py:95 train_one_epoch")
    assert (row.base_us, row.head_us) == (10_000.0, 30_000.0)


def with_lines(command: str, texts: str, times: list[float]) -> Report:
    """A report of the script `command` with a line for each line of its text: 4 letters each, as digests are."""
    name = Path(command).name
    sources = [Source(name, number + 1, "main") for number in range(len(times))]
    rows = tuple(OpRow(f"{name}:{one.line} main", "line", us, 1.0, 0.1) for one, us in zip(sources, times, strict=True))
    found = marks(((row.name, one) for row, one in zip(rows, sources, strict=True)), {name: texts})
    base = canonical()
    return changed(base, run=replace(base.run, command=(command,)), lines=rows, line_marks=found)


def moved_lines(a: Report, b: Report) -> dict[str, tuple[float | None, float | None]]:
    rows = next(one for one in compare(a, b, NAMES).movers if one.kind == "line").rows
    return {row.name: (row.base_us, row.head_us) for row in rows}


def test_lines_are_matched_by_their_text_when_a_script_has_another_name_and_an_edit_moved_them() -> None:
    # B has a new first line, and its third is another one; two lines say the same.
    a = with_lines("old/slow.py", "aaaabbbbccccbbbb", [10e3, 20e3, 30e3, 40e3])
    b = with_lines("fixed.py", "eeeeaaaabbbbddddbbbb", [5e3, 11e3, 22e3, 33e3, 44e3])
    assert moved_lines(a, b) == {
        "fixed.py:1 main": (None, 5e3),
        "fixed.py:2 main (A: slow.py:1)": (10e3, 11e3),
        "fixed.py:3 main (A: slow.py:2)": (20e3, 22e3),
        "slow.py:3 main": (30e3, None),
        "fixed.py:4 main": (None, 33e3),
        "fixed.py:5 main (A: slow.py:4)": (40e3, 44e3),
    }


def test_without_recorded_text_lines_of_a_script_with_another_name_are_matched_by_number() -> None:
    a, b = with_lines("slow.py", "", [10e3, 20e3]), with_lines("fixed.py", "aaaabbbb", [30e3, 50e3])
    assert moved_lines(a, b) == {
        "fixed.py:1 main (A: slow.py:1)": (10e3, 30e3),
        "fixed.py:2 main (A: slow.py:2)": (20e3, 50e3),
    }
    # The same number in another function is another line.
    c = changed(b, lines=tuple(replace(row, name=f"{row.name}_loop") for row in b.lines))
    assert len(moved_lines(a, c)) == 4


@pytest.mark.parametrize(
    ("command", "file", "role"),
    [
        ("work/slow.py", "work/slow.py", ""),
        ("slow.py", "/home/x/slow.py", ""),
        ("work/slow.py", "slow.py", ""),
        ("slow.py", "work/slow.py", "work/slow.py"),
        ("work/slow.py", "work/models/net.py", "models/net.py"),
        ("work/slow.py", "other/slow.py", "other/slow.py"),
        ("-m", "package/train.py", "package/train.py"),
    ],
)
def test_files_are_named_by_what_they_are_to_the_script(command: str, file: str, role: str) -> None:
    report = replace(canonical(), run=replace(canonical().run, command=(command, "--lr", "1")))
    assert role_of(report)(file) == role


def test_a_finding_that_stays_under_another_name_of_the_script_is_neither_new_nor_gone() -> None:
    a, b = canonical(), canonical()
    script = a.run.command[0]
    renamed = json.loads(encode(b).decode().replace(script, "samples/renamed.py"))
    b = msgspec.convert(renamed, Report)
    found = compare(a, b, NAMES)
    assert (found.new_findings, found.gone_findings) == ((), ())
    assert [one for one in found.counters if one.id.startswith("sync:")] == []


def test_batches_of_one_size_are_the_same_whatever_the_tail_of_slow_steps() -> None:
    a = canonical()
    mean, slow = a.steps.unprofiled_us.mean or 0.0, 3.0
    times = replace(a.steps.unprofiled_us, mean=mean * slow)
    rate = a.metrics["samples_per_second"]
    metrics = {**a.metrics, "samples_per_second": replace(rate, value=(rate.value or 0.0) / slow)}
    b = changed(a, steps=replace(a.steps, unprofiled_us=times), metrics=metrics)
    assert not any("samples of a step" in note for note in compare(a, b, NAMES).notes)


def test_a_finding_whose_saving_fell_is_changed_and_not_new() -> None:
    base = canonical()
    index = next(i for i, one in enumerate(base.outcomes) if one.rule == "sync-in-loop")
    old = base.outcomes[index]
    less = replace(old.findings[0], saving=Saving(100.0, 200.0, "modelled", "x"))
    outcomes = list(base.outcomes)
    outcomes[index] = replace(old, findings=(less,))
    found = compare(base, changed(base, outcomes=tuple(outcomes)), NAMES)
    assert [(one.base.high_us, one.head.high_us) for one in found.changed_findings] == [(5000.0, 200.0)]
    assert not found.new_findings
    assert not found.gone_findings


@pytest.mark.parametrize(("after", "most"), [((100.0, 800.0), 0), ((700.0, 10.0), 1)])
def test_the_finding_whose_saving_changed_most_is_named_first(after: tuple[float, float], most: int) -> None:
    two = [one for one in canonical().outcomes if one.findings][:2]

    def saving(*high_us: float) -> Report:
        found = (
            replace(one, findings=(replace(one.findings[0], saving=Saving(0.0, high, "modelled", "x")),))
            for one, high in zip(two, high_us, strict=True)
        )
        return changed(canonical(), outcomes=tuple(found))

    found = compare(saving(1000.0, 1100.0), saving(*after), NAMES)
    assert [one.head.rule for one in found.changed_findings] == [two[most].rule, two[1 - most].rule]


def save(path: Path, report: Report) -> str:
    path.write_bytes(encode(report))
    return str(path)


@pytest.mark.parametrize("make", [canonical, empty, hostile])
@pytest.mark.parametrize("name", ["text", "json", "markdown", "html"])
def test_every_format_shows_every_report(make: Any, name: str, tmp_path: Path, capsys: Any) -> None:
    a, b = save(tmp_path / "a.json", canonical()), save(tmp_path / "b.json", make())
    assert cli.main(["compare", a, b, "--format", name]) == 0
    out = capsys.readouterr().out
    assert out.strip()
    if name == "json":
        held = json.loads(out)
        assert held["schema"] == "torch-advisor/comparison"
        assert held["step"]["base"] == canonical().step_us
    if name == "html":
        assert "<script" not in out
        assert len(out.encode()) < 300_000


def test_names_of_kernels_are_escaped_on_the_page(tmp_path: Path) -> None:
    base = canonical()
    bad = (OpRow("<img src=x onerror=alert(1)>", "compute", 90_000.0, 1, 0.5),)
    paths = save(tmp_path / "a.json", base), save(tmp_path / "b.json", changed(base, kernels=bad))
    assert cli.main(["compare", *paths, "--format", "html", "-o", str(tmp_path / "out.html")]) == 0
    page = (tmp_path / "out.html").read_text("utf-8")
    assert "<img" not in page
    assert "&lt;img src" in page


def test_the_json_is_the_comparison(tmp_path: Path, capsys: Any) -> None:
    paths = [save(tmp_path / name, canonical()) for name in NAMES]
    assert cli.main(["compare", *paths, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected = msgspec.to_builtins(compare(canonical(), canonical(), (paths[0], paths[1])))
    assert shown == json.loads(json.dumps(expected))
    assert shown["change"]["certainty"] == "within the noise"


@pytest.mark.browser
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine")
def test_the_page_loads_nothing_and_fits_its_width(tmp_path: Path) -> None:
    paths = save(tmp_path / "a.json", canonical()), save(tmp_path / "b.json", hostile())
    page = tmp_path / "out.html"
    assert cli.main(["compare", *paths, "--format", "html", "-o", str(page)]) == 0
    with chromium.browser(tmp_path / "profile") as browser:
        for width in (1200, 400):
            browser.open(page, width=width, dark=width == 400)
            assert browser.complaints() == []
            assert browser.requests() == []
            assert browser.run("document.documentElement.scrollWidth") <= width
    assert not re.search(r"https?://(?!www\.w3\.org)", page.read_text("utf-8").split("</style>")[0])
