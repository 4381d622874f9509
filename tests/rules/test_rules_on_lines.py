"""Rules that look at lines, on a step whose lines were recorded: a loop of the user's against one inside a library."""

import json

import pytest

from advisor.analyses.lines.lines import LinesTrace
from advisor.api import BACKWARD, Ev, RankRecord, draw
from advisor.capture.record import Optimizer
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.trace.read.load import read_bytes

STEPS = """
    step   [1                     ][2                     ]
    cpu    [L           ][B      ]  [L           ][B      ]
    """
RECORDED = """
    step   [1                     ]
    cpu    [W           ][V      ]
    cpu    [L           ][B      ]
    """
OPS = {"L": Ev("aten::mul", times=40, fill=0.6), "B": Ev(BACKWARD.name)}


def read(drawing, **words):
    return read_bytes(json.dumps(dict(draw(drawing, us=50, **words))).encode(), "drawn.pt.trace.json")


def recorded(visits, ops=OPS, record=None):
    """A profile, and the lines of one step in which line 31 ran that often."""
    line = Ev("advisor:line|train.py|31|<module>", "user_annotation", times=visits)
    after = Ev("advisor:line|train.py|33|<module>", "user_annotation")
    return Computed(trace=read(STEPS, **ops), record=record, lines=LinesTrace(read(RECORDED, W=line, V=after, **ops)))


@pytest.fixture
def tensor_loop():
    return load_rules().by_id()["tensor-loop"]


def test_a_loop_of_the_users_runs_its_line_as_often_as_its_ops(tensor_loop):
    outcome = apply(tensor_loop, recorded(40), {})
    assert outcome.status == "found"
    assert "train.py:31 runs `mul` 40 times a step" in outcome.findings[0].message
    assert [where.line for where in outcome.findings[0].where] == [31]


def test_a_loop_inside_a_library_is_not_the_users_to_rewrite(tensor_loop):
    # Clipping gradients or copying a state is one visit of one line and many ops.
    assert apply(tensor_loop, recorded(1), {}).status == "clear"


def network(rows):
    """Three linear layers a turn, each of which sees so many rows."""
    return OPS | {"L": Ev("aten::linear", times=120, fill=0.6, args={"Input Dims": [[rows, 4], [64, 4], [64]]})}


def weights(tensors, modules=0):
    return RankRecord(
        optimizers=[Optimizer("SGD", tensors=tensors)], model={"modules": [{"path": f"{k}"} for k in range(modules)]}
    )


def test_a_network_of_three_layers_for_each_of_forty_elements_is_a_loop(tensor_loop):
    outcome = apply(tensor_loop, recorded(40, network(1), weights(6)), {})
    assert outcome.status == "found"
    # The line turns as often as it runs, whatever it calls in a turn.
    assert "runs `linear` 40 times a step" in outcome.findings[0].message


def test_a_network_that_sees_a_batch_in_each_turn_is_none(tensor_loop):
    # A decoder, a sampler: the next turn starts with what this one made.
    assert apply(tensor_loop, recorded(40, network(32), weights(6)), {}).status == "clear"


@pytest.mark.parametrize(("python_us", "status"), [(1.0, "found"), (12.0, "clear")])
def test_a_network_whose_answer_python_computes_with_may_need_it_in_the_next_turn(tensor_loop, python_us, status):
    turn = 3 * 8 + 4 + python_us
    rows = [{"name": "advisor:line|train.py|33|<module>", "cat": "user_annotation", "ts": 40 * turn, "dur": 60.0}]
    for at in (k * turn for k in range(40)):
        line = {"name": "advisor:line|train.py|31|<module>", "cat": "user_annotation", "ts": at, "dur": turn - 0.1}
        layers = [{"name": "aten::linear", "ts": at + 8 * k, "dur": 6.0} for k in range(3)]
        rows += [line, *layers, {"name": "aten::item", "ts": at + 24, "dur": 4.0}]
    rows.append({"name": BACKWARD.name, "ts": 40 * turn, "dur": 50.0})
    dims = {"Input Dims": [[4], [64, 4], [64]]}

    def trace(steps, wanted):
        made = [{"name": f"ProfilerStep#{k}", "cat": "user_annotation", "ts": 9999.0 * k, "dur": 9998.0} for k in steps]
        made += [one | {"ts": one["ts"] + 9999.0 * k} for k in steps for one in rows if wanted(one)]
        whole = [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "args": dims} | one for one in made]
        return read_bytes(json.dumps({"traceEvents": whole}).encode(), "made")

    profiled = trace((0, 1), lambda one: "cat" not in one)
    known = Computed(trace=profiled, record=weights(6), lines=LinesTrace(trace((2,), lambda one: True)))
    assert apply(tensor_loop, known, {}).status == status


@pytest.mark.parametrize("record", [weights(240), weights(4, modules=130)], ids=["trained", "frozen"])
def test_forty_blocks_of_three_layers_are_a_deep_model(tensor_loop, record):
    assert apply(tensor_loop, recorded(40, network(1), record), {}).status == "clear"


@pytest.mark.parametrize(
    ("op", "said", "fix"),
    [
        ("linalg_vector_norm", "computes `norm` of tensors one by one, and reads the numbers 40 times", "in the steps"),
        ("select", "reads single elements of tensors 40 times", "at once"),
    ],
)
def test_numbers_that_a_library_reads_are_told_with_what_computes_them(tensor_loop, op, said, fix):
    steps, lines = (text.replace("[L           ]", "[L     ][I   ]") for text in (STEPS, RECORDED))
    ops = {"L": Ev(f"aten::{op}", times=40, fill=0.6), "I": Ev("aten::item", times=40, fill=0.6), "B": OPS["B"]}
    line = Ev("advisor:line|train.py|31|<module>", "user_annotation")
    after = Ev("advisor:line|train.py|33|<module>", "user_annotation")
    known = Computed(trace=read(steps, **ops), lines=LinesTrace(read(lines, W=line, V=after, **ops)))
    (finding,) = apply(tensor_loop, known, {}).findings
    assert said in finding.message
    assert fix in finding.fix.title
