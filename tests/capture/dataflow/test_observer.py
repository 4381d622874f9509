"""The observer in the user's process: what it keeps, what it leaves out and says, and that it leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from observed_runs import Run, observed  # noqa: E402
from torch import nn  # noqa: E402

from advisor.capture.inside.dataflow import observer_file  # noqa: E402
from advisor.capture.inside.dataflow.held_tensors import HeldTensors  # noqa: E402
from advisor.capture.inside.dataflow.observer import Observer  # noqa: E402
from advisor.capture.inside.steps.clock import Clock  # noqa: E402
from advisor.capture.inside.windows.window import Window  # noqa: E402

NET = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
DATA = torch.randn(40, 6)


def observer_in(folder: Path) -> Observer:
    return Observer(str(folder), lambda: str(folder / "dataflow.gz"))


def test_what_stands_in_the_way_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    observer = observer_in(tmp_path)
    assert observer.record() is None
    assert not observer.start(True)
    assert "compiled" in observer.why
    observer.look()
    assert observer.start(False)
    (tmp_path / "other").mkdir()
    other = observer_in(tmp_path / "other")
    assert not other.start(False)
    assert "own execution-trace observer" in other.why
    observer.open(0)
    observer.stop(False)
    assert observer.record() == {"why": "the observed steps were cut short"}
    assert [path.name for path in tmp_path.rglob("*")] == ["other"]


def test_a_step_never_fails_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer that breaks on its way in or out is switched off, and says so in the record alone."""
    window = Window({"folder": str(tmp_path)}, lambda role: str(tmp_path / role), Clock(lambda: "cpu"))
    monkeypatch.setattr(window, "compiles", lambda: 0)  # whatever other tests compiled in this process
    with monkeypatch.context() as broken:
        broken.setattr(window.observer.held, "mark", lambda: 1 / 0)
        assert window.observe() == 0
    assert window.observer.record() == {"why": "the observer did not start (ZeroDivisionError)"}
    assert window.observe() == 2
    window.open(0)
    with monkeypatch.context() as broken:
        broken.setattr(window.observer, "_keep", lambda: 1 / 0)
        window.observed(True)
    assert window.observer.record() == {"why": "the observer's output could not be kept (ZeroDivisionError)"}
    assert window.observe() == 2
    window.discard()
    assert not window.observer.on
    assert not list(tmp_path.iterdir())


def test_a_forked_process_is_not_observed(tmp_path: Path) -> None:
    observer = observer_in(tmp_path)
    observer.look()
    assert observer.start(False)
    observer.open(0)
    child = os.fork()
    if not child:
        observer.in_child()
        torch.ones(3).exp()
        os._exit(int(observer.on))
    assert os.waitpid(child, 0)[1] == 0
    NET(DATA[:2])
    observer.close()
    observer.open(1)
    observer.stop(True)
    assert len(Run(observer, tmp_path / "dataflow.gz").steps.steps) == 2


def test_a_file_without_what_is_the_scripts_own_affair(tmp_path: Path) -> None:
    """No number that an op returned to Python, no text that the script gave to a range; what ops were given stays."""

    def step() -> None:
        with torch.profiler.record_function("patients", "text of the script"):
            loss = torch.einsum("ij->", torch.full((2, 3), 1.25)) * 0.5
        assert loss.item() == 3.75
        assert bool(loss > 1)

    text = gzip.decompress(observed(tmp_path, step).file.read_bytes()).decode()
    nodes = json.loads(text)["nodes"]
    assert "text of the script" not in text
    assert "3.75" not in text
    assert [one["inputs"]["values"] for one in nodes if one["name"] == "patients"] == [[""]] * 2
    assert {str(one["outputs"]["values"]) for one in nodes if one["name"] == "aten::item"} == {"[0]"}
    assert [one["inputs"]["values"][0] for one in nodes if one["name"] == "aten::einsum"] == ["ij->"] * 2
    assert 1.25 in nodes[[one["name"] for one in nodes].index("aten::full")]["inputs"]["values"]


NODE = """      {
        "id": 7, "name": "%s", "ctrl_deps": 4,
        "inputs": {"values": [%s], "shapes": [%s], "types": [%s], "strides": []},
        "outputs": {"values": [%s], "shapes": [], "types": [], "strides": []},
        "attrs": [{"name": "tid", "type": "uint64", "value": 1},%s]
      },
"""
LAST = ",".join(
    f'{{"name": "{name}", "type": "string", "value": "%s"}}'
    for name in ("kernel_backend", "kernel_file", "tensor_range")
)


def test_parts_of_nodes_that_are_removed() -> None:
    """Paths and ranges of values, where an observer is set to write them; several numbers and texts at once."""
    plain = NODE % (
        "a",
        '"b \\" c","d"',
        "[],[]",
        '"String","String"',
        "1.5,true",
        LAST % ("", "/home/me/k.py", "[1, 2]"),
    )
    cleaned = json.loads(observer_file.cleaned(plain.encode()).decode().strip().rstrip(","))
    assert (cleaned["inputs"]["values"], cleaned["outputs"]["values"]) == (["", ""], [0, 0])
    assert [one["value"] for one in cleaned["attrs"]] == [1, "", "", ""]
    usual = NODE % (
        "aten::pad",
        '[1,2,0,4,4,"cpu"],"reflect"',
        "[4],[]",
        '"Tensor(float)","String"',
        "",
        LAST % ("", "", ""),
    )
    kept = usual.replace("," + LAST % ("", "", ""), "")
    assert observer_file.cleaned(usual.encode()).decode() == kept


class _Full:
    """A packer on a full disk."""

    def compress(self, _text: bytes) -> bytes:
        raise OSError(28, "No space left on device")


class _Interrupted:
    """A packer in which Ctrl-C arrives."""

    def compress(self, _text: bytes) -> bytes:
        raise KeyboardInterrupt


def test_what_ends_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, kept = tmp_path / "plain.json", tmp_path / "dataflow.gz"
    plain.write_text(NODE * 3)
    for packer, failure in ((_Full, OSError), (_Interrupted, KeyboardInterrupt)):
        with monkeypatch.context() as broken:
            broken.setattr(observer_file.zlib, "compressobj", lambda *_, made=packer: made())
            with pytest.raises(failure):
                observer_file.pack(str(plain), str(kept))
        assert list(tmp_path.iterdir()) == [plain]
    monkeypatch.setattr(observer_file, "MOST_BYTES", 10)
    assert "takes more than" in observer_file.pack(str(plain), str(kept))
    assert list(tmp_path.iterdir()) == [plain]


def test_many_looks_take_a_small_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterators that begin again and again: the tensors are no longer looked at once that took its share."""
    held = HeldTensors()
    tensors = [torch.zeros(1) for _ in range(50)]
    held.find(tensors)
    held.mark()
    held.settle()
    assert len(held.states) >= len(tensors)
    held.look([])
    monkeypatch.setattr(held, "looked_s", 1e9)
    held.look([])
    assert held.looks == 1
