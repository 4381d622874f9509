"""The notation of drawn traces, seen through the real reader."""

import json

import pytest

from advisor.api import (
    ALLREDUCE,
    BACKWARD,
    ELEMENTWISE,
    FORWARD,
    GEMM,
    H2D_PINNED,
    ITEM,
    NCCL,
    NEXT,
    OPTIMIZER,
    TO,
    Category,
    Ev,
    draw,
)
from advisor.drawing.timeline import DrawingError
from advisor.trace.read.load import read_bytes


def read(drawing):
    return read_bytes(json.dumps(dict(drawing)).encode(), "drawn")


def rows(trace, name):
    events = trace.events
    return [i for i in range(len(events)) if events.text(i) == name]


def us(trace, row):
    """Start and duration in µs, from the first event on."""
    events = trace.events
    return ((events.start_ns[row] - events.start_ns.min()) / 1e3, events.dur_ns[row] / 1e3)


def test_columns_are_time():
    trace = read(
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [D        ][F ]     [D        ][F ]
            gpu 7              [K    ]             [K    ]
            """,
            us=100,
            D=NEXT,
            K="gemm",
        )
    )
    assert [us(trace, row) for row in rows(trace, NEXT.name)] == [(0, 1100), (2000, 1100)]
    assert [us(trace, row) for row in rows(trace, "gemm")] == [(1200, 700), (3200, 700)]
    assert us(trace, rows(trace, "ProfilerStep#2")[0]) == (2000, 2000)
    assert trace.meta.devices[0].name == "NVIDIA A100-SXM4-80GB"


def test_kth_launch_is_linked_to_kth_kernel_and_copies_queue_apart():
    trace = read(
        draw(
            """
            cpu    [F ][T ][F ]
            gpu 7   [K ]    [K  ]
            gpu 9       [C ]
            """,
            F="aten::mm",
            K="gemm",
            T=TO,
            C=H2D_PINNED,
        )
    )
    events = trace.events
    launches = [i for i in range(len(events)) if events.category[i] == Category.RUNTIME]
    by_correlation = {events.correlation[i]: events.text(i) for i in launches}
    assert [by_correlation[events.correlation[i]] for i in rows(trace, "gemm")] == ["cudaLaunchKernel"] * 2
    assert events.correlation[rows(trace, "gemm")[0]] != events.correlation[rows(trace, "gemm")[1]]
    copy = rows(trace, H2D_PINNED.name)[0]
    assert by_correlation[events.correlation[copy]] == "cudaMemcpyAsync"
    assert events.bytes[copy] == H2D_PINNED.bytes
    assert events.stream[copy] == 9


def test_of_nested_ops_the_innermost_launches():
    trace = read(
        draw(
            """
            cpu    [O          ]
            cpu      [I ]
            gpu 7      [K ]
            """,
            O="aten::linear",
            I="aten::addmm",
            K="gemm",
        )
    )
    launch, inner = rows(trace, "cudaLaunchKernel"), rows(trace, "aten::addmm")
    assert len(launch) == 1
    assert us(trace, launch[0])[0] == us(trace, inner[0])[0]
    assert len(set(trace.events.thread[[launch[0], inner[0], rows(trace, "aten::linear")[0]]])) == 1


def test_a_blocking_op_waits_until_its_box_ends():
    trace = read(draw("cpu [I    ]\ngpu 7 [K]\ncpu 2 [F]", us=10, I=ITEM, K="gemm", F=BACKWARD))
    start, duration = us(trace, rows(trace, "cudaStreamSynchronize")[0])
    assert (start, start + duration) == (5, 70)


def test_collectives_are_linked_to_collective_ops():
    trace = read(draw("cpu [F][A]\ngpu 7 [K    ]\ngpu 20  [N  ]", F="aten::mm", A=ALLREDUCE, N=NCCL))
    op, kernel = rows(trace, "c10d::allreduce_")[0], rows(trace, NCCL.name)[0]
    assert trace.events.external_id[op] == trace.events.external_id[kernel]


def test_a_box_may_hold_many_equal_events():
    trace = read(draw("cpu [A       ]", us=10, A=Ev("aten::add", times=5, fill=0.5)))
    assert [us(trace, row) for row in rows(trace, "aten::add")] == [(20 * i, 10) for i in range(5)]


def test_the_usual_letters_stand_for_themselves_unless_said_otherwise():
    lanes = "cpu [F ][B ][O ]\ngpu 7  [K ][E ]"
    names = {FORWARD.name, BACKWARD.name, OPTIMIZER.name, GEMM.name, ELEMENTWISE.name}
    assert names <= set(read(draw(lanes)).events.names)
    changed = set(read(draw(lanes, F="aten::relu")).events.names)
    assert "aten::relu" in changed
    assert FORWARD.name not in changed


def test_a_drawing_without_a_gpu_lane_has_no_device():
    trace = read(draw("cpu [A ][B ]", A="aten::mm", B="train.py(3): load"))
    assert trace.meta.devices == ()
    assert list(trace.events.category) == [Category.CPU_OP, Category.PYTHON]


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        ("", {}, "no boxes"),
        ("cpu [A] x", {"A": "aten::mm"}, "outside its boxes"),
        ("cpu [A", {"A": "aten::mm"}, "outside its boxes"),
        ("tpu [A]", {"A": "aten::mm"}, "is no lane"),
        ("cpu [A]", {}, "has no meaning"),
        ("cpu [A]", {"A": "aten::mm", "B": "aten::mm"}, "no box holds B"),
        ("cpu  [A]\ngpu [K]", {"A": "aten::mm", "K": "gemm"}, "starts before its launch"),
    ],
)
def test_a_drawing_that_makes_no_sense_is_one_clear_line(text, names, said):
    with pytest.raises(DrawingError) as caught:
        dict(draw(text, **names))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_device_names_the_known_ones():
    with pytest.raises(DrawingError, match="H100"):
        dict(draw("cpu [A]\ngpu [K]", device="H1000", A="aten::mm", K="gemm"))
