"""What ranks communicate for, and which send is which receive: drawn by hand, with times that are known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.communication.parallelism import Parallelism, purpose_of
from advisor.computed import Computed
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.trace.read.load import read_bytes

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
        ("default_pg", ""),
        ("undefined", ""),
        ("", ""),
    ],
)
def test_process_groups_say_what_they_are_for(text: str, kind: str) -> None:
    assert purpose_of(text) == kind
