"""Replays of drawn traces whose answer a person works out by hand.

A column is 100 µs. A drawn launch call takes the first 5 µs of its op; the launch delay is fitted, or the usual 2 µs
where fewer than five kernels found an empty stream. Those few µs are what `about` allows for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay_drawings import drawn, host, replayed, work

from advisor.api import (
    ALLREDUCE,
    D2H_PAGEABLE,
    FORWARD,
    GEMM,
    H2D_PAGEABLE,
    H2D_PINNED,
    ITEM,
    NCCL,
    NEXT,
    NEXT_WORKERS,
    SYNC,
    TO,
    Ev,
    draw,
)
from advisor.replay.edits import fuse, move, remove, remove_time, scale, substitute, unsync
from advisor.replay.loader import READY_NS
from advisor.trace.intervals import union

BACKWARD_OP = Ev("autograd::engine::evaluate_function: MulBackward0")
STREAM_WAIT = Ev("cudaStreamWaitEvent", "cuda_runtime", launches="")
CPU_OP = Ev("aten::sort", launches="")
ELSEWHERE = Ev("side_kernel", "kernel")


def about(us: float, by: float = 25) -> Any:
    """Within the few µs of launch calls and delays."""
    return pytest.approx(us, abs=by)


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


DRAINED = """
    step   [1       ][2       ]
    cpu    [F][I  ]  [F][I  ]
    gpu 7  [K  ][C]  [K  ][C]
    """
# Host: F 0-300, the item launches its copy at 300 and waits from 305 until 800, then 200 µs of Python.
# Device: K 0-500, C 500-800.


def test_a_drained_queue_costs_the_idle_after_the_wait() -> None:
    # Without the wait: host 300 + 5 + 200 = 505 µs a step, device 500 + 300 = 800 µs: the device sets the pace.
    # The host stood 495 µs in the wait; what its removal gives back is the 200 µs that the device was idle after it.
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    assert replay.step_us == about(1000)
    assert replay.step_after_us(unsync(host(trace, "aten::item"))) == about(800)
    saving = replay.saving(unsync(host(trace, "aten::item")), how="no wait")
    assert (saving.low_us, saving.high_us) == (about(200), about(200))
    assert (saving.basis, saving.how) == ("replayed", "no wait")


def test_work_before_a_wait_is_on_the_critical_path() -> None:
    # K at half ends at 250; the copy starts when it is launched, at 307, and ends at 607; 200 µs of Python: 807.
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    assert replay.step_after_us(scale(work(trace, "sgemm"), 0.5)) == about(807)


def test_removing_an_item_removes_its_copy_too() -> None:
    # Without item and copy: host 300 + 200 = 500, device 500.
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    assert replay.step_after_us(remove(host(trace, "aten::item"))) == about(500)


def test_python_between_ops_can_be_taken_out() -> None:
    # The last 200 µs of each step are Python. Without them the step ends with the item, at 800.
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    start = int(trace.events.start_ns.min())
    spans = union([start + 800_000, start + 1_800_000], [start + 1_000_000, start + 2_000_000])
    assert replay.step_after_us(remove_time(spans)) == about(800)


def test_two_edits_together_are_not_their_sum() -> None:
    # No wait: saves 200 (the device takes 800). No Python: saves 200. Both: still 800 of device work: 200, not 400.
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    start = int(trace.events.start_ns.min())
    python = remove_time(union([start + 800_000, start + 1_800_000], [start + 1_000_000, start + 2_000_000]))
    assert replay.step_after_us(unsync(host(trace, "aten::item")), python) == about(800)


def test_a_device_synchronisation_waits_for_the_longest_stream() -> None:
    # K runs 0-400 on stream 7, L 300-800 on stream 8; the synchronisation waits from 600 until 800, then 200 of Python.
    # Halving K changes nothing. Halving L (300 + 250 = 550) ends the wait at once, at 600: 800 a step.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F][F][]  [F][F][]
        gpu 7  [K ]      [K ]
        gpu 8     [L  ]     [L  ]
        """,
        F=FORWARD,
        K=GEMM,
        L=ELSEWHERE,
        **{"": SYNC},
    )
    assert replay.step_us == about(1000)
    assert replay.step_after_us(scale(work(trace, "sgemm"), 0.5)) == about(1000)
    assert replay.step_after_us(scale(work(trace, "side_kernel"), 0.5)) == about(800)


def test_streams_without_an_event_do_not_wait_for_each_other() -> None:
    # Each step: 600 µs of ops, 400 µs of Python. Without the Python stream 8 sets the pace with its 700 µs a step;
    # if its work waited for the 400 µs of stream 7, it would be 1,100.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F][F]    [F][F]
        gpu 7  [K ]      [K ]
        gpu 8     [L    ]   [L    ]
        """,
        F=FORWARD,
        K=GEMM,
        L=ELSEWHERE,
    )
    start = int(trace.events.start_ns.min())
    python = remove_time(union([start + 600_000, start + 1_600_000], [start + 1_000_000, start + 2_000_000]))
    assert replay.step_after_us(python) == about(700)


def test_a_stream_waits_for_the_event_of_another() -> None:
    # F 0-300, cudaStreamWaitEvent 300-450, G launches L at 450; L waits for K (0-600) and runs 600-800; the
    # synchronisation waits from 650 until 800; 200 µs of Python: 1,000 a step.
    # K at half (300): L runs from its launch, 457-657; the synchronisation returns at 657: 857 a step.
    # L does not wait for K any more if K is gone: nothing else changes. L at half (100): 600-700: 900 a step.
    trace, replay = drawn(
        """
        step   [1                 ][2                 ]
        cpu    [F   ][W][G ][S]    [F   ][W][G ][S]
        gpu 7  [K         ]        [K         ]
        gpu 8              [L ]                [L ]
        """,
        us=50,
        F=FORWARD,
        W=STREAM_WAIT,
        G=FORWARD,
        S=SYNC,
        K=GEMM,
        L=ELSEWHERE,
    )
    assert replay.step_us == about(1000)
    assert any("inferred" in note for note in replay.notes)
    assert replay.step_after_us(scale(work(trace, "sgemm"), 0.5)) == about(857)
    assert replay.step_after_us(remove(work(trace, "sgemm"))) == about(857)
    assert replay.step_after_us(scale(work(trace, "side_kernel"), 0.5)) == about(900)


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


def test_a_hidden_copy_costs_nothing() -> None:
    # A pinned copy on its own stream (0-300) while the kernel of the stream before runs: the host sets the pace.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [T][F    ][T][F    ]
        gpu 7     [K    ]   [K    ]
        gpu 8  [C]       [C]
        """,
        T=TO,
        F=FORWARD,
        K=GEMM,
        C=H2D_PINNED,
    )
    assert replay.step_after_us(remove(work(trace, "Memcpy"))) == about(1000)


