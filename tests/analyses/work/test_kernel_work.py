"""Kernels against what their device allows: by hand, and on real traces with the fault and without."""

import functools
import json
from pathlib import Path

import pytest

from advisor.analyses.work.kernel_work import KernelWork
from advisor.api import GEMM, SYNC, Device, Ev, draw
from advisor.computed import Computed, Missing
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"
RULES = load_rules().by_id()
TIMESFORMER, QWEN = "timesformer_inference_h100.json.gz", "qwen_generation_h100.json.gz"
MI300 = "resnet_checkpointing_ddp_mi300_rank0of8.json.gz"
RESNETS = ("resnet50_workers0_v100.pt.trace.json.gz", "resnet50_workers4_v100.pt.trace.json.gz")
HALF = "c10::BFloat16"
_STEPS = """
    step   [1                  ][2                  ]
    cpu    [A][S              ] [A][S              ]
    gpu 7   [K               ]   [K               ]
    """


@functools.cache
def real(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the recorded trace {name} is not beside this checkout")
    return Computed(trace=load(path))


def drawn(op, kernel=GEMM, **options):
    trace = draw(_STEPS, **{"us": 100, "device": "A100", "A": op, "S": SYNC, "K": kernel} | options)
    return Computed(trace=read_bytes(json.dumps(dict(trace)).encode(), "a.json"))


def test_a_product_by_hand():
    op = Ev("aten::mm", dims=[[4096, 4096], [4096, 4096]], dtypes=[HALF] * 2)
    (group,) = drawn(op, Ev("ampere_bf16_s16816gemm", "kernel")).get(KernelWork).groups
    assert (group.kind, group.precision, group.calls) == ("product", "bf16", 1)
    assert group.least_us == pytest.approx(2 * 4096**3 / 312e6)
    assert group.by_arithmetic
    assert group.us == 1800
    assert group.reached == pytest.approx(group.least_us / 1800)


def test_a_product_of_few_rows_is_held_to_the_memory():
    op = Ev("aten::mm", dims=[[8, 8192], [8192, 8192]], dtypes=[HALF] * 2)
    (group,) = drawn(op, Ev("ampere_bf16_s16816gemm", "kernel")).get(KernelWork).groups
    assert not group.by_arithmetic
    assert group.least_us == pytest.approx(2 * (8 * 8192 + 8192 * 8192 + 8 * 8192) / 2039e3)


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [("ampere_sgemm_128x64_nn", "fp32"), ("ampere_tf32_s1688gemm_128x64", "tf32"), ("unnamed_kernel", "fp32")],
)
def test_fp32_is_held_to_the_format_that_the_kernel_names(kernel, precision):
    op = Ev("aten::mm", dims=[[4096, 4096], [4096, 4096]], dtypes=["float"] * 2)
    (group,) = drawn(op, Ev(kernel, "kernel")).get(KernelWork).groups
    assert group.precision == precision


def test_without_shapes_or_rates_nothing_is_said():
    with pytest.raises(Missing, match="record_shapes"):
        drawn(Ev("aten::mm")).get(KernelWork)
    trace = draw("step [1   ][2   ]\ncpu  [A ] [A ]", A=Ev("aten::mm", dims=[[8, 8]] * 2, dtypes=["float"] * 2))
    with pytest.raises(Missing, match="only the CPU was recorded"):
        Computed(trace=read_bytes(json.dumps(dict(trace)).encode(), "a.json")).get(KernelWork)


@pytest.mark.parametrize("name", [QWEN, TIMESFORMER, RESNETS[1]])
def test_plain_elementwise_kernels_reach_most_of_the_memory(name):
    """A check of the sums themselves: these kernels are known to be limited by memory alone."""
    plain = [
        group.reached
        for group in real(name).get(KernelWork).groups
        if group.op in ("aten::add", "aten::add_", "aten::threshold_backward")
        and "::vectorized_elementwise_kernel" in group.kernel
        and group.least_us > 15
    ]
    assert plain
    assert all(0.8 < reached < 1.0 for reached in plain)


def test_products_on_an_h100_reach_what_such_products_reach():
    groups = [g for g in real(QWEN).get(KernelWork).groups if g.kind == "product" and g.least_us > 15]
    assert groups
    assert all(0.5 < group.reached < 0.8 and group.by_arithmetic for group in groups)


def test_an_odd_number_of_tokens_is_found_where_it_is():
    found = apply(RULES["odd-sizes"], real(TIMESFORMER), {})
    (finding,) = found.findings
    assert finding.facts["sizes"] == [3137]
    assert "3,137" in finding.message
    # The softmax and two products, from the raw rows: 5.71 + 1.90 + 1.69 ms, twelve times.
    assert finding.facts["kernels_us"] == pytest.approx(12 * (5707 + 1897 + 1694), rel=0.01)
    assert any("align1" in kernel for kernel in finding.facts["kernels"])


@pytest.mark.parametrize("name", [QWEN, MI300, *RESNETS])
def test_sizes_that_fit_are_left_alone(name):
    assert apply(RULES["odd-sizes"], real(name), {}).status == "clear"


def test_few_blocks_are_seen_though_hiding_them_gains_nothing_there():
    known = real(MI300)
    assert known.get(Device).multiprocessors == 304
    # Communication is the limit of these steps: the replay gives back 1.3 %, below what is worth a finding.
    assert apply(RULES["idle-multiprocessors"], known, {}).status == "clear"
    (finding,) = apply(RULES["idle-multiprocessors"], known, {"min_share": 0.01}).findings
    assert finding.facts["blocks"] in (64, 128)
    assert all("batch_norm" in op for op in finding.facts["ops"])
    assert finding.saving.high_us < 0.02 * 16_200


@pytest.mark.parametrize("rule", ["slow-kernels", "idle-multiprocessors", "uneven-kernels", "slow-bus"])
@pytest.mark.parametrize("name", [QWEN, TIMESFORMER, *RESNETS])
def test_kernels_of_these_are_near_enough(rule, name):
    assert apply(RULES[rule], real(name), {}).status == "clear"


@pytest.mark.parametrize("name", [QWEN, TIMESFORMER, MI300, *RESNETS])
def test_no_keys_are_copied_for_groups_of_heads(name):
    assert apply(RULES["repeated-heads"], real(name), {}).status == "clear"
