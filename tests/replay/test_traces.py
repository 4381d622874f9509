"""Real traces: the unedited replay against the measured step, and savings that their stated truth allows."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.replay import Replay
from advisor.api import Category, InputWaits
from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Computed, Missing
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import load_rules
from advisor.replay.edits import move, remove, scale
from advisor.trace.read.load import load

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
STEPPED = (
    "cpu_only_rank34.pt.trace.json.gz",
    "resnet50_workers0_v100.pt.trace.json.gz",
    "resnet50_workers4_v100.pt.trace.json.gz",
    "resnet_checkpointing_ddp_mi300_rank0of8.json.gz",
    "resnet_fp32_v100_ns.pt.trace.json.gz",
    "transformer_ddp_fp32_v100_rank1of2.json.gz",
)
ONE_STEP = ("qwen_generation_h100.json.gz", "timesformer_inference_h100.json.gz", "dlrm_8ranks_v100/worker0_*")


@pytest.fixture(scope="module")
def known() -> Any:
    """Name of a trace -> what is computed of it; each is read once."""
    made: dict[str, Computed] = {}

    def computed(name: str) -> Computed:
        if name not in made:
            found = sorted(TRACES.glob(name))
            if not found:
                pytest.skip(f"the recorded trace {name} is not beside this checkout")
            made[name] = Computed(trace=load(found[0]))
        return made[name]

    return computed


@pytest.mark.parametrize("name", [*STEPPED, *ONE_STEP])
def test_the_unedited_replay_is_the_measured_step(known: Any, name: str) -> None:
    replay = known(name).get(Replay)
    assert replay.error_share < 0.05
    if replay.start_error_us is not None:
        # Starts of kernels, far into the window, to well below a hundredth of it.
        assert replay.start_error_us < 0.01 * replay.step_us * replay.steps
    assert replay.low_confidence == (name in ONE_STEP)


def test_the_median_error_is_small(known: Any) -> None:
    errors = [known(name).get(Replay).error_share for name in (*STEPPED, *ONE_STEP)]
    assert statistics.median(errors) < 0.02


def test_the_steady_step_of_a_device_bound_trace_is_its_kernels_pace(known: Any) -> None:
    # The first recorded steps only fill the launch queue (35 and 72 ms); from then on a step takes 95.6 ms.
    replay = known("resnet_fp32_v100_ns.pt.trace.json.gz").get(Replay)
    assert replay.step_us == pytest.approx(95_600, rel=0.01)


def test_workers_would_give_back_what_they_gave_back(known: Any) -> None:
    # The pair was recorded: 0 -> 4 workers brought the median step from 176.3 to 126.5 ms.
    computed = known("resnet50_workers0_v100.pt.trace.json.gz")
    replay, waits = computed.get(Replay), computed.get(InputWaits)
    saving = replay.saving(move(np.array(waits.rows), lanes=4), how="")
    gained_us = 176_273 - 126_548
    assert abs(saving.high_us - gained_us) < 0.05 * 176_273


def test_without_any_work_nothing_is_left_of_a_step(known: Any) -> None:
    computed = known("resnet50_workers0_v100.pt.trace.json.gz")
    replay = computed.get(Replay)
    rows = len(replay.editor.events)
    assert replay.step_after_us(remove(np.arange(rows))) < 0.1 * replay.step_us


def test_faster_kernels_do_not_help_where_the_host_sets_the_pace(known: Any) -> None:
    replay = known("transformer_ddp_fp32_v100_rank1of2.json.gz").get(Replay)
    kernels = np.flatnonzero(replay.editor.events.of(Category.KERNEL))
    assert replay.saving(scale(kernels, 0.5), how="").high_us < 0.01 * replay.scale.step_us


def test_an_unknown_accelerator_is_not_replayed(known: Any) -> None:
    with pytest.raises(Missing):
        known("mtia_inference_rank0.json.gz").get(Replay)


def test_the_cost_of_the_profiler_is_fitted_to_the_step_without_it(known: Any) -> None:
    trace = known("cpu_only_rank34.pt.trace.json.gz").get(Replay)
    unprofiled_us = 0.97 * trace.step_us
    path = next(iter(sorted(TRACES.glob("cpu_only*"))))
    record = RankRecord(steps=StepTimes(unprofiled_us=[unprofiled_us] * 5))
    replay = Computed(trace=load(path), record=record).get(Replay)
    assert replay.before_ns[-1] / 1e3 == pytest.approx(unprofiled_us, rel=0.001)


def test_a_report_says_how_far_the_replay_can_be_trusted() -> None:
    path = TRACES / "resnet50_workers0_v100.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the recorded traces are not beside this checkout")
    report = analyse([RankInput(0, path.name, load(path))], load_rules(), Config())
    assert report.replay is not None
    assert report.replay.error_share < 0.01
    assert not report.replay.low_confidence
    assert any(health.id == "replay" for health in report.health)
    replayed = [f.saving for _, f in report.findings() if f.saving and f.saving.basis == "replayed"]
    assert replayed
    assert report.joint is not None
    assert report.joint.high_us <= report.metrics["step_time_us"].value
    assert report.joint.high_us >= max(saving.high_us for saving in replayed) * 0.999
