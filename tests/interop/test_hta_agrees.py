"""Our figures against HolisticTraceAnalysis on the same traces, with its conventions copied where they differ.

HTA looks at the device events that are linked to a launch, in the span from the first to the last of them; by default
it leaves out those launched from the last step on; and it works in whole µs. Under these conventions the numbers are
equal to the µs. HTA needs pandas < 3, so these tests run in an environment of its own and are skipped elsewhere.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.analyses.base.links import Links
from advisor.api import NCCL, TO, Category, Communication, Ev, Launches, Steps, draw
from advisor.computed import Computed
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals, intersect, total, union
from advisor.trace.read.load import load, read_bytes

pytest.importorskip(
    "hta",
    reason="HTA is not installed here (extra `hta` or `traceinsight`, in its own environment)",
)
pytestmark = pytest.mark.filterwarnings("ignore")

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
real = pytest.mark.skipif(not TRACES.is_dir(), reason="no real traces beside the checkout")
# Traces of the years in which Kineto wrote whole µs: in later ones HTA rounds each event, and idle grows by ms.
WHOLE_US = ("resnet50_workers0_v100", "transformer_ddp_fp32_v100_rank1of2")


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """HTA logs every step of its work."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def theirs(traces: Any, last_step: bool = True) -> Any:
    from advisor.interop.hta import trace_analysis

    return trace_analysis(traces, include_last_profiler_step=last_step)


def real_trace(name: str) -> Trace:
    return load(next(iter(sorted(TRACES.glob(f"{name}*")))))


class Ours:
    """A trace under HTA's conventions."""

    def __init__(self, trace: Trace, last_step: bool = True) -> None:
        computed = Computed(trace=trace)
        self.events = trace.events
        steps, launch = computed.get(Steps), computed.get(Links).launch
        self.linked = trace.device_work & (launch >= 0)
        if not last_step:
            self.linked &= trace.events.start_ns[np.maximum(launch, 0)] < steps.spans[-1, 0]
        self.talking = computed.get(Communication).rows & self.linked
        self.computing = self.linked & trace.events.of(Category.KERNEL) & ~self.talking

    def united(self, rows: Any) -> Intervals:
        return union(self.events.start_ns[rows], self.events.end_ns[rows])

    def breakdown_us(self) -> dict[str, float]:
        """HTA's temporal breakdown: of the span, idle, computing, and busy with anything else."""
        busy = self.united(self.linked)
        span, computing = int(busy[-1, 1] - busy[0, 0]), total(self.united(self.computing))
        return {
            "idle_time(us)": (span - total(busy)) / 1e3,
            "compute_time(us)": computing / 1e3,
            "non_compute_time(us)": (total(busy) - computing) / 1e3,
            "kernel_time(us)": span / 1e3,
        }

    def overlap(self) -> float:
        """Share of the communication that computing hides, in %."""
        talking, computing = self.united(self.talking), self.united(self.computing)
        return 100 * total(intersect(talking, computing)) / total(talking) if len(talking) else math.nan


@real
@pytest.mark.parametrize("last_step", [True, False])
@pytest.mark.parametrize("name", WHOLE_US)
def test_the_temporal_breakdown_is_equal_to_the_microsecond(name: str, last_step: bool) -> None:
    trace = real_trace(name)
    breakdown = theirs(trace, last_step).get_temporal_breakdown(visualize=False).to_dict("records")[0]
    ours = Ours(trace, last_step).breakdown_us()
    assert {key: breakdown[key] for key in ours} == ours
    assert breakdown["idle_time_pctg"] == pytest.approx(
        100 * ours["idle_time(us)"] / ours["kernel_time(us)"], abs=0.005
    )


@real
def test_overlap_of_communication_with_computing_on_eight_ranks() -> None:
    traces = [load(path) for path in sorted((TRACES / "dlrm_8ranks_v100").iterdir())]
    table = theirs(traces).get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
    assert len(table) == 8
    for trace in traces:
        assert table[trace.meta.rank] == pytest.approx(Ours(trace).overlap(), abs=0.005)


def drawn() -> Trace:
    """Three steps on three streams; the collective of each is half hidden."""
    drawing = draw(
        """
        step    [1                 ][2                 ][3                 ]
        cpu     [F ][T ][A]         [F ][T ][A]         [F ][T ][A]
        gpu 7      [K    ]             [K    ]             [K    ]
        gpu 20        [C  ]               [C  ]               [C  ]
        gpu 13          [N       ]          [N       ]          [N       ]
        gpu 7               [K ]                [K ]                [K ]
        cpu                 [F ]                [F ]                [F ]
        """.replace("gpu 20        [C", "gpu 20         [C"),
        us=100,
        F=Ev("aten::linear"),
        T=TO,
        A=Ev("c10d::allreduce_", launches="collective"),
        K="volta_sgemm_128x32_nt",
        C="Memcpy HtoD (Pinned -> Device)",
        N=NCCL,
    )
    return read_bytes(json.dumps(dict(drawing)).encode(), "drawn")


@pytest.mark.parametrize("last_step", [True, False])
def test_a_drawn_trace_agrees_too(last_step: bool) -> None:
    trace = drawn()
    ours = Ours(trace, last_step)
    analysis = theirs(trace, last_step)
    breakdown = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
    assert {key: breakdown[key] for key in ours.breakdown_us()} == ours.breakdown_us()
    overlap = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0]
    assert overlap == pytest.approx(ours.overlap(), abs=0.005)
    assert 0 < overlap < 100


def test_launch_statistics_agree() -> None:
    """HTA lists each linked launch: how long the call took, and how long the work it started."""
    trace = drawn()
    table = theirs(trace).get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    ours = Ours(trace)
    assert sorted(table["gpu_duration"]) == sorted(ours.events.dur_ns[ours.linked] / 1e3)
    assert table["cpu_duration"].median() == Computed(trace=trace).get(Launches).launch_us
