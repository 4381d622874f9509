"""Callbacks in the real frameworks, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

HEAD = """
import json, os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.randn(320, 16), torch.randint(0, 4, (320,)))
def show(**values):
    print("\\n" + json.dumps(values))
"""
LIGHTNING = """
import lightning.pytorch as lightning
from advisor.frameworks.lightning import AdvisorCallback
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 4)
    def training_step(self, batch, index):
        if self.global_step == FAILS:
            raise RuntimeError("mine")
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def fit(callback, epochs):
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), DataLoader(data, batch_size=8))
"""
TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
from advisor.frameworks.transformers import AdvisorCallback
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 4)
    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}
rows = [{"x": x, "labels": y} for x, y in data]
def fit(callback, epochs):
    arguments = TrainingArguments(output_dir="out", num_train_epochs=epochs, per_device_train_batch_size=8,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no")
    Trainer(Model(), arguments, train_dataset=rows, callbacks=[callback]).train()
"""
TWICE = """
callback = AdvisorCallback(at_step=5, every_n_epochs=2, output="reports", steps=3, calibrate=False)
fit(callback, 5)
show(steps=[one.report.steps.count for one in callback.profiles], frameworks=sorted(os.listdir("reports")),
     sources=[one.report.steps.source for one in callback.profiles],
     lines=[row.name for row in callback.profiles[0].report.lines])
"""


def run(package: str, code: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What the script shows last, and its standard error; skipped where the package is not installed."""
    pytest.importorskip(package)
    script = folder / "train.py"
    script.write_text(HEAD + code)
    # Frameworks that find nothing of a cluster's must not look for it.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "RAY_TRAIN_V2_ENABLED": "1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize(("package", "loop"), [("lightning", LIGHTNING), ("transformers", TRANSFORMERS)])
def test_profiles_begin_at_a_step_and_every_n_epochs(package: str, loop: str, tmp_path: Path) -> None:
    found, _ = run(package, "FAILS = -1\n" + loop + TWICE, tmp_path)
    # An epoch has 40 steps: the first profile begins in epoch 0, the others with epochs 2 and 4.
    assert found["frameworks"] == ["step-160", "step-5", "step-80"]
    assert found["steps"] == [3, 3, 3]
    assert any(name.startswith("train.py:") for name in found["lines"])
    record = json.loads((tmp_path / "reports" / "step-5" / "run.json").read_text())
    assert record["ranks"][0]["settings"]["framework"] == package


def test_lightning_an_exception_passes_and_the_hooks_are_gone(tmp_path: Path) -> None:
    code = """
callback = AdvisorCallback(steps=3, calibrate=False)
try:
    fit(callback, 1)
except RuntimeError as failure:
    said = str(failure)
from advisor.capture.inside.hosted import taken
show(said=said, taken=taken(), folder=sorted(os.listdir()))
"""
    found, said = run("lightning", "FAILS = 6\n" + LIGHTNING + code, tmp_path)
    assert found == {"said": "mine", "taken": "", "folder": ["train.py"]}
    assert "there is no report: the loop ended after " in said


def test_accelerate_the_tracker_profiles_from_a_logged_step(tmp_path: Path) -> None:
    code = """
from accelerate import Accelerator
from advisor.frameworks.accelerate import AdvisorTracker
tracker = AdvisorTracker(at_step=4, steps=3, calibrate=False)
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("demo")
net = torch.nn.Linear(16, 4)
optimizer, loader = torch.optim.SGD(net.parameters(), lr=0.1), DataLoader(data, batch_size=4)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    accelerator.backward(loss)
    optimizer.step()
    accelerator.log({"loss": loss.item()}, step=step)
accelerator.end_training()
(profile,) = tracker.tracker
show(steps=profile.report.steps.count, source=profile.report.steps.source, folder=sorted(os.listdir()))
"""
    found, said = run("accelerate", code, tmp_path)
    assert found == {"steps": 3, "source": "loader", "folder": ["train.py"]}
    assert "per step" in said


def test_ray_the_worker_of_rank_0_is_profiled(tmp_path: Path) -> None:
    code = """
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
def loop(config):
    from advisor.frameworks.ray import profile
    net = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with profile(output=config["output"], steps=3, calibrate=False) as run:
        for x, y in DataLoader(config["data"], batch_size=4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    ray.train.report({"profiled": run is not None})
ray.init(num_cpus=2, include_dashboard=False)
here = os.getcwd()
TorchTrainer(loop, train_loop_config={"output": f"{here}/report", "data": data},
    scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(storage_path=f"{here}/ray")).fit()
show(steps=json.load(open("report/report.json"))["steps"]["count"])
"""
    found, _ = run("ray", code, tmp_path)
    assert found == {"steps": 3}


def test_a_callback_inside_of_a_profile_leaves_training_alone(tmp_path: Path) -> None:
    code = """
import advisor
with advisor.profile(steps=3, calibrate=False) as around:
    fit(AdvisorCallback(), 1)
show(steps=around.report.steps.count)
"""
    found, said = run("lightning", "FAILS = -1\n" + LIGHTNING + code, tmp_path)
    assert found == {"steps": 3}
    assert said.count("advisor: another advisor.profile is active in this process") == 1


def test_a_negative_step_is_refused() -> None:
    from advisor.errors import UsageError
    from advisor.frameworks.schedule import Schedule

    with pytest.raises(UsageError, match="at_step=-1, every_n_epochs=0: neither can be negative"):
        Schedule(-1, 0, None, {})
