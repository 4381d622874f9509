"""`advisor demo`, and the offer to open a page, on a pseudo-terminal, with a browser that takes notes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import complete

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
net = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(320, 16), torch.randint(0, 4, (320,))), batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""
RUN = ["run", "--no-calibrate", "--steps", "3", "train.py"]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which the browser writes the addresses that it is asked to open."""
    notes, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {notes}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    return notes


def on_terminal(words: list[str], folder: Path, types: bytes) -> tuple[int, str]:
    """Runs advisor on a terminal on which somebody types; its status and all that the terminal shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "advisor", *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder
    )
    os.close(theirs)
    os.write(ours, types)
    shown = b""
    while True:
        try:
            more = os.read(ours, 1 << 16)
        except OSError:
            break
        if not more:
            break
        shown += more
    os.close(ours)
    return process.wait(), shown.decode("utf-8", "replace")


@pytest.mark.complete
@pytest.mark.parametrize(("answer", "opens"), [(b"y\n", True), *complete((b"\n", False))])
def test_run_offers_to_open_the_page_on_a_terminal(answer: bytes, opens: bool, tmp_path: Path, opened: Path) -> None:
    pytest.importorskip("torch")
    status, shown = on_terminal(RUN, tmp_path, answer)
    assert status == 0, shown
    assert "Open the page in a browser? [y/N]" in shown
    assert opened.exists() == opens
    if opens:
        assert opened.read_text().strip() == (tmp_path / "advisor-report" / "report.html").as_uri()


def test_run_asks_nothing_in_ci(tmp_path: Path, opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CI", "true")
    status, shown = on_terminal(RUN, tmp_path, b"y\n")
    assert status == 0, shown
    assert "Open the page" not in shown
    assert not opened.exists()


@pytest.mark.complete
def test_the_demo_reports_on_the_sample_and_opens_the_page(tmp_path: Path, opened: Path) -> None:
    pytest.importorskip("torchvision")
    status, shown = on_terminal(["demo"], tmp_path, b"")
    assert status == 0, shown
    page = opened.read_text().strip().removeprefix("file://")
    assert f"page: {page}" in shown
    assert "small-batch" in Path(page).read_text("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["browser", "opened", "train.py"]


def test_the_demo_without_torch_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name.startswith('torch') else find(name, *more)\n"
        "from advisor.cli import main; sys.exit(main(['demo']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == ("advisor: the sample script needs torch and torchvision: pip install torch torchvision\n")
    assert done.stdout == ""
