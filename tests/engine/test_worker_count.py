"""How many processes read ranks: what cores, memory and the size of the files allow."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from advisor.engine import worker_count as counted
from advisor.engine.worker_count import needed_bytes, text_bytes, worker_count
from advisor.trace.read.allocator import cores, share_cores

MB = 1_000_000
PLENTY = 1 << 50


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "cores", lambda: 8)


@pytest.mark.usefixtures("eight_cores")
def test_as_many_as_cores_files_and_memory_allow() -> None:
    assert worker_count([200 * MB] * 64, PLENTY) == 8
    assert worker_count([200 * MB] * 3, PLENTY) == 3
    assert worker_count([200 * MB] * 64, 3 * needed_bytes(200 * MB)) == 3
    # The largest decides: any process may be the one that reads it.
    assert worker_count([2000 * MB] + [20 * MB] * 63, 2 * needed_bytes(2000 * MB)) == 2
    assert worker_count([200 * MB] * 64, 1) == 1


@pytest.mark.usefixtures("eight_cores")
def test_small_files_are_not_worth_a_process() -> None:
    assert worker_count([MB] * 8, PLENTY) == 1
    assert worker_count([MB] * 512, PLENTY) == 7
    assert worker_count([2000 * MB], PLENTY) == 1
    assert worker_count([], PLENTY) == 1


def test_the_text_of_a_packed_file_is_what_it_says_of_itself(tmp_path: Path) -> None:
    text = bytes(3 * MB)
    plain, packed, archive = (tmp_path / name for name in ("a.json", "a.json.gz", "a.zip"))
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.json", os.urandom(1000))
    assert (text_bytes(plain), text_bytes(packed)) == (3 * MB, 3 * MB)
    assert text_bytes(archive) > 10 * archive.stat().st_size
    # Several members: the last one alone says how long it is, and that is less than the file.
    packed.write_bytes(gzip.compress(os.urandom(MB)) + gzip.compress(b"end"))
    assert text_bytes(packed) > MB
    assert text_bytes(tmp_path / "none") == 0


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    before = cores()
    share_cores(before + 1)
    assert cores() == 1


def test_free_memory_is_known_here() -> None:
    free = counted.free_memory_bytes()
    assert free is None or free > 0
