"""Replays of a loop and its loader, worked out by hand: in the loop's process, or in workers. A column is 100 µs."""

from __future__ import annotations

from replay_drawings import CPU_OP, about, drawn, host

from advisor.api import (
    FORWARD,
    GEMM,
    NEXT,
    NEXT_WORKERS,
)
from advisor.replay.edits import move, scale
from advisor.replay.loader import READY_NS

LOADER = """
    step   [1       ][2       ][3       ]
    cpu    [D   ][F ][D   ][F ][D   ][F ]
    gpu 7        [K]       [K]       [K]
    """


def test_a_batch_made_in_the_loop_can_be_made_by_workers() -> None:
    # num_workers=0: 600 µs of fetching and 400 µs of training a step. Moved to one worker, the worker's 600 µs a step
    # set the pace; to two workers, 300 µs each: the loop's 400.
    trace, replay = drawn(LOADER, D=NEXT, F=FORWARD, K=GEMM)
    fetches = host(trace, "enumerate(DataLoader)")
    assert replay.step_us == about(1000)
    assert replay.step_after_us(move(fetches)) == about(600)
    assert replay.step_after_us(move(fetches, lanes=2)) == about(400)


def test_workers_that_are_too_slow_set_the_pace() -> None:
    # Columns of 1 ms: each batch arrives every 10 ms, the loop waits for it (0-6) and trains for 4 ms.
    # Faster training changes nothing; workers at half their time (5 ms a batch) leave 5 ms a step; at a quarter the
    # loop's own 4 ms and the millisecond of handing over a batch set it.
    trace, replay = drawn(LOADER, us=1000, D=NEXT_WORKERS, F=FORWARD, K=GEMM)
    fetches = host(trace, "enumerate(DataLoader)")
    assert replay.step_us == about(10_000)
    assert replay.step_after_us(scale(host(trace, "aten::linear"), 0.5)) == about(10_000)
    assert replay.step_after_us(scale(fetches, 0.5)) == about(5_000)
    assert replay.step_after_us(scale(fetches, 0.25)) == about(4_000 + READY_NS / 4e3)


def test_workers_that_are_fast_enough_cost_nothing() -> None:
    # Fetches of 300 µs hand over a batch that lies ready: work of the loop like any other.
    trace, replay = drawn(
        """
        step   [1       ][2       ][3       ]
        cpu    [D][F    ][D][F    ][D][F    ]
        """,
        D=NEXT_WORKERS,
        F=CPU_OP,
    )
    assert replay.step_after_us(scale(host(trace, "aten::sort"), 0.5)) == about(300 + 350)
