"""The README says what is true: its commands exist, its table is generated, its output is what the reporter prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.engine import registry, rule_pages
from advisor.report.report_file import decode

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
# The report.json of a real run of the first command; copy a new one here and run `pytest --renew` to renew the README.
SAMPLE = ROOT / "samples" / "reports" / "cifar10_cnn.report.json"


def block(name: str) -> str:
    """The generated text between two marks of the README."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README.read_text("utf-8"), re.DOTALL)
    assert found, f"the README has lost its marks for {name}"
    return found[1].strip()


def renew(name: str, text: str) -> None:
    """Writes the generated text between its marks."""
    old = README.read_text("utf-8")
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    README.write_text(mark.sub(lambda found: f"{found[1]}{text}\n{found[2]}", old), "utf-8")


def agree(name: str, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--renew"):
        renew(name, text)
    assert block(name) == text, "renew it: pytest tests/house/test_readme.py --renew"


def test_the_table_of_rules_is_generated(request: pytest.FixtureRequest) -> None:
    rules = registry.load_rules()
    ours = registry.Rules(tuple(rule for rule in rules.rules if rule.pack == "builtin"), ())
    agree("rules", rule_pages.table(ours), request)


def test_the_printed_output_is_what_the_reporter_makes_of_a_real_run(request: pytest.FixtureRequest) -> None:
    report = decode(SAMPLE.read_bytes(), SAMPLE.name)
    text = registry.load_reporter("text")(report).strip()
    agree("sample output", f"```\n{text}\n```", request)


def test_the_two_commands_stand_as_they_are_typed() -> None:
    text = README.read_text("utf-8")
    assert re.search(r'^pip install -e "\.\[samples\]" && advisor run samples/cifar10_cnn\.py\b', text, re.MULTILINE)
    assert re.search(r'^pip install -e "\.\[samples,test\]" && pytest\b', text, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text("utf-8")):
        assert (ROOT / target).exists(), target


def test_one_screen() -> None:
    prose = [line for line in README.read_text("utf-8").split("## What it looks for")[0].splitlines() if line.strip()]
    assert len(prose) <= 80
