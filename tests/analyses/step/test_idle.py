"""Why the device idles, on drawings whose answer a person reads off. A column is 100 µs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.api import (
    D2H_PAGEABLE,
    GEMM,
    H2D_PAGEABLE,
    ITEM,
    NCCL,
    NEXT,
    NEXT_WORKERS,
    SYNC,
    TO,
    Breakdown,
    Ev,
    GpuIdle,
    InputWaits,
    Missing,
    Source,
    Syncs,
    draw,
)
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

# A drawn launch takes 5 µs of its op; what is read off columns is exact to about that.
ABOUT = 12.0


def analysed(drawing: dict[str, Any]) -> Computed:
    return Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn"))


def causes(drawing: dict[str, Any]) -> dict[str, float]:
    """Idle µs per step of each cause that has any."""
    computed = analysed(drawing)
    found = computed.get(GpuIdle).by_cause_us
    breakdown = computed.get(Breakdown)
    assert sum(item.share for item in breakdown.items) == pytest.approx(1)
    assert sum(found.values()) == pytest.approx(sum(i.us for i in breakdown.items if i.id.startswith("idle_")))
    return {cause: us for cause, us in found.items() if us}


def close(found: dict[str, float], **wanted: float) -> None:
    small = {cause: us for cause, us in found.items() if us > ABOUT}
    assert small == {cause: pytest.approx(us, abs=ABOUT) for cause, us in wanted.items()}


def test_waiting_for_the_loader_is_input() -> None:
    drawing = draw(
        """
        step   [1                 ][2                 ]
        cpu    [D        ][F ]     [D        ][F ]
        gpu 7             [K      ]           [K      ]
        """,
        us=100,
        D=NEXT,
    )
    close(causes(drawing), idle_input=1100)
    waits = analysed(drawing).get(InputWaits)
    assert (waits.exposed_us, waits.single_process) == (pytest.approx(1100), True)
    assert waits.share == pytest.approx(1100 / 2000)
    assert analysed(drawing).get(GpuIdle).top("idle_input")[0].host == NEXT.name


def test_a_fetch_behind_a_busy_device_costs_nothing() -> None:
    """The host stands in next() for half of the step, and the device does not notice."""
    drawing = draw(
        """
        step   [1                 ][2                 ]
        cpu    [F ][D            ] [F ][D            ]
        gpu 7  [K                ] [K                ]
        """,
        us=100,
        D=NEXT_WORKERS,
    )
    waits = analysed(drawing).get(InputWaits)
    assert (waits.us, waits.exposed_us, waits.share) == (pytest.approx(1500), 0, 0)
    assert "idle_input" not in causes(drawing)


def test_without_a_fetch_row_input_waits_are_not_measured() -> None:
    drawing = draw("step [1    ]\ncpu [F   ]\ngpu 7 [K   ]", us=100)
    with pytest.raises(Missing, match="no fetch from a DataLoader"):
        analysed(drawing).get(InputWaits)


def test_the_refill_after_a_sync_that_waited_is_the_syncs() -> None:
    drawing = draw(
        """
        step   [1                           ][2                           ]
        cpu    [F ][I               ]         [F ][I               ]
        gpu 7  [K               ]             [K               ]
        gpu 7                    [C]                            [C]
        """,
        us=100,
        I=ITEM,
        C=D2H_PAGEABLE,
    )
    computed = analysed(drawing)
    # From the end of the copy of item(), which is no refill, to the next kernel; the last step's end is the window's.
    found = computed.get(GpuIdle).by_cause_us
    assert found["idle_sync"] == pytest.approx(900, abs=ABOUT)
    site = computed.get(Syncs).sites[0]
    assert (site.op, site.calls, site.from_user) == ("aten::item", 1, True)
    assert site.idle_after_us == pytest.approx(found["idle_sync"])
    assert site.gives_back_us == pytest.approx(site.idle_after_us)


def test_a_sync_explains_no_more_idleness_than_it_waited() -> None:
    """The wait is 300 µs, the idle after it 900: without the sync the host would be 300 µs earlier."""
    drawing = draw(
        """
        step   [1                 ][2                 ]
        cpu    [F    ][S ]         [F    ][S ]
        gpu 7  [K        ]         [K        ]
        """,
        us=100,
        S=SYNC,
    )
    close(causes(drawing), idle_sync=400, idle_host=500)


def test_a_sync_that_found_an_empty_queue_is_not_the_cause() -> None:
    """The kernel had ended long before the sync, so the host was late already."""
    drawing = draw(
        """
        step   [1                       ][2                       ]
        cpu    [F ]          [S][G     ] [F ]          [S][G     ]
        gpu 7  [K]                       [K]
        gpu 7                      [M   ]                   [M   ]
        """,
        us=100,
        S=SYNC,
        G=Ev("aten::mm"),
        M=GEMM,
    )
    assert "idle_sync" not in causes(drawing)
    syncs = analysed(drawing).get(Syncs)
    assert syncs.count == 1
    assert syncs.sites[0].gives_back_us == 0


def test_ops_that_launch_one_short_kernel_each_are_launch_bound() -> None:
    drawing = draw(
        """
        step   [1                 ][2                 ]
        cpu    [F                 ][F                 ]
        gpu 7  [K                 ][K                 ]
        """,
        us=100,
        F=Ev("aten::add", times=10),
        K=Ev(GEMM.name, "kernel", times=10, fill=0.25),
    )
    close(causes(drawing), idle_launch=1500)
    assert analysed(drawing).get(GpuIdle).top("idle_launch")[0].host == "aten::add"


def test_python_between_ops_is_the_hosts_and_is_named_by_its_frame() -> None:
    drawing = draw(
        """
        step   [1                                       ]
        cpu    [P                           ]
        cpu                                  [F ]
        gpu 7                                [K         ]
        """,
        us=100,
        P=Ev("video_classification.py(129): preprocess"),
    )
    close(causes(drawing), idle_host=3000)
    group = analysed(drawing).get(GpuIdle).top("idle_host")[0]
    assert group.host == "preprocess"
    assert group.where == Source("video_classification.py", 129, "preprocess", "function")


def test_long_work_of_the_host_right_after_a_sync_is_the_hosts() -> None:
    """Un-syncing would not hide three milliseconds of Python: they are named as what they are."""
    drawing = draw(
        """
        step   [1                                                ]
        cpu    [F ][S          ]                              [F ]
        gpu 7  [K              ]                              [K ]
        """,
        us=100,
        S=SYNC,
    )
    close(causes(drawing), idle_host=3000)


def test_an_op_of_milliseconds_that_launches_nothing_is_the_hosts() -> None:
    drawing = draw(
        """
        step   [1                             ]
        cpu    [A                   ][F ]
        gpu 7                        [K       ]
        """,
        us=100,
        A=Ev("aten::_upsample_bilinear2d_aa", launches=""),
    )
    close(causes(drawing), idle_host=2200)
    assert analysed(drawing).get(GpuIdle).top("idle_host")[0].host == "aten::_upsample_bilinear2d_aa"


def test_gaps_between_queued_kernels_are_nobodys() -> None:
    """Both kernels were launched at once; the pause between them is the device's own."""
    drawing = draw(
        """
        step   [1             ]
        cpu    [F][F]
        gpu 7  [K     ]  [K   ]
        """,
        us=100,
    )
    close(causes(drawing), idle_unknown=200)
    assert analysed(drawing).get(GpuIdle).nobodys_us == pytest.approx(200)


