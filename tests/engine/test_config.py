"""Configuration: every unknown key is an error that names the nearest known one."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import config
from advisor.engine.ask_rules import choose
from advisor.engine.registry import load_rules
from advisor.errors import UsageError


def written(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_the_nearest_file_with_our_table_counts(tmp_path: Path) -> None:
    written(tmp_path, '[tool.torch-advisor]\nignore = ["small-batch"]\n')
    inner = tmp_path / "src" / "pkg"
    inner.mkdir(parents=True)
    written(inner, "[project]\nname = 'x'\n")
    assert config.find(inner).ignore == {"small-batch": ""}


def test_no_file_means_defaults(tmp_path: Path) -> None:
    assert config.find(tmp_path) == config.Config()


def test_ignore_may_carry_reasons(tmp_path: Path) -> None:
    written(tmp_path, '[tool.torch-advisor.ignore]\nfp32-matmul = "double checked with the physicists"\n')
    assert config.find(tmp_path).ignore == {"fp32-matmul": "double checked with the physicists"}


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    found = config.find(written(tmp_path, page.split("```toml\n")[1].split("```")[0]))
    assert found.ignore == {"small-batch": "the batch size is that of the paper"}
    assert found.thresholds == {"host-work": {"min_share": 0.05}}
    rules = load_rules()
    assert {rule.id for rule in rules.rules} - {rule.id for rule in choose(rules, found)} == {"small-batch"}


@pytest.mark.parametrize("value", ['"5%"', "true", "[0.05]"])
def test_a_threshold_is_a_number(tmp_path: Path, value: str) -> None:
    found = config.find(written(tmp_path, f"[tool.torch-advisor.rules.small-batch]\nmin_gain = {value}\n"))
    with pytest.raises(UsageError, match=r"^pyproject\.toml: threshold min_gain of small-batch must be a number"):
        choose(load_rules(), found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.torch-advisor]\nignroe = []\n", "did you mean 'ignore'?"),
        ('[tool.torch-advisor]\nselect = "small-batch"\n', "must be a list of rule ids"),
        ("[tool.torch-advisor]\nrules = 3\n", "must hold one table per rule"),
        ("[tool]\ntorch-advisor = 3\n", "must be a table"),
        ("[tool.torch-advisor\n", "not readable as TOML"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as mistake:
        config.find(written(tmp_path, text))
    assert words in str(mistake.value)
    assert "pyproject.toml" in str(mistake.value)
    assert "\n" not in str(mistake.value)
