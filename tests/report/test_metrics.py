"""Every metric of the contract: there, with its unit, measured or with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.api import (
    D2H_PAGEABLE,
    H2D_PAGEABLE,
    H2D_PINNED,
    ITEM,
    NCCL,
    NEXT,
    TO,
    TO_BLOCKING,
    Communication,
    Copies,
    Ev,
    Loader,
    OptimizerWork,
    RankRecord,
    Settings,
    StepTimes,
    draw,
)
from advisor.computed import Computed
from advisor.model import Metric
from advisor.report.metrics import DEFINITIONS, measure
from advisor.trace.read.load import read_bytes

# The ids and units that reports promise.
PROMISED = {
    "step_time_us": "us",
    "device_busy_share": "share",
    "device_idle_share": "share",
    "communication_share": "share",
    "exposed_communication_share": "share",
    "exposed_copy_share": "share",
    "input_wait_share": "share",
    "fp32_matmul_share": "share",
    "h2d_bytes": "bytes",
    "h2d_pageable_bytes": "bytes",
    "d2h_bytes": "bytes",
    "copies": "count",
    "kernels": "count",
    "launches": "count",
    "syncs": "count",
    "cpu_ops": "count",
    "device_allocs": "count",
    "collectives": "count",
    "recompiles": "count",
    "optimizer_steps_per_step": "ratio",
    "peak_memory_bytes": "bytes",
    "mfu": "share",
    "samples_per_second": "per_second",
}


def measured(drawing: dict[str, Any], record: RankRecord | None = None) -> dict[str, Metric]:
    return measure(analysed(drawing, record))


def analysed(drawing: dict[str, Any], record: RankRecord | None = None) -> Computed:
    return Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn"), record=record)


def on_gpu(**more: Any) -> dict[str, Any]:
    return draw(
        """
        step   [1                            ][2                            ]
        cpu    [D  ][T  ][F ][I      ][O ]    [D  ][T  ][F ][I      ][O ]
        gpu 7       [H    ][K    ]            [P    ]   [K    ]
        gpu 7                     [B]                            [B]
        """.replace("[P    ]   [K", "     [P   ][K"),
        us=100,
        D=NEXT,
        T=TO,
        I=ITEM,
        H=H2D_PAGEABLE,
        P=H2D_PINNED,
        B=D2H_PAGEABLE,
        **more,
    )


def test_the_promised_ids_and_units_are_all_there() -> None:
    assert {one.id: one.unit for one in DEFINITIONS} == PROMISED
    assert {one.id: one.unit for one in measured(on_gpu()).values()} == PROMISED
    assert all(one.about for one in DEFINITIONS)


def test_counts_and_bytes_per_step() -> None:
    values = {name: metric.value for name, metric in measured(on_gpu()).items()}
    assert values["h2d_bytes"] == 8 << 20
    assert values["h2d_pageable_bytes"] == 4 << 20  # one step of the two copies from pageable memory
    assert values["d2h_bytes"] == 4
    assert values["copies"] == 2
    assert values["kernels"] == values["launches"] == 1
    assert values["syncs"] == 1
    assert values["device_allocs"] == 0
    assert values["collectives"] == 0
    assert values["optimizer_steps_per_step"] == 1


def test_what_a_bare_trace_cannot_know_is_not_zero() -> None:
    metrics = measured(on_gpu())
    for name in ("samples_per_second", "mfu", "peak_memory_bytes", "recompiles"):
        assert metrics[name].status == "not_measured", name
        assert metrics[name].value is None
        assert metrics[name].why


def test_what_capture_knows_is_measured() -> None:
    record = RankRecord(
        steps=StepTimes(unprofiled_us=[1000.0, 1000.0, 4000.0]),
        settings=Settings(compiled=False),
        loaders=[Loader(batch_size=8)],
        memory={"peak_allocated_bytes": 123},
    )
    values = {name: metric.value for name, metric in measured(on_gpu(), record).items()}
    assert values["step_time_us"] == 1000
    # Throughput is the mean's: 8 samples in 2,000 µs.
    assert values["samples_per_second"] == pytest.approx(4000)
    assert values["peak_memory_bytes"] == 123
    assert values["recompiles"] == 0


def test_rocm_copies_do_not_tell_whether_they_were_pageable() -> None:
    drawing = draw(
        "step   [1        ]\ncpu    [T  ]\ngpu 7  [H    ]",
        us=100,
        device="MI300X",
        T=TO,
        H=Ev("Memcpy HtoD (Host -> Device)", "gpu_memcpy", bytes=1000),
    )
    metrics = measured(drawing)
    assert metrics["h2d_bytes"].value == 1000
    assert metrics["h2d_pageable_bytes"].status == "not_measured"


def test_copies_without_sizes_have_unknown_bytes() -> None:
    drawing = draw(
        "step   [1        ]\ncpu    [T  ]\ngpu 7  [H    ]",
        us=100,
        T=TO,
        H=Ev("Memcpy HtoD (Host -> Device)", "gpu_memcpy"),
    )
    metrics = measured(drawing)
    assert metrics["copies"].value == 1
    assert metrics["h2d_bytes"].status == "not_measured"


def test_a_copy_that_keeps_the_host_is_blocking_and_an_asynchronous_one_is_not() -> None:
    blocking = draw("step   [1        ]\ncpu    [T     ]\ngpu 7  [H    ]", us=100, T=TO_BLOCKING, H=H2D_PAGEABLE)
    site = analysed(blocking).get(Copies).blocking[0]
    assert (site.op, site.pinned, site.to_device, site.calls) == ("aten::to", False, True, 1)
    assert site.blocked_us == pytest.approx(795, abs=10)
    free = draw("step   [1        ]\ncpu    [T]\ngpu 7  [H    ]", us=100, T=TO, H=H2D_PINNED)
    assert analysed(free).get(Copies).blocking == ()


def test_communication_states_its_payload() -> None:
    drawing = draw(
        "step   [1         ]\ncpu    [A ]\ngpu 13 [N     ]",
        us=100,
        A=Ev("c10d::allreduce_", launches="collective"),
        N=NCCL,
    )
    talk = analysed(drawing).get(Communication)
    assert (talk.calls, talk.bytes) == (1, 4_000_000)
    assert talk.exposed_share == talk.share == pytest.approx(800 / 1200)
    assert measured(drawing)["collectives"].value == 1


def test_an_optimizer_with_an_op_per_tensor_is_a_loop() -> None:
    rows = """
        step   [1                              ]
        cpu    [O                             ]
        cpu     [U                           ]
        """
    loop = draw(rows, us=100, U=Ev("aten::add_", launches="", times=12))
    work = analysed(loop).get(OptimizerWork)
    assert (work.name, work.loop, work.ops, work.tensors) == ("SGD", True, 12, 12)
    grouped = draw(rows, us=100, U=Ev("aten::_foreach_add_", launches=""))
    assert analysed(grouped).get(OptimizerWork).loop is False
