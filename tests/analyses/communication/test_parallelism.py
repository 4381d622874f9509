"""What ranks communicate for, and which send is which receive: drawn by hand, with times that are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.analyses.communication.library import Library
from advisor.analyses.communication.parallelism import Parallelism, purpose_of
from advisor.capture.record import RankRecord, Settings
from advisor.computed import Computed
from advisor.drawing.events import Ev
from advisor.drawing.timeline import draw
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.trace.read.load import load, read_bytes

# One step of two stages, ms: (name, category, lane, from, to, peer). Rank 1 asks at 0 for what rank 0 sends at 10, and
# has it at 12; rank 0 asks at 12 for what rank 1 sends at 50, and has it at 60.
FIRST = [
    ("aten::linear", "cpu_op", 1, 0, 9, None),
    ("c10d::send", "cpu_op", 1, 10, 11, 1),
    ("gloo:send", "user_annotation", 2, 11, 30, None),
    ("c10d::recv_", "cpu_op", 1, 12, 12.5, 1),
    ("gloo:recv", "user_annotation", 2, 12, 60, None),
]
SECOND = [
    ("c10d::recv_", "cpu_op", 1, 0, 0.5, 0),
    ("gloo:recv", "user_annotation", 2, 0, 12, None),
    ("aten::linear", "cpu_op", 1, 13, 49, None),
    ("c10d::send", "cpu_op", 1, 50, 51, 0),
    ("gloo:send", "user_annotation", 2, 51, 61, None),
]
STEP_MS, STEPS = 100, 3


def stage(rank: int, rows: list[Any], begins_ms: float = 0, elements: int = 4) -> Computed:
    """The trace of a rank; its steps begin so much later than the drawn ones."""
    events = []
    for step in range(STEPS):
        for name, category, lane, start, end, peer in rows:
            args: dict[str, Any] = {"Input Dims": [[[elements]]] if name.startswith("c10d") else [[elements]]}
            if peer is not None:
                args |= {"Concrete Inputs": ["", "", str(peer), "0"], "Input Dims": [[[elements]], [], [], []]}
            events.append(row(name, category, lane, STEP_MS * step + start, end - start, args))
        length = STEP_MS - (begins_ms if step == STEPS - 1 else 0)
        events.append(
            row(f"ProfilerStep#{step}", "user_annotation", 1, STEP_MS * step + begins_ms, length, {"External id": 1})
        )
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
    document = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2, "pg_config": [group]},
        "traceEvents": events,
    }
    return Computed(trace=read_bytes(json.dumps(document).encode(), f"rank{rank}.pt.trace.json"))


def row(name: str, category: str, lane: int, start_ms: float, dur_ms: float, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": 1e6 + 1e3 * start_ms, "dur": 1e3 * dur_ms}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": lane, "args": args, **times}


def job(*stages: Computed) -> Ranks:
    return Ranks.of((0, 1), [one.get(RankFacts) for one in stages], 0)


def test_waiting_for_a_stage_is_told_from_messages_on_their_way() -> None:
    found = job(stage(0, FIRST), stage(1, SECOND))
    assert found.unpassed == 0
    forward, backward = found.passes
    assert (forward.source, forward.target, len(forward.sent_ns)) == (0, 1, STEPS)
    assert forward.waited_us == pytest.approx(10_000)
    assert forward.travels_us == pytest.approx(2_000)
    assert (backward.source, backward.target, len(backward.sent_ns)) == (1, 0, STEPS)
    assert backward.waited_us == pytest.approx(38_000)
    assert backward.travels_us == pytest.approx(10_000)


def test_windows_that_begin_at_different_messages_are_laid_over_each_other() -> None:
    found = job(stage(0, FIRST), stage(1, SECOND, begins_ms=13))
    forward, backward = found.passes
    # The first receive of rank 1 lies before its first step, the first send of rank 0 within its own.
    assert len(forward.sent_ns) == STEPS - 1
    assert ((forward.ended_ns - forward.sent_ns) == 2_000_000).all()
    assert len(backward.sent_ns) == STEPS
    assert ((backward.ended_ns - backward.sent_ns) == 10_000_000).all()


def test_messages_of_different_sizes_are_not_the_same() -> None:
    found = job(stage(0, FIRST), stage(1, SECOND, elements=8))
    assert found.passes == ()
    assert found.unpassed == 2


def test_what_stages_send_is_no_data_parallelism() -> None:
    found = stage(0, FIRST).get(Parallelism)
    assert [one.kind for one in found.kinds] == ["stages"]
    assert found.kinds[0].calls == 2
    assert found.kinds[0].ranks == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mesh_tp", "tensor"),
        ("mesh_dp", "data"),
        ("mesh_dp_shard", "sharded"),
        ("mesh_dp_replicate", "data"),
        ("mesh_pp", "stages"),
        ("mesh_cp", "context"),
        ("mesh_ep", "experts"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "stages"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "experts"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("default_pg", ""),
        ("undefined", ""),
        ("", ""),
    ],
)
def test_process_groups_say_what_they_are_for(text: str, kind: str) -> None:
    assert purpose_of(text) == kind


TRACES = Path(__file__).parents[3].parent / "shared" / "traces"


def of_file(name: str) -> Computed:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the recorded trace {path.name} is not beside this checkout")
    return Computed(trace=load(path))


def test_exchanges_of_embeddings_are_not_gradients() -> None:
    """Kernels of one name: 42 under nccl:all_to_all, 130.7 ms; the all-reduces take 32.9 ms, by the raw rows."""
    known = of_file("recsys_a100_control.json.gz")
    found = known.get(Parallelism)
    exchanged, data = found.of("exchanged"), found.of("data")
    assert exchanged is not None
    assert data is not None
    assert 6 * exchanged.us == pytest.approx(130_660, rel=0.01)
    assert 6 * data.us == pytest.approx(32_880, rel=0.01)
    assert known.get(Library) == Library("ddp", tables=True, pipelined=True)


def test_all_reduces_in_kernels_called_send_and_receive_are_no_stages() -> None:
    """NCCL 2.10 on 16 ranks: ten all-reduces run as ncclKernel_SendRecv_…, 126.6 ms by the raw rows."""
    found = of_file("recsys_a100x16_rank0.json.gz").get(Parallelism)
    assert found.of("stages") is None
    data, exchanged = found.of("data"), found.of("exchanged")
    assert data is not None
    assert exchanged is not None
    assert data.sums == 1


def test_reductions_to_shards_without_ddp_are_of_a_sharded_state() -> None:
    known = of_file("pairs/nanogpt-overlapped-reduction-h100-rank0of8/before.json.gz")
    assert [kind.kind for kind in known.get(Parallelism).kinds] == ["sharded"]
    assert known.get(Library).name == ""


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("FSDP::all_gather (layers.0)", "fsdp2"),
        ("FullyShardedDataParallel.forward", "fsdp1"),
        ("DistributedDataParallel.forward", "ddp"),
        ("deepspeed/runtime/engine.py(1800): forward", "deepspeed"),
        ("megatron/core/distributed/distributed_data_parallel.py(90): forward", "megatron"),
        ("train.py(7): forward", ""),
    ],
)
def test_rows_name_the_library(row: str, name: str) -> None:
    drawing = draw("step [1  ][2  ]\ncpu  [A ] [A ]", A=Ev(row, "user_annotation"))
    assert Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "a.json")).get(Library).name == name


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (
            RankRecord(model={"modules": [{"kind": "DeepSpeedEngine"}, {"kind": "DistributedDataParallel"}]}),
            "deepspeed",
        ),
        (RankRecord(settings=Settings(fsdp={"kind": "FSDP2"})), "fsdp2"),
        (RankRecord(settings=Settings(fsdp={"kind": "FSDP"})), "fsdp1"),
        (RankRecord(settings=Settings(ddp={"kind": "DDP"})), "ddp"),
    ],
)
def test_what_capture_recorded_names_the_library(record: RankRecord, name: str) -> None:
    drawing = draw("step [1  ][2  ]\ncpu  [A ] [A ]", A="aten::add")
    trace = read_bytes(json.dumps(dict(drawing)).encode(), "a.json")
    assert Computed(trace=trace, record=record).get(Library).name == name
