"""What the script's text says of its loops, periodic conditions and `with` statements."""

from typing import Any

import pytest

from advisor.capture.inside.facts.source.script_text import ScriptText
from advisor.capture.inside.facts.source.text_blocks import blocks


def of(text: str) -> list[tuple[Any, ...]]:
    script = ScriptText(())
    vars(script)["sources"] = {"train.py": text}
    return blocks(script).get("train.py", [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for x in y:\n    a(x)\n    b(\n        x\n    )\nelse:\n    c()\n", [("loop", 1, 2, 5)]),
        ("while (\n    x\n):\n    x = f(x)\n", [("loop", 1, 4, 4)]),
        ("for x in y: f(x)\n", [("loop", 1, 1, 1)]),
        ("if step % 10 == 0 and show:\n    f()\nelse:\n    g()\n", [("guard", 1, 2, 2)]),
        ("if show:\n    f()\n", []),
        ("with load(p) as file:\n    a = 1\n    b = file[a]\n    file = 3\n", [("with", 1, 3, 3)]),
        ("with a() as (x, y), b() as z:\n    f(\n        y,\n        z)\n", [("with", 1, 3, 3), ("with", 1, 4, 4)]),
        ("with torch.no_grad():\n    f()\n", []),
        ("x = [f(y) for y in z]\n", []),
        ("for x in", []),  # no Python
    ],
)
def test_statements(text: str, found: list[tuple[Any, ...]]) -> None:
    assert of(text) == found


_PAIRS = "for i in range(n):\n    for j in range(n):\n        m[i, j] += np.sum((t == i) & (p == j))\n"
_BY_CLASS = "for c in range(n):\n    here = p == c\n    both = here & (t == c)\n    hits.append(both.float().sum())\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (_PAIRS, [(1, 3, 3), (2, 3, 3)]),
        (_BY_CLASS, [(1, 2, 2), (1, 3, 3), (1, 4, 4)]),
        ("for c in range(n):\n    hits[c] += torch.logical_and(p == c, t == c).sum()\n", [(1, 2, 2)]),
        ("for c in range(n):\n    means[c] = x[t == c].sum()\n", []),  # selects
        ("for c in range(n):\n    here = t == c\n    n = here.sum()\n    means[c] = x[here].mean(0)\n", []),
        ("for c in range(n):\n    right += (p.argmax(1) == t).sum()\n", []),  # the same in each turn
        ("for c in range(n):\n    loss += (weights * (t == c)).sum()\n", []),  # weighs
    ],
)
def test_counts(text: str, found: list[tuple[int, int, int]]) -> None:
    assert sorted(tuple(rest) for kind, *rest in of(text) if kind == "counts") == found


def test_lines_that_a_loop_repeats_are_those_that_run_again() -> None:
    """Against Python itself: lines of the loop's body run as often as it turns."""
    body = "    for _ in range(3):\n        run(4)\n        if 1:\n            run(6)\n"
    text = f"def f(run):\n    run(2)\n{body}    run(7)\n"
    ran: list[int] = []
    space: dict[str, Any] = {}
    exec(text, space)
    space["f"](ran.append)
    ((_, _, first, last),) = of(text)
    assert {line for line in ran if ran.count(line) > 1} == {line for line in ran if first <= line <= last}
