"""Lines of an evaluation that runs in some steps: from the account of the run where the recorded step had none."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.model import Source

rule: Any = import_module("advisor.rules.needless_work.evaluation_with_gradients")
TRAINS, CALLS, EVALUATES = (Source("train.py", line) for line in (33, 38, 27))


def run(*lines: Source) -> Any:
    part = SimpleNamespace(lines=tuple(SimpleNamespace(source=line) for line in lines))
    return SimpleNamespace(loop={"evaluation": part} if lines else {})


@pytest.mark.parametrize(
    ("known", "where", "expected"),
    [
        (run(CALLS), (TRAINS,), (CALLS,)),  # the recorded step did not evaluate: its line is that of the training
        (run(CALLS, EVALUATES), (EVALUATES, CALLS), (EVALUATES, CALLS)),
        (run(), (TRAINS,), (TRAINS,)),
        (None, (TRAINS,), (TRAINS,)),
    ],
)
def test_the_account_of_the_run_names_the_evaluation(known: Any, where: Any, expected: Any) -> None:
    assert rule._watched(known, where) == expected
