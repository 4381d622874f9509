"""The seeded pairs, healthy scripts and controls: each runs, each pair differs in its fault alone, each is declared."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from benchmark_modules import BENCHMARKS, benchmark, steps_made

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
FAULTS = tomllib.loads((SAMPLES / "pairs" / "faults.toml").read_text("utf-8"))
PAIRS = {f"pairs/{name}": ("slow.py", "fixed.py") for name in FAULTS}
CONTROLS = {
    f"controls/{folder.name}": ("plain.py", "popular_fix.py")
    for folder in sorted((SAMPLES / "controls").iterdir())
    if folder.is_dir()
}
SCRIPTS = [SAMPLES / folder / name for folder, names in (PAIRS | CONTROLS).items() for name in names]
SCRIPTS += sorted((SAMPLES / "healthy").glob("*.py"))
STEPS = 2  # the second one runs on what the first has set up


def test_every_folder_of_pairs_is_declared_and_every_declaration_has_a_folder() -> None:
    folders = {path.name for path in (SAMPLES / "pairs").iterdir() if path.is_dir()}
    assert folders == set(FAULTS)
    assert len(FAULTS) >= 30
    assert sum(facts["shows_on"] == "cpu" for facts in FAULTS.values()) >= 20


@pytest.mark.parametrize("name", FAULTS)
def test_a_declaration_is_whole_and_its_line_is_in_slow(name: str) -> None:
    facts = FAULTS[name]
    assert facts["rules"]
    assert facts["shows_on"] in ("cpu", "gpu")
    assert facts["risk"] in ("exact", "numerics", "semantics")
    assert set(facts) <= {"rules", "line", "shows_on", "risk", "work", "launcher", "also", "left", "held_out"}
    assert all(len(why) > 20 for key in ("also", "left") for why in facts.get(key, {}).values())
    texts = [facts["line"]] if isinstance(facts["line"], str) else facts["line"]
    slow = (SAMPLES / "pairs" / name / "slow.py").read_text("utf-8")
    assert [text for text in texts if text in slow] == texts


def test_held_out_scripts_are_marked_and_exist() -> None:
    others = tomllib.loads((SAMPLES / "held_out.toml").read_text("utf-8"))
    assert sum(facts.get("held_out", False) for facts in FAULTS.values()) >= 20
    assert all((SAMPLES / "healthy" / f"{name}.py").is_file() for name in others["healthy"])
    assert all((SAMPLES / "controls" / name).is_dir() for name in others["controls"])


@pytest.mark.parametrize("folder", [*PAIRS, *CONTROLS])
def test_the_two_scripts_share_everything_but_the_fault(folder: str) -> None:
    slow, fixed = ((SAMPLES / folder / name).read_text("utf-8").splitlines() for name in (PAIRS | CONTROLS)[folder])
    assert slow != fixed
    matches = difflib.SequenceMatcher(None, slow, fixed, autojunk=False).get_matching_blocks()
    shared = sum(block.size for block in matches)
    # A hand-written optimizer is the longest fault: 23 lines of 52.
    assert len(slow) - shared <= 26
    assert len(fixed) - shared <= 8


def test_no_script_knows_of_profilers_or_of_us() -> None:
    for path in SCRIPTS:
        text = path.read_text("utf-8").lower()
        assert not [word for word in ("profil", "advisor", "record_function") if word in text], path


# What oneDNN says of bfloat16 on processors without AVX-512: the script runs on others.
NO_BFLOAT16 = "could not create a primitive descriptor for the LSTM"


@pytest.mark.torch
@pytest.mark.complete  # some 50 scripts, each started, trained for two steps and ended
def test_every_eighth_script_trains() -> None:
    """They are 370, of which the benchmark runs all to their end: tests/benchmarks/pairs/pairs.py."""
    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    alone = [path for path in SCRIPTS if FAULTS.get(path.parent.name, {}).get("launcher") != "torchrun"][::8]
    steps = steps_made(alone, STEPS)
    able = [path for path in map(str, alone) if NO_BFLOAT16 not in str(steps[path])]
    assert len(able) >= len(alone) - 1
    assert {path: steps[path] for path in able} == dict.fromkeys(able, STEPS)


@pytest.mark.torch
@pytest.mark.complete  # torchrun starts three interpreters, twice
@pytest.mark.parametrize("name", [name for name, facts in FAULTS.items() if facts.get("launcher") == "torchrun"])
def test_pairs_of_two_ranks_train(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    timer = str(BENCHMARKS / "pairs" / "step_times.py")
    for script in ("slow.py", "fixed.py"):
        out = tmp_path / f"{script}.json"
        words = [timer, "--steps", "1", str(out), str(SAMPLES / "pairs" / name / script)]
        done = subprocess.run(
            [*launcher, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(json.loads(out.read_text("utf-8"))) == 1
        assert (tmp_path / f"{script}.json.1").exists()


def test_the_step_time_of_a_process_sees_rare_work_and_forgets_one_burst() -> None:
    measure = benchmark("pair_measure")
    ends, now = [], 0.0
    for step in range(106):
        now += 0.010 + (0.050 if step % 5 == 0 else 0.0)  # 10 ms, and 50 ms more every fifth step: 20 ms in the mean
        now += 3.0 if step == 50 else 0.0
        ends.append(now)
    assert measure.step_us(ends) == pytest.approx(20_000)


def test_the_interval_of_a_saving_is_students_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = benchmark("pair_measure")
    times = {"slow": iter([100.0, 110.0, 90.0]), "fixed": iter([160.0, 150.0, 140.0])}
    monkeypatch.setattr(measure, "timed", lambda paths, launcher, of: [next(times[path.stem]) for path in paths])
    result = measure.measure((Path("slow"), Path("fixed")), 3, "", 2.0)
    # By hand: log ratios of 80/100, 75/110, 70/90; mean -0.28581, sd 0.08533; t(2) = 4.30, so ± 0.21184.
    assert result["saving"] == pytest.approx(0.24859, abs=1e-4)
    assert result["low"] == pytest.approx(0.0713, abs=1e-3)
    assert result["high"] == pytest.approx(0.3921, abs=1e-3)


SPINS = """
import sys, time
ends, left = [], int(sys.argv[1])
while left:
    until = time.process_time() + 0.01
    while time.process_time() < until:
        pass
    ends.append(time.perf_counter())
    left -= 1
