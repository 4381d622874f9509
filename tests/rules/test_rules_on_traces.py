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
