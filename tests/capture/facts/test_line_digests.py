"""Digests of the script's lines: one for each line that Python counts, whatever its indentation."""

from __future__ import annotations

import pytest

from advisor.analyses.lines.line_marks import mark
from advisor.model import Source

pytest.importorskip("torch")

from advisor.capture.inside.facts.source.line_digests import digests
from advisor.capture.inside.facts.source.script_text import ScriptText


def test_a_line_is_known_again_by_its_text() -> None:
    script = ScriptText(())
    # A form feed ends no line of Python.
    script.sources = {"a.py": "x = 1\x0c\ny = 2\nx = 1\n", "b.py": "if y:\n    y = 2\n\n\tx = 1"}
    found = digests(script)
    assert {file: len(digits) for file, digits in found.items()} == {"a.py": 4 * 4, "b.py": 4 * 4}
    first, second, third = (mark(Source("a.py", line), found) for line in (1, 2, 3))
    assert (mark(Source("b.py", 2), found), mark(Source("b.py", 4), found)) == (second, first)
    assert third == f"{first}.1"
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("source", [Source("a.py", 9), Source("a.py", 0), Source("c.py", 1)])
def test_a_line_whose_text_was_not_recorded_has_no_mark(source: Source) -> None:
    assert mark(source, {"a.py": "0123abcd"}) == ""


def test_a_place_that_is_only_its_function_has_no_mark() -> None:
    assert mark(Source("a.py", 1, "f", "function"), {"a.py": "0123abcd"}) == ""
