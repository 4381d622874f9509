"""The rule that CONTRIBUTING.md leads through is a whole one: its examples hold, and it finds what PyTorch writes."""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.rule import SECTIONS, Rule, from_module
from advisor.testing import check_example

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8")


def block(kind: str) -> str:
    """The Python below a mark of the page."""
    found = re.search(rf"<!-- {kind}: explicit_inverse -->\n( *)```python\n(.*?)\n *```", PAGE, re.DOTALL)
    assert found
    return textwrap.dedent(found[2]) + "\n"


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rule]:
    """The rule, loaded as if it lay where the page puts it."""
    path = tmp_path_factory.mktemp("rule") / "explicit_inverse.py"
    path.write_text(block("rule"), "utf-8")
    name = "advisor.rules.cheaper_equivalents.explicit_inverse"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield from_module(module, "builtin")
    del sys.modules[name]


def test_its_examples_and_its_page(rule: Rule) -> None:
    assert {(example.saves_us is None, example.near_miss) for example in rule.examples} == {
        (False, False),
        (True, False),
        (True, True),
    }
    for example in rule.examples:
        check_example(rule, example)
    assert tuple(re.findall(r"^## (.+)$", rule.page, re.MULTILINE)) == SECTIONS
    assert set(rule.threshold_reasons()) == set(rule.thresholds)


@pytest.mark.torch
@pytest.mark.parametrize("solved", [False, True])
def test_its_test_on_torch(rule: Rule, solved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import torch_steps

    monkeypatch.setitem(torch_steps.RULES, rule.id, rule)
    space: dict[str, Any] = {"pytest": pytest, "torch": torch, "Path": Path, "outcome": torch_steps.outcome}
    exec(block("test"), space)
    space["test_an_inverse_before_a_product"](solved, tmp_path)


def test_paths_that_it_names_exist() -> None:
    ours = re.findall(r"`((?:rules|tests|docs|samples|advisor)/[\w/.]+)`", PAGE)
    assert ours
    missing = [path for path in ours if not (ROOT / path).exists() and "explicit_inverse" not in path]
    assert missing == []
