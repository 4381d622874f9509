"""Metrics that a real run calls: of torchmetrics, with a package of that name installed, and of the script's own."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from types import FrameType

import pytest
from capture_runs import advised

torch = pytest.importorskip("torch")

METRIC = """import torch
class Metric(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = []
    def update(self, scores):
        self.kept.append(scores)
    def forward(self, scores):
        self.update(scores)
        return torch.cat(self.kept[-1:] * 400).sort().values.mean()
"""
# Held by what is no module: a metric in a list, and one in a dictionary whose call only updates.
HELD = """import torch
class Scores(torch.nn.Module):
    def __init__(self, computes):
        super().__init__()
        self.computes, self.kept = computes, []
    def update(self, scores):
        self.kept = [scores]
    def compute(self):
        return torch.cat(self.kept * 400).sort().values.mean()
    def reset(self):
        self.kept = []
    def forward(self, scores):
        self.update(scores)
        return self.compute() if self.computes else None
class Training:
    def __init__(self):
        self.net = torch.nn.Linear(64, 8)
        self.scores = [Scores(True)]
        self.others = {"kept": Scores(False)}
    def run(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for number in range(60):
            optimizer.zero_grad()
            output = self.net(torch.randn(64, 64))
            output.square().mean().backward()
            optimizer.step()
            self.scores[0](output.detach().flatten())
            self.others["kept"](output.detach().flatten())
Training().run()
"""
SCRIPT = """import torch
from torchmetrics.metric import Metric
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 8)
        self.score = Metric()
    def forward(self, x):
        return self.layer(x)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(60):
    optimizer.zero_grad()
    output = net(torch.randn(64, 64))
    net.score.CALL(output.detach().flatten())
    output.square().mean().backward()
    optimizer.step()
"""


@pytest.mark.variants(1)
@pytest.mark.parametrize(("called", "found"), [("__call__", True), ("update", False)])
def test_a_metric_that_is_called_is_told_at_its_line(tmp_path: Path, called: str, found: bool) -> None:
    """`update()` computes no value."""
    installed = tmp_path / "user" / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    package = installed / "torchmetrics"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "metric.py").write_text(METRIC)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("CALL", called))
    env = {"PYTHONUSERBASE": str(tmp_path / "user"), "PYTHONPATH": str(installed)}
    done = advised("--quiet", "--output", "out", str(script), cwd=tmp_path, env=env)
    assert done.status == 0, done.err
    recorded = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))["ranks"][0]
    modules = {one["path"]: one.get("metric", False) for one in recorded["model"]["modules"]}
    assert modules == {"Net": False, "layer": False, "score": True}
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    [told] = [one for one in report["outcomes"] if one["rule"] == "called-metrics"]
    lines = [one["where"][0]["line"] for one in told["findings"]]
    assert lines == ([15] if found else [])


@pytest.mark.complete
def test_a_metric_outside_of_the_model_is_told_where_its_call_computes(tmp_path: Path) -> None:
    """Whatever package its class is of; one whose call only updates is not told."""
    script = tmp_path / "train.py"
    script.write_text(HELD)
    done = advised("--quiet", "--output", "out", str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    [told] = [one for one in report["outcomes"] if one["rule"] == "called-metrics"]
    line = HELD.splitlines().index("            self.scores[0](output.detach().flatten())") + 1
    [found] = told["findings"]
    assert (found["where"][0]["line"], found["facts"]["metric"]) == (line, "scores")


def test_a_metric_of_a_module_is_named_by_its_attribute() -> None:
    """The frame is the one of the module's method that calls it."""
    from advisor.capture.inside.windows.metrics import name_of

    class Score(torch.nn.Module):
        update = compute = reset = torch.nn.Module.eval

    class Task(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.train_score = Score()

        def frame(self) -> FrameType | None:
            return inspect.currentframe()

    task = Task()
    assert name_of(task.train_score, task.frame(), lambda frame: True) == "train_score"
