"""`advisor gate history`: the file, and changes of level in simulated series."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports_fixtures import canonical

from advisor import cli
from advisor.gate.history.change_points import LEAST, shifts
from advisor.gate.history.results_file import Entry, append, read
from advisor.gate.history.texts import sparkline
from advisor.report.report_file import encode


def entry(commit: str, us: float, **changes: Any) -> Entry:
    where = {"torch": "2.15"}
    one = Entry(commit, "2026-11-23T00:00:00+00:00", "train.py", where, {"step_time_us": us}, {"step_time_us": "us"})
    return replace(one, **changes)


def record(path: Path, values: list[float]) -> None:
    for number, us in enumerate(values):
        append(path, entry(f"{number:040x}", us))


def noisy(count: int, sd: float, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, sd, count)


def test_flat_series_raise_few_false_alarms() -> None:
    alarms = sum(bool(shifts(noisy(60, 0.01, seed))) for seed in range(200))
    # One in a hundred is meant; 7 of 200 or more happen in 0.5 % of such samples.
    assert alarms < 7


def test_a_step_of_three_per_cent_is_found_where_it_is() -> None:
    step = 0.03 * (np.arange(60) >= 30)
    found = [shifts(noisy(60, 0.01, seed) + step) for seed in range(20)]
    assert sum(len(one) == 1 and one[0].kind == "step" and abs(one[0].last - 30) <= 2 for one in found) >= 16
    assert all(math.isclose(one[0].after - one[0].before, 0.03, abs_tol=0.012) for one in found if len(one) == 1)


@pytest.mark.complete
def test_a_drift_that_no_pair_shows_is_named_with_its_range() -> None:
    ramp = 0.003 * np.clip(np.arange(60) - 14, 0, 30)
    found = [shifts(noisy(60, 0.01, seed) + ramp) for seed in range(12)]
    drifts = [one[0] for one in found if len(one) == 1 and one[0].kind == "drift"]
    assert len(drifts) >= 10
    near = [abs(one.first - 14) <= 5 and abs(one.last - 44) <= 5 for one in drifts]
    assert sum(near) >= 9
    assert all(one.after - one.before == pytest.approx(0.09, abs=0.02) for one in drifts)


def test_an_outlier_is_no_level_and_few_values_say_nothing() -> None:
    values = noisy(40, 0.01, 5)
    values[20] += 0.5
    assert not shifts(values)
    assert not shifts(np.r_[np.zeros(LEAST // 2), np.ones(LEAST // 2 - 1)])
    assert shifts(np.r_[np.zeros(LEAST // 2 + 1), np.ones(LEAST // 2 + 1)])


def test_equal_values_have_no_change() -> None:
    assert not shifts(np.zeros(30))


def test_a_damaged_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    record(path, [100.0, 101.0])
    with path.open("ab") as file:
        file.write(b'{"commit": "cut of')  # a process that was killed, or a full disk
    append(path, entry("c", 102.0))
    with path.open("ab") as file:
        file.write(b'\xff\xfe\n{"schema": "other"}\n')
    append(path, entry("d", 103.0, version=99))
    entries, said = read(path)
    assert [one.metrics["step_time_us"] for one in entries] == [100.0, 101.0, 102.0]
    assert [re.findall(r"line (\d+)", one) for one in said] == [["3"], ["5"], ["6"], ["7"]]


MANY = """
import sys
from pathlib import Path
from advisor.gate.history.results_file import Entry, append
for number in range(50):
    one = Entry(f"{sys.argv[2]}-{number}", "2026-11-23T00:00:00+00:00", "train.py", {}, {"step_time_us": 1.0}, {})
    append(Path(sys.argv[1]), one)
"""


def test_processes_that_append_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    processes = [subprocess.Popen([sys.executable, "-c", MANY, str(path), str(who)]) for who in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    entries, said = read(path)
    assert not said
    assert len({one.commit for one in entries}) == 150


def test_the_command_adds_shows_and_fails_on_a_slowdown(tmp_path: Path, capsys: Any) -> None:
    report = tmp_path / "report.json"
    report.write_bytes(encode(canonical()))
    path = tmp_path / "h.jsonl"
    options = ["--history", str(path)]
    assert cli.main(["gate", "history", "add", str(report), "--commit", "abc", *options]) == 0
    assert cli.main(["gate", "history", *options]) == 3  # one result judges nothing
    assert "not judged: changes are searched for in 10 or more commits" in capsys.readouterr().out
    path.unlink()
    rng = random.Random(1)
    record(path, [1e4 * (1 + rng.gauss(0, 0.005)) * (1.05 if n >= 15 else 1.0) for n in range(30)])
    assert cli.main(["gate", "history", "show", *options]) == 1
    out = capsys.readouterr().out
    assert re.search(r"worse: \+[45]\.\d % \(.*\) between 0{10} and 0{10}, p = 0\.001", out)
    assert cli.main(["gate", "history", *options, "--since", f"{20:040x}"]) == 0
    assert cli.main(["gate", "history", *options, "--since", "zzz"]) == 2
    capsys.readouterr()
    assert cli.main(["gate", "history", *options, "--format", "json"]) == 1
    held = json.loads(capsys.readouterr().out)
    assert held["series"][0]["changes"][0]["at"] == [14, 15]
    page = tmp_path / "h.html"
    assert cli.main(["gate", "history", *options, "-o", str(page)]) == 1
    assert page.read_text("utf-8").count("<circle") == 30


def test_results_of_one_commit_are_one_point_and_environments_are_apart(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "h.jsonl"
    for us in (90.0, 100.0, 200.0):
        append(path, entry("a", us))
    append(path, entry("b", 110.0))
    append(path, entry("a", 50.0, fingerprint={"torch": "2.14"}))
    assert cli.main(["gate", "history", "--history", str(path), "--format", "json"]) == 3
    series = json.loads(capsys.readouterr().out)["series"]
    assert [[(p["commit"], p["value"], p["count"]) for p in one["points"]] for one in series] == [
        [("a", 100.0, 3), ("b", 110.0, 1)],
        [("a", 50.0, 1)],
    ]


def test_a_sparkline_has_a_block_for_each_value() -> None:
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert sparkline([3.0, 3.0]) == "▁▁"
