"""What lines cost without the profiler, against drawings worked out by hand."""

import pytest

from advisor.analyses.line_costs import LineCosts
from advisor.analyses.scale import Scale
from advisor.analyses.undilated import Undilated
from advisor.api import BACKWARD, FORWARD, Ev, draw
from advisor.computed import Missing
from advisor.rule import Example
from advisor.testing import computed

# Each step is 2,400 µs: 600 forward, 900 Python in a function of the user's, 900 backward.
STEPS = """
    step   [1                     ][2                     ]
    cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
    """


def drawn(drawing, facts=None, **words):
    return computed(Example("drawn", draw(drawing, us=100, **words), None, facts=facts))


def timed(us):
    return {"steps": {"unprofiled_us": [us] * 20}}


def test_python_of_the_users_is_found_with_its_line():
    known = drawn(STEPS, P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    place = known.get(LineCosts).lines[0]
    assert (place.source.line, place.source.function) == (31, "accuracy")
    assert place.us == pytest.approx(900, abs=1)
    assert place.python_us == pytest.approx(900, abs=1)
    assert place.parts["host"] == pytest.approx(900, abs=1)
    assert place.rows == 0


def test_without_lines_there_are_no_costs_of_lines():
    with pytest.raises(Missing, match="advisor run"):
        drawn(STEPS, P=FORWARD, F=FORWARD, B=BACKWARD).get(LineCosts)


def test_ops_named_by_their_call_stacks_cost_what_they_take():
    line = {"Call stack": "train.py(31): <module>"}
    later = {"Call stack": "train.py(35): <module>"}
    known = drawn(
        STEPS,
        F=Ev("aten::mul", times=4, args=line),
        P=Ev("aten::add", args=later),
        B=Ev(BACKWARD.name, args=later),
    )
    costs = {cost.source.line: cost for cost in known.get(LineCosts).lines}
    assert costs[31].us == pytest.approx(600, abs=1)
    assert costs[31].rows == 4
    assert costs[35].rows == 2


def test_backward_time_goes_to_the_line_of_its_forward_op():
    known = drawn(
        """
        step   [1                     ][2                     ]
        cpu    [F   ][G      ][B  ][C ][F   ][G      ][B  ][C ]
        """,
        F=Ev("aten::mul", args={"Sequence number": 1, "Call stack": "train.py(31): <module>"}),
        G=Ev("aten::add", args={"Sequence number": 2, "Call stack": "train.py(32): <module>"}),
        B=Ev("autograd::engine::evaluate_function: AddBackward0", args={"Sequence number": 2}),
        C=Ev("autograd::engine::evaluate_function: MulBackward0", args={"Sequence number": 1}),
    )
    behind = {cost.source.line: cost.backward_us for cost in known.get(LineCosts).lines}
    assert behind[32] == pytest.approx(500, rel=0.02)
    assert behind[31] == pytest.approx(400, rel=0.02)


def test_without_a_slower_profiled_step_shares_are_what_was_recorded():
    known = drawn(STEPS, P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    mapping = known.get(Undilated)
    assert mapping.share(mapping.recorded_us / 4) == pytest.approx((0.25, 0.25))


def test_python_keeps_its_length_where_the_profiler_slowed_the_ops():
    # 2,400 µs recorded, 1,800 without the profiler: 600 were added to 1,500 µs of ops, or evenly to everything.
    known = drawn(STEPS, timed(1800.0), P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    mapping = known.get(Undilated)
    assert mapping.plain_us == pytest.approx(1800, rel=0.01)
    python = mapping.python_us
    low, high = mapping.share(python, python)
    assert high == pytest.approx(python / 1800, rel=0.01)
    assert low == pytest.approx(python / mapping.recorded_us, rel=0.01)


def test_ops_give_up_most_where_most_of_them_are_recorded():
    known = drawn(STEPS, timed(1800.0), F=Ev("aten::mul", times=40), P=FORWARD, B=BACKWARD)
    mapping = known.get(Undilated)
    many, few = mapping.share(500, 0.0, 40), mapping.share(500, 0.0, 1)
    assert many[0] < few[0]
    assert many[1] == pytest.approx(500 / mapping.recorded_us, rel=0.01)


@pytest.mark.parametrize("us", [600.0, 1800.0, 2300.0, 5000.0])
def test_shares_stay_between_nothing_and_all(us):
    mapping = drawn(STEPS, timed(us), P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD).get(Undilated)
    for part in (0.0, 100.0, mapping.recorded_us):
        for python in (0.0, part):
            low, high = mapping.share(part, python, mapping.rows)
            assert 0 <= low <= high <= 1


def test_the_scale_of_a_saving_is_the_un_profiled_step():
    known = drawn(STEPS, timed(1800.0), P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    assert known.get(Scale).step_us == pytest.approx(1800)
