"""What the wheel holds, what importing costs, and what functions and docstrings must be like."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import advisor

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PYPROJECT["tool"]["setuptools"]["packages"]


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_every_package_and_data_file_is_declared() -> None:
    mapping = PYPROJECT["tool"]["setuptools"]["package-dir"]
    for top, package in (("advisor", "advisor"), ("rules", "advisor.rules"), ("reports", "advisor.reports")):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / top).parts
            dotted = ".".join((package, *parts))
            assert dotted in PACKAGES, f"{dotted} is missing from [tool.setuptools] packages: the wheel would lack it"
    for package in PACKAGES:
        home = max((name for name in mapping if f"{package}.".startswith(f"{name}.")), key=len)
        folder = mapping[home] + package.removeprefix(home).replace(".", "/")
        assert (ROOT / folder).is_dir(), f"{package} is declared but {folder} does not exist"


def test_the_wheel_installs_no_top_level_rules_or_reports() -> None:
    assert {name.split(".")[0] for name in PACKAGES} == {"advisor"}


def test_the_version_is_one_and_the_changelog_has_it() -> None:
    version = PYPROJECT["project"]["version"]
    assert version == advisor.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {version} " in (ROOT / "docs" / "changelog.md").read_text("utf-8")


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("code", ["import advisor", "from advisor.cli import build_parser; build_parser([])"])
def test_importing_costs_nothing_it_does_not_use(code: str) -> None:
    assert not loaded_after(code) & {"numpy", "pandas", "torch", "msgspec", "jinja2", "rich", "hta"}


def test_analysing_needs_no_torch_and_no_pandas() -> None:
    heavy = loaded_after("import advisor.engine.engine, advisor.commands.analyze, advisor.commands.gate")
    assert not heavy & {"torch", "pandas", "hta"}


def test_a_script_is_started_before_anything_is_imported_that_reports() -> None:
    heavy = loaded_after(
        "from advisor.cli import build_parser; from advisor.commands import _options\n"
        "import advisor.capture.launcher.launch\n"
        "args = build_parser(['run']).parse_args(['run', 'train.py'])\n"
        "_options.output_of(args); _options.config_of(args)"
    )
    assert not heavy & {"numpy", "pandas", "torch", "msgspec", "jinja2", "rich"}


def test_classes_that_each_report_needs_are_structs() -> None:
    """A dataclass compiles its methods each time that it is imported: 0.5 ms; msgspec makes a Struct in 0.02."""
    code = (
        "from advisor.commands.analyze import loaded_rules; loaded_rules()\n"
        "import sys, dataclasses\n"
        "found = {kind.__qualname__ for name, module in sys.modules.items() if name.startswith('advisor.')"
        " for kind in vars(module).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}\n"
        "print(*found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    # Parsers of commands come before msgspec; capture has the standard library alone; columns have caches that no
    # constructor takes.
    known = {"Archive", "Config", "Events", "Member", "MemoryEvents", "Output", "Pace", "ReadRank", "Reading", "Remote",
             "StepOps", "Steps", "Trace"}  # fmt: skip
    assert set(done.stdout.split()) <= known


def test_stored_reports_are_compared_without_numpy() -> None:
    gate = ", ".join(f"advisor.gate.{name}" for name in ("config", "stored", "check", "formats.outputs"))
    heavy = loaded_after(f"import {gate}")
    assert not heavy & {"numpy", "pandas", "torch", "jinja2", "rich"}


def test_everything_public_says_what_it_is() -> None:
    silent = []
    for path in modules("advisor") + modules("rules") + modules("reports"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef)
                and not node.name.startswith("_")
                and getattr(node, "col_offset", 1) == 0
                and not ast.get_docstring(node)
                and not (path.is_relative_to(ROOT / "rules") and node.name == "check")
            ):
                silent.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not silent


def test_no_function_takes_ten_parameters() -> None:
    wide = []
    for path in modules("advisor") + modules("rules") + modules("reports"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and len(node.args.args) + len(node.args.kwonlyargs) >= 10:
                wide.append(f"{path.relative_to(ROOT)}: {node.name}")
    # A rule's check asks for each analysis it needs and lists its thresholds; that is its interface.
    assert not [name for name in wide if not (name.startswith("rules/") and name.endswith(": check"))]
