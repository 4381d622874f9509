"""Traces of every torch version and every kind of device say the same of the same six steps."""

from __future__ import annotations

import kineto_files.dialects as made
import numpy as np
import pytest
from kineto_files import eras

from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.steps import Steps
from advisor.computed import Computed
from advisor.trace.events import Category
from advisor.trace.read.load import read_bytes

pytestmark = pytest.mark.usefixtures("reader")


@pytest.mark.parametrize("dialect", eras.DIALECTS, ids=lambda d: d.name.replace(" ", "_"))
def test_every_dialect_gives_the_same_steps_and_work(dialect: eras.Dialect) -> None:
    trace = read_bytes(dialect.data, "t.json")
    assert not trace.health
    computed = Computed(trace=trace)
    events, steps, device = trace.events, computed.get(Steps), computed.get(Device)
    assert (steps.source, steps.count) == ("user", eras.STEPS)
    assert set(steps.profiled_us) == {100.0}
    assert device.kind == dialect.kind, device
    assert all(name in device.why for name in dialect.names), device.why
    work = trace.device_work
    assert work.sum() == dialect.works * eras.STEPS
    assert (computed.get(Links).launch >= 0).sum() == dialect.linked * eras.STEPS
    # The kernel of each step begins 20 µs after the step and lasts 30, whatever the era counts time from.
    kernels = np.flatnonzero(events.of(Category.KERNEL))
    if dialect.works:
        assert (events.start_ns[kernels] - steps.spans[:, 0]).tolist() == [20_000] * eras.STEPS
        assert events.dur_ns[kernels].tolist() == [30_000] * eras.STEPS
        assert events.dur_ns[work].sum() == (30 + 10 + 2) * 1000 * eras.STEPS


def test_shapes_of_all_eras_are_read() -> None:
    for dialect in eras.DIALECTS:
        if "without Kineto" not in dialect.name:
            events = read_bytes(dialect.data, "t.json").events
            assert {events.dims_table[i] for i in events.dims[events.exactly("aten::linear")]} == {
                "[[8, 4], [4, 4], []]"
            }, dialect.name


def test_a_collective_of_2026_is_read_although_its_communicator_has_no_64_bits() -> None:
    data = next(one.data for one in eras.DIALECTS if one.name == "torch of 2026")
    (collective,) = set(read_bytes(data, "t.json").events.collective_table)
    assert (collective.name, collective.in_elements, collective.group_size, collective.sequence) == (
        "allreduce",
        1024,
        2,
        4,
    )


def test_base_time_counts_wherever_it_stands() -> None:
    early, late = (
        read_bytes(next(one.data for one in eras.DIALECTS if one.name == name), "t.json")
        for name in ("torch 2.8", "torch 2.4 to 2.7")
    )
    assert early.events.start_ns.tolist() == late.events.start_ns.tolist()
    assert early.events.start_ns[0] > made.BASE_NS
