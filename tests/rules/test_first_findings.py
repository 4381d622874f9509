"""What the rules say first of real traces whose truth is known."""

from pathlib import Path

import pytest

from advisor.api import Breakdown
from advisor.computed import Computed
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import load_rules
from advisor.trace.read.load import load

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
EXCHANGED = [
    f"dlrm_8ranks_v100/worker{rank}_step_12.1694128201{ms}.pt.trace.json.gz" for rank, ms in ((0, 545), (5, 549))
]
ABOUT_A_DEVICE = {
    "idle-gpu",
    "pageable-copies",
    "blocking-copies",
    "fp32-matmul",
    "sync-in-loop",
    "launch-bound",
    "unused-accelerator",
}


@pytest.fixture(scope="module")
def report_of():
    """Name of a trace -> its report; each is read once."""
    made = {}

    def report(name):
        if name not in made:
            path = TRACES / name
            if not path.exists():
                pytest.skip(f"the recorded trace {name} is not beside this checkout")
            made[name] = analyse([RankInput(0, name, load(path))], load_rules(), Config())
        return made[name]

    return report


def found(report):
    """Rule ids with findings, in the order in which a report shows them."""
    return list(dict.fromkeys(outcome.rule for outcome, _ in report.findings()))


def first(report, rule):
    return next(finding for outcome, finding in report.findings() if outcome.rule == rule)


def test_without_workers_the_input_comes_first(report_of):
    report = report_of("resnet50_workers0_v100.pt.trace.json.gz")
    assert found(report)[0] == "input-bound"
    assert {"fp32-matmul", "pageable-copies"} <= set(found(report))
    finding = first(report, "input-bound")
    assert finding.where[0].file.endswith("resnet50_profiler_api.py")
    assert "num_workers=0" in finding.message


def test_the_measured_gain_of_four_workers_lies_in_the_promised_range(report_of):
    before, after = (report_of(f"resnet50_workers{n}_v100.pt.trace.json.gz") for n in (0, 4))
    gained_us = before.metrics["step_time_us"].value - after.metrics["step_time_us"].value
    saving = first(before, "input-bound").saving
    assert saving.low_us <= gained_us <= saving.high_us


def test_with_four_workers_the_input_is_a_small_matter(report_of):
    before, after = (report_of(f"resnet50_workers{n}_v100.pt.trace.json.gz") for n in (0, 4))
    assert first(after, "input-bound").saving.high_us < 0.1 * first(before, "input-bound").saving.high_us
    assert first(after, "input-bound").severity == "low"


def test_a_transformer_reduced_by_hand(report_of):
    report = report_of("transformer_ddp_fp32_v100_rank1of2.json.gz")
    assert {"exposed-communication", "fp32-matmul"} <= set(found(report))
    finding = first(report, "exposed-communication")
    assert "404 collectives" in finding.message
    assert "DistributedDataParallel" in finding.fix.after


def test_preprocessing_is_named_with_its_function(report_of):
    report = report_of("timesformer_inference_h100.json.gz")
    finding = first(report, "idle-gpu")
    where = finding.where[0]
    # The caller's own function is the place, and what runs in it is transformers' `preprocess`.
    assert (where.line, where.function, where.precision) == (40, "run_on_input", "function")
    assert where.file.endswith("pipeline/model.py")
    assert "`preprocess` in `run_on_input`" in finding.message
    assert finding.saving.high_us == pytest.approx(217_000, rel=0.01)


def test_a_busy_gpu_in_fp32_has_one_lever(report_of):
    report = report_of("resnet_fp32_v100_ns.pt.trace.json.gz")
    assert found(report)[0] == "fp32-matmul"
    assert not {"idle-gpu", "input-bound", "launch-bound", "sync-in-loop"} & set(found(report))
    finding = first(report, "fp32-matmul")
    assert "fp16" in finding.fix.title, "a V100 has neither TF32 nor bf16"
    assert "unless fp32 was chosen on purpose" in finding.message


def test_generation_that_keeps_the_gpu_busy_gets_no_advice(report_of):
    report = report_of("qwen_generation_h100.json.gz")
    assert not {"idle-gpu", "input-bound"} & set(found(report))


def test_a_collective_in_bf16_is_not_told_to_use_bf16(report_of):
    report = report_of("resnet_checkpointing_ddp_mi300_rank0of8.json.gz")
    finding = first(report, "exposed-communication")
    assert "bf16" not in finding.fix.title
    assert "fp32-matmul" not in found(report)


@pytest.mark.parametrize("name", ["mtia_inference_rank0.json.gz", "cpu_only_rank34.pt.trace.json.gz"])
def test_nothing_is_claimed_about_a_device_that_was_not_seen(report_of, name):
    report = report_of(name)
    assert not ABOUT_A_DEVICE & set(found(report))
    for outcome in report.outcomes:
        if outcome.status == "skipped":
            assert outcome.reason
    assert not any("GPU" in finding.message for _, finding in report.findings())


@pytest.mark.parametrize(
    "name",
    [
        "resnet50_workers0_v100.pt.trace.json.gz",
        "transformer_ddp_fp32_v100_rank1of2.json.gz",
        "resnet_checkpointing_ddp_mi300_rank0of8.json.gz",
        "cpu_only_rank34.pt.trace.json.gz",
        *EXCHANGED,
    ],
)
def test_no_saving_exceeds_the_time_it_claims(report_of, name):
    report = report_of(name)
    parts = {item.id: item.us for item in report.breakdown}
    assert sum(parts.values()) > 0
    factor = report.metrics["step_time_us"].value / sum(parts.values())
    for _, finding in report.findings():
        if finding.saving and finding.claims:
            assert finding.saving.high_us <= sum(parts[part] for part in finding.claims) * factor * 1.001


@pytest.mark.parametrize("name", EXCHANGED)
def test_communication_is_told_once(report_of, name):
    """Embeddings that a script exchanges beside DistributedDataParallel are no metrics that it reduces as well."""
    report = report_of(name)
    told = [f.facts["exposed_us"] for outcome, f in report.findings() if outcome.rule == "exposed-communication"]
    assert told
    assert sum(told) <= next(item.us for item in report.breakdown if item.id == "exposed_communication") * 1.001


def test_no_rule_fails_on_any_recorded_trace(report_of):
    for path in sorted(TRACES.rglob("*.json.gz")):
        outcomes = report_of(str(path.relative_to(TRACES))).outcomes
        assert [(outcome.rule, outcome.reason) for outcome in outcomes if outcome.status == "error"] == []


def test_idle_time_of_workers0_is_mostly_input(report_of):
    path = TRACES / "resnet50_workers0_v100.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the recorded traces are not beside this checkout")
    breakdown = Computed(trace=load(path)).get(Breakdown)
    assert breakdown.share("idle_input") > 0.3


def test_attention_by_hand_costs_what_its_kernels_take(report_of):
    report = report_of("timesformer_inference_h100.json.gz")
    finding = first(report, "unfused-attention")
    # Softmax, the two products and the scaling of the 24 layers: 69 + 43 + 16 ms in the table of kernels.
    assert finding.facts["forward_us"] == pytest.approx(130_000, rel=0.03)
    assert "unfused-attention" not in found(report_of("qwen_generation_h100.json.gz"))


def test_checkpointed_blocks_are_seen_to_run_twice(report_of):
    finding = first(report_of("resnet_checkpointing_ddp_mi300_rank0of8.json.gz"), "recomputed-activations")
    assert finding.saving.high_us < finding.facts["recomputed_us"], "communication hides most of it"