print(ends)
"""


def test_scripts_in_turns_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = benchmark("in_turns")
    monkeypatch.setattr(turns, "TURN_S", 0.1)

    class Spinning:
        def __init__(self, steps: int) -> None:
            words = [sys.executable, "-c", SPINS, str(steps)]
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            self.pid = self.process.pid

        def ended(self) -> bool:
            return self.process.poll() is not None

    scripts = [Spinning(60), Spinning(90)]
    stopped = turns.run(scripts, 60)
    ends = [json.loads(script.process.communicate()[0]) for script in scripts]
    for mine, others in zip(stopped, reversed(ends), strict=True):
        assert len(mine) > 3
        # Whoever is stopped ends no step meanwhile, and the other one does.
        assert any(since < end < to for since, to in mine for end in others)
    for mine, own in zip(stopped, ends, strict=True):
        assert not any(since + 0.02 < end < to for since, to in mine for end in own)
        kept = turns.without(own, mine)
        gone = sum(to - since for since, to in mine if own[0] < to <= own[-1])
        assert gone > 0.2
        assert kept[-1] - kept[0] == pytest.approx(own[-1] - own[0] - gone)
        assert kept == sorted(kept)


def test_a_script_that_hangs_beside_another_one_is_ended() -> None:
    turns = benchmark("in_turns")

    class Sleeping:
        def __init__(self) -> None:
            self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            self.pid = self.process.pid

        def ended(self) -> bool:
            return self.process.poll() is not None

    scripts = [Sleeping(), Sleeping()]
    with pytest.raises(TimeoutError, match="not ended after 1 s"):
        turns.run(scripts, 1)
    assert [script.process.wait(10) for script in scripts] == [-9, -9]


def report(rule: str, low: float, high: float, line: int = 1) -> dict[str, object]:
    """An advised entry with one finding on a step of 1 ms."""
    place = {"file": "slow.py", "line": line}
    saving = {"low_us": low, "high_us": high}
    found = {"saving": saving, "where": [place], "message": ""}
    return {
        "metrics": {"step_time_us": 1000.0},
        "outcomes": [
            {"rule": rule, "status": "found", "findings": [found]},
            {"rule": "b", "status": "clear", "findings": []},
        ],
    }


def test_a_pair_is_judged_by_its_own_rule_only() -> None:
    table = benchmark("pair_table")
    measured = {"slow_us": [1000.0], "fixed_us": [800.0], "saving": 0.2, "low": 0.1, "high": 0.3}
    result = {
        "name": "x",
        "kind": "pair",
        "facts": {"rules": ["a"]},
        "measured": measured,
        "advised": {"slow": report("a", 100, 260), "fixed": report("b", 0, 50)},
    }
    row = table.judged(result, {"a", "b"})
    assert (row["inside"], row["silent"], row["counts"]) == (True, True, True)
    assert row["error"] == pytest.approx(0.02)
    missed = table.judged(
        {**result, "advised": {"slow": report("b", 100, 260), "fixed": report("b", 0, 5)}}, {"a", "b"}
    )
    assert missed["found"] is None
    assert missed["others"] == ["b 10-26 %"]
    loud = table.judged({**result, "advised": {"slow": report("a", 300, 400), "fixed": report("a", 0, 50)}}, {"a"})
    assert (loud["inside"], loud["silent"]) == (False, False)


def test_rank_correlation_with_ties_agrees_with_a_hand_computation() -> None:
    table = benchmark("pair_table")
    # Ranks 1 2 3.5 3.5 5 against 2 1 3 4 5: Pearson of the ranks is 8.5 / sqrt(9.5 * 10).
    pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 3.0), (3.0, 4.0), (5.0, 5.0)]
    assert table.spearman(pairs) == pytest.approx(8.5 / (9.5 * 10) ** 0.5)
