"""Steps that nothing marks, found by what a loop repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.analyses.base.repetition import repeated_steps
from advisor.analyses.base.steps import Steps
from advisor.analyses.base.training import Training
from advisor.computed import Computed
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"
REAL = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces beside the checkout ({TRACES.name}/)")
NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def rows_of(names: list[str]) -> list[dict[str, Any]]:
    """Ops one after the other, 10 µs each, 5 µs apart."""
    return [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 15 * at, "dur": 10, "args": {}}
        for at, name in enumerate(names)
    ]


def steps_of(names: list[str]) -> Steps:
    return Computed(trace=read_bytes(json.dumps({"traceEvents": rows_of(names)}).encode(), "made")).get(Steps)


def test_a_loop_of_forward_and_backward() -> None:
    steps = steps_of(["aten::randn"] + ["aten::linear", "aten::relu", "aten::linear", "aten::sum", NODE, NODE] * 5)
    assert (steps.source, steps.count) == ("repetition", 5)
    assert steps.spans[:, 0].tolist() == [15_000 * (1 + 6 * n) for n in range(5)]
    assert steps.labels[0] == "repetition 1"


def read_at(at: int) -> dict[str, Any]:
    """A copy to the host, while the op at this place runs."""
    name = "Memcpy DtoH (Device -> Pageable)"
    return {**rows_of([name])[0], "cat": "gpu_memcpy", "pid": 0, "tid": 7, "ts": 15 * at + 1, "dur": 2}


def steps_read_at(names: list[str], *places: int) -> Steps:
    rows = [*rows_of(names), *map(read_at, places)]
    return Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")).get(Steps)


_TOKEN = ["aten::embedding", *["aten::linear", "aten::silu"] * 30, "aten::argmax", "aten::_local_scalar_dense"]


def test_a_loop_that_reads_whether_to_go_on() -> None:
    """Tokens, whose layers repeat in them; also where the layers read, as experts do."""
    last = len(_TOKEN)
    steps = steps_read_at(_TOKEN * 6, *(last * token - 1 for token in range(1, 7)))
    assert (steps.source, steps.count) == ("repetition", 6)
    assert steps.spans[:, 0].tolist() == [15_000 * last * token for token in range(6)]
    experts = [name.replace("silu", "_local_scalar_dense") for name in _TOKEN]
    steps = steps_read_at(experts * 6, *range(last * 6))
    assert (steps.source, steps.count) == ("repetition", 6)


def test_one_pass_that_reads_in_its_layers_is_no_loop() -> None:
    one = ["aten::embedding", "aten::arange", *["aten::linear", "aten::_local_scalar_dense"] * 30, "aten::mean"]
    assert steps_read_at(one, *range(len(one))).source == "window"


def test_ops_that_come_twice_and_a_batch_that_is_fetched_first() -> None:
    """Batches copied in and out: no op comes once; each step begins with the fetch of its batch."""
    loop = [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "aten::to",
        *["aten::linear"] * 9,
        "aten::to",
    ]
    rows = rows_of(loop * 5)
    for row in rows:
        row["cat"] = "user_annotation" if row["name"].startswith("enumerate") else "cpu_op"
    rows.append(read_at(3))
    steps = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")).get(Steps)
    assert (steps.source, steps.count) == ("repetition", 5)
    assert steps.spans[:, 0].tolist() == [15_000 * len(loop) * number for number in range(5)]


def test_a_loop_of_few_ops_that_logs_now_and_then_has_its_fetches() -> None:
    """A step that is one CUDA graph: an op more in each tenth is too much of a rhythm of four."""
    fetch, graph = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "cudaGraphLaunch"
    names = [name for at in range(20) for name in (fetch, "aten::to", "aten::_foreach_copy_", graph, "aten::item")]
    kept = [name for at, name in enumerate(names) if name != "aten::item" or at % 50 == 49]
    rows = rows_of(kept)
    for row in rows:
        row["cat"] = {fetch: "user_annotation", graph: "cuda_runtime"}.get(row["name"], "cpu_op")
    rows += [{**row, "name": "gemm", "cat": "kernel", "pid": 0, "tid": 7} for row in rows if row["name"] == graph]
    steps = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")).get(Steps)
    # The end of the last one is not known.
    assert (steps.source, steps.count) == ("repetition", 19)


def test_ops_that_overlap_by_what_was_rounded_follow_each_other() -> None:
    rows = rows_of(["aten::mm", "aten::relu", NODE] * 5)
    for row in rows[::2]:
        row["dur"] = 15.001
    steps = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")).get(Steps)
    assert (steps.source, steps.count) == ("repetition", 5)


def test_what_an_iteration_has_more_is_part_of_the_window() -> None:
    """The first iteration is another: it belongs to what lies before the steps."""
    loop = ["aten::linear", "aten::relu", "aten::linear", "aten::sum", NODE]
    steps = steps_of(["aten::linear", "aten::empty", "aten::linear", "aten::sum", "aten::empty", NODE, *loop * 40])
    assert (steps.count, steps.source) == (40, "repetition")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["aten::linear", "aten::relu"] * 12, id="layers of one forward pass: nothing marks an iteration"),
        pytest.param(
            ["aten::linear"] * 9 + [NODE, NODE.replace("Addmm", "Relu")] * 9, id="layers of one backward pass"
        ),
        pytest.param(["aten::linear", "aten::relu", NODE] * 2, id="two are no repetition"),
        pytest.param(
            ["aten::mm", NODE, "aten::relu", "aten::sum", NODE, "aten::add", "aten::mm", NODE], id="no rhythm"
        ),
    ],
)
def test_what_is_no_loop(names: list[str]) -> None:
    assert steps_of(names).source == "window"


@REAL
@pytest.mark.parametrize(
    "name",
    [
        "resnet50_workers0_v100",
        "transformer_ddp_fp32_v100_rank1of2",
        "resnet_fp32_v100_ns",
        "resnet_checkpointing_ddp_mi300_rank0of8",
        "cpu_only_rank34",
        "pairs/tinylm-batch-4-to-32-rtx3060/before",
        "pairs/resnet50-workers-0-to-4-2021/before",
    ],
)
def test_repetitions_are_the_steps_that_the_profiler_marked(name: str) -> None:
    trace = load(path_of(name))
    steps = Computed(trace=trace).get(Steps)
    found = repeated_steps(trace, steps.main_thread)
    assert found is not None
    assert len(found) == steps.count
    # They may begin with another op of the step, but each is as long.
    assert np.median(np.diff(found[:, 0])) == pytest.approx(np.median(np.diff(steps.spans[:, 0])), rel=0.03)


@REAL
@pytest.mark.parametrize(
    ("name", "trains"),
    [
        ("mtia_inference_rank0", None),
        ("timesformer_inference_h100", False),
        ("qwen_generation_h100", False),
        ("pairs/segment-anything-fast-a100/before", False),
        ("pairs/particle-transformer-batch-16-to-128-a100/after", False),
        ("pairs/bert-h100-to-mi300x/before", False),
    ],
)
def test_one_pass_is_no_loop_and_no_training(name: str, trains: bool | None) -> None:
    trace = load(path_of(name))
    assert repeated_steps(trace, Computed(trace=trace).get(Steps).main_thread) is None
    if trains is not None:
        assert Training.compute(trace).seen is trains


def path_of(name: str) -> Path:
    [path] = (TRACES / name).parent.glob(f"{Path(name).name}*.json.gz")
    return path
