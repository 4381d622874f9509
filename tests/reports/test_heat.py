"""The heat map of ranks: what is coloured, what is said, and that a page of a thousand ranks stays small."""

from __future__ import annotations

import re

import pytest
import reports_fixtures as fixtures
from msgspec.structs import replace

from advisor.engine import registry
from advisor.model import ComparedRanks, Report

RENDER = registry.load_reporter("html")


def _rows(page: str) -> list[list[tuple[str, str]]]:
    """(level, text) of each cell, by row."""
    body = page.partition('<table class="heat')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    cell = re.compile(r"<t[dh](?: scope=\"row\")?(?: class=\"(\w+)\")?>([^<]*)</t[dh]>")
    return [cell.findall(row) for row in re.findall(r"<tr.*?</tr>", body)]


def _columns(page: str) -> list[str]:
    head = page.partition('<table class="heat')[2].partition("</thead>")[0]
    return re.findall(r"<span>([^<]*)</span>", head)


def _compared(report: Report) -> ComparedRanks:
    assert report.compared
    return report.compared


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.0, ""), (0.009, ""), (0.011, "m1"), (0.031, "m2"), (0.11, "m3"), (0.31, "m4"), (-0.011, "l1"), (-0.31, "l4")],
)
def test_colours_are_shares_of_the_step_from_the_median_rank(share: float, level: str) -> None:
    report = fixtures.large_job()
    job = _compared(report)
    ranks = tuple(replace(one, own_us=50_000.0 + share * job.step_us * (one.rank == 7)) for one in job.ranks)
    page = RENDER(replace(report, compared=replace(job, ranks=ranks)))
    at = _columns(page).index("Own work")
    levels = [row[at][0] for row in _rows(page)]
    assert levels[7] == level
    assert set(levels[:7] + levels[8:]) == {""}


def test_the_map_has_every_rank_with_its_places() -> None:
    page = RENDER(fixtures.large_job())
    columns, rows = _columns(page), _rows(page)
    assert columns[:4] == ["Rank", "Node", "Pipeline stage", "Data place"]
    assert [row[0][1] for row in rows] == [str(rank) for rank in range(12)]
    assert {len(row) for row in rows} == {len(columns)}
    late = dict(zip(columns, rows[fixtures.LATE], strict=True))
    assert late["Node"] == ("", "1")
    assert late["Others wait"] == ("m3", "25.0")
    assert late["Takes more"] == ("", "Waits for launches")
    assert dict(zip(columns, rows[0], strict=True))["Waits most for"] == ("", str(fixtures.LATE))


def test_what_stands_out_is_said_with_its_numbers() -> None:
    page = RENDER(fixtures.large_job())
    said = re.findall(r"<li>(.*?)</li>", page.partition('<ul class="said">')[2].partition("</ul>")[0])
    assert said == [
        "Rank 5 on node 1, last at 100 % of the collectives, makes other ranks wait, the longest of them 25 ms of each "
        "step. Most above the median rank: Waits for launches, by 20 ms.",
        "Node 1 (ranks 4-7) takes 9.8 ms more per step than the median of the others, most of it in: GPU computes.",
        "Within node 1, ranks 4-7 send for 8 ms per step, 6 ms longer than the median of the 2 other sets with equal "
        "messages.",
    ]
    assert re.findall(r"<td>(ranks 4-7|none)</td>", page.partition("<h3>Links</h3>")[2]) == ["ranks 4-7", "none"]


def test_equal_ranks_are_a_blank_map() -> None:
    report = fixtures.large_job()
    job = _compared(report)
    even = tuple(replace(one, own_us=5e4, waits_us=10.0, awaited_us=10.0, last_share=0.1) for one in job.ranks)
    page = RENDER(replace(report, compared=replace(job, ranks=even, groups=(), links=())))
    at = _columns(page).index("Step")
    assert {level for row in _rows(page) for level, _ in row[at : at + 4]} == {""}
    assert "No rank or node stands out" in page


def test_where_clocks_cannot_be_aligned_the_reason_is_said() -> None:
    report = fixtures.large_job()
    job = _compared(report)
    unknown = tuple(replace(one, waits_us=None, waits_for=None, awaited_us=None, last_share=None) for one in job.ranks)
    why = "too few collectives to align the clocks of the ranks; profile more steps"
    page = RENDER(replace(report, compared=replace(job, ranks=unknown, uncertain_us=None, why=why)))
    assert f"Who waits for whom is not known: {why}." in page
    assert "Others wait" not in _columns(page)
    assert "No rank or node stands out" not in page


def test_a_page_of_a_thousand_ranks_is_small_and_says_what_it_leaves_out() -> None:
    page = RENDER(fixtures.large_job(1024))
    assert len(page.encode("utf-8")) <= 5_000_000
    assert len(_rows(page)) == 1024
    assert "1,021 ranks left out: those have their row of the map." in page
    larger = RENDER(fixtures.large_job(2048))
    assert len(larger.encode("utf-8")) <= 5_000_000
    rows = [int(row[0][1]) for row in _rows(larger)]
    assert len(rows) == 1024
    assert {fixtures.LATE, 3} < set(rows)
    assert "1,024 ranks with less work, which nobody waits for, not shown (report.json holds all)" in larger


def test_the_reasons_for_a_rank_in_full_are_said_in_words() -> None:
    page = RENDER(fixtures.large_job())
    assert "<summary>Rank 5: others wait for it, node 1 and asked for</summary>" in page
    assert "<summary>Rank 0: least own work and pipeline stage 0</summary>" in page


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_the_terminal_and_markdown_say_the_same(name: str) -> None:
    said = " ".join(registry.load_reporter(name)(fixtures.large_job()).split())
    assert (
        "Rank 5 on node 1, last at 100 % of the collectives, makes other ranks wait, the longest of them 25 ms" in said
    )
    assert "Node 1 (ranks 4-7) takes 9.8 ms more per step" in said
    assert "Within node 1, ranks 4-7 send for 8 ms per step, 6 ms longer" in said
