"""Every odd trace file has its stated outcome: read whole, mended and said, or refused in one line."""

from __future__ import annotations

import gzip
import json
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import kineto_files.dialects as made
import pytest
from kineto_files.variants import VARIANTS

from advisor.errors import InputError
from advisor.trace import intervals
from advisor.trace.events import Trace
from advisor.trace.read.load import load

pytestmark = pytest.mark.usefixtures("reader")


def _plain(data: bytes, folder: Path) -> Any:
    """The file as Python's own json reads it; None where it cannot."""
    try:
        if data[:2] == b"PK":
            (folder / "x.zip").write_bytes(data)
            with zipfile.ZipFile(folder / "x.zip") as archive:
                data = archive.read(next(name for name in archive.namelist() if not name.startswith("__")))
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        text = data.rstrip(b"\0").decode(json.detect_encoding(data))
        return json.loads(text, strict=False, parse_float=Decimal)
    except (ValueError, EOFError, RecursionError, StopIteration):
        return None


def _complete(document: Any) -> list[dict[str, Any]] | None:
    """The complete events, counted independently of the reader."""
    rows = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        return None
    begun = sum(row["ph"] == "B" for row in rows)
    ended = sum(row["ph"] == "E" for row in rows)
    return [row for row in rows if row["ph"] == "X"] + [{}] * min(begun, ended)


def _busy(rows: list[dict[str, Any]]) -> int:
    """ns with device work, by marking and sweeping edges with exact decimals."""
    spans = sorted(
        (_ns(row.get("ts")), _ns(row.get("ts")) + max(_ns(row.get("dur")), 0))
        for row in rows
        if row.get("cat") in made.DEVICE
    )
    busy, reach = 0, None
    for start, end in spans:
        begin = start if reach is None else max(start, reach)
        busy += max(end - begin, 0)
        reach = end if reach is None else max(reach, end)
    return busy


def _ns(value: Any) -> int:
    number = Decimal(str(value)) if value is not None else Decimal(0)
    return int(number * 1000) if abs(number) < 1 << 60 else 0


def _read(variant: made.Variant, folder: Path) -> Trace:
    path = folder / variant.file
    path.write_bytes(variant.data)
    return load(path)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v.number}-{v.name}".replace(" ", "_"))
def test_every_variant_has_its_outcome(variant: made.Variant, tmp_path: Path) -> None:
    if variant.outcome == "refused":
        with pytest.raises(InputError, match=variant.says) as refusal:
            _read(variant, tmp_path)
        assert "\n" not in str(refusal.value)
        assert variant.file in str(refusal.value)
        return
    trace = _read(variant, tmp_path)
    sound = len(_complete(_plain(made.good().encode(), tmp_path)) or ())
    rows = _complete(_plain(variant.data, tmp_path))
    expected = (len(rows) if rows is not None else sound) - variant.lost
    if variant.outcome == "some":
        assert 0 < len(trace.events) <= max(expected, 4000 * 9)
    else:
        assert len(trace.events) == expected
    if variant.outcome == "whole" and rows is not None and variant.number != "34":
        work = trace.device_work
        events = trace.events
        union = intervals.union(events.start_ns[work], events.end_ns[work])
        assert intervals.total(union) == _busy(rows)
    said = {item.id for item in trace.health}
    assert set(variant.health) <= said, trace.health
    if variant.outcome == "whole" and not variant.health:
        assert not said, trace.health
    assert variant.check is None or variant.check(trace)
    assert (trace.events.dur_ns >= 0).all()


def test_every_number_of_the_known_oddities_has_a_variant() -> None:
    assert {int(variant.number) for variant in VARIANTS} == set(range(1, 49))


def test_a_member_of_a_zip_never_becomes_a_path(tmp_path: Path) -> None:
    hostile = next(v for v in VARIANTS if v.name == "zip with hostile names")
    before = set(tmp_path.rglob("*"))
    _read(hostile, tmp_path)
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "t.zip"}


@pytest.mark.parametrize("at", range(46, 110, 3))
def test_a_damaged_zip_is_read_or_refused(at: int, tmp_path: Path) -> None:
    """Damage in the list of members: a name that is empty, an offset that leads nowhere."""
    sound = next(v for v in VARIANTS if v.name == "zip with one trace").data
    for value in (0, 0x50, 0xFF):
        path = tmp_path / "t.zip"
        path.write_bytes(sound[:-at] + bytes([value]) + sound[len(sound) - at + 1 :])
        assert _read_or_refused(path)


def _read_or_refused(path: Path) -> bool:
    try:
        return len(load(path).events) > 0
    except InputError as refusal:
        return "\n" not in str(refusal)


def test_a_member_without_a_name_is_no_trace(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("x.json", made.good())
    (tmp_path / "t.zip").write_bytes((tmp_path / "t.zip").read_bytes().replace(b"x.json", b"\0.json"))
    with pytest.raises(InputError, match="holds 0 traces"):
        load(tmp_path / "t.zip")


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.trace.read.source.BOMB_BYTES", 4 << 20)
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 9) as file:
        file.write(b'{"traceEvents": [' + b" " * (16 << 20))
    with pytest.raises(InputError, match="more than any trace"):
        load(path)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.json", b'{"traceEvents": [' + b" " * (16 << 20))
    with pytest.raises(InputError, match="more than any trace"):
        load(tmp_path / "bomb.zip")


def test_one_bad_byte_costs_at_most_its_own_event(tmp_path: Path) -> None:
    """A byte that breaks JSON, put at many places of the text: all other events survive."""
    source = made.good().encode()
    sound = len(load(_write(tmp_path, source)).events)
    start, end = source.index(b'"traceEvents"') + 18, source.rindex(b"]")
    for at in range(start, end, 97):
        for bad in (b'"', b"\xff", b"{", b"}", b"\\", b"]"):
            trace = load(_write(tmp_path, source[:at] + bad + source[at + 1 :]))
            assert len(trace.events) >= sound - 2, (at, bad, source[at - 40 : at + 40])


def _write(folder: Path, data: bytes) -> Path:
    path = folder / "t.json"
    path.write_bytes(data)
    return path
