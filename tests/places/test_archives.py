"""Jobs in archives and traces in zstd: the report of the unpacked files; what is hostile is refused in one line."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import kineto_files.dialects as made
import pytest
from tiers import complete

from advisor.cli import main
from advisor.errors import InputError
from advisor.inputs import jobs
from advisor.places import archive as archives
from advisor.places.archive import Archive, Member
from advisor.places.place import place
from advisor.trace.read.load import load


def _text(rank: int = 0, world: int = 1, steps: int = 6) -> bytes:
    head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    noise = "".join(random.Random(rank).choices("0123456789abcdef", k=20_000))
    return made.text(made.rows(steps), {**head, "noise": noise}).encode()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(3):
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(_text(rank, 3)))
    return folder


def _packed(job: Path, suffix: str) -> Path:
    path = job.parent / f"job{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(job.rglob("*")):
                archive.write(file, file.relative_to(job.parent).as_posix())
    else:
        with tarfile.open(path, "w:gz" if suffix.endswith("gz") else "w") as tar:
            tar.add(job, "./job")
    return path


def _report(capsys: pytest.CaptureFixture[str], *words: Path | str) -> str:
    assert main(["analyze", *map(str, words), "--format", "json", "-q"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tgz"])
@pytest.mark.parametrize("workers", ["1", *complete("2")])
def test_an_archive_gives_the_report_of_its_folder(
    job: Path, suffix: str, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _packed(job, suffix)
    before = set(job.parent.rglob("*"))
    assert _report(capsys, path, "--workers", workers) == _report(capsys, job, "--workers", workers)
    assert set(job.parent.rglob("*")) == before


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_a_recorded_run_in_an_archive(job: Path, suffix: str) -> None:
    files = [{"path": "rank0.json.gz", "role": "profile"}, {"path": "/etc/passwd", "role": "lines"}]
    record = {"version": 1, "ranks": [{"rank": 0, "world_size": 1, "files": files}]}
    (job / "run.json").write_text(json.dumps(record))
    (found,) = jobs.find([_packed(job, suffix)])
    assert found.run is not None
    assert [(one.profile.name, one.lines) for one in found.traces] == [("rank0.json.gz", None)]


def test_reduced_forms_in_an_archive(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small"
    assert main(["reduce", str(_packed(job, ".tar.gz")), "-o", str(small), "-q"]) == 0
    assert len(list(small.iterdir())) == 3
    assert _report(capsys, _packed(small, ".zip")) == _report(capsys, small)


def _zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def _tar(path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data) * (kind == tarfile.REGTYPE), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["../t.json", "a/../../t.json", "/t.json", "C:/t.json", "a\\..\\t.json", "a\nb.json"])
@pytest.mark.parametrize(("write", "suffix"), [(_zip, ".zip"), (_tar, ".tar.gz")])
def test_names_that_lead_elsewhere_are_refused(
    name: str, write: Callable[[Path, dict[str, bytes]], Path], suffix: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"j{suffix}", {"good.json": _text(), name: _text()})
    with pytest.raises(InputError, match="unsafe file name") as raised:
        jobs.find([path])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_no_files(kind: bytes, tmp_path: Path) -> None:
    path = _tar(tmp_path / "j.tar.gz", {"t.json": _text()}, kind)
    with pytest.raises(InputError, match="no trace in it"):
        jobs.find([path])


def test_archives_in_archives_are_not_opened(job: Path, tmp_path: Path) -> None:
    inner = _packed(job, ".tar.gz").read_bytes()
    path = _tar(tmp_path / "outer.tar", {"job/t.json": _text(), "inner.tar.gz": inner, "inner.zip": inner})
    (found,) = jobs.find([path])
    assert [one.profile.name for one in found.traces] == ["t.json"]
    assert "inner.tar.gz (an archive in an archive" in found.health[0].message
    hidden = _tar(tmp_path / "hidden.tar", {"t.json": _zip(tmp_path / "x.zip", {"t.json": _text()}).read_bytes()})
    with pytest.raises(InputError, match="an archive in an archive"):
        jobs.find([hidden])


@pytest.mark.parametrize(("write", "suffix"), [(_zip, ".zip"), (_tar, ".tar.gz")])
def test_bombs_are_refused_by_what_they_state(
    write: Callable[[Path, dict[str, bytes]], Path], suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "BOMB_BYTES", 1 << 20)
    path = write(tmp_path / f"j{suffix}", {"a.json": b" " * (8 << 20), "b.json": b" " * (8 << 20)})
    with pytest.raises(InputError, match=r"KB state to unpack to \d+ MB; not read"):
        jobs.find([path])
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    many = write(tmp_path / f"m{suffix}", {f"{number}.json": b"" for number in range(3)})
    with pytest.raises(InputError, match="more than 2 files"):
        jobs.find([many])


def test_a_member_that_unpacks_to_more_than_it_should_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gzip in a zip: what the archive states says nothing about it."""
    monkeypatch.setattr("advisor.trace.read.source.BOMB_BYTES", 4 << 20)
    bomb = gzip.compress(b'{"traceEvents": [' + b" " * (16 << 20))
    path = _zip(tmp_path / "j.zip", {"a.json.gz": bomb, "b.json.gz": bomb})
    with pytest.raises(InputError, match="more than any trace"):
        load(f"{path}!/a.json.gz")


