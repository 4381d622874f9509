"""Another GPU for the same step: drawn steps by hand, real ones by what must hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from advisor.analyses.base.scale import Scale
from advisor.analyses.work.kernel_work import KernelWork
from advisor.api import SYNC, Ev, Report, draw, encode_report
from advisor.computed import Computed
from advisor.engine.registry import load_reporter
from advisor.errors import UsageError
from advisor.report.report_file import decode
from advisor.report.what_if import known_device, on
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
HALF = "c10::BFloat16"
# 5.6 ms at the peak of an A100 (312e12/s), drawn as 9.5 ms: 59 % of the peak, what well-made products reach.
_PRODUCT = Ev("aten::mm", dims=[[8192, 8192], [8192, 13056]], dtypes=[HALF] * 2)
_KERNEL = Ev("ampere_bf16_s16816gemm_bf16_128x64_tn", "kernel")
_BUSY = """
    step   [1                  ][2                  ]
    cpu    [A][S              ] [A][S              ]
    gpu 7   [K               ]   [K               ]
    """


def computed(trace):
    return Computed(trace=read_bytes(json.dumps(dict(trace)).encode(), "a.json"))


@pytest.fixture
def busy():
    """A step of 10 ms of which a product takes 9 ms on an A100."""
    return computed(draw(_BUSY, us=500, device="A100", A=_PRODUCT, S=SYNC, K=_KERNEL))


def test_a_product_takes_as_long_as_the_rates_say(busy):
    group = busy.get(KernelWork).groups[0]
    assert group.least_us == pytest.approx(2 * 8192 * 8192 * 13056 / 312e6)
    assert 0.5 < group.reached < 0.7
    step_us = busy.get(Scale).step_us
    found = on(busy, "NVIDIA H100 80GB HBM3")
    by_hand = step_us - group.us * (1 - 312.0 / 989.4)
    assert found.low_us < by_hand < found.high_us
    assert found.high_us - found.low_us < 0.35 * by_hand  # 12 % either way, and what the replay is off by
    assert found.known_share == 1


def test_a_slower_device_makes_the_step_longer(busy):
    found = on(busy, "A30")
    factor = 312.0 / 165.0
    step_us, kernel_us = busy.get(Scale).step_us, busy.get(KernelWork).groups[0].us
    middle = step_us + kernel_us * (factor - 1)
    assert found.low_us < middle < found.high_us
    assert found.low_us > step_us


def test_the_same_device_takes_as_long(busy):
    found = on(busy, "A100 80GB")
    assert found.low_us < busy.get(Scale).step_us < found.high_us


def test_a_format_without_matrix_units_runs_on_the_plain_ones(busy):
    found = on(busy, "V100")  # bf16 there: 15.7 instead of 312
    assert found.low_us > 15 * busy.get(Scale).step_us


def test_memory_decides_what_moves_bytes():
    add = Ev("aten::add", dims=[[1 << 28], [1 << 28]], dtypes=["float"] * 2)
    kernel = Ev("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "kernel")
    known = computed(draw(_BUSY, us=110, device="A100", A=add, S=SYNC, K=kernel))
    group = known.get(KernelWork).groups[0]
    assert group.least_us == pytest.approx(3 * 4 * (1 << 28) / 2039e3)
    found = on(known, "H200")
    saved = group.us * (1 - 2039 / 4800)
    step_us = known.get(Scale).step_us
    assert found.low_us < step_us - saved < found.high_us


def test_a_host_that_is_the_limit_stays_the_limit():
    drawing = """
        step   [1                 ][2                 ]
        cpu    [A ][B            ] [A ][B            ]
        gpu 7   [K ]                [K ]
        """
    known = computed(draw(drawing, us=500, device="A100", A=_PRODUCT, B=Ev("aten::where", launches=""), K=_KERNEL))
    found = on(known, "B200")
    assert "limited by the host" in found.message
    assert found.low_us > 0.9 * known.get(Scale).step_us


def test_without_shapes_all_is_a_range():
    known = computed(draw(_BUSY, us=500, device="A100", A=Ev("aten::mm"), S=SYNC))
    found = on(known, "H200")
    step_us = known.get(Scale).step_us
    assert found.high_us == pytest.approx(step_us, rel=0.01)
    assert found.low_us < 0.6 * step_us
    assert found.known_share == 0


def test_what_cannot_be_said_is_a_sentence():
    found = on(computed(draw("step [1   ][2   ]\ncpu  [A ] [A ]", A=_PRODUCT)), "H100")
    assert found.low_us is None
    assert "only the CPU was recorded" in found.message


def test_a_device_without_rates_is_refused():
    with pytest.raises(UsageError, match="H200"):
        known_device("H999")
    with pytest.raises(UsageError, match="A16"):
        known_device("A16")


@pytest.mark.parametrize(
    "name", ["resnet50_workers0_v100.pt.trace.json.gz", "transformer_ddp_fp32_v100_rank1of2.json.gz"]
)
def test_real_steps_that_wait_for_their_host(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the recorded trace {name} is not beside this checkout")
    found = on(Computed(trace=load(path)), "H200")
    assert "limited by the host" in found.message


def test_the_report_shows_it(tmp_path, busy):
    path = tmp_path / "a.pt.trace.json"
    path.write_text(json.dumps(dict(draw(_BUSY, us=500, device="A100", A=_PRODUCT, S=SYNC, K=_KERNEL))))
    command = [sys.executable, "-m", "advisor", "analyze", str(path), "--what-if-gpu", "H100", "--format", "json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    report: Report = decode(done.stdout)
    assert report.what_if[0].device == "H100 SXM"
    assert decode(encode_report(report)).what_if == report.what_if
    for form in ("text", "markdown", "html"):
        shown = load_reporter(form)(report)
        assert "H100 SXM" in shown
        assert "H100 SXM" not in load_reporter(form)(replace(report, what_if=()))
    refused = subprocess.run([*command[:6], "H999"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "H999" in refused.stderr
