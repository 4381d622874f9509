"""Pickles of plain data are read; everything that could run code is refused before anything is built."""

from __future__ import annotations

import collections
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.snapshots.plain_pickle import load

DATA = {"a": [1, -2, 1 << 70, 2.5, None, True], "b": ({"c": "text é"}, (), b"raw"), "d": [[]] * 3}


class _Runs:
    def __init__(self, *called: Any) -> None:
        self.called = called

    def __reduce__(self) -> Any:
        return self.called[0], self.called[1:]


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_is_what_pickle_reads(protocol: int, tmp_path: Path) -> None:
    data = {key: value for key, value in DATA.items() if protocol > 2 or key != "b"}
    assert load(_written(tmp_path, pickle.dumps(data, protocol))) == data


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("hide", [lambda one: one, lambda one: {"segments": [one]}, lambda one: (1, {"x": one})])
def test_a_call_is_never_made(protocol: int, hide: Any, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for called in ((os.mkdir, str(made)), (eval, f"__import__('os').mkdir({str(made)!r})")):
        path = _written(tmp_path, pickle.dumps(hide(_Runs(*called)), protocol))
        with pytest.raises(InputError, match="not opened, because that could run code") as refusal:
            load(path)
        assert "\n" not in str(refusal.value)
    assert not made.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'id'\ntR.",  # GLOBAL and REDUCE
        b"(S'id'\nios\nsystem\n.",  # INST
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02}\x82\x01.",  # EXT1
        b"Pname\n.",  # PERSID
        b"\x80\x02}}b.",  # BUILD
        b"\x80\x05\x97.",  # NEXT_BUFFER
        pickle.dumps(collections.OrderedDict(a=1)),
        pickle.dumps({1, 2}, 4),
        b"}r\xff\xff\xff\x7f.",  # a table of 2**31 entries
    ],
)
def test_opcodes_beyond_data_are_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not opened") as refusal:
        load(_written(tmp_path, data))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("data", [b"", b"\x80", pickle.dumps(DATA)[:-5], b"]]}s.", b"(.", b"0."])
def test_damage_is_one_line(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a readable pickle") as refusal:
        load(_written(tmp_path, data))
    assert "\n" not in str(refusal.value)


def test_bytes_by_chance_are_data_or_one_line(tmp_path: Path) -> None:
    draw, whole, refusals = random.Random(5), pickle.dumps(DATA), list[str]()
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            load(_written(tmp_path, bytes(data)))
        except InputError as refusal:
            refusals.append(str(refusal))
    assert len(refusals) > 50
    assert not [words for words in refusals if "\n" in words]
