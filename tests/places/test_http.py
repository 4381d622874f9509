"""Traces behind http: the same report as from disk, faults in one line, and no secret in any output."""

from __future__ import annotations

import gzip
import json
import random
import sys
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path

import kineto_files.dialects as made
import pytest
from http_faults import Server, serving

from advisor.cli import main
from advisor.errors import InputError
from advisor.inputs import jobs
from advisor.places import remote
from advisor.places.place import place
from advisor.trace.read.load import load

pytestmark = pytest.mark.variants(2)

pytest.importorskip("fsspec", reason="the extra `cluster` is not installed")
pytest.importorskip("aiohttp", reason="the extra `cluster` is not installed")
SECRET = "SECRETSIGNATURE"


def _trace(path: Path, rank: int = 0, world: int = 1, steps: int = 6, packed: bool = True) -> Path:
    head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    # A text that does not shrink, so that the file takes several blocks.
    noise = "".join(random.Random(rank).choices("0123456789abcdef", k=steps * 1000))
    data = made.text(made.rows(steps), {**head, "noise": noise}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "www") as found:
        yield found


def _report(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["analyze", *words, "--format", "json", "-q"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("fault", ["", "no ranges"])
def test_the_report_is_that_of_the_local_file(
    server: Server, capsys: pytest.CaptureFixture[str], packed: bool, fault: str
) -> None:
    path = _trace(server.folder / "a" / "t.pt.trace.json", steps=600, packed=packed)
    server.fault = fault
    assert _report(capsys, f"{server.address}/a/t.pt.trace.json") == _report(capsys, str(path))
    if not fault:
        # A glance at the start, then the file once.
        assert server.sent <= path.stat().st_size + (2 << 20)


def test_a_folder_of_ranks_and_workers_is_read_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        _trace(server.folder / "job" / f"rank{rank}.json.gz", rank, 3)
    size = sum(path.stat().st_size for path in server.folder.rglob("*.gz"))
    (job,) = jobs.find([f"{server.address}/job/"])
    assert [one.rank for one in job.traces] == [0, 1, 2]
    assert job.health == ()
    glance = server.sent
    assert glance <= size + 4096
    text = _report(capsys, f"{server.address}/job/", "--workers", "2")
    assert text == _report(capsys, str(server.folder / "job"))


def test_a_recorded_run_by_its_run_json(server: Server) -> None:
    _trace(server.folder / "run" / "rank0.json.gz")
    files = [{"path": "rank0.json.gz", "role": "profile"}, {"path": "../secret.json.gz", "role": "lines"}]
    _trace(server.folder / "secret.json.gz")
    (server.folder / "run" / "run.json").write_text(
        json.dumps({"version": 1, "ranks": [{"rank": 0, "world_size": 1, "files": files}]})
    )
    for address in (f"{server.address}/run/", f"{server.address}/run/run.json"):
        (job,) = jobs.find([address])
        assert job.run is not None
        assert [(str(one.profile), one.lines) for one in job.traces] == [(f"{server.address}/run/rank0.json.gz", None)]
    assert not any("secret" in asked for asked in server.asked)


@pytest.mark.parametrize("fault", ["", "no ranges"])
def test_a_zip_of_several_ranks(server: Server, fault: str) -> None:
    server.folder.mkdir()
    with zipfile.ZipFile(server.folder / "job.zip", "w") as archive:
        for rank in range(2):
            archive.write(_trace(server.folder / f"rank{rank}.json", rank, 2, 600), f"job/rank{rank}.json.gz")
    server.fault = fault
    (job,) = jobs.find([f"{server.address}/job.zip"])
    assert [(one.rank, len(load(one.profile).events) > 100) for one in job.traces] == [(0, True), (1, True)]


def test_a_connection_that_breaks_once_is_taken_up_again(server: Server) -> None:
    path = _trace(server.folder / "t.json", steps=1200, packed=False)
    server.fault = "cut once"
    assert len(load(f"{server.address}/t.json").events) == len(load(path).events)
    assert server.cuts == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("403", "access is refused \\(403\\)"),
        ("404", "no such file or folder"),
        ("slow", "no answer within 0.5 s"),
        ("cut", "broke after .* of .* bytes, 3 times"),
        ("grows", "changed while it was being read"),
    ],
)
def test_faults_are_said_in_one_line_without_secrets(
    server: Server,
    fault: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(remote, "STALL_S", 0.5)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
    _trace(server.folder / "t.json", steps=2000, packed=False)
    server.fault = fault
    name = "absent.json" if fault == "404" else "t.json"
    address = f"http://user:{SECRET}@127.0.0.1:{server.server_port}/{name}?X-Amz-Signature={SECRET}"
    with pytest.raises(InputError, match=said) as raised:
        load(address)
    assert "\n" not in str(raised.value)
    server.gets = 0
    assert main(["analyze", address]) == 4
    shown = "".join(capsys.readouterr())
    assert len(shown.strip().splitlines()) == 1
    assert SECRET not in shown + "".join(traceback.format_exception(raised.value))


def test_secrets_reach_neither_reports_nor_reduced_forms(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        _trace(server.folder / f"rank{rank}.json.gz", rank, 2)
    addresses = [
        f"http://user:{SECRET}@127.0.0.1:{server.server_port}/rank{rank}.json.gz?token={SECRET}" for rank in range(2)
    ]
    formats = ["--format", "html", "--format", "json", "--format", "sarif", "--format", "markdown"]
    assert main(["analyze", *addresses, *formats, "-o", str(tmp_path / "out")]) == 0
    assert main(["reduce", *addresses, "-o", str(tmp_path / "small"), "--workers", "2"]) == 0
    shown = "".join(capsys.readouterr())
    written = [path for path in (*(tmp_path / "out").iterdir(), *(tmp_path / "small").iterdir()) if path.is_file()]
    assert len(written) >= 5
    assert SECRET not in shown
    from advisor.engine.reduced_form import decode

    for path in written:
        assert SECRET.encode() not in path.read_bytes()
        if path.suffix == ".rank":
            assert SECRET not in repr(decode(path.read_bytes(), path))
    assert any(SECRET in asked for asked in server.asked)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://u:p@host/a/t.json?sig=x#y", "https://host/a/t.json"),
        ("https://token@host/a", "https://host/a"),
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
    ],
)
def test_addresses_are_shown_without_credentials(address: str, shown: str) -> None:
    assert str(place(address)) == shown
    assert repr(place(address)) == f"Remote({shown!r})"
    assert f"{place(address).name}" == shown.rpartition("/")[2]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(InputError, match="gs:// needs the package gcsfs"):
        load("gs://bucket/t.json")


def test_schemes_that_copy_or_run_things_are_refused() -> None:
    for address in ("simplecache://x", "ssh://host/t.json", "github://o:r@/t.json"):
        with pytest.raises(InputError, match="are not supported, only s3,"):
            load(address)


def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    path = _trace(tmp_path / "a b.json.gz")
    assert place(path.as_uri()) == path
