"""Replays of copies and collectives, worked out by hand: hidden, exposed, or keeping the host. A column is 100 µs."""

from __future__ import annotations

from replay_drawings import about, drawn, host, replayed, work

from advisor.api import ALLREDUCE, FORWARD, GEMM, H2D_PAGEABLE, H2D_PINNED, NCCL, SYNC, TO, draw
from advisor.replay.edits import move, remove, scale, unsync


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
