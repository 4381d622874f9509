"""The cell magic in a real Jupyter kernel, and what a notebook shows of it in a real browser."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import chromium
import pytest

pytest.importorskip("torch")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")

TRAINING = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
net = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(800, 64), torch.randint(0, 10, (800,))), batch_size=8)"""
CELL = """\
%%advisor --steps 5 run
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(inputs), labels)
    total = sum(float(value) for value in range(3000))
    loss.backward()
    optimizer.step()
last = float(loss.detach())"""
CELLS = [
    "%load_ext advisor",
    TRAINING,
    CELL,
    "print(run.report.steps.count, run.report.steps.source, last > 0)\nprint([row.name for row in run.report.lines])\n"
    "import re\nprint(re.findall(r'ipykernel|[0-9]{6,}[.]py', run.page + repr(run)))",
    "%%advisor --stepz 5\nlast = None",
    "%%advisor\nlast = 1 / 0",
    "%%advisor\nlast = 2",
    "print(last)",
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook, run in a kernel of this interpreter."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    manager = AsyncKernelManager()
    manager._kernel_spec = KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        made, km=manager, timeout=180, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    assert list(folder.iterdir()) == []
    return made


def output(notebook: Any, cell: int, kind: str) -> Any:
    found = [one for one in notebook.cells[cell].outputs if one.output_type == kind]
    assert found, notebook.cells[cell].outputs
    return found[0]


def test_the_cell_shows_its_report(notebook: Any) -> None:
    shown = output(notebook, 2, "execute_result").data
    assert shown["text/html"].startswith("<iframe srcdoc=")
    assert "s per step" in shown["text/plain"]


def test_variables_lines_and_the_result_are_those_of_the_notebook(notebook: Any) -> None:
    steps, lines, hidden = output(notebook, 3, "stream").text.splitlines()
    assert steps == "5 loader True"
    # As the cell is shown, with the magic as its first line.
    assert "In [3]:4 <module>" in lines
    assert hidden == "[]"


def test_mistakes_and_errors_reach_the_notebook(notebook: Any) -> None:
    mistake = notebook.cells[4].outputs
    assert [one.output_type for one in mistake] == ["stream"]
    assert "%%advisor: unrecognized arguments: --stepz" in mistake[0].text
    failure = output(notebook, 5, "error")
    assert failure.ename == "ZeroDivisionError"
    assert "no training step was detected in this block" in output(notebook, 6, "stream").text
    assert output(notebook, 7, "stream").text == "2\n"


@pytest.mark.browser
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine")
def test_the_output_is_a_readable_page_that_loads_nothing(notebook: Any, tmp_path: Path) -> None:
    page = tmp_path / "output.html"
    html = output(notebook, 2, "execute_result").data["text/html"]
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{html}", "utf-8")
    with chromium.browser(tmp_path / "profile") as browser:
        browser.open(page)
        assert browser.requests() == []
        assert browser.complaints() == []
        assert browser.run("document.querySelector('iframe').getBoundingClientRect().height") > 700
        until = time.monotonic() + 20
        # A frame is painted after the page around it; an empty one has a few thousand bytes.
        while len(picture := browser.picture()) < 20_000 and time.monotonic() < until:
            time.sleep(0.2)
    (tmp_path / "output.png").write_bytes(picture)
    assert len(picture) > 20_000
