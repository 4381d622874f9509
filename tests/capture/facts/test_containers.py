"""Which containers the lines of a script search, read by index or cut at the front."""

from __future__ import annotations

import sys
import textwrap
from collections import deque
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.facts.data.containers import Containers  # noqa: E402
from advisor.capture.inside.facts.source.script_text import ScriptText  # noqa: E402


def found(text: str, **names: Any) -> list[dict[str, Any]]:
    """What is known of a script's last line, which runs in a function with these local variables."""
    source = textwrap.dedent(text).lstrip("\n")
    made = Containers(ScriptText(()))
    made.text.sources = {"train.py": source}
    made.read()
    frame = _frame(names)
    for line in range(1, source.count("\n") + 1):
        made.look("train.py", line, frame)
    return made.record()


def _frame(names: dict[str, Any]) -> Any:
    code = "def run(" + ", ".join(names) + "):\n    return sys._getframe()\n"
    space: dict[str, Any] = {"sys": sys}
    exec(code, space)
    return space["run"](**names)


class Memory:
    def __init__(self, entries: Any) -> None:
        self.memory = entries


@pytest.mark.parametrize(
    ("line", "entries", "operation", "often"),
    [
        ("batch = random.sample(self.memory, size)", deque(range(9)), "draw", 4.0),
        ("batch = [self.memory[i] for i in chosen]", deque(range(9)), "index", 3.0),
        ("batch = [self.memory[i] for i in range(size)]", deque(range(9)), "index", 4.0),
        ("batch = [self.memory[i] for i in rng.choice(n, size)]", deque(range(9)), "index", 4.0),
        ("batch = [self.memory[i] for i in rng.integers(n, size=size)]", deque(range(9)), "index", 4.0),
        ("batch = [self.memory[i] for i in draw()]", deque(range(9)), "index", None),
        ("entry = self.memory[i]", deque(range(9)), "index", 1.0),
        ("while entry in self.memory: pass", [1, 2, 3], "search", 1.0),
        ("at = self.memory.index(entry)", [1, 2, 3], "search", 1.0),
        ("entry = self.memory.pop(0)", [1, 2, 3], "front", 1.0),
        ("self.memory.insert(0, entry)", [1, 2, 3], "front", 1.0),
        ("del self.memory[0]", [1, 2, 3], "front", 1.0),
    ],
)
def test_an_operation_is_found_with_its_container(line, entries, operation, often):
    (one,) = found(f"{line}\n", self=Memory(entries), size=4, chosen=[1, 2, 3])
    assert (one["operation"], one["often"]) == (operation, often)
    assert (one["name"], one["kind"], one["length"]) == ("self.memory", type(entries).__name__, len(entries))


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        ('rows = self.memory[self.memory["key"] == key]', "filter"),
        ("rows = self.memory[self.memory.key == key]", "filter"),
        ('rows = self.memory.loc[(self.memory["key"] == key) & (self.memory.value > 0), "value"]', "filter"),
        ('rows = self.memory.query("key == @key")', "filter"),
        ("row = self.memory.loc[key]", "row"),
    ],
)
def test_a_table_that_is_compared_to_find_rows(line, operation):
    pandas = pytest.importorskip("pandas")
    (one,) = found(f"{line}\n", self=Memory(pandas.DataFrame({"key": [1, 2], "value": [3, 4]})), key=1)
    assert (one["operation"], one["name"], one["length"], one["often"]) == (operation, "self.memory", 2, 1.0)


def test_probabilities_that_each_draw_adds_up():
    numpy = pytest.importorskip("numpy")
    (one,) = found("drawn = rng.choice(9, 4, p=self.memory)\n", self=Memory(numpy.ones(9) / 9))
    assert (one["operation"], one["name"], one["length"], one["often"]) == ("weights", "self.memory", 9, 1.0)


def test_a_table_is_not_compared_where_it_is_written_or_another_decides():
    pandas = pytest.importorskip("pandas")
    frame = Memory(pandas.DataFrame({"key": [1, 2]}))
    assert found("self.memory[self.memory.key == key] = 0\n", self=frame, key=1) == []
    assert found("rows = self.memory[other.key == key]\n", self=frame, other=frame, key=1) == []


