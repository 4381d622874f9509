"""MFU: by hand on drawn traces, and on real ones against sums over the raw file."""

import gzip
import json
import math
from pathlib import Path

import pytest

from advisor.analyses.work.model_flops import ModelFlops, Utilisation
from advisor.api import Ev, RankRecord, StepTimes, draw
from advisor.computed import Computed, Missing
from advisor.report.metrics import measure
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"
HALF = "c10::BFloat16"
_STEPS = """
    step   [1                ][2                ]
    cpu    [A  ][B  ]          [A  ][B  ]
    gpu 7   [K        ][L ]     [K        ][L ]
    """
_FORWARD = Ev("aten::addmm", dims=[[4096], [8192, 4096], [4096, 4096], [], []], dtypes=[HALF] * 3 + ["Scalar"] * 2)
_BACKWARD = Ev("aten::mm", dims=[[4096, 8192], [8192, 4096]], dtypes=[HALF] * 2)
_QKV = [[2, 1024, 8, 64]] * 3
_FLAGS = [""] * 8 + ["True"]
_FLAGS_3 = [""] * 24 + ["True"]
_KERNEL = Ev("ampere_bf16_s16816gemm_bf16_128x64_tn", "kernel")


def computed(trace, record=None):
    return Computed(trace=read_bytes(json.dumps(dict(trace)).encode(), "a.json"), record=record)


def test_products_at_the_peak_of_their_format():
    known = computed(draw(_STEPS, us=1000, device="A100", A=_FORWARD, B=_BACKWARD, K=_KERNEL, L=_KERNEL))
    flops = 2 * (2 * 8192 * 4096 * 4096)  # both products of a step
    assert known.get(ModelFlops).flops == flops
    peak_us = flops / 312e12 * 1e6
    assert known.get(ModelFlops).peak_us == pytest.approx(peak_us)
    assert known.get(Utilisation).share == pytest.approx(peak_us / 19_000, rel=0.06)


def test_the_mean_step_without_the_profiler_is_what_counts():
    record = RankRecord(steps=StepTimes(unprofiled_us=[4000.0, 4000.0, 10_000.0]))
    known = computed(draw(_STEPS, us=1000, device="A100", A=_FORWARD, B=_BACKWARD, K=_KERNEL, L=_KERNEL), record)
    assert measure(known)["mfu"].value == pytest.approx(known.get(ModelFlops).peak_us / 6000)


def test_recomputed_products_are_not_the_models():
    node = Ev("autograd::engine::evaluate_function: CheckpointFunctionBackward", launches="")
    drawing = """
        step   [1                      ][2                      ]
        cpu    [A  ][N            ]      [A  ][N            ]
        cpu         [F  ]                     [F  ]
        cpu         [A  ][B  ]                [A  ][B  ]
        gpu 7   [K  ][L  ][M  ]          [K  ][L  ][M  ]
        """
    linear = Ev("aten::linear", launches="")
    # The op inside must be shorter than what holds it.
    inner = Ev(_FORWARD.name, dims=_FORWARD.dims, dtypes=_FORWARD.dtypes, fill=0.5)
    trace = draw(drawing, us=1000, N=node, F=linear, A=inner, B=_BACKWARD, K=_KERNEL, L=_KERNEL, M=_KERNEL)
    assert computed(trace).get(ModelFlops).flops == 2 * (2 * 8192 * 4096 * 4096)


def test_fp8_and_grouped_products_count_at_the_rates_of_their_formats():
    eight = Ev("aten::_scaled_mm", dims=[[8192, 4096], [4096, 4096]], dtypes=["c10::Float8_e4m3fn"] * 2)
    grouped = Ev("aten::_grouped_mm", dims=[[8192, 4096], [8, 4096, 4096], [8]], dtypes=[HALF, HALF, "int"])
    fp8 = Ev("nvjet_sm90_qqtst_128x256_128x6_2x1_v_bz_TNT", "kernel")
    experts = Ev("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<bfloat16_t>>(x)", "kernel")
    trace = draw(_STEPS, us=1000, device="H100", A=eight, B=grouped, K=fp8, L=experts)
    known = computed(trace).get(ModelFlops)
    each = 2 * 8192 * 4096 * 4096
    assert known.flops == 2 * each
    assert known.peak_us == pytest.approx((each / 1978.9e12 + each / 989.4e12) * 1e6)


def test_attention_that_another_counted_op_computes_counts_once():
    outer = Ev(
        "aten::_flash_attention_forward",
        launches="",
        dims=_QKV,
        dtypes=[HALF] * 3 + ["Scalar"] * 6,
        args={"Concrete Inputs": _FLAGS},
    )
    inner = Ev(
        "flash_attn_3::fwd",
        fill=0.5,
        dims=_QKV,
        dtypes=[HALF] * 3 + ["Scalar"] * 22,
        args={"Concrete Inputs": _FLAGS_3},
    )
    drawing = """
        step   [1                ][2                ]
        cpu    [O  ]               [O  ]
        cpu    [I ]                [I ]
        gpu 7     [K        ]         [K        ]
        """
    kernel = Ev("void cutlass::device_kernel<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>(x)", "kernel")
    known = computed(draw(drawing, us=1000, device="H100", O=outer, I=inner, K=kernel)).get(ModelFlops)
    assert known.flops == 4 * 2 * 8 * 1024 * 1024 * 64 / 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"A": Ev("aten::addmm"), "B": Ev("aten::mm")}, "shapes"),
        ({"A": Ev("aten::_foreign")}, "cannot be counted"),
        ({"A": Ev("aten::convolution", dims=[[8, 3, 9, 9], [4, 3, 3, 3]], dtypes=[HALF] * 2)}, "arguments"),
    ],
)
def test_what_is_known_in_part_is_not_measured(change, says):
    made = {"A": _FORWARD, "B": _BACKWARD, "K": _KERNEL, "L": _KERNEL} | change
    with pytest.raises(Missing, match=says):
        computed(draw(_STEPS, us=1000, **made)).get(ModelFlops)
    assert measure(computed(draw(_STEPS, us=1000, **made)))["mfu"].status == "not_measured"


def test_a_cpu_has_no_peak():
    trace = draw("step [1      ][2      ]\ncpu  [A  ][B ] [A  ][B ]", A=_FORWARD, B=_BACKWARD)
    assert "CPU" in measure(computed(trace))["mfu"].why


def test_a_real_trace_against_its_raw_rows():
    path = TRACES / "qwen_generation_h100.json.gz"
    if not path.exists():
        pytest.skip(f"the recorded trace {path.name} is not beside this checkout")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    rows = [row for row in events if row.get("cat") == "cpu_op"]
    flops = 0.0
    for row in rows:
        dims = row["args"]["Input Dims"]
        if row["name"] in ("aten::mm", "aten::bmm"):
            flops += 2 * math.prod(dims[0]) * dims[1][-1]
        elif row["name"] == "aten::addmm":
            flops += 2 * math.prod(dims[1]) * dims[2][-1]
        elif row["name"] == "aten::_flash_attention_forward":
            batch, tokens, heads, width = dims[0]
            flops += 4 * batch * heads * tokens * tokens * width / 2  # causal
    known = Computed(trace=load(path))
    assert known.get(ModelFlops).flops == pytest.approx(flops, rel=1e-9)
