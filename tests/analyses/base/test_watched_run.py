"""Where the time of a run went: parts, lines and counts from recorded stretches and samples, made up and simulated."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from advisor.analyses.base.scale import MeanStep, Scale
from advisor.analyses.base.watched_run import WatchedRun
from advisor.capture.record import RankRecord, RunSamples, RunTimes, Settings
from advisor.computed import Computed, Missing
from advisor.model import Times


def sample(kind: str, line: int, hits: int, *marks: str, **more: Any) -> dict[str, Any]:
    place = {"file": "train.py", "function": "main", "line": line, "block": line}
    return {"kind": kind, **place, "hits": hits, "stretches": min(hits, 20), "marks": list(marks), **more}


def watched(*samples: dict[str, Any], device: str = "cpu", **more: Any) -> WatchedRun:
    """A run: 2 s of start, 400 ordinary steps in 40 s, 20 long ones in 12 s that would have taken 2 s, 6 s between."""
    run = {
        "before_us": 3e6,
        "spent_us": {"start": 2e6, "step": 40e6, "long": 12e6, "between": 6e6, "end": 1e6},
        "count": {"start": 1, "step": 400, "long": 20, "between": 10, "end": 1},
        "usual_us": 2e6,
        "samples": [sample("step", 80, 400, "forward"), *samples],
        **more,
    }
    record = RankRecord(run=msgspec.convert(run, RunTimes), settings=Settings(model_device=device))
    return Computed(record=record).get(WatchedRun)


def shares(run: WatchedRun) -> dict[str, float]:
    return {name: round(part.us / 1e6, 3) for name, part in run.loop.items()}


def test_the_parts_sum_to_the_run() -> None:
    run = watched(sample("long", 90, 60), sample("long", 80, 20), sample("between", 95, 50, "save"))
    assert sum(part.us for part in run.account.parts) == pytest.approx(64e6) == run.account.us
    shares_of_loop = {part.id: part.share for part in run.account.parts}
    assert shares_of_loop.pop("startup") is shares_of_loop.pop("end") is None
    assert sum(share or 0 for share in shares_of_loop.values()) == pytest.approx(1)
    assert run.account.loop_us == pytest.approx(run.loop_us)
    assert [part.id for part in run.account.parts] == ["startup", "training", "checkpoints", "other", "end"]
    assert run.steps == 420


def test_long_steps_keep_what_an_ordinary_one_takes() -> None:
    """Samples alone would give all of the 12 s to the other line."""
    assert shares(watched(sample("long", 90, 60), sample("between", 80, 1)))["other"] == pytest.approx(10)


def test_batches_of_various_lengths_are_training() -> None:
    """Steps three times as long, at the same lines: nothing lies between them."""
    run = watched(sample("long", 80, 60, "forward"), sample("long", 81, 1))
    assert shares(run) == {"training": 52, "epoch_end": 6}


def test_a_main_part_of_the_step_that_is_held_up_stays_training() -> None:
    """Its long steps are a hundred times as long as usual: nobody else works in `loss.backward()`."""
    held_up = watched(sample("step", 81, 60), sample("long", 81, 400), sample("between", 80, 1))
    assert shares(held_up) == {"training": 52, "epoch_end": 6}
    rare = watched(sample("step", 81, 4), sample("long", 81, 400), sample("between", 80, 1))
    assert shares(rare)["other"] == pytest.approx(10)  # a callback that now and then has much to do


@pytest.mark.parametrize("mark", ["backward", "optimizer"])
def test_a_backward_pass_that_is_held_up_is_training(mark: str) -> None:
    """No ordinary step was sampled there: all of them were short."""
    assert shares(watched(sample("long", 81, 400, mark), sample("between", 80, 1))) == {"training": 52, "epoch_end": 6}


@pytest.mark.parametrize(
    ("marks", "more", "part"),
    [
        (("forward", "untrained"), {}, "evaluation"),
        (("fetch", "untrained"), {}, "evaluation"),
        (("forward", "eval_mode"), {}, "evaluation"),
        (("evaluate",), {}, "evaluation"),
        (("forward",), {}, "other"),  # an agent that plays
        (("save",), {}, "checkpoints"),
        (("iterator", "workers"), {}, "worker_restarts"),
        (("fetch", "first_batch"), {}, "worker_restarts"),
        (("compile",), {}, "compilation"),
        ((), {"package": "matplotlib"}, "logging"),
        (("epoch_end",), {}, "epoch_end"),
    ],
)
def test_a_place_is_told_by_its_marks(marks: tuple[str, ...], more: dict[str, Any], part: str) -> None:
    run = watched(sample("between", 90, 50, *marks, **more))
    assert shares(run)[part] == pytest.approx(6)
    (line,) = run.loop[part].lines
    assert (line.source.file, line.source.line) == ("train.py", 90)


def test_a_teacher_in_evaluation_mode_is_part_of_the_step() -> None:
    run = watched(sample("long", 80, 60, "forward", "eval_mode"), sample("between", 80, 20, "forward", "eval_mode"))
    assert "evaluation" not in run.loop


def test_a_model_that_is_evaluated_in_every_step_is_no_teacher() -> None:
    marks = ("forward", "eval_mode", "also_trained")
    run = watched(sample("step", 80, 60, "forward"), sample("step", 90, 40, *marks), sample("step", 90, 20))
    assert run.loop["evaluation"].lines[0].source.line == 90
    assert shares(run)["evaluation"] == pytest.approx(40 * 60 / 520, abs=0.01)
    teacher = watched(sample("step", 80, 60, "forward"), sample("step", 90, 40, "forward", "eval_mode"))
    assert "evaluation" not in teacher.loop


def test_all_of_a_statement_that_evaluates_is_evaluation() -> None:
    """The loop of an evaluation, its metric after it, and a checkpoint inside of it."""
    block = {"block": 90}
    run = watched(
        sample("between", 91, 30, "forward", "untrained", **block),
        sample("between", 93, 10, **block),
        sample("between", 94, 20, "save", **block),
    )
    assert shares(run) == pytest.approx({"training": 52, "evaluation": 4, "checkpoints": 2})
    assert run.loop["evaluation"].lines[0].source.line == 90
    assert run.loop["checkpoints"].lines[0].source.line == 94


@pytest.mark.parametrize("ordinary", [0, 200])
def test_a_call_that_trains_and_evaluates_is_told_sample_by_sample(ordinary: int) -> None:
    """`fit` of a library is one statement: its longer steps hold the validation, or other work held them up.

    Whether ordinary steps are long enough to be sampled there says nothing of that.
    """
    run = watched(
        sample("step", 23, ordinary, "forward"),
        sample("long", 23, 20, "forward", "eval_mode", "also_trained", "untrained"),
        sample("long", 23, 10, "untrained"),
        sample("long", 23, 30, "backward"),
        sample("long", 23, 60),
    )
    assert shares(run) == pytest.approx({"training": 40 + 12 * 0.75, "evaluation": 12 * 0.25, "epoch_end": 6})
    assert run.loop["evaluation"].lines[0].source.line == 23


def test_a_function_that_a_framework_calls_is_named_by_its_costliest_line() -> None:
    more = {"function": "validation_step", "block": 0}
    run = watched(sample("between", 31, 10, "untrained", "fetch", **more), sample("between", 33, 40, "forward", **more))
    (line,) = run.loop["evaluation"].lines
    assert (line.source.line, line.source.function) == (33, "validation_step")


def test_a_line_that_waits_for_a_device_is_training() -> None:
    waits, draws = sample("long", 90, 60), sample("long", 91, 60, package="matplotlib")
    assert "other" in watched(waits).loop
    assert "other" not in watched(waits, device="cuda").loop
    assert "logging" in watched(draws, device="cuda").loop


def test_pictures_that_a_dataset_decodes_between_epochs_are_no_log() -> None:
    """Labels read from every sample, through transforms that are modules: neither a log nor a model that runs."""
    reads = {"inner": ("train.py", 53, "__getitem__"), "line": 92, "block": 92}
    decoded = sample("between", 92, 30, "epoch_end", package="PIL") | reads
    cropped = sample("between", 92, 30, "epoch_end", "forward", package="transforms") | reads
    run = watched(decoded, cropped)
    assert "logging" not in run.loop
    assert run.loop["epoch_end"].lines[0].source.line == 92
    assert not run.forwards
    drawn = watched(sample("between", 92, 30, "epoch_end", package="PIL"))
    assert "logging" in drawn.loop


@pytest.mark.parametrize("mean", [0.1, 0.7, 3.0])
def test_visits_too_short_to_be_sampled_are_counted(mean: float) -> None:
    """Independent: 400 visits, each sampled by chance, `mean` times on average."""
    chance = random.Random(3)
    seen = [sum(chance.random() < mean / 50 for _ in range(50)) for _ in range(400)]
    hits, stretches = sum(seen), sum(map(bool, seen))
    one = sample("between", 90, hits, "untrained", "forward") | {"stretches": stretches}
    run = watched(one, count={"start": 1, "step": 400, "between": 5000})
    assert run.loop["evaluation"].times == pytest.approx(400, rel=0.35 if mean < 0.5 else 0.12)


def test_few_visits_that_were_sampled_once_each_are_not_counted() -> None:
    """Two samples in two of 50 long steps: there may be two visits or 50. Of 40 in 50 steps all have one."""
    one = {"stretches": 2}
    few = watched(sample("long", 90, 2, "eval_mode", "forward") | one, count={"step": 400, "long": 50})
    assert few.loop["evaluation"].times is None
    each = watched(sample("long", 90, 40, "eval_mode", "forward") | {"stretches": 40}, count={"step": 400, "long": 50})
    assert each.loop["evaluation"].times == 50


def test_what_comes_between_epochs_comes_no_more_often_than_they_do() -> None:
    """Half of all steps are long where the loop waits for a core: so many visits there may be, were it not for that."""
    marks, more = ("eval_mode", "forward", "epoch_end"), {"count": {"step": 60, "long": 50}, "epochs": 10}
    at_ends = watched(sample("long", 90, 2, *marks) | {"stretches": 2}, **more)
    assert at_ends.loop["evaluation"].times == 10
    within = watched(sample("long", 90, 8, *marks), sample("long", 90, 6, *marks[:2]), **more)
    assert within.loop["evaluation"].times != 10
    rare = watched(sample("long", 90, 30, *marks) | {"stretches": 4}, **more)
    assert rare.loop["evaluation"].times == 4


def test_steps_that_wait_for_a_core_hold_no_other_work() -> None:
    """Independent: 20 long steps with a core for 2 s of 12 s; ordinary ones of 0.1 s have one all the time."""
    held_up = sample("long", 90, 60)
    assert shares(watched(held_up, queued_us={"long": 10e6}))["training"] == pytest.approx(52)
    # Half of the time with a core is other work, so half of all time is, as other work waits like the step itself.
    assert shares(watched(held_up, queued_us={"long": 8e6}))["other"] == pytest.approx(6)
    # Ordinary steps wait as well, for half of their time: then the long ones have 1 s of their own.
    both = watched(held_up, queued_us={"long": 8e6, "step": 20e6})
    assert shares(both)["other"] == pytest.approx(9)


def test_the_error_of_a_part_covers_what_sampling_does_to_it() -> None:
    """Independent: a tenth of the time of 6 s, sampled 100 times, again and again."""
    chance, inside = random.Random(1), 0
    for _ in range(200):
        hits = sum(chance.random() < 0.1 for _ in range(100))
        run = watched(sample("between", 90, hits, "save"), sample("between", 95, 100 - hits))
        part = run.loop.get("checkpoints")
        inside += part is not None and abs(part.us - 0.6e6) <= 2 * part.error_us
    assert inside >= 180


def test_a_run_that_was_not_watched_is_missing() -> None:
    with pytest.raises(Missing, match="the whole run was not recorded"):
        Computed(record=RankRecord()).get(WatchedRun)
    with pytest.raises(Missing):
        Computed(record=RankRecord(run=RunTimes(count={"start": 1}))).get(WatchedRun)
    assert RunSamples(kind="step").hits == 0


def test_the_mean_step_of_a_loop_has_none_of_another() -> None:
    """What the whole run took per step says nothing of a loop, where it was spent in two."""
    scale = Scale(5e3, 1.0, Times(mean=6e3, median=5e3, n=20), Times())
    one, two = watched(), watched(moved_at=[100])
    assert MeanStep.compute(scale, one).us == one.per_step_us("training") > 6e3
    assert MeanStep.compute(scale, two).us == 6e3
