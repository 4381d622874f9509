"""Where the text gives a loader a number: in a dictionary that is unpacked, as a command-line option, as a default."""

from __future__ import annotations

import pytest

from advisor.capture.inside.facts.script_text import ScriptText

UNPACKED = """
CONFIG = {
    "loader": {"batch_size": 32, "num_workers": 2},
}
loader = DataLoader(dataset, **CONFIG["loader"])
"""
OPTION = """
parser.add_argument("--dataloader-num-workers", type=int, default=0)
loader = DataLoader(
    dataset,
    batch_size=8,
    num_workers=args.dataloader_num_workers,
)
"""
TWICE = """
TRAIN, TEST = {"num_workers": 2}, {"num_workers": 2}
other = {"num_workers": 2}
loader = DataLoader(dataset, **TRAIN)
"""


@pytest.mark.parametrize(
    ("source", "argument", "value", "call", "line"),
    [
        (UNPACKED, "num_workers", 2, 5, 3),
        (UNPACKED, "batch_size", 32, 5, 3),
        (UNPACKED, "num_workers", 4, 5, None),
        (OPTION, "num_workers", 0, 3, 2),
        (TWICE, "num_workers", 2, 4, None),
    ],
)
def test_numbers_are_found_where_one_place_gives_them(
    source: str, argument: str, value: int, call: int, line: int | None
) -> None:
    text = ScriptText(())
    text.__dict__["sources"] = {"train.py": source}
    found = text.number(value, argument, {"file": "train.py", "line": call, "function": ""})
    assert found.get("line") == line