def test_a_tar_header_that_asks_for_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 32
    path = tmp_path / "j.tar"
    path.write_bytes(info.tobuf() + bytes(1024))
    with pytest.raises(InputError, match="a header of more than 16 MB"):
        jobs.find([path])


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz"])
def test_an_archive_that_is_cut_off_is_read_or_refused(job: Path, suffix: str) -> None:
    path = _packed(job, suffix)
    data = path.read_bytes()
    for share in range(1, 20):
        path.write_bytes(data[: len(data) * share // 20])
        said = ""
        try:
            for found in jobs.find([path]):
                for one in found.traces:
                    load(one.profile)
        except InputError as refusal:
            said = str(refusal)
        assert "\n" not in said


def test_a_member_names_itself(job: Path) -> None:
    path = _packed(job, ".zip")
    member = Member(Archive(path), "job/rank0.json.gz")
    assert str(member) == f"{path}!/job/rank0.json.gz"
    again = place(str(member))
    assert again == member
    assert len(load(again).events) == len(load(job / "rank0.json.gz").events)
    assert member.parent.is_dir()
    assert not member.parent.is_file()
    assert [one.name for one in member.parent.glob("rank1*")] == ["rank1.json.gz"]


def test_a_local_folder_with_an_exclamation_mark_is_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "x.zip!" / "t.json"
    path.parent.mkdir()
    path.write_bytes(_text())
    assert place(path.as_posix()) == path


class TestZstd:
    """Written with the package `zstandard`, read with it or, from Python 3.14 on, with the standard library."""

    @pytest.fixture
    def packed(self) -> Callable[[bytes], bytes]:
        zstandard = pytest.importorskip("zstandard", reason="the extra `zstd` is not installed")
        compress: Callable[[bytes], bytes] = zstandard.ZstdCompressor().compress
        return compress

    def test_the_same_report(
        self, packed: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for folder in ("plain", "packed"):
            (tmp_path / folder).mkdir()
        for rank in range(2):
            text = _text(rank, 2, 600)
            (tmp_path / "plain" / f"rank{rank}.json").write_bytes(text)
            half = len(text) // 2
            data = packed(text[:half]) + packed(text[half:])  # two frames
            (tmp_path / "packed" / f"rank{rank}.json.zst").write_bytes(data)
        plain, zst = _report(capsys, tmp_path / "plain"), _report(capsys, tmp_path / "packed")
        assert zst.replace("packed", "plain").replace(".zst", "") == plain

    def test_in_archives(self, packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
        single = _zip(tmp_path / "s.zip", {"t.json.zst": packed(_text())})
        several = _tar(tmp_path / "s.tar.gz", {"t.json.zst": packed(_text())})
        assert len(load(single).events) == len(load(f"{several}!/t.json.zst").events) > 0

    def test_cut_off(self, packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
        data = packed(_text(steps=3000))
        path = tmp_path / "t.json.zst"
        path.write_bytes(data[: len(data) * 2 // 3])
        trace = load(path)
        assert len(trace.events) > 100
        assert any("cut off" in item.message for item in trace.health)

    def test_damaged_anywhere(self, packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
        data = packed(_text(steps=300))
        path = tmp_path / "t.json.zst"
        for at in range(4, len(data), len(data) // 40):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
            said = ""
            try:
                load(path)
            except InputError as refusal:
                said = str(refusal)
            assert "\n" not in said

    def test_a_bomb(self, packed: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("advisor.trace.read.source.BOMB_BYTES", 4 << 20)
        (tmp_path / "t.json.zst").write_bytes(packed(b'{"traceEvents": [' + b" " * (64 << 20)))
        with pytest.raises(InputError, match="more than any trace"):
            load(tmp_path / "t.json.zst")

    def test_without_the_package_it_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
        monkeypatch.setitem(__import__("sys").modules, "compression", None)
        (tmp_path / "t.json.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(64))
        with pytest.raises(InputError, match="needs the package zstandard"):
            load(tmp_path / "t.json.zst")
