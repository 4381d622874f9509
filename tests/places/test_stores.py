"""Object stores: an S3 server on loopback (moto's), and fsspec's memory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kineto_files.dialects as made
import pytest

from advisor.cli import main
from advisor.errors import InputError
from advisor.inputs import jobs
from advisor.places import remote
from advisor.trace.read.load import load

fsspec = pytest.importorskip("fsspec", reason="the extra `cluster` is not installed")


def _files(world: int = 2, steps: int = 6) -> dict[str, bytes]:
    found = {}
    for rank in range(world):
        head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
        found[f"rank{rank}.json.gz"] = gzip.compress(made.text(made.rows(steps), head).encode())
    return found


@dataclass
class Store:
    """A folder of the store: its address, and what of fsspec writes to it."""

    address: str
    system: Any

    def put(self, name: str, data: bytes) -> str:
        self.system.pipe_file(f"{self.address}/{name}", data)
        return f"{self.address}/{name}"


@pytest.fixture
def memory() -> Iterator[Store]:
    system = fsspec.filesystem("memory")
    yield Store("memory://bucket/job", system)
    system.store.clear()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "SECRETKEY",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    system = fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True)
    system.mkdirs("bucket", exist_ok=True)
    if system.exists("bucket/job"):
        system.rm("bucket/job", recursive=True)
    return Store("s3://bucket/job", system)


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


def _report(capsys: pytest.CaptureFixture[str], *words: Path | str) -> str:
    assert main(["analyze", *map(str, words), "--format", "json", "-q", "--workers", "1"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_folder_a_glob_and_files_give_the_local_report(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job").mkdir()
    addresses = []
    for name, data in _files().items():
        addresses.append(store.put(name, data))
        (tmp_path / "job" / name).write_bytes(data)
    local = _report(capsys, tmp_path / "job")
    assert _report(capsys, store.address) == local
    assert _report(capsys, f"{store.address}/") == local
    assert _report(capsys, f"{store.address}/rank*.json.gz") == local
    assert _report(capsys, *addresses) == local


def test_reduced_forms_lie_there_too(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data in _files().items():
        store.put(name, data)
    assert main(["reduce", store.address, "-o", str(tmp_path / "small"), "-q", "--workers", "1"]) == 0
    written = sorted((tmp_path / "small").iterdir())
    assert len(written) == 2
    for path in written:
        store.put(f"small/{path.name}", path.read_bytes())
    assert _report(capsys, f"{store.address}/small") == _report(capsys, tmp_path / "small")


def test_a_run_folder_without_its_traces_is_known_by_its_reduced_forms(store: Store, tmp_path: Path) -> None:
    for name, data in _files().items():
        store.put(name, data)
    assert main(["reduce", store.address, "-o", str(tmp_path), "-q", "--workers", "1"]) == 0
    ranks = [
        {"rank": rank, "world_size": 2, "files": [{"path": f"rank{rank}.json.gz", "role": "profile"}]}
        for rank in range(2)
    ]
    store.put("run/run.json", json.dumps({"version": 1, "ranks": ranks}).encode())
    for path in tmp_path.iterdir():
        store.put(f"run/{path.name}", path.read_bytes())
    (job,) = jobs.find([f"{store.address}/run"])
    assert [one.reduced is not None for one in job.traces] == [True, True]


def test_an_archive_in_a_store(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tarfile
    import zipfile

    (tmp_path / "job").mkdir()
    for name, data in _files().items():
        (tmp_path / "job" / name).write_bytes(data)
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "job", "job")
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for path in (tmp_path / "job").iterdir():
            archive.write(path, f"job/{path.name}")
    local = _report(capsys, tmp_path / "job")
    for name in ("job.tar.gz", "job.zip"):
        assert _report(capsys, store.put(name, (tmp_path / name).read_bytes())) == local


def test_what_is_absent(store: Store) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        jobs.find([f"{store.address}/absent.json"])
    with pytest.raises(InputError, match="no such file or folder"):
        jobs.find([f"{store.address}/absent*.json"])
    with pytest.raises(InputError, match="no such file or folder"):
        load(f"{store.address}/absent.json")


def test_an_empty_bucket_and_an_empty_folder_are_one_line(s3: Store, capsys: pytest.CaptureFixture[str]) -> None:
    s3.system.mkdirs("empty", exist_ok=True)
    for address, says in {"s3://empty": "no trace in it", "s3://empty/job/": "no such file or folder"}.items():
        assert main(["analyze", address]) == 4
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert says in line


def test_a_file_that_is_replaced_while_it_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    address = store.put("t.json", made.text(made.rows(2000)).encode())
    fetched = remote._Blocks._fetched

    def replaced(self: Any, end: int) -> bytes:
        data = fetched(self, end)
        store.put("t.json", made.text(made.rows(1990)).encode())
        return data

    monkeypatch.setattr(remote._Blocks, "_fetched", replaced)
    with pytest.raises(InputError, match="changed while it was being read"):
        load(address)


def test_workers_read_from_s3_too(s3: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data in _files(3).items():
        s3.put(name, data)
    alone = _report(capsys, s3.address)
    assert main(["analyze", s3.address, "--format", "json", "-q", "--workers", "2"]) == 0
    assert capsys.readouterr().out == alone


def test_s3_refuses(s3: Store, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        jobs.find(["s3://no-such-bucket/t.json"])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(InputError, match="no credentials were found"):
        load(s3.put("t.json.gz", _files(1)["rank0.json.gz"]))
