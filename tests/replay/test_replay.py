"""Replays of drawn traces whose answer a person works out by hand: what sets the pace, and edits of it.

A column is 100 µs. A drawn launch call takes the first 5 µs of its op; the launch delay is fitted, or the usual 2 µs
where fewer than five kernels found an empty stream. Those few µs are what `about` allows for.
"""

from __future__ import annotations

from typing import Any

import pytest
from replay_drawings import about, drawn, host, work

from advisor.api import (
    D2H_PAGEABLE,
    FORWARD,
    GEMM,
    ITEM,
    Ev,
)
from advisor.replay import simulate
from advisor.replay.edits import fuse, remove, scale, substitute, unsync

HOST_BOUND = """
    step   [1       ][2       ]
    cpu    [F  ][F  ][F  ][F  ]
    gpu 7  [K]  [K]  [K]  [K]
    """


def test_a_host_bound_step_gains_nothing_from_faster_kernels() -> None:
    # Host: two ops of 500 µs a step. The kernels (300 µs each) hide behind them: without them it still takes 1,000.
    trace, replay = drawn(HOST_BOUND, F=FORWARD, K=GEMM)
    assert replay.step_us == about(1000)
    assert replay.step_after_us(remove(work(trace))) == about(1000)
    assert replay.saving(remove(work(trace)), how="").high_us == about(0)


def test_the_device_sets_the_pace_once_the_host_is_fast_enough() -> None:
    # Ops at a tenth: 100 µs of host work. The two kernels of 300 µs now set the pace: 600 µs.
    trace, replay = drawn(HOST_BOUND, F=FORWARD, K=GEMM)
    assert replay.step_after_us(scale(host(trace, "aten::linear"), 0.1)) == about(600)
    # At seven tenths the host still does: 700 µs.
    assert replay.step_after_us(scale(host(trace, "aten::linear"), 0.7)) == about(700)


def test_substituting_a_measured_time_is_scaling_to_it() -> None:
    # Ops take 2 x 1,000 µs in the window; measured elsewhere they take 1,600: a step of 800 µs.
    trace, replay = drawn(HOST_BOUND, F=FORWARD, K=GEMM)
    assert replay.step_after_us(substitute(host(trace, "aten::linear"), 2000, 1600)) == about(800)


def test_many_small_kernels_fused_leave_their_work() -> None:
    # Ten ops of 100 µs launch ten kernels of 50 µs: host-bound, 1,000 a step. Fused into one op the host takes 100, and
    # the 500 µs of device work set the pace. Fused into six per step: 600 µs of host.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F       ][F       ]
        gpu 7  [K       ][K       ]
        """,
        F=Ev("aten::add", times=10),
        K=Ev("add_kernel", times=10, fill=0.5),
    )
    ops = host(trace, "aten::add")
    assert replay.step_us == about(1000)
    assert replay.step_after_us(fuse(ops, into=2)) == about(500)
    assert replay.step_after_us(fuse(ops, into=12)) == about(600)


@pytest.mark.parametrize(("pause_us", "step_us"), [(0, 600), (99, 600), (100, 467)])
def test_what_is_between_fused_ops_goes_with_them_where_it_is_short(pause_us: float, step_us: float) -> None:
    # Three ops of 400 µs a step, 100 µs of Python after the first two. As one, 400 µs are left, and the Python or not.
    trace, replay = drawn(
        """
        step   [1           ][2           ]
        cpu    [F ] [F ] [F ][F ] [F ] [F ]
        gpu 7   [K ] [K ] [K ][K ] [K ] [K]
        """,
        F=Ev("aten::add", launches="kernel"),
        K=Ev("add_kernel", "kernel", fill=0.25),
    )
    assert replay.step_us == about(1400)
    assert replay.step_after_us(fuse(host(trace, "aten::add"), into=2, pause_us=pause_us)) == about(step_us)


def test_a_full_launch_queue_holds_the_host_back() -> None:
    # 100 launches of 10 µs a step against 100 kernels of 20 µs: after enough steps the device sets the pace, 2,000 µs,
    # although the host's own steps look like 1,000 in the window that was recorded.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F       ][F       ]
        gpu 7  [K                                    ]
        """,
        F=Ev("aten::add", times=100),
        K=Ev("add_kernel", times=200),
    )
    assert replay.step_us == about(1900, by=150)
    assert replay.step_after_us(scale(work(trace), 0.25)) == about(1000)


def test_one_step_is_replayed_in_a_circle_with_low_confidence() -> None:
    # One step of 1,000 µs: host 300, the item waits until 800, 200 of Python. Without the wait: device 800.
    trace, replay = drawn(
        """
        step   [1       ]
        cpu    [F][I  ]
        gpu 7  [K  ][C]
        """,
        F=FORWARD,
        I=ITEM,
        K=GEMM,
        C=D2H_PAGEABLE,
    )
    assert replay.low_confidence
    assert replay.check.low_confidence
    assert replay.step_after_us(unsync(host(trace, "aten::item"))) == about(800)


def test_edits_that_several_ask_about_are_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A rule prices them, and what others leave to them, and what all fixes save together, is asked of the same ones.
    trace, replay = drawn(HOST_BOUND, F=FORWARD, K=GEMM)
    faster, without = scale(host(trace, "aten::linear"), 0.1), remove(work(trace))
    played: list[float] = []

    def step_ns(*given: Any) -> float:
        played.append(simulate.step_ns(*given))
        return played[-1]

    monkeypatch.setattr("advisor.analyses.costs.replay.step_ns", step_ns)
    saved = replay.saving(faster, how="")
    once = len(played)
    assert replay.saving(faster, how="").high_us == saved.high_us == replay.most_us([faster])
    assert replay.step_after_us(faster) == about(600)
    assert len(played) == once == len(replay.hypotheses)
    assert replay.saving(faster, without, how="").high_us > saved.high_us
    assert len(played) == 2 * once
