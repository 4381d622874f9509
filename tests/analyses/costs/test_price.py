"""What a change of a step's work is worth, against drawn steps whose times are known."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.analyses.costs.price import Price, less_by
from advisor.api import GEMM, SYNC, Drawing, Ev, Example, Saving, draw, edits
from advisor.testing import computed
from advisor.trace.events import Ints

NONE = np.empty(0, np.int64)


def price_of(drawing: Drawing) -> Price:
    return computed(Example("a step", drawing, None)).get(Price)


def rows(price: Price, name: str) -> Ints:
    found: Ints = np.flatnonzero(price.ops.events.exactly(name))
    assert len(found)
    return found


# Steps of 2,000 µs without a device: 400 in `aten::sort`, 1,000 in the rest of the forward pass and the backward pass.
ON_HOST = draw(
    """
    step   [1                 ][2                 ]
    cpu    [F    ][S ][B   ]    [F    ][S ][B   ]
    """,
    us=100,
    S="aten::sort",
)
# The device is busy all the time; the host is ahead of it.
BUSY = draw(
    """
    step   [1                           ][2                           ][3                           ]
    cpu    [A][H ][S                    ][A][H ][S                    ][A][H ][S                    ]
    gpu 7   [K                          ] [K                          ] [K                          ]
    """,
    us=100,
    A=Ev("aten::mm", launches="kernel"),
    H=Ev("aten::sort", launches=""),
    S=SYNC,
)
# Two products, the first of 2,000 µs, one behind the other, and a host that waits for both.
IN_TURN = draw(
    """
    step   [1                               ][2                               ][3                               ]
    cpu    [A][C][S                         ][A][C][S                         ][A][C][S                         ]
    gpu 7   [K                 ][L          ] [K                 ][L          ] [K                 ][L          ]
    """,
    us=100,
    A=Ev("aten::mm", launches="kernel"),
    C=Ev("aten::bmm", launches="kernel"),
    S=SYNC,
    L=GEMM,
)


def test_what_goes_on_a_cpu_is_its_own_time() -> None:
    price = price_of(ON_HOST)
    gone = [edits.remove(rows(price, "aten::sort"))]
    assert price.spent_us(gone[0].rows) == pytest.approx(400)
    for saving in (
        price.saving(gone, gone, ("other_ops", "forward"), "all"),
        price.divided(gone, gone, ("other_ops", "forward"), "all"),
    ):
        assert (saving.low_us, saving.high_us) == (pytest.approx(400, rel=0.05), pytest.approx(400, rel=0.05))


def test_what_shrinks_saves_the_share_that_goes() -> None:
    price = price_of(ON_HOST)
    sorts = rows(price, "aten::sort")
    saving = price.divided([edits.scale(sorts, 0.75)], [edits.scale(sorts, 0.25)], ("other_ops", "forward"), "some")
    assert (saving.low_us, saving.high_us) == (pytest.approx(100), pytest.approx(300))


def test_what_comes_instead_is_taken_off_and_never_more_than_was_saved() -> None:
    price = price_of(ON_HOST)
    gone = [edits.remove(rows(price, "aten::sort"))]
    saving = price.divided(gone, gone, ("other_ops", "forward"), "all", instead_us=(50.0, 150.0))
    assert (saving.low_us, saving.high_us) == (pytest.approx(250), pytest.approx(350))
    nothing = less_by(Saving(10.0, 20.0, "modelled", ""), (30.0, 40.0))
    assert (nothing.low_us, nothing.high_us) == (0.0, 0.0)


@pytest.mark.parametrize("kind", ["saving", "divided", "long_ops"])
def test_nothing_saves_more_than_was_measured_where_its_claim_lies(kind: str) -> None:
    price = price_of(ON_HOST)
    claims, every = ("backward",), np.flatnonzero(price.ops.nesting.outermost)
    gone = [edits.remove(every)]
    if kind == "long_ops":
        saving = price.long_ops((5_000.0, 5_000.0), claims, "more than there is")
    else:
        saving = getattr(price, kind)(gone, gone, claims, "more than there is")
    measured_us = price.scale.scaled(price.measured_us(claims))
    assert 0 < measured_us < price.scale.step_us
    assert saving.high_us == pytest.approx(measured_us)


def test_a_gpu_bound_step_gains_nothing_from_host_work() -> None:
    price = price_of(BUSY)
    sorts = rows(price, "aten::sort")
    assert price.claims("forward") == ("compute",)
    assert price.spent_us(sorts) == 0
    for saving in (
        price.saving([edits.remove(sorts)], [edits.remove(sorts)], (), "none"),
        price.divided([edits.remove(sorts)], [edits.remove(sorts)], (), "none"),
    ):
        assert saving.high_us == pytest.approx(0, abs=1)


def test_on_a_device_an_op_is_worth_what_the_step_without_its_kernel_is_shorter() -> None:
    price = price_of(IN_TURN)
    op = rows(price, "aten::mm")
    kernels = price.ops.launched(op)
    us = float(price.ops.events.dur_ns[kernels].sum()) / 1e3 / price.ops.steps.count
    assert us == pytest.approx(2000)
    assert price.spent_us(op) == price.spent_us(kernels) == pytest.approx(us)
    saving = price.saving([edits.remove(kernels)], [edits.remove(kernels)], ("compute",), "a product")
    assert saving.basis == "replayed"
    # The second kernel starts at 2,100 µs; without the first one, at its own launch, between 300 and 600 µs.
    assert 1500 <= saving.low_us <= saving.high_us <= 1800 < us
    # What comes in its place is launched ahead of the device, as the op was.
    same = price.saving([edits.remove(kernels)], [edits.remove(kernels)], ("compute",), "", instead_us=(90.0, 90.0))
    assert same.high_us == saving.high_us


def test_no_rows_save_nothing() -> None:
    price = price_of(ON_HOST)
    for saving in (price.saving([], [], ("forward",), ""), price.divided([], [edits.remove(NONE)], (), "")):
        assert (saving.low_us, saving.high_us) == (0, 0)


def test_known_time_saves_no_less_than_nothing_and_no_more_than_the_step() -> None:
    price = price_of(ON_HOST)
    step_us = price.scale.step_us
    ends = [price.of_us(*given, "as measured") for given in ((-5.0, 300.0), (400.0, 9e9), (700.0, 500.0))]
    assert [(one.low_us, one.high_us) for one in ends] == [(0.0, 300.0), (400.0, step_us), (500.0, 500.0)]
    assert {one.basis for one in ends} == {"measured"}


def test_a_share_of_what_events_take_goes_with_their_kernels_on_a_device() -> None:
    on_device, on_host = price_of(IN_TURN), price_of(ON_HOST)
    op, sorts = rows(on_device, "aten::mm"), rows(on_host, "aten::sort")
    part = on_device.less(op, 0.25)
    assert part.rows.tolist() == on_device.less(on_device.ops.launched(op), 0.25).rows.tolist()
    assert part.rows.tolist() == on_device.ops.launched(op).tolist()
    assert (part.what, part.factor) == ("scale", 0.75)
    assert on_host.less(sorts, 0.25).rows.tolist() == sorts.tolist()
    assert on_device.less(op, 1).what == "remove"
    assert on_device.less(op, 1).rows.tolist() == op.tolist()
