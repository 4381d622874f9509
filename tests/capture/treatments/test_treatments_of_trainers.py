"""Treatments in loops of others, where those are installed: Lightning's Trainer and that of Transformers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.gate import undo
from advisor.gate.turns import Runner, environment

pytestmark = [pytest.mark.torch, pytest.mark.complete]

LIGHTNING = """
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 5))

    def training_step(self, batch, _):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

if __name__ == "__main__":
    data = TensorDataset(torch.randn(400, 3, 16, 16), torch.randint(0, 5, (400,)))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", detect_anomaly=True, **options)
    trainer.fit(Model(), DataLoader(data, 8, shuffle=True))
"""
TRANSFORMERS = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, index):
        return {"input_ids": torch.arange(16) + index % 50, "labels": torch.tensor(index % 2)}

if __name__ == "__main__":
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=100, **sizes))
    options = {"max_steps": 60, "report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    Trainer(model, TrainingArguments("kept", **options), train_dataset=Data()).train()
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(True)
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(800, 8), torch.randn(800, 1))
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, 4, shuffle=True))
    for inputs, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(inputs), labels))
        SAID
        optimizer.step()
"""
# What each rank trains with, once for all steps.
SAID = (
    'print(torch.is_anomaly_enabled(), OPTIMIZER.param_groups[0]["fused"], '
    'file=open(f"rank{torch.distributed.get_rank()}", "w"))'
)
WANTED = (
    ("seeds", {"value": 0}),
    ("autocast", {"dtype": "bfloat16"}),
    ("loader", {"num_workers": 1}),
    ("optimizer", {"fused": True}),
    ("calls", {"names": ["torch.autograd.set_detect_anomaly"]}),
)


@pytest.mark.parametrize(
    ("package", "script", "more"),
    [
        ("lightning", LIGHTNING, {"Sequential", "calls of set_detect_anomaly() do nothing"}),
        ("transformers", TRANSFORMERS, {"BertForSequenceClassification"}),
    ],
)
def test_changes_reach_the_loop_of_a_trainer(tmp_path: Path, package: str, script: str, more: set[str]) -> None:
    pytest.importorskip(package)
    (tmp_path / "train.py").write_text(script)
    losses, reached = [], []
    for wanted in (WANTED[:1], WANTED):
        settings = {"treatments": [{"name": n, "arguments": a} for n, a in wanted], "losses": 100, "whole": True}
        with Runner((sys.executable, "train.py"), tmp_path, environment(), settings) as process:
            process.ready()
            process.turn(20)
            facts = process.facts()
        losses.append([float.fromhex(text) for text in facts["losses"][:20]])
        reached = facts["reached"]
    assert len(losses[0]) == 20
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert {"DataLoader", "AdamW"} <= set(reached)
    assert all(any(text.startswith(name) for text in reached) for name in more)


@pytest.mark.parametrize(
    ("package", "script"),
    [
        (
            "lightning",
            LIGHTNING.replace('accelerator="cpu"', 'accelerator="cpu", devices=2, strategy="ddp"')
            .replace("400", "1600")
            .replace(
                "images, labels = batch",
                f"images, labels = batch; {SAID.replace('OPTIMIZER', 'self.optimizers().optimizer')}",
            ),
        ),
        ("accelerate", ACCELERATE.replace("SAID", SAID.replace("OPTIMIZER", "optimizer"))),
    ],
)
def test_changes_reach_both_ranks_of_a_trainer(tmp_path: Path, package: str, script: str) -> None:
    pytest.importorskip(package)
    (tmp_path / "train.py").write_text(script)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    wanted = [{"name": name, "arguments": arguments} for name, arguments in (WANTED[0], *WANTED[3:])]
    losses, said = [], []
    for treatments in (wanted[:1], wanted):
        settings = {"treatments": treatments, "losses": 100, "whole": True}
        with Runner(torchrun, tmp_path, environment(), settings) as process:
            process.ready()
            process.turn(20)
            facts = process.facts()
        losses.append(facts["losses"][:20])
        said.append([(tmp_path / f"rank{rank}").read_text().split() for rank in (0, 1)])
    assert said == [[["True", "None"]] * 2, [["False", "True"]] * 2]
    assert {"AdamW", "calls of set_detect_anomaly() do nothing"} <= set(facts["reached"])
    assert len(losses[0]) == len(losses[1]) == 20


@pytest.mark.parametrize(
    ("package", "script", "least"),
    [
        (
            "lightning",
            LIGHTNING.replace('"logger": False, "enable_checkpointing": False, ', '"log_every_n_steps": 1, '),
            2,
        ),
        ("transformers", TRANSFORMERS.replace('"save_strategy": "no"', '"save_steps": 3'), 4),
    ],
)
def test_starts_leave_nothing(tmp_path: Path, package: str, script: str, least: int) -> None:
    """Folders of runs, logs and checkpoints, those that safetensors writes included."""
    pytest.importorskip(package)
    (tmp_path / "train.py").write_text(script)
    stays: undo.Stays
    for stays in ("downloads", "nothing"):
        with undo.journal(stays) as (folder, left):
            with Runner((sys.executable, "train.py"), tmp_path, environment(), {"undo": folder}) as process:
                process.ready()
                process.turn(8)
            written = len(list(tmp_path.rglob("*")))
        assert left == []
        assert written > least
        assert [path.name for path in tmp_path.rglob("*")] == ["train.py"]
