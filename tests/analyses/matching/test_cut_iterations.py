"""Windows that begin with a backward pass, whose forward pass nobody recorded: it is told of the last forward pass."""

import pytest

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.matching.cut_iterations import closed
from advisor.api import Ev, draw
from advisor.engine.rule import Example
from advisor.testing import computed
from advisor.trace.events import Trace
from advisor.trace.op_names import AUTOGRAD_NODE

# Steps of 1,000 µs as capture marks them in a loop without a loader: backward, update, the next forward pass.
CUT = """
    step   [1                   ][2                   ][3                   ]
    cpu    [A ][B   ][U][F ][G  ][C ][D   ][U][H ][I  ][P ][Q   ][U][R ][S  ]
    """
MUL = {"Call stack": "train.py(31): <module>"}
NORM = {"Call stack": "train.py(32): <module>"}


def node(kind, number):
    return Ev(f"{AUTOGRAD_NODE}: {kind}Backward0", args={"Sequence number": number})


def op(name, number, line):
    return Ev(f"aten::{name}", args={"Sequence number": number, **line})


def cut_drawing(first=("NativeLayerNorm", "Mul")):
    return draw(
        CUT,
        us=50,
        A=node(first[0], 11),
        B=node(first[1], 10),
        C=node("NativeLayerNorm", 21),
        D=node("Mul", 20),
        P=node("NativeLayerNorm", 31),
        Q=node("Mul", 30),
        F=op("mul", 20, MUL),
        G=op("native_layer_norm", 21, NORM),
        H=op("mul", 30, MUL),
        I=op("native_layer_norm", 31, NORM),
        R=op("mul", 40, MUL),
        S=op("native_layer_norm", 41, NORM),
        U=Ev("Optimizer.step#SGD.step", "user_annotation"),
    )


def numbers_of_nodes(trace):
    events = trace.events
    return events.sequence[events.named(AUTOGRAD_NODE)].tolist()


def known_of(drawing):
    return computed(Example("drawn", drawing, None))


def test_the_first_backward_pass_belongs_to_the_last_forward_pass():
    known = known_of(cut_drawing())
    assert numbers_of_nodes(known.get(Trace)) == [41, 40, 21, 20, 31, 30]
    behind = {cost.source.line: cost.backward_us for cost in known.get(LineCosts).lines}
    assert behind[32] == pytest.approx(200, rel=0.05)
    assert behind[31] == pytest.approx(300, rel=0.05)


def test_a_backward_pass_of_another_graph_stays_unpaired_and_is_shared_out():
    known = known_of(cut_drawing(first=("Convolution", "Tanh")))
    assert numbers_of_nodes(known.get(Trace))[:2] == [11, 10]
    behind = {cost.source.line: cost.backward_us for cost in known.get(LineCosts).lines}
    # Three backward passes of 500 µs, of which two are known by op: their lines take all of the third.
    assert behind[32] + behind[31] == pytest.approx(500, rel=0.05)
    assert behind[32] == pytest.approx(200, rel=0.05)


def test_a_window_that_begins_with_a_forward_pass_is_left_as_it_is():
    drawing = draw(
        """
        step   [1             ][2             ]
        cpu    [F ][G  ][A ][B ][H ][I  ][C ][D ]
        """,
        us=50,
        F=op("mul", 10, MUL),
        G=op("native_layer_norm", 11, NORM),
        A=node("NativeLayerNorm", 11),
        B=node("Mul", 10),
        H=op("mul", 20, MUL),
        I=op("native_layer_norm", 21, NORM),
        C=node("NativeLayerNorm", 21),
        D=node("Mul", 20),
    )
    assert numbers_of_nodes(known_of(drawing).get(Trace)) == [11, 10, 21, 20]


def test_a_single_step_is_closed_with_its_own_forward_pass():
    drawing = draw(
        """
        step   [1                   ]
        cpu    [A ][B   ][U][F ][G  ]
        """,
        us=50,
        A=node("NativeLayerNorm", 11),
        B=node("Mul", 10),
        F=op("mul", 20, MUL),
        G=op("native_layer_norm", 21, NORM),
        U=Ev("Optimizer.step#SGD.step", "user_annotation"),
    )
    assert numbers_of_nodes(known_of(drawing).get(Trace)) == [21, 20]


def test_a_trace_without_marked_steps_or_numbers_is_left_as_it_is():
    for drawing in (draw("cpu [F ][G ]", us=50, F=op("mul", 1, MUL), G=node("Mul", 1)), draw("step [1 ]", us=50)):
        trace = known_of(drawing).get(Trace)
        assert closed(trace) is trace


def test_nodes_of_ops_that_are_not_there_keep_their_numbers():
    """A loop of eight turns before the window, and of seven in the last forward pass."""
    nodes = [node("Mul", 18 - at) for at in range(8)]
    ops = [op("mul", 32 + at, MUL) for at in range(7)]
    words = {chr(ord("a") + at): one for at, one in enumerate((*nodes, *ops))}
    boxes = "".join(f"[{word}]" for word in words)
    trace = known_of(draw(f"step [1{' ' * (len(boxes) - 2)}]\ncpu  {boxes}", us=50, **words)).get(Trace)
    assert numbers_of_nodes(trace) == [38, 37, 36, 35, 34, 33, 32, 11]
