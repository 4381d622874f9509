"""What lines cost without the profiler, against drawings worked out by hand."""

import json

import pytest

from advisor.analyses.base.scale import Scale, before_the_window
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.deprofiled import Deprofiled
from advisor.analyses.step.step_parts import StepParts
from advisor.api import BACKWARD, FORWARD, Ev, draw
from advisor.capture.record import StepTimes
from advisor.computed import Computed, Missing
from advisor.engine.rule import Example
from advisor.testing import computed
from advisor.trace.events import Category, Trace
from advisor.trace.read.load import read_bytes

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


def test_what_the_engine_takes_between_nodes_is_shared_out_by_their_number():
    """One node of 500 µs, ten of 25 in 50 each: the ten have nearly all of the 250 µs between nodes."""

    def node(kind, number, **more):
        return Ev(f"autograd::engine::evaluate_function: {kind}Backward0", args={"Sequence number": number}, **more)

    known = drawn(
        """
        step   [1                     ][2                     ]
        cpu    [F   ][G      ][B  ][C ][F   ][G      ][B  ][C ]
        """,
        F=Ev("aten::mul", args={"Sequence number": 1, "Call stack": "train.py(31): <module>"}),
        G=Ev("aten::add", args={"Sequence number": 2, "Call stack": "train.py(32): <module>"}),
        B=node("Add", 2),
        C=node("Mul", 1, times=10, fill=0.5),
    )
    behind = {cost.source.line: cost.backward_us for cost in known.get(LineCosts).lines}
    assert sum(behind.values()) == pytest.approx(known.get(Breakdown).us("backward"), rel=0.01)
    assert behind[32] < 530
    assert behind[31] > 330


def test_gradients_of_gradients_belong_to_the_line_that_asked_for_the_first():
    """Line 32 calls autograd.grad(create_graph=True): the op within that node made a node of its own."""

    def row(name, start, dur, line, **args):
        args |= {"Call stack": f"train.py({line}): <module>"} if line else {}
        return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": args}

    def number(sequence, of_node=False):
        return {"Sequence number": sequence} | ({"Fwd thread id": 1} if of_node else {})

    node = "autograd::engine::evaluate_function: MmBackward0"
    rows = []
    for step in (0, 1):
        at, first = 1000 * step, 4 * step
        rows += [
            row(f"ProfilerStep#{step}", at, 1000, 0) | {"cat": "user_annotation"},
            row("aten::mm", at, 100, 31, **number(first + 1)),
            row(node, at + 100, 200, 32, **number(first + 1, True)),
            row("aten::mul", at + 150, 50, 32, **number(first + 2)),
            row(node, at + 300, 500, 33, **number(first + 2, True)),
        ]
    known = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"))
    behind = {cost.source.line: cost.backward_us for cost in known.get(LineCosts).lines}
    # Nodes one after the other: what each line caused is what its node took.
    assert behind[31] == pytest.approx(200, rel=0.02)
    assert behind[32] == pytest.approx(500, rel=0.02)


def all_of(mapping, us, rows=0.0, python_us=0.0):
    """Work in the one part that a step has where capture did not time its parts."""
    assert len(mapping.parts) == 1
    return mapping.share(mapping.in_part("rest", us, rows, python_us=python_us))


