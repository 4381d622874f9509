"""Where the numbers that a loader was made with stand in a script's text."""

import pytest

from advisor.capture.inside.facts.source.script_text import ScriptText


@pytest.mark.parametrize(
    ("text", "call", "line"),
    [
        ("class Config:\n    num_workers: int = 4\nloader = DataLoader(d, num_workers=config.num_workers)\n", 3, 2),
        ("p.add_argument('--num-workers', default=4)\nDataLoader(d, 8, num_workers=args.num_workers)\n", 2, 1),
        ("DataLoader(d, 4, False, None, None, 4)\n", 1, 1),
        ("workers = 4\nDataLoader(d, 4, False, None, None, workers)\n", 2, 1),
        ("size = 4\nDataLoader(d, size)\n", 2, 0),  # a batch size of 4 is no number of workers
        ("a.workers = 4\nb.workers = 4\nDataLoader(d, num_workers=c.workers)\n", 3, 0),  # either: nothing is guessed
    ],
)
def test_workers(text: str, call: int, line: int) -> None:
    script = ScriptText(())
    vars(script)["sources"] = {"train.py": text}
    found = script.number(4, "num_workers", {"file": "train.py", "line": call, "function": ""})
    assert found.get("line", 0) == line


_TAKES = "def penalty(x, y):\n    return grad(y.sum(), x, create_graph=True)[0].pow(2).sum()\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("if i % o.d_reg_every == 0:\n    loss = loss + penalty(x, y)\n", 1),
        ("if i % 1 == 0:\n    loss = loss + penalty(x, y)\n", 0),  # no name
        ("if i % o.d_reg_every == 0:\n    print(loss)\n", 0),  # of something else
        ("if i % o.d_reg_every == 0:\n    penalty(x, y)\nother = dict(d_reg_every=1)\n", 0),  # either
    ],
)
def test_the_interval_of_a_penalty(text: str, line: int) -> None:
    script = ScriptText(())
    vars(script)["sources"] = {"train.py": f"d_reg_every = 1\n{_TAKES}{text}"}
    assert script.settings().get("penalty_every", {}).get("line", 0) == line
