"""Rules that look at lines, on a step whose lines were recorded: a loop of the user's against one inside a library."""

import json

import pytest

from advisor.analyses.lines import LinesTrace
from advisor.api import BACKWARD, Ev, RankRecord, draw
from advisor.capture.record import Optimizer
from advisor.computed import Computed
from advisor.engine import apply
from advisor.registry import load_rules
from advisor.trace.load import read_bytes

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
    return read_bytes(json.dumps(draw(drawing, us=50, **words)).encode(), "drawn.pt.trace.json")


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


NETWORK = OPS | {"L": Ev("aten::linear", times=120, fill=0.6)}


def weights(tensors, modules=0):
    return RankRecord(
        optimizers=[Optimizer("SGD", tensors=tensors)], model={"modules": [{"path": f"{k}"} for k in range(modules)]}
    )


def test_a_network_of_three_layers_for_each_of_forty_elements_is_a_loop(tensor_loop):
    outcome = apply(tensor_loop, recorded(40, NETWORK, weights(6)), {})
    assert outcome.status == "found"
    # The line turns as often as it runs, whatever it calls in a turn.
    assert "runs `linear` 40 times a step" in outcome.findings[0].message


@pytest.mark.parametrize("record", [weights(240), weights(4, modules=130)], ids=["trained", "frozen"])
def test_forty_blocks_of_three_layers_are_a_deep_model(tensor_loop, record):
    assert apply(tensor_loop, recorded(40, NETWORK, record), {}).status == "clear"
