"""Replays of waits, worked out by hand: of the host for the device, of streams for each other. A column is 100 µs."""

from __future__ import annotations

import numpy as np
from replay_drawings import about, drawn, host, replayed, work

from advisor.api import D2H_PAGEABLE, FORWARD, GEMM, H2D_PINNED, ITEM, SYNC, Ev, draw
from advisor.replay.edits import fuse, move, remove, remove_time, scale, unsync
from advisor.trace.intervals import union

STREAM_WAIT = Ev("cudaStreamWaitEvent", "cuda_runtime", launches="")
ELSEWHERE = Ev("side_kernel", "kernel")


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


def test_a_stream_waits_whichever_thread_asked() -> None:
    # Autograd's thread launches its kernel and behind it a reduction L (500 µs), and makes stream 7 wait for it; what
    # the main thread launches there in the next step waits, also after the last step: the window is played again.
    # Without Python (250 µs of 1,000) the device sets the pace: 250 + 150 + 500. If only autograd's next kernel
    # waited, the host would, with 750.
    step = {
        "step ": "[{}                 ]",
        "cpu  ": "[F]                 ",
        "cpu 2": "   [B][V][N][W]     ",
        "gpu 7": "[K  ][K]            ",
        "gpu 8": "          [L       ]",
    }
    lanes = (f"{lane}  " + "".join(part.format(number) for number in range(1, 6)) for lane, part in step.items())
    words = {"F": FORWARD, "B": FORWARD, "V": STREAM_WAIT, "N": Ev("c10d::allreduce_"), "W": STREAM_WAIT}
    trace, replay = drawn("\n".join(lanes), us=50, **words, K=GEMM, L=ELSEWHERE)
    starts = int(trace.events.start_ns.min()) + 1_000_000 * np.arange(5)
    python = remove_time(union(starts + 750_000, starts + 1_000_000))
    assert replay.step_us == about(1000)
    assert replay.step_after_us(python) == about(900)
    assert replay.step_after_us(python, scale(work(trace, "side_kernel"), 0.5)) == about(750)


def test_a_wait_for_another_stream_is_no_delay_of_launches() -> None:
    # A batch is copied from 0 to 800; G, launched at 450 on an empty stream, waits for it: no launch takes 350 µs.
    # If it did, each copy would begin 350 µs late, and the last work of the window end that much later.
    step = {
        "step ": "[{}                 ]",
        "cpu  ": "[C  ][W ][K ]       ",
        "gpu 8": "[M             ]    ",
        "gpu 7": "                [G ]",
    }
    lanes = (f"{lane}  " + "".join(part.format(number) for number in range(1, 7)) for lane, part in step.items())
    words = {"C": "aten::copy_", "W": STREAM_WAIT, "K": FORWARD, "M": H2D_PINNED, "G": GEMM}
    _, replay = drawn("\n".join(lanes), us=50, **words)
    assert replay.plan.graph.delays.launch < 20_000
    assert replay.error_share < 0.01


def test_work_that_waited_for_no_recorded_reason_waited_for_what_ended_as_it_began() -> None:
    # K runs 0-600; L, launched at 450, begins as K ends, though stream 8 is empty and no call asked it to wait, as
    # branches of a CUDA graph: 600-800. The synchronisation waits from 500 until 800; 200 µs of Python: 1,000 a step.
    # K at half: L runs from its launch, 457-657; the synchronisation returns at 657: 857 a step.
    trace, replay = drawn(
        """
        step   [1                 ][2                 ]
        cpu    [F   ]   [G ][S ]   [F   ]   [G ][S ]
        gpu 7  [K         ]        [K         ]
        gpu 8              [L ]                [L ]
        """,
        us=50,
        F=FORWARD,
        G=FORWARD,
        S=SYNC,
        K=GEMM,
        L=ELSEWHERE,
    )
    assert replay.error_share < 0.01
    assert replay.step_us == about(1000)
    assert any("inferred" in note for note in replay.notes)
    assert replay.step_after_us(scale(work(trace, "sgemm"), 0.5)) == about(857, 50)


def test_work_launched_later_was_not_waited_for() -> None:
    # The first op of a step launches L, the second K: L runs late for a reason of its own, as no event recorded
    # before it stands for K.
    known = draw(
        """
        step   [1                 ][2                 ]
        cpu    [F]  [F ]   [S   ]  [F]  [F ]   [S   ]
        gpu 7       [K    ]             [K    ]
        gpu 8              [L ]                [L ]
        """,
        us=50,
        S=SYNC,
        L=ELSEWHERE,
    )
    kernels = [row["args"] for row in known["traceEvents"] if row.get("cat") == "kernel"]
    for one, other in zip(kernels[0::2], kernels[1::2], strict=True):
        one["correlation"], other["correlation"] = other["correlation"], one["correlation"]
    _, replay = replayed(known)
    assert not replay.notes


def test_work_whose_launches_are_unknown_is_not_replayed_with_confidence() -> None:
    # Each kernel would begin as recorded, whatever the host did: an edit of the host shows nothing.
    known = draw(DRAINED, I=ITEM, C=D2H_PAGEABLE)
    assert not replayed(known)[1].low_confidence
    rows = [row for row in known["traceEvents"] if row["ph"] == "X" and row.get("cat") != "cuda_runtime"]
    for row in rows:
        row.get("args", {}).pop("correlation", None)
    assert replayed({**known, "traceEvents": rows})[1].low_confidence


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


def test_an_edit_of_nothing_changes_nothing() -> None:
    trace, replay = drawn(DRAINED, F=FORWARD, I=ITEM, K=GEMM, C=D2H_PAGEABLE)
    nothing = np.empty(0, np.int64)
    for edit in (remove(nothing), scale(nothing, 0.5), move(nothing), unsync(nothing), fuse(nothing)):
        assert replay.step_after_us(edit) == replay.step_us
    assert replay.saving(how="").high_us == 0
    assert len(trace.events)
