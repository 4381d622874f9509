"""The order in which a graph is played changes nothing, as long as everything stands after what it waits for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.computed import Computed
from advisor.drawing.events import H2D_PAGEABLE, ITEM, TO
from advisor.drawing.timeline import draw
from advisor.replay import play_order, stretches
from advisor.replay.graph import Graph, build
from advisor.replay.simulate import play_once, step_ns, weights_of
from advisor.trace.events import Trace
from advisor.trace.read.load import load, read_bytes

REAL = Path(__file__).parents[2].parent / "shared" / "traces"
NAMES = ("resnet50_workers0_v100.pt.trace.json.gz", "resnet_checkpointing_ddp_mi300_rank0of8.json.gz")
DRAWING = """
    step   [1                           ][2                           ]
    cpu    [C    ][F ][F ][I     ]       [C    ][F ][F ][I     ]
    cpu 2                         [B ]                         [B ]
    gpu 7    [M ]   [K][K  ][D]    [K ]    [M ]   [K][K  ][D]    [K ]
"""


def graph_of(trace: Trace) -> Graph:
    computed = Computed(trace=trace)
    return build(trace, computed.get(Steps), computed.get(Links), computed.get(Nesting))


def drawn() -> Trace:
    names = {"C": TO, "F": "aten::linear", "I": ITEM, "B": "autograd::engine::evaluate_function: MmBackward0"}
    made = draw(DRAWING, us=10, M=H2D_PAGEABLE, K="gemm", D="Memcpy DtoH (Device -> Pageable)", **names)
    return read_bytes(json.dumps(dict(made)).encode(), "t.json")


def check(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(trace)
    weights = weights_of(graph)
    quick = play_order.prepare(graph)
    with monkeypatch.context() as patch:
        patch.setattr(play_order, "_by_time", lambda *_: None)
        careful = play_order.prepare(graph)
    assert sorted(quick.order) == sorted(careful.order)
    one, other = play_once(quick, weights), play_once(careful, weights)
    assert np.array_equal(one.work_end, other.work_end)
    assert np.array_equal(one.point_time, other.point_time)
    assert step_ns(quick, weights) == step_ns(careful, weights)


def test_a_drawn_trace_plays_the_same_in_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = drawn()
    assert len(graph_of(trace).edges)
    check(trace, monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_a_real_trace_plays_the_same_in_both_orders(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (REAL / name).exists():
        pytest.skip("the real traces do not lie beside this checkout")
    check(load(REAL / name), monkeypatch)


def arrays_and_walks(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> set[bool]:
    """Plays as arrays wherever that is possible, and node by node; which kinds of pieces the former had."""
    graph = graph_of(trace)
    weights = weights_of(graph)
    unsynced = replace(weights, alive=np.arange(len(graph.edges)) % 3 > 0, work=weights.work * 0.7)
    ends, kinds = [], set()
    for shortest in (1, 1 << 40):
        with monkeypatch.context() as patch:
            patch.setattr(stretches, "SHORTEST", shortest)
            made = play_order.prepare(graph)
        kinds |= {bool(piece.chains) for piece in made.pieces} if shortest == 1 else set()
        assert [piece.start for piece in made.pieces[1:]] == [piece.end for piece in made.pieces[:-1]]
        for one in (weights, unsynced):
            played = play_once(made, one)
            ends.append(np.concatenate((played.work_end, played.point_time, [step_ns(made, one)])))
    for arrays, walked in zip(ends[:2], ends[2:], strict=True):
        assert np.allclose(arrays, walked, rtol=1e-12, atol=1e-6)
    return kinds


def test_stretches_played_as_arrays_end_as_those_played_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrays_and_walks(drawn(), monkeypatch) == {True}


@pytest.mark.parametrize("name", [*NAMES, "transformer_ddp_fp32_v100_rank1of2.json.gz"])
def test_stretches_of_a_real_trace_end_as_node_by_node(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (REAL / name).exists():
        pytest.skip("the real traces do not lie beside this checkout")
    trace = load(REAL / name)
    arrays_and_walks(trace, monkeypatch)
    assert {bool(piece.chains) for piece in play_order.prepare(graph_of(trace)).pieces} == {True, False}


def test_the_order_of_time_is_refused_where_it_breaks_a_dependency() -> None:
    graph = graph_of(drawn())
    works = np.arange(len(graph.work.row))
    before = np.full(len(works), len(graph.work.row) + len(graph.points))
    none = np.empty(0, np.int64)
    assert play_order._by_time(graph, works, before, none, none) is not None
    last, first = np.argmax(graph.work.end), np.argmin(graph.work.end)
    assert play_order._by_time(graph, works, before, np.array([first]), np.array([last])) is None
