"""Replays of several threads, worked out by hand: who waits for the backward thread. A column is 100 µs."""

from __future__ import annotations

from replay_drawings import CPU_OP, about, drawn, host

from advisor.api import (
    FORWARD,
    GEMM,
    Ev,
)
from advisor.replay.edits import remove, remove_time, scale
from advisor.trace.intervals import union

BACKWARD_OP = Ev("autograd::engine::evaluate_function: MulBackward0")


BACKWARD = """
    step   [1       ][2       ]
    cpu    [F ]      [F ]
    cpu 2      [B ]      [B ]
    gpu 7  [K ]      [K ]
    gpu 7      [L ]      [L ]
    """


def test_the_loop_waits_for_the_backward_thread() -> None:
    # F 0-400 on the loop's thread, B 400-800 on the other while the loop waits, then 200 µs of Python: 1,000.
    # The backward at half: 800. The forward at half: 800. Both: 600 on the host, but K and L are 800 of device work.
    trace, replay = drawn(BACKWARD, F=FORWARD, B=BACKWARD_OP, K=GEMM, L=GEMM)
    forward, backward = host(trace, "aten::linear"), host(trace, "evaluate_function")
    assert replay.step_us == about(1000)
    assert replay.step_after_us(scale(backward, 0.5)) == about(800)
    assert replay.step_after_us(scale(forward, 0.5)) == about(800)
    assert replay.step_after_us(scale(forward, 0.5), scale(backward, 0.5)) == about(800)


def test_a_thread_that_nobody_waits_for_costs_nothing() -> None:
    # The other thread works while the loop's own op (800 µs) runs: released by the loop, awaited by nobody. Without it
    # a step still takes 800 + 200 of Python; with the op at half, 400 + 200.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F     ]  [F     ]
        cpu 2     [B ]      [B ]
        gpu 7  [K]       [K]
        gpu 7     [L]       [L]
        """,
        F=FORWARD,
        B=BACKWARD_OP,
        K=GEMM,
        L=GEMM,
    )
    assert replay.step_after_us(remove(host(trace, "evaluate_function"))) == about(1000)
    assert replay.step_after_us(scale(host(trace, "aten::linear"), 0.5)) == about(600)


def test_a_step_on_the_cpu_is_the_order_of_its_thread() -> None:
    # No device: 600 µs of sorting and 400 µs of Python. The op gone: 400. Python gone: 600.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [S   ]    [S   ]
        """,
        S=CPU_OP,
    )
    assert replay.start_error_us is None
    assert replay.step_after_us(remove(host(trace, "aten::sort"))) == about(400)
    start = int(trace.events.start_ns.min())
    python = remove_time(union([start + 600_000, start + 1_600_000], [start + 1_000_000, start + 2_000_000]))
    assert replay.step_after_us(python) == about(600)


def test_a_backward_thread_on_the_cpu_is_waited_for() -> None:
    # No device: forward 300, backward on another thread 500, Python 200. The backward at a fifth: 600 a step.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F]       [F]
        cpu 2     [B  ]     [B  ]
        """,
        F=CPU_OP,
        B=BACKWARD_OP,
    )
    assert replay.step_after_us(scale(host(trace, "evaluate_function"), 0.2)) == about(600)
