"""Fresh scripts: each is declared, differs from its mended one in the fault alone, and its line can be found."""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmark_modules import benchmark, steps_made

FRESH = Path(__file__).parents[1] / "fresh"
BATCHES = sorted(FRESH.glob("batch_*"))
OF_BATCH = {batch: tomllib.loads((batch / "fresh.toml").read_text("utf-8")) for batch in BATCHES}
DECLARED = {name: facts for declared in OF_BATCH.values() for name, facts in declared.items()}
FOLDERS = {name: batch / name for batch, declared in OF_BATCH.items() for name in declared}
HEALTHY = sorted(FRESH.glob("batch_*/healthy/*.py"))
KINDS = {
    "input", "host", "model", "optimizer", "precision", "memory", "run", "threads", "loss", "metrics", "settings",
    "distributed", "batch", "drift",
}  # fmt: skip


def test_every_folder_is_declared_and_every_declaration_has_its_files() -> None:
    for batch, declared in OF_BATCH.items():
        folders = {path.name for path in batch.iterdir() if path.is_dir() and path.name != "__pycache__"}
        assert folders - {"healthy"} == set(declared)
    assert all((folder / f"{role}.py").is_file() for folder in FOLDERS.values() for role in ("slow", "fixed"))
    assert len(DECLARED) == sum(map(len, OF_BATCH.values())) >= 40
    assert len({path.name for path in HEALTHY}) == len(HEALTHY) >= 10


@pytest.mark.parametrize("name", DECLARED)
def test_a_declaration_is_whole_and_its_line_is_in_slow_once(name: str) -> None:
    facts = DECLARED[name]
    assert {"source", "fault", "line", "kind", "names"} <= set(facts)
    assert set(facts) <= {"source", "fault", "line", "kind", "names", "launcher", "work", "over"}
    assert facts["kind"] in KINDS
    assert facts.get("over", "run") == "run"
    assert len(facts["fault"]) > 20
    slow = (FOLDERS[name] / "slow.py").read_text("utf-8").splitlines()
    assert [facts["line"] in line for line in slow].count(True) == 1


@pytest.mark.parametrize("name", DECLARED)
def test_the_two_scripts_differ_in_the_fault_alone(name: str) -> None:
    slow, fixed = ((FOLDERS[name] / f"{role}.py").read_text("utf-8").splitlines() for role in ("slow", "fixed"))
    assert slow != fixed
    shared = difflib.SequenceMatcher(None, slow, fixed, autojunk=False).get_matching_blocks()
    size = sum(block.size for block in shared)
    assert len(slow) - size <= 16  # a loss that is computed in three nested loops
    assert len(fixed) - size <= 14


def test_no_script_knows_of_profilers_or_of_us() -> None:
    for path in FRESH.rglob("*.py"):
        text = path.read_text("utf-8").lower()
        assert not [word for word in ("profil", "advisor", "record_function") if word in text], path


# A convolution of three channels by one place, with a stride of 2 and channels last: its backward pass ends torch
# 2.14.1 with a segmentation fault on processors with AVX2 alone (rules/kernels/channels_first_convolutions.py).
_CRASHING = ("wafer_maps", "tomato_leaves")


@pytest.mark.torch
@pytest.mark.complete  # some 25 scripts, each started, trained for two steps and ended
def test_every_fourth_script_of_one_process_trains() -> None:
    """They are a hundred, of which the benchmark runs all to their end: tests/benchmarks/pairs/fresh.py."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    scripts = [
        FOLDERS[name] / f"{role}.py"
        for name, facts in DECLARED.items()
        for role in ("slow", "fixed")
        if "launcher" not in facts
    ]
    # Those of several ranks are started by torchrun.
    healthy = [path for path in HEALTHY if not path.stem.startswith("ddp_")]
    scripts = [*scripts, *healthy][::4]
    left = {path: names for path in scripts if (names := _missing(path))}
    if left:
        warnings.warn(f"left out, as packages that they import are not installed: {left}", stacklevel=1)
    # Ranks that a script starts by itself make their steps in processes of their own.
    scripts = [path for path in scripts if path not in left and "spawn" not in path.read_text("utf-8")]
    crash = {path for path in scripts if path.parent.name in _CRASHING or path.stem in _CRASHING}
    if crash and torch.backends.cpu.get_cpu_capability() == "AVX2":
        warnings.warn(f"left out, as torch crashes in them on this processor: {crash}", stacklevel=1)
        scripts = [path for path in scripts if path not in crash]
    assert steps_made(scripts, 2) == dict.fromkeys(map(str, scripts), 2)


def _missing(script: Path) -> list[str]:
    """Packages that a script imports and that are not installed here: logs and frameworks, no need of the tests."""
    text = script.read_text("utf-8")
    # torch.utils.tensorboard imports what it needs by itself.
    names = {*re.findall(r"^\s*(?:from|import)\s+(\w+)", text, re.MULTILINE)}
    names |= {"tensorboard"} if "tensorboard" in text else set()
    mine = {path.stem for path in script.parent.iterdir()}
    return sorted(name for name in names - mine if find_spec(name) is None)


def finding(rule: str, low: float, high: float, line: int) -> dict[str, object]:
    """A finding of a report whose step takes 1 ms."""
    return {
        "saving": {"low_us": low, "high_us": high},
        "where": [{"file": "/somewhere/slow.py", "line": line}],
        "message": rule,
    }


def report(*found: dict[str, object]) -> dict[str, object]:
    """An advised entry with these findings, each of its own rule."""
    outcomes = [{"rule": f["message"], "status": "found", "findings": [f]} for f in found]
    return {"metrics": {"step_time_us": 1000.0}, "outcomes": outcomes}


def test_a_script_is_judged_by_its_line_and_by_the_names_that_a_person_gave() -> None:
    fresh = benchmark("fresh")
    name, facts = next(iter(DECLARED.items()))
    line = fresh.fault_line(name, facts["line"])
    measured = {"slow_us": [1000.0], "fixed_us": [700.0], "saving": 0.3, "low": 0.2, "high": 0.4}
    result = {"name": name, "kind": "fresh", "facts": {**facts, "names": ["b"]}, "measured": measured}
    slow = report(finding("a", 300, 500, line + 1), finding("b", 250, 350, line), finding("c", 0, 10, line))
    row = fresh.judged({**result, "advised": {"slow": slow, "fixed": report(finding("a", 0, 60, 1))}})
    assert (row["named"], row["named_first"], row["line_any"], row["line_first"]) == (True, False, True, False)
    assert (row["inside"], row["wrong"], row["counts"]) == (True, False, True)
    assert [f["rule"] for f in row["findings"]] == ["a", "b"]
    assert [f["rule"] for f in row["on_fixed"]] == ["a"]
    missed = fresh.judged({**result, "advised": {"slow": report(finding("a", 300, 500, line + 1)), "fixed": report()}})
    assert (missed["named"], missed["line_any"], missed["inside"]) == (False, False, None)
    table = fresh.document([{**result, "advised": {"slow": slow, "fixed": report()}}])
    assert "| measured inside the range promised at the line | 1 of 1 (100 %) |" in table
    assert "| mean width of these ranges | 10 points |" in table


def test_the_time_of_a_run_counts_what_lies_between_steps() -> None:
    measure = benchmark("pair_measure")
    ends = [0.010 * step + 1.0 * (step >= 50) for step in range(105)]
    assert measure.step_us(ends) == pytest.approx(10_000)
    assert measure.run_us(ends) == pytest.approx((0.99 + 1.0) / 99 * 1e6)
