"""Drawn steps with the modules of a model: what the tests of cost by module share."""

import json

from advisor.api import Ev, LinesTrace, RankRecord, draw
from advisor.computed import Computed
from advisor.report.module_view import modules
from advisor.trace.read.load import read_bytes

NET, INNER, LAYER = (
    Ev(f"advisor:module|{path}|{kind}", "user_annotation", launches="")
    for path, kind in (("Net", "Net"), ("embed", "Embedding"), ("layers.0", "Linear"))
)
MODEL = {
    "modules": [
        {"path": "Net", "kind": "Net", "parameters": 30, "parameter_bytes": 120, "root": True},
        {"path": "embed", "kind": "Embedding", "parameters": 10, "parameter_bytes": 40},
        {"path": "layers", "kind": "ModuleList", "parameters": 20, "parameter_bytes": 80},
        {"path": "layers.0", "kind": "Linear", "parameters": 20, "parameter_bytes": 80},
    ]
}


def lane(name, *boxes):
    """A lane of a drawing from (first column, end, word)."""
    text = ""
    for start, end, word in boxes:
        text = f"{text:{start}}[{word:{end - start - 2}}]"
        assert len(text) == end, "boxes overlap, or a word is longer than its box"
    return f"{name:8}{text}\n"


def op(name, number, **more):
    """A forward op that autograd gave this number."""
    return Ev(name, args={"Sequence number": number}, **more)


def node(name, number):
    """The node that goes back through the op of that number."""
    return Ev(f"autograd::engine::evaluate_function: {name}", args={"Sequence number": number, "Fwd thread id": 1})


# Columns of 10 µs. In the recorded step the modules begin and end a third and two thirds of the way between ops.
RECORDED = draw(
    lane("step", (0, 60, "1"))
    + lane("cpu", (2, 32, "N"), (34, 38, "x"), (38, 42, "y"), (42, 46, "z"))
    + lane("cpu", (4, 12, "E"), (14, 27, "L"))
    + lane("cpu", (6, 10, "a"), (16, 20, "b"), (21, 25, "c")),
    us=10,
    N=NET,
    E=INNER,
    L=LAYER,
    a="aten::embedding",
    b="aten::linear",
    c="aten::relu",
    x=node("ReluBackward0", 3),
    y=node("AddmmBackward0", 2),
    z=node("EmbeddingBackward0", 1),
)


def profiled(*lasts, gpu="", **more):
    """Steps of 70 columns; `lasts`: the columns that the last op of each takes, longer by what disturbed it."""
    step, forward, backward, words, at = [], [], [], {}, 0
    for index, last in enumerate(lasts):
        late = last - 4
        step.append((at, at + 70 + late, str(index)))
        names = [f"{letter}{index}" for letter in "abcxyzg"]
        forward += [(at + 9, at + 13, names[0]), (at + 19, at + 23, names[1]), (at + 25, at + 25 + last, names[2])]
        ends = [(47, 52), (52, 58), (60, 64), (64, 68)]
        backward += [(at + s + late, at + e + late, name) for (s, e), name in zip(ends, names[3:], strict=True)]
        number = 10 * index
        words |= {
            names[0]: op("aten::embedding", number + 1),
            names[1]: op("aten::linear", number + 2),
            names[2]: op("aten::relu", number + 3),
            names[3]: node("ReluBackward0", number + 3),
            names[4]: node("AddmmBackward0", number + 2),
            names[5]: node("EmbeddingBackward0", number + 1),
            names[6]: Ev("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
        }
        at += 70 + late
    on_loop = forward if gpu else sorted(forward + backward)
    text = lane("step", *step) + lane("cpu", *on_loop) + (lane("cpu 2", *backward) + gpu if gpu else "")
    return draw(text, us=10, **words | more)


def known(trace, recorded=RECORDED, record=None):
    def read(one):
        return read_bytes(json.dumps(dict(one)).encode(), "a.json")

    lines = LinesTrace(read(recorded)) if recorded else None
    return Computed(trace=read(trace), lines=lines, record=record or RankRecord(model=MODEL))


def table(trace, recorded=RECORDED, record=None):
    computed = known(trace, recorded, record)
    return modules(computed, 0, record or RankRecord(model=MODEL))


def by_path(found):
    assert found.why == ""
    return {row.path: row for row in found.rows}