def test_an_exposed_copy_costs_its_length() -> None:
    # One stream: copy 0-300, kernel 300-800, then the host waits until 800 and has 200 µs of Python.
    # On a stream of its own the copy (300 a step) hides: the kernel runs 307-807 as it is launched at 300 all the same.
    # With the copy's op out of the way (remove) the kernel is launched at 0: 500 + 200 = 700.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [T][F][]  [T][F][]
        gpu 7  [C][K  ]  [C][K  ]
        """,
        T=TO,
        F=FORWARD,
        K=GEMM,
        C=H2D_PINNED,
        **{"": SYNC},
    )
    assert replay.step_after_us(move(work(trace, "Memcpy"))) == about(1000)
    assert replay.step_after_us(remove(host(trace, "aten::to"))) == about(700)


def test_a_pageable_copy_keeps_the_host() -> None:
    # The copy call itself lasts as long as the data moves (0-400): the kernel is launched at 400.
    # Without the wait the kernel is launched at 0 and starts behind the copy all the same: 400-800; the
    # synchronisation ends at 800, 200 µs of Python: nothing saved. At a quarter of its bytes: 100 + 400 + 200 = 700.
    drawing = draw(
        """
        step   [1       ][2       ]
        cpu    [T ][F][] [T ][F][]
        gpu 7  [C ][K ]  [C ][K ]
        """,
        T=TO,
        F=FORWARD,
        K=GEMM,
        C=H2D_PAGEABLE,
        **{"": SYNC},
    )
    for row in drawing["traceEvents"]:
        if row["name"] == "cudaMemcpyAsync":
            row["dur"] = 398.0
    trace, replay = replayed(drawing)
    assert replay.step_us == about(1000)
    copies = work(trace, "Memcpy")
    assert replay.step_after_us(scale(copies, 0.25)) == about(700)
    # The host is free 400 µs earlier, F starts at 0 and its launch with it, and the wait lasts until 800.
    assert replay.step_after_us(unsync(host(trace, "aten::to"))) == about(1000)


def test_an_exposed_collective_can_be_hidden() -> None:
    # Stream 7: K 0-400. The all-reduce on stream 14 (400-800) is launched at 300 and waits for nothing; the host waits
    # for it until 800; 200 µs of Python. At half its bytes: ends at 600, which is also where the sync begins: 800.
    # Moved beside everything else: the host waits for K only (it is done): 600 + 200 = 800.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F ][A][] [F ][A][]
        gpu 7  [K ]      [K ]
        gpu 14     [N  ]     [N  ]
        """,
        F=FORWARD,
        A=ALLREDUCE,
        K=GEMM,
        N=NCCL,
        **{"": SYNC},
    )
    collectives = work(trace, "nccl")
    assert replay.step_us == about(1000)
    assert replay.step_after_us(move(collectives)) == about(800)
    assert replay.step_after_us(scale(collectives, 0.5)) == about(800)


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


def test_an_event_synchronisation_waits_for_what_ended_before_it_returned() -> None:
    # cudaEventSynchronize from 300 until K is done at 800, then 200 µs of Python. K at half: 400: 600 a step.
    trace, replay = drawn(
        """
        step   [1       ][2       ]
        cpu    [F][E  ]  [F][E  ]
        gpu 7  [K     ]  [K     ]
        """,
        F=FORWARD,
        K=GEMM,
        E=Ev("cudaEventSynchronize", "cuda_runtime"),
    )
    assert replay.step_us == about(1000)
    assert replay.step_after_us(scale(work(trace), 0.5)) == about(600)


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


def test_an_edit_of_nothing_changes_nothing() -> None:
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    nothing = np.empty(0, np.int64)
    for edit in (remove(nothing), scale(nothing, 0.5), move(nothing), unsync(nothing), fuse(nothing)):
        assert replay.step_after_us(edit) == replay.step_us
    assert replay.saving(how="").high_us == 0
    assert len(trace.events)


def stated_wait(correlation: int, record: int, stream: int, at_us: float) -> dict[str, Any]:
    """A `Stream Wait Event` row as the profiler writes it."""
    return {
        "ph": "X",
        "cat": "cuda_sync",
        "name": "Stream Wait Event",
        "pid": 0,
        "tid": stream,
        "ts": at_us,
        "dur": 1,
        "args": {
            "stream": stream,
            "correlation": correlation,
            "device": 0,
            "wait_on_stream": 7,
            "wait_on_cuda_event_record_corr_id": record,
        },
    }
