"""Statistics and order of `advisor try`, with pairs that are given instead of measured."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from advisor.gate.pairs import Pair, Side, SideFailedError, Spread
from advisor.gate.turns import EndedError
from advisor.model import Finding, Fix, Metric, Outcome, Report, RunInfo, Saving, StepsSummary, Treatment
from advisor.trying import as_text, numbers
from advisor.trying.candidates import Candidate, of_report
from advisor.trying.decide import Design
from advisor.trying.numbers import Band
from advisor.trying.pairing import Facts, Measured
from advisor.trying.session import SELF_TEST, Session

SECONDS_A_PAIR = 10.0


def script() -> Side:
    return Side("base", ("python", "train.py"), Path(), {"OMP_NUM_THREADS": "2", "SLOW": "1"})


def names(side: Side) -> set[str]:
    """Treatments of a side, variables of the environment that were changed among them."""
    inside = {one["name"] for one in side.settings["treatments"]} - {"seeds"}
    return inside | ({"environment"} if "SLOW" not in side.env else set())


class Machine:
    """A machine on which each treatment saves a share of the step, and every pair takes ten seconds."""

    def __init__(self, saves: dict[str, float], noise: float = 0.005, seed: int = 1) -> None:
        self.saves = saves
        self.rng = random.Random(seed)
        self.noise = noise
        self.clock = 0.0
        self.losses: dict[str, list[float]] = {}
        self.fails: dict[str, EndedError] = {}
        self.unreached: set[str] = set()
        self.starves: set[str] = set()  # changes beside which the script as it is fails
        self.compiles_us = 0.0
        self.pairs: list[tuple[set[str], set[str]]] = []

    def now(self) -> float:
        return self.clock

    def measure(self, base: Side, head: Side) -> Measured:
        self.clock += SECONDS_A_PAIR
        before, after = names(base), names(head)
        self.pairs.append((before, after))
        for name in after & set(self.fails):
            raise SideFailedError("failed", base if name in self.starves else head, self.fails[name])
        times = [8000.0 * math.prod(1 - self.saves.get(name, 0.0) for name in side) for side in (before, after)]
        ratio = math.log(times[1] / times[0]) + self.rng.gauss(0.0, self.noise)
        shift = head.settings["treatments"][0]["arguments"]["shift"]
        facts = [
            Facts(self._losses(side, moved), tuple(side - self.unreached), ("a reason",), 1_000_000)
            for side, moved in ((before, 0), (after, shift))
        ]
        head_us = times[0] * math.exp(ratio)
        spreads = (Spread(1.1 * us, 1.5 * us) for us in (times[0], head_us))
        for one, name in ((facts[0], before), (facts[1], after)):
            one.counts = {"samples": 4.0, "ops": 100.0 - 40.0 * ("optimizer" in name), "wait_us": 50.0}
            one.startup_us = 2e6 + self.compiles_us * ("compile" in name)
        self.compiles_us /= 10  # the next one finds most of it in the cache
        return Measured(Pair(ratio, ratio, times[0], head_us, 60, 1, False, *spreads), *facts, SECONDS_A_PAIR)

    def _losses(self, side: set[str], shift: int) -> list[float]:
        for name in side & set(self.losses):
            return self.losses[name]
        return [2.0 + 0.1 * shift, 1.5 - 0.1 * shift, 1.2, 1.0]


def tried(machine: Machine, *names: str, budget: float = 3600.0, risk: str = "exact"):
    candidates = [Candidate(name, (Treatment(name),), (f"{name}-rule",), risk) for name in names]  # type: ignore[arg-type]
    session = Session(script(), machine.measure, budget, lambda _: None, machine.now)
    return session.run(candidates)


def test_what_is_faster_is_proven_and_what_is_not_is_dropped_soon() -> None:
    machine = Machine({"loader": 0.20, "threads": -0.05})
    found = tried(machine, "loader", "threads", "gc")
    verdicts = {trial.title: trial.verdict for trial in found.trials}
    assert verdicts["loader"] == "faster"
    assert verdicts["threads"] in ("slower", "not proven")
    assert verdicts["gc"] == "not proven"
    loader = found.trials[0]
    assert loader.low is not None
    assert loader.high is not None
    assert loader.low < 0.20 < loader.high
    assert loader.gain == pytest.approx(0.20, abs=0.02)
    assert loader.pairs == 4
    assert loader.numbers == "equal"
    assert found.together is None  # one proven change is its own best


def test_proven_changes_are_measured_together_and_what_adds_nothing_is_left_out() -> None:
    class Overlapping(Machine):
        def measure(self, base: Side, head: Side) -> Measured:
            # Whoever has one of the first two gains all that both can give.
            for side in (base, head):
                given = names(side)
                if {"loader", "threads"} <= given:
                    side.settings["treatments"][:] = [  # type: ignore[index]
                        one for one in side.settings["treatments"] if one["name"] != "threads"
                    ]
            return super().measure(base, head)

    machine = Overlapping({"loader": 0.20, "threads": 0.199, "gc": 0.10}, noise=0.002)
    found = tried(machine, "loader", "threads", "gc")
    assert [trial.verdict for trial in found.trials] == ["faster"] * 3
    assert found.together is not None
    assert found.together.verdict == "faster"
    assert found.together.gain == pytest.approx(1 - 0.8 * 0.9, abs=0.02)
    contributed = {one.title: one.gain for one in found.contributions}
    assert contributed["gc"] == pytest.approx(0.10, abs=0.02)
    assert contributed["threads"] == pytest.approx(0.0, abs=0.01)


def test_a_win_says_whether_it_is_by_what_the_advice_names() -> None:
    found = tried(Machine({"optimizer": 0.2, "loader": 0.2, "cudnn": 0.2}), "optimizer", "loader", "cudnn")
    assert [trial.verdict for trial in found.trials] == ["faster"] * 3
    assert [trial.mechanism for trial in found.trials] == ["moved", "not moved", "unknown"]
    assert found.trials[0].why == ""
    assert found.trials[1].why == "faster, but not because of what the finding names"
    text = as_text.render(found)
    assert "ops 100 -> 60" in text
    assert "but not because of what the finding names" in text


def test_mean_tail_and_rate_stand_beside_the_median() -> None:
    (trial,) = tried(Machine({"loader": 0.5}, noise=1e-4), "loader").trials
    assert trial.base is not None
    assert trial.changed is not None
    assert (trial.base.median_us, trial.base.mean_us, trial.base.p90_us) == pytest.approx((8000, 8800, 12000), rel=0.01)
    assert trial.changed.samples_per_s == pytest.approx(4 / 4400e-6, rel=0.01)


def test_a_long_start_says_after_how_many_steps_it_pays() -> None:
    machine = Machine({"compile": 0.5}, noise=1e-4)
    machine.compiles_us = 1e10  # a tenth of it is left after each pair, the four of the self-test included
    (trial,) = tried(machine, "compile", risk="numerics").trials
    assert trial.first_startup_us == pytest.approx(1e6)
    assert trial.startup_us == pytest.approx(1e4)
    assert trial.pays_after == pytest.approx(250, abs=1)
    assert tried(Machine({"compile": 0.5}), "compile").trials[0].pays_after is None


class Given(Machine):
    """The pairs of a change are given one after the other, as shares that it saves; the self-test shows 2 % noise."""

    def __init__(self, *saved: float) -> None:
        super().__init__({})
        self.given = [0.02, -0.02, 0.02, -0.02, *saved]

    def measure(self, base: Side, head: Side) -> Measured:
        self.saves = {"loader": self.given.pop(0)}
        found = super().measure(base, head)
        ratio = math.log1p(-self.saves["loader"])
        return dataclasses.replace(found, pair=dataclasses.replace(found.pair, ratio=ratio))


FIRST = (0.05, 0.09, 0.05, 0.09)  # a gain of 7 %, of which the interval leaves less than half


def test_a_gain_with_a_wide_interval_has_to_show_in_new_pairs_too() -> None:
    (trial,) = tried(Given(*FIRST, 0.04, 0.06, 0.05, 0.06), "loader").trials
    assert (trial.verdict, trial.pairs) == ("faster", 8)
    assert trial.gain == pytest.approx(0.06, abs=0.01)
    (trial,) = tried(Given(*FIRST, 0.01, -0.02, 0.03, 0.0), "loader").trials
    assert (trial.verdict, trial.pairs) == ("not proven", 8)
    assert trial.why.startswith("faster in the first 4 pairs, not in 4 new ones")


def test_a_clear_gain_needs_no_new_pairs() -> None:
    (trial,) = tried(Given(0.29, 0.30, 0.31, 0.30), "loader").trials
    assert (trial.verdict, trial.pairs) == ("faster", 4)


def test_a_gain_that_the_budget_leaves_no_time_to_confirm_is_not_proven() -> None:
    (trial,) = tried(Given(*FIRST, 0.05), "loader", budget=110.0).trials
    assert (trial.verdict, trial.pairs) == ("not proven", 4)
    assert trial.why.startswith("faster in the first 4 pairs; no time to confirm it: raise --budget")


def test_numbers_that_leave_the_range_are_never_recommended() -> None:
    machine = Machine({"autocast": 0.4, "compile": 0.3, "threads": 0.3})
    machine.losses = {
        "autocast": [2.0, 5.0, 9.0, 11.0],
        "compile": [2.0, 1.5001, 1.2, 1.0],
        "threads": [2.0, math.nan, math.nan, math.nan],
    }
    found = tried(machine, "autocast", "compile", "threads", risk="numerics")
    assert [trial.verdict for trial in found.trials] == ["changes training", "faster", "changes training"]
    assert [trial.numbers for trial in found.trials] == ["outside seeds", "within seeds", "outside seeds"]
    assert found.repeats is True
    labelled = tried(machine, "compile").trials[0]
    assert "not bitwise equal" in labelled.why


def test_a_change_that_fails_ends_only_itself() -> None:
    machine = Machine({"loader": 0.2})
    machine.fails = {
        "compile": EndedError(1, "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"),
        "ddp": EndedError(-9, ""),
        "cudnn": EndedError(1, "ValueError: no"),
    }
    found = tried(machine, "compile", "ddp", "cudnn", "loader")
    assert [trial.verdict for trial in found.trials] == ["out of memory", "out of memory", "failed", "faster"]
    assert "ValueError: no" in found.trials[2].why


def test_a_change_that_leaves_no_memory_for_the_unchanged_script_ends_only_itself() -> None:
    machine = Machine({"gc": 0.2})
    machine.fails = {"batch": EndedError(-9, ""), "loader": EndedError(1, "ValueError: seven")}
    machine.starves = {"batch", "loader"}
    (batch, collected) = tried(machine, "batch", "gc").trials
    assert (batch.verdict, batch.why) == (
        "out of memory",
        "the unchanged script, beside the changed one: killed by the system",
    )
    assert collected.verdict == "faster"
    with pytest.raises(SideFailedError):  # for another reason: the script is broken
        tried(machine, "loader", "gc")


def test_a_change_that_reaches_nothing_has_no_effect() -> None:
    machine = Machine({})
    machine.unreached = {"ddp"}
    found = tried(machine, "ddp")
    assert found.trials[0].verdict == "no effect"
    assert "a reason" in found.trials[0].why
    assert sum("ddp" in after for _, after in machine.pairs) == 1


def test_the_budget_ends_the_session_and_says_what_was_left() -> None:
    machine = Machine({"loader": 0.2, "gc": 0.2})
    found = tried(machine, "loader", "gc", budget=100.0)
    assert [trial.verdict for trial in found.trials] == ["faster", "not tried"]
    assert "budget" in found.trials[1].why
    assert machine.clock <= 100.0


def test_a_budget_that_holds_no_change_ends_the_self_test() -> None:
    machine = Machine({"loader": 0.2})
    found = tried(machine, "loader", budget=75.0)
    assert found.trials[0].verdict == "not tried"
    assert found.trials[0].why == "the self-test and one change take 8 pairs; pass --budget 2m or more"
    assert machine.clock == SECONDS_A_PAIR
    assert found.noise is None
    assert tried(Machine({"loader": 0.2}), "loader", budget=80.0).trials[0].verdict == "faster"


def test_pairs_that_take_longer_than_those_of_the_self_test_keep_the_budget() -> None:
    """As with a compiled model, or a search whose last pairs are longer."""

    class Slower(Machine):
        def measure(self, base: Side, head: Side) -> Measured:
            more_s = 40.0 * ("loader" in names(head))
            self.clock += more_s
            found = super().measure(base, head)
            return dataclasses.replace(found, seconds=found.seconds + more_s)

    machine = Slower({"loader": 0.03}, noise=0.02)
    first = SELF_TEST * SECONDS_A_PAIR + Design(1).looks[0] * 50.0
    found = tried(machine, "loader", budget=first + 40.0)
    assert found.trials[0].pairs == Design(1).looks[0]
    assert machine.clock == first


# -- what a report gives


def finding(us: float | None, treatment: Treatment | None, risk: str = "exact") -> Finding:
    saving = Saving(us, 2 * us, "replayed", "") if us else None
    return Finding("", saving, fix=Fix("Do it", risk, treatment=treatment))  # type: ignore[arg-type]


def report(**found: Finding) -> Report:
    outcomes = tuple(Outcome(rule, "found", (one,)) for rule, one in found.items())
    metrics = {"step_time_us": Metric("step_time_us", 10_000.0, "us")}
    return Report(RunInfo(), (), StepsSummary(), metrics, (), outcomes)


def test_candidates_come_in_the_order_of_their_promises_and_the_rest_with_reasons() -> None:
    loader = Treatment("loader", {"num_workers": 2})
    found, others = of_report(
        report(
            small=finding(500, Treatment("gc", {"freeze": True})),
            large=finding(2000, loader),
            again=finding(1000, loader),
            unpriced=finding(None, Treatment("cudnn", {"benchmark": True}), "numerics"),
            edit=finding(900, None),
            other=finding(900, loader, "semantics"),
        )
    )
    assert [(one.rules, one.low, one.high) for one in found] == [
        (("large", "again"), 0.2, 0.4),
        (("small",), 0.05, 0.1),
        (("unpriced",), None, None),
    ]
    assert {one.rules[0]: one.why.split(";")[0] for one in others} == {
        "edit": "the fix is an edit to the script",
        "other": "the fix changes the training itself",
    }
    only, _ = of_report(report(small=finding(500, Treatment("gc")), large=finding(2000, loader)), {"small"})
    assert [one.rules for one in only] == [("small",)]


def test_a_saving_between_steps_is_promised_as_a_share_of_the_run() -> None:
    between = replace(finding(5_000, Treatment("loader", {"persistent_workers": True})), run_us=50_000.0)
    found, _ = of_report(report(restarts=between))
    assert [(one.low, one.high) for one in found] == [(0.1, 0.2)]


def test_the_table_says_what_was_proven_and_what_was_not_tried() -> None:
    found = tried(Machine({"loader": 0.2}), "loader", "gc", budget=80.0)
    text = as_text.render(found)
    assert "loader (loader-rule)" in text
    assert "faster" in text
    assert "Proven: loader saves" in text
    assert "--with loader" in text
    assert "not tried: gc (gc-rule): the budget" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "No proven gain" in as_text.render(tried(Machine({}), "gc"))


# -- numbers


def test_the_table_has_eighty_columns_and_space_between_them() -> None:
    machine = Machine({"loader": 0.2})
    machine.losses = {"loader": [5.0, 9.0, 1.2, 1.0]}
    found = tried(machine, "loader", "gc")
    wide = replace(found.trials[1], gain=-0.172, low=-14.085, high=0.730, promised_low=1.0, promised_high=1.0,
                   memory_bytes=50_000_000_000, base_memory_bytes=10_000_000_000)  # fmt: skip
    text = as_text.render(replace(found, trials=(replace(found.trials[0], promised_low=0.1, promised_high=0.2), wide)))
    assert max(map(len, text.splitlines())) <= 80
    assert "  changes training 10 to 20 % " in text
    assert "100 to 100 % -17.2 % [-1408.5, 73.0] " in text


def test_losses_say_whether_a_change_leaves_the_training_as_it_is() -> None:
    band = Band(True, 0.0, 0.1)
    base = [3.0, 2.0, 1.0]
    assert numbers.compare(base, [*base, 0.5], band)[0] == "equal"
    assert numbers.compare(base, [3.0, 2.0, 1.05], band)[0] == "within seeds"
    assert numbers.compare(base, [3.0, 2.0, 4.0], band)[0] == "outside seeds"
    assert numbers.compare(base, [3.0, 2.0, math.nan], band)[0] == "outside seeds"
    assert numbers.compare([], [], band)[0] == "not compared"
    assert numbers.compare(base, [3.0, 2.0, 1.5], Band(True, 0.0, 0.0))[0] == "not compared"
    # A script whose own runs differ: that is the range.
    assert numbers.compare(base, [3.0, 2.0, 1.2], Band(False, 0.2, 0.0))[0] == "within seeds"
    # Of a hundred steps one that lies twice as far away as another seed tells.
    many = [1.0] * 100
    assert numbers.compare(many, [1.15] * 100, band)[0] == "within seeds"
    assert numbers.compare(many, [1.2] * 100, band)[0] == "outside seeds"


def test_other_random_numbers_are_no_other_training() -> None:
    """Losses that seeds move, each half like the one before; a change that only draws others is one more seed."""
    chance = random.Random(5)

    def losses() -> list[float]:
        found, off = [], 0.0
        for step in range(100):
            off = 0.5 * off + chance.gauss(0, 0.1)
            found.append(2.0 / (1 + step / 50) + off)
        return found

    said = []
    for _ in range(300):
        base, other, changed = losses(), losses(), losses()
        band = Band(True, 0.0, numbers.distance(base, other))
        said.append(numbers.compare(base, changed, band)[0])
    assert said.count("outside seeds") <= 9  # 1 % expected
    base, other = losses(), losses()
    moved = [1.5 * one for one in losses()]
    assert numbers.compare(base, moved, Band(True, 0.0, numbers.distance(base, other)))[0] == "outside seeds"
