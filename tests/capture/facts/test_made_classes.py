"""Where the script makes the only object of one of its classes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.facts.source.made_classes import made_classes  # noqa: E402
from advisor.capture.inside.facts.source.script_text import ScriptText  # noqa: E402

HELPER = """class Breather:
    def __init__(self, seconds=0.02):
        self.seconds = seconds

    def again(self):
        return Breather(self.seconds)
"""


def made(**sources: str) -> dict[str, list[tuple[int, int, str, int]]]:
    text = ScriptText(())
    text.sources = {f"{name}.py": source for name, source in sources.items()}
    return made_classes(text)


def test_the_only_call_outside_of_the_class_is_told_from_another_file() -> None:
    found = made(pace=HELPER, train="from pace import Breather\n\nbreather = Breather()\n")
    assert found == {"pace.py": [(1, 6, "train.py", 3)]}


@pytest.mark.parametrize(
    "train",
    [
        "first, second = Breather(), 1\nother = Breather(0.1)\n",  # two objects
        "import pace\n",  # none
    ],
)
def test_of_several_objects_none_is_told(train: str) -> None:
    assert not made(pace=HELPER, train=train)


def test_a_model_is_left_out() -> None:
    assert not made(train="class Net(nn.Module):\n    pass\n\nnet = Net()\n")
