"""The page of what is covered is up to date, complete, and names what exists."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from advisor.engine.registry import load_rules

ROOT = Path(__file__).parents[2]


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "tests" / "tools" / "coverage_page.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


coverage = module()
DATA = coverage.data()
ROWS = [*DATA["rows"].items(), *DATA["pathologies"].items()]


def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--renew"):
        coverage.PAGE.write_text(coverage.page(), "utf-8")
    assert coverage.PAGE.read_text("utf-8") == coverage.page(), "renew it: python tests/tools/coverage_page.py --renew"


def test_every_rule_that_it_names_exists_and_every_rule_is_named() -> None:
    ids = {rule.id for rule in load_rules().rules if rule.pack == "builtin"}
    named = {rule for _, row in ROWS for rule in row.get("rules", ())}
    assert named <= ids, "docs/coverage.toml names rules that do not exist"
    assert ids <= named | FOR_ITSELF, "name the rule in docs/coverage.toml at the faults it finds, or in FOR_ITSELF"


# Faults that none of the other tools has a rule for.
FOR_ITSELF = {
    "copied-matrices",
    "derivatives-one-by-one",
    "devices-in-turn",
    "diagonal-matrices",
    "distribution-checks",
    "emulated-bf16",
    "explicit-inverses",
    "known-factors",
    "kronecker-products",
    "filled-memory",
    "frequent-decompositions",
    "full-spectra",
    "gradients-of-parts",
    "jacobian-across-batch",
    "long-filters",
    "pairs-of-rows",
    "printed-tensors",
    "repeated-clipping",
    "repeated-inputs",
    "unfolded-convolutions",
    "separable-windows",
    "sorted-gradients",
    "stacked-copies",
    "transposed-logits",
    "unshared-training-data",
}


def test_all_rows_are_there_in_order() -> None:
    counts = {"IN": 18, "HD": 13, "SY": 11, "LB": 12, "PR": 12, "BS": 10, "ME": 12, "OP": 9, "CF": 11, "LA": 5}
    counts |= {"CV": 7, "NO": 4, "CO": 21, "PP": 5, "ST": 7, "CK": 5, "GC": 5, "EN": 10, "AT": 7, "KE": 7}
    assert list(DATA["rows"]) == [f"{area}{i:02}" for area, n in counts.items() for i in range(1, n + 1)]
    assert set(counts) == set(DATA["areas"])
    assert list(DATA["pathologies"]) == [str(i) for i in range(1, 41)]


@pytest.mark.parametrize(("number", "row"), ROWS, ids=[number for number, _ in ROWS])
def test_a_row_is_covered_or_says_why_not(number: str, row: dict[str, object]) -> None:
    assert set(row) <= {"what", "rules", "by", "part", "why", "note", "sample"}
    covered = "rules" in row or "by" in row
    assert covered != ("why" in row), "covered, or not and why: one of the two"
    assert "why" not in row or row["why"] in coverage.WHY
    assert row.get("why") != "yet" or row.get("note"), "what is missing has to be said"
    assert not str(row["what"]).endswith(".")


def test_the_scripts_that_it_names_exist() -> None:
    for _, row in ROWS:
        for script in row.get("sample", ()):
            folder, _, name = script.rpartition(": ")
            assert (ROOT / "samples" / ("controls" if folder else "pairs") / name).is_dir(), script


def test_confirmed_counts_come_from_the_rules_themselves() -> None:
    known = {"a": coverage.REAL, "b": coverage.PAIR, "c": coverage.DRAWN}
    assert coverage.kind({"rules": ["c", "b"]}, known) == "confirmed"
    assert coverage.best({"rules": ["c", "b"]}, known) == coverage.PAIR
    assert coverage.kind({"rules": ["c"]}, known) == "unconfirmed"
    assert coverage.kind({"by": "a table"}, known) == "report"
    assert coverage.kind({"why": "yet"}, known) == "yet"
    assert coverage.confirmation("real trace: a ResNet") == coverage.REAL
    assert coverage.confirmation("measured pair on a CPU") == coverage.PAIR
    assert coverage.confirmation("") == coverage.DRAWN