@pytest.mark.parametrize(
    "line",
    [
        "entry = self.memory[i]",
        "batch = random.sample(self.memory, size)",
        "entry = self.memory.pop()",
        "for entry in self.memory: pass",
        "self.memory[0] = entry",
        "part = self.memory[2:4]",
    ],
)
def test_what_is_fast_on_a_list_is_not_kept(line):
    assert found(f"{line}\n", self=Memory([1, 2, 3]), size=2) == []


def test_sets_and_dictionaries_are_searched_in_constant_time():
    assert found("known = entry in seen\n", seen={1, 2}) == found("known = entry in seen\n", seen={1: 2}) == []


def test_a_list_in_a_dictionary_is_found_by_its_key():
    (one,) = found("while item in seen[user]: pass\n", seen={"ada": [1, 2]}, user="ada")
    assert (one["name"], one["length"]) == ("seen[user]", 2)


def test_where_it_is_made():
    text = """
        class Memory:
            def __init__(self, size):
                self.memory = deque(maxlen=size)
                self.other = deque()
        def draw(self, size):
            return random.sample(self.memory, size)
    """
    (one,) = found(text, self=Memory(deque([1])), size=1)
    assert one["made"] == {"file": "train.py", "line": 3}


def test_an_array_that_is_made_longer():
    numpy = pytest.importorskip("numpy")
    (one,) = found("rewards = np.append(rewards, reward)\n", rewards=numpy.zeros(5))
    assert (one["operation"], one["kind"], one["bytes"]) == ("grow", "ndarray", 40)
    assert found("rewards = np.append(others, reward)\n", rewards=numpy.zeros(5)) == []


def test_rows_of_a_table():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1, 2]})
    (one,) = found("row = table.iloc[i]\n", table=table)
    assert (one["operation"], one["kind"], one["length"]) == ("row", "DataFrame", 2)
    (one,) = found("for _, row in table.iterrows(): pass\n", table=table)
    assert (one["operation"], one["often"]) == ("rows", 2.0)


def test_no_code_of_the_script_runs():
    class Bad:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("called")

        @property
        def memory(self) -> Any:
            raise AssertionError("called")

    class Strange(list):  # type: ignore[type-arg]
        def __len__(self) -> int:
            raise AssertionError("called")

        __getitem__ = __iter__ = __contains__ = __len__  # type: ignore[assignment]

    assert found("known = entry in self.memory\n", self=Bad()) == []
    (one,) = found("known = entry in self.memory\n", self=Memory(Strange([1, 2])))
    assert one["length"] == 2


class Table:
    def __init__(self, features: Any) -> None:
        self.features = features


def by_row(line: str, features: Any, **names: Any) -> list[dict[str, Any]]:
    return [one for one in found(f"{line}\n", self=Table(features), **names) if one["operation"] == "by_row"]


def test_rows_of_a_table_that_lies_by_columns() -> None:
    """As `DataFrame.to_numpy()` gives it; the same stored by rows, and a small one, are no matter."""
    numpy = pytest.importorskip("numpy")
    table = numpy.ones((100_000, 16), numpy.float32)
    columns = numpy.asfortranarray(table)
    nodes = numpy.arange(500)
    (one,) = by_row("x = self.features[nodes]", columns, nodes=nodes)
    assert (one["kind"], one["length"], one["bytes"], one["often"]) == ("ndarray", 100_000, 6_400_000, 500.0)
    assert 0 <= one["read_us"] < 1000
    assert [by_row("x = self.features[i]", columns, i=7)[0]["often"]] == [1.0]
    assert by_row("x = self.features[nodes]", columns, nodes=nodes > 3)[0]["often"] is None
    assert by_row("x = self.features[nodes]", columns, nodes=torch.arange(40))[0]["often"] == 40.0
    assert by_row("x = self.features[nodes]", table, nodes=nodes) == []
    assert by_row("x = self.features[nodes]", columns[:1000].copy(order="F"), nodes=nodes) == []
    assert by_row("x = self.features[i, j]", columns, i=1, j=2) == []
    assert by_row("x = self.features[3:9]", columns) == []
