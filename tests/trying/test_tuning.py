"""The search of `advisor tune` on a machine that is drawn: the ladder of batches, the knee, bans, limits and words."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from advisor import cli
from advisor.errors import UsageError
from advisor.gate.pairs import Pair, Side, SideFailedError, Spread
from advisor.gate.turns import EndedError
from advisor.model import Treatment
from advisor.trying import tune_result
from advisor.trying.knobs import Knob, of_words, treatments_of
from advisor.trying.pairing import Facts, Measured
from advisor.trying.session import Session
from advisor.trying.tune_result import Tuned
from advisor.trying.tuning import Search

SECONDS_A_PAIR = 10.0
SCRIPT = "loader = DataLoader(data, batch_size=4)\n"


class Machine:
    """A step costs 4 ms and 0.2 ms for each sample, of which the script takes four; two workers save a fifth."""

    def __init__(self, most: int = 10_000, noise: float = 0.002) -> None:
        self.most = most
        self.rng = random.Random(1)
        self.noise = noise
        self.clock = 0.0
        self.scales: list[int] = []

    def now(self) -> float:
        return self.clock

    def measure(self, base: Side, head: Side) -> Measured:
        self.clock += SECONDS_A_PAIR
        given = {one["name"]: one["arguments"] for one in head.settings["treatments"]}
        scale = given.get("batch", {}).get("scale", 1)
        self.scales.append(scale)
        if scale > self.most:
            raise SideFailedError("failed", head, EndedError(1, "RuntimeError: out of memory"))
        share = 0.8 if given.get("loader", {}).get("num_workers") == 2 else 1.0
        base_us, head_us = 4800.0, (4000 + 800 * scale) * share * math.exp(self.rng.gauss(0, self.noise))
        reached = [name for name in given if name not in ("seeds", "batch")]
        reached += [f"DataLoader: batch size {4 * scale} instead of 4"] if "batch" in given else []
        losses = [2.0, 90.0, 900.0] if "autocast" in given else [2.0, 1.5, 1.2]
        shift = given["seeds"]["shift"]
        before = Facts([2.0, 1.5, 1.2], counts={"samples": 4.0})
        after = Facts([one + shift for one in losses], tuple(reached), (), 1_000, {"samples": 4.0 * scale})
        ratio = math.log(head_us / base_us / scale)
        pair = Pair(ratio, ratio, base_us, head_us, 60, 1, False, Spread(base_us, base_us), Spread(head_us, head_us))
        return Measured(pair, before, after, SECONDS_A_PAIR)


def search(machine: Machine, budget: float = 3600.0) -> Search:
    base = Side("base", ("python", "train.py"), Path(), {})
    session = Session(base, machine.measure, budget, lambda _text: None, machine.now)
    return Search(session, [one for one in of_words((), 2, on_device=False) if one.name not in ("compile", "layout")])


@pytest.mark.parametrize(("most", "chosen"), [(10_000, "128"), (32, "32")])
def test_the_knee_and_the_memory_limit_decide_the_batch(most: int, chosen: str) -> None:
    pytest.importorskip("optuna")
    machine = Machine(most)
    one = search(machine)
    point, trial = one.run(machine.measure)
    # 256 times the batch would be 2 % faster than 128 times; 64 times is 5.5 % slower than that.
    assert point.setting == {"batch": chosen, "workers": "2"}
    assert trial is not None
    assert trial.verdict == "faster"
    truth = 1 - (4000 / int(chosen) + 800) * 0.8 / 4800
    assert trial.gain == pytest.approx(truth, abs=0.01)
    assert one.banned[("precision", "bf16")].startswith("changes training")
    assert sum(scale > most for scale in machine.scales) <= 1  # what did not fit is not asked for again
    sizes = [int(point.setting.get("batch", "1")) for point in one.curve(point.setting)]
    assert sizes == sorted(sizes)
    assert int(chosen) in sizes


def test_a_batch_that_leaves_no_memory_for_the_unchanged_script_is_the_limit() -> None:
    pytest.importorskip("optuna")

    class Shared(Machine):
        def measure(self, base: Side, head: Side) -> Measured:
            try:
                return super().measure(base, head)
            except SideFailedError as failure:
                raise SideFailedError("failed", base, EndedError(1, "RuntimeError: out of memory")) from failure

    machine = Shared(32)
    one = search(machine)
    point, _ = one.run(machine.measure)
    assert point.setting == {"batch": "32", "workers": "2"}
    assert one.points["batch x 64"].why.startswith("out of memory: the unchanged script, beside")
    curve = one.curve({"batch": "32"})
    data = tune_result.as_data(Tuned(point, None, tuple(one.points.values()), tuple(curve), {}, 60.0))
    assert data["curve"][-1] == {"batch": 64, "speed": None}  # never a speed that was not measured


def test_the_budget_ends_the_search_and_leaves_time_for_the_last_measurement() -> None:
    pytest.importorskip("optuna")
    machine = Machine()
    point, trial = search(machine, 400.0).run(machine.measure)
    assert point.setting
    assert trial is not None
    assert machine.clock <= 400.0


def test_a_budget_that_holds_no_setting_ends_the_self_test() -> None:
    pytest.importorskip("optuna")
    machine = Machine()
    one = search(machine, 50.0)
    assert one.run(machine.measure) == (one.best(), None)
    assert machine.clock == SECONDS_A_PAIR
    assert not one.points


def test_a_script_that_nothing_makes_faster_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    machine = Machine()
    one = search(machine)
    one.knobs = [Knob("threads", {"1": (Treatment("threads", {"count": 1}),)}, rounds=True)]
    point, trial = one.run(machine.measure)
    assert (point.setting, trial) == ({}, None)
    tuned = Tuned(point, trial, tuple(one.points.values()), (), {}, 60.0)
    assert "No setting is faster" in "\n".join(tune_result.as_text(tuned, None))
    nothing = Tuned(point, trial, (), (), {}, 60.0)
    assert "raise --budget" in "\n".join(tune_result.as_text(nothing, None))


def test_the_result_has_the_curve_the_lines_and_what_the_batch_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    machine = Machine(32)
    one = search(machine)
    point, trial = one.run(machine.measure)
    tuned = Tuned(point, trial, tuple(one.points.values()), tuple(one.curve(point.setting)), {}, 60.0)
    text = "\n".join(tune_result.as_text(tuned, Path("train.py")))
    assert "+loader = DataLoader(data, batch_size=128, num_workers=2, persistent_workers=True)" in text
    assert "learning rate times 32 for SGD" in text
    assert "Model quality" in text
    assert max(len(line) for line in text.splitlines() if line[:1] not in "+-" and "again" not in line) <= 80
    Path("train.py").write_bytes(b"# \xe4\n" + SCRIPT.encode())
    assert "by hand: batch:size=128 (train.py is not encoded in UTF-8)" in "\n".join(
        tune_result.as_text(tuned, Path("train.py"))
    )
    assert "<- chosen setting" in text
    assert tune_result.as_data(tuned)["batch_sizes"] == (128, 4)
    page = tune_result.as_page(tuned, text)
    assert page.count("<circle") == len(tuned.curve)
    assert "<script" not in page


def test_a_batch_that_does_not_grow_asks_for_nothing() -> None:
    assert tune_result.learning_rate((4, 4)) == []
    assert tune_result.learning_rate(None) == []


# -- knobs


def test_knobs_are_named_or_written_out() -> None:
    names = [one.name for one in of_words((), 4, on_device=True)]
    assert names == ["batch", "workers", "prefetch", "threads", "precision", "layout", "compile", "pin_memory"]
    (own,) = of_words(["loader:prefetch_factor=2|8"], 4, on_device=False)
    assert own.choices["8"] == (Treatment("loader", {"prefetch_factor": 8}),)
    both = of_words(["workers", "prefetch", "batch"], 4, on_device=False)
    assert treatments_of({"workers": "2", "prefetch": "8", "batch": "4"}, both) == (
        Treatment("loader", {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 8}),
        Treatment("batch", {"scale": 4}),
    )
    for wrong in ("speed", "loader=2", "magic:wand=1|2"):
        with pytest.raises(UsageError):
            of_words([wrong], 4, on_device=False)


def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune", "absent.py"]) == 2
    said = capsys.readouterr().err
    assert "absent.py" in said or "pip install 'torch-advisor[tune]'" in said
    assert said.count("\n") == 1
