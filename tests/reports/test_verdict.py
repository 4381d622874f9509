"""The headline of a report: what it calls the step, what it names, and what it never promises."""

from __future__ import annotations

import dataclasses

import pytest
import report_parts
import reports_fixtures as fixtures
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from reports_fixtures import made, module

from advisor.model import (
    Finding,
    Joint,
    Metric,
    Outcome,
    ReplayCheck,
    RunAccount,
    RunInfo,
    RunPart,
    Saving,
    Source,
    Times,
)

words = module("_words")
verdict = module("_verdict")
ranking = module("_ranking")


def said(parts: dict[str, float], **changes: object) -> str:
    text: str = verdict.headline(made(parts, **changes)).verdict
    return text


def test_a_busy_gpu_is_called_so() -> None:
    text = said({"compute": 0.96, "idle_launch": 0.04})
    assert text.startswith("The GPU computes for 96 % of the step: it is compute-bound")


def test_a_run_that_does_not_go_to_steps_is_said_first() -> None:
    account = report_parts.account()
    text = said({"compute": 0.96, "idle_launch": 0.04}, account=account)
    assert text.startswith(
        "45 % of the run after start-up goes to evaluation (train.py:120), not to training steps. The"
    )
    startup, training, evaluation, checkpoints = account.parts
    seldom = replace(account, parts=(startup, training, replace(evaluation, us=10e6, share=10 / 58), checkpoints))
    assert said({"compute": 0.96, "idle_launch": 0.04}, account=seldom).startswith("The GPU computes")
    slow_start = replace(account, parts=(replace(startup, us=500e6), training))
    assert said({"compute": 0.96, "idle_launch": 0.04}, account=slow_start).startswith("The GPU computes")


def test_a_saving_between_steps_is_of_the_run() -> None:
    finding = Finding("Evaluation takes long.", Saving(30_000, 40_000, "measured", "by the clock"), run_us=200_000)
    headline = dataclasses.replace(verdict.headline(fixtures.canonical()), step_us=98_400)
    assert ranking.saving(finding, headline) == "9 to 12 min per hour"
    assert ranking.saving_share(finding, headline) == "15 to 20 % of the run"
    assert "compare where the two runs went" in ranking.check_again(finding, 98_400)


@given(st.floats(0.01, 0.79), st.sampled_from(["exposed_communication", "idle_input", "idle_unknown", "exposed_copy"]))
def test_a_step_of_low_compute_share_is_never_called_busy(compute: float, cause: str) -> None:
    """Communication keeps a GPU occupied and is no work done: the verdict names it as a loss."""
    text = said({"compute": compute, cause: 1 - compute})
    assert text.startswith(f"The GPU computes for only {words.share(compute)} of the step; for ")
    assert words.share(1 - compute) in text


def test_a_cpu_step_names_its_largest_parts() -> None:
    assert said({"input": 0.06, "forward": 0.24, "backward": 0.45, "host": 0.25}) == (
        "On the CPU, the step goes mostly to the backward pass (45 %) and Python code between operators (25 %)."
    )


def test_host_time_beside_a_device_that_was_not_measured_may_be_waiting() -> None:
    unseen = Metric("device_busy_share", None, "share", "not_measured", "the trace is of an accelerator")
    run = RunInfo(devices=("ARTEMIS",))
    text = said({"host": 0.94, "other_ops": 0.06}, metrics={"device_busy_share": unseen}, run=run)
    assert (
        text == "The host spends the step mostly in Python code between operators (94 %), perhaps waiting for ARTEMIS."
    )


def test_nothing_measured_is_said() -> None:
    assert "not measured" in said({})
    head = verdict.headline(replace(fixtures.canonical(), metrics={}))
    assert (head.step, head.step_us) == ("not measured", None)


@pytest.mark.parametrize(
    ("mean", "median", "said"),
    [
        (109, 100, ""),
        (111, 100, "11 % above the median"),
        (400, 100, "4.00 times the median"),
        (80, 100, "20 % below the median"),
        (None, 100, ""),
        (100, None, ""),
    ],
)
def test_the_tail_is_named_from_ten_per_cent_on(mean: float | None, median: float | None, said: str) -> None:
    steps = replace(fixtures.canonical().steps, unprofiled_us=Times(mean, median, None, None, 50))
    tail = verdict.headline(replace(fixtures.canonical(), steps=steps, account=None)).tail
    assert (said in tail) if said else tail == ""


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (1000, "The mean of all 1,000 training steps is 120 ms, 20 % above the median"),
        (20, "The mean step is 1.2 s, 12.0 times the median"),
    ],
)
def test_one_long_step_of_few_does_not_stand_for_the_run(steps: int, said: str) -> None:
    """One of twenty timed steps took 22 s, 100 ms each of the others; in the whole run few were long."""
    training = RunPart("training", steps * 120e3, 0.9, times=steps)
    account = RunAccount(training.us, steps + 1, 0.0, (training,))
    timed = replace(fixtures.canonical().steps, unprofiled_us=Times(1.2e6, 100e3, None, None, 20))
    assert said in verdict.headline(replace(fixtures.canonical(), steps=timed, account=account)).tail


