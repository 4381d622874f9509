"""Regression with a tiny trainer: module, trainer and a logger that writes metrics.csv."""

import csv
import os
import tempfile

import torch
from torch import nn


class CSVLogger:
    """Collects metrics and keeps a file with all of them."""

    def __init__(self, folder, flush_every=2):
        self.path = os.path.join(folder, "metrics.csv")
        self.flush_every = flush_every
        self.metrics = []
        self.calls = 0

    def log_metrics(self, metrics, step):
        self.metrics.append({"step": step, **{name: float(value) for name, value in metrics.items()}})
        self.calls += 1
        if self.calls % self.flush_every == 0:
            self.save()

    def save(self):
        if not self.metrics:
            return
        with open(self.path, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.metrics[0]))
            writer.writeheader()
            writer.writerows(self.metrics)


class RegressionModule(nn.Module):
    def __init__(self, features=24, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Linear(width, 2),
        )

    def training_step(self, batch):
        x, y = batch
        mean, log_var = self.net(x).unbind(dim=1)
        error = (mean - y).square()
        nll = 0.5 * (log_var + error * torch.exp(-log_var)).mean()
        with torch.no_grad():
            logs = {
                "train_loss": nll.item(),
                "train_mse": error.mean().item(),
                "train_mae": error.sqrt().mean().item(),
                "mean_log_var": log_var.mean().item(),
                "max_error": error.max().item(),
            }
        return nll, logs

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3, fused=True)
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=1100)


class Trainer:
    def __init__(self, max_epochs, logger):
        self.max_epochs = max_epochs
        self.logger = logger
        self.global_step = 0

    def fit(self, module, data, batch_size):
        optimizer, scheduler = module.configure_optimizers()
        x, y = data
        for epoch in range(self.max_epochs):
            order = torch.randperm(len(x))
            for rows in order.split(batch_size):
                optimizer.zero_grad()
                loss, logs = module.training_step((x[rows], y[rows]))
                loss.backward()
                optimizer.step()
                scheduler.step()
                logs["lr"] = scheduler.get_last_lr()[0]
                logs["epoch"] = epoch
                self.logger.log_metrics(logs, self.global_step)
                self.global_step += 1
            print(f"epoch {epoch}: {logs['train_loss']:.4f} (mse {logs['train_mse']:.4f})")
        self.logger.save()


def make_data(rows=28160, features=24):
    x = torch.randn(rows, features)
    y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.1 * x[:, 3:].abs().sum(dim=1)
    return x, y + 0.2 * torch.randn(rows)


if __name__ == "__main__":
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as run_folder:
        trainer = Trainer(max_epochs=10, logger=CSVLogger(run_folder))
        trainer.fit(RegressionModule(), make_data(), batch_size=256)
        print(f"{os.path.getsize(trainer.logger.path)} bytes of metrics")