def test_between_the_rows_of_two_steps_only_the_profiler_runs() -> None:
    """500 µs from one row to the next are the profiler's; what lies in the rows, 300 at each end, is the script's."""
    drawing = draw(
        """
        step   [1             ]     [2             ]     [3             ]
        cpu       [F ]                 [F ]                 [F ]
        gpu 7      [K      ]            [K      ]            [K      ]
        """,
        us=100,
    )
    found = analysed(drawing).get(GpuIdle)
    spent = {cause: us * 3 for cause, us in found.by_cause_us.items()}
    assert spent["idle_unknown"] == pytest.approx(2 * 500, abs=ABOUT)
    assert spent["idle_host"] == pytest.approx(6 * 300, abs=6 * ABOUT)
    assert found.nobodys_us == pytest.approx(2 * 500 / 3, abs=ABOUT)


def test_without_host_rows_the_cause_is_unknown() -> None:
    rows = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": 0,
            "tid": 7,
            "ts": ts,
            "dur": 10,
            "args": {"device": 0, "stream": 7},
        }
        for ts in (1000, 1100, 1200)
    ]
    close(causes({"traceEvents": rows}), idle_unknown=180)


def test_annotations_syncs_and_overhead_rows_are_never_work() -> None:
    """The same trace with rows of those kinds over all of its idle time has the same idle time."""
    drawing = draw("step [1              ]\ncpu [F ]     [F ]\ngpu 7 [K ]     [K ]", us=100)
    plain = analysed(drawing).get(GpuIdle).share
    covering = {"ph": "X", "pid": 0, "tid": 7, "ts": 1_000_000, "dur": 1700, "args": {"device": 0, "stream": 7}}
    for category in ("gpu_user_annotation", "cuda_sync", "overhead", "Trace", "something_new"):
        more = {**drawing, "traceEvents": [*drawing["traceEvents"], {**covering, "cat": category, "name": "x"}]}
        assert analysed(more).get(GpuIdle).share == plain, category


def test_breakdown_takes_the_first_part_that_applies() -> None:
    drawing = draw(
        """
        step    [1                 ]
        cpu     [F ][T ][A]
        gpu 7   [K    ]
        gpu 20      [C       ]
        gpu 13          [N       ]
        """,
        us=100,
        T=TO,
        A=Ev("c10d::allreduce_", launches="collective"),
        C=H2D_PAGEABLE,
        N=NCCL,
    )
    breakdown = analysed(drawing).get(Breakdown)
    # The kernel has its 700 µs, the collective all of its 1,000, the copy the 100 that neither of them covers.
    assert breakdown.us("compute") == pytest.approx(700)
    assert breakdown.us("exposed_communication") == pytest.approx(1000)
    assert breakdown.us("exposed_copy") == pytest.approx(100)
    assert breakdown.share("compute") == pytest.approx(700 / 2000)