@pytest.mark.parametrize(
    ("unprofiled", "profiled", "basis"),
    [
        (Times(2, 1, 1, 3, 120), Times(2, 2, 2, 2, 6), "median of 120 un-profiled steps"),
        (Times(2, None, None, None, 30), Times(2, 2, 2, 2, 6), "mean of 30 un-profiled steps"),
        (Times(), Times(2, 2, 2, 2, 6), "median of 6 profiled steps"),
        (Times(), Times(2, 2, 2, 2, 1), "one profiled step"),
    ],
)
def test_the_headline_says_what_its_number_is(unprofiled: Times, profiled: Times, basis: str) -> None:
    steps = replace(fixtures.canonical().steps, unprofiled_us=unprofiled, profiled_us=profiled)
    assert verdict.headline(replace(fixtures.canonical(), steps=steps)).basis == basis


def test_where_long_steps_recur_the_headline_is_the_mean_and_says_what_is_usual() -> None:
    base = fixtures.canonical()
    metrics = {**base.metrics, "step_time_us": replace(base.metrics["step_time_us"], value=105_900.0)}
    steps = replace(base.steps, unprofiled_us=Times(), profiled_us=Times(101_840, 40_900, 40_700, 278_000, 16))
    said = verdict.headline(replace(base, steps=steps, metrics=metrics))
    assert said.basis == "mean of 16 profiled steps"
    assert said.tail.startswith("The median step is 40.9 ms: some steps are much slower.")


def test_what_can_be_reached_comes_from_the_joint_saving_alone() -> None:
    assert verdict.reach(replace(fixtures.canonical(), joint=None)) is None
    reach = verdict.reach(replace(fixtures.canonical(), joint=Joint(38_400, 58_400, 50_000)))
    assert (reach.range, reach.about, reach.saved) == ("40.0 to 60.0 ms", "50.0 ms", "39 to 59 %")
    assert verdict.reach(replace(fixtures.canonical(), metrics={}, joint=Joint(1, 2, 3))) is None
    # Where all of it may give nothing, no single figure is promised.
    reach = verdict.reach(replace(fixtures.canonical(), joint=Joint(0, 58_400, 70_000)))
    assert (reach.range, reach.about, reach.saved) == ("40.0 to 98.4 ms", "", "up to 59 %")


def test_no_step_is_promised_to_vanish() -> None:
    reach = verdict.reach(replace(fixtures.canonical(), joint=Joint(49_200, 98_400, 24_600)))
    assert (reach.range, reach.about, reach.saved) == ("at most 49.2 ms", "", "at least 50 %")


def test_a_larger_batch_is_verified_by_the_samples_of_today() -> None:
    cpu = fixtures.on_cpu()
    (outcome,) = (outcome for outcome in cpu.outcomes if outcome.rule == "small-batch")
    again = ranking.check_again(outcome.findings[0], 2_430)
    assert "the samples of one current step should take 0.73 to 0.93 ms" in again
    assert "samples of a current step" in verdict.reach(cpu).basis


def test_low_confidence_is_a_caveat() -> None:
    caveats = verdict.headline(replace(fixtures.canonical(), replay=ReplayCheck(0.12, True))).caveats
    assert any("low confidence" in caveat and "12 %" in caveat for caveat in caveats)


def test_the_parts_add_up_to_the_step_of_the_headline() -> None:
    report = fixtures.canonical()
    assert sum(item.us for item in verdict.parts(report)) == pytest.approx(98_400)


def test_the_best_three_are_confirmed_in_reach_and_by_saving() -> None:
    def outcome(rule: str, high: float | None, confirmed: bool = True, recoverable: bool = True) -> Outcome:
        saving = None if high is None else Saving(high / 2, high, "modelled", "")
        return Outcome(rule, "found", (Finding(rule, saving, recoverable=recoverable),), confirmed=confirmed)

    outcomes = (
        outcome("none", None),
        outcome("small", 1),
        outcome("dream", 90, confirmed=False),
        outcome("disk", 80, recoverable=False),
        outcome("large", 50),
        outcome("middle", 20),
        outcome("tiny", 0.5),
    )
    groups = ranking.groups(replace(fixtures.canonical(), outcomes=outcomes))
    assert [ranked.outcome.rule for ranked in groups.best] == ["large", "middle", "small"]
    assert [ranked.outcome.rule for ranked in groups.more] == ["tiny", "none"]
    assert [ranked.outcome.rule for ranked in groups.unconfirmed] == ["dream"]
    assert [ranked.outcome.rule for ranked in groups.out_of_reach] == ["disk"]
    everyone = (*groups.best, *groups.more, *groups.unconfirmed, *groups.out_of_reach)
    assert [ranked.number for ranked in everyone] == [1, 2, 3, 4, 5, 6, 7]


