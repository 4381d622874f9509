"""Strides and plain arguments of ops: which are kept, on both paths of the reader."""

import json

from advisor.api import Ev, draw
from advisor.trace.read.load import load

_CONVOLUTION = Ev(
    "aten::convolution",
    dims=[[8, 3, 32, 32], [16, 3, 3, 3], [], []],
    args={"Input Strides": [[3072, 1024, 32, 1], [27, 9, 3, 1], [], []], "Concrete Inputs": ["", "", "", "[2, 2]"]},
)
_OTHER = Ev("aten::add", dims=[[8], [8]], args={"Input Strides": [[1], [1]], "Concrete Inputs": ["", ""]})


def _read(folder, damage=""):
    drawing = "step [1    ][2    ]\ncpu  [C ][A ] [C ][A ]\ngpu 7 [K ][K ] [K ][K ]"
    text = json.dumps(dict(draw(drawing, C=_CONVOLUTION, A=_OTHER, K="k")))
    path = folder / "a.json"
    path.write_text(text.replace('"traceEvents": [', '"traceEvents": [' + damage))
    return load(path).events


def _arguments(events):
    return {
        events.text(row): (
            events.strides_table[events.strides[row]] if events.strides[row] >= 0 else None,
            events.values_table[events.values[row]] if events.values[row] >= 0 else None,
        )
        for row in range(len(events))
        if events.dims[row] >= 0
    }


def test_of_convolutions_strides_and_arguments_are_kept(tmp_path):
    strides, values = _arguments(_read(tmp_path))["aten::convolution"]
    assert json.loads(strides)[0] == [3072, 1024, 32, 1]
    assert json.loads(values)[3] == "[2, 2]"


def test_of_other_ops_they_are_not(tmp_path):
    assert _arguments(_read(tmp_path))["aten::add"] == (None, None)


def test_a_damaged_file_gives_the_same(tmp_path):
    whole = _arguments(_read(tmp_path))
    damaged = _arguments(_read(tmp_path, damage='{"ph": "X", "ts": 1, "dur" 5},'))
    assert {name: [text and json.loads(text) for text in texts] for name, texts in damaged.items()} == {
        name: [text and json.loads(text) for text in texts] for name, texts in whole.items()
    }
