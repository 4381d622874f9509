"""Pages: of rules as blocks, of one GPU and of many ranks, and of traces that others recorded."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import reports_fixtures as fixtures
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report_parts import PAGE
from reports_fixtures import module

from advisor.engine import registry
from advisor.model import (
    Lane,
    Segment,
    Timeline,
)

prose = module("as_html._prose")


def test_a_rules_page_becomes_blocks() -> None:
    blocks = prose.blocks(PAGE)
    assert [block.kind for block in blocks] == [
        "heading", "text", "heading", "text", "list", "heading", "text", "code", "heading", "text",
    ]  # fmt: skip
    assert blocks[4].items == ("nothing overlaps with the wait", "the next kernels start late")
    assert blocks[7].items == ("loader = DataLoader(data, num_workers=4)",)
    assert [(span.kind, span.text) for span in prose.spans("a `b` **c** d`")] == [
        ("text", "a "), ("code", "b"), ("text", " "), ("strong", "c"), ("text", " d`"),
    ]  # fmt: skip


def test_code_with_blank_lines_stays_one_block() -> None:
    page = "T\n\n## How\nText:\n\n    a = 1\n\n    b = 2\n\n```python\nc = 3\n\nd = 4\n```\nend"
    assert [(block.kind, block.items[0]) for block in prose.blocks(page)] == [
        ("heading", "How"), ("text", "Text:"), ("code", "a = 1\n\nb = 2"), ("code", "c = 3\n\nd = 4"), ("text", "end"),
    ]  # fmt: skip


@given(st.text())
def test_any_page_becomes_blocks(page: str) -> None:
    for block in prose.blocks(page):
        assert "".join(span.text for item in block.items for span in prose.spans(item)) or not "".join(block.items)


def test_a_page_of_one_gpu_stays_small() -> None:
    """Six lanes of 150 named segments, 40 kernels with names of 2,000 characters, 500 steps."""
    name = "void at::native::kernel<" + "at::native::Functor<float>, " * 70 + ">"
    segments = tuple(Segment(j * 100.0, 90.0, "kernel", f"{name}{j}") for j in range(150))
    lanes = tuple(Lane(f"stream {i}", segments) for i in range(6))
    report = fixtures.canonical()
    rows = tuple(replace(report.kernels[0], name=f"{name}{i}") for i in range(40))
    steps = replace(report.steps, series_us=tuple(1000 + 13.7 * math.sin(i) for i in range(500)))
    big = replace(report, timeline=Timeline("s", 15_000, lanes), kernels=rows, ops=rows, steps=steps)
    assert len(registry.load_reporter("html")(big).encode("utf-8")) <= 300_000


def test_a_job_of_many_ranks_shows_the_slowest_and_the_reference() -> None:
    page = registry.load_reporter("html")(fixtures.many_ranks(4096))
    assert len(page.encode("utf-8")) <= 300_000
    shown = [int(rank) for rank in re.findall(r'class="rankrow">(\d+)', page)]
    assert 4095 in shown
    assert 3 in shown
    assert f"{4096 - len(shown):,} faster ranks not shown" in page


TRACES = Path(__file__).parents[2].parent / "shared" / "traces"


@pytest.mark.skipif(not TRACES.is_dir(), reason="the traces of others are not beside this checkout")
@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0])
def test_pages_of_real_traces_are_whole_and_small(trace: Path, tmp_path: Path) -> None:
    from advisor import cli

    assert cli.main(["analyze", str(trace), "--output", str(tmp_path), "--quiet"]) == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    assert len(page.encode("utf-8")) <= 300_000
    assert page.endswith("</html>\n")
    visible = re.sub(r"(?s)<(style|script|pre)\b.*?</\1>|<[^>]+>", " ", page)
    assert not re.search(r"\b(None|nan|NaN|Infinity|undefined)\b", visible)
