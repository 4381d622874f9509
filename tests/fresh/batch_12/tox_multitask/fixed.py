"""Twelve toxicity assays at once from circular fingerprints, with restartable training."""

import os
import shutil
import tempfile
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_assays(compounds, bits, tasks, seed=17):
    generator = torch.Generator().manual_seed(seed)
    fingerprints = (torch.rand(compounds, bits, generator=generator) < 0.06).float()
    direction = torch.randn(bits, tasks, generator=generator) / 8
    active = (fingerprints @ direction + torch.randn(compounds, tasks, generator=generator) * 0.5) > 0.6
    measured = (torch.rand(compounds, tasks, generator=generator) < 0.75).float()
    return fingerprints, active.float(), measured


class MultitaskNet(nn.Module):
    """A shared trunk and one small tower per assay."""

    def __init__(self, bits, tasks, trunk=(1000, 500), tower=50, dropout=0.25):
        super().__init__()
        layers, width = [], bits
        for size in trunk:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
            width = size
        self.trunk = nn.Sequential(*layers)
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, tower), nn.ReLU(), nn.Linear(tower, 1)) for _ in range(tasks)
        )

    def forward(self, x):
        shared = self.trunk(x)
        return torch.cat([tower(shared) for tower in self.towers], dim=1)


class Checkpoints:
    """Keeps the newest few states of a training run in a directory."""

    def __init__(self, directory, keep=5):
        self.directory, self.kept = directory, deque()
        self.keep = keep
        os.makedirs(directory, exist_ok=True)

    def save(self, step, model, optimizer):
        path = os.path.join(self.directory, f"model-{step}.pt")
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        self.kept.append(path)
        while len(self.kept) > self.keep:
            os.remove(self.kept.popleft())

    def newest(self):
        return self.kept[-1] if self.kept else None


class TensorGraphModel:
    def __init__(self, bits, tasks, model_dir, batch_size=64, learning_rate=1e-3, checkpoint_interval=200):
        self.net = MultitaskNet(bits, tasks)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=learning_rate)
        self.batch_size = batch_size
        self.checkpoint_interval = checkpoint_interval
        self.checkpoints = Checkpoints(model_dir)
        self.step = 0

    def loss(self, x, y, w):
        per_label = F.binary_cross_entropy_with_logits(self.net(x), y, reduction="none")
        return (per_label * w).sum() / w.sum().clamp_min(1)

    def fit(self, x, y, w, nb_epoch):
        self.net.train()
        for epoch in range(nb_epoch):
            order = torch.randperm(len(x))
            total, batches = torch.zeros(()), 0
            for rows in order.split(self.batch_size):
                loss = self.loss(x[rows], y[rows], w[rows])
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
                batches += 1
                self.step += 1
                if self.step % self.checkpoint_interval == 0:
                    self.checkpoints.save(self.step, self.net, self.optimizer)
            print(f"epoch {epoch}: average loss {total.item() / batches:.4f}")

    def restore(self):
        state = torch.load(self.checkpoints.newest(), weights_only=True)
        self.net.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    @torch.no_grad()
    def predict(self, x):
        self.net.eval()
        return torch.cat([self.net(part).sigmoid() for part in x.split(512)])


def rank_auc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    positive = labels > 0.5
    n_pos, n_neg = positive.sum(), (~positive).sum()
    return ((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)).item()


def main():
    torch.manual_seed(17)
    bits, tasks = 1024, 12
    x, y, w = make_assays(7200, bits, tasks)
    split = 6400
    directory = tempfile.mkdtemp(prefix="tox_")
    try:
        model = TensorGraphModel(bits, tasks, model_dir=directory)
        model.fit(x[:split], y[:split], w[:split], nb_epoch=6)
        model.restore()
        scores = model.predict(x[split:])
        aucs = [rank_auc(scores[w[split:, t] > 0, t], y[split:][w[split:, t] > 0, t]) for t in range(tasks)]
        print("mean ROC AUC", round(sum(aucs) / tasks, 3))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
