"""Whether two backward passes are of one training loop."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import functools

def step(tell): tell()

def pretrain(tell):
    for _ in range(2):
        step(tell)

def train(tell):
    for _ in range(2):
        step(tell)

def one_after_the_other(tell):
    pretrain(tell)
    train(tell)

def in_turns(tell):
    for _ in range(2):
        pretrain(tell)
        train(tell)

def in_one_body(tell):
    for _ in range(2):
        tell()
        step(tell)

def twice_in_one_function(tell):
    for _ in range(2):
        tell()
    while True:
        tell()
        break

def called_by_a_library(tell):
    def body(_, each):
        if each == 1:
            tell()
        else:
            tell()
    functools.reduce(body, [1, 2, 1, 2], None)

def in_a_comprehension(tell):
    def one(number):
        if number % 2:
            tell()
        else:
            tell()
    [one(number) for number in range(4)]

def repeated_by_no_loop(tell):
    def one(number):
        if number % 2:
            tell()
        else:
            tell()
    one(1)
    list(map(one, [2, 3, 4, 5]))

def stages(tell):
    for _ in range(3):
        step(tell)
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "two_loops_of_a_script.py"
    path.write_text(SCRIPT)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop(path.stem, None)


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("one_after_the_other", [False, False, True, False]),
        ("in_turns", [False] * 8),
        ("in_one_body", [False] * 4),
        ("twice_in_one_function", [False, False, True]),
        ("in_a_comprehension", [False] * 4),
        ("repeated_by_no_loop", [False, True, True, False, False]),
        ("stages", [False] * 3),
    ],
)
def test_the_loop_that_a_backward_pass_is_of(script: Any, name: str, moves: list[bool]) -> None:
    from advisor.capture.inside.steps.stack_samples import Sampler
    from advisor.capture.inside.steps.training_loops import Home

    sampler = Sampler(lambda: False, lambda: 0, lambda _stack, _mode: None, lambda: "waits")
    home, told = Home(sampler.codes), []

    def tell() -> None:
        # The way from the script on: what called the test is no part of a script's run.
        stack, _ = sampler.walk(sys._getframe(1))
        at = next(at for at, (key, _) in enumerate(stack) if sampler.codes.known[key].function == name)
        told.append(home.left(stack[at:]))

    getattr(script, name)(tell)
    assert told == moves


def test_lines_that_a_library_calls_take_turns(script: Any) -> None:
    from advisor.capture.inside.steps.stack_samples import Sampler
    from advisor.capture.inside.steps.training_loops import Home

    sampler = Sampler(lambda: False, lambda: 0, lambda _stack, _mode: None, lambda: "waits")
    code, library = script.called_by_a_library.__code__, Path.read_text.__code__
    body = next(one for one in code.co_consts if hasattr(one, "co_code"))
    outer, inner, loop = sampler.codes.of(code), sampler.codes.of(body), sampler.codes.of(library)
    first = body.co_firstlineno
    home = Home(sampler.codes)
    ways = [((outer, 50), (loop, 9), (inner, first + line)) for line in (2, 4, 2)]
    assert [home.left(way) for way in ways] == [False, False, False]
    assert home.left(((outer, 50), (inner, first + 4))) is False, "one line calls either"
    assert home.left(((outer, 51), (inner, first + 4))), "another line, in no loop"
