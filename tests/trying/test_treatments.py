"""Treatments: how they are written, joined and given to a side, and that rules name none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.capture.inside.treatments.apply import TREATMENTS
from advisor.fixing import edits
from advisor.gate.pairs import Side
from advisor.model import Treatment
from advisor.trying import treatments

RULES = Path(__file__).parents[2] / "rules"
DECLARED = re.compile(r'\bTreatment\(\s*"(\w+)"')


def test_variables_of_the_environment_are_set_in_the_sides_environment() -> None:
    script = Side("base", ("python", "train.py"), Path(), {"SLOW": "1"})
    side = treatments.treated(script, [Treatment("environment", {"SLOW": None, "NEW": "2"})])
    assert "SLOW" not in side.env
    assert side.env["NEW"] == "2"
    assert [one["name"] for one in side.settings["treatments"]] == ["seeds", "environment"]  # looked at, not set


def test_words_of_a_treatment_are_read_back() -> None:
    for one in (
        Treatment("loader", {"num_workers": 2, "persistent_workers": True}),
        Treatment("calls", {"names": ["gc.collect", "torch.cuda.synchronize"]}),
        Treatment("matmul_precision", {"precision": "high"}),
        Treatment("set_to_none"),
    ):
        assert treatments.parse(treatments.words(one)) == one
    with pytest.raises(Exception, match="there is no treatment 'magic'"):
        treatments.parse("magic:wand=1")


def test_treatments_of_one_name_are_joined() -> None:
    both = treatments.merged(
        [
            Treatment("loader", {"num_workers": 2}),
            Treatment("calls", {"names": ["gc.collect"]}),
            Treatment("loader", {"num_workers": 4, "pin_memory": True}),
            Treatment("calls", {"names": ["torch.cuda.synchronize"]}),
        ]
    )
    assert both == (
        Treatment("loader", {"num_workers": 2, "pin_memory": True}),
        Treatment("calls", {"names": ["gc.collect", "torch.cuda.synchronize"]}),
    )


def test_rules_name_treatments_that_exist() -> None:
    assert {*TREATMENTS, "environment"} - {"seeds"} == set(treatments.NAMES)
    declared = [name for path in RULES.rglob("*.py") for name in DECLARED.findall(path.read_text("utf-8"))]
    assert len(declared) > 20
    assert set(declared) <= set(treatments.NAMES) | set(edits.NAMES)
