"""A third party's pack brings a rule, a broken rule, a stray module and a reporter, through the ordinary doors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
ENTRY_POINTS = """\
[advisor.rules]
acme = acme.rules
gone = acme_that_does_not_exist.rules

[advisor.reports]
slogan = acme.slogan:render
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder as pip would leave it: the package beside its metadata."""
    site = tmp_path / "site"
    shutil.copytree(HERE / "packs" / "acme", site / "acme")
    metadata = site / "acme_pack-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-pack\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    from advisor.api import draw

    path = tmp_path / "step.pt.trace.json"
    drawing = "step [1         ][2         ]\ncpu  [F ]         [F ]"
    path.write_text(json.dumps(dict(draw(drawing, us=100))))
    return path


def advisor(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "advisor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=site.parent, check=False)


def test_a_pack_brings_rules_and_a_reporter(site: Path, trace: Path) -> None:
    done = advisor(site, "analyze", str(trace), "--format", "json")
    assert done.returncode == 0, done.stderr
    outcomes = {outcome["rule"]: outcome for outcome in json.loads(done.stdout)["outcomes"]}
    assert outcomes["long-step"]["status"] == "found"
    assert "more than the 500 µs" in outcomes["long-step"]["findings"][0]["message"]
    assert outcomes["broken-rule"]["status"] == "error"
    assert outcomes["broken-rule"]["reason"].startswith("ZeroDivisionError: one rule broke")
    assert outcomes["not-a-rule"]["status"] == "error"
    assert "no function check" in outcomes["not-a-rule"]["reason"]
    assert "failed to load" in outcomes["gone"]["reason"]
    assert outcomes["small-batch"]["status"] != "error", "a broken neighbour must not touch the others"

    slogan = advisor(site, "analyze", str(trace), "--format", "slogan")
    assert slogan.stdout.startswith("ACME: "), slogan.stderr


@pytest.mark.complete
def test_thresholds_of_a_pack_are_configured_like_ours(site: Path, trace: Path) -> None:
    (site.parent / "pyproject.toml").write_text("[tool.torch-advisor.rules.long-step]\nbudget_us = 5000.0\n")
    done = advisor(site, "analyze", str(trace), "--format", "json")
    outcomes = {outcome["rule"]: outcome for outcome in json.loads(done.stdout)["outcomes"]}
    assert outcomes["long-step"]["status"] == "clear"

    (site.parent / "pyproject.toml").write_text("[tool.torch-advisor.rules.long-step]\nbudget_ms = 5\n")
    done = advisor(site, "analyze", str(trace))
    assert done.returncode == 2
    assert "did you mean 'budget_us'?" in done.stderr


@pytest.mark.complete
def test_a_pack_may_sort_its_rules_into_families(site: Path, trace: Path) -> None:
    listed = advisor(site, "rules").stdout
    family = listed.split("\n\n")[[block.split("\n")[0] for block in listed.split("\n\n")].index("Storage")]
    assert [line.split()[0] for line in family.splitlines()[1:]] == ["local-disk", "network-disk"]
    assert "Family: Storage." in advisor(site, "explain", "local-disk").stdout

    done = advisor(site, "analyze", str(trace), "--format", "json")
    outcomes = {outcome["rule"]: outcome for outcome in json.loads(done.stdout)["outcomes"]}
    assert outcomes["local-disk"]["status"] == "clear"
    assert outcomes["network-disk"]["status"] == "clear", "a rule that is written with former names of advisor.api"
    assert outcomes["absent"]["status"] == "error"
    assert "the package acme.rules.absent failed to load" in outcomes["absent"]["reason"]


@pytest.mark.complete
def test_explain_and_rules_know_the_pack(site: Path) -> None:
    assert "agreed in the team" in advisor(site, "explain", "long-step").stdout
    assert "long-step" in advisor(site, "rules").stdout
    wrong = advisor(site, "explain", "long-stop")
    assert wrong.returncode == 2
    assert wrong.stderr == "advisor: unknown rule 'long-stop'; did you mean 'long-step'?\n"
