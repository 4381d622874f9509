"""Cost by module where the profiler recorded the modules by itself: drawn, and on real traces beside their raw rows."""

import gzip
import json
import math
from pathlib import Path

import pytest
from module_drawings import by_path, lane

from advisor.api import Ev, draw
from advisor.computed import Computed
from advisor.report.module_view import modules
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"


def test_modules_that_the_profiler_recorded_by_itself():
    text = lane("step", (0, 60, "1")) + lane("cpu", (2, 50, "N"))
    text += lane("cpu", (4, 20, "A"), (20, 32, "B"), (34, 40, "R"))
    text += lane("cpu", (6, 10, "a"), (22, 26, "b"), (35, 39, "c"))
    names = {"N": "Net_0", "A": "Linear_0", "B": "Linear_1", "R": "ReLU_0"}
    frames = {key: Ev(f"nn.Module: {name}", "python_function", launches="") for key, name in names.items()}
    trace = draw(text, us=10, **frames, a="aten::linear", b="aten::linear", c="aten::relu")
    computed = Computed(trace=read_bytes(json.dumps(dict(trace)).encode(), "a.json"))
    found = modules(computed, 0, None)
    rows = by_path(found)
    assert {path: row.forward_us for path, row in rows.items()} == {
        "Net": 480,
        "Net.Linear.0": 160,
        "Net.Linear.1": 120,
        "Net.ReLU": 60,
    }
    assert [(row.path, row.members, row.depth) for row in found.folded] == [
        ("Net", 1, 0),
        ("Net.Linear.0-1", 2, 1),
        ("Net.ReLU", 1, 1),
    ]


@pytest.mark.parametrize(
    ("name", "root"),
    [("qwen_generation_h100", "Qwen2Model"), ("timesformer_inference_h100", "TimesformerForVideoClassification")],
)
def test_real_gpu_traces_against_their_raw_rows(name, root):
    """Host time, device time and products of each layer, from the rows of the file alone."""
    path = TRACES / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"the recorded trace {path.name} is not beside this checkout")
    rows = [row for row in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if row.get("ph") == "X"]
    calls = {
        row["args"]["correlation"]: row
        for row in rows
        if "correlation" in row.get("args", {}) and row["cat"] in ("cuda_runtime", "cuda_driver")
    }

    def inside(row, frame):
        return row["tid"] == frame["tid"] and frame["ts"] <= row["ts"] < frame["ts"] + frame["dur"]

    def raw(frame):
        kernels = (
            row["dur"]
            for row in rows
            if row["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
            and (call := calls.get(row["args"].get("correlation"))) is not None
            and inside(call, frame)
        )
        products = (
            2 * math.prod(row["args"]["Input Dims"][at]) * row["args"]["Input Dims"][at + 1][-1]
            for row in rows
            if row["name"] in ("aten::mm", "aten::bmm", "aten::addmm") and inside(row, frame)
            for at in [1 if row["name"] == "aten::addmm" else 0]
        )
        return frame["dur"], sum(kernels), sum(products)

    frames = {row["name"]: row for row in rows if row["name"].startswith("nn.Module: ")}
    found = by_path(modules(Computed(trace=load(path)), 0, None))
    host, device, flops = raw(frames[f"nn.Module: {root}_0"])
    assert found[root].forward_us == pytest.approx(host, rel=1e-6)
    assert found[root].device_us == pytest.approx(device, rel=1e-6)
    assert found[root].flops >= flops
    linears = [name for name in frames if name.startswith("nn.Module: Linear_")]
    total = [sum(column) for column in zip(*(raw(frames[name]) for name in linears[:8]), strict=True)]
    ours = sorted((row for row in found.values() if row.kind == "Linear"), key=lambda row: row.path)
    assert len(ours) == len(linears)
    assert total[2] > 0
    assert sum(row.flops for row in ours) == pytest.approx(sum(raw(frames[name])[2] for name in linears), rel=1e-9)
