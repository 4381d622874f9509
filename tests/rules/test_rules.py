"""Every rule: its examples, its page, its thresholds, and the words it uses."""

import inspect
import re

import pytest
from msgspec.structs import replace

from advisor.analyses.base.scale import Scale
from advisor.analyses.step.breakdown import Breakdown
from advisor.api import Finding, Saving
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.engine.rule import SECTIONS, Example
from advisor.testing import ExampleError, check_example, computed, examples

RULES = load_rules().rules
BUILTIN = [rule for rule in RULES if rule.pack == "builtin"]
CASES = [(rule, example) for rule in BUILTIN for example in rule.examples]
FOUND = [(rule, example) for rule, example in CASES if example.saves_us is not None]
OWNERS = {
    "idle_input": "input-bound",
    "input": "input-bound",
    "idle_sync": "sync-in-loop",
    "idle_host": "idle-gpu",
    "idle_unknown": "idle-gpu",
    "exposed_communication": "exposed-communication",
    "communication": "exposed-communication",
}
MISSION = {
    "idle-gpu",
    "input-bound",
    "pageable-copies",
    "blocking-copies",
    "small-batch",
    "fp32-matmul",
    "exposed-communication",
    "sync-in-loop",
    "launch-bound",
    "loop-optimizer",
    "unused-accelerator",
    "thread-oversubscription",
}


def of_rule(rule):
    """As its file is called, which is what `pytest -k` takes."""
    return rule.id.replace("-", "_")


def of_case(value):
    return of_rule(value) if hasattr(value, "id") else value.title.replace(" ", "-")


@pytest.mark.parametrize(("rule", "example"), CASES, ids=of_case)
def test_example(rule, example):
    known = computed(example)
    for finding in check_example(rule, example, known):
        is_one_sentence_with_numbers(finding.message)
        saves_no_more_than_it_claims(finding, known)
        has_parts_of_its_own(rule, finding)
        can_be_copied(finding.fix)


def is_one_sentence_with_numbers(message):
    assert re.search(r"\d", message)
    assert message.endswith(".")
    assert "\n" not in message
    assert "nan" not in message.lower()
    assert len(message) < 300


def saves_no_more_than_it_claims(finding, known):
    if not finding.saving:
        return
    scale, breakdown = known.get(Scale), known.get(Breakdown)
    assert finding.saving.how
    assert finding.saving.high_us <= (finding.run_us or scale.step_us)
    if finding.claims:
        parts_us = {part.id: part.us * scale.factor for part in breakdown.items}
        claimed_us = sum(parts_us.get(part, 0.0) for part in finding.claims)
        assert finding.saving.high_us <= claimed_us * 1.001


def has_parts_of_its_own(rule, finding):
    # What the one shrinks is the whole fixed part of the step; after a wait the device idles wherever the host is late.
    if rule.id in ("small-batch", "sync-in-loop"):
        return
    for part in finding.claims:
        # idle-gpu leaves weights on the host to the one, and workers that start anew to the other
        if part != "idle_host" or rule.id not in ("loop-optimizer", "input-bound"):
            assert OWNERS.get(part, rule.id) == rule.id


def can_be_copied(fix):
    if fix is None:
        return
    assert fix.risk in ("exact", "draws", "numerics", "semantics")
    assert fix.title[0].isupper()
    assert not fix.title.endswith(".")
    assert "=None" not in fix.before + fix.after


def test_the_rules_of_the_mission_are_there_and_nothing_is_broken():
    assert {rule.id for rule in BUILTIN} >= MISSION
    assert load_rules().broken == ()


@pytest.mark.parametrize("rule", BUILTIN, ids=of_rule)
def test_the_page_has_its_four_sections_in_order(rule):
    assert tuple(re.findall(r"^## (.+)$", rule.page, re.MULTILINE)) == SECTIONS
    short = [title for title in SECTIONS if len(rule.section(title)) <= 60]
    assert not short, f"these sections of the docstring need more than 60 characters: {short}"
    assert len(rule.title) < 80


@pytest.mark.parametrize("rule", BUILTIN, ids=of_rule)
def test_the_page_is_plain_prose(rule):
    assert not re.search(
        r"\b(simply|just|easily|obviously|leverage|utilize|utilise|blazing)\b", rule.page, re.IGNORECASE
    )
    assert "!" not in rule.page
    assert "TODO" not in rule.page


@pytest.mark.parametrize("rule", BUILTIN, ids=of_rule)
def test_each_threshold_has_its_reason_beside_it(rule):
    reasons = rule.threshold_reasons()
    assert set(reasons) == set(rule.thresholds), "write the reason as a comment on the parameter's own line"
    assert all(len(reason) > 20 for reason in reasons.values())


@pytest.mark.parametrize("rule", BUILTIN, ids=of_rule)
def test_there_are_a_bad_a_good_and_a_near_miss_example(rule):
    assert any(example.saves_us is not None for example in rule.examples), "EXAMPLES has none with a saving"
    silent = [example.near_miss for example in rule.examples if example.saves_us is None]
    assert False in silent, "EXAMPLES has no good one: saves_us=None"
    assert True in silent, "EXAMPLES has no near miss: saves_us=None, near_miss=True"
    titles = [example.title for example in rule.examples]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("rule", BUILTIN, ids=of_rule)
def test_the_id_is_a_noun_phrase_of_the_problem(rule):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert not rule.id.startswith(("no-", "use-", "avoid-", "set-", "enable-"))


HEALTHY = [(rule, example) for rule, example in CASES if example.saves_us is None and not example.near_miss]


@pytest.mark.parametrize(("rule", "example"), HEALTHY, ids=of_case)
def test_no_rule_breaks_on_the_examples_of_another(rule, example):
    known = computed(example)
    for other in BUILTIN:
        assert apply(other, known, {}).status != "error", apply(other, known, {}).reason


@pytest.mark.parametrize("rule", BUILTIN, ids=of_rule)
def test_a_check_reads_as_a_list_of_what_it_needs(rule):
    source = inspect.getsource(inspect.getmodule(rule.check))
    assert "advisor." not in re.sub(r"^from advisor\.api import", "", source, flags=re.MULTILINE).replace(
        "advisor.api", ""
    )


def test_check_example_tells_a_wrong_claim():
    rule, example = FOUND[0]
    wrong = replace(example, saves_us=None, says=())
    with pytest.raises(ExampleError, match="should find nothing"):
        check_example(rule, wrong)
    silent, quiet = next((rule, example) for rule, example in CASES if example.saves_us is None)
    with pytest.raises(ExampleError, match="should find something"):
        check_example(silent, replace(quiet, saves_us=(0, 1)))


@pytest.mark.parametrize(
    ("saving", "claim", "fits"),
    [
        ((100, 200), (100, 200), True),
        ((99, 200), (100, 200), False),
        ((100, 201), (100, 200), False),
        (None, "unknown", True),
        ((0, 1), "unknown", False),
        (None, (0, 1), False),
    ],
)
def test_both_ends_of_a_saving_lie_in_the_claimed_range(saving, claim, fits):
    made = Saving(*saving, "modelled", "drawn") if saving else None

    def check():
        yield Finding("1 thing.", saving=made)

    rule = replace(BUILTIN[0], check=check)
    example = Example("drawn", BUILTIN[0].examples[0].trace, saves_us=claim)
    if fits:
        check_example(rule, example)
    else:
        with pytest.raises(ExampleError, match="claims a saving within"):
            check_example(rule, example)


def test_examples_can_be_had_by_pack():
    assert {rule.pack for rule, _ in examples("builtin")} == {"builtin"}
    assert list(examples("no such pack")) == []
