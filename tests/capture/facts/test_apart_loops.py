"""Which loops of a script's text have iterations that need nothing of an earlier one."""

from __future__ import annotations

import ast
import textwrap

import pytest

from advisor.capture.inside.facts.source.apart_loops import ApartLoops
from advisor.capture.inside.facts.source.script_text import ScriptText

PRELUDE = """
import torch
import torch.nn.functional as F

class Scorer(torch.nn.Module):
    def forward(self, x):
        return x.square().sum()

def halved(x):
    return x / 2
"""
STATEFUL = """
class Memory(torch.nn.Module):
    def forward(self, x):
        self.state = 0.9 * self.state + x
        return self.state
"""


def is_apart(loop: str, before: str = PRELUDE) -> bool:
    text = ScriptText(())
    text.sources = {"train.py": f"{before}\n{textwrap.dedent(loop)}"}
    (tree,) = (tree for _, tree in text.trees(""))
    last = [node for node in tree.body if isinstance(node, ast.For)][-1]
    return ApartLoops(text).is_apart(last)


@pytest.mark.parametrize(
    "loop",
    [
        "for row in rows:\n    losses.append(F.relu(halved(row)).sum())",
        "for i in range(n):\n    near = table[i][mask[i]]\n    out[i] = model(near).mean()",
        "for row in rows:\n    total += scorer(row)",
        "for row in rows:\n    parts = []\n    for x in row:\n        parts.append(x + 1)\n    out.append(cat(parts))",
        "for x in rows:\n    if x.sum() > 0:\n        y = x\n    else:\n        y = -x\n    out.append(y)",
        "for row in rows:\n    y = row.clone()\n    y.add_(1)\n    out.append(y)",
    ],
)
def test_iterations_that_need_no_other(loop: str) -> None:
    assert is_apart(loop)


@pytest.mark.parametrize(
    "loop",
    [
        "for x in xs:\n    state = cell(x, state)\n    out.append(state)",  # a recurrence
        "for x in xs:\n    total += x\n    out.append(total)",  # what is added up is read
        "for x in xs:\n    if x > 0:\n        last = x\n    out.append(last)",  # perhaps of an earlier one
        "for i in range(n):\n    table[i] = table[i - 1] + 1",
        "for x in xs:\n    state.mul_(0.9)\n    out.append(state + x)",  # in place
        "for x in xs:\n    memory.push(x)",
        "for x in xs:\n    h = memory.h\n    h.mul_(0.9)\n    out.append(h + x)",  # another name of the same
        "for x in xs:\n    h = state[0]\n    h += x\n    out.append(h.clone())",
        "for x in xs:\n    h = state\n    h[0] = x\n    out.append(h.sum())",
        "for x in xs:\n    self.state = x",
        "for x in xs:\n    if x > 0:\n        break\n    out.append(x)",
        "for x in xs:\n    loss = scorer(x)\n    loss.backward()",
        "for x in xs:\n    for weight in weights:\n        weight -= 0.1 * x",  # the same weights in each
        "for x in xs:\n    scale *= x",
        "for x in xs:\n    out.append(x)\nelse:\n    out.append(0)",
    ],
)
def test_iterations_that_may_need_another(loop: str) -> None:
    assert not is_apart(loop)


def test_modules_that_keep_what_they_computed() -> None:
    loop = "for x in xs:\n    out.append(memory(x))"
    assert is_apart(loop)
    assert not is_apart(loop, PRELUDE + STATEFUL)


@pytest.mark.parametrize("body", ["self.state.mul_(0.9).add_(x)", "self.seen.append(x)", "self.remember(x)"])
def test_modules_that_keep_it_in_place_or_elsewhere(body: str) -> None:
    module = f"""
class Memory(torch.nn.Module):
    def remember(self, x):
        self.state = x

    def forward(self, x):
        {body}
        return x
"""
    assert not is_apart("for x in xs:\n    out.append(memory(x))", PRELUDE + module)


def test_functions_that_change_something_outside() -> None:
    counting = "\ncounts = []\ndef counted(x):\n    global seen\n    seen = x\n    return x\n"
    loop = "for x in xs:\n    out.append(counted(x))"
    assert not is_apart(loop, PRELUDE + counting)


def test_packages_whose_layers_may_keep_something() -> None:
    assert not is_apart("for x in xs:\n    out.append(layer(x))", PRELUDE + "\nimport snntorch\n")
    assert is_apart("for x in xs:\n    out.append(layer(x))", PRELUDE + "\nimport math\n")
