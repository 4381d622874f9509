"""Workflows and forms of GitHub: they parse, name what exists, and nothing is released before the tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="needs PyYAML, which the extra `docs` brings")

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
FILES = sorted(GITHUB.rglob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return loaded


def needed(jobs: dict[str, Any], name: str) -> set[str]:
    """The jobs that have to succeed before this one, directly or not."""
    needs = jobs[name].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(needed(jobs, one) for one in direct))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(GITHUB).as_posix())
def test_it_parses_and_what_it_uses_has_a_version(path: Path) -> None:
    assert isinstance(read(path), dict)
    for used in re.findall(r"^\s*(?:- )?uses: *(\S+)", path.read_text("utf-8"), re.MULTILINE):
        if used.startswith("./"):
            assert (ROOT / used).exists(), used
        else:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+(\.\d+)*|release/v\d+)", used), used


def test_a_release_needs_a_tag_and_every_other_job() -> None:
    release = read(GITHUB / "workflows" / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    jobs = release["jobs"]
    publish = jobs["publish"]
    assert needed(jobs, "publish") == jobs.keys() - {"publish"}
    assert publish["environment"] == "pypi"
    assert publish["permissions"]["id-token"] == "write"
    # No other job may write anything.
    rights = [release["permissions"], *(job.get("permissions", {}) for name, job in jobs.items() if name != "publish")]
    assert {right for one in rights for right in one.values()} == {"read"}


def test_ci_can_be_asked_for_by_the_release() -> None:
    assert {"pull_request", "workflow_call"} <= read(GITHUB / "workflows" / "ci.yml")[True].keys()


def test_paths_of_the_workflows_exist() -> None:
    for path in (GITHUB / "workflows").glob("*.yml"):
        for named in re.findall(r"\b(?:tests|\.ci)/[\w/.-]+", path.read_text("utf-8")):
            assert (ROOT / named).exists(), f"{path.name}: {named}"