def test_without_a_slower_profiled_step_shares_are_what_was_recorded():
    known = drawn(STEPS, P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    mapping = known.get(Deprofiled)
    assert all_of(mapping, mapping.recorded_us / 4) == pytest.approx((0.25, 0.25))


def test_python_keeps_its_length_where_the_profiler_slowed_the_ops():
    # 2,400 µs recorded, 1,800 without the profiler: 600 were added to 1,500 µs of ops, or to each of their rows.
    known = drawn(STEPS, timed(1800.0), P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    mapping = known.get(Deprofiled)
    assert mapping.plain_us == pytest.approx(1800, rel=0.01)
    python = mapping.python_us
    assert all_of(mapping, python, python_us=python) == pytest.approx((python / 1800, python / 1800), rel=0.01)


def test_what_recording_costs_is_measured_on_the_machine_of_the_run():
    # 600 µs were added to 41 rows. What recording them costs there goes with the rows, the rest by time.
    def many(row_us):
        calibration = {"quantities": {"profiler_row_us": (row_us / 2, row_us, 2 * row_us, 60)}}
        known = drawn(
            STEPS, timed(1800.0) | {"calibration": calibration}, F=Ev("aten::mul", times=40), P=FORWARD, B=BACKWARD
        )
        mapping = known.get(Deprofiled)
        assert mapping.row_us == pytest.approx(0.87 * row_us)
        return sum(all_of(mapping, 500, 40)) / 2

    assert many(0.3) > many(0.6) > many(1.2)


def test_many_ops_give_up_more_than_few_of_the_same_time():
    known = drawn(STEPS, timed(1800.0), F=Ev("aten::mul", times=40), P=FORWARD, B=BACKWARD)
    mapping = known.get(Deprofiled)
    many, few = all_of(mapping, 500, 40), all_of(mapping, 500, 1)
    assert many[0] < few[0]
    assert many[1] < few[1]


def test_rows_behind_long_ops_cost_more_to_record():
    # Twenty ops of 30 µs, and one op of 1,000 µs with nothing in it.
    known = drawn(STEPS, F=Ev("aten::mul", times=20), P=FORWARD, B=BACKWARD)
    weights, events = known.get(StepParts).weights, known.get(Trace).events
    short = events.exactly("aten::mul")
    long = events.of(Category.CPU_OP) & ~short
    assert weights[short][:19] == pytest.approx(6.5, abs=1e-6)  # 30 µs each: as cold as it gets
    assert weights[long].max() == pytest.approx(6.5)
    quick = drawn(STEPS, F=Ev("aten::mul", times=200), P=FORWARD, B=BACKWARD)
    quick_weights = quick.get(StepParts).weights[quick.get(Trace).events.exactly("aten::mul")]
    assert quick_weights[:199] == pytest.approx(1 + 5.5 * 3 / 25, abs=0.02)


def test_the_ends_are_what_the_estimate_was_off_by():
    # 600 µs were added, half of it to work that takes half of the recorded time and has half of the ops.
    known = drawn(STEPS, timed(1800.0), P=FORWARD, F=FORWARD, B=FORWARD)
    mapping = known.get(Deprofiled)
    half = mapping.stretch(known.get(Steps).window, known.get(Steps)).times(0.5)
    low, high = mapping.us(half)
    assert (low + high) / 2 == pytest.approx(900, rel=0.01)
    assert (high - low) / 2 == pytest.approx(0.3 * 300, rel=0.02)


@pytest.mark.parametrize("us", [600.0, 1800.0, 2300.0, 5000.0])
def test_shares_stay_between_nothing_and_all(us):
    mapping = drawn(STEPS, timed(us), P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD).get(Deprofiled)
    for part in (0.0, 100.0, mapping.recorded_us):
        for python in (0.0, part):
            low, high = all_of(mapping, part, mapping.parts[0].rows, python)
            assert 0 <= low <= high <= 1


def measured(fetch, backward, optimizer, rest, slower):
    """Twenty steps with these parts in µs; `slower`: how many times longer each was with the profiler."""
    parts = {"fetch": fetch, "backward": backward, "optimizer": optimizer, "rest": rest}
    profiled = {name: [us * slower.get(name, 1.0)] * 2 for name, us in parts.items()}
    whole = sum(parts.values())
    return {
        "steps": {
            "unprofiled_us": [whole] * 20,
            "timed_before": 20,
            "unprofiled_parts_us": {name: [us] * 20 for name, us in parts.items()},
            "profiled_parts_us": profiled,
        }
    }


def test_each_part_is_brought_to_what_it_took_without_the_profiler():
    # Backward was recorded as 900 of 2,400 µs and took 300: a third. The rest kept its 1,500.
    facts = measured(0.0, 300.0, 0.0, 1500.0, {"backward": 3.0})
    back = Ev("autograd::engine::evaluate_function: MulBackward0")
    known = drawn(STEPS, facts, P=FORWARD, F=FORWARD, B=back)
    mapping = known.get(Deprofiled)
    assert mapping.plain_us == pytest.approx(1800, rel=0.01)
    assert sum(mapping.us(mapping.in_part("backward", 450.0))) / 2 == pytest.approx(150, rel=0.03)
    assert mapping.us(mapping.in_part("rest", 600.0)) == pytest.approx((600, 600), rel=0.02)
    # One row of the backward holds all that was added there: by rows, its time is what is left.
    low, high = mapping.us(mapping.in_part("backward", 900.0, 1.0))
    assert (low, high) == pytest.approx((300, 300), rel=0.02)


APART = """
    step   [1                     ]   [2                     ]
    cpu    [F   ][P      ][B      ]   [F   ][P      ][B      ]
    """


@pytest.mark.parametrize("lanes", [STEPS, APART])
def test_what_the_profiler_does_between_two_steps_is_no_part_of_them(lanes):
    # Capture timed 1,500 µs besides the backward pass, twice as long with the profiler; the pause is in neither.
    known = drawn(lanes, measured(0.0, 900.0, 0.0, 750.0, {"rest": 2.0}), P=FORWARD, F=FORWARD, B=BACKWARD)
    mapping = known.get(Deprofiled)
    [rest] = [part for part in mapping.parts if part.name == "rest"]
    assert (rest.recorded_us, rest.plain_us) == pytest.approx((1500, 750), rel=0.02)
    assert mapping.python_us == 0
    assert sum(mapping.us(mapping.slowed_alike("rest", 600.0))) / 2 == pytest.approx(300, rel=0.02)


def test_a_pause_within_a_step_is_python_of_the_script():
    lanes = """
        step   [1                        ][2                        ]
        cpu    [F   ][P      ]   [B      ][F   ][P      ]   [B      ]
        """
    known = drawn(lanes, measured(0.0, 900.0, 0.0, 900.0, {"rest": 2.0}), P=FORWARD, F=FORWARD, B=BACKWARD)
    assert known.get(Deprofiled).python_us == pytest.approx(300, abs=5)


def test_rows_explain_no_more_than_recording_them_costs():
    # The backward was recorded with 600 µs more in one row, which explains some 3 of them: the rest goes by time.
    facts = measured(0.0, 300.0, 0.0, 1500.0, {"backward": 3.0})
    back = Ev("autograd::engine::evaluate_function: MulBackward0")
    known = drawn(STEPS, facts, P=FORWARD, F=FORWARD, B=back)
    mapping = known.get(Deprofiled)
    [backward] = [part for part in mapping.parts if part.name == "backward"]
    assert backward.row_us > 100
    low, high = mapping.us(mapping.in_part("backward", 450.0, 0.0))
    assert (low + high) / 2 == pytest.approx(150, rel=0.03)
    assert (high - low) / 2 == pytest.approx(0.3 * 300, rel=0.03)


def test_parts_are_told_of_the_same_steps_as_the_whole():
    """A part that alone changed after the window does not choose other steps than the step time did."""
    times = StepTimes(unprofiled_us=[3e3] * 20 + [2e3] * 40, timed_before=20)
    assert list(before_the_window([2.5e3] * 20 + [1e3] * 40, times)) == [2.5e3] * 20
    disturbed = StepTimes(unprofiled_us=[9e3] * 20 + [2e3] * 40, timed_before=20)
    assert len(before_the_window([2.5e3] * 20 + [1e3] * 40, disturbed)) == 60


def test_work_is_told_by_the_part_it_lies_in():
    facts = measured(0.0, 300.0, 0.0, 1500.0, {})
    back = Ev("autograd::engine::evaluate_function: MulBackward0")
    known = drawn(STEPS, facts, P=FORWARD, F=FORWARD, B=back)
    mapping, steps = known.get(Deprofiled), known.get(Steps)
    whole = mapping.stretch(steps.window, steps)
    assert dict(zip((part.name for part in mapping.parts), whole.us, strict=True)) == pytest.approx(
        {"fetch": 0, "backward": 900, "optimizer": 0, "rest": 1500}, abs=1
    )
    assert sum(whole.rows) == sum(part.rows for part in mapping.parts)
    assert mapping.share(whole) == pytest.approx((1, 1), rel=0.01)


def test_steps_before_the_window_stand_for_the_others():
    times = {"unprofiled_us": [2000.0] * 20 + [1500.0] * 80, "timed_before": 20}
    assert drawn(STEPS, {"steps": times}, P=FORWARD, F=FORWARD, B=BACKWARD).get(Scale).step_us == 2000
    few = times | {"timed_before": 3}
    assert drawn(STEPS, {"steps": few}, P=FORWARD, F=FORWARD, B=BACKWARD).get(Scale).step_us == 1500
    disturbed = {"unprofiled_us": [9000.0] * 20 + [1500.0] * 80, "timed_before": 20}
    assert drawn(STEPS, {"steps": disturbed}, P=FORWARD, F=FORWARD, B=BACKWARD).get(Scale).step_us == 1500


def test_the_scale_of_a_saving_is_the_un_profiled_step():
    known = drawn(STEPS, timed(1800.0), P=Ev("train.py(31): accuracy"), F=FORWARD, B=BACKWARD)
    assert known.get(Scale).step_us == pytest.approx(1800)
