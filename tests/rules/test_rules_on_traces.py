"""What single rules say of real traces of others: found where the fault is, silent on traces that come near it."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.model import Outcome
from advisor.trace.read.load import load

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
RULES = load_rules().by_id()
MI300 = "resnet_checkpointing_ddp_mi300_rank0of8.json.gz"
QWEN = "qwen_generation_h100.json.gz"
RESNET = "resnet_fp32_v100_ns.pt.trace.json.gz"
CPU = "cpu_only_rank34.pt.trace.json.gz"


@cache
def computed(name: str) -> Computed:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the recorded trace {name} is not beside this checkout")
    return Computed(trace=load(path))


def outcome(rule: str, name: str) -> Outcome:
    return apply(RULES[rule], computed(name), {})


def test_transposes_are_counted_as_the_json_holds_them() -> None:
    found = outcome("layout-transposes", MI300)
    assert found.status == "found"
    rows = json.loads(gzip.decompress((TRACES / MI300).read_bytes()))["traceEvents"]
    kernels = [row for row in rows if row.get("cat") == "kernel" and row["name"].startswith("batched_transpose_")]
    # Some were launched before the first step.
    assert len(kernels) / 3 * 0.9 < found.findings[0].facts["transposes"] <= len(kernels) / 3
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC" in (found.findings[0].fix.title if found.findings[0].fix else "")


def test_a_handful_of_transposes_is_no_finding() -> None:
    rows = (TRACES / RESNET).read_bytes() if (TRACES / RESNET).exists() else b""
    assert outcome("layout-transposes", RESNET).status == "clear"
    assert b"nchwToNhwcKernel" in gzip.decompress(rows)


def test_a_model_of_small_kernels_is_told_from_one_of_large_ones() -> None:
    found = outcome("unfused-elementwise", QWEN)
    assert found.status == "found"
    rows = json.loads(gzip.decompress((TRACES / QWEN).read_bytes()))["traceEvents"]
    kernels = [row for row in rows if row.get("cat") == "kernel"]
    small = [row for row in kernels if "elementwise_kernel" in row["name"] or "reduce_kernel" in row["name"]]
    assert sum(row["dur"] for row in small) > 0.5 * sum(row["dur"] for row in kernels)
    assert found.findings[0].facts["runs_us"] <= sum(row["dur"] for row in small)
    for other in (MI300, RESNET):
        assert outcome("unfused-elementwise", other).status == "clear"


@pytest.mark.parametrize("name", [MI300, RESNET, CPU, QWEN])
@pytest.mark.parametrize(
    "rule",
    [
        "second-forward",
        "evaluation-with-gradients",
        "one-hot-inputs",
        "dense-embedding-gradients",
        "excess-padding",
        "weight-copies",
        "frequent-checkpoints",
        "allocator-churn",
        "blocking-launches",
        "recompiles",
        "unused-parameter-search",
    ],
)
def test_nobody_does_needless_work_in_these(rule: str, name: str) -> None:
    assert outcome(rule, name).status in ("clear", "skipped")


SAM = "pairs/segment-anything-fast-a100/before.json.gz"


def titles(rule: str, name: str) -> list[str]:
    found = outcome(rule, name).findings
    return [finding.fix.title if finding.fix else "" for finding in found]


def test_tf32_is_promised_for_products_and_not_for_fused_attention() -> None:
    """The attention kernels of this trace, fmha_cutlassF_f32…, take 163 of the 694 ms of its matrix work in fp32."""
    (finding,) = outcome("fp32-matmul", SAM).findings
    assert finding.message.startswith("Matrix multiplications in fp32")
    rows = json.loads(gzip.decompress((TRACES / SAM).read_bytes()))["traceEvents"]
    fused = sum(row["dur"] for row in rows if row.get("cat") == "kernel" and row["name"].startswith("fmha_cutlass"))
    assert fused == pytest.approx(163e3, rel=0.02)
    assert finding.facts["fp32_us"] == pytest.approx(694e3 - fused, rel=0.02)


def test_no_library_is_told_to_skip_what_it_may_refuse_to_skip() -> None:
    assert titles("exposed-communication", "pairs/nanogpt-overlapped-reduction-h100-rank0of8/before.json.gz") == [""]
    assert all("no_sync" not in title for title in titles("exposed-communication", "recsys_a100_control.json.gz"))
    assert "Exchange embeddings and their gradients in 16 bits" in titles(
        "exposed-communication", "recsys_a100_control.json.gz"
    )


def test_values_that_are_read_back_are_not_to_be_pinned() -> None:
    """Copies of 8 to 704 bytes to the host, in calls that wait for the device's work."""
    assert all("pinned" not in title for title in titles("idle-gpu", "recsys_a100x16_rank0.json.gz"))
    assert "Copy asynchronously from pinned memory" in titles("idle-gpu", "resnet50_workers4_v100.pt.trace.json.gz")


@pytest.mark.parametrize(("name", "us"), [(SAM, 68_301), (QWEN, 2_766)])
def test_copies_within_the_device_take_what_the_raw_rows_say(name: str, us: float) -> None:
    """us: the union of all device work minus that of all other work, by a sweep over the file that is not ours.

    In segment-anything's 80 copies of 17,304 µs more come right before layer norms, which would make them themselves.
    """
    (finding,) = outcome("device-copies", name).findings
    assert finding.facts["exposed_us"] == pytest.approx(us, rel=1e-3)


def test_zeroed_gradients_of_older_versions_are_found_beside_a_device() -> None:
    """966 fills of 27.3 ms in six steps, and as many additions of 23.0 ms; PyTorch before 2.0 filled by default."""
    (finding,) = outcome("gradients-set-to-zero", "resnet50_workers0_v100.pt.trace.json.gz").findings
    assert 6 * finding.facts["host_us"] == pytest.approx(27_270, rel=0.01)
    assert finding.saving is not None
    assert finding.saving.low_us == pytest.approx((27_270 + 23_037) / 6, rel=0.1)
