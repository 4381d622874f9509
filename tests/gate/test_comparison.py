"""`advisor compare A B`: what it says, how sure it is, and its page."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromium
import msgspec
import pytest
from reports_fixtures import canonical, empty, hostile

from advisor import cli
from advisor.gate.comparison.certainty import change_of
from advisor.gate.comparison.compare import compare
from advisor.gate.comparison.model import Compared
from advisor.model import BreakdownItem, Metric, OpRow, Report, Saving, Times
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
    assert change_of(steady, replace(steady, step_us=None)).why == "the step time of B was not recorded"
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