def test_a_wait_that_was_measured_is_among_the_best_whatever_its_fix_saves() -> None:
    def outcome(rule: str, high: float | None, waits: float | None, confirmed: bool = True) -> Outcome:
        saving = None if high is None else Saving(0, high, "modelled", "")
        return Outcome(rule, "found", (Finding(rule, saving, measured_us=waits),), confirmed=confirmed)

    outcomes = (
        outcome("saves", 40, None),
        outcome("launch-bound", 30, 60, confirmed=False),
        outcome("sync-in-loop", None, 50, confirmed=False),
        outcome("input-bound", 10, 20),
        outcome("dream", 90, None, confirmed=False),
    )
    groups = ranking.groups(replace(fixtures.canonical(), outcomes=outcomes))
    assert [ranked.outcome.rule for ranked in groups.best] == ["launch-bound", "sync-in-loop", "input-bound"]
    assert [ranked.outcome.rule for ranked in groups.more] == ["saves"]
    assert [ranked.outcome.rule for ranked in groups.unconfirmed] == ["dream"]


def test_bounds_come_after_what_is_certain_and_before_what_has_no_number() -> None:
    report = fixtures.canonical()
    assert report.step_us is not None
    step_us = report.step_us

    def outcome(rule: str, low: float, high: float) -> Outcome:
        return Outcome(rule, "found", (Finding(rule, Saving(low * step_us, high * step_us, "modelled", "")),))

    outcomes = (
        Outcome("none", "found", (Finding("none"),)),
        outcome("bound", 0.0, 0.9),
        outcome("hardly", 0.004, 0.5),
        outcome("certain", 0.006, 0.1),
    )
    report = replace(report, outcomes=outcomes)
    assert [ranked.outcome.rule for ranked in ranking.groups(report).best] == ["certain", "bound", "hardly"]
    assert [outcome.rule for outcome, _ in report.findings()] == ["certain", "bound", "hardly", "none"]
    said = [ranking.promise(finding, verdict.headline(report)) for _, finding in report.findings()[:3]]
    assert [words.count("up to") for words in said] == [0, 2, 2], said


@pytest.mark.parametrize("confirmed", [True, False])
def test_what_saves_the_same_time_as_another_stands_right_behind_it(confirmed: bool) -> None:
    bound = Saving(0, 40, "modelled", "")
    outcomes = (
        Outcome("behind", "found", (Finding("behind", measured_us=0.0, counted_with="owner"),)),
        Outcome("owner", "found", (Finding("owner", bound),), confirmed=confirmed),
        Outcome("other", "found", (Finding("other", replace(bound, high_us=10)),), confirmed=confirmed),
    )
    report = replace(fixtures.canonical(), outcomes=outcomes)
    found = ranking.groups(report)
    ranked = found.best if confirmed else found.unconfirmed
    assert [one.outcome.rule for one in ranked] == ["owner", "behind", "other"]
    assert ranking.saves(ranked[1].finding, verdict.headline(report)) == "saves the same time as owner"


def test_without_steps_a_saving_is_of_the_recorded_window() -> None:
    report = fixtures.canonical()
    headline = verdict.headline(replace(report, steps=replace(report.steps, source="window")))
    finding = Finding("Slow.", Saving(0.1 * headline.step_us, 0.2 * headline.step_us, "modelled", ""))
    assert ranking.promise(finding, headline).endswith(" per recorded window, 10 to 20 % of the recorded window")


def test_the_page_says_what_makes_a_range_wide() -> None:
    def width(low: float, high: float, **known: float) -> str:
        return ranking.width(Finding("m", Saving(low, high, "modelled", "how", known)), 1_000.0)

    said = width(100, 400, profiler=50, steps=60, instead=4)
    assert said.startswith(
        "30 % of the step: 19 % from what the change itself leaves open, 6 % from the variation between steps"
    ), said
    assert "5 % from possible profiler overhead" in said
    assert "instead" not in said, "less than a per cent needs no words"
    assert width(100, 105, profiler=5) == "", "a narrow range needs no reason"
    # Ends that were cut off leave less than the parts.
    assert width(0, 100, profiler=150, steps=50).startswith("10 % of the step: 8 % from possible profiler overhead")


def test_a_function_line_is_called_the_functions_first() -> None:
    call, function = Source("a.py", 9, "f"), Source("a.py", 4, "f", "function")
    assert ranking.places(Finding("m", where=(call, function, call))) == (
        ("a.py:9", "in f()"),
        ("a.py", "in f(), from line 4"),
    )


def test_no_finding_is_not_the_same_as_nothing_judged() -> None:
    empty = fixtures.empty()
    assert (
        ranking.nothing_found(replace(empty, outcomes=(Outcome("a", "clear"),))) == "No rule found anything to change"
    )
    assert "No rule had the data" in ranking.nothing_found(replace(empty, outcomes=(Outcome("a", "skipped"),)))
    assert "No rule was applied" in ranking.nothing_found(empty)
