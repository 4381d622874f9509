"""Marks of functions on a sampled stack: torch's own, by where they are in the torch that is installed."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from types import FrameType

import pytest

from advisor.capture.inside.steps.code_marks import Codes, _package

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def marks_of(frame: FrameType | None) -> set[str]:
    codes, found = Codes(), set()
    while frame is not None:
        found.add(codes.known[codes.of(frame.f_code)].mark)
        frame = frame.f_back
    return found - {""}


def test_a_training_step_is_told_by_torchs_functions() -> None:
    """A hook, an optimizer's step and a module see which of them they stand below."""
    seen: dict[str, set[str]] = {}

    class Seen(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen["forward"] = marks_of(sys._getframe())
            return x * 2

    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda grad: seen.update(backward=marks_of(sys._getframe())))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    Seen()(weight).sum().backward()

    def closure() -> float:
        seen["optimizer"] = marks_of(sys._getframe())
        return 0.0

    optimizer.step(closure)
    assert {name: name in marks for name, marks in seen.items()} == dict.fromkeys(
        ("forward", "backward", "optimizer"), True
    )
    assert "backward" not in seen["optimizer"] | seen["forward"]


def test_a_checkpoint_that_is_compressed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    class Told:
        """A file, which sees from where it is written."""

        def write(self, data: bytes) -> int:
            seen.update(marks_of(sys._getframe()))
            return len(data)

        def flush(self) -> None:
            pass

    with gzip.GzipFile(fileobj=Told(), mode="wb") as file:  # type: ignore[call-overload]
        torch.save({"weight": torch.rand(1 << 16)}, file)
    assert {"save", "compress"} <= seen


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("site-packages/torch/nn/modules/module.py", "torch"),
        ("overlay/torch/nn/modules/module.py", "torch"),  # of a folder on the path that is named otherwise
        ("overlay/six.py", "six"),
        ("elsewhere/tools/reader.py", "tools"),
    ],
)
def test_the_package_of_a_function_is_the_first_folder_below_the_path(
    file: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "overlay")])
    assert _package(str(tmp_path / file)) == package


def test_the_package_of_a_function_of_the_standard_library() -> None:
    assert _package(gzip.__file__) == "gzip"
    assert _package(str(pytest.importorskip("json.decoder").__file__)) == "json"
